package ringwise

import (
	"math"
	"sync/atomic"
)

// A kindHistory remembers for the last minute which worker served which kind of
// key, as heat: the sum of 0.98^age over the requests, age in seconds. It is
// bounded: a fixed table of (kind, worker) entries in sets of four, of which
// the one unused for longest makes room. It has no lock; requests counted at
// the same instant as an entry changes hands may be lost or be credited to
// the newcomer.
type kindHistory struct {
	sets []historySet
}

const (
	historyWays  = 4
	historySlots = 12         // of five seconds: the last minute
	historySlot  = int64(5e9) // ns
	historyCool  = 0.98       // a second
	historySize  = 4096       // entries: 256 KiB
	historyWide  = historySize / historyWays
)

type historySet [historyWays]historyEntry

// historyEntry is one cache line.
type historyEntry struct {
	tag  atomic.Uint64 // of kind and worker; 0 is free
	last atomic.Uint32 // number of the newest slot, from 1
	_    [4]byte
	// heat is a float32 for each slot, at the place of its number modulo
	// historySlots: the sum of 0.98^-(t - the slot's begin).
	heat [historySlots]atomic.Uint32
}

func newHistory() *kindHistory { return &kindHistory{make([]historySet, historyWide)} }

// historyTag names a kind of key on a worker, never 0.
func historyTag(kind KeyHash, worker uint64) uint64 {
	return max(mix64(uint64(kind)^mix64(worker+0x9e3779b97f4a7c15)), 1)
}

func (h *kindHistory) set(tag uint64) *historySet { return &h.sets[tag%historyWide] }

// historyAt is the slot that now is in, from 1, and the seconds since its begin.
func historyAt(now int64) (slot uint32, since float64) {
	return uint32(now/historySlot) + 1, float64(now%historySlot) / 1e9
}

var (
	historyLog = math.Log(historyCool)
	// historyFade is 0.98^(5k): what k slots take away.
	historyFade = func() (f [historySlots]float64) {
		for k := range f {
			f[k] = math.Pow(historyCool, 5*float64(k))
		}
		return f
	}()
)

// add counts a request.
func (h *kindHistory) add(now int64, kind KeyHash, worker uint64) {
	tag := historyTag(kind, worker)
	slot, since := historyAt(now)
	e := h.entry(tag, slot)
	if e == nil {
		return
	}
	e.roll(slot)
	place := &e.heat[slot%historySlots]
	old := place.Load()
	next := math.Float32frombits(old) + float32(math.Exp(-historyLog*since))
	place.CompareAndSwap(old, math.Float32bits(next)) // one lost among many at once is no matter
}

// entry is the one of a tag, made at the cost of the oldest in its set.
func (h *kindHistory) entry(tag uint64, slot uint32) *historyEntry {
	set := h.set(tag)
	oldest := &set[0]
	for i := range set {
		e := &set[i]
		if e.tag.Load() == tag {
			return e
		}
		if e.last.Load() < oldest.last.Load() {
			oldest = e
		}
	}
	was := oldest.tag.Load()
	if !oldest.tag.CompareAndSwap(was, tag) {
		return nil
	}
	for i := range oldest.heat {
		oldest.heat[i].Store(0)
	}
	oldest.last.Store(slot)
	return oldest
}

// roll clears the slots that have come round since the last request.
func (e *historyEntry) roll(slot uint32) {
	last := e.last.Load()
	if last >= slot || !e.last.CompareAndSwap(last, slot) {
		return
	}
	for k := max(last+1, slot-min(slot, historySlots-1)); k <= slot; k++ {
		e.heat[k%historySlots].Store(0)
	}
}

// heat is what is remembered of a kind of key on a worker. Requests older than
// a minute are not; those of its last five seconds may not be.
func (h *kindHistory) heat(now int64, kind KeyHash, worker uint64) float64 {
	tag := historyTag(kind, worker)
	set := h.set(tag)
	for i := range set {
		if set[i].tag.Load() == tag {
			return set[i].sum(now)
		}
	}
	return 0
}

func (e *historyEntry) sum(now int64) (sum float64) {
	slot, since := historyAt(now)
	last := e.last.Load()
	for k := range uint32(historySlots) { // slots back from now
		if k >= slot {
			break
		}
		n := slot - k
		if n > last || last-n >= historySlots {
			continue
		}
		sum += float64(math.Float32frombits(e.heat[n%historySlots].Load())) * historyFade[k]
	}
	if sum == 0 {
		return 0
	}
	return sum * math.Exp(historyLog*since)
}
