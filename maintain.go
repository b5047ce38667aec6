package ringwise

import (
	"context"
	"math"
	"time"
)

const (
	rateWindow     = 5 * time.Second // half-life of the error rates
	foldBatch      = 32              // workers an Observe or Report folds at most
	histogramWidth = 15 * time.Second
	forgetAfter    = 16 // half request time-outs until an expired lease is forgotten
	idleInterval   = time.Second
	feedbackTrust  = 5 * time.Second
	slowFolds      = 3                // folds with answers, or silence, that make a worker slow
	forgetSlow     = 25 * time.Second // a slow worker is tried every 30 s (P6)
	intervalGain   = 0.2              // of the smoothed report interval
)

// folding is a fold under way, guarded by the writer lock: Observe does it a
// few workers at a time.
type folding struct {
	cursor int
	start  int64
	prev   int64 // when the one before began
	busy   bool  // something changed, so publish
	sums   [lanes]struct {
		n, sum, wait        float64 // samples, their RTTs or service times, and what RTTs were over these
		cost, bare, workers float64
		rif, rifN           float64
	}
	geo, geoN float64 // of reported p99s
}

// Maintain does what depends on time alone: it folds what was observed into
// means, flags and ages, moves penalties on, expires reservations, publishes
// a snapshot and runs hooks. It returns when it wants to be called next. now
// is of the router's clock. Without Maintain, Observe and Report do the same
// in small pieces, as far as there is traffic. Safe for concurrent use; about
// 0.1 us a worker.
//
// A reservation expires in the third pass after its pick, each half a
// Tuning.RequestTimeout or more after the one before: a single call after a
// long pause shows nothing in Status.Leaked.
func (r *Router) Maintain(now time.Time) time.Duration {
	ns := r.at(now)
	interval := r.wholeFold(ns, r.now())
	r.afterFold(ns)
	return interval
}

// wholeFold folds all workers and keeps what it took since began.
func (r *Router) wholeFold(now, began int64) time.Duration {
	r.mu.Lock()
	interval := r.foldLocked(now, math.MaxInt)
	r.mu.Unlock()
	r.foldTook.Store(max(r.now()-began, 0)) // the caller's code, so not under mu
	return interval
}

// Run calls Maintain until ctx ends or the Router is closed, which it reports
// as ctx.Err() or nil: go r.Run(ctx). One is enough.
func (r *Router) Run(ctx context.Context) error {
	r.runners.Add(1)
	defer r.runners.Add(-1)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.done:
			return nil
		case <-r.wake: // an Observe was first, as after an idle second
			r.tell()
			continue
		case <-timer.C:
		}
		now := r.now() // the caller's code, so not under mu
		interval := r.wholeFold(now, now)
		r.afterFold(now)
		timer.Reset(interval)
	}
}

// afterFold does what a fold brings about: mu is not held.
func (r *Router) afterFold(now int64) {
	r.ownAfterFold(now)
	r.tell()
}

// tell runs the caller's code, the slowest of it at the end.
func (r *Router) tell() {
	r.drain()
	r.log.write()
}

// ownAfterFold is the part of it that runs none of the caller's code.
func (r *Router) ownAfterFold(now int64) {
	r.refreshHeat(now)
	r.tickCanary(now)
}

// observeFold is what an Observe does when a fold is due: a batch of it, if
// nobody else is at it.
func (r *Router) observeFold(now int64) {
	// An end is where its start and RTT put it, which may be wrong.
	if now = min(now, r.now()); now < r.nextFold.Load() || !r.mu.TryLock() {
		return
	}
	r.foldLocked(now, foldBatch)
	r.mu.Unlock()
	if r.runners.Load() == 0 {
		r.afterFold(now)
		return
	}
	r.ownAfterFold(now)
	if r.log.busy() { // Run may never come back from it
		r.drain()
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// foldLocked goes on with the fold, by batch workers at most, and publishes
// when it is through. The caller holds mu.
func (r *Router) foldLocked(now int64, batch int) time.Duration {
	sn := r.snap.Load()
	interval := sn.coef.tuning.FoldInterval
	if sn.closed {
		return time.Hour
	}
	f := &r.fold
	if f.cursor == 0 {
		*f = folding{start: now, prev: f.start}
	}
	for ; f.cursor < len(sn.live) && batch > 0; batch-- {
		r.foldWorker(sn, sn.live[f.cursor], now)
		f.cursor++
	}
	if f.cursor < len(sn.live) {
		return 0
	}
	f.cursor = 0
	r.publishFold(sn, now)
	r.checkShadow()
	next := now + int64(interval)
	if r.runners.Load() > 0 {
		next += int64(interval) / 2 // Run comes first
	}
	r.nextFold.Store(next)
	if !f.busy {
		interval = max(interval, idleInterval)
	}
	return interval
}

// foldWorker takes in one worker's figures since the last fold.
func (r *Router) foldWorker(sn *snapshot, slot uint16, now int64) {
	col := &sn.cols[slot]
	st, c, f := col.st, sn.coef, &r.fold
	dt := float64(max(now-f.prev, 0))
	keep := math.Exp2(-dt / float64(rateWindow))
	for ln := range lanes {
		cl, s, ls, ff := &st.cold.lane[ln], &f.sums[ln], &st.lane[ln], &sn.fleet[ln]
		closed, failed, unknown := st.closed[ln].Load(), st.failed[ln].Load(), st.unknown[ln].Load()
		d := closed - cl.closed
		n, sum := float64(d&inFlightMask), float64(d>>24)*32
		fails, unks := float64(failed-cl.failed), float64(unknown-cl.unknown)
		neutral, void := st.neutral[ln].Load(), st.void[ln].Load()
		answers := max(n-float64(int64(void-cl.void)), 0)
		cl.answers = cl.answers*keep + answers
		if ff.n == 0 {
			// Nothing but real answers may replace InitialLatency.
			k := float64(neutral - cl.neutral)
			n, sum = max(n-k, 0), max(sum-k*ff.mean, 0)
		}
		cl.closed, cl.failed, cl.unknown, cl.neutral, cl.void = closed, failed, unknown, neutral, void
		s.n, s.sum = s.n+n, s.sum+sum
		waited := st.waited[ln].Load()
		s.wait += float64(waited - cl.waited)
		cl.waited = waited
		cl.failures = cl.failures*keep + fails
		st.cold.watch.answers, st.cold.watch.fails = st.cold.watch.answers+answers, st.cold.watch.fails+fails
		cl.unknowns = cl.unknowns*keep + unks
		if answers+fails > 0 {
			st.cold.heard = now
		}
		if n > 0 || fails > 0 {
			f.busy = true
		}
		c.forget(ls, float64(col.base[ln]), st.inFlight(), now)
		lat := c.latency(ls, float64(col.base[ln]), st.busy.Load(), uint64(st.inFlight()), now)
		s.workers++
		load := 1 + c.load*float64(st.inFlight())
		if sn.fbOn {
			load += c.feedback(ls, ff, now)
		}
		s.cost += lat * load * float64(col.pre)
		s.bare += lat * float64(col.pre)
		if w := ls.fb.Load(); w != 0 && ageOf(w, now) < int64(feedbackTrust) {
			s.rif, s.rifN = s.rif+unpackLat(w), s.rifN+1
		}
		r.judge(sn, col, ln, now, lat, answers+fails > 0)
	}
	if r.mark(st, now, c) {
		f.busy = true
	}
	for ln := range lanes {
		if h := st.rtt[ln].Load(); h != nil {
			h.rotate(now, histogramWidth*rttSubWindows)
		}
	}
	if st.cold.taken > 0 && !r.fresh(st.cold, c, now) && st.cold.state != Down {
		r.refresh(Refresh{Reason: RefreshStaleReport, Worker: col.node.ID}, now)
	}
	if rep := st.cold.report(); st.cold.taken > 0 && r.fresh(st.cold, c, now) {
		if p99, ok := rep.RTTP99.Get(); ok && p99 > 0 {
			f.geo, f.geoN = f.geo+math.Log(float64(p99)), f.geoN+1
		}
	}
}

// forget takes a worker that has been idle for long for average again. Fading
// alone takes a minute until one that was 50 times slower is tried.
func (c *coefficients) forget(ls *laneState, base float64, inFlight int, now int64) {
	if w := ls.lat.Load(); inFlight == 0 && unpackLat(w) > 1.1*base && ageOf(w, now) > int64(forgetSlow) {
		ls.lat.CompareAndSwap(w, packLat(base, 0)|w&latTimeMask)
	}
}

// judge moves one lane's penalty by time and by smoothed figures.
func (r *Router) judge(sn *snapshot, col *column, ln int, now int64, lat float64, answered bool) {
	t, st := &sn.coef.tuning, col.st
	cl, f := &st.cold.lane[ln], &sn.fleet[ln]
	rules := &sn.coef.rules

	if cl.answers >= float64(t.ErrorSamples) {
		// Requests count from the pick, else calls that take long and succeed
		// are missing beside those that fail at once.
		switch rate := cl.failures / (cl.answers + float64(st.inFlight())); {
		case rate > t.ErrorRateHigh:
			cl.failing = true
		case rate < t.ErrorRateLow:
			cl.failing = false
		}
	} else {
		cl.failing = false
	}
	if slow := lat > t.SlowRatio*f.mean && f.n > 0; slow != cl.slow {
		if cl.turned == 0 {
			cl.turned, cl.told = now, 0
		}
		if answered || st.inFlight() > 0 {
			cl.told++
		}
		// One long answer stands for seconds where answers are rare.
		if now-cl.turned >= int64(t.SlowTime) && (!slow || cl.told >= slowFolds) {
			cl.slow, cl.turned = slow, 0
		}
	} else {
		cl.turned = 0
	}
	sick := cl.failing || cl.slow || st.cold.report().HealthFailed.Or(false) && r.fresh(st.cold, sn.coef, now)
	if sick != cl.sick {
		cl.sick, r.fold.busy = sick, true
	}

	p := st.lane[ln].pen.load()
	if p == 0 && !sick && !answered {
		return
	}
	if p.gen() != cl.lowGen {
		cl.lowGen, cl.lowScores = p.gen(), 0
	}
	if answered {
		// An Overload costs as a failure and trips nothing, also not by that.
		asked := st.retryAt.Load()
		if overloaded := asked != 0 && now-asked < sn.coef.timeout; !overloaded && f.n > 0 && points(unpackLat(st.lane[ln].lat.Load())*float64(col.pre)*f.bare) < t.TripScore {
			cl.lowScores++
		} else {
			cl.lowScores = 0
		}
	}
	trip := cl.lowScores >= t.TripLowScores
	before, after := r.change(col.node, ln, now, func(p penalty) (penalty, bool, penalty) {
		p = p.settle(now, rules)
		switch {
		case trip && p.phase() != Cooldown && p.gen() == cl.lowGen:
			return p.tripped(now, rules, mix64(uint64(now)^r.salt^uint64(col.node.slot))), true, p
		case (sick || st.retryAt.Load() > now) && p.phase() == Healthy:
			p = p.setPhase(Observed).setAt(now)
		}
		return p, false, p
	})
	if trip {
		cl.lowScores = 0
	}
	if before != after || after.phase() != Healthy || after.level() > 0 {
		r.fold.busy = true
	}
}

// mark moves the ticket marks twice a request time-out and expires the leases
// that two of them have passed, which are one to two time-outs old then. It
// reports whether anything is in flight.
func (r *Router) mark(st *workerState, now int64, c *coefficients) (busy bool) {
	cold := st.cold
	issued := st.issued.Load() & leaseTicketMask
	if now-cold.marked < c.timeout/2 {
		return issued != cold.marks[1]
	}
	if cold.marks[1] != issued || cold.tombs[0] != issued || cold.forgot != issued {
		cold.forgot = cold.tombs[0]
		st.sweep(cold.marks[1], cold.tombs[0], func(l uint64) { r.expire(st, l) })
	}
	if old := cold.anon[1] - st.anonClosed.Load(); int64(old) > 0 {
		n := st.takeAnon(old)
		st.neutral[laneRead].Add(n)
		st.void[laneRead].Add(n)
		st.closed[laneRead].Add(n * closedUnits(1, int64(r.snap.Load().fleet[laneRead].mean)))
		r.counters.expired.Add(n)
		cold.leaks += n
	}
	cold.anon[1], cold.anon[0] = cold.anon[0], st.anonIssued.Load()
	cold.marks[1], cold.marks[0] = cold.marks[0], issued
	if cold.turns++; cold.turns%forgetAfter == 0 {
		cold.tombs[0], cold.tombs[1] = cold.tombs[1], issued
	}
	cold.marked = now
	return issued != cold.marks[1]
}

// expire gives back what a lease held that was never closed.
func (r *Router) expire(st *workerState, l uint64) {
	ln, sn := leaseLaneOf(l), r.snap.Load()
	st.neutral[ln].Add(leaseSize(l))
	st.void[ln].Add(leaseSize(l))
	st.closed[ln].Add(closedUnits(leaseSize(l), int64(sn.fleet[ln].mean)))
	r.counters.expired.Add(leaseSize(l))
	st.cold.leaks += leaseSize(l)
	if l&leaseProbe != 0 {
		st.lane[ln].pen.change(&r.out[ln], func(p penalty) (penalty, bool, penalty) {
			return p.releaseProbe(leaseGen(l)), false, p
		})
	}
}

// fresh tells whether a worker's last report is within its trust window.
func (r *Router) fresh(cold *coldState, c *coefficients, now int64) bool {
	return cold.taken > 0 && c.trusts(cold.taken, cold.last.every, now)
}

// publishFold makes the next snapshot of what the fold found. The caller
// holds mu.
func (r *Router) publishFold(sn *snapshot, now int64) {
	f, t := &r.fold, &sn.coef.tuning
	next := *sn
	for ln := range lanes {
		s, ff := &f.sums[ln], &next.fleet[ln]
		if s.n > 0 {
			if avg := s.sum / s.n; ff.n == 0 {
				ff.mean = max(avg, 1)
			} else {
				ff.mean += (1 - math.Pow(1-t.MeanGain, s.n)) * (avg - ff.mean)
			}
			ff.n = min(ff.n+s.n, 1e15)
		}
		if s.n > 0 {
			ff.wait += (1 - math.Pow(1-t.MeanGain, s.n)) * (s.wait/s.n - ff.wait)
		}
		ff.mean = max(ff.mean, 1)
		ff.slow = 2 * ff.mean
		if s.rifN > 0 {
			ff.rif = float32(s.rif / s.rifN)
		}
		ff.inv, ff.bare = 1/ff.mean, 1/ff.mean
		if s.workers > 0 && s.cost > 0 && ff.n > 0 {
			ff.inv, ff.bare = s.workers/s.cost, s.workers/s.bare
		}
	}
	if f.geoN > 0 {
		next.geo = time.Duration(math.Exp(f.geo / f.geoN))
	} else {
		next.geo = 0
	}
	next.fbOn = r.fbSeen.Load()
	next.published = now
	r.mix.add(now, f.sums[laneRead].n, f.sums[laneWrite].n)
	if share, ok := r.mix.writes(); ok {
		next.gears = gear(next.gears, share, t)
	}
	if (len(r.scorers) > 0 || r.shadowed.Load().scores()) && (next.base == nil || now-next.base.at >= baselineEvery) {
		next.base = baselinesOf(&next, now)
	}
	r.age(&next, now)
	r.watch(&next, now)
	next.cols = r.columns(&next, now)
	r.publish(&next, now)
	r.askProbes(&next, now)
}
