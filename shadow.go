package ringwise

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ShadowConfig describes a shadow: coefficients or a scorer that are scored
// beside the live ones on a share of the picks and never used.
type ShadowConfig struct {
	// Tuning is what is tried; nil: the live one.
	Tuning *Tuning
	// Scorer is added to it with this weight, in (0, 1000]; nil: none. It runs
	// in the sampled picks, isolated like any plug.
	Scorer Scorer
	Weight float64
	// Share of the picks, in (0, 1]. Default 0.01. One costs about a
	// microsecond.
	Share float64
	// GapAlarm is the score gap from which Hooks.Alarm is told, in (0, 1].
	// Default 0.05.
	GapAlarm float64
}

// ShadowStatus is what a shadow found so far.
type ShadowStatus struct {
	Running       bool
	TuningVersion uint64 // of the shadow's coefficients
	Picks         uint64 // scored twice
	// Agreement is the share of them in which the shadow, with the same random
	// number, names the same worker.
	Agreement float64
	// ScoreGap is the mean difference of the two scores of a candidate, as a
	// part of 100 points; ShareGap the mean part of a pick's probability that
	// goes elsewhere.
	ScoreGap, ShareGap float64
	Alarmed            bool // the last thousand had a gap over GapAlarm
}

// shadowing is a shadow at work. Sums are in millionths and saturate.
type shadowing struct {
	cfg     ShadowConfig
	version uint64
	scorer  *plug[Scorer]

	n, agreed, gap, share atomic.Uint64
	// As of the last check; guarded by the Router's mu.
	lastN, lastGap, lastAgreed uint64
	alarmed                    bool
}

const (
	shadowUnit  = 1e6
	shadowBlock = 1000 // picks for which an alarm is decided
)

// Shadow begins a shadow in place of the one there was; the zero ShadowConfig
// ends it. A bad one, also one with neither Tuning nor Scorer, gives a
// *ConfigError and changes nothing.
func (r *Router) Shadow(c ShadowConfig) error {
	off := c == ShadowConfig{}
	if !off {
		if err := c.fill(); err != nil {
			return err
		}
	}
	name := ""
	if c.Scorer != nil {
		var err error
		if name, err = r.shadowScorer(c.Scorer); err != nil { // the caller's code, so not under mu
			return err
		}
	}
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	sn := r.snap.Load()
	if sn.closed {
		return ErrClosed
	}
	next := *sn
	next.shadow, next.shadowUnder = nil, 0
	if off {
		r.shadowed.Store(nil)
	} else {
		s := &shadowing{cfg: c}
		if c.Scorer != nil {
			s.scorer = &plug[Scorer]{code: c.Scorer, weight: c.Weight, name: name}
		}
		r.versions++
		s.version = r.versions
		coef := sn.coef
		if c.Tuning != nil {
			coef = compile(*c.Tuning)
		}
		next.shadow = &snapshot{coef: coef, tuningVersion: s.version}
		next.shadowUnder = sampleLimit(c.Share)
		r.shadowed.Store(s)
	}
	r.sampleLimits(&next)
	r.publish(&next, now)
	return nil
}

// shadowScorer checks a scorer as New does, and that this Router keeps what it
// reads.
func (r *Router) shadowScorer(s Scorer) (name string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &ConfigError{"ShadowConfig.Scorer", p, "a Scorer whose Name does not panic"}
		}
	}()
	name = s.Name()
	if err := validateScorer(s); err != nil {
		return name, err
	}
	if remembers(s) && r.hub.history == nil {
		return name, &ConfigError{"ShadowConfig.Scorer", name, "a Router whose New was given it with weight 0, since only that keeps the history it reads"}
	}
	return name, nil
}

// scores tells that a scorer is in shadow; a nil shadow has none.
func (s *shadowing) scores() bool { return s != nil && s.scorer != nil }

func (c *ShadowConfig) fill() error {
	var errs []error
	if c.Tuning == nil && c.Scorer == nil {
		errs = append(errs, &ConfigError{"ShadowConfig.Tuning", "nil", "a Tuning or a Scorer; the zero ShadowConfig ends a shadow"})
	}
	if c.Share == 0 {
		c.Share = 0.01
	}
	if c.GapAlarm == 0 {
		c.GapAlarm = 0.05
	}
	if c.Tuning != nil {
		t := *c.Tuning
		c.Tuning = &t
		errs = append(errs, t.validate("ShadowConfig.Tuning"))
	}
	for _, f := range []struct {
		name string
		x    float64
		on   bool
		top  float64
	}{{"Share", c.Share, true, 1}, {"GapAlarm", c.GapAlarm, true, 1}, {"Weight", c.Weight, c.Scorer != nil, 1000}} {
		if f.on && !(f.x > 0 && f.x <= f.top) {
			errs = append(errs, &ConfigError{"ShadowConfig." + f.name, f.x, "a number in (0, " + map[bool]string{true: "1", false: "1000"}[f.top == 1] + "]"})
		}
	}
	return errors.Join(errs...)
}

// checkShadow raises the alarm where the last thousand had too wide a gap.
// The caller holds mu.
func (r *Router) checkShadow() {
	s := r.shadowed.Load()
	if s == nil {
		return
	}
	n, gap, agreed := s.n.Load(), s.gap.Load(), s.agreed.Load()
	if n-s.lastN < shadowBlock {
		return
	}
	picks := n - s.lastN
	mean := float64(gap-s.lastGap) / shadowUnit / float64(picks)
	agreement := min(float64(agreed-s.lastAgreed)/float64(picks), 1)
	was := s.alarmed
	s.lastN, s.lastGap, s.lastAgreed, s.alarmed = n, gap, agreed, mean > s.cfg.GapAlarm
	if s.alarmed && !was {
		r.alarm(Alarm{Kind: AlarmShadow, Value: mean, Limit: s.cfg.GapAlarm, Text: fmt.Sprintf(
			"shadow scores differ from the live ones: score gap %.3g %%, over %.3g %%; the same worker in %.3g %% of %d picks",
			mean*100, s.cfg.GapAlarm*100, agreement*100, picks)})
	}
}

// ShadowStatus tells what the shadow found so far.
func (r *Router) ShadowStatus() ShadowStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.shadowed.Load()
	if s == nil {
		return ShadowStatus{}
	}
	n := s.n.Load()
	per := func(x *atomic.Uint64) float64 { return float64(x.Load()) / float64(max(n, 1)) }
	return ShadowStatus{Running: true, TuningVersion: s.version, Picks: n, Agreement: min(per(&s.agreed), 1),
		ScoreGap: per(&s.gap) / shadowUnit, ShareGap: per(&s.share) / shadowUnit, Alarmed: s.alarmed}
}
