package main

import (
	"fmt"
	"time"
)

// What has to hold for exit status 0.
const (
	settleTime = 500 * time.Millisecond // a bad phase is judged from here on
	backTime   = time.Second            // the end of the recovery that is judged

	maxBadShare  = 0.05  // of the victim in each bad phase
	minBackShare = 0.12  // of the victim at the end
	maxErrors    = 0.001 // of all requests

	// The ramp: in steps of 2 s the victim may have 20, 40, 60, 80 and 100 %
	// of its fair share. No window of 500 ms may pass twice that.
	rampSteps  = 5
	rampStep   = 2 * time.Second
	rampWindow = 500 * time.Millisecond
	rampLimit  = 2.0

	// A window with fewer requests says nothing about a share of 4 %: at 500,
	// twice that is more than four standard deviations away.
	minWindow = 500
)

// rampCap is the part of its fair share, in 0..1, that a server may have so
// long after it came back.
func rampCap(since time.Duration) float64 {
	step := 1 + max(since, 0)/rampStep
	return float64(min(step, rampSteps)) / rampSteps
}

// ramp is how a recovery went.
type ramp struct {
	back time.Duration // when the victim was first asked and answered again; 0: never
	peak float64       // the most it had in any window, in units of the cap
	at   time.Duration // where that window ended
	thin int           // windows with too few requests to judge
	seen int           // windows judged
}

// judgeRamp slides a window over ss, sorted by time, stopping at every request
// from the moment that the victim was up again. The ramp's clock starts with
// the first request that it answered, whatever the policy believes.
func judgeRamp(ss samples, victim, servers int, up time.Duration) ramp {
	var r ramp
	for _, s := range ss.between(up, forever) {
		if s.server == victim && !s.failed {
			r.back = s.at
			break
		}
	}
	first, hits := 0, 0 // the window is ss[first:i+1], hits of it went to the victim
	for i, s := range ss {
		if s.server == victim {
			hits++
		}
		for ss[first].at <= s.at-rampWindow {
			if ss[first].server == victim {
				hits--
			}
			first++
		}
		n := i + 1 - first
		switch {
		case s.at < up:
		case n < minWindow:
			r.thin++
		default:
			r.seen++
			allowed := rampCap(0)
			if r.back > 0 {
				allowed = rampCap(s.at - r.back)
			}
			if x := ratio(hits, n) * float64(servers) / allowed; x > r.peak {
				r.peak, r.at = x, s.at
			}
		}
	}
	return r
}

const forever = time.Duration(1<<63 - 1)

// judge lists what went wrong; an empty list is a pass.
func judge(ss samples, spans []span, victim int, r ramp) []string {
	var wrong []string
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, s := range spans {
		part := ss.between(s.settled())
		share := part.share(victim)
		switch {
		case len(part) == 0:
			fail("no requests in %s", s.name)
		case s.bad && !(share < maxBadShare):
			fail("victim share in %s %s, want under %s", s.name, percent(share), percent(maxBadShare))
		case s.name == "recover" && !(share > minBackShare):
			fail("victim came back to %s, want over %s", percent(share), percent(minBackShare))
		}
	}
	if r.peak > rampLimit {
		fail("ramp passed: %.2f times the cap within %v", r.peak, rampWindow)
	}
	if r.thin > r.seen {
		fail("ramp not judged: too few requests in most windows")
	}
	if errors := ratio(ss.errors(), len(ss)); !(errors < maxErrors) {
		fail("errors %s, want under %s", percent(errors), percent(maxErrors))
	}
	return wrong
}

// percent writes a share with as many digits as it needs to be told from 0.
func percent(x float64) string {
	if x != 0 && x < 0.001 {
		return fmt.Sprintf("%.3f%%", 100*x)
	}
	return fmt.Sprintf("%.1f%%", 100*x)
}
