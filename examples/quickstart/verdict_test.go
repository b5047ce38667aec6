package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestRampCap(t *testing.T) {
	for _, c := range []struct {
		since time.Duration
		want  float64
	}{
		{-time.Second, 0.2},
		{0, 0.2},
		{2*time.Second - 1, 0.2},
		{2 * time.Second, 0.4},
		{5 * time.Second, 0.6},
		{7 * time.Second, 0.8},
		{8 * time.Second, 1},
		{time.Hour, 1},
	} {
		if got := rampCap(c.since); got != c.want {
			t.Errorf("rampCap(%v) = %v, want %v", c.since, got, c.want)
		}
	}
}

// traffic is a request a quarter of a millisecond in [from, to), of which the
// victim, server 0, gets an even share; the rest go to server 1.
func traffic(from, to time.Duration, share float64) samples {
	var ss samples
	credit := 0.0
	for at := from; at < to; at += 250 * time.Microsecond {
		s := sample{at: at, took: time.Millisecond, server: 1}
		if credit += share; credit >= 1 {
			credit--
			s.server = 0
		}
		ss = append(ss, s)
	}
	return ss
}

// staircase is the recovery of a victim that is up at from and gets factor
// times the cap in each step.
func staircase(from time.Duration, factor float64) samples {
	var ss samples
	for step := range time.Duration(rampSteps) {
		at := from + step*rampStep
		ss = append(ss, traffic(at, at+rampStep, factor*rampCap(step*rampStep)/5)...)
	}
	return ss
}

func TestJudgeRamp(t *testing.T) {
	const up = time.Second
	quiet := traffic(0, up, 0)
	for _, c := range []struct {
		name     string
		ss       samples
		min, max float64 // of the peak
	}{
		{"never back", traffic(0, 12*time.Second, 0), 0, 0},
		{"at the cap", append(quiet, staircase(up, 1)...), 0.95, 1.05},
		{"over twice the cap", append(quiet, staircase(up, 2.1)...), 2.05, 2.2},
		{"a jump to the fair share", append(quiet, traffic(up, 12*time.Second, 0.2)...), 4.8, 5.1},
		{"cooldown first", append(traffic(0, 3*time.Second, 0), staircase(3*time.Second, 1)...), 0.95, 1.05},
		{"burst of 300 ms", append(append(quiet, traffic(up, up+300*time.Millisecond, 0.2)...), traffic(up+300*time.Millisecond, 12*time.Second, 0)...), 2.9, 3.1},
		{"full before it was up", append(traffic(0, up, 0.2), traffic(up+rampWindow, 12*time.Second, 0)...), 0, 0.1},
	} {
		r := judgeRamp(c.ss, 0, 5, up)
		if r.peak < c.min || r.peak > c.max {
			t.Errorf("%s: peak %.3f at %v, want %.2f..%.2f", c.name, r.peak, r.at, c.min, c.max)
		}
	}
}

func TestJudgeRamp_LeavesThinWindowsOut(t *testing.T) {
	ss := samples{{at: 2 * time.Second, server: 0}, {at: 2*time.Second + 1, server: 0}}
	r := judgeRamp(ss, 0, 5, time.Second)
	if r.peak != 0 || r.thin != 2 || r.seen != 0 {
		t.Errorf("got %+v, want two thin windows and no peak", r)
	}
	if wrong := judge(ss, nil, 0, r); len(wrong) != 1 || !strings.Contains(wrong[0], "not judged") {
		t.Errorf("a ramp nobody could judge must not pass: %q", wrong)
	}
}

func TestJudge(t *testing.T) {
	spans := []span{
		{"warm", false, 0, 2 * time.Second},
		{"slow", true, 2 * time.Second, 5 * time.Second},
		{"recover", false, 5 * time.Second, 20 * time.Second},
	}
	play := func(slow, back float64) samples {
		ss := traffic(0, 2*time.Second, 0.2)
		ss = append(ss, traffic(2*time.Second, 2*time.Second+settleTime, 0.2)...) // not judged
		ss = append(ss, traffic(2*time.Second+settleTime, 5*time.Second, slow)...)
		return append(ss, traffic(5*time.Second, 20*time.Second, back)...)
	}
	failing := play(0.01, 0.2)
	for i := range len(failing)/1000 + 1 {
		failing[i].failed = true
	}
	for _, c := range []struct {
		name string
		ss   samples
		peak float64
		want string // part of the one reason; empty: a pass
	}{
		{"pass", play(0.01, 0.2), 2, ""},
		{"just under", play(0.049, 0.125), 1, ""},
		{"still asked", play(0.051, 0.2), 1, "victim share in slow 5.1%"},
		{"not back", play(0.01, 0.11), 1, "came back to 11.0%"},
		{"ramp", play(0.01, 0.2), 2.01, "ramp passed: 2.01"},
		{"errors", failing, 1, "errors 0.1%"},
		{"nothing sent", play(0.01, 0.2).between(0, 5*time.Second), 1, "no requests in recover"},
	} {
		wrong := judge(c.ss, spans, 0, ramp{peak: c.peak, seen: 1})
		got := strings.Join(wrong, "; ")
		if c.want == "" && got != "" || c.want != "" && (len(wrong) != 1 || !strings.Contains(got, c.want)) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	sorted := make([]time.Duration, 100)
	for i := range sorted {
		sorted[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		q    float64
		want time.Duration
	}{{0, 1}, {0.5, 50}, {0.99, 99}, {1, 100}} {
		if got := quantile(sorted, c.q); got != c.want {
			t.Errorf("quantile(1..100, %v) = %d, want %d", c.q, got, c.want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("quantile of nothing = %d, want 0", got)
	}
}

func TestScreen(t *testing.T) {
	rows := []row{{id: "kv-0", share: 0.007, inFlight: 2, p50: time.Millisecond, p99: 2 * time.Millisecond, errors: 3, state: "cooldown"}}
	var plain, live bytes.Buffer
	p, l := screen{out: &plain}, screen{out: &live, live: true}
	for _, s := range []*screen{&p, &l} {
		s.show("slow", rows)
		s.show("slow", rows)
		s.say("phase=%s", "slow")
	}
	line := "slow kv-0 share=0.7% in_flight=2 p50=1.0ms p99=2.0ms errors=3 state=cooldown\n"
	if got, want := plain.String(), line+line+"phase=slow\n"; got != want {
		t.Errorf("plain: got %q, want %q", got, want)
	}
	if got := strings.Count(live.String(), "\x1b[3A\x1b[J"); got != 2 {
		t.Errorf("live: drew over %d times, want 2: %q", got, live.String())
	}
}
