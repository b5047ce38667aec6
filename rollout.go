package ringwise

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// CanaryConfig describes a canary: other coefficients for a part of the
// requests, in steps, watched and ended by itself where it does worse.
type CanaryConfig struct {
	// Name is in Status; with it the part of the keys is chosen, so clients
	// that give the same one choose the same keys. Default "canary".
	Name string
	// Tuning is the candidate. One equal to the live Tuning is an A/A test.
	Tuning Tuning
	// Tenants are those of the steps by tenant.
	Tenants []string
	// Steps are taken one after another; requests with Request.Canary are in
	// from the first on. None: DefaultCanarySteps.
	Steps []CanaryStep
	// Confidence of the verdict, in [0.5, 0.9999]: the chance that all looks
	// of all steps together never call a candidate worse that is not. Default
	// 0.95.
	Confidence float64
	// Tolerance is the share by which p99, flaps and load deviation may be
	// greater and count as no worse, in [0, 1]. Default 0.05.
	Tolerance float64
	// Attended turns the automatic roll-back off: what is worse raises the
	// alarm and the canary stays.
	Attended bool
	// AutoPromote promotes once the last step is passed.
	AutoPromote bool
}

// CanaryStep is one step. It lasts MinTime at least. A step with a Share ends
// when it is decided, which takes MinCanaryPicks picks on either side; one
// without, when its time is over and nothing was found worse, for nobody
// knows whether a flagged request comes at all.
type CanaryStep struct {
	// Tenants brings in the requests of CanaryConfig.Tenants.
	Tenants bool
	// Share of the keys, in [0, 0.5]. As many others are the control.
	Share float64
	// MinTime of the step, 1 s to 30 days.
	MinTime time.Duration
}

// MinCanaryPicks are needed of the canary and of its control for a verdict.
const MinCanaryPicks = 1000

// DefaultCanarySteps are requests that ask for it for a minute, listed
// tenants for five, 5 % of the keys for five, 30 % for ten.
func DefaultCanarySteps(tenants bool) []CanaryStep {
	steps := []CanaryStep{{MinTime: time.Minute}, {Tenants: true, MinTime: 5 * time.Minute},
		{Tenants: true, Share: 0.05, MinTime: 5 * time.Minute}, {Tenants: true, Share: 0.30, MinTime: 10 * time.Minute}}
	if !tenants {
		steps = slices.Delete(steps, 1, 2)
		for i := range steps {
			steps[i].Tenants = false
		}
	}
	return steps
}

// The states of a canary.
const (
	CanaryNone       = "none"        // none was started
	CanaryRunning    = "running"     // in one of its steps
	CanaryPassed     = "passed"      // through its last step, and waiting for Promote
	CanaryPromoted   = "promoted"    // its coefficients are the live ones
	CanaryRolledBack = "rolled back" // the live coefficients alone
)

// The verdicts of a canary.
const (
	Undecided = "undecided" // too few picks
	Worse     = "worse"     // in one measure at least
	NoWorse   = "no worse"  // nothing was found; each Measure says what could hide
)

// CanaryStatus is where a canary stands, or how the last one ended.
type CanaryStatus struct {
	Name          string
	State         string
	Step, Steps   int // from 1
	Share         float64
	StepTime      time.Duration `json:"StepTime_ns"`
	TuningVersion uint64        // of the candidate
	// Verdict of this step; it, and Measures, are as of the last look.
	Verdict    string
	Reason     string  // why it ended, what is worse, or which measures it passed with
	Confidence float64 // of the verdict
	Looks      int     // at this step's figures
	Measures   []Measure
	Control    GroupStatus
	Canary     GroupStatus
	// Untested are fields in which the candidate differs and that both groups
	// share, since they act on what is learnt: they work from Promote on.
	Untested []string `json:",omitempty"`
}

// Measure is one figure of both groups.
type Measure struct {
	Name            string  // errors, p99, deviation, flaps
	Control, Canary float64 // shares; of p99 nanoseconds
	// Low and High bound the canary's figure less the control's with
	// CanaryStatus.Confidence for this measure and look alone; of p99 they are
	// of the ratio less 1. Both are 0 where there are not Enough figures: then
	// nothing bounds it.
	Low, High float64
	Worse     bool // by the limit that all looks, measures and steps share
	// Enough figures to tell: 1000 ends a side for errors, as many answers for
	// p99, 8 windows of a second with 50 picks a side for deviation and flaps.
	Enough bool
}

// GroupStatus is what one group counted in this step.
type GroupStatus struct {
	Picks, Ends, Errors uint64
	ErrorRate           float64
	RTT                 RTTStats // of answers, since the step began
	// Deviation of the load from an even split over each pick's candidates,
	// and Flaps, how much that moves from window to window: root mean squares
	// relative to the split, without the noise of drawing.
	Deviation, Flaps float64
}

// rollout is a Router's canary, past or present.
type rollout struct {
	running atomic.Bool
	// mu guards the rest. It is taken before the Router's mu, never under it.
	mu     sync.Mutex
	run    *canaryRun
	before *coefficients // what the last promotion replaced, for RollBack
	after  uint64        // the version it brought
	name   string        // of the canary that was promoted
}

type canaryRun struct {
	cfg      CanaryConfig
	coef     *coefficients
	version  uint64
	untested []string
	state    string
	reason   string

	step      int
	stepBegan int64
	trial     *trial
	looks     int
	nextLook  uint64
	verdict   string
	told      bool // that it does worse, while attended
	measures  []Measure
	last      [groups]groupWindow
	windowAt  int64
	// One a window: what the groups' figures were, and the canary's less the
	// control's, less the tolerance.
	deviation, flaps windows
}

const (
	canaryWindow  = int64(time.Second)
	windowPicks   = 50   // least picks a side that make a window
	maxWindows    = 4096 // kept for the test
	lookGrowth    = 1.25 // from one look to the next, in picks
	canaryMargin  = 0.01 // of squared deviations: a tenth is none
	controlShare  = 0.05 // of keys, in steps without a share
	canaryMeasure = 4
)

// StartCanary begins a canary. It fails with a *ConfigError that names the
// field, with ErrCanary while another one runs, and with ErrClosed; then
// nothing changes. While it runs, picks of its groups take the long path; the
// others hash their key once more. Plan, Start and Group use the live
// coefficients.
//
// Each step is looked at when the smaller group has 1000 picks and whenever
// it has grown by a quarter. Look i may spend 6/(pi i)^2 of the error that
// Confidence leaves, split evenly over steps and measures, so looking often
// costs nothing of it.
func (r *Router) StartCanary(c CanaryConfig) error {
	if err := c.fill(); err != nil {
		return err
	}
	now := r.now()
	ro := &r.rollout
	ro.mu.Lock()
	defer ro.mu.Unlock()
	run := &canaryRun{cfg: c, coef: compile(c.Tuning), state: CanaryRunning}
	r.mu.Lock()
	defer r.mu.Unlock()
	sn := r.snap.Load()
	if sn.closed {
		return ErrClosed
	}
	if sn.trial != nil {
		return sn.canaryRuns()
	}
	run.untested = untested(&sn.coef.tuning, &c.Tuning)
	r.versions++
	run.version = r.versions
	ro.run = run
	ro.running.Store(true)
	r.stepLocked(run, 0, now)
	return nil
}

// canaryRuns is the refusal of what cannot be done beside a canary.
func (sn *snapshot) canaryRuns() error {
	return fmt.Errorf("%w: a canary (tuning %d, step %d of %d) is running: Promote or RollBack it first",
		ErrCanary, sn.canary.tuningVersion, sn.trial.step, sn.trial.steps)
}

// fill sets defaults and checks.
func (c *CanaryConfig) fill() error {
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, &ConfigError{"CanaryConfig." + field, value, want})
	}
	if err := c.Tuning.validate("CanaryConfig.Tuning"); err != nil {
		errs = append(errs, err)
	}
	if c.Name == "" {
		c.Name = "canary"
	}
	if c.Confidence == 0 {
		c.Confidence = 0.95
	}
	if c.Tolerance == 0 {
		c.Tolerance = 0.05
	}
	if !(c.Confidence >= 0.5 && c.Confidence <= 0.9999) {
		bad("Confidence", c.Confidence, "in [0.5, 0.9999]")
	}
	if !(c.Tolerance >= 0 && c.Tolerance <= 1) {
		bad("Tolerance", c.Tolerance, "in [0, 1]")
	}
	if len(c.Steps) == 0 {
		c.Steps = DefaultCanarySteps(len(c.Tenants) > 0)
	}
	c.Steps, c.Tenants = slices.Clone(c.Steps), slices.Clone(c.Tenants)
	for i, s := range c.Steps {
		if !(s.Share >= 0 && s.Share <= 0.5) {
			bad(fmt.Sprintf("Steps[%d].Share", i), s.Share, "in [0, 0.5]")
		}
		if s.MinTime < time.Second || s.MinTime > 30*24*time.Hour {
			bad(fmt.Sprintf("Steps[%d].MinTime", i), s.MinTime, "in [1s, 720h]")
		}
		if s.Tenants && len(c.Tenants) == 0 {
			bad("Tenants", "none", fmt.Sprintf("some for Steps[%d]", i))
		}
	}
	return errors.Join(errs...)
}

// pickFields act in a pick, so that two groups can differ in them. All others
// act on what is learnt, which is one for all.
var pickFields = []string{"Temperature", "MinShare", "LiveWeight", "ScorerWeights", "SilenceFactor", "LoadWeight",
	"FeedbackWeight", "FeedbackDecay", "PriorExponent", "CompactingFactor", "RepairFactor", "ZoneCost",
	"ObservedFactor", "PanicFactor", "LoadTrust", "TrustIntervals", "StaleFactor"}

func untested(live, candidate *Tuning) (names []string) {
	a, b := reflect.ValueOf(live).Elem(), reflect.ValueOf(candidate).Elem()
	for _, f := range reflect.VisibleFields(a.Type()) {
		if !a.FieldByIndex(f.Index).Equal(b.FieldByIndex(f.Index)) && !slices.Contains(pickFields, f.Name) {
			names = append(names, f.Name)
		}
	}
	return names
}

// stepLocked begins a step with counters of its own. Both locks are held.
func (r *Router) stepLocked(run *canaryRun, step int, now int64) {
	sn := r.snap.Load()
	s := run.cfg.Steps[step]
	control := s.Share
	if control == 0 {
		control = controlShare
	}
	t := &trial{salt: uint64(HashOf(run.cfg.Name)), canary: sampleLimit(s.Share), control: sampleLimit(control),
		tenanted: s.Tenants, flagged: true, since: now, step: step + 1, steps: len(run.cfg.Steps), tenants: map[string]bool{}}
	for _, name := range run.cfg.Tenants {
		t.tenants[name] = true
	}
	for g := groupControl; g < groups; g++ {
		t.group[g] = newTrialGroup(len(sn.cols))
		run.last[g] = groupWindow{}
	}
	run.step, run.stepBegan, run.trial, run.windowAt = step, now, t, now
	run.looks, run.nextLook, run.verdict, run.measures = 0, MinCanaryPicks, Undecided, nil
	run.deviation, run.flaps = windows{}, windows{}
	next := *sn
	next.trial = t
	next.canary = &snapshot{coef: run.coef, tuningVersion: run.version, direct: false}
	r.publish(&next, now)
}

// endLocked takes the canary out of the picks. Both locks are held.
func (r *Router) endLocked(run *canaryRun, state, reason string, now int64) {
	sn := r.snap.Load()
	run.state, run.reason = state, reason
	r.rollout.running.Store(false)
	if sn.closed {
		return
	}
	next := *sn
	next.trial, next.canary = nil, nil
	if state == CanaryPromoted {
		r.rollout.before, r.rollout.after, r.rollout.name = sn.coef, run.version, run.cfg.Name
		r.adopt(&next, run.coef, run.version, now)
	}
	r.publish(&next, now)
	r.alarm(Alarm{Kind: AlarmCanary, Text: run.cfg.Name + " " + state + because(reason)})
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// Promote makes the candidate's coefficients the live ones, whatever the
// verdict, under the version they have in decisions already. It fails with
// ErrCanary where no canary runs.
func (r *Router) Promote() error { return r.end(CanaryPromoted, "by Promote") }

// RollBack ends the canary: the live coefficients alone are used, from the
// next pick on. After a promotion, whatever canaries were rolled back since, it
// puts back what that replaced, as long as nobody has called Retune. Else it
// fails with ErrCanary.
func (r *Router) RollBack() error { return r.end(CanaryRolledBack, "by RollBack") }

func (r *Router) end(state, reason string) error {
	now := r.now()
	ro := &r.rollout
	ro.mu.Lock()
	defer r.drain()
	defer ro.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	sn := r.snap.Load()
	switch {
	case sn.closed:
		return ErrClosed
	case ro.running.Load():
		r.endLocked(ro.run, state, reason, now)
		return nil
	case state == CanaryRolledBack && ro.before != nil && sn.tuningVersion == ro.after:
		next := *sn
		r.versions++
		r.adopt(&next, ro.before, r.versions, now)
		ro.before = nil
		if ro.run.version == ro.after { // else another has been tried since
			ro.run.state, ro.run.reason = state, reason
		}
		r.publish(&next, now)
		r.alarm(Alarm{Kind: AlarmCanary, Text: ro.name + " " + state + ": after its promotion"})
		return nil
	}
	what := "promote"
	if state == CanaryRolledBack {
		what = "roll back"
	}
	return fmt.Errorf("%w: no canary is running: nothing to %s", ErrCanary, what)
}

// tickCanary closes windows, looks and moves on. The Router's mu is not held.
func (r *Router) tickCanary(now int64) {
	ro := &r.rollout
	if !ro.running.Load() || !ro.mu.TryLock() {
		return
	}
	defer ro.mu.Unlock()
	run := ro.run
	if !ro.running.Load() {
		return
	}
	run.window(now)
	n := min(run.trial.group[groupControl].ends.Load(), run.trial.group[groupCanary].ends.Load())
	over := now-run.stepBegan >= int64(run.cfg.Steps[run.step].MinTime)
	if n >= run.nextLook || over && n >= MinCanaryPicks && run.looks == 0 {
		run.look(n)
	}
	switch {
	case run.verdict == Worse && !run.cfg.Attended:
		r.finishStep(run, CanaryRolledBack, run.reason, now)
	case run.verdict == Worse:
		if !run.told {
			run.told = true
			r.alarm(Alarm{Kind: AlarmCanary, Text: run.cfg.Name + " does worse: " + run.reason})
		}
	case over && (run.verdict == NoWorse || run.cfg.Steps[run.step].Share == 0):
		if run.step+1 < len(run.cfg.Steps) {
			r.mu.Lock()
			if !r.snap.Load().closed {
				r.stepLocked(run, run.step+1, now)
			}
			r.mu.Unlock()
			return
		}
		if run.cfg.AutoPromote {
			r.finishStep(run, CanaryPromoted, run.passed(), now)
			return
		}
		run.reason = run.passed()
		if run.state == CanaryRunning {
			run.state = CanaryPassed
			r.alarm(Alarm{Kind: AlarmCanary, Text: run.cfg.Name + " " + CanaryPassed + " all steps"})
		}
	}
}

func (r *Router) finishStep(run *canaryRun, state, reason string, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endLocked(run, state, reason, now)
}

// Canary tells where the canary stands, or how the last one ended. Some tens
// of microseconds.
func (r *Router) Canary() CanaryStatus {
	now := r.now()
	ro := &r.rollout
	ro.mu.Lock()
	defer ro.mu.Unlock()
	run := ro.run
	if run == nil {
		return CanaryStatus{State: CanaryNone}
	}
	s := CanaryStatus{Name: run.cfg.Name, State: run.state, Step: run.step + 1, Steps: len(run.cfg.Steps),
		Share: run.cfg.Steps[run.step].Share, StepTime: time.Duration(max(now-run.stepBegan, 0)), TuningVersion: run.version,
		Verdict: run.verdict, Reason: run.reason, Confidence: run.cfg.Confidence, Looks: run.looks,
		Measures: slices.Clone(run.measures), Untested: slices.Clone(run.untested)}
	for g, to := range map[int]*GroupStatus{groupControl: &s.Control, groupCanary: &s.Canary} {
		t := run.trial.group[g]
		*to = GroupStatus{Picks: t.picks.Load(), Ends: t.ends.Load(), Errors: t.errors.Load(), RTT: t.rtt.stats(),
			Deviation: run.deviation.root(g), Flaps: run.flaps.root(g)}
		to.ErrorRate = float64(to.Errors) / float64(max(to.Ends, 1))
	}
	return s
}
