package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// none is the server of a request that no server was chosen for.
const none = -1

// sample is one request, as its caller saw it.
type sample struct {
	at     time.Duration // since the start, when the server was chosen
	took   time.Duration
	server int // index, or none
	failed bool
}

type samples []sample

// byTime sorts by the time of the choice, in place.
func (ss samples) byTime() samples {
	slices.SortFunc(ss, func(a, b sample) int { return cmp.Compare(a.at, b.at) })
	return ss
}

// between is the part chosen in [from, to); ss is sorted by time.
func (ss samples) between(from, to time.Duration) samples {
	index := func(t time.Duration) int {
		i, _ := slices.BinarySearchFunc(ss, t, func(s sample, t time.Duration) int { return cmp.Compare(s.at, t) })
		return i
	}
	return ss[index(from):index(max(from, to))]
}

// of is the part that went to one server.
func (ss samples) of(server int) samples {
	var part samples
	for _, s := range ss {
		if s.server == server {
			part = append(part, s)
		}
	}
	return part
}

// share is the part of all requests that went to server, in 0..1.
func (ss samples) share(server int) float64 {
	return ratio(len(ss.of(server)), len(ss))
}

func (ss samples) errors() int {
	n := 0
	for _, s := range ss {
		if s.failed {
			n++
		}
	}
	return n
}

// latencies are the times of the requests that were answered well, ascending.
func (ss samples) latencies() []time.Duration {
	var all []time.Duration
	for _, s := range ss {
		if !s.failed {
			all = append(all, s.took)
		}
	}
	slices.Sort(all)
	return all
}

// quantile is the nearest-rank quantile of sorted values, 0 when there are none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// ratio is part of whole, 0 when there is no whole.
func ratio(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
