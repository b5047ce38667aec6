package hotkey

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// A peerView is what other processes exported, merged.
type peerView struct {
	tick   int64 // of the newest slot
	oldest int64 // ns: when the oldest of the exports was taken
	floor  uint64
	total  totals
	rows   []row // ascending by hash
}

// Merge makes the exports of other processes, each one's latest, count in Top,
// Heat and Change from now on, in place of those of the Merge before: an export
// is all that its process knows, so to add it up with an older one would count
// twice. For the same reason a Tracker's own export is passed over and of two
// from one source the later counts. Merge without exports forgets them all.
//
// What the exports count ages as time goes by, so an old one says less and less,
// and nothing after the window. The hottest Capacity keys are kept.
//
// If one export cannot be merged, the error names it (*ExportError) and nothing
// changes. One that was taken more than a tick after now cannot: the clocks are
// apart.
func (t *Tracker) Merge(now int64, exports ...[]byte) error {
	var all []*export
	for i, b := range exports {
		e, bad := decode(b)
		switch {
		case bad != nil:
		case e.tick != t.tick:
			bad = &ExportError{Offset: tickAt, Field: "tick", Value: e.tick, Want: fmt.Sprint(t.tick)}
		case e.taken > now && uint64(e.taken-now) > uint64(t.tick):
			bad = &ExportError{Offset: takenAt, Field: "taken", Value: e.taken, Want: "at most a tick after now"}
		}
		if bad != nil {
			bad.Index = i
			return bad
		}
		if e.source != t.source {
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b *export) int {
		return cmp.Or(cmp.Compare(a.source, b.source), cmp.Compare(b.taken, a.taken))
	})
	all = slices.CompactFunc(all, func(a, b *export) bool { return a.source == b.source })
	if len(all) == 0 {
		t.peers.Store(nil)
		return nil
	}
	t.peers.Store(t.join(all))
	return nil
}

// join adds up exports of different sources, counts and bounds alike.
func (t *Tracker) join(exports []*export) *peerView {
	p := &peerView{tick: math.MinInt64, oldest: math.MaxInt64}
	size := 0
	for _, e := range exports {
		p.tick = max(p.tick, t.tickOf(e.taken))
		p.oldest = min(p.oldest, e.taken)
		size += len(e.rows)
	}
	rows := make([]row, 0, size)
	for _, e := range exports {
		d := age(t.tickOf(e.taken), p.tick)
		if d >= slots {
			continue
		}
		p.total.merge(&e.total, d)
		p.floor += e.floor // of at most 2^48 each
		for i := range e.rows {
			r := row{hash: e.rows[i].hash}
			r.merge(&e.rows[i], d)
			// Who does not list a key missed at most its floor of it: that is
			// added for all, below, and here taken back from who lists it.
			r.missed -= e.floor // wraps, and back again below
			rows = append(rows, r)
		}
	}
	sortByHash(rows)
	kept := rows[:0]
	for i := range rows {
		if n := len(kept); n > 0 && kept[n-1].hash == rows[i].hash {
			kept[n-1].merge(&rows[i], 0)
		} else {
			kept = append(kept, rows[i])
		}
	}
	for i := range kept {
		kept[i].missed += p.floor
	}
	if len(kept) > t.capacity {
		var left uint64
		kept, left = cutTo(kept, t.capacity)
		p.floor = max(p.floor, left)
	}
	p.rows = t.own(kept)
	return p
}

// own copies rows and their texts, so that nothing larger is held on to.
func (t *Tracker) own(rows []row) []row {
	size := 0
	for i := range rows {
		if r := &rows[i]; len(r.text) > t.maxKey {
			r.text, r.cut = r.text[:t.maxKey], true
		}
		size += len(rows[i].text)
	}
	rows = slices.Clone(rows)
	texts := make([]byte, 0, size)
	for i := range rows {
		at := len(texts)
		texts = append(texts, rows[i].text...)
		rows[i].text = texts[at:]
	}
	return rows
}

// addTo adds to a row what the view has of its key, and is where that is in
// rows, -1 if nowhere.
func (p *peerView) addTo(r *row, tick int64) int {
	d := age(p.tick, tick)
	if d >= slots {
		return -1
	}
	i, found := slices.BinarySearchFunc(p.rows, r.hash, func(r row, hash uint64) int { return cmp.Compare(r.hash, hash) })
	if !found {
		r.missed += p.floor
		return -1
	}
	r.merge(&p.rows[i], d)
	return i
}

func sortByHash(rows []row) {
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.hash, b.hash) })
}
