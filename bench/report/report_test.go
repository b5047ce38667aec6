package report

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func most(x float64) *float64 { return &x }

func TestTarget_Line(t *testing.T) {
	for _, c := range []struct {
		name   string
		target Target
		figure Figure
		want   string
	}{
		{
			"ahead", Target{Name: "pair/100", Ratio: 4},
			Figure{Name: "pair/100", Ours: 110.4, Unit: "ns", Best: "go-zero p2c", Peer: 552, Ratio: 5},
			"RATIO pair/100 110ns go-zero_p2c:552ns 5 >=4 ok",
		},
		{
			"behind", Target{Name: "pair/100", Ratio: 4},
			Figure{Name: "pair/100", Ours: 110, Unit: "ns", Best: "x", Peer: 55, Ratio: 0.5},
			"RATIO pair/100 110ns x:55ns 0.50 >=4 SHORT",
		},
		{
			"a limit", Target{Name: "pick/100", Most: most(95), Unit: "ns"},
			Figure{Name: "pick/100", Ours: 95, Unit: "ns", Ratio: math.NaN()},
			"RATIO pick/100 95ns - - <=95ns ok",
		},
		{
			"over it", Target{Name: "pick/100", Most: most(0)},
			Figure{Name: "pick/100", Ours: 0.5, Ratio: math.NaN()},
			"RATIO pick/100 0.50 - - <=0 SHORT",
		},
		{
			"not measured", Target{Name: "pick/100", Most: most(95)},
			Figure{Name: "pick/100", Ours: math.NaN(), Ratio: math.NaN()},
			"RATIO pick/100 NaN - - <=95 SHORT",
		},
	} {
		if got := c.target.Line(c.figure); got != c.want {
			t.Errorf("%s: got  %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestLines_WhatWasNotMeasuredIsShort(t *testing.T) {
	ts := []Target{{Name: "a", Ratio: 2}, {Name: "b", Ratio: 2}}
	fs := map[string]Figure{"a": {Name: "a", Ratio: 3}}
	if lines, short := Lines(ts, fs, false); len(lines) != 2 || short != 1 {
		t.Errorf("got %q, %d short", lines, short)
	}
	if lines, short := Lines(ts, fs, true); len(lines) != 1 || short != 0 {
		t.Errorf("partial: got %q, %d short", lines, short)
	}
}

func TestTargets_RefusesNonsense(t *testing.T) {
	for _, text := range []string{
		`[{"Name": "a"}]`, `[{"Ratio": 2}]`, `[{"Name": "a", "Ratio": 2, "Most": 3}]`,
		`[{"Name": "a", "Ratio": 2}, {"Name": "a", "Ratio": 3}]`, `[{"Name": "a", "Least": 2}]`, `{`,
	} {
		path := filepath.Join(t.TempDir(), "targets.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Targets(path); err == nil {
			t.Errorf("took %s", text)
		}
	}
	ts, err := Targets("../targets.json")
	if err != nil || len(ts) < 20 {
		t.Errorf("the real one: %d targets, %v", len(ts), err)
	}
}

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 0.0123: "0.012", 0.5: "0.50", 1.049: "1.05", 12.34: "12.3", 99.96: "100.0", 123.4: "123", 12345: "12345", 4: "4"} {
		if got := Number(x); got != want {
			t.Errorf("%v: got %s, want %s", x, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	table := Table{Head: []string{"a", "b"}}
	table.Row("1")
	table.Row("x|y", "2")
	if got, want := table.String(), "| a | b |\n|---|---|\n| 1 |  |\n| x\\|y | 2 |\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestChart_IsXMLAndMarksOurs(t *testing.T) {
	svg := Chart("a < b", "ns", []Bar{{Name: "slow & old", Value: 1000}, {Name: "ringwise", Value: 10, Low: 9, High: 12, Ours: true}, {Name: "none"}})
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
	if strings.Count(svg, "#d9480f") != 1 || strings.Contains(svg, "none</text>") {
		t.Errorf("ours once, nothing without a value:\n%s", svg)
	}
	if strings.Index(svg, "ringwise") > strings.Index(svg, "slow &amp; old") {
		t.Error("the least comes first")
	}
	Chart("nothing", "ns", nil) // must not panic
}
