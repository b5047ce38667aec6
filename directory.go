package ringwise

// consult asks the caller's directory where the best candidate is in a bad
// way, and begins the candidates anew with the worker it names; false where
// that changes nothing.
func (r *Router) consult(v *View, h KeyHash, q *Request) bool {
	if q.Intent == Pinned || len(q.Among) > 0 || q.Any || r.locator != nil || h == 0 {
		return false
	}
	for i := range v.n {
		if v.total[i] >= v.sn.coef.tuning.DirectoryScore {
			return false
		}
	}
	f, ok := r.newest(h, q.Key)
	if !ok || int(f.slot) >= len(v.sn.nodes) || v.sn.nodes[f.slot] == nil || v.sn.nodes[f.slot].gen != f.gen {
		return false
	}
	for i := range v.all {
		if v.idx[i] == f.slot {
			return false
		}
	}
	v.again()
	r.addOwners(v, h)
	v.n = min(v.n, MaxCandidates-1)
	r.addRefs(v, []Ref{f})
	v.all = v.n
	v.directed = true
	return true
}

// newest isolates the caller's directory.
func (r *Router) newest(h KeyHash, key string) (f Ref, ok bool) {
	defer func() {
		if recover() != nil {
			r.counters.plugPanics.Add(1)
			ok = false
		}
	}()
	return r.directory(h, key)
}
