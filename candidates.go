package ringwise

import "sync/atomic"

// candidates fills the view from Among, Any, the Locator or the ring.
func (r *Router) candidates(v *View, h KeyHash, q *Request) error {
	switch {
	case len(q.Among) > 0:
		refs := q.Among
		if len(refs) > MaxCandidates {
			refs, v.truncated = refs[:MaxCandidates], true
			v.count(&r.counters.oversized)
		}
		r.addRefs(v, refs)
	case q.Any:
		r.addAny(v)
	case h == 0:
		return &ConfigError{"Request.Key", `""`, `a key, KeyBytes, Hash, Among or Any (for the empty key, Hash: HashOf(""))`}
	case r.locator != nil:
		r.locate(v, h)
	default:
		r.addOwners(v, h)
	}
	v.all = v.n
	return nil
}

func (v *View) add(slot uint16, role Role) {
	for i := range v.n {
		if v.idx[i] == slot {
			return
		}
	}
	if v.n < MaxCandidates {
		v.idx[v.n], v.role[v.n] = slot, role
		v.n++
	}
}

// addRefs takes the Refs that still name a worker.
func (r *Router) addRefs(v *View, refs []Ref) {
	for _, f := range refs {
		if int(f.slot) >= len(v.sn.nodes) || v.sn.nodes[f.slot] == nil || v.sn.nodes[f.slot].gen != f.gen {
			v.count(&r.counters.staleRefs)
			continue
		}
		role := f.role
		if role == RoleAny {
			role = v.sn.nodes[f.slot].Role
		}
		v.add(f.slot, role)
	}
}

// addAny draws min(16, n) different workers (Floyd, CACM 1987).
func (r *Router) addAny(v *View) {
	live := v.sn.live
	n, k := len(live), min(len(live), MaxCandidates)
	var rnd Rand
	if v.rec == nil {
		rnd.s = r.chance(0, v.now, uint64(n)^r.anySeq.Add(1)<<32)
	} else { // as the next pick will, and nothing is advanced
		rnd.s = r.chanceNow(0, v.now, uint64(n)^(r.anySeq.Load()+1)<<32)
	}
	if len(v.sn.down) > 0 && r.addAnyUp(v, &rnd) {
		return
	}
	for j := n - k; j < n; j++ {
		slot := live[rnd.Uint64()%uint64(j+1)]
		before := v.n
		v.add(slot, v.sn.nodes[slot].Role)
		if v.n == before {
			v.add(live[j], v.sn.nodes[live[j]].Role)
		}
	}
}

// addAnyUp draws among those that are not Down, by a reservoir over all:
// sixteen draws could miss the few that are up. It reports whether there were
// any.
func (r *Router) addAnyUp(v *View, rnd *Rand) bool {
	seen := uint64(0)
	for _, slot := range v.sn.live {
		if hasBit(v.sn.down, slot) {
			continue
		}
		seen++
		if v.n < MaxCandidates {
			v.add(slot, v.sn.nodes[slot].Role)
		} else if j := rnd.Uint64() % seen; j < MaxCandidates {
			v.idx[j], v.role[j] = slot, v.sn.nodes[slot].Role
		}
	}
	return seen > 0
}

// locate asks the caller's Locator, isolated.
func (r *Router) locate(v *View, h KeyHash) {
	defer func() {
		if recover() != nil {
			r.counters.plugPanics.Add(1)
		}
	}()
	refs := r.locator.Locate(h, v.refs[:0])
	if len(refs) > MaxCandidates {
		refs, v.truncated = refs[:MaxCandidates], true
		v.count(&r.counters.oversized)
	}
	r.addRefs(v, refs)
}

// addOwners takes the key's owners and, for each that is Down, the next on
// the ring; a key that is hot by reads gets further ones. The owners that are
// Down come last, to be named.
func (r *Router) addOwners(v *View, h KeyHash) {
	sn := v.sn
	var own, next [MaxCandidates]uint16
	owners := sn.ring.owners(h, &own)
	down := false
	for _, slot := range owners {
		if sn.cols[slot].flags&flagDown != 0 {
			down = true
			continue
		}
		v.add(slot, sn.nodes[slot].Role)
	}
	n := v.spreadTo(len(owners))
	if !down && n == len(owners) {
		return
	}
	for _, slot := range sn.ring.walk(h, sn.down, next[:0], n) {
		v.add(slot, sn.nodes[slot].Role)
	}
	for _, slot := range owners {
		v.add(slot, sn.nodes[slot].Role)
	}
}

// count counts what a Pick meets; Explain counts nothing.
func (v *View) count(n *atomic.Uint64) {
	if v.rec == nil {
		n.Add(1)
	}
}

// chance is the random number of a pick. The default shares no state: tickets
// differ from pick to pick, salts from router to router.
func (r *Router) chance(h KeyHash, now int64, mix uint64) uint64 {
	u := mix64(uint64(h) ^ uint64(now)*0x9e3779b97f4a7c15 ^ mix*0xc2b2ae3d27d4eb4f ^ r.hub.salt)
	if r.random != nil {
		return r.ask(u)
	}
	return u
}

// ask is the caller's random number, or u where its source panics.
func (r *Router) ask(u uint64) uint64 {
	r.isolate(func() { u = r.random() })
	return u
}

// chanceNow is the number a Pick at this instant would draw with; a source of
// the caller's is not asked, which would advance it.
func (r *Router) chanceNow(h KeyHash, now int64, mix uint64) uint64 {
	if r.random != nil {
		return mix64(uint64(h) ^ uint64(now))
	}
	return r.chance(h, now, mix)
}
