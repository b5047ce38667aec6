package measure

import (
	"math/bits"
	"time"
)

const (
	subBits = 6 // 64 buckets each time the value doubles: 1.6 %
	buckets = (64 - subBits) << subBits
)

// Histogram counts durations, to 1.6 %, and keeps the longest exactly. It is
// for one goroutine; Merge puts several together.
type Histogram struct {
	counts  [buckets]uint64
	n       uint64
	longest time.Duration
}

// Record counts one; less than zero counts as zero.
func (h *Histogram) Record(d time.Duration) {
	d = max(d, 0)
	h.counts[bucket(uint64(d))]++
	h.n++
	h.longest = max(h.longest, d)
}

func bucket(v uint64) int {
	if v < 1<<subBits {
		return int(v)
	}
	e := bits.Len64(v) - subBits - 1
	return e<<subBits + int(v>>e)
}

// upper is the greatest value of a bucket.
func upper(b int) uint64 {
	if b < 1<<subBits {
		return uint64(b)
	}
	e := b>>subBits - 1
	return (uint64(b&(1<<subBits-1)+1<<subBits)+1)<<e - 1
}

// Merge adds what o counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, c := range o.counts {
		h.counts[i] += c
	}
	h.n += o.n
	h.longest = max(h.longest, o.longest)
}

// N is how many were counted.
func (h *Histogram) N() uint64 { return h.n }

// Longest is the longest.
func (h *Histogram) Longest() time.Duration { return h.longest }

// Quantile is the q-quantile, 0..1: the end of its bucket, never over Longest.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rank := uint64(q * float64(h.n))
	seen := uint64(0)
	for i, c := range h.counts {
		if seen += c; seen > rank {
			return min(time.Duration(upper(i)), h.longest)
		}
	}
	return h.longest
}
