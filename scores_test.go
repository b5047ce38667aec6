package ringwise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringwise/ringwise/keyspec"
)

// withReports is the router's snapshot as if each worker had sent one report.
func (g *rig) withReports(reports map[string]Report) *snapshot {
	sn := *g.snap.Load()
	sn.reports = make([]*reported, len(sn.cols))
	for id, rep := range reports {
		rep.Worker, rep.Time = id, g.clock()
		require.Nil(g.t, rep.check(), "%+v", rep)
		var m meter
		var keys keyStats
		rep = rep.clone()
		rep.sortLists()
		m.measure(&rep, g.Router.now())
		keys.take(&rep, g.Router.now())
		sn.reports[sn.byID[id]] = &reported{Report: rep, readings: m.read, keyStats: keys}
	}
	sn.base = baselinesOf(&sn, g.Router.now())
	return &sn
}

// rate runs a scorer on the candidates of a request, as a pick does, and gives
// what it wrote: NoSignal too.
func (g *rig) rate(s Scorer, sn *snapshot, q Request) map[string]float64 {
	g.t.Helper()
	var v View
	v.begin(sn, &q, g.Router.now())
	v.hash = g.readKey(&v, &q)
	require.NoError(g.t, g.candidates(&v, v.hash, &q))
	sn.weighView(&v)
	v.cutForbidden()
	v.penalise()
	out := make([]float64, v.n)
	for i := range out {
		out[i] = NoSignal
	}
	s.Score(&v, out)
	got := map[string]float64{}
	for i, x := range out {
		got[v.Worker(i).ID] = x
		ls, ok := s.(LineScorer)
		require.True(g.t, ok, "%s explains itself", s.Name())
		sum := 0.0
		for _, l := range ls.Lines(&v, i) {
			sum += l.Points
		}
		if x != NoSignal {
			assert.InDelta(g.t, x, sum, 1e-9, "the lines of %s add up: %v", s.Name(), ls.Lines(&v, i))
		}
	}
	return got
}

var scoreRequest = Request{Key: "acme:order:17", Intent: Read}

func scoreRig(t testing.TB, opts ...Option) *rig {
	return newRig(t, 3, append([]Option{WithKeyParser(keyspec.Default())}, opts...)...)
}

func TestExample_HybridScore(t *testing.T) {
	g := scoreRig(t)
	sn := g.withReports(map[string]Report{
		"w0": {CPU: Some(0.65), RTTP99: Some(10 * time.Millisecond), Errors: Some(0.0), Queue: Some(5.0)},
		"w1": {Compacting: Some(true), CPU: Some(0.30), RTTP99: Some(5 * time.Millisecond)},
		"w2": {CPU: Some(0.88), RTTP99: Some(30 * time.Millisecond), Errors: Some(0.02), Queue: Some(40.0)},
	})
	got := g.rate(Hybrid{Baseline: 8 * time.Millisecond}, sn, scoreRequest)
	assert.InDelta(t, 96.25, got["w0"], 1e-9)
	assert.InDelta(t, 70, got["w1"], 1e-9)
	assert.InDelta(t, 47.8, got["w2"], 1e-9)
}

// Each rule of the hybrid score, with its limit.
func TestHybrid_Rules(t *testing.T) {
	g := scoreRig(t)
	on := Some(true)
	for _, c := range []struct {
		name string
		rep  Report
		want float64
	}{
		{"nothing reported but a time", Report{}, 100},
		{"repair", Report{Repairing: on}, 50},
		{"health check", Report{HealthFailed: on}, 30},
		{"all three", Report{Compacting: on, Repairing: on, HealthFailed: on}, 10.5},
		{"cpu at its mark", Report{CPU: Some(0.70)}, 100},
		{"cpu full", Report{CPU: Some(1.0)}, 88},
		{"p99 at the baseline", Report{RTTP99: Some(8 * time.Millisecond)}, 100},
		{"p99 at twice", Report{RTTP99: Some(16 * time.Millisecond)}, 85},
		{"p99 far over", Report{RTTP99: Some(time.Second)}, 75},
		{"errors", Report{Errors: Some(0.01)}, 95},
		{"errors at most 15, and p99 is not believed", Report{Errors: Some(0.5)}, 60},
		{"queue at its mark", Report{Queue: Some(20.0)}, 100},
		{"queue over it", Report{Queue: Some(21.0)}, 90},
		{"all bad", Report{HealthFailed: on, CPU: Some(1.0), Errors: Some(1.0), Queue: Some(1e9)}, 0},
	} {
		got := g.rate(Hybrid{Baseline: 8 * time.Millisecond}, g.withReports(map[string]Report{"w0": c.rep}), scoreRequest)
		assert.InDelta(t, c.want, got["w0"], 1e-9, c.name)
		assert.EqualValues(t, NoSignal, got["w1"], "%s: one that never reported", c.name)
	}
	// Without a baseline of its own it takes the fleet's median.
	sn := g.withReports(map[string]Report{
		"w0": {RTTP99: Some(8 * time.Millisecond)}, "w1": {RTTP99: Some(8 * time.Millisecond)}, "w2": {RTTP99: Some(16 * time.Millisecond)},
	})
	assert.Equal(t, map[string]float64{"w0": 100, "w1": 100, "w2": 85}, g.rate(Hybrid{}, sn, scoreRequest))
	// Penalties multiply, a ramp does not.
	g.fails("w0", 1)
	require.Equal(t, Observed, g.phase("w0"))
	assert.InDelta(t, 85, g.rate(Hybrid{}, sn, scoreRequest)["w0"], 1e-9)
	g.fails("w1", 3)
	g.pass(3 * time.Second)
	sn.coef = g.snap.Load().coef
	assert.InDelta(t, 100, g.rate(Hybrid{}, sn, Request{Key: "k", Intent: Read, Among: []Ref{must(g.Ref("w1"))}})["w1"], 1e-9)
}

func must[T any](x T, ok bool) T {
	if !ok {
		panic("not ok")
	}
	return x
}

func weightedReports() map[string]Report {
	kind := KindOf("acme", "order")
	return map[string]Report{
		"w0": {StorageFree: Some(uint64(60)), CPU: Some(0.8), RTTP99: Some(20 * time.Millisecond)},
		"w1": {StorageFree: Some(uint64(70)), IOWait: Some(0.3), RTTP99: Some(8 * time.Millisecond), HitRates: []HitRate{{1, 0.5}, {kind, 1}, {2, 0.1}}},
		"w2": {StorageFree: Some(uint64(80)), NetOut: Some(500.0), RTTP99: Some(12 * time.Millisecond)},
	}
}

func weightedRig(t testing.TB) *rig {
	g := scoreRig(t)
	ws := rigWorkers(3)
	for i := range ws {
		ws[i].Storage, ws[i].Bandwidth = 100, 1000
	}
	require.NoError(t, g.SetTopology(Topology{Workers: ws}))
	return g
}

func TestExample_WeightedScore(t *testing.T) {
	g := weightedRig(t)
	got := g.rate(Weighted{}, g.withReports(weightedReports()), scoreRequest)
	assert.InDelta(t, 18, got["w0"], 1e-9)
	assert.InDelta(t, 77, got["w1"], 1e-9)
	assert.InDelta(t, 39, got["w2"], 1e-9)

	got = g.rate(WriteHeavyWeights, g.withReports(weightedReports()), scoreRequest)
	assert.InDelta(t, 100*(0.4*0.7+0.3*0.7+0.2*(1-8.0/20)+0.1), got["w1"], 1e-9, "write-heavy")
	assert.InDelta(t, 100*(0.4*0.6+0.3*0.2), got["w0"], 1e-9, "write-heavy, what is free before what is idle")

	// B dies: A and C keep their scores, and C has the traffic.
	require.True(t, g.SetState("w1", Down))
	got = g.rate(Weighted{}, g.withReports(weightedReports()), scoreRequest)
	assert.Len(t, got, 2)
	assert.InDelta(t, 18, got["w0"], 1e-9)
	assert.InDelta(t, 39, got["w2"], 1e-9)
}

func TestWeighted_LeavesOutWhatIsNotKnown(t *testing.T) {
	g := scoreRig(t)
	sn := g.withReports(map[string]Report{"w0": {CPU: Some(0.4)}, "w1": {Memory: Some(0.1)}})
	got := g.rate(Weighted{Free: 1, Idle: 1}, sn, scoreRequest)
	assert.InDelta(t, 60, got["w0"], 1e-9, "load alone")
	assert.InDelta(t, 90, got["w1"], 1e-9, "free memory alone")
	assert.EqualValues(t, NoSignal, got["w2"])
}

func TestExample_DemoScore(t *testing.T) {
	g := scoreRig(t)
	sn := g.withReports(map[string]Report{
		"w0": {CPU: Some(0.4), RTTAvg: Some(100 * time.Millisecond), Errors: Some(0.01)},
		"w1": {CPU: Some(1.0), RTTAvg: Some(500 * time.Millisecond), Errors: Some(0.05)},
		"w2": {CPU: Some(0.0), RTTAvg: Some(time.Duration(0)), Errors: Some(0.0)},
	})
	got := g.rate(Curves{}, sn, scoreRequest)
	assert.InDelta(t, 0.5*60+0.3*80+0.2*80, got["w0"], 1e-9)
	assert.InDelta(t, 0, got["w1"], 1e-9)
	assert.InDelta(t, 100, got["w2"], 1e-9)
	// The curve of the processor alone: 0.30 to 0.90.
	for x, want := range map[float64]float64{0: 100, 0.3: 100, 0.6: 50, 0.9: 0, 1: 0} {
		assert.InDelta(t, want, Curve{}.At(x), 1e-9, "cpu %g", x)
	}
	// What is not reported is left out of the mean.
	assert.InDelta(t, 60, g.rate(Curves{}, g.withReports(map[string]Report{"w0": {CPU: Some(0.4)}}), scoreRequest)["w0"], 1e-9)
}

func TestExample_RelativeBaseline(t *testing.T) {
	g := newRig(t, 5, WithReplicas(5))
	cpu := func(xs ...float64) *snapshot {
		reports := map[string]Report{}
		for i, x := range xs {
			reports[fmt.Sprint("w", i)] = Report{CPU: Some(x)}
		}
		return g.withReports(reports)
	}
	for _, tide := range []float64{1, 3} { // all three times busier: the same scores
		got := g.rate(Relative{}, cpu(0.1*tide, 0.2*tide, 0.05*tide, 0.3*tide, 0.15*tide), scoreRequest) // median 0.15
		assert.InDelta(t, 100, got["w2"], 1e-9, "a third")
		assert.InDelta(t, 0, got["w3"], 1e-9, "twice")
		assert.InDelta(t, 100*1/1.5, got["w4"], 1e-9, "the median itself")
		assert.InDelta(t, 100*(2-4.0/3)/1.5, got["w1"], 1e-6)
	}
	assert.EqualValues(t, NoSignal, g.rate(Relative{}, cpu(0, 0, 0, 0, 0.5), scoreRequest)["w4"], "nothing to relate to")
	assert.InDelta(t, 0, g.rate(Relative{Floor: 0.1}, cpu(0, 0, 0, 0, 0.5), scoreRequest)["w4"], 1e-9)
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
		ok   bool
	}{{nil, 0, false}, {[]float64{3}, 3, true}, {[]float64{4, 1}, 2.5, true}, {[]float64{9, 1, 2}, 2, true}} {
		got, ok := median(c.x)
		assert.Equal(t, c.want, got)
		assert.Equal(t, c.ok, ok)
	}
}

// The baselines that picks read are published by the fold, at most a second
// old, and only where there are scorers.
func TestBaseline_FromTheFold(t *testing.T) {
	g := newRig(t, 3, WithScorer(Relative{}, 1))
	report := func(id string, cpu float64) {
		require.NoError(t, g.Report(Report{Worker: id, Time: g.clock(), CPU: Some(cpu)}))
	}
	report("w0", 0.2)
	report("w1", 0.3)
	report("w2", 0.4)
	g.pass(time.Second)
	base := g.snap.Load().base
	require.NotNil(t, base)
	assert.InDelta(t, 0.3, base.median[MetricCPU], 1e-9)
	require.NoError(t, g.Report(Report{Worker: "w1", Time: g.clock(), CPU: Some(0.9)}))
	g.pass(900 * time.Millisecond)
	assert.Same(t, base, g.snap.Load().base, "not for each fold")
	g.pass(200 * time.Millisecond)
	assert.Greater(t, g.snap.Load().base.median[MetricCPU], 0.3)
	g.pass(10 * time.Second) // all reports are stale
	assert.False(t, g.snap.Load().base.known[MetricCPU])

	bare := newRig(t, 3)
	bare.pass(time.Second)
	assert.Nil(t, bare.snap.Load().base)
}

func TestExample_FakeHealth(t *testing.T) {
	g := scoreRig(t)
	sn := g.withReports(map[string]Report{
		"w0": {Rejects: Some(0.05), RTTP99: Some(time.Millisecond)},
		"w1": {Rejects: Some(0.06), RTTP99: Some(time.Microsecond)},
	})
	got := g.rate(FakeHealth{}, sn, scoreRequest)
	assert.Equal(t, map[string]float64{"w0": 100, "w1": 80, "w2": NoSignal}, got)
	got = g.rate(FakeHealth{Of: Hybrid{Baseline: time.Millisecond}}, sn, scoreRequest)
	assert.InDelta(t, 100, got["w0"], 1e-9)
	assert.InDelta(t, 75*0.8, got["w1"], 1e-9, "its p99 is not believed, and a fifth is gone")
}

func TestExample_LatencyScore(t *testing.T) {
	for ms, want := range map[float64]float64{0: 100, 1: 98, 20: 60, 50: 0, 500: 0} {
		assert.InDelta(t, want, LatencyScore{}.points(ms*1e6), 1e-9, "%g ms", ms)
	}
	g := scoreRig(t)
	assert.EqualValues(t, NoSignal, g.rate(LatencyScore{}, g.snap.Load(), scoreRequest)["w0"], "nothing has been answered")
	for _, id := range []string{"w0", "w1", "w2"} {
		g.Observe(g.start(id), 20*time.Millisecond, nil)
	}
	g.pass(100 * time.Millisecond)
	assert.InDelta(t, 60, g.rate(LatencyScore{}, g.snap.Load(), scoreRequest)["w0"], 0.1)
}

func TestExample_DensityScore(t *testing.T) {
	g := scoreRig(t)
	k, err := keyspec.Default().Parse(scoreRequest.Key)
	require.NoError(t, err)
	var held, other ShardSet
	held.Add(int(k.Slot))
	other.Add(int(k.Slot) + 1)
	for heat, want := range map[float64]float64{0: 80, 10: 85, 40: 100, 1000: 100} {
		sn := g.withReports(map[string]Report{
			"w0": {Shards: Some(held), ShardHeat: []ShardHeat{{uint16(k.Slot+1) & 511, 7}, {uint16(k.Slot), heat}}},
			"w1": {Shards: Some(other), ShardHeat: []ShardHeat{{uint16(k.Slot), heat}}},
			"w2": {CPU: Some(0.1)},
		})
		assert.Equal(t, map[string]float64{"w0": want, "w1": 0, "w2": NoSignal}, g.rate(LocalDensity{}, sn, scoreRequest), "heat %g", heat)
	}
}

// TestExample_EWMAStep: one update moves the value by 20 % of it at most (S5).
func TestExample_EWMAStep(t *testing.T) {
	e := clampedEWMA{}
	require.True(t, e.update(50, 100, defaultEWMARule), "the first sample seeds")
	e.update(100, 100, defaultEWMARule)
	assert.InDelta(t, 60, e.value, 1e-9, "+20 %, not +15 of gain 0.3 times 50")
	e.update(0, 100, defaultEWMARule)
	assert.InDelta(t, 48, e.value, 1e-9, "-20 %")
	e.update(50, 100, defaultEWMARule)
	assert.InDelta(t, 48.6, e.value, 1e-9, "within it, the gain decides")
}

func TestExample_CompositeScore(t *testing.T) {
	g := scoreRig(t, WithScorer(Composite{}, 1))
	k, _ := keyspec.Default().Parse(scoreRequest.Key)
	var held, other ShardSet
	held.Add(int(k.Slot))
	other.Add(int(k.Slot) + 1)
	for _, id := range []string{"w0", "w1", "w2"} {
		g.Observe(g.start(id), 10*time.Millisecond, nil)
	}
	g.pass(100 * time.Millisecond)
	g.hub.history.add(g.Router.now(), KindOf("acme", "order"), must(g.Ref("w0")).local())
	sn := g.withReports(map[string]Report{"w0": {Shards: Some(held)}, "w1": {Shards: Some(other)}, "w2": {Shards: Some(other)}})
	got := g.rate(Composite{}, sn, scoreRequest)
	assert.InDelta(t, 0.40*100+0.35*80+0.25*80, got["w0"], 0.1)
	assert.InDelta(t, 0.25*80, got["w1"], 0.1)
	// Where nothing is known of the kind and the shard, latency is all.
	assert.InDelta(t, 80, g.rate(Composite{}, g.snap.Load(), Request{Key: "other:thing:1", Intent: Read})["w0"], 0.1)
}

func TestTrend_And_GCPause(t *testing.T) {
	g := scoreRig(t)
	sn := g.withReports(map[string]Report{
		"w0": {Rate1m: Some(50.0), Rate5m: Some(100.0), GCPause: Some(0.005)},
		"w1": {Rate1m: Some(150.0), Rate5m: Some(100.0), GCPause: Some(0.055)},
		"w2": {Rate1m: Some(300.0), Rate5m: Some(0.0), GCPause: Some(0.2)},
	})
	assert.Equal(t, map[string]float64{"w0": 100, "w1": 50, "w2": NoSignal}, g.rate(Trend{}, sn, scoreRequest))
	got := g.rate(GCPause{}, sn, scoreRequest)
	assert.InDelta(t, 100, got["w0"], 1e-9)
	assert.InDelta(t, 50, got["w1"], 1e-9)
	assert.InDelta(t, 0, got["w2"], 1e-9)
}

// reportScorers are all that read reports.
var reportScorers = []Scorer{
	Hybrid{}, Hybrid{Baseline: 8 * time.Millisecond, Queue: 5}, Weighted{}, WriteHeavyWeights, Gears{},
	Curve{}, Curve{MetricRTTP99, 1e6, 50e6}, Curve{MetricRTTAvg, 0, 50e6}, Curve{MetricErrors, 0, 0.05}, Curves{},
	Relative{}, Relative{Metric: MetricRTTP99}, Relative{Metric: MetricErrors, Floor: 0.01},
	FakeHealth{}, FakeHealth{Of: Hybrid{}}, FakeHealth{Of: Weighted{}}, FakeHealth{Of: Curves{}},
	LatencyScore{}, LocalDensity{}, Affinity{}, Composite{}, Capability{}, GCPause{}, Trend{},
}

// badReport has every scored field, each at times at its limits.
func badReport(rnd *rand.Rand, slot int) Report {
	x := func(limit float64) Opt[float64] {
		switch rnd.IntN(8) {
		case 0:
			return Some(0.0)
		case 1:
			return Some(limit)
		}
		return Some(rnd.Float64() * limit * math.Pow(10, -3*rnd.Float64()))
	}
	d := func() Opt[time.Duration] { return Some(time.Duration(rnd.Float64() * 60e6)) }
	b := func() Opt[bool] { return Some(rnd.IntN(4) == 0) }
	share := func() Opt[float64] {
		if rnd.IntN(2) == 0 {
			return Some(rnd.Float64() * 0.1)
		}
		return x(1)
	}
	var shards ShardSet
	if rnd.IntN(2) == 0 {
		shards.Add(slot)
	}
	return Report{
		CPU: share(), IOWait: x(1), Memory: x(1), GCPause: share(), Queue: x(60), Rate1m: x(1e9), Rate5m: x(1e9), NetIn: x(1e15), NetOut: x(2000),
		RTTAvg: d(), RTTP99: d(), Errors: share(), Rejects: share(), Timeouts: share(), StorageFree: Some(rnd.Uint64N(120)),
		Compacting: b(), Repairing: b(), HealthFailed: b(), Shards: Some(shards), ShardHeat: []ShardHeat{{uint16(slot), x(60).Or(0)}},
		HitRates: []HitRate{{KindOf("acme", "order"), rnd.Float64()}}, Fingerprints: []Fingerprint{{KindOf("acme", "order"), rnd.Uint32N(1000)}},
	}
}

// worse are the ways in which a report can get worse, by name.
var worse = map[string]func(r *Report, u float64){
	"cpu":        func(r *Report, u float64) { r.CPU = up(r.CPU, u, 1) },
	"io wait":    func(r *Report, u float64) { r.IOWait = up(r.IOWait, u, 1) },
	"memory":     func(r *Report, u float64) { r.Memory = up(r.Memory, u, 1) },
	"gc pause":   func(r *Report, u float64) { r.GCPause = up(r.GCPause, u, 1) },
	"queue":      func(r *Report, u float64) { r.Queue = up(r.Queue, u, 100) },
	"rate 1m":    func(r *Report, u float64) { r.Rate1m = up(r.Rate1m, u, 1e9) },
	"net in":     func(r *Report, u float64) { r.NetIn = up(r.NetIn, u, 1e15) },
	"net out":    func(r *Report, u float64) { r.NetOut = up(r.NetOut, u, 4000) },
	"rtt avg":    func(r *Report, u float64) { r.RTTAvg = Some(r.RTTAvg.Or(0) + time.Duration(u*100e6)) },
	"rtt p99":    func(r *Report, u float64) { r.RTTP99 = Some(r.RTTP99.Or(0) + time.Duration(u*100e6)) },
	"errors":     func(r *Report, u float64) { r.Errors = up(r.Errors, u, 1) },
	"rejects":    func(r *Report, u float64) { r.Rejects = up(r.Rejects, u, 1) },
	"timeouts":   func(r *Report, u float64) { r.Timeouts = up(r.Timeouts, u, 1) },
	"storage":    func(r *Report, u float64) { r.StorageFree = Some(uint64(float64(r.StorageFree.Or(0)) * u)) },
	"compacting": func(r *Report, u float64) { r.Compacting = Some(true) },
	"repairing":  func(r *Report, u float64) { r.Repairing = Some(true) },
	"health":     func(r *Report, u float64) { r.HealthFailed = Some(true) },
	"hit rate":   func(r *Report, u float64) { r.HitRates = []HitRate{{r.HitRates[0].Kind, r.HitRates[0].Rate * u}} },
	"not held":   func(r *Report, u float64) { r.Shards = Some(ShardSet{}) },
	"slot heat":  func(r *Report, u float64) { r.ShardHeat = []ShardHeat{{r.ShardHeat[0].Slot, r.ShardHeat[0].Heat * u}} },
	"fingerprint": func(r *Report, u float64) {
		r.Fingerprints = []Fingerprint{{r.Fingerprints[0].Kind, uint32(float64(r.Fingerprints[0].Count) * u)}}
	},
}

func up(x Opt[float64], u, limit float64) Opt[float64] { return Some(x.Or(0) + u*(limit-x.Or(0))) }

// I8: a worse input never scores better; I7: scores are finite and 0..100; and
// a worker that fails fast scores no better than if it answered, at whatever
// latency (I9, C11).
func TestScorers_MonotoneAndFinite(t *testing.T) {
	rnd := seeded(t, 8)
	g := weightedRig(t)
	for _, id := range []string{"w0", "w1", "w2"} {
		g.Observe(g.start(id), 5*time.Millisecond, nil)
	}
	g.pass(100 * time.Millisecond)
	k, _ := keyspec.Default().Parse(scoreRequest.Key)
	rounds := 60
	if labRaced {
		rounds = 6
	}
	moved := map[string]bool{}
	for range rounds {
		reports := map[string]Report{}
		for _, id := range []string{"w0", "w1", "w2"} {
			reports[id] = badReport(rnd, int(k.Slot))
		}
		base := g.withReports(reports)
		fast := map[string]Report{"w1": reports["w1"], "w2": reports["w2"]}
		failing := reports["w0"]
		failing.RTTAvg, failing.RTTP99, failing.Rejects = Some(time.Microsecond), Some(time.Microsecond), Some(max(0.2, failing.Rejects.Or(0)))
		fast["w0"] = failing
		failed := g.withReports(fast)
		before := make([]float64, len(reportScorers))
		for i, s := range reportScorers {
			before[i] = g.rate(s, base, scoreRequest)["w0"]
			require.True(t, before[i] == NoSignal || before[i] >= 0 && before[i] <= 100, "%s: %g", s.Name(), before[i])
			if before[i] == NoSignal {
				continue
			}
			require.LessOrEqual(t, g.rate(s, failed, scoreRequest)["w0"], before[i]+1e-9, "%s: fast failures raise it: %+v", s.Name(), reports)
		}
		for name, f := range worse {
			r := reports["w0"]
			f(&r, rnd.Float64())
			sn := g.withReports(map[string]Report{"w0": r, "w1": reports["w1"], "w2": reports["w2"]})
			for i, s := range reportScorers {
				after := g.rate(s, sn, scoreRequest)["w0"]
				if before[i] == NoSignal { // the median was 0, say
					continue
				}
				require.LessOrEqual(t, after, before[i]+1e-9, "%s: worse %s scores better: %+v then %+v", s.Name(), name, reports["w0"], r)
				if after < before[i] {
					moved[fmt.Sprintf("%d", i)] = true
				}
			}
		}
	}
	for i, s := range reportScorers {
		switch s.(type) {
		case LatencyScore, Capability: // read no report
		default:
			assert.True(t, moved[fmt.Sprintf("%d", i)], "%s never moved", s.Name())
		}
	}
}

func TestCapability(t *testing.T) {
	g := newRig(t, 3)
	ws := rigWorkers(3)
	ws[0].IO, ws[0].Bandwidth = IOFast, 100
	ws[1].IO, ws[1].Bandwidth = IONormal, 400
	ws[2].IO, ws[2].Bandwidth = IOSlow, 200
	require.NoError(t, g.SetTopology(Topology{Workers: ws}))
	none := map[string]float64{"w0": NoSignal, "w1": NoSignal, "w2": NoSignal}
	assert.Equal(t, none, g.rate(Capability{}, g.snap.Load(), scoreRequest), "no heat is known")
	large := scoreRequest
	large.Size = 8
	assert.Equal(t, map[string]float64{"w0": 25, "w1": 100, "w2": 50}, g.rate(Capability{}, g.snap.Load(), large))
	large.Size = 7
	assert.Equal(t, none, g.rate(Capability{}, g.snap.Load(), large))
}

// No signal, no say: with Explain the column is not there, and first requests
// of a kind spread (case 73).
func TestCase_073_ColdKindsSpread(t *testing.T) {
	g := newRig(t, 5, WithProfile(CacheAffinity()), WithKeyParser(keyspec.Default()), WithReplicas(5))
	got := map[string]int{}
	for i := range 1000 {
		c, err := g.Route(Request{Key: fmt.Sprintf("tenant%d:order:1", i), Intent: Read})
		require.NoError(t, err)
		got[c.ID()]++
		g.Observe(c, time.Millisecond, nil)
		g.jump(time.Millisecond)
	}
	for id, n := range got {
		assert.InDelta(t, 200, n, 60, "%s: %v", id, got)
	}
}

func TestScorers_ValidateNamesTheField(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		s    Scorer
		want string
	}{
		{Hybrid{Baseline: -1}, "Hybrid.Baseline"},
		{Hybrid{Queue: nan}, "Hybrid.Queue"},
		{Weighted{Free: -1}, "Weighted.Free"},
		{Weighted{Local: nan}, "Weighted.Local"},
		{Gears{From: 24 * time.Hour}, "Gears.From"},
		{Gears{Write: Weighted{Idle: 1001}}, "Weighted.Idle"},
		{Curve{Metric: 200, High: 1}, "Curve.Metric"},
		{Curve{Metric: MetricQueue}, "Curve.High"},
		{Curve{Low: 1, High: nan}, "Curve.High"},
		{Curves{Parts: []Part{{Curve{}, 0}}}, "Curves.Parts[0].Weight"},
		{Relative{Floor: nan}, "Relative.Floor"},
		{Relative{Metric: metrics}, "Relative.Metric"},
		{FakeHealth{Cost: 2}, "FakeHealth.Cost"},
		{FakeHealth{Rejects: nan}, "FakeHealth.Rejects"},
		{FakeHealth{Of: Hybrid{Queue: -1}}, "Hybrid.Queue"},
		{LatencyScore{Scale: -1}, "LatencyScore.Scale"},
		{Composite{Latency: nan}, "Composite.Latency"},
	} {
		_, err := New(rigWorkers(1), WithScorer(c.s, 1))
		require.ErrorIs(t, err, ErrConfig, "%#v", c.s)
		assert.ErrorContains(t, err, c.want)
	}
	for _, s := range reportScorers {
		assert.NoError(t, validateScorer(s), s.Name())
	}
}

// C1: the penalty factor of one that is let in by panic is 0.2, and who is
// dead has no score at all.
func TestHybrid_PanicAndDead(t *testing.T) {
	g := scoreRig(t, rigTuning(func(t *Tuning) { t.MaxOut = 1 }))
	sn := g.withReports(map[string]Report{"w0": {}, "w1": {}, "w2": {Compacting: Some(true)}})
	for _, id := range []string{"w1", "w2"} {
		require.True(t, g.SetState(id, Down))
	}
	g.fails("w0", 3)
	require.Equal(t, Cooldown, g.phase("w0"))
	reports := sn.reports
	sn = func() *snapshot { s := *g.snap.Load(); s.reports = reports; return &s }()
	var v View
	q := scoreRequest
	v.begin(sn, &q, g.Router.now())
	v.hash = g.readKey(&v, &q)
	require.NoError(t, g.candidates(&v, v.hash, &q))
	sn.weighView(&v)
	v.cutForbidden()
	require.Equal(t, 1, v.n, "who is dead is cut before any score")
	v.cutDefective()
	v.penalise()
	out := []float64{NoSignal}
	Hybrid{}.Score(&v, out)
	assert.InDelta(t, 20, out[0], 1e-9)
	assert.Equal(t, "w0", v.Worker(0).ID)
}
