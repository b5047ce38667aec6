package main

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringwise/ringwise"
	"github.com/ringwise/ringwise/bench/measure"
	"github.com/ringwise/ringwise/bench/peers"
	"github.com/ringwise/ringwise/bench/report"
)

// allPickers are ringwise, closed by Observe and by Done, and the peers.
func allPickers() []peers.PickerPeer {
	return append([]peers.PickerPeer{peers.OurPicker, peers.OurPickerDone}, peers.Pickers...)
}

// pickFleet has weights of 1, 2 and 4, but for 10,000 workers, where ringwise
// refuses them: 23 million points at its default of 1000 a unit of weight.
func pickFleet(n int) peers.Fleet {
	if n > 5000 {
		return peers.NewFleet(n, 0)
	}
	return peers.NewFleet(n, 0).Weighted()
}

// pickSlices is how many times longer slices are here. What the others throw
// away in their turns sweeps the caches, and a slice that is all warm-up tells
// of memory, not of a pick.
const pickSlices = 5

func (r *run) picks() error {
	r.section("Name a worker and hear how it went", fmt.Sprintf(`ns for a pick and its close together, median (quartiles), 1 M random keys, %d requests open, each closed once and within its slice; weights 1, 2 and 4 (equal at 10,000 workers), latencies of 1 to 2 ms by worker. What ringwise's Run does ten times a second, some 0.1 µs a worker, is done between the slices. Slices are %d times as long as elsewhere here, and
still begin cold: what some libraries throw away has swept the caches, and ringwise reads a table of 1 MB.
The ratio goes against the fastest peer that reads in flight or latency of each request ("live"); ringwise is given the RTT, "closed by Done" reads the clock at the end as the live peers
do. Latency as the peers measure it is that of this loop, some µs. bitly/go-hostpool counts those under 1 ms as 0, so it is warmed with one answer of 2 ms from each worker.`, peers.Window, pickSlices))
	for _, n := range r.sizes {
		var cs []measure.Contender
		var used []peers.PickerPeer
		var all []*peers.Picker
		var left []string
		f := pickFleet(n)
		for _, p := range allPickers() {
			if ok, why := fits(n, p.Max, p.Why); !ok {
				left = append(left, p.Name+" "+why)
				continue
			}
			picker, err := p.Build(f)
			if err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
			loop, drain := picker.Loop()
			w := &walk{keys: r.keys.random}
			cs = append(cs, measure.Contender{Name: p.Name, Run: closing(w, loop, drain), Before: picker.Idle})
			used, all = append(used, p), append(all, picker)
		}
		empty, drain := peers.Empty()
		cs = append(cs, measure.Contender{Name: "empty loop", Run: closing(&walk{keys: r.keys.random}, empty, drain)})
		series := measure.Interleave(cs, pickSlices*r.slice, r.rounds)
		t := &report.Table{Head: []string{fmt.Sprintf("%d workers", n), "ns", "allocations", "live", "goes by"}}
		var live []measure.Series
		var bars []report.Bar
		for i, s := range series {
			if i == len(used) {
				t.Row(s.Name, ns(s.Spread()), report.Number(round2(s.Allocs)))
				continue
			}
			p := used[i]
			mark := ""
			if p.LoadAware {
				mark = "yes"
				if i > 1 {
					live = append(live, s)
				}
			}
			t.Row(p.Name, ns(s.Spread()), report.Number(round2(s.Allocs)), mark, p.Reads)
			sp := s.Spread()
			name := p.Name
			if !p.LoadAware {
				name += " (not live)"
				if sp.Median < series[0].Spread().Median {
					r.ahead = append(r.ahead, fmt.Sprintf("AHEAD pair/%d %s %sns ringwise %sns (it reads no latency and nothing in flight)", n,
						strings.ReplaceAll(p.Name, " ", "_"), report.Number(sp.Median), report.Number(series[0].Spread().Median)))
				}
			}
			bars = append(bars, report.Bar{Name: name, Value: sp.Median, Low: sp.Low, High: sp.High, Ours: i < 2})
		}
		r.against(fmt.Sprintf("pair/%d", n), series[0], live)
		r.against(fmt.Sprintf("pair-done/%d", n), series[1], live)
		// Half an allocation in a thousand picks is the process's own.
		r.limit(fmt.Sprintf("pair-allocs/%d", n), measure.Spread{Median: round2(series[0].Allocs)}, "")
		if n == 100 || n == 1000 {
			r.charts[fmt.Sprintf("pair-%d.svg", n)] = report.Chart(fmt.Sprintf("Pick and close a request, %d workers", n), "ns", bars)
		}
		r.table(t)
		for _, l := range left {
			fmt.Fprintf(&r.page, "\n%s.\n", l)
		}
		for _, p := range all {
			p.Release()
		}
		runtime.GC()
	}
	return nil
}

// closing runs a loop and closes what it left open at the end of each slice.
// Else a worker would be silent, with requests in flight, while the others
// have their turn, and what reads silence would take it for dead.
func closing(w *walk, loop func(keys []string), drain func()) func(int) {
	return func(n int) {
		w.do(n, loop)
		drain()
	}
}

// batch picks are timed together and closed after.
const batch = 64

// parts times the halves of a request, ringwise alone. They cannot be told
// apart by a clock read each, so a batch of picks is timed and then a batch of
// closes; what the three clock reads of a batch cost is in the figures.
func (r *run) parts() error {
	r.section("The halves of it", fmt.Sprintf(`ringwise alone, ns, batches of %d: picks first, then closes. Nothing is subtracted: the loop and 1/%d of a clock read are in each figure.
Measured on six Routers one after the other, before any other library is built: how a table lies in memory is luck, and a process full of others makes each cache miss dearer.`, batch, batch))
	t := &report.Table{Head: []string{"workers", "Pick", "Route with Request.Start", "Observe", "loop alone", "time.Now"}}
	for _, n := range r.sizes {
		var picks, starts, observes, loops, clocks []float64
		const routers = 6 // how a ring's table lies in memory is luck
		for range routers {
			router, rtt, err := peers.NewRouter(pickFleet(n))
			if err != nil {
				return err
			}
			w := &walk{keys: r.keys.random}
			for range 2000 { // the ring's table into the cache, as under traffic
				half(router, rtt, w, false)
			}
			for range r.rounds {
				var p, s, o, l, k time.Duration
				const each = 16
				for range each {
					pick, observe := half(router, rtt, w, false)
					p, o = p+pick, o+observe
					start, _ := half(router, rtt, w, true)
					s += start
					l += loopAlone(w)
					t0 := time.Now()
					for range batch {
						runtime.KeepAlive(time.Now())
					}
					k += time.Since(t0)
				}
				per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / (each * batch) }
				picks, starts, observes, loops, clocks = append(picks, per(p)), append(starts, per(s)), append(observes, per(o)), append(loops, per(l)), append(clocks, per(k))
			}
			if err := leaks(router); err != nil {
				return err
			}
			_ = router.Close()
		}
		t.Row(fmt.Sprint(n), ns(measure.Of(picks)), ns(measure.Of(starts)), ns(measure.Of(observes)), ns(measure.Of(loops)), ns(measure.Of(clocks)))
		r.limit(fmt.Sprintf("pick/%d", n), measure.Of(picks), "ns")
		r.limit(fmt.Sprintf("pick-start/%d", n), measure.Of(starts), "ns")
		r.limit(fmt.Sprintf("observe/%d", n), measure.Of(observes), "ns")
	}
	r.table(t)
	return nil
}

func leaks(router *ringwise.Router) error {
	if s := router.Status(); s.DoubleDone > 0 || s.Untracked > 0 || s.Leaked > 0 {
		return fmt.Errorf("leases were not closed once each: %d twice, %d untracked, %d leaked", s.DoubleDone, s.Untracked, s.Leaked)
	}
	return nil
}

// half is a batch: the time of its picks and of its closes.
func half(router *ringwise.Router, rtt func(ringwise.Choice) time.Duration, w *walk, start bool) (pick, observe time.Duration) {
	var cs [batch]ringwise.Choice
	i := 0
	t0 := time.Now()
	w.do(batch, func(keys []string) {
		if start {
			for _, k := range keys {
				cs[i], _ = router.Route(ringwise.Request{Key: k, Start: t0})
				i++
			}
			return
		}
		for _, k := range keys {
			cs[i], _ = router.Pick(k)
			i++
		}
	})
	t1 := time.Now()
	for _, c := range cs {
		router.Observe(c, rtt(c), nil)
	}
	return t1.Sub(t0), time.Since(t1)
}

func loopAlone(w *walk) time.Duration {
	t0 := time.Now()
	w.do(batch, func(keys []string) {
		s := 0
		for _, k := range keys {
			s += len(k)
		}
		runtime.KeepAlive(s)
	})
	return time.Since(t0)
}

// parallel is one goroutine beside two.
func (r *run) parallel() error {
	r.section("One goroutine and two", `Pick and Observe, each goroutine with keys of its own; ns of wall time an operation in all; the gain is one over two, round by round. "one hot key": both
send nothing but the same key, so they share its three workers' counts. Lookups share nothing that is written. "a word handed over": two goroutines that wait for each other's
write in turn, which no library has a part in; a pick and its close touch three or four lines that another core may have written last.`)
	t := &report.Table{Head: []string{"", "one, ns", "two, ns", "gain"}}
	for _, n := range r.sizes {
		f := pickFleet(n)
		for _, kind := range []string{"random", "one hot key"} {
			if kind != "random" && n != 100 && !r.smoke {
				continue
			}
			keys := r.keys.random
			if kind != "random" {
				keys = r.keys.one
			}
			p, err := peers.OurPicker.Build(f)
			if err != nil {
				return err
			}
			a, drainA := p.Loop()
			b, drainB := p.Loop()
			c, drainC := p.Loop()
			draining := func(loop func([]string), drain func()) func(*walk) func(int) {
				return func(w *walk) func(int) { return closing(w, loop, drain) }
			}
			name := fmt.Sprintf("two-goroutines/%d", n)
			label := fmt.Sprintf("Pick + Observe, %d workers", n)
			if kind != "random" {
				name, label = "two-goroutines/hot-key", label+", "+kind
			}
			r.gain(t, name, label, pairOf(keys, draining(a, drainA), draining(b, drainB), draining(c, drainC)))
			p.Release()
		}
	}
	n := r.sizes[min(2, len(r.sizes)-1)]
	ring, err := peers.Ours.Build(peers.NewFleet(n, 0), 0)
	if err != nil {
		return err
	}
	var loops [3]func(w *walk) func(int)
	for i := range loops {
		dst := make([]string, 0, 4)
		loop := func(keys []string) {
			s := 0
			for _, k := range keys {
				s += len(ring.Three(k, dst))
			}
			if s == 0 {
				panic("no owners")
			}
		}
		loops[i] = func(w *walk) func(int) { return closing(w, loop, func() {}) }
	}
	r.gain(t, "two-goroutines/lookup3", fmt.Sprintf("lookup of 3, %d workers", n), pairOf(r.keys.random, loops[0], loops[1], loops[2]))
	t.Row("a word handed over", "", ns(handOver(r.rounds)), "")
	r.table(t)
	return nil
}

// pairOf are the same work on one goroutine and on two.
func pairOf(keys []string, a, b, c func(*walk) func(int)) []measure.Contender {
	one, left, right := a(&walk{keys: keys}), b(&walk{keys: keys}), c(&walk{keys: keys, next: len(keys) / 2})
	return []measure.Contender{
		{Name: "one", Run: one},
		{Name: "two", Run: func(n int) {
			var wg sync.WaitGroup
			wg.Go(func() { left((n + 1) / 2) })
			right(n / 2)
			wg.Wait()
		}},
	}
}

func (r *run) gain(t *report.Table, name, label string, cs []measure.Contender) {
	s := measure.Interleave(cs, 4*r.slice, max(r.rounds, 15))
	gain := measure.Ratio(s[0], s[1])
	if math.IsNaN(gain.Median) {
		return
	}
	r.ratio(name, s[1].Spread().Median, "ns", gain)
	t.Row(label, ns(s[0].Spread()), ns(s[1].Spread()), ns(gain))
}

// handOver is what it takes until one goroutine sees another's write and has
// answered it with one of its own, halved: the machine's price of sharing.
func handOver(rounds int) measure.Spread {
	const turns = 20_000
	var out []float64
	for range rounds {
		var word atomic.Int64
		play := func(odd int64) {
			for range turns {
				for spins := 0; word.Load()&1 != odd; spins++ {
					if spins > 1<<16 {
						runtime.Gosched() // one core alone
					}
				}
				word.Add(1)
			}
		}
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { play(1) })
		play(0)
		wg.Wait()
		out = append(out, float64(time.Since(start).Nanoseconds())/(2*turns))
	}
	return measure.Of(out)
}
