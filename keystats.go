package ringwise

import (
	"cmp"
	"slices"
)

// keyStats are the lists of a worker's reports, each as it was reported last:
// a worker need not send them with every figure of its load. The lists are
// sorted and shared with the report they came in; nobody writes to them.
type keyStats struct {
	shards ShardSet
	heat   []ShardHeat
	rates  []HitRate
	prints []Fingerprint

	shardsAt, heatAt, ratesAt, printsAt int64 // ns; 0: never reported
}

// take takes in the lists that r, which is a clone, has.
func (k *keyStats) take(r *Report, now int64) {
	now = max(now, 1)
	if set, ok := r.Shards.Get(); ok {
		k.shards, k.shardsAt = set, now
	}
	if len(r.ShardHeat) > 0 {
		k.heat, k.heatAt = r.ShardHeat, now
	}
	if len(r.HitRates) > 0 {
		k.rates, k.ratesAt = r.HitRates, now
	}
	if len(r.Fingerprints) > 0 {
		k.prints, k.printsAt = r.Fingerprints, now
	}
}

// sortLists puts lists in the order in which keyStats searches them.
func (r *Report) sortLists() {
	slices.SortFunc(r.ShardHeat, func(a, b ShardHeat) int { return cmp.Compare(a.Slot, b.Slot) })
	slices.SortFunc(r.HitRates, func(a, b HitRate) int { return cmp.Compare(a.Kind, b.Kind) })
	slices.SortFunc(r.Fingerprints, func(a, b Fingerprint) int { return cmp.Compare(a.Kind, b.Kind) })
}

func (k *keyStats) heatOf(slot int) float64 {
	if i, ok := slices.BinarySearchFunc(k.heat, slot, func(h ShardHeat, slot int) int { return cmp.Compare(int(h.Slot), slot) }); ok {
		return k.heat[i].Heat
	}
	return 0
}

func (k *keyStats) rateOf(kind KeyHash) (rate float64, ok bool) {
	i, ok := slices.BinarySearchFunc(k.rates, kind, func(h HitRate, kind KeyHash) int { return cmp.Compare(h.Kind, kind) })
	if !ok {
		return 0, false
	}
	return k.rates[i].Rate, true
}

func (k *keyStats) countOf(kind KeyHash) uint32 {
	if i, ok := slices.BinarySearchFunc(k.prints, kind, func(f Fingerprint, kind KeyHash) int { return cmp.Compare(f.Kind, kind) }); ok {
		return k.prints[i].Count
	}
	return 0
}
