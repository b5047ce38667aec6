package ringwise

// live sums up what weigh met on its way.
type live struct {
	flags uint32  // of all candidates
	pen   penalty // likewise
	mix   uint64  // of their tickets
}

// weigh writes the weight cost^-k of each candidate into w, penalties and
// filters not yet applied. It writes nothing shared. latency and feedback are
// written out in it: as calls they are a third of a pick
// (TestWeigh_MatchesCost holds them together).
func (sn *snapshot) weigh(ln int, now int64, cand []uint16, w []float64) (seen live) {
	c, inv := sn.coef, sn.fleet[ln&1].inv
	cols := sn.cols
	w = w[:len(cand)]
	for i, slot := range cand {
		col := &cols[slot]
		st := col.st
		ls := &st.lane[ln&1]
		issued := st.issued.Load()
		n := (issued - st.closed[laneRead].Load() - st.closed[laneWrite].Load()) & inFlightMask
		seen.flags |= col.flags
		seen.pen |= ls.pen.load()
		seen.mix += issued ^ uint64(slot)<<32
		lat := float64(col.base[ln&1])
		if word := ls.lat.Load(); word != 0 {
			known := unpackLat(word)
			age := ageOf(word, now)
			if n == 0 {
				x := min(float64(age)*memInvOf(ls.mem.Load())*fadeSteps, fadeEnd)
				j := int(x)
				e := float64(fadeTable[j])
				e += (x - float64(j)) * (float64(fadeTable[j+1]) - e)
				lat += (known - lat) * e
			} else {
				lat = known
				if q := float64(min(age, now-st.busy.Load())); q > c.silence*known {
					lat = q
				}
			}
		}
		load := 1 + c.load*float64(n)
		if sn.fbOn {
			load += c.feedback(ls, &sn.fleet[ln&1], now)
		}
		x := lat * load * float64(col.pre) * inv
		if c.k == 10 {
			x2 := x * x
			x4 := x2 * x2
			w[i] = 1 / (x4 * x4 * x2)
		} else {
			w[i] = c.power(x)
		}
	}
	return seen
}

// fastCandidates is how many candidates the short path takes.
const fastCandidates = 4
