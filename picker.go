package ringwise

import "math"

// Picker names one of the candidates, 0..v.Len()-1, by their scores of 0..100.
// Where a Picker does not weigh v.Factor itself, the host thins the candidates
// by it before. It runs in the caller's Pick and must not block or keep v; an
// index out of range, or a panic, falls back to Softmax.
type Picker interface {
	Name() string
	Pick(v *View, score []float64, rnd *Rand) int
}

// factored pickers multiply by v.Factor themselves and take all candidates.
type factored interface{ factored() }

// Softmax draws candidate i with probability ~ exp((score-max)/T) times its
// factor, T being Tuning.Temperature. The default.
type Softmax struct{}

// Name is "softmax".
func (Softmax) Name() string { return "softmax" }
func (Softmax) factored()    {}

// Pick draws.
func (p Softmax) Pick(v *View, score []float64, rnd *Rand) int {
	var w [MaxCandidates]float64
	top := math.Inf(-1)
	for _, s := range score {
		top = max(top, s)
	}
	for i, s := range score {
		w[i] = math.Exp((s-top)/v.sn.coef.tuning.Temperature) * v.Factor(i)
	}
	return draw(w[:len(score)], rnd.Float64())
}

// draw picks an index with probability w[i]/sum; u in [0, 1). A place of
// weight 0 is never drawn unless all are 0.
func draw(w []float64, u float64) int {
	sum := 0.0
	for _, x := range w {
		sum += x
	}
	x, last := u*sum, 0
	for i, wi := range w {
		if wi > 0 {
			if x < wi {
				return i
			}
			last = i // rounding may leave x at the very end
		}
		x -= wi
	}
	return last
}

func (p Softmax) probability(v *View, score, out []float64) {
	top := math.Inf(-1)
	for _, s := range score {
		top = max(top, s)
	}
	for i, s := range score {
		out[i] = math.Exp((s-top)/v.sn.coef.tuning.Temperature) * v.Factor(i)
	}
}

// SmoothWeighted is smooth weighted round robin (nginx, 2012), by worker
// weight times score/70 times factor: weights 5, 1, 1 at equal scores give
// a a b a c a a on one goroutine. The credits live with the workers, so
// position and fairness outlast topologies, and there is no lock: goroutines
// that interleave keep the shares exact, not the order. A score counts as 7
// at least, so no worker falls below a tenth. Weights may change at any time;
// credit gathered at larger ones is cut to eight rounds of the present ones,
// else a weight that falls from 1000 to 1 gives its peer hundreds of picks in
// a row.
type SmoothWeighted struct{}

// Name is "smooth-weighted".
func (SmoothWeighted) Name() string { return "smooth-weighted" }
func (SmoothWeighted) factored()    {}

const (
	creditUnit   = 1 << 20 // the credit of weight 1 at par
	creditRounds = 8       // more than overlapping sets and goroutines gather
)

// creditOf is 1 at least: weights too small for the unit are equal, not none.
func creditOf(v *View, i int, score float64) int64 {
	return max(int64(math.Round(v.Worker(i).Weight*max(score/par, 0.1)*v.Factor(i)*creditUnit)), 1)
}

// Pick adds each candidate its weight, takes the largest and charges it all.
func (SmoothWeighted) Pick(v *View, score []float64, _ *Rand) int {
	best, top, low, sum := 0, int64(math.MinInt64), int64(math.MaxInt64), int64(0)
	for i, s := range score {
		w := creditOf(v, i, s)
		sum += w
		c := v.col(i).st.credit.Add(w)
		if c > top {
			best, top = i, c
		}
		low = min(low, c)
	}
	v.col(best).st.credit.Add(-sum)
	if limit := creditRounds * sum; top > limit || low < -limit {
		v.cutCredit(limit)
	}
	return best
}

// cutCredit holds all candidates' credits to a limit; where another goroutine
// is at one too, it is cut the next time.
func (v *View) cutCredit(limit int64) {
	for i := range v.n {
		credit := &v.col(i).st.credit
		if c := credit.Load(); c > limit || c < -limit {
			credit.CompareAndSwap(c, min(max(c, -limit), limit))
		}
	}
}

// Highest takes the highest score, ties drawn evenly. It herds; it is here to
// compare with.
type Highest struct{}

// Name is "highest".
func (Highest) Name() string { return "highest" }

// Pick takes the maximum.
func (Highest) Pick(v *View, score []float64, rnd *Rand) int {
	return argmax(len(score), rnd, func(i int) float64 { return score[i] })
}

// argmax draws evenly among the largest.
func argmax(n int, rnd *Rand, f func(i int) float64) int {
	best, top, ties := 0, math.Inf(-1), uint64(0)
	for i := range n {
		switch x := f(i); {
		case x > top:
			best, top, ties = i, x, 1
		case x == top:
			if ties++; rnd.Uint64()%ties == 0 {
				best = i
			}
		}
	}
	return best
}

// Random draws evenly.
type Random struct{}

// Name is "random".
func (Random) Name() string { return "random" }

// Pick draws.
func (Random) Pick(v *View, score []float64, rnd *Rand) int {
	return int(rnd.Uint64() % uint64(len(score)))
}

func (Random) probability(_ *View, score, out []float64) {
	for i := range score {
		out[i] = 1
	}
}

// WeightedRandom draws by worker weight times factor.
type WeightedRandom struct{}

// Name is "weighted-random".
func (WeightedRandom) Name() string { return "weighted-random" }
func (WeightedRandom) factored()    {}

// Pick draws.
func (p WeightedRandom) Pick(v *View, score []float64, rnd *Rand) int {
	var w [MaxCandidates]float64
	p.probability(v, score, w[:len(score)])
	return draw(w[:len(score)], rnd.Float64())
}

func (WeightedRandom) probability(v *View, score, out []float64) {
	for i := range score {
		out[i] = v.Worker(i).Weight * v.Factor(i)
	}
}

// RoundRobin takes the candidate taken least, as smooth round robin with
// equal weights: its position is with the workers and outlasts topologies.
type RoundRobin struct{}

// Name is "round-robin".
func (RoundRobin) Name() string { return "round-robin" }

// Pick takes the next.
func (RoundRobin) Pick(v *View, score []float64, _ *Rand) int {
	best, top := 0, int64(math.MinInt64)
	for i := range score {
		if c := v.col(i).st.credit.Add(creditUnit); c > top {
			best, top = i, c
		}
	}
	v.col(best).st.credit.Add(-creditUnit * int64(len(score)))
	return best
}

// PrimaryFirst takes the primary, else the first candidate in ring order.
type PrimaryFirst struct{}

// Name is "primary-first".
func (PrimaryFirst) Name() string { return "primary-first" }

// Pick takes the first.
func (PrimaryFirst) Pick(v *View, score []float64, _ *Rand) int {
	for i := range score {
		if v.Role(i) == RolePrimary {
			return i
		}
	}
	return 0
}

// TwoChoices draws two different candidates and takes the one with less in
// flight, by score where that is equal (Mitzenmacher, TPDS 2001).
type TwoChoices struct{}

// Name is "two-choices".
func (TwoChoices) Name() string { return "two-choices" }

// Pick draws two.
func (TwoChoices) Pick(v *View, score []float64, rnd *Rand) int {
	n := uint64(len(score))
	if n < 2 {
		return 0
	}
	u := rnd.Uint64()
	a := u % n
	b := (a + 1 + u>>32%(n-1)) % n
	la, lb := v.InFlight(int(a)), v.InFlight(int(b))
	if lb < la || lb == la && score[b] > score[a] {
		a = b
	}
	return int(a)
}

// LeastInFlight takes the candidate with least in flight, ties drawn evenly.
type LeastInFlight struct{}

// Name is "least-in-flight".
func (LeastInFlight) Name() string { return "least-in-flight" }

// Pick takes the minimum.
func (LeastInFlight) Pick(v *View, score []float64, rnd *Rand) int {
	return argmax(len(score), rnd, func(i int) float64 { return -float64(v.InFlight(i)) })
}
