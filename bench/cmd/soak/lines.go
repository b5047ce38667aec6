package main

import (
	"fmt"
	"math"
	"os"
	"time"

	"github.com/ringwise/ringwise/bench/report"
)

// lines holds the run against the soak's targets, if their file is here.
func lines(all *client) {
	ts, err := report.Targets("targets.json")
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak: no targets:", err)
		return
	}
	over := float64(all.pick.Longest()-all.empty.Longest()) / float64(time.Millisecond)
	figures := map[string]report.Figure{
		"soak-p99.99":             {Name: "soak-p99.99", Ours: float64(all.pick.Quantile(0.9999)) / float64(time.Microsecond), Unit: "us", Ratio: math.NaN()},
		"soak-longest-over-empty": {Name: "soak-longest-over-empty", Ours: over, Unit: "ms", Ratio: math.NaN()},
	}
	got, _ := report.Lines(ts, figures, true)
	for _, l := range got {
		fmt.Println(l)
	}
}
