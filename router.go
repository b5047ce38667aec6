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
	sampleUnder uint64
	done        chan struct{}

	// mu serialises the writers of snap and guards cold states, fold and the
	// slots. Pick never takes it, Observe only tries. No caller's code runs
	// under it.
	mu    sync.Mutex
	fold  folding
	gens  []uint32 // by slot: the generation of its last Ref
	free  []uint16 // slots to use again
	close sync.Once

	runners      atomic.Int64
	retries      budget // of Do
	retiredPicks uint64 // of workers that have left; guarded by mu

	anySeq  atomic.Uint64 // of Any picks, whose draw has no tickets to mix
	samples sampleRing
}

// New makes a Router of a first set of workers, which may be empty. A bad
// worker, option or Tuning gives a *ConfigError and nothing is left behind.
// It starts no goroutine: go r.Run(ctx) gives it one of the caller's.
func New(workers []Worker, opts ...Option) (*Router, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	r := &Router{config: *c, sampleUnder: sampleLimit(c.sample), done: make(chan struct{})}
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
	r.retries.fill() // the first failures should not be the callers'

	ring, err := newRing(nil, c.points, defaultSlotBits, c.replicas)
	if err != nil {
		return nil, err
	}
	coef := compile(c.tuning)
	sn := &snapshot{ring: ring, coef: coef, plain: c.plain() && coef.plain(), tuningVersion: 1, byID: map[string]uint16{}}
	for i := range sn.special {
		sn.special[i] = specialFlags(Intent(i))
	}
	for ln := range sn.fleet {
		sn.fleet[ln] = coldFleet(coef)
	}
	r.snap.Store(sn)
	if err := r.setTopology(Topology{Workers: workers}, true); err != nil {
		return nil, err
	}
	return r, nil
}

// coldFleet is what a lane starts with before the first answer.
func coldFleet(c *coefficients) fleet {
	mean := float64(c.tuning.InitialLatency)
	return fleet{mean: mean, inv: 1 / mean, slow: 2 * mean}
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
		next.closed, next.plain = true, false
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
	next := *sn
	next.coef = compile(t)
	next.plain = r.plain() && next.coef.plain()
	next.tuningVersion++
	for ln := range next.fleet {
		if next.fleet[ln].n == 0 {
			next.fleet[ln] = coldFleet(next.coef)
		}
	}
	r.capOut(&next, int64(capOut(len(next.live), t.MaxOut)), now)
	next.cols = r.columns(&next, now)
	r.snap.Store(&next)
	return nil
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
