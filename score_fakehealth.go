package ringwise

import "fmt"

// failingTooMuch is the failing share of requests above which a worker's
// reported latency is not believed: whoever refuses is fast.
const failingTooMuch = 0.05

// failing is the largest share of its requests that candidate i says it
// errs on, rejects or lets time out, in its last report or in the mean of
// its window: quick to believe bad news and slow to forget it.
func (v *View) failing(i int) (share float64) {
	rep, fresh := v.Report(i)
	if !fresh {
		return 0
	}
	share = max(rep.Errors.Or(0), rep.Rejects.Or(0), rep.Timeouts.Or(0))
	for _, m := range [...]Metric{MetricErrors, MetricRejects, MetricTimeouts} {
		if x, ok := v.Metric(i, m); ok {
			share = max(share, x)
		}
	}
	return share
}

// FakeHealth takes a part of another scorer's points away from a worker that
// rejects requests: one that refuses looks idle and fast. Beside it, no scorer
// here that reads reported latency believes that of a worker which fails more
// than 5 % of its requests, so fast failures never raise a score.
type FakeHealth struct {
	// Of is the scorer whose points are cut. Default: 100 for each worker that
	// reports its rejects, so that FakeHealth stands for itself.
	Of Scorer
	// Rejects is the reject rate above which it acts, in [0, 1). Default 0.05.
	Rejects float64
	// Cost is the part of the score it takes, in [0, 1]. Default 0.20.
	Cost float64
}

func (f FakeHealth) withDefaults() FakeHealth {
	if f.Rejects == 0 {
		f.Rejects = 0.05
	}
	if f.Cost == 0 {
		f.Cost = 0.20
	}
	return f
}

// Validate checks ranges, and Of where it can be checked.
func (f FakeHealth) Validate() error {
	if !(f.Rejects >= 0 && f.Rejects < 1) {
		return &ConfigError{"FakeHealth.Rejects", f.Rejects, "a share in [0, 1)"}
	}
	if !(f.Cost >= 0 && f.Cost <= 1) {
		return &ConfigError{"FakeHealth.Cost", f.Cost, "a share in [0, 1]"}
	}
	if err := validateScorer(f.Of); err != nil {
		return fmt.Errorf("FakeHealth.Of: %w", err)
	}
	return nil
}

// Name is that of Of, marked.
func (f FakeHealth) Name() string {
	if f.Of == nil {
		return "fake health"
	}
	return f.Of.Name() + " less fake health"
}

// Score is Of's, cut.
func (f FakeHealth) Score(v *View, out []float64) {
	if f.Of != nil {
		f.Of.Score(v, out)
	}
	for i := range out {
		if f.Of == nil && f.known(v, i) {
			out[i] = 100
		}
		if out[i] > 0 {
			out[i] *= f.factor(v, i)
		}
	}
}

// Lines are Of's and the cut.
func (f FakeHealth) Lines(v *View, i int) []Line {
	t := tally{keep: true}
	if ls, ok := f.Of.(LineScorer); ok {
		for _, l := range ls.Lines(v, i) {
			t.total += l.Points
			t.lines = append(t.lines, l)
		}
	} else if f.Of == nil && f.known(v, i) {
		t.add("start", 100, asNumber, 100)
	}
	t.times("rejects "+asShare(f.rejects(v, i)), f.factor(v, i))
	return t.lines
}

func (FakeHealth) known(v *View, i int) bool {
	rep, fresh := v.Report(i)
	if !fresh {
		return false
	}
	_, ok := rep.Rejects.Get()
	return ok
}

func (FakeHealth) rejects(v *View, i int) (share float64) {
	if rep, fresh := v.Report(i); fresh {
		share = rep.Rejects.Or(0)
	}
	if x, ok := v.Metric(i, MetricRejects); ok {
		share = max(share, x)
	}
	return share
}

func (f FakeHealth) factor(v *View, i int) float64 {
	if f = f.withDefaults(); f.rejects(v, i) > f.Rejects {
		return 1 - f.Cost
	}
	return 1
}
