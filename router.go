package ringwise

import (
	"sync"
	"sync/atomic"
	"time"
)

// Router names a worker for each request. All its methods are safe for
// concurrent use. Use one Router per process and cluster: each learns from
// the answers it sees, and twenty that share the traffic see a twentieth.
type Router struct {
	hub

	// Set by New, read-only afterwards.
	config
	keepUnder uint64 // of 32 random bits: decisions to keep
	unix      int64  // Unix time of now 0, ns
	done      chan struct{}
	wake      chan struct{} // tells Run of a fold by an Observe

	// mu serialises the writers of snap and guards cold states, fold and the
	// slots. Pick never takes it, Observe only tries. No caller's code runs
	// under it.
	mu       sync.Mutex
	fold     folding
	watching watching
	// versions of coefficients given out; a canary's that failed is not used again.
	versions uint64
	gens     []uint32 // by slot: the generation of its last Ref
	firstGen uint32   // where they began
	free     []uint16 // slots to use again
	close    sync.Once

	rollout  rollout
	shadowed atomic.Pointer[shadowing]

	runners      atomic.Int64
	foldTook     atomic.Int64 // ns, of the last Maintain or Run
	retries      budget       // of Do
	probeNext    int          // where the last search for workers to probe stopped; guarded by mu
	retiredPicks uint64       // of workers that have left; guarded by mu

	mix  trafficMix // guarded by mu
	heat heating    // of WithHotKeys

	anySeq  atomic.Uint64 // of Any picks, whose draw has no tickets to mix
	samples sampleRing
}

// routers counts those made: each begins with generations of its own, so that
// none takes another's Ref for one of its workers.
var routers atomic.Uint32

// New makes a Router of a first set of workers, which may be empty. A bad
// worker, option or Tuning gives a *ConfigError and nothing is left behind.
// It starts no goroutine: go r.Run(ctx) gives it one of the caller's.
func New(workers []Worker, opts ...Option) (*Router, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	r := &Router{config: *c, keepUnder: sampleLimit(c.sample), done: make(chan struct{}), wake: make(chan struct{}, 1), versions: 1, firstGen: routers.Add(1) << 16}
	r.hub.epoch, r.hub.clock = time.Now(), c.clock
	if c.clock != nil {
		if r.hub.epoch = c.clock(); r.hub.epoch.Year() < 1900 {
			return nil, &ConfigError{"WithClock", r.hub.epoch, "a clock that tells the time when New is called"}
		}
	}
	r.guard = &clockGuard{epoch: r.hub.epoch}
	r.hub.seed, r.hub.salt, r.hub.classify = c.seed, newSalt(), c.classify
	if c.random != nil {
		r.hub.salt = c.random()
	}
	r.hub.foldDue = r.observeFold
	r.hookRunner = newHookRunner(c.hooks)
	r.samples.init(c.keep)
	r.unix = r.hub.epoch.UnixNano()
	for _, p := range c.scorers {
		if remembers(p.code) {
			r.hub.history = newHistory()
		}
	}
	if r.log != nil {
		r.log.by = r
	}
	r.retries.fill() // the first failures should not be the callers'

	ring, err := newRing(nil, c.points, defaultSlotBits, c.replicas)
	if err != nil {
		return nil, err
	}
	coef := compile(c.tuning)
	sn := &snapshot{ring: ring, coef: coef, direct: c.plain() && coef.plain(), tuningVersion: 1, byID: map[string]uint16{}}
	for ln := range sn.fleet {
		sn.fleet[ln] = coldFleet(coef)
	}
	r.sampleLimits(sn)
	r.snap.Store(sn)
	if err := r.setTopology(Topology{Workers: workers}, true); err != nil {
		return nil, err
	}
	return r, nil
}

// coldFleet is what a lane starts with before the first answer.
func coldFleet(c *coefficients) fleet {
	mean := float64(c.tuning.InitialLatency)
	return fleet{mean: mean, inv: 1 / mean, bare: 1 / mean, slow: 2 * mean}
}

// plain: weights come by multiplication alone.
func (c *coefficients) plain() bool {
	return c.k > 0 && c.tuning.MinShare == 0 && c.tuning.LiveWeight > 0
}

// Close ends Run and makes every later Pick fail with ErrClosed; choices that
// are out may still be closed, which gives their reservations back and does
// nothing else. No hook runs any more but one that is at it. It is idempotent
// and returns nil.
func (r *Router) Close() error {
	r.close.Do(func() {
		r.mu.Lock()
		next := *r.snap.Load()
		next.closed, next.direct, next.plain = true, false, false
		next.trial, next.canary, next.shadow = nil, nil, nil
		r.snap.Store(&next)
		r.stopped.Store(true)
		r.mu.Unlock()
		close(r.done)
	})
	return nil
}

// Retune replaces the coefficients. On an error nothing changes; equal
// coefficients change nothing either. The version rises with each change.
func (r *Router) Retune(t Tuning) error {
	if err := t.Validate(); err != nil {
		return err
	}
	now := r.now() // the caller's code, so not under mu
	r.mu.Lock()
	defer r.mu.Unlock()
	sn := r.snap.Load()
	if sn.closed {
		return ErrClosed
	}
	if sn.coef.tuning == t {
		return nil
	}
	if sn.trial != nil {
		return sn.canaryRuns() // the groups would no longer be what they are compared as
	}
	next := *sn
	r.versions++
	r.adopt(&next, compile(t), r.versions, now)
	r.publish(&next, now)
	return nil
}

// adopt puts coefficients into a snapshot that is to be published.
func (r *Router) adopt(next *snapshot, c *coefficients, version uint64, now int64) {
	next.coef, next.tuningVersion = c, version
	next.direct = r.plain() && c.plain()
	for ln := range next.fleet {
		if next.fleet[ln].n == 0 {
			next.fleet[ln] = coldFleet(c)
		}
	}
	r.capOut(next, int64(capOut(len(next.live), c.tuning.MaxOut)), now)
	next.cols = r.columns(next, now)
}

// sampleLimits sets which picks go the long way for somebody's sake.
func (r *Router) sampleLimits(sn *snapshot) {
	sn.sampleUnder = max(r.keepUnder, sn.shadowUnder)
	if r.log != nil {
		sn.sampleUnder = max(sn.sampleUnder, r.log.under)
	}
}

// Tuning returns the coefficients in force.
func (r *Router) Tuning() Tuning { return r.snap.Load().coef.tuning }

// Ref names a worker for Among and Locators; false where it is not known.
func (r *Router) Ref(id string) (Ref, bool) {
	sn := r.snap.Load()
	slot, ok := sn.byID[id]
	if !ok {
		return Ref{}, false
	}
	n := sn.nodes[slot]
	return n.ref(n.Role), true
}
