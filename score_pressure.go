package ringwise

// GCPause scores the share of time a worker says it spends in collector
// pauses: 100 at or under 1 %, 0 at or over 10 %, straight between. Without a
// fresh report of it there is no signal.
type GCPause struct{}

// defaultGCCurve: 1 % of pauses is a collector at work, at 10 % a p99 of
// milliseconds is made of them.
var defaultGCCurve = Curve{MetricGCPause, 0.01, 0.10}

// Name is "gc pause".
func (GCPause) Name() string { return "gc pause" }

// Score rates each candidate.
func (GCPause) Score(v *View, out []float64) { defaultGCCurve.Score(v, out) }

// Lines is the share and its points.
func (GCPause) Lines(v *View, i int) []Line { return defaultGCCurve.Lines(v, i) }

// Trend scores where a worker's traffic is heading: its reported requests a
// second over 1 minute against those over 5. 100 where they do not grow, 0
// where they have doubled, straight between. It leans away from workers on
// their way up before they are full; give it a small weight, for traffic that
// it sends elsewhere is a trend there. Without both rates there is no signal.
type Trend struct{}

// Name is "trend".
func (Trend) Name() string { return "trend" }

// Score rates each candidate.
func (s Trend) Score(v *View, out []float64) {
	for i := range out {
		var t tally
		if s.rate(v, i, &t) {
			out[i] = t.total
		}
	}
}

// Lines is the growth and its points.
func (s Trend) Lines(v *View, i int) []Line {
	t := tally{keep: true}
	s.rate(v, i, &t)
	return t.lines
}

func (Trend) rate(v *View, i int, t *tally) bool {
	now, ok := v.Metric(i, MetricRate1m)
	then, ok2 := v.Metric(i, MetricRate5m)
	if !ok || !ok2 || then <= 0 {
		return false
	}
	growth := now / then
	t.add("1 min against 5 min", growth, asFactor, trendPoints(growth))
	return true
}

func trendPoints(growth float64) float64 { return 100 * min(max(2-growth, 0), 1) }
