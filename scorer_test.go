package ringwise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type scorerFunc func(v *View, out []float64)

func (scorerFunc) Name() string                   { return "func" }
func (f scorerFunc) Score(v *View, out []float64) { f(v, out) }

// byID scores by the worker's ID; an ID it does not know stays NoSignal.
func byID(score map[string]float64) scorerFunc {
	return func(v *View, out []float64) {
		for i := range out {
			if x, ok := score[v.Worker(i).ID]; ok {
				out[i] = x
			}
		}
	}
}

// combined are the combined scores of a, b and c.
func (s *stand) combined() map[string]float64 {
	got := map[string]float64{}
	for _, c := range s.Explain(Request{Among: s.refs("a", "b", "c")}).Candidates {
		got[c.ID] = c.Score
	}
	return got
}

func scorerStand(t *testing.T, f func(tu *Tuning), opts ...Option) *stand {
	tu := DefaultTuning()
	if f != nil {
		f(&tu)
	}
	return newStand(t, 1, workersNamed("a", "b", "c"), append(opts, WithTuning(tu))...)
}

func TestScorer_Combines(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	type scores = map[string]float64
	noLive := func(tu *Tuning) { tu.LiveWeight = 0 }
	for _, c := range []struct {
		name    string
		tuning  func(tu *Tuning)
		scorers []scores
		weights []float64
		want    scores
		bad     uint64
	}{
		{"live alone is par", nil, nil, nil, scores{"a": 70, "b": 70, "c": 70}, 0},
		{"one beside live", nil, []scores{{"a": 100, "b": 70, "c": 0}}, []float64{1}, scores{"a": 85, "b": 70, "c": 35}, 0},
		{"weights are normalised", nil, []scores{{"a": 100, "b": 70, "c": 0}}, []float64{3}, scores{"a": 92.5, "b": 70, "c": 17.5}, 0},
		{"without live", noLive, []scores{{"a": 100, "b": 50, "c": 0}}, []float64{0.3}, scores{"a": 100, "b": 50, "c": 0}, 0},
		{"two", noLive, []scores{{"a": 100, "b": 0, "c": 0}, {"a": 0, "b": 100, "c": 20}}, []float64{1, 4}, scores{"a": 20, "b": 80, "c": 16}, 0},
		{"C7", noLive, []scores{{"a": 80, "b": 40, "c": 0}, {"a": 50, "b": 50, "c": 50}, {"a": 20, "b": 90, "c": 100}}, []float64{.40, .35, .25},
			scores{"a": 54.5, "b": 56, "c": 42.5}, 0},
		{"no signal is the mean of the peers", noLive, []scores{{"a": 100, "b": 40}}, []float64{1}, scores{"a": 100, "b": 40, "c": 70}, 0},
		{"silent for all drops out", noLive, []scores{{}, {"a": 10, "b": 20, "c": 30}}, []float64{100, 1}, scores{"a": 10, "b": 20, "c": 30}, 0},
		{"all silent, no live", noLive, []scores{{}}, []float64{1}, scores{"a": 70, "b": 70, "c": 70}, 0},
		{"no scorer, no live", noLive, nil, nil, scores{"a": 70, "b": 70, "c": 70}, 0},
		{"clamped", noLive, []scores{{"a": 1e300, "b": -0.5, "c": 50}}, []float64{1}, scores{"a": 100, "b": 0, "c": 50}, 0},
		{"clamped before the mean", noLive, []scores{{"a": 1e6, "b": -1e6, "c": 50}, {"a": 0, "b": 100, "c": 50}}, []float64{1, 1},
			scores{"a": 50, "b": 50, "c": 50}, 0},
		{"NaN is neutral and counted", noLive, []scores{{"a": nan, "b": 40, "c": 60}}, []float64{1}, scores{"a": 50, "b": 40, "c": 60}, 1},
		{"infinities are neutral and counted", noLive, []scores{{"a": inf, "b": -inf, "c": 60}}, []float64{1}, scores{"a": 60, "b": 60, "c": 60}, 2},
		{"all NaN drops out", nil, []scores{{"a": nan, "b": nan, "c": nan}}, []float64{5}, scores{"a": 70, "b": 70, "c": 70}, 3},
		{"weight 0 counts for nothing", nil, []scores{{"a": 100, "b": 0, "c": 0}}, []float64{0}, scores{"a": 70, "b": 70, "c": 70}, 0},
		{"Tuning overrides the weight", func(tu *Tuning) { tu.ScorerWeights[0] = 3 }, []scores{{"a": 100, "b": 70, "c": 0}}, []float64{1},
			scores{"a": 92.5, "b": 70, "c": 17.5}, 0},
		{"Tuning switches off", func(tu *Tuning) { tu.ScorerWeights[1] = 0 }, []scores{{"a": 100, "b": 70, "c": 0}, {"a": 0, "b": 0, "c": 0}}, []float64{1, 9},
			scores{"a": 85, "b": 70, "c": 35}, 0},
	} {
		var opts []Option
		for i := range c.scorers {
			opts = append(opts, WithScorer(byID(c.scorers[i]), c.weights[i]))
		}
		s := scorerStand(t, c.tuning, opts...)
		got := s.combined()
		for id, want := range c.want {
			if math.Abs(got[id]-want) > 1e-9 {
				t.Errorf("%s: scores %v, want %v", c.name, got, c.want)
				break
			}
		}
		if n := s.Status().BadScores; n != c.bad {
			t.Errorf("%s: %d bad scores counted, want %d", c.name, n, c.bad)
		}
	}
}

// The combined score decides as it says, and softmax weighs it in points.
func TestScorer_MovesTraffic(t *testing.T) {
	s := scorerStand(t, func(tu *Tuning) { tu.Temperature, tu.LiveWeight = 10, 0 }, WithScorer(byID(map[string]float64{"a": 80, "b": 70, "c": 0}), 1))
	got := make([]int, 3)
	q := Request{Among: s.refs("a", "b", "c")}
	for range 100_000 {
		c := s.route(q)
		got[c.ID()[0]-'a']++
		c.Cancel()
		s.ns.Add(1)
	}
	checkDistribution(t, "softmax of points", got, []float64{1, math.Exp(-1), math.Exp(-8)})
}

// Live cost in a weighted mean is not clamped: very slow workers still differ.
func TestScorer_LivePartIsNotClamped(t *testing.T) {
	s := scorerStand(t, nil, WithScorer(byID(map[string]float64{"a": 50, "b": 50, "c": 50}), 1))
	s.setLatency("a", time.Millisecond)
	s.setLatency("b", 10*time.Second)
	s.setLatency("c", 100*time.Second)
	v := s.view(Request{Among: s.refs("b", "c")})
	assert.InDelta(t, 5*math.Log(10), v.total[0]-v.total[1], 0.01, "half of 10 ln(10) points")
}

func TestScorer_PanicsAreIsolatedAndThenOff(t *testing.T) {
	calls := 0
	s := scorerStand(t, nil, WithScorer(scorerFunc(func(*View, []float64) { calls++; panic("scorer") }), 1),
		WithScorer(byID(map[string]float64{"a": 100, "b": 100, "c": 0}), 1))
	got := map[string]int{}
	for range 100 {
		c := s.route(Request{Among: s.refs("a", "b", "c")})
		got[c.ID()]++
		c.Cancel()
	}
	assert.Equal(t, plugMaxPanics, calls)
	assert.Zero(t, got["c"], "the other scorer still counts: %v", got)
	st := s.Status()
	assert.EqualValues(t, plugMaxPanics, st.PlugPanics)
	assert.Equal(t, []string{"scorer func"}, st.PlugsOff)
	d := s.Explain(Request{Among: s.refs("a", "b", "c")})
	assert.Len(t, d.Candidates[0].Scores, 2, "live cost and the one that is left: %v", d)
}

// A scorer that panics has written half its column: none of it may count.
func TestScorer_PanicLeavesNothingBehind(t *testing.T) {
	s := scorerStand(t, nil, WithScorer(scorerFunc(func(_ *View, out []float64) { out[0] = 100; panic("half way") }), 50))
	for id, x := range s.combined() {
		assert.InDelta(t, 70, x, 1e-9, id)
	}
}

func TestScorer_ZeroWeightRunsForExplainOnly(t *testing.T) {
	calls := 0
	s := scorerStand(t, nil, WithScorer(scorerFunc(func(_ *View, out []float64) {
		calls++
		out[0] = 12
	}), 0))
	s.route(Request{Among: s.refs("a", "b", "c")}).Cancel()
	assert.Zero(t, calls)
	d := s.Explain(Request{Among: s.refs("a", "b", "c")})
	assert.Equal(t, 1, calls)
	require.Len(t, d.Candidates[0].Scores, 2)
	assert.Equal(t, 12.0, d.Candidates[0].Scores[1].Points, "its say is shown, C13")
	assert.InDelta(t, 70, d.Candidates[0].Score, 1e-9, "and counts for nothing")
}

func TestScorer_SeesTheRequest(t *testing.T) {
	seen := 0
	s := newStand(t, 1, []Worker{{ID: "a", Zone: "z1", Role: RolePrimary}, {ID: "b"}}, WithScorer(scorerFunc(func(v *View, out []float64) {
		seen++
		assert.Equal(t, "key", v.Key())
		assert.Equal(t, "tenant", v.Tenant())
		assert.Equal(t, Read, v.Intent())
		assert.EqualValues(t, 7, v.Size())
		assert.Len(t, out, v.Len())
		for i := range out {
			assert.Equal(t, float64(NoSignal), out[i], "preset")
			w := v.Worker(i)
			assert.Equal(t, w.ID == "a", v.Role(i) == RolePrimary)
			assert.Equal(t, w.ID, v.sn.nodes[v.Ref(i).slot].ID)
			rep, fresh := v.Report(i)
			assert.Equal(t, w.ID == "a", rep != nil && fresh)
			assert.Equal(t, time.Millisecond, v.Latency(i).Round(time.Microsecond))
			assert.InDelta(t, 70, v.Live(i), 1e-6)
			assert.Equal(t, 1.0, v.Factor(i))
			assert.Zero(t, v.InFlight(i))
		}
	}), 1))
	require.NoError(t, s.Report(Report{Worker: "a", Time: s.time(), CPU: Some(0.5)}))
	s.route(Request{Key: "key", Tenant: "tenant", Intent: Read, Size: 7})
	assert.Equal(t, 1, seen)
}

// I8: each of our scores falls when its input gets worse. Of scorers of ours
// there is live cost so far: latency, load, feedback, silence, flags, zone.
func TestLiveCost_Monotone(t *testing.T) {
	s := newStand(t, 1, workersNamed("a", "b", "c"), WithPoints(1))
	for seed := range uint64(300) {
		s.scramble(rand.New(rand.NewPCG(seed, 8)))
		v := s.view(Request{Among: s.refs("a", "b", "c")})
		st := v.col(0).st
		ls := &st.lane[laneRead]
		restore := s.words()
		for name, worse := range map[string]func(){
			"latency":   func() { ls.lat.Store(packLat(unpackLat(ls.lat.Load())*1.5, v.now)) },
			"in flight": func() { st.issued.Add(1) },
			"feedback":  func() { ls.fb.Store(packLat(unpackLat(ls.fb.Load())+3, v.now)) },
			"flags":     func() { v.col(0).pre *= 1.5 },
		} {
			ls.lat.CompareAndSwap(0, packLat(1e6, v.now))
			ls.mem.CompareAndSwap(0, v.sn.coef.memory(0, 0))
			// As of now and idle or silent alike: only the one input moves.
			ls.lat.Store(packLat(unpackLat(ls.lat.Load()), v.now))
			ls.fb.Store(packLat(max(unpackLat(ls.fb.Load()), 0.001), v.now))
			before, pre := v.cost(0), v.col(0).pre
			worse()
			if after := v.cost(0); after < before {
				t.Errorf("seed %d: worse %s, cost from %g to %g", seed, name, before, after)
			}
			v.col(0).pre = pre
			restore("a")
		}
	}
}

// I21: no code of the caller's runs while a lock is held that a method of the
// Router takes: else such a call from within it would hang.
func TestPlugs_NeverUnderALock(t *testing.T) {
	var r *Router
	held := map[string]bool{}
	check := func(what string) {
		if r == nil {
			return
		}
		if !r.mu.TryLock() {
			held[what] = true
			return
		}
		r.mu.Unlock()
		if !r.samples.mu.TryLock() {
			held[what+" (samples)"] = true
			return
		}
		r.samples.mu.Unlock()
		if !r.hookRunner.mu.TryLock() {
			held[what+" (hooks)"] = true
			return
		}
		r.hookRunner.mu.Unlock()
	}
	now := standEpoch
	opts := []Option{
		WithClock(func() time.Time { check("clock"); return now }),
		WithRand(func() uint64 { check("random source"); return rand.Uint64() }),
		WithScorer(scorerFunc(func(_ *View, out []float64) { check("scorer"); out[0] = 50 }), 1),
		WithFilter(filterFunc(func(*View, *Mask) { check("filter") })),
		WithPicker(pickerFunc(func(*View) int { check("picker"); return 0 })),
		WithQuota(func(string, *Worker) bool { check("quota"); return true }),
		WithClassifier(func(error) Verdict { check("classifier"); return Fault }),
		WithHooks(Hooks{
			Transition: func(Transition) { check("hook transition") },
			Refresh:    func(Refresh) { check("hook refresh") },
			Failover:   func(string) { check("hook failover") },
		}),
		WithDecisionSample(1, 8),
	}
	for _, locator := range []bool{false, true} {
		r = nil
		if locator {
			opts = append(opts, WithLocator(locatorFunc(func(_ KeyHash, dst []Ref) []Ref {
				check("locator")
				a, _ := r.Ref("a")
				return append(dst, a)
			})))
		}
		made, err := New(workersNamed("a", "b", "c"), opts...)
		require.NoError(t, err)
		r = made
		everyCall(t, r, func(d time.Duration) { now = now.Add(d) })
	}
	assert.Empty(t, held, "called with a lock held")
}

type filterFunc func(v *View, m *Mask)

func (filterFunc) Name() string            { return "func" }
func (f filterFunc) Keep(v *View, m *Mask) { f(v, m) }

type locatorFunc func(h KeyHash, dst []Ref) []Ref

func (f locatorFunc) Locate(h KeyHash, dst []Ref) []Ref { return f(h, dst) }

// everyCall makes each call of a Router's at least once.
func everyCall(t *testing.T, r *Router, step func(time.Duration)) {
	boom := fmt.Errorf("boom")
	q := Request{Key: "k", Tenant: "t"}
	for range 5 {
		step(200 * time.Millisecond)
		c, err := r.Pick("k")
		require.NoError(t, err)
		r.Observe(c, time.Millisecond, boom)
		c, err = r.Route(q)
		require.NoError(t, err)
		c.FirstByte()
		c.Extend()
		c.Done(nil)
		c, err = r.Start(q, "a")
		require.NoError(t, err)
		c.DoneWith(Outcome{Verdict: StaleTopology})
	}
	_, err := r.Plan(q, nil)
	require.NoError(t, err)
	b, err := r.Group([]string{"x", "y"}, q, nil)
	require.NoError(t, err)
	for i := range b {
		b[i].Choice.Cancel()
	}
	r.StartWorker("a")
	r.ObserveWorker("a", time.Millisecond, boom)
	r.Explain(q)
	r.Decisions()
	require.NoError(t, r.Report(Report{Worker: "a", Time: r.hub.clock(), CPU: Some(0.1), HealthFailed: Some(true)}))
	step(time.Second)
	require.NoError(t, r.Report(Report{Worker: "a", Time: r.hub.clock(), CPU: Some(0.1)}))
	r.SetState("b", Down)
	r.SetState("b", Up)
	require.NoError(t, r.SetTopology(Topology{Version: 1, TTL: time.Second, Workers: workersNamed("a", "c", "d")}))
	require.NoError(t, r.SetTopology(Topology{Version: 3, TTL: time.Second, Workers: workersNamed("a", "c")}))
	tu := r.Tuning()
	tu.MaxOut = 0.3
	require.NoError(t, r.Retune(tu))
	step(5 * time.Second)
	r.Maintain(r.hub.clock())
	r.Status()
	require.NoError(t, r.Close())
	r.Explain(q)
	_, err = r.Pick("k")
	require.ErrorIs(t, err, ErrClosed)
}
