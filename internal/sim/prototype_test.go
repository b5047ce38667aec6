package sim

import (
	"math"
	"math/rand/v2"
)

// prototype is the policy of shared/design/policy.md written straight from its
// formula, as a cross-check of this engine against that file's table. It is a
// test file on purpose: the shipped package holds no formula of ringwise.
type prototype struct {
	w        []protoWorker
	mean     float64
	seeded   bool
	r        *rand.Rand
	feedback bool
	every    int64
	weights  [MaxReplicas]float64
}

type protoWorker struct {
	lat        float64
	last, busy int64
	inflight   int
	gap, mem   float64
	known      bool
	failures   int
	until      int64
	trip       int64
	backoff    float64
	rif        float64
	rifAt      int64
	rep        float64
	repAt      int64
}

func newPrototype(feedback bool) func(e *Env) Policy {
	return func(e *Env) Policy {
		p := &prototype{w: make([]protoWorker, e.Scenario.Workers), mean: 1e6, r: e.Rand, feedback: feedback, every: int64(e.Scenario.ReportEvery)}
		for i := range p.w {
			p.w[i].mem = 50e6
			p.w[i].last = math.MinInt64 / 4
			p.w[i].busy = math.MinInt64 / 4
			p.w[i].repAt = math.MinInt64 / 4
		}
		return p
	}
}

func (p *prototype) base(i int, now int64) float64 {
	w := &p.w[i]
	if w.rep == 0 || now-w.repAt > 3*p.every {
		return p.mean
	}
	sum, n := 0.0, 0
	for j := range p.w {
		if p.w[j].rep > 0 {
			sum += math.Log(p.w[j].rep)
			n++
		}
	}
	g := math.Exp(sum / float64(n))
	return p.mean * math.Sqrt(min(max(w.rep/g, 0.25), 20))
}

func (p *prototype) lat(i int, now int64) float64 {
	w := &p.w[i]
	base := p.base(i, now)
	if !w.known {
		return base
	}
	lat := w.lat
	if w.inflight == 0 {
		lat = base + (lat-base)*math.Exp(-float64(now-w.last)/max(w.mem, 50e6, 3*w.gap))
	} else if q := float64(now - max(w.last, w.busy)); q > 2*lat {
		lat = max(lat, q)
	}
	return lat
}

func (p *prototype) Pick(q *Query, cands []int) int {
	now := q.Now
	rif := 0.0
	if p.feedback {
		for i := range p.w {
			rif += p.w[i].rif
		}
		rif /= float64(len(p.w))
	}
	sum, best := 0.0, math.Inf(1)
	var cost [MaxReplicas]float64
	usable := 0
	for i, k := range cands {
		w := &p.w[k]
		load := 1 + 2*float64(w.inflight)
		if p.feedback {
			f := math.Exp(-float64(now-w.rifAt) / 30e6)
			load += 0.25 * (w.rif*f + rif*(1-f))
		}
		cost[i] = p.lat(k, now) * load
		if now < w.until {
			cost[i] = math.Inf(1)
		} else {
			usable++
		}
		best = min(best, cost[i])
	}
	if usable == 0 {
		best = 1
		for i := range cands {
			cost[i] = 1
		}
	}
	for i := range cands {
		x := best / cost[i]
		x2 := x * x
		x4 := x2 * x2
		p.weights[i] = x4 * x4 * x2
		sum += p.weights[i]
	}
	u := p.r.Float64() * sum
	at := len(cands) - 1
	for i := range cands {
		if u -= p.weights[i]; u < 0 {
			at = i
			break
		}
	}
	w := &p.w[cands[at]]
	if w.inflight == 0 {
		w.busy = now
	}
	w.inflight++
	return at
}

func (p *prototype) Done(d *Done) {
	w := &p.w[d.Worker]
	w.inflight--
	gap := float64(min(d.Now-w.last, 2e9))
	if !w.known {
		w.gap = min(gap, 50e6)
	} else {
		w.gap += 0.1 * (gap - w.gap)
	}
	w.last = d.Now
	gain := min(max(1-math.Exp(-w.gap/100e6), 0.02), 0.3)
	if d.Bad() {
		x := min(max(float64(d.RTT), float64(d.Timeout)), 50*p.mean)
		g := max(gain, 0.3)
		if !w.known {
			w.known, w.lat = true, p.mean
		}
		w.lat += g * (x - w.lat)
		w.mem = min(max(1e9, 2*w.mem), 10e9)
		if d.Now-d.RTT >= w.trip {
			w.failures++
			if w.failures >= 3 {
				w.backoff = min(max(1e9, 2*w.backoff), 30e9)
				w.until = d.Now + int64(w.backoff*(0.75+0.5*p.r.Float64()))
				w.trip = d.Now
				w.failures = 0
			}
		}
		return
	}
	w.failures = 0
	if d.Now-w.until > 10e9 {
		w.backoff = 0
	}
	x := float64(d.RTT)
	if d.Feedback {
		x = float64(d.Service)
		gain = 1
		w.rif, w.rifAt = float64(d.InService), d.Now
	}
	if !p.seeded {
		p.seeded = true
		p.mean = x
	} else {
		p.mean += 0.01 * (x - p.mean)
	}
	if !w.known {
		w.known, w.lat = true, x
	} else {
		w.lat += gain * (x - w.lat)
	}
	if w.lat > 2*p.mean {
		w.mem = min(1.5*w.mem, 10e9)
	} else {
		w.mem = max(w.mem/1.5, 50e6)
	}
}

func (p *prototype) Report(r *Report) {
	w := &p.w[r.Worker]
	w.rep, w.repAt = float64(r.P99), r.At
}
