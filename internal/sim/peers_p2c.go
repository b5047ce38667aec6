package sim

import (
	"math"
	"math/rand/v2"
)

// kratosNode is go-kratos' EWMA node (selector/node/ewma/node.go): lag and
// success by an EWMA with tau 600 ms, in flight counted from 1, and a predicted
// lag once more than half of what is in flight is later than the average.
type kratosNode struct {
	lag, success      int64
	inflight          int64
	starts            []int64 // of what is in flight
	stamp, predicted  int64
	predict, lastPick int64
}

const kratosTau = 600e6

func (n *kratosNode) load(now int64) float64 {
	avg := n.lag
	if every := min(max(avg/5, 5e6), 200e6); now-n.predicted > every {
		n.predicted = now
		var total, count int64
		for _, s := range n.starts {
			if lag := now - s; lag > avg {
				count++
				total += lag
			}
		}
		n.predict = 0
		if count > int64(len(n.starts)/2+1) {
			n.predict = total / count
		}
	}
	if avg == 0 {
		return 10e9 * float64(n.inflight)
	}
	return float64(max(avg, n.predict)) * float64(n.inflight)
}

func (n *kratosNode) weight(now int64) float64 { return float64(n.success) * 1e9 / n.load(now) }

// kratos is go-kratos' p2c (selector/p2c/p2c.go): of two nodes the one with
// the larger success over load; the other when it was not picked for 3 s.
type kratos struct {
	n []kratosNode
	r *rand.Rand
}

func newKratos(e *Env) Policy {
	p := &kratos{n: make([]kratosNode, e.Scenario.Workers), r: e.Rand}
	for i := range p.n {
		p.n[i].success, p.n[i].inflight = 1000, 1
	}
	return p
}

func (p *kratos) Pick(q *Query, cands []int) int {
	a, b := two(p.r, len(cands))
	if p.n[cands[b]].weight(q.Now) > p.n[cands[a]].weight(q.Now) {
		a, b = b, a
	}
	if q.Now-p.n[cands[b]].lastPick > 3e9 {
		a = b
	}
	n := &p.n[cands[a]]
	n.lastPick = q.Now
	n.inflight++
	n.starts = append(n.starts, q.Now)
	return a
}

func (p *kratos) Done(d *Done) {
	n := &p.n[d.Worker]
	start := d.Now - d.RTT
	for i, s := range n.starts {
		if s == start {
			n.starts[i] = n.starts[len(n.starts)-1]
			n.starts = n.starts[:len(n.starts)-1]
			break
		}
	}
	n.inflight--
	w := math.Exp(-float64(d.Now-n.stamp) / kratosTau)
	n.stamp = d.Now
	if n.lag == 0 {
		w = 0
	}
	n.lag = int64(float64(n.lag)*w + float64(d.RTT)*(1-w))
	success := 1000.0
	if d.Bad() {
		success = 0
	}
	n.success = int64(float64(n.success)*w + success*(1-w))
}

// goZeroNode is go-zero's subConn: lag and success by an EWMA with tau 10 s;
// the load takes the square root of the lag.
type goZeroNode struct {
	lag, success, inflight, last, pick int64
}

func (n *goZeroNode) load() int64 {
	if l := int64(math.Sqrt(float64(n.lag+1))) * (n.inflight + 1); l != 0 {
		return l
	}
	return math.MaxInt32
}

// goZero is go-zero's p2c (zrpc/internal/balancer/p2c/p2c.go): up to three
// draws for a pair whose success is over a half, the less loaded of them, the
// other one when it was not picked for a second.
type goZero struct {
	n []goZeroNode
	r *rand.Rand
}

func newGoZero(e *Env) Policy {
	p := &goZero{make([]goZeroNode, e.Scenario.Workers), e.Rand}
	for i := range p.n {
		p.n[i].success = 1000
	}
	return p
}

func (p *goZero) Pick(q *Query, cands []int) int {
	a, b := 0, 0
	for range 3 {
		a, b = two(p.r, len(cands))
		if p.n[cands[a]].success > 500 && p.n[cands[b]].success > 500 {
			break
		}
	}
	if p.n[cands[a]].load() > p.n[cands[b]].load() {
		a, b = b, a
	}
	if q.Now-p.n[cands[b]].pick > 1e9 {
		a = b
	}
	n := &p.n[cands[a]]
	n.pick = q.Now
	n.inflight++
	return a
}

func (p *goZero) Done(d *Done) {
	n := &p.n[d.Worker]
	n.inflight--
	w := math.Exp(-float64(max(d.Now-n.last, 0)) / 10e9)
	n.last = d.Now
	if n.lag == 0 {
		w = 0
	}
	n.lag = int64(float64(n.lag)*w + float64(d.RTT)*(1-w))
	success := 1000.0
	if d.Bad() {
		success = 0
	}
	n.success = int64(float64(n.success)*w + success*(1-w))
}
