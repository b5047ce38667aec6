package ringwise

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPenalty_FieldsDoNotOverlap(t *testing.T) {
	rnd := seeded(t, 11)
	for range 10_000 {
		phase, fails, succ := Phase(rnd.IntN(4)), rnd.IntN(16), rnd.IntN(8)
		level, probes, gen := rnd.IntN(16), rnd.IntN(16), rnd.IntN(256)
		at := rnd.Int64N(1<<39) << 20
		p := penalty(rnd.Uint64()).setPhase(phase).setFails(fails).setSuccesses(succ).setLevel(level).
			setProbes(probes).setAt(at).with(penGenShift, 0xff, gen)
		require.Equal(t, []any{phase, fails, succ, level, probes, uint8(gen), at},
			[]any{p.phase(), p.fails(), p.successes(), p.level(), p.probes(), p.gen(), p.at()})
	}
	p := penalty(0).setFails(99).setSuccesses(99).setLevel(99).setProbes(99)
	require.Equal(t, []int{15, 7, 15, 15}, []int{p.fails(), p.successes(), p.level(), p.probes()}, "fields saturate")
	require.Zero(t, penalty(0).setProbes(-1).probes(), "probes never go under zero")
}

func TestPenalty_CooldownNeverEndsEarly(t *testing.T) {
	rnd := seeded(t, 12)
	for range 10_000 {
		end := rnd.Int64N(int64(1000 * time.Hour))
		got := penalty(0).setAt(end).at()
		if got < end || got >= end+1<<penTickShift {
			t.Fatalf("end %d is stored as %d, want it in [end, end+1.05ms)", end, got)
		}
	}
}

func TestPenalty_JitterBounds(t *testing.T) {
	rnd := seeded(t, 13)
	for _, tt := range []struct {
		jitter float64
		level  int // of the trip before
		want   time.Duration
	}{{0.25, 0, time.Second}, {0.25, 3, 8 * time.Second}, {0.25, 9, 30 * time.Second}, {0, 2, 4 * time.Second}, {0.5, 1, 2 * time.Second}} {
		tn := DefaultTuning()
		tn.CooldownJitter = tt.jitter
		rules := compilePenalty(&tn)
		low, high, sum := math.Inf(1), 0.0, 0.0
		const draws = 20_000
		for range draws {
			p := penalty(0).setLevel(tt.level).tripped(0, &rules, rnd.Uint64())
			x := float64(p.at()) / float64(tt.want)
			low, high, sum = min(low, x), max(high, x), sum+x
		}
		eps := float64(1<<penTickShift) / float64(tt.want)
		if low < 1-tt.jitter || high > 1+tt.jitter+eps {
			t.Errorf("jitter %g: cooldowns are %.4f..%.4f of %v, want within 1 +- %g", tt.jitter, low, high, tt.want, tt.jitter)
		}
		if tt.jitter > 0 && (low > 1-tt.jitter*0.99 || high < 1+tt.jitter*0.99) {
			t.Errorf("jitter %g: cooldowns are only %.4f..%.4f, want the whole range", tt.jitter, low, high)
		}
		if mean := sum / draws; math.Abs(mean-1) > 0.01+eps {
			t.Errorf("jitter %g: mean %.4f of %v, want 1", tt.jitter, mean, tt.want)
		}
	}
}

// TestExample_CooldownLadder: 1 s, doubling to 30 s (P2).
func TestExample_CooldownLadder(t *testing.T) {
	g := newRig(t, 3, rigTuning(nil))
	want := []time.Duration{1, 2, 4, 8, 16, 30, 30, 30}
	g.fails("w0", 3)
	for i, s := range want {
		s *= time.Second
		w := g.Status().Workers[0].Read
		require.Equal(t, "cooldown", w.Phase, "after trip %d", i+1)
		require.InDelta(t, s.Seconds(), w.Until.Seconds(), 0.0011, "cooldown %d", i+1)
		g.jump(w.Until - time.Millisecond)
		c, err := g.Pick("key")
		require.NoError(t, err)
		require.NotEqual(t, "w0", c.ID(), "a pick 1 ms before the end")
		c.Cancel()
		g.jump(time.Millisecond)
		g.fails("w0", 1) // the probe fails: back at once, twice as long
	}
}

// TestCase_121_AtTheCapItStays: reaching the maximum must not halve what
// reached it. The naive ladder starts anew once the maximum is passed.
func TestCase_121_AtTheCapItStays(t *testing.T) {
	stays := func(next func() time.Duration) bool {
		prev := time.Duration(0)
		for range 30 {
			d := next()
			if d < prev || d > 30*time.Second {
				return false
			}
			prev = d
		}
		return prev == 30*time.Second
	}
	rules := newPenaltyBench(1, false).rules
	rules.jitter = 0
	p := penalty(0)
	require.True(t, stays(func() time.Duration {
		p = p.tripped(0, &rules, 0)
		return min(time.Duration(p.at()), 30*time.Second) // at is rounded up
	}), "the cooldown rises to the maximum and stays there")

	d := time.Second
	require.False(t, stays(func() time.Duration {
		if d *= 2; d > 30*time.Second {
			d /= 4
		}
		return d
	}), "the naive ladder must fail")

	// The budget of Do's retries, which has a cap too.
	var b budget
	for range 2000 {
		b.earn(0.02)
	}
	require.EqualValues(t, budgetCap, b.n.Load(), "tokens at the cap")
}

// TestPenalty_BackoffDecays: one doubling is taken back per healthy interval
// as long as the last cooldown.
func TestPenalty_BackoffDecays(t *testing.T) {
	g := newRig(t, 3, rigTuning(nil))
	g.fails("w0", 3)
	for range 3 { // 2, 4, 8 s
		g.jump(time.Duration(g.pen("w0", laneRead).at()) - time.Duration(g.Router.now()))
		g.fails("w0", 1)
	}
	require.Equal(t, 4, g.pen("w0", laneRead).level())
	g.recovers("w0")
	level := func() int { return g.pen("w0", laneRead).level() }
	require.Equal(t, 4, level(), "recovery itself takes nothing back")
	for want := 3; want >= 0; want-- {
		due := g.pen("w0", laneRead).at() + int64(time.Second<<want)
		g.pass(time.Duration(due-g.Router.now()) - 50*time.Millisecond)
		require.Equal(t, want+1, level(), "before %v of health", time.Second<<want)
		g.pass(150 * time.Millisecond)
		require.Equal(t, want, level(), "after %v of health", time.Second<<want)
	}
	// The next trip is a first one again.
	g.fails("w0", 3)
	require.Equal(t, time.Second, g.Status().Workers[0].Read.Until.Round(10*time.Millisecond))
}

// TestExample_Ramp: 20/40/60/80/100 % over 10 s, each after a success (P3).
func TestExample_Ramp(t *testing.T) {
	share := func(g *rig) float64 { return g.Status().Workers[0].Read.Share }
	enter := func() *rig {
		g := newRig(t, 3, rigTuning(nil))
		g.fails("w0", 3)
		require.Zero(t, share(g), "in cooldown")
		g.pass(1100 * time.Millisecond)
		require.Equal(t, Probation, g.phase("w0"))
		return g
	}
	// serve lets the worker answer for d.
	serve := func(g *rig, d time.Duration) {
		for range d / (10 * time.Millisecond) {
			g.answers("w0", 1)
			g.jump(10 * time.Millisecond)
		}
	}
	t.Run("in time with successes", func(t *testing.T) {
		g := enter()
		require.InDelta(t, 0.2, share(g), 1e-9, "before the first answer")
		start := g.Router.now()
		for step := 1; step <= 5; step++ {
			serve(g, 100*time.Millisecond)
			require.InDelta(t, 0.2*float64(step), share(g), 1e-9, "at step %d", step)
			serve(g, 1850*time.Millisecond)
			require.InDelta(t, 0.2*float64(step), share(g), 1e-9, "1.95 s later")
			serve(g, 80*time.Millisecond)
		}
		took := time.Duration(g.Router.now() - start)
		require.Equal(t, Healthy, g.phase("w0"))
		require.InDelta(t, 10, took.Seconds(), 0.2)
	})
	t.Run("time alone does not step", func(t *testing.T) {
		g := enter()
		g.pass(20 * time.Second)
		require.Equal(t, Probation, g.phase("w0"))
		for step := 1; step <= 5; step++ { // a long time has passed, but each success is one step, none a jump
			g.answers("w0", 1)
			require.InDelta(t, 0.2*float64(step), share(g), 1e-9, "after %d successes", step)
			require.Equal(t, Probation, g.phase("w0"), "after %d successes", step)
			g.pass(time.Minute / 2)
		}
		require.NotEqual(t, Probation, g.phase("w0"), "five successes and 10 s")
	})
	t.Run("successes alone do not step", func(t *testing.T) {
		g := enter()
		g.answers("w0", 50)
		require.InDelta(t, 0.2, share(g), 1e-9)
		require.Equal(t, Probation, g.phase("w0"))
	})
	t.Run("fewer steps by Retune", func(t *testing.T) {
		g := enter()
		for range 4 {
			g.answers("w0", 1)
			g.pass(2100 * time.Millisecond)
		}
		tn := g.Tuning()
		tn.RampSteps = 2
		require.NoError(t, g.Retune(tn))
		require.InDelta(t, 1, share(g), 1e-9)
	})
	t.Run("a relapse goes back at once", func(t *testing.T) {
		g := enter()
		for range 5 {
			g.answers("w0", 1)
			g.jump(2003 * time.Millisecond)
		}
		require.InDelta(t, 1.0, share(g), 1e-9)
		g.fails("w0", 1)
		require.Zero(t, share(g))
		w := g.Status().Workers[0].Read
		require.Equal(t, "cooldown", w.Phase)
		require.InDelta(t, 2, w.Until.Seconds(), 0.0011, "and twice as long")
	})
}

// TestExample_Observed: the first anomaly leaves 85 %, an answer ends it (P1).
func TestExample_Observed(t *testing.T) {
	g := newRig(t, 3)
	g.fails("w0", 1)
	w := g.Status().Workers[0]
	require.Equal(t, "observed", w.Read.Phase)
	require.InDelta(t, 0.85, w.Read.Share, 1e-9)
	require.Equal(t, "healthy", w.Write.Phase, "the other lane")
	g.answers("w0", 1)
	require.Equal(t, Healthy, g.phase("w0"))

	// Two failures, a success, two failures: no three in a row.
	g.fails("w0", 2)
	g.answers("w0", 1)
	g.fails("w0", 2)
	require.Equal(t, Observed, g.phase("w0"))
	g.fails("w0", 1)
	require.Equal(t, Cooldown, g.phase("w0"))
}

// errorsAt lets a worker serve 100 requests a second for d, one in every of
// which fails, ended by a success.
func (g *rig) errorsAt(id string, every int, d time.Duration) {
	for i := 1; i <= int(d/(10*time.Millisecond)); i++ {
		if i%every == every/2 {
			g.fails(id, 1)
		} else {
			g.answers(id, 1)
		}
		g.jump(10 * time.Millisecond)
		if i%10 == 0 {
			g.Maintain(g.clock())
		}
	}
	g.Maintain(g.clock())
	g.answers(id, 2)
}

// TestExample_Hysteresis: over 3 % unhealthy, under 1.5 % healthy, between as
// it was (P4), from the fold's rates.
func TestExample_Hysteresis(t *testing.T) {
	// A failure counts as latency too; here only the rate is to speak.
	g := newRig(t, 3, rigTuning(func(t *Tuning) { t.SlowRatio = 100 }))
	for i, tt := range []struct {
		every int // one failure in so many
		want  Phase
	}{
		{50, Healthy},  // 2 %, from below
		{25, Observed}, // 4 %
		{45, Observed}, // 2.2 %, from above
		{100, Healthy}, // 1 %
		{45, Healthy},  // 2.2 %, from below
		{100, Healthy}, // 1 %
		{28, Observed}, // 3.6 %
		{60, Observed}, // 1.7 %
		{1 << 30, Healthy},
	} {
		if i == 0 { // else the first failure of twenty is a rate of 5 %
			g.errorsAt("w0", 1<<30, 10*time.Second)
		}
		g.errorsAt("w0", tt.every, 40*time.Second)
		require.Equal(t, tt.want, g.phase("w0"), "after 40 s at one failure in %d", tt.every)
	}
	// Its constants are those of Tuning: with 10 % and 5 % nothing of this shows.
	g = newRig(t, 3, rigTuning(func(t *Tuning) { t.SlowRatio, t.ErrorRateHigh, t.ErrorRateLow = 100, 0.1, 0.05 }))
	g.errorsAt("w0", 1<<30, 10*time.Second)
	g.errorsAt("w0", 25, 40*time.Second)
	require.Equal(t, Healthy, g.phase("w0"), "4 % under a limit of 10 %")
}

// TestPenalty_SlowIsObserved: over twice the fleet's latency for a second, and
// back after a second under it (P1).
func TestPenalty_SlowIsObserved(t *testing.T) {
	g := newRig(t, 5)
	serve := func(d, slow time.Duration) {
		for range d / (50 * time.Millisecond) {
			for _, id := range []string{"w0", "w1", "w2", "w3", "w4"} {
				rtt := 2 * time.Millisecond
				if id == "w0" {
					rtt = slow
				}
				g.Observe(g.start(id), rtt, nil)
			}
			g.jump(50 * time.Millisecond)
			g.Maintain(g.clock())
		}
	}
	serve(10*time.Second, 2*time.Millisecond)
	require.Equal(t, Healthy, g.phase("w0"))
	serve(700*time.Millisecond, 40*time.Millisecond)
	require.Equal(t, Healthy, g.phase("w0"), "slow for 0.7 s")
	serve(300*time.Millisecond, 2*time.Millisecond)
	serve(700*time.Millisecond, 40*time.Millisecond)
	require.Equal(t, Healthy, g.phase("w0"), "slow for 0.7 s again, with a rest between")
	serve(800*time.Millisecond, 40*time.Millisecond)
	require.Equal(t, Observed, g.phase("w0"), "slow for over a second")
	require.Equal(t, Healthy, g.phase("w1"))
	serve(time.Second, 2*time.Millisecond)
	require.Equal(t, Observed, g.phase("w0"), "its EWMA is under twice the fleet's for less than a second")
	serve(3*time.Second, 2*time.Millisecond)
	require.Equal(t, Healthy, g.phase("w0"))
}

// TestPenalty_ThreeLowScoresTrip: under 40 points on three publishes. In a
// fleet of n the worst score is 70-10 ln n, since the mean it is compared with
// has the worker in it: it takes over twenty workers (docs/policy.md).
func TestPenalty_ThreeLowScoresTrip(t *testing.T) {
	const n = 60
	g := newRig(t, n, rigTuning(nil))
	ids := make([]string, n)
	for i := range ids {
		ids[i] = rigWorkers(n)[i].ID
	}
	serve := func(slow time.Duration) {
		for _, id := range ids {
			rtt := time.Millisecond
			if id == "w7" {
				rtt = slow
			}
			g.Observe(g.start(id), rtt, nil)
		}
		g.jump(100 * time.Millisecond)
		g.Maintain(g.clock())
	}
	for range 50 {
		serve(time.Millisecond)
	}
	folds := 0
	for ; folds < 40 && g.phase("w7") != Cooldown; folds++ {
		serve(900 * time.Millisecond)
	}
	require.Equal(t, Cooldown, g.phase("w7"), "score %.1f", g.Status().Workers[7].Read.Score)
	require.GreaterOrEqual(t, folds, 3, "folds it took")
	require.Zero(t, g.Status().Workers[7].Read.Failures, "nothing has failed")
	require.EqualValues(t, 1, g.Status().Trips)
}

// TestPenalty_LowScoresInARow: two low ones and a good one count from nothing.
func TestPenalty_LowScoresInARow(t *testing.T) {
	const n = 60
	g := newRig(t, n)
	lat := g.node("w7").st
	sn := func() *snapshot { return g.snap.Load() }
	fold := func(bad bool) {
		for _, w := range sn().live {
			g.Observe(g.start(sn().nodes[w].ID), time.Millisecond, nil)
		}
		x := float64(time.Millisecond)
		if bad {
			x = float64(time.Second)
		}
		lat.lane[laneRead].lat.Store(packLat(x, g.Router.now())) // set by hand: an EWMA has no edges
		g.jump(100 * time.Millisecond)
		g.Maintain(g.clock())
	}
	for range 20 {
		fold(false)
	}
	for range 5 {
		fold(true)
		fold(true)
		fold(false)
	}
	require.NotEqual(t, Cooldown, g.phase("w7"))
	fold(true)
	fold(true)
	fold(true)
	require.Equal(t, Cooldown, g.phase("w7"))
}

// TestPenalty_BurstIsOneTrip: 64 requests in flight on one connection fail at
// once: one trip, not 64, and none of them doubles the cooldown.
func TestPenalty_BurstIsOneTrip(t *testing.T) {
	for _, err := range []error{errDisk, errRefused} {
		g := newRig(t, 4, rigTuning(nil))
		var open []Choice
		for range 64 {
			open = append(open, g.start("w0"))
		}
		g.jump(5 * time.Millisecond)
		for _, c := range open[:32] {
			c.DoneWith(Outcome{Err: err})
		}
		want := map[error]uint64{errDisk: 1, errRefused: 2}[err] // a broken connection trips both lanes
		require.Equal(t, want, g.Status().Trips, "trips by %v", err)
		require.Equal(t, 1, g.pen("w0", laneRead).level())
		// The other half comes in after it has been let in again.
		g.pass(1200 * time.Millisecond)
		require.Equal(t, Probation, g.phase("w0"))
		for _, c := range open[32:] {
			c.DoneWith(Outcome{Err: err})
		}
		require.Equal(t, Probation, g.phase("w0"), "failures from before the trip do not trip again: %v", err)
		require.Equal(t, want, g.Status().Trips)
		g.fails("w0", 1)
		require.Equal(t, Cooldown, g.phase("w0"), "a new one does")
		require.Equal(t, 2, g.pen("w0", laneRead).level())
	}
}

// TestCase_112_LateSuccess: the result of an older probe period must not close
// the new one. The naive breaker has no generation.
func TestCase_112_LateSuccess(t *testing.T) {
	g := newRig(t, 4, rigTuning(func(t *Tuning) { t.ProbeQuota = 2 }))
	g.fails("w0", 3)
	g.jump(1002 * time.Millisecond)
	slow, fast := g.start("w0"), g.start("w0") // two probes of the first period
	require.Equal(t, 2, g.pen("w0", laneRead).probes())
	fast.DoneWith(Outcome{Err: errDisk})
	require.Equal(t, Cooldown, g.phase("w0"))
	before := g.pen("w0", laneRead)
	slow.Done(nil)
	require.Equal(t, before, g.pen("w0", laneRead), "a late success in the second cooldown")

	// And one that comes when the second probation has begun.
	g.jump(2002 * time.Millisecond)
	old := g.start("w0")
	g.fails("w0", 1)
	g.jump(4002 * time.Millisecond)
	probe := g.start("w0")
	require.Equal(t, Probation, g.phase("w0"))
	old.Done(nil)
	require.Zero(t, g.pen("w0", laneRead).successes(), "a success from the period before")
	require.Equal(t, 1, g.pen("w0", laneRead).probes(), "the probe that is out is still out")
	probe.Done(nil)
	require.Equal(t, 1, g.pen("w0", laneRead).successes())

	naive := struct {
		open  bool
		fails int
	}{open: true}
	done := func(ok bool) { // whenever it began
		if ok {
			naive.open = false
		}
	}
	done(true)
	require.False(t, naive.open, "the naive breaker must be closed by the late success")
}

// TestPenalty_BrokenTripsBothLanes: EOF, reset and refused say that nobody is
// there; any other failure is of its lane alone.
func TestPenalty_BrokenTripsBothLanes(t *testing.T) {
	for _, tt := range []struct {
		name        string
		intent      Intent
		o           Outcome
		read, write Phase
	}{
		{"read refused", Read, Outcome{Err: errRefused}, Cooldown, Cooldown},
		{"write refused", Write, Outcome{Err: errRefused}, Cooldown, Cooldown},
		{"read fault", Read, Outcome{Err: errDisk}, Cooldown, Healthy},
		{"write fault", Write, Outcome{Err: errDisk}, Healthy, Cooldown},
		{"unspecified fault", Unspecified, Outcome{Err: errDisk}, Cooldown, Healthy},
		{"strong read fault", StrongRead, Outcome{Err: errDisk}, Cooldown, Healthy},
		{"verdict broken", Read, Outcome{Verdict: Broken}, Cooldown, Cooldown},
		{"overload", Read, Outcome{Verdict: Overload}, Observed, Observed},
		{"cancel", Read, Outcome{Verdict: Ignore}, Healthy, Healthy},
		{"superseded", Read, Outcome{Verdict: Superseded}, Healthy, Healthy},
		{"moved", Read, Outcome{Verdict: StaleTopology}, Healthy, Healthy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, 3)
			for range 3 {
				g.startAs("w0", tt.intent).DoneWith(tt.o)
			}
			require.Equal(t, []Phase{tt.read, tt.write}, []Phase{g.pen("w0", laneRead).phase(), g.pen("w0", laneWrite).phase()})
		})
	}
}

// TestPenalty_GenerationWraps: after 256 transitions a request of this
// generation is one of this generation.
func TestPenalty_GenerationWraps(t *testing.T) {
	rules := newPenaltyBench(1, false).rules
	p := penalty(0)
	for range 300 {
		before := p.gen()
		p = p.tripped(0, &rules, 0)
		require.Equal(t, before+1, p.gen())
		if got, trip, _ := p.letIn(0).next(0, outcome{failed: true, gen: p.gen()}, &rules); trip || got != p.letIn(0) {
			t.Fatalf("a failure of generation %d counts in %d", p.gen(), p.letIn(0).gen())
		}
		p = p.letIn(0)
	}
}

// TestCase_094_RampParameters: any tuning that Validate lets through gives
// finite shares, at least the first step for whoever is not out. The naive
// ramp raises time to a power, as the balancer of the report did, and
// underflows.
func TestCase_094_RampParameters(t *testing.T) {
	rnd := seeded(t, 94)
	sane := func(share, least float64) bool { return share >= least && share <= 1 } // NaN fails
	for range 1500 {
		tn := DefaultTuning()
		tn.RampTime = time.Duration(math.Exp(rnd.Float64()*math.Log(6e11/1e6)) * 1e6)
		tn.RampSteps, tn.ProbeQuota = 1+rnd.IntN(7), 1+rnd.IntN(15)
		tn.ObservedFactor, tn.PanicFactor = 0.01+0.99*rnd.Float64(), 0.01+0.99*rnd.Float64()
		require.NoError(t, tn.Validate())
		rules := compilePenalty(&tn)
		now := rnd.Int64N(int64(24 * time.Hour))
		p := penalty(rnd.Uint64()).setAt(rnd.Int64N(int64(24 * time.Hour)))
		out := p.phase() == Cooldown && now < p.at() || p.phase() == Probation && p.successes() == 0 && p.probes() >= rules.quota
		least := min(1/float64(tn.RampSteps), tn.ObservedFactor)
		if out {
			least = 0
		}
		if share, _ := p.share(now, &rules); !sane(share, least) || out && share != 0 {
			t.Fatalf("share %g of %v %v after %v with %+v", share, p.phase(), time.Duration(now-p.at()), time.Duration(p.at()), rules)
		}
	}
	naive := func(done, exponent float64) float64 { return math.Pow(done, 1/exponent) }
	require.False(t, sane(naive(0.1, 1e-3), 0.2), "the naive ramp must underflow")
}

// TestPenalty_WordIsChangedWithoutAllocation: Observe runs these.
func TestPenalty_WordIsChangedWithoutAllocation(t *testing.T) {
	rules := newPenaltyBench(1, false).rules
	var w penaltyWord
	var out fleetOut
	out.max.Store(1)
	now := int64(0)
	rnd := rand.New(rand.NewPCG(1, 0))
	allocs := testing.AllocsPerRun(1000, func() {
		now += int64(time.Second)
		o := outcome{failed: rnd.IntN(2) == 0, gen: w.load().gen(), u: rnd.Uint64()}
		w.change(&out, func(p penalty) (penalty, bool, penalty) { return p.settle(now, &rules).next(now, o, &rules) })
	})
	require.Zero(t, allocs)
}

// P5, and S5's limit: nobody answers is judged by counts as they come, slow by
// smoothed figures. A long good history, a step clamp and the fold's lag keep
// nobody in: three failures within a microsecond do, with no Maintain between.
func TestPenalty_DeadAtOnceSlowInTime(t *testing.T) {
	g := newRig(t, 5, rigTuning(func(t *Tuning) { t.WeightFeedback = 0.1 }))
	for range 300 {
		for i := range 5 {
			g.answers(rigWorkers(5)[i].ID, 1)
		}
		require.NoError(t, g.Report(Report{Worker: "w0", Time: g.clock(), Errors: Some(0.0), CPU: Some(0.1)}))
		g.pass(100 * time.Millisecond)
	}
	require.Equal(t, Healthy, g.phase("w0"))
	at := g.now.Load()
	for i := range 3 {
		require.NotEqual(t, Cooldown, g.phase("w0"), "after %d", i)
		g.start("w0").DoneWith(Outcome{Err: errRefused, RTT: time.Microsecond})
	}
	require.Equal(t, Cooldown, g.phase("w0"))
	require.Equal(t, Cooldown, g.pen("w0", laneWrite).phase())
	require.Equal(t, at, g.now.Load(), "no time has passed")
	require.Zero(t, g.shares(seeded(t, 5), 300, time.Millisecond)["w0"])

	// 40 times as slow and never failing: observed after a second, never out.
	for i := range 60 {
		g.Observe(g.start("w1"), 40*time.Millisecond, nil)
		for _, id := range []string{"w2", "w3", "w4"} {
			g.Observe(g.start(id), time.Millisecond, nil)
		}
		require.NotEqual(t, Cooldown, g.phase("w1"))
		if i < 9 {
			require.Equal(t, Healthy, g.phase("w1"), "slow for %d00 ms", i)
		}
		g.pass(100 * time.Millisecond)
	}
	require.Equal(t, Observed, g.phase("w1"))
	require.Zero(t, g.Status().Workers[1].Read.Failures)
}

// P1: a rate of errors means nothing under 20 samples.
func TestPenalty_ErrorRateNeedsTwentySamples(t *testing.T) {
	for answers, want := range map[int]Phase{10: Healthy, 15: Healthy, 25: Observed} {
		g := newRig(t, 3, rigTuning(func(t *Tuning) { t.SlowRatio = 100 }))
		g.fails("w0", 2)
		g.answers("w0", answers-2) // at once, so that nothing fades
		require.Equal(t, Healthy, g.phase("w0"), "an answer heals")
		g.pass(100 * time.Millisecond)
		require.Equal(t, want, g.phase("w0"), "2 of %d failed", answers)
	}
}
