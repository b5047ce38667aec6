package ringwise

import (
	"fmt"
	"math"
)

// Curve scores one reported metric on a straight line: 100 at or under Low, 0
// at or over High. The zero Curve is processor load from 0.30 to 0.90. Low and
// High are in the metric's unit, durations in nanoseconds; both 0 is the
// default, which only MetricCPU has. A worker without a fresh value has no
// signal. A reported latency is not believed of a worker that fails more than
// 5 % of its requests (FakeHealth): it scores 0.
type Curve struct {
	Metric    Metric
	Low, High float64
}

// defaultCPUCurve is full marks to 30 % and none from 90 % on (docs/scorers.md).
var defaultCPUCurve = Curve{MetricCPU, 0.30, 0.90}

func (c Curve) orDefault() Curve {
	if c == (Curve{}) {
		return defaultCPUCurve
	}
	return c
}

// Validate wants a known metric and finite Low < High.
func (c Curve) Validate() error {
	d := c.orDefault()
	if d.Metric >= metrics {
		return &ConfigError{"Curve.Metric", uint8(c.Metric), "a Metric"}
	}
	if !(d.Low < d.High && d.Low >= -math.MaxFloat64 && d.High <= math.MaxFloat64) {
		return &ConfigError{"Curve.High", c.High, fmt.Sprintf("a finite number over Low (%g)", c.Low)}
	}
	return nil
}

// At is the score of a value, 0..100.
func (c Curve) At(x float64) float64 {
	c = c.orDefault()
	return 100 * min(max((c.High-x)/(c.High-c.Low), 0), 1)
}

// Name is "curve of" and the metric.
func (c Curve) Name() string { return "curve of " + c.orDefault().Metric.String() }

// Score is At of each candidate's metric.
func (c Curve) Score(v *View, out []float64) {
	for i := range out {
		var t tally
		if c.rate(v, i, 1, &t) {
			out[i] = t.total
		}
	}
}

// Lines is the metric and its points.
func (c Curve) Lines(v *View, i int) []Line {
	t := tally{keep: true}
	c.rate(v, i, 1, &t)
	return t.lines
}

// rate adds the curve's points times share; false where nothing is known.
func (c Curve) rate(v *View, i int, share float64, t *tally) bool {
	c = c.orDefault()
	x, ok := v.Metric(i, c.Metric)
	if !ok {
		return false
	}
	if (c.Metric == MetricRTTAvg || c.Metric == MetricRTTP99) && v.failing(i) > failingTooMuch {
		t.add(c.Metric.String()+", not believed", x, unitOf(c.Metric), 0)
		return true
	}
	t.add(c.Metric.String(), x, unitOf(c.Metric), share*c.At(x))
	return true
}

// Part is one curve of Curves.
type Part struct {
	Curve
	Weight float64 // over 0
}

// Curves is the weighted mean of some curves. The zero Curves is the
// worked example in docs/scorers.md: 0.5 processor (0 at 100 %), 0.3 response
// time (0 at 500 ms), 0.2 errors (0 at 5 %). A part that a worker does not report is left out of
// its mean; a worker that reports none has no signal.
type Curves struct{ Parts []Part }

var demoParts = []Part{
	{Curve{MetricCPU, 0, 1}, 0.5},
	{Curve{MetricRTTAvg, 0, 500e6}, 0.3},
	{Curve{MetricErrors, 0, 0.05}, 0.2},
}

func (c Curves) parts() []Part {
	if len(c.Parts) == 0 {
		return demoParts
	}
	return c.Parts
}

// Validate checks each part.
func (c Curves) Validate() error {
	for i, p := range c.parts() {
		if err := p.Curve.Validate(); err != nil {
			return fmt.Errorf("Curves.Parts[%d]: %w", i, err)
		}
		if !(p.Weight > 0 && p.Weight <= 1000) {
			return &ConfigError{fmt.Sprintf("Curves.Parts[%d].Weight", i), p.Weight, "a number in (0, 1000]"}
		}
	}
	return nil
}

// Name is "curves".
func (Curves) Name() string { return "curves" }

// Score is the weighted mean.
func (c Curves) Score(v *View, out []float64) {
	for i := range out {
		var t tally
		if c.rate(v, i, &t) {
			out[i] = t.total
		}
	}
}

// Lines is a line for each part that is known.
func (c Curves) Lines(v *View, i int) []Line {
	t := tally{keep: true}
	c.rate(v, i, &t)
	return t.lines
}

func (c Curves) rate(v *View, i int, t *tally) bool {
	sum := 0.0
	for _, p := range c.parts() {
		if _, ok := v.Metric(i, p.orDefault().Metric); ok {
			sum += p.Weight
		}
	}
	if sum == 0 {
		return false
	}
	for _, p := range c.parts() {
		p.rate(v, i, p.Weight/sum, t)
	}
	t.clamp() // past rounding
	return true
}
