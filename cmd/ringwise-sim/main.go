// Command ringwise-sim plays scenarios of trouble in a simulated cluster with
// ringwise and its peers, and says what each choice costs against an oracle.
// The same flags give the same output, byte for byte.
//
//	ringwise-sim                                   scenarios a-j, all policies, one seed
//	ringwise-sim -scenario all -policy all -seeds 5 -html report.html -json runs.json
//	ringwise-sim -config cluster.yaml              your cluster, two Tunings compared
//	ringwise-sim -judge                            the bars of bars.json, ok or SHORT
//	ringwise-sim -ablate -seeds 2                  the policy without each of its parts
//	ringwise-sim -claims                           the claims of docs/claims.md, held or refuted
//	ringwise-sim -list                             scenarios and policies, with sources
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/ringwise/ringwise/internal/sim"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "ringwise-sim:", err)
		}
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	scenario, policy     string
	seeds, firstSeed     int
	load                 float64
	hedge, retry         bool
	config               string
	jsonFile, htmlFile   string
	from                 string
	judge, quick, list   bool
	ablateParts          bool
	markdown             bool
	claims               bool
	parallel             int
	stdout, progressFile io.Writer
}

var errShort = errors.New("some bars are SHORT")

// sticky writes until the first error and keeps it, so that a table need not
// look after each line.
type sticky struct {
	w   io.Writer
	err error
}

func (s *sticky) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(p)
	s.err = err
	return n, err
}

func run(args []string, stdout, stderr io.Writer) error {
	out := &sticky{w: stdout}
	err := runFlags(args, out, stderr)
	if out.err != nil {
		return fmt.Errorf("output: %w", out.err)
	}
	return err
}

// runFlags is run but for errors of stdout.
func runFlags(args []string, stdout, stderr io.Writer) error {
	o := options{stdout: stdout, progressFile: stderr}
	fs := flag.NewFlagSet("ringwise-sim", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.scenario, "scenario", "a-j", "scenarios by comma, a-j, or all")
	fs.StringVar(&o.policy, "policy", "all", "policies by comma, or all")
	fs.IntVar(&o.seeds, "seeds", 1, "number of seeds")
	fs.IntVar(&o.firstSeed, "seed", 1, "first seed")
	fs.Float64Var(&o.load, "load", 0, "load as a share of what the fleet can serve; 0 keeps each scenario's")
	fs.BoolVar(&o.hedge, "hedge", false, "reads may be hedged, by policies that can")
	fs.BoolVar(&o.retry, "retry", false, "failed reads may be sent again, by policies that can")
	fs.StringVar(&o.config, "config", "", "YAML file with your own cluster and Tunings")
	fs.StringVar(&o.jsonFile, "json", "", "write all runs to this file")
	fs.StringVar(&o.htmlFile, "html", "", "write a page with charts to this file")
	fs.StringVar(&o.from, "from", "", "read runs from a file of -json instead of running them")
	fs.BoolVar(&o.judge, "judge", false, "judge the bars; exit 1 when one is SHORT, bar 7 excepted")
	fs.BoolVar(&o.quick, "quick", false, "with -judge: one seed and the strongest peers only")
	fs.BoolVar(&o.ablateParts, "ablate", false, "play the policy without each of its parts; needs the source and the go command")
	fs.BoolVar(&o.markdown, "markdown", false, "print the ratios of p99 as a markdown table, peers that are ahead in bold")
	fs.BoolVar(&o.claims, "claims", false, "test the claims of docs/claims.md")
	fs.BoolVar(&o.list, "list", false, "list scenarios and policies")
	fs.IntVar(&o.parallel, "parallel", runtime.GOMAXPROCS(0), "runs side by side; the output does not depend on it")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	switch {
	case o.seeds < 1 || o.seeds > 1000:
		return fmt.Errorf("-seeds %d: want 1 to 1000", o.seeds)
	case o.firstSeed < 0:
		return fmt.Errorf("-seed %d: want 0 or more", o.firstSeed)
	case !(o.load >= 0 && o.load <= 1.5):
		return fmt.Errorf("-load %v: want 0 to 1.5", o.load)
	case o.parallel < 1 || o.parallel > 1024:
		return fmt.Errorf("-parallel %d: want 1 to 1024", o.parallel)
	case o.quick && !o.judge:
		return errors.New("-quick goes with -judge")
	case o.ablateParts && (o.judge || o.config != "" || o.from != ""):
		return errors.New("-ablate does not go with -judge, -config or -from")
	}
	if o.ablateParts {
		return o.ablate()
	}
	if o.list {
		return list(stdout)
	}
	if o.claims {
		return claims(stdout, o.parallel, o.progressFile)
	}
	set, title, err := o.runs()
	if err != nil {
		return err
	}
	if o.htmlFile != "" {
		if err := writeFile(o.htmlFile, func(w io.Writer) error { return writePage(w, title, set) }); err != nil {
			return err
		}
	}
	if o.jsonFile != "" {
		if err := writeFile(o.jsonFile, set.write); err != nil {
			return err
		}
	}
	if o.judge {
		return judge(stdout, set, o.quick)
	}
	if o.markdown {
		writeMarkdown(stdout, set)
		return nil
	}
	writeTables(stdout, set)
	return nil
}

// runs plays what the flags ask for, or reads it.
func (o *options) runs() (*runSet, string, error) {
	if o.from != "" {
		set, err := readRuns(o.from)
		return set, "from " + o.from, err
	}
	var jobs []job
	var err error
	title := "ringwise-sim"
	switch {
	case o.config != "":
		var c *cluster
		if c, err = loadConfig(o.config); err == nil {
			jobs, err = o.clusterJobs(c)
			title = "ringwise-sim " + o.config
		}
	case o.judge:
		jobs, err = judgeJobs(o.quick)
		title = "ringwise-sim -judge"
	default:
		jobs, err = o.plainJobs()
	}
	if err != nil {
		return nil, "", err
	}
	set, err := play(jobs, o.parallel, o.progressFile)
	return set, title, err
}

func (o *options) plainJobs() ([]job, error) {
	scenarios, err := sim.ScenarioByName(o.scenario)
	if err != nil {
		return nil, err
	}
	policies := sim.All()
	if o.policy != "all" { // profiles are named one by one
		if policies, err = sim.PolicyByName(append(policies, sim.Profiles()...), o.policy); err != nil {
			return nil, err
		}
	}
	return o.jobs(scenarios, policies), nil
}

func (o *options) clusterJobs(c *cluster) ([]job, error) {
	policies, err := sim.PolicyByName(append(sim.All(), c.policies...), o.policy)
	if err != nil {
		return nil, err
	}
	if len(c.policies) > 0 && o.policy == "all" {
		// The two Tunings against the oracle and the strongest peers.
		policies, err = sim.PolicyByName(sim.Policies(), "oracle,least-inflight,p2c-peak-ewma,scan-peak-ewma,c3-local")
		policies = append(policies[:1:1], append(c.policies, policies[1:]...)...)
	}
	return o.jobs([]sim.Scenario{c.scenario}, policies), err
}

// jobs are the runs of scenarios and policies, the oracle always among them.
func (o *options) jobs(scenarios []sim.Scenario, policies []sim.Factory) []job {
	oracle := false
	for _, p := range policies {
		oracle = oracle || p.Name == "oracle"
	}
	if !oracle {
		policies = append(sim.Policies()[:1:1], policies...)
	}
	var out []job
	for _, s := range scenarios {
		if o.load > 0 {
			s.Load = o.load
		}
		for seed := range o.seeds {
			for _, p := range policies {
				out = append(out, job{s, p, sim.Options{Seed: uint64(o.firstSeed + seed), Hedge: o.hedge, Retry: o.retry}})
			}
		}
	}
	return out
}

func list(w io.Writer) error {
	fmt.Fprintln(w, "scenarios")
	for _, s := range sim.Scenarios() {
		fmt.Fprintf(w, "  %-10s %s\n", s.Name, s.Title)
	}
	fmt.Fprintln(w, "policies")
	for _, p := range append(sim.All(), sim.Profiles()...) {
		fmt.Fprintf(w, "  %-16s %s\n", p.Name, p.Source)
	}
	return nil
}

func writeFile(name string, f func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := f(file); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
