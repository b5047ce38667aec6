package ringwise

import (
	"math"
	"time"
)

// A clampedEWMA smooths one reported load metric, or one weight, so that a
// single report cannot swing the routing. It is not for failures: the lag and
// the clamp would delay taking a dead worker out, which goes by raw counts.
// Latency that this client measures does not belong here either: thirteen
// steps to notice a tenfold slowdown are too many.
//
// The zero value is empty. It costs no allocation and is not safe for
// concurrent use: the caller holds whatever serialises its writers.
type clampedEWMA struct {
	value  float64 // unit of the samples; meaningless until seeded
	seeded bool
}

// An ewmaRule holds the coefficients of a clampedEWMA. They come with each
// update, so that a retuned rule acts at once and no average keeps an old one.
// Whoever builds a rule validates it.
type ewmaRule struct {
	gain    float64 // share of the new sample, 0.3..0.5
	maxStep float64 // largest move of one update as a share of the reference
	floor   float64 // least reference, as a share of the metric's range
}

// defaultEWMARule has the slow end of the gains asked for, since reports repeat
// every 2..5 s. The floor lets a value that sits at 0 leave it: 20 % of nothing
// would hold it there for ever.
var defaultEWMARule = ewmaRule{gain: 0.3, maxStep: 0.20, floor: 0.05}

// update mixes in the sample x of a metric whose possible values lie span apart
// (100 for a percentage) and reports whether it was taken. The first sample
// becomes the value. A later one moves the value towards itself by at most
// maxStep * max(|value|, floor*span) and never past itself.
//
// It refuses, and keeps the old value, when x is not finite or a span or rule
// that is not finite would make the value so. A span of 0 leaves |value| alone
// as the reference.
func (e *clampedEWMA) update(x, span float64, rule ewmaRule) bool {
	if !(math.Abs(x) <= math.MaxFloat64) {
		return false
	}
	if !e.seeded {
		e.value, e.seeded = x, true
		return true
	}
	limit := rule.maxStep * max(math.Abs(e.value), rule.floor*span)
	// S + a*(x-S) is a*x + (1-a)*S with the step in plain sight to be clamped; it
	// also leaves a constant input exactly constant. Should x-S overflow, the
	// clamp makes it finite again.
	next := e.value + max(-limit, min(limit, rule.gain*(x-e.value)))
	if !(math.Abs(next) <= math.MaxFloat64) {
		return false
	}
	e.value = next
	return true
}

// current returns the smoothed value, or false before the first sample.
func (e *clampedEWMA) current() (float64, bool) { return e.value, e.seeded }

// decayGain is the weight 1-exp(-dt/tau) of a sample that comes dt after the one
// before it, for an average that forgets with time constant tau. Both are
// durations, so that no unit can be mixed up. The result is finite and in
// [0, 1]: a dt of 0, or below it because a clock stepped back, gives 0; a tau
// that is not positive means no memory, hence 1 for any later sample.
func decayGain(dt, tau time.Duration) float64 {
	if dt <= 0 {
		return 0
	}
	if tau <= 0 {
		return 1
	}
	// Expm1 keeps its digits where 1-exp(x) cancels: at dt = 1 us and tau = 1 h
	// the plain form may be off by 4e-7 of the gain, at 1 ns by 4e-4.
	return -math.Expm1(-float64(dt) / float64(tau))
}

const (
	// windowLen is how many samples a window60 holds: two minutes of reports at
	// the usual 2 s.
	windowLen = 60

	// windowDecay is the weight of a sample relative to the next newer one. At
	// 0.95 a sample counts half after 13.5 newer ones (27 s of 2 s reports), the
	// newest ten hold 42 % of a full window and the oldest one weighs 1/20 of the
	// newest. Nearer to 1 the mean would be a flat one, which tells of a load that
	// is over; at 0.9 the older half of the window would weigh 4 % in all and
	// need not be kept.
	windowDecay = 0.95

	// windowLimit bounds a sample, so that no mean of samples can overflow. No
	// metric comes near it.
	windowLimit = 1e300
)

// windowWeights[age] is windowDecay^age, windowSums[n] the sum of the first n.
var windowWeights, windowSums = func() (w [windowLen]float64, sum [windowLen + 1]float64) {
	for age := range windowLen {
		w[age] = math.Pow(windowDecay, float64(age))
		sum[age+1] = sum[age] + w[age]
	}
	return w, sum
}()

// A window60 keeps the last 60 samples of one metric of one worker; its value is
// their exponentially weighted mean, newest heaviest. Samples have the metric's
// own unit and any sign. Age counts in samples, not in time, so no clock can
// disturb it; whether the newest sample is still to be trusted is the caller's
// question.
//
// The zero value is empty. It takes 488 bytes, so a metric that a worker never
// reports should have none. It never allocates and is not safe for concurrent
// use: the caller holds whatever serialises its writers.
type window60 struct {
	ring [windowLen]float64
	next uint8 // where the next sample goes
	n    uint8 // samples held
}

// push adds a sample, over the oldest one when the window is full, and reports
// whether it did: one that is not finite, or beyond ±1e300, is refused and
// changes nothing. O(1).
func (w *window60) push(x float64) bool {
	// Written so that NaN fails.
	if !(math.Abs(x) <= windowLimit) {
		return false
	}
	w.ring[w.next] = x
	w.next++
	if w.next == windowLen {
		w.next = 0
	}
	w.n = min(w.n+1, windowLen)
	return true
}

// mean returns the weighted mean of the samples held, or false when there are
// none. It is finite and lies within the samples; equal samples give exactly
// that sample. O(60), about 100 ns: read it when publishing, not when picking.
func (w *window60) mean() (float64, bool) {
	if w.n == 0 {
		return 0, false
	}
	// The newest lie below next, the rest at the end of the ring. Two plain
	// loops, since a wrapping index costs more than the sum does.
	newest := w.ring[(int(w.next)+windowLen-1)%windowLen]
	sum, age := 0.0, 0
	for i := int(w.next) - 1; i >= 0; i-- {
		sum += windowWeights[age] * (w.ring[i] - newest)
		age++
	}
	for i := windowLen - 1; age < int(w.n); i-- {
		sum += windowWeights[age] * (w.ring[i] - newest)
		age++
	}
	// Relative to the newest sample: a metric at rest reads as exactly itself, so
	// a threshold it sits on is not crossed by rounding.
	return newest + sum/windowSums[w.n], true
}
