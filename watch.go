package ringwise

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// What the fold watches to tell people of: shares that saw, load that is far
// over its usual, scores that run against success. Nothing here is read by a
// pick but due.

const (
	watchTick    = int64(time.Second)
	watchCycle   = 10               // ticks: weights move, scores are checked, load is compared
	sawScales    = 5                // windows of 1, 2, 4, 8 and 16 s
	sawFlips     = 4                // changes of sign that make a saw
	sawStep      = 0.1              // least relative change that counts
	sawSigma     = 3                // and least multiple of the noise
	sawMemory    = 20               // values that the noise is remembered for
	sawLeast     = 12               // values, to know it
	loadEvery    = 5                // ticks between two samples of in flight
	loadSamples  = 60               // 5 min of them
	loadLeast    = 6                // to say anything
	loadFactor   = 8                // times the median is saturated
	checkPairs   = 30               // worker-windows a correlation needs
	checkMost    = 256              // and the most that are kept
	checkAnswers = 10               // answers that make a worker-window
	checkSigma   = 3.1              // below zero by more than chance does once in a thousand
	dueAfter     = 27 * time.Second // then a healthy worker is tried: P6 says within 30 s
	tryShare     = 0.01             // of all picks, for such tries
)

// saw follows one series of values. It is a saw once four changes over a
// tenth in a row each went against the one before. Shares move by chance as
// well, and by more than counting explains, so a change must also be over
// three times what the series differs from itself two values ago: that is
// noise, and in a saw next to nothing.
type saw struct {
	x, noise [2]float32 // the last value and the one before; variances
	apart    float32    // mean square of the difference over two values
	n        uint16
	sign     int8
	flips    uint8
}

// next takes in a value with the variance that counting gives it, and tells
// whether this is a saw.
func (s *saw) next(value, variance float64) bool {
	x, noise := float32(value), float32(variance)
	if s.n >= 2 {
		// A step is no noise: it counts as three times the usual at most.
		d := x - s.x[1]
		d2 := min(d*d, 9*s.apart+sawStep*sawStep/4*x*x)
		s.apart += (d2 - s.apart) / float32(min(s.n-1, sawMemory))
	}
	if s.n >= 1 {
		d, sign := x-s.x[0], int8(1)
		if d < 0 {
			sign = -1
		}
		switch {
		case max(d, -d) <= sawStep*(x+s.x[0])/2 || d*d <= sawSigma*sawSigma*max(noise+s.noise[0], s.apart):
			s.sign, s.flips = 0, 0
		case sign == -s.sign:
			s.sign, s.flips = sign, min(s.flips+1, sawFlips)
		default:
			s.sign, s.flips = sign, 0
		}
	}
	s.x, s.noise = [2]float32{x, s.x[0]}, [2]float32{noise, s.noise[0]}
	s.n = min(s.n+1, math.MaxUint16)
	return s.saws()
}

// saws is false until the series is known well enough.
func (s *saw) saws() bool { return s.flips >= sawFlips && s.n >= sawLeast }

// loadWindow keeps samples of what a worker has in flight.
type loadWindow struct {
	ring [loadSamples]uint16
	next uint8
	n    uint8
}

func (w *loadWindow) push(inFlight int) {
	w.ring[w.next] = uint16(min(inFlight, math.MaxUint16))
	w.next = (w.next + 1) % loadSamples
	w.n = min(w.n+1, loadSamples)
}

// median is false where there are too few samples.
func (w *loadWindow) median() (int, bool) {
	if w.n < loadLeast {
		return 0, false
	}
	s := w.ring
	slices.Sort(s[:w.n])
	return int(s[w.n/2]), true
}

// workerWatch is what is watched of one worker; the writer lock guards it,
// but for the atomics.
type workerWatch struct {
	issued   uint64 // as of the last tick
	lastPick int64  // tick in which it was picked last
	due      atomic.Bool

	acc   [sawScales]float64 // picks of the running windows
	saws  [sawScales]saw
	saws2 saw     // of the weight
	cycle float64 // picks of this cycle

	load   loadWindow
	median int
	limit  int // in flight over it is saturated; 0: not known

	answers, fails float64 // of this cycle
	score          float64 // at its start; NaN: none
	// Combined scores of sampled picks, in thousandths, where scorers have a
	// say.
	scored, scoredN atomic.Uint64

	weight  clampedEWMA // of WeightFeedback; empty counts as 1
	history float64     // error rate of the cycles before
	cycles  int
}

const weightMin = 0.1

// share is the part of its share that WeightFeedback leaves the worker.
func (w *workerWatch) share() float64 {
	if x, ok := w.weight.current(); ok {
		return clamp(x, weightMin, 1)
	}
	return 1
}

// learn moves the weight after a cycle: down where the errors were over what
// this worker's were before by more than chance, up where they were not. step
// is the most it moves, as a share of itself.
func (w *workerWatch) learn(step float64, samples int) {
	if step == 0 {
		w.weight, w.history, w.cycles = clampedEWMA{}, 0, 0
		return
	}
	if !w.weight.seeded {
		w.weight.update(1, 1, defaultEWMARule)
	}
	rate := min(w.fails/max(w.answers, 1), 1)
	enough := w.answers >= float64(samples)
	bad := enough && w.cycles > 0 && rate > w.history+3*math.Sqrt(w.history*(1-w.history)/w.answers)+2/w.answers
	switch rule := (ewmaRule{gain: defaultEWMARule.gain, maxStep: step, floor: weightMin}); {
	case bad:
		w.weight.update(weightMin, 1, rule)
	case enough || w.fails == 0:
		w.weight.update(1, 1, rule)
	}
	if enough {
		// What is far over the history moves it little, or ten bad cycles were
		// the new normal.
		if w.cycles == 0 {
			w.history = rate
		}
		w.history += 0.1 * (min(rate, 2*w.history+0.001) - w.history)
		w.cycles++
	}
}

// pair is one worker-window: the score at its start, and the share of its
// requests that succeeded.
type pair struct{ score, success float64 }

// selfCheck keeps the newest worker-windows.
type selfCheck struct {
	pairs [checkMost]pair
	next  int
	n     int
	rho   float64
	used  int
	bad   bool
}

func (c *selfCheck) push(p pair) {
	c.pairs[c.next] = p
	c.next = (c.next + 1) % checkMost
	c.n = min(c.n+1, checkMost)
}

// check correlates the newest k and tells whether scores run against success.
func (c *selfCheck) check(k int) bool {
	k = min(c.n, clamp(k, checkPairs, checkMost))
	c.rho, c.used, c.bad = 0, k, false
	if k < checkPairs {
		return false
	}
	x, y := make([]float64, k), make([]float64, k)
	for i := range k {
		p := c.pairs[(c.next-1-i+2*checkMost)%checkMost]
		x[i], y[i] = p.score, p.success
	}
	c.rho = spearman(x, y)
	t := c.rho * math.Sqrt(float64(k-2)/max(1-c.rho*c.rho, 1e-9))
	c.bad = c.rho < 0 && studentZ(t, float64(k-2)) < -checkSigma
	return c.bad
}
