package main

import "time"

// phase is one act of the play: what is done to the victim, and for how long
// the callers live with it.
type phase struct {
	name  string
	lasts time.Duration
	bad   bool // the victim should be left alone
	begin func(victim *server) error
}

// The recovery has to outlast the longest cooldown (CooldownMax and its
// jitter, 2.5 s) and the ramp of 10 s.
var scenario = []phase{
	{"warm", 2 * time.Second, false, func(*server) error { return nil }},
	{"slow", 3 * time.Second, true, func(s *server) error {
		s.setService(10 * serviceTime)
		return nil
	}},
	{"fastfail", 3 * time.Second, true, func(s *server) error {
		s.setService(serviceTime)
		s.setFailing(true)
		return nil
	}},
	{"crash", 3 * time.Second, true, func(s *server) error {
		s.setFailing(false)
		s.close()
		return nil
	}},
	{"recover", 13500 * time.Millisecond, false, func(s *server) error {
		return s.open() // with no data: cold
	}},
}

// span is a phase as it was played.
type span struct {
	name     string
	bad      bool
	from, to time.Duration // since the start
}

// settled is the part of a span that shares are measured in: all but the
// first half second, which a policy may take to notice, and of the recovery
// the last second, when the victim should be back.
func (s span) settled() (from, to time.Duration) {
	if s.name == "recover" {
		return max(s.from, s.to-backTime), s.to
	}
	return min(s.from+settleTime, s.to), s.to
}
