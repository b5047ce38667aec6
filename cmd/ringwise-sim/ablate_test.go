package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringwise/ringwise"
)

// TestParts_AreTakenAway: each Tuning of a part is allowed and differs from the
// default, and each edit meets the source as it is now.
func TestParts_AreTakenAway(t *testing.T) {
	for i := range parts {
		p := &parts[i]
		tuning := ringwise.DefaultTuning()
		if p.tuning != "" {
			if err := tuning.UnmarshalJSON([]byte(p.tuning)); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
			if err := tuning.Validate(); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
		if !p.added && p.edit.file == "" && tuning == ringwise.DefaultTuning() {
			t.Errorf("%s: the default Tuning", p.name)
		}
		if p.edit.file != "" {
			src, err := os.ReadFile(filepath.Join("../..", p.edit.file))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(src), p.edit.old); n != 1 {
				t.Errorf("%s: %q is %d times in %s, want once", p.name, p.edit.old, n, p.edit.file)
			}
		}
	}
}

// TestEdits_ConstantsAct: constants of the cost, the penalty and the hedge that
// are no fields of Tuning, doubled in builds of their own, each change the
// output. A build with an edit that changes nothing gives the same bytes, so
// two processes agree.
func TestEdits_ConstantsAct(t *testing.T) {
	// burst for the penalty: there every run trips.
	args := []string{"-scenario", "burst,i", "-policy", "ringwise-local", "-hedge", "-json"}
	dir := t.TempDir()
	was := filepath.Join(dir, "was.json")
	output(t, append(args, was)...)
	want, err := os.ReadFile(was)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		edit    edit
		changes bool
	}{
		{"nothing", edit{"cost.go", "gapGain   = 0.1", "gapGain   = 0.2 / 2"}, false},
		{"cost.go, memory's growth", edit{"cost.go", "memStep   = 1.5", "memStep   = 3"}, true},
		{"penalty.go, low bits of a time", edit{"penalty.go", "penTickShift  = 20", "penTickShift  = 2 * 20"}, true},
		{"hedge.go, the step of k", edit{"hedge.go", "hedgeStep = 0.1", "hedgeStep = 0.2"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			bin, err := buildEdited(dir, c.edit)
			if err != nil {
				t.Fatal(err)
			}
			raw := filepath.Join(dir, "r.json")
			if msg, err := exec.Command(bin, append(args, raw)...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, msg)
			}
			got, err := os.ReadFile(raw)
			if err != nil {
				t.Fatal(err)
			}
			if changed := !bytes.Equal(got, want); changed != c.changes {
				t.Errorf("output changed: %v, want %v", changed, c.changes)
			}
		})
	}
	if _, err := buildEdited(dir, edit{"cost.go", "no such text", ""}); err == nil || !strings.Contains(err.Error(), "want once") {
		t.Errorf("an edit that meets nothing: %v", err)
	}
}

// TestAblation_Table: what is better and worse than with the part.
func TestAblation_Table(t *testing.T) {
	set := &runSet{Scenarios: []scenarioInfo{{Name: "a"}, {Name: "b"}}}
	add := func(policy string, a, b float64) {
		for i, v := range []float64{a, b} {
			set.Runs = append(set.Runs, summary{Scenario: set.Scenarios[i].Name, Policy: policy, Seed: 1, Requests: 100, Errors: i, P99: v, P999: v})
		}
	}
	add("oracle", 10, 20)
	add("the policy", 12, 24)
	for i := range parts {
		add(parts[i].name, 12, 24)
	}
	for i := range set.Runs {
		r := &set.Runs[i]
		switch {
		case r.Policy == "silence" && r.Scenario == "a":
			r.P99 = 9 // a quarter better
		case r.Policy == "silence":
			r.P99 = 60
		case r.Policy == "feedback: the queue a worker tells" && r.Scenario == "a":
			r.P99 = 13.2 // than feedback
		}
	}
	var out bytes.Buffer
	writeAblation(&out, set)
	for _, want := range []string{
		"| **nothing: the policy** | local signals, no copies | 1.20 | 1.20 a | 1.20 | 1.20 a | 0.500 |  |  |\n",
		"| silence | `SilenceFactor 100` | 1.64 | 3.00 b | 1.20 | 1.20 a | 0.500 | a 25 | b 2.5x |\n",
		"| feedback: the queue a worker tells | `FeedbackWeight 0` | 1.26 | 1.32 a | 1.20 | 1.20 a | 0.500 |  | a 10 |\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line %q in\n%s", want, out.String())
		}
	}
	if err := run([]string{"-ablate", "-judge"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "-ablate") {
		t.Errorf("-ablate with -judge: %v", err)
	}
}

// TestMarkdown_NamesWhoIsAhead: each peer beside ringwise on the same signals.
func TestMarkdown_NamesWhoIsAhead(t *testing.T) {
	set := &runSet{Scenarios: []scenarioInfo{{Name: "a"}, {Name: "b"}}}
	add := func(policy string, feedback bool, a, b float64) {
		set.Policies = append(set.Policies, policyInfo{Name: policy})
		for i, v := range []float64{a, b} {
			set.Runs = append(set.Runs, summary{Scenario: set.Scenarios[i].Name, Policy: policy, Seed: 1, Feedback: feedback, P99: v})
		}
	}
	add("oracle", false, 10, 10)
	add("ringwise", true, 12, 12)
	add("ringwise-local", false, 15, 15)
	add("told", true, 13, 11.4)   // behind, 5 % ahead
	add("local", false, 14.9, 13) // less than 1 %, 13 % ahead, though behind ringwise
	var out bytes.Buffer
	writeMarkdown(&out, set)
	want := `| p99 / oracle | a | b | geo | worst |
|---|---|---|---|---|
| oracle | 1.00 | 1.00 | 1.00 | 1.00 |
| ringwise | 1.20 | 1.20 | 1.20 | 1.20 |
| ringwise-local | 1.50 | 1.50 | 1.50 | 1.50 |
| told | 1.30 | **1.14** | 1.22 | 1.30 |
| local | 1.49 | **1.30** | 1.39 | 1.49 |

Peers ahead of ringwise on the same signals by more than 1 %: b: told by 5 %, local by 13 %.
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
