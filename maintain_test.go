package ringwise

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// job is one thing that time does. prepare sets it up on a fresh router with
// workers w0..w4, of which w4 is the driver's; done tells that it has happened,
// within the given time.
type job struct {
	name    string
	within  time.Duration
	hooks   func(h *Hooks, rang *bool)
	prepare func(t *testing.T, r *Router)
	done    func(r *Router, rang bool) bool
}

func statusOf(r *Router, id string) WorkerStatus {
	for _, w := range r.Status().Workers {
		if w.ID == id {
			return w
		}
	}
	return WorkerStatus{}
}

func failWorker(t *testing.T, r *Router, id string, n int) {
	t.Helper()
	for range n {
		c, err := r.Start(Request{Intent: Read}, id)
		require.NoError(t, err)
		c.Done(errDisk)
	}
}

var timeJobs = []job{
	{"means are folded", time.Second, nil, func(t *testing.T, r *Router) {
		c, err := r.Start(Request{Intent: Write}, "w0")
		require.NoError(t, err)
		r.Observe(c, 7*time.Millisecond, nil)
	}, func(r *Router, _ bool) bool {
		return r.Status().Write.Mean.Round(time.Microsecond) == 7*time.Millisecond
	}},
	{"reservations expire", 2500 * time.Millisecond, nil, func(t *testing.T, r *Router) {
		_, err := r.Start(Request{}, "w0")
		require.NoError(t, err)
	}, func(r *Router, _ bool) bool { return statusOf(r, "w0").InFlight == 0 && r.Status().Leaked == 1 }},
	{"anonymous reservations expire", 2500 * time.Millisecond, nil, func(t *testing.T, r *Router) { r.StartWorker("w0") },
		func(r *Router, _ bool) bool { return statusOf(r, "w0").InFlight == 0 && r.Status().Leaked == 1 }},
	{"cooldowns end", 1500 * time.Millisecond, nil, func(t *testing.T, r *Router) { failWorker(t, r, "w0", 3) },
		func(r *Router, _ bool) bool {
			return statusOf(r, "w0").Read.Phase == "probation" && r.Status().Read.Cooldown == 0
		}},
	{"back-off decays", 3 * time.Second, nil, func(t *testing.T, r *Router) {
		// Healthy since now with one cooldown behind it.
		r.node("w0").st.lane[laneRead].pen.v.Store(uint64(penalty(0).setLevel(1).setAt(r.now())))
	}, func(r *Router, _ bool) bool { return r.node("w0").st.lane[laneRead].pen.load().level() == 0 }},
	{"error rates judge", 2 * time.Second, nil, func(t *testing.T, r *Router) {
		for range 100 {
			failWorker(t, r, "w0", 1)
			c, err := r.Start(Request{Intent: Read}, "w0")
			require.NoError(t, err)
			c.Done(nil)
		}
	}, func(r *Router, _ bool) bool {
		return statusOf(r, "w0").Read.Phase == "observed" && r.node("w0").st.cold.lane[0].failing
	}},
	{"reports get stale", 6 * time.Second, nil, func(t *testing.T, r *Router) {
		require.NoError(t, r.Report(Report{Worker: "w0", Time: r.Status().Time, CPU: Some(0.3)}))
	}, func(r *Router, _ bool) bool { return statusOf(r, "w0").Stale }},
	{"topologies expire", 4 * time.Second, func(h *Hooks, rang *bool) { h.Refresh = func(Refresh) { *rang = true } },
		func(t *testing.T, r *Router) {
			require.NoError(t, r.SetTopology(Topology{Version: 1, TTL: 3 * time.Second, Workers: rigWorkers(5)}))
		}, func(r *Router, rang bool) bool { return r.Status().LowConfidence && rang }},
	{"RTT windows slide", 90 * time.Second, nil, func(t *testing.T, r *Router) {
		c, err := r.Start(Request{}, "w0")
		require.NoError(t, err)
		c.Done(nil)
	}, func(r *Router, _ bool) bool { return statusOf(r, "w0").Read.RTT.Count == 0 }},
	{"hooks run", time.Second, func(h *Hooks, rang *bool) { h.Transition = func(Transition) { *rang = true } },
		func(t *testing.T, r *Router) { failWorker(t, r, "w0", 1) }, func(_ *Router, rang bool) bool { return rang }},
}

// node is for tests that have no rig.
func (r *Router) node(id string) *node {
	sn := r.snap.Load()
	return sn.nodes[sn.byID[id]]
}

// TestCase_109_EveryJobIsAlive: a timer that was never started made a policy
// do nothing. Each job of time is done under Run, under Maintain, and without
// either by Observe and by Report.
func TestCase_109_EveryJobIsAlive(t *testing.T) {
	drivers := map[string]func(g *rig){
		"Maintain": func(g *rig) { g.Maintain(g.clock()) },
		"Observe": func(g *rig) {
			c, err := g.Start(Request{Intent: Write}, "w4")
			require.NoError(g.t, err)
			g.Observe(c, 7*time.Millisecond, nil)
		},
		"Done": func(g *rig) {
			c, err := g.Start(Request{Intent: Write}, "w4")
			require.NoError(g.t, err)
			c.DoneWith(Outcome{RTT: 7 * time.Millisecond})
		},
		"ObserveWorker": func(g *rig) { g.ObserveWorker("w4", time.Millisecond, nil) },
		"Report":        func(g *rig) { require.NoError(g.t, g.Report(Report{Worker: "w4", Time: g.clock()})) },
	}
	for _, j := range timeJobs {
		for name, drive := range drivers {
			t.Run(j.name+" by "+name, func(t *testing.T) {
				rang := false
				var h Hooks
				if j.hooks != nil {
					j.hooks(&h, &rang)
				}
				g := newRig(t, 5, WithHooks(h), rigTuning(nil))
				g.Maintain(g.clock()) // no fold is due after it
				j.prepare(t, g.Router)
				if j.done(g.Router, rang) {
					t.Fatal("done before time has passed")
				}
				for range j.within / (50 * time.Millisecond) {
					g.jump(50 * time.Millisecond)
					drive(g)
				}
				if !j.done(g.Router, rang) {
					t.Errorf("not done after %v", j.within)
				}
			})
		}
		t.Run(j.name+" by Run", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rang := false
				var h Hooks
				if j.hooks != nil {
					j.hooks(&h, &rang)
				}
				r, err := New(rigWorkers(5), WithHooks(h), rigTuning(nil))
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				r.Maintain(time.Now())
				j.prepare(t, r)
				require.False(t, j.done(r, rang))
				go r.Run(ctx)
				time.Sleep(j.within) // of the bubble
				synctest.Wait()
				if !j.done(r, rang) {
					t.Errorf("not done after %v", j.within)
				}
				cancel()
			})
		})
	}
	// The naive policy of the report: nobody ever starts its timer.
	for _, j := range timeJobs {
		var rang bool
		var h Hooks
		if j.hooks != nil {
			j.hooks(&h, &rang)
		}
		g := newRig(t, 5, WithHooks(h), rigTuning(nil))
		g.Maintain(g.clock())
		j.prepare(t, g.Router)
		g.jump(j.within)
		require.False(t, j.done(g.Router, rang), "%s: a job that nobody drives must not be done", j.name)
	}
}

// TestMaintain_FoldsInBatches: Observe folds 32 workers at most, yet all are
// folded, and the means are those of a whole fold.
func TestMaintain_FoldsInBatches(t *testing.T) {
	const n = 100
	g := newRig(t, n)
	g.Maintain(g.clock())
	published := g.snap.Load().published
	for i := range n {
		g.Observe(g.start(fmt.Sprint("w", i)), time.Duration(1+i%2)*3*time.Millisecond, nil)
	}
	require.Equal(t, published, g.snap.Load().published, "no fold is due")
	g.jump(100 * time.Millisecond)
	calls := 0
	for ; g.snap.Load().published == published; calls++ {
		require.Less(t, calls, 10)
		g.startAs("w0", Write).Done(nil)
	}
	require.Equal(t, 4, calls, "calls of 32 workers each")
	require.InDelta(t, 4.5e6, float64(g.Status().Read.Mean), 1e3)
	require.EqualValues(t, n, g.Status().Read.Samples)
}

// TestMaintain_SaysWhenNext: soon while something goes on, a second otherwise.
func TestMaintain_SaysWhenNext(t *testing.T) {
	g := newRig(t, 3)
	g.Maintain(g.clock())
	require.Equal(t, time.Second, g.Maintain(g.clock()), "idle")
	c := g.start("w0")
	require.Equal(t, 100*time.Millisecond, g.Maintain(g.clock()), "in flight")
	c.Done(errDisk)
	require.Equal(t, 100*time.Millisecond, g.Maintain(g.clock()), "observed")
	g.pass(3 * time.Second)
	g.warm("w0")
	g.pass(5 * time.Second)
	require.Equal(t, time.Second, g.Maintain(g.clock()), "idle again")
	require.NoError(t, g.Close())
	require.Equal(t, time.Hour, g.Maintain(g.clock()), "closed")
}

// TestRun_Ends: with its context, and with the router; and leaves no goroutine
// (I22), which synctest checks at the end of each bubble.
func TestRun_Ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(rigWorkers(3))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, r.Run(ctx), context.DeadlineExceeded)
		require.Equal(t, 10*time.Second, time.Since(start))
		require.Zero(t, r.runners.Load())
	})
	synctest.Test(t, func(t *testing.T) {
		r, err := New(rigWorkers(3))
		require.NoError(t, err)
		ends := make(chan error, 3)
		for range 3 {
			go func() { ends <- r.Run(t.Context()) }()
		}
		time.Sleep(time.Minute)
		require.NoError(t, r.Close())
		for range 3 {
			require.NoError(t, <-ends)
		}
		require.NoError(t, r.Run(t.Context()), "on a closed router")
	})
}

// TestNoGoroutineLeft: I22. Nothing but Run, which is the caller's, runs on its
// own.
func TestNoGoroutineLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 5 {
		_, err := New([]Worker{{ID: "a"}, {ID: "a"}})
		require.ErrorIs(t, err, ErrConfig)
		_, err = New(rigWorkers(3), WithReplicas(99))
		require.ErrorIs(t, err, ErrConfig)
		g := newRig(t, 5, WithHooks(Hooks{Transition: func(Transition) {}}))
		for i := range 5 {
			require.NoError(t, g.SetTopology(Topology{Workers: rigWorkers(3 + i)}))
			c, err := g.Pick("key")
			require.NoError(t, err)
			c.Done(errDisk)
		}
		_, err = Do(context.Background(), g.Router, Request{Key: "k"}, func(context.Context, Choice) (int, error) { return 1, nil })
		require.NoError(t, err)
		func() {
			defer func() { recover() }()
			Do(context.Background(), g.Router, Request{Key: "k"}, func(context.Context, Choice) (int, error) { panic("x") })
		}()
		require.NoError(t, g.Close())
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
}

// TestClose_Idempotent: I23. Afterwards a Pick gives ErrClosed, an Observe
// gives its reservation back and does nothing else.
func TestClose_Idempotent(t *testing.T) {
	rang := 0
	g := newRig(t, 3, WithHooks(Hooks{Transition: func(Transition) { rang++ }, Failover: func(string) { rang++ }}))
	var open []Choice
	for range 20 {
		open = append(open, g.start("w0"))
	}
	concurrently(8, func(int) { require.NoError(t, g.Close()) })
	q := Request{Key: "key"}
	_, err := g.Pick("key")
	require.ErrorIs(t, err, ErrClosed)
	_, err = g.Route(q)
	require.ErrorIs(t, err, ErrClosed)
	_, err = g.Plan(q, nil)
	require.ErrorIs(t, err, ErrClosed)
	_, err = g.Start(q, "w0")
	require.ErrorIs(t, err, ErrClosed)
	_, err = g.Group([]string{"a"}, q, nil)
	require.ErrorIs(t, err, ErrClosed)
	_, err = Do(context.Background(), g.Router, q, func(context.Context, Choice) (int, error) { return 0, nil })
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, g.SetTopology(Topology{}), ErrClosed)
	tn := g.Tuning()
	tn.LoadWeight++
	require.ErrorIs(t, g.Retune(tn), ErrClosed)
	require.Contains(t, g.Explain(q).Error, "closed")
	require.True(t, g.Status().Closed)

	phase := g.phase("w0")
	for i, c := range open {
		g.jump(50 * time.Millisecond)
		if i%2 == 0 {
			c.Done(errRefused)
		} else {
			g.Observe(c, time.Millisecond, errDisk)
		}
	}
	require.Zero(t, g.inFlight("w0"))
	g.SetState("w1", Down)
	g.Report(Report{Worker: "w1", Time: g.clock(), HealthFailed: Some(true)})
	g.StartWorker("w1")
	g.ObserveWorker("w1", time.Millisecond, errDisk)
	g.Maintain(g.clock())
	require.Zero(t, rang, "hooks called after Close")
	require.Equal(t, phase, g.phase("w0"), "and no verdict counts")
	require.NoError(t, g.Close())
}

// TestCase_067_CloseInTheMiddle: Close during updates and picks gives
// ErrClosed, never a panic. The naive router sets its map to nil.
func TestCase_067_CloseInTheMiddle(t *testing.T) {
	for round := range 15 {
		g := newRig(t, 4)
		concurrently(6, func(i int) {
			for k := range 100 {
				var err error
				switch i {
				case 0:
					if k == 20+round {
						err = g.Close()
					}
				case 1:
					err = g.SetTopology(Topology{Workers: rigWorkers(2 + k%5)})
				case 2:
					g.Maintain(g.clock())
					g.Status()
				case 3:
					g.SetState("w1", State(k%3))
					g.ObserveWorker("w0", time.Millisecond, errDisk)
				default:
					var c Choice
					if c, err = g.Pick(fmt.Sprint(k)); err == nil {
						g.Observe(c, time.Millisecond, nil)
					}
				}
				if err != nil && err != ErrClosed {
					t.Errorf("got %v, want nil or ErrClosed", err)
				}
			}
		})
		_, err := g.Pick("key")
		require.ErrorIs(t, err, ErrClosed)
	}
	naive := map[string]int{"a": 1}
	var workers []string
	require.Panics(t, func() {
		naive = nil // Close
		naive["b"]++
		_ = workers
	}, "the naive router must panic")
}

// TestCase_115_AllAtOnce: every call beside every other, for -race. The buggy
// variant is a data race, which the detector would fail this very test for, so
// there is no naive function here.
func TestCase_115_AllAtOnce(t *testing.T) {
	t.Parallel()
	var g *rig
	g = newRig(t, 4, WithDecisionSample(0.1, 16), WithHooks(Hooks{
		Transition: func(Transition) { g.Status() }, Refresh: func(Refresh) {}, Failover: func(string) {},
	}))
	calls := everyMethod(g.Router, g.clock())
	delete(calls, "Close")
	var names []string
	for name := range calls {
		names = append(names, name)
	}
	concurrently(4, func(i int) {
		rnd := rand.New(rand.NewPCG(uint64(i), 115))
		for range 200 {
			if rnd.IntN(8) == 0 {
				g.jump(20 * time.Millisecond)
			}
			calls[names[rnd.IntN(len(names))]]()
		}
	})
	g.pass(3 * time.Second)
	g.requireIdle()
	for lane := range lanes {
		require.EqualValues(t, g.cooldowns(lane), g.out[lane].n.Load())
	}
	require.NoError(t, g.Close())
}

// TestClock_FreezesStepsAndJumps: I20. A clock that stands still, steps back
// or leaps an hour shortens no cooldown and spoils no number.
func TestClock_FreezesStepsAndJumps(t *testing.T) {
	t.Parallel()
	traffic := func(g *rig) {
		for i := range 300 {
			c, err := g.Route(Request{Key: fmt.Sprint(i), Intent: Intent(i % 4)})
			require.NoError(t, err)
			switch i % 5 {
			case 0:
				c.Done(nil)
			case 1:
				g.Observe(c, time.Millisecond, nil)
			case 2:
				c.Cancel()
			case 3:
				c.DoneWith(Outcome{Feedback: Feedback{2, time.Millisecond}})
			case 4:
				c.FirstByte()
				c.Done(nil)
			}
		}
		g.Maintain(g.clock())
	}
	finite := func(g *rig) {
		t.Helper()
		s := g.Status()
		for _, w := range s.Workers {
			for _, l := range []WorkerLane{w.Read, w.Write} {
				for _, x := range []float64{l.Share, l.Score, l.ErrorRate, float64(l.Latency)} {
					require.False(t, math.IsNaN(x) || math.IsInf(x, 0) || x < 0, "%+v", l)
				}
				require.Less(t, l.Latency, time.Minute, "a leap is no latency")
			}
		}
		for _, l := range []LaneStatus{s.Read, s.Write} {
			require.Greater(t, l.Mean, time.Duration(0))
			require.Less(t, l.Mean, time.Minute)
		}
		for i := range 20 {
			for _, c := range g.Explain(Request{Key: fmt.Sprint(i)}).Candidates {
				require.False(t, math.IsNaN(c.Probability) || math.IsInf(c.Cost, 0) || math.IsNaN(c.Cost), "%+v", c)
			}
		}
	}
	for _, tt := range []struct {
		name string
		leap time.Duration
	}{{"frozen", 0}, {"back a little", -300 * time.Millisecond}, {"back an hour", -time.Hour}, {"back 10 years", -87600 * time.Hour},
		{"on an hour", time.Hour}, {"on 31 minutes", 31 * time.Minute}, {"on 10 years", 87600 * time.Hour}} {
		// What sees the leap first: any call that reads the clock.
		for first, see := range map[string]func(g *rig){
			"Pick":     func(g *rig) { c, err := g.Pick("key"); require.NoError(t, err); c.Cancel() },
			"Maintain": func(g *rig) { g.Maintain(g.clock()) },
			"Start": func(g *rig) {
				c, err := g.Route(Request{Key: "key", Start: g.clock()})
				require.NoError(t, err)
				c.Cancel()
			},
			"SetState":  func(g *rig) { g.SetState("w3", Down); g.SetState("w3", Up) },
			"Status":    func(g *rig) { g.Status() },
			"Done":      func(g *rig) {},
			"StartName": func(g *rig) { c := g.start("w1"); c.Done(nil) },
		} {
			t.Run(tt.name+" seen by "+first, func(t *testing.T) {
				g := newRig(t, 5, rigTuning(func(t *Tuning) { t.CooldownMin = 20 * time.Second }))
				g.pass(time.Second)
				traffic(g)
				open := g.start("w1")
				g.fails("w0", 3)
				require.Equal(t, Cooldown, g.phase("w0"))
				until := g.Status().Workers[0].Read.Until
				g.jump(tt.leap)
				see(g)
				open.Done(nil)
				traffic(g)
				finite(g)
				left := g.Status().Workers[0].Read.Until
				require.Equal(t, Cooldown, g.phase("w0"), "after the leap")
				require.InDelta(t, until.Seconds(), left.Seconds(), 0.5, "seconds left of the cooldown")
				// And time goes on from there.
				g.pass(21 * time.Second)
				require.Equal(t, Probation, g.phase("w0"))
				finite(g)
				g.requireIdle()
			})
		}
	}
}

// TestClock_ConcurrentLeap: goroutines that read the clock on both sides of a
// leap never see time leap.
func TestClock_ConcurrentLeap(t *testing.T) {
	const leap = int64(5 * time.Hour)
	guard := &clockGuard{epoch: rigEpoch}
	var raw, shift atomic.Int64
	read := func() time.Time {
		return rigEpoch.Add(time.Duration(raw.Add(int64(10*time.Microsecond)) + shift.Load()))
	}
	guard.now(read())
	var worst [4]int64
	const reads = 20_000
	concurrently(4, func(i int) {
		for k := range reads {
			if i == 0 && k%20 == 0 {
				shift.Store(leap * int64(k/20%2))
			}
			worst[i] = max(worst[i], guard.now(read()))
		}
	})
	for _, w := range worst {
		// 0.8 s of steps. Who comes late with a time of before is a step back,
		// which takes nothing away and adds what has passed since.
		if w > int64(time.Minute) {
			t.Fatalf("time has leapt to %v, want under a minute", time.Duration(w))
		}
	}
}

// TestClock_NeverUnderZero: whatever the clock says before the epoch.
func TestClock_NeverUnderZero(t *testing.T) {
	rnd := seeded(t, 20)
	guard := &clockGuard{epoch: rigEpoch}
	last := int64(0)
	for range 100_000 {
		leap := time.Duration(rnd.NormFloat64() * math.Pow(10, 3+15*rnd.Float64()))
		now := guard.now(rigEpoch.Add(leap))
		if now < 0 {
			t.Fatalf("now is %d after a leap to %v", now, leap)
		}
		if now-last > int64(maxLeap) {
			t.Fatalf("time went on by %v at once, want at most %v", time.Duration(now-last), maxLeap)
		}
		last = now
	}
}
