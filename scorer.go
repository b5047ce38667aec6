package ringwise

import (
	"math"
	"sync/atomic"
)

// NoSignal is what a Scorer writes for a candidate it knows nothing of. It
// counts as the mean of its peers, never as best or worst; a scorer that is
// silent for all drops out of the pick.
const NoSignal = -1

// Scorer rates candidates, 0 worst to 100 best, each by itself, with higher
// for better. out has v.Len() places, preset to NoSignal. Values are clamped
// to 0..100; one that is not finite counts as NoSignal and against the
// scorer's name. Score runs in the caller's Pick, from many goroutines; it
// must not block or keep v or out. One that panics is isolated and, after
// three times, switched off.
type Scorer interface {
	Name() string
	Score(v *View, out []float64)
}

// Line is one summand of a score.
type Line struct {
	Name   string
	Input  string
	Points float64
}

// LineScorer is a Scorer that can take its score of one candidate apart.
type LineScorer interface {
	Scorer
	Lines(v *View, i int) []Line
}

// validateScorer asks a scorer that can check its own fields.
func validateScorer(s Scorer) error {
	if c, ok := s.(interface{ Validate() error }); ok {
		return c.Validate()
	}
	return nil
}

const plugMaxPanics = 3

// plug is one piece of the caller's code in the pick path with its record.
type plug[T interface{ Name() string }] struct {
	code   T
	weight float64
	name   string // asked once: Name is the caller's code too
	bad    atomic.Uint64
	panics atomic.Int32
}

func (p *plug[T]) off() bool { return p.panics.Load() >= plugMaxPanics }

// guard runs f and tells whether it came to its end.
func (p *plug[T]) guard(h *hub, f func()) (ok bool) {
	defer func() {
		if !ok {
			recover()
			p.panics.Add(1)
			h.counters.plugPanics.Add(1)
		}
	}()
	f()
	return true
}

// isolate runs the caller's code outside a pick; a panic is counted.
func (h *hub) isolate(f func()) {
	defer func() {
		if recover() != nil {
			h.counters.plugPanics.Add(1)
		}
	}()
	f()
}

// combine writes the weighted mean of the live cost score and the scorers'
// columns, in points, into v.total. The live part is not clamped, so that
// very slow workers still differ. It returns the sum of the weights.
func (v *View) combine(h *hub, scorers []*plug[Scorer]) (sum float64) {
	t := &v.sn.coef.tuning
	sum, v.said = t.LiveWeight, 0
	for i := range v.n {
		live := float64(par)
		if t.LiveWeight > 0 || v.rec != nil {
			live = rawPoints(v.cost(i))
		}
		v.scratch[i] = live
		v.total[i] = t.LiveWeight * live
	}
	v.rec.add("live cost", -1, t.LiveWeight, v.scratch[:v.n])
	for j, p := range scorers {
		weight := t.ScorerWeights[j]
		if weight < 0 {
			weight = p.weight
		}
		if weight == 0 && v.rec == nil || p.off() || !v.column(h, p) {
			continue
		}
		v.rec.add(p.name, j, weight, v.scratch[:v.n])
		sum += weight
		v.said |= 1 << j
		copy(v.points[j][:v.n], v.scratch[:v.n])
		for i := range v.n {
			v.total[i] += weight * v.scratch[i]
		}
	}
	for i := range v.n {
		if sum > 0 {
			v.total[i] /= sum
		} else {
			v.total[i] = par
		}
	}
	return sum
}

// column fills v.scratch from one scorer; false when it has nothing to say.
func (v *View) column(h *hub, p *plug[Scorer]) bool {
	out := v.scratch[:v.n]
	for i := range out {
		out[i] = NoSignal
	}
	if !p.guard(h, func() { p.code.Score(v, out) }) {
		return false
	}
	for i, x := range out {
		switch {
		case x == NoSignal:
		case math.IsNaN(x) || math.IsInf(x, 0):
			out[i] = NoSignal
			p.bad.Add(1)
			h.counters.badScores.Add(1)
		default:
			out[i] = min(max(x, 0), 100)
		}
	}
	return fillNoSignal(out)
}

// fillNoSignal gives candidates without a signal the mean of the others; false
// where nobody has one.
func fillNoSignal(out []float64) bool {
	sum, n := 0.0, 0.0
	for _, x := range out {
		if x != NoSignal {
			sum, n = sum+x, n+1
		}
	}
	if n == 0 {
		return false
	}
	for i, x := range out {
		if x == NoSignal {
			out[i] = sum / n
		}
	}
	return true
}

// add keeps a column of points.
func (r *recorder) add(name string, scorer int, weight float64, column []float64) {
	if r == nil {
		return
	}
	r.names = append(r.names, name)
	r.weights = append(r.weights, weight)
	r.scorer = append(r.scorer, scorer)
	var c [MaxCandidates]float64
	copy(c[:], column)
	r.columns = append(r.columns, c)
}

// softmax turns v.total into weights.
func (v *View) softmax() {
	top := math.Inf(-1)
	for i := range v.n {
		top = max(top, v.total[i])
	}
	for i := range v.n {
		v.w[i] = math.Exp((v.total[i] - top) / v.sn.coef.tuning.Temperature)
	}
}

// reweigh does again what weigh did, in logarithms relative to the cheapest,
// for costs that are out of float64's range as powers.
func (v *View) reweigh() {
	for i := range v.n {
		v.total[i] = rawPoints(v.cost(i))
	}
	v.softmax()
}
