package ringwise

import "math"

// Relative scores one reported metric against the fleet's median of it: 100 at
// half of it or less, 0 at twice of it or more, straight between, so that
// tides, which lift all workers alike, need no retuning. Where the median is 0
// and so is Floor there is nothing to relate to and no signal. Of a worker that fails more
// than 5 % of its requests a reported latency is not believed: it scores 0.
type Relative struct {
	// Metric is what is compared. Default MetricCPU.
	Metric Metric
	// Floor is the least baseline, in the metric's unit: differences far under
	// it are noise. At least 0. Default 0.
	Floor float64
}

// Validate checks ranges.
func (s Relative) Validate() error {
	if s.Metric >= metrics {
		return &ConfigError{"Relative.Metric", uint8(s.Metric), "a Metric"}
	}
	if !(s.Floor >= 0 && s.Floor <= math.MaxFloat64) {
		return &ConfigError{"Relative.Floor", s.Floor, "a finite number of at least 0"}
	}
	return nil
}

// Name is the metric "against the fleet".
func (s Relative) Name() string { return s.Metric.String() + " against the fleet" }

// Score compares each candidate.
func (s Relative) Score(v *View, out []float64) {
	for i := range out {
		var t tally
		if s.rate(v, i, &t) {
			out[i] = t.total
		}
	}
}

// Lines is the metric beside its baseline.
func (s Relative) Lines(v *View, i int) []Line {
	t := tally{keep: true}
	s.rate(v, i, &t)
	return t.lines
}

func (s Relative) rate(v *View, i int, t *tally) bool {
	x, ok := v.Metric(i, s.Metric)
	base, known := v.Baseline(s.Metric)
	base = max(base, s.Floor)
	if !ok || !known || base <= 0 {
		return false
	}
	points := relativePoints(x, base)
	if (s.Metric == MetricRTTAvg || s.Metric == MetricRTTP99) && v.failing(i) > failingTooMuch {
		points = 0
	}
	name := s.Metric.String()
	if t.keep {
		name += " against " + unitOf(s.Metric)(base)
	}
	t.add(name, x, unitOf(s.Metric), points)
	return true
}

// relativePoints is 100 at half the baseline or less, 0 at twice or more.
func relativePoints(x, base float64) float64 {
	return 100 * min(max((2*base-x)/(1.5*base), 0), 1)
}
