package ringwise

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// benchFleet is a router over n unequal workers that has seen traffic.
func benchFleet(tb testing.TB, n int, opts ...Option) (*Router, []string) {
	tb.Helper()
	workers := make([]Worker, n)
	for i := range workers {
		workers[i] = Worker{ID: "worker-" + strconv.Itoa(i), Weight: []float64{1, 1, 2}[i%3]}
	}
	r, err := New(workers, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	keys := make([]string, 1<<20)
	rnd := rand.New(rand.NewPCG(1, 0))
	for i := range keys {
		keys[i] = fmt.Sprintf("tenant-%03d:user:%08d", rnd.IntN(1000), rnd.IntN(100_000_000))
	}
	for i := range 200_000 {
		c, err := r.Pick(keys[i])
		if err != nil {
			tb.Fatal(err)
		}
		r.Observe(c, benchRTT(c), nil)
	}
	runtime.GC() // the setup's garbage is not the pick's
	return r, keys
}

// benchRTT is 1 to 2 ms, by worker.
func benchRTT(c Choice) time.Duration {
	return time.Millisecond + time.Duration(c.n.slot%16)*60*time.Microsecond
}

var benchSizes = []int{10, 100, 1000}

func forSizes(b *testing.B, f func(b *testing.B, r *Router, keys []string)) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprintf("workers=%d", n), func(b *testing.B) {
			r, keys := benchFleet(b, n)
			b.ReportAllocs()
			b.ResetTimer()
			f(b, r, keys)
		})
	}
}

// benchBatch picks are timed together and closed after, so that at any time
// some requests are in flight.
const benchBatch = 32

// BenchmarkPick is Pick alone, by the Router's own clock.
//
// profile=… is each profile at 100 workers that report, keys parsed; with
// everything also counts hot keys and asks a quota.
func BenchmarkPick(b *testing.B) {
	forSizes(b, func(b *testing.B, r *Router, keys []string) { benchParts(b, r, keys, false, true) })
	for _, p := range profiles() {
		for _, all := range []bool{false, true} {
			name := "profile=" + p.Name
			if all {
				name += "/everything"
			}
			b.Run(name, func(b *testing.B) {
				r, keys := profiled(b, p, all)
				b.ReportAllocs()
				b.ResetTimer()
				benchParts(b, r, keys, false, true)
			})
		}
	}
}

// BenchmarkPickStart is Route with the caller's start time.
func BenchmarkPickStart(b *testing.B) {
	forSizes(b, func(b *testing.B, r *Router, keys []string) { benchParts(b, r, keys, true, true) })
}

// BenchmarkObserve is Observe alone, with the RTT passed in.
func BenchmarkObserve(b *testing.B) {
	forSizes(b, func(b *testing.B, r *Router, keys []string) { benchParts(b, r, keys, false, false) })
}

// benchParts runs picks and their closes and reports one of the two as ns/op.
// The clock reads and the loop around the batches are measured in the same
// run, on the same keys, and subtracted; they are reported too.
func benchParts(b *testing.B, r *Router, keys []string, start, pick bool) {
	var picks, observes, empty time.Duration
	var cs [benchBatch]Choice
	j, length := 0, 0
	for n := b.N; n > 0; n -= benchBatch {
		t0 := time.Now()
		for i := range cs {
			length += len(keys[(j+i)&(1<<20-1)])
		}
		t1 := time.Now()
		if start {
			for i := range cs {
				cs[i], _ = r.Route(Request{Key: keys[(j+i)&(1<<20-1)], Start: t1})
			}
		} else {
			for i := range cs {
				cs[i], _ = r.Pick(keys[(j+i)&(1<<20-1)])
			}
		}
		t2 := time.Now()
		for i := range cs {
			r.Observe(cs[i], benchRTT(cs[i]), nil)
		}
		t3 := time.Now()
		j += benchBatch
		empty, picks, observes = empty+t1.Sub(t0), picks+t2.Sub(t1), observes+t3.Sub(t2)
	}
	runtime.KeepAlive(length)
	per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(j) }
	what := picks
	if !pick {
		what = observes
	}
	b.ReportMetric(per(what-empty), "ns/op")
	b.ReportMetric(per(empty), "subtracted-ns/op")
	if f := r.Status(); f.DoubleDone > 0 || f.Untracked > 0 {
		b.Fatalf("leases were not closed once each: %d twice, %d untracked", f.DoubleDone, f.Untracked)
	}
}

// BenchmarkPickObserve is one request after another, each closed at once.
func BenchmarkPickObserve(b *testing.B) {
	forSizes(b, func(b *testing.B, r *Router, keys []string) {
		i := 0
		for b.Loop() {
			c, _ := r.Pick(keys[i&(1<<20-1)])
			r.Observe(c, benchRTT(c), nil)
			i++
		}
	})
}

// BenchmarkPickObserveParallel is the same on all cores.
func BenchmarkPickObserveParallel(b *testing.B) {
	forSizes(b, func(b *testing.B, r *Router, keys []string) {
		var next atomic.Uint64
		b.RunParallel(func(pb *testing.PB) {
			i := int(next.Add(1) * 7919)
			for pb.Next() {
				c, _ := r.Pick(keys[i&(1<<20-1)])
				r.Observe(c, benchRTT(c), nil)
				i++
			}
		})
	})
}

// BenchmarkClock is the clock read that Pick and Route without Start make.
func BenchmarkClock(b *testing.B) {
	r, _ := benchFleet(b, 10)
	var s int64
	for b.Loop() {
		s += r.now()
	}
	runtime.KeepAlive(s)
}

// BenchmarkSampledDecision is a pick and its close with every decision kept,
// beside the same with none.
func BenchmarkSampledDecision(b *testing.B) {
	for _, share := range []float64{0, 1} {
		b.Run(fmt.Sprintf("share=%g", share), func(b *testing.B) {
			r, keys := benchFleet(b, 100, WithDecisionSample(share, 64))
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				c, _ := r.Pick(keys[i&(1<<20-1)])
				r.Observe(c, benchRTT(c), nil)
				i++
			}
		})
	}
}
