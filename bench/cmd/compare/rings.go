package main

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/ringwise/ringwise"
	"github.com/ringwise/ringwise/bench/measure"
	"github.com/ringwise/ringwise/bench/peers"
	"github.com/ringwise/ringwise/bench/report"
)

// cost is what building and changing takes.
type cost struct {
	build  measure.Spread // ms
	memory float64        // MB, live after a collection
	change measure.Spread // ms, one worker away or back
}

const mega = 1e6

// costOf builds n times, and changes the last one up to ten times, for at most a second.
func costOf(times int, build func() (hold any, change func(out bool), release func(), err error)) (cost, error) {
	var c cost
	var builds, changes []float64
	for i := range times {
		before := measure.Heap()
		start := time.Now()
		hold, change, release, err := build()
		if err != nil {
			return c, err
		}
		builds = append(builds, time.Since(start).Seconds()*1e3)
		if i == times-1 {
			c.memory = (float64(measure.Heap()) - float64(before)) / mega
			begun := time.Now()
			for k := 0; change != nil && k < 20 && time.Since(begun) < time.Second; k++ {
				start := time.Now()
				change(k%2 == 0)
				changes = append(changes, time.Since(start).Seconds()*1e3)
			}
		}
		runtime.KeepAlive(hold)
		if release != nil {
			release()
		}
	}
	c.build, c.change = measure.Of(builds), measure.Of(changes)
	return c, nil
}

func (r *run) builds() error {
	r.section("Build, memory, one worker away and back", `ms, and MB of live heap after a collection. "ringwise ring" is NewRing (3 owners), "Router" is all of it: New, and SetTopology for a change; it is weighed
before its first request, and a lane's first answer from a worker adds some 0.6 KB. go-rendezvous
panics in Remove. gRPC's are built with all connections up. Peers at their defaults have far fewer points: the quality of what they build is in the next table.`)
	sizes := r.sizes
	if !slices.Contains(sizes, 10_000) && !r.smoke {
		sizes = append(slices.Clone(sizes), 10_000)
	}
	for _, n := range sizes {
		t := &report.Table{Head: []string{fmt.Sprintf("%d workers", n), "build, ms", "memory, MB", "change, ms"}}
		row := func(name string, c cost) {
			change := "-"
			if c.change.Median > 0 {
				change = ns(c.change)
			}
			t.Row(name, ns(c.build), report.Number(c.memory), change)
		}
		f := peers.NewFleet(n, 0)
		workers := peers.Workers(f)
		times := 5
		if n == 10_000 && !r.full {
			times = 2
		}
		c, err := costOf(times, func() (any, func(bool), func(), error) {
			ring, err := ringwise.NewRing(workers, ringwise.RingOptions{Replicas: 3})
			return ring, nil, nil, err
		})
		if err != nil {
			return err
		}
		row("ringwise ring", c)
		r.limit(fmt.Sprintf("ring-build/%d", n), c.build, "ms")
		r.limit(fmt.Sprintf("ring-memory/%d", n), measure.Spread{Median: c.memory}, "MB")
		c, err = costOf(times, func() (any, func(bool), func(), error) {
			router, err := ringwise.New(workers, ringwise.WithReplicas(3))
			if err != nil {
				return nil, nil, nil, err
			}
			change := func(out bool) {
				ws := workers
				if out {
					ws = slices.Concat(workers[:n/2], workers[n/2+1:])
				}
				err = router.SetTopology(ringwise.Topology{Workers: ws})
			}
			return router, change, func() { _ = router.Close() }, err
		})
		if err != nil {
			return err
		}
		row("ringwise Router", c)
		r.limit(fmt.Sprintf("router-build/%d", n), c.build, "ms")
		r.limit(fmt.Sprintf("router-memory/%d", n), measure.Spread{Median: c.memory}, "MB")
		r.limit(fmt.Sprintf("router-change/%d", n), c.change, "ms")
		if r.full || r.smoke {
			if err := r.peerCosts(n, f, row, t); err != nil {
				return err
			}
		}
		r.table(t)
	}
	return nil
}

func (r *run) peerCosts(n int, f peers.Fleet, row func(string, cost), t *report.Table) error {
	for _, p := range peers.Rings {
		if ok, why := fits(n, p.Max, p.Why); !ok {
			t.Row(p.Name, why)
			continue
		}
		c, err := costOf(1, func() (any, func(bool), func(), error) {
			ring, err := p.Build(f, 0)
			if err != nil || ring.Add == nil || ring.Remove == nil {
				return ring, nil, nil, err
			}
			id := f.IDs[n/2]
			return ring, func(out bool) {
				if out {
					ring.Remove(id)
				} else {
					ring.Add(id)
				}
			}, ring.Release, err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		row(p.Name, c)
	}
	for _, p := range peers.Pickers {
		if ok, why := fits(n, p.Max, p.Why); !ok {
			t.Row(p.Name, why)
			continue
		}
		c, err := costOf(1, func() (any, func(bool), func(), error) {
			picker, err := p.Build(f)
			if err != nil {
				return nil, nil, nil, err
			}
			return picker, nil, picker.Release, nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		row(p.Name, c)
	}
	return nil
}

// evenness is how far the shares of n workers are from what their weights say.
func evenness(counts []float64, f peers.Fleet) (most, deviation float64) {
	total, weights := 0.0, 0.0
	for i, c := range counts {
		total += c
		weights += float64(f.Weight(i))
	}
	square := 0.0
	for i, c := range counts {
		share := c / total / (float64(f.Weight(i)) / weights)
		most = max(most, share)
		square += (share - 1) * (share - 1)
	}
	return most, math.Sqrt(square / float64(len(counts)))
}

// slotCounts are ringwise's shares, exactly: from each slot of its table.
func slotCounts(f peers.Fleet) ([]float64, error) {
	ring, err := ringwise.NewRing(peers.Workers(f), ringwise.RingOptions{Replicas: 1})
	if err != nil {
		return nil, err
	}
	at := map[string]int{}
	for i, id := range f.IDs {
		at[id] = i
	}
	counts := make([]float64, len(f.IDs))
	dst := make([]string, 0, 1)
	for i := range slotCount {
		dst = ring.Owners(slotHash(i), dst[:0])
		counts[at[dst[0]]]++
	}
	return counts, nil
}

func (r *run) balance() error {
	r.section("Balance", fmt.Sprintf(`The most loaded worker's share over its due (max/mean), and the deviation of all shares from theirs. ringwise, exact: counted in its table, mean of %d sets
of names. The rest: one set of names, half a million keys; a perfectly even rule shows as "drawn evenly" there, so that much is the sample's. 1:2:4 are weights.`, r.names))
	t := &report.Table{Head: []string{"", "workers", "equal: max/mean", "deviation", "1:2:4: max/mean", "deviation", "points"}}
	sizes := []int{100, 1000}
	if r.full {
		sizes = []int{10, 100, 1000}
	}
	if r.smoke {
		sizes = []int{10}
	}
	for _, n := range sizes {
		var most, deviation [2][]float64
		for set := range r.names {
			f := peers.NewFleet(n, set)
			for k, f := range []peers.Fleet{f, f.Weighted()} {
				if k == 1 && set > 2 && !r.full {
					continue
				}
				counts, err := slotCounts(f)
				if err != nil {
					return err
				}
				m, d := evenness(counts, f)
				most[k], deviation[k] = append(most[k], m), append(deviation[k], d)
			}
		}
		r.limit(fmt.Sprintf("balance/%d", n), measure.Spread{Median: mean(most[0])}, "")
		t.Row("ringwise, exact", fmt.Sprint(n), fmt.Sprintf("%.3f", mean(most[0])), fmt.Sprintf("%.3f", mean(deviation[0])),
			fmt.Sprintf("%.3f", mean(most[1])), fmt.Sprintf("%.3f", mean(deviation[1])), "1000")
		if !r.full && !r.smoke {
			continue
		}
		r.sampled(t, n)
	}
	r.table(t)
	return nil
}

func mean(v []float64) float64 {
	s := 0.0
	for _, x := range v {
		s += x
	}
	return s / float64(len(v))
}

// sampled adds the peers' rows, counted by keys.
func (r *run) sampled(t *report.Table, n int) {
	f := peers.NewFleet(n, 0)
	at := map[string]int{}
	for i, id := range f.IDs {
		at[id] = i
	}
	count := func(one func(string) string) ([]float64, bool) {
		counts := make([]float64, n)
		for _, k := range r.keys.random[:min(len(r.keys.random), 1<<19)] {
			i, ok := at[one(k)]
			if !ok {
				return nil, false
			}
			counts[i]++
		}
		return counts, true
	}
	for _, p := range peers.All() {
		for _, points := range []int{0, 1000} {
			if points > 0 && (!p.Points || p.Name == "ringwise" || quadratic[p.Name] && n > 100) {
				continue
			}
			row := []string{p.Name, fmt.Sprint(n), "-", "-", "-", "-", "default"}
			if points > 0 {
				row[6] = "1000"
			}
			for k, f := range []peers.Fleet{f, f.Weighted()} {
				if k == 1 && !p.Weights {
					continue
				}
				ring, err := p.Build(f, points)
				if err != nil {
					row[2+2*k] = err.Error()
					continue
				}
				if counts, ok := count(ring.One); ok {
					m, d := evenness(counts, f)
					row[2+2*k], row[3+2*k] = fmt.Sprintf("%.3f", m), fmt.Sprintf("%.3f", d)
				} else {
					row[2+2*k] = "names nobody"
				}
				ring.Release()
			}
			t.Row(row...)
		}
	}
	i := uint64(0)
	counts, _ := count(func(string) string { // SplitMix64
		i += 0x9e3779b97f4a7c15
		z := (i ^ i>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return f.IDs[(z^z>>31)%uint64(n)]
	})
	m, d := evenness(counts, f)
	t.Row("drawn evenly", fmt.Sprint(n), fmt.Sprintf("%.3f", m), fmt.Sprintf("%.3f", d))
}

// disruption counts what moves when a worker leaves or joins.
func (r *run) disruption() error {
	n := 100
	if r.smoke {
		n = 10
	}
	r.section("What moves when a worker leaves or joins", fmt.Sprintf(`%d workers, the middle one leaves; then it joins again. "needlessly": keys that neither left nor reached the changed worker, the ideal is 0 %%. "moved" is
ideally the changed worker's own share, about %.2f %%. ringwise, exact: over each slot of its table, first owners.`, n, 100/float64(n)))
	t := &report.Table{Head: []string{"", "moved when it leaves", "needlessly", "moved when it joins", "needlessly"}}
	f := peers.NewFleet(n, 0)
	gone := f.IDs[n/2]
	less := peers.Fleet{IDs: slices.Concat(f.IDs[:n/2], f.IDs[n/2+1:])}

	full, err := ringwise.NewRing(peers.Workers(f), ringwise.RingOptions{Replicas: 1})
	if err != nil {
		return err
	}
	without, err := ringwise.NewRing(peers.Workers(less), ringwise.RingOptions{Replicas: 1})
	if err != nil {
		return err
	}
	before, after := make([]string, slotCount), make([]string, slotCount)
	dst := make([]string, 0, 1)
	for i := range slotCount {
		before[i] = full.Owners(slotHash(i), dst[:0])[0] // one after the other: they share dst
		after[i] = without.Owners(slotHash(i), dst[:0])[0]
	}
	leave, join := moved(before, after, gone), moved(after, before, gone)
	own := 0
	for _, id := range before {
		if id == gone {
			own++
		}
	}
	if own == 0 || leave.moved < own || join.moved < own {
		return fmt.Errorf("%d slots are of the worker that leaves, %d and %d moved", own, leave.moved, join.moved)
	}
	t.Row("ringwise, exact", leave.percent(), leave.beside(), join.percent(), join.beside())
	r.limit("moved-besides/remove", measure.Spread{Median: float64(leave.needless)}, "")
	r.limit("moved-besides/add", measure.Spread{Median: float64(join.needless)}, "")
	if r.full || r.smoke {
		keys := r.keys.random[:min(len(r.keys.random), 1<<18)]
		owners := func(one func(string) string) []string {
			out := make([]string, len(keys))
			for i, k := range keys {
				out[i] = one(k)
			}
			return out
		}
		for _, p := range peers.Rings {
			ring, err := p.Build(f, 0)
			if err != nil {
				return err
			}
			a := owners(ring.One)
			if ring.Remove == nil || ring.Add == nil {
				t.Row(p.Name, "it cannot")
				ring.Release()
				continue
			}
			ring.Remove(gone)
			b := owners(ring.One)
			ring.Add(gone)
			c := owners(ring.One)
			ring.Release()
			leave, join := moved(a, b, gone), moved(b, c, gone)
			t.Row(p.Name, leave.percent(), leave.beside(), join.percent(), join.beside())
		}
	}
	r.table(t)
	return nil
}

type move struct{ all, moved, needless int }

func moved(before, after []string, changed string) move {
	m := move{all: len(before)}
	for i := range before {
		if before[i] != after[i] {
			m.moved++
			if before[i] != changed && after[i] != changed {
				m.needless++
			}
		}
	}
	return m
}

func (m move) percent() string { return fmt.Sprintf("%.2f %%", 100*float64(m.moved)/float64(m.all)) }
func (m move) beside() string {
	return fmt.Sprintf("%.2f %%", 100*float64(m.needless)/float64(m.all))
}
