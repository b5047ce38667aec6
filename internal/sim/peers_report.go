package sim

import (
	"math"
	"math/rand/v2"
)

// reportedScore is a score of 0..100 from a report alone, straight-line curves:
// half processor (100 at 30 %, 0 at 90 %), 0.3 response time (0 at ten times
// the mean service time), 0.2 errors (0 at 5 %).
func reportedScore(r *Report, service float64) float64 {
	return 0.5*curve(r.CPU, 0.3, 0.9) + 0.3*curve(float64(r.Mean), service, 10*service) + 0.2*curve(r.ErrorRate, 0, 0.05)
}

// curve is 100 at or under low, 0 at or over high, straight between.
func curve(v, low, high float64) float64 {
	return 100 * min(max((high-v)/(high-low), 0), 1)
}

// scores keeps the last score of each worker; one that has not reported is
// half way.
type scores struct {
	v       []float64
	service float64
}

func newScores(e *Env) scores {
	s := scores{make([]float64, e.Scenario.Workers), float64(e.Scenario.Service)}
	for i := range s.v {
		s.v[i] = 50
	}
	return s
}

func (s *scores) Report(r *Report) { s.v[r.Worker] = reportedScore(r, s.service) }

// highest takes the candidate with the highest reported score.
type highest struct {
	scores
	r *rand.Rand
}

func newHighest(e *Env) Policy { return &highest{newScores(e), e.Rand} }

func (p *highest) Pick(_ *Query, cands []int) int {
	var c chooser
	for i, w := range cands {
		c.offer(i, -p.v[w], p.r)
	}
	return c.at
}
func (p *highest) Done(*Done) {}

// softmax draws a candidate with weight exp(score/T), on reported scores.
type softmax struct {
	scores
	t float64
	r *rand.Rand
}

func newSoftmax(t float64) func(*Env) Policy {
	return func(e *Env) Policy { return &softmax{newScores(e), t, e.Rand} }
}

func (p *softmax) Pick(_ *Query, cands []int) int {
	var w [MaxReplicas]float64
	top, sum := 0.0, 0.0
	for _, k := range cands {
		top = max(top, p.v[k])
	}
	for i, k := range cands {
		w[i] = math.Exp((p.v[k] - top) / p.t)
		sum += w[i]
	}
	u := p.r.Float64() * sum
	for i := range cands {
		if u -= w[i]; u < 0 {
			return i
		}
	}
	return len(cands) - 1
}
func (p *softmax) Done(*Done) {}

// swrr is nginx's smooth weighted round robin
// (src/http/ngx_http_upstream_round_robin.c) over the candidates, one credit a
// worker, with weights that follow the reported scores every 10 s and move by
// at most 20 % a step.
type swrr struct {
	scores
	weight, credit []float64
	next           int64
}

func newSWRR(e *Env) Policy {
	p := &swrr{scores: newScores(e), weight: make([]float64, e.Scenario.Workers), credit: make([]float64, e.Scenario.Workers)}
	for i := range p.weight {
		p.weight[i] = 50
		p.credit[i] = 50 * e.Rand.Float64() // clients do not go in step
	}
	p.next = e.Rand.Int64N(10e9)
	return p
}

func (p *swrr) Pick(q *Query, cands []int) int {
	if q.Now >= p.next {
		p.next = q.Now + 10e9
		for i, s := range p.v {
			w := &p.weight[i]
			*w = max(min(max(s, 0.8**w), 1.2**w), 0.1)
		}
	}
	at, sum := 0, 0.0
	for i, w := range cands {
		p.credit[w] += p.weight[w]
		sum += p.weight[w]
		if p.credit[w] > p.credit[cands[at]] {
			at = i
		}
	}
	p.credit[cands[at]] -= sum
	return at
}
func (p *swrr) Done(*Done) {}

// orcaWRR is gRPC's client-side weighted round robin (proposal A58): weight =
// rate / (utilisation + error rate), recomputed every second, earliest deadline
// first among a key's candidates. Its blackout of 10 s is cut to 2 s so that
// the weights act before the measured part begins.
type orcaWRR struct {
	n        []orcaNode
	weight   []float64
	deadline []float64 // by partition and candidate
	k        int
	next     int64
	r        *rand.Rand
}

type orcaNode struct {
	weight       float64
	since, heard int64
}

func newOrcaWRR(e *Env) Policy {
	s := e.Scenario
	p := &orcaWRR{n: make([]orcaNode, s.Workers), weight: make([]float64, s.Workers), deadline: make([]float64, s.Partitions*s.Replicas), k: s.Replicas, r: e.Rand}
	for i := range p.deadline {
		p.deadline[i] = e.Rand.Float64()
	}
	for i := range p.weight {
		p.weight[i] = 1
	}
	return p
}

func (p *orcaWRR) Report(r *Report) {
	if r.CPU <= 0 || r.Rate <= 0 {
		return
	}
	n := &p.n[r.Worker]
	if n.since == 0 {
		n.since = r.At
	}
	n.heard = r.At
	n.weight = r.Rate / (r.CPU + r.ErrorRate)
}

// reweigh looks the weights up; workers without one take the mean.
func (p *orcaWRR) reweigh(now int64) {
	sum, known := 0.0, 0
	for i := range p.n {
		n := &p.n[i]
		p.weight[i] = 0
		if n.since > 0 && now-n.since >= 2e9 && now-n.heard < 180e9 {
			p.weight[i] = n.weight
			sum += n.weight
			known++
		}
	}
	for i, w := range p.weight {
		switch {
		case known < 2:
			p.weight[i] = 1
		case w == 0:
			p.weight[i] = 1
		default:
			p.weight[i] = w * float64(known) / sum
		}
	}
}

func (p *orcaWRR) Pick(q *Query, cands []int) int {
	if q.Now >= p.next {
		p.next = q.Now + 1e9
		p.reweigh(q.Now)
	}
	d := p.deadline[int(q.Partition)*p.k:][:len(cands)]
	at := 0
	for i := range cands {
		if d[i] < d[at] {
			at = i
		}
	}
	d[at] += 1 / p.weight[cands[at]]
	return at
}
func (p *orcaWRR) Done(*Done) {}
