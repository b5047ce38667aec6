package ringwise

// live sums up what weigh met on its way.
type live struct {
	flags uint32  // of all candidates
	pen   penalty // likewise
	// quiet are those, as bits, for which it is not known well enough since
	// when they would be busy: idle, and the last answer is older than a
	// quarter of a latency. If it is younger, silence counted from it is right
	// to that quarter and reserve need not store the time: one atomic store
	// less a pick under load.
	quiet uint32
}

// tickets mixes those of the candidates: what picks at one instant differ by.
// It is the first to touch them.
func (sn *snapshot) tickets(cand []uint16) (mix uint64) {
	for _, slot := range cand {
		mix += sn.cols[slot].st.issued.Load() ^ uint64(slot)<<32
	}
	return mix
}

// weigh writes cost^k of each candidate into w, the inverse of its weight
// before filters and penalties. It writes nothing shared. latency and feedback are
// written out in it: as calls they are a third of a pick
// (TestWeigh_MatchesCost holds them together).
func (sn *snapshot) weigh(ln int, now int64, cand []uint16, w []float64) (seen live) {
	c, inv := sn.coef, sn.fleet[ln&1].inv
	cols := sn.cols
	w = w[:len(cand)]
	load, silence := c.load, c.silence
	for i, slot := range cand {
		col := &cols[slot]
		st := col.st
		ls := &st.lane[ln&1]
		// closed before issued: the other way round a pick that is preempted in
		// between sees less than none in flight, which is 16 million.
		closed := st.closed[laneRead].Load() + st.closed[laneWrite].Load()
		issued := st.issued.Load()
		n := (issued - closed) & inFlightMask
		seen.flags |= col.flags
		seen.pen |= ls.pen.load()
		lat := float64(col.base[ln&1])
		quiet := uint32(1)
		if word := ls.lat.Load(); word != 0 {
			known := unpackLat(word)
			age := ageOf(word, now)
			quiet = 0
			if n == 0 {
				if age*4 > int64(known) {
					quiet = 1
				}
				if x := float64(age*fadeSteps) * memInvOf(ls.mem.Load()); x < fadeEnd {
					j := uint8(x) // below fadeEnd, so that the table needs no check
					e := float64(fadeTable[j])
					e += (x - float64(j)) * (float64(fadeTable[int(j)+1]) - e)
					lat += (known - lat) * e
				}
			} else {
				lat = known
				if q := float64(min(age, now-st.busy.Load())); q > silence*known {
					lat = q
				}
			}
		}
		seen.quiet |= quiet << (i & 31)
		busy := 1 + load*float64(n)
		if sn.fbOn {
			busy += c.feedback(ls, &sn.fleet[ln&1], now)
		}
		x := lat * (busy * (float64(col.pre) * inv)) // lat comes last
		if c.k == 10 {
			x2 := x * x
			x4 := x2 * x2
			w[i] = x4 * x4 * x2
		} else {
			w[i] = c.power(x)
		}
	}
	return seen
}

// quiet is live.quiet of one worker, for picks that weighed more than one way.
func (st *workerState) quiet(ln int, now int64) bool {
	word := st.lane[ln].lat.Load()
	return word == 0 || st.inFlight() == 0 && ageOf(word, now)*4 > int64(unpackLat(word))
}

// fastCandidates is how many candidates the short path takes.
const fastCandidates = 4
