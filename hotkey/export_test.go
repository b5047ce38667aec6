package hotkey

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zeebo/xxh3"
)

// TestExport_Layout holds the bytes of version 1: other versions and languages
// read them.
func TestExport_Layout(t *testing.T) {
	tr := mustNew(t, Options{Source: 0x0102030405060708, MaxKey: 4})
	at := int64(1_700_000_010) * second // a slot begins
	tr.AddN(at-slot, 0x22, "order", false, 3)
	tr.AddN(at, 0x11, "ab", true, 1)
	tr.AddN(at, 0x22, "order", true, 2)
	got := tr.Export([]byte("before"), at+5, 10)
	if string(got[:6]) != "before" {
		t.Fatalf("dst is gone: %q", got[:6])
	}
	zeros := strings.Repeat("00", 32)
	want := "52574801" + "02000000" + "SUM" + // magic, version, keys
		"05e4358a009d9717" + "00ac23fc06000000" + "0807060504030201" + "0000000000000000" + // taken, tick, source, floor
		"0300000000000000" + "0300000000000000" + zeros + zeros + // total
		"1100000000000000" + "0000000000000000" + // hash, missed
		"00000000" + "00000000" + zeros + // reads
		"01000000" + "00000000" + zeros + // writes
		"0200" + "6162" +
		"2200000000000000" + "0000000000000000" +
		"00000000" + "03000000" + zeros +
		"02000000" + "00000000" + zeros +
		"0480" + "6f726465"
	got = got[6:]
	sum := hex.EncodeToString(got[sumAt:takenAt])
	if h := hex.EncodeToString(got); h != strings.Replace(want, "SUM", sum, 1) {
		t.Errorf("got  %s\nwant %s", h, want)
	}
	if sum != "dfdd785610fdb819" {
		t.Errorf("sum %s", sum)
	}
}

// decodes is what decode gives, for exports that must be good.
func decodes(t *testing.T, b []byte) *export {
	t.Helper()
	e, err := decode(b)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// resum makes the sum right again.
func resum(b []byte) []byte {
	if len(b) >= headerSize {
		binary.LittleEndian.PutUint64(b[sumAt:], xxh3.Hash(b[takenAt:]))
	}
	return b
}

// sample is an export of a few dozen keys.
func sample(t testing.TB) []byte {
	tr := mustNew(t, Options{Source: 7, Seed: 7, MaxKey: 20})
	for i := range 30 {
		for k := range 4 {
			tr.AddN(start+int64(k)*slot, hashOf(i), strings.Repeat("k", i), k%2 == 0, uint16(i+1))
		}
	}
	return tr.Export(nil, start+4*slot, 100)
}

func TestDecode_RefusesBadBytes(t *testing.T) {
	good := sample(t)
	put := func(at int, v uint64) func([]byte) []byte {
		return func(b []byte) []byte { binary.LittleEndian.PutUint64(b[at:], v); return resum(b) }
	}
	first, second := headerSize, headerSize+keySize+int(binary.LittleEndian.Uint16(good[headerSize+keySize-2:])&^cutBit)
	cases := []struct {
		name, field string
		offset      int
		change      func([]byte) []byte
	}{
		{"nothing", "length", 0, func([]byte) []byte { return nil }},
		{"a byte short of a header", "length", 0, func(b []byte) []byte { return b[:headerSize-1] }},
		{"other magic", "magic", 0, func(b []byte) []byte { b[0] = 'X'; return b }},
		{"version 0", "version", 3, func(b []byte) []byte { b[3] = 0; return b }},
		{"version 2", "version", 3, func(b []byte) []byte { b[3] = 2; return b }},
		{"a key more", "key[30].length", len(good), func(b []byte) []byte { b[4]++; return append(b, "more, but no key"...) }},
		{"a key less", "length", -1, func(b []byte) []byte { b[4]--; return b }},
		{"four billion keys", "keys", 4, func(b []byte) []byte { copy(b[4:], "\xff\xff\xff\xff"); return b }},
		{"cut short", "sum", sumAt, func(b []byte) []byte { return b[:len(b)-1] }},
		{"cut short, with a sum", "key[29].size", -1, func(b []byte) []byte { return resum(b[:len(b)-1]) }},
		{"a byte more", "sum", sumAt, func(b []byte) []byte { return append(b, 0) }},
		{"a byte more, with a sum", "length", len(good), func(b []byte) []byte { return resum(append(b, 0)) }},
		{"a bit flipped", "sum", sumAt, func(b []byte) []byte { b[first+20] ^= 1; return b }},
		{"floor", "floor", floorAt, put(floorAt, 1<<48+1)},
		{"total", "total", totalAt + 8, put(totalAt+8, 10)},
		{"hash 0", "key[0].hash", first, put(first, 0)},
		{"hash twice", "key[1].hash", second, func(b []byte) []byte { copy(b[second:], b[first:first+8]); return resum(b) }},
		{"hash not ascending", "key[1].hash", second, put(second, 1)},
		{"missed", "key[0].missed", first + 8, put(first+8, math.MaxUint64)},
		{"text too long", "key[0].size", first + keySize - 2, func(b []byte) []byte {
			binary.LittleEndian.PutUint16(b[first+keySize-2:], 1025)
			return resum(append(b, make([]byte, 2000)...))
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tr := mustNew(t, Options{})
			if err := tr.Merge(start+4*slot, good); err != nil {
				t.Fatal(err)
			}
			was := tr.peers.Load()
			bad := c.change(bytes.Clone(good))
			if c.name == "a key more" || c.name == "a key less" {
				resum(bad)
			}
			err := tr.Merge(start+4*slot, good, bad)
			e, ok := errors.AsType[*ExportError](err)
			if !ok || !errors.Is(err, ErrExport) {
				t.Fatalf("Merge = %v, want an *ExportError", err)
			}
			if e.Field != c.field || e.Index != 1 || e.Want == "" || c.offset >= 0 && e.Offset != c.offset {
				t.Errorf("got %+v, want field %s at %d", e, c.field, c.offset)
			}
			if tr.peers.Load() != was {
				t.Error("the view changed")
			}
		})
	}
}

func TestMerge_RefusesOtherTimes(t *testing.T) {
	good := sample(t) // taken at start+4*slot
	minuteTick := mustNew(t, Options{Tick: time.Minute})
	if e, _ := errors.AsType[*ExportError](minuteTick.Merge(start+4*slot, good)); e == nil || e.Field != "tick" {
		t.Errorf("another tick: %v", e)
	}
	tr := mustNew(t, Options{})
	if err := tr.Merge(start+3*slot, good); err != nil {
		t.Errorf("a tick ahead: %v", err)
	}
	if e, _ := errors.AsType[*ExportError](tr.Merge(start+3*slot-1, good)); e == nil || e.Field != "taken" {
		t.Errorf("more than a tick ahead: %v", e)
	}
	for _, taken := range []int64{math.MinInt64, math.MaxInt64} {
		e := decodes(t, good)
		e.taken = taken
		for _, now := range []int64{math.MinInt64, 0, math.MaxInt64} {
			err := tr.Merge(now, encode(nil, e))
			if ok := taken <= now; ok != (err == nil) {
				t.Errorf("taken %d, now %d: %v", taken, now, err)
			}
			tr.Refresh(now, nil)
			tr.Top(now, 3)
			tr.Stale(now)
		}
	}
}

// TestMerge_AddsUp: random histories over several trackers of other seeds and
// sizes: what one that merges them says is bound as if it had seen it all.
func TestMerge_AddsUp(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	rounds := 40
	if raceOn {
		rounds = 5
	}
	for range rounds {
		keys := 1 + r.IntN(600)
		var trackers []*Tracker
		for range 1 + r.IntN(5) {
			trackers = append(trackers, mustNew(t, Options{Capacity: 64 + r.IntN(300), MaxKey: 8 + r.IntN(8)}))
		}
		m := &model{tick: slot, counts: map[int]map[int64]*[lanes]uint64{}}
		z := rand.NewZipf(r, 1.01+r.Float64(), 1, uint64(keys-1))
		now := start
		taken := make([][]byte, len(trackers))
		for range 5000 {
			if now += r.Int64N(slot / 50); r.IntN(300) == 0 {
				now += r.Int64N(3 * slot)
			}
			key, lane := int(z.Uint64()), r.IntN(2)
			m.add(now, key, lane, 1)
			trackers[r.IntN(len(trackers))].Add(now, hashOf(key), keyOf(key), lane == laneWrite)
		}
		n := 50 + r.IntN(600)
		for i, tr := range trackers[1:] {
			taken[i+1] = tr.Export(nil, now, n)
			decodes(t, taken[i+1])
		}
		tr := trackers[0]
		taken[0] = tr.Export(nil, now, n)
		if err := tr.Merge(now, taken...); err != nil { // its own among them
			t.Fatal(err)
		}
		later := now + r.Int64N(12*slot)*r.Int64N(2)
		checkModel(t, tr, m, later, keys)
		checkBounds(t, tr, taken[1:])
		if t.Failed() {
			t.Fatalf("%d keys in %d trackers, %d exported", keys, len(trackers), n)
		}
		before := tr.Top(later, keys)
		slices.Reverse(taken)
		if err := tr.Merge(later, taken...); err != nil {
			t.Fatal(err)
		}
		if after := tr.Top(later, keys); !slices.Equal(before, after) {
			t.Fatal("to merge the same again, in another order, changes the result")
		}
	}
}

// checkBounds compares what a merged key is said to have missed with the sum over
// exports: its own where it is listed, the floor where not. Only where keys had
// to go may it be more, for those that went.
func checkBounds(t *testing.T, tr *Tracker, exports [][]byte) {
	t.Helper()
	want := map[uint64]uint64{}
	var floors uint64
	var all []*export
	for _, b := range exports {
		e := decodes(t, b)
		all = append(all, e)
		floors += e.floor
		for _, r := range e.rows {
			want[r.hash] = 0
		}
	}
	for _, e := range all {
		listed := map[uint64]uint64{}
		for _, r := range e.rows {
			listed[r.hash] = r.missed
		}
		for h := range want {
			if m, ok := listed[h]; ok {
				want[h] += m
			} else {
				want[h] += e.floor
			}
		}
	}
	p := tr.peers.Load()
	if p == nil {
		if len(exports) > 0 {
			t.Error("nothing was merged")
		}
		return
	}
	if len(p.rows) != min(len(want), tr.Capacity()) {
		t.Errorf("%d keys merged of %d, capacity %d", len(p.rows), len(want), tr.Capacity())
	}
	for _, r := range p.rows {
		if r.missed != want[r.hash] {
			t.Errorf("key %x missed %d, want %d", r.hash, r.missed, want[r.hash])
		}
	}
	if p.floor < floors || len(p.rows) == len(want) && p.floor != floors {
		t.Errorf("floor %d, want %d", p.floor, floors)
	}
}

// TestMerge_BoundsWhatItDrops: of more keys than fit the hottest stay, and what
// the others had is owned up to.
func TestMerge_BoundsWhatItDrops(t *testing.T) {
	var exports [][]byte
	for p := range 2 {
		tr := mustNew(t, Options{})
		for i := range 100 {
			tr.AddN(start, uint64(1000*p+i+1), "", false, uint16(i+1))
		}
		exports = append(exports, tr.Export(nil, start, 90))
		if e := decodes(t, exports[p]); e.floor != 10 || len(e.rows) != 90 {
			t.Errorf("export of 90 keys with 11 requests at least: %d keys, floor %d", len(e.rows), e.floor)
		}
	}
	tr := mustNew(t, Options{Capacity: 64})
	if err := tr.Merge(start, exports...); err != nil {
		t.Fatal(err)
	}
	top := tr.Top(start, 1000)
	if len(top) != 70 || top[69].Reads != 66 {
		t.Fatalf("%d keys, the last %+v", len(top), top[len(top)-1])
	}
	for _, c := range []struct{ hash, missed uint64 }{
		{100, 10}, // listed by one, up to 10 of it missed by the other
		{65, 75},  // dropped with 65 and those 10
		{5, 75},   // in no export
	} {
		if got := tr.merged(tr.tickOf(start), c.hash).missed; got != c.missed {
			t.Errorf("key %d: missed %d, want %d", c.hash, got, c.missed)
		}
	}
}

// TestMerge_ZipfTopTen: the requirement of TestTracker_ZipfTopTen for four
// processes that share the stream and export 256 keys each.
func TestMerge_ZipfTopTen(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	z := rand.NewZipf(r, 1.1, 1, 9_999_999)
	truth := map[uint64]uint64{}
	var trackers [4]*Tracker
	for i := range trackers {
		trackers[i] = mustNew(t, Options{})
	}
	for i := range streamLen(t, 1_000_000) {
		k := z.Uint64()
		h := k*0x9e3779b97f4a7c15 + 1
		if k < 1000 {
			truth[h]++
		}
		trackers[r.IntN(4)].Add(start+int64(i), h, "", false)
	}
	reader := mustNew(t, Options{Capacity: 256})
	var exports [][]byte
	for _, tr := range trackers {
		exports = append(exports, tr.Export(nil, start, 256))
	}
	if err := reader.Merge(start, exports...); err != nil {
		t.Fatal(err)
	}
	var want []uint64
	for h := range truth {
		want = append(want, h)
	}
	slices.SortFunc(want, func(a, b uint64) int { return cmp.Or(cmp.Compare(truth[b], truth[a]), cmp.Compare(a, b)) })
	for i, s := range reader.Top(start, 10) {
		if s.Hash != want[i] || s.Reads > truth[want[i]] || float64(s.Reads) < 0.99*float64(truth[want[i]]) {
			t.Errorf("rank %d: %d of %#x, want %d of %#x", i+1, s.Reads, s.Hash, truth[want[i]], want[i])
		}
	}
}

// TestMerge_HotTogether: a key that is hot in no process but in all together is
// hot, to those that use it and to those that do not, and cools when the exports
// age.
func TestMerge_HotTogether(t *testing.T) {
	now := start/slot*slot + slot - 1
	var exports [][]byte
	reader := mustNew(t, Options{})
	drive(reader, now, load{}, load{reads: 5, minutes: always}) // not key 1
	for range 4 {
		tr := mustNew(t, Options{})
		drive(tr, now, load{reads: 4, minutes: always})
		if tr.Refresh(now, nil); tr.Heat(now, 1) != Cold {
			t.Fatal("hot alone")
		}
		exports = append(exports, tr.Export(nil, now, 10))
	}
	if err := reader.Merge(now, exports...); err != nil {
		t.Fatal(err)
	}
	reader.Refresh(now, nil)
	if k := reader.Heat(now, 1); k != ReadSustained {
		t.Errorf("hot together is %v", k)
	}
	for _, c := range []struct {
		after time.Duration
		stale bool
		kind  Kind
	}{{30 * time.Second, false, ReadSustained}, {31 * time.Second, true, ReadSustained}, {4 * time.Minute, true, Cold}, {10 * time.Minute, true, Cold}} {
		at := now + int64(c.after)
		reader.Refresh(at, nil)
		if s, k := reader.Stale(at), reader.Heat(at, 1); s != c.stale || k != c.kind {
			t.Errorf("exports %v old: stale %v, %v; want %v, %v", c.after, s, k, c.stale, c.kind)
		}
	}
	if err := reader.Merge(now); err != nil || len(reader.Top(now, 10)) != 1 {
		t.Errorf("after Merge of none: %v, %+v", err, reader.Top(now, 10))
	}
}

// TestMerge_CountsEachSourceOnce: its own export and older ones of one source.
func TestMerge_CountsEachSourceOnce(t *testing.T) {
	tr, peer := mustNew(t, Options{Source: 1}), mustNew(t, Options{Source: 2})
	tr.AddN(start, 5, "five", false, 10)
	peer.AddN(start, 5, "five", true, 100)
	old := peer.Export(nil, start, 10)
	peer.AddN(start, 5, "five", true, 1000)
	fresh := peer.Export(nil, start+1, 10)
	own := tr.Export(nil, start, 10)
	for _, exports := range [][][]byte{{old, fresh, own}, {fresh, own, old}, {own, fresh}, {fresh, fresh}} {
		for range 2 {
			if err := tr.Merge(start+2, exports...); err != nil {
				t.Fatal(err)
			}
			if s := tr.Top(start+2, 1)[0]; s.Reads != 10 || s.Writes != 1100 || s.Missed != 0 || s.Key != "five" {
				t.Errorf("got %+v", s)
			}
		}
	}
	if e := decodes(t, tr.Export(nil, start+2, 10)); e.total[0] != 10 || e.rows[0].count() != 10 {
		t.Errorf("what was merged is exported again: %+v", e)
	}
}

// TestMerge_HoldsOnToNothing: the caller may write over the bytes.
func TestMerge_HoldsOnToNothing(t *testing.T) {
	tr := mustNew(t, Options{MaxKey: 6})
	b := sample(t)
	if err := tr.Merge(start+4*slot, b); err != nil {
		t.Fatal(err)
	}
	want := tr.Top(start+4*slot, 50)
	clear(b)
	if got := tr.Top(start+4*slot, 50); !slices.Equal(got, want) || len(got) != 30 {
		t.Errorf("%d keys, changed with the bytes", len(got))
	}
	for _, s := range want {
		if len(s.Key) > 6 || s.Cut != (s.Key == "kkkkkk" && s.Reads > 2*7) {
			t.Errorf("%+v", s)
		}
	}
}

func FuzzDecode(f *testing.F) {
	good := sample(f)
	f.Add(good)
	f.Add(good[:headerSize])
	f.Add([]byte{})
	empty := mustNew(f, Options{})
	f.Add(empty.Export(nil, start, 5))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, resum(bytes.Clone(b))} {
			e, bad := decode(b)
			if bad != nil {
				if !errors.Is(bad, ErrExport) || bad.Field == "" || bad.Want == "" || bad.Offset > len(b) {
					t.Fatalf("%+v", bad)
				}
				continue
			}
			if again := encode(nil, e); !bytes.Equal(again, b) {
				t.Fatalf("%x decodes, and encodes as %x", b, again)
			}
			texts := 0
			for _, r := range e.rows {
				texts += len(r.text)
			}
			if cap(e.rows)*128+texts > len(b)*14/10 {
				t.Fatalf("%d rows, %d bytes of text from %d bytes", cap(e.rows), texts, len(b))
			}
			tr := mustNew(t, Options{Capacity: 64})
			tr.Add(e.taken, 1, "one", false)
			if err := tr.Merge(e.taken, b, b); e.tick == tr.tick != (err == nil) {
				t.Fatal(err)
			}
			tr.Refresh(e.taken, nil)
			for _, s := range tr.Top(e.taken, 100) {
				if s.Reads+s.Writes == 0 || len(s.Key) > tr.maxKey {
					t.Fatalf("%+v", s)
				}
			}
			again := tr.Export(nil, e.taken, 100)
			if _, bad := decode(again); bad != nil {
				t.Fatal(bad)
			}
		}
	})
}
