package ringwise

import (
	"fmt"
	"slices"
	"time"
)

// Plan appends the candidates of a request in the order in which to try them:
// the first drawn by the picker, the rest by weight, penalised ones last. It
// reserves nothing: take one with Start, or measure with ObserveWorker. With
// SpreadRacks no two share a zone and rack, as long as one that does not is
// left. A worker named once is not named again, so the list is finite.
func (r *Router) Plan(q Request, dst []Choice) ([]Choice, error) {
	sn, now := r.snap.Load(), r.startOf(&q)
	v := viewPool.Get().(*View)
	defer v.release()
	h, err := r.prepare(v, sn, &q, now)
	if err != nil {
		return dst, err
	}
	rnd := Rand{r.chance(h, now, v.mix)}
	first := v.idx[r.draw(v, &rnd)]
	order := make([]int, 0, MaxCandidates)
	for i := range v.all {
		if i < v.n || v.why[i] >= cutStale && v.why[i] <= cutThinned {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case (v.idx[a] == first) != (v.idx[b] == first):
			return order1(v.idx[a] == first)
		case (a < v.n) != (b < v.n):
			return order1(a < v.n)
		case a < v.n && v.w[a] != v.w[b]:
			return order1(v.w[a] > v.w[b])
		}
		return 0
	})
	if q.SpreadRacks {
		order = v.spread(order)
	}
	meta := q.meta(sn.coef)
	for _, i := range order {
		dst = append(dst, Choice{n: v.col(i).node, start: now, meta: meta})
	}
	return dst, nil
}

func order1(first bool) int {
	if first {
		return -1
	}
	return 1
}

// spread keeps the order but puts a worker whose rack has been used behind
// all whose racks have not.
func (v *View) spread(order []int) []int {
	type place struct{ zone, rack string }
	used := map[place]bool{}
	var ahead, behind []int
	for _, i := range order {
		w := v.Worker(i)
		p := place{w.Zone, w.Rack}
		if w.Rack != "" && used[p] {
			behind = append(behind, i)
			continue
		}
		used[p] = true
		ahead = append(ahead, i)
	}
	return append(ahead, behind...)
}

// Start reserves a named worker: one of a Plan, or one that a server named.
// Penalties are not asked; a worker that is unknown or Down is refused with a
// *NoWorkerError.
func (r *Router) Start(q Request, id string) (Choice, error) {
	sn := r.snap.Load()
	if sn.closed {
		return Choice{}, ErrClosed
	}
	if q.Intent >= intents {
		return Choice{}, badIntent(q.Intent)
	}
	slot, ok := sn.byID[id]
	if !ok {
		r.counters.unknownIDs.Add(1)
		return Choice{}, &NoWorkerError{[]CandidateReason{{id, reasonNames[cutAbsent]}}}
	}
	col := &sn.cols[slot]
	if col.flags&flagDown != 0 {
		r.counters.noWorker.Add(1)
		return Choice{}, &NoWorkerError{[]CandidateReason{{id, reasonNames[cutDown]}}}
	}
	now := r.startOf(&q)
	probe, _ := r.admit(sn, col, laneOf(q.Intent), now)
	return r.reserve(col, laneOf(q.Intent), now, q.size(), col.st.inFlight() == 0, q.leaseBits(sn.coef)|probe, q.meta(sn.coef)), nil
}

// StartWorker makes an anonymous reservation on a worker, for clients whose
// hooks name workers but carry no state: ObserveWorker closes the oldest. It
// expires like others and never touches those of Pick. An unknown ID is
// counted and nothing else; after Close nothing happens.
func (r *Router) StartWorker(id string) {
	sn := r.snap.Load()
	slot, ok := sn.byID[id]
	if !ok {
		r.counters.unknownIDs.Add(1)
		return
	}
	if sn.closed {
		return
	}
	st := sn.cols[slot].st
	if st.inFlight() == 0 {
		st.busy.Store(r.now())
	}
	st.issued.Add(1)
	st.anonIssued.Add(1)
}

// ObserveWorker books an answer for a worker by name, without a Choice; rtt 0
// or less: not known, over 100 s: counts as 100 s. It closes the worker's oldest anonymous reservation, if
// there is one, and counts on the lane of reads. An unknown ID is counted and
// nothing else.
func (r *Router) ObserveWorker(id string, rtt time.Duration, err error) {
	sn := r.snap.Load()
	slot, ok := sn.byID[id]
	if !ok {
		r.counters.unknownIDs.Add(1)
		return
	}
	col := &sn.cols[slot]
	now := r.now()
	if st := col.st; st.takeAnon(1) == 0 { // begun and ended here, so that it is in the means
		if st.inFlight() == 0 {
			st.busy.Store(now)
		}
		st.issued.Add(1)
	}
	o := Outcome{Err: err, RTT: rtt}
	start := max(now-int64(max(rtt, 0)), 0)
	e := end{n: col.node, lane: laneRead, now: now, start: start, rtt: rtt, timeout: sn.coef.timeout,
		size: 1, units: true, trained: rtt <= 0,
		gen: col.st.lane[laneRead].pen.load().genAt(start)}
	if rtt > 0 {
		e.verdict, e.short = r.verdict(&o, rtt, e.timeout)
	} else { // nothing says that a deadline was a short one
		e.verdict, _ = r.verdict(&o, time.Duration(e.timeout), e.timeout)
	}
	r.settle(sn, &e, &o)
	if now >= r.nextFold.Load() {
		r.foldDue(now)
	}
}

// Batch is one worker's part of a multi-key call.
type Batch struct {
	Choice Choice
	Keys   []int // indices into the keys given to Group
}

// groupKeep is the share of the best candidate's weight at which a key joins
// a worker that has a batch already: 7 points, twice the cost, at T = 1.
const groupKeep = 1.0 / 1024

// Group spreads a multi-key call over few workers: each key goes to one of
// its own candidates, to one that has a batch already where that is not much
// costlier. One reservation, of as many units as keys, and one verdict a
// worker; close each with Outcome.Batch set. A key without a worker fails the
// whole with nothing reserved. q gives all but the key.
func (r *Router) Group(keys []string, q Request, dst []Batch) ([]Batch, error) {
	sn, now := r.snap.Load(), r.startOf(&q)
	v := viewPool.Get().(*View)
	defer v.release()
	from := len(dst)
	cols := make([]*column, 0, 8)
	var relaxed Relaxed
	for k, key := range keys {
		q.Key, q.KeyBytes, q.Hash = key, nil, 0
		h, err := r.prepare(v, sn, &q, now)
		if err != nil {
			return dst[:from], fmt.Errorf("ringwise: key %d of %d: %w", k, len(keys), err)
		}
		rnd := Rand{r.chance(h, now, v.mix)}
		i := r.draw(v, &rnd)
		top := 0.0
		for _, w := range v.w[:v.n] {
			top = max(top, w)
		}
		into := -1
		for b, col := range cols {
			for j := range v.n {
				// One held to a share of its traffic gets what is drawn for it.
				if v.col(j) == col && v.w[j] >= top*groupKeep && (v.factor[j] == 1 || j == i) && (into < 0 || len(dst[from+b].Keys) > len(dst[from+into].Keys)) {
					into = b
				}
			}
		}
		if into < 0 {
			into = len(cols)
			cols = append(cols, v.col(i))
			dst = append(dst, Batch{})
		}
		for j := range v.n {
			if v.col(j) == cols[into] {
				r.picked(v, h, &q, j)
			}
		}
		dst[from+into].Keys = append(dst[from+into].Keys, k)
		relaxed |= v.relaxed
	}
	ln := laneOf(q.Intent)
	for b, col := range cols {
		probe, _ := r.admit(sn, col, ln, now)
		q.Size = uint32(len(dst[from+b].Keys))
		meta := q.meta(sn.coef) | uint64(relaxed)<<metaRelaxedShift
		dst[from+b].Choice = r.reserve(col, ln, now, q.size(), col.st.inFlight() == 0, q.leaseBits(sn.coef)|probe, meta)
	}
	return dst, nil
}
