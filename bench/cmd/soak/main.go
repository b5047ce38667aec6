// Soak puts a steady load on a Router and prints how long Pick took, up to
// the longest, beside an empty loop of the same length, so that what the
// machine does is told from what ringwise does.
//
//	go run ./cmd/soak -rate 120000 -seconds 60
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/ringwise/ringwise"
	"github.com/ringwise/ringwise/bench/measure"
	"github.com/ringwise/ringwise/bench/peers"
)

type config struct {
	rate, seconds, workers, goroutines int
}

func main() {
	var c config
	flag.IntVar(&c.rate, "rate", 120_000, "picks a second in all")
	flag.IntVar(&c.seconds, "seconds", 60, "how long")
	flag.IntVar(&c.workers, "workers", 100, "workers; each reports once a second")
	flag.IntVar(&c.goroutines, "goroutines", 2, "goroutines that pick and observe")
	flag.Parse()
	if err := soak(c); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// client is one goroutine's part.
type client struct {
	pick, empty, observe measure.Histogram
	picks, failed        int
	late                 time.Duration // the furthest behind its schedule
	garbage              []byte
}

func soak(c config) error {
	if c.rate < c.goroutines*1000 || c.seconds < 1 || c.workers < 1 || c.goroutines < 1 {
		return errors.New("at least 1000 picks a second for each goroutine, 1 second, 1 worker, 1 goroutine")
	}
	router, rtt, err := peers.NewRouter(peers.NewFleet(c.workers, 0).Weighted())
	if err != nil {
		return err
	}
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = fmt.Sprintf("tenant-%03d:user:%08d", i%997, uint32(i)*2654435761%100_000_000)
	}
	steps := calibrate(router, rtt, keys)
	clients := make([]client, c.goroutines)
	runtime.GC()
	before := read()
	start := time.Now()
	end := start.Add(time.Duration(c.seconds) * time.Second)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() { clients[i].run(router, rtt, keys[i*997:], start, end, c.rate/c.goroutines, steps) })
	}
	reports, refused := 0, 0
	wg.Go(func() { reports, refused = reporter(router, c.workers, end) })
	wg.Wait()
	took := time.Since(start)
	after := read()

	var all client
	for i := range clients {
		all.pick.Merge(&clients[i].pick)
		all.empty.Merge(&clients[i].empty)
		all.observe.Merge(&clients[i].observe)
		all.picks += clients[i].picks
		all.failed += clients[i].failed
		all.late = max(all.late, clients[i].late)
	}
	print(c, took, &all, reports, refused, before, after)
	s := router.Status()
	_ = router.Close()
	if s.DoubleDone > 0 || s.Untracked > 0 || all.failed > 0 {
		return fmt.Errorf("%d picks failed, %d closed twice, %d untracked", all.failed, s.DoubleDone, s.Untracked)
	}
	return nil
}

// run sends a millisecond's picks each millisecond, closes each some
// milliseconds later, and makes the garbage that a client makes of an answer,
// so that the collector has work. Around each Pick it reads the clock; then it
// does the same around a loop that touches no memory and takes as long.
func (c *client) run(router *ringwise.Router, rtt func(ringwise.Choice) time.Duration, keys []string, start, end time.Time, rate, steps int) {
	const tick = time.Millisecond
	open := make([]ringwise.Choice, 0, 4*rate/1000+8)
	k, x := 0, uint64(1)
	for n := 0; ; n++ {
		due := start.Add(time.Duration(n) * tick)
		now := time.Now()
		if !now.Before(end) {
			break
		}
		if wait := due.Sub(now); wait > 0 {
			time.Sleep(wait)
		}
		c.late = max(c.late, time.Since(due))
		for range rate / 1000 {
			if k++; k == len(keys) {
				k = 0
			}
			t0 := time.Now()
			choice, err := router.Pick(keys[k])
			t1 := time.Now()
			x = spin(x, steps)
			t2 := time.Now()
			c.pick.Record(t1.Sub(t0))
			c.empty.Record(t2.Sub(t1))
			c.picks++
			if err != nil {
				c.failed++
				continue
			}
			open = append(open, choice)
			c.garbage = make([]byte, 512)
		}
		// Those of three milliseconds ago come back.
		if ready := len(open) - 3*(rate/1000); ready > 0 {
			for _, choice := range open[:ready] {
				t0 := time.Now()
				router.Observe(choice, rtt(choice), nil)
				c.observe.Record(time.Since(t0))
			}
			open = open[:copy(open, open[ready:])]
		}
	}
	for _, choice := range open {
		router.Observe(choice, rtt(choice), nil)
	}
	c.garbage = append(c.garbage[:0], byte(x))
}

// spin is work without memory.
func spin(x uint64, steps int) uint64 {
	for range steps {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// calibrate finds how many steps of spin take as long as a Pick does.
func calibrate(router *ringwise.Router, rtt func(ringwise.Choice) time.Duration, keys []string) int {
	var picks, spins []float64
	x := uint64(1)
	for range 200 {
		t0 := time.Now()
		for i := range 64 {
			c, _ := router.Pick(keys[i])
			defer router.Observe(c, rtt(c), nil)
		}
		t1 := time.Now()
		x = spin(x, 64*100)
		picks, spins = append(picks, float64(t1.Sub(t0))), append(spins, float64(time.Since(t1)))
	}
	runtime.KeepAlive(x)
	return max(1, int(100*measure.Of(picks).Median/max(measure.Of(spins).Median, 1)))
}

// reporter has each worker report once a second.
func reporter(router *ringwise.Router, workers int, end time.Time) (sent, refused int) {
	f := peers.NewFleet(workers, 0)
	every := time.Second / time.Duration(workers)
	for i := 0; time.Now().Before(end); i++ {
		err := router.Report(ringwise.Report{
			Worker: f.IDs[i%workers], Time: time.Now(), CPU: ringwise.Some(0.3 + 0.01*float64(i%40)), Queue: ringwise.Some(float64(i % 7)),
			RTTP99: ringwise.Some(time.Duration(2+i%3) * time.Millisecond),
		})
		sent++
		if err != nil {
			refused++
		}
		time.Sleep(every)
	}
	return sent, refused
}

// runtimeState is what the collector has done so far.
type runtimeState struct {
	mallocs uint64
	gc      debug.GCStats
}

func read() runtimeState {
	var s runtimeState
	s.mallocs = measure.Mallocs()
	debug.ReadGCStats(&s.gc)
	return s
}

func print(c config, took time.Duration, all *client, reports, refused int, before, after runtimeState) {
	fmt.Printf("%d workers, %d goroutines on %d of %d cores, %.1f s: %d picks (%.0f/s, wanted %d), %d reports (%d refused); at worst %v behind schedule\n",
		c.workers, c.goroutines, runtime.GOMAXPROCS(0), runtime.NumCPU(), took.Seconds(), all.picks, float64(all.picks)/took.Seconds(), c.rate, reports, refused, all.late.Round(time.Microsecond))
	fmt.Printf("\n%-28s %10s %10s %10s %10s %10s %10s\n", "two clock reads around", "p50", "p99", "p99.9", "p99.99", "p99.999", "longest")
	for _, r := range []struct {
		name string
		h    *measure.Histogram
	}{{"Pick", &all.pick}, {"an empty loop as long", &all.empty}, {"Observe", &all.observe}} {
		fmt.Printf("%-28s", r.name)
		for _, q := range []float64{0.5, 0.99, 0.999, 0.9999, 0.99999} {
			fmt.Printf(" %10v", r.h.Quantile(q))
		}
		fmt.Printf(" %10v\n", r.h.Longest())
	}
	cycles := after.gc.NumGC - before.gc.NumGC
	pauses := slices.Clone(after.gc.Pause[:min(int(cycles), len(after.gc.Pause))])
	slices.Sort(pauses)
	longest := time.Duration(0)
	if len(pauses) > 0 {
		longest = pauses[len(pauses)-1]
	}
	// One allocation a pick is the loop's own garbage.
	rest := float64(after.mallocs-before.mallocs) - float64(all.picks)
	fmt.Printf("\n%.4f allocations a pick beside the loop's own one, %.0f in all, those of reports, sleeping and the runtime included\n", rest/float64(all.picks), rest)
	fmt.Printf("%d collections, pauses %v in all, longest %v of the last %d\n\n", cycles, after.gc.PauseTotal-before.gc.PauseTotal, longest, len(pauses))
	lines(all)
}
