package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/ringwise/ringwise"
	"github.com/ringwise/ringwise/bench/measure"
	"github.com/ringwise/ringwise/bench/peers"
	"github.com/ringwise/ringwise/bench/report"
)

// churn times each single lookup while another goroutine takes a worker away
// and back, beside the same with nothing changing, in turn.
func (r *run) churn() error {
	r.section("Lookups while membership changes", `Each call between two clock reads, which are in the figures; one goroutine, another takes a worker away and back every 5 ms (or as fast as it can), in turn with times in which
it sleeps. Only rings that say they may be changed while in use.`)
	t := &report.Table{Head: []string{"workers", "", "p50 quiet", "p50", "p99 quiet", "p99", "p99.9 quiet", "p99.9", "longest quiet", "longest", "changes"}}
	sizes := []int{1000}
	if r.full {
		sizes = []int{100, 1000}
	}
	if r.smoke {
		sizes = []int{10}
	}
	for _, n := range sizes {
		f := peers.NewFleet(n, 0)
		workers := peers.Workers(f)
		router, rtt, err := peers.NewRouter(f)
		if err != nil {
			return err
		}
		less := slices.Concat(workers[:n/2], workers[n/2+1:])
		var ratios []float64
		row := func(name string, one func(key string), after func(), change func(out bool)) {
			quiet, busy, rs, changes := r.churned(one, after, change)
			t.Row(fmt.Sprint(n), name, quiet.Quantile(0.5).String(), busy.Quantile(0.5).String(), quiet.Quantile(0.99).String(), busy.Quantile(0.99).String(),
				quiet.Quantile(0.999).String(), busy.Quantile(0.999).String(), quiet.Longest().String(), busy.Longest().String(), fmt.Sprint(changes))
			ratios = rs
		}
		var c ringwise.Choice
		row("ringwise Router, Pick", func(key string) { c, _ = router.Pick(key) }, func() { router.Observe(c, rtt(c), nil) }, func(out bool) {
			ws := workers
			if out {
				ws = less
			}
			_ = router.SetTopology(ringwise.Topology{Workers: ws})
		})
		sp := measure.Of(ratios)
		r.limit(fmt.Sprintf("churn-p99.9/%d", n), sp, "x")
		_ = router.Close()
		if !r.full && !r.smoke {
			continue
		}
		for _, p := range peers.Rings {
			ring, err := p.Build(f, 0)
			if err != nil {
				return err
			}
			if ring.Shared && ring.Add != nil && ring.Remove != nil {
				gone := f.IDs[n/2]
				row(p.Name, func(key string) { ring.One(key) }, func() {}, func(out bool) {
					if out {
						ring.Remove(gone)
					} else {
						ring.Add(gone)
					}
				})
			}
			ring.Release()
		}
	}
	r.table(t)
	return nil
}

// churned alternates quiet and busy spells of equal length. ratios are the
// p99.9 of each busy spell over that of the quiet one before it.
func (r *run) churned(one func(key string), after func(), change func(out bool)) (quiet, busy *measure.Histogram, ratios []float64, changes int) {
	spells, length := 6, 150*time.Millisecond
	if r.smoke {
		spells, length = 2, 10*time.Millisecond
	}
	quiet, busy = &measure.Histogram{}, &measure.Histogram{}
	w := &walk{keys: r.keys.random}
	spell := func(all *measure.Histogram) time.Duration {
		var h measure.Histogram
		for end := time.Now().Add(length); time.Now().Before(end); {
			w.do(256, func(keys []string) {
				for _, k := range keys {
					start := time.Now()
					one(k)
					took := time.Since(start)
					after()
					h.Record(took)
				}
			})
		}
		all.Merge(&h)
		return h.Quantile(0.999)
	}
	spell(&measure.Histogram{}) // warm
	for range spells {
		q := spell(quiet)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for out := true; ; out = !out {
				select {
				case <-stop:
					if !out {
						change(false) // leave it whole
					}
					return
				case <-time.After(5 * time.Millisecond):
					change(out)
					changes++
				}
			}
		}()
		b := spell(busy)
		close(stop)
		<-done
		ratios = append(ratios, float64(b)/float64(max(q, 1)))
	}
	return quiet, busy, ratios, changes
}
