package ringwise

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Case 136 asks for the latency of the decision itself. It does not apply: a
// second clock read is 40 % of a pick, so no histogram of it is kept (the
// benchmarks measure it), and what a snapshot costs to build is paid by the
// caller of SetTopology, Maintain or Report, who can time that call.
//
// Case 133's counters that saturate: those of Status are 64 bits wide and a
// century of a million a second does not fill them, so they are not guarded;
// the narrow ones are, and have tests (histogram_test.go).

func TestStatus_TellsWhatHappened(t *testing.T) {
	l := newLab(t, []Worker{
		{ID: "a", Addr: "host:1", Zone: "z", Rack: "r", Role: RolePrimary, Weight: 2},
		{ID: "b", Role: RoleReplica}, {ID: "c"}, {ID: "d"},
	}, WithName("cache"), WithFilter(labFilter(func(v *View, m *Mask) {
		if v.Tenant() == "nobody" {
			*m = 0
		}
	})))
	l.clock.advance(time.Millisecond)
	require.NoError(t, l.SetTopology(Topology{Epoch: 3, Version: 9, TTL: time.Minute, Workers: l.snap.Load().topology.Workers}))
	require.NoError(t, l.Retune(labTuned(func(t *Tuning) { t.LoadWeight = 3 })))

	start := func(id string, intent Intent) Choice {
		c, err := l.Start(Request{Intent: intent, Size: 3}, id)
		require.NoError(t, err)
		return c
	}
	open := start("a", Read)
	for range 4 {
		l.Observe(start("a", Read), 5*time.Millisecond, nil)
	}
	start("b", Read).DoneWith(Outcome{Verdict: Fault, RTT: time.Millisecond})
	twice := start("b", Write)
	twice.DoneWith(Outcome{Verdict: Unknown, RTT: time.Millisecond})
	twice.Done(nil)
	start("c", Read).DoneWith(Outcome{Verdict: Overload, RTT: time.Millisecond, RetryAfter: 10 * time.Second})
	l.trip(t, "d", Write)
	l.SetState("c", Draining)
	l.report(t, Report{Worker: "b", Version: Some[uint64](77), ReadOnly: Some(true), Compacting: Some(true), Recovering: Some(true),
		Repairing: Some(true), HealthFailed: Some(true)})
	_ = l.Report(Report{Worker: "z", Time: l.clock.peek()})
	l.SetState("nobody", Up)
	_, err := l.Route(Request{Key: "k", Tenant: "nobody"})
	require.ErrorIs(t, err, ErrNoWorker)
	_, err = l.Route(Request{Among: []Ref{{gen: 9}}})
	require.ErrorIs(t, err, ErrNoWorker)
	l.clock.advance(200 * time.Millisecond)
	l.Maintain(l.clock.peek())
	l.clock.advance(100 * time.Millisecond)

	s := l.Status()
	assert.Equal(t, "cache", s.Name)
	assert.Equal(t, l.clock.peek(), s.Time.Local())
	assert.Equal(t, []uint64{3, 9, 2}, []uint64{s.TopologyEpoch, s.TopologyVersion, s.TuningVersion})
	assert.Equal(t, 300*time.Millisecond, s.TopologyAge)
	assert.Equal(t, 100*time.Millisecond, s.SnapshotAge)
	assert.False(t, s.LowConfidence || s.Closed)
	assert.Equal(t, 2, s.MaxOut)
	assert.EqualValues(t, 3*(1+4+1+1+1)+3, s.Picks, "in units")
	assert.EqualValues(t, 2, s.NoWorker)
	assert.EqualValues(t, 1, s.DoubleDone)
	assert.EqualValues(t, 1, s.StaleRefs)
	assert.EqualValues(t, 1, s.UnknownIDs)
	assert.EqualValues(t, 1, s.Trips)
	assert.Equal(t, map[string]uint64{"fault": 4, "unknown": 1, "overload": 1}, s.Verdicts)
	assert.Equal(t, map[string]uint64{"ok": 1, "unknown worker": 1}, s.Reports)
	assert.GreaterOrEqual(t, s.Read.Samples, 12.0)
	assert.InDelta(t, 5*time.Millisecond, s.Read.Mean, float64(10*time.Microsecond))
	assert.Equal(t, []int{0, 1}, []int{s.Read.Cooldown, s.Write.Cooldown})

	a, b, c, d := s.Workers[0], s.Workers[1], s.Workers[2], s.Workers[3]
	assert.Equal(t, []string{"a", "host:1", "z", "r", "primary", "up"}, []string{a.ID, a.Addr, a.Zone, a.Rack, a.Role, a.State})
	assert.Equal(t, []any{2.0, 3, uint64(15)}, []any{a.Weight, a.InFlight, a.Picks})
	assert.EqualValues(t, 4, a.Read.RTT.Count)
	assert.InEpsilon(t, 5*time.Millisecond, a.Read.RTT.P99, 0.01)
	assert.Equal(t, []string{"compacting", "repairing", "recovering", "read-only", "health check failed"}, b.Flags)
	assert.EqualValues(t, 77, b.Version)
	assert.Equal(t, 300*time.Millisecond, b.ReportAge)
	assert.Positive(t, b.Read.Failures)
	assert.Positive(t, b.Write.Unknown)
	assert.Positive(t, b.Read.ErrorRate)
	assert.Equal(t, "draining", c.State)
	assert.InDelta(t, 9700*time.Millisecond, c.RetryAfter, float64(5*time.Millisecond))
	assert.Equal(t, "cooldown", d.Write.Phase)
	assert.Zero(t, d.Write.Share)
	assert.Greater(t, d.Write.Until, 400*time.Millisecond)
	assert.Equal(t, "healthy", d.Read.Phase, "the lanes apart")
	open.Cancel()

	l.pass(2 * time.Minute)
	s = l.Status()
	assert.True(t, s.LowConfidence)
	assert.True(t, s.Workers[1].Stale)
	assert.True(t, s.Workers[0].Unconfirmed)
}

// Counters never go down, and what a reader does to its copy changes nothing.
func TestStatus_IsACopy(t *testing.T) {
	l := newLab(t, labWorkers("w", 3))
	s := l.Status()
	s.Workers[0].ID = "x"
	s.Verdicts["fault"] = 99
	s.Reports["ok"] = 99
	again := l.Status()
	assert.Equal(t, "w0", again.Workers[0].ID)
	assert.Empty(t, again.Verdicts)
	assert.Empty(t, again.Reports)

	last := reflect.ValueOf(again)
	for i := range 50 {
		switch i % 5 {
		case 0:
			l.trip(t, "w1", Read)
		case 1:
			c, _ := l.Pick("k")
			c.Done(nil)
			c.Done(nil)
		case 2:
			require.NoError(t, l.SetTopology(Topology{Workers: labWorkers("w", 2+i%3)}))
		case 3:
			c, _ := l.Start(Request{}, "w0") // never closed
			_ = c
		case 4:
			l.pass(40 * time.Second)
		}
		now := reflect.ValueOf(l.Status())
		for j := range now.NumField() {
			f := now.Type().Field(j)
			if f.Type.Kind() == reflect.Uint64 && f.Name != "TopologyVersion" {
				require.GreaterOrEqual(t, now.Field(j).Uint(), last.Field(j).Uint(), "%s went down", f.Name)
			}
		}
		last = now
	}
}

func TestStatus_JSON(t *testing.T) {
	l := newLab(t, labWorkers("w", 3), WithName("n"))
	l.trip(t, "w1", Read)
	enc, err := json.Marshal(l.Status())
	require.NoError(t, err)
	var back Status
	require.NoError(t, json.Unmarshal(enc, &back))
	s := l.Status()
	assert.True(t, s.Time.Equal(back.Time))
	s.Time, back.Time = time.Time{}, time.Time{}
	assert.Equal(t, s, back)

	// A duration is a number of nanoseconds, so its name says so.
	var durations func(typ reflect.Type)
	durations = func(typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			switch {
			case f.Type == reflect.TypeFor[time.Duration]():
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				assert.True(t, strings.HasSuffix(name, "_ns"), "%v.%s is %q in JSON", typ, f.Name, name)
			case f.Type.Kind() == reflect.Struct && f.Type.PkgPath() == typ.PkgPath():
				durations(f.Type)
			case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
				durations(f.Type.Elem())
			}
		}
	}
	durations(reflect.TypeFor[Status]())
}

// Its size depends on the number of workers alone.
func TestStatus_IsBounded(t *testing.T) {
	l := newLab(t, labWorkers("w", 4), WithHooks(Hooks{Refresh: func(Refresh) {}}))
	size := func() int {
		enc, err := json.Marshal(l.Status())
		require.NoError(t, err)
		return len(enc)
	}
	for i := range labFewer(20_000) {
		l.ObserveWorker(fmt.Sprint("unknown", i), time.Millisecond, fmt.Errorf("error %d", i))
		_ = l.Report(Report{Worker: fmt.Sprint("unknown", i), Time: l.clock.peek()})
		c, err := l.Route(Request{Key: fmt.Sprint("key", i), Tenant: fmt.Sprint("tenant", i)})
		require.NoError(t, err)
		c.DoneWith(Outcome{Err: fmt.Errorf("error %d", i), RTT: time.Millisecond})
	}
	assert.Less(t, size(), 4*2500+2500)
	assert.Less(t, len(l.Status().Verdicts), int(verdicts))
	for i := range maxAsked + 100 { // what was asked for is remembered within bounds
		l.refresh(Refresh{Reason: RefreshStaleVerdict, Worker: fmt.Sprint("w", i)}, 0)
	}
	l.hookRunner.mu.Lock()
	assert.LessOrEqual(t, len(l.asked), maxAsked)
	l.hookRunner.mu.Unlock()
}

// A scheduler had no histogram of its own decisions' latency. The time to build
// a snapshot is in Status. That of a Pick is not: a pick reads the clock once
// and a second reading would cost a third of it, so callers who want it time
// the call, and bench/ has its distribution.
func TestCase_136_FoldTimeIsShown(t *testing.T) {
	check := func(shown func(took time.Duration) time.Duration) error {
		for _, took := range []time.Duration{time.Millisecond, 7 * time.Millisecond, 2 * time.Millisecond} {
			if got := shown(took); got < took || got > 2*took {
				return fmt.Errorf("a fold that took %v shows as %v", took, got)
			}
		}
		return nil
	}
	var now, step atomic.Int64 // each reading of the clock takes a step
	r, err := New(labWorkers("w", 10), WithClock(func() time.Time { return labEpoch.Add(time.Duration(now.Add(step.Load()))) }))
	require.NoError(t, err)
	require.Zero(t, r.Status().FoldTime, "no fold yet")
	require.NoError(t, check(func(took time.Duration) time.Duration {
		step.Store(int64(took))
		r.Maintain(labEpoch.Add(time.Duration(now.Load())))
		step.Store(0)
		return r.Status().FoldTime
	}))
	require.Error(t, check(func(time.Duration) time.Duration { return 0 }), "the fault: nothing to see")
}

// TestStatus_ScoreLeavesLoadOut: of the worker and of what it is compared with,
// so 70 is usual however busy the client is, in the histogram too, and a score
// can be low enough to trip.
func TestStatus_ScoreLeavesLoadOut(t *testing.T) {
	for _, load := range []int{0, 40} {
		g := newRig(t, 3, rigTuning(func(t *Tuning) { t.TripScore = 62 }))
		for _, w := range rigWorkers(3) {
			g.answers(w.ID, 20)
			for range load {
				g.start(w.ID)
			}
		}
		g.pass(100 * time.Millisecond)
		for _, w := range g.Status().Workers {
			require.InDelta(t, 70, w.Read.Score, 3, "%s with %d in flight", w.ID, load)
		}
		before := g.Status().Scores
		for range 20 {
			for _, w := range rigWorkers(3) {
				g.answers(w.ID, 1)
			}
			g.pass(100 * time.Millisecond)
		}
		now := g.Status().Scores
		require.Greater(t, now[6]+now[7], before[6]+before[7], "%d in flight: %v", load, now)
		require.Zero(t, now[9])
	}
	// Within a request time-out, after which the reservations are gone.
	g := newRig(t, 3, rigTuning(func(t *Tuning) { t.TripScore = 62 }))
	for _, w := range rigWorkers(3) {
		for range 40 {
			g.start(w.ID)
		}
	}
	for range 7 {
		g.jump(99 * time.Millisecond) // who has just answered is not silent
		g.Observe(g.start("w0"), 300*time.Millisecond, nil)
		g.answers("w1", 5)
		g.answers("w2", 5)
		g.pass(time.Millisecond)
	}
	require.Equal(t, 40, g.inFlight("w1"))
	require.Equal(t, Cooldown, g.phase("w0"))
}
