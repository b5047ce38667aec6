package ringwise

import "math"

// shade scores a pick's candidates once more. u is what the pick draws with.
func (r *Router) shade(v *View, u float64) {
	s := r.shadowed.Load()
	if s == nil || v.sn.shadow == nil {
		return
	}
	o := viewPool.Get().(*View)
	defer o.release()
	o.begin(v.sn.shadow, &v.req, v.now)
	o.hash, o.plainHash, o.key, o.directed, o.n, o.all = v.hash, v.plainHash, v.key, v.directed, v.n, v.n
	copy(o.idx[:v.n], v.idx[:v.n])
	copy(o.role[:v.n], v.role[:v.n])
	copy(o.factor[:v.n], v.factor[:v.n])
	o.sn.weighView(o)
	sum := o.combine(&r.hub, r.scorers)
	if s.scorer != nil && !s.scorer.off() && o.column(&r.hub, s.scorer) {
		for i := range o.n {
			o.total[i] = (o.total[i]*sum + s.scorer.weight*o.scratch[i]) / (sum + s.scorer.weight)
		}
	}
	o.softmax()
	o.shape()
	live, other, gap, moved := v.sum(), o.sum(), 0.0, 0.0
	for i := range o.n {
		x := v.total[i]
		if !v.scored {
			x = rawPoints(v.cost(i))
		}
		gap += math.Abs(clamp(x, 0, 100)-clamp(o.total[i], 0, 100)) / 100 / float64(o.n)
		if live > 0 && other > 0 {
			moved += math.Abs(v.w[i]/live-o.w[i]/other) / 2
		}
	}
	addSat(&s.gap, uint64(gap*shadowUnit))
	addSat(&s.share, uint64(min(moved, 1)*shadowUnit))
	if draw(v.w[:v.n], u) == draw(o.w[:o.n], u) {
		addSat(&s.agreed, 1)
	}
	addSat(&s.n, 1)
}
