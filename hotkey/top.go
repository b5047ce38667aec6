package hotkey

import (
	"cmp"
	"slices"
)

// Stat is what is known of one key.
type Stat struct {
	Hash uint64
	Key  string
	Cut  bool // Key is the beginning of a longer key
	// Reads and Writes are requests in the window, never too many.
	Reads, Writes uint64
	// Missed bounds what the counts lack: requests in the window from before the
	// key came in. Reads + Writes + Missed is never too few.
	Missed uint64
	Kind   Kind // as of now
}

// Top is the n keys with the most requests in the window, most first, of this
// Tracker and what was merged; equal ones by hash. It allocates; it is for
// people and reports, not for each request.
func (t *Tracker) Top(now int64, n int) []Stat {
	tick := t.tickOf(now)
	total := t.totals(tick)
	sc := t.scaleOf(&total, now)
	rows := make([]row, 0, t.capacity)
	arena := make([]byte, 0, t.capacity*min(t.maxKey, 32))
	t.each(tick, func(r *row) {
		at := len(arena)
		arena = append(arena, r.text...)
		rows = append(rows, *r)
		rows[len(rows)-1].text = arena[at:]
	})
	top := hottest(rows, n)
	out := make([]Stat, len(top))
	for i, at := range top {
		r := &rows[at]
		out[i] = Stat{
			Hash: r.hash, Key: string(r.text), Cut: r.cut,
			Reads: r.sum(laneRead), Writes: r.sum(laneWrite), Missed: r.missed, Kind: sc.kind(r),
		}
	}
	return out
}

// hottest is where the n rows with the most requests are, most first, equal
// ones by hash. Rows without requests are left out.
func hottest(rows []row, n int) []int {
	type ranked struct {
		count, hash uint64
		at          int
	}
	all := make([]ranked, 0, len(rows))
	for i := range rows {
		if c := rows[i].count(); c > 0 {
			all = append(all, ranked{c, rows[i].hash, i})
		}
	}
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.hash, b.hash))
	})
	top := make([]int, min(max(n, 0), len(all)))
	for i := range top {
		top[i] = all[i].at
	}
	return top
}

// totals are all requests at a tick, of this Tracker and what was merged.
func (t *Tracker) totals(tick int64) (total totals) {
	for i := range t.sets {
		t.sets[i].addTo(&total, tick)
	}
	if p := t.peers.Load(); p != nil {
		total.merge(&p.total, age(p.tick, tick))
	}
	return total
}

// each calls fn for every key at a tick, of this Tracker and what was merged,
// once. fn must not keep the row's text. No lock is held meanwhile.
func (t *Tracker) each(tick int64, fn func(*row)) {
	p := t.peers.Load()
	var rows []row
	var buf []byte
	var seen []bool
	if p != nil {
		seen = make([]bool, len(p.rows))
	}
	for i := range t.sets {
		rows, buf = t.sets[i].read(tick, rows[:0], buf[:0])
		for k := range rows {
			if p != nil {
				if at := p.addTo(&rows[k], tick); at >= 0 {
					seen[at] = true
				}
			}
			fn(&rows[k])
		}
	}
	if p == nil {
		return
	}
	for i := range p.rows {
		if seen[i] {
			continue
		}
		// It may have come in meanwhile: then it counts here, and only here.
		r := t.setOf(p.rows[i].hash).one(tick, p.rows[i].hash)
		p.addTo(&r, tick)
		fn(&r)
	}
}

// merged is one key at a tick, of this Tracker and what was merged.
func (t *Tracker) merged(tick int64, hash uint64) row {
	r := t.setOf(hash).one(tick, hash)
	if p := t.peers.Load(); p != nil {
		p.addTo(&r, tick)
	}
	return r
}
