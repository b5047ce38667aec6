package ringwise

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reportFields has one value in range, and some out of it, for each field of
// a Report but Worker and Time. TestReport_EachFieldIsReadBack holds it
// complete.
var reportFields = map[string]struct {
	set func(r *Report, v any)
	ok  any
	bad []any
}{
	"CPU":     {func(r *Report, v any) { r.CPU = Some(v.(float64)) }, 0.25, badShares},
	"IOWait":  {func(r *Report, v any) { r.IOWait = Some(v.(float64)) }, 0.5, badShares},
	"Memory":  {func(r *Report, v any) { r.Memory = Some(v.(float64)) }, 1.0, badShares},
	"Errors":  {func(r *Report, v any) { r.Errors = Some(v.(float64)) }, 0.125, badShares},
	"Rejects": {func(r *Report, v any) { r.Rejects = Some(v.(float64)) }, 0.0, badShares},
	"Queue": {func(r *Report, v any) { r.Queue = Some(v.(float64)) }, 1e9,
		[]any{math.NaN(), math.Inf(1), math.Inf(-1), -1.0, 1.1e9}},
	"RTTAvg":  {func(r *Report, v any) { r.RTTAvg = Some(v.(time.Duration)) }, time.Millisecond, badTimes},
	"RTTP99":  {func(r *Report, v any) { r.RTTP99 = Some(v.(time.Duration)) }, time.Hour, badTimes},
	"Version": {func(r *Report, v any) { r.Version = Some(v.(uint64)) }, uint64(math.MaxUint64), nil},

	"GCPause":     {func(r *Report, v any) { r.GCPause = Some(v.(float64)) }, 0.01, badShares},
	"Timeouts":    {func(r *Report, v any) { r.Timeouts = Some(v.(float64)) }, 0.02, badShares},
	"Rate1m":      {func(r *Report, v any) { r.Rate1m = Some(v.(float64)) }, 100.0, badCounts},
	"Rate5m":      {func(r *Report, v any) { r.Rate5m = Some(v.(float64)) }, 1e9, badCounts},
	"NetIn":       {func(r *Report, v any) { r.NetIn = Some(v.(float64)) }, 1e15, badCounts},
	"NetOut":      {func(r *Report, v any) { r.NetOut = Some(v.(float64)) }, 1.5, badCounts},
	"StorageFree": {func(r *Report, v any) { r.StorageFree = Some(v.(uint64)) }, uint64(1 << 40), nil},
	"VersionLag":  {func(r *Report, v any) { r.VersionLag = Some(v.(uint64)) }, uint64(3), nil},
	"Shards":      {func(r *Report, v any) { r.Shards = Some(v.(ShardSet)) }, ShardSet{1, 2}, nil},

	"Compacting":   {func(r *Report, v any) { r.Compacting = Some(v.(bool)) }, true, nil},
	"Repairing":    {func(r *Report, v any) { r.Repairing = Some(v.(bool)) }, true, nil},
	"Recovering":   {func(r *Report, v any) { r.Recovering = Some(v.(bool)) }, true, nil},
	"ReadOnly":     {func(r *Report, v any) { r.ReadOnly = Some(v.(bool)) }, true, nil},
	"HealthFailed": {func(r *Report, v any) { r.HealthFailed = Some(v.(bool)) }, true, nil},
}

var (
	badShares = []any{math.NaN(), math.Inf(1), math.Inf(-1), -1.0, -1e-9, math.Nextafter(1, 2), 1e308}
	badCounts = []any{math.NaN(), math.Inf(1), math.Inf(-1), -1.0, 1.1e15}
	badTimes  = []any{time.Duration(-1), time.Duration(math.MinInt64), time.Hour + 1, time.Duration(math.MaxInt64)}
)

// Case 70: each field of a report arrives where plugs read it.
func TestCase_070_EachReportFieldIsReadBack(t *testing.T) {
	read := map[string]any{}
	l := newLab(t, labNamed("a"), WithFilter(labFilter(func(v *View, _ *Mask) {
		rep, fresh := v.Report(0)
		if rep == nil {
			return
		}
		assert.True(t, fresh)
		for name := range reportFields {
			out := reflect.ValueOf(rep).Elem().FieldByName(name).MethodByName("Get").Call(nil)
			if out[1].Bool() {
				read[name] = out[0].Interface()
			}
		}
	})))
	for name, f := range reportFields {
		clear(read)
		l.clock.advance(time.Second)
		rep := Report{Worker: "a"}
		f.set(&rep, f.ok)
		l.report(t, rep)
		l.Explain(Request{Key: "k", Intent: Pinned})
		assert.Equal(t, map[string]any{name: f.ok}, read, "%s, and nothing else", name)
	}
	typ := reflect.TypeFor[Report]()
	others := []string{"Worker", "Time", "ShardHeat", "HitRates", "Fingerprints"} // the lists have a test of their own
	for i := range typ.NumField() {
		if name := typ.Field(i).Name; !slices.Contains(others, name) {
			assert.Contains(t, reportFields, name, "a field that no test reads back")
		}
	}
	assert.Equal(t, typ.NumField()-len(others), len(reportFields))
}

// The lists of a report are the Router's own copy, and bad ones are refused.
func TestReport_Lists(t *testing.T) {
	var got Report
	l := newLab(t, labNamed("a"), WithFilter(labFilter(func(v *View, _ *Mask) {
		if rep, _ := v.Report(0); rep != nil {
			got = *rep
		}
	})))
	rep := Report{Worker: "a", ShardHeat: []ShardHeat{{511, 2}, {0, 1e9}}, HitRates: []HitRate{{1, 0.5}, {2, 1}}, Fingerprints: []Fingerprint{{7, 3}}}
	l.report(t, rep)
	rep.ShardHeat[0].Heat, rep.HitRates[0].Rate, rep.Fingerprints[0].Count = 9, 9, 9
	l.Explain(Request{Key: "k", Intent: Pinned})
	assert.Equal(t, []ShardHeat{{0, 1e9}, {511, 2}}, got.ShardHeat)
	assert.Equal(t, []HitRate{{1, 0.5}, {2, 1}}, got.HitRates)
	assert.Equal(t, []Fingerprint{{7, 3}}, got.Fingerprints)
	for field, bad := range map[string]Report{
		"ShardHeat":            {ShardHeat: make([]ShardHeat, 513)},
		"ShardHeat[0].Slot":    {ShardHeat: []ShardHeat{{512, 1}}},
		"ShardHeat[1].Slot":    {ShardHeat: []ShardHeat{{3, 1}, {3, 1}}},
		"ShardHeat[0].Heat":    {ShardHeat: []ShardHeat{{3, -1}}},
		"HitRates":             {HitRates: make([]HitRate, 1025)},
		"HitRates[0].Rate":     {HitRates: []HitRate{{1, math.NaN()}}},
		"HitRates[1].Kind":     {HitRates: []HitRate{{1, 0}, {1, 0}}},
		"Fingerprints":         {Fingerprints: make([]Fingerprint, 1025)},
		"Fingerprints[1].Kind": {Fingerprints: []Fingerprint{{1, 0}, {1, 0}}},
	} {
		bad.Worker, bad.Time = "a", l.clock.peek().Add(time.Second)
		err := l.Report(bad)
		e, ok := errors.AsType[*ReportError](err)
		require.True(t, ok, field)
		assert.Equal(t, field, e.Field)
	}
	l.Explain(Request{Key: "k", Intent: Pinned})
	assert.Len(t, got.ShardHeat, 2, "the one before stays")
}

func TestShardSet(t *testing.T) {
	var s ShardSet
	s.Add(0, 63, 64, 511, 512+5)
	for i := range Shards {
		assert.Equal(t, slices.Contains([]int{0, 63, 64, 511, 5}, i), s.Has(i), i)
	}
}

// I7: a bad report is refused whole, counted by its reason, and the one
// before stays.
func TestReport_BadOnesAreRefusedWhole(t *testing.T) {
	l := newLab(t, labNamed("a", "b"))
	good := Report{Worker: "a", CPU: Some(0.5), Version: Some[uint64](7)}
	l.report(t, good)
	sn := l.snap.Load()
	refuse := func(rep Report, field string, reason ReportReason, why any) {
		t.Helper()
		before := l.counters.reports[reason].Load()
		err := l.Report(rep)
		bad, ok := errors.AsType[*ReportError](err)
		require.True(t, ok, "%v: %v", why, err)
		require.ErrorIs(t, err, ErrReport)
		assert.Equal(t, field, bad.Field, "%v", why)
		assert.Equal(t, reason, bad.Reason, "%v", why)
		assert.Equal(t, rep.Worker, bad.Worker)
		assert.Contains(t, err.Error(), reason.String())
		assert.Equal(t, before+1, l.counters.reports[reason].Load(), "%v: counted", why)
		assert.Equal(t, before+1, l.Status().Reports[reason.String()])
		assert.Same(t, sn, l.snap.Load(), "%v: nothing changes", why)
	}
	at := func(d time.Duration) time.Time { return l.clock.peek().Add(d) }
	for name, f := range reportFields {
		for _, v := range f.bad {
			rep := Report{Worker: "a", Time: at(time.Second), Version: Some[uint64](9), Recovering: Some(true)}
			f.set(&rep, v)
			reason := ReportOutOfRange
			if x, ok := v.(float64); ok && (math.IsNaN(x) || math.IsInf(x, 0)) {
				reason = ReportNotFinite
			}
			refuse(rep, name, reason, fmt.Sprint(name, " ", v))
		}
	}
	refuse(Report{Worker: "z", Time: at(0)}, "", ReportUnknownWorker, "unknown")
	refuse(Report{Time: at(0)}, "", ReportUnknownWorker, "no name")
	refuse(Report{Worker: "a"}, "Time", ReportOutOfRange, "no time")
	refuse(Report{Worker: "a", Time: at(30*time.Second + 1)}, "Time", ReportFuture, "future")
	refuse(Report{Worker: "a", Time: time.Unix(1<<40, 0)}, "Time", ReportFuture, "far future")
	refuse(Report{Worker: "a", Time: at(-time.Second)}, "Time", ReportBackwards, "back")
	refuse(Report{Worker: "a", Time: time.Unix(-1<<40, 0)}, "Time", ReportBackwards, "far back")

	require.NoError(t, l.Report(Report{Worker: "a", Time: at(0), CPU: Some(0.9)}), "a duplicate is no error")
	assert.Same(t, sn, l.snap.Load(), "and changes nothing")
	st := l.Status()
	assert.EqualValues(t, 1, st.Reports["duplicate"])
	assert.EqualValues(t, 1, st.Reports["ok"])
	assert.EqualValues(t, 7, st.Workers[0].Version)
	assert.Zero(t, st.ClockRebased)
	for range 3 {
		require.Error(t, l.Report(Report{Worker: "a", Time: at(-time.Hour)})) // two of them after the far one above
		if l.Status().Reports["time went back"] == 4 {
			break
		}
	}
	require.NoError(t, l.Report(Report{Worker: "a", Time: at(-time.Hour + 1), Version: Some[uint64](8)}), "the new time base")
	assert.EqualValues(t, 1, l.Status().ClockRebased)
	assert.EqualValues(t, 8, l.Status().Workers[0].Version)
}

// S9, I20: the caller's wall clock steps back and leaps; what is fresh stays
// so for as long, who is out by probes stays out, and nothing is not a number.
func TestReport_WallClockSteps(t *testing.T) {
	l := newLab(t, labNamed("a", "b"))
	rep := func(cpu float64) { l.report(t, Report{Worker: "a", CPU: Some(cpu), Shards: Some(ShardSet{})}) }
	rep(0.5)
	l.clock.advance(time.Second)
	rep(0.25)
	l.probesFail("b", 3)
	state := func() (s string) {
		l.Maintain(l.clock.peek())
		l.look(Request{Key: "k"}, func(v *View, i int) {
			x, fresh := v.Metric(i, MetricCPU)
			_, known := v.HoldsShard(i)
			s = fmt.Sprintf("%.4f %v %v %v", x, fresh, known, l.pen("b", Read).shown())
		})
		return s
	}
	want := state()
	require.Equal(t, "0.3718 true true probe-out", want)
	for _, d := range []time.Duration{-time.Hour, time.Hour, -24 * time.Hour, 25 * time.Hour, -time.Hour} {
		l.clock.advance(d)
		require.Equal(t, want, state(), "after a step of %v", d)
	}
	for range 4 {
		l.clock.advance(time.Second)
		require.Equal(t, want, state())
	}
	l.clock.advance(2 * time.Second)
	require.Equal(t, "0.3718 false true probe-out", state(), "time that does pass counts")
	l.pass(30 * time.Second)
	require.Equal(t, "0.3718 false false probation", state())
}

// I16: worker IDs come and go, known or not, and leave nothing behind.
func TestCase_134_WorkerIDsLeaveNothing(t *testing.T) {
	l := newLab(t, nil, WithPoints(1), WithHooks(Hooks{Refresh: func(Refresh) {}, Probe: func(string) {}}))
	round := func(i int) {
		ws := labWorkers(fmt.Sprint("w", i, "-"), 100)
		require.NoError(t, l.SetTopology(Topology{Workers: ws}))
		for _, w := range ws {
			l.report(t, Report{Worker: w.ID, CPU: Some(0.5), Queue: Some(1.0), HitRates: []HitRate{{1, 0.5}}})
			l.ProbeResult(w.ID, 0, errRefused)
		}
		for j := range 1000 {
			id := fmt.Sprint("nobody", i, "-", j)
			require.Error(t, l.Report(Report{Worker: id, Time: l.clock.peek()}))
			l.ProbeResult(id, 0, errRefused)
		}
		l.pass(7 * time.Second) // stale, each asks for a refresh
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for i := range 50 {
		round(i)
	}
	before := heap()
	for i := range 100 {
		round(50 + i)
	}
	after := heap()
	assert.Less(t, int64(after)-int64(before), int64(1<<20), "after 10,000 further IDs of workers, and 100,000 of nobody")
	sn := l.snap.Load()
	assert.Len(t, sn.live, 100)
	assert.LessOrEqual(t, len(sn.reports), 200, "slots are used again")
	assert.LessOrEqual(t, len(l.asked), maxAsked)
	assert.Len(t, l.Status().Workers, 100)
	ids := map[string]bool{}
	for _, w := range l.Status().Workers {
		ids[w.ID] = true
		assert.True(t, strings.HasPrefix(w.ID, "w149-"), "%s: labels are the live IDs", w.ID)
	}
	assert.Len(t, ids, 100)

	// The fault: a series for each ID ever seen.
	series := map[string]float64{}
	for i := range 150 {
		for _, w := range labWorkers(fmt.Sprint("w", i, "-"), 100) {
			series[w.ID] = 0.5
		}
	}
	assert.NotEqual(t, len(ids), len(series))
}

// The clock of the machine was wrong when the process began, or it slept: what
// is refused as too far ahead is measured against the clock as it is now.
func TestReport_ClockSetAfterNew(t *testing.T) {
	l := newLab(t, labNamed("a", "b"))
	l.trip(t, "a", Read)
	l.clock.advance(3 * time.Hour) // NTP sets it
	l.report(t, Report{Worker: "b", CPU: Some(0.5)})
	assert.Equal(t, Cooldown, l.pen("a", Read).phase())
	l.Maintain(l.clock.peek())
	assert.False(t, l.Status().Workers[1].Stale)
	require.Error(t, l.Report(Report{Worker: "b", Time: l.clock.peek().Add(31 * time.Second)}), "the limit stays")
	l.clock.advance(-5 * time.Hour) // set back: S9, nothing changes
	require.NoError(t, l.Report(Report{Worker: "a", Time: labEpoch.Add(time.Second)}))
}

// S8: max(5 s, three intervals), then stale; a fresh report ends it.
func TestReport_TrustWindow(t *testing.T) {
	for _, c := range []struct {
		every time.Duration // 0: one report only
		trust time.Duration
	}{
		{0, 5 * time.Second}, {100 * time.Millisecond, 5 * time.Second}, {time.Second, 5 * time.Second},
		{2 * time.Second, 6 * time.Second}, {10 * time.Second, 30 * time.Second},
	} {
		t.Run(c.every.String(), func(t *testing.T) {
			l := newLab(t, labNamed("a", "b", "never"))
			l.report(t, Report{Worker: "a", CPU: Some(0.5), ReadOnly: Some(true)})
			for range 40 {
				if c.every > 0 {
					l.clock.advance(c.every)
					l.report(t, Report{Worker: "a", CPU: Some(0.5), ReadOnly: Some(true)})
				}
			}
			stale := func() bool {
				l.Maintain(l.clock.peek())
				st := l.Status()
				require.False(t, st.Workers[2].Stale, "who never reported is not stale")
				d := l.Explain(Request{Key: "k", Intent: Read})
				for _, x := range d.Candidates {
					require.Equal(t, x.ID == "a" && st.Workers[0].Stale, x.Stale)
				}
				return st.Workers[0].Stale
			}
			l.clock.advance(c.trust - time.Millisecond)
			assert.False(t, stale(), "at %v", c.trust-time.Millisecond)
			l.clock.advance(2 * time.Millisecond)
			assert.True(t, stale(), "at %v", c.trust+time.Millisecond)
			assert.NotContains(t, candidatesIn(l.Explain(Request{Key: "k", Intent: Write})), "a", "F1: not while others are fresh")
			cc, err := l.Route(Request{Among: l.refs(t, "a"), Intent: Write})
			require.NoError(t, err, "a flag so old is not believed, and data so old never fails a pick")
			assert.Equal(t, RelaxedStale, cc.Relaxed())

			l.report(t, Report{Worker: "a", CPU: Some(0.5), ReadOnly: Some(true)})
			_, err = l.Route(Request{Among: l.refs(t, "a"), Intent: Write})
			require.ErrorIs(t, err, ErrNoWorker, "its flag acts at once again")
			cc, err = l.Route(Request{Among: l.refs(t, "a"), Intent: Read})
			require.NoError(t, err)
			assert.Zero(t, cc.Relaxed(), "and it is fresh at once")
			assert.False(t, stale())
		})
	}
}

// F1 and F2 by what is reported, at once, without a fold in between.
func TestReport_FlagsActAtOnce(t *testing.T) {
	l := newLab(t, labNamed("a", "b"))
	all := l.refs(t, "a", "b")
	in := func(intent Intent, version uint64) []string {
		return candidatesIn(l.Explain(Request{Among: all, Intent: intent, MinVersion: version}))
	}
	report := func(rep Report) {
		rep.Worker = "a"
		l.clock.advance(time.Millisecond)
		l.report(t, rep)
	}
	report(Report{ReadOnly: Some(true)})
	assert.Equal(t, []string{"b"}, in(Write, 0))
	assert.Equal(t, []string{"a", "b"}, in(Read, 0))
	report(Report{Recovering: Some(true)})
	assert.Equal(t, []string{"a"}, in(Pinned, 0), "pinned: the first")
	assert.Equal(t, []string{"b"}, in(Read, 0))
	assert.Equal(t, []string{"b"}, in(Write, 0))
	report(Report{})
	assert.Equal(t, []string{"a", "b"}, in(Write, 0))
	report(Report{Version: Some[uint64](5)})
	assert.Equal(t, []string{"a"}, in(Read, 5))
	assert.Equal(t, []string{"a"}, in(StrongRead, 5))
	assert.Empty(t, in(StrongRead, 6))
	assert.Equal(t, []string{"a", "b"}, in(Read, 6), "a weak read takes what there is")
}

// Health flags multiply the cost, from the report on and only while it is
// fresh.
func TestReport_HealthFlagsMultiplyCost(t *testing.T) {
	l := newLab(t, labNamed("a", "b"))
	cost := func() float64 {
		c := map[string]float64{}
		for _, x := range l.Explain(Request{Key: "k", Intent: Read}).Candidates {
			c[x.ID] = x.Cost
		}
		return c["a"] / c["b"]
	}
	for _, c := range []struct {
		rep  Report
		want float64
	}{
		{Report{}, 1}, {Report{Compacting: Some(true)}, 1 / 0.7}, {Report{Repairing: Some(true)}, 2},
		{Report{Compacting: Some(true), Repairing: Some(true)}, 2 / 0.7}, {Report{Compacting: Some(false)}, 1},
	} {
		l.clock.advance(time.Second)
		c.rep.Worker = "a"
		l.report(t, c.rep)
		assert.InEpsilon(t, c.want, cost(), 1e-6)
	}
	l.report(t, Report{Worker: "b", Repairing: Some(true)})
	assert.InEpsilon(t, 0.5, cost(), 1e-6)
	l.pass(6 * time.Second)
	assert.InEpsilon(t, 1.0, cost(), 1e-6, "no longer believed")
}

// A health check of its own that fails is a failure: three make a cooldown, a
// success in between makes none, and a good report proves nothing.
func TestReport_FailedHealthGoesThroughThePenalty(t *testing.T) {
	l := newLab(t, labNamed("a", "b"))
	sick := func() { l.clock.advance(2 * time.Second); l.report(t, Report{Worker: "a", HealthFailed: Some(true)}) }
	sick()
	assert.Equal(t, Observed, l.pen("a", Read).phase())
	assert.Equal(t, Observed, l.pen("a", Write).phase())
	sick()
	c, err := l.Start(Request{Intent: Read}, "a")
	require.NoError(t, err)
	l.Observe(c, time.Millisecond, nil)
	sick()
	assert.Equal(t, Observed, l.pen("a", Read).phase(), "an answer came between")
	assert.Equal(t, Cooldown, l.pen("a", Write).phase(), "and none on the lane of writes")
	l.clock.advance(100 * time.Millisecond)
	l.report(t, Report{Worker: "a", HealthFailed: Some(false)})
	assert.Equal(t, Cooldown, l.pen("a", Write).phase(), "only time ends a cooldown")
	assert.Contains(t, fmt.Sprint(l.Status().Verdicts), "map[]", "no request failed")
}

// What a worker unknown to this client is taken for: the fleet's mean, by the
// square root of its reported p99 against the others'.
func TestReport_PriorFromP99(t *testing.T) {
	l := newLab(t, labNamed("a", "b", "c"))
	latency := func(id string) float64 {
		for _, x := range l.Explain(Request{Key: "k", Intent: Read}).Candidates {
			if x.ID == id {
				return float64(x.Latency) / float64(time.Millisecond)
			}
		}
		return 0
	}
	report := func(p99 ...time.Duration) {
		l.clock.advance(time.Second)
		for i, d := range p99 {
			l.report(t, Report{Worker: string(rune('a' + i)), RTTP99: Some(d)})
		}
		l.Maintain(l.clock.peek())
	}
	ms := time.Millisecond
	report(4*ms, 4*ms, 4*ms)
	assert.InEpsilon(t, 1.0, latency("a"), 1e-6)
	report(16*ms, 4*ms, 1*ms) // geometric mean 4 ms
	tenth := func(x float64) float64 { return math.Pow(x, 0.1) }
	assert.InEpsilon(t, tenth(4), latency("a"), 1e-6)
	assert.InEpsilon(t, 1.0, latency("b"), 1e-6)
	assert.InEpsilon(t, tenth(0.25), latency("c"), 1e-6)
	report(time.Hour, 1, 1)
	assert.InEpsilon(t, tenth(20), latency("a"), 1e-6, "at most 20")
	assert.InEpsilon(t, tenth(0.25), latency("b"), 1e-6, "at least a quarter")
	report(0, 0, 0)
	assert.InEpsilon(t, 1.0, latency("a"), 1e-6, "zero tells nothing")
	report(16*ms, 1*ms)
	l.pass(10 * time.Second)
	assert.InEpsilon(t, 1.0, latency("a"), 1e-6, "nor does one that is stale")
}

// I7: whatever arrives, scores stay finite and in 0..100.
func FuzzReport(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 0))
	for range 8 {
		b := make([]byte, 400)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		f.Add(b)
	}
	special := []float64{0, 0.5, 1, math.NaN(), math.Inf(1), math.Inf(-1), -1, 1e-308, 1e308, 1e9}
	f.Fuzz(func(t *testing.T, data []byte) {
		l := newLab(t, labWorkers("w", 3))
		next := func() (b byte) {
			if len(data) > 0 {
				b, data = data[0], data[1:]
			}
			return b
		}
		float := func() Opt[float64] {
			switch b := int(next()); {
			case b < 128:
				return Opt[float64]{}
			case b < 200:
				return Some(special[b%len(special)])
			default:
				var bits [8]byte
				for i := range bits {
					bits[i] = next()
				}
				return Some(math.Float64frombits(binary.LittleEndian.Uint64(bits[:])))
			}
		}
		span := func() Opt[time.Duration] {
			v, ok := float().Get()
			if !ok {
				return Opt[time.Duration]{}
			}
			return Some(time.Duration(v))
		}
		for len(data) > 0 {
			l.clock.advance(time.Duration(next()) * 50 * time.Millisecond)
			rep := Report{
				Worker: fmt.Sprint("w", next()%4), Time: l.clock.peek().Add(time.Duration(int8(next())) * time.Second),
				CPU: float(), IOWait: float(), Memory: float(), Queue: float(), Errors: float(), Rejects: float(),
				RTTAvg: span(), RTTP99: span(), Version: Some(uint64(next())),
			}
			flags := next()
			for i, b := range []*Opt[bool]{&rep.Compacting, &rep.Repairing, &rep.Recovering, &rep.ReadOnly, &rep.HealthFailed} {
				if flags>>i&1 != 0 {
					*b = Some(true)
				}
			}
			before := l.snap.Load().reports
			if err := l.Report(rep); err != nil {
				require.ErrorIs(t, err, ErrReport)
				require.Equal(t, before, l.snap.Load().reports, "a bad report changed something")
			}
			if next()%2 == 0 {
				l.Maintain(l.clock.peek())
			}
			c, err := l.Route(Request{Key: "k", Intent: Read})
			require.NoError(t, err)
			l.Observe(c, time.Duration(next())*time.Microsecond, nil)
			sum := 0.0
			for _, x := range l.Explain(Request{Key: "k", Intent: Read}).Candidates {
				ok := x.Score >= 0 && x.Score <= 100 && !math.IsInf(x.Cost, 0) && !math.IsNaN(x.Cost) && x.Cost >= 0
				require.True(t, ok, "%+v", x)
				sum += x.Probability
			}
			require.InDelta(t, 1, sum, 1e-9)
			for _, w := range l.Status().Workers {
				require.True(t, w.Read.Score >= 0 && w.Read.Score <= 100 && w.Write.Score >= 0 && w.Write.Score <= 100, "%+v", w)
			}
		}
	})
}

func TestCase_059_ASilentWorkerIsNotTheBest(t *testing.T) {
	// a was the fastest; then nothing is heard of it, while b and c, slower,
	// serve. It must not go on being taken for the fastest.
	check := func(answer func(id string, rtt time.Duration), latency func(id string) time.Duration) error {
		for i := range 400 {
			if i < 100 {
				answer("a", 100*time.Microsecond)
			}
			answer("b", 2*time.Millisecond)
			answer("c", 2*time.Millisecond)
		}
		if a, b := latency("a"), latency("b"); a < b/2 {
			return fmt.Errorf("a, not heard of for 30 s, is taken for %v, b, which serves, for %v", a, b)
		}
		return nil
	}
	l := newLab(t, labNamed("a", "b", "c"))
	require.NoError(t, check(func(id string, rtt time.Duration) {
		c, err := l.Start(Request{Intent: Read}, id)
		require.NoError(t, err)
		l.Observe(c, rtt, nil)
		l.pass(50 * time.Millisecond)
	}, func(id string) time.Duration {
		sn := l.snap.Load()
		return workerStatus(sn, sn.byID[id], l.now()).Read.Latency
	}))
	l.report(t, Report{Worker: "a", CPU: Some(0.0)})
	l.pass(6 * time.Second)
	assert.True(t, l.Status().Workers[0].Stale, "and its report is marked")

	// The fault: statistics are updated where a path records them, and kept.
	ewma := map[string]time.Duration{}
	require.Error(t, check(func(id string, rtt time.Duration) { ewma[id] += (rtt - ewma[id]) / 5 },
		func(id string) time.Duration { return ewma[id] }))
}
