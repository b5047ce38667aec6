//go:build !race

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// These play whole scenarios, each in one goroutine, which the race detector
// makes thirty times slower; TestCommand_SideBySide runs under it.

func TestConfig_ExampleRuns(t *testing.T) {
	if out := output(t, "-config", "cluster.yaml"); !strings.Contains(out, "candidate-local") {
		t.Errorf("table:\n%s", out)
	}
}

// TestCommand_SameBytes: table, JSON and page do not depend on how many runs
// go side by side.
func TestCommand_SameBytes(t *testing.T) {
	var first [3]string
	for i, parallel := range []string{"1", "3"} {
		dir := t.TempDir()
		j, h := filepath.Join(dir, "r.json"), filepath.Join(dir, "r.html")
		table := output(t, "-scenario", "e", "-policy", "ringwise,ringwise-do,kratos", "-seeds", "2", "-retry", "-hedge",
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

// TestJudge_SameBytes: the judge's runs, too, give one output, whatever goes
// side by side. Of its runs this plays those of two scenarios.
func TestJudge_SameBytes(t *testing.T) {
	all, err := judgeJobs(true)
	if err != nil {
		t.Fatal(err)
	}
	var jobs []job
	for _, j := range all {
		if n := j.scenario.Name; n == "a" || n == "e" {
			jobs = append(jobs, j)
		}
	}
	var first string
	for _, parallel := range []int{1, 3} {
		set, err := play(jobs, parallel, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := set.write(&out); err != nil {
			t.Fatal(err)
		}
		_ = judge(&out, set, true) // short, since most scenarios are missing
		if first == "" {
			first = out.String()
		} else if out.String() != first {
			t.Errorf("with %d runs side by side other bytes", parallel)
		}
	}
	if !strings.Contains(first, "BAR 1-ringwise-oracle-p99-e 1.") {
		t.Errorf("no verdict in %s", first[max(0, len(first)-2000):])
	}
}
