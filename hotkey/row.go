package hotkey

import "math"

// A row is one key in the window that ends with some slot, newest slot first.
type row struct {
	hash   uint64
	slot   [lanes][slots]uint32
	missed uint64 // at most so many requests in the window are not in slot
	text   []byte
	cut    bool
}

// sum is the requests of a lane.
func (r *row) sum(lane int) (n uint64) {
	for _, c := range r.slot[lane] {
		n += uint64(c)
	}
	return n
}

// count is the requests of both lanes.
func (r *row) count() uint64 { return r.sum(laneRead) + r.sum(laneWrite) }

// merge adds the counts of the same key from elsewhere, d slots ago, in
// 0..slots. Counters stop at what fits.
func (r *row) merge(o *row, d int) {
	for l := range lanes {
		for k, n := range o.slot[l][:slots-d] {
			r.slot[l][k+d] = saturate(r.slot[l][k+d], n)
		}
	}
	r.missed += o.missed
	if len(r.text) < len(o.text) { // others may keep more of it
		r.text, r.cut = o.text, o.cut
	}
}

func saturate(a, b uint32) uint32 {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxUint32
}

// totals are the requests of all keys by slot, newest first.
type totals [slots]uint64

// merge adds totals from elsewhere, d slots ago, in 0..slots.
func (t *totals) merge(o *totals, d int) {
	for k, n := range o[:slots-d] {
		if t[k+d] += n; t[k+d] < n {
			t[k+d] = math.MaxUint64
		}
	}
}
