package ringwise

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Cases from public reports. Each states a check, which the faulty design of
// the report must fail and Ring must pass.

// owner is the least a placement can tell: the first owner of a key.
type owner func(h KeyHash) string

func ownerOf(r *Ring) owner {
	return func(h KeyHash) string {
		if ids := r.Owners(h, nil); len(ids) > 0 {
			return ids[0]
		}
		return ""
	}
}

func membersOf(ids ...string) []member {
	members := make([]member, len(ids))
	for i, id := range ids {
		members[i] = member{slot: uint16(i), id: id, weight: 1}
	}
	return members
}

func buildAt(t testing.TB, place placement, perUnit int, ids ...string) *Ring {
	t.Helper()
	r, err := newRingAt(place, membersOf(ids...), perUnit, 16, 3)
	require.NoError(t, err)
	return r
}

// mapRing is the ring of many libraries: a map from position to owner beside
// a sorted list, so that the last of two points at one position wins.
type mapRing struct {
	at     map[uint32]string
	sorted []uint32
}

func (m *mapRing) add(place placement, perUnit int, ids ...string) *mapRing {
	if m.at == nil {
		m.at = map[uint32]string{}
	}
	for _, id := range ids {
		for _, pos := range place(id, 0, perUnit, nil) {
			m.at[pos] = id
		}
	}
	m.sorted = slices.Sorted(maps.Keys(m.at))
	return m
}

func (m *mapRing) remove(place placement, perUnit int, id string) *mapRing {
	for _, pos := range place(id, 0, perUnit, nil) {
		delete(m.at, pos)
	}
	m.sorted = slices.Sorted(maps.Keys(m.at))
	return m
}

func (m *mapRing) owner(h KeyHash) string {
	if len(m.sorted) == 0 {
		return ""
	}
	i, _ := slices.BinarySearch(m.sorted, uint32(h>>32))
	return m.at[m.sorted[i%len(m.sorted)]]
}

// meet puts point 3 of "a" and point 7 of "b" at one position, apart from all others.
func meet(id string, from, to int, dst []uint32) []uint32 {
	n := len(dst)
	dst = placeV1(id, from, to, dst)
	for i := from; i < to; i++ {
		if id == "a" && i == 3 || id == "b" && i == 7 {
			dst[n+i-from] = 0x80000000
		}
	}
	return dst
}

func diffKeys(a, b owner) (moved []KeyHash) {
	for k := range uint64(20_000) {
		if h := HashUint64(k); a(h) != b(h) {
			moved = append(moved, h)
		}
	}
	return moved
}

func TestCase_001_OwnersDoNotDependOnAddOrder(t *testing.T) {
	old := diffKeys(new(mapRing).add(meet, 10, "a", "b").owner, new(mapRing).add(meet, 10, "b", "a").owner)
	assert.NotEmpty(t, old, "the fault must show")

	ab, ba := buildAt(t, meet, 10, "a", "b"), buildAt(t, meet, 10, "b", "a")
	assert.Empty(t, diffKeys(ownerOf(ab), ownerOf(ba)))
	assert.Equal(t, "a", ownerOf(ab)(0x8000000000000001), "equal positions: the lower ID first")
	left, err := ab.change(membersOf("a", "b")[:1])
	require.NoError(t, err)
	assert.Contains(t, left.points, pack(0x80000000, 16, 0), "a's point is back")
	assert.Len(t, left.points, 10)
}

func TestCase_002_RemovalOfCollidingWorkerRestores(t *testing.T) {
	m := new(mapRing).add(meet, 10, "a", "b").remove(meet, 10, "b")
	assert.NotEqual(t, new(mapRing).add(meet, 10, "a").sorted, m.sorted, "the fault must show")

	r, err := buildAt(t, meet, 10, "a").change(membersOf("a", "b"))
	require.NoError(t, err)
	r, err = r.change(membersOf("a"))
	require.NoError(t, err)
	requireSame(t, buildAt(t, meet, 10, "a"), r, "a")
}

func TestCase_004_NoVirtualNodeIsDropped(t *testing.T) {
	ids := poolOf(20)
	assert.Less(t, len(new(mapRing).add(collide, 50, ids...).sorted), 20*50, "the fault must show")

	r := buildAt(t, collide, 50, ids...)
	count := map[string]int{}
	for _, p := range r.points {
		count[r.ids[uint16(p)]]++
	}
	for _, id := range ids {
		assert.Equal(t, 50, count[id], id)
		assert.Equal(t, 50, r.Points(id), id)
	}
}

func TestCase_005_ManyWorkersAreNoDuplicateKeys(t *testing.T) {
	t.Parallel()
	ids := poolOf(5000)
	tree := func() error { // one that refuses a key it has
		seen := map[uint32]bool{}
		for _, id := range ids {
			for _, pos := range placeV1(id, 0, defaultPoints, nil) {
				if seen[pos] {
					return errors.New("key_exists")
				}
				seen[pos] = true
			}
		}
		return nil
	}
	assert.Error(t, tree(), "the fault must show")

	r, err := newRing(membersOf(ids...), defaultPoints, defaultSlotBits, 3)
	require.NoError(t, err)
	assert.Len(t, r.points, 5000*defaultPoints)
}

func TestCase_007_EveryKeyHasAnOwner(t *testing.T) {
	t.Parallel()
	// The report's fault: a removal takes the owner of a shared position
	// away, the position stays in the list.
	m := new(mapRing).add(collide, 50, "a", "b", "c")
	for _, pos := range collide("c", 0, 50, nil) {
		delete(m.at, pos)
	}
	lost := func(f owner, live []string) (n int) {
		for k := range uint64(20_000) {
			if !slices.Contains(live, f(HashUint64(k))) {
				n++
			}
		}
		return n
	}
	assert.NotZero(t, lost(m.owner, []string{"a", "b"}), "the fault must show")

	rnd := rand.New(rand.NewPCG(7, 0))
	h := &history{rnd: rnd, pool: poolOf(8)}
	for _, place := range []placement{collide, placeV1} {
		h.members = membersOf(h.pool...)
		r, err := newRingAt(place, h.members, 10_000, 16, 3)
		require.NoError(t, err)
		for range 6 {
			h.step(1)
			r, err = r.change(h.members)
			require.NoError(t, err)
			var live []string
			for _, m := range h.members {
				live = append(live, m.id)
			}
			if len(live) > 0 {
				require.Zero(t, lost(ownerOf(r), live))
			}
		}
	}
}

func TestCase_008_TwoProcessesAgree(t *testing.T) {
	ids := poolOf(30)
	shuffled := slices.Clone(ids)
	rand.New(rand.NewPCG(8, 0)).Shuffle(len(ids), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	assert.NotEmpty(t, diffKeys(new(mapRing).add(collide, 40, ids...).owner, new(mapRing).add(collide, 40, shuffled...).owner), "the fault must show")

	for _, place := range []placement{collide, placeV1} {
		a, b := buildAt(t, place, 40, ids...), buildAt(t, place, 40, shuffled...)
		for k := range uint64(1_000_000) {
			h := HashUint64(k)
			x, y := ownersOf(a, h), ownersOf(b, h)
			for i := range x {
				if a.ids[x[i]] != b.ids[y[i]] {
					t.Fatalf("key %d: %v and %v", k, names(a, x), names(b, y))
				}
			}
		}
	}
}

func TestCase_013_ShortKeysSpread(t *testing.T) {
	ids := []string{"node1", "node2", "node3"}
	shares := func(f owner) map[string]float64 {
		out := map[string]float64{}
		for k := range 100_000 {
			out[f(HashOf(fmt.Sprint(k)))] += 1e-5
		}
		return out
	}
	worst := func(s map[string]float64) (d float64) {
		for _, id := range ids {
			d = max(d, s[id]-1.0/3, 1.0/3-s[id])
		}
		return d
	}
	assert.Greater(t, worst(shares(ownerOf(buildAt(t, placeV1, 1, ids...)))), 0.05, "the fault must show: one virtual node each")

	r := ringOf(t, RingOptions{}, ids...)
	got := shares(ownerOf(r))
	assert.Less(t, worst(got), 0.05)
	// Against the table the keys must look drawn at random: chi-square, 2
	// degrees of freedom, 1 in 1000.
	chi := 0.0
	for slot, n := range ownedSlots(r) {
		want := float64(n) / float64(int(1)<<r.slotBits)
		d := got[r.ids[slot]] - want
		chi += 1e5 * d * d / want
	}
	assert.Less(t, chi, 13.8)
}

func TestCase_014_RemovalInEveryPositionWhileRead(t *testing.T) {
	faulty := func(ids []string, i int) (ok bool) {
		defer func() { ok = recover() == nil }()
		_ = ids[i+1] // looks at the successor
		return true
	}
	assert.False(t, faulty(poolOf(5), 4), "the fault must show")

	var ring atomic.Pointer[Ring]
	ring.Store(buildAt(t, placeV1, 20, poolOf(6)...))
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var bad atomic.Int64
	for g := range uint64(8) {
		wg.Go(func() {
			var dst []string
			for k := g; ; k += 8 {
				select {
				case <-stop:
					return
				default:
				}
				r := ring.Load()
				dst = r.Owners(HashUint64(k), dst[:0])
				if len(dst) != min(r.Len(), 3) {
					bad.Add(1)
				}
			}
		})
	}
	all := membersOf(poolOf(6)...)
	for n := len(all); n > 0; n-- {
		for i := range n {
			fewer := slices.Delete(slices.Clone(all[:n]), i, i+1)
			r, err := ring.Load().change(fewer)
			require.NoError(t, err)
			ring.Store(r)
			r, err = r.change(all[:n])
			require.NoError(t, err)
			ring.Store(r)
		}
	}
	close(stop)
	wg.Wait()
	assert.Zero(t, bad.Load())
}

func TestCase_016_WeightChangeCounts(t *testing.T) {
	members := membersOf("a", "b", "c")
	heavier := slices.Clone(members)
	heavier[0].weight = 3
	byID := func(r *Ring, to []member) (*Ring, error) { // a change is seen by ID alone
		if slices.EqualFunc(r.members, to, func(p placed, m member) bool { return p.id == m.id }) {
			return r, nil
		}
		return r.change(to)
	}
	share := func(change func(*Ring, []member) (*Ring, error)) float64 {
		r, err := newRing(members, 200, 16, 3)
		require.NoError(t, err)
		r, err = change(r, heavier)
		require.NoError(t, err)
		return float64(ownedSlots(r)[0]) / (1 << 16)
	}
	assert.InDelta(t, 1.0/3, share(byID), 0.05, "the fault must show")
	assert.InDelta(t, 0.6, share((*Ring).change), 0.05)

	r, err := newRing(members, 200, 16, 3)
	require.NoError(t, err)
	same, err := r.change([]member{members[2], members[0], {1, "b", 0}})
	require.NoError(t, err)
	assert.Same(t, r, same, "nothing changed, weight 0 being 1")
}

func TestCase_017_JoinMovesKeysOnlyToTheJoiner(t *testing.T) {
	ids := poolOf(10)
	// "a" sorts before all others: numbering across the list shifts every worker.
	more := append([]string{"a"}, ids...)
	spanning := func(ids []string) owner {
		var m mapRing
		m.at = map[uint32]string{}
		for i, id := range ids {
			for _, pos := range placeV1(id, i*100, i*100+100, nil) {
				m.at[pos] = id
			}
		}
		m.sorted = slices.Sorted(maps.Keys(m.at))
		return m.owner
	}
	needless := func(a, b owner) (n int) {
		for _, h := range diffKeys(a, b) {
			if b(h) != "a" {
				n++
			}
		}
		return n
	}
	assert.NotZero(t, needless(spanning(ids), spanning(more)), "the fault must show")
	a, b := buildAt(t, placeV1, 100, ids...), buildAt(t, placeV1, 100, more...)
	assert.Zero(t, needless(ownerOf(a), ownerOf(b)))
	requireNoNeedlessMove(t, a, b, map[string]bool{"a": true}, "join")
}

func TestCase_020_TableDoesNotDependOnHostOrder(t *testing.T) {
	ids := poolOf(12)
	reversed := slices.Clone(ids)
	slices.Reverse(reversed)
	maglev := func(ids []string) owner { // each host in list order takes its next free slot
		const size = 65537
		table, next := make([]string, size), make([]uint64, len(ids))
		for filled := 0; filled < size; {
			for i, id := range ids {
				h := uint64(HashOf(id))
				for {
					at := (h%size + next[i]*(h>>32%(size-1)+1)) % size
					next[i]++
					if table[at] == "" {
						table[at] = id
						break
					}
				}
				if filled++; filled == size {
					break
				}
			}
		}
		return func(h KeyHash) string { return table[uint64(h)%size] }
	}
	assert.NotEmpty(t, diffKeys(maglev(ids), maglev(reversed)), "the fault must show")
	a, b := ringOf(t, RingOptions{Points: 100}, ids...), ringOf(t, RingOptions{Points: 100}, reversed...)
	requireSame(t, a, b, "reversed")
}

func TestCase_022_PointsDoNotDependOnWorkerCount(t *testing.T) {
	const n = 20
	ids := poolOf(n + 1)
	fixed := func(n int) owner { return ownerOf(buildAt(t, placeV1, 2000/n, ids[:n]...)) } // total size fixed
	ours := func(n int) owner { return ownerOf(buildAt(t, placeV1, 500, ids[:n]...)) }
	check := func(f func(int) owner) error {
		a, b := f(n), f(n+1)
		moved := diffKeys(a, b)
		for _, h := range moved {
			if b(h) != ids[n] {
				return fmt.Errorf("a key moved from %s to %s", a(h), b(h))
			}
		}
		if share := float64(len(moved)) / 20_000; share > 1.3/(n+1) {
			return fmt.Errorf("%v of the keys moved", share)
		}
		return nil
	}
	assert.Error(t, check(fixed), "the fault must show")
	assert.NoError(t, check(ours))
}

func TestCase_028_SeedSpreadsCraftedKeys(t *testing.T) {
	r := ringOf(t, RingOptions{}, poolOf(10)...)
	own := ownerOf(r)
	var keys []string
	var hashes []KeyHash
	for i := 0; len(keys) < 1000; i++ {
		key := fmt.Sprint("crafted", i)
		if own(HashOf(key)) == "kv-4" {
			keys, hashes = append(keys, key), append(hashes, HashOf(key))
		}
	}
	share := func(seed uint64) (byKey, byHash float64) {
		for i := range keys {
			if own(hashOfSeeded(keys[i], seed)) == "kv-4" {
				byKey += 1e-3
			}
			if own(hashes[i].seeded(seed)) == "kv-4" {
				byHash += 1e-3
			}
		}
		return
	}
	byKey, byHash := share(0)
	assert.InDelta(t, 1, byKey, 1e-9, "the fault must show")
	assert.InDelta(t, 1, byHash, 1e-9)
	for _, seed := range []uint64{1, 0x5eed, 1 << 63} {
		byKey, byHash = share(seed)
		assert.InDelta(t, 0.1, byKey, 0.04, "seed %x", seed)
		assert.InDelta(t, 0.1, byHash, 0.04, "seed %x", seed)
	}
}

func TestCase_031_InconsistentInputKeepsTheOldRing(t *testing.T) {
	faulty := func(tokens []uint32, hosts []string) (ok bool) { // two lists that should match
		defer func() { ok = recover() == nil }()
		for i := range tokens {
			_ = hosts[i]
		}
		return true
	}
	assert.False(t, faulty([]uint32{1, 2}, []string{"a"}), "the fault must show")

	r := buildAt(t, placeV1, 50, "a", "b", "c")
	before := r.Owners(HashOf("k"), nil)
	for name, members := range map[string][]member{
		"id twice":    {{0, "a", 1}, {1, "a", 1}},
		"slot twice":  {{0, "a", 1}, {0, "b", 1}},
		"no id":       {{0, "", 1}},
		"weight -1":   {{0, "a", -1}},
		"weight huge": {{0, "a", 1e300}},
	} {
		next, err := r.change(members)
		assert.Nil(t, next, name)
		assert.ErrorIs(t, err, ErrConfig, name)
	}
	assert.Equal(t, before, r.Owners(HashOf("k"), nil))
	requireSame(t, buildAt(t, placeV1, 50, "a", "b", "c"), r, "untouched")
}
