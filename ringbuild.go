package ringwise

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"
)

// Defaults and limits of placement. The defaults are part of placement
// version 1: changing one moves keys, so a new value is opt-in.
const (
	defaultPoints   = 1000
	defaultReplicas = 3
	defaultSlotBits = 18

	maxReplicas    = 16
	maxPoints      = 1 << 16
	maxTotalPoints = 1 << 24
	minSlotBits    = 16 // the rest of a 32-bit position must fit 16 bits
	maxSlotBits    = 20
)

// member is a worker as the ring sees it. slot is the caller's dense number
// for it, below 0xFFFF and unique; weight 0 means 1.
type member struct {
	slot   uint16
	id     string
	weight float64
}

func sortByID(m []member) {
	slices.SortFunc(m, func(a, b member) int { return strings.Compare(a.id, b.id) })
}

// placed is a member with its number of points: all that placement depends on.
type placed struct {
	slot uint16
	id   string
	n    int
}

func (p placed) compareID(id string) int { return strings.Compare(p.id, id) }

// placement appends the positions of the virtual nodes from..to-1 of a worker.
// Tests put in another one to force collisions.
type placement func(id string, from, to int, dst []uint32) []uint32

// placeV1 takes the high halves of the SplitMix64 sequence that starts at
// XXH3_64bits(id). Not XXH3_64bits_withSeed(id, i): there XXH3 mixes the seed
// into the same bits as a short input, and names such as "kv0" and "kv1" share
// 998 of 1000 points (TestPlacement_SimilarNamesShareNoPoints).
func placeV1(id string, from, to int, dst []uint32) []uint32 {
	const gamma = 0x9e3779b97f4a7c15
	state := xxh3.HashString(id) + uint64(from)*gamma
	for range to - from {
		state += gamma
		dst = append(dst, uint32(ringMix(state)>>32))
	}
	return dst
}

// ringMix is the output function of SplitMix64 (Steele, Lea, Flood 2014).
func ringMix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// pointsOf is the number of virtual nodes for a weight, at least 1. One IEEE
// multiplication; the conversion keeps it from being fused with the rounding,
// so that every architecture agrees.
func pointsOf(weight float64, perUnit int) int {
	if weight == 0 {
		weight = 1
	}
	return max(1, int(math.Round(float64(weight*float64(perUnit)))))
}

// newRing builds the ring of members. Bad input gives a *ConfigError.
func newRing(members []member, points int, slotBits uint, replicas int) (*Ring, error) {
	return newRingAt(placeV1, members, points, slotBits, replicas)
}

func newRingAt(place placement, members []member, points int, slotBits uint, replicas int) (*Ring, error) {
	r, err := prepare(place, members, points, slotBits, replicas)
	if err != nil {
		return nil, err
	}
	r.build()
	return r, nil
}

// prepare validates and sets everything but points, first and table.
func prepare(place placement, members []member, points int, slotBits uint, replicas int) (*Ring, error) {
	switch {
	case points < 1 || points > maxPoints:
		return nil, &ConfigError{"Points", points, fmt.Sprintf("1 to %d virtual nodes", maxPoints)}
	case replicas < 1 || replicas > maxReplicas:
		return nil, &ConfigError{"Replicas", replicas, fmt.Sprintf("1 to %d", maxReplicas)}
	case slotBits < minSlotBits || slotBits > maxSlotBits:
		return nil, &ConfigError{"SlotBits", slotBits, fmt.Sprintf("%d to %d", minSlotBits, maxSlotBits)}
	case len(members) > MaxWorkers:
		return nil, &ConfigError{"Workers", len(members), fmt.Sprintf("at most %d workers", MaxWorkers)}
	}
	members = slices.Clone(members)
	sortByID(members)
	r := &Ring{
		stride: min(replicas, len(members)), shift: uint8(64 - slotBits),
		replicas: replicas, slotBits: slotBits, perUnit: points, place: place,
		members: make([]placed, len(members)),
	}
	top, total := 0, 0
	for i, m := range members {
		if m.id == "" || i > 0 && m.id == members[i-1].id {
			return nil, &ConfigError{"Worker.ID", fmt.Sprintf("%q", m.id), "a unique name that is not empty"}
		}
		if !(m.weight >= 0 && m.weight <= MaxWeight) {
			return nil, &ConfigError{fmt.Sprintf("Worker[%q].Weight", m.id), m.weight, "a number in [0, 1000], 0 meaning 1"}
		}
		r.members[i] = placed{m.slot, m.id, pointsOf(m.weight, points)}
		total += r.members[i].n
		top = max(top, int(m.slot)+1)
	}
	if total > maxTotalPoints {
		return nil, &ConfigError{"Points", points,
			fmt.Sprintf("so few, or fewer Workers, or a lower Weight of theirs, that all together have at most %d virtual nodes; %d workers of these weights have %d",
				maxTotalPoints, len(members), total)}
	}
	r.ids = make([]string, top)
	r.live = make([]uint64, (top+63)/64)
	for _, m := range r.members {
		if m.slot >= MaxWorkers || r.ids[m.slot] != "" {
			return nil, &ConfigError{fmt.Sprintf("slot of %q", m.id), m.slot, fmt.Sprintf("a unique number below %d", MaxWorkers)}
		}
		r.ids[m.slot] = m.id
		r.live[m.slot>>6] |= 1 << (m.slot & 63)
	}
	return r, nil
}

// build is a counting sort by ring slot, with the positions computed twice
// instead of stored, and a short sort within each slot. Going backwards fills
// each slot from its end, which leaves equal positions in the order (id, i).
func (r *Ring) build() {
	r.first = make([]uint32, 1<<r.slotBits+1)
	rest := 32 - r.slotBits
	var buf []uint32
	for _, m := range r.members {
		buf = r.place(m.id, 0, m.n, buf[:0])
		for _, pos := range buf {
			r.first[pos>>rest]++
		}
	}
	sum := uint32(0)
	for s, n := range r.first {
		sum += n
		r.first[s] = sum
	}
	r.points = make([]uint32, sum)
	for _, m := range slices.Backward(r.members) {
		buf = r.place(m.id, 0, m.n, buf[:0])
		for _, pos := range slices.Backward(buf) {
			at := &r.first[pos>>rest]
			*at--
			r.points[*at] = pack(pos, rest, m.slot)
		}
	}
	var scratch []uint64
	for s := range len(r.first) - 1 {
		if run := r.points[r.first[s]:r.first[s+1]]; len(run) > 1 {
			scratch = sortRun(run, scratch)
		}
	}
	r.fill()
}

// pack is a point: position within its ring slot, then worker slot.
func pack(pos uint32, rest uint, slot uint16) uint32 {
	return pos&(1<<rest-1)<<16 | uint32(slot)
}

// sortRun sorts points by position and keeps the order of equal ones. Runs are
// 4 points long as a rule; many points in one slot must not cost a square.
func sortRun(run []uint32, scratch []uint64) []uint64 {
	if len(run) > 64 {
		scratch = scratch[:0]
		for i, p := range run {
			scratch = append(scratch, uint64(p>>16)<<48|uint64(i)<<16|uint64(p&0xffff))
		}
		slices.Sort(scratch)
		for i, k := range scratch {
			run[i] = uint32(k>>48)<<16 | uint32(k&0xffff)
		}
		return scratch
	}
	for i := 1; i < len(run); i++ {
		p, j := run[i], i
		for ; j > 0 && run[j-1]>>16 > p>>16; j-- {
			run[j] = run[j-1]
		}
		run[j] = p
	}
	return scratch
}

// fill computes the whole table in one backward pass: the distinct workers
// from a point on are its own worker, then those from the next point on. That
// is stride steps a point however the weights lie, where walking forward from
// each slot would cross all points of a heavy worker again and again.
func (r *Ring) fill() {
	r.makeTable()
	if r.stride == 0 {
		return
	}
	row := make([]uint16, r.stride)
	r.scan(0, row) // past the last point comes the first
	for s := len(r.first) - 2; s >= 0; s-- {
		for p := int(r.first[s+1]) - 1; p >= int(r.first[s]); p-- {
			slot := uint16(r.points[p])
			for i, carry := 0, slot; i < len(row); i++ {
				row[i], carry = carry, row[i]
				if carry == slot {
					break
				}
			}
		}
		r.setRow(s, row)
	}
	r.compress()
}

// scan writes the first len(row) distinct workers from point p on, one turn at
// most, and returns the points it looked at. There must be so many workers.
func (r *Ring) scan(p int, row []uint16) int {
	steps, n := 0, 0
	for ; steps < len(r.points) && n < len(row); steps++ {
		if p >= len(r.points) {
			p = 0
		}
		slot := uint16(r.points[p])
		p++
		if !slices.Contains(row[:n], slot) {
			row[n] = slot
			n++
		}
	}
	return steps
}
