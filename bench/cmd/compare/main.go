// Compare times ringwise and its peers in one run and writes RESULTS.md and
// the charts.
//
//	go run ./cmd/compare          # all of it, some minutes
//	go run ./cmd/compare -quick   # what the targets need, under 50 s, writes only where -out says
//	go run ./cmd/compare -smoke   # that it works, 5 s, writes nothing
package main

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ringwise/ringwise/bench/measure"
	"github.com/ringwise/ringwise/bench/report"
)

// plan is how much of the work a run does.
type plan struct {
	name   string
	sizes  []int // workers, of lookups and pickers
	slice  time.Duration
	rounds int
	names  int // sets of names for the balance
	keys   int
	full   bool
	smoke  bool
}

var plans = map[string]plan{
	"smoke": {name: "smoke", sizes: []int{10}, slice: 200 * time.Microsecond, rounds: 3, names: 2, keys: 1 << 14, smoke: true},
	"quick": {name: "quick", sizes: []int{10, 100, 1000}, slice: 1500 * time.Microsecond, rounds: 11, names: 20, keys: 1 << 20},
	"full":  {name: "full", sizes: []int{10, 100, 1000, 10_000}, slice: 4 * time.Millisecond, rounds: 41, names: 20, keys: 1 << 20, full: true},
}

// run is one comparison: what it measures with, and what it has found.
type run struct {
	plan
	keys    keyset
	figures map[string]report.Figure
	ahead   []string // peers that were faster
	page    strings.Builder
	charts  map[string]string
	started time.Time
	at      time.Time
}

func main() {
	quick := flag.Bool("quick", false, "only what the targets need, under 50 s")
	smoke := flag.Bool("smoke", false, "a few seconds, writes nothing: does it work")
	rounds := flag.Int("rounds", 0, "rounds of slices instead of the usual number")
	out := flag.String("out", "", "folder for RESULTS.md and charts/; default: this module's, with -quick none")
	targets := flag.String("targets", "", "file of targets; default: targets.json of this module")
	flag.Parse()
	p := plans["full"]
	switch {
	case *smoke:
		p = plans["smoke"]
	case *quick:
		p = plans["quick"]
	}
	if *rounds > 0 {
		p.rounds = *rounds
	}
	if err := compare(p, *out, *targets); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func compare(p plan, out, targets string) error {
	home, err := moduleDir()
	if err != nil {
		return err
	}
	ts, err := report.Targets(cmp.Or(targets, filepath.Join(home, "targets.json")))
	if err != nil {
		return err
	}
	ts = slices.DeleteFunc(ts, func(t report.Target) bool { return strings.HasPrefix(t.Name, "soak") })
	r := &run{
		plan: p, keys: newKeys(p.keys), figures: map[string]report.Figure{}, charts: map[string]string{},
		started: time.Now(), at: time.Now(),
	}
	for _, step := range []struct {
		name string
		do   func(*run) error
	}{
		// ringwise alone before the others are built: the memory that they leave
		// behind makes each of its cache misses dearer.
		{"parts of a pick", (*run).parts},
		{"two goroutines", (*run).parallel},
		{"lookups", (*run).lookups},
		{"picks", (*run).picks},
		{"lookups while membership changes", (*run).churn},
		{"build, memory, change", (*run).builds},
		{"balance", (*run).balance},
		{"disruption", (*run).disruption},
	} {
		if err := step.do(r); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Fprintf(os.Stderr, "%-34s %5.1f s\n", step.name, time.Since(r.at).Seconds())
		r.at = time.Now()
	}
	lines, short := report.Lines(ts, r.figures, p.smoke)
	for _, l := range lines {
		fmt.Println(l)
	}
	for _, l := range r.ahead {
		fmt.Println(l)
	}
	fmt.Printf("%d of %d targets are short, %d peers ahead somewhere, %.0f s\n", short, len(lines), len(r.ahead), time.Since(r.started).Seconds())
	if p.smoke || out == "" && !p.full {
		return nil
	}
	out = cmp.Or(out, home)
	fmt.Println("writing RESULTS.md and charts/ in", out)
	return r.write(out, lines)
}

// moduleDir is the folder of this module: where go.mod is, from here upwards.
func moduleDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if b, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && strings.HasPrefix(string(b), "module github.com/ringwise/ringwise/bench\n") {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("run it in the bench module")
		}
		dir = up
	}
}

// section begins one of the page.
func (r *run) section(title, text string) {
	fmt.Fprintf(&r.page, "\n## %s\n%s\n", title, text)
}

func (r *run) table(t *report.Table) { fmt.Fprintf(&r.page, "\n%s", t) }

// against books a figure: ours beside the fastest of the peers that may be
// compared, and every peer that is ahead.
func (r *run) against(name string, ours measure.Series, others []measure.Series) {
	f := report.Figure{Name: name, Ours: ours.Spread().Median, Unit: "ns", Ratio: math.NaN()}
	var best *measure.Series
	for i, o := range others {
		if len(o.NS) == 0 {
			continue
		}
		if best == nil || o.Spread().Median < best.Spread().Median {
			best = &others[i]
		}
		if o.Spread().Median < ours.Spread().Median {
			r.ahead = append(r.ahead, fmt.Sprintf("AHEAD %s %s %sns ringwise %sns", name, strings.ReplaceAll(o.Name, " ", "_"),
				report.Number(o.Spread().Median), report.Number(f.Ours)))
		}
	}
	if best != nil {
		s := measure.Ratio(*best, ours)
		f.Best, f.Peer, f.Ratio, f.Low, f.High = best.Name, best.Spread().Median, s.Median, s.Low, s.High
	}
	r.figures[name] = f
}

// limit books a figure without a peer.
func (r *run) limit(name string, s measure.Spread, unit string) {
	r.figures[name] = report.Figure{Name: name, Ours: s.Median, Low: s.Low, High: s.High, Unit: unit, Ratio: math.NaN()}
}

// ratio books a figure that is a ratio itself.
func (r *run) ratio(name string, ours float64, unit string, s measure.Spread) {
	r.figures[name] = report.Figure{Name: name, Ours: ours, Unit: unit, Ratio: s.Median, Low: s.Low, High: s.High}
}

// fits tells whether a peer is measured with n workers, and if not why.
func fits(n, most int, why string) (bool, string) {
	if most > 0 && n > most {
		return false, "left out: " + why
	}
	return true, ""
}

func ns(s measure.Spread) string {
	return fmt.Sprintf("%s (%s..%s)", report.Number(s.Median), report.Number(s.Low), report.Number(s.High))
}
