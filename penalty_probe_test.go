package ringwise

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// toProbation trips w0 of five candidates and waits for the cooldown to end,
// the others being loaded, so that all picks want w0.
func toProbation(t *testing.T, quota int) *rig {
	t.Helper()
	g := newRig(t, 5, WithReplicas(5), rigTuning(func(t *Tuning) { t.ProbeQuota = quota }))
	for i := range 80 {
		_, err := g.Start(Request{Stream: true}, fmt.Sprint("w", 1+i%4))
		require.NoError(t, err)
	}
	g.fails("w0", 3)
	g.jump(time.Duration(g.pen("w0", laneRead).at()) - time.Duration(g.Router.now()))
	return g
}

// TestCase_110_ProbeQuota: 1000 concurrent picks at the end of a cooldown; at
// most the quota reaches the worker until one of them has succeeded. The naive
// half-open state counts calls that have completed.
func TestCase_110_ProbeQuota(t *testing.T) {
	for _, quota := range []int{1, 3, 15} {
		burst := func(pick func(i int) bool) int {
			var reached atomic.Int64
			concurrently(100, func(i int) {
				for k := range 10 {
					if pick(i*10 + k) {
						reached.Add(1)
					}
				}
			})
			return int(reached.Load())
		}
		g := toProbation(t, quota)
		var mu sync.Mutex
		var probes []Choice
		pick := func(i int) bool {
			c, err := g.Route(Request{Key: fmt.Sprint(i), Intent: Read})
			if err != nil {
				t.Error(err)
			}
			if c.ID() != "w0" {
				c.Cancel()
				return false
			}
			mu.Lock()
			defer mu.Unlock()
			probes = append(probes, c)
			return true
		}
		got := burst(pick)
		require.LessOrEqual(t, got, quota, "requests that reach the worker")
		require.Equal(t, quota, got, "and the whole quota is used")
		require.Equal(t, quota, g.inFlight("w0"))
		// One by one they come back without a word; as many go out again.
		for _, c := range probes {
			c.Cancel()
		}
		probes = nil
		require.Equal(t, quota, burst(pick), "after all were cancelled")
		// After a success the ramp governs: a fifth of a fifth.
		g.Observe(probes[0], time.Millisecond, nil)
		for _, c := range probes[1:] {
			c.Cancel()
		}
		require.Equal(t, 1, g.pen("w0", laneRead).successes())
		got = burst(pick)
		require.Positive(t, got, "after a success")
		require.Less(t, got, 40+4*7, "after a success")

		var completed atomic.Int64 // none has come back yet
		naive := func(int) bool { return completed.Load() < int64(quota) }
		require.Greater(t, burst(naive), quota, "the naive half-open state must flood it")
	}
}

// TestPenalty_ProbesTakenByOthersAreNotGivenBack: a pick that got no probe, for
// it was the last candidate or named, holds none and gives none back.
func TestPenalty_ProbesTakenByOthersAreNotGivenBack(t *testing.T) {
	for name, pick := range map[string]func(g *rig) Choice{
		"Start": func(g *rig) Choice { return g.start("w0") },
		"the last candidate": func(g *rig) Choice {
			ref, _ := g.Ref("w0")
			c, err := g.Route(Request{Among: []Ref{ref}, Intent: Read})
			require.NoError(t, err)
			return c
		},
		"Group": func(g *rig) Choice {
			ref, _ := g.Ref("w0")
			b, err := g.Group([]string{"a", "b"}, Request{Among: []Ref{ref}, Intent: Read}, nil)
			require.NoError(t, err)
			return b[0].Choice
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := toProbation(t, 1)
			probe := g.start("w0")
			require.Equal(t, 1, g.pen("w0", laneRead).probes())
			extra := pick(g)
			require.Equal(t, "w0", extra.ID())
			require.Equal(t, 1, g.pen("w0", laneRead).probes())
			extra.Cancel()
			if got := g.pen("w0", laneRead).probes(); got != 1 {
				t.Errorf("%d probes are out, want 1: the extra pick gave back another's", got)
			}
			probe.Cancel()
			require.Zero(t, g.pen("w0", laneRead).probes())
		})
	}
}

// TestCase_098_LostProbe: a probe that is picked and never observed must not
// keep the worker out: its lease expires and the worker is probed again. The
// naive breaker waits for it.
func TestCase_098_LostProbe(t *testing.T) {
	probedAgain := func(pick func() bool, pass func(d time.Duration)) bool {
		if !pick() || pick() {
			return false // the first is the probe, the second too many
		}
		pass(2500 * time.Millisecond)
		return pick()
	}
	g := toProbation(t, 1)
	pick := func() bool {
		for i := range 200 {
			c, err := g.Route(Request{Key: fmt.Sprint(i), Intent: Read})
			require.NoError(t, err)
			if c.ID() == "w0" {
				return true // and it is lost
			}
			c.Cancel()
		}
		return false
	}
	require.True(t, probedAgain(pick, g.pass))
	out := false
	require.False(t, probedAgain(func() bool {
		was := out
		out = true
		return !was
	}, func(time.Duration) {}), "the naive breaker must be stuck")
}

// TestCase_116_ProbeSlotsComeBack: after a panic, a cancel, a short deadline, a
// stale topology, a failure to find anything out. Execution tickets leaked.
func TestCase_116_ProbeSlotsComeBack(t *testing.T) {
	only := func(g *rig) Request {
		ref, _ := g.Ref("w0")
		return Request{Among: []Ref{ref}, Intent: Read}
	}
	for name, end := range map[string]func(g *rig){
		"cancel":         func(g *rig) { g.start("w0").Cancel() },
		"superseded":     func(g *rig) { g.start("w0").DoneWith(Outcome{Verdict: Superseded}) },
		"stale topology": func(g *rig) { g.start("w0").DoneWith(Outcome{Verdict: StaleTopology}) },
		"overload":       func(g *rig) { g.start("w0").DoneWith(Outcome{Verdict: Overload}) },
		"cancelled":      func(g *rig) { g.Observe(g.start("w0"), time.Millisecond, context.Canceled) },
		"short deadline": func(g *rig) { g.Observe(g.start("w0"), time.Millisecond, context.DeadlineExceeded) },
		"panic in Do": func(g *rig) {
			defer func() { recover() }()
			Do(context.Background(), g.Router, only(g), func(context.Context, Choice) (int, error) { panic("x") })
		},
		"Goexit in Do": func(g *rig) {
			var wg sync.WaitGroup
			wg.Go(func() {
				Do(context.Background(), g.Router, only(g), func(context.Context, Choice) (int, error) {
					runtime.Goexit() // what t.FailNow does
					return 0, nil
				})
			})
			wg.Wait()
		},
		"cancel of Do": func(g *rig) {
			ctx, cancel := context.WithCancel(context.Background())
			Do(ctx, g.Router, only(g), func(ctx context.Context, _ Choice) (int, error) {
				cancel()
				return 0, ctx.Err()
			})
		},
		"expiry": func(g *rig) { g.start("w0"); g.pass(2500 * time.Millisecond) },
		"late end": func(g *rig) {
			c := g.start("w0")
			g.pass(2500 * time.Millisecond)
			require.Zero(g.t, g.pen("w0", laneRead).probes())
			d := g.start("w0")
			c.Cancel() // must not give d's back
			require.Equal(g.t, 1, g.pen("w0", laneRead).probes())
			d.Cancel()
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, quota := range []int{1, 3} {
				g := toProbation(t, quota)
				for range 2 * quota {
					end(g)
				}
				require.Equal(t, Probation, g.phase("w0"))
				require.Zero(t, g.pen("w0", laneRead).probes(), "probes out, quota %d", quota)
				require.Zero(t, g.inFlight("w0"))
			}
		})
	}
	naive := 0
	func() {
		defer func() { recover() }()
		naive++
		panic("x")
		// naive-- is never reached
	}()
	require.NotZero(t, naive, "the naive ticket must leak")
}

// TestCase_113_StateIsLeft: half-open is never left, or floods. From wherever
// random histories end, lost probes among them, a worker that is well is
// healthy again after twice the longest back-off and some answers. The naive
// breaker that lost its probe is not.
func TestCase_113_StateIsLeft(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		g := newRig(t, 3, rigTuning(func(t *Tuning) { t.ProbeQuota = 1 + int(seed%3) }))
		for range 60 {
			switch rnd.IntN(6) {
			case 0, 1:
				g.fails("w0", 1+rnd.IntN(3))
			case 2:
				g.answers("w0", 1)
			case 3:
				g.start("w0") // lost
			case 4:
				g.pass(time.Duration(rnd.IntN(3000)) * time.Millisecond)
			case 5:
				g.SetState("w0", State(rnd.IntN(2)))
				g.SetState("w0", Up)
			}
		}
		g.pass(60 * time.Second)
		share := g.Status().Workers[0].Read.Share
		require.Greater(t, share, 0.0, "seed %d: %v after twice the longest back-off", seed, g.phase("w0"))
		for range 5 {
			g.answers("w0", 1)
			g.pass(2100 * time.Millisecond)
		}
		g.answers("w0", 1)
		require.Equal(t, Healthy, g.phase("w0"), "seed %d", seed)
	}
	// The same of both: three failures, a probe that is lost, a long time.
	left := func(fail func(), lose func(), pass func(d time.Duration), admits func() bool) bool {
		for range 3 {
			fail()
		}
		pass(2 * time.Second)
		lose()
		pass(60 * time.Second)
		return admits()
	}
	g := newRig(t, 3)
	require.True(t, left(func() { g.fails("w0", 1) }, func() { g.start("w0") }, g.pass,
		func() bool { return g.Status().Workers[0].Read.Share > 0 }))
	var naive struct {
		fails, probes int
		opened, now   time.Duration
	}
	admits := func() bool { return naive.fails < 3 || naive.now-naive.opened > time.Second && naive.probes < 1 }
	require.False(t, left(func() { naive.fails++; naive.opened = naive.now }, func() {
		if admits() {
			naive.probes++ // only its answer would take it back
		}
	}, func(d time.Duration) { naive.now += d }, admits), "the naive breaker must be stuck")
}

// TestPenalty_ConcurrentOutcomes: I13 for the word: picks, ends, folds and
// states at once never leave probes out or places taken.
func TestPenalty_ConcurrentOutcomes(t *testing.T) {
	g := newRig(t, 4, WithReplicas(4), rigTuning(func(t *Tuning) { t.CooldownMin = time.Millisecond; t.ProbeQuota = 2 }))
	stop := make(chan struct{})
	var keeper sync.WaitGroup
	keeper.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				g.jump(500 * time.Microsecond)
				g.Maintain(g.clock())
				if i%50 == 0 {
					g.SetState("w3", State(i/50%2))
				}
			}
		}
	})
	concurrently(6, func(i int) {
		rnd := rand.New(rand.NewPCG(uint64(i), 0))
		for range 4000 {
			c, err := g.Route(Request{Hash: HashUint64(rnd.Uint64()), Intent: []Intent{Read, Write}[rnd.IntN(2)]})
			if err != nil {
				t.Error(err)
				return
			}
			switch rnd.IntN(5) {
			case 0, 1:
				c.Done(errRefused)
			case 2:
				c.Cancel()
			default:
				c.Done(nil)
			}
		}
	})
	close(stop)
	keeper.Wait()
	g.requireIdle()
	for lane := range lanes {
		require.EqualValues(t, g.cooldowns(lane), g.out[lane].n.Load(), "places taken, lane %d", lane)
		for _, w := range rigWorkers(4) {
			require.Zero(t, g.pen(w.ID, lane).probes(), "probes of %s that are out, lane %d", w.ID, lane)
		}
	}
}
