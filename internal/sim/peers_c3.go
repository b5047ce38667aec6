package sim

import "math/rand/v2"

// c3Node is what a C3 client keeps of a replica: EWMAs with 0.9 for the newest
// value, as the authors' simulator has it (lalithsuresh/absim,
// simulations/client.py, updateEma).
type c3Node struct {
	known            bool
	rtt, queue, work float64
	outstanding      int
}

// c3 ranks all replicas by R - 1/mu + (1 + os*w + q)^3 / mu: response time R,
// service time 1/mu, outstanding requests os times the number of clients w,
// queue size q (C3: Cutting Tail Latency in Cloud Data Stores via Adaptive
// Replica Selection, NSDI 2015, section 3.1). Without feedback the service
// time is the response time and the queue unknown. Its rate control is left
// out: it delays requests at the client, which no router here may do.
type c3 struct {
	n        []c3Node
	clients  float64
	feedback bool
	r        *rand.Rand
}

func newC3(feedback bool) func(e *Env) Policy {
	return func(e *Env) Policy {
		return &c3{make([]c3Node, e.Scenario.Workers), float64(e.Scenario.Clients), feedback, e.Rand}
	}
}

func (p *c3) score(w int) float64 {
	n := &p.n[w]
	if !n.known {
		return 0
	}
	q := 1 + float64(n.outstanding)*p.clients + n.queue
	return n.rtt - n.work + q*q*q*n.work
}

func (p *c3) Pick(_ *Query, cands []int) int {
	var c chooser
	for i, w := range cands {
		c.offer(i, p.score(w), p.r)
	}
	p.n[cands[c.at]].outstanding++
	return c.at
}

func (p *c3) Done(d *Done) {
	n := &p.n[d.Worker]
	n.outstanding--
	if d.Verdict == Broken || d.Verdict == Superseded {
		return // no response
	}
	// A time-out counts as a response time: Cassandra books the latency of
	// expired callbacks (net/MessagingService.java).
	rtt, queue, work := float64(d.RTT), 0.0, float64(d.RTT)
	switch {
	case d.Feedback:
		queue, work = float64(d.InService), float64(d.Service)
	case p.feedback && n.known:
		queue, work = n.queue, n.work
	}
	if !n.known {
		*n = c3Node{true, rtt, queue, work, n.outstanding}
		return
	}
	const a = 0.9
	n.rtt += a * (rtt - n.rtt)
	n.queue += a * (queue - n.queue)
	n.work += a * (work - n.work)
}

// ars is Elasticsearch's adaptive replica selection: C3's rank with EWMAs of
// 0.3 for the newest value, the number of nodes for the number of clients, and
// all replicas that were not chosen moved half way to the chosen one, so that
// they are tried again (ResponseCollectorService.java, innerRank;
// IndexShardRoutingTable.java, rankShardsAndUpdateStats and adjustStats).
type ars struct {
	n     []c3Node
	slots int
	r     *rand.Rand
}

func newARS(e *Env) Policy {
	return &ars{make([]c3Node, e.Scenario.Workers), e.Scenario.Slots, e.Rand}
}

func (p *ars) add(w int, queue, rtt, work float64) {
	n := &p.n[w]
	if !n.known {
		*n = c3Node{true, rtt, queue, work, n.outstanding}
		return
	}
	const a = 0.3
	n.rtt += a * (rtt - n.rtt)
	n.queue += a * (queue - n.queue)
	n.work = work
}

func (p *ars) Pick(_ *Query, cands []int) int {
	var c chooser
	nodes := 0
	for i := range p.n {
		if p.n[i].known {
			nodes++
		}
	}
	for i, w := range cands {
		n := &p.n[w]
		if !n.known { // without statistics it sorts first
			c.offer(i, 0, p.r)
			continue
		}
		q := 1 + float64(n.outstanding*nodes) + float64(int(n.queue))
		c.offer(i, n.rtt-n.work+q*q*q*n.work, p.r)
	}
	best := &p.n[cands[c.at]]
	if best.known {
		m := *best
		for i, w := range cands {
			if n := &p.n[w]; i != c.at && n.known {
				p.add(w, float64((int(m.queue)+int(n.queue))/2), (m.rtt+n.rtt)/2, (m.work+n.work)/2)
			}
		}
	}
	best.outstanding++
	return c.at
}

func (p *ars) Done(d *Done) {
	p.n[d.Worker].outstanding--
	if d.Verdict == Broken || d.Verdict == Superseded {
		return
	}
	n := &p.n[d.Worker]
	queue, work := n.queue, n.work
	if d.Feedback { // the queue of its thread pool, not what is in service
		queue, work = float64(max(0, int(d.InService)+1-p.slots)), float64(d.Service)
	} else if !n.known {
		work = float64(d.RTT)
	}
	p.add(int(d.Worker), queue, float64(d.RTT), work)
}

// hotCold is Prequal's hot-cold lexicographic rule on what a client sees by
// itself: a candidate is hot when its requests in flight exceed the 0.84
// quantile of what was seen lately; the cold one with the least latency wins,
// and when all are hot the one with the fewest in flight (Load is not what you
// should balance: Introducing Prequal, NSDI 2024, section 4).
type hotCold struct {
	inFlight
	lat  []float64
	seen [64]float64 // fading histogram of in flight at picks
	r    *rand.Rand
}

func newHotCold(e *Env) Policy {
	return &hotCold{inFlight: make(inFlight, e.Scenario.Workers), lat: make([]float64, e.Scenario.Workers), r: e.Rand}
}

// limit is the 0.84 quantile of the in-flight counts seen lately.
func (p *hotCold) limit() int {
	sum := 0.0
	for _, v := range p.seen {
		sum += v
	}
	at := 0.0
	for i, v := range p.seen {
		if at += v; at >= 0.84*sum {
			return i
		}
	}
	return len(p.seen) - 1
}

func (p *hotCold) Pick(_ *Query, cands []int) int {
	limit := p.limit()
	var cold, hot chooser
	for i := range p.seen {
		p.seen[i] *= 0.99
	}
	for i, w := range cands {
		f := p.inFlight[w]
		p.seen[min(f, len(p.seen)-1)]++
		if f > limit {
			hot.offer(i, float64(f), p.r)
		} else {
			cold.offer(i, p.lat[w], p.r)
		}
	}
	c := cold
	if cold.ties == 0 {
		c = hot
	}
	p.inFlight[cands[c.at]]++
	return c.at
}

func (p *hotCold) Done(d *Done) {
	p.inFlight.Done(d)
	if l := &p.lat[d.Worker]; *l == 0 {
		*l = float64(d.RTT)
	} else {
		*l += hotColdGain * (float64(d.RTT) - *l)
	}
}

// hotColdGain is the gain of the latency estimate. Prequal takes the median of
// recent latencies at the worker; a client alone sees too few for that. Of 0.1 to
// 0.5 the last has the best p99 over scenarios a-j.
const hotColdGain = 0.5
