package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringwise/ringwise"
	"github.com/ringwise/ringwise/internal/sim"
)

// part is one piece of the default policy, taken away: by a Tuning where
// fields allow it, else by an edit of the source in a build of its own.
type part struct {
	name     string
	tuning   string // a JSON object over the defaults
	edit     edit
	feedback bool // with feedback, and compared with the policy that has it
	hedge    bool // with copies, and compared likewise
	added    bool // the piece is off in the plain policy: this row turns it on
}

// edit replaces text that stands once in a file of the root package.
type edit struct{ file, old, new string }

// parts are the rows of -ablate.
var parts = []part{
	{name: "EWMA: the last answer alone", tuning: `{"GainMin":1,"GainMax":1}`},
	{name: "LatencyTau: a fixed gain of 0.1", tuning: `{"GainMin":0.1,"GainMax":0.1}`},
	{name: "latency: requests in flight alone", edit: edit{"weigh.go", "x := lat * (busy", "lat = float64(col.base[ln&1])\n\t\tx := lat * (busy"}},
	{name: "fading memory: never forgotten", tuning: `{"MemoryMin":"1m","MemoryMax":"10m","FailureMemory":"1m"}`},
	{name: "memory that grows: always 50 ms", tuning: `{"MemoryMax":"50ms","FailureMemory":"50ms"}`},
	{name: "memory of failures", tuning: `{"FailureMemory":"50ms"}`},
	{name: "gap memory", tuning: `{"GapMemory":0}`},
	{name: "silence", tuning: `{"SilenceFactor":100}`},
	{name: "in-flight load", tuning: `{"LoadWeight":0}`},
	{name: "failure cost", tuning: `{"FailureGain":0,"FailureCap":1}`},
	{name: "failure cost and penalty machine", tuning: `{"FailureGain":0,"FailureCap":1,"MaxOut":0,"ObservedFactor":1}`},
	{name: "penalty machine", tuning: `{"MaxOut":0,"ObservedFactor":1}`},
	{name: "trips by low scores", tuning: `{"TripScore":0}`},
	{name: "observed at 0.85", tuning: `{"ObservedFactor":1}`},
	{name: "ramp", tuning: `{"RampTime":"1ms","RampSteps":1}`},
	{name: "ramp's cap on probability", edit: edit{"filter.go", "if capped > 0 && free > 0 {", "if capped < 0 && free > 0 {"}},
	{name: "probation forgets the latency", edit: edit{"observe.go", "n.st.lane[ln].lat.Store(0)\n\t\tn.st.lane[ln].mem.Store(0)", ""}},
	{name: "a failure's price fades before the first success", edit: edit{"cost.go", "ls.pen.load().fails() > 0 {", "ls.pen.load().fails() > 15 {"}},
	{name: "prior from reports", tuning: `{"PriorExponent":0}`},
	{name: "softmax: the highest score", tuning: `{"Temperature":0.01}`},
	{name: "softmax: T = 3, cost^-3.3", tuning: `{"Temperature":3}`},
	{name: "feedback", feedback: true, added: true},
	{name: "feedback: the queue a worker tells", feedback: true, tuning: `{"FeedbackWeight":0}`},
	{name: "feedback: the prior beside it", feedback: true, tuning: `{"PriorExponent":0}`},
	{name: "hedge", hedge: true, added: true},
	{name: "hedge: k that moves (fixed 6)", hedge: true, tuning: `{"HedgeMin":6,"HedgeMax":6}`},
	{name: "hedge: the budget", hedge: true, tuning: `{"HedgeBudget":1}`},
	{name: "hedge: the loser's latency", hedge: true, edit: edit{"observe.go", "c.censored(ls, f, e.now, rtt, true)", ""}},
}

// base is the policy a part is compared with.
func (p *part) base() string {
	switch {
	case p.added:
		return "the policy"
	case p.feedback:
		return "feedback"
	case p.hedge:
		return "hedge"
	}
	return "the policy"
}

// ablate plays the policy without each of its parts and prints a table. The
// plain policy is that of a client without feedback and copies.
func (o *options) ablate() error {
	scenarios, err := sim.ScenarioByName(o.scenario)
	if err != nil {
		return err
	}
	var jobs []job
	add := func(f sim.Factory, hedge bool) {
		for _, s := range scenarios {
			if o.load > 0 {
				s.Load = o.load
			}
			for seed := range o.seeds {
				jobs = append(jobs, job{s, f, sim.Options{Seed: uint64(o.firstSeed + seed), Hedge: hedge}})
			}
		}
	}
	add(sim.Policies()[0], false)
	add(sim.Ringwise("the policy", false, nil), false)
	for i := range parts {
		p := &parts[i]
		if p.edit.file != "" {
			continue
		}
		t := ringwise.DefaultTuning()
		if p.tuning != "" {
			if err := t.UnmarshalJSON([]byte(p.tuning)); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		if err := t.Validate(); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		add(sim.Ringwise(p.name, p.feedback, &t), p.hedge)
	}
	set, err := play(jobs, o.parallel, o.progressFile)
	if err != nil {
		return err
	}
	for i := range parts {
		p := &parts[i]
		if p.edit.file == "" {
			continue
		}
		runs, err := o.edited(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		set.Runs = append(set.Runs, runs...)
	}
	if o.jsonFile != "" {
		if err := writeFile(o.jsonFile, set.write); err != nil {
			return err
		}
	}
	writeAblation(o.stdout, set)
	return nil
}

// edited builds this command with a part's edit and has it play the policy.
func (o *options) edited(p *part) ([]summary, error) {
	dir, err := os.MkdirTemp("", "ringwise-sim-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	bin, err := buildEdited(dir, p.edit)
	if err != nil {
		return nil, err
	}
	raw := filepath.Join(dir, "runs.json")
	args := []string{"-scenario", o.scenario, "-policy", "ringwise-local", "-json", raw, "-seeds", fmt.Sprint(o.seeds),
		"-seed", fmt.Sprint(o.firstSeed), "-load", fmt.Sprint(o.load), "-parallel", fmt.Sprint(o.parallel)}
	if p.feedback {
		args[3] = "ringwise"
	}
	if p.hedge {
		args = append(args, "-hedge")
	}
	cmd := exec.Command(bin, args...)
	cmd.Stderr = o.progressFile
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	set, err := readRuns(raw)
	if err != nil {
		return nil, err
	}
	var out []summary
	for _, r := range set.Runs {
		if r.Policy != "oracle" {
			r.Policy = p.name
			out = append(out, r)
		}
	}
	return out, nil
}

// buildEdited builds this command with one file of the root package changed.
// It needs the source and the go command, as go run does.
func buildEdited(dir string, e edit) (bin string, err error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/ringwise/ringwise").Output()
	if err != nil {
		return "", fmt.Errorf("where the source is: %w; run this command in its own folder, by go run", err)
	}
	root := strings.TrimSpace(string(out))
	path := filepath.Join(root, e.file)
	src, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(src), e.old); n != 1 {
		return "", fmt.Errorf("%s holds %q %d times, want once", e.file, e.old, n)
	}
	changed := filepath.Join(dir, e.file)
	if err := os.WriteFile(changed, []byte(strings.Replace(string(src), e.old, e.new, 1)), 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return "", err
	}
	bin = filepath.Join(dir, "edited")
	if msg, err := exec.Command("go", "build", "-overlay", list, "-o", bin, "github.com/ringwise/ringwise/cmd/ringwise-sim").CombinedOutput(); err != nil {
		return "", errors.Join(err, errors.New(string(msg)))
	}
	return bin, nil
}

// notable is the change of a scenario's ratio that the table names.
const notable = 0.02

// writeAblation prints a markdown table: ratios to the oracle, and where the
// policy without the part is better or worse than with it.
func writeAblation(w io.Writer, set *runSet) {
	var names []string
	for _, s := range set.Scenarios {
		names = append(names, s.Name)
	}
	runs := func(scenario, policy string) []*summary {
		var out []*summary
		for i := range set.Runs {
			if r := &set.Runs[i]; r.Scenario == scenario && r.Policy == policy {
				out = append(out, r)
			}
		}
		return out
	}
	ratios := func(policy, figure string) map[string]float64 {
		m := map[string]float64{}
		for _, s := range names {
			m[s] = ratio(runs(s, policy), runs(s, "oracle"), quantiles[figure])
		}
		return m
	}
	summed := func(m map[string]float64) string {
		worst := slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(m[a], m[b]) })
		var all []float64
		for _, s := range names {
			all = append(all, m[s])
		}
		return fmt.Sprintf("%.2f | %.2f %s", geo(all), m[worst], worst)
	}
	fmt.Fprintln(w, "| without | by | p99 geo | worst | p99.9 geo | worst | errors, % | p99 better by % | p99 worse by % |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|")
	row := func(name, by, policy, base string) {
		p99 := ratios(policy, "p99")
		errs := 0.0
		for _, s := range names {
			errs += mean(runs(s, policy), errorShare) / float64(len(names))
		}
		better, worse := "", ""
		if base != "" {
			was := ratios(base, "p99")
			for _, s := range names {
				switch d := p99[s]/was[s] - 1; {
				case d < -notable:
					better += fmt.Sprintf("%s %.0f, ", s, -100*d)
				case d > notable:
					worse += fmt.Sprintf("%s %s, ", s, percent(d))
				}
			}
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %.3f | %s | %s |\n", name, by, summed(p99), summed(ratios(policy, "p99.9")), 100*errs,
			strings.TrimSuffix(better, ", "), strings.TrimSuffix(worse, ", "))
	}
	row("**nothing: the policy**", "local signals, no copies", "the policy", "")
	for i := range parts {
		p := &parts[i]
		by := "`" + strings.NewReplacer(`"`, "", "{", "", "}", "", ",", ", ", ":", " ").Replace(p.tuning) + "`"
		name := p.name
		switch {
		case p.added:
			name, by = "**nothing, and "+p.name+" besides**", "answers that tell of the worker"
			if p.hedge {
				by = "idempotent reads"
			}
		case p.edit.file != "":
			by = "an edit of " + p.edit.file
		}
		row(name, by, p.name, p.base())
	}
}

// percent writes a rise; beyond doubling it says how many times.
func percent(d float64) string {
	if d >= 1 {
		return fmt.Sprintf("%.1fx", 1+d)
	}
	return fmt.Sprintf("%.0f", 100*d)
}
