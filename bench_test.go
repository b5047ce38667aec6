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

const benchBatch = 32

// BenchmarkPick times Pick alone: leases are closed between the timed
// batches.
func BenchmarkPick(b *testing.B) {
	forSizes(b, func(b *testing.B, r *Router, keys []string) { benchPick(b, r, keys, false) })
}

// BenchmarkPickStart is the same with Request.Start given.
func BenchmarkPickStart(b *testing.B) {
	forSizes(b, func(b *testing.B, r *Router, keys []string) { benchPick(b, r, keys, true) })
}

func benchPick(b *testing.B, r *Router, keys []string, start bool) {
	j := 0
	var picks, both time.Duration
	var cs [benchBatch]Choice
	for n := b.N; n > 0; n -= benchBatch {
		t0 := time.Now()
		if start {
			for i := range cs {
				cs[i], _ = r.Route(Request{Key: keys[j&(1<<20-1)], Start: t0})
				j++
			}
		} else {
			for i := range cs {
				cs[i], _ = r.Pick(keys[j&(1<<20-1)])
				j++
			}
		}
		picks += time.Since(t0)
		for i := range cs {
			r.Observe(cs[i], benchRTT(cs[i]), nil)
		}
		both += time.Since(t0)
	}
	b.ReportMetric(float64(picks.Nanoseconds())/float64(j), "pick-ns")
	b.ReportMetric(float64((both-picks).Nanoseconds())/float64(j), "observe-ns")
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

var sink any

func BenchmarkClock(b *testing.B) {
	r, _ := benchFleet(b, 10)
	var s int64
	for b.Loop() {
		s += r.now()
	}
	runtime.KeepAlive(s)
}
