package ringwise

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// windowSeed draws the seed of a random history and prints it with a failure.
func windowSeed(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func TestClampedEWMA_Steps(t *testing.T) {
	cases := []struct {
		name    string
		span    float64
		rule    ewmaRule
		samples []float64
		want    float64
	}{
		{"first sample seeds", 100, defaultEWMARule, []float64{73}, 73},
		{"plain mean while the step is small", 100, ewmaRule{0.5, 0.2, 0.05}, []float64{50, 60}, 55},
		{"gain 0.3", 100, ewmaRule{0.3, 0.2, 0.05}, []float64{50, 60}, 53},
		{"at most a fifth up", 100, defaultEWMARule, []float64{50, 100}, 60},
		{"at most a fifth down", 100, defaultEWMARule, []float64{50, 0}, 40},
		{"from nothing: a fifth of 5 % of the range", 100, defaultEWMARule, []float64{0, 100}, 1},
		{"near nothing the floor leads", 100, defaultEWMARule, []float64{2, 100}, 3},
		{"above the floor the value leads", 100, defaultEWMARule, []float64{10, 100}, 12},
		{"negative values by their size", 100, defaultEWMARule, []float64{-50, 50}, -40},
		{"constant stays exact", 1, defaultEWMARule, []float64{0.1, 0.1, 0.1}, 0.1},
		{"no range: the value alone", 0, defaultEWMARule, []float64{0, 100}, 0},
		{"huge values of both signs", 1, defaultEWMARule, []float64{math.MaxFloat64, -math.MaxFloat64}, math.MaxFloat64 * 0.8},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var e clampedEWMA
			for _, x := range c.samples {
				if !e.update(x, c.span, c.rule) {
					t.Fatalf("update(%v) refused", x)
				}
			}
			if got, ok := e.current(); !ok || math.Abs(got-c.want) > 1e-12*max(1, math.Abs(c.want)) {
				t.Errorf("got %v, %v, want %v", got, ok, c.want)
			}
		})
	}
}

func TestClampedEWMA_RefusesWhatIsNotFinite(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	var e clampedEWMA
	if _, ok := e.current(); ok {
		t.Error("an empty average has a value")
	}
	for _, x := range []float64{nan, inf, -inf} {
		if e.update(x, 1, defaultEWMARule) {
			t.Errorf("update(%v) taken as the seed", x)
		}
	}
	if _, ok := e.current(); ok {
		t.Error("a refused sample seeded the average")
	}
	e.update(5, 10, defaultEWMARule)
	for _, c := range []struct {
		x, span float64
		rule    ewmaRule
	}{
		{nan, 10, defaultEWMARule},
		{inf, 10, defaultEWMARule},
		{-inf, 10, defaultEWMARule},
		{6, nan, defaultEWMARule},
		{6, 10, ewmaRule{nan, 0.2, 0.05}},
		{6, 10, ewmaRule{0.3, nan, 0.05}},
		{6, 10, ewmaRule{inf, inf, 0.05}},
	} {
		if e.update(c.x, c.span, c.rule) {
			t.Errorf("update(%v, %v, %v) taken", c.x, c.span, c.rule)
		}
		if got, ok := e.current(); got != 5 || !ok {
			t.Fatalf("after update(%v, %v, %v): got %v, %v, want the old 5", c.x, c.span, c.rule, got, ok)
		}
	}
}

func TestClampedEWMA_StaysWithinSamplesAndSteps(t *testing.T) {
	rnd := windowSeed(t)
	for range 200 {
		span := math.Exp(20*rnd.Float64() - 10)
		rule := ewmaRule{gain: 0.3 + 0.2*rnd.Float64(), maxStep: 0.2, floor: 0.05}
		var e clampedEWMA
		var old float64
		lo, hi := math.Inf(1), math.Inf(-1)
		for i := range 100 {
			x := span * (rnd.Float64() - 0.25)
			lo, hi = min(lo, x), max(hi, x)
			e.update(x, span, rule)
			got, _ := e.current()
			if got < lo || got > hi {
				t.Fatalf("value %v left its samples %v..%v", got, lo, hi)
			}
			// The naive model: the formula of the feature list, then the clamp.
			if i > 0 {
				want := rule.gain*x + (1-rule.gain)*old
				limit := 0.2 * max(math.Abs(old), 0.05*span)
				want = max(old-limit, min(old+limit, want))
				if math.Abs(got-want) > 1e-12*span {
					t.Fatalf("got %v, want %v (from %v by %v)", got, want, old, x)
				}
			}
			old = got
		}
	}
}

// TestCase_107_decayUnits: a decay formula mixed nanoseconds with seconds and
// lacked the scale, so every sample replaced the average.
func TestCase_107_decayUnits(t *testing.T) {
	golden := []struct {
		dt, tau time.Duration
		want    float64
	}{
		{0, 100 * time.Millisecond, 0},
		{-time.Hour, 100 * time.Millisecond, 0},
		{math.MinInt64, time.Nanosecond, 0},
		{time.Nanosecond, time.Hour, 2.777777777777777e-13},
		{time.Microsecond, 100 * time.Millisecond, 9.99995000016667e-06},
		{time.Second, 100 * time.Millisecond, 0.9999546000702375},
		{time.Hour, 100 * time.Millisecond, 1},
		{time.Microsecond, 10 * time.Second, 9.9999995e-08},
		{time.Second, 10 * time.Second, 0.09516258196404043},
		{time.Hour, 10 * time.Second, 1},
		{math.MaxInt64, time.Nanosecond, 1},
		{0, 0, 0},
		{time.Nanosecond, 0, 1},
		{time.Nanosecond, -time.Second, 1},
	}
	wrong := func(gain func(dt, tau time.Duration) float64) (dt, tau time.Duration, got, want float64, bad bool) {
		for _, g := range golden {
			got := gain(g.dt, g.tau)
			if !(got >= 0 && got <= 1 && math.Abs(got-g.want) <= 1e-12*g.want) {
				return g.dt, g.tau, got, g.want, true
			}
		}
		return
	}
	if dt, tau, got, want, bad := wrong(decayGain); bad {
		t.Errorf("decayGain(%v, %v) = %v, want %v", dt, tau, got, want)
	}
	for name, naive := range map[string]func(dt, tau time.Duration) float64{
		"nanoseconds over seconds": func(dt, tau time.Duration) float64 {
			return 1 - math.Exp(-float64(max(dt, 0))/max(tau, 1).Seconds())
		},
		"no scale": func(dt, _ time.Duration) float64 { return 1 - math.Exp(-max(dt, 0).Seconds()) },
		"negative gain when the clock steps back": func(dt, tau time.Duration) float64 {
			return -math.Expm1(-float64(dt) / float64(tau))
		},
	} {
		if _, _, _, _, bad := wrong(naive); !bad {
			t.Errorf("the check does not see %q", name)
		}
	}
}

func TestDecayGain_RisesWithTime(t *testing.T) {
	last := 0.0
	for dt := time.Duration(1); dt < 24*time.Hour; dt += 1 + dt/7 {
		got := decayGain(dt, 50*time.Millisecond)
		if !(got >= last && got <= 1) {
			t.Fatalf("gain(%v) = %v after %v", dt, got, last)
		}
		last = got
	}
}

func TestWindow60_Table(t *testing.T) {
	const d = windowDecay
	cases := []struct {
		name    string
		samples []float64
		want    float64
		ok      bool
	}{
		{"empty", nil, 0, false},
		{"one", []float64{7}, 7, true},
		{"newest heaviest", []float64{0, 1}, 1 / (1 + d), true},
		{"three", []float64{9, 0, 1}, (1 + 9*d*d) / (1 + d + d*d), true},
		{"refused samples leave no trace", []float64{4, math.NaN(), math.Inf(1), math.Inf(-1), 2e300}, 4, true},
		{"only refused samples", []float64{math.NaN()}, 0, false},
		{"extremes of both signs stay finite", []float64{-windowLimit, windowLimit}, windowLimit * (1 - d) / (1 + d), true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var w window60
			for _, x := range c.samples {
				want := !math.IsNaN(x) && math.Abs(x) <= windowLimit
				if w.push(x) != want {
					t.Errorf("push(%v) = %v", x, !want)
				}
			}
			got, ok := w.mean()
			if ok != c.ok || !(math.Abs(got-c.want) <= 1e-12*math.Abs(c.want)) {
				t.Errorf("got %v, %v, want %v, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

func TestWindow60_ConstantIsExact(t *testing.T) {
	var w window60
	for range 200 {
		w.push(0.88)
		if got, _ := w.mean(); got != 0.88 {
			t.Fatalf("got %v, want 0.88 exactly", got)
		}
	}
}

func TestWindow60_ForgetsTheSixtyFirst(t *testing.T) {
	var w window60
	w.push(1e12)
	for range windowLen - 1 {
		w.push(1)
	}
	if got, _ := w.mean(); got < 1e9 {
		t.Errorf("with 60 samples: got %v, want the oldest still in it", got)
	}
	w.push(1)
	if got, _ := w.mean(); got != 1 {
		t.Errorf("with 61 samples: got %v, want 1", got)
	}
}

func TestWindow60_MatchesNaiveModel(t *testing.T) {
	rnd := windowSeed(t)
	var two window60
	two.push(0)
	two.push(1)
	if got, _ := two.mean(); math.Abs(got-1/1.95) > 1e-12 {
		t.Fatalf("of 0 and then 1: got %v, want %v, the newest heaviest", got, 1/1.95)
	}
	for range 50 {
		var w window60
		var all []float64
		for range 1 + rnd.IntN(200) {
			x := rnd.NormFloat64() * math.Exp(10*rnd.Float64())
			w.push(x)
			all = append(all, x)
			sum, weights, lo, hi, big := 0.0, 0.0, math.Inf(1), math.Inf(-1), 0.0
			for age := range min(len(all), 60) {
				x := all[len(all)-1-age]
				weight := math.Pow(windowDecay, float64(age))
				sum, weights = sum+weight*x, weights+weight
				lo, hi, big = min(lo, x), max(hi, x), max(big, math.Abs(x))
			}
			got, ok := w.mean()
			if !ok || math.Abs(got-sum/weights) > 1e-12*big {
				t.Fatalf("after %d samples: got %v, %v, want %v", len(all), got, ok, sum/weights)
			}
			if got < lo-1e-12*big || got > hi+1e-12*big {
				t.Fatalf("after %d samples: %v left its samples %v..%v", len(all), got, lo, hi)
			}
		}
	}
}

func TestWindow_NoAllocations(t *testing.T) {
	var w window60
	var e clampedEWMA
	if n := testing.AllocsPerRun(100, func() {
		w.push(1)
		w.mean()
		e.update(1, 1, defaultEWMARule)
		e.current()
	}); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

func BenchmarkClampedEWMA(b *testing.B) {
	b.ReportAllocs()
	var e clampedEWMA
	x := 0.0
	for b.Loop() {
		e.update(x, 1, defaultEWMARule)
		x = 1 - x
	}
}

func BenchmarkDecayGain(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		decayGain(3*time.Millisecond, 100*time.Millisecond)
	}
}

func BenchmarkWindow60Mean(b *testing.B) {
	b.ReportAllocs()
	var w window60
	for i := range 87 {
		w.push(float64(i))
	}
	for b.Loop() {
		w.mean()
	}
}
