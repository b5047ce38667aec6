package main

import (
	"fmt"
	"io"
	"math"

	"github.com/ringwise/ringwise/internal/sim"
)

// The configuration of docs/claims.md, which was committed before the first
// run.
const (
	claimScenarios = "a,b,c,d,e,f,g,h,i,j"
	claimPolicies  = "random,roundrobin,primary,least-inflight,highest,softmax-t5,softmax-t20,ringwise-local," +
		"ringwise-classic,ringwise-readheavy,ringwise-writeheavy,ringwise-affinity,reports-classic,reports-readheavy"
	claimSeeds = 2

	// Throughput: the highest load, in steps, at which p99 is within the limit.
	throughputFrom, throughputTo, throughputStep = 0.30, 1.00, 0.05
	throughputLimit                              = 100.0 // ms
)

// claim is one line of the output.
type claim struct {
	name  string
	value float64
	want  string
	held  bool
}

func claims(w io.Writer, parallel int, progress io.Writer) error {
	scenarios, err := sim.ScenarioByName(claimScenarios)
	if err != nil {
		return err
	}
	policies, err := sim.PolicyByName(append(sim.All(), sim.Profiles()...), claimPolicies)
	if err != nil {
		return err
	}
	o := options{seeds: claimSeeds, firstSeed: 1}
	set, err := play(o.jobs(scenarios, policies), parallel, progress)
	if err != nil {
		return err
	}
	writeTables(w, set)
	out := reportClaims(set)
	more, err := throughputClaim(w, parallel, progress)
	if err != nil {
		return err
	}
	for _, c := range append(out, more) {
		verdict := "refuted"
		if c.held {
			verdict = "held"
		}
		fmt.Fprintf(w, "CLAIM %-52s %8.3f  want %-12s %s\n", c.name, c.value, c.want, verdict)
	}
	return nil
}

// claimFigure is the geometric mean over seeds of a policy's figure in a scenario.
func claimFigure(set *runSet, scenario, policy string, of func(*summary) float64) float64 {
	sum, n := 0.0, 0.0
	for i := range set.Runs {
		if r := &set.Runs[i]; r.Scenario == scenario && r.Policy == policy {
			sum += math.Log(of(r))
			n++
		}
	}
	return math.Exp(sum / n)
}

func claimP99(r *summary) float64 { return r.P99 }

// claimRatio is the geometric mean over scenarios of one policy's p99 by another's.
func claimRatio(set *runSet, a, b string) float64 {
	sum := 0.0
	for _, s := range set.Scenarios {
		sum += math.Log(claimFigure(set, s.Name, a, claimP99) / claimFigure(set, s.Name, b, claimP99))
	}
	return math.Exp(sum / float64(len(set.Scenarios)))
}

// claimHot is the mean over scenarios and seeds of the share of hot workers, in
// per cent.
func claimHot(set *runSet, policy string) float64 {
	sum, n := 0.0, 0.0
	for i := range set.Runs {
		if r := &set.Runs[i]; r.Policy == policy {
			sum, n = sum+r.Hot, n+1
		}
	}
	return 100 * sum / n
}

func reportClaims(set *runSet) (out []claim) {
	under := func(name string, value, limit float64) {
		out = append(out, claim{name, value, fmt.Sprintf("<= %.3f", limit), value <= limit})
	}
	over := func(name string, value, limit float64) {
		out = append(out, claim{name, value, fmt.Sprintf(">= %.3f", limit), value >= limit})
	}
	under("1 softmax-t20 steadier than highest, p99", claimRatio(set, "softmax-t20", "highest"), 0.8)
	under("1 softmax-t5 steadier than highest, p99", claimRatio(set, "softmax-t5", "highest"), 0.8)
	under("1 classic profile steadier than highest, p99", claimRatio(set, "ringwise-classic", "highest"), 0.8)
	over("2 hot workers without, plain hashing, %", claimHot(set, "primary"), 12.7)
	over("2 hot workers without, highest score, %", claimHot(set, "highest"), 12.7)
	under("2 hot workers with ringwise, %", claimHot(set, "ringwise-local"), 1.3)
	under("3 p99 against round robin, 42 -> 28 ms", claimRatio(set, "ringwise-local", "roundrobin"), 28.0/42)
	under("3 p99 against least in flight, 42 -> 28 ms", claimRatio(set, "ringwise-local", "least-inflight"), 28.0/42)
	// A herd: worse than drawing at random where nothing is the matter.
	for _, p := range []string{"softmax-t20", "reports-classic", "reports-readheavy"} {
		over("5 reports alone herd: "+p, claimFigure(set, "a", p, claimP99)/claimFigure(set, "a", "random", claimP99), 1.2)
	}
	for _, p := range []string{"ringwise-classic", "ringwise-readheavy", "ringwise-writeheavy", "ringwise-affinity"} {
		worst := 0.0
		for _, s := range set.Scenarios {
			worst = max(worst, claimFigure(set, s.Name, p, claimP99)/claimFigure(set, s.Name, "ringwise-local", claimP99))
		}
		under("6 no herd, worst p99 against the default: "+p, worst, 1.3)
		under("6 no herd, hot workers beyond the default's: "+p, claimHot(set, p)-claimHot(set, "ringwise-local"), 1)
	}
	return out
}

// throughputClaim sweeps the load of scenario cache.
func throughputClaim(w io.Writer, parallel int, progress io.Writer) (claim, error) {
	scenarios, err := sim.ScenarioByName("cache")
	if err != nil {
		return claim{}, err
	}
	policies, err := sim.PolicyByName(append(sim.All(), sim.Profiles()...), "roundrobin,least-inflight,ringwise-local,ringwise-affinity")
	if err != nil {
		return claim{}, err
	}
	var jobs []job
	var loads []float64
	for i := 0; ; i++ {
		load := throughputFrom + throughputStep*float64(i)
		if load > throughputTo+1e-9 {
			break
		}
		loads = append(loads, load)
		for _, p := range policies {
			s := scenarios[0]
			s.Load = load
			jobs = append(jobs, job{s, p, sim.Options{Seed: 1}})
		}
	}
	set, err := play(jobs, parallel, progress)
	if err != nil {
		return claim{}, err
	}
	best := map[string]float64{}
	for _, p := range policies {
		fmt.Fprintf(w, "cache %-18s p99 in ms by load:", p.Name)
		within := true
		for _, load := range loads {
			for i := range set.Runs {
				if r := &set.Runs[i]; r.Policy == p.Name && r.Load == load {
					fmt.Fprintf(w, " %.2f:%.1f(%.0f%%)", load, r.P99, 100*r.Miss)
					if within = within && r.P99 <= throughputLimit; within {
						best[p.Name] = load
					}
				}
			}
		}
		fmt.Fprintln(w)
	}
	gain := best["ringwise-affinity"] / best["ringwise-local"]
	return claim{"4 throughput by cache affinity", gain, ">= 1.47", gain >= 1.47}, nil
}
