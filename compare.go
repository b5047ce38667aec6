package ringwise

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// How the two groups of a canary are compared.

// groupWindow is a group's counters as of the last window, and how its
// workers deviated in it.
type groupWindow struct {
	picks, inv  uint64
	taken, fair []uint64
	dev, noise  []float64 // of the window, by slot; fair below zero: none
}

// windows are paired figures, the newest maxWindows.
type windows struct {
	diff  []float64
	sum   [groups]float64
	count float64
}

// window compares how the groups spread their load over the last window.
func (run *canaryRun) window(now int64) {
	if now-run.windowAt < canaryWindow {
		return
	}
	for g := groupControl; g < groups; g++ {
		if run.trial.group[g].picks.Load()-run.last[g].picks < windowPicks {
			return
		}
	}
	run.windowAt = now
	var dev, flap [groups]float64
	known := true
	for g := groupControl; g < groups; g++ {
		var ok bool
		dev[g], flap[g], ok = run.last[g].roll(run.trial.group[g])
		known = known && ok
	}
	run.deviation.add(dev, run.cfg.Tolerance)
	if known {
		run.flaps.add(flap, run.cfg.Tolerance)
	}
}

// roll moves on to the next window. dev is the mean square of the deviations
// from an even split, each worker by its load squared, less what drawing
// alone makes of it; flap the same of the changes since the window before,
// which ok tells there was.
func (w *groupWindow) roll(g *trialGroup) (dev, flap float64, ok bool) {
	n := len(g.taken)
	next := groupWindow{picks: g.picks.Load(), inv: g.inv.Load(), taken: make([]uint64, n), fair: make([]uint64, n),
		dev: make([]float64, n), noise: make([]float64, n)}
	if w.taken == nil {
		w.taken, w.fair = make([]uint64, n), make([]uint64, n)
	}
	p := clamp(float64(next.inv-w.inv)/fairUnit/max(float64(next.picks-w.picks), 1), 0, 1)
	sum, weight, moved, movedWeight := 0.0, 0.0, 0.0, 0.0
	for i := range n {
		next.taken[i], next.fair[i] = g.taken[i].Load(), g.fair[i].Load()
		a := float64(next.taken[i]-w.taken[i]) / fairUnit
		e := float64(next.fair[i]-w.fair[i]) / fairUnit
		if e < 1 {
			next.noise[i] = -1
			continue
		}
		next.dev[i], next.noise[i] = (a-e)/e, (1-p)/e
		sum += e * (next.dev[i]*next.dev[i] - next.noise[i])
		weight += e
		if w.dev != nil && w.noise[i] >= 0 {
			d := next.dev[i] - w.dev[i]
			moved += e * (d*d - next.noise[i] - w.noise[i])
			movedWeight += e
		}
	}
	*w = next
	if weight > 0 {
		dev = sum / weight
	}
	if movedWeight > 0 {
		flap, ok = moved/movedWeight, true
	}
	return dev, flap, ok
}

func (w *windows) add(x [groups]float64, tolerance float64) {
	for g := range x {
		w.sum[g] += x[g]
	}
	w.count++
	if len(w.diff) == maxWindows {
		w.diff = append(w.diff[:0], w.diff[1:]...)
	}
	w.diff = append(w.diff, x[groupCanary]-(1+tolerance)*(1+tolerance)*x[groupControl]-canaryMargin)
}

// root is a mean square's root; noise may have taken it below zero.
func (w *windows) root(g int) float64 {
	if w.count == 0 {
		return 0
	}
	return math.Sqrt(max(w.sum[g]/w.count, 0))
}

// look decides on what has been counted so far.
func (run *canaryRun) look(n uint64) {
	run.looks++
	run.nextLook = uint64(float64(max(n, MinCanaryPicks)) * lookGrowth)
	alpha := spent((1-run.cfg.Confidence)/float64(len(run.cfg.Steps)*canaryMeasure), run.looks)
	limit := normalQuantile(alpha)
	width := normalQuantile((1 - run.cfg.Confidence) / 2)
	run.measures = run.measure(limit, width)
	run.verdict, run.reason = NoWorse, ""
	for _, m := range run.measures {
		if m.Worse {
			run.verdict = Worse
			if run.reason != "" {
				run.reason += ", "
			}
			run.reason += m.String()
		}
	}
}

// String is the figure with its unit.
func (m Measure) String() string {
	if m.Name == "p99" {
		return fmt.Sprintf("p99 %v against %v", time.Duration(m.Canary), time.Duration(m.Control))
	}
	return fmt.Sprintf("%s %.3g %% against %.3g %%", m.Name, m.Canary*100, m.Control*100)
}

func (run *canaryRun) measure(limit, width float64) []Measure {
	a, b := run.trial.group[groupControl], run.trial.group[groupCanary]
	na, nb := float64(a.ends.Load()), float64(b.ends.Load())
	ea, eb := float64(a.errors.Load()), float64(b.errors.Load())
	pa, pb := ea/max(na, 1), eb/max(nb, 1)
	sd := math.Sqrt(pa*(1-pa)/max(na, 1) + pb*(1-pb)/max(nb, 1))
	out := []Measure{{Name: "errors", Control: pa, Canary: pb, Low: pb - pa - width*sd, High: pb - pa + width*sd,
		Enough: min(na, nb) >= MinCanaryPicks, Worse: twoProportions(ea, na, eb, nb) > limit}}

	var ca, cb rttCounts
	a.rtt.addTo(&ca)
	b.rtt.addTo(&cb)
	la, sa := bootstrapQuantile(&ca, 0.99, 1)
	lb, sb := bootstrapQuantile(&cb, 0.99, 2)
	s := math.Sqrt(sa*sa + sb*sb)
	ra, rb := ca.stats(), cb.stats()
	enough := min(ra.Count, rb.Count) >= MinCanaryPicks
	out = append(out, Measure{Name: "p99", Control: float64(ra.P99), Canary: float64(rb.P99), Enough: enough,
		Low: math.Expm1(lb - la - width*s), High: math.Expm1(lb - la + width*s),
		Worse: enough && lb-la-math.Log1p(run.cfg.Tolerance) > limit*max(s, 1e-9)})

	for _, m := range []struct {
		name string
		w    *windows
	}{{"deviation", &run.deviation}, {"flaps", &run.flaps}} {
		mean, z := pairedZ(m.w.diff)
		se := 0.0
		if z != 0 {
			se = math.Abs(mean / z)
		}
		diff := 0.0
		if m.w.count > 0 {
			diff = (m.w.sum[groupCanary] - m.w.sum[groupControl]) / m.w.count
		}
		out = append(out, Measure{Name: m.name, Control: m.w.root(groupControl), Canary: m.w.root(groupCanary),
			Low: diff - width*se, High: diff + width*se, Enough: len(m.w.diff) >= leastPairs, Worse: z > limit})
	}
	for i := range out {
		if !out[i].Enough {
			out[i].Low, out[i].High = 0, 0 // JSON has no infinity
		}
	}
	return out
}

// passed tells on which figures a canary passed.
func (run *canaryRun) passed() string {
	var enough, few []string
	for _, m := range run.measures {
		if m.Enough {
			enough = append(enough, m.Name)
		} else {
			few = append(few, m.Name)
		}
	}
	switch {
	case len(enough) == 0:
		return "all steps passed, the last without enough figures to compare"
	case len(few) == 0:
		return "all steps passed, with enough figures of " + strings.Join(enough, ", ")
	}
	return "all steps passed, with enough figures of " + strings.Join(enough, ", ") + " and too few of " + strings.Join(few, ", ")
}
