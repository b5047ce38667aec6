package ringwise

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// closers are all ways to close a choice.
func closers(r *Router) []func(c Choice) {
	return []func(c Choice){
		func(c Choice) { c.Done(nil) },
		func(c Choice) { c.Done(errDisk) },
		func(c Choice) { c.DoneWith(Outcome{Verdict: Superseded}) },
		func(c Choice) { c.Cancel() },
		func(c Choice) { r.Observe(c, time.Millisecond, nil) },
		func(c Choice) { r.Observe(c, time.Millisecond, errDisk) },
		func(c Choice) { r.Observe(c, 0, nil) },
	}
}

// TestLease_ClosesOnce: whichever copy is closed first, by whatever method and
// from whatever goroutine, counts; all others are counted and nothing else.
func TestLease_ClosesOnce(t *testing.T) {
	g := newRig(t, 3)
	ways := closers(g.Router)
	const requests = 300
	var open []Choice
	for i := range requests {
		c, err := g.Pick(fmt.Sprint("key", i))
		require.NoError(t, err)
		open = append(open, c)
	}
	concurrently(len(ways), func(i int) {
		for k := range open {
			ways[(i+k)%len(ways)](open[k])
		}
	})
	g.requireIdle()
	require.EqualValues(t, requests*(len(ways)-1), g.Status().DoubleDone)
	for _, w := range g.Status().Workers {
		st := g.node(w.ID).st
		closed := (st.closed[laneRead].Load() + st.closed[laneWrite].Load()) & inFlightMask
		require.Equal(t, w.Picks, closed, "units given back by %s", w.ID)
	}
}

// TestLease_OldCopyTouchesNoOther: a copy of a closed choice meets another
// lease in its slot and leaves it alone.
func TestLease_OldCopyTouchesNoOther(t *testing.T) {
	g := newRig(t, 3)
	for _, stale := range closers(g.Router) {
		var old []Choice
		for range 16 {
			c := g.start("w0")
			c.Cancel()
			old = append(old, c)
		}
		var fresh []Choice
		for range 16 {
			fresh = append(fresh, g.start("w0"))
		}
		for _, c := range old {
			c.FirstByte()
			c.Extend()
			stale(c)
		}
		require.Equal(t, 16, g.inFlight("w0"))
		for _, c := range fresh {
			c.Cancel()
		}
		require.Zero(t, g.inFlight("w0"))
	}
	for i := range g.node("w0").st.slots {
		require.Zero(t, g.node("w0").st.slots[i].Load(), "slot %d", i)
	}
}

// TestLease_NothingReservedNothingTouched: the zero Choice and those of a Plan
// hold no reservation; none of their methods may leave a trace in a slot.
func TestLease_NothingReservedNothingTouched(t *testing.T) {
	g := newRig(t, 3)
	plan, err := g.Plan(Request{Key: "key", Intent: Read}, nil)
	require.NoError(t, err)
	require.Len(t, plan, 3)
	for _, c := range append(plan, Choice{}) {
		for _, f := range append(closers(g.Router), Choice.FirstByte, Choice.Extend) {
			f(c)
			for _, w := range rigWorkers(3) {
				st := g.node(w.ID).st
				for i := range st.slots {
					require.Zero(t, st.slots[i].Load(), "slot %d of %s", i, w.ID)
				}
			}
		}
		_ = fmt.Sprint(c.ID(), c.Addr(), c.Worker(), c.Ref(), c.Relaxed(), c.LowConfidence(), c.IsZero())
	}
	g.requireIdle()
	for _, w := range rigWorkers(3) {
		st := g.node(w.ID).st
		require.Zero(t, st.failed[laneRead].Load(), "failures of %s", w.ID)
	}
	g.pass(3 * time.Second)
	require.Zero(t, g.Status().Leaked)
}

// TestLease_ExpiresInTheThirdPass: what Maintain's doc says, at short
// pauses and long ones.
func TestLease_ExpiresInTheThirdPass(t *testing.T) {
	for _, pause := range []time.Duration{500 * time.Millisecond, 10 * time.Second} {
		g := newRig(t, 3)
		g.start("w0")
		for pass := range 4 {
			g.jump(pause)
			g.Maintain(g.clock())
			require.Equal(t, pass >= 2, g.Status().Leaked == 1, "pass %d, %v apart", pass+1, pause)
		}
	}
}

// TestLease_ExpiresWithinTwoTimeouts: a reservation that nobody closes comes
// back after one to two request time-outs, whenever it was made.
func TestLease_ExpiresWithinTwoTimeouts(t *testing.T) {
	for _, timeout := range []time.Duration{300 * time.Millisecond, time.Second, 4 * time.Second} {
		g := newRig(t, 3, rigTuning(func(t *Tuning) { t.RequestTimeout = timeout }))
		for i := range 40 {
			g.pass(time.Duration(i) * timeout / 40)
			c := g.start("w0")
			age := time.Duration(0)
			for ; g.inFlight("w0") > 0; age += 20 * time.Millisecond {
				require.LessOrEqual(t, age, 2*timeout+100*time.Millisecond, "age of a lost reservation, time-out %v", timeout)
				g.jump(20 * time.Millisecond)
				g.Maintain(g.clock())
			}
			require.GreaterOrEqual(t, age, timeout, "time-out %v", timeout)
			c.Done(nil)
			require.Zero(t, g.inFlight("w0"), "a late Done gives nothing back")
		}
		require.EqualValues(t, 40, g.Status().Leaked)
		require.EqualValues(t, 40, g.Status().LateDone)
	}
}

// TestLease_StreamsDoNotExpire: Extend, Request.Stream and a longer time-out
// than the router's say that it takes longer.
func TestLease_StreamsDoNotExpire(t *testing.T) {
	for _, tt := range []struct {
		name    string
		q       Request
		extend  bool
		expires bool
	}{
		{"plain", Request{}, false, true},
		{"time-out as the router's", Request{Timeout: time.Second}, false, true},
		{"shorter time-out", Request{Timeout: 10 * time.Millisecond}, false, true},
		{"extend", Request{}, true, false},
		{"stream", Request{Stream: true}, false, false},
		{"longer time-out", Request{Timeout: 5 * time.Second}, false, false},
	} {
		for _, named := range []bool{false, true} {
			g := newRig(t, 3)
			q := tt.q
			q.Key = "key"
			c, err := g.Route(q)
			if named {
				c.Cancel()
				c, err = g.Start(q, "w1")
			}
			require.NoError(t, err)
			if tt.extend {
				c.Extend()
			}
			g.pass(time.Minute)
			want := 1
			if tt.expires {
				want = 0
			}
			require.Equal(t, want, g.inFlight(c.ID()), "%s: in flight after a minute", tt.name)
			c.Done(nil)
			g.requireIdle()
		}
	}
}

// TestLease_LateDoneSpeaksOnce: what comes after the expiry is still heard,
// once.
func TestLease_LateDoneSpeaksOnce(t *testing.T) {
	g := newRig(t, 3)
	for i := range uint64(3) {
		c := g.start("w0")
		g.pass(2500 * time.Millisecond)
		require.Zero(t, g.inFlight("w0"))
		c.Done(errDisk)
		c.Done(errDisk)
		s := g.Status()
		require.Equal(t, []uint64{i + 1, i + 1, i + 1}, []uint64{s.LateDone, s.DoubleDone, s.Workers[0].Read.Failures})
		require.Zero(t, g.inFlight("w0"))
	}
	require.Equal(t, Cooldown, g.phase("w0"), "three late failures in a row are three failures")

	c := g.startAs("w1", Write)
	g.pass(2500 * time.Millisecond)
	g.Observe(c, 2400*time.Millisecond, nil)
	require.InDelta(t, 2400, float64(g.Status().Workers[1].Write.RTT.Max)/1e6, 30, "a late answer trains")
	require.Equal(t, 4, int(g.Status().LateDone))

	// It is not kept for ever: the slot is free some time-outs later.
	lost := g.start("w2")
	g.pass(time.Minute)
	for i := range g.node("w2").st.slots {
		require.Zero(t, g.node("w2").st.slots[i].Load(), "slot %d", i)
	}
	double := g.Status().DoubleDone
	lost.Done(errDisk)
	require.Equal(t, double+1, g.Status().DoubleDone)
	require.Zero(t, g.Status().Workers[2].Read.Failures)
}

// TestLease_Overflow: 20, 300, 5000 in flight on one worker, closed in random
// order, with a copy of each; then as many lost.
func TestLease_Overflow(t *testing.T) {
	rnd := seeded(t, 20)
	for _, n := range []int{20, 300, 5000} {
		g := newRig(t, 1)
		open := make([]Choice, n)
		for i := range open {
			open[i] = g.start("w0")
		}
		require.Equal(t, n, g.inFlight("w0"))
		rnd.Shuffle(n, func(i, j int) { open[i], open[j] = open[j], open[i] })
		for i, c := range open {
			c.Done(nil)
			c.Done(nil)
			require.Equal(t, n-1-i, g.inFlight("w0"))
		}
		s := g.Status()
		require.EqualValues(t, n, s.DoubleDone, "of %d", n)
		require.Zero(t, s.Untracked, "of %d", n)
		require.EqualValues(t, n, s.Workers[0].Read.RTT.Count)

		for range n {
			g.start("w0")
		}
		g.pass(2200 * time.Millisecond)
		require.Zero(t, g.inFlight("w0"), "after %d were lost", n)
		require.EqualValues(t, n, g.Status().Leaked)
		// Their slots serve again.
		for range n {
			g.start("w0").Cancel()
		}
		require.Zero(t, g.Status().Untracked)
	}
}

// TestLease_Untracked: over 69,000 at once are counted as never reserved.
func TestLease_Untracked(t *testing.T) {
	g := newRig(t, 1)
	const n = 80_000
	open := make([]Choice, n)
	for i := range open {
		open[i] = g.start("w0")
	}
	s := g.Status()
	require.Greater(t, s.Untracked, uint64(n-69_904-1), "%d slots for %d leases", 69_904, n)
	require.EqualValues(t, n, uint64(g.inFlight("w0"))+s.Untracked)
	for _, c := range open {
		c.Done(nil)
	}
	require.Zero(t, g.inFlight("w0"))
	require.Equal(t, s.Untracked, g.Status().DoubleDone, "their Done does nothing")
}

func TestLease_Size(t *testing.T) {
	g := newRig(t, 3)
	for _, tt := range []struct {
		size uint32
		want int
	}{{0, 1}, {1, 1}, {7, 7}, {255, 255}, {256, 255}, {1 << 31, 255}} {
		c, err := g.Route(Request{Key: "key", Size: tt.size})
		require.NoError(t, err)
		require.Equal(t, tt.want, g.inFlight(c.ID()), "Size %d", tt.size)
		c.Done(nil)
		d, err := g.Start(Request{Size: tt.size}, "w1")
		require.NoError(t, err)
		require.Equal(t, tt.want, g.inFlight("w1"), "Size %d", tt.size)
		g.pass(2500 * time.Millisecond)
		require.Zero(t, g.inFlight("w1"), "Size %d expires whole", tt.size)
		d.Done(nil)
		g.requireIdle()
	}
	// A failure weighs what its answers would have: half of the units fail.
	g = newRig(t, 3)
	for range 5 {
		for i := range 20 {
			c, err := g.Start(Request{Size: 50}, "w2")
			require.NoError(t, err)
			if i%2 == 0 {
				c.Done(errDisk)
			} else {
				c.Done(nil)
			}
		}
		g.pass(100 * time.Millisecond)
	}
	require.InDelta(t, 0.5, g.Status().Workers[2].Read.ErrorRate, 0.03, "error rate")
}

// TestLease_TicketsWrap: 43 bits of ticket run out after years; the order of
// age goes on.
func TestLease_TicketsWrap(t *testing.T) {
	for back := range uint64(12) {
		g := newRig(t, 1)
		st := g.node("w0").st
		start := uint64(1<<leaseTicketBits) - back
		st.issued.Store(start)
		st.closed[laneRead].Store(start & inFlightMask)
		st.cold.marks = [2]uint64{start & leaseTicketMask, start & leaseTicketMask}
		st.cold.tombs = st.cold.marks
		require.Zero(t, g.inFlight("w0"))
		var old, fresh []Choice
		for range 6 {
			old = append(old, g.start("w0"))
		}
		g.pass(1200 * time.Millisecond)
		for range 6 {
			fresh = append(fresh, g.start("w0"))
		}
		require.Equal(t, 12, g.inFlight("w0"))
		g.pass(900 * time.Millisecond)
		require.Equal(t, 6, g.inFlight("w0"), "the old ones are lost, the fresh ones are not: %d before the wrap", back)
		for _, c := range fresh {
			c.Done(nil)
		}
		require.Zero(t, g.inFlight("w0"))
		require.Zero(t, g.Status().LateDone)
		for _, c := range old {
			c.Done(nil)
		}
		require.Zero(t, g.inFlight("w0"))
		require.EqualValues(t, 6, g.Status().LateDone)
	}
}

// TestLease_ClosedWraps: closed counts units in 24 bits below a sum of RTTs in
// 40; an overflow of either spoils neither in flight nor the fleet's mean.
func TestLease_ClosedWraps(t *testing.T) {
	for _, sum := range []uint64{0, 1<<40 - 3} {
		g := newRig(t, 1)
		st := g.node("w0").st
		const units = 1<<24 - 5
		st.issued.Store(units)
		st.closed[laneRead].Store(sum<<24 | units)
		st.cold.lane[laneRead].closed = st.closed[laneRead].Load()
		for range 20 {
			a, b := g.start("w0"), g.startAs("w0", Write)
			require.Equal(t, 2, g.inFlight("w0"))
			g.Observe(a, 5*time.Millisecond, nil)
			require.Equal(t, 1, g.inFlight("w0"))
			g.Observe(b, 7*time.Millisecond, nil)
			require.Zero(t, g.inFlight("w0"))
		}
		g.pass(100 * time.Millisecond)
		s := g.Status()
		require.InDelta(t, 5, float64(s.Read.Mean)/1e6, 0.001, "mean of reads, sum %x", sum)
		require.InDelta(t, 7, float64(s.Write.Mean)/1e6, 0.001, "mean of writes, sum %x", sum)
		require.EqualValues(t, 20, s.Read.Samples)
	}
}

// TestLease_SurvivesTopology: a reload keeps what is in flight; a choice on a
// worker that has left, or has been replaced, closes in peace.
func TestLease_SurvivesTopology(t *testing.T) {
	g := newRig(t, 4)
	var open []Choice
	for range 30 {
		for i := range 4 {
			open = append(open, g.start(fmt.Sprint("w", i)))
		}
	}
	for range 50 {
		require.NoError(t, g.SetTopology(Topology{Workers: rigWorkers(4)}))
	}
	require.Equal(t, 30, g.inFlight("w2"), "no-op reloads")

	ws := rigWorkers(3) // w3 leaves
	ws[0].Weight = 3    // w0 changes
	ws[1].Incarnation++ // w1 is another process
	ws = append(ws, Worker{ID: "new"})
	require.NoError(t, g.SetTopology(Topology{Workers: ws}))
	require.Equal(t, []int{30, 0, 30, 0}, []int{g.inFlight("w0"), g.inFlight("w1"), g.inFlight("w2"), g.inFlight("new")})
	for i, c := range open {
		if i%3 == 0 {
			c.Done(errRefused)
		} else {
			c.Done(nil)
		}
	}
	g.requireIdle()
	require.Zero(t, g.Status().DoubleDone)
	require.NotEqual(t, Cooldown, g.phase("w1"), "failures of the process before")
	require.Zero(t, g.Status().Workers[1].Read.Failures)
}

// TestLease_Anonymous: StartWorker's reservations are closed oldest first by
// ObserveWorker, expire like others, and never are Pick's.
func TestLease_Anonymous(t *testing.T) {
	g := newRig(t, 3)
	own := g.start("w0")
	for range 3 {
		g.StartWorker("w0")
	}
	require.Equal(t, 4, g.inFlight("w0"))
	for want := 3; want >= 1; want-- {
		g.ObserveWorker("w0", 2*time.Millisecond, nil)
		require.Equal(t, want, g.inFlight("w0"))
	}
	for range 5 {
		g.ObserveWorker("w0", 2*time.Millisecond, nil)
		require.Equal(t, 1, g.inFlight("w0"), "Pick's own is not touched")
	}
	own.Done(nil)
	g.requireIdle()
	require.EqualValues(t, 9, g.Status().Workers[0].Read.RTT.Count)

	// Expiry of one to two time-outs; the one that is observed in time is not
	// among them.
	for range 4 {
		g.StartWorker("w1")
		g.pass(250 * time.Millisecond)
	}
	g.ObserveWorker("w1", time.Second, nil)
	require.Equal(t, 3, g.inFlight("w1"))
	age := time.Duration(0)
	for ; g.inFlight("w1") > 0; age += 50 * time.Millisecond {
		require.LessOrEqual(t, age, 2100*time.Millisecond)
		g.jump(50 * time.Millisecond)
		g.Maintain(g.clock())
	}
	require.GreaterOrEqual(t, age, 750*time.Millisecond, "the last was started 250 ms before")
	require.EqualValues(t, 3, g.Status().Leaked)
	g.ObserveWorker("w1", time.Millisecond, nil)
	require.Zero(t, g.inFlight("w1"), "never under zero")

	g.StartWorker("nobody")
	g.ObserveWorker("nobody", time.Millisecond, errDisk)
	require.EqualValues(t, 2, g.Status().UnknownIDs)
	for range 3 {
		g.ObserveWorker("w2", 0, errRefused)
	}
	require.Equal(t, Cooldown, g.phase("w2"), "its verdicts count")
}

// TestLease_AnonymousConcurrently: many observers of a few reservations.
func TestLease_AnonymousConcurrently(t *testing.T) {
	g := newRig(t, 3)
	concurrently(8, func(i int) {
		for range 2000 {
			if i < 4 {
				g.StartWorker("w0")
			} else {
				g.ObserveWorker("w0", time.Millisecond, nil)
			}
			if n := g.inFlight("w0"); n > 1<<23 {
				t.Errorf("in flight is %d, under zero", n-1<<24)
				return
			}
		}
	})
	for range 8000 {
		g.ObserveWorker("w0", time.Millisecond, nil)
	}
	require.Zero(t, g.inFlight("w0"))
}

// TestLease_NoAllocation: all that is called once a request.
func TestLease_NoAllocation(t *testing.T) {
	g := newRig(t, 3)
	g.fails("w1", 1) // observed, so that picks go the long way as well
	var hot []Choice
	for range 64 {
		hot = append(hot, g.start("w0")) // beyond the first slots
	}
	for name, f := range map[string]func(){
		"Done":            func() { c, _ := g.Pick("key"); c.Done(nil) },
		"Done with error": func() { c, _ := g.Pick("key"); c.Done(errDisk) },
		"Observe":         func() { c, _ := g.Pick("key"); g.Observe(c, time.Millisecond, nil) },
		"Observe error":   func() { c, _ := g.Pick("key"); g.Observe(c, time.Millisecond, errRefused) },
		"Cancel":          func() { c, _ := g.Pick("key"); c.Cancel() },
		"feedback": func() {
			c, _ := g.Pick("key")
			c.DoneWith(Outcome{Feedback: Feedback{1, time.Millisecond}})
		},
		"FirstByte":  func() { c, _ := g.Pick("key"); c.FirstByte(); c.Done(nil) },
		"Extend":     func() { c, _ := g.Pick("key"); c.Extend(); c.Done(nil) },
		"superseded": func() { c, _ := g.Pick("key"); c.DoneWith(Outcome{Verdict: Superseded}) },
		"Start":      func() { c, _ := g.Start(Request{Size: 3}, "w0"); c.Done(nil) },
		"twice":      func() { c, _ := g.Pick("key"); c.Done(nil); c.Done(nil) },
		"anonymous":  func() { g.StartWorker("w2"); g.ObserveWorker("w2", time.Millisecond, nil) },
		"short deadline": func() {
			c, _ := g.Pick("key")
			c.DoneWith(Outcome{Err: context.DeadlineExceeded, RTT: time.Millisecond})
		},
	} {
		require.Zero(t, testing.AllocsPerRun(200, f), name)
	}
	for _, c := range hot {
		c.Done(nil)
	}
}

// TestCase_079_LostPicks: one pick in a hundred is never observed. Leases
// expire, so the count comes back; the naive counter keeps phantoms for ever.
func TestCase_079_LostPicks(t *testing.T) {
	g := newRig(t, 5)
	naive := map[string]int{}
	rnd := seeded(t, 79)
	for i := range 20_000 {
		c, err := g.Pick(fmt.Sprint("key", rnd.IntN(1000)))
		require.NoError(t, err)
		naive[c.ID()]++
		if i%100 != 0 {
			g.Observe(c, time.Millisecond, nil)
			naive[c.ID()]--
		}
		if i%10 == 0 {
			g.jump(time.Millisecond)
		}
		if i%1000 == 0 {
			g.Maintain(g.clock())
		}
	}
	g.pass(2100 * time.Millisecond)
	phantoms := func(inFlight func(id string) int) (n int) {
		for _, w := range rigWorkers(5) {
			n += inFlight(w.ID)
		}
		return n
	}
	require.Zero(t, phantoms(g.inFlight), "in flight two time-outs after the last")
	require.Equal(t, 200, phantoms(func(id string) int { return naive[id] }), "the naive counter must keep them")
	s := g.Status()
	require.EqualValues(t, 200, s.Leaked)
	require.Contains(t, fmt.Sprint(s.Warnings), "never closed", "one in a hundred is over the alarm of 0.05 %%")
}

// TestCase_080_HealthTouchesNothing: phases, reports, states, tuning and
// topology leave what is in flight alone. The naive checker zeroes it.
func TestCase_080_HealthTouchesNothing(t *testing.T) {
	g := newRig(t, 3, rigTuning(nil))
	var open []Choice
	for range 25 {
		c, err := g.Start(Request{Stream: true}, "w0")
		require.NoError(t, err)
		open = append(open, c)
	}
	kept := func(inFlight func() int, touch []func()) bool {
		for _, f := range touch {
			f()
			if inFlight() != 25 {
				return false
			}
		}
		return true
	}
	at := 0
	report := func(rep Report) func() {
		return func() {
			at++
			rep.Worker, rep.Time = "w0", g.clock().Add(time.Duration(at)*time.Millisecond)
			require.NoError(t, g.Report(rep))
		}
	}
	require.True(t, kept(func() int { return g.inFlight("w0") }, []func(){
		func() { g.fails("w0", 3) },
		report(Report{HealthFailed: Some(true)}),
		report(Report{Queue: Some(0.0), Recovering: Some(true), ReadOnly: Some(true)}),
		func() { g.SetState("w0", Down) },
		func() { g.pass(2 * time.Second) },
		func() { g.SetState("w0", Up) },
		func() { g.SetState("w0", Draining) },
		func() { tn := g.Tuning(); tn.LoadWeight = 3; require.NoError(t, g.Retune(tn)) },
		func() { require.NoError(t, g.SetTopology(Topology{Workers: rigWorkers(5)})) },
		func() { g.pass(time.Minute) },
		func() { g.answers("w0", 10) },
	}))
	for _, c := range open {
		c.Done(nil)
	}
	require.Zero(t, g.inFlight("w0"), "and it comes down to zero, not below")

	naive := 25
	require.False(t, kept(func() int { return naive }, []func(){func() { naive = 0 }}), "the naive health check must zero it")
}

// TestCase_083_HeldUntilDone: in flight falls on the handle's Done, not with
// the headers as in the naive one.
func TestCase_083_HeldUntilDone(t *testing.T) {
	held := func(inFlight func() int, firstByte, done func()) bool {
		firstByte()
		before := inFlight()
		done()
		return before == 1 && inFlight() == 0
	}
	g := newRig(t, 3)
	c := g.start("w0")
	g.jump(3 * time.Millisecond)
	require.True(t, held(func() int { return g.inFlight("w0") }, c.FirstByte, func() { c.Done(nil) }))

	naive := 1
	require.False(t, held(func() int { return naive }, func() { naive-- }, func() {}), "the naive release must fail")
}

// TestChoice_FirstByte: it trains latency and ends silence, once; the end
// trains no more.
func TestChoice_FirstByte(t *testing.T) {
	g := newRig(t, 3)
	for range 50 {
		g.answers("w0", 1)
		g.jump(10 * time.Millisecond)
	}
	g.pass(100 * time.Millisecond)
	c := g.start("w0")
	g.jump(4 * time.Millisecond)
	before := g.latency("w0", laneRead)
	c.FirstByte()
	trained := g.node("w0").st.lane[laneRead].lat.Load()
	require.Greater(t, unpackLat(trained), float64(before), "an answer of 4 ms where 1 ms was known")
	c.FirstByte()
	require.Equal(t, trained, g.node("w0").st.lane[laneRead].lat.Load(), "a second first byte")
	count := g.Status().Workers[0].Read.RTT.Count
	require.EqualValues(t, 51, count)
	require.EqualValues(t, 1, g.inFlight("w0"))

	c.Extend()
	g.pass(5 * time.Second) // the rest of the stream
	c.Done(nil)
	require.Equal(t, count, g.Status().Workers[0].Read.RTT.Count, "its end is no second answer")
	require.Less(t, g.latency("w0", laneRead), 2*time.Millisecond, "and five seconds of stream are not its latency")
	require.Zero(t, g.inFlight("w0"))
	c.FirstByte()
	require.Equal(t, count, g.Status().Workers[0].Read.RTT.Count, "after the end")

	// A stream that breaks after its first byte fails all the same.
	for range 3 {
		c = g.start("w1")
		c.FirstByte()
		c.Done(errDisk)
	}
	require.Equal(t, Cooldown, g.phase("w1"))
}

// TestChoice_FirstByteEndsSilence: a worker that has begun to answer is not
// silent.
func TestChoice_FirstByteEndsSilence(t *testing.T) {
	g := newRig(t, 3)
	g.answers("w0", 20)
	a, b := g.start("w0"), g.start("w0")
	g.jump(300 * time.Millisecond)
	busy := func() float64 {
		sn, n := g.snap.Load(), g.node("w0")
		return sn.coef.latency(&n.st.lane[laneRead], float64(sn.cols[n.slot].base[laneRead]), n.st.busy.Load(), 2, g.Router.now())
	}
	require.InDelta(t, 300e6, busy(), 2e6, "silent for 300 ms")
	a.FirstByte()
	require.Less(t, busy(), 150e6)
	a.Cancel()
	b.Cancel()
}

// TestLease_Concurrent hammers one worker's slots from many goroutines; what
// is left at the end is what was never closed.
func TestLease_Concurrent(t *testing.T) {
	g := newRig(t, 1)
	var kept, over atomic.Int64
	concurrently(8, func(i int) {
		rnd := rand.New(rand.NewPCG(uint64(i), 0))
		var open []Choice
		for range 5000 {
			if len(open) < 100 && rnd.IntN(2) == 0 {
				open = append(open, g.start("w0"))
			} else if len(open) > 0 {
				k := rnd.IntN(len(open))
				open[k].Done(nil)
				open[k].Cancel()
				open[k] = open[len(open)-1]
				open = open[:len(open)-1]
			}
			if n := g.inFlight("w0"); n > 1<<23 { // one under zero
				over.Add(1)
			}
			if rnd.IntN(64) == 0 {
				runtime.Gosched()
			}
		}
		kept.Add(int64(len(open)))
	})
	require.Zero(t, over.Load(), "readings under zero")
	require.EqualValues(t, kept.Load(), g.inFlight("w0"))
	g.pass(2100 * time.Millisecond)
	require.Zero(t, g.inFlight("w0"))
	require.EqualValues(t, kept.Load(), g.Status().Leaked)
}
