package ringwise

import (
	"math"
	"sync/atomic"
)

// hedge decides when a copy of a slow request may be sent: after k fleet
// means, k moving so that seven of ten copies win, and within a budget.
//
// A fixed percentile of latency is a bad delay: it copies the largest
// requests, the most in a healthy fleet (docs/policy.md).
type hedge struct {
	_      [64]byte // each hedgeable request touches what follows
	tokens budget
	k      atomic.Uint64 // float64 bits; 0: not moved yet
	sent   atomic.Uint64
	won    atomic.Uint64
	_      [40]byte
}

// hedgeStep is the gain on k of one hedged call.
const hedgeStep = 0.1

// hedgeWins is the share of copies that win at which k stands still. At a half,
// copies that lose cost 2.4 % of p99 where speeds change (scenario c), now 1.2.
const hedgeWins = 0.7

func (g *hedge) factor(t *Tuning) float64 {
	k := math.Float64frombits(g.k.Load())
	if k == 0 {
		k = t.HedgeStart
	}
	return clamp(k, t.HedgeMin, t.HedgeMax)
}

// learn moves k after a hedged call: up where the first answered after all,
// down where the copy won. A lost race loses one step.
func (g *hedge) learn(t *Tuning, won bool) {
	x := 0.0
	if g.sent.Load() <= g.won.Load() {
		return // Superseded, but by no copy of ours
	}
	if won {
		x = 1
		g.won.Add(1)
	}
	old := g.k.Load()
	k := clamp(g.factor(t)*math.Exp(hedgeStep*(hedgeWins-x)), t.HedgeMin, t.HedgeMax)
	g.k.CompareAndSwap(old, math.Float64bits(k))
}
