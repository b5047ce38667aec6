package ringwise

import (
	"sync"
	"sync/atomic"
	"time"
)

// Hooks are told of events. Each may be nil. They run one at a time, never
// from Pick and never under a lock, in the goroutine of Run, Maintain,
// Observe or the call that caused them; up to 256 wait, further ones are
// dropped and counted. A hook that panics is isolated and counted.
type Hooks struct {
	// Transition: a worker's penalty machine changed its phase.
	Transition func(t Transition)
	// Refresh: the topology should be fetched anew, at most once a second for
	// one worker and reason.
	Refresh func(r Refresh)
	// Failover: a worker went Down or left, so its keys go to the next on the
	// ring: the replica there may need repair.
	Failover func(worker string)
}

// Transition is one step of a worker's penalty machine.
type Transition struct {
	Worker   string
	Write    bool // the lane of writes, else of reads
	From, To Phase
	Until    time.Duration // To Cooldown: how long it lasts
}

// Refresh asks for a newer topology.
type Refresh struct {
	Reason RefreshReason
	Worker string // who said so; empty for the topology as a whole
	Leader string // whom the worker named, by Outcome.Leader
}

// RefreshReason says why a topology is asked for.
type RefreshReason uint8

// The reasons.
const (
	RefreshStaleVerdict RefreshReason = iota // a worker answered that the map is old (MOVED)
	RefreshExpired                           // the topology is past its TTL
	RefreshGap                               // a version was skipped
)

var refreshNames = [...]string{"stale verdict", "expired", "version gap"}

func (r RefreshReason) String() string { return nameOf(refreshNames[:], int(r)) }

const (
	hookQueue       = 256
	refreshInterval = int64(time.Second)
)

type eventKind uint8

const (
	eventTransition eventKind = iota
	eventRefresh
	eventFailover
)

type event struct {
	kind       eventKind
	transition Transition
	refresh    Refresh
	worker     string
}

// hookRunner queues events and runs the caller's hooks one at a time.
type hookRunner struct {
	hooks Hooks
	queue chan event
	// running is taken by TryLock alone and held while hooks run: nobody ever
	// waits for a hook.
	running sync.Mutex
	// mu guards asked, when each refresh was last asked for; it is held for a
	// map operation.
	mu    sync.Mutex
	asked map[refreshKey]int64

	dropped, panics atomic.Uint64
	stopped         atomic.Bool // by Close
}

type refreshKey struct {
	reason RefreshReason
	worker string
}

const maxAsked = 4096

func newHookRunner(h Hooks) *hookRunner {
	return &hookRunner{hooks: h, queue: make(chan event, hookQueue), asked: map[refreshKey]int64{}}
}

func (r *hookRunner) enqueue(e event) {
	if r.stopped.Load() {
		return
	}
	select {
	case r.queue <- e:
	default:
		r.dropped.Add(1)
	}
}

// refresh queues a request for a topology, once a second for one worker and
// reason.
func (r *hookRunner) refresh(f Refresh, now int64) {
	if r.hooks.Refresh == nil {
		return
	}
	key := refreshKey{f.Reason, f.Worker}
	r.mu.Lock()
	last, seen := r.asked[key]
	ask := !seen || now-last >= refreshInterval
	if ask {
		if len(r.asked) >= maxAsked {
			clear(r.asked)
		}
		r.asked[key] = now
	}
	r.mu.Unlock()
	if ask {
		r.enqueue(event{kind: eventRefresh, refresh: f})
	}
}

// drain runs what is queued, unless someone is at it already, who will.
func (r *hookRunner) drain() {
	for len(r.queue) > 0 && r.running.TryLock() {
		r.drainLocked()
	}
}

// drainLocked ends with running unlocked, also where a hook ends its
// goroutine.
func (r *hookRunner) drainLocked() {
	defer r.running.Unlock()
	for {
		select {
		case e := <-r.queue:
			if !r.stopped.Load() {
				r.run(e)
			}
		default:
			return
		}
	}
}

func (r *hookRunner) run(e event) {
	defer func() {
		if recover() != nil {
			r.panics.Add(1)
		}
	}()
	switch e.kind {
	case eventTransition:
		r.hooks.Transition(e.transition)
	case eventRefresh:
		r.hooks.Refresh(e.refresh)
	case eventFailover:
		if r.hooks.Failover != nil {
			r.hooks.Failover(e.worker)
		}
	}
}
