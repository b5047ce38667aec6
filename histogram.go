package ringwise

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// RTTStats describes the round-trip times this client saw from a worker in the
// sliding window, 60 s by default, within 1 % of what sorting them would give.
// The zero value means that there were none. In JSON the durations are integers
// in nanoseconds, hence their names.
type RTTStats struct {
	// Count is the number of samples in the window.
	Count uint64 `json:"count"`
	// Mean of the samples.
	Mean time.Duration `json:"mean_ns"`
	// P50, P95 and P99 are nearest-rank percentiles: the least value that at least
	// that share of the samples does not exceed. With fewer than 100 samples P99
	// is the largest of them, so wait for more before judging a worker by it.
	P50 time.Duration `json:"p50_ns"`
	P95 time.Duration `json:"p95_ns"`
	P99 time.Duration `json:"p99_ns"`
	// Max is the upper edge of the highest bucket in use, at most 60 s: no sample
	// was above it, the largest lies less than 1.6 % below it (16 ns under 1 µs).
	Max time.Duration `json:"max_ns"`
}

// Buckets are log-linear: 64 equal ones per octave, found by one shift. The
// width is at most 1/64 of the value, so the middle is at most 1/128 = 0.8 %
// off. With 32 it would be 1.6 %, with 128 twice the memory for nothing anyone
// reads. Below 1024 ns they are 16 ns wide down to 0, so that no round trip is
// too short to count: elsewhere everything under 1 ms once counted as 0.
const (
	rttPageBits = 6 // 64 buckets a page
	rttPageLen  = 1 << rttPageBits
	rttMinShift = 4 // width of the finest bucket: 16 ns

	// rttMax is the longest time told apart. Beyond any sensible time-out, and it
	// bounds the memory.
	rttMax = 60 * time.Second

	// rttPages: one below 1024 ns, then one for each octave up to rttMax (2^35.8).
	rttPages   = 27
	rttBuckets = rttPages * rttPageLen

	// rttCountCap is where a counter stays. Only half of a uint32 is used: adders
	// that pass the cap together, before the first of them puts it back, would
	// have to be two thousand million to wrap it to 0.
	rttCountCap = 1 << 31

	// rttSubWindows is how many parts the window slides by. The oldest is dropped
	// whole, so what is shown covers 3/4 to 4/4 of the window. Eight would make
	// that 7/8 and keep twice the history.
	rttSubWindows = 4
)

// rttBucket returns the bucket of a round-trip time: below 0 counts as 0, above
// rttMax as rttMax.
func rttBucket(rtt time.Duration) uint {
	v := uint64(min(max(rtt, 0), rttMax))
	// Filling up to 1024 ns gives the first page the width of the second.
	shift := uint(bits.Len64(v|rttPageLen<<rttMinShift)) - (rttPageBits + 1)
	// v>>shift is 64..127 from the second page on; its leading one makes the page
	// number come out one higher, which the first page left free.
	return (shift-rttMinShift)<<rttPageBits + uint(v>>shift)
}

// rttBounds returns the smallest value of a bucket, and its width.
func rttBounds(bucket uint) (low, width time.Duration) {
	shift := uint(rttMinShift)
	if bucket >= 2*rttPageLen {
		shift += bucket>>rttPageBits - 1
		bucket -= (shift - rttMinShift) << rttPageBits
	}
	return time.Duration(bucket) << shift, 1 << shift
}

// An rttPage counts one octave: 256 bytes, four cache lines.
type rttPage [rttPageLen]atomic.Uint32

// An rttHistogram counts the round-trip times of one worker (or lane) over a
// sliding window. Recording is lock-free and needs no clock: it only ever adds
// to the running sub-window, wherever that began. rotate, called by maintenance,
// empties the running counters by atomic swaps into an immutable list, so a
// record that runs beside it lands on one side or the other and is never lost.
//
// The zero value is ready; the sub-window before the first rotate starts then.
// Do not copy it. Empty it takes 336 bytes. Each octave ever used adds 256, since
// pages are allocated on first touch and kept, and each of three past
// sub-windows 2 to 3 bytes per bucket it used: about 2.4 KiB for a worker that
// is busy all over three octaves, less than 40 KiB if each of the 1728 buckets is
// hit all the time.
type rttHistogram struct {
	// pages go from nil to a page once and never back: a record may hold one.
	pages [rttPages]atomic.Pointer[rttPage]

	// mu serialises rotate and the readers, who would else see a sub-window twice
	// or not at all while it moves. record never takes it. It is held for a few
	// microseconds, calls nothing of the user's and is taken last.
	mu      sync.Mutex
	started bool
	start   int64 // when the running sub-window began, monotonic nanoseconds
	past    [rttSubWindows - 1]rttPast
}

// An rttPast is a finished sub-window, as pairs of uvarints: the distance from
// the bucket before, and its count. That is half of what pages would take where
// every bucket is busy, and a few bytes for an octave with one straggler in it,
// of which a long life collects many.
type rttPast struct {
	start int64 // of its oldest possible sample
	data  []byte
}

// record counts one round trip. Negative counts as 0, more than 60 s as 60 s.
// One atomic load and one atomic add, which is nearly all of its cost
// (BenchmarkRTTHistogramRecord has the add alone beside it); safe for any number
// of goroutines. It allocates (256 bytes) only when this histogram sees an octave
// for the first time, so at most 27 times in its life. A counter saturates at
// 2^31 per bucket and sub-window.
func (h *rttHistogram) record(rtt time.Duration) {
	i := rttBucket(rtt)
	p := h.pages[i>>rttPageBits].Load()
	if p == nil {
		p = h.addPage(i >> rttPageBits)
	}
	c := &p[i%rttPageLen]
	if n := c.Add(1); n > rttCountCap {
		// One try will do: it fails only if another adder came after, who tries in
		// turn, or if rotate has emptied the counter. A Store would undo the latter.
		c.CompareAndSwap(n, rttCountCap)
	}
}

func (h *rttHistogram) addPage(i uint) *rttPage {
	h.pages[i].CompareAndSwap(nil, new(rttPage))
	return h.pages[i].Load()
}

// rotate lets the window slide to now. After it, no sample is shown that may be
// older than window; a sub-window closes once it is window/4 old. A late call
// closes one longer sub-window, and one that comes a whole window late (or a
// clock that jumps an hour) drops everything, because nobody can tell any more
// how old it is. When now stands still or steps back nothing changes; a step
// back of a window or more is taken as the new time base, with ages kept, so
// that no clock can stop the sliding for longer than a window.
//
// A window below 4 ns counts as 4 ns; it may change from call to call. Call it
// at least four times a window: some 20 ns when nothing is due, else 1 to 2 us
// and, if there were samples, one allocation.
func (h *rttHistogram) rotate(now int64, window time.Duration) {
	length := max(int64(window), rttSubWindows)
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.started {
		h.started, h.start = true, now
		return
	}
	if elapsedNanos(now, h.start) >= length {
		for i := range h.past {
			h.past[i].start += now - h.start
		}
		h.start = now
		return
	}
	age := elapsedNanos(h.start, now)
	if age >= length/rttSubWindows {
		copy(h.past[1:], h.past[:])
		h.past[0] = rttPast{start: h.start, data: h.drain()}
		h.start = now
	}
	for i := range h.past {
		if elapsedNanos(h.past[i].start, now) >= length {
			h.past[i].data = nil
		}
	}
}

// drain moves the running counts into the form of an rttPast, nil when there are
// none. The caller holds mu.
func (h *rttHistogram) drain() []byte {
	var scratch [1024]byte // keeps the growing off the heap for all but the widest
	data, last := scratch[:0], 0
	for page := range h.pages {
		p := h.pages[page].Load()
		if p == nil {
			continue
		}
		for j := range p {
			// Looking first spares the recorders' cache lines a write.
			if p[j].Load() == 0 {
				continue
			}
			n := min(p[j].Swap(0), rttCountCap)
			i := page<<rttPageBits | j
			data = binary.AppendUvarint(data, uint64(i-last))
			data = binary.AppendUvarint(data, uint64(n))
			last = i
		}
	}
	if len(data) == 0 {
		return nil
	}
	return slices.Clone(data)
}

// stats describes the window as the last rotate left it, plus all that was
// recorded since. It changes nothing, keeps recorders running and allocates
// nothing; some microseconds, so not for the pick path.
func (h *rttHistogram) stats() RTTStats {
	var c rttCounts
	h.addTo(&c)
	return c.stats()
}

// An rttCounts is a plain copy of one histogram, or the sum of several: both
// lanes of a worker, or the fleet. 13.5 KiB; meant for the stack.
type rttCounts [rttBuckets]uint64

// addTo adds the window's counts to c. Each record that happened before the call
// is counted once.
func (h *rttHistogram) addTo(c *rttCounts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for page := range h.pages {
		p := h.pages[page].Load()
		if p == nil {
			continue
		}
		for j := range p {
			c[page<<rttPageBits|j] += uint64(min(p[j].Load(), rttCountCap))
		}
	}
	for _, past := range h.past {
		i := uint64(0)
		for data := past.data; len(data) > 0; {
			gap, k := binary.Uvarint(data)
			n, l := binary.Uvarint(data[k:])
			i += gap
			c[i] += n
			data = data[k+l:]
		}
	}
}

// stats computes the numbers people read from the counts.
func (c *rttCounts) stats() RTTStats {
	var s RTTStats
	// A float: 2^31 counts of a minute each overflow an int64 already.
	sum := 0.0 // nanoseconds
	for i, n := range c {
		if n == 0 {
			continue
		}
		low, width := rttBounds(uint(i))
		s.Count += n
		sum += float64(n) * float64(low+width/2)
		s.Max = min(low+width, rttMax)
	}
	if s.Count == 0 {
		return s
	}
	s.Mean = time.Duration(sum / float64(s.Count))
	s.P50, s.P95, s.P99 = c.quantile(50, s.Count), c.quantile(95, s.Count), c.quantile(99, s.Count)
	return s
}

// quantile returns the middle of the bucket that holds the sample of rank
// ceil(percent/100 * total), in integers so that no rounding shifts the rank.
// total is the sum of c and not 0.
func (c *rttCounts) quantile(percent, total uint64) time.Duration {
	rank := (total*percent + 99) / 100
	for i, n := range c {
		if n >= rank {
			low, width := rttBounds(uint(i))
			return min(low+width/2, rttMax)
		}
		rank -= n
	}
	return 0
}

// elapsedNanos is the time from one instant to another, never negative: 0 when
// the clock stepped back, the largest int64 when it would overflow.
func elapsedNanos(from, to int64) int64 {
	if to <= from {
		return 0
	}
	if d := to - from; d > 0 {
		return d
	}
	return 1<<63 - 1
}
