package ringwise

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringwise/ringwise/hotkey"
)

// Hooks are told of events. Each may be nil. They run one at a time, never
// from Pick and never under a lock, in the goroutine of Run, Maintain or the
// call that caused them, and in that of an Observe that folds where there is no
// Run or it is in a handler of WithDecisionLog: that Observe waits for them. Up
// to 256 wait, further ones are dropped and counted. A hook that panics is
// isolated and counted.
type Hooks struct {
	// Transition: a worker's penalty machine changed its phase.
	Transition func(t Transition)
	// Refresh: the topology should be fetched anew, at most once a second for
	// one worker and reason.
	Refresh func(r Refresh)
	// Probe: nothing was heard of a worker for Tuning.ProbeAfter, so it should
	// be sent a cheap request, whose end goes to Router.ProbeResult. At most
	// once a second for one worker and for 32 workers at a time, until a
	// result or an answer comes. ringwise itself sends nothing. It must not
	// wait for the answer: other hooks wait for it.
	Probe func(worker string)
	// Failover: a worker went Down or left, so its keys go to the next on the
	// ring: the replica there may need repair.
	Failover func(worker string)
	// HotKey: a key became hot, cold, or hot in another way (WithHotKeys).
	// One under a read burst is worth a short-lived local cache, one under
	// sustained reads more replicas: those HotSpread picks among.
	HotKey func(c hotkey.Change)
	// Alarm: something that a person should look at; docs/operations.md says
	// what each kind means. Status.Warnings says the same as long as it lasts.
	Alarm func(a Alarm)
}

// Alarm is something that looks wrong.
type Alarm struct {
	Kind   AlarmKind
	Worker string // whom it is about, where it is about one
	Text   string
	// Value is the figure and Limit what it passed, where there are any.
	Value, Limit float64
}

// AlarmKind says what an Alarm is about.
type AlarmKind uint8

// The kinds.
const (
	AlarmCanary    AlarmKind = iota // a canary ended, or is through its steps
	AlarmShadow                     // a shadow's scores differ by more than GapAlarm
	AlarmSelfCheck                  // scores run against success
	AlarmFlap                       // a worker's share or weight saws
	AlarmSaturated                  // every worker that could serve is far over its usual load
)

var alarmNames = [...]string{"canary", "shadow", "self-check", "flap", "saturated"}

func (k AlarmKind) String() string { return nameOf(alarmNames[:], int(k)) }

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
	RefreshStaleReport                       // a worker's report is past its trust window
)

var refreshNames = [...]string{"stale verdict", "expired", "version gap", "stale report"}

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
	eventProbe
	eventHotKey
	eventAlarm
)

type event struct {
	kind       eventKind
	transition Transition
	refresh    Refresh
	worker     string
	hot        hotkey.Change
	alarm      Alarm
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

func (r *hookRunner) alarm(a Alarm) {
	if r.hooks.Alarm != nil {
		r.enqueue(event{kind: eventAlarm, alarm: a})
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
	case eventProbe:
		r.hooks.Probe(e.worker)
	case eventFailover:
		if r.hooks.Failover != nil {
			r.hooks.Failover(e.worker)
		}
	case eventHotKey:
		r.hooks.HotKey(e.hot)
	case eventAlarm:
		r.hooks.Alarm(e.alarm)
	}
}
