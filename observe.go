package ringwise

import (
	"context"
	"errors"
	"time"
)

// Choice is the worker named for one request, with its reservation. It is a
// small value, safe to copy: however many copies are closed, the first one
// counts. Close it exactly once, with Router.Observe, Done, DoneWith or
// Cancel; one that is forgotten gives its reservation back after one to two
// request time-outs, and counts as a leak. The zero Choice is harmless.
//
// It has four words, so that it travels in registers: a fifth costs 30 ns a
// pick (TestChoice_StaysInRegisters).
type Choice struct {
	n     *node
	lease uint64
	start int64 // ns since the router was made
	meta  uint64
}

func (c Choice) timeout() int64 { return int64(c.meta>>metaTimeoutShift) * 1000 }

// ID is the worker's ID; empty for the zero Choice.
func (c Choice) ID() string {
	if c.n == nil {
		return ""
	}
	return c.n.ID
}

// Addr is the worker's Addr.
func (c Choice) Addr() string {
	if c.n == nil {
		return ""
	}
	return c.n.Addr
}

// String is the ID and the Addr where there is one, "no worker" for the zero
// Choice.
func (c Choice) String() string {
	switch {
	case c.n == nil:
		return "no worker"
	case c.n.Addr == "":
		return c.n.ID
	}
	return c.n.ID + " " + c.n.Addr
}

// Worker is the worker as it was in the topology of the pick.
func (c Choice) Worker() Worker {
	if c.n == nil {
		return Worker{}
	}
	return c.n.Worker
}

// Ref names the worker in Tried and Among.
func (c Choice) Ref() Ref {
	if c.n == nil {
		return Ref{}
	}
	return c.n.ref(c.n.Role)
}

// IsZero tells a Choice that names nobody.
func (c Choice) IsZero() bool { return c.n == nil }

// Relaxed is the rules that had to be given up for this choice.
func (c Choice) Relaxed() Relaxed { return Relaxed(c.meta>>metaRelaxedShift) & 0x3f }

// LowConfidence tells that the topology was past its TTL.
func (c Choice) LowConfidence() bool { return c.meta&metaLowConfidence != 0 }

// Saturated tells that each candidate had over 8 times its usual load in
// flight: the 5-minute median of what this client has on it, at least 1. More
// requests help nobody then; shed some, the least important first.
func (c Choice) Saturated() bool { return c.meta&metaSaturated != 0 }

// Canary tells that the candidate coefficients of a canary made the choice.
func (c Choice) Canary() bool { return c.meta&metaCanary != 0 }

func (c Choice) group() int {
	switch {
	case c.meta&metaCounted == 0:
		return groupNone
	case c.meta&metaCanary == 0:
		return groupControl
	}
	return groupCanary
}

// Done closes the choice; the RTT is the time since the pick. Meant for defer:
//
//	defer func() { c.Done(err) }()
func (c Choice) Done(err error) { c.DoneWith(Outcome{Err: err}) }

// DoneWith closes the choice with all that is known of the end.
func (c Choice) DoneWith(o Outcome) {
	if c.n != nil {
		c.n.hub.finish(c, &o)
	}
}

// Cancel closes the choice without a verdict: the caller gave up.
func (c Choice) Cancel() { c.DoneWith(Outcome{Verdict: Ignore}) }

// FirstByte tells that the answer has begun: it trains the worker's latency
// and ends its silence, and the request stays in flight until it is closed.
func (c Choice) FirstByte() {
	if c.n == nil {
		return
	}
	st, ln := c.n.st, leaseLaneOf(c.lease)
	was := st.mark(c.lease, uint32(c.meta&metaPosMask), leaseFirstByte)
	if was == 0 || was&leaseFirstByte != 0 {
		return
	}
	h := c.n.hub
	sn, now := h.snap.Load(), h.now()
	sn.coef.train(&st.lane[ln], &sn.fleet[ln], now, float64(clamp(now-c.start, 1, maxSample)), 0)
	st.record(ln, time.Duration(now-c.start))
}

// Extend keeps the reservation from expiring until the choice is closed, for
// streams and calls longer than the request time-out.
func (c Choice) Extend() {
	if c.n != nil {
		c.n.st.mark(c.lease, uint32(c.meta&metaPosMask), leaseStream)
	}
}

// hedgeDelay is when the copy of a request is due, after its pick.
func (h *hub) hedgeDelay(ln int) (time.Duration, bool) {
	sn := h.snap.Load()
	t, f := &sn.coef.tuning, &sn.fleet[ln]
	if t.HedgeBudget == 0 || f.n == 0 {
		return 0, false
	}
	h.hedge.tokens.earn(t.HedgeBudget)
	return time.Duration(h.hedge.factor(t) * (f.mean + f.wait)), true
}

// HedgeAfter is for callers who send copies themselves: the time after the
// pick at which a copy of the request is due, if there is no answer by then;
// Router.Hedge then names its worker. It is false for requests that are not
// Idempotent or no reads, without a budget, and before the first answer. Ask
// once a request: each call earns a part of a copy.
func (c Choice) HedgeAfter() (time.Duration, bool) {
	if c.n == nil || c.meta&metaHedgeable == 0 {
		return 0, false
	}
	return c.n.hub.hedgeDelay(leaseLaneOf(c.lease))
}

// observe is the short path of a closed choice: an answer with its RTT.
func (h *hub) observe(c Choice, rtt time.Duration, err error) {
	if err != nil || rtt <= 0 || c.meta&metaCounted != 0 {
		h.finish(c, &Outcome{Err: err, RTT: rtt})
		return
	}
	st, sn := c.n.st, h.snap.Load()
	l := st.take(c.lease, uint32(c.meta&metaPosMask))
	if l == 0 || l&(leaseExpired|leaseFirstByte|leaseProbe) != 0 || sn.closed {
		h.finishTaken(c, l, &Outcome{RTT: rtt})
		return
	}
	now := h.endOf(c, rtt)
	ln := leaseLaneOf(l)
	st.closed[ln].Add(closedUnits(leaseSize(l), int64(rtt)))
	ls := &st.lane[ln]
	if sn.closed {
		return
	}
	sn.coef.train(ls, &sn.fleet[ln], now, float64(min(int64(rtt), maxSample)), 0)
	st.record(ln, rtt)
	st.heard(ln, now)
	if ls.pen.load()&penAttention != 0 {
		h.succeeded(c.n, sn, ln, now, leaseGen(l), false)
	}
	if now >= h.nextFold.Load() {
		h.foldDue(now)
	}
}

// endOf is the time of the end: start + RTT, so that no clock is read. An RTT
// longer than any time-out may be a mistake that would put the worker's last
// answer into the future, so then the clock decides.
func (h *hub) endOf(c Choice, rtt time.Duration) int64 {
	now := c.start + int64(rtt)
	if int64(rtt) > c.timeout() || now < c.start {
		now = min(max(now, c.start), max(h.now(), c.start))
	}
	return now
}

// maxSample is the most ns that an RTT counts as: a wild one would be
// remembered as years, and overflow sums.
const maxSample = int64(100 * time.Second)

// closedUnits is what the closed word grows by: size units, each of rtt ns.
// The sum is in 32 ns, so that a wild RTT does not fill it at maxSample.
func closedUnits(size uint64, rtt int64) uint64 {
	return size + uint64(clamp(rtt, 0, maxSample))>>5*size<<24
}

// finish closes a choice, whatever the outcome.
func (h *hub) finish(c Choice, o *Outcome) Verdict {
	l := uint64(0)
	if c.meta&metaReserved != 0 {
		l = c.n.st.take(c.lease, uint32(c.meta&metaPosMask))
	}
	return h.finishTaken(c, l, o)
}

func (h *hub) finishTaken(c Choice, l uint64, o *Outcome) Verdict {
	if l == 0 {
		h.counters.doubleDone.Add(1)
		return 0
	}
	rtt := o.RTT
	var now int64
	if rtt > 0 {
		now = h.endOf(c, rtt)
	} else {
		now = max(h.now(), c.start)
		rtt = time.Duration(now - c.start)
	}
	sn, ln := h.snap.Load(), leaseLaneOf(l)
	e := end{n: c.n, lane: ln, now: now, start: c.start, rtt: rtt, gen: leaseGen(l), timeout: c.timeout(),
		size: leaseSize(l), units: l&leaseExpired == 0, probe: l&(leaseProbe|leaseExpired) == leaseProbe,
		trained: l&leaseFirstByte != 0 || o.Batch > 0, begun: l&leaseFirstByte != 0, copy: c.meta&metaCopy != 0}
	if l&leaseExpired != 0 {
		h.counters.lateDone.Add(1)
	}
	e.verdict, e.short = h.verdict(o, rtt, e.timeout)
	h.settle(sn, &e, o)
	if c.meta&metaCounted != 0 {
		sn.trial.ended(c.group(), c.start, e.verdict, rtt, !e.trained)
	}
	if now >= h.nextFold.Load() {
		h.foldDue(now)
	}
	return e.verdict
}

// end is one closed or lease-less request.
type end struct {
	n          *node
	lane       int
	now, start int64
	rtt        time.Duration
	timeout    int64
	gen        uint8
	size       uint64
	units      bool // give them back
	probe      bool // give its place back
	trained    bool // its latency says nothing, or has been told already
	begun      bool // by its first byte
	copy       bool // of another, as a hedge
	short      bool // a caller's deadline ended it before the time-out
	verdict    Verdict
}

// verdict of an outcome. short is a deadline of the caller's that came before
// the request time-out: a latency of at least so much, not a failure.
func (h *hub) verdict(o *Outcome, rtt time.Duration, timeout int64) (v Verdict, short bool) {
	v = o.Verdict
	if v == 0 || v >= verdicts {
		if o.Err == nil {
			return OK, false
		}
		if errors.Is(o.Err, context.DeadlineExceeded) && int64(rtt) < timeout {
			h.counters.deadlines.Add(1)
			return Ignore, true
		}
		v = h.classify.of(o.Err, &h.counters.plugPanics)
	}
	h.counters.verdicts[v].Add(1)
	return v, false
}

// settle books one end: units, latency, penalty.
func (h *hub) settle(sn *snapshot, e *end, o *Outcome) {
	st, f, c := e.n.st, &sn.fleet[e.lane], sn.coef
	ls := &st.lane[e.lane]
	if sn.closed {
		if e.units {
			st.closed[e.lane].Add(closedUnits(e.size, 0))
		}
		return
	}
	if e.verdict == Unknown {
		st.unknown[e.lane].Add(e.size)
		if sn.flagsOf(e.n)&(flagUnknownCounts<<e.lane) != 0 {
			e.verdict = Fault
		}
	}
	rtt := float64(clamp(int64(e.rtt), 1, maxSample))
	sample, neutral := f.mean, true // in the fleet's mean
	failed := false
	switch e.verdict {
	case OK:
		if e.trained {
			st.busy.Store(e.now) // an answer all the same: it ends silence
			if w := ls.lat.Load(); e.begun && w != 0 {
				sample, neutral = unpackLat(w), false
			}
			break
		}
		service := 0.0
		if fb := o.Feedback; fb.ServiceTime > 0 {
			service = float64(fb.ServiceTime)
			in := min(fb.InService, maxInService)
			if !(in > 0.001) { // NaN is none
				in = 0.001
			}
			ls.fb.Store(packLat(in, e.now))
			h.fbSeen.Store(true)
		}
		c.train(ls, f, e.now, rtt, service)
		st.heard(e.lane, e.now)
		st.record(e.lane, e.rtt)
		if sample, neutral = rtt, false; service > 0 {
			sample = service
			st.waited[e.lane].Add(e.size * uint64(max(rtt-service, 0)))
		}
	case Unknown:
		// An error that may be the application's: an answer, but one that
		// comes fast must not make the worker look fast.
		if !e.trained {
			lat := f.mean
			if w := ls.lat.Load(); w != 0 {
				lat = unpackLat(w)
			}
			c.train(ls, f, e.now, max(rtt, lat), 0)
		}
	case Fault, Broken, Overload:
		failed = true
		if until := e.now + int64(clamp(o.RetryAfter, 0, maxRetryAfter)); e.verdict == Overload &&
			(o.RetryAfter > 0 || until > st.retryAt.Load()) {
			st.retryAt.Store(until)
		}
		st.failed[e.lane].Add(e.size)
		silent := 0.0
		if w := ls.lat.Load(); w != 0 && st.inFlight() > int(e.size) {
			silent = float64(min(ageOf(w, e.now), e.now-st.busy.Load()))
		}
		c.punish(ls, f, e.now, rtt, float64(e.timeout), silent)
	case Superseded:
		c.censored(ls, f, e.now, rtt, true)
		h.hedge.learn(&c.tuning, !e.copy)
	case Ignore:
		if e.short {
			c.censored(ls, f, e.now, rtt, false)
		}
	case StaleTopology:
		h.refresh(Refresh{Reason: RefreshStaleVerdict, Worker: e.n.ID, Leader: o.Leader}, e.now)
	}
	if e.units {
		if neutral {
			st.neutral[e.lane].Add(e.size)
		}
		if !e.verdict.judges() {
			st.void[e.lane].Add(e.size)
		}
		st.closed[e.lane].Add(closedUnits(e.size, int64(sample)))
	} else if e.verdict.judges() {
		st.void[e.lane].Add(-e.size) // it expired as no answer, and is one
	}
	switch {
	case e.verdict == Overload:
		h.hold(e)
	case failed:
		h.failed(e, sn, e.lane, e.gen)
		if other := 1 - e.lane; e.verdict == Broken {
			st.failed[other].Add(1)
			h.failed(e, sn, other, st.lane[other].pen.load().genAt(e.start))
		}
	case e.verdict == OK || e.verdict == Unknown:
		if ls.pen.load()&penAttention != 0 {
			h.succeeded(e.n, sn, e.lane, e.now, e.gen, e.probe)
		}
	case e.probe:
		h.change(e.n, e.lane, e.now, func(p penalty) (penalty, bool, penalty) { return p.releaseProbe(e.gen), false, p })
	}
}

// genAt is the generation a request begun at start belongs to.
func (p penalty) genAt(start int64) uint8 {
	if p.phase() == Probation && start < p.at() {
		return p.gen() - 1
	}
	return p.gen()
}

func (h *hub) failed(e *end, sn *snapshot, ln int, gen uint8) {
	o := outcome{failed: true, gen: gen, u: mix64(uint64(e.now) ^ uint64(e.n.slot)<<48 ^ h.salt)}
	h.change(e.n, ln, e.now, func(p penalty) (penalty, bool, penalty) {
		return p.releaseProbeIf(e.probe, gen).next(e.now, o, &sn.coef.rules)
	})
}

func (h *hub) succeeded(n *node, sn *snapshot, ln int, now int64, gen uint8, probe bool) {
	o := outcome{gen: gen, sick: sn.flagsOf(n)&(flagSick<<ln) != 0 || n.st.retryAt.Load() > now}
	h.change(n, ln, now, func(p penalty) (penalty, bool, penalty) {
		return p.releaseProbeIf(probe, gen).next(now, o, &sn.coef.rules)
	})
}

// hold makes both lanes look at retryAt.
func (h *hub) hold(e *end) {
	for ln := range lanes {
		h.change(e.n, ln, e.now, func(p penalty) (penalty, bool, penalty) {
			p = p.releaseProbeIf(e.probe && ln == e.lane, e.gen)
			if p.phase() == Healthy {
				p = p.setPhase(Observed).setAt(e.now)
			}
			return p, false, p
		})
	}
}

func (p penalty) releaseProbeIf(probe bool, gen uint8) penalty {
	if probe {
		return p.releaseProbe(gen)
	}
	return p
}

// change moves one lane's penalty word and tells the hook of a new phase.
func (h *hub) change(n *node, ln int, now int64, f func(p penalty) (penalty, bool, penalty)) (before, after penalty) {
	before, after = n.st.lane[ln].pen.change(&h.out[ln], f)
	if before.shown() == after.shown() {
		return before, after
	}
	if after.phase() == Probation {
		// What it was like before the cooldown says nothing now, and at its
		// old latency nobody would ask it: probes need picks.
		n.st.lane[ln].lat.Store(0)
		n.st.lane[ln].mem.Store(0)
	}
	t := Transition{Worker: n.ID, Write: ln == laneWrite, From: before.shown(), To: after.shown()}
	if after.phase() == Cooldown {
		h.counters.trips.Add(1)
		t.Until = time.Duration(max(after.at()-now, 0))
	}
	if h.hooks.Transition != nil {
		h.enqueue(event{transition: t, kind: eventTransition})
	}
	return before, after
}

// flagsOf are a node's flags in this snapshot; none once it has left.
func (sn *snapshot) flagsOf(n *node) uint32 {
	if int(n.slot) < len(sn.cols) && sn.cols[n.slot].st == n.st {
		return sn.cols[n.slot].flags
	}
	return 0
}
