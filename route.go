package ringwise

import (
	"math"
	"sync"
	"time"
)

var viewPool = sync.Pool{New: func() any { return new(View) }}

// Pick names a worker for a key: Route of a Request with that key. It takes
// no lock, allocates nothing and reads the clock once; about a hundred
// nanoseconds.
func (r *Router) Pick(key string) (Choice, error) {
	sn := r.snap.Load()
	if sn.plain && key != "" {
		now := r.now()
		c := r.short(sn, hashOfSeeded(key, r.hub.seed), Unspecified, now, 1, 0, sn.coef.timeoutMeta)
		if c.n != nil {
			return c, nil
		}
		return r.long(&Request{Key: key}, now, c.meta != 0)
	}
	return r.long(&Request{Key: key}, r.now(), false)
}

// Route is the full form of Pick. It fails with a *NoWorkerError where no
// candidate is allowed, a *ConfigError where the request names none, and
// ErrClosed.
func (r *Router) Route(q Request) (Choice, error) {
	sn, now := r.snap.Load(), r.startOf(&q)
	sample := false
	if sn.plain && q.Intent < intents && q.Intent != Pinned && q.MinVersion == 0 && q.Tenant == "" &&
		!q.Any && q.Among == nil && q.Tried == nil {
		if h := q.hash(r.hub.seed); h != 0 {
			c := r.short(sn, h, q.Intent, now, q.size(), q.leaseBits(sn.coef), q.meta(sn.coef))
			if c.n != nil {
				return c, nil
			}
			sample = c.meta != 0

		}
	}
	return r.long(&q, now, sample)
}

// startAhead is how far after the last fold a Request.Start may be without
// being checked, ns.
const startAhead = 2e9

func (r *Router) startOf(q *Request) int64 {
	if q.Start.IsZero() {
		return r.now()
	}
	ns := r.at(q.Start)
	// A start ahead of the clock would put answers and cooldowns there. Only
	// one that is far from the last fold is worth the clock read that tells.
	if ns > r.snap.Load().published+startAhead {
		ns = min(ns, r.now())
	}
	return ns
}

// hash is the key's place, zero where the request has no key.
func (q *Request) hash(seed uint64) KeyHash {
	switch {
	case q.Hash != 0:
		return q.Hash.seeded(seed)
	case q.Key != "":
		return hashOfSeeded(q.Key, seed)
	case len(q.KeyBytes) > 0:
		return hashBytesSeeded(q.KeyBytes, seed)
	}
	return 0
}

func (q *Request) size() uint64 { return uint64(min(max(q.Size, 1), maxSize)) }

// leaseBits: a stream, and a request that may take longer than reservations
// live, does not expire.
func (q *Request) leaseBits(c *coefficients) uint64 {
	if q.Stream || int64(q.Timeout) > c.timeout {
		return leaseStream
	}
	return 0
}

func (q *Request) meta(c *coefficients) uint64 {
	m := c.timeoutMeta
	if q.Timeout > 0 {
		m = timeoutMeta(int64(q.Timeout))
	}
	if q.Idempotent && (q.Intent == Read || q.Intent == StrongRead) {
		m |= metaHedgeable
	}
	return m

}

// short is a pick in which nothing is out of the ordinary: at most four
// candidates of the ring, no filter to apply, no penalty, softmax of live cost
// alone. It gives up, with a zero Choice, as soon as one of these is not so;
// long then does the whole. Both weigh with the same code.
func (r *Router) short(sn *snapshot, h KeyHash, intent Intent, now int64, size, bits, meta uint64) Choice {
	var w [fastCandidates]float64
	var buf [MaxCandidates]uint16
	cand := sn.ring.owners(h, &buf)
	if uint(len(cand)-1) >= fastCandidates {
		return Choice{}
	}
	ln := laneOf(intent)
	seen := sn.weigh(ln, now, cand, w[:len(cand)])
	if seen.pen&penPhase != 0 || seen.flags&sn.special[intent] != 0 {
		return Choice{}
	}
	if len(cand) == 3 {
		// 1/a : 1/b : 1/c as bc : ac : ab, for a division is slow.
		w[0], w[1], w[2] = w[1]*w[2], w[0]*w[2], w[0]*w[1]
	} else {
		for i, x := range w[:len(cand)] {
			w[i] = 1 / x
		}
	}
	sum := w[0] + w[1] + w[2] + w[3]
	if !(sum > 0 && sum <= math.MaxFloat64) {
		return Choice{}
	}
	u := r.chance(h, now, seen.mix)
	if uint64(uint32(u)) < r.sampleUnder {
		return Choice{meta: metaReserved} // to be kept, so the long way
	}
	x := unit(u) * sum
	// The draw, without a branch: positive floats compare as their bits.
	i := over(x, w[0]) + over(x, w[0]+w[1]) + over(x, w[0]+w[1]+w[2])
	i = min(i, len(cand)-1)
	col := &sn.cols[cand[i]]
	return r.reserve(col, ln, now, size, seen.quiet>>(i&31)&1 != 0, bits, meta)
}

// over is 1 where x >= a, both positive, else 0.
func over(x, a float64) int {
	return 1 - int((math.Float64bits(x)-math.Float64bits(a))>>63)
}

// reserve issues the lease on a worker that was chosen.
func (r *Router) reserve(col *column, ln int, now int64, size uint64, quiet bool, bits, meta uint64) Choice {
	st := col.st
	bits |= uint64(st.lane[ln&1].pen.load().gen())<<leaseGenShift | uint64(ln)<<59
	lease, pos := st.reserve(now, size, quiet, bits)
	if pos == leaseUntracked {
		st.neutral[ln].Add(size)
		st.void[ln].Add(size)
		st.closed[ln].Add(closedUnits(size, int64(r.snap.Load().fleet[ln].mean)))
		r.counters.untracked.Add(1)
	} else {
		meta |= metaReserved
	}
	return Choice{n: col.node, lease: lease, start: now, meta: meta | uint64(pos)}
}

// long is the whole pick; sample has its decision kept.
func (r *Router) long(q *Request, now int64, sample bool) (Choice, error) {
	sn := r.snap.Load()
	v := viewPool.Get().(*View)
	defer v.release()
	h, err := r.prepare(v, sn, q, now)
	if err != nil {
		return Choice{}, err
	}
	return r.choose(v, h, q, sample)
}

// prepare does all of a pick but the draw.
func (r *Router) prepare(v *View, sn *snapshot, q *Request, now int64) (KeyHash, error) {
	if sn.closed {
		return 0, ErrClosed
	}
	if q.Intent >= intents {
		return 0, badIntent(q.Intent)
	}
	v.begin(sn, q, now)
	h := q.hash(r.hub.seed)
	v.hash = h
	if err := r.candidates(v, h, q); err != nil {
		return 0, err
	}
	sn.weighView(v)
	v.cutForbidden()
	r.cutQuota(v)
	r.cutByFilters(v)
	if v.n == 0 {
		return h, r.noWorker(v)
	}
	if q.Intent == Pinned {
		v.pin()
		return h, nil
	}
	v.cutDefective()
	v.penalise()
	r.score(v)
	return h, nil
}

func (v *View) begin(sn *snapshot, q *Request, now int64) {
	v.sn, v.now, v.lane = sn, now, laneOf(q.Intent)
	v.req = *q
	v.req.KeyBytes = nil
	v.n, v.all, v.hash, v.scored = 0, 0, 0, false
	v.relaxed, v.panic, v.ramp, v.truncated, v.seen = 0, false, false, false, live{}
	v.why = [MaxCandidates]reason{}
	for i := range v.factor {
		v.factor[i] = 1
	}
}

func (v *View) release() {
	v.sn, v.req, v.rec = nil, Request{}, nil
	viewPool.Put(v)
}

func (sn *snapshot) weighView(v *View) {
	v.seen = sn.weigh(v.lane, v.now, v.idx[:v.n], v.w[:v.n])
	for i, x := range v.w[:v.n] {
		v.w[i] = 1 / x
	}
}

func (r *Router) cutQuota(v *View) {
	if r.quota == nil || v.req.Tenant == "" {
		return
	}
	v.cutWhere(func(i int) reason {
		if !r.hasQuota(v, i) {
			return cutQuota
		}
		return kept
	})
}

// hasQuota isolates the caller's quota; one that panics forbids nothing.
func (r *Router) hasQuota(v *View, i int) (ok bool) {
	ok = true
	defer func() {
		if recover() != nil {
			r.counters.plugPanics.Add(1)
			ok = true
		}
	}()
	return r.quota(v.req.Tenant, v.Worker(i))
}

func (r *Router) cutByFilters(v *View) {
	for j, p := range r.filters {
		if p.off() || v.n == 0 {
			continue
		}
		all := Mask(1<<v.n - 1)
		v.mask = all
		if !p.guard(&r.hub, func() { p.code.Keep(v, &v.mask) }) {
			continue
		}
		if m := v.mask & all; m != all {
			v.cutWhere(func(i int) reason {
				if !m.Has(i) {
					return cutFilter + reason(j)
				}
				return kept
			})
		}
	}
}

// pin keeps the first candidate: the primary, where there was one.
func (v *View) pin() {
	for i := v.n - 1; i > 0; i-- {
		v.cut(i, cutRole)
	}
	v.w[0] = 1
}

// score turns costs, scorers and penalties into final weights.
func (r *Router) score(v *View) {
	c := v.sn.coef
	if len(r.scorers) > 0 || c.tuning.LiveWeight == 0 || r.picker != nil || v.rec != nil {
		v.combine(&r.hub, r.scorers)
		v.scored = true
	}
	if len(r.scorers) > 0 || c.tuning.LiveWeight == 0 {
		v.softmax()
	} else if sum := v.sum(); !(sum > 0 && sum <= math.MaxFloat64) {
		v.reweigh()
	}
	v.shape()
}

func (v *View) sum() (sum float64) {
	for _, x := range v.w[:v.n] {
		sum += x
	}
	return sum
}

// choose draws and reserves. A worker whose probes turn out to be taken is cut
// and the draw made again, at most once a candidate.
func (r *Router) choose(v *View, h KeyHash, q *Request, sample bool) (Choice, error) {
	v.rnd = Rand{r.chance(h, v.now, v.seen.mix)}
	rnd := &v.rnd
	meta, size, bits := q.meta(v.sn.coef), q.size(), q.leaseBits(v.sn.coef)
	sample = sample || uint64(uint32(rnd.s)) < r.sampleUnder
	for range MaxCandidates {
		i := r.draw(v, rnd)
		col := v.col(i)
		probe, ok := uint64(0), true
		if q.Intent != Pinned {
			probe, ok = r.admit(v.sn, col, v.lane, v.now)
		}
		if !ok {
			if v.n > 1 {
				v.cut(i, cutProbes)
				continue
			}
			v.relaxed |= RelaxedPenalty // the last one: never nobody
		}
		meta |= uint64(v.relaxed) << metaRelaxedShift
		if v.sn.lowConfidence {
			meta |= metaLowConfidence
		}
		if v.panic {
			meta |= metaPanic
		}
		if v.relaxed != 0 {
			r.counters.relaxed.Add(1)
		}
		if sample {
			r.samples.keep(v, i)
		}
		return r.reserve(col, v.lane, v.now, size, col.st.inFlight() == 0, bits|probe, meta), nil
	}
	return Choice{}, r.noWorker(v)
}

// admit reserves a probe where the chosen worker needs one.
func (r *Router) admit(sn *snapshot, col *column, ln int, now int64) (bits uint64, ok bool) {
	p := col.st.lane[ln].pen.load()
	if p.phase() != Probation && (p.phase() != Cooldown || now < p.at()) {
		return 0, true
	}
	rules := &sn.coef.rules
	r.change(col.node, ln, now, func(p penalty) (penalty, bool, penalty) {
		next, yes := p.reserveProbe(now, rules)
		if ok = yes; !ok {
			next = p
		}
		bits = 0
		if ok && next.phase() == Probation && next.successes() == 0 {
			bits = leaseProbe
		}
		return next, false, next
	})
	return bits, ok
}

// draw names a candidate by the picker, or by the weights.
func (r *Router) draw(v *View, rnd *Rand) int {
	if r.picker == nil || r.picker.off() {
		return draw(v.w[:v.n], unit(rnd.s))
	}
	if _, ok := r.picker.code.(factored); !ok {
		v.thin(rnd)
	}
	score := v.scratch[:v.n]
	for i := range score {
		score[i] = min(max(v.total[i], 0), 100)
	}
	i := -1
	if r.picker.guard(&r.hub, func() { i = r.picker.code.Pick(v, score, rnd) }) && i >= 0 && i < v.n {
		return i
	}
	return draw(v.w[:v.n], rnd.Float64())
}

// thin drops candidates from the view with the probability their factor
// leaves over, never the last.
func (v *View) thin(rnd *Rand) {
	var keep Mask
	for i := range v.n {
		if f := v.factor[i]; f >= 1 || rnd.Float64() < f {
			keep |= 1 << i
		}
	}
	if keep == 0 { // by factor, or the first in ring order would have it all
		keep = 1 << draw(v.factor[:v.n], rnd.Float64())
	}
	v.cutWhere(func(i int) reason {
		if !keep.Has(i) {
			return cutThinned
		}
		return kept
	})
}

func (r *Router) noWorker(v *View) error {
	v.count(&r.counters.noWorker)
	e := &NoWorkerError{}
	for i := range v.all {
		e.Candidates = append(e.Candidates, CandidateReason{v.idName(i), r.reasonText(v.why[i])})
	}
	return e
}

func (v *View) idName(i int) string {
	if n := v.sn.nodes[v.idx[i]]; n != nil {
		return n.ID
	}
	return "?"
}

func (r *Router) reasonText(why reason) string {
	if why >= cutFilter {
		return "was cut by filter " + r.filters[why-cutFilter].name
	}
	return reasonNames[why]
}

// Observe closes a choice with the round-trip time the caller measured and
// its error; rtt 0 or less: measured since the pick, which reads the clock. A
// second call for the same choice is a counted no-op. Lock-free, no
// allocation.
func (r *Router) Observe(c Choice, rtt time.Duration, err error) {
	if c.n != nil {
		c.n.hub.observe(c, rtt, err)
	}
}
