package ringwise

import "time"

// Hybrid is the classic health score from a worker's report. It starts at 100
// and multiplies: Down 0, compacting 0.7, under repair 0.5, failed health check
// 0.3. Then it deducts
//
//	processor over 0.70     2 points for each 0.05 over, at most 30
//	p99 over the baseline   15 x (p99-baseline)/baseline, at most 25
//	error rate              500 x, at most 15
//	queue over 20           10
//
// and multiplies by what penalties leave the worker (observed 0.85, let in from
// cooldown 0.2; a ramp acts on shares alone, for a score that excludes a
// worker would never let it recover). What is not reported deducts nothing; a
// worker without a fresh report has no signal. The p99 of a worker that fails
// more than 5 % of its requests is not believed and deducts all 25.
type Hybrid struct {
	// Baseline is the p99 that deducts nothing. Default: the median of what
	// the fleet reports, so that tides need no retuning.
	Baseline time.Duration
	// Queue is the high-water mark, in requests. Default 20.
	Queue float64
}

// Validate checks ranges.
func (s Hybrid) Validate() error {
	if s.Baseline < 0 || s.Baseline > maxReportRTT {
		return &ConfigError{"Hybrid.Baseline", s.Baseline, "a duration in [0, 1h], 0 meaning the fleet's median"}
	}
	if !(s.Queue >= 0 && s.Queue <= 1e9) {
		return &ConfigError{"Hybrid.Queue", s.Queue, "a number in [0, 1e9], 0 meaning 20"}
	}
	return nil
}

// Name is "hybrid".
func (Hybrid) Name() string { return "hybrid" }

// Score rates each candidate by its report.
func (s Hybrid) Score(v *View, out []float64) {
	for i := range out {
		var t tally
		if s.rate(v, i, &t) {
			out[i] = t.total
		}
	}
}

// Lines are what was multiplied and deducted.
func (s Hybrid) Lines(v *View, i int) []Line {
	t := tally{keep: true}
	s.rate(v, i, &t)
	return t.lines
}

func (s Hybrid) rate(v *View, i int, t *tally) bool {
	rep, fresh := v.Report(i)
	if !fresh {
		return false
	}
	t.add("start", 100, asNumber, 100)
	if v.col(i).flags&flagDown != 0 {
		t.times("down", 0)
	}
	for _, f := range [...]struct {
		name   string
		on     bool
		factor float64
	}{
		{"compacting", rep.Compacting.Or(false), 0.7},
		{"under repair", rep.Repairing.Or(false), 0.5},
		{"failed health check", rep.HealthFailed.Or(false), 0.3},
	} {
		if f.on {
			t.times(f.name, f.factor)
		}
	}
	if cpu, ok := v.Metric(i, MetricCPU); ok && cpu > 0.70 {
		t.add("cpu over 70 %", cpu, asShare, -min((cpu-0.70)/0.05*2, 30))
	}
	s.deductLatency(v, i, t)
	if errs, ok := v.Metric(i, MetricErrors); ok && errs > 0 {
		t.add("errors", errs, asShare, -min(errs*500, 15))
	}
	mark := s.Queue
	if mark == 0 {
		mark = 20
	}
	if q, ok := v.Metric(i, MetricQueue); ok && q > mark {
		t.add("queue over its mark", q, asNumber, -10)
	}
	t.clamp() // before the factor, which must not make less of a deduction
	if f := v.Factor(i); !v.ramping(i) {
		t.times("penalty", f)
	}
	return true
}

func (s Hybrid) deductLatency(v *View, i int, t *tally) {
	const most = 25
	p99, ok := v.Metric(i, MetricRTTP99)
	if v.failing(i) > failingTooMuch {
		t.add("p99, not believed", p99, asTime, -most)
		return
	}
	base := float64(s.Baseline)
	if base == 0 {
		base, _ = v.Baseline(MetricRTTP99)
	}
	if ok && base > 0 && p99 > base {
		t.add("p99 over "+asTimeIf(t.keep, base), p99, asTime, -min(15*(p99-base)/base, most))
	}
}

// asTimeIf renders a time where somebody reads it: a pick allocates nothing.
func asTimeIf(wanted bool, x float64) string {
	if wanted {
		return asTime(x)
	}
	return ""
}
