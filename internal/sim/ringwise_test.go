package sim

import (
	"fmt"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringwise/ringwise"
)

func scenario(t *testing.T, name string) Scenario {
	t.Helper()
	s, err := ScenarioByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return s[0]
}

func mustRun(t *testing.T, s Scenario, f Factory, o Options) *Result {
	t.Helper()
	r, err := Run(s, f, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRingwise_BeatsRandomAndFollowsItsBars is a coarse guard of the whole:
// the bars themselves are judged by cmd/ringwise-sim.
func TestRingwise_NearTheOracle(t *testing.T) {
	for _, c := range []struct {
		scenario string
		limit    float64
	}{{"a", 1.2}, {"b", 1.6}, {"d", 1.3}, {"e", 1.3}} {
		t.Run(c.scenario, func(t *testing.T) {
			t.Parallel()
			s := scenario(t, c.scenario)
			oracle := mustRun(t, s, Policies()[0], Options{Seed: 1})
			for _, feedback := range []bool{true, false} {
				r := mustRun(t, s, Ringwise("ringwise", feedback, nil), Options{Seed: 1})
				if got := float64(r.Quantile(0.99)) / float64(oracle.Quantile(0.99)); got > c.limit {
					t.Errorf("feedback %v: p99 %.2f times the oracle's, want at most %v", feedback, got, c.limit)
				}
			}
		})
	}
}

// TestRingwise_SameSeedSameResult: the library draws on nothing but the clock
// and the random source it is given.
func TestRingwise_SameSeedSameResult(t *testing.T) {
	s := scenario(t, "i")
	s.Warmup, s.Duration = 5*time.Second, 8*time.Second
	for _, f := range All()[1:4] {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			a := mustRun(t, s, f, Options{Seed: 9, Retry: true})
			b := mustRun(t, s, f, Options{Seed: 9, Retry: true})
			if !slices.Equal(a.Latency, b.Latency) || fmt.Sprint(a.Share, a.States, a.Notes) != fmt.Sprint(b.Share, b.States, b.Notes) {
				t.Error("the same seed gave two results")
			}
		})
	}
}

// TestRingwise_TuningReachesTheSimulator: a constant of the cost and one of
// the penalty, doubled, change the output. So the policy is the library's and
// not a copy of it.
func TestRingwise_TuningReachesTheSimulator(t *testing.T) {
	run := func(t *testing.T, name string, tuning *ringwise.Tuning) *Result {
		s := scenario(t, name)
		s.Duration = 12 * time.Second
		return mustRun(t, s, Ringwise("x", false, tuning), Options{Seed: 3})
	}
	for _, c := range []struct {
		field, scenario string
		set             func(*ringwise.Tuning)
	}{
		{"nothing", "i", func(*ringwise.Tuning) {}},
		{"LatencyTau", "i", func(t *ringwise.Tuning) { t.LatencyTau *= 2 }},
		{"LoadWeight", "i", func(t *ringwise.Tuning) { t.LoadWeight *= 2 }},
		{"FailureGain", "e", func(t *ringwise.Tuning) { t.FailureGain *= 2 }},
		{"CooldownMin", "burst", func(t *ringwise.Tuning) { t.CooldownMin *= 2 }},
	} {
		t.Run(c.field, func(t *testing.T) {
			t.Parallel()
			tuning := ringwise.DefaultTuning()
			c.set(&tuning)
			changed := !slices.Equal(run(t, c.scenario, &tuning).Latency, run(t, c.scenario, nil).Latency)
			if changed != (c.field != "nothing") {
				t.Errorf("doubling %s: output changed: %v", c.field, changed)
			}
		})
	}
}

// TestRingwise_PicksByRing: the keys found have the scenario's candidates.
func TestRingwise_PicksByRing(t *testing.T) {
	plain(t)
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

// TestRingwise_BurstTripsOnce: 64 requests that break at once are one trip.
func TestRingwise_BurstTripsOnce(t *testing.T) {
	r := mustRun(t, scenario(t, "burst"), Ringwise("x", false, nil), Options{Seed: 1})
	if got := r.Notes["trips"]; got < 1 || got > 2 {
		t.Errorf("%v trips, want one for each of two bursts", got)
	}
}

func TestRingwiseDo_Retries(t *testing.T) {
	plain(t)
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

// TestRingwise_NoFormula: the adapter imports no math, so it can weigh nothing.
func TestRingwise_NoFormula(t *testing.T) {
	for _, name := range []string{"ringwise.go", "ringwise_do.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			if strings.HasPrefix(i.Path.Value, `"math`) {
				t.Errorf("%s imports %s", name, i.Path.Value)
			}
		}
	}
}
