package main

import (
	"fmt"
	"io"
	"math"
	"slices"
)

// query selects runs.
type query struct {
	scenario, policy string
	load             float64 // 0: any
	lost             float64 // -1: any
	hedge, retry     bool
}

func (set *runSet) find(q query) []*summary {
	var out []*summary
	for i := range set.Runs {
		r := &set.Runs[i]
		if r.Scenario == q.scenario && r.Policy == q.policy && (q.load == 0 || r.Load == q.load) &&
			(q.lost < 0 || r.Lost == q.lost) && r.Hedge == q.hedge && r.Retry == q.retry {
			out = append(out, r)
		}
	}
	return out
}

// quantiles by name.
var quantiles = map[string]func(*summary) float64{
	"p50":   func(s *summary) float64 { return s.P50 },
	"p90":   func(s *summary) float64 { return s.P90 },
	"p99":   func(s *summary) float64 { return s.P99 },
	"p99.9": func(s *summary) float64 { return s.P999 },
}

// ratio is the geometric mean over seeds of one figure of a over that of b at
// the same seed; NaN where there is none.
func ratio(a, b []*summary, f func(*summary) float64) float64 {
	sum, n := 0.0, 0
	for _, x := range a {
		for _, y := range b {
			if x.Seed == y.Seed {
				sum += math.Log(f(x) / f(y))
				n++
			}
		}
	}
	return math.Exp(sum / float64(n))
}

// mean over seeds.
func mean(a []*summary, f func(*summary) float64) float64 {
	sum := 0.0
	for _, x := range a {
		sum += f(x)
	}
	return sum / float64(len(a))
}

func geo(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += math.Log(x)
	}
	return math.Exp(sum / float64(len(v)))
}

func errorShare(s *summary) float64 { return float64(s.Errors) / float64(max(s.Requests, 1)) }

// shown are the runs of a scenario and policy that tables and page are about:
// those of the kind of the scenario's first run. The judge's set holds others
// beside them, at other loads and with copies.
func (set *runSet) shown(scenario, policy string) []*summary {
	for i := range set.Runs {
		if r := &set.Runs[i]; r.Scenario == scenario {
			return set.find(query{scenario, policy, r.Load, r.Lost, r.Hedge, r.Retry})
		}
	}
	return nil
}

// cells are ratios to the oracle by policy and scenario.
func (set *runSet) cells(figure string) [][]float64 {
	out := make([][]float64, len(set.Policies))
	for i, p := range set.Policies {
		for _, s := range set.Scenarios {
			out[i] = append(out[i], ratio(set.shown(s.Name, p.Name), set.shown(s.Name, "oracle"), quantiles[figure]))
		}
	}
	return out
}

// writeTables prints the ratios, the oracle's own figures and the errors.
func writeTables(w io.Writer, set *runSet) {
	head := func(title string, geo bool) {
		fmt.Fprintf(w, "%-16s", title)
		for _, s := range set.Scenarios {
			fmt.Fprintf(w, "%9s", s.Name)
		}
		if geo {
			fmt.Fprintf(w, "%9s%9s", "geo", "worst")
		}
		fmt.Fprintln(w)
	}
	for _, f := range []string{"p50", "p99", "p99.9"} {
		head(f+" / oracle", true)
		cells := set.cells(f)
		for i, p := range set.Policies {
			fmt.Fprintf(w, "%-16s", p.Name)
			for _, v := range cells[i] {
				fmt.Fprintf(w, "%9s", short(v))
			}
			fmt.Fprintf(w, "%9s%9s\n", short(geo(cells[i])), short(slices.Max(cells[i])))
		}
		fmt.Fprintln(w)
	}
	figures := []struct {
		title string
		f     func(*summary) float64
	}{
		{"errors, %", func(s *summary) float64 { return 100 * errorShare(s) }},
		{"hot workers, %", func(s *summary) float64 { return 100 * s.Hot }},
		{"max/mean load", func(s *summary) float64 { return s.Max }},
	}
	for i := range set.Runs {
		if set.Runs[i].Hedge || set.Runs[i].Retry {
			figures = append(figures, struct {
				title string
				f     func(*summary) float64
			}{"copies, %", func(s *summary) float64 { return 100 * float64(s.Hedges+s.Retries) / float64(max(s.Requests, 1)) }})
			break
		}
	}
	for _, f := range figures {
		head(f.title, false)
		for _, p := range set.Policies {
			fmt.Fprintf(w, "%-16s", p.Name)
			for _, s := range set.Scenarios {
				fmt.Fprintf(w, "%9s", short(mean(set.shown(s.Name, p.Name), f.f)))
			}
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w)
	}
	head("oracle, ms", false)
	for _, f := range []string{"p50", "p99", "p99.9"} {
		fmt.Fprintf(w, "%-16s", f)
		for _, s := range set.Scenarios {
			fmt.Fprintf(w, "%9s", short(mean(set.shown(s.Name, "oracle"), quantiles[f])))
		}
		fmt.Fprintln(w)
	}
}

// short writes a figure in at most eight characters.
func short(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case v == 0:
		return "0"
	case v < 0.1:
		return fmt.Sprintf("%.4f", v)
	case v < 100:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
