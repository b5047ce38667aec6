package sim

import (
	"math"
	"math/rand/v2"
)

// peakNode is Finagle's Metric: an EWMA of the RTT by time that jumps to peaks
// and fades on each look, times the load it would have with one more request.
// finagle-core/.../loadbalancer/PeakEwma.scala; linkerd2-proxy's tower
// load/peak_ewma.rs is the same rule. Decay time 10 s, the default of both.
type peakNode struct {
	cost    float64
	stamp   int64
	pending int
}

const peakDecay = 10e9

func (n *peakNode) observe(now int64, rtt float64) {
	td := float64(max(now-n.stamp, 0))
	if rtt > n.cost {
		n.cost = rtt
	} else if td > 0 || rtt > 0 {
		w := math.Exp(-td / peakDecay)
		n.cost = n.cost*w + rtt*(1-w)
	}
	n.stamp = now
}

func (n *peakNode) load(now int64) float64 {
	n.observe(now, 0)
	if n.cost == 0 && n.pending != 0 {
		return math.MaxInt64>>16 + float64(n.pending)
	}
	return n.cost * float64(n.pending+1)
}

// p2cPeakEWMA is Finagle's and Linkerd's default: two choices, least peak-EWMA
// load. A failure is an answer like any other to it.
type p2cPeakEWMA struct {
	n []peakNode
	r *rand.Rand
}

func newP2CPeakEWMA(e *Env) Policy {
	return &p2cPeakEWMA{make([]peakNode, e.Scenario.Workers), e.Rand}
}

func (p *p2cPeakEWMA) Pick(q *Query, cands []int) int {
	a, b := two(p.r, len(cands))
	if p.n[cands[b]].load(q.Now) < p.n[cands[a]].load(q.Now) {
		a = b
	}
	p.n[cands[a]].pending++
	return a
}

func (p *p2cPeakEWMA) Done(d *Done) {
	n := &p.n[d.Worker]
	n.pending--
	n.observe(d.Now, float64(d.RTT))
}

// scanPeakEWMA compares all candidates by peak-EWMA times load, and books a
// failure as a latency of at least the time-out, doubled when it timed out:
// the error cost of brpc's locality-aware balancer (src/brpc/policy/
// locality_aware_load_balancer.cpp, Feedback: latency_percent 200).
type scanPeakEWMA struct {
	n []peakNode
	r *rand.Rand
}

func newScanPeakEWMA(e *Env) Policy {
	return &scanPeakEWMA{make([]peakNode, e.Scenario.Workers), e.Rand}
}

func (p *scanPeakEWMA) Pick(q *Query, cands []int) int {
	var c chooser
	for i, w := range cands {
		c.offer(i, p.n[w].load(q.Now), p.r)
	}
	p.n[cands[c.at]].pending++
	return c.at
}

func (p *scanPeakEWMA) Done(d *Done) {
	n := &p.n[d.Worker]
	n.pending--
	rtt := float64(d.RTT)
	switch {
	case d.Verdict == TimedOut:
		rtt *= 2
	case d.Bad():
		rtt = max(rtt, float64(d.Timeout))
	}
	n.observe(d.Now, rtt)
}
