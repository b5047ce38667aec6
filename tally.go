package ringwise

import (
	"strconv"
	"time"
)

// A tally adds up one candidate's score. Explain has it keep each step, so
// that the lines are the score's own arithmetic and not a second telling.
type tally struct {
	total float64
	keep  bool
	lines []Line
}

// add books points for an input, which unit renders.
func (t *tally) add(name string, input float64, unit func(float64) string, points float64) {
	t.total += points
	if t.keep {
		t.lines = append(t.lines, Line{name, unit(input), points})
	}
}

// times multiplies what there is so far.
func (t *tally) times(name string, factor float64) {
	if factor != 1 {
		t.add(name, factor, asFactor, t.total*(factor-1))
	}
}

// clamp holds the total to 0..100.
func (t *tally) clamp() {
	if c := min(max(t.total, 0), 100); c != t.total {
		t.add("clamp", c, asNumber, c-t.total)
		t.total = c // exactly, whatever the sum was rounded to
	}
}

func asNumber(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }
func asFactor(x float64) string { return "x " + strconv.FormatFloat(x, 'g', 4, 64) }
func asShare(x float64) string  { return strconv.FormatFloat(x*100, 'f', 1, 64) + " %" }
func asTime(x float64) string   { return nanos(x).Round(time.Microsecond).String() }

// unitOf is how a metric is written.
func unitOf(m Metric) func(float64) string {
	switch m {
	case MetricCPU, MetricIOWait, MetricMemory, MetricGCPause, MetricErrors, MetricRejects, MetricTimeouts:
		return asShare
	case MetricRTTAvg, MetricRTTP99:
		return asTime
	}
	return asNumber
}
