package ringwise

import (
	"math"
	"time"
)

// publish replaces the snapshot, and with it what a canary and a shadow see.
// The caller holds mu.
func (r *Router) publish(next *snapshot, now int64) {
	next.plain = next.direct && next.trial == nil
	next.canary = r.seenBy(next, next.canary, now)
	if s := r.shadowed.Load(); s != nil && next.shadow != nil && s.cfg.Tuning == nil {
		next.shadow = &snapshot{coef: next.coef, tuningVersion: s.version} // a scorer beside what is live
	}
	next.shadow = r.seenBy(next, next.shadow, now)
	r.snap.Store(next)
}

// seenBy is a snapshot by the coefficients of another; nil where there is none.
func (r *Router) seenBy(sn, old *snapshot, now int64) *snapshot {
	if old == nil {
		return nil
	}
	other := *sn
	other.coef, other.tuningVersion, other.direct = old.coef, old.tuningVersion, old.direct && !sn.closed
	other.canary, other.shadow = nil, nil
	other.cols = r.columns(&other, now)
	return &other
}

// age marks a topology past its TTL.
func (r *Router) age(next *snapshot, now int64) {
	ttl := int64(next.topology.TTL)
	next.lowConfidence = ttl > 0 && now-next.topologyAt > ttl
	if next.lowConfidence {
		r.refresh(Refresh{Reason: RefreshExpired}, now)
	}
}

// columns computes all workers' columns anew. The caller holds mu.
func (r *Router) columns(sn *snapshot, now int64) []column {
	sn.down = nil
	cols := make([]column, len(sn.nodes))
	for i := range cols {
		cols[i] = column{flags: flagAbsent}
	}
	c := sn.coef
	saturated := 0
	var all [lanes]struct{ answers, unknowns float64 }
	for _, slot := range sn.live {
		for ln := range lanes {
			cl := &sn.nodes[slot].st.cold.lane[ln]
			all[ln].answers, all[ln].unknowns = all[ln].answers+cl.answers, all[ln].unknowns+cl.unknowns
		}
	}
	for _, slot := range sn.live {
		n := sn.nodes[slot]
		st, cold := n.st, n.st.cold
		col := &cols[slot]
		*col = column{st: st, node: n, pre: 1}
		rep, fresh := cold.report(), r.fresh(cold, c, now)
		var p99 time.Duration
		if fresh {
			p99 = rep.RTTP99.Or(0)
			if rep.Compacting.Or(false) {
				col.pre /= float32(c.tuning.CompactingFactor)
			}
			if rep.Repairing.Or(false) {
				col.pre /= float32(c.tuning.RepairFactor)
			}
			col.flags |= flagIf(rep.Recovering.Or(false), flagRecovering) | flagIf(rep.ReadOnly.Or(false), flagReadOnly)
		}
		col.flags |= flagIf(cold.taken > 0 && !fresh, flagStale)
		if r.localZone != "" && n.Zone != r.localZone {
			col.pre *= float32(c.tuning.ZoneCost)
		}
		if x := cold.watch.share(); x < 1 {
			col.pre *= float32(math.Pow(x, -1/c.kf)) // share^-(T/10), as cost
		}
		if limit := cold.watch.limit; limit > 0 && st.inFlight() > limit {
			col.flags |= flagSaturated
			saturated++
		}
		col.flags |= flagIf(cold.watch.due.Load(), flagDue)
		factor := prior(p99, sn.geo, c.tuning.PriorExponent)
		for ln := range lanes {
			f, cl := &sn.fleet[ln], &cold.lane[ln]
			col.base[ln] = float32(f.mean * factor)
			col.flags |= flagIf(cl.sick, flagSick<<ln)
			// Against the others, not the fleet: one of three that fails always
			// is three times the fleet itself.
			rate := cl.unknowns / max(cl.answers, 1)
			counts := cl.unknowns >= 1 && cl.answers >= float64(c.tuning.ErrorSamples) &&
				rate > c.tuning.UnknownRate &&
				rate*(all[ln].answers-cl.answers) > c.tuning.UnknownRatio*(all[ln].unknowns-cl.unknowns)
			col.flags |= flagIf(counts, flagUnknownCounts<<ln)
		}
		switch cold.state {
		case Down:
			col.flags |= flagDown
			for len(sn.down) <= int(slot>>6) {
				sn.down = append(sn.down, 0)
			}
			sn.down[slot>>6] |= 1 << (slot & 63)
		case Draining:
			col.flags |= flagDraining
		}
		switch n.Role {
		case RolePrimary:
			col.flags |= flagPrimary
		case RoleReplica:
			col.flags |= flagReplica
		case RoleLearner:
			col.flags |= flagLearner
		}
		if sn.lowConfidence && r.lastSign(st, now) > int64(sn.topology.TTL) {
			col.flags |= flagUnconfirmed
		}
	}
	for i := range sn.special {
		// Where fewer are, no key has them for all its candidates.
		sn.special[i] = specialFlags(Intent(i)) | flagIf(saturated > 0 && saturated >= min(r.replicas, len(sn.live)), flagSaturated)
	}
	return cols
}

// lastSign is how long ago a worker answered, reported or passed a probe: it
// is there, whatever the topology is worth.
func (r *Router) lastSign(st *workerState, now int64) int64 {
	age, cold := r.lastAnswer(st, now), st.cold
	if cold.taken > 0 {
		age = min(age, now-cold.taken)
	}
	if cold.probe.result > 0 && cold.probe.fails == 0 {
		age = min(age, now-cold.probe.result)
	}
	return age
}

// lastAnswer is how long ago a worker answered, on either lane.
func (r *Router) lastAnswer(st *workerState, now int64) int64 {
	age := int64(math.MaxInt64)
	for ln := range lanes {
		if w := st.lane[ln].lat.Load(); w != 0 {
			age = min(age, ageOf(w, now))
		}
	}
	return age
}

func flagIf(on bool, f uint32) uint32 {
	if on {
		return f
	}
	return 0
}
