package ringwise

// A trafficMix counts reads and writes of the last five minutes in slots of 30
// seconds. The caller holds whatever serialises its writers.
type trafficMix struct {
	slot  int64 // number of the newest
	count [mixSlots][lanes]float64
}

const (
	mixSlots = 10
	mixSlot  = int64(30e9) // ns
	// mixLeast requests are needed to speak of a mix.
	mixLeast = 100
)

// add counts requests that ended.
func (m *trafficMix) add(now int64, reads, writes float64) {
	slot := max(now/mixSlot, m.slot)
	for k := max(m.slot+1, slot-mixSlots+1); k <= slot; k++ {
		m.count[k%mixSlots] = [lanes]float64{}
	}
	m.slot = slot
	c := &m.count[slot%mixSlots]
	c[laneRead] += reads
	c[laneWrite] += writes
}

// writes is their share of all; false where there were too few.
func (m *trafficMix) writes() (share float64, known bool) {
	reads, writes := 0.0, 0.0
	for i := range m.count {
		reads, writes = reads+m.count[i][laneRead], writes+m.count[i][laneWrite]
	}
	if reads+writes < mixLeast {
		return 0, false
	}
	return writes / (reads + writes), true
}

// gear tells whether the write gear is in next: a share between the two
// bounds changes nothing, so that no share makes it flutter.
func gear(writes bool, share float64, t *Tuning) bool {
	switch {
	case share >= t.GearWrite:
		return true
	case share <= t.GearRead:
		return false
	}
	return writes
}
