package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
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
// the same seed; NaN where there is none, or where a figure is 0: less than the
// microsecond it is rounded to, or nothing measured.
func ratio(a, b []*summary, f func(*summary) float64) float64 {
	sum, n := 0.0, 0
	for _, x := range a {
		for _, y := range b {
			if x.Seed == y.Seed {
				if f(x) == 0 || f(y) == 0 {
					return math.NaN()
				}
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

// ahead is by how much a peer must lead to be called so: less is within what
// another seed changes.
const ahead = 0.01

func ours(policy string) bool { return strings.HasPrefix(policy, "ringwise") }

// rival is what a policy is compared with: ringwise on the same signals, so
// with feedback where the peer has it, and nil for ours and the oracle.
func (set *runSet) rival(policy string) []float64 {
	if ours(policy) || policy == "oracle" {
		return nil
	}
	name := "ringwise-local"
	for i := range set.Runs {
		if r := &set.Runs[i]; r.Policy == policy && r.Feedback {
			name = "ringwise"
		}
	}
	cells := set.cells("p99")
	for i, p := range set.Policies {
		if p.Name == name {
			return cells[i]
		}
	}
	return nil
}

// writeMarkdown prints the ratios of p99 as a markdown table, in bold those of
// peers that are ahead of ringwise, and below it who is ahead where.
func writeMarkdown(w io.Writer, set *runSet) {
	cells := set.cells("p99")
	leads := make([][]string, len(set.Scenarios))
	fmt.Fprint(w, "| p99 / oracle |")
	for _, s := range set.Scenarios {
		fmt.Fprintf(w, " %s |", s.Name)
	}
	fmt.Fprintf(w, " geo | worst |\n|---|%s---|---|\n", strings.Repeat("---|", len(set.Scenarios)))
	for i, p := range set.Policies {
		rival := set.rival(p.Name)
		fmt.Fprintf(w, "| %s |", p.Name)
		for j, v := range cells[i] {
			cell := short(v)
			if rival != nil && v < rival[j]*(1-ahead) {
				cell = "**" + cell + "**"
				leads[j] = append(leads[j], fmt.Sprintf("%s by %.0f %%", p.Name, 100*(1-v/rival[j])))
			}
			fmt.Fprintf(w, " %s |", cell)
		}
		fmt.Fprintf(w, " %s | %s |\n", short(geo(cells[i])), short(slices.Max(cells[i])))
	}
	var text []string
	for j, s := range set.Scenarios {
		if leads[j] != nil {
			text = append(text, s.Name+": "+strings.Join(leads[j], ", "))
		}
	}
	if text == nil {
		text = []string{"nowhere"}
	}
	fmt.Fprintf(w, "\nPeers ahead of ringwise on the same signals by more than %.0f %%: %s.\n", 100*ahead, strings.Join(text, "; "))
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
