package ringwise

import "math"

// short is a pick in which nothing is out of the ordinary: at most four
// candidates of the ring, no filter to apply, no penalty, softmax of live cost
// alone. It gives up, with a Choice of nobody, as soon as one of these is not so;
// long then does the whole, at the time and for the sample that the Choice
// holds. Both weigh with the same code. now may be readClock.
func (r *Router) short(sn *snapshot, h KeyHash, intent Intent, now int64, size, bits, meta uint64) Choice {
	var w [fastCandidates]float64
	var buf [MaxCandidates]uint16
	cand := sn.ring.owners(h, &buf)
	mix, read := uint64(0), now == readClock
	if read {
		// The clock last: a read waits for all that was begun before it, so
		// what tickets fetches from far comes in together (DESIGN.md, the floor).
		mix = sn.tickets(cand)
		now = r.now()
	}
	if uint(len(cand)-1) >= fastCandidates {
		return Choice{start: now}
	}
	ln := laneOf(intent)
	seen := sn.weigh(ln, now, cand, w[:len(cand)])
	if seen.pen&penPhase != 0 || seen.flags&sn.special[intent] != 0 {
		return Choice{start: now}
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
		return Choice{start: now}
	}
	if !read {
		mix = sn.tickets(cand)
	}
	u := r.chance(h, now, mix)
	if uint64(uint32(u)) < sn.sampleUnder {
		return Choice{start: now, meta: metaReserved | u<<32} // to be kept, logged or scored in shadow: the long way
	}
	x := unit(u) * sum
	// The draw, without a branch: positive floats compare as their bits.
	i := over(x, w[0]) + over(x, w[0]+w[1]) + over(x, w[0]+w[1]+w[2])
	i = min(i, len(cand)-1)
	col := &sn.cols[cand[i]]
	return r.reserve(col, ln, now, size, seen.quiet>>(i&31)&1 != 0, bits, meta)
}

// readClock stands for a time not read yet.
const readClock = -1

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
