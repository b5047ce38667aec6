package main

import (
	"fmt"
	"runtime"

	"github.com/ringwise/ringwise/bench/measure"
	"github.com/ringwise/ringwise/bench/peers"
	"github.com/ringwise/ringwise/bench/report"
)

// built is a ring of one peer at one number of points.
type built struct {
	name string
	peer peers.RingPeer
	ring *peers.Ring
}

// quadratic are peers whose build sorts all points again for each worker.
var quadratic = map[string]bool{"buraksezer/consistent": true, "stathat/consistent": true}

// rings are all peers with n workers at their defaults and, in a full run,
// those that can at 1000 points beside; ringwise first.
func (r *run) rings(n int) (out []built, left []string, err error) {
	f := peers.NewFleet(n, 0)
	for _, p := range peers.All() {
		if ok, why := fits(n, p.Max, p.Why); !ok {
			left = append(left, p.Name+" "+why)
			continue
		}
		ring, err := p.Build(f, 0)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		out = append(out, built{p.Name, p, ring})
	}
	if !r.full || n > 1000 {
		return out, left, nil
	}
	for _, p := range peers.Rings {
		if !p.Points || quadratic[p.Name] && n > 100 {
			continue
		}
		ring, err := p.Build(f, 1000)
		if err != nil {
			return nil, nil, fmt.Errorf("%s, 1000 points: %w", p.Name, err)
		}
		out = append(out, built{p.Name + ", 1000 points", p, ring})
	}
	return out, left, nil
}

func (r *run) lookups() error {
	r.section("Who owns a key", `ns a lookup, median (quartiles) of the slices; hot: 16 keys over and over, random: a million different ones. ringwise answers with
names, as the others do. "empty loop" is the harness alone: it is in every row and subtracted from none.`)
	for _, n := range r.sizes {
		rings, left, err := r.rings(n)
		if err != nil {
			return err
		}
		t := &report.Table{Head: []string{fmt.Sprintf("%d workers", n), "1 owner, hot", "1 owner, random", "3 owners, hot", "3 owners, random", "allocations, 3 or 1"}}
		rows := map[string][]string{}
		var order []string
		allocs := map[string]float64{}
		for _, owners := range []int{1, 3} {
			for _, kind := range []string{"hot", "random"} {
				keys := r.keys.random
				if kind == "hot" {
					keys = r.keys.hot
				}
				cs := []measure.Contender{{Name: "empty loop", Run: loopOne(keys, func(key string) string { return key })}}
				for _, b := range rings {
					if owners == 1 {
						cs = append(cs, measure.Contender{Name: b.name, Run: loopOne(keys, b.ring.One)})
					} else if b.ring.Three != nil {
						cs = append(cs, measure.Contender{Name: b.name, Run: loopThree(keys, b.ring.Three)})
					}
				}
				series := measure.Interleave(cs, r.slice, r.rounds)
				var bars []report.Bar
				for i, s := range series {
					if owners == 1 && kind == "hot" {
						order = append(order, s.Name)
						rows[s.Name] = make([]string, 4)
					}
					column := owners/2*2 + map[string]int{"hot": 0, "random": 1}[kind]
					rows[s.Name][column] = ns(s.Spread())
					allocs[s.Name] = s.Allocs
					if i > 0 {
						sp := s.Spread()
						bars = append(bars, report.Bar{Name: s.Name, Value: sp.Median, Low: sp.Low, High: sp.High, Ours: s.Name == "ringwise"})
					}
				}
				name := fmt.Sprintf("lookup%d/%d/%s", owners, n, kind)
				r.against(name, series[1], series[2:])
				if owners == 3 {
					r.limit(fmt.Sprintf("lookup3-time/%d/%s", n, kind), series[1].Spread(), "ns")
				}
				if kind == "random" && (n == 100 || n == 1000) {
					r.charts[fmt.Sprintf("lookup%d-%d.svg", owners, n)] = report.Chart(fmt.Sprintf("Lookup of %d owner(s), %d workers, a million random keys", owners, n), "ns", bars)
				}
			}
		}
		for _, name := range order {
			t.Row(append(append([]string{name}, rows[name]...), report.Number(round2(allocs[name])))...)
		}
		r.table(t)
		for _, l := range left {
			fmt.Fprintf(&r.page, "\n%s.\n", l)
		}
		for _, b := range rings {
			b.ring.Release()
		}
		rings = nil
		runtime.GC()
	}
	return nil
}

func round2(x float64) float64 { return float64(int(x*100+0.5)) / 100 }

func loopOne(keys []string, one func(string) string) func(int) {
	w := &walk{keys: keys}
	return func(n int) {
		w.do(n, func(keys []string) {
			s := 0
			for _, k := range keys {
				s += len(one(k))
			}
			runtime.KeepAlive(s)
		})
	}
}

func loopThree(keys []string, three func(string, []string) []string) func(int) {
	w := &walk{keys: keys}
	dst := make([]string, 0, 4)
	return func(n int) {
		w.do(n, func(keys []string) {
			s := 0
			for _, k := range keys {
				s += len(three(k, dst))
			}
			runtime.KeepAlive(s)
		})
	}
}
