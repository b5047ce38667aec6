package hotkey

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/zeebo/xxh3"
)

const (
	second = int64(time.Second)
	slot   = 30 * second
	minute = 60 * second
	start  = 1_700_000_000*second + 20*second // somewhere in a slot
)

func mustNew(t testing.TB, o Options) *Tracker {
	t.Helper()
	tr, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func keyOf(i int) string { return fmt.Sprintf("acme:order:%d", i) }

// hashOf is the hash of keyOf(i), remembered for the first hundred thousand.
func hashOf(i int) uint64 {
	if i < len(hashes()) {
		return hashes()[i]
	}
	return xxh3.HashString(keyOf(i))
}

var hashes = sync.OnceValue(func() []uint64 {
	h := make([]uint64, 100_000)
	for i := range h {
		h[i] = xxh3.HashString(keyOf(i))
	}
	return h
})

// streamLen is n, or less where n would take too long.
func streamLen(t *testing.T, n int) int {
	switch {
	case raceOn:
		n /= 50
	case testing.Short():
		n /= 10
	default:
		return n
	}
	t.Logf("short: %d requests", n)
	return n
}

// TestTracker_ZipfTopTen: ten million requests, zipf(1.1) over ten million keys,
// in four minutes.
func TestTracker_ZipfTopTen(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	requests := streamLen(t, 10_000_000)
	z := rand.NewZipf(rand.New(rand.NewPCG(seed, 0)), 1.1, 1, 9_999_999)
	tr := mustNew(t, Options{})
	sampled := mustNew(t, Options{})
	pcg := rand.NewPCG(seed, 1)
	hash := func(k int) uint64 { return uint64(k)*0x9e3779b97f4a7c15 + 1 } // a permutation
	truth := make([]uint32, 10_000_000)
	step := 4 * minute / int64(requests)
	now := start
	for range requests {
		k := int(z.Uint64())
		truth[k]++
		tr.Add(now, hash(k), "text", k%2 == 0)
		if pcg.Uint64()%8 == 0 {
			sampled.AddN(now, hash(k), "text", k%2 == 0, 8)
		}
		now += step
	}
	order := make([]int, 1000) // the ten most frequent are among them
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(truth[b], truth[a]), cmp.Compare(hash(a), hash(b)))
	})

	top := tr.Top(now, 10)
	worst := 0.0
	for i, k := range order[:10] {
		want, got := float64(truth[k]), float64(top[i].Reads+top[i].Writes)
		if top[i].Hash != hash(k) {
			t.Errorf("rank %d is %#x, want key %d", i+1, top[i].Hash, k)
		}
		if got > want || got+float64(top[i].Missed) < want {
			t.Errorf("key %d: count %v, missed at most %d; truth %v", k, got, top[i].Missed, want)
		}
		if wrong := top[i].Writes; k%2 == 1 && wrong != 0 {
			t.Errorf("key %d, only read, has %d writes", k, wrong)
		}
		worst = max(worst, (want-got)/want)
	}
	t.Logf("worst error of the top ten %.4f %%", 100*worst)
	if worst > 0.01 {
		t.Errorf("error %.4f, want at most 1 %%", worst)
	}

	found := map[uint64]float64{}
	for _, s := range sampled.Top(now, 20) {
		found[s.Hash] = float64(s.Reads + s.Writes)
	}
	for _, k := range order[:10] {
		want, got := float64(truth[k]), found[hash(k)]
		if math.Abs(got-want) > 6*math.Sqrt(7*want) {
			t.Errorf("one in eight: key %d has %v, want %v +- %.0f", k, got, want, 6*math.Sqrt(7*want))
		}
	}
}

// TestTracker_FindsLateKeys: ten keys that come up when every set is full, each
// with 1 % of the traffic from then on, are counted to within 1 %.
func TestTracker_FindsLateKeys(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	z := rand.NewZipf(r, 1.1, 1, 9_999_999)
	tr := mustNew(t, Options{})
	truth := map[uint64]uint64{}
	for i := range 600_000 {
		h := z.Uint64()*0x9e3779b97f4a7c15 + 1
		if late := r.Uint64N(100); i > 300_000 && late < 10 {
			h = late + 2
			truth[h]++
		}
		tr.Add(start+int64(i)*slot/100_000, h, "", false)
	}
	for h, want := range truth {
		got := tr.merged(tr.tickOf(start+6*slot), h)
		if got.count() > want || float64(got.count()) < 0.99*float64(want) || got.count()+got.missed < want {
			t.Errorf("late key %d: %d and at most %d missed, want %d", h, got.count(), got.missed, want)
		}
	}
}

// A model is the exact count of every key, by slot.
type model struct {
	tick   int64
	counts map[int]map[int64]*[lanes]uint64
}

func (m *model) add(now int64, key, lane int, n uint64) {
	tick := floorDiv(now, m.tick)
	if m.counts[key] == nil {
		m.counts[key] = map[int64]*[lanes]uint64{}
	}
	if m.counts[key][tick] == nil {
		m.counts[key][tick] = &[lanes]uint64{}
	}
	m.counts[key][tick][lane] += n
}

// slots is a key's counts by slot, newest first.
func (m *model) slots(now int64, key int) (out [lanes][slots]uint64) {
	for tick, n := range m.counts[key] {
		if age := floorDiv(now, m.tick) - tick; age >= 0 && age < slots {
			out[laneRead][age], out[laneWrite][age] = n[laneRead], n[laneWrite]
		}
	}
	return out
}

func (m *model) window(now int64, key int) (reads, writes uint64) {
	s := m.slots(now, key)
	for k := range slots {
		reads += s[laneRead][k]
		writes += s[laneWrite][k]
	}
	return reads, writes
}

// TestTracker_MatchesModel: whatever comes, no key is over-counted, no key has
// more than its count and what it is said to have missed, no total is off.
func TestTracker_MatchesModel(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	rounds := 60
	if raceOn {
		rounds = 10
	}
	for range rounds {
		keys := 1 + r.IntN(400)
		o := Options{Capacity: 64, Seed: r.Uint64(), MaxKey: 12, Tick: time.Duration(1+r.Int64N(60)) * time.Second}
		tr := mustNew(t, o)
		m := &model{tick: int64(o.Tick), counts: map[int]map[int64]*[lanes]uint64{}}
		z := rand.NewZipf(r, 1.01+r.Float64(), 1, uint64(keys-1))
		now := r.Int64N(1<<50) - 1<<49
		for range 3000 {
			switch r.IntN(200) {
			case 0:
				now += r.Int64N(13 * m.tick)
			case 1:
				now += r.Int64N(2 * m.tick)
			default:
				now += r.Int64N(m.tick / 50)
			}
			key, lane, n := int(z.Uint64()), r.IntN(2), 1+r.IntN(3)
			m.add(now, key, lane, uint64(n))
			switch r.IntN(3) {
			case 0:
				tr.AddBytes(now, hashOf(key), []byte(keyOf(key)), lane == laneWrite, uint16(n))
			default:
				tr.AddN(now, hashOf(key), keyOf(key), lane == laneWrite, uint16(n))
			}
			if r.IntN(100) == 0 {
				checkModel(t, tr, m, now+r.Int64N(12*m.tick)*r.Int64N(2), keys)
			}
		}
		checkModel(t, tr, m, now, keys)
		if t.Failed() {
			t.Fatalf("%d keys, %+v", keys, o)
		}
	}
}

func checkModel(t *testing.T, tr *Tracker, m *model, now int64, keys int) {
	t.Helper()
	stats := map[uint64]Stat{}
	last := uint64(math.MaxUint64)
	for _, s := range tr.Top(now, keys+1) {
		if c := s.Reads + s.Writes; c > last || c == 0 {
			t.Errorf("Top has %d after %d", c, last)
		}
		last = s.Reads + s.Writes
		stats[s.Hash] = s
	}
	var total [slots]uint64
	for key := range keys {
		want := m.slots(now, key)
		for k := range total {
			total[k] += want[laneRead][k] + want[laneWrite][k]
		}
		reads, writes := m.window(now, key)
		s, ok := stats[hashOf(key)]
		if !ok {
			s.Missed = tr.merged(tr.tickOf(now), hashOf(key)).missed
		}
		if s.Reads > reads || s.Writes > writes {
			t.Errorf("%s: %d reads, %d writes; truth %d, %d", keyOf(key), s.Reads, s.Writes, reads, writes)
		}
		if s.Reads+s.Writes+s.Missed < reads+writes {
			t.Errorf("%s: %d reads, %d writes, at most %d missed; truth %d, %d",
				keyOf(key), s.Reads, s.Writes, s.Missed, reads, writes)
		}
		if ok && (!strings.HasPrefix(keyOf(key), s.Key) || s.Cut != (len(keyOf(key)) > len(s.Key)) || len(s.Key) > tr.maxKey) {
			t.Errorf("%s is called %q, cut %v", keyOf(key), s.Key, s.Cut)
		}
	}
	if got := tr.totals(tr.tickOf(now)); got != total {
		t.Errorf("totals %d, want %d", got, total)
	}
}

// TestTracker_FewKeysAreExact: while no set is full nothing is missed at all, in
// either lane and in every slot (case 133: a decay test per lane).
func TestTracker_FewKeysAreExact(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	tr := mustNew(t, Options{})
	m := &model{tick: slot, counts: map[int]map[int64]*[lanes]uint64{}}
	now := start
	const keys = 5
	for range 20_000 {
		now += r.Int64N(slot / 200)
		if r.IntN(500) == 0 {
			now += r.Int64N(4 * slot)
		}
		key, lane := r.IntN(keys), r.IntN(2)
		m.add(now, key, lane, 1)
		tr.Add(now, hashOf(key), keyOf(key), lane == laneWrite)
		if r.IntN(100) == 0 {
			for key := range keys {
				got, want := tr.merged(tr.tickOf(now), hashOf(key)), m.slots(now, key)
				for l := range lanes {
					for k := range slots {
						if uint64(got.slot[l][k]) != want[l][k] || got.missed != 0 {
							t.Fatalf("%s, lane %d: %d missed %d, want %d", keyOf(key), l, got.slot[l], got.missed, want[l])
						}
					}
				}
			}
		}
	}
}

// TestTracker_WindowPassesByLane: ten reads and one write leave the window when
// their slot does, each in its own, and nothing else changes them.
func TestTracker_WindowPassesByLane(t *testing.T) {
	for _, touch := range []bool{false, true} { // a set that is used meanwhile, and one that is not
		tr := mustNew(t, Options{})
		at := start / slot * slot
		tr.AddN(at, 1, "a", false, 10)
		tr.Add(at+slot, 1, "a", true)
		for k := range int64(13) {
			now := at + k*slot
			if touch && k > 1 {
				tr.setOf(1).roll(now, slot)
			}
			r := tr.merged(tr.tickOf(now), 1)
			reads, writes := uint64(0), uint64(0)
			if k < 10 {
				reads = 10
			}
			if k >= 1 && k < 11 {
				writes = 1
			}
			if k == 0 {
				writes = 1 // a reader that is behind takes the set as it stands
			}
			if r.sum(laneRead) != reads || r.sum(laneWrite) != writes {
				t.Errorf("touched %v, %d slots on: %d reads, %d writes; want %d, %d", touch, k, r.sum(laneRead), r.sum(laneWrite), reads, writes)
			}
		}
	}
}

// TestSet_WeightLosesATenth: a weight loses a tenth each slot, whichever lane it
// came from and however many slots pass at once.
func TestSet_WeightLosesATenth(t *testing.T) {
	for _, write := range []bool{false, true} {
		for _, leap := range []int64{1, 3} {
			tr := mustNew(t, Options{})
			at := start / slot * slot
			tr.AddN(at, 1, "a", write, 1000)
			tr.AddN(at+1, 1, "a", !write, 500)
			s := tr.setOf(1)
			want := 1500.0
			for k := range int64(3) {
				s.roll(at+(k+1)*leap*slot, slot)
				want *= math.Pow(0.9, float64(leap))
				if got := s.weight(s.find(1)); math.Abs(got-want) > 1e-9*want {
					t.Errorf("write %v: weight %v after %d slots, want %v", write, got, (k+1)*leap, want)
				}
			}
		}
	}
}

// TestTracker_CountersStop: case 133, a counter must not wrap.
func TestTracker_CountersStop(t *testing.T) {
	tr := mustNew(t, Options{})
	tr.Add(start, 1, "a", false)
	tr.Add(start, 1, "a", true)
	s := tr.setOf(1)
	i := s.find(1)
	for l := range lanes {
		s.cur[l][i].Store(full - 1)
	}
	for range 100_000 {
		tr.AddN(start, 1, "a", false, math.MaxUint16)
	}
	r := tr.merged(tr.tickOf(start), 1)
	if n := r.slot[laneRead][0]; n < full || n > full+math.MaxUint16 {
		t.Errorf("reads stop at %d, want about %d", n, uint32(full))
	}
	if n := r.slot[laneWrite][0]; n != full-1 {
		t.Errorf("writes %d changed by reads", n)
	}
	o := row{hash: 1}
	for range 3 {
		o.merge(&r, 0)
	}
	if o.slot[laneRead][0] != math.MaxUint32 {
		t.Errorf("three times %d is %d", r.slot[laneRead][0], o.slot[laneRead][0])
	}
	sum, part := totals{math.MaxUint64 - 1}, totals{2, 3}
	sum.merge(&part, 0)
	if sum != (totals{math.MaxUint64, 3}) {
		t.Errorf("totals wrap: %d", sum)
	}
}

// TestTracker_Clock: a clock that stands, steps back or leaps.
func TestTracker_Clock(t *testing.T) {
	at := start / slot * slot
	sum := func(tr *Tracker, now int64) uint64 {
		r := tr.merged(tr.tickOf(now), 1)
		return r.count()
	}
	cases := []struct {
		name string
		nows []int64
		read int64
		want uint64
	}{
		{"stands", []int64{at, at, at}, at, 3},
		{"steps back in the slot", []int64{at + 20, at + 10}, at + 20, 2},
		{"steps back a slot", []int64{at + slot, at}, at + slot, 2},
		{"steps back and goes on", []int64{at + slot, at, at + slot}, at + 9*slot + slot, 3},
		{"steps back to the window's end", []int64{at + 9*slot, at}, at + 9*slot, 2},
		{"was set back", []int64{at + 10*slot, at}, at, 1},
		{"was set back an hour", []int64{at + 3600*second, at}, at, 1},
		{"leaps an hour", []int64{at, at + 3600*second}, at + 3600*second, 1},
		{"leaps an hour and returns", []int64{at, at + 3600*second, at + 1}, at + 1, 1},
		{"leaps the window", []int64{at, at + 10*slot}, at + 10*slot, 1},
		{"leaps less", []int64{at, at + 9*slot}, at + 9*slot, 2},
		{"is negative", []int64{-1, -slot, -slot - 1}, -1, 3},
		{"ends", []int64{math.MaxInt64, math.MaxInt64 - 1}, math.MaxInt64, 2},
		{"begins", []int64{math.MinInt64, math.MinInt64 + 1}, math.MinInt64, 2},
		{"goes from end to end", []int64{math.MaxInt64, math.MinInt64, math.MaxInt64}, math.MaxInt64, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tr := mustNew(t, Options{})
			for _, now := range c.nows {
				tr.Add(now, 1, "a", false)
				tr.Refresh(now, nil)
				tr.Heat(now, 1)
				tr.Stale(now)
			}
			if got := sum(tr, c.read); got != c.want {
				t.Errorf("%d requests in the window, want %d", got, c.want)
			}
			if err := tr.Merge(c.read, tr.Export(nil, c.read, 10)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTracker_MemoryIsBounded: I16, case 26: ten million keys, with texts of all
// lengths, cost nothing beyond what New took.
func TestTracker_MemoryIsBounded(t *testing.T) {
	keys := streamLen(t, 10_000_000)
	long := strings.Repeat("k", 4096)
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var ms runtime.MemStats
		runtime.ReadMemStats(&ms)
		return int64(ms.HeapAlloc)
	}
	before := heap()
	tr := mustNew(t, Options{})
	made := heap()
	now := start
	for i := range keys {
		tr.Add(now, uint64(i)*0x9e3779b97f4a7c15+1, long[:i%4096], i%3 == 0)
		now += 5 * minute / int64(keys)
	}
	tr.Refresh(now, nil)
	after := heap()
	t.Logf("%d keys tracked: %d bytes when made, %+d after %d keys", tr.Capacity(), made-before, after-made, keys)
	if perKey := (made - before) / int64(tr.Capacity()); perKey > 150+defaultMaxKey+8 {
		t.Errorf("%d bytes a key", perKey)
	}
	if after-made > 64<<10 {
		t.Errorf("the heap grew by %d bytes", after-made)
	}
	runtime.KeepAlive(tr)
}

func TestTracker_AllocatesNothing(t *testing.T) {
	tr := mustNew(t, Options{})
	now, h := start, uint64(1)
	raw := []byte(strings.Repeat("k", 100))
	tr.Add(now, 7, "hot", false)
	tr.Refresh(now, nil)
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"Add, tracked", func() { tr.Add(now, 7, "hot", false) }},
		{"Add, new key", func() { h += 0x9e3779b97f4a7c15; tr.Add(now, h, "a key of some length, cut or not", true) }},
		{"Add, new slot", func() { now += slot; tr.Add(now, 7, "hot", true) }},
		{"Add, new window", func() { now += 20 * slot; tr.Add(now, 7, "hot", true) }},
		{"AddBytes", func() { h += 0x9e3779b97f4a7c15; tr.AddBytes(now, h, raw, true, 2) }},
		{"Heat", func() { tr.Heat(now, 7) }},
		{"Stale", func() { tr.Stale(now) }},
	} {
		if n := testing.AllocsPerRun(1000, c.f); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}

// TestTracker_SeedSpreadsCraftedKeys: I17. Keys that meet in one set under one
// seed do not under another, and trackers draw their own.
func TestTracker_SeedSpreadsCraftedKeys(t *testing.T) {
	known, other := mustNew(t, Options{Seed: 1}), mustNew(t, Options{Seed: 2})
	at := func(tr *Tracker, hash uint64) uintptr {
		return (uintptr(unsafe.Pointer(tr.setOf(hash))) - uintptr(unsafe.Pointer(&tr.sets[0]))) / unsafe.Sizeof(set{})
	}
	spread := map[uintptr]int{}
	var crafted []uint64
	for h := uint64(1); len(crafted) < 1000; h++ {
		if at(known, h) == 7 {
			crafted = append(crafted, h)
			spread[at(other, h)]++
		}
	}
	for i, n := range spread {
		if n > 25 { // 3.4 on average
			t.Errorf("%d of 1000 keys crafted for one seed share set %d under another", n, i)
		}
	}

	// A hot key among them is pushed out where the seed is known, and only there.
	victim := crafted[0]
	for _, c := range []struct {
		tr   *Tracker
		want bool
	}{{known, false}, {other, true}, {mustNew(t, Options{}), true}} {
		for range 100 {
			c.tr.Add(start, victim, "victim", false)
			for _, h := range crafted[1:200] {
				c.tr.AddN(start, h, "x", false, 2)
			}
		}
		s := c.tr.setOf(victim)
		if got := s.find(victim) >= 0; got != c.want {
			t.Errorf("hot key tracked: %v, want %v", got, c.want)
		}
	}
	a, b := mustNew(t, Options{}), mustNew(t, Options{})
	if a.seed == b.seed || a.source == b.source {
		t.Error("two trackers drew the same seed or source")
	}
	if again := mustNew(t, Options{Seed: 1}); again.seed != known.seed {
		t.Error("a given seed does not repeat")
	}
}

// TestTracker_Concurrent: no request is lost or counted twice in total, whoever
// else reads, judges, exports and merges.
func TestTracker_Concurrent(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	tr := mustNew(t, Options{Capacity: 64})
	peer := mustNew(t, Options{})
	peer.Add(start, 1, "peer", false)
	bytes := peer.Export(nil, start, 10)
	const adders, each = 4, 10_000
	var adding, reading sync.WaitGroup
	stop := make(chan struct{})
	for g := range adders {
		adding.Go(func() {
			z := rand.NewZipf(rand.New(rand.NewPCG(seed, uint64(g))), 1.1, 1, 9999)
			for i := range each {
				key := int(z.Uint64())
				tr.Add(start+int64(i)*9*slot/each, hashOf(key), keyOf(key), i%2 == 0)
			}
		})
	}
	reading.Go(func() {
		var changes []Change
		for {
			select {
			case <-stop:
				return
			default:
			}
			changes = tr.Refresh(start+8*slot, changes[:0])
			for _, s := range tr.Top(start+8*slot, 5) {
				if s.Key != "peer" && (!strings.HasPrefix(s.Key, "acme:order:") || xxh3.HashString(s.Key) != s.Hash) {
					t.Errorf("key %q with hash %x", s.Key, s.Hash)
					return
				}
			}
			if err := tr.Merge(start+8*slot, bytes, tr.Export(nil, start, 100)); err != nil {
				t.Error(err)
				return
			}
			tr.Heat(start, hashOf(0))
		}
	})
	adding.Wait()
	close(stop)
	reading.Wait()
	if err := tr.Merge(start); err != nil {
		t.Fatal(err)
	}
	var sum uint64
	for _, n := range tr.totals(tr.tickOf(start + 9*slot)) {
		sum += n
	}
	if sum != adders*each {
		t.Errorf("%d requests in total, want %d", sum, adders*each)
	}
}

func TestNew_NamesEveryBadField(t *testing.T) {
	nan := math.NaN()
	tuning := func(f func(*Tuning)) Options {
		u := DefaultTuning()
		f(&u)
		return Options{Tuning: u}
	}
	cases := []struct {
		name, field string
		o           Options
	}{
		{"capacity small", "Capacity", Options{Capacity: 63}},
		{"capacity negative", "Capacity", Options{Capacity: -1}},
		{"capacity huge", "Capacity", Options{Capacity: 65537}},
		{"max key negative", "MaxKey", Options{MaxKey: -1}},
		{"max key huge", "MaxKey", Options{MaxKey: 1025}},
		{"tick short", "Tick", Options{Tick: time.Millisecond}},
		{"tick negative", "Tick", Options{Tick: -time.Second}},
		{"tick long", "Tick", Options{Tick: time.Hour + 1}},
		{"share 0", "Tuning.HotShare", tuning(func(u *Tuning) { u.HotShare = 0 })},
		{"share over 1", "Tuning.HotShare", tuning(func(u *Tuning) { u.HotShare = 1.01 })},
		{"share NaN", "Tuning.HotShare", tuning(func(u *Tuning) { u.HotShare = nan })},
		{"rate 0", "Tuning.HotRate", tuning(func(u *Tuning) { u.HotRate = 0 })},
		{"rate infinite", "Tuning.HotRate", tuning(func(u *Tuning) { u.HotRate = math.Inf(1) })},
		{"rate NaN", "Tuning.HotRate", tuning(func(u *Tuning) { u.HotRate = nan })},
		{"no minute", "Tuning.SustainedMinutes", tuning(func(u *Tuning) { u.SustainedMinutes = 0 })},
		{"six minutes", "Tuning.SustainedMinutes", tuning(func(u *Tuning) { u.SustainedMinutes = 6 })},
		{"reads NaN", "Tuning.ReadHeavy", tuning(func(u *Tuning) { u.ReadHeavy = nan })},
		{"reads over", "Tuning.ReadHeavy", tuning(func(u *Tuning) { u.ReadHeavy = 1e7 })},
		{"writes negative", "Tuning.WriteHeavy", tuning(func(u *Tuning) { u.WriteHeavy = -1 })},
		{"writes like reads", "Tuning.WriteHeavy", tuning(func(u *Tuning) { u.WriteHeavy = 100 })},
		{"writes NaN", "Tuning.WriteHeavy", tuning(func(u *Tuning) { u.WriteHeavy = nan })},
		{"no trust", "Tuning.Trust", tuning(func(u *Tuning) { u.Trust = 0 })},
		{"long trust", "Tuning.Trust", tuning(func(u *Tuning) { u.Trust = 2 * time.Hour })},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tr, err := New(c.o)
			e, ok := errors.AsType[*ConfigError](err)
			if tr != nil || !ok || !errors.Is(err, ErrConfig) {
				t.Fatalf("New = %v, %v; want a *ConfigError", tr, err)
			}
			if e.Field != c.field || e.Value == nil || e.Want == "" || !strings.Contains(err.Error(), c.field) {
				t.Errorf("got %+v (%v), want field %s", e, err, c.field)
			}
		})
	}
	_, err := New(Options{Capacity: -1, MaxKey: -1, Tick: -1, Tuning: Tuning{HotShare: 1}})
	for _, f := range []string{"Capacity", "MaxKey", "Tick", "HotRate", "SustainedMinutes", "ReadHeavy", "WriteHeavy", "Trust"} {
		if !strings.Contains(err.Error(), f) {
			t.Errorf("error %q does not name %s", err, f)
		}
	}
}

func TestTracker_ZeroHashIsAKey(t *testing.T) {
	tr := mustNew(t, Options{})
	for range 3 {
		tr.Add(start, 0, "zero", false)
	}
	tr.AddN(start, 0, "zero", true, 0)
	top := tr.Top(start, 5)
	if len(top) != 1 || top[0].Hash != 1 || top[0].Reads != 3 || top[0].Writes != 0 || top[0].Key != "zero" {
		t.Errorf("got %+v", top)
	}
	if tr.Top(start, 0) == nil || len(tr.Top(start, -1)) != 0 {
		t.Error("Top of none")
	}
}
