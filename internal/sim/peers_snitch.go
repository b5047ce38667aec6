package sim

import (
	"math"
	"math/rand/v2"
	"slices"
)

// snitch is Cassandra's dynamic snitch (locator/DynamicEndpointSnitch.java):
// per worker a reservoir of 100 latencies that favours the last seconds
// (alpha 0.75), every 100 ms the median over the largest median, and the order
// of the ring unless the first is worse than the best by the badness threshold.
// The threshold is 0.1, the default before Cassandra 4.0; 1.0 keeps to the
// ring's order even more. Answers train it, time-outs count as their RTT.
type snitch struct {
	res   []reservoir
	score []float64
	next  int64
	r     *rand.Rand
	buf   []int
}

const snitchBadness = 0.1

func newSnitch(e *Env) Policy {
	return &snitch{res: make([]reservoir, e.Scenario.Workers), score: make([]float64, e.Scenario.Workers), r: e.Rand}
}

func (p *snitch) Pick(q *Query, cands []int) int {
	if q.Now >= p.next {
		p.next = q.Now + 100e6
		p.update()
	}
	best := 0
	for i, w := range cands {
		if p.score[w] < p.score[cands[best]] {
			best = i
		}
	}
	// Positions are compared one by one with the sorted scores; a swap at the
	// front is what decides the first.
	if p.score[cands[0]] > p.score[cands[best]]*(1+snitchBadness) {
		return best
	}
	p.buf = append(p.buf[:0], cands...)
	slices.SortStableFunc(p.buf, func(a, b int) int {
		switch {
		case p.score[a] < p.score[b]:
			return -1
		case p.score[a] > p.score[b]:
			return 1
		}
		return 0
	})
	for i, w := range cands {
		if p.score[w] > p.score[p.buf[i]]*(1+snitchBadness) {
			return best
		}
	}
	return 0
}

func (p *snitch) update() {
	worst := 1.0
	for i := range p.res {
		p.score[i] = p.res[i].median()
		worst = max(worst, p.score[i])
	}
	for i := range p.score {
		p.score[i] /= worst
	}
}

func (p *snitch) Done(d *Done) {
	if d.Verdict == Superseded {
		return
	}
	p.res[d.Worker].add(d.Now, float64(d.RTT)/1e3, p.r)
}

// reservoir is Dropwizard's ExponentiallyDecayingReservoir of size 100 with
// alpha 0.75 a second (forward decay, Cormode et al., ICDE 2009): an item's
// priority is weight over a uniform draw, kept here as a logarithm.
type reservoir struct {
	it   []reserved
	sort []reserved
}

type reserved struct {
	priority, weight, value float64 // priority and weight are logarithms
}

func (r *reservoir) add(now int64, v float64, rnd *rand.Rand) {
	w := 0.75 * float64(now) / 1e9
	it := reserved{w - math.Log(1-rnd.Float64()), w, v}
	if len(r.it) < 100 {
		r.it = append(r.it, it)
		return
	}
	low := 0
	for i := range r.it {
		if r.it[i].priority < r.it[low].priority {
			low = i
		}
	}
	if it.priority > r.it[low].priority {
		r.it[low] = it
	}
}

// median is the weighted median, as WeightedSnapshot has it; 0 when empty.
func (r *reservoir) median() float64 {
	if len(r.it) == 0 {
		return 0
	}
	r.sort = append(r.sort[:0], r.it...)
	slices.SortFunc(r.sort, func(a, b reserved) int {
		switch {
		case a.value < b.value:
			return -1
		case a.value > b.value:
			return 1
		}
		return 0
	})
	top := math.Inf(-1)
	for _, it := range r.sort {
		top = max(top, it.weight)
	}
	sum := 0.0
	for _, it := range r.sort {
		sum += math.Exp(it.weight - top)
	}
	at := 0.0
	for _, it := range r.sort {
		if at += math.Exp(it.weight - top); at >= sum/2 {
			return it.value
		}
	}
	return r.sort[len(r.sort)-1].value
}
