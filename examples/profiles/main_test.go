package main

import (
	"strings"
	"testing"

	"github.com/ringwise/ringwise"
)

func TestPlay_SameEachTime(t *testing.T) {
	a, err := play(ringwise.CacheAffinity())
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := play(ringwise.CacheAffinity()); a != b {
		t.Errorf("first %+v, then %+v", a, b)
	}
}

func TestRun_PrintsATable(t *testing.T) {
	var a strings.Builder
	if err := run(&a); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(a.String(), "\n"); n != 9 {
		t.Errorf("%d lines, want a head, six profiles and a note:\n%s", n, &a)
	}
}

// What the play is to show: no shipped profile herds, reports alone do.
func TestPlay_OnlyReportsAloneHerd(t *testing.T) {
	alone := ringwise.ReadHeavy()
	alone.Tuning.LiveWeight, alone.Tuning.Temperature = 0, 10
	bad, err := play(alone)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []ringwise.Profile{ringwise.Default(), ringwise.Classic(), ringwise.ReadHeavy(), ringwise.WriteHeavy(), ringwise.CacheAffinity()} {
		o, err := play(p)
		if err != nil {
			t.Fatal(err)
		}
		if o.hot > 0.01 || o.errors > 0.002 {
			t.Errorf("%s: %.3f hot, %.4f errors", p.Name, o.hot, o.errors)
		}
		if 5*o.p99 > bad.p99 || bad.hot < 0.05 {
			t.Errorf("%s: p99 %v; reports alone %v, %.3f hot: want five times and 0.05", p.Name, o.p99, bad.p99, bad.hot)
		}
	}
}
