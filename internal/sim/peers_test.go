package sim

import (
	"math"
	"math/rand/v2"
	"testing"
)

func testEnv(workers int) *Env {
	s := DefaultScenario()
	s.Workers = workers
	return &Env{Scenario: &s, Rand: rand.New(rand.NewPCG(1, 2))}
}

func byName(t *testing.T, e *Env, name string) Policy {
	t.Helper()
	f, err := PolicyByName(Policies(), name)
	if err != nil {
		t.Fatal(err)
	}
	return f[0].New(e)
}

// count tells how often each candidate of three is picked at one moment; each
// pick is undone by done, when it is not nil.
func count(p Policy, now int64, n int, done func(w int)) [3]int {
	var out [3]int
	for i := range n {
		k := p.Pick(&Query{Now: now, Ref: uint32(i), Timeout: 250e6}, []int{0, 1, 2})
		out[k]++
		if done != nil {
			done(k)
		}
	}
	return out
}

// TestPeers_HandCases tells each peer of two workers' answers and looks where
// the next request goes. Worker 0 answers in 4 ms, worker 1 in 40 ms, worker 2
// in 8 ms.
func TestPeers_HandCases(t *testing.T) {
	for _, c := range []struct {
		policy string
		want   int // picked with one answer each and nothing in flight; -1: any
		busy   int // with two requests in flight on worker 0
	}{
		{"least-inflight", -1, -2},
		{"scan-peak-ewma", 0, 2}, // 4*3 = 12 against 8*1
		{"c3-local", 0, 2},
		{"ars", 0, 2},
		{"hot-cold", 0, 2},
	} {
		t.Run(c.policy, func(t *testing.T) {
			e := testEnv(3)
			p := byName(t, e, c.policy)
			for w, rtt := range []int64{4e6, 40e6, 8e6} {
				// A pick of one candidate is a pick of that worker.
				p.Pick(&Query{Now: 0}, []int{w})
				p.Done(&Done{Now: rtt, RTT: rtt, Worker: int32(w), Timeout: 250e6, Feedback: true, Service: rtt})
			}
			got := p.Pick(&Query{Now: 41e6}, []int{0, 1, 2})
			if c.want >= 0 && got != c.want {
				t.Errorf("idle: picked %d, want %d", got, c.want)
			}
			p.Done(&Done{Now: 41e6 + 1, RTT: 4e6, Worker: int32(got), Timeout: 250e6, Feedback: true, Service: 4e6})
			p.Pick(&Query{Now: 42e6}, []int{0})
			p.Pick(&Query{Now: 42e6}, []int{0})
			got = p.Pick(&Query{Now: 42e6}, []int{0, 1, 2})
			if c.busy == -2 && got == 0 || c.busy >= 0 && got != c.busy {
				t.Errorf("with two in flight on worker 0: picked %d, want %d", got, c.busy)
			}
		})
	}
}

func TestP2C_TakesTheLessLoadedOfTwo(t *testing.T) {
	for _, name := range []string{"p2c-inflight", "p2c-peak-ewma", "kratos", "gozero"} {
		t.Run(name, func(t *testing.T) {
			p := byName(t, testEnv(3), name)
			for w, rtt := range []int64{4e6, 4e6, 4e6} {
				p.Pick(&Query{Now: 1}, []int{w})
				p.Done(&Done{Now: 1 + rtt, RTT: rtt, Worker: int32(w)})
			}
			for range 5 { // worker 2 has five in flight
				p.Pick(&Query{Now: 5e6}, []int{2})
			}
			// Let the others have been picked just now, else the rules that
			// force a pick now and then act.
			n := count(p, 5e6, 300, func(w int) {
				p.Done(&Done{Now: 5e6, RTT: 4e6, Worker: int32(w)})
			})
			// Each pair holds a less loaded one than worker 2.
			if n[2] != 0 {
				t.Errorf("picks %v: worker 2 has five in flight and still wins pairs", n)
			}
			if n[0] < 50 || n[1] < 50 {
				t.Errorf("picks %v: one of two equal workers is left out", n)
			}
		})
	}
}

func TestPeakEWMA_JumpsAndFades(t *testing.T) {
	var n peakNode
	n.observe(0, 4e6)
	n.observe(1e6, 40e6)
	if n.cost != 40e6 {
		t.Errorf("after a peak of 40 ms: %v", n.cost)
	}
	n.pending = 2
	if got, want := n.load(10e9+1e6), 3*40e6*math.Exp(-1); math.Abs(got/want-1) > 1e-9 {
		t.Errorf("load 10 s later with two in flight: %v, want %v", got, want)
	}
	var fresh peakNode
	if fresh.load(0) != 0 {
		t.Error("an unknown idle node has a load")
	}
	fresh.pending = 1
	if fresh.load(0) < 1e12 {
		t.Error("an unknown busy node has no penalty")
	}
}

func TestKratosNode(t *testing.T) {
	n := kratosNode{success: 1000, inflight: 1}
	if got := n.load(0); got != 10e9 {
		t.Errorf("unknown node: load %v, want the penalty", got)
	}
	n.lag, n.inflight = 4e6, 3
	n.predicted = -1e9
	n.starts = []int64{0, 0, 58e6}
	// Two of three are later than 4 ms: 2 is not over 3/2+1.
	if got := n.load(60e6); got != 12e6 {
		t.Errorf("load %v, want 12e6", got)
	}
	n.predicted = -1e9
	n.starts = []int64{0, 0, 20e6}
	if got, want := n.load(60e6), 3*160e6/3.0; math.Abs(got-want) > 3 {
		t.Errorf("load with all late: %v, want %v", got, want)
	}
}

func TestGoZeroNode(t *testing.T) {
	n := goZeroNode{lag: 99, inflight: 2}
	if n.load() != 30 {
		t.Errorf("load %d, want sqrt(100)*3", n.load())
	}
}

func TestC3_CubicQueue(t *testing.T) {
	e := testEnv(3)
	p := newC3(true)(e).(*c3)
	p.n[0] = c3Node{known: true, rtt: 6, queue: 1, work: 4, outstanding: 1}
	// q = 1 + 1*20 + 1 = 22; 6 - 4 + 22^3*4.
	if got := p.score(0); got != 2+22*22*22*4 {
		t.Errorf("score %v, want %v", got, 2+22*22*22*4)
	}
	p.Done(&Done{RTT: 10, Worker: 0, Feedback: true, InService: 5, Service: 8})
	if n := p.n[0]; math.Abs(n.rtt-9.6) > 1e-9 || math.Abs(n.queue-4.6) > 1e-9 || math.Abs(n.work-7.6) > 1e-9 || n.outstanding != 0 {
		t.Errorf("after an answer: %+v, want EWMAs of 0.9", n)
	}
}

func TestARS_MovesTheOthersHalfWay(t *testing.T) {
	p := newARS(testEnv(2)).(*ars)
	p.n[0] = c3Node{known: true, rtt: 4, work: 4}
	p.n[1] = c3Node{known: true, rtt: 24, work: 24}
	if got := p.Pick(&Query{}, []int{0, 1}); got != 0 {
		t.Fatalf("picked %d", got)
	}
	// (4+24)/2 = 14, taken in with 0.3: 24 + 0.3*(14-24) = 21.
	if n := p.n[1]; math.Abs(n.rtt-21) > 1e-9 || n.work != 14 {
		t.Errorf("the loser: %+v, want rtt 21, work 14", n)
	}
}

func TestHotCold_HotLoses(t *testing.T) {
	p := newHotCold(testEnv(3)).(*hotCold)
	p.lat = []float64{1, 5, 9}
	for range 50 { // all idle: the limit is 0 in flight
		k := p.Pick(&Query{}, []int{0, 1, 2})
		if k != 0 {
			t.Fatalf("idle: picked %d, want the least latency", k)
		}
		p.inFlight[0]--
	}
	p.inFlight[0] = 1
	if k := p.Pick(&Query{}, []int{0, 1, 2}); k != 1 {
		t.Errorf("picked %d, want 1: worker 0 is hot", k)
	}
	p.inFlight = inFlight{3, 2, 4}
	if k := p.Pick(&Query{}, []int{0, 1, 2}); k != 1 {
		t.Errorf("all hot: picked %d, want the fewest in flight", k)
	}
}

func TestOrcaWRR_WeightIsRateOverUtilisation(t *testing.T) {
	e := testEnv(3)
	p := newOrcaWRR(e).(*orcaWRR)
	for w, cpu := range []float64{0.25, 0.5, 0.5} {
		p.Report(&Report{At: 1, Worker: w, CPU: cpu, Rate: 100})
	}
	if n := count(p, 2e9, 4000, nil); math.Abs(float64(n[0])-4000.0/3) > 50 {
		t.Errorf("in the blackout: %v, want thirds", n)
	}
	if n := count(p, 4e9, 4000, nil); math.Abs(float64(n[0])-2000) > 50 || math.Abs(float64(n[1])-1000) > 50 {
		t.Errorf("picks %v, want 2 to 1 to 1", n)
	}
	p.Report(&Report{At: 5e9, Worker: 0, CPU: 0.25, Rate: 100, ErrorRate: 0.75})
	if p.n[0].weight != 100 {
		t.Errorf("weight with 75 %% errors: %v, want 100", p.n[0].weight)
	}
}

func TestSnitch_KeepsTheRingsOrderUnlessBad(t *testing.T) {
	p := newSnitch(testEnv(3)).(*snitch)
	for range 50 {
		for w, rtt := range []int64{42e5, 40e5, 40e5} {
			p.Done(&Done{Now: 1e9, RTT: rtt, Worker: int32(w)})
		}
	}
	if k := p.Pick(&Query{Now: 2e9}, []int{0, 1, 2}); k != 0 {
		t.Errorf("5 %% worse: picked %d, want the first of the ring", k)
	}
	for range 200 {
		p.Done(&Done{Now: 20e9, RTT: 60e5, Worker: 0})
	}
	if k := p.Pick(&Query{Now: 20e9}, []int{0, 1, 2}); k == 0 {
		t.Error("50 % worse, and still first")
	}
}

func TestReservoir_FavoursTheNew(t *testing.T) {
	var r reservoir
	rnd := rand.New(rand.NewPCG(3, 0))
	for range 1000 {
		r.add(0, 1, rnd)
	}
	if r.median() != 1 {
		t.Errorf("median %v", r.median())
	}
	for range 100 {
		r.add(10e9, 2, rnd)
	}
	if r.median() != 2 {
		t.Errorf("median 10 s later %v, want the newer value", r.median())
	}
}

func TestReportedScore(t *testing.T) {
	for _, c := range []struct {
		r    Report
		want float64
	}{
		{Report{CPU: 0.3, Mean: 4e6}, 100},
		{Report{CPU: 0.6, Mean: 22e6}, 60},
		{Report{CPU: 0.95, Mean: 80e6, ErrorRate: 0.06}, 0},
	} {
		if got := reportedScore(&c.r, 4e6); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%+v: %v, want %v", c.r, got, c.want)
		}
	}
}

func TestSoftmaxAndHighest_OnReports(t *testing.T) {
	e := testEnv(3)
	p := newSoftmax(10)(e).(*softmax)
	p.v = []float64{60, 50, 0}
	n := count(p, 0, 20000, nil)
	if got := float64(n[0]) / float64(n[1]); math.Abs(got-math.E) > 0.15 {
		t.Errorf("10 points at T = 10: a ratio of %v, want e", got)
	}
	h := newHighest(e).(*highest)
	h.v = []float64{60, 60, 0}
	if n := count(h, 0, 1000, nil); n[2] != 0 || n[0] < 400 || n[1] < 400 {
		t.Errorf("highest with a tie: %v", n)
	}
}

func TestSWRR_FiveOneOne(t *testing.T) {
	p := newSWRR(testEnv(3)).(*swrr)
	p.weight, p.credit, p.next = []float64{5, 1, 1}, make([]float64, 3), math.MaxInt64
	got := ""
	for range 7 {
		got += string('a' + rune(p.Pick(&Query{}, []int{0, 1, 2})))
	}
	if got != "aabacaa" {
		t.Errorf("%s, want aabacaa", got)
	}
	p.next = 0
	p.v = []float64{100, 0, 1}
	p.Pick(&Query{Now: 1}, []int{0, 1, 2})
	if p.weight[0] != 6 || p.weight[1] != 0.8 || p.weight[2] != 1 {
		t.Errorf("weights after a cycle: %v, want steps of at most 20 %%", p.weight)
	}
}

func TestRoundRobinAndPrimary(t *testing.T) {
	e := testEnv(3)
	if n := count(newRoundRobin(e), 0, 300, nil); n != [3]int{100, 100, 100} {
		t.Errorf("round robin: %v", n)
	}
	if n := count(newPrimaryFirst(e), 0, 10, nil); n != [3]int{10, 0, 0} {
		t.Errorf("primary first: %v", n)
	}
	if n := count(newRandom(e), 0, 3000, nil); n[0] < 850 || n[1] < 850 || n[2] < 850 {
		t.Errorf("random: %v", n)
	}
}

func TestOracle_SeesTheTruth(t *testing.T) {
	e := &engine{slots: 4, meanService: 4e6, workers: make([]worker, 3)}
	for i := range e.workers {
		e.workers[i].slow = 1
	}
	env := testEnv(3)
	env.Truth = &Truth{e}
	p := newOracle(env)
	pick := func() int { return p.Pick(&Query{}, []int{0, 1, 2}) }
	e.workers[0].slow, e.workers[1].slow = 3, 3
	if pick() != 2 {
		t.Error("two are 3x slower: want the third")
	}
	e.workers[2].inside = 12 // 4 + 9/4*4 = 13 ms against 12
	if k := pick(); k == 2 {
		t.Error("with 12 inside the fast one is slower than a slow idle one")
	}
	e.workers[0].fail, e.workers[1].paused = true, 200e6
	if pick() != 2 {
		t.Error("one fails, one pauses 200 ms: want the third")
	}
	e.workers[2].dead = true
	if pick() != 1 {
		t.Error("two do not answer: want the paused one")
	}
}
