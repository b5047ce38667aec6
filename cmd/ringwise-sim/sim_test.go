package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dop251/goja"
	"github.com/ringwise/ringwise/internal/sim"
)

func output(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestCommand_SideBySide: runs that play side by side share nothing: a second of
// a small cluster, two Tunings, gives one output. Meant for the race detector;
// whole scenarios are in samebytes_test.go.
func TestCommand_SideBySide(t *testing.T) {
	dir := t.TempDir()
	small := filepath.Join(dir, "small.yaml")
	yaml := "cluster: {workers: 5, clients: 3, warmup: 500ms, duration: 1s}\ntunings:\n  one: {}\n  two: {LoadWeight: 3}\n"
	if err := os.WriteFile(small, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	var first string
	for _, parallel := range []string{"1", "4"} {
		j, h := filepath.Join(dir, parallel+".json"), filepath.Join(dir, parallel+".html")
		got := output(t, "-config", small, "-seeds", "2", "-hedge", "-parallel", parallel, "-json", j, "-html", h)
		for _, name := range []string{j, h} {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got += string(raw)
		}
		if first == "" {
			first = got
		} else if got != first {
			t.Errorf("with -parallel %s other bytes", parallel)
		}
	}
	if !strings.Contains(first, "two-local") {
		t.Errorf("output:\n%.2000s", first)
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

// fakePage stands for the browser: elements by their ids, and what was drawn.
// Anything that would fetch is missing here, so a script that fetches fails.
const fakePage = `
const nodes = {};
for (const id of ids) nodes[id] = { value: "", innerHTML: "", textContent: "" };
nodes.figure.value = "p99";
const document = { getElementById: id => nodes[id] };
const count = (id, what) => nodes[id].innerHTML.split(what).length - 1;
const report = () => ({
  title: nodes.title.textContent, cells: count("heat", 'class="c'), lines: count("cdf", "<polyline"),
  share: count("share", "<rect"), state: count("state", "<rect"),
  bad: ["cdf", "heat", "share", "state"].filter(id => /NaN|undefined|Infinity|null/.test(nodes[id].innerHTML)),
});`

// asAUser looks, chooses another figure and the last scenario, and looks again.
const asAUser = `
const out = [report()];
nodes.figure.value = "p99.9"; nodes.figure.onchange();
const options = nodes.scenario.innerHTML.split('value="');
nodes.scenario.onchange({ target: { value: options[options.length - 1].split('"')[0] } });
out.push(report());
JSON.stringify(out)`

// TestPage_Draws runs the page's script and looks at what it draws.
func TestPage_Draws(t *testing.T) {
	h := filepath.Join(t.TempDir(), "r.html")
	output(t, "-scenario", "d,e", "-policy", "ringwise-local,random", "-html", h)
	page, err := os.ReadFile(h)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, m := range regexp.MustCompile(`id="([a-zA-Z]+)"`).FindAllSubmatch(page, -1) {
		ids = append(ids, string(m[1]))
	}
	script := regexp.MustCompile(`(?s)<script>(.*?)</script>`).FindSubmatch(page)
	if script == nil {
		t.Fatal("no script")
	}
	vm := goja.New()
	if err := vm.Set("ids", ids); err != nil {
		t.Fatal(err)
	}
	var raw string
	for _, code := range []string{fakePage, string(script[1]), asAUser} {
		v, err := vm.RunString(code)
		if err != nil {
			t.Fatal(err)
		}
		raw = v.String()
	}
	var drawn []struct {
		Title                      string
		Cells, Lines, Share, State int
		Bad                        []string
	}
	if err := json.Unmarshal([]byte(raw), &drawn); err != nil || len(drawn) != 2 {
		t.Fatalf("%v\n%s", err, raw)
	}
	for i, d := range drawn {
		// 3 policies in 2 scenarios; the lines of those that start ticked;
		// 15 workers in 160 buckets.
		if d.Title != "ringwise-sim" || d.Cells != 6 || d.Lines != 2 || d.Share < 2000 || i == 1 && d.State < 10 || len(d.Bad) > 0 {
			t.Errorf("drawing %d: %+v", i, d)
		}
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
		{"tuning field twice", "tunings:\n  x:\n    MaxOut: 1\n    MaxOut: 0.5\n", "c.yaml:4: tunings.x.MaxOut: given twice: want each field once"},
		{"tuning twice", "tunings:\n  x: {}\n  x: {}\n", "c.yaml:3: tunings.x: given twice: want each name once"},
		{"long name", "cluster: {" + strings.Repeat("x", 1000) + ": 1}\n", "cluster." + strings.Repeat("x", 192) + ": unknown field"},
		{"list", "cluster:\n  - 1\n", "c.yaml:2: cluster: want a mapping of app_errors"},
		{"more candidates than workers", "cluster: {workers: 2}\n", "Replicas 3"},
		{"syntax", "cluster: [\n", "c.yaml: yaml: line"},
		{"slots x duration", "cluster:\n  workers: 3\n  duration: 24h\n  service: {mean: 1us}\n  slots: 100000\n", "c.yaml:3: cluster.duration: sim: 1.81e+16 requests in 24h0m0s: want at most 50000000; lower Duration"},
		{"workers x duration", "cluster: {workers: 10000, duration: 24h, service: {mean: 1h}, load: 0.01}\n", "c.yaml:1: cluster.duration: sim: a series of 8.64e+09 (10000 workers, every 100ms for 24h0m0s): want at most 20000000; lower Duration or Workers"},
		{"requests of an hour", "cluster: {workers: 3, service: {mean: 1us}, duration: 1h, slots: 1000}\n", "c.yaml:1: cluster.duration: sim: 7.56e+12 requests"},
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
			if err := errors.Join(c.scenario.Validate(), c.scenario.Fits(sim.Options{})); err != nil {
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

// TestFrom_Errors: a file that tables cannot be made of is refused with the
// field at fault, whatever is to be printed.
func TestFrom_Errors(t *testing.T) {
	const heads = `"scenarios":[{"name":"a"}],"policies":[{"name":"oracle"},{"name":"ringwise"}],`
	one := func(more string) string {
		return `{` + heads + `"runs":[{"scenario":"a","policy":"oracle","requests":9,"p50_ms":1,"p90_ms":1,"p999_ms":1,` + more + `}]}`
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "r.json")
	for _, c := range []struct{ json, want string }{
		{`{"policies":[{"name":"ringwise"}],"runs":[{}]}`, "scenarios: empty"},
		{`{"scenarios":[{"name":"a"}],"runs":[{}]}`, "policies: empty"},
		{`{` + heads + `"runs":[]}`, "no runs in it"},
		{`{` + heads + `"runs":[{}]}`, `runs[0].scenario: "": want one of scenarios`},
		{`{` + heads + `"runs":[{"scenario":"a","policy":"x"}]}`, `runs[0].policy: "x": want one of policies`},
		{one(`"p99_ms":0`), "runs[0].p99_ms: 0: want 0.001 to 1e+15 ms"},
		{one(`"p99_ms":1e-320`), "runs[0].p99_ms: 1e-320: want"},
		{one(`"p99_ms":-1`), "runs[0].p99_ms: -1: want"},
		{one(`"p99_ms":1e300`), "runs[0].p99_ms: 1e+300: want"},
		{one(`"p99_ms":1,"cdf_ms":[1]`), "runs[0].cdf_ms: 1 figures: want none or 81"},
		{one(`"p99_ms":1`), ""},
		{`{` + heads + `"runs":[{"scenario":"a","policy":"oracle"}]}`, ""}, // nothing measured
	} {
		if err := os.WriteFile(name, []byte(c.json), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{}, {"-markdown"}, {"-html", filepath.Join(dir, "p.html")}} {
			var out bytes.Buffer
			err := run(append(args, "-from", name), &out, io.Discard)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), name+": "+c.want) {
				t.Errorf("%v of %s: error %v, want %q", args, c.json, err, c.want)
			}
			if strings.Contains(out.String(), "Inf") {
				t.Errorf("%v of %s:\n%s", args, c.json, &out)
			}
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// TestOutput_Full: what cannot be written is an error, so the exit status tells.
func TestOutput_Full(t *testing.T) {
	name := filepath.Join(t.TempDir(), "r.json")
	json := `{"scenarios":[{"name":"a"}],"policies":[{"name":"oracle"}],"runs":[{"scenario":"a","policy":"oracle"}]}`
	if err := os.WriteFile(name, []byte(json), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-list"}, {"-from", name}, {"-from", name, "-markdown"}, {"-from", name, "-judge"}} {
		if err := run(args, full{}, io.Discard); err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("%v: error %v, want that of the writer", args, err)
		}
	}
}
