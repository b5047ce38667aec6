package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// erlangC is the probability that a request waits in M/M/k at load rho.
func erlangC(k int, rho float64) float64 {
	a := float64(k) * rho
	sum, term := 0.0, 1.0
	for i := range k {
		sum += term
		term *= a / float64(i+1)
	}
	return term / (1 - rho) / (sum + term/(1-rho))
}

// single is one worker without network, all clients being equal.
func single(slots int, load float64, d Dist, seconds int) Scenario {
	s := DefaultScenario()
	s.Workers, s.Slots, s.Clients, s.Replicas, s.Partitions = 1, slots, 1, 1, 1
	s.Load, s.Net, s.ServiceDist = load, 0, d
	s.Service = ms
	s.Timeout = time.Hour
	s.Warmup, s.Duration = 2*time.Second, time.Duration(seconds)*time.Second
	s.ReportEvery = 0
	return s
}

func bimodalCV2(k, p float64) float64 {
	short := 1 / (1 - p + p*k)
	m2 := short * short * (1 - p + p*k*k)
	return m2 - 1
}

func TestDist_MeanIsOne(t *testing.T) {
	for _, d := range []Dist{{}, {Kind: "fixed"}, {Kind: "lognormal"}, {Kind: "bimodal", Shape: 20, Share: 0.1}, {Kind: "pareto", Shape: 3}} {
		r := rand.New(rand.NewPCG(1, 2))
		f := d.sampler()
		sum := 0.0
		const n = 2e6
		for range int(n) {
			sum += f(r)
		}
		if m := sum / n; math.Abs(m-1) > 0.01 {
			t.Errorf("%+v: mean %v, want 1", d, m)
		}
	}
}

func TestHeap_SortsLikeASlice(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 0))
	var h heap
	var model []int64
	for range 100000 {
		if len(model) == 0 || r.IntN(2) == 0 {
			v := r.Int64N(1000)
			h.push(event{t: v})
			model = append(model, v)
			continue
		}
		i := 0
		for j, v := range model {
			if v < model[i] {
				i = j
			}
		}
		if got := h.pop().t; got != model[i] {
			t.Fatalf("pop: got %d, want %d", got, model[i])
		}
		model = slices.Delete(model, i, i+1)
		if len(model) > 200 {
			model, h.ev = model[:0], h.ev[:0]
		}
	}
}

func TestFifo_KeepsOrderAcrossGrowth(t *testing.T) {
	var q fifo[int]
	in, out := 0, 0
	r := rand.New(rand.NewPCG(8, 0))
	for range 10000 {
		if r.IntN(5) < 3 {
			q.push(in)
			in++
		} else if q.size > 0 {
			if got := q.pop(); got != out {
				t.Fatalf("pop: got %d, want %d", got, out)
			}
			out++
		}
	}
}

type checker struct {
	pick func(*Query, []int) int
	done func(*Done)
}

func (c checker) Pick(q *Query, cands []int) int { return c.pick(q, cands) }
func (c checker) Done(d *Done)                   { c.done(d) }

// TestRun_SameRequestsForEachPolicy compares what two policies are asked.
func TestRun_SameRequestsForEachPolicy(t *testing.T) {
	s := DefaultScenario()
	s.Warmup, s.Duration = time.Second, 3*time.Second
	record := func(choose func(n int) int) []string {
		var out []string
		f := Factory{Name: "record", New: func(e *Env) Policy {
			return checker{func(q *Query, cands []int) int {
				out = append(out, fmt.Sprint(q.Now, e.Client, q.Hash, q.Partition, q.Request, cands))
				return choose(len(cands))
			}, func(*Done) {}}
		}}
		if _, err := Run(s, f, Options{Seed: 4}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	a, b := record(func(int) int { return 0 }), record(func(n int) int { return n - 1 })
	if !slices.Equal(a, b) {
		t.Errorf("two policies saw different requests: %d and %d", len(a), len(b))
	}
}

// TestRun_SameSeedSameResult runs each policy twice; in the command they run
// side by side, which must not matter.
func TestRun_SameSeedSameResult(t *testing.T) {
	s, err := ScenarioByName("i")
	if err != nil {
		t.Fatal(err)
	}
	s[0].Warmup, s[0].Duration = 5*time.Second, 7*time.Second
	for _, f := range Policies() {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			a, err := Run(s[0], f, Options{Seed: 9})
			if err != nil {
				t.Fatal(err)
			}
			b, _ := Run(s[0], f, Options{Seed: 9})
			if !slices.Equal(a.Latency, b.Latency) || a.Errors != b.Errors || fmt.Sprint(a.Share) != fmt.Sprint(b.Share) {
				t.Error("the same seed gave two results")
			}
			c, _ := Run(s[0], f, Options{Seed: 10})
			if slices.Equal(a.Latency, c.Latency) {
				t.Error("two seeds gave one result")
			}
		})
	}
}

// TestRun_TimeoutKeepsTheWorkerBusy: a worker does not notice that its client
// gave up, and the result has the time the answer took in the end.
func TestRun_TimeoutKeepsTheWorkerBusy(t *testing.T) {
	s := single(1, 0.5, Dist{Kind: "fixed"}, 4)
	s.Timeout = 10 * ms
	s.Changes = func(*Scenario, *rand.Rand) []Change {
		return []Change{{At: 3 * time.Second, Kind: Pause, Value: 0.05}}
	}
	timedOut := 0
	f := Factory{Name: "count", New: func(*Env) Policy {
		return checker{func(*Query, []int) int { return 0 }, func(d *Done) {
			if d.Verdict == TimedOut {
				timedOut++
				if d.RTT != int64(10*ms) {
					t.Fatalf("timed out after %v", time.Duration(d.RTT))
				}
			}
		}}
	}}
	r, err := Run(s, f, Options{Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	if timedOut == 0 || r.Errors != timedOut {
		t.Errorf("%d time-outs, %d errors; want equal and some", timedOut, r.Errors)
	}
	if got := time.Duration(r.Latency[len(r.Latency)-1]); got < 45*ms {
		t.Errorf("longest latency %v, want about the pause of 50 ms", got)
	}
}

// copier hedges after a fixed time, 2 % of the requests at most, and retries,
// on any other candidate. Without the limit copies breed copies: the fleet
// carries 140 % and never recovers.
type copier struct {
	tokens float64
	delay  int64
	seen   map[Verdict]int
	e      *Env
	at     map[uint32]int
}

func (c *copier) Pick(q *Query, cands []int) int {
	c.tokens = min(c.tokens+0.02, 10)
	c.at[q.Ref] = c.e.Rand.IntN(len(cands))
	return c.at[q.Ref]
}
func (c *copier) Done(d *Done)                    { c.seen[d.Verdict]++ }
func (c *copier) HedgeAfter(uint32) (int64, bool) { return c.delay, true }
func (c *copier) PickHedge(q *Query, cands []int, first uint32) int {
	if c.tokens < 1 {
		return -1
	}
	c.tokens--
	return (c.at[first] + 1) % len(cands)
}
func (c *copier) PickRetry(q *Query, cands []int, failed uint32) int {
	return (c.at[failed] + 1) % len(cands)
}

func TestRun_HedgeAndRetry(t *testing.T) {
	s, err := ScenarioByName("e,f")
	if err != nil {
		t.Fatal(err)
	}
	run := func(s Scenario, o Options) (*Result, map[Verdict]int) {
		seen := map[Verdict]int{}
		f := Factory{Name: "copier", New: func(e *Env) Policy {
			return &copier{delay: int64(30 * ms), seen: seen, e: e, at: map[uint32]int{}}
		}}
		o.Seed = 1
		r, err := Run(s, f, o)
		if err != nil {
			t.Fatal(err)
		}
		return r, seen
	}
	plain, seen := run(s[0], Options{})
	if plain.Errors == 0 || plain.Hedges != 0 || seen[Superseded] != 0 {
		t.Fatalf("without: %d errors, %d hedges, %d superseded", plain.Errors, plain.Hedges, seen[Superseded])
	}
	retried, _ := run(s[0], Options{Retry: true})
	if retried.Retries < plain.Errors || retried.Errors > plain.Errors/20 {
		t.Errorf("retry: %d retries, errors %d -> %d", retried.Retries, plain.Errors, retried.Errors)
	}
	s[1].Load = 0.3 // so that copies, not queues, decide
	plain, _ = run(s[1], Options{})
	hedged, seen := run(s[1], Options{Hedge: true})
	if hedged.Hedges == 0 || hedged.Wins == 0 || seen[Superseded] == 0 {
		t.Errorf("hedge: %d copies, %d won, %d superseded", hedged.Hedges, hedged.Wins, seen[Superseded])
	}
	slow := func(r *Result) (n int) {
		for _, v := range r.Latency {
			if v > int64(100*ms) {
				n++
			}
		}
		return n
	}
	if a, b := slow(plain), slow(hedged); b > a*2/3 {
		t.Errorf("requests over 100 ms: %d without copies, %d with", a, b)
	}
	if share := hedged.HedgeShare(); share > 0.021 {
		t.Errorf("%.4f of the requests copied, the policy allows 0.02", share)
	}
}

func BenchmarkRun(b *testing.B) {
	s := DefaultScenario()
	for b.Loop() {
		if _, err := Run(s, Policies()[4], Options{Seed: 1}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
}

// The last used are kept, the one unused for longest goes.
func TestLRU(t *testing.T) {
	var c lru
	for i, step := range []struct {
		tenant int32
		hit    bool
	}{{1, false}, {2, false}, {1, true}, {3, false}, {2, false}, {1, false}, {2, true}} {
		if hit := c.touch(step.tenant, 2); hit != step.hit {
			t.Errorf("step %d, tenant %d: hit %t; now %v", i, step.tenant, hit, c)
		}
	}
}

// A request's tenant is the same for each policy, and a miss costs what it says.
func TestRun_CacheMisses(t *testing.T) {
	s := DefaultScenario()
	s.Tenants, s.Cache, s.Miss, s.Load, s.Warmup, s.Duration = 100, 100, 3, 0.1, 5*time.Second, 6*time.Second
	mean := func() (float64, float64) {
		r, err := Run(s, Factory{Name: "random", New: newRandom}, Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		return float64(r.Mean()) / 1e6, r.Notes["misses"] / r.Notes["lookups"]
	}
	warm, none := mean()
	if none > 0.2 {
		t.Errorf("%.3f misses, want each tenant once a worker", none)
	}
	s.Cache, s.TenantZipf = 1, 0
	cold, all := mean()
	if all < 0.97 {
		t.Errorf("%.3f misses of a cache of one in a hundred", all)
	}
	if cold < 2.7*warm*0.9 || cold > 3.3*warm {
		t.Errorf("mean %.2f ms with misses, %.2f ms without: want about three times", cold, warm)
	}
}
