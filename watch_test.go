package ringwise

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSaw_FourTurnsOverATenth(t *testing.T) {
	for _, c := range []struct {
		name  string
		xs    []float64
		noise float64
		want  bool
	}{
		{"saws", []float64{1, 2, 1, 2, 1, 2}, 0, true},
		{"one turn too few", []float64{1, 2, 1, 2, 1}, 0, false},
		{"under a tenth", []float64{1, 1.09, 1, 1.09, 1, 1.09, 1}, 0, false},
		{"over a tenth", []float64{1, 1.12, 1, 1.12, 1, 1.12}, 0, true},
		{"within the noise", []float64{1, 2, 1, 2, 1, 2}, 0.1, false},
		{"a step", []float64{1, 1, 1, 5, 5, 5, 5}, 0, false},
		{"rises", []float64{1, 2, 3, 4, 5, 6, 7}, 0, false},
		{"a slow wave", []float64{1, 2, 3, 2, 1, 2, 3, 2, 1}, 0, false},
		{"a rest between", []float64{1, 2, 1, 1, 2, 1, 1, 2}, 0, false},
		{"over now", []float64{1, 2, 1, 2, 1, 2, 2}, 0, false},
	} {
		var s saw
		got := false
		for range sawLeast {
			require.False(t, s.next(1, c.noise), c.name)
		}
		for _, x := range c.xs {
			got = s.next(x, c.noise)
		}
		require.Equal(t, c.want, got, c.name)
	}
}

// Shares that are random do not saw, with more noise than counting has too:
// 200 workers, an hour of seconds each.
func TestSaw_RandomSharesAreNoSaw(t *testing.T) {
	rnd := seeded(t, 1)
	flaps := 0
	for i := range 200 {
		var s saw
		x := 100.0
		for range 3600 {
			if i%2 == 0 {
				x = 100 + 30*rnd.NormFloat64() // independent
			} else {
				x += 0.3*(100-x) + 20*rnd.NormFloat64() // wandering
			}
			n := max(x, 0)
			if s.next(n/300, n/300/300) {
				flaps++
			}
		}
	}
	require.Zero(t, flaps)
}

func TestLoadWindow_Median(t *testing.T) {
	var w loadWindow
	for i := range loadLeast - 1 {
		w.push(i)
	}
	_, ok := w.median()
	require.False(t, ok, "too few")
	rnd := seeded(t, 1)
	var all []int
	for range 1000 {
		x := rnd.IntN(100_000)
		w.push(x)
		all = append(all, min(x, math.MaxUint16))
	}
	got, ok := w.median()
	require.True(t, ok)
	last := slices.Clone(all[len(all)-loadSamples:])
	slices.Sort(last)
	require.Equal(t, last[loadSamples/2], got)
}

// TestFlap_NamesMetricWorkerAndPeriod: traffic that goes to and fro is
// named with its worker and its period; steady traffic is not.
func TestFlap_NamesMetricWorkerAndPeriod(t *testing.T) {
	for _, period := range []time.Duration{2 * time.Second, 8 * time.Second, 32 * time.Second} {
		var alarms []Alarm
		g := newRig(t, 3, rigTuning(nil), WithHooks(Hooks{Alarm: func(a Alarm) { alarms = append(alarms, a) }}))
		steps := int(7 * period / (100 * time.Millisecond))
		for i := range steps {
			id := "w0"
			if (i*100/int(period/time.Millisecond*1/2))%2 == 1 {
				id = "w1"
			}
			for range 20 {
				g.Observe(g.start(id), time.Millisecond, nil)
			}
			for range 20 {
				g.Observe(g.start("w2"), time.Millisecond, nil)
			}
			g.pass(100 * time.Millisecond)
		}
		s := g.Status()
		require.Equal(t, []Flap{{"share", "w0", period}, {"share", "w1", period}}, s.Flaps, "%v", period)
		require.Contains(t, s.Warnings, fmt.Sprintf("the share of w0 saws with a period of %v", period))
		require.Len(t, alarms, 2, "once each: %v", alarms)
		require.Equal(t, AlarmFlap, alarms[0].Kind)
		require.Equal(t, "w0", alarms[0].Worker)
		for range 6 * int(period/time.Second) { // w0 and w1 rest
			g.Observe(g.start("w2"), time.Millisecond, nil)
			g.pass(time.Second)
		}
		require.Empty(t, g.Status().Flaps, "it is over")
	}
}

// TestSelfCheck_ScoresAgainstSuccess: a scorer that likes what fails is told
// of; the live cost alone is not.
func TestSelfCheck_ScoresAgainstSuccess(t *testing.T) {
	t.Parallel()
	for _, bad := range []bool{true, false} {
		var alarms []Alarm
		opts := []Option{rigTuning(func(t *Tuning) { t.TripFailures, t.TripScore, t.Temperature = 15, 0, 10 }),
			WithHooks(Hooks{Alarm: func(a Alarm) { alarms = append(alarms, a) }})}
		if bad {
			opts = append(opts, WithScorer(byID(map[string]float64{"w0": 68, "w1": 66, "w2": 64, "w3": 62, "w4": 60}), 1000))
		}
		l := newRollLab(t, 1, 5, append(opts, WithReplicas(5))...)
		l.every = 2 * time.Millisecond
		l.failed = func(c Choice, _ *Request) bool { // w0 fails most
			return l.rnd.Float64() < 0.5-0.1*float64(c.ID()[1]-'0')
		}
		l.run(120 * time.Second)
		s := l.Status().SelfCheck
		require.GreaterOrEqual(t, s.Windows, 30)
		require.Equal(t, bad, s.Alarmed, "%+v", s)
		if bad {
			require.Less(t, s.Correlation, -0.5)
			require.Len(t, alarms, 1)
			require.Equal(t, AlarmSelfCheck, alarms[0].Kind)
			require.Contains(t, l.Status().Warnings[len(l.Status().Warnings)-1], "scores run against success")
		} else {
			require.Greater(t, s.Correlation, -0.2)
		}
	}
}

// Scores that have nothing to do with success raise no alarm: 3000 checks.
func TestSelfCheck_ChanceIsNoAlarm(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 0))
	alarms := 0
	for range 3000 {
		var c selfCheck
		for range 40 {
			c.push(pair{rnd.Float64() * 100, 1 - math.Round(rnd.Float64()*3)/100})
		}
		if c.check(40) {
			alarms++
		}
	}
	require.LessOrEqual(t, alarms, 10, "one in a thousand is chance")
	var c selfCheck
	for i := range checkPairs - 1 {
		c.push(pair{float64(i), float64(-i)})
	}
	require.False(t, c.check(30), "29 windows are too few")
	c.push(pair{100, -100})
	require.True(t, c.check(30))
	require.Equal(t, -1.0, c.rho)
}

// TestSaturation_SaysSo: with every candidate at over 8 times its usual load
// the choice says so, the alarm is raised once, and the short path is left
// alone as long as nothing can be saturated.
func TestSaturation_SaysSo(t *testing.T) {
	var alarms []Alarm
	g := newRig(t, 3, rigTuning(func(t *Tuning) { t.RequestTimeout = time.Hour }), WithHooks(Hooks{Alarm: func(a Alarm) { alarms = append(alarms, a) }}))
	var held []Choice
	hold := func(id string, n int) {
		for range n {
			held = append(held, g.start(id))
		}
	}
	for _, id := range []string{"w0", "w1", "w2"} {
		hold(id, 3)
	}
	pick := func() Choice {
		c, err := g.Pick("x")
		require.NoError(t, err)
		defer c.Cancel()
		return c
	}
	g.pass(40 * time.Second)
	require.Equal(t, 3, g.Status().Workers[0].UsualInFlight)
	require.False(t, pick().Saturated())
	hold("w0", 30)
	hold("w1", 30)
	hold("w2", 20)
	g.pass(200 * time.Millisecond)
	require.False(t, pick().Saturated(), "w2 has 23 of 24")
	require.Zero(t, g.snap.Load().special[Read]&flagSaturated, "so the short path serves")
	hold("w2", 2)
	g.pass(200 * time.Millisecond)
	c := pick()
	require.True(t, c.Saturated())
	d := g.Explain(Request{Key: "x"})
	require.True(t, d.Saturated)
	require.Contains(t, d.String(), "saturated")
	require.True(t, g.Status().Workers[2].Saturated)
	require.Equal(t, uint64(1), g.Status().Saturated)
	g.pass(2 * time.Second)
	require.Len(t, alarms, 1)
	require.Equal(t, AlarmSaturated, alarms[0].Kind)
	require.Contains(t, g.Status().Warnings, saturatedText)
	for _, c := range held {
		c.Cancel()
	}
	g.pass(12 * time.Second)
	require.False(t, pick().Saturated())
	require.NotContains(t, g.Status().Warnings, saturatedText)
	require.False(t, Choice{}.Saturated())
}

// An idle router's threshold is 8, not 0.
func TestSaturation_FloorOfOne(t *testing.T) {
	g := newRig(t, 1, rigTuning(func(t *Tuning) { t.RequestTimeout = time.Hour }))
	g.pass(40 * time.Second)
	require.Zero(t, g.Status().Workers[0].UsualInFlight)
	for i := range 10 {
		g.start("w0")
		g.pass(100 * time.Millisecond)
		c, err := g.Pick("x")
		require.NoError(t, err)
		require.Equal(t, i+1 > 8, c.Saturated(), "%d in flight", i+1)
		c.Cancel()
	}
}

// TestTries_EveryHealthyCandidateWithin30s: one candidate is 20 times slower
// and says so, so cost alone never takes it; its keys see 10 picks a second. No worker
// goes without a pick for 30 s, and tries stay under 1 % of the picks.
func TestTries_EveryHealthyCandidateWithin30s(t *testing.T) {
	g := newRig(t, 3, rigTuning(func(t *Tuning) { t.TripScore, t.MemoryMax = 0, 10*time.Minute }))
	last := map[string]int64{"w0": 0, "w1": 0, "w2": 0}
	rtt := func(id string) time.Duration {
		if id == "w2" {
			return 20 * time.Millisecond
		}
		return time.Millisecond
	}
	picks := 0
	for range 6000 { // 10 min
		c, err := g.Route(Request{Key: "hot", Intent: Read})
		require.NoError(t, err)
		picks++
		last[c.ID()] = g.now.Load()
		g.Observe(c, rtt(c.ID()), nil)
		for id, at := range last {
			require.LessOrEqual(t, time.Duration(g.now.Load()-at), 30*time.Second, "%s", id)
		}
		if picks%10 == 0 { // what it says of itself keeps it unwanted when its latency is forgotten
			for i, p99 := range []time.Duration{1, 1, 20} {
				require.NoError(t, g.Report(Report{Worker: fmt.Sprint("w", i), Time: g.clock(), RTTP99: Some(p99 * time.Millisecond)}))
			}
		}
		g.pass(100 * time.Millisecond)
	}
	s := g.Status()
	require.Positive(t, s.Tries)
	require.LessOrEqual(t, float64(s.Tries), 0.01*float64(picks)+1)
	require.Less(t, float64(s.Workers[2].Picks), 0.02*float64(picks), "a try, not a share")
}

// A client with a pick a minute goes by cost, though everybody is due then.
func TestTries_SparseClientsGoByCost(t *testing.T) {
	t.Parallel()
	g := newRig(t, 3, rigTuning(nil))
	for range 200 {
		c, err := g.Route(Request{Key: "rare", Intent: Read})
		require.NoError(t, err)
		g.Observe(c, time.Millisecond, nil)
		g.pass(time.Minute)
	}
	require.LessOrEqual(t, g.Status().Tries, uint64(2))
}

// What Explain says of a due worker is what the next pick does; a picker of
// the caller's is not overruled.
func TestTries_ExplainAgrees(t *testing.T) {
	for _, picker := range []bool{false, true} {
		var opts []Option
		if picker {
			opts = append(opts, WithPicker(PrimaryFirst{}))
		}
		g := newRig(t, 3, append(opts, rigTuning(nil))...)
		for range 300 {
			g.Observe(g.start("w0"), time.Millisecond, nil)
			g.Observe(g.start("w1"), time.Millisecond, nil)
			g.pass(100 * time.Millisecond)
		}
		q := Request{Key: "x", Intent: Read}
		d := g.Explain(q)
		require.Equal(t, !picker, d.Try)
		require.Equal(t, d, func() Decision { d := g.Explain(q); return d }(), "and moves nothing")
		c, err := g.Route(q)
		require.NoError(t, err)
		if !picker {
			require.Equal(t, "w2", d.Chosen)
			require.Equal(t, 1.0, candidate(d, "w2").Probability)
			require.Equal(t, "w2", c.ID())
			require.False(t, g.Explain(q).Try, "once")
		}
		c.Cancel()
	}
}

// TestWeightFeedback_BoundedSteps: a worker with more errors than its history
// loses at most a step a cycle, never goes under a tenth, and comes back as
// slowly; one whose errors are as ever keeps its weight.
func TestWeightFeedback_BoundedSteps(t *testing.T) {
	const step = 0.2
	g := newRig(t, 3, rigTuning(func(t *Tuning) { t.WeightFeedback, t.TripFailures, t.TripScore = step, 15, 0 }))
	share := func(id string) float64 { return g.node(id).st.cold.watch.share() }
	cycle := func(errs map[string]int) {
		for range 10 {
			for _, id := range []string{"w0", "w1", "w2"} {
				for i := range 20 {
					var err error
					if i < errs[id] {
						err = errDisk
					}
					g.Observe(g.start(id), time.Millisecond, err)
				}
			}
			g.pass(time.Second)
		}
	}
	steady := map[string]int{"w1": 1} // 5 %, as ever
	cycle(steady)
	cycle(steady)
	require.Equal(t, 1.0, share("w0"))
	require.Equal(t, 1.0, share("w1"))
	bad := map[string]int{"w0": 6, "w1": 1}
	before := 1.0
	for i := range 14 {
		cycle(bad)
		x := share("w0")
		require.GreaterOrEqual(t, x, before*(1-step)-1e-9, "cycle %d", i)
		require.Less(t, x, before+1e-9, "cycle %d", i)
		require.GreaterOrEqual(t, x, 0.1)
		before = x
	}
	require.Less(t, before, 0.2)
	require.Equal(t, 1.0, share("w1"), "5 % is its history")
	require.InDelta(t, before, g.Status().Workers[0].Share, 1e-9)
	pre := float64(g.snap.Load().cols[g.node("w0").slot].pre)
	require.InEpsilon(t, before, math.Pow(pre, -10), 1e-3, "as a share: cost^-10")
	for range 30 {
		cycle(steady)
		x := share("w0")
		require.LessOrEqual(t, x, max(before*(1+step), before+step*0.1)+1e-9)
		require.GreaterOrEqual(t, x, before)
		before = x
	}
	require.Greater(t, before, 0.95)
	require.NoError(t, g.Retune(func() Tuning { t := g.Tuning(); t.WeightFeedback = 0; return t }()))
	cycle(bad)
	require.Equal(t, 1.0, share("w0"), "off is off")
}

// TestFeedback_PulseNeitherEmptiesNorSwings: a pulse in one metric, whichever,
// takes no worker to 0 and leaves no oscillation.
func TestFeedback_PulseNeitherEmptiesNorSwings(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"latency", "errors", "reported p99", "compacting"} {
		l := newRollLab(t, 5, 6, rigTuning(func(t *Tuning) { t.WeightFeedback = 0.2 }))
		l.every = time.Millisecond
		pulse := false
		l.mean = func(id string) time.Duration {
			if pulse && name == "latency" && id == "w0" {
				return 2 * time.Millisecond
			}
			return time.Millisecond
		}
		l.failed = func(c Choice, _ *Request) bool {
			return pulse && name == "errors" && c.ID() == "w0" && l.rnd.Float64() < 0.01
		}
		l.run(20 * time.Second)
		pulse = true
		report := func() { // every second, as agents do
			for i := range 6 {
				rep := Report{Worker: fmt.Sprint("w", i), Time: l.clock(), RTTP99: Some(5 * time.Millisecond), Compacting: Some(false)}
				if pulse && i == 0 && name == "reported p99" {
					rep.RTTP99 = Some(50 * time.Millisecond)
				}
				if pulse && i == 0 && name == "compacting" {
					rep.Compacting = Some(true)
				}
				require.NoError(t, l.Report(rep))
			}
		}
		total := 0
		for i := range 40 {
			if i%5 == 0 {
				// A failure is remembered for seconds (FailureMemory).
				require.True(t, i == 0 || total > 0, "%s, second %d", name, i)
				total = 0
			}
			l.picks = map[string]int{}
			report()
			l.run(time.Second)
			total += l.picks["w0"]
			pulse = false
			require.Empty(t, l.Status().Flaps, "%s, second %d", name, i)
		}
		require.InDelta(t, 5000.0/6, total, 250, "%s: as before", name)
	}
}

// TestFeedback_ForcedDownEmptiesAndReturnsSlowly: a worker taken down gets no
// more picks at once and is empty within 2 s; brought back, its share goes up
// by the steps of the ramp, never over the step it is at.
func TestFeedback_ForcedDownEmptiesAndReturnsSlowly(t *testing.T) {
	l := newRollLab(t, 2, 3)
	l.run(5 * time.Second)
	var open []Choice
	for range 8 {
		open = append(open, l.start("w0"))
	}
	l.SetState("w0", Down)
	l.picks = map[string]int{}
	l.run(1500 * time.Millisecond)
	require.Zero(t, l.picks["w0"])
	for _, c := range open { // what was under way ends in its own time
		l.Observe(c, l.clock().Sub(rigEpoch)/10, nil)
	}
	require.Zero(t, l.inFlight("w0"), "empty within 2 s")
	l.run(5 * time.Second)
	l.SetState("w0", Up)
	was := 0.0
	for i := range 16 {
		l.picks = map[string]int{}
		l.run(time.Second)
		share := float64(l.picks["w0"]) / 2000
		cap := min(0.2*float64(i/2+1), 1) / 3 // a step every 2 s
		require.LessOrEqual(t, share, cap+0.05, "second %d", i)
		require.GreaterOrEqual(t, share, was-0.1, "second %d: it does not fall back", i)
		was = share
	}
	require.InDelta(t, 1.0/3, was, 0.04)
}

// TestMetrics_ScoresLoadAndStale: the histogram of scores, the load's
// deviation, hot workers, stale reports and refused ones are all in Status.
func TestMetrics_ScoresLoadAndStale(t *testing.T) {
	g := newRig(t, 5, rigTuning(nil))
	require.NoError(t, g.Report(Report{Worker: "w0", Time: g.clock(), CPU: Some(0.1)}))
	require.Error(t, g.Report(Report{Worker: "w0", Time: g.clock(), CPU: Some(-1.0)}))
	require.Zero(t, g.Status().Stale)
	for range 100 {
		for i := range 10 {
			id := "w0"
			if i >= 6 {
				id = fmt.Sprint("w", i-5)
			}
			rtt := time.Millisecond
			if id == "w4" {
				rtt = 4 * time.Millisecond
			}
			g.Observe(g.start(id), rtt, nil)
		}
		g.pass(200 * time.Millisecond)
	}
	s := g.Status()
	require.InDelta(t, 0.2, s.HotShare, 1e-9, "w0 has 6 of 10: over twice the mean of 2")
	require.InDelta(t, 1.0, s.LoadDeviation, 0.01, "6 1 1 1 1 around 2: deviation 2")
	sum := uint64(0)
	for _, n := range s.Scores {
		sum += n
	}
	require.InDelta(t, 5*20, sum, 5, "a score a worker and second")
	require.Positive(t, s.Scores[7], "fast ones")
	require.Positive(t, s.Scores[5]+s.Scores[6], "the slow one")
	require.Equal(t, 1, s.Stale)
	require.Equal(t, uint64(1), s.Reports[ReportOutOfRange.String()])
	require.Equal(t, uint64(1000), s.Picks)
	_, err := json.Marshal(s)
	require.NoError(t, err)
}

// An exporter's labels are the IDs in Status: 100,000 workers that came and
// went leave none behind.
func TestCase_134_LabelsAreTheLiveIDs(t *testing.T) {
	t.Parallel()
	g := newRig(t, 1, WithPoints(1))
	rounds := 1000
	if labRaced {
		rounds = 100
	}
	for i := range rounds {
		ws := make([]Worker, 100)
		for j := range ws {
			ws[j] = Worker{ID: fmt.Sprint("w", i*100+j)}
		}
		require.NoError(t, g.SetTopology(Topology{Workers: ws}))
		if i%100 == 0 {
			g.pass(time.Second)
		}
	}
	g.pass(11 * time.Second)
	s := g.Status()
	require.Len(t, s.Workers, 100)
	for _, w := range s.Workers {
		var n int
		_, err := fmt.Sscanf(w.ID, "w%d", &n)
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, (rounds-1)*100)
	}
	require.LessOrEqual(t, len(g.snap.Load().cols), 200)
}

// The watches run beside everything under -race.
func TestWatch_Concurrent(t *testing.T) {
	g := newRig(t, 4, rigTuning(func(t *Tuning) { t.WeightFeedback = 0.2 }),
		WithScorer(byID(map[string]float64{"w0": 50}), 0.01), WithHooks(Hooks{Alarm: func(Alarm) {}}))
	var stop atomic.Bool
	within(t, "all at once", func() {
		concurrently(6, func(i int) {
			defer stop.Store(true)
			other := g.Tuning()
			other.LoadWeight = 3
			for j := range 400 {
				switch {
				case i == 0 && j%40 == 0:
					g.StartCanary(CanaryConfig{Tuning: other, Steps: halves(time.Second)})
				case i == 1 && j%60 == 0:
					g.RollBack()
				case i == 2 && j%50 == 0:
					g.Shadow(ShadowConfig{Tuning: &other, Share: 0.5})
				case i == 3 && j%20 == 0:
					g.jump(1100 * time.Millisecond)
					g.Maintain(g.clock())
				case i == 4 && j%100 == 0:
					g.SetTopology(Topology{Workers: rigWorkers(3 + j/100%2)})
				case i == 5 && j%50 == 0:
					g.Status()
				}
				c, err := g.Route(Request{Hash: HashUint64(uint64(i*1000 + j)), Intent: Read, Canary: j%3 == 0})
				if err == nil {
					g.Observe(c, time.Millisecond, nil)
				}
			}
		})
	})
	g.requireIdle()
}
