package ringwise

import "time"

// LatencyScore is 100 - min(100, 2 x milliseconds) of what this client expects
// of a candidate now, before load (View.Latency): an absolute scale, so it
// tells nothing apart in a fleet that answers in microseconds or takes over
// 50 ms. Failures are in that expectation as time-outs, so a worker that fails
// fast is slow. Before anything has been answered there is no signal.
type LatencyScore struct {
	// Scale is the latency that costs a point. Default 500 us.
	Scale time.Duration
}

// Validate checks the range.
func (s LatencyScore) Validate() error {
	if s.Scale < 0 || s.Scale > time.Hour {
		return &ConfigError{"LatencyScore.Scale", s.Scale, "a duration in [0, 1h], 0 meaning 500us"}
	}
	return nil
}

// Name is "latency".
func (LatencyScore) Name() string { return "latency" }

// Score rates each candidate.
func (s LatencyScore) Score(v *View, out []float64) {
	for i := range out {
		var t tally
		if s.rate(v, i, &t) {
			out[i] = t.total
		}
	}
}

// Lines is what the latency leaves of 100.
func (s LatencyScore) Lines(v *View, i int) []Line {
	t := tally{keep: true}
	s.rate(v, i, &t)
	return t.lines
}

func (s LatencyScore) rate(v *View, i int, t *tally) bool {
	if v.sn.fleet[v.lane].n == 0 {
		return false
	}
	lat := v.latency(i)
	t.add("start", 100, asNumber, 100)
	t.add("latency", lat, asTime, s.points(lat)-100)
	return true
}

// points is the score of a latency in ns.
func (s LatencyScore) points(ns float64) float64 {
	scale := float64(s.Scale)
	if scale == 0 {
		scale = 500e3
	}
	return 100 - min(100, max(ns, 0)/scale)
}
