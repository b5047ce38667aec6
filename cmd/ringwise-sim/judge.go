package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/ringwise/ringwise/internal/sim"
)

//go:embed bars.json
var barsJSON []byte

// bar is one line of bars.json.
type bar struct {
	Bar    int     `json:"bar"`
	Kind   string  `json:"kind"`
	Policy string  `json:"policy"`
	Than   string  `json:"than"`
	Figure string  `json:"figure"`
	Of     string  `json:"of"`
	Only   string  `json:"only"` // letters of scenarios
	But    string  `json:"but"`
	Load   float64 `json:"load"`
	Lost   float64 `json:"lost"`
	Hedge  bool    `json:"hedge"`
	Retry  bool    `json:"retry"`
	Limit  float64 `json:"limit"`
}

type bars struct {
	Scenarios []string `json:"scenarios"`
	Bars      []bar    `json:"bars"`
}

func loadBars() (*bars, error) {
	b := &bars{}
	dec := json.NewDecoder(strings.NewReader(string(barsJSON)))
	if err := dec.Decode(b); err != nil {
		return nil, fmt.Errorf("bars.json: %w", err)
	}
	return b, nil
}

func (b *bar) covers(scenario string) bool {
	return (b.Only == "" || strings.Contains(b.Only, scenario)) && !strings.Contains(b.But, scenario)
}

func (b *bar) load() float64 {
	if b.Load == 0 {
		return 0.7
	}
	return b.Load
}

// quickPeers are those that lead some scenario; the judge of all peers says so.
const quickPeers = "least-inflight,scan-peak-ewma,c3-local,c3,hot-cold"

// judgeJobs are the runs that the bars need, each once.
func judgeJobs(quick bool) ([]job, error) {
	bs, err := loadBars()
	if err != nil {
		return nil, err
	}
	seeds := 5
	peers := sim.Policies()[1:]
	if quick {
		seeds = 1
		if peers, err = sim.PolicyByName(peers, quickPeers); err != nil {
			return nil, err
		}
	}
	scenarios, err := sim.ScenarioByName(strings.Join(bs.Scenarios, ","))
	if err != nil {
		return nil, err
	}
	var out []job
	have := map[string]bool{}
	add := func(s sim.Scenario, f sim.Factory, o sim.Options) {
		k := fmt.Sprint(s.Name, s.Load, s.Lost, f.Name, o)
		if !have[k] {
			have[k] = true
			out = append(out, job{s, f, o})
		}
	}
	for seed := range seeds {
		for i := range bs.Bars {
			b := &bs.Bars[i]
			f, err := sim.PolicyByName(sim.All(), b.Policy)
			if err != nil {
				return nil, err
			}
			for _, s := range scenarios {
				if !b.covers(s.Name) {
					continue
				}
				if quick && b.Load != 0 && s.Name == "j" {
					continue // 300 routers take as long as the other nine scenarios
				}
				o := sim.Options{Seed: uint64(seed + 1)}
				plain := s
				s.Load, s.Lost = b.load(), b.Lost
				plain.Load = s.Load
				add(plain, sim.Policies()[0], o)
				if b.Kind == "off" {
					add(plain, f[0], o)
				}
				if b.Kind == "peer" {
					for _, p := range peers {
						add(plain, p, o)
					}
				}
				if b.Than != "" {
					than, err := sim.PolicyByName(sim.All(), b.Than)
					if err != nil {
						return nil, err
					}
					add(plain, than[0], o)
				}
				o.Hedge, o.Retry = b.Hedge, b.Retry
				add(s, f[0], o)
			}
		}
	}
	return out, nil
}

// judge prints a line for each bar and scenario. It knows nothing but the raw
// runs and bars.json.
func judge(w io.Writer, set *runSet, quick bool) error {
	bs, err := loadBars()
	if err != nil {
		return err
	}
	missed, goal, n := 0, 0, 0
	for i := range bs.Bars {
		b := &bs.Bars[i]
		var all []float64
		for _, s := range bs.Scenarios {
			if !b.covers(s) {
				continue
			}
			v, note, ok := set.value(b, s)
			if !ok && quick && b.Load != 0 {
				continue
			}
			all = append(all, v)
			if b.Of == "each" {
				n++
				b.verdict(w, s, v, note, &missed, &goal)
			}
		}
		if b.Of == "geo" {
			n++
			b.verdict(w, "geo", geo(all), "", &missed, &goal)
		}
	}
	fmt.Fprintf(w, "%d bars, %d SHORT, %d of the goal beyond (bar 7) SHORT\n", n, missed, goal)
	if quick {
		fmt.Fprintln(w, "one seed of the five that the bars are of, so a few more fall SHORT than without -quick")
	}
	if missed > 0 {
		return errShort
	}
	return nil
}

// verdict prints one line. A value that is not there is SHORT.
func (b *bar) verdict(w io.Writer, scenario string, v float64, note string, missed, goal *int) {
	name := fmt.Sprintf("%d-%s-%s", b.Bar, b.Policy, b.Kind)
	if b.Figure != "" {
		name += "-" + b.Figure
	}
	if b.Load != 0 {
		name += fmt.Sprintf("-load%.0f", 100*b.Load)
	}
	if b.Lost != 0 {
		name += "-lost"
	}
	if b.Hedge {
		name += "-hedge"
	}
	if b.Retry {
		name += "-retry"
	}
	name += "-" + scenario
	word := "ok"
	// Written so that NaN is short, and compared as printed.
	if r := round(v); !(r <= b.Limit) {
		word = "SHORT"
		if b.Bar == 7 {
			*goal++
		} else {
			*missed++
		}
	}
	fmt.Fprintf(w, "BAR %s %s %s %s%s\n", name, figure(v), figure(b.Limit), word, note)
}

// round keeps four significant digits, as printed.
func round(v float64) float64 {
	r, err := strconv.ParseFloat(figure(v), 64)
	if err != nil {
		return math.NaN()
	}
	return r
}

func figure(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

// value computes a bar in one scenario from the raw runs; false when they are
// not there. The note names the best peer.
func (set *runSet) value(b *bar, s string) (v float64, note string, ok bool) {
	load := b.load()
	own := set.find(query{s, b.Policy, load, b.Lost, b.Hedge, b.Retry})
	if len(own) == 0 {
		return math.NaN(), "", false
	}
	if (b.Hedge && b.Kind != "off" || b.Retry) && !acted(set, b) {
		return math.NaN(), " (the library sent no copy)", true
	}
	f := quantiles[b.Figure]
	plain := func(policy string) []*summary { return set.find(query{s, policy, load, 0, false, false}) }
	switch b.Kind {
	case "oracle":
		return ratio(own, plain("oracle"), f), "", true
	case "policy":
		return ratio(own, plain(b.Than), f), "", true
	case "off":
		return ratio(own, plain(b.Policy), f), "", true
	case "errors":
		return mean(own, errorShare), "", true
	case "copies":
		return mean(own, func(s *summary) float64 { return float64(s.Hedges) / float64(s.Requests) }), "", true
	case "peer":
		best := math.Inf(1)
		for _, p := range set.Policies {
			if p.Name == "oracle" || strings.HasPrefix(p.Name, "ringwise") {
				continue
			}
			if r := ratio(plain(p.Name), plain("oracle"), f); r < best {
				best, note = r, " ("+p.Name+")"
			}
		}
		return ratio(own, plain("oracle"), f) / best, note, !math.IsInf(best, 0)
	}
	return math.NaN(), "", false
}

// acted: a policy that never copies or retries has not been measured.
func acted(set *runSet, b *bar) bool {
	for i := range set.Runs {
		if r := &set.Runs[i]; r.Policy == b.Policy && r.Hedge == b.Hedge && r.Retry == b.Retry && r.Hedges+r.Retries > 0 {
			return true
		}
	}
	return false
}
