package hotkey

import (
	"math"
	"sync"
	"sync/atomic"
)

const (
	// ways is the keys of a set. Seven hashes and the end of the slot fill one
	// cache line, fourteen counters and the lock another: all that counting a
	// tracked key touches. With so few a set is rarely full of hot keys: 200 of
	// them over 293 sets put 8 in one with chance 2e-4.
	ways = 7

	// slots make the window: the current one and nine before it.
	slots = 10

	// laneRead and laneWrite: reads and writes are counted apart.
	laneRead, laneWrite, lanes = 0, 1, 2

	// decay is what a weight keeps each slot. At 1-1/slots the weight of a
	// steady key is its requests in the length of the window.
	decay = 1 - 1.0/slots

	// full stops a counter. It is half of what fits, since goroutines that all
	// saw a counter below it may each add up to 65535 more.
	full = 1 << 31
)

// keep[k] is decay^k.
var keep = func() (p [slots + 1]float64) {
	for k := range p {
		p[k] = math.Pow(decay, float64(k))
	}
	return p
}()

// A set holds up to seven keys. Its counters are raised without the lock;
// everything else changes under it.
type set struct {
	// The line that every count reads.
	hash [ways]atomic.Uint64 // 0: free
	end  atomic.Int64        // when the current slot ends, ns

	// The line that a count writes.
	cur [lanes][ways]atomic.Uint32 // requests in the current slot
	// mu guards the rest, and the change of hash, end and, but for raising them,
	// cur. Nothing else is locked or called under it.
	mu sync.Mutex

	// The line that finding the weakest key reads besides.
	base [ways]float64 // weight without the current slot
	tick int64         // the current slot: its start over the tick length

	lost totals // requests of keys replaced, by slot, newest first
	text []byte // of the keys, maxKey bytes each
	live bool   // tick is set
	cell [ways]cell

	_ [48]byte // up to whole lines
}

// A cell is what else is known of a key.
type cell struct {
	owed float64 // the part of the weight that was inherited, decayed alike
	born int64   // tick in which the key came in
	hist [lanes][slots - 1]uint32
	size uint16 // of its text
	cut  bool   // its text was longer
}

// bump adds n to a counter, up to full.
func bump(c *atomic.Uint32, n uint16) {
	if c.Load() < full {
		c.Add(uint32(n))
	}
}

// hit counts a tracked key without the lock. It is false if the key is not
// tracked or now is not in the window that ends with the current slot.
func (s *set) hit(now, window int64, hash uint64, lane int, n uint16) bool {
	if end := s.end.Load(); now >= end || uint64(end-now) > uint64(window) {
		return false
	}
	for i := range s.hash {
		if s.hash[i].Load() == hash {
			bump(&s.cur[lane][i], n)
			return true
		}
	}
	return false
}

// find is where a key is, -1 if nowhere. The caller holds mu.
func (s *set) find(hash uint64) int {
	for i := range s.hash {
		if s.hash[i].Load() == hash {
			return i
		}
	}
	return -1
}

// weight is what decides who stays. The caller holds mu.
func (s *set) weight(i int) float64 {
	return s.base[i] + float64(s.cur[laneRead][i].Load()) + float64(s.cur[laneWrite][i].Load())
}

// weakest is the free cell or the one with the least weight, and that weight.
// The caller holds mu.
func (s *set) weakest() (at int, least float64) {
	least = math.Inf(1)
	for i := range s.hash {
		if s.hash[i].Load() == 0 {
			return i, 0
		}
		if w := s.weight(i); w < least {
			at, least = i, w
		}
	}
	return at, least
}

// roll moves the current slot on to the one that now is in. The caller holds mu.
func (s *set) roll(now, length int64) {
	tick := floorDiv(now, length)
	d := tick - s.tick
	switch {
	case s.live && -slots < d && d <= 0:
		return
	case !s.live || d >= slots || d <= -slots:
		s.clear()
	default:
		s.shift(int(d))
	}
	s.live, s.tick = true, tick
	end := (tick + 1) * length
	if end < now {
		end = math.MaxInt64 // the end of time is near
	}
	s.end.Store(end)
}

// clear forgets every key: nothing in the window is left of them.
func (s *set) clear() {
	for i := range s.hash {
		s.hash[i].Store(0)
		s.cur[laneRead][i].Store(0)
		s.cur[laneWrite][i].Store(0)
		s.base[i], s.cell[i] = 0, cell{}
	}
	s.lost = totals{}
}

// shift moves all counts d slots back, in 1..slots-1, and decays the weights.
func (s *set) shift(d int) {
	for i := range s.cell {
		c := &s.cell[i]
		for l := range lanes {
			n := s.cur[l][i].Swap(0)
			s.base[i] += float64(n)
			h := &c.hist[l]
			copy(h[d:], h[:])
			clear(h[:d])
			h[d-1] = n
		}
		s.base[i] *= keep[d]
		c.owed *= keep[d]
	}
	copy(s.lost[d:], s.lost[:])
	clear(s.lost[:d])
}

// admit gives a key the free or the weakest cell and counts its first requests.
// The caller holds mu. Locked instructions are most of the price of a key that
// is not tracked: there are no more of them here than needed.
func (s *set) admit(hash uint64, lane int, n uint16) int {
	i, w := s.weakest()
	c := &s.cell[i]
	for l := range lanes {
		first := uint32(0)
		if l == lane {
			first = uint32(n)
		}
		if old := s.cur[l][i].Load(); old != first {
			s.lost[0] += uint64(s.cur[l][i].Swap(first))
		} else {
			s.lost[0] += uint64(old)
		}
	}
	if c.born != s.tick { // else it has no history, as most that are replaced
		for l := range lanes {
			for k, n := range c.hist[l] {
				s.lost[k+1] += uint64(n)
			}
		}
		c.hist = [lanes][slots - 1]uint32{}
		c.born = s.tick
	}
	s.base[i], c.owed = w, w
	s.hash[i].Store(hash)
	return i
}

// read appends the keys as they stand at a tick to rows and their texts to buf.
// It changes nothing.
func (s *set) read(tick int64, rows []row, buf []byte) ([]row, []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readLocked(tick, rows, buf)
}

// readAll is read together with all requests that the set counted, which it
// adds to total, and the floor. Requests that come meanwhile may be in total
// and not in rows, never the other way round.
func (s *set) readAll(tick int64, rows []row, buf []byte, total *totals) ([]row, []byte, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows, buf = s.readLocked(tick, rows, buf)
	s.addToLocked(total, tick)
	return rows, buf, s.floorLocked(tick)
}

// addTo adds all requests that the set counted, as they stand at a tick.
func (s *set) addTo(total *totals, tick int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addToLocked(total, tick)
}

// one is the row of one key, with the floor for what it missed if it is not
// tracked.
func (s *set) one(tick int64, hash uint64) row {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.age(tick)
	if i := s.find(hash); i >= 0 && d < slots {
		r, _ := s.row(i, d, hash, nil)
		return r
	}
	return row{hash: hash, missed: s.floorLocked(tick)}
}

func (s *set) readLocked(tick int64, rows []row, buf []byte) ([]row, []byte) {
	d := s.age(tick)
	if d >= slots {
		return rows, buf
	}
	for i := range s.hash {
		if h := s.hash[i].Load(); h != 0 {
			var r row
			r, buf = s.row(i, d, h, buf)
			rows = append(rows, r)
		}
	}
	return rows, buf
}

func (s *set) addToLocked(total *totals, tick int64) {
	sum := s.lost
	for i := range s.cell {
		for l := range lanes {
			sum[0] += uint64(s.cur[l][i].Load())
			for k, n := range s.cell[i].hist[l] {
				sum[k+1] += uint64(n)
			}
		}
	}
	total.merge(&sum, s.age(tick))
}

// floorLocked bounds the requests in the window of any key that is not tracked.
func (s *set) floorLocked(tick int64) uint64 {
	d := s.age(tick)
	if d >= slots {
		return 0
	}
	_, w := s.weakest()
	return missed(w * keep[d])
}

// age is how many slots a tick is past the set's.
func (s *set) age(tick int64) int {
	if !s.live {
		return slots
	}
	return age(s.tick, tick)
}

// age is how many slots at is past tick, in 0..slots. What is ahead, since
// another clock was, is taken as it stands.
func age(tick, at int64) int { return int(min(max(at-tick, 0), slots)) }

// row is the key in cell i, d slots on, with its text copied to buf, since the
// set's own may be written over. The caller holds mu.
func (s *set) row(i, d int, hash uint64, buf []byte) (row, []byte) {
	c := &s.cell[i]
	r := row{hash: hash, cut: c.cut}
	for l := range lanes {
		r.slot[l][d] = s.cur[l][i].Load()
		copy(r.slot[l][d+1:], c.hist[l][:])
	}
	if s.tick+int64(d)-c.born < slots {
		r.missed = missed(c.owed * keep[d])
	}
	at := len(buf)
	buf = append(buf, s.textOf(i)[:c.size]...)
	r.text = buf[at:]
	return r, buf
}

// textOf is the room for the text of the key in cell i.
func (s *set) textOf(i int) []byte {
	n := len(s.text) / ways
	return s.text[i*n : (i+1)*n]
}

// missed turns a weight into the most requests in the window that it may stand
// for: those in the oldest slot weigh the least.
func missed(w float64) uint64 {
	return uint64(math.Ceil(w/keep[slots-1] - 1e-6)) // past the rounding of decay
}

// floorDiv is a/b rounded down, b > 0.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
