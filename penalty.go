package ringwise

import (
	"math"
	"sync/atomic"
)

// Phase is where a worker stands with one lane's penalty machine.
type Phase uint8

// The phases. A worker goes healthy, observed, cooldown, probation, healthy.
const (
	Healthy   Phase = iota
	Observed        // an anomaly: routed at ObservedFactor
	Cooldown        // not routed until its time is up
	Probation       // routed at a share that rises step by step
	ProbeOut        // a cooldown that probes began: it ends with one that succeeds, or by time
)

var phaseNames = [...]string{"healthy", "observed", "cooldown", "probation", "probe-out"}

func (p Phase) String() string { return nameOf(phaseNames[:], int(p)) }

// penalty is one lane's whole state in a word, so that Observe changes it by
// one compare-and-swap and Pick reads it by one load:
//
//	bits  0-1  phase
//	bits  2-5  failures in a row; in cooldown all ones if probes began it
//	bits  6-8  successes in probation, one a step
//	bits  9-12 back-off level: the last cooldown was CooldownMin << (level-1)
//	bits 13-16 probes in flight
//	bits 17-24 generation: changes when the machine trips or lets in again
//	bits 25-63 at, in units of 2^20 ns: the end of a cooldown, else the start
//	           of the phase or, in probation, of the step
type penalty uint64

const (
	penPhase      = 0x3
	penAttention  = 0x3f // phase or failures in a row: a success has work to do
	penTickShift  = 20
	penTimeShift  = 25
	penGenShift   = 17
	penProbeShift = 13
	penLevelShift = 9
	penSuccShift  = 6
	penFailShift  = 2
	probeMark     = 0xf
)

func (p penalty) phase() Phase { return Phase(p & penPhase) }
func (p penalty) probedOut() bool {
	return p.phase() == Cooldown && p.fails() == probeMark
}

// shown is the phase as people are told it.
func (p penalty) shown() Phase {
	if p.probedOut() {
		return ProbeOut
	}
	return p.phase()
}

func (p penalty) fails() int     { return int(p>>penFailShift) & 0xf }
func (p penalty) successes() int { return int(p>>penSuccShift) & 0x7 }
func (p penalty) level() int     { return int(p>>penLevelShift) & 0xf }
func (p penalty) probes() int    { return int(p>>penProbeShift) & 0xf }
func (p penalty) gen() uint8     { return uint8(p >> penGenShift) }
func (p penalty) at() int64      { return int64(p>>penTimeShift) << penTickShift }

func (p penalty) with(shift uint, mask penalty, v int) penalty {
	return p&^(mask<<shift) | penalty(v)<<shift&(mask<<shift)
}
func (p penalty) setPhase(v Phase) penalty   { return p&^penPhase | penalty(v) }
func (p penalty) setFails(v int) penalty     { return p.with(penFailShift, 0xf, min(v, 0xf)) }
func (p penalty) setSuccesses(v int) penalty { return p.with(penSuccShift, 0x7, min(v, 0x7)) }
func (p penalty) setLevel(v int) penalty     { return p.with(penLevelShift, 0xf, min(v, 0xf)) }
func (p penalty) setProbes(v int) penalty    { return p.with(penProbeShift, 0xf, max(0, min(v, 0xf))) }
func (p penalty) nextGen() penalty           { return p.with(penGenShift, 0xff, int(p.gen())+1) }

// setAt rounds up: a cooldown never ends early.
func (p penalty) setAt(ns int64) penalty {
	ticks := (max(ns, 0) + 1<<penTickShift - 1) >> penTickShift
	return p&(1<<penTimeShift-1) | penalty(ticks)<<penTimeShift
}

// penaltyRules are the coefficients of the machine, compiled from a Tuning.
type penaltyRules struct {
	tripFailures          int
	cooldownMin, cooldown int64 // ns; the second the most
	jitter                float64
	ramp                  int64 // ns
	steps                 int
	quota                 int
	observed, panicShare  float64
	maxOut                float64
}

func compilePenalty(t *Tuning) penaltyRules {
	return penaltyRules{
		tripFailures: t.TripFailures, cooldownMin: int64(t.CooldownMin), cooldown: int64(t.CooldownMax),
		jitter: t.CooldownJitter, ramp: int64(t.RampTime), steps: t.RampSteps, quota: t.ProbeQuota,
		observed: t.ObservedFactor, panicShare: t.PanicFactor, maxOut: t.MaxOut,
	}
}

// length of the cooldown at a back-off level of 1 or more, without jitter.
func (r *penaltyRules) length(level int) int64 {
	d := r.cooldownMin
	for range level - 1 {
		if d >= r.cooldown/2 {
			return r.cooldown
		}
		d *= 2
	}
	return min(d, r.cooldown)
}

// outcome is what one answer says to the machine.
type outcome struct {
	failed bool
	gen    uint8 // generation in which the request was picked
	sick   bool  // smoothed figures still say observed: a success does not end it
	u      uint64
}

// tripped makes the word of a fresh cooldown.
func (p penalty) tripped(now int64, r *penaltyRules, u uint64) penalty {
	level := min(p.level()+1, 15)
	d := float64(r.length(level)) * (1 + r.jitter*(2*unit(u)-1))
	return penalty(0).setPhase(Cooldown).setLevel(level).setAt(now+int64(d)).with(penGenShift, 0xff, int(p.gen())+1)
}

// probesFailed is the word after enough probes failed in a row, or one more
// did. trip and held as in next. The back-off stays: probes are not traffic.
func (p penalty) probesFailed(now, out int64) (next penalty, trip bool, held penalty) {
	if p.phase() == Cooldown { // its place is had
		return p.setFails(probeMark).setAt(max(p.at(), now+out)), false, p
	}
	next = penalty(0).setPhase(Cooldown).setFails(probeMark).setLevel(p.level()).setAt(now+out).with(penGenShift, 0xff, int(p.gen())+1)
	held = p
	if p.phase() == Healthy {
		held = p.setPhase(Observed).setAt(now)
	}
	return next, true, held
}

// letIn makes the word of a probation that begins now.
func (p penalty) letIn(now int64) penalty {
	return p.setPhase(Probation).setFails(0).setSuccesses(0).setProbes(0).nextGen().setAt(now)
}

// joined is the word of a worker that joins a running fleet.
func joined(now int64) penalty { return penalty(0).setPhase(Probation).setAt(now) }

// next is the machine: the word after an outcome. trip tells that the change
// takes the worker out, for which a place under MaxOut has to be had first;
// held is the word where there is none.
func (p penalty) next(now int64, o outcome, r *penaltyRules) (next penalty, trip bool, held penalty) {
	if o.gen != p.gen() || p.phase() == Cooldown {
		return p, false, p // begun before the last transition, or let in by panic
	}
	if !o.failed {
		return p.succeeded(now, o, r), false, p
	}
	held = p.setFails(p.fails() + 1)
	if p.phase() == Healthy {
		held = held.setPhase(Observed).setAt(now)
	}
	if p.phase() == Probation || held.fails() >= r.tripFailures {
		return p.tripped(now, r, o.u), true, held
	}
	return held, false, held
}

func (p penalty) succeeded(now int64, o outcome, r *penaltyRules) penalty {
	switch p.phase() {
	case Observed:
		p = p.setFails(0)
		if !o.sick {
			p = p.setPhase(Healthy).setAt(now)
		}
	case Probation:
		// A step up takes a success and a step's time since the one before: a
		// ramp during which nobody asked for anything has not passed.
		p = p.setFails(0)
		if n := p.successes(); n == 0 || n < r.steps && now-p.at() >= r.step() {
			p = p.setSuccesses(n + 1).setAt(now)
		}
		p = p.settle(now, r)
		if p.phase() == Healthy && o.sick {
			p = p.setPhase(Observed)
		}
	default:
		p = p.setFails(0)
	}
	return p
}

// settle does what time alone does: an over cooldown becomes probation, a
// finished probation health, and health takes back-off off again.
func (p penalty) settle(now int64, r *penaltyRules) penalty {
	switch p.phase() {
	case Cooldown:
		if now >= p.at() {
			return p.letIn(now)
		}
	case Probation:
		if p.successes() >= r.steps && now-p.at() >= r.step() {
			return p.setPhase(Healthy).setSuccesses(0).setProbes(0).setAt(now)
		}
	case Healthy:
		if p.level() > 0 && now-p.at() >= r.length(p.level()) {
			return p.setLevel(p.level() - 1).setAt(now)
		}
	}
	return p
}

// share is the part of its normal traffic a worker may have: 0 is out. probe
// tells that a place under the quota must be reserved with it.
func (p penalty) share(now int64, r *penaltyRules) (share float64, probe bool) {
	switch p.phase() {
	case Observed:
		return r.observed, false
	case Cooldown:
		if now < p.at() || r.quota == 0 {
			return 0, false
		}
		return 1 / float64(r.steps), true
	case Probation:
		if p.successes() == 0 && p.probes() >= r.quota {
			return 0, true
		}
		return p.ramp(r), p.successes() == 0
	}
	return 1, false
}

// step is the least time between two steps of a ramp, ns.
func (r *penaltyRules) step() int64 { return max(r.ramp/int64(r.steps), 1) }

// ramp is the share of a worker in probation: RampSteps steps up to 1, which
// there may have been more of before a Retune.
func (p penalty) ramp(r *penaltyRules) float64 {
	return min(float64(max(p.successes(), 1))/float64(r.steps), 1)
}

// reserveProbe takes one probe's place, opening the probation if the cooldown
// is over. ok is false where the quota is used up or the phase is another.
func (p penalty) reserveProbe(now int64, r *penaltyRules) (next penalty, ok bool) {
	if p.phase() == Cooldown {
		p = p.settle(now, r)
	}
	if p.phase() != Probation {
		return p, false
	}
	if p.successes() > 0 {
		return p, true
	}
	if p.probes() >= r.quota {
		return p, false
	}
	return p.setProbes(p.probes() + 1), true
}

// releaseProbe gives a place back, if it is still of this generation.
func (p penalty) releaseProbe(gen uint8) penalty {
	if p.gen() != gen || p.phase() != Probation {
		return p
	}
	return p.setProbes(p.probes() - 1)
}

// fleetOut counts the workers in cooldown on one lane against the cap. A
// place is taken before the word changes and given back after, so the number
// of words in cooldown never passes it.
type fleetOut struct {
	n, max atomic.Int64
}

func (f *fleetOut) take() bool {
	for {
		n := f.n.Load()
		if n >= f.max.Load() {
			return false
		}
		if f.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (f *fleetOut) give() { f.n.Add(-1) }

// capOut is how many of n penalties may take out.
func capOut(n int, share float64) int { return int(math.Floor(float64(n)*share + 1e-9)) }

// penaltyWord is the atomic word with the transitions that touch the cap.
type penaltyWord struct{ v atomic.Uint64 }

func (w *penaltyWord) load() penalty { return penalty(w.v.Load()) }

// change applies f until it sticks and returns the words before and after,
// keeping the cap's count.
func (w *penaltyWord) change(out *fleetOut, f func(p penalty) (next penalty, trip bool, held penalty)) (before, after penalty) {
	for {
		p := w.load()
		next, trip, held := f(p)
		if trip && !out.take() {
			next, trip = held, false
		}
		if next == p {
			return p, p
		}
		if w.v.CompareAndSwap(uint64(p), uint64(next)) {
			if p.phase() == Cooldown && next.phase() != Cooldown {
				out.give()
			}
			if trip && out.n.Load() > out.max.Load() && w.v.CompareAndSwap(uint64(next), uint64(held)) {
				out.give() // the cap shrank after the place was had
				next = held
			}
			return p, next
		}
		if trip {
			out.give()
		}
	}
}
