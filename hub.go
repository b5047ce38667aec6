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
	noWorker, staleRefs, unknownIDs, oversized atomic.Uint64
	relaxed, trips                             atomic.Uint64
	verdicts                                   [verdicts]atomic.Uint64
	reports                                    [reportReasons]atomic.Uint64
	rebased, badScores, plugPanics             atomic.Uint64
}

// now is ns since the router was made, never under zero.
func (h *hub) now() int64 {
	if h.clock == nil {
		return int64(time.Since(h.epoch))
	}
	return h.guard.now(h.clock())
}

// at turns a caller's time into ns since the router was made.
func (h *hub) at(t time.Time) int64 {
	ns := int64(t.Sub(h.epoch))
	if h.clock != nil {
		ns += h.guard.offset.Load()
	}
	return max(ns, 0)
}

// wall is the wall time at now by the clock New saw: stepping the wall clock
// changes nothing.
func (h *hub) wall(now int64) time.Time { return h.epoch.Round(0).Add(time.Duration(now)) }
