package sim

import "math/rand/v2"

// chooser keeps the least of what it is offered, ties by fair lot.
type chooser struct {
	best float64
	at   int
	ties int
}

func (c *chooser) offer(i int, v float64, r *rand.Rand) {
	switch {
	case c.ties == 0 || v < c.best:
		c.best, c.at, c.ties = v, i, 1
	case v == c.best:
		if c.ties++; r.IntN(c.ties) == 0 {
			c.at = i
		}
	}
}

// two returns two different indices below n, or 0, 0 when n is 1.
func two(r *rand.Rand, n int) (a, b int) {
	if n == 1 {
		return 0, 0
	}
	a, b = r.IntN(n), r.IntN(n-1)
	if b >= a {
		b++
	}
	return a, b
}

// random takes any candidate.
type random struct{ r *rand.Rand }

func newRandom(e *Env) Policy { return &random{e.Rand} }

func (p *random) Pick(_ *Query, cands []int) int { return p.r.IntN(len(cands)) }
func (p *random) Done(*Done)                     {}

// roundRobin takes the candidates of each key in turn.
type roundRobin struct{ next []int }

func newRoundRobin(e *Env) Policy {
	p := &roundRobin{make([]int, e.Scenario.Partitions)}
	for i := range p.next { // clients do not start in step
		p.next[i] = e.Rand.IntN(e.Scenario.Replicas)
	}
	return p
}

func (p *roundRobin) Pick(q *Query, cands []int) int {
	n := &p.next[q.Partition]
	*n++
	return *n % len(cands)
}
func (p *roundRobin) Done(*Done) {}

// primaryFirst always takes the first candidate: plain consistent hashing.
type primaryFirst struct{}

func newPrimaryFirst(*Env) Policy { return primaryFirst{} }

func (primaryFirst) Pick(*Query, []int) int { return 0 }
func (primaryFirst) Done(*Done)             {}

// inFlight counts this client's requests in flight by worker.
type inFlight []int

func (f inFlight) Done(d *Done) { f[d.Worker]-- }

// leastInFlight takes the candidate with the fewest requests of this client in
// flight, all compared.
type leastInFlight struct {
	inFlight
	r *rand.Rand
}

func newLeastInFlight(e *Env) Policy {
	return &leastInFlight{make(inFlight, e.Scenario.Workers), e.Rand}
}

func (p *leastInFlight) Pick(_ *Query, cands []int) int {
	var c chooser
	for i, w := range cands {
		c.offer(i, float64(p.inFlight[w]), p.r)
	}
	p.inFlight[cands[c.at]]++
	return c.at
}

// p2cInFlight draws two candidates and takes the one with fewer requests of
// this client in flight: Envoy's least request with equal weights
// (source/extensions/load_balancing_policies/least_request/least_request_lb.cc,
// choice_count 2) and MongoDB's server selection by operationCount
// (specifications/source/server-selection/server-selection.md, "in window").
type p2cInFlight struct {
	inFlight
	r *rand.Rand
}

func newP2CInFlight(e *Env) Policy {
	return &p2cInFlight{make(inFlight, e.Scenario.Workers), e.Rand}
}

func (p *p2cInFlight) Pick(_ *Query, cands []int) int {
	a, b := two(p.r, len(cands))
	if p.inFlight[cands[b]] < p.inFlight[cands[a]] {
		a = b
	}
	p.inFlight[cands[a]]++
	return a
}
