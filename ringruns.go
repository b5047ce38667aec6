package ringwise

import "math/bits"

// runs says, for 64 ring slots, at which of them a row begins that differs
// from the one before: row number = rank + ones up to the slot - 1. With 1000
// points a worker, 100 workers have 104,000 rows on 262,144 ring slots.
type runs struct {
	starts uint64
	rank   uint32 // rows that begin before these slots
}

func (b *runs) rowOf(slot int) int {
	return int(b.rank) + bits.OnesCount64(b.starts<<(63-slot&63)) - 1
}

// compress keeps one row a run, where that takes a quarter off the table: with
// 1 MB it lies in a second-level cache by luck (DESIGN.md, the floor).
func (r *Ring) compress() {
	rows := r.packed
	n := 0
	for i, row := range rows {
		if i == 0 || row != rows[i-1] {
			n++
		}
	}
	if rows == nil || n > len(rows)*3/4 {
		return
	}
	index := make([]runs, len(rows)/64)
	kept := make([]uint32, 0, n)
	for i, row := range rows {
		b := &index[i>>6]
		if i&63 == 0 {
			b.rank = uint32(len(kept))
		}
		if i == 0 || row != rows[i-1] {
			kept = append(kept, row)
			b.starts |= 1 << (i & 63)
		}
	}
	r.runs, r.packed = index, kept
}

// expanded is a copy of the packed table with a row for each ring slot.
func (r *Ring) expanded() []uint32 {
	if r.packed == nil {
		return nil
	}
	rows := make([]uint32, 1<<r.slotBits)
	if r.runs == nil {
		copy(rows, r.packed)
		return rows
	}
	for i := range rows {
		rows[i] = r.packed[r.runs[i>>6].rowOf(i)]
	}
	return rows
}
