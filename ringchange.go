package ringwise

import "slices"

// change is the ring of other members with the same options, equal in all
// respects to a fresh build. A member that stays should keep its slot. Few
// changes cost a copy of the points and a repair of the table rows in which a
// changed worker stands, many a rebuild. Nothing changed gives r itself; an
// error leaves r as it was.
func (r *Ring) change(members []member) (*Ring, error) {
	next, err := prepare(r.place, members, r.perUnit, r.slotBits, r.replicas)
	if err != nil {
		return nil, err
	}
	if slices.Equal(r.members, next.members) {
		return r, nil
	}
	edits, ok := r.diff(next)
	if !ok || !r.merge(next, edits) {
		next.build()
		return next, nil
	}
	if !r.repair(next, edits) {
		next.fill()
	}
	return next, nil
}

// edit is one point to add or remove, as a number that sorts by ring slot,
// removals first: ring slot, 1 bit add, 16 bits position within, worker slot.
type edit uint64

func (e edit) ringSlot() int { return int(e >> 33) }
func (e edit) add() bool     { return e>>32&1 != 0 }
func (e edit) point() uint32 { return uint32(e) }
func (e edit) slot() uint16  { return uint16(e) }

// diff lists the points in which next differs, sorted; false when a rebuild is
// cheaper or the rings have too little in common.
func (r *Ring) diff(next *Ring) ([]edit, bool) {
	if r.stride != next.stride || r.packs() != next.packs() {
		return nil, false
	}
	limit := len(r.points) / 8
	rest := 32 - r.slotBits
	var edits []edit
	var buf []uint32
	put := func(m placed, from, to int, add edit) bool {
		if len(edits)+to-from > limit {
			return false
		}
		buf = r.place(m.id, from, to, buf[:0])
		for _, pos := range buf {
			edits = append(edits, edit(pos>>rest)<<33|add<<32|edit(pack(pos, rest, m.slot)))
		}
		return true
	}
	old, fresh := r.members, next.members
	for len(old) > 0 || len(fresh) > 0 {
		ok := true
		switch {
		case len(fresh) == 0 || len(old) > 0 && old[0].id < fresh[0].id:
			ok = put(old[0], 0, old[0].n, 0)
			old = old[1:]
		case len(old) == 0 || fresh[0].id < old[0].id:
			ok = put(fresh[0], 0, fresh[0].n, 1)
			fresh = fresh[1:]
		default:
			a, b := old[0], fresh[0]
			switch {
			case a.slot != b.slot:
				ok = false
			case a.n > b.n:
				ok = put(a, b.n, a.n, 0)
			case a.n < b.n:
				ok = put(b, a.n, b.n, 1)
			}
			old, fresh = old[1:], fresh[1:]
		}
		if !ok {
			return nil, false
		}
	}
	slices.Sort(edits)
	return edits, true
}

// merge sets the points of next: whole stretches are copied, ring slots with
// an edit put together anew.
func (r *Ring) merge(next *Ring, edits []edit) bool {
	next.first = make([]uint32, len(r.first))
	next.points = make([]uint32, 0, len(r.points)+len(edits))
	s := 0
	copyTo := func(end int) { // ring slots s..end-1
		shift := uint32(len(next.points)) - r.first[s] // may wrap: only differences count
		for i := s; i < end; i++ {
			next.first[i] = r.first[i] + shift
		}
		next.points = append(next.points, r.points[r.first[s]:r.first[end]]...)
		s = end
	}
	for len(edits) > 0 {
		copyTo(edits[0].ringSlot())
		at := len(next.points)
		copyTo(s + 1)
		for ; len(edits) > 0 && edits[0].ringSlot() == s-1; edits = edits[1:] {
			p, run := edits[0].point(), next.points[at:]
			if !edits[0].add() {
				i := slices.Index(run, p)
				if i < 0 {
					return false
				}
				next.points = slices.Delete(next.points, at+i, at+i+1)
				continue
			}
			i := 0
			for i < len(run) && !next.before(p, run[i]) {
				i++
			}
			next.points = slices.Insert(next.points, at+i, p)
		}
	}
	copyTo(len(r.first) - 1)
	next.first[s] = uint32(len(next.points))
	return true
}

// before orders two points of one ring slot by position, then ID.
func (r *Ring) before(a, b uint32) bool {
	if a>>16 != b>>16 {
		return a>>16 < b>>16
	}
	return r.ids[uint16(a)] < r.ids[uint16(b)]
}

// repair sets the table of next: a copy with the rows computed anew in which
// an edited point can matter. Those lie without a gap from the point's own
// ring slot backwards for as long as the worker stands in the row: the old one
// for a point removed, the new one for a point added. False when that is more
// work than to fill the table.
func (r *Ring) repair(next *Ring, edits []edit) bool {
	next.packed, next.table = r.expanded(), slices.Clone(r.table)
	row := make([]uint16, r.stride)
	budget := (len(r.points) + len(r.first)) / 2
	mask := 1<<r.slotBits - 1
	for _, e := range edits {
		for s, left := e.ringSlot(), mask+1; left > 0; s, left = (s-1)&mask, left-1 {
			if r.row(s, row); !e.add() && !slices.Contains(row, e.slot()) {
				break
			}
			budget -= next.scan(int(next.first[s]), row)
			next.setRow(s, row)
			if budget < 0 {
				return false
			}
			if e.add() && !slices.Contains(row, e.slot()) {
				break
			}
		}
	}
	next.compress()
	return true
}
