package hotkey

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A load is what one key gets each second, in some of the last five minutes.
type load struct {
	reads, writes int
	// every: writes come in one second of so many. 0 is 1.
	every int
	// minutes: bit m is set if the key is busy in the minute m minutes ago.
	minutes uint
}

const always = 1<<minutes - 1

// drive runs five minutes that end just before now, each load on the key with
// its number as hash.
func drive(tr *Tracker, now int64, loads ...load) {
	for ago := int64(300); ago >= 1; ago-- {
		for i, l := range loads {
			if l.minutes>>((ago-1)/60)&1 == 0 {
				continue
			}
			at, h := now-ago*second, uint64(i+1)
			tr.AddN(at, h, keyOf(i+1), false, uint16(l.reads))
			if ago%int64(max(l.every, 1)) == 0 {
				tr.AddN(at, h, keyOf(i+1), true, uint16(l.writes))
			}
		}
	}
}

// background is a hundred keys of five reads a second: under 1 % each, and under
// ten a second.
func background(loads ...load) []load {
	for range 100 {
		loads = append(loads, load{reads: 5, minutes: always})
	}
	return loads
}

func TestTracker_KindsOfHeat(t *testing.T) {
	quiet := []load{{}, {reads: 1, minutes: always}}
	cases := []struct {
		name  string
		key   load
		other []load
		want  Kind
	}{
		{"sustained reads, 100:1", load{reads: 20, writes: 1, every: 5, minutes: always}, background(), ReadSustained},
		{"sustained, half writes", load{reads: 10, writes: 10, minutes: always}, background(), WriteSustained},
		{"only reads", load{reads: 20, minutes: always}, background(), ReadSustained},
		{"only writes", load{writes: 20, minutes: always}, background(), WriteSustained},
		{"ten reads a write", load{reads: 20, writes: 2, minutes: always}, background(), ReadSustained},
		{"nine reads a write", load{reads: 18, writes: 2, minutes: always}, background(), WriteSustained},
		{"four of five", load{reads: 20, minutes: 0b11011}, background(), ReadSustained},
		{"four of five, not now", load{reads: 20, minutes: 0b11110}, background(), ReadSustained},
		{"three of five, and now", load{reads: 20, minutes: 0b10101}, background(), ReadBurst},
		{"three of five, not now", load{reads: 20, minutes: 0b11100}, background(), Cold},
		{"a minute", load{reads: 20, minutes: 0b00001}, background(), ReadBurst},
		{"a minute, half writes", load{reads: 10, writes: 10, minutes: 0b00001}, background(), WriteBurst},
		{"a minute, over", load{reads: 20, minutes: 0b00010}, background(), Cold},
		{"one of many", load{reads: 5, minutes: always}, background(), Cold},
		{"ten a second", load{reads: 10, minutes: always}, quiet, ReadSustained},
		{"nine a second", load{reads: 9, minutes: always}, quiet, Cold},
		{"one in a hundred", load{reads: 40, minutes: always}, []load{{reads: 3960, minutes: always}}, ReadSustained},
		{"less than one in a hundred", load{reads: 40, minutes: always}, []load{{reads: 4000, minutes: always}}, Cold},
	}
	now := start/slot*slot + slot
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tr := mustNew(t, Options{})
			drive(tr, now, append([]load{c.key}, c.other...)...)
			tr.Refresh(now-1, nil)
			if got := tr.Heat(now-1, 1); got != c.want {
				t.Errorf("Heat = %v, want %v", got, c.want)
			}
			for _, s := range tr.Top(now-1, 200) {
				if s.Hash == 1 && s.Kind != c.want {
					t.Errorf("Top says %v, want %v", s.Kind, c.want)
				}
			}
			if c.key.minutes != always {
				return
			}
			// A second into the next slot the newest minute is half as long; what
			// is asked of it too.
			for i, l := range append([]load{c.key}, c.other...) {
				tr.AddN(now, uint64(i+1), "", false, uint16(l.reads))
				if l.every == 0 {
					tr.AddN(now, uint64(i+1), "", true, uint16(l.writes))
				}
			}
			tr.Refresh(now+second-1, nil)
			if got := tr.Heat(now+second-1, 1); got != c.want {
				t.Errorf("Heat = %v a second later, want %v", got, c.want)
			}
		})
	}
}

// TestTracker_Retune: each coefficient moves the line it is said to move.
func TestTracker_Retune(t *testing.T) {
	now := start/slot*slot + slot
	tr := mustNew(t, Options{})
	drive(tr, now, background(
		load{reads: 20, minutes: 0b00111},
		load{reads: 20, writes: 4, minutes: always},
	)...)
	now--
	cases := []struct {
		name       string
		change     func(*Tuning)
		key1, key2 Kind
	}{
		{"default", func(*Tuning) {}, ReadBurst, WriteSustained},
		{"three minutes are sustained", func(u *Tuning) { u.SustainedMinutes = 3 }, ReadSustained, WriteSustained},
		{"more a second", func(u *Tuning) { u.HotRate = 21 }, Cold, WriteSustained},
		{"a larger share", func(u *Tuning) { u.HotShare = 0.04 }, Cold, WriteSustained},
		{"share of all", func(u *Tuning) { u.HotShare = 1 }, Cold, Cold},
		{"read-heavy from 4.9", func(u *Tuning) { u.ReadHeavy = 24 }, ReadBurst, ReadSustained},
		{"read-heavy from 5.1", func(u *Tuning) { u.ReadHeavy = 26 }, ReadBurst, WriteSustained},
		{"write-heavy to 4.5", func(u *Tuning) { u.WriteHeavy = 0.2 }, ReadBurst, ReadSustained},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			u := DefaultTuning()
			c.change(&u)
			if err := tr.Retune(u); err != nil || tr.Tuning() != u {
				t.Fatal(err, tr.Tuning())
			}
			tr.Refresh(now, nil)
			if k1, k2 := tr.Heat(now, 1), tr.Heat(now, 2); k1 != c.key1 || k2 != c.key2 {
				t.Errorf("%v and %v, want %v and %v", k1, k2, c.key1, c.key2)
			}
		})
	}
	was := tr.Tuning()
	if err := tr.Retune(Tuning{HotShare: math.NaN()}); err == nil || tr.Tuning() != was {
		t.Errorf("a bad Tuning: %v, %+v", err, tr.Tuning())
	}
}

// naiveKind judges exact counts.
func naiveKind(u Tuning, key [lanes][slots]uint64, total [slots]uint64, newest time.Duration) Kind {
	hot, now := 0, false
	var reads, writes uint64
	for m := range minutes {
		a, b := 2*m, 2*m+1
		n := key[0][a] + key[0][b] + key[1][a] + key[1][b]
		length := time.Minute
		if m == 0 {
			length = newest
		}
		if float64(n) >= u.HotShare*float64(total[a]+total[b]) && float64(n)/length.Seconds() >= u.HotRate {
			hot++
			now = now || m == 0
		}
		reads += key[0][a] + key[0][b]
		writes += key[1][a] + key[1][b]
	}
	byReads := writes == 0 || float64(reads)/float64(writes) >= math.Sqrt(u.ReadHeavy*u.WriteHeavy)
	switch {
	case hot >= u.SustainedMinutes && byReads:
		return ReadSustained
	case hot >= u.SustainedMinutes:
		return WriteSustained
	case now && byReads:
		return ReadBurst
	case now:
		return WriteBurst
	}
	return Cold
}

// TestTracker_ChangesMatchModel: the changes that Refresh tells, one after
// another, give the kinds that exact counts give.
func TestTracker_ChangesMatchModel(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	seen := map[Kind]int{}
	rounds := 10
	if raceOn {
		rounds = 2
	}
	for range rounds {
		tr := mustNew(t, Options{})
		m := &model{tick: slot, counts: map[int]map[int64]*[lanes]uint64{}}
		const keys = 8
		told := map[uint64]Kind{}
		now := start
		var rates [keys]int
		for step := range 900 {
			now += second + r.Int64N(second)
			if step%40 == 0 {
				for i := range rates {
					rates[i] = r.IntN(20) * r.IntN(5)
				}
			}
			for i, n := range rates {
				w := 0
				if i%2 == 0 {
					w = n * r.IntN(3) / 10
				}
				m.add(now, i, laneRead, uint64(n-w))
				m.add(now, i, laneWrite, uint64(w))
				tr.AddN(now, hashOf(i), keyOf(i), false, uint16(n-w))
				tr.AddN(now, hashOf(i), keyOf(i), true, uint16(w))
			}
			if r.IntN(4) > 0 {
				continue
			}
			var total [slots]uint64
			for i := range keys {
				s := m.slots(now, i)
				for k := range total {
					total[k] += s[0][k] + s[1][k]
				}
			}
			for _, c := range tr.Refresh(now, nil) {
				i := slices.Index(hashes()[:keys], c.Hash)
				reads, writes := m.window(now, i)
				if c.From != told[c.Hash] || c.To == c.From || c.Key != keyOf(i) || c.Reads != reads || c.Writes != writes {
					t.Fatalf("told %+v; before %v, truth %d reads, %d writes", c, told[c.Hash], reads, writes)
				}
				told[c.Hash] = c.To
			}
			newest := time.Duration(now - (now/slot-1)*slot)
			for i := range keys {
				want := naiveKind(tr.Tuning(), m.slots(now, i), total, newest)
				if got := tr.Heat(now, hashOf(i)); got != want || told[hashOf(i)] != want {
					t.Fatalf("%s: Heat %v, told %v, want %v: %d of %d", keyOf(i), got, told[hashOf(i)], want, m.slots(now, i), total)
				}
				seen[want]++
			}
		}
	}
	for k := Cold; k <= WriteSustained; k++ {
		if seen[k] < 10*rounds {
			t.Errorf("%v was seen %d times only", k, seen[k])
		}
	}
}

// TestTracker_JudgementsAge: S8. A judgement is used past its trust, not past the
// window, and Stale says when to ask for a new one.
func TestTracker_JudgementsAge(t *testing.T) {
	now := start/slot*slot + slot - 1
	tr := mustNew(t, Options{})
	drive(tr, now, load{reads: 20, minutes: always})
	if !tr.Stale(now) || tr.Heat(now, 1) != Cold {
		t.Error("before the first Refresh: not stale, or not cold")
	}
	tr.Refresh(now, nil)
	for _, c := range []struct {
		after time.Duration
		stale bool
		want  Kind
	}{
		{-time.Hour, false, ReadSustained},
		{0, false, ReadSustained},
		{30 * time.Second, false, ReadSustained},
		{30*time.Second + 1, true, ReadSustained},
		{5 * time.Minute, true, ReadSustained},
		{5*time.Minute + 1, true, Cold},
	} {
		if s, k := tr.Stale(now+int64(c.after)), tr.Heat(now+int64(c.after), 1); s != c.stale || k != c.want {
			t.Errorf("after %v: stale %v, %v; want %v, %v", c.after, s, k, c.stale, c.want)
		}
	}
	changes := tr.Refresh(now+int64(10*time.Minute), nil)
	if len(changes) != 1 || changes[0] != (Change{Hash: 1, Key: keyOf(1), From: ReadSustained, To: Cold}) {
		t.Errorf("ten minutes later: %+v", changes)
	}
	if changes = tr.Refresh(now+int64(10*time.Minute), nil); len(changes) != 0 {
		t.Errorf("told twice: %+v", changes)
	}
}

func TestKind_Table(t *testing.T) {
	for _, c := range []struct {
		k                    Kind
		hot, sustained, read bool
		s                    string
	}{
		{Cold, false, false, false, "cold"},
		{ReadBurst, true, false, true, "read burst"},
		{WriteBurst, true, false, false, "write burst"},
		{ReadSustained, true, true, true, "read sustained"},
		{WriteSustained, true, true, false, "write sustained"},
		{WriteSustained + 1, true, false, false, "unknown"},
	} {
		if c.k.Hot() != c.hot || c.k.Sustained() != c.sustained || c.k.ReadHeavy() != c.read || c.k.String() != c.s {
			t.Errorf("%d: %v %v %v %v", c.k, c.k.Hot(), c.k.Sustained(), c.k.ReadHeavy(), c.k)
		}
	}
}
