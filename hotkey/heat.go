package hotkey

import "time"

// Kind is the heat of a key: cold, or how long it has been hot and by what.
//
// What a caller may do: a key under a read burst is worth a short-lived local
// cache; one under sustained reads is worth more replicas to read from. A
// write-heavy key gains from neither, but from a worker that is good at writing.
type Kind uint8

// The kinds. A key is sustained if it was hot in Tuning.SustainedMinutes of the
// last five minutes, a burst if not and it was hot in the last one.
const (
	Cold Kind = iota
	ReadBurst
	WriteBurst
	ReadSustained
	WriteSustained
)

var kindNames = [...]string{"cold", "read burst", "write burst", "read sustained", "write sustained"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Hot is false for Cold only.
func (k Kind) Hot() bool { return k != Cold }

// Sustained: hot for minutes, not since just now.
func (k Kind) Sustained() bool { return k == ReadSustained || k == WriteSustained }

// ReadHeavy: hot, by reads.
func (k Kind) ReadHeavy() bool { return k == ReadBurst || k == ReadSustained }

// minutes is how many of them, two slots each, the window has.
const minutes = slots / 2

// A judgement is what one Refresh found.
type judgement struct {
	at  int64 // the now of the Refresh
	hot map[uint64]verdict
}

type verdict struct {
	kind Kind
	key  string
	cut  bool
}

// A scale is what the minutes of a key are measured by.
type scale struct {
	tuning *Tuning
	need   [minutes]float64 // requests that make a minute hot
}

// scaleOf is the scale for totals at a time, of which rest is how much of the
// newest slot is yet to come.
func (t *Tracker) scaleOf(total *totals, now int64) scale {
	sc := scale{tuning: t.tuning.Load()}
	rest := (t.tickOf(now)+1)*t.tick - now
	for m := range sc.need {
		length := 2 * t.tick
		if m == 0 {
			length -= rest
		}
		all := float64(total[2*m]) + float64(total[2*m+1])
		sc.need[m] = max(sc.tuning.HotShare*all, sc.tuning.HotRate*time.Duration(length).Seconds())
	}
	return sc
}

// kind judges a key.
func (sc *scale) kind(r *row) Kind {
	var hot [minutes]bool
	n := 0
	for m := range hot {
		requests := 0.0
		for l := range lanes {
			requests += float64(r.slot[l][2*m]) + float64(r.slot[l][2*m+1])
		}
		if requests >= sc.need[m] {
			hot[m] = true
			n++
		}
	}
	kind := Cold
	switch {
	case n >= sc.tuning.SustainedMinutes:
		kind = ReadSustained
	case hot[0]:
		kind = ReadBurst
	default:
		return Cold
	}
	if float64(r.sum(laneRead)) < sc.tuning.readBorder()*float64(r.sum(laneWrite)) {
		kind++ // the same by writes
	}
	return kind
}

// Heat is the kind of a key as of the last Refresh, of this Tracker's requests
// and those merged. A judgement stays in use while there is no newer one, but
// not for longer than the window: then every key is Cold, as before the first.
// Lock-free, no allocation.
func (t *Tracker) Heat(now int64, hash uint64) Kind {
	j := t.judged.Load()
	if j == nil || j.at < now-t.window {
		return Cold
	}
	return j.hot[max(hash, 1)].kind
}

// Stale: no Refresh, or a merged export, is as young as Tuning.Trust. What is
// stale stays in use; this is the time to call Refresh, or to fetch and Merge.
func (t *Tracker) Stale(now int64) bool {
	trust := int64(t.tuning.Load().Trust)
	if j := t.judged.Load(); j == nil || j.at < now-trust {
		return true
	}
	p := t.peers.Load()
	return p != nil && p.oldest < now-trust
}

// Change is a key whose kind is another than at the last Refresh.
type Change struct {
	Hash     uint64
	Key      string
	Cut      bool // Key is the beginning of a longer key
	From, To Kind
	Reads    uint64 // in the window
	Writes   uint64
}

// Refresh judges all keys, for Heat, and appends those whose kind changed to
// dst, in no order. Call it each second or so, by one goroutine: that is how
// soon a burst is seen. It takes about 75 ns for each key of the capacity and
// holds one set's lock at a time.
func (t *Tracker) Refresh(now int64, dst []Change) []Change {
	t.refresh.Lock()
	defer t.refresh.Unlock()
	old := t.judged.Load()
	tick := t.tickOf(now)
	total := t.totals(tick)
	sc := t.scaleOf(&total, now)
	next := &judgement{at: now, hot: map[uint64]verdict{}}
	t.each(tick, func(r *row) {
		k := sc.kind(r)
		if k == Cold {
			return
		}
		v := verdict{kind: k}
		var was Kind
		if old != nil {
			prev := old.hot[r.hash]
			v.key, v.cut, was = prev.key, prev.cut, prev.kind
		}
		if len(v.key) != len(r.text) {
			v.key, v.cut = string(r.text), r.cut
		}
		next.hot[r.hash] = v
		if was != k {
			dst = append(dst, change(r, v, was, k))
		}
	})
	if old != nil {
		for hash, v := range old.hot {
			if _, ok := next.hot[hash]; !ok {
				r := t.merged(tick, hash)
				dst = append(dst, change(&r, v, v.kind, Cold))
			}
		}
	}
	t.judged.Store(next)
	return dst
}

func change(r *row, v verdict, from, to Kind) Change {
	return Change{
		Hash: r.hash, Key: v.key, Cut: v.cut, From: from, To: to,
		Reads: r.sum(laneRead), Writes: r.sum(laneWrite),
	}
}
