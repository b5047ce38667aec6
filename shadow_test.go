package ringwise

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The same scored beside itself agrees in all; nothing it says is used.
func TestShadow_SameAgrees(t *testing.T) {
	l := newRollLab(t, 1, 6)
	l.mean = func(id string) time.Duration { return time.Duration(id[1]-'0'+1) * time.Millisecond }
	same := l.Tuning()
	require.NoError(t, l.Shadow(ShadowConfig{Tuning: &same, Share: 0.2}))
	l.run(10 * time.Second)
	s := l.ShadowStatus()
	require.InDelta(t, 4000, s.Picks, 300, "20 % of 20,000")
	require.Equal(t, 1.0, s.Agreement)
	require.Zero(t, s.ScoreGap)
	require.InDelta(t, 0, s.ShareGap, 1e-6)
	require.False(t, s.Alarmed)
	require.Equal(t, uint64(2), s.TuningVersion)
}

// One that scores otherwise is told by the gap, alarms once, and the picks
// are those of a router without it.
func TestShadow_GapAlarmsAndIsNeverUsed(t *testing.T) {
	var alarms []Alarm
	play := func(shadow bool) (*rollLab, map[string]int) {
		var l *rollLab
		// The same number however often a pick asks for it.
		chance := func() uint64 {
			if l == nil {
				return 1
			}
			return mix64(uint64(l.n))
		}
		l = newRollLab(t, 7, 6, WithRand(chance), WithHooks(Hooks{Alarm: func(a Alarm) { alarms = append(alarms, a) }}))
		l.mean = func(id string) time.Duration { return time.Duration(id[1]-'0'+1) * time.Millisecond }
		if shadow {
			other := l.Tuning()
			other.LoadWeight = 50
			require.NoError(t, l.Shadow(ShadowConfig{Tuning: &other, Share: 0.3}))
		}
		l.run(10 * time.Second)
		return l, l.picks
	}
	with, picks := play(true)
	_, without := play(false)
	require.Equal(t, without, picks, "never used")
	s := with.ShadowStatus()
	require.Greater(t, s.ScoreGap, 0.05)
	require.Less(t, s.Agreement, 1.0)
	require.Positive(t, s.ShareGap)
	require.True(t, s.Alarmed)
	require.Len(t, alarms, 1, "as long as it lasts, once")
	require.Equal(t, AlarmShadow, alarms[0].Kind)
	require.Equal(t, 0.05, alarms[0].Limit)
	require.Greater(t, alarms[0].Value, 0.05)
	var gap, limit, same float64
	var of int
	_, err := fmt.Sscanf(alarms[0].Text, "shadow scores differ from the live ones: score gap %f %%, over %f %%; the same worker in %f %% of %d picks", &gap, &limit, &same, &of)
	require.NoError(t, err, alarms[0].Text)
	require.InDelta(t, alarms[0].Value*100, gap, 0.1)
	require.Equal(t, 5.0, limit)
	require.InDelta(t, 100*s.Agreement, same, 10, "those of the thousand before it")
	require.GreaterOrEqual(t, of, shadowBlock)
}

// A scorer in shadow: scored, isolated, and off after three panics.
func TestShadow_Scorer(t *testing.T) {
	l := newRollLab(t, 1, 3)
	require.NoError(t, l.Shadow(ShadowConfig{Scorer: byID(map[string]float64{"w0": 0, "w1": 100, "w2": 0}), Weight: 1, Share: 1}))
	l.run(2 * time.Second)
	require.Greater(t, l.ShadowStatus().ScoreGap, 0.05)
	require.InDelta(t, 1.0/3, l.ShadowStatus().Agreement, 0.1, "it would always name w1")
	require.InDelta(t, 1.0/3, float64(l.picks["w1"])/4000, 0.05)

	l = newRollLab(t, 1, 3)
	require.NoError(t, l.Shadow(ShadowConfig{Scorer: shadowScorer(func(*View, []float64) { panic("x") }), Weight: 1, Share: 1}))
	l.run(time.Second)
	require.Equal(t, uint64(3), l.Status().PlugPanics)
	require.Zero(t, l.ShadowStatus().ScoreGap)
	candidate := l.Tuning()
	candidate.LoadWeight = 3
	require.NoError(t, l.Retune(candidate))
	l.run(time.Second)
	require.Zero(t, l.ShadowStatus().ScoreGap, "a scorer's shadow follows what is live")
}

type shadowScorer func(v *View, out []float64)

func (shadowScorer) Name() string                   { return "func" }
func (f shadowScorer) Score(v *View, out []float64) { f(v, out) }

func TestShadow_EndsAndNamesTheBadField(t *testing.T) {
	l := newRollLab(t, 1, 3)
	bad := l.Tuning()
	bad.Temperature = -1
	good := l.Tuning()
	for field, c := range map[string]ShadowConfig{
		"ShadowConfig.Tuning":             {Tuning: &Tuning{RequestTimeout: time.Second}},
		"ShadowConfig.Tuning.Temperature": {Tuning: &bad},
		"ShadowConfig.Share":              {Tuning: &good, Share: math.NaN()},
		"ShadowConfig.GapAlarm":           {Tuning: &good, GapAlarm: 2},
		"ShadowConfig.Weight":             {Scorer: shadowScorer(nil)},
	} {
		detail, ok := errors.AsType[*ConfigError](l.Shadow(c))
		require.True(t, ok, field)
		require.Equal(t, field, detail.Field)
		require.False(t, l.ShadowStatus().Running)
	}
	require.NoError(t, l.Shadow(ShadowConfig{Tuning: &good}))
	require.True(t, l.ShadowStatus().Running)
	for _, c := range []ShadowConfig{{Share: 0.5}, {Share: 2}, {GapAlarm: 0.1}, {Weight: 1}} {
		detail, ok := errors.AsType[*ConfigError](l.Shadow(c))
		require.True(t, ok, "%+v", c)
		require.Equal(t, "ShadowConfig.Tuning", detail.Field, "only the zero one ends it")
		require.True(t, l.ShadowStatus().Running)
	}
	require.ErrorContains(t, l.Shadow(ShadowConfig{Tuning: &good, Share: 2}), "ShadowConfig.Share = 2, want a number in (0, 1]")
	require.NotNil(t, l.snap.Load().shadow)
	require.NoError(t, l.Shadow(ShadowConfig{}))
	require.Equal(t, ShadowStatus{}, l.ShadowStatus())
	require.Nil(t, l.snap.Load().shadow)
	require.Zero(t, l.snap.Load().sampleUnder, "costs nothing any more")
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.Shadow(ShadowConfig{Tuning: &good}), ErrClosed)
}

// A shadow and a canary at once, and every coefficient at its limits: no
// allocation, finite sums.
func TestShadow_DoesNotAllocate(t *testing.T) {
	l := newRollLab(t, 1, 6)
	other := l.Tuning()
	other.Temperature, other.LoadWeight = 0.01, 100
	require.NoError(t, l.Shadow(ShadowConfig{Tuning: &other, Share: 1}))
	require.NoError(t, l.StartCanary(CanaryConfig{Tuning: other, Steps: halves(time.Hour), Attended: true}))
	l.run(time.Second)
	i := 0
	n := testing.AllocsPerRun(1000, func() {
		i++
		c, _ := l.Route(Request{Hash: HashUint64(uint64(i)), Intent: Read, Canary: i%2 == 0})
		l.Observe(c, time.Millisecond, nil)
	})
	require.Less(t, n, 0.5)
	s := l.ShadowStatus()
	require.True(t, s.ScoreGap >= 0 && s.ScoreGap <= 1 && s.ShareGap >= 0 && s.ShareGap <= 1, "%+v", s)
}

// BenchmarkShadow is a pick and its close with no shadow and with 1 % of the
// picks shadowed.
func BenchmarkShadow(b *testing.B) {
	for _, share := range []float64{0, 0.01} {
		b.Run(fmt.Sprintf("share=%g", share), func(b *testing.B) {
			r, keys := benchFleet(b, 100)
			other := r.Tuning()
			other.LoadWeight = 3
			if share > 0 {
				if err := r.Shadow(ShadowConfig{Tuning: &other, Share: share}); err != nil {
					b.Fatal(err)
				}
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				c, _ := r.Pick(keys[i&(1<<20-1)])
				r.Observe(c, benchRTT(c), nil)
				i++
			}
		})
	}
}

// BenchmarkCanary is the same while a canary has 5 % of the keys.
func BenchmarkCanary(b *testing.B) {
	r, keys := benchFleet(b, 100)
	if err := r.StartCanary(CanaryConfig{Tuning: r.Tuning(), Steps: []CanaryStep{{Share: 0.05, MinTime: time.Hour}}, Attended: true}); err != nil {
		b.Fatal(err)
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		c, _ := r.Pick(keys[i&(1<<20-1)])
		r.Observe(c, benchRTT(c), nil)
		i++
	}
}

// TestShadow_SameAgreesWithKeys: scorers that read the key, its kind or what a
// worker holds find in shadow what they find live.
func TestShadow_SameAgreesWithKeys(t *testing.T) {
	for _, p := range profiles() {
		r, keys := profiled(t, p, false)
		same := r.Tuning()
		require.NoError(t, r.Shadow(ShadowConfig{Tuning: &same, Share: 1}))
		for _, k := range keys[:2000] {
			c, err := r.Pick(k)
			require.NoError(t, err)
			r.Observe(c, benchRTT(c), nil)
		}
		s := r.ShadowStatus()
		require.EqualValues(t, 2000, s.Picks, p.Name)
		require.EqualValues(t, 1, s.Agreement, p.Name)
		require.Less(t, s.ShareGap, 1e-6, p.Name)
		require.Less(t, s.ScoreGap, 1e-6, p.Name)
	}
}

// TestShadow_ScorerIsChecked as New checks its own, and told where it cannot
// see what it reads.
func TestShadow_ScorerIsChecked(t *testing.T) {
	g := newRig(t, 3)
	var none *nameless
	for what, s := range map[string]Scorer{"its own fields": Hybrid{Queue: -5}, "a nil pointer": none, "no history": Affinity{}} {
		var bad *ConfigError
		require.ErrorAs(t, g.Shadow(ShadowConfig{Scorer: s, Weight: 1}), &bad, what)
		require.False(t, g.ShadowStatus().Running)
	}
	require.NoError(t, g.Shadow(ShadowConfig{Scorer: scorerFunc(func(*View, []float64) { panic("x") }), Weight: 1, Share: 1}))
	for range 5 {
		c, err := g.Pick("k")
		require.NoError(t, err)
		c.Cancel()
	}
	require.Contains(t, g.Status().PlugsOff, "shadow scorer func")
}

type nameless struct{ name string }

func (n *nameless) Name() string         { return n.name }
func (*nameless) Score(*View, []float64) {}

// TestShadow_BaselinesWithoutScorers: a shadow scorer that compares with the
// fleet's medians has them, also where no live one does.
func TestShadow_BaselinesWithoutScorers(t *testing.T) {
	g := newRig(t, 3, WithReplicas(3))
	require.NoError(t, g.Shadow(ShadowConfig{Scorer: Relative{}, Weight: 5, Share: 1}))
	for range 60 {
		for j, w := range rigWorkers(3) {
			require.NoError(t, g.Report(Report{Worker: w.ID, Time: g.clock(), CPU: Some(0.1 + 0.4*float64(j)), RTTP99: Some(time.Millisecond)}))
		}
		g.pass(time.Second)
		c, err := g.Pick("k")
		require.NoError(t, err)
		g.Observe(c, time.Millisecond, nil)
	}
	require.NotNil(t, g.snap.Load().base)
	require.Positive(t, g.ShadowStatus().ScoreGap)
}
