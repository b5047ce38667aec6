// Package measure times contenders against each other on a machine that also
// does other things: each gets a small slice in turn, round after round, and
// what counts is the median of its slices and, for two of them, the median of
// the ratios of slices of one round.
package measure

import (
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// Contender is one thing that is timed. Run does n operations. Before, where
// it is not nil, runs ahead of each slice and is not timed.
type Contender struct {
	Name   string
	Run    func(n int)
	Before func()
}

// Series are a contender's slices, one a round, ns an operation.
type Series struct {
	Name   string
	NS     []float64
	Allocs float64 // an operation, over all slices; NaN where not counted
}

// Spread is a median with the quartiles around it.
type Spread struct{ Median, Low, High float64 }

// Of is the spread of some values; zero of none. values is not changed.
func Of(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	s := slices.Sorted(slices.Values(values))
	return Spread{Median: at(s, 0.5), Low: at(s, 0.25), High: at(s, 0.75)}
}

// at is the q-quantile of sorted values, between two of them where it falls there.
func at(s []float64, q float64) float64 {
	x := q * float64(len(s)-1)
	i := int(x)
	if i+1 >= len(s) {
		return s[len(s)-1]
	}
	return s[i] + (x-float64(i))*(s[i+1]-s[i])
}

// Spread is that of the series.
func (s Series) Spread() Spread { return Of(s.NS) }

// Ratio is how often b's time is contained in a's, round by round: 8 says
// that b is eight times as fast as a.
func Ratio(a, b Series) Spread {
	n := min(len(a.NS), len(b.NS))
	r := make([]float64, 0, n)
	for i := range n {
		if b.NS[i] > 0 {
			r = append(r, a.NS[i]/b.NS[i])
		}
	}
	return Of(r)
}

// Interleave times the contenders in turn, a slice each, for so many rounds.
// How many operations make a slice is found out beforehand, which warms them
// as well. Each round starts with another one, so that nobody is always
// measured after the same neighbour.
//
// The collector runs between rounds and not within: else what one contender
// throws away is collected in another's slice. So nobody pays for his garbage,
// which flatters those who make some.
func Interleave(cs []Contender, slice time.Duration, rounds int) []Series {
	out := make([]Series, len(cs))
	ops := make([]int, len(cs))
	mallocs := make([]uint64, len(cs))
	done := make([]int, len(cs))
	for i, c := range cs {
		out[i] = Series{Name: c.Name, NS: make([]float64, 0, rounds)}
		ops[i] = fit(c.Run, slice)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for round := range rounds {
		runtime.GC()
		for k := range cs {
			i := (k + round) % len(cs)
			if cs[i].Before != nil {
				cs[i].Before()
			}
			before := Mallocs()
			start := time.Now()
			cs[i].Run(ops[i])
			took := time.Since(start)
			mallocs[i] += Mallocs() - before
			done[i] += ops[i]
			out[i].NS = append(out[i].NS, float64(took.Nanoseconds())/float64(ops[i]))
		}
	}
	for i := range out {
		if done[i] > 0 {
			// Counting is itself not free of allocations elsewhere in the process.
			out[i].Allocs = float64(mallocs[i]) / float64(done[i])
		}
	}
	return out
}

// fit is how many operations take about a slice, at least one.
func fit(run func(int), slice time.Duration) int {
	for n := 16; ; n *= 2 {
		if n == 16 {
			start := time.Now()
			run(1)
			if time.Since(start) > slice {
				return 1
			}
		}
		start := time.Now()
		run(n)
		if took := time.Since(start); took > slice/3 || n >= 1<<24 {
			return max(1, int(float64(n)*float64(slice)/float64(max(took, 1))))
		}
	}
}
