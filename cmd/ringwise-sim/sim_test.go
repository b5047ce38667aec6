package main

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func output(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestCommand_SameBytes: table, JSON and page do not depend on how many runs
// go side by side.
func TestCommand_SameBytes(t *testing.T) {
	var first [3]string
	for i, parallel := range []string{"1", "3"} {
		dir := t.TempDir()
		j, h := filepath.Join(dir, "r.json"), filepath.Join(dir, "r.html")
		table := output(t, "-scenario", "e", "-policy", "ringwise,ringwise-do,kratos", "-seeds", "2", "-retry",
			"-parallel", parallel, "-json", j, "-html", h)
		raw, err := os.ReadFile(j)
		if err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(h)
		if err != nil {
			t.Fatal(err)
		}
		got := [3]string{table, string(raw), string(page)}
		if i > 0 && got != first {
			t.Errorf("with -parallel %s other bytes", parallel)
		}
		first = got
	}
	if !strings.Contains(first[0], "p99 / oracle") || !strings.Contains(first[0], "ringwise-do") {
		t.Errorf("table:\n%s", first[0])
	}
}

// TestCommand_FromJSON: the tables come from the raw output and nothing else.
func TestCommand_FromJSON(t *testing.T) {
	j := filepath.Join(t.TempDir(), "r.json")
	direct := output(t, "-scenario", "a", "-policy", "random", "-json", j)
	if again := output(t, "-from", j); again != direct {
		t.Errorf("from JSON:\n%s\nwant\n%s", again, direct)
	}
}

// TestPage_StandsAlone: one file, nothing fetched, its data well formed.
func TestPage_StandsAlone(t *testing.T) {
	h := filepath.Join(t.TempDir(), "r.html")
	output(t, "-scenario", "d", "-policy", "ringwise", "-html", h)
	page, err := os.ReadFile(h)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"http:", "https:", "src=", "@import", "url(", "/*DATA*/"} {
		if bytes.Contains(page, []byte(bad)) {
			t.Errorf("the page holds %q", bad)
		}
	}
	m := regexp.MustCompile(`(?m)^const data = (.*);$`).FindSubmatch(page)
	if m == nil {
		t.Fatal("no data in the page")
	}
	var data struct {
		Set   runSet
		Cells map[string][][]*float64
	}
	if err := json.Unmarshal(m[1], &data); err != nil {
		t.Fatal(err)
	}
	r := data.Set.Runs[1]
	if r.Policy != "ringwise" || len(r.CDF) != len(cdfNines) || len(r.Share) != 160 || len(r.Share[0]) != 15 {
		t.Errorf("run %s: %d points, %d buckets", r.Policy, len(r.CDF), len(r.Share))
	}
	if got := *data.Cells["p99"][0][0]; got != 1 {
		t.Errorf("the oracle's ratio to itself: %v", got)
	}
}

func TestConfig_Example(t *testing.T) {
	c, err := loadConfig("cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := &c.scenario
	if s.Workers != 12 || s.ServiceDist.Kind != "lognormal" || s.Load != 0.65 || s.Keys != 5000 {
		t.Errorf("%+v", s)
	}
	if got := len(s.Changes(s, nil)); got != 7 {
		t.Errorf("%d changes, want 7", got)
	}
	if len(c.policies) != 4 || c.policies[2].Name != "candidate" || c.policies[3].Feedback {
		t.Errorf("policies %v", c.policies)
	}
	if out := output(t, "-config", "cluster.yaml"); !strings.Contains(out, "candidate-local") {
		t.Errorf("table:\n%s", out)
	}
}

// TestConfig_Errors: each names file, line, field and what is allowed.
func TestConfig_Errors(t *testing.T) {
	for _, c := range []struct{ name, yaml, want string }{
		{"empty", "", "c.yaml:1: cluster"},
		{"unknown", "cluster:\n  wokers: 3\n", "c.yaml:2: cluster.wokers: unknown field: want one of app_errors"},
		{"range", "cluster:\n  workers: 5\n  slots: -1\n", "c.yaml:3: cluster.slots: -1: want a whole number from 1 to 100000"},
		{"nan", "cluster:\n  load: .nan\n", "c.yaml:2: cluster.load: .nan: want a number from 0.01 to 1.5"},
		{"duration", "cluster:\n  timeout: 250\n", "c.yaml:2: cluster.timeout: 250: want a duration such as 250ms"},
		{"kind", "cluster:\n  service: {kind: gauss}\n", "c.yaml:2: cluster.service.kind: gauss: want exponential"},
		{"twice", "cluster:\n  slots: 1\n  slots: 2\n", "3: cluster.slots: given twice"},
		{"rate", "cluster:\n  rate: 1e8\n", "c.yaml:2: cluster.rate"},
		{"worker", "cluster: {workers: 3}\nevents:\n  - {at: 1s, workers: [3], slow: 2}\n", "c.yaml:3: events.workers: 3: want 0 to 2"},
		{"no kind of event", "events:\n  - {at: 1s, workers: [1]}\n", "c.yaml:2: events[0]: want one of slow"},
		{"two kinds of event", "events:\n  - {workers: [1], slow: 2, pause: 1s}\n", "c.yaml:2: events[0].pause"},
		{"until", "events:\n  - {at: 2s, until: 1s, workers: [1], fail: true}\n", "events[0].until: want a time after at"},
		{"tuning field", "tuning: {}\n", "c.yaml:1: tuning: unknown field: want one of cluster, events, tunings"},
		{"unknown tuning", "tunings:\n  x:\n    Nope: 3\n", "c.yaml:3: tunings.x.Nope: 3: want a field of Tuning"},
		{"tuning range", "tunings:\n  x:\n    LatencyTau: 50ms\n    Temperature: -1\n", "c.yaml:4: tunings.x.Temperature: -1: want"},
		{"list", "cluster:\n  - 1\n", "c.yaml:2: cluster: want a mapping of app_errors"},
		{"more candidates than workers", "cluster: {workers: 2}\n", "Replicas 3"},
		{"syntax", "cluster: [\n", "c.yaml: yaml: line"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseConfig("c.yaml", []byte(c.yaml))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q, want it to hold %q", err, c.want)
			}
		})
	}
	// All faults at once.
	_, err := parseConfig("c.yaml", []byte("cluster:\n  slots: 0\n  load: 9\n"))
	if err == nil || strings.Count(err.Error(), "c.yaml:") != 2 {
		t.Errorf("error %q, want two lines", err)
	}
}

func FuzzParseConfig(f *testing.F) {
	data, err := os.ReadFile("cluster.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("cluster: {rate: 1}\nevents: [{at: 1s}]\ntunings: {a: {}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseConfig("f", data)
		if err == nil {
			if err := c.scenario.Validate(); err != nil {
				t.Errorf("accepted, and then: %v", err)
			}
		}
	})
}

func TestFlags_Errors(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-scenario", "zzz"}, "no scenario zzz"},
		{[]string{"-policy", "zzz"}, "no policy zzz"},
		{[]string{"-seeds", "0"}, "-seeds 0"},
		{[]string{"-load", "NaN"}, "-load NaN"},
		{[]string{"-parallel", "0"}, "-parallel 0"},
		{[]string{"-quick"}, "-judge"},
		{[]string{"more"}, `"more"`},
		{[]string{"-config", "nosuch.yaml"}, "nosuch.yaml"},
		{[]string{"-from", "nosuch.json"}, "nosuch.json"},
	} {
		if err := run(c.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want %q", c.args, err, c.want)
		}
	}
}

// judged is a raw set made by hand: two seeds, one scenario, three policies.
func judged(p99 map[string][2]float64) *runSet {
	set := &runSet{Scenarios: []scenarioInfo{{Name: "a"}}}
	for p, v := range p99 {
		set.Policies = append(set.Policies, policyInfo{Name: p})
		for seed, x := range v {
			set.Runs = append(set.Runs, summary{Scenario: "a", Policy: p, Seed: uint64(seed + 1), Load: 0.7, Requests: 1000, Errors: seed, P99: x})
		}
	}
	return set
}

func TestJudge_ComputesFromRawRuns(t *testing.T) {
	set := judged(map[string][2]float64{"oracle": {10, 20}, "ringwise": {12, 30}, "p": {11, 24}, "q": {20, 20}})
	for _, c := range []struct {
		b    bar
		want float64
		note string
	}{
		{bar{Kind: "oracle", Policy: "ringwise", Figure: "p99"}, math.Sqrt(1.2 * 1.5), ""},
		{bar{Kind: "policy", Policy: "ringwise", Than: "q", Figure: "p99"}, math.Sqrt(0.6 * 1.5), ""},
		{bar{Kind: "peer", Policy: "ringwise", Figure: "p99"}, math.Sqrt(1.2 * 1.5 / (1.1 * 1.2)), " (p)"},
		{bar{Kind: "errors", Policy: "ringwise"}, 0.0005, ""},
	} {
		got, note, ok := set.value(&c.b, "a")
		if !ok || math.Abs(got-c.want) > 1e-12 || note != c.note {
			t.Errorf("%s: %v %q %v, want %v %q", c.b.Kind, got, note, ok, c.want, c.note)
		}
	}
	if _, _, ok := set.value(&bar{Kind: "oracle", Policy: "nobody", Figure: "p99"}, "a"); ok {
		t.Error("a policy without runs has a value")
	}
}

func TestJudge_Lines(t *testing.T) {
	var out bytes.Buffer
	missed, goal := 0, 0
	b := bar{Bar: 1, Kind: "oracle", Policy: "ringwise", Figure: "p99", Limit: 1.8}
	b.verdict(&out, "a", 1.80001, "", &missed, &goal) // as printed: 1.8
	b.verdict(&out, "b", 1.801, "", &missed, &goal)
	b.verdict(&out, "c", math.NaN(), "", &missed, &goal)
	b.Bar = 7
	b.verdict(&out, "d", 9, " (p)", &missed, &goal)
	want := "BAR 1-ringwise-oracle-p99-a 1.8 1.8 ok\nBAR 1-ringwise-oracle-p99-b 1.801 1.8 SHORT\n" +
		"BAR 1-ringwise-oracle-p99-c NaN 1.8 SHORT\nBAR 7-ringwise-oracle-p99-d 9 1.8 SHORT (p)\n"
	if out.String() != want || missed != 2 || goal != 1 {
		t.Errorf("%d %d\n%s", missed, goal, out.String())
	}
}

// TestBars_AllOfThePolicyPage: the file is complete and each bar has its runs.
func TestBars_HaveTheirRuns(t *testing.T) {
	bs, err := loadBars()
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := judgeJobs(false)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, b := range bs.Bars {
		seen[b.Bar] = true
		if _, ok := quantiles[b.Figure]; !ok && b.Figure != "" {
			t.Errorf("bar %d: figure %q", b.Bar, b.Figure)
		}
		for _, s := range bs.Scenarios {
			if !b.covers(s) {
				continue
			}
			n := 0
			for _, j := range jobs {
				if j.scenario.Name == s && j.policy.Name == b.Policy && j.scenario.Load == b.load() && j.scenario.Lost == b.Lost &&
					j.options.Hedge == b.Hedge && j.options.Retry == b.Retry {
					n++
				}
			}
			if n != 5 {
				t.Errorf("bar %d %s %s in %s: %d runs, want one for each of 5 seeds", b.Bar, b.Policy, b.Kind, s, n)
			}
		}
	}
	for n := 1; n <= 7; n++ {
		if !seen[n] {
			t.Errorf("no bar %d", n)
		}
	}
}

// TestMeasuredCodeDoesNotKnowTheBars: neither the library nor the simulator
// reads the limits.
func TestMeasuredCodeDoesNotKnowTheBars(t *testing.T) {
	for _, dir := range []string{"../..", "../../internal/sim"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, f := range files {
			src, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(src, []byte("bars.json")) {
				t.Errorf("%s names bars.json", f)
			}
		}
	}
}

func TestList(t *testing.T) {
	out := output(t, "-list")
	for _, want := range []string{"rolling", "scan-peak-ewma", "NSDI"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing:\n%s", want, out)
		}
	}
}
