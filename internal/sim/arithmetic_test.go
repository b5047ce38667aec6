//go:build !race

package sim

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/ringwise/ringwise"
)

// The arithmetic of one goroutine has nothing for the race detector and takes
// eleven times as long under it, so these tests are built without it alone.

func TestRun_MatchesErlangC(t *testing.T) {
	for _, c := range []struct {
		slots int
		load  float64
	}{{1, 0.7}, {4, 0.7}, {4, 0.85}, {16, 0.9}} {
		t.Run(fmt.Sprintf("slots=%d load=%v", c.slots, c.load), func(t *testing.T) {
			// 3 to 15 million requests: the mean wait of M/M/1 at 0.7 has a
			// standard error of about 0.3 % there.
			s := single(c.slots, c.load, Dist{}, 4000/c.slots)
			wait, n := 0.0, 0
			for seed := range uint64(2) {
				r, err := Run(s, Policies()[1], Options{Seed: 3 + seed})
				if err != nil {
					t.Fatal(err)
				}
				wait += float64(r.Mean()) / float64(s.Service) * float64(len(r.Latency))
				n += len(r.Latency)
			}
			mean := wait / float64(n)
			want := 1 + erlangC(c.slots, c.load)/(float64(c.slots)*(1-c.load))
			if math.Abs(mean/want-1) > 0.01 {
				t.Errorf("mean time in M/M/%d at %v: got %.4f service times over %d requests, want %.4f within 1 %%", c.slots, c.load, mean, n, want)
			}
		})
	}
}

// TestRun_MatchesErlangCTail checks the whole distribution of M/M/1: the time
// inside is exponential with mean 1/(1-rho).
func TestRun_MatchesErlangCTail(t *testing.T) {
	s := single(1, 0.7, Dist{}, 4000)
	r, err := Run(s, Policies()[1], Options{Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []float64{0.5, 0.9, 0.99} {
		got := float64(r.Quantile(p)) / float64(s.Service)
		want := -math.Log(1-p) / 0.3
		if math.Abs(got/want-1) > 0.01 {
			t.Errorf("quantile %v of M/M/1: got %.4f, want %.4f within 1 %%", p, got, want)
		}
	}
}

// TestRun_MatchesPollaczekKhinchine checks the other distributions through
// their second moment: wait = rho/(1-rho) * (1+cv2)/2.
func TestRun_MatchesPollaczekKhinchine(t *testing.T) {
	for _, c := range []struct {
		d   Dist
		cv2 float64
		tol float64
	}{
		{Dist{Kind: "fixed"}, 0, 0.01},
		{Dist{Kind: "lognormal", Shape: 0.8}, math.Exp(0.64) - 1, 0.02},
		{Dist{Kind: "bimodal"}, bimodalCV2(10, 0.05), 0.02},
		// The variance of a Pareto tail of 3.5 converges slowly.
		{Dist{Kind: "pareto", Shape: 3.5}, 1 / (3.5 * 1.5), 0.03},
	} {
		t.Run(c.d.Kind, func(t *testing.T) {
			s := single(1, 0.6, c.d, 4000)
			r, err := Run(s, Policies()[1], Options{Seed: 11})
			if err != nil {
				t.Fatal(err)
			}
			want := 1 + 0.6/0.4*(1+c.cv2)/2
			if got := float64(r.Mean()) / float64(s.Service); math.Abs(got/want-1) > c.tol {
				t.Errorf("mean time in M/G/1: got %.4f, want %.4f", got, want)
			}
		})
	}
}

// TestRun_EachPickEndsOnce drives each scenario with a policy that checks the
// contract: times never go back, one Done a Pick, references not reused before.
func TestRun_EachPickEndsOnce(t *testing.T) {
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			s.Warmup, s.Duration = s.Warmup/2, s.Duration*3/4
			picks, dones, last := 0, 0, int64(0)
			open := map[uint32]int64{}
			f := Factory{Name: "check", New: func(e *Env) Policy {
				return checker{func(q *Query, cands []int) int {
					if q.Now < last {
						t.Fatalf("time goes back: %d after %d", q.Now, last)
					}
					last = q.Now
					if _, ok := open[q.Ref]; ok && s.Lost == 0 {
						t.Fatalf("reference %d reused while open", q.Ref)
					}
					open[q.Ref] = q.Now
					picks++
					return e.Rand.IntN(len(cands))
				}, func(d *Done) {
					if d.Now < last {
						t.Fatalf("time goes back: %d after %d", d.Now, last)
					}
					last = d.Now
					at, ok := open[d.Ref]
					if !ok || at != d.Now-d.RTT {
						t.Fatalf("Done of %d: started %d, RTT says %d", d.Ref, at, d.Now-d.RTT)
					}
					delete(open, d.Ref)
					dones++
				}}
			}}
			r, err := Run(s, f, Options{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			if s.Lost == 0 && picks != dones || s.Lost > 0 && dones > picks {
				t.Errorf("%d picks, %d ends", picks, dones)
			}
			if s.Lost > 0 && math.Abs(1-float64(dones)/float64(picks)-s.Lost) > 0.002 {
				t.Errorf("%d of %d ends lost, want %v", picks-dones, picks, s.Lost)
			}
			if n := len(r.Latency); float64(n) < 0.9*s.Rate()*(s.Duration-s.Warmup).Seconds() {
				t.Errorf("%d requests measured, rate %v", n, s.Rate())
			}
			for _, v := range r.Latency[:1] {
				if v < 2*int64(s.Net) {
					t.Errorf("latency %d below the network's", v)
				}
			}
		})
	}
}

// TestRingwise_PicksByRing: the keys found have the scenario's candidates.
func TestRingwise_PicksByRing(t *testing.T) {
	s := DefaultScenario()
	cands := s.ring(5)
	keys := keysFor(&s, 5, cands)
	var workers []ringwise.Worker
	for i := range s.Workers {
		workers = append(workers, ringwise.Worker{ID: workerID(i)})
	}
	ring, err := ringwise.NewRing(workers, ringwise.RingOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for p, c := range cands {
		var want []string
		for _, w := range c {
			want = append(want, workerID(w))
		}
		slices.Sort(want)
		if got := slices.Sorted(slices.Values(ring.Owners(keys[p], nil))); !slices.Equal(got, want) {
			t.Fatalf("partition %d: key of %v, want %v", p, got, want)
		}
	}
	s.Workers, s.Partitions = 100, 300
	if keysFor(&s, 5, s.ring(5)) != nil {
		t.Error("100 workers have 161700 combinations: want Among")
	}
	s.Warmup, s.Duration, s.Clients = time.Second, 2*time.Second, 2
	if r := mustRun(t, s, Ringwise("x", true, nil), Options{Seed: 5}); r.Errors != 0 || r.noWorker != 0 {
		t.Errorf("with Among: %d errors, %d without a worker", r.Errors, r.noWorker)
	}
}

func TestRingwiseDo_Retries(t *testing.T) {
	s := scenario(t, "e")
	with := mustRun(t, s, RingwiseDo("do"), Options{Seed: 1, Retry: true})
	without := mustRun(t, s, RingwiseDo("do"), Options{Seed: 1})
	if without.Errors == 0 || without.Retries != 0 {
		t.Errorf("without: %d errors, %d retries", without.Errors, without.Retries)
	}
	if with.Retries == 0 || with.Errors > without.Errors/4 {
		t.Errorf("with: %d errors of %d, %d retries", with.Errors, without.Errors, with.Retries)
	}
}

// Affinity gathers tenants, where one client's history is all there is; with
// twenty that do not know of each other it does not (docs/claims.md).
func TestRingwise_AffinityGathersTenants(t *testing.T) {
	s, err := ScenarioByName("cache")
	if err != nil {
		t.Fatal(err)
	}
	s[0].Clients, s[0].Warmup, s[0].Duration = 1, 15*time.Second, 20*time.Second
	misses := func(p ringwise.Profile) float64 {
		r, err := Run(s[0], profile("", p), Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		return r.Notes["misses"] / r.Notes["lookups"]
	}
	strong := ringwise.CacheAffinity()
	strong.Tuning.LiveWeight = 1
	none, shipped, most := misses(ringwise.Default()), misses(ringwise.CacheAffinity()), misses(strong)
	t.Logf("misses %.3f without, %.3f as shipped, %.3f at LiveWeight 1", none, shipped, most)
	if shipped > 0.97*none || most > 0.8*none {
		t.Errorf("misses %.3f without, %.3f as shipped, %.3f at LiveWeight 1: want 0.97 and 0.8 of it", none, shipped, most)
	}
}

// Twenty clients gather tenants where workers report what they serve.
func TestRingwise_ReportedFingerprintsGatherTenants(t *testing.T) {
	s, err := ScenarioByName("cache")
	if err != nil {
		t.Fatal(err)
	}
	s[0].Warmup, s[0].Duration = 15*time.Second, 20*time.Second
	misses := func(name string) float64 {
		f, err := PolicyByName(append(All(), Profiles()...), name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(s[0], f[0], Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		return r.Notes["misses"] / r.Notes["lookups"]
	}
	none, untold, with := misses("ringwise-local"), misses("ringwise-affinity"), misses("affinity-told-live1")
	t.Logf("misses %.3f without, %.3f by own history, %.3f told and at LiveWeight 1", none, untold, with)
	if with > 0.9*none || untold < 0.97*none {
		t.Errorf("misses %.3f without, %.3f by own history, %.3f told: want under 0.9 of it, and own history over 0.97", none, untold, with)
	}
}

// TestScenarios_AreAlive: what a scenario says goes wrong changes a figure by
// a factor that no noise explains.
func TestScenarios_AreAlive(t *testing.T) {
	p99 := func(r *Result) float64 { return float64(r.Quantile(0.99)) }
	errs := func(r *Result) float64 { return r.ErrorShare() + 1e-6 }
	hot := func(r *Result) float64 { return r.HotShare() + 1e-3 }
	counted := func(v Verdict) func(r *Result) float64 {
		return func(r *Result) float64 { return r.Notes["verdict"+string('0'+rune(v))] + 1e-3 }
	}
	for _, c := range []struct {
		scenario, policy, figure string
		value                    func(*Result) float64
		factor                   float64
	}{
		{"b", "least-inflight", "p99", p99, 2},
		{"c", "least-inflight", "p99", p99, 2},
		{"d", "random", "p99", p99, 10},
		{"e", "least-inflight", "errors", errs, 1000},
		{"f", "random", "p99", p99, 5},
		{"g", "random", "p99", p99, 5},
		{"h", "least-inflight", "p99", p99, 2},
		{"i", "least-inflight", "errors", errs, 1000},
		{"j", "scan-peak-ewma", "p99", p99, 1.3},
		{"apperr", "count", "application errors", counted(AppError), 1000},
		{"burst", "count", "broken connections", counted(Broken), 1000},
		{"flags", "count", "flagged reports", func(r *Result) float64 { return r.Notes["flagged"] + 1e-3 }, 1000},
		{"lost", "scan-peak-ewma", "p99", p99, 1.3},
		{"rolling", "random", "errors", errs, 1000},
		{"zone", "random", "p99", p99, 5},
		{"brownout", "least-inflight", "p99", p99, 3},
		{"hotnodes", "random", "hot share", hot, 5},
		{"cache", "random", "misses", func(r *Result) float64 { return r.Notes["misses"] + 1e-3 }, 1000},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			t.Parallel()
			s, err := ScenarioByName(c.scenario)
			if err != nil {
				t.Fatal(err)
			}
			var f Factory
			if c.policy == "count" {
				f = countingPolicy()
			} else {
				fs, err := PolicyByName(Policies(), c.policy)
				if err != nil {
					t.Fatal(err)
				}
				f = fs[0]
			}
			with, err := Run(s[0], f, Options{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			without, _ := Run(calm(s[0]), f, Options{Seed: 1})
			if a, b := c.value(with), c.value(without); !(a > c.factor*b) {
				t.Errorf("%s with %s: %.4g with its disturbance, %.4g without; want a factor of %v", c.figure, c.policy, a, b, c.factor)
			}
		})
	}
}
