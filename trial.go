package ringwise

import (
	"math"
	"sync/atomic"
	"time"
)

// Groups of picks while a canary runs.
const (
	groupNone    = iota // the live coefficients, not counted
	groupControl        // the live coefficients, counted to compare with
	groupCanary         // the candidate's
	groups
)

var groupNames = [groups]string{"", "control", "canary"}

// trial is one step of a canary as picks and their ends see it. It is made
// anew for each step; only the counters change.
type trial struct {
	salt     uint64
	canary   uint64 // of 2^32: keys whose mixed hash is under it are the canary's
	control  uint64 // of 2^32: keys whose mixed hash is this far from the end
	tenants  map[string]bool
	tenanted bool // tenants count in this step
	flagged  bool // what is flagged is the canary's
	since    int64
	step     int // from 1, of steps: for who asks what runs
	steps    int
	group    [groups]*trialGroup
}

// fairUnit is one pick in units that 1..16 candidates divide.
const fairUnit = 720720

// trialGroup counts one group. All counters saturate: at 2^63 or, by bucket
// of the histogram, at 2^31.
type trialGroup struct {
	picks  atomic.Uint64
	ends   atomic.Uint64 // that say something of a worker
	errors atomic.Uint64
	rtt    rttHistogram // of answers
	inv    atomic.Uint64
	// By slot: picks, and what an even split over the candidates of the same
	// picks would have been, in fairUnits. One hot key, which only one group
	// can have, is in both and does not show.
	taken, fair []atomic.Uint64
}

func newTrialGroup(slots int) *trialGroup {
	return &trialGroup{taken: make([]atomic.Uint64, slots), fair: make([]atomic.Uint64, slots)}
}

// add counts up and stands still at the top.
func addSat(n *atomic.Uint64, d uint64) {
	if n.Load() < math.MaxInt64 {
		n.Add(d)
	}
}

// place is where a key is in [0, 2^32), the same in each step and on each
// client, and unlike its place on the ring.
func (t *trial) place(h KeyHash) uint64 { return mix64(uint64(h)^t.salt) >> 32 }

// of names the group of a request.
func (t *trial) of(h KeyHash, tenant string, canary bool) int {
	if canary && t.flagged || t.tenanted && tenant != "" && t.tenants[tenant] {
		return groupCanary
	}
	if h == 0 || canary {
		return groupNone
	}
	switch u := t.place(h); {
	case u < t.canary:
		return groupCanary
	case u >= 1<<32-t.control:
		return groupControl
	}
	return groupNone
}

// picked counts a choice among candidates.
func (t *trial) picked(group int, candidates []uint16, chosen int) {
	g := t.group[group]
	part := uint64(fairUnit / len(candidates))
	for _, slot := range candidates {
		if int(slot) < len(g.fair) {
			addSat(&g.fair[slot], part)
		}
	}
	if slot := candidates[chosen]; int(slot) < len(g.taken) {
		addSat(&g.taken[slot], fairUnit)
	}
	addSat(&g.inv, part)
	addSat(&g.picks, 1)
}

// ended books the end of a counted request; those of an earlier step are not.
func (t *trial) ended(group int, start int64, v Verdict, rtt time.Duration, measured bool) {
	if t == nil || start < t.since || !v.judges() {
		return
	}
	g := t.group[group]
	addSat(&g.ends, 1)
	switch {
	case v == Fault || v == Broken || v == Overload:
		addSat(&g.errors, 1)
	case v == OK && measured:
		g.rtt.record(rtt)
	}
}
