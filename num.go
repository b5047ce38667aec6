package ringwise

import (
	"time"

	"golang.org/x/exp/constraints"
)

// Rand is the random source of one pick.
type Rand struct{ s uint64 }

// Uint64 returns 64 random bits.
func (r *Rand) Uint64() uint64 {
	r.s += 0x9e3779b97f4a7c15
	return mix64(r.s)
}

// Float64 returns a number in [0, 1).
func (r *Rand) Float64() float64 { return unit(r.Uint64()) }

// mix64 is the finaliser of splitmix64 (Steele, Lea, Flood: OOPSLA 2014).
func mix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// unit maps 64 random bits to [0, 1).
func unit(u uint64) float64 { return float64(u>>11) * 0x1p-53 }

// nanos is a float of ns as a Duration; one past the range stands at its end.
func nanos(ns float64) time.Duration { return time.Duration(clamp(ns, 0, 1<<62)) }

// clamp is x, or the limit it is past.
func clamp[T constraints.Integer | constraints.Float](x, low, high T) T {
	return min(max(x, low), high)
}
