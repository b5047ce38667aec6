package ringwise

import "math/bits"

// Filter cuts candidates that must not serve a request, by clearing their
// bits. It is never relaxed: clearing the last bit fails the pick. It runs in
// the caller's Pick, must not block or keep v, and is isolated when it panics
// (it then cuts nothing; after three times it is switched off, which
// Status.PlugsOff tells).
type Filter interface {
	Name() string
	Keep(v *View, m *Mask)
}

// specialFlags are the flags that need the filters for an intent; without
// them, and without a request that asks for more, Pick skips them whole.
func specialFlags(intent Intent) uint32 {
	f := flagDue | flagDown | flagDraining | flagRecovering | flagStale | flagUnconfirmed | flagLearner
	switch intent {
	case Unspecified, Write:
		f |= flagReadOnly | flagPrimary | flagReplica
	case StrongRead, Pinned:
		f |= flagPrimary | flagReplica
	}
	return f
}

// cut moves candidate i behind those that are still in.
func (v *View) cut(i int, why reason) {
	last := v.n - 1
	slot, role, w, f, total := v.idx[i], v.role[i], v.w[i], v.factor[i], v.total[i]
	copy(v.idx[i:last], v.idx[i+1:v.n])
	copy(v.role[i:last], v.role[i+1:v.n])
	copy(v.w[i:last], v.w[i+1:v.n])
	copy(v.factor[i:last], v.factor[i+1:v.n])
	copy(v.total[i:last], v.total[i+1:v.n])
	for said := v.said; said != 0; said &= said - 1 {
		col := &v.points[bits.TrailingZeros32(said)]
		x := col[i]
		copy(col[i:last], col[i+1:v.n])
		col[last] = x
	}
	v.idx[last], v.role[last], v.w[last], v.factor[last], v.total[last], v.why[last] = slot, role, w, f, total, why
	v.n = last
}

// cutWhere cuts all candidates for which why gives a reason.
func (v *View) cutWhere(why func(i int) reason) {
	for i := v.n - 1; i >= 0; i-- {
		if r := why(i); r != kept {
			v.cut(i, r)
		}
	}
}

// cutForbidden applies the rules that are never relaxed: what was tried,
// Down, the role, read-only for writes, the version floor of a strong read.
func (v *View) cutForbidden() {
	q := &v.req
	primary := false
	if needsPrimary(q.Intent) {
		for i := range v.n {
			primary = primary || v.role[i] == RolePrimary
		}
	}
	v.cutWhere(func(i int) reason {
		f := v.col(i).flags
		switch {
		case f&flagAbsent != 0:
			return cutAbsent
		case q.Tried.Len() > 0 && q.Tried.has(v.Ref(i)):
			return cutTried
		case f&flagDown != 0:
			return cutDown
		case primary && v.role[i] != RolePrimary, v.role[i] == RoleLearner && q.Intent != Read:
			return cutRole
		case f&flagReadOnly != 0 && (q.Intent == Write || q.Intent == Unspecified):
			return cutReadOnly
		case q.Intent == StrongRead && v.version(i) < q.MinVersion:
			return cutVersion
		}
		return kept
	})
}

// needsPrimary: a learner never stands in, a replica only where the
// candidates have no primary.
func needsPrimary(i Intent) bool { return i != Read }

func (v *View) version(i int) uint64 {
	if rep, _ := v.Report(i); rep != nil {
		return rep.Version.Or(0)
	}
	return 0
}

// defects are the rules a candidate breaks that may be given up.
func (v *View) defects(i int) (d Relaxed) {
	f := v.col(i).flags
	if f&flagStale != 0 {
		d |= RelaxedStale
	}
	if f&flagRecovering != 0 {
		d |= RelaxedRecovering
	}
	if f&flagDraining != 0 {
		d |= RelaxedDraining
	}
	if v.req.Intent != StrongRead && v.req.MinVersion > 0 && v.version(i) < v.req.MinVersion {
		d |= RelaxedVersion
	}
	return d
}

// cutDefective keeps the candidates without defects; if there are none, it
// gives up one rule after another until some are left.
func (v *View) cutDefective() {
	var given Relaxed
	for _, rule := range [...]Relaxed{0, RelaxedStale, RelaxedRecovering, RelaxedDraining, RelaxedVersion} {
		given |= rule
		some := false
		for i := range v.n {
			some = some || v.defects(i)&^given == 0
		}
		if some {
			break
		}
	}
	met := Relaxed(0)
	v.cutWhere(func(i int) reason {
		d := v.defects(i)
		switch {
		case d&^given == 0:
			met |= d
			return kept
		case d&RelaxedStale&^given != 0:
			return cutStale
		case d&RelaxedRecovering&^given != 0:
			return cutRecovering
		case d&RelaxedDraining&^given != 0:
			return cutDraining
		}
		return cutVersion
	})
	v.relaxed |= met
}

// penalise sets the factors of the candidates that are in, cuts those whom
// the penalty machine holds back and lets the least bad in again where that
// would take out more than MaxOut of them.
func (v *View) penalise() {
	r := &v.sn.coef.rules
	out := 0
	for i := range v.n {
		col := v.col(i)
		p := col.st.lane[v.lane].pen.load()
		share, probe := p.share(v.now, r)
		v.why[i] = kept
		switch {
		case col.st.retryAt.Load() > v.now:
			share, v.why[i] = 0, cutOverload
		case share == 0 && probe:
			v.why[i] = cutProbes
		case p.probedOut() && share == 0:
			v.why[i] = cutProbeOut
		case share == 0:
			v.why[i] = cutCooldown
		}
		if col.flags&flagUnconfirmed != 0 {
			share *= v.sn.coef.tuning.StaleFactor
		}
		v.factor[i] = share
		if share == 0 {
			out++
		}
	}
	if allowed := capOut(v.n, r.maxOut); out > allowed || out == v.n {
		v.letIn(min(out-allowed, out))
	}
	v.cutWhere(func(i int) reason {
		if v.factor[i] == 0 {
			return v.why[i]
		}
		return kept
	})
}

// letIn admits the k candidates whose time is up first, one at least; those
// that failed probes after the others.
func (v *View) letIn(k int) {
	for range max(k, 1) {
		best := -1
		for i := range v.n {
			if v.factor[i] == 0 && (best < 0 || v.before(i, best)) {
				best = i
			}
		}
		if best < 0 {
			return
		}
		if v.why[best] == cutProbeOut {
			v.relaxed |= RelaxedProbeOut
		} else {
			v.relaxed |= RelaxedPenalty
		}
		v.factor[best], v.why[best] = v.sn.coef.rules.panicShare, kept
		v.panic = true
	}
}

// before: of two that are out, i is let in before j.
func (v *View) before(i, j int) bool {
	if a, b := v.why[i] == cutProbeOut, v.why[j] == cutProbeOut; a != b {
		return b
	}
	return v.outUntil(i) < v.outUntil(j)
}

func (v *View) outUntil(i int) int64 {
	st := v.col(i).st
	return max(st.lane[v.lane].pen.load().at(), st.retryAt.Load())
}

// shape applies the factors to the weights. A factor alone would not hold a
// recovering worker back: it is idle, its peers are not, and at cost^-10 that
// outweighs any factor. So its probability is capped at its share of an even
// split as well, as long as a worker that is not ramping is there to take the
// rest (DESIGN.md).
func (v *View) shape() {
	free, capped := 0.0, 0.0
	for i := range v.n {
		v.w[i] *= v.factor[i]
		if v.ramping(i) {
			capped += v.factor[i] / float64(v.n)
		} else if !v.panic || !v.held(i) {
			free += v.w[i]
		}
	}
	if capped > 0 && free > 0 {
		for i := range v.n {
			if v.ramping(i) {
				v.w[i] = min(v.w[i], v.factor[i]/float64(v.n)*free/(1-capped))
				v.ramp = true
			}
		}
	}
	q := v.sn.coef.tuning.MinShare
	if q == 0 {
		return
	}
	sum, m := 0.0, 0.0
	for i := range v.n {
		sum += v.w[i]
		if v.factor[i] == 1 {
			m++
		}
	}
	for i := range v.n {
		v.w[i] *= 1 - q*m
		if v.factor[i] == 1 {
			v.w[i] += q * sum
		}
	}
}

// held: out, and here because too many are. Nobody to take the rest.
func (v *View) held(i int) bool {
	p := v.col(i).st.lane[v.lane].pen.load()
	return p.phase() == Cooldown && v.now < p.at() || v.col(i).st.retryAt.Load() > v.now
}

// ramping: on its way back and not there yet.
func (v *View) ramping(i int) bool {
	switch p := v.col(i).st.lane[v.lane].pen.load(); p.phase() {
	case Probation:
		return v.factor[i] < 1
	case Cooldown:
		return v.now >= p.at()
	}
	return false
}
