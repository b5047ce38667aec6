package ringwise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The repair of single rows must be what runs at a usual change, else the
// model test above tests the rebuild only.
func TestRing_ChangeRepairsInPlace(t *testing.T) {
	// Point 0 of "new" is the first of the ring, so rows at its end change.
	edge := func(id string, from, to int, dst []uint32) []uint32 {
		n := len(dst)
		dst = placeV1(id, from, to, dst)
		if id == "new" && from == 0 {
			dst[n] = 5
		}
		return dst
	}
	members := poolMembers(200)
	r, err := newRingAt(edge, members, 200, 16, 3)
	require.NoError(t, err)
	for i, change := range []func(){
		func() { members = append(members, member{200, "new", 1}) },
		func() { members = slices.Delete(members, 17, 18) },
		func() { members[3].weight = 2.5 },
		func() { members[3].weight = 0.3 },
		func() { members[5].id = "other" }, // a slot given to another ID at once
		func() { members = members[:len(members)-1] },
	} {
		change()
		next, err := prepare(edge, members, 200, 16, 3)
		require.NoError(t, err)
		edits, ok := r.diff(next)
		require.True(t, ok && r.merge(next, edits) && r.repair(next, edits), "edit %d went to the slow path", i)
		fresh, err := newRingAt(edge, members, 200, 16, 3)
		require.NoError(t, err)
		requireSame(t, fresh, next, fmt.Sprint("edit ", i))
		r = next
		if i == 0 {
			assert.Equal(t, "new", r.Owners(0, nil)[0])
			assert.Equal(t, "new", r.Owners(math.MaxUint64, nil)[0], "the last row wraps to the first point")
		}
	}
}

// The router keeps the slot of an ID; a caller who does not gets a rebuild.
func TestRing_ChangeOfSlotsIsARebuild(t *testing.T) {
	members := poolMembers(40)
	r, err := newRing(members, 50, 16, 3)
	require.NoError(t, err)
	members[3].slot, members[8].slot = members[8].slot, members[3].slot
	next, err := r.change(members)
	require.NoError(t, err)
	fresh, err := newRing(members, 50, 16, 3)
	require.NoError(t, err)
	requireSame(t, fresh, next, "swapped slots")
}

// Asking for more workers than are left must not cost the whole turn: two of
// 1000 are met after some hundred points, a turn has a million.
func TestRing_WalkEndsWhenNoneIsLeft(t *testing.T) {
	r, err := newRing(poolMembers(1000), defaultPoints, defaultSlotBits, 3)
	require.NoError(t, err)
	skip := make([]uint64, 16)
	for i := range skip {
		skip[i] = math.MaxUint64
	}
	skip[1] &^= 1<<5 | 1<<9
	dst := make([]uint16, 0, 8)
	best := func(n int) time.Duration {
		least := time.Hour
		for range 5 {
			start := time.Now()
			for k := range uint64(20) {
				dst = r.walk(HashUint64(k), skip, dst[:0], n)
				require.Len(t, dst, 2)
			}
			least = min(least, time.Since(start))
		}
		return least
	}
	assert.Less(t, best(5), 50*best(2))
	assert.Equal(t, 2, r.usable(skip))
	assert.Equal(t, 1000-64, r.usable([]uint64{math.MaxUint64}), "a short set skips no more than it holds")
}

// A heavy worker among light ones makes rows long walks; the table must still
// come in bounded time and be right.
func TestRing_HeavyWorkerStaysBounded(t *testing.T) {
	members := []member{{0, "heavy", 1000}, {1, "l1", 0.0001}, {2, "l2", 0.0001}, {3, "l3", 0.0001}, {4, "l4", 0.0001}}
	r, err := newRing(members, 100, 16, 3)
	require.NoError(t, err)
	smaller, err := r.change(members[:4])
	require.NoError(t, err)
	again, err := smaller.change(members)
	require.NoError(t, err)
	requireSame(t, r, again, "remove and add")
	model := newNaive(placeV1, members, 100, 16)
	for _, k := range randomKeys(rand.New(rand.NewPCG(1, 0)), 50) {
		require.Equal(t, model.from(k, 3, nil), names(r, ownersOf(r, k)))
	}
}

func TestRing_InputOrderDoesNotMatter(t *testing.T) {
	ws := make([]Worker, 50)
	for i := range ws {
		ws[i] = Worker{ID: fmt.Sprint("w", i), Weight: float64(1 + i%3)}
	}
	a, err := NewRing(ws, RingOptions{Points: 100})
	require.NoError(t, err)
	for seed := range uint64(3) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		rnd.Shuffle(len(ws), func(i, j int) { ws[i], ws[j] = ws[j], ws[i] })
		b, err := NewRing(ws, RingOptions{Points: 100})
		require.NoError(t, err)
		requireSame(t, a, b, fmt.Sprint("seed ", seed))
	}
}

// R6: A, B, C with B Down gives A, C, D.
func TestRing_FailoverTakesNextOnRing(t *testing.T) {
	r := ringOf(t, RingOptions{}, poolOf(100)...)
	for _, k := range randomKeys(rand.New(rand.NewPCG(3, 0)), 2000) {
		row := r.walk(k, nil, nil, 4)
		require.Len(t, row, 4)
		require.Equal(t, row[:3], ownersOf(r, k))
		down := make([]uint64, 2)
		down[row[1]>>6] |= 1 << (row[1] & 63)
		require.Equal(t, []uint16{row[0], row[2], row[3]}, r.walk(k, down, nil, 3))
	}
}

func TestRing_FewerWorkersThanReplicas(t *testing.T) {
	for n := range 6 {
		r := ringOf(t, RingOptions{Points: 20}, poolOf(n)...)
		for _, k := range randomKeys(rand.New(rand.NewPCG(3, 0)), 100) {
			assert.Len(t, r.Locate(k, nil), min(n, 3))
			assert.Len(t, ownersOf(r, k), min(n, 3))
			assert.Len(t, r.walk(k, nil, nil, 99), n)
		}
		assert.Equal(t, n, r.Len())
	}
	var none []Ref
	assert.Nil(t, ringOf(t, RingOptions{}).Locate(math.MaxUint64, none), "an empty ring locates nothing")
}

func TestRing_LocateAppendsComparableRefs(t *testing.T) {
	r := ringOf(t, RingOptions{Points: 50}, "a", "b", "c", "d")
	var l Locator = r
	refs := l.Locate(HashOf("k"), make([]Ref, 1, 8))
	require.Len(t, refs, 4)
	assert.Equal(t, Ref{}, refs[0], "what was in dst stays")
	for i, id := range r.Owners(HashOf("k"), nil) {
		assert.Equal(t, id, r.ids[refs[i+1].slot])
		assert.Equal(t, RoleAny, refs[i+1].Role())
		assert.NotEqual(t, refs[i+1], refs[i+1].WithRole(RolePrimary))
		assert.Equal(t, RolePrimary, refs[i+1].WithRole(RolePrimary).Role())
	}
}

// R1: virtual nodes are a constant of weight, at least one.
func TestRing_PointsFollowWeight(t *testing.T) {
	for _, c := range []struct {
		weight  float64
		perUnit int
		want    int
	}{{0, 100, 100}, {1, 100, 100}, {0.5, 100, 50}, {0.005, 100, 1}, {0.015, 100, 2}, {1e-300, 100, 1}, {1000, 16, 16000}, {0.1, 5, 1}, {2.5, 1, 3}, {1, 65536, 65536}} {
		assert.Equal(t, c.want, pointsOf(c.weight, c.perUnit), "weight %v points %d", c.weight, c.perUnit)
	}
	r, err := NewRing([]Worker{{ID: "a"}, {ID: "b", Weight: 2}, {ID: "c", Weight: 0.25}}, RingOptions{Points: 40})
	require.NoError(t, err)
	assert.Equal(t, []int{40, 80, 10, 0}, []int{r.Points("a"), r.Points("b"), r.Points("c"), r.Points("d")})
}

func TestRing_WeightsGiveShares(t *testing.T) {
	members := poolMembers(20)
	for i := range members {
		members[i].weight = float64(1 + i%4)
	}
	r, err := newRing(members, defaultPoints, defaultSlotBits, 3)
	require.NoError(t, err)
	owned := ownedSlots(r)
	for _, m := range members {
		want := m.weight / 50
		got := float64(owned[m.slot]) / float64(1<<defaultSlotBits)
		assert.InEpsilon(t, want, got, 0.12, "%s of weight %v", m.id, m.weight)
	}
}

func TestRing_MemoryAt1000Workers(t *testing.T) {
	r, err := newRing(poolMembers(1000), defaultPoints, defaultSlotBits, 3)
	require.NoError(t, err)
	assert.LessOrEqual(t, ringBytes(r), 7.3e6, "bytes")
	assert.Equal(t, len(r.points), cap(r.points))
}

func TestRing_LookupsDoNotAllocate(t *testing.T) {
	r := ringOf(t, RingOptions{}, poolOf(100)...)
	refs, ids, slots := make([]Ref, 0, 16), make([]string, 0, 16), make([]uint16, 0, 32)
	skip := []uint64{0xff, 0xff}
	var buf [maxReplicas]uint16
	key := []byte("tenant:entity:0123456789")
	h := HashOf("k")
	for name, f := range map[string]func(){
		"Locate": func() { refs = r.Locate(h, refs[:0]) },
		"Owners": func() { ids = r.Owners(h, ids[:0]) },
		"owners": func() { slots = append(slots[:0], r.owners(h, &buf)...) },
		"walk":   func() { slots = r.walk(h, skip, slots[:0], 32) },
		"HashOf": func() { h = HashOf("tenant:entity:0123456789") },
		"HashBytes": func() {
			h = HashBytes(key) ^ hashBytesSeeded(key, 5)
		},
		"HashUint64": func() { h = HashUint64(uint64(h)).seeded(9) ^ hashOfSeeded("key", 4) },
	} {
		assert.Zero(t, testing.AllocsPerRun(200, f), name)
	}
}

// I18: nothing an input can say makes a panic, a hang or an endless build.
func TestNewRing_RefusesBadInput(t *testing.T) {
	heavy := make([]Worker, 300)
	for i := range heavy {
		heavy[i] = Worker{ID: fmt.Sprint(i), Weight: 1000}
	}
	crowd := make([]Worker, MaxWorkers+1)
	for i := range crowd {
		crowd[i].ID = fmt.Sprint(i)
	}
	one := []Worker{{ID: "a"}}
	for name, c := range map[string]struct {
		workers []Worker
		o       RingOptions
		field   string
	}{
		"points negative":   {one, RingOptions{Points: -1}, "Points"},
		"points huge":       {one, RingOptions{Points: 1<<16 + 1}, "Points"},
		"points overflow":   {one, RingOptions{Points: math.MaxInt}, "Points"},
		"points in all":     {heavy, RingOptions{}, "Points"},
		"replicas negative": {one, RingOptions{Replicas: -1}, "Replicas"},
		"replicas huge":     {one, RingOptions{Replicas: 17}, "Replicas"},
		"id empty":          {[]Worker{{ID: "a"}, {}}, RingOptions{}, "Workers[1].ID"},
		"id twice":          {[]Worker{{ID: "a"}, {ID: "b"}, {ID: "a"}}, RingOptions{}, "Workers[2].ID"},
		"weight negative":   {[]Worker{{ID: "a", Weight: -1}}, RingOptions{}, "Workers[0].Weight"},
		"weight NaN":        {[]Worker{{ID: "a", Weight: math.NaN()}}, RingOptions{}, "Workers[0].Weight"},
		"weight infinite":   {[]Worker{{ID: "a", Weight: math.Inf(1)}}, RingOptions{}, "Workers[0].Weight"},
		"weight huge":       {[]Worker{{ID: "a", Weight: 1000.1}}, RingOptions{}, "Workers[0].Weight"},
		"too many workers":  {crowd, RingOptions{Points: 1}, "Workers"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewRing(c.workers, c.o)
			assert.Nil(t, r)
			var bad *ConfigError
			require.ErrorAs(t, err, &bad)
			assert.ErrorIs(t, err, ErrConfig)
			assert.Equal(t, c.field, bad.Field)
			assert.NotEmpty(t, bad.Want)
		})
	}
}

// The router's door checks again what a ring cannot hold.
func TestNewRing_RefusesBadMembers(t *testing.T) {
	for name, c := range map[string]struct {
		members []member
		bits    uint
		field   string
	}{
		"bits small":    {nil, 15, "SlotBits"},
		"bits big":      {nil, 21, "SlotBits"},
		"id empty":      {[]member{{0, "", 1}}, 16, "Worker.ID"},
		"id twice":      {[]member{{0, "a", 1}, {1, "a", 1}}, 16, "Worker.ID"},
		"slot twice":    {[]member{{4, "a", 1}, {4, "b", 1}}, 16, `slot of "b"`},
		"slot reserved": {[]member{{0xffff, "a", 1}}, 16, `slot of "a"`},
		"weight NaN":    {[]member{{0, "a", math.NaN()}}, 16, `Worker["a"].Weight`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newRing(c.members, 10, c.bits, 3)
			var bad *ConfigError
			require.ErrorAs(t, err, &bad)
			assert.Equal(t, c.field, bad.Field)
		})
	}
}

func TestKeyHash_Forms(t *testing.T) {
	assert.Equal(t, HashOf("abc"), HashBytes([]byte("abc")))
	assert.Equal(t, HashBytes(nil), HashOf(""))
	assert.Equal(t, HashUint64(0x0807060504030201), HashBytes([]byte{1, 2, 3, 4, 5, 6, 7, 8}))
	assert.Equal(t, KeyHash(1), nonzero(0))
	assert.Equal(t, "00000000000000ff", KeyHash(255).String())

	// Seed 0 is no seed; another gives other hashes, the same for each form.
	assert.Equal(t, HashOf("abc"), hashOfSeeded("abc", 0))
	assert.Equal(t, HashBytes([]byte("abc")), hashBytesSeeded([]byte("abc"), 0))
	assert.Equal(t, hashOfSeeded("abc", 7), hashBytesSeeded([]byte("abc"), 7))
	assert.NotEqual(t, HashOf("abc"), hashOfSeeded("abc", 7))
	assert.Equal(t, KeyHash(9), KeyHash(9).seeded(0))
	assert.NotEqual(t, KeyHash(9).seeded(1), KeyHash(9).seeded(2))
	assert.Equal(t, KeyHash(1), KeyHash(5).seeded(5), "a remixed hash is never unset")
}

// Small integers and slot numbers must reach every part of the ring.
func TestKeyHash_SmallIntegersSpread(t *testing.T) {
	plain := func(v uint64) KeyHash { return KeyHash(v) }
	spread := func(hash func(uint64) KeyHash) int {
		seen := map[uint64]bool{}
		for v := range uint64(512) {
			seen[uint64(hash(v))>>58] = true
		}
		return len(seen)
	}
	assert.Equal(t, 64, spread(HashUint64))
	assert.Equal(t, 64, spread(func(v uint64) KeyHash { return KeyHash(v).seeded(3) }))
	assert.Equal(t, 1, spread(plain), "what the test must catch")
}

// A row that repeats is kept once where that halves the table, and each slot
// still finds its own: the table without runs says which.
func TestRing_KeepsOneRowOfARun(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 10, 100, 400} {
		r, err := newRing(poolMembers(n), 1000, 18, 3)
		require.NoError(t, err)
		if n == 400 {
			require.Nil(t, r.runs, "rows that seldom repeat")
			continue
		}
		require.Less(t, len(r.packed), 1<<17, "%d workers", n)
		whole := *r
		whole.runs, whole.packed = nil, make([]uint32, 1<<18)
		row := make([]uint16, 3)
		for s := range 1 << 18 {
			require.Equal(t, 3, min(3, whole.scan(int(r.first[s]), row)))
			whole.setRow(s, row)
		}
		require.Equal(t, whole.packed, r.expanded(), "%d workers", n)
		for s := 0; s < 1<<18; s += 7 {
			require.Equal(t, ownersOf(&whole, KeyHash(s)<<46|1), ownersOf(r, KeyHash(s)<<46|1))
		}
	}
}

// Rows of three are packed while all worker slots are under 1024; the change
// of form at that size must not change an owner.
func TestRing_PacksUpTo1024Workers(t *testing.T) {
	members := poolMembers(1025)
	small, err := newRing(members[:1024], 4, 16, 3)
	require.NoError(t, err)
	require.NotNil(t, small.packed)
	require.Nil(t, small.table)
	large, err := small.change(members)
	require.NoError(t, err)
	require.Nil(t, large.packed)
	back, err := large.change(members[:1024])
	require.NoError(t, err)
	requireSame(t, small, back, "over 1024 and back")
	for _, r := range []*Ring{small, large} {
		model := newNaive(placeV1, members[:r.Len()], 4, 16)
		for _, k := range randomKeys(rand.New(rand.NewPCG(4, 0)), 2000) {
			require.Equal(t, model.from(k, 3, nil), names(r, ownersOf(r, k)))
		}
	}
}
