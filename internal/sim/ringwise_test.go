package sim

import (
	"fmt"
	"go/parser"
	"go/token"
	"math"
	"math/rand/v2"
	"reflect"
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

// trouble is a small fleet in which each rule of the policy has work to do.
func trouble() Scenario {
	s := DefaultScenario()
	s.Name, s.Workers, s.Clients, s.Partitions, s.Service = "trouble", 6, 3, 24, 20*time.Millisecond
	s.Warmup, s.Duration, s.ReportEvery = 0, 16*time.Second, time.Second
	s.AppErrors, s.Lost = 0.01, 0.002
	s.Changes = func(s *Scenario, r *rand.Rand) []Change {
		p := plan{s: s, r: r}
		p.slow(2*time.Second, 6*time.Second, 0, 8)
		p.window(3*time.Second, 5*time.Second, 1, Fail)
		p.window(4*time.Second, 9*time.Second, 2, Flag)
		p.window(7*time.Second, 9*time.Second, 3, Refuse)
		p.window(7500*time.Millisecond, 12*time.Second, 4, Fail)
		p.slow(8*time.Second, 12*time.Second, 5, 3)
		for at := time.Second; at < s.Duration; at += time.Second {
			p.add(at, 2, Pause, 0.2)
		}
		return p.sorted()
	}
	return s
}

// TestRingwise_TuningReachesTheSimulator: each constant of the cost, of the
// penalty and of the hedge, doubled (or halved where the range ends), changes
// the output. So the policy is the library's and not a copy of it. What is no
// field of Tuning is doubled in builds by cmd/ringwise-sim.
func TestRingwise_TuningReachesTheSimulator(t *testing.T) {
	type mode struct{ feedback, hedge bool }
	local, feedback, hedge := mode{}, mode{feedback: true}, mode{hedge: true}
	run := func(t *testing.T, m mode, tuning *ringwise.Tuning) *Result {
		return mustRun(t, trouble(), Ringwise("x", m.feedback, tuning), Options{Seed: 3, Hedge: m.hedge})
	}
	was := map[mode]*Result{}
	for _, m := range []mode{local, feedback, hedge} {
		was[m] = run(t, m, nil)
	}
	if was[hedge].Hedges == 0 || was[local].Notes["trips"] == 0 {
		t.Fatalf("%d copies, %v trips: no trouble", was[hedge].Hedges, was[local].Notes["trips"])
	}
	for _, c := range []struct {
		fields string // comma-separated: those that move together
		factor float64
		mode   mode
	}{
		{"LatencyTau", 2, local},
		{"GainMin", 2, local},
		{"GainMax", 2, local},
		{"FailureGain", 2, local},
		{"FailureCap", 0.1, local}, // above, the time-out is less
		{"MeanGain", 2, local},
		{"MemoryMin", 2, local},
		{"MemoryMax", 0.01, local},
		{"FailureMemory", 2, local},
		{"GapMemory", 2, local},
		{"SilenceFactor", 2, local},
		{"LoadWeight", 2, local},
		{"FeedbackWeight", 2, feedback},
		{"FeedbackDecay", 2, feedback},
		{"PriorExponent", 2, local},
		{"CompactingFactor", 0.5, local},
		{"Temperature", 2, local},
		{"FoldInterval", 2, local},
		{"RequestTimeout", 2, local}, // when lost reservations expire

		{"TripFailures", 2, local},
		{"CooldownMin", 2, local},
		{"CooldownJitter", 2, local},
		{"CooldownMax,CooldownMin", 0.03, local},
		{"RampTime", 2, local},
		{"RampSteps", 0.4, local},
		{"ProbeQuota", 2, local},
		{"ObservedFactor", 0.5, local},
		{"MaxOut", 2, local},

		{"HedgeBudget", 2, hedge},
		{"HedgeStart", 2, hedge},
		{"HedgeMin", 0.5, hedge},
	} {
		t.Run(c.fields, func(t *testing.T) {
			t.Parallel()
			tuning := ringwise.DefaultTuning()
			for name := range strings.SplitSeq(c.fields, ",") {
				v := reflect.ValueOf(&tuning).Elem().FieldByName(name)
				if v.CanInt() {
					v.SetInt(int64(math.Round(float64(v.Int()) * c.factor)))
				} else {
					v.SetFloat(v.Float() * c.factor)
				}
			}
			if err := tuning.Validate(); err != nil {
				t.Fatal(err)
			}
			if got := run(t, c.mode, &tuning); slices.Equal(got.Latency, was[c.mode].Latency) {
				t.Error("the same latencies as before")
			}
		})
	}
	same := ringwise.DefaultTuning()
	if !slices.Equal(run(t, local, &same).Latency, was[local].Latency) {
		t.Error("the default Tuning, set, changes the output")
	}
}

// TestRingwise_BurstTripsOnce: 64 requests that break at once are one trip.
func TestRingwise_BurstTripsOnce(t *testing.T) {
	r := mustRun(t, scenario(t, "burst"), Ringwise("x", false, nil), Options{Seed: 1})
	if got := r.Notes["trips"]; got < 1 || got > 2 {
		t.Errorf("%v trips, want one for each of two bursts", got)
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
