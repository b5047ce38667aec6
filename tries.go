package ringwise

// due is a healthy candidate that nobody has picked for long, -1 where there
// is none; take claims its try. At most 1 % of all picks are tries, so that a
// client with few requests still goes by cost. A Picker of the caller's is
// not overruled.
func (r *Router) due(v *View, take bool) int {
	if r.picker != nil || v.req.Intent == Pinned {
		return -1
	}
	for i := range v.n {
		st := v.col(i).st
		// One that may have left is not tried for the sake of trying.
		if v.col(i).flags&(flagDue|flagUnconfirmed) != flagDue || !st.cold.watch.due.Load() || st.lane[v.lane].pen.load().phase() > Observed {
			continue
		}
		if !take {
			if r.watching.tries.banked() < 1 {
				return -1
			}
			return i
		}
		if !r.watching.tries.spend(1, 1) {
			return -1
		}
		if st.cold.watch.due.CompareAndSwap(true, false) {
			r.counters.tries.Add(1)
			return i
		}
		r.watching.tries.refund(1)
	}
	return -1
}
