package keyspec

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/zeebo/xxh3"
)

func mustNew(t testing.TB, o Options) *Spec {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSpec_Table(t *testing.T) {
	type want struct {
		text, tenant, entity, id string
		matched                  bool
	}
	cases := []struct {
		name string
		o    Options
		key  string
		want want
	}{
		{"usual", Options{}, "acme:order:17", want{"acme:order:17", "acme", "order", "17", true}},
		{"id keeps separators", Options{}, "acme:order:17:lines:3", want{"acme:order:17:lines:3", "acme", "order", "17:lines:3", true}},
		{"empty key", Options{}, "", want{}},
		{"no separator", Options{}, "foo", want{text: "foo", id: "foo"}},
		{"one separator", Options{}, "user:42", want{text: "user:42", id: "user:42"}},
		{"empty fields", Options{}, "::", want{"::", "", "", "", true}},
		{"empty tenant", Options{}, ":order:17", want{":order:17", "", "order", "17", true}},
		{"empty id", Options{}, "acme:order:", want{"acme:order:", "acme", "order", "", true}},
		{"case kept", Options{}, "Acme:Order:A", want{"Acme:Order:A", "Acme", "Order", "A", true}},
		{"no UTF-8", Options{}, "\xff:\x00:\xfe", want{"\xff:\x00:\xfe", "\xff", "\x00", "\xfe", true}},

		{"prefix", Options{Prefix: "app1:"}, "app1:acme:order:17", want{"acme:order:17", "acme", "order", "17", true}},
		{"no such prefix", Options{Prefix: "app1:"}, "app2:acme:17", want{"app2:acme:17", "app2", "acme", "17", true}},
		{"prefix once", Options{Prefix: "a:"}, "a:a:b:c", want{"a:b:c", "a", "b", "c", true}},
		{"nothing but prefix", Options{Prefix: "app1:"}, "app1:", want{}},
		{"shorter than prefix", Options{Prefix: "app1:"}, "app", want{text: "app", id: "app"}},
		{"prefix in other case", Options{Prefix: "app1:"}, "APP1:acme:order:17", want{"APP1:acme:order:17", "APP1", "acme", "order:17", true}},

		{"fold", Options{Fold: true}, "ACME:Order:aZ", want{"acme:order:az", "acme", "order", "az", true}},
		{"fold nothing", Options{Fold: true}, "acme:order:az", want{"acme:order:az", "acme", "order", "az", true}},
		{"fold ASCII only", Options{Fold: true}, "É@[`{Z:x:y", want{"É@[`{z:x:y", "É@[`{z", "x", "y", true}},
		{"fold key for prefix", Options{Fold: true, Prefix: "app:"}, "APP:a:b:c", want{"a:b:c", "a", "b", "c", true}},
		{"fold prefix for key", Options{Fold: true, Prefix: "APP:"}, "app:a:b:C", want{"a:b:c", "a", "b", "c", true}},

		{"other separator", Options{Pattern: "tenant/entity/id"}, "acme/order/1:2", want{"acme/order/1:2", "acme", "order", "1:2", true}},
		{"other order", Options{Pattern: "entity:tenant:id"}, "order:acme:17", want{"order:acme:17", "acme", "order", "17", true}},
		{"skip", Options{Pattern: "_|tenant|_|entity"}, "v1|acme|eu|order|x", want{"v1|acme|eu|order|x", "acme", "order|x", "", true}},
		{"skip, too few", Options{Pattern: "_|tenant|_|entity"}, "v1|acme|eu", want{text: "v1|acme|eu", id: "v1|acme|eu"}},
		{"one field", Options{Pattern: "tenant"}, "acme:17", want{"acme:17", "acme:17", "", "", true}},
		{"two fields", Options{Pattern: "entity.id"}, "order.17", want{"order.17", "", "order", "17", true}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := mustNew(t, c.o)
			k, err := s.Parse(c.key)
			got := want{k.Text, k.Tenant, k.Entity, k.ID, k.Matched}
			if err != nil || got != c.want {
				t.Errorf("Parse(%q) = %+v, %v; want %+v", c.key, got, err, c.want)
			}
			if h := max(xxh3.HashString(c.want.text), 1); k.Hash != h || k.Slot != uint32(h&511) {
				t.Errorf("Parse(%q): hash %x slot %d, want %x and %d", c.key, k.Hash, k.Slot, h, h&511)
			}
		})
	}
}

func TestNew_NamesEveryBadField(t *testing.T) {
	cases := []struct {
		name  string
		o     Options
		field string
		value any
	}{
		{"slots not a power of two", Options{Slots: 511}, "Slots", 511},
		{"slots negative", Options{Slots: -512}, "Slots", -512},
		{"slots huge", Options{Slots: 1 << 17}, "Slots", 1 << 17},
		{"maxlen negative", Options{MaxLen: -1}, "MaxLen", -1},
		{"maxlen huge", Options{MaxLen: 1 << 17}, "MaxLen", 1 << 17},
		{"prefix over maxlen", Options{Prefix: "abcde", MaxLen: 4}, "Prefix", "abcde"},
		{"unknown word", Options{Pattern: "tenant:table:id"}, "Pattern", "tenant:table:id"},
		{"word twice", Options{Pattern: "id:tenant:id"}, "Pattern", "id:tenant:id"},
		{"two separators", Options{Pattern: "tenant:entity/id"}, "Pattern", "tenant:entity/id"},
		{"long separator", Options{Pattern: "tenant::id"}, "Pattern", "tenant::id"},
		{"letter as separator", Options{Pattern: "tenantXid"}, "Pattern", "tenantXid"},
		{"space as separator", Options{Pattern: "tenant id"}, "Pattern", "tenant id"},
		{"separator of two bytes", Options{Pattern: "tenant·id"}, "Pattern", "tenant·id"},
		{"no field", Options{Pattern: "_:_"}, "Pattern", "_:_"},
		{"too many fields", Options{Pattern: "id" + strings.Repeat(":_", 8)}, "Pattern", "id" + strings.Repeat(":_", 8)},
		{"only a separator", Options{Pattern: ":"}, "Pattern", ":"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, err := New(c.o)
			e, ok := errors.AsType[*ConfigError](err)
			if s != nil || !ok || !errors.Is(err, ErrConfig) {
				t.Fatalf("New = %v, %v; want a *ConfigError", s, err)
			}
			if e.Field != c.field || e.Value != c.value || e.Want == "" {
				t.Errorf("got %+v, want field %s, value %v and a range", e, c.field, c.value)
			}
			if msg := err.Error(); !strings.Contains(msg, c.field) || !strings.Contains(msg, e.Want) {
				t.Errorf("message %q lacks field or range", msg)
			}
		})
	}
	_, err := New(Options{Pattern: "x", Slots: 3, MaxLen: -1})
	for _, f := range []string{"Pattern", "Slots", "MaxLen"} {
		if !strings.Contains(err.Error(), f) {
			t.Errorf("error %q does not name %s", err, f)
		}
	}
}

func TestSpec_BoundsTheKey(t *testing.T) {
	s := mustNew(t, Options{MaxLen: 8, Fold: true})
	for _, key := range []string{strings.Repeat("A", 9), strings.Repeat(":", 1<<20)} {
		k, err := s.Parse(key)
		if err != ErrTooLong || k != (Key{}) {
			t.Errorf("Parse of %d bytes = %+v, %v; want ErrTooLong", len(key), k, err)
		}
		if b, err := s.ParseBytes(nil, []byte(key)); err != ErrTooLong || b.Text != nil {
			t.Errorf("ParseBytes of %d bytes = %+v, %v; want ErrTooLong", len(key), b, err)
		}
		if b, err := s.ParseInto(nil, key); err != ErrTooLong || b.Text != nil {
			t.Errorf("ParseInto of %d bytes = %+v, %v; want ErrTooLong", len(key), b, err)
		}
	}
	if k, err := s.Parse("A:B:CDEF"); err != nil || k.ID != "cdef" {
		t.Errorf("a key of MaxLen bytes = %+v, %v", k, err)
	}
}

func TestSpec_SlotsAreLowBits(t *testing.T) {
	for _, slots := range []int{1, 2, 512, 65536} {
		s := mustNew(t, Options{Slots: slots})
		seen := map[uint32]bool{}
		for i := range 4096 {
			k, _ := s.Parse(strings.Repeat("k", i%64) + string(rune('0'+i)))
			if uint64(k.Slot) != k.Hash%uint64(slots) || s.Slot(k.Hash) != k.Slot {
				t.Fatalf("%d slots: hash %x in slot %d", slots, k.Hash, k.Slot)
			}
			seen[k.Slot] = true
		}
		if slots <= 512 && len(seen) != slots {
			t.Errorf("%d of %d slots used by 4096 keys", len(seen), slots)
		}
	}
}

// TestSpec_Seed: case 28, keys crafted to share a slot under seed 0.
func TestSpec_Seed(t *testing.T) {
	plain, seeded := mustNew(t, Options{}), mustNew(t, Options{Seed: 7})
	spread, crafted := map[uint32]int{}, 0
	for i := 0; crafted < 1000; i++ {
		key := "t:e:" + string(rune(i%0xd000)) + strings.Repeat("x", i/0xd000)
		if k, _ := plain.Parse(key); k.Slot != 5 {
			continue
		}
		crafted++
		k, _ := seeded.Parse(key)
		spread[k.Slot]++
	}
	for slot, n := range spread {
		if n > 20 {
			t.Errorf("%d of 1000 crafted keys share slot %d under the seed", n, slot)
		}
	}
}

// TestSpec_HashIsStable holds Hash and Fingerprint to what other processes and
// versions compute.
func TestSpec_HashIsStable(t *testing.T) {
	k, _ := Default().Parse("acme:order:17")
	if k.Hash != 0xa2397b1d3ca1b4a0 || k.Fingerprint() != 0x75f5f3edba6c9752 {
		t.Errorf("hash %#x, fingerprint %#x", k.Hash, k.Fingerprint())
	}
	seeded, _ := mustNew(t, Options{Seed: 7}).Parse("acme:order:17")
	if seeded.Hash == k.Hash || seeded.Fingerprint() != k.Fingerprint() {
		t.Errorf("under a seed: hash %#x, fingerprint %#x", seeded.Hash, seeded.Fingerprint())
	}
	if (Key{Tenant: "a", Entity: "bc"}).Fingerprint() == (Key{Tenant: "ab", Entity: "c"}).Fingerprint() {
		t.Error("fingerprint joins tenant and entity")
	}
	b, _ := Default().ParseBytes(nil, []byte("acme:order:17"))
	if b.Fingerprint() != k.Fingerprint() {
		t.Error("bytes and string differ in fingerprint")
	}
}

// naive is what a Spec does, in library calls.
func naive(o Options, key string) Key {
	fold := func(s string) string {
		if !o.Fold {
			return s
		}
		for c := 'A'; c <= 'Z'; c++ {
			s = strings.ReplaceAll(s, string(c), string(c+32))
		}
		return s
	}
	text := key
	if len(key) >= len(o.Prefix) && fold(key[:len(o.Prefix)]) == fold(o.Prefix) {
		text = key[len(o.Prefix):]
	}
	text = fold(text)
	sep := strings.Trim(o.Pattern, "abcdefghijklmnopqrstuvwxyz_")[:1]
	words := strings.Split(o.Pattern, sep)
	k := Key{Text: text, ID: text}
	if parts := strings.SplitN(text, sep, len(words)); len(parts) == len(words) {
		k.ID, k.Matched = "", true
		for i, w := range words {
			switch w {
			case "tenant":
				k.Tenant = parts[i]
			case "entity":
				k.Entity = parts[i]
			case "id":
				k.ID = parts[i]
			}
		}
	}
	k.Hash = max(xxh3.HashStringSeed(text, o.Seed), 1)
	k.Slot = uint32(k.Hash % uint64(o.Slots))
	return k
}

// check compares the three ways to parse with the model.
func check(t *testing.T, o Options, key string) {
	t.Helper()
	s, want := mustNew(t, o), naive(o, key)
	if got, err := s.Parse(key); err != nil || got != want {
		t.Fatalf("%+v: Parse(%q) = %+v, %v; want %+v", o, key, got, err, want)
	}
	same := func(how string, got Parts[[]byte], err error) {
		t.Helper()
		g := Key{
			Text: string(got.Text), Tenant: string(got.Tenant), Entity: string(got.Entity), ID: string(got.ID),
			Hash: got.Hash, Slot: got.Slot, Matched: got.Matched,
		}
		if err != nil || g != want || got.Fingerprint() != want.Fingerprint() {
			t.Fatalf("%+v: %s(%q) = %+v, %v; want %+v", o, how, key, g, err, want)
		}
	}
	raw := []byte(key)
	got, err := s.ParseBytes(nil, raw)
	same("ParseBytes", got, err)
	if !bytes.Equal(raw, []byte(key)) {
		t.Fatalf("ParseBytes changed its key to %q", raw)
	}
	got, err = s.ParseInto([]byte("old"), key)
	same("ParseInto", got, err)
}

func TestSpec_MatchesModel(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	text := func(n int) string {
		b := make([]byte, r.IntN(n))
		for i := range b {
			b[i] = "abAB:/Z[@`z{1"[r.IntN(13)]
		}
		return string(b)
	}
	patterns := []string{"tenant:entity:id", "entity:tenant:id", "tenant/entity/id", "_:tenant:_:id", "entity:id", "id:_"}
	for range 20_000 {
		o := Options{
			Prefix: text(4), Pattern: patterns[r.IntN(len(patterns))], Fold: r.IntN(2) == 0,
			Slots: 1 << r.IntN(17), Seed: r.Uint64N(2),
		}
		key := text(24)
		if r.IntN(2) == 0 {
			key = o.Prefix + key
		}
		check(t, o, key)
	}
}

func TestSpec_AllocatesNothing(t *testing.T) {
	plain := mustNew(t, Options{Prefix: "app:"})
	fold := mustNew(t, Options{Prefix: "app:", Fold: true})
	lowerKey, upperKey := "app:acme:order:0123456789abcdef", "APP:ACME:Order:0123456789ABCDEF"
	raw := []byte(upperKey)
	var buf [64]byte
	var sum uint64
	for _, c := range []struct {
		name string
		want float64
		f    func()
	}{
		{"Parse", 0, func() { k, _ := plain.Parse(upperKey); sum += k.Hash }},
		{"Parse, nothing to fold", 0, func() { k, _ := fold.Parse(lowerKey); sum += k.Hash }},
		{"Parse, folding", 1, func() { k, _ := fold.Parse(upperKey); sum += k.Hash }},
		{"ParseInto, folding", 0, func() { k, _ := fold.ParseInto(buf[:0], upperKey); sum += k.Hash }},
		{"ParseInto", 0, func() { k, _ := plain.ParseInto(buf[:0], upperKey); sum += k.Hash }},
		{"ParseBytes, folding", 0, func() { k, _ := fold.ParseBytes(buf[:0], raw); sum += k.Hash }},
		{"ParseBytes", 0, func() { k, _ := plain.ParseBytes(nil, raw); sum += k.Hash }},
		{"Fingerprint", 0, func() { k, _ := plain.ParseBytes(nil, raw); sum += k.Fingerprint() }},
		{"Parser", 0, func() { k, _ := Parser(plain).Parse(upperKey); sum += k.Fingerprint() }},
	} {
		if got := testing.AllocsPerRun(100, c.f); got != c.want {
			t.Errorf("%s: %v allocations, want %v", c.name, got, c.want)
		}
	}
}

func TestSpec_Concurrent(t *testing.T) {
	s := mustNew(t, Options{Fold: true})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var buf [32]byte
			for range 1000 {
				if k, _ := s.ParseInto(buf[:0], "ACME:Order:17"); string(k.Tenant) != "acme" {
					t.Errorf("tenant %q", k.Tenant)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzSpec_Parse(f *testing.F) {
	f.Add("app:", "APP:acme:Order:17", uint8(0), true)
	f.Add("", "::", uint8(1), false)
	f.Add("É", "é:a:b\xff", uint8(2), true)
	patterns := []string{"tenant:entity:id", "entity/id", "_|tenant|_|entity"}
	f.Fuzz(func(t *testing.T, prefix, key string, pattern uint8, fold bool) {
		if len(prefix) > defaultMaxLen || len(key) > defaultMaxLen {
			return // TestSpec_BoundsTheKey
		}
		check(t, Options{Prefix: prefix, Pattern: patterns[int(pattern)%len(patterns)], Fold: fold, Slots: 512}, key)
	})
}

func FuzzNew(f *testing.F) {
	f.Add("app:", "tenant:entity:id", 512, 4096, "a:b:c")
	f.Add("", "_:", -1, 0, "")
	f.Fuzz(func(t *testing.T, prefix, pattern string, slots, maxLen int, key string) {
		s, err := New(Options{Prefix: prefix, Pattern: pattern, Slots: slots, MaxLen: maxLen})
		if err != nil {
			if !errors.Is(err, ErrConfig) {
				t.Fatalf("%v is no ErrConfig", err)
			}
			return
		}
		k, err := s.Parse(key)
		if err != nil {
			if err != ErrTooLong || len(key) <= s.maxLen {
				t.Fatalf("Parse(%q) with MaxLen %d: %v", key, s.maxLen, err)
			}
			return
		}
		if len(k.Tenant)+len(k.Entity)+len(k.ID) > len(key) || !strings.HasSuffix(key, k.Text) {
			t.Fatalf("Parse(%q) = %+v", key, k)
		}
	})
}

func BenchmarkSpec_Parse(b *testing.B) {
	for _, c := range []struct {
		name string
		o    Options
		key  string
	}{
		{"usual", Options{}, "acme:order:0123456789abcdef"},
		{"general", Options{Pattern: "entity:tenant:id"}, "acme:order:0123456789abcdef"},
		{"prefix", Options{Prefix: "app1:"}, "app1:acme:order:0123456789"},
		{"fold-nothing", Options{Fold: true}, "acme:order:0123456789abcdef"},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := mustNew(b, c.o)
			b.ReportAllocs()
			var sum uint64
			for b.Loop() {
				k, _ := s.Parse(c.key)
				sum += k.Hash + uint64(len(k.Tenant))
			}
		})
	}
	b.Run("fold-into", func(b *testing.B) {
		s := mustNew(b, Options{Fold: true})
		var buf [64]byte
		b.ReportAllocs()
		for b.Loop() {
			_, _ = s.ParseInto(buf[:0], "ACME:Order:0123456789ABCDEF")
		}
	})
}
