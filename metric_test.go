package ringwise

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// metricFields is the field of Report behind each Metric and a value of it.
var metricFields = [metrics]struct {
	field string
	set   func(r *Report, x float64)
}{
	MetricCPU:        {"CPU", func(r *Report, x float64) { r.CPU = Some(x) }},
	MetricIOWait:     {"IOWait", func(r *Report, x float64) { r.IOWait = Some(x) }},
	MetricMemory:     {"Memory", func(r *Report, x float64) { r.Memory = Some(x) }},
	MetricGCPause:    {"GCPause", func(r *Report, x float64) { r.GCPause = Some(x) }},
	MetricQueue:      {"Queue", func(r *Report, x float64) { r.Queue = Some(x) }},
	MetricRate1m:     {"Rate1m", func(r *Report, x float64) { r.Rate1m = Some(x) }},
	MetricRate5m:     {"Rate5m", func(r *Report, x float64) { r.Rate5m = Some(x) }},
	MetricNetIn:      {"NetIn", func(r *Report, x float64) { r.NetIn = Some(x) }},
	MetricNetOut:     {"NetOut", func(r *Report, x float64) { r.NetOut = Some(x) }},
	MetricRTTAvg:     {"RTTAvg", func(r *Report, x float64) { r.RTTAvg = Some(time.Duration(x)) }},
	MetricRTTP99:     {"RTTP99", func(r *Report, x float64) { r.RTTP99 = Some(time.Duration(x)) }},
	MetricErrors:     {"Errors", func(r *Report, x float64) { r.Errors = Some(x) }},
	MetricRejects:    {"Rejects", func(r *Report, x float64) { r.Rejects = Some(x) }},
	MetricTimeouts:   {"Timeouts", func(r *Report, x float64) { r.Timeouts = Some(x) }},
	MetricVersionLag: {"VersionLag", func(r *Report, x float64) { r.VersionLag = Some(uint64(x)) }},
}

// metricReading is what a plug sees of worker "a".
type metricReading struct {
	mean, smooth float64
	fresh        bool
}

// metricLab is a lab whose filter reads all metrics of "a" in a pick.
func metricLab(t *testing.T) (l *lab, read func() map[Metric]metricReading) {
	var got map[Metric]metricReading
	l = newLab(t, labNamed("a"), WithFilter(labFilter(func(v *View, _ *Mask) {
		for m := range metrics + 3 {
			x, fresh := v.Metric(0, m)
			y, fresh2 := v.SmoothedMetric(0, m)
			assert.Equal(t, fresh, fresh2)
			if x != 0 || fresh {
				got[m] = metricReading{x, y, fresh}
			}
		}
	})))
	return l, func() map[Metric]metricReading {
		got = map[Metric]metricReading{}
		l.Explain(Request{Key: "k", Intent: Pinned})
		return got
	}
}

// S4: each metric has a window of its own, read by its own name, in the unit
// of its field.
func TestMetric_EachHasItsWindow(t *testing.T) {
	l, read := metricLab(t)
	require.Empty(t, read(), "nothing was reported")
	want := map[Metric]metricReading{}
	for m, f := range metricFields {
		l.clock.advance(10 * time.Millisecond)
		rep := Report{Worker: "a"}
		f.set(&rep, 1)
		l.report(t, rep)
		want[Metric(m)] = metricReading{1, 1, true}
		require.Equal(t, want, read(), "%s, and what came before", f.field)
	}
	assert.Len(t, metricNames, int(metrics))
	assert.LessOrEqual(t, int(metrics), maxMetrics)
	assert.Equal(t, "unknown", metrics.String())
}

// S4 and S5: what a scorer reads is the weighted mean of the last 60 reports
// that had the metric, what weights read moves a fifth at most.
func TestMetric_IsTheWindow(t *testing.T) {
	l, read := metricLab(t)
	var w window60
	var e clampedEWMA
	rnd := seeded(t, 4)
	for i := range 200 {
		x := rnd.Float64()
		l.clock.advance(time.Second)
		rep := Report{Worker: "a", Queue: Some(3.0)}
		if i%3 != 0 { // a report without the metric leaves its window
			rep.CPU = Some(x)
			w.push(x)
			e.update(x, 1, defaultEWMARule)
		}
		l.report(t, rep)
		if i == 0 {
			continue
		}
		got := read()[MetricCPU]
		mean, _ := w.mean()
		smooth, _ := e.current()
		require.Equal(t, metricReading{mean, smooth, true}, got, "report %d", i)
	}
}

// S5: from 0 the EWMA moves by a fifth of 5 % of the metric's range, that is by
// a fifth of what docs/reports.md calls its floor.
func TestMetric_SmoothedFloor(t *testing.T) {
	l, read := metricLab(t)
	floors := map[Metric]float64{MetricQueue: 1, MetricRate1m: 1, MetricRate5m: 1, MetricNetIn: 1e3, MetricNetOut: 1e3,
		MetricRTTAvg: 1e6, MetricRTTP99: 1e6, MetricVersionLag: 1}
	for _, at := range []float64{0, 1} { // 0, then far above: a share of 1, a thousand floors
		l.clock.advance(time.Second)
		rep := Report{Worker: "a"}
		for m, f := range metricFields {
			far := 1.0
			if floor, ok := floors[Metric(m)]; ok {
				far = 1000 * floor
			}
			f.set(&rep, at*far)
		}
		l.report(t, rep)
	}
	got := read()
	for m := range metrics {
		want := 0.2 * 0.05
		if floor, ok := floors[m]; ok {
			want = 0.2 * floor
		}
		assert.InEpsilon(t, want, got[m].smooth, 1e-9, "%v", m)
	}
}

// A duplicate and a refused report are no samples.
func TestMetric_RefusedReportsAreNoSamples(t *testing.T) {
	l, read := metricLab(t)
	l.report(t, Report{Worker: "a", CPU: Some(0.25)})
	now := l.clock.peek()
	for _, bad := range []Report{
		{Worker: "a", Time: now, CPU: Some(0.5)},
		{Worker: "a", Time: now.Add(-time.Second), CPU: Some(0.5)},
		{Worker: "a", Time: now.Add(time.Hour), CPU: Some(0.5)},
		{Worker: "a", Time: now.Add(time.Second), CPU: Some(0.5), Queue: Some(-1.0)},
		{Worker: "a", Time: now.Add(time.Second), CPU: Some(math.NaN())},
	} {
		_ = l.Report(bad)
		require.Equal(t, map[Metric]metricReading{MetricCPU: {0.25, 0.25, true}}, read(), "%v", bad)
	}
}

// A metric that is no longer reported goes stale by itself, beside one that is.
func TestMetric_FreshByItsOwnAge(t *testing.T) {
	l, read := metricLab(t)
	l.report(t, Report{Worker: "a", CPU: Some(0.5), Queue: Some(1.0)})
	for i := 1; i <= 8; i++ {
		l.clock.advance(time.Second)
		l.report(t, Report{Worker: "a", Queue: Some(1.0)})
		got := read()
		require.Equal(t, i <= 5, got[MetricCPU].fresh, "after %d s", i)
		require.Equal(t, 0.5, got[MetricCPU].mean, "stale is still told")
		require.True(t, got[MetricQueue].fresh)
	}
	l.clock.advance(5*time.Second + 1)
	require.False(t, read()[MetricQueue].fresh, "without a fold in between")
}

// A new process under the old name has no history; a worker that stays has.
func TestMetric_FollowsTheIncarnation(t *testing.T) {
	l, read := metricLab(t)
	l.report(t, Report{Worker: "a", CPU: Some(0.5)})
	require.NoError(t, l.SetTopology(Topology{Workers: labNamed("a", "b")}))
	require.NotEmpty(t, l.snap.Load().reports[l.snap.Load().byID["a"]])
	require.NoError(t, l.SetTopology(Topology{Workers: []Worker{{ID: "a", Incarnation: 1}}}))
	require.Empty(t, read())
}

// A snapshot's readings are its own: a report that comes while a pick is under
// way does not change what it sees.
func TestMetric_SnapshotIsImmutable(t *testing.T) {
	l := newLab(t, labNamed("a"))
	l.report(t, Report{Worker: "a", CPU: Some(0.25)})
	v := View{sn: l.snap.Load(), n: 1, now: l.now()}
	l.clock.advance(time.Second)
	l.report(t, Report{Worker: "a", CPU: Some(0.75)})
	x, fresh := v.Metric(0, MetricCPU)
	assert.Equal(t, "0.25 true", fmt.Sprint(x, fresh))
	assert.Zero(t, testing.AllocsPerRun(100, func() { v.Metric(0, MetricCPU); v.SmoothedMetric(0, MetricQueue) }))
}
