package ringwise

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// within fails the test where f does not end. The limit is a guard against a
// deadlock; nothing is measured by it.
func within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		buf := make([]byte, 1<<16)
		t.Fatalf("%s does not end:\n%s", what, buf[:runtime.Stack(buf, true)])
	}
}

// TestHooks_NeverFromPick: what a Pick or an Explain brings about waits for
// Maintain, or for an Observe that folds.
func TestHooks_NeverFromPick(t *testing.T) {
	var picking atomic.Bool
	var calls []Transition
	g := newRig(t, 3, rigTuning(nil), WithHooks(Hooks{Transition: func(tr Transition) {
		if picking.Load() {
			t.Error("a hook ran in Pick")
		}
		calls = append(calls, tr)
	}}))
	inPick := func(f func()) {
		picking.Store(true)
		defer picking.Store(false)
		f()
	}
	g.Maintain(g.clock()) // no fold is due after it
	g.fails("w0", 3)
	require.Empty(t, calls)
	g.Maintain(g.clock())
	require.Equal(t, []Transition{
		{Worker: "w0", From: Healthy, To: Observed},
		{Worker: "w0", From: Observed, To: Cooldown, Until: g.Status().Workers[0].Read.Until},
	}, calls)
	calls = nil
	g.jump(1100 * time.Millisecond)
	g.node("w0").st.lane[laneRead].lat.Store(packLat(1e3, g.Router.now()))
	var open []Choice
	inPick(func() {
		for i := range 200 {
			c, err := g.Pick(fmt.Sprint(i))
			require.NoError(t, err)
			open = append(open, c)
			g.Explain(Request{Key: "key"})
			p, err := g.Plan(Request{Key: "key"}, nil)
			require.NoError(t, err)
			require.NotEmpty(t, p)
		}
	})
	require.Equal(t, Probation, g.phase("w0"), "the pick at the end of the cooldown opened the probation")
	require.Empty(t, calls)
	for _, c := range open {
		c.Cancel()
	}
	g.Maintain(g.clock())
	require.Equal(t, []Transition{{Worker: "w0", From: Cooldown, To: Probation}}, calls)
	calls = nil

	// Without Maintain an Observe that folds runs them.
	g.startAs("w1", Write).Done(errDisk)
	require.Empty(t, calls)
	g.jump(150 * time.Millisecond)
	g.answers("w2", 1)
	require.Equal(t, []Transition{{Worker: "w1", Write: true, From: Healthy, To: Observed}}, calls)
}

// everyMethod calls each exported method of a Router once.
func everyMethod(r *Router, now time.Time) map[string]func() {
	q := Request{Key: "key", Intent: Read, Idempotent: true}
	return map[string]func(){
		"Pick":  func() { c, _ := r.Pick("key"); c.FirstByte(); c.Extend(); c.HedgeAfter(); c.Done(nil) },
		"Route": func() { c, _ := r.Route(q); c.Cancel() },
		"Hedge": func() {
			c, _ := r.Route(q)
			d, _ := r.Hedge(q, c)
			c.Done(errDisk)
			d.DoneWith(Outcome{Verdict: Superseded})
		},
		"Observe": func() { c, _ := r.Pick("other"); r.Observe(c, time.Millisecond, errRefused) },
		"Plan":    func() { r.Plan(q, nil) },
		"Start":   func() { c, _ := r.Start(q, "w0"); c.Done(nil) },
		"Group": func() {
			bs, _ := r.Group([]string{"a", "b"}, q, nil)
			for _, b := range bs {
				b.Choice.DoneWith(Outcome{Batch: len(b.Keys)})
			}
		},
		"StartWorker":   func() { r.StartWorker("w1") },
		"ObserveWorker": func() { r.ObserveWorker("w1", time.Millisecond, errDisk) },
		"Report":        func() { r.Report(Report{Worker: "w1", Time: now, CPU: Some(0.5), HealthFailed: Some(true)}) },
		"SetTopology": func() {
			r.SetTopology(Topology{Workers: rigWorkers(4)})
			r.SetTopology(Topology{Workers: rigWorkers(3)})
		},
		"ProbeResult": func() {
			for range 3 {
				r.ProbeResult("w1", 0, errDisk)
			}
			r.ProbeResult("w1", time.Millisecond, nil)
		},
		"SetState":     func() { r.SetState("w2", Down); r.SetState("w2", Up) },
		"Retune":       func() { tn := r.Tuning(); tn.LoadWeight++; r.Retune(tn) },
		"Tuning":       func() { r.Tuning() },
		"Explain":      func() { _ = r.Explain(q) },
		"Decisions":    func() { r.Decisions() },
		"Status":       func() { r.Status() },
		"Maintain":     func() { r.Maintain(now) },
		"Ref":          func() { r.Ref("w0") },
		"StartCanary":  func() { r.StartCanary(CanaryConfig{Tuning: r.Tuning()}) },
		"Canary":       func() { r.Canary() },
		"Promote":      func() { r.Promote() },
		"RollBack":     func() { r.RollBack() },
		"Shadow":       func() { t := r.Tuning(); r.Shadow(ShadowConfig{Tuning: &t}) },
		"ShadowStatus": func() { r.ShadowStatus() },
		"Run": func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			r.Run(ctx)
		},
		"Close": func() { r.Close() },
	}
}

// TestHooks_MayCallEverything: hooks run under no lock, so each may call any
// method.
func TestHooks_MayCallEverything(t *testing.T) {
	typ := reflect.TypeFor[*Router]()
	var methods []string
	for i := range typ.NumMethod() {
		methods = append(methods, typ.Method(i).Name)
	}
	for _, name := range methods {
		t.Run(name, func(t *testing.T) {
			ran := map[string]bool{}
			var r *Router
			var now time.Time
			call := func(hook string) {
				if !ran[hook] {
					ran[hook] = true
					f := everyMethod(r, now)[name]
					if f == nil {
						t.Errorf("everyMethod does not know Router.%s", name)
						return
					}
					f()
				}
			}
			g := newRig(t, 3, WithDecisionSample(0.5, 8), WithHooks(Hooks{
				Transition: func(Transition) { call("transition") },
				Refresh:    func(Refresh) { call("refresh") },
				Failover:   func(string) { call("failover") },
				Alarm:      func(Alarm) { call("alarm") },
			}))
			g.Maintain(g.clock()) // no fold is due after it
			r, now = g.Router, g.clock()
			require.NoError(t, g.StartCanary(CanaryConfig{Tuning: g.Tuning()}))
			within(t, "a hook that calls "+name, func() {
				g.fails("w0", 1)
				g.start("w1").DoneWith(Outcome{Verdict: StaleTopology})
				g.SetState("w2", Down)
				g.pass(200 * time.Millisecond)
				g.RollBack() // or it has ended already
				g.Maintain(g.clock())
			})
			want := []string{"alarm", "failover", "refresh", "transition"}
			if name == "Close" {
				want = want[3:] // it comes first, and a closed router has nothing more to tell
			}
			var got []string
			for hook := range ran {
				got = append(got, hook)
			}
			slices.Sort(got)
			require.Equal(t, want, got)
		})
	}
}

// TestHooks_SlowOneBlocksNobody: while a hook is stuck, picks, ends, folds,
// reports and topologies go on in other goroutines.
func TestHooks_SlowOneBlocksNobody(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var running, most, calls atomic.Int64
	g := newRig(t, 3, rigTuning(nil), WithHooks(Hooks{Transition: func(Transition) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		calls.Add(1)
		once.Do(func() {
			close(entered)
			<-release
		})
	}}))
	g.Maintain(g.clock()) // no fold is due after it
	g.fails("w0", 1)
	stuck := make(chan struct{})
	go func() {
		defer close(stuck)
		g.Maintain(g.clock())
	}()
	<-entered
	within(t, "work beside a stuck hook", func() {
		published := g.snap.Load().published
		concurrently(4, func(i int) {
			for k := range 200 {
				c, err := g.Pick(fmt.Sprint(i, k))
				if err != nil {
					t.Error(err)
				}
				g.Observe(c, time.Millisecond, errDisk)
			}
		})
		for range 20 {
			g.pass(100 * time.Millisecond)
			g.answers("w1", 1)
		}
		require.Greater(t, g.snap.Load().published, published, "folds go on")
		require.NoError(t, g.Report(Report{Worker: "w1", Time: g.clock(), CPU: Some(0.1)}))
		require.NoError(t, g.SetTopology(Topology{Workers: rigWorkers(5)}))
		require.True(t, g.SetState("w4", Down))
		g.Status()
	})
	require.EqualValues(t, 1, calls.Load(), "one at a time")
	close(release)
	<-stuck
	g.Maintain(g.clock())
	require.Greater(t, calls.Load(), int64(3), "what waited was delivered")
	require.EqualValues(t, 1, most.Load(), "hooks at once")
}

// TestHooks_PanicsAreIsolated: a hook that panics, or ends its goroutine, is
// counted and does not take the others along.
func TestHooks_PanicsAreIsolated(t *testing.T) {
	calls := 0
	g := newRig(t, 3, rigTuning(nil), WithHooks(Hooks{
		Transition: func(tr Transition) {
			calls++
			if tr.To == Observed {
				panic("hook")
			}
		},
		Refresh: func(Refresh) { runtime.Goexit() },
	}))
	g.Maintain(g.clock()) // no fold is due after it
	g.fails("w0", 3)
	g.fails("w1", 1)
	require.NotPanics(t, func() { g.Maintain(g.clock()) })
	require.Equal(t, 3, calls)
	require.EqualValues(t, 2, g.Status().HookPanics)

	g.start("w1").DoneWith(Outcome{Verdict: StaleTopology})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.Maintain(g.clock())
	}()
	<-ended
	g.answers("w1", 1) // observed to healthy
	within(t, "Maintain after a hook ended its goroutine", func() { g.Maintain(g.clock()) })
	require.Equal(t, 4, calls, "hooks run on after one has ended its goroutine")
}

// TestHooks_QueueIsBounded: 256 wait, the rest is dropped and counted.
func TestHooks_QueueIsBounded(t *testing.T) {
	calls := 0
	g := newRig(t, 3, WithHooks(Hooks{Transition: func(Transition) { calls++ }}),
		rigTuning(func(t *Tuning) { t.SlowRatio, t.ErrorRateHigh = 100, 1 }))
	const events = 1000
	g.Maintain(g.clock()) // no fold is due after it
	for range events / 2 {
		g.fails("w0", 1)
		g.answers("w0", 1)
	}
	require.Zero(t, calls)
	g.Maintain(g.clock())
	require.Equal(t, hookQueue, calls)
	require.EqualValues(t, events-hookQueue, g.Status().HooksDropped)
	g.fails("w0", 1)
	g.Maintain(g.clock())
	require.Equal(t, hookQueue+1, calls, "there is room again")
}

// TestHooks_NoneIsFine: events without a hook cost nothing and wait nowhere.
func TestHooks_NoneIsFine(t *testing.T) {
	for _, h := range []Hooks{{}, {Transition: func(Transition) {}}, {Refresh: func(Refresh) {}}, {Failover: func(string) {}}} {
		g := newRig(t, 3, WithHooks(h))
		for range 400 {
			g.fails("w0", 4)
			g.start("w1").DoneWith(Outcome{Verdict: StaleTopology})
			g.SetState("w2", Down)
			g.SetState("w2", Up)
		}
		g.Maintain(g.clock())
		require.Zero(t, g.Status().HookPanics, "%+v", h)
	}
}

// TestHooks_Failover: a worker went Down or left, once for each time.
func TestHooks_Failover(t *testing.T) {
	var got []string
	g := newRig(t, 4, WithHooks(Hooks{Failover: func(w string) { got = append(got, w) }}))
	g.SetState("w0", Down)
	g.SetState("w0", Down)
	g.SetState("w1", Draining)
	require.False(t, g.SetState("nobody", Down))
	g.Maintain(g.clock())
	require.Equal(t, []string{"w0"}, got)
	g.SetState("w0", Up)
	g.SetState("w0", Down)
	require.NoError(t, g.SetTopology(Topology{Workers: rigWorkers(4)[:2]}))
	require.NoError(t, g.SetTopology(Topology{Workers: rigWorkers(4)[:2]}))
	g.Maintain(g.clock())
	require.Equal(t, []string{"w0", "w0", "w2", "w3"}, got)
}

// TestCase_064_RefreshIsRateLimited: with a shard down the library does no
// I/O and asks for a topology at most once a second for one worker. The naive
// client pings on every error.
func TestCase_064_RefreshIsRateLimited(t *testing.T) {
	const seconds = 5
	limited := func(asked map[string]int, workers int) bool {
		for _, n := range asked {
			if n > seconds+1 {
				return false
			}
		}
		return len(asked) == workers
	}
	asked := map[string]int{}
	var last Refresh
	g := newRig(t, 6, WithHooks(Hooks{Refresh: func(r Refresh) { asked[r.Worker]++; last = r }}))
	naive := map[string]int{}
	for range seconds * 50 {
		for i := range 6 {
			id := fmt.Sprint("w", i)
			g.start(id).DoneWith(Outcome{Verdict: StaleTopology, Leader: "w9"})
			naive[id]++
		}
		g.pass(20 * time.Millisecond)
	}
	require.True(t, limited(asked, 6), "asked %v times in %d s", asked, seconds)
	require.Equal(t, RefreshStaleVerdict, last.Reason)
	require.Equal(t, "w9", last.Leader)
	for _, n := range asked {
		require.GreaterOrEqual(t, n, seconds-1, "and it goes on asking")
	}
	require.False(t, limited(naive, 6), "the naive client must exceed it")
}

// TestHooks_RefreshMemoryIsBounded: names that come and go leave nothing.
func TestHooks_RefreshMemoryIsBounded(t *testing.T) {
	r := newHookRunner(Hooks{Refresh: func(Refresh) {}})
	for i := range 100_000 {
		r.refresh(Refresh{Worker: fmt.Sprint(i)}, int64(i))
		r.drain()
	}
	require.LessOrEqual(t, len(r.asked), maxAsked)
}

// TestHooks_ExpiredTopology: past its TTL a topology is asked for, once a
// second, until it is renewed.
func TestHooks_ExpiredTopology(t *testing.T) {
	n := 0
	g := newRig(t, 3, WithHooks(Hooks{Refresh: func(r Refresh) {
		require.Equal(t, Refresh{Reason: RefreshExpired}, r)
		n++
	}}))
	top := Topology{Version: 1, TTL: 3 * time.Second, Workers: rigWorkers(3)}
	require.NoError(t, g.SetTopology(top))
	g.pass(2900 * time.Millisecond)
	require.Zero(t, n)
	g.pass(3 * time.Second)
	require.InDelta(t, 3, n, 1, "in the three seconds after")
	require.NoError(t, g.SetTopology(top)) // renewed
	n = 0
	g.pass(2900 * time.Millisecond)
	require.Zero(t, n)
}

// TestCase_130_VersionGap: a version that was skipped is noticed and asked
// for; the full set that came is authoritative all the same. The naive client
// applies differences and keeps who was in the missed one.
func TestCase_130_VersionGap(t *testing.T) {
	var got []Refresh
	g := newRig(t, 3, WithHooks(Hooks{Refresh: func(r Refresh) { got = append(got, r) }}))
	set := func(version uint64, ids ...string) {
		var ws []Worker
		for _, id := range ids {
			ws = append(ws, Worker{ID: id})
		}
		require.NoError(t, g.SetTopology(Topology{Version: version, Workers: ws}))
		g.pass(1100 * time.Millisecond)
	}
	members := func() (ids []string) {
		for _, w := range g.Status().Workers {
			ids = append(ids, w.ID)
		}
		slices.Sort(ids)
		return ids
	}
	set(1, "w0", "w1", "w2")
	set(2, "w0", "w1", "w3")
	require.Empty(t, got)
	set(4, "w0", "w4", "w5") // 3 was missed
	require.Equal(t, []Refresh{{Reason: RefreshGap}}, got)
	require.Equal(t, []string{"w0", "w4", "w5"}, members())
	set(5, "w0", "w4")
	require.Len(t, got, 1)
	// A new epoch begins where it likes.
	require.NoError(t, g.SetTopology(Topology{Epoch: 1, Version: 900, Workers: rigWorkers(2)}))
	g.pass(1100 * time.Millisecond)
	require.Len(t, got, 1)

	naive := map[string]bool{"w0": true, "w1": true, "w3": true}
	for _, id := range []string{"w4", "w5"} { // what version 4 adds; what 3 removed never came
		naive[id] = true
	}
	require.True(t, naive["w1"], "the naive client must keep a replaced node")
}

// TestHooks_ClockRunsUnderNoLock: the clock is the caller's code too (I21).
func TestHooks_ClockRunsUnderNoLock(t *testing.T) {
	var r *Router
	var where string
	now := rigEpoch
	clock := func() time.Time {
		if r != nil {
			if !r.mu.TryLock() {
				t.Errorf("%s reads the clock under the lock", where)
			} else {
				r.mu.Unlock()
			}
		}
		return now
	}
	made, err := New(rigWorkers(3), WithClock(clock))
	require.NoError(t, err)
	r = made
	for name, f := range everyMethod(r, now) {
		if name == "Close" {
			continue
		}
		where = name
		now = now.Add(200 * time.Millisecond)
		f()
	}
	where = "Close"
	require.NoError(t, r.Close())
	_, err = r.Pick("key")
	require.True(t, errors.Is(err, ErrClosed))
}
