package ringwise

// LocalDensity is 80 for a worker that reports to hold the key's shard slot,
// plus min(20, heat of that slot there x 0.5), and 0 for one that does not. A
// worker that does not report its slots has no signal, nor has a request
// without a key.
type LocalDensity struct{}

// Name is "local density".
func (LocalDensity) Name() string { return "local density" }

// Score rates each candidate.
func (s LocalDensity) Score(v *View, out []float64) {
	for i := range out {
		var t tally
		if s.rate(v, i, &t) {
			out[i] = t.total
		}
	}
}

// Lines are the slot and its heat.
func (s LocalDensity) Lines(v *View, i int) []Line {
	t := tally{keep: true}
	s.rate(v, i, &t)
	return t.lines
}

func (LocalDensity) rate(v *View, i int, t *tally) bool {
	held, known := v.HoldsShard(i)
	if !known {
		return false
	}
	slot, _ := v.Slot()
	if !held {
		t.add("shard slot, not held", float64(slot), asNumber, 0)
		return true
	}
	t.add("shard slot", float64(slot), asNumber, densityHeld)
	if heat, _ := v.ShardHeat(i); heat > 0 {
		t.add("its heat", heat, asNumber, min(densityHeat, heat*0.5))
	}
	return true
}

const (
	densityHeld = 80.0
	densityHeat = 20.0
)
