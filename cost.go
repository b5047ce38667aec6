package ringwise

import (
	"math"
	"time"
)

// The live cost: expected latency times load, per worker and lane, from what
// this client saw. docs/policy.md derives it; each constant is a field of
// Tuning. A worker's weight is cost^-k with k = 10/Temperature.

// coefficients are a Tuning compiled to what the hot paths multiply with.
type coefficients struct {
	tuning Tuning
	rules  penaltyRules

	k                 int     // 10/Temperature if whole, 1..20; else 0
	kf                float64 // 10/Temperature
	gapMemory         float64
	silence           float64
	load              float64
	fbWeight, fbInv   float64 // fbInv: 1/ns
	tauInv            float64 // 1/ns
	gainMin, gainMax  float64
	gainFrom, gainTo  float64 // gaps, in time constants, at which the limits begin
	failGain, failCap float64
	timeout           int64
	timeoutMeta       uint64             // as in Choice.meta
	memInv            [memLevels]float32 // 1/ns, by memory level
	memNS             [memLevels]float32
	memTop            int // the level of MemoryMax
	memFail           int // the level after a failure
}

// trusts tells whether a report taken in at ns at is within its trust window,
// where its worker's come every ns.
func (c *coefficients) trusts(at, every, now int64) bool {
	return float64(now-at) <= max(float64(c.tuning.LoadTrust), c.tuning.TrustIntervals*float64(every))
}

// trustsKeys is the same for the lists of a report, which change slowly.
func (c *coefficients) trustsKeys(at, every, now int64) bool {
	return at > 0 && (now-at <= int64(c.tuning.KeyTrust) || c.trusts(at, every, now))
}

// fleet is one lane's figures over all workers as of the last fold.
type fleet struct {
	mean float64 // ns, of successful answers: RTT, or the service time told with it
	wait float64 // ns, mean of the RTT over that service time
	inv  float64 // 1/ref, ref the mean cost
	bare float64 // the same of the cost without load
	rif  float32 // mean of the requests that workers say are in them
	slow float64 // 2*mean: where memory grows
	n    float64 // samples in mean, capped: 0 is none yet
}

const (
	memLevels = 64
	memStep   = 1.5
	gapGain   = 0.1
	gapMax    = 2e9 // ns: longer gaps between answers say nothing more
	gapFine   = 4e6 // ns: shorter ones are not told apart
)

func compile(t Tuning) *coefficients {
	c := &coefficients{
		tuning: t, rules: compilePenalty(&t),
		k: exponent(t.Temperature), kf: 10 / t.Temperature,
		gapMemory: t.GapMemory, silence: t.SilenceFactor, load: t.LoadWeight,
		fbWeight: t.FeedbackWeight, fbInv: 1 / float64(t.FeedbackDecay),
		tauInv: 1 / float64(t.LatencyTau), gainMin: t.GainMin, gainMax: t.GainMax,
		failGain: t.FailureGain, failCap: t.FailureCap, timeout: int64(t.RequestTimeout), timeoutMeta: timeoutMeta(int64(t.RequestTimeout)),
	}
	c.gainFrom, c.gainTo = -math.Log1p(-t.GainMin), -math.Log1p(-t.GainMax)
	m, failMem := float64(t.MemoryMin), float64(t.FailureMemory)
	top := float64(t.MemoryMax)
	c.memTop, c.memFail = memLevels-1, memLevels-1
	for i := range memLevels {
		if m >= top && c.memTop == memLevels-1 {
			c.memTop = i
		}
		if m >= failMem && c.memFail == memLevels-1 {
			c.memFail = i
		}
		c.memNS[i] = float32(min(m, top))
		c.memInv[i] = float32(1 / min(m, top))
		m *= memStep
	}
	c.memFail = min(c.memFail, c.memTop)
	return c
}

// The latency word: 24 bits of a float32 latency in ns above 40 bits of the
// time of the last answer in 1024 ns (13 days, then it wraps, which a worker
// unused for so long does not notice).
const (
	latTimeBits = 40
	latTimeMask = 1<<latTimeBits - 1
	latTick     = 10
	latAhead    = 1 << 32 // 73 min
)

// The sign of a latency is 0, so the float32 is shifted over it: 8 bits of
// exponent and 16 of mantissa, exact to 0.001 %.
func packLat(lat float64, at int64) uint64 {
	return uint64(math.Float32bits(float32(lat))<<1>>8)<<latTimeBits | uint64(at>>latTick)&latTimeMask
}

func unpackLat(w uint64) float64 {
	return float64(math.Float32frombits(uint32(w>>latTimeBits) << 8 >> 1))
}

// ageOf is the ns since the word's time, never under zero. A time that is
// ahead of now by up to latAhead, as after an RTT that was longer than it
// took, is now; all others are past, so that one of a week ago is that old.
func ageOf(w uint64, now int64) int64 {
	age := (uint64(now>>latTick) - w + latAhead) & latTimeMask
	return max(int64(age)-latAhead, 0) << latTick
}

// The memory word: 1/memory in 1/ns as a float32, the mean gap between
// answers in ns as 24 bits of a float32, the memory level in 8 bits.
func packMem(inv float32, gap float64, level int) uint64 {
	return uint64(math.Float32bits(inv))<<32 | uint64(math.Float32bits(float32(gap))<<1>>8)<<8 | uint64(level)
}

func memInvOf(w uint64) float64 { return float64(math.Float32frombits(uint32(w >> 32))) }
func memGapOf(w uint64) float64 {
	return float64(math.Float32frombits(uint32(w>>8) & 0xffffff << 7))
}
func memLevelOf(w uint64) int { return int(w & (memLevels - 1)) }

// fadeTable is exp(-x) at x = i/16 up to 16, where it counts as 0. It is
// longer than is used, so that an index of 8 bits and one needs no check.
var fadeTable = func() (t [fadeEnd + 2]float32) {
	for i := range fadeEnd {
		t[i] = float32(math.Exp(-float64(i) / fadeSteps))
	}
	return t
}()

const (
	fadeSteps = 16
	fadeEnd   = 256
	fadeLimit = float64(fadeEnd) / fadeSteps
)

// fade is exp(-x) for x >= 0, exact to 0.05 % of 1.
func fade(x float64) float64 {
	if !(x < fadeLimit) {
		return 0
	}
	x *= fadeSteps
	i := uint8(x)
	a := float64(fadeTable[i])
	return a + (x-float64(i))*(float64(fadeTable[int(i)+1])-a)
}

// latency is what a request sent to the worker now is expected to take before
// load, in ns: its EWMA, faded towards base while it is idle, and never less
// than how long it has been silent with work in hand.
func (c *coefficients) latency(ls *laneState, base float64, busy int64, inFlight uint64, now int64) float64 {
	w := ls.lat.Load()
	if w == 0 {
		return base
	}
	lat := unpackLat(w)
	age := ageOf(w, now)
	if inFlight == 0 {
		return base + (lat-base)*fade(float64(age)*memInvOf(ls.mem.Load()))
	}
	if q := float64(min(age, now-busy)); q > c.silence*lat {
		return q
	}
	return lat
}

// power is x^k. Where k is not whole, so 10/T is not, it costs a log and an
// exp.
func (c *coefficients) power(x float64) float64 {
	switch c.k {
	case 0:
		return math.Exp(c.kf * math.Log(x))
	}
	p := 1.0
	for k := c.k; k > 0; k >>= 1 {
		if k&1 != 0 {
			p *= x
		}
		x *= x
	}
	return p
}

// feedback is the load the worker said it had, fading to what the fleet has.
func (c *coefficients) feedback(ls *laneState, f *fleet, now int64) float64 {
	w := ls.fb.Load()
	e := fade(float64(ageOf(w, now)) * c.fbInv)
	return c.fbWeight * (unpackLat(w)*e + float64(f.rif)*(1-e))
}

// train is one answer of rtt ns at now: latency, memory and gap. A lost race
// between two answers loses one sample, which is harmless (DESIGN.md).
func (c *coefficients) train(ls *laneState, f *fleet, now int64, rtt, service float64) {
	w, m := ls.lat.Load(), ls.mem.Load()
	lat := rtt
	since := int64(0)
	if w != 0 {
		since = ageOf(w, now)
		if lat = unpackLat(w); lat > f.slow && ls.pen.load().fails() > 0 {
			// The first success after a failure: that was a price, not a latency,
			// so what had faded of it when the request was picked is forgotten.
			// Else one failure costs a worker with little traffic six good answers,
			// each remembered longer than the one before. (For latencies that were
			// measured the same costs 10 % of p99 where speeds differ.)
			idle := max(float64(since)-rtt, 0)
			lat = f.mean + (lat-f.mean)*fade(idle*memInvOf(m))
		}
		lat += c.gain(since) * (rtt - lat)
	}
	if service > 0 {
		lat = min(service, c.failCap*f.mean) // a worker may be wrong about itself
	}
	ls.lat.Store(packLat(lat, now))
	level := memLevelOf(m)
	next := level
	if lat > f.slow {
		if next < c.memTop {
			next++
		}
	} else if next > 0 {
		next--
	}
	gap := memGapOf(m)
	if next == level && since < gapFine && gap < gapFine && m != 0 {
		return // a gap so short never is what memory lasts: spare the store
	}
	if w != 0 {
		gap += gapGain * (float64(min(since, gapMax)) - gap)
	}
	ls.mem.Store(c.memory(gap, next))
}

// gain of a sample that comes so many ns after the one before.
func (c *coefficients) gain(since int64) float64 {
	switch x := float64(since) * c.tauInv; {
	case x <= c.gainFrom:
		return c.gainMin
	case x >= c.gainTo:
		return c.gainMax
	case x < 0.3:
		// The table is right to 0.05 % of 1, which is 3 % of a small gain.
		return x * (1 - x*(0.5-x*(1.0/6)))
	default:
		return 1 - fade(x)
	}
}

func (c *coefficients) memory(gap float64, level int) uint64 {
	inv := c.memInv[level]
	if g := c.gapMemory * gap; g > float64(c.memNS[level]) {
		inv = float32(1 / g)
	}
	return packMem(inv, gap, level)
}

// censored is an answer that would have taken at least elapsed ns: of a loser
// of a hedge (gain 1, remembered longer) or of a caller's short deadline.
func (c *coefficients) censored(ls *laneState, f *fleet, now int64, elapsed float64, superseded bool) {
	for {
		w, m := ls.lat.Load(), ls.mem.Load()
		lat, level := unpackLat(w), memLevelOf(m)
		if w == 0 {
			lat = f.mean
		}
		switch age := float64(ageOf(w, now)); {
		case superseded && w != 0 && min(lat, elapsed) > f.slow && age >= elapsed:
			// Picked when it was known to be slow, as far as that had not faded,
			// and lost again: so it is slower than that, by how much no loser
			// tells. Were a loss no longer than what is booked no sample, the
			// time of the last one would stand still, and what has faded would
			// draw picks that all end in a copy.
			lat = max(elapsed, lat, min(memStep*lat, c.failCap*f.mean))
		case elapsed <= lat:
			return
		case superseded:
			lat = elapsed
		default:
			lat += c.gain(int64(age)) * (elapsed - lat)
		}
		if superseded {
			level = min(level+1, c.memTop)
		}
		if ls.lat.CompareAndSwap(w, packLat(lat, now)) {
			ls.mem.Store(c.memory(memGapOf(m), level))
			return
		}
	}
}

// punish is a failure: it costs what the caller waited or would have, up to
// FailureCap fleet means, and is remembered for FailureMemory, however long
// slowness was remembered before: at 10 s nobody would ask a failing worker
// often enough to trip it. It is no answer: where others are in flight that
// have been silent for so many ns, they are silent still. It retries until
// stored.
func (c *coefficients) punish(ls *laneState, f *fleet, now int64, rtt, timeout, silent float64) {
	sample := min(max(rtt, timeout), c.failCap*f.mean)
	for {
		w, m := ls.lat.Load(), ls.mem.Load()
		lat := f.mean
		gain := c.failGain
		if w != 0 {
			lat = unpackLat(w)
			gain = max(gain, c.gain(ageOf(w, now)))
		}
		was := lat
		lat = max(lat, lat+gain*(sample-lat))
		next := packLat(lat, now)
		switch {
		case silent <= c.silence*was:
		case silent > c.silence*lat:
			next = next&^latTimeMask | w&latTimeMask
		default:
			next = packLat(max(lat, silent), now)
		}
		if !ls.lat.CompareAndSwap(w, next) {
			continue
		}
		level := c.memFail // back-off is the cooldown's, which takes three of these
		ls.mem.Store(c.memory(memGapOf(m), level))
		return
	}
}

// points turns a cost relative to the fleet's mean into score points: par is
// 70, 7 points are a factor 2, clamped to 0..100.
func points(rel float64) float64 { return min(max(rawPoints(rel), 0), 100) }

func rawPoints(rel float64) float64 {
	if !(rel > 0) {
		return par
	}
	return par - 10*math.Log(rel)
}

const par = 70

// prior is the factor on a worker's base for a reported p99 against the
// fleet's geometric mean, both in ns.
func prior(p99, geo time.Duration, exponent float64) float64 {
	if p99 <= 0 || geo <= 0 {
		return 1
	}
	return math.Pow(min(max(float64(p99)/float64(geo), 0.25), 20), exponent)
}
