// Package report prints what was measured: tables, charts, and lines for
// machines that hold it against targets.
package report

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// Figure is one thing measured.
type Figure struct {
	Name  string
	Ours  float64
	Unit  string
	Best  string  // the best peer; empty where there is none
	Peer  float64 // its value
	Ratio float64 // how many times better we are; NaN without a peer
	// Low and High are the quartiles of Ratio, or of Ours without a peer.
	Low, High float64
}

// Target is the limit of a figure. One of the two is set.
type Target struct {
	Name  string
	Ratio float64 `json:",omitempty"` // the ratio is to be at least this
	Most  *float64
	Unit  string `json:",omitempty"` // of Most
}

// Targets reads the file of targets. It refuses one that says nothing, or
// that names a thing twice.
func Targets(path string) ([]Target, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var ts []Target
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(&ts); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	seen := map[string]bool{}
	for _, t := range ts {
		if t.Name == "" || seen[t.Name] || (t.Ratio > 0) == (t.Most != nil) {
			return nil, fmt.Errorf("%s: bad or double target %+v", path, t)
		}
		seen[t.Name] = true
	}
	return ts, nil
}

// Met tells whether the figure reaches the target. What is not a number never does.
func (t Target) Met(f Figure) bool {
	if t.Most != nil {
		return f.Ours <= *t.Most
	}
	return f.Ratio >= t.Ratio
}

// Line is what is printed for machines:
//
//	RATIO <name> <ours> <best peer> <ratio> <target> ok|SHORT
//
// with - where there is none.
func (t Target) Line(f Figure) string {
	verdict := "SHORT"
	if t.Met(f) {
		verdict = "ok"
	}
	best, ratio := "-", "-"
	if f.Best != "" {
		best = strings.ReplaceAll(f.Best, " ", "_")
		if f.Peer > 0 {
			best += ":" + Number(f.Peer) + f.Unit
		}
	}
	if !math.IsNaN(f.Ratio) {
		ratio = Number(f.Ratio)
	}
	target := ">=" + Number(t.Ratio)
	if t.Most != nil {
		target = "<=" + Number(*t.Most) + t.Unit
	}
	return fmt.Sprintf("RATIO %s %s%s %s %s %s %s", f.Name, Number(f.Ours), f.Unit, best, ratio, target, verdict)
}

// Lines holds figures against targets, in the targets' order. A target
// without a figure is SHORT too, unless partial says that not all was measured.
func Lines(ts []Target, fs map[string]Figure, partial bool) (lines []string, short int) {
	for _, t := range ts {
		f, ok := fs[t.Name]
		if !ok {
			if partial {
				continue
			}
			f = Figure{Name: t.Name, Ours: math.NaN(), Ratio: math.NaN()}
		}
		lines = append(lines, t.Line(f))
		if !t.Met(f) {
			short++
		}
	}
	return lines, short
}

// Number has three digits that count, and no exponent.
func Number(x float64) string {
	switch a := math.Abs(x); {
	case math.IsNaN(x) || math.IsInf(x, 0):
		return fmt.Sprint(x)
	case a >= 100 || x == math.Trunc(x):
		return strconv.FormatFloat(math.Round(x), 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(x, 'f', 1, 64)
	case a >= 0.095:
		return strconv.FormatFloat(x, 'f', 2, 64)
	default:
		return strconv.FormatFloat(x, 'g', 2, 64)
	}
}
