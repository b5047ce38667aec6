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
		c := r.short(sn, hashOfSeeded(key, r.hub.seed), Unspecified, readClock, 1, 0, sn.coef.timeoutMeta)
		if c.n != nil {
			return c, nil
		}
		return r.long(&Request{Key: key}, c.start, c.meta)
	}
	return r.long(&Request{Key: key}, r.now(), 0)
}

// Route is the full form of Pick. It fails with a *NoWorkerError where no
// candidate is allowed, a *ConfigError where the request names none, and
// ErrClosed.
func (r *Router) Route(q Request) (Choice, error) {
	sn, now := r.snap.Load(), r.startOf(&q)
	sample := uint64(0)
	if sn.plain && q.ordinary() && q.Tenant == "" {
		if h := q.hash(r.hub.seed); h != 0 {
			c := r.short(sn, h, q.Intent, now, q.size(), q.leaseBits(sn.coef), q.meta(sn.coef))
			if c.n != nil {
				return c, nil
			}
			sample = c.meta
		}
	}
	return r.long(&q, now, sample)
}

// ordinary requests ask for nothing that the short path does not do, quotas
// of tenants apart.
func (q *Request) ordinary() bool {
	return q.Intent < intents && q.Intent != Pinned && q.MinVersion == 0 &&
		!q.Any && q.Among == nil && q.Tried == nil
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

// long is the whole pick. sample is what short left in the meta word: zero, or
// 32 random bits that say what the pick is a sample for.
func (r *Router) long(q *Request, now int64, sample uint64) (Choice, error) {
	sn := r.snap.Load()
	group := groupNone
	if sn.trial != nil {
		h, tenant := r.placed(q, sn, now)
		sn, group = sn.as(q, tenant, h)
		if group == groupNone && sn.direct && sample == 0 && h != 0 && q.ordinary() && (q.Tenant == "" || r.quota == nil) {
			c := r.short(sn, h, q.Intent, now, q.size(), q.leaseBits(sn.coef), q.meta(sn.coef))
			if c.n != nil {
				return c, nil
			}
			sample = c.meta
		}
	}
	v := viewPool.Get().(*View)
	defer v.release()
	h, err := r.prepare(v, sn, q, now)
	if err != nil {
		return Choice{}, err
	}
	v.group = group
	return r.choose(v, h, q, sample)
}

// as is the snapshot by whose coefficients a request is picked, and its group.
func (sn *snapshot) as(q *Request, tenant string, h KeyHash) (*snapshot, int) {
	if sn.trial == nil {
		return sn, groupNone
	}
	group := sn.trial.of(h, tenant, q.Canary)
	if group == groupCanary {
		return sn.canary, group
	}
	return sn, group
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
	h := r.readKey(v, q)
	v.hash = h
	if v.plainHash == 0 {
		if v.plainHash = h; r.hub.seed != 0 {
			v.plainHash = q.hash(0) // what workers know
		}
	}
	if err := r.candidates(v, h, q); err != nil {
		return 0, err
	}
	if err := r.narrow(v); err != nil {
		return h, err
	}
	if r.directory != nil && r.consult(v, h, q) {
		return h, r.narrow(v)
	}
	return h, nil
}

// narrow filters and scores the candidates of a view.
func (r *Router) narrow(v *View) error {
	v.sn.weighView(v)
	v.cutForbidden()
	r.cutQuota(v)
	r.cutByFilters(v)
	if v.n == 0 {
		return r.noWorker(v)
	}
	if v.req.Intent == Pinned {
		v.pin()
		return nil
	}
	v.cutDefective()
	v.penalise()
	r.score(v)
	return nil
}

func (v *View) begin(sn *snapshot, q *Request, now int64) {
	v.sn, v.now, v.lane = sn, now, laneOf(q.Intent)
	v.req = *q
	v.req.KeyBytes = nil
	v.hash, v.plainHash, v.key, v.directed = 0, 0, parsedKey{}, false
	v.said, v.group, v.tried = 0, groupNone, false
	v.again()
}

// again begins with no candidates.
func (v *View) again() {
	v.n, v.all, v.scored = 0, 0, false
	v.relaxed, v.panic, v.ramp, v.truncated, v.seen, v.mix = 0, false, false, false, live{}, 0
	v.why = [MaxCandidates]reason{}
	for i := range v.factor {
		v.factor[i] = 1
	}
	if v.rec != nil {
		*v.rec = recorder{}
	}
}

func (v *View) release() {
	v.sn, v.req, v.rec, v.key = nil, Request{}, nil, parsedKey{}
	viewPool.Put(v)
}

func (sn *snapshot) weighView(v *View) {
	v.mix = sn.tickets(v.idx[:v.n])
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
	if len(r.scorers) > 0 || c.tuning.LiveWeight == 0 || r.picker != nil || r.directory != nil || v.rec != nil {
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
func (r *Router) choose(v *View, h KeyHash, q *Request, sample uint64) (Choice, error) {
	v.rnd = Rand{r.chance(h, v.now, v.mix)}
	rnd := &v.rnd
	meta, size, bits := q.meta(v.sn.coef), q.size(), q.leaseBits(v.sn.coef)
	if sample == 0 {
		sample = rnd.s << 32
	}
	sample >>= 32
	if sample < v.sn.shadowUnder && q.Intent != Pinned {
		r.shade(v, unit(rnd.s))
	}
	saturated := v.saturated()
	due := -1
	if v.seen.flags&flagDue != 0 {
		due = r.due(v, true)
	}
	for range MaxCandidates {
		i := due
		if v.tried, due = i >= 0, -1; i < 0 {
			i = r.draw(v, rnd)
		}
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
		if saturated {
			meta |= metaSaturated
			r.counters.saturated.Add(1)
		}
		if v.said != 0 && sample&0xf0 == 0 { // one in 16
			w := &col.st.cold.watch
			w.scored.Add(uint64(clamp(v.total[i], 0, 100) * 1000))
			w.scoredN.Add(1)
		}
		if v.group != groupNone {
			meta |= metaCounted
			if v.group == groupCanary {
				meta |= metaCanary
			}
			v.sn.trial.picked(v.group, v.idx[:v.n], i)
		}
		if sample < r.keepUnder {
			r.samples.keep(v, i)
		}
		if r.log != nil && sample < r.log.under {
			r.log.put(v, i)
		}
		r.picked(v, h, q, i)
		return r.reserve(col, v.lane, v.now, size, col.st.quiet(v.lane, v.now), bits|probe, meta), nil
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
// its error; rtt 0 or less: measured since the pick, which reads the clock; over
// 100 s: counts as 100 s. A second call for the same choice is a counted no-op.
// Lock-free, no allocation.
func (r *Router) Observe(c Choice, rtt time.Duration, err error) {
	if c.n != nil {
		c.n.hub.observe(c, rtt, err)
	}
}
