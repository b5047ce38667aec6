package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

const ms = time.Millisecond

// Scenarios returns the built-in scenarios: a to j, which the bars are about,
// and the further ones.
func Scenarios() []Scenario {
	var out []Scenario
	add := func(name, title string, f func(s *Scenario)) {
		s := DefaultScenario()
		s.Name, s.Title = name, title
		if f != nil {
			f(&s)
		}
		out = append(out, s)
	}
	add("a", "homog: nothing happens", nil)
	add("b", "hetero: a third of the workers 3x slower", hetero)
	add("c", "vary: every 200 ms each worker is, by a coin, 3x slower or not", func(s *Scenario) {
		s.Speed = (1 + 1.0/3) / 2
		s.Changes = func(s *Scenario, r *rand.Rand) []Change {
			p := plan{s: s, r: r}
			for t := time.Duration(0); t < s.Duration; t += 200 * ms {
				for w := range s.Workers {
					p.add(t, w, Slow, 1+2*float64(r.IntN(2)))
				}
			}
			return p.sorted()
		}
	})
	add("d", "gray: one worker 10x slower from 6 to 11 s", func(s *Scenario) {
		s.Changes = func(s *Scenario, r *rand.Rand) []Change {
			p := plan{s: s, r: r}
			p.slow(6*time.Second, 11*time.Second, r.IntN(s.Workers), 10)
			return p.sorted()
		}
	})
	add("e", "fastfail: one worker fails at once from 6 to 11 s", func(s *Scenario) {
		s.Changes = func(s *Scenario, r *rand.Rand) []Change {
			p := plan{s: s, r: r}
			p.window(6*time.Second, 11*time.Second, r.IntN(s.Workers), Fail)
			return p.sorted()
		}
	})
	add("f", "gc: each worker pauses 200 ms about every 6 s", func(s *Scenario) {
		s.Changes = func(s *Scenario, r *rand.Rand) []Change {
			p := plan{s: s, r: r}
			const gap = 6 * time.Second
			for w := range s.Workers {
				t := time.Duration(r.Float64() * float64(gap))
				for ; t < s.Duration; t += 200*ms + time.Duration((0.5+r.Float64())*float64(gap)) {
					p.add(t, w, Pause, 0.2)
				}
			}
			return p.sorted()
		}
	})
	add("g", "hotkey: one key takes 10 % of the traffic", func(s *Scenario) { s.HotKey = 0.1 })
	add("h", "stale: a third of the workers 3x slower, every 1.5 s two of them change places with two others, reports 1 s late", func(s *Scenario) {
		s.Speed = (2 + 1.0/3) / 3
		s.ReportDelay = time.Second
		s.Changes = func(s *Scenario, r *rand.Rand) []Change {
			p := plan{s: s, r: r}
			order := r.Perm(s.Workers)
			slow, fast := order[:s.Workers/3], order[s.Workers/3:]
			for i, t := 0, time.Duration(0); t < s.Duration; i, t = i+1, t+1500*ms {
				for k := 2 * i; i > 0 && k < 2*i+2 && len(slow) > 0; k++ {
					a, b := &slow[k%len(slow)], &fast[k%len(fast)]
					*a, *b = *b, *a
				}
				for _, w := range slow {
					p.add(t, w, Slow, 3)
				}
				for _, w := range fast {
					p.add(t, w, Slow, 1)
				}
			}
			return p.sorted()
		}
	})
	add("i", "restart: a worker crashes at 6 s, silent, then refusing, and comes back cold", func(s *Scenario) {
		s.Changes = func(s *Scenario, r *rand.Rand) []Change {
			p := plan{s: s, r: r}
			p.restart(6*time.Second, r.IntN(s.Workers))
			return p.sorted()
		}
	})
	add("j", "sparse: 300 clients, a third of the workers 3x slower", func(s *Scenario) {
		s.Clients = 300
		hetero(s)
	})
	further(add)
	return out
}

// hetero makes a third of the workers 3x slower.
func hetero(s *Scenario) {
	s.Speed = (2 + 1.0/3) / 3
	s.Changes = func(s *Scenario, r *rand.Rand) []Change {
		p := plan{s: s, r: r}
		for _, w := range r.Perm(s.Workers)[:s.Workers/3] {
			p.add(0, w, Slow, 3)
		}
		return p.sorted()
	}
}

// restart is a machine that goes down: for a second nothing answers, then for
// two the machine is up and refuses connections, then the process serves, its
// cache cold, 5x slower at first and warm after three seconds.
func (p *plan) restart(at time.Duration, w int) {
	p.add(at, w, Crash, 0)
	p.window(at, at+time.Second, w, Dead)
	p.window(at+time.Second, at+3*time.Second, w, Refuse)
	p.cold(at+3*time.Second, at+6*time.Second, w, 5)
}

// ScenarioByName finds built-in scenarios: names by comma, "all", or "a-j".
func ScenarioByName(names string) ([]Scenario, error) {
	all := Scenarios()
	if names == "all" {
		return all, nil
	}
	var out []Scenario
	var unknown []string
	for n := range strings.SplitSeq(names, ",") {
		n = strings.TrimSpace(n)
		found := false
		for _, s := range all {
			if s.Name == n || n == "a-j" && len(s.Name) == 1 {
				out = append(out, s)
				found = true
			}
		}
		if !found {
			unknown = append(unknown, n)
		}
	}
	if unknown != nil {
		var have []string
		for _, s := range all {
			have = append(have, s.Name)
		}
		return nil, fmt.Errorf("sim: no scenario %s; there are %s, a-j and all", strings.Join(unknown, ", "), strings.Join(have, " "))
	}
	return out, nil
}
