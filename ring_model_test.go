package ringwise

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"
)

// naiveRing is placement version 1 as docs/placement.md tells it, with nothing
// but a sorted list: the model for every fast structure.
type naiveRing struct {
	points []naivePoint
	bits   uint
}

type naivePoint struct {
	pos uint32
	id  string
	i   int
}

func naivePlace(id string, from, to int, dst []uint32) []uint32 {
	for i := from; i < to; i++ {
		z := xxh3.HashString(id) + uint64(i+1)*0x9e3779b97f4a7c15
		z ^= z >> 30
		z *= 0xbf58476d1ce4e5b9
		z ^= z >> 27
		z *= 0x94d049bb133111eb
		z ^= z >> 31
		dst = append(dst, uint32(z>>32))
	}
	return dst
}

func newNaive(place placement, members []member, perUnit int, bits uint) *naiveRing {
	n := &naiveRing{bits: bits}
	for _, m := range members {
		w := m.weight
		if w == 0 {
			w = 1
		}
		count := max(1, int(math.Floor(w*float64(perUnit)+0.5)))
		for i, pos := range place(m.id, 0, count, nil) {
			n.points = append(n.points, naivePoint{pos, m.id, i})
		}
	}
	slices.SortFunc(n.points, func(a, b naivePoint) int {
		return cmp.Or(cmp.Compare(a.pos, b.pos), cmp.Compare(a.id, b.id), cmp.Compare(a.i, b.i))
	})
	return n
}

// from lists at most n distinct workers clockwise from the key's ring slot.
func (r *naiveRing) from(h KeyHash, n int, skip map[string]bool) []string {
	start := uint32(uint64(h)>>(64-r.bits)) << (32 - r.bits)
	k, _ := slices.BinarySearchFunc(r.points, start, func(p naivePoint, s uint32) int { return cmp.Compare(p.pos, s) })
	out := []string{}
	for i := 0; i < len(r.points) && len(out) < n; i++ {
		id := r.points[(k+i)%len(r.points)].id
		if !skip[id] && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// collide is a placement whose positions meet all the time, on few ring slots.
func collide(id string, from, to int, dst []uint32) []uint32 {
	n := len(dst)
	dst = placeV1(id, from, to, dst)
	for i := n; i < len(dst); i++ {
		dst[i] &= 0xc0000007
	}
	return dst
}

func names(r *Ring, slots []uint16) []string {
	out := []string{}
	for _, s := range slots {
		out = append(out, r.ids[s])
	}
	return out
}

func randomKeys(rnd *rand.Rand, n int) []KeyHash {
	out := make([]KeyHash, n)
	for i := range out {
		out[i] = KeyHash(rnd.Uint64())
	}
	return out
}

// requireSame compares every part that a lookup or a later change reads.
func requireSame(t testing.TB, want, got *Ring, msg string) {
	t.Helper()
	require.True(t, slices.Equal(want.members, got.members), "%s: members", msg)
	require.True(t, slices.Equal(want.first, got.first), "%s: first", msg)
	require.True(t, slices.Equal(want.points, got.points), "%s: points", msg)
	require.True(t, slices.Equal(want.table, got.table), "%s: table", msg)
	require.True(t, slices.Equal(want.packed, got.packed), "%s: packed", msg)
	require.True(t, slices.Equal(want.runs, got.runs), "%s: runs", msg)
	require.Equal(t, want.ids, got.ids, msg)
	require.Equal(t, want.live, got.live, msg)
}

// requireNoNeedlessMove checks every row of the table: without the workers
// that changed, the old row and the new one begin alike.
func requireNoNeedlessMove(t testing.TB, a, b *Ring, changed map[string]bool, msg string) {
	t.Helper()
	gone := func(r *Ring) []bool {
		out := make([]bool, len(r.ids))
		for slot, id := range r.ids {
			out[slot] = changed[id]
		}
		return out
	}
	goneA, goneB := gone(a), gone(b)
	keep := func(r *Ring, gone []bool, s int, buf []string) []string {
		row := make([]uint16, r.stride)
		r.row(s, row)
		for _, slot := range row {
			if !gone[slot] {
				buf = append(buf, r.ids[slot])
			}
		}
		return buf
	}
	var x, y [maxReplicas + 1]string
	for s := range 1 << a.slotBits {
		p, q := keep(a, goneA, s, x[:0]), keep(b, goneB, s, y[:0])
		n := min(len(p), len(q))
		if !slices.Equal(p[:n], q[:n]) {
			t.Fatalf("%s: row %d moved from %v to %v, changed were only %v", msg, s, p, q, changed)
		}
	}
}

// history drives a Ring through changes as the router would: dense slots that
// are given again once free, some workers joining, leaving or changing weight.
type history struct {
	rnd     *rand.Rand
	pool    []string
	members []member
}

var historyWeights = []float64{0, 0.001, 0.25, 1, 1.5, 3.3}

func (h *history) step(changes int) (changed map[string]bool) {
	changed = map[string]bool{}
	for range changes {
		id := h.pool[h.rnd.IntN(len(h.pool))]
		w := historyWeights[h.rnd.IntN(len(historyWeights))]
		changed[id] = true
		i := slices.IndexFunc(h.members, func(m member) bool { return m.id == id })
		switch {
		case i < 0:
			slot := uint16(0)
			for slices.ContainsFunc(h.members, func(m member) bool { return m.slot == slot }) {
				slot++
			}
			h.members = append(h.members, member{slot, id, w})
		case h.rnd.IntN(3) == 0:
			h.members[i].weight = w
		default:
			h.members = slices.Delete(h.members, i, i+1)
		}
	}
	h.rnd.Shuffle(len(h.members), func(i, j int) { h.members[i], h.members[j] = h.members[j], h.members[i] })
	return changed
}

func poolOf(n int) []string {
	pool := make([]string, n)
	for i := range pool {
		pool[i] = fmt.Sprintf("kv-%d", i)
	}
	return pool
}

// FuzzRingMembership reads a history of joins, leaves and weights from bytes;
// after each the ring equals a fresh build and the naive ring.
func FuzzRingMembership(f *testing.F) {
	f.Add([]byte{3, 1, 0, 1, 2, 3, 130, 1}, false)
	f.Add([]byte{1, 0, 9, 9, 9, 73, 137, 201}, true)
	f.Add([]byte("many workers join here and leave again, some with other weights"), true)
	f.Fuzz(func(t *testing.T, ops []byte, collisions bool) {
		if len(ops) < 2 {
			return
		}
		place := placement(placeV1)
		if collisions {
			place = collide
		}
		perUnit, replicas := 1+int(ops[0])%64, 1+int(ops[1])%maxReplicas
		var members []member
		r, err := newRingAt(place, nil, perUnit, 16, replicas)
		require.NoError(t, err)
		for step, op := range ops[2:min(len(ops), 14)] {
			id := fmt.Sprint("w", op%32)
			w := historyWeights[int(op>>5)%len(historyWeights)]
			i := slices.IndexFunc(members, func(m member) bool { return m.id == id })
			switch {
			case i < 0:
				members = append(members, member{uint16(step), id, w})
			case op>>5 < 4:
				members = slices.Delete(members, i, i+1)
			default:
				members[i].weight = w
			}
			before := r
			r, err = r.change(members)
			require.NoError(t, err)
			fresh, err := newRingAt(place, members, perUnit, 16, replicas)
			require.NoError(t, err)
			requireSame(t, fresh, r, fmt.Sprint("step ", step))
			requireNoNeedlessMove(t, before, r, map[string]bool{id: true}, fmt.Sprint("step ", step))
			model := newNaive(place, members, perUnit, 16)
			for k := range uint64(16) {
				h := HashUint64(k + uint64(op)<<8)
				require.Equal(t, model.from(h, replicas, nil), names(r, ownersOf(r, h)))
			}
		}
	})
}

// FuzzNewRing: no number an option or a weight can take makes a panic or an
// endless build, and what is built gives every key its owners.
func FuzzNewRing(f *testing.F) {
	f.Add(1000, 3, uint8(3), 1.0)
	f.Add(0, 0, uint8(0), 0.0)
	f.Add(-5, 17, uint8(2), -1.0)
	f.Add(1<<16, 16, uint8(20), 1000.0)
	f.Fuzz(func(t *testing.T, points, replicas int, n uint8, weight float64) {
		if weight > 1 && points > 2000 {
			points %= 2000 // allowed, but long for a fuzz step
		}
		ws := make([]Worker, n%24)
		for i := range ws {
			ws[i] = Worker{ID: fmt.Sprint("w", i)}
		}
		if len(ws) > 0 {
			ws[0].Weight = weight
		}
		r, err := NewRing(ws, RingOptions{Points: points, Replicas: replicas})
		if err != nil {
			require.ErrorIs(t, err, ErrConfig)
			return
		}
		for k := range uint64(16) {
			want := replicas
			if want == 0 {
				want = defaultReplicas
			}
			require.Len(t, r.Locate(HashUint64(k), nil), min(want, len(ws)))
		}
	})
}
