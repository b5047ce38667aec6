package ringwise

import "time"

// Report takes in what a worker says of itself. A bad report is refused whole
// with a *ReportError, counted by reason, and the one before stays; one with
// the timestamp of the one before is dropped silently. It acts with the next
// snapshot, at once for its flags.
func (r *Router) Report(rep Report) error {
	if err := rep.check(); err != nil {
		r.counters.reports[err.Reason].Add(1)
		return err
	}
	rep = rep.clone()
	rep.sortLists()
	now := r.now() // the caller's code, so not under mu
	wall := r.latest(now)
	r.mu.Lock()
	err := r.reportLocked(rep, now, wall)
	if now >= r.nextFold.Load() {
		r.foldLocked(now, foldBatch)
	}
	r.mu.Unlock()
	r.drain()
	if err != nil {
		return err
	}
	return nil
}

func (r *Router) reportLocked(rep Report, now int64, wall time.Time) error {
	sn := r.snap.Load()
	if sn.closed {
		return ErrClosed
	}
	refuse := func(reason ReportReason, want string) error {
		r.counters.reports[reason].Add(1)
		return &ReportError{Worker: rep.Worker, Field: "Time", Value: rep.Time, Want: want, Reason: reason}
	}
	slot, ok := sn.byID[rep.Worker]
	if !ok {
		r.counters.reports[ReportUnknownWorker].Add(1)
		return &ReportError{Worker: rep.Worker, Reason: ReportUnknownWorker}
	}
	cold := sn.nodes[slot].st.cold
	reason, rebased := cold.clock.admit(rep.Time, wall)
	switch reason {
	case ReportFuture:
		return refuse(reason, "at most 30s ahead")
	case ReportBackwards:
		return refuse(reason, "later than the last report")
	case ReportDuplicate:
		r.counters.reports[reason].Add(1)
		return nil
	}
	if rebased {
		r.counters.rebased.Add(1)
	}
	r.counters.reports[ReportOK].Add(1)
	next := &reported{Report: rep}
	if was := cold.last; was != nil {
		gap := min(max(now-cold.taken, 0), int64(time.Minute))
		next.keyStats, next.every = was.keyStats, was.every
		if next.every == 0 {
			next.every = gap
		}
		next.every += int64(intervalGain * float64(gap-next.every))
	}
	flags := func(rep *Report) [5]bool {
		return [...]bool{rep.Compacting.Or(false), rep.Repairing.Or(false), rep.Recovering.Or(false),
			rep.ReadOnly.Or(false), rep.HealthFailed.Or(false)}
	}
	first, stale := cold.last == nil, sn.cols[slot].flags&flagStale != 0
	changed := first || stale || flags(cold.report()) != flags(&rep)
	if cold.meter == nil {
		cold.meter = &meter{}
	}
	cold.meter.measure(&rep, now)
	next.readings = cold.meter.read
	next.take(&rep, now)
	cold.last, cold.taken = next, max(now, 1)
	reports := make([]*reported, len(sn.cols))
	copy(reports, sn.reports)
	reports[slot] = next
	seen := *sn
	seen.reports = reports
	if changed {
		seen.cols = r.columns(&seen, now)
	}
	r.publish(&seen, now)
	if rep.HealthFailed.Or(false) {
		r.failHealth(&seen, sn.nodes[slot], now)
	}
	return nil
}

// failHealth: a worker's own health check that fails is a failure of both
// lanes; a good one proves nothing.
func (r *Router) failHealth(sn *snapshot, n *node, now int64) {
	for ln := range lanes {
		r.change(n, ln, now, func(p penalty) (penalty, bool, penalty) {
			o := outcome{failed: true, gen: p.gen(), u: mix64(uint64(now) ^ r.salt)}
			return p.next(now, o, &sn.coef.rules)
		})
	}
}
