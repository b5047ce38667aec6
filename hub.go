package ringwise

import (
	"sync/atomic"
	"time"
)

// hub is the part of a Router that Choices need. Grouped by who writes.
type hub struct {
	// snap is read by every Pick; nothing that Picks write is near it.
	snap atomic.Pointer[snapshot]
	// Set by New, read-only afterwards.
	epoch    time.Time
	clock    func() time.Time // nil: the monotonic clock
	guard    *clockGuard      // of clock
	seed     uint64           // of key hashes
	salt     uint64           // of the random source
	classify Classifier
	foldDue  func(now int64)
	history  *kindHistory // of kinds of keys; nil where no scorer needs it
	*hookRunner

	_ [64]byte
	// out counts workers in cooldown by lane.
	out [lanes]fleetOut
	// nextFold is when the next Observe may fold, ns.
	nextFold atomic.Int64
	fbSeen   atomic.Bool // some answer carried feedback
	counters counters
	hedge    hedge
}

// counters only grow; they are touched only when something is out of the
// ordinary.
type counters struct {
	doubleDone, expired, lateDone, untracked   atomic.Uint64
	deadlines                                  atomic.Uint64 // of callers, before the request time-out
	noWorker, staleRefs, unknownIDs, oversized atomic.Uint64
	relaxed, trips                             atomic.Uint64
	verdicts                                   [verdicts]atomic.Uint64
	reports                                    [reportReasons]atomic.Uint64
	probesAsked, probesFailed                  atomic.Uint64
	rebased, badScores, plugPanics             atomic.Uint64
	saturated, tries                           atomic.Uint64
}

// now is ns since the router was made, never under zero.
func (h *hub) now() int64 {
	if h.clock == nil {
		return int64(time.Since(h.epoch))
	}
	return h.guard.now(h.read())
}

// read asks the caller's clock; one that panics stands still and is counted.
func (h *hub) read() (t time.Time) {
	defer func() {
		if recover() != nil {
			h.counters.plugPanics.Add(1)
			t = h.epoch.Add(time.Duration(h.guard.current().last.Load()))
		}
	}()
	return h.clock()
}

// at turns a caller's time into ns since the router was made.
func (h *hub) at(t time.Time) int64 {
	if h.clock == nil {
		return max(int64(t.Sub(h.epoch)), 0)
	}
	ns, set := h.guard.at(t)
	if set {
		h.now()
		ns, _ = h.guard.at(t)
	}
	return ns
}

// wall is the wall time at now by the clock New saw: stepping the wall clock
// changes nothing.
func (h *hub) wall(now int64) time.Time { return h.epoch.Round(0).Add(time.Duration(now)) }

// latest is the wall time at now, or what the clock says where that is later:
// it may have been set after New, or the machine have slept.
func (h *hub) latest(now int64) time.Time {
	t, read := h.wall(now), time.Now
	if h.clock != nil {
		read = h.read
	}
	if c := read().Round(0); c.After(t) {
		return c
	}
	return t
}
