package hotkey

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Tracker counts the requests of keys and knows the hottest. New makes one. It
// is safe for concurrent use and starts no goroutine.
type Tracker struct {
	// Set by New, read-only afterwards.
	sets     []set
	seed     [2]uint64
	tick     int64 // length of a slot, ns
	window   int64 // slots ticks
	source   uint64
	capacity int
	maxKey   int

	tuning atomic.Pointer[Tuning]
	// judged and peers are replaced whole by Refresh and Merge and never edited
	// after Store.
	judged atomic.Pointer[judgement]
	peers  atomic.Pointer[peerView]

	// refresh serialises Refresh, so that each change is told once. The lock of
	// a set is taken under it, one at a time.
	refresh sync.Mutex
}

// New makes a Tracker. Its memory is all taken here: see Options.Capacity. The
// error names every bad option (errors.Join of *ConfigError).
func New(o Options) (*Tracker, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	n := (o.Capacity + ways - 1) / ways
	t := &Tracker{
		sets: make([]set, n), tick: int64(o.Tick), window: slots * int64(o.Tick),
		source: o.Source, capacity: n * ways, maxKey: o.MaxKey,
	}
	text := make([]byte, n*ways*o.MaxKey)
	for i := range t.sets {
		t.sets[i].text = text[i*ways*o.MaxKey:][: ways*o.MaxKey : ways*o.MaxKey]
	}
	if o.Seed == 0 {
		o.Seed = random()
	}
	// Two secrets from one: neither may be small, since they multiply.
	t.seed = [2]uint64{mix(o.Seed, 0x9e3779b97f4a7c15), mix(o.Seed^0xd6e8feb86659fd93, 0xa0761d6478bd642f) | 1}
	if t.source == 0 {
		t.source = random()
	}
	t.tuning.Store(&o.Tuning)
	return t, nil
}

// Retune replaces the Tuning; Refresh and Top use it from then on. On an error,
// as of Validate, the old one stays.
func (t *Tracker) Retune(u Tuning) error {
	if err := u.Validate(); err != nil {
		return err
	}
	t.tuning.Store(&u)
	return nil
}

// Tuning is the one in use.
func (t *Tracker) Tuning() Tuning { return *t.tuning.Load() }

// Capacity is the number of keys that are tracked.
func (t *Tracker) Capacity() int { return t.capacity }

// Add counts a request. hash is the key's (0 counts as 1); key is its text,
// copied if the key comes in, else not looked at. It allocates nothing; a
// tracked key costs one atomic addition and no lock.
func (t *Tracker) Add(now int64, hash uint64, key string, write bool) {
	t.AddN(now, hash, key, write, 1)
}

// AddN counts n requests at once. It serves for sampled counting: whoever calls
// it for one request in k, drawn at random, with n = k, pays a k-th and gets
// counts whose relative standard deviation is sqrt((k-1)/count): 2.6 % of 10000
// for k = 8. n = 0 does nothing.
func (t *Tracker) AddN(now int64, hash uint64, key string, write bool, n uint16) {
	s, lane := t.setOf(hash), laneOf(write)
	if !s.hit(now, t.window, max(hash, 1), lane, n) {
		addSlow(t, s, now, max(hash, 1), key, lane, n)
	}
}

// AddBytes is AddN for a key held as bytes, which are not retained.
func (t *Tracker) AddBytes(now int64, hash uint64, key []byte, write bool, n uint16) {
	s, lane := t.setOf(hash), laneOf(write)
	if !s.hit(now, t.window, max(hash, 1), lane, n) {
		addSlow(t, s, now, max(hash, 1), key, lane, n)
	}
}

// addSlow counts a key that is not tracked, or the first one in a slot.
func addSlow[K string | []byte](t *Tracker, s *set, now int64, hash uint64, key K, lane int, n uint16) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roll(now, t.tick)
	if i := s.find(hash); i >= 0 {
		bump(&s.cur[lane][i], n)
		return
	}
	i := s.admit(hash, lane, n)
	size := copy(s.textOf(i), key)
	s.cell[i].size, s.cell[i].cut = uint16(size), size < len(key)
}

// Window is the time that counts cover: ten ticks, the newest one in part.
func (t *Tracker) Window() time.Duration { return time.Duration(t.window) }

func laneOf(write bool) int {
	if write {
		return laneWrite
	}
	return laneRead
}

// setOf is where a key is tracked. To craft keys of one set takes the seed; the
// mixing is no cipher, so it raises the price and is no proof.
func (t *Tracker) setOf(hash uint64) *set {
	i, _ := bits.Mul64(mix(max(hash, 1)^t.seed[0], t.seed[1]), uint64(len(t.sets)))
	return &t.sets[i]
}

// mix is the folded multiplication of wyhash (Wang Yi).
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// random is a number that differs for each call and process, never 0.
func random() uint64 { return max(maphash.Comparable(maphash.MakeSeed(), 0), 1) }

// tickOf is the slot that now is in.
func (t *Tracker) tickOf(now int64) int64 { return floorDiv(now, t.tick) }
