package sim

import (
	"math/rand/v2"
	"time"
)

// further adds the scenarios beyond a-j.
func further(add func(name, title string, f func(*Scenario))) {
	add("cache", "300 tenants, each worker has the last 60 at hand, a miss takes 3x the service", func(s *Scenario) {
		s.Tenants, s.TenantZipf, s.Cache, s.Miss = 300, 1, 60, 3
		s.Load = 0.45 // of what the fleet could serve without a miss
	})
	add("apperr", "1 % application errors everywhere, 1 ms service, time-out 3 s", func(s *Scenario) {
		s.AppErrors = 0.01
		s.Service = ms
		s.Timeout = 3 * time.Second
		// The same number of requests as the others in a quarter of the time.
		s.Warmup, s.Duration = 2*time.Second, 5*time.Second
	})
	add("burst", "64 requests in flight on one connection fail at once, twice", func(s *Scenario) {
		// One client, so that a worker's load is one connection: 100 ms times
		// 960 requests a second over 15 workers is 64 in flight on each.
		s.Clients, s.Slots, s.Service, s.Timeout = 1, 92, 100*ms, 2*time.Second
		s.Changes = func(s *Scenario, r *rand.Rand) []Change {
			p := plan{s: s, r: r}
			w := r.IntN(s.Workers)
			p.add(7*time.Second, w, Cut, 0)
			p.add(11*time.Second, (w+1)%s.Workers, Cut, 0)
			return p.sorted()
		}
	})
	add("flags", "a third of the workers compacting in turn, 1.5x slower meanwhile", func(s *Scenario) {
		s.Speed = (2 + 1/1.5) / 3
		s.Changes = func(s *Scenario, r *rand.Rand) []Change {
			p := plan{s: s, r: r}
			order := r.Perm(s.Workers)
			third := s.Workers / 3
			for i, t := 0, time.Duration(0); t < s.Duration; i, t = i+1, t+4*time.Second {
				for j, w := range order {
					on := float64(0)
					if j/third == i%3 {
						on = 1
					}
					p.add(t, w, Flag, on)
					p.add(t, w, Slow, 1+0.5*on)
				}
			}
			return p.sorted()
		}
	})
	add("lost", "1 % of Observes never come, a third of the workers 3x slower", func(s *Scenario) {
		hetero(s)
		s.Lost = 0.01
	})
	add("rolling", "every worker restarts in turn", func(s *Scenario) {
		s.Duration = 5*time.Second + 15*1200*ms + 6*time.Second
		s.Changes = func(s *Scenario, r *rand.Rand) []Change {
			p := plan{s: s, r: r}
			for i, w := range r.Perm(s.Workers) {
				at := 5*time.Second + time.Duration(i)*1200*ms
				// A clean stop: what is inside breaks, connections are refused
				// for half a second, then a cold start.
				p.add(at, w, Cut, 0)
				p.window(at, at+500*ms, w, Refuse)
				p.cold(at+500*ms, at+1500*ms, w, 3)
			}
			return p.sorted()
		}
	})
	add("zone", "one rack of three, 3x slower from 6 to 11 s", func(s *Scenario) {
		s.Load = 0.5 // the two good racks can carry it all
		s.Changes = func(s *Scenario, r *rand.Rand) []Change {
			p := plan{s: s, r: r}
			rack := r.IntN(3)
			for w := range s.Workers {
				if w%3 == rack {
					p.slow(6*time.Second, 11*time.Second, w, 3)
				}
			}
			return p.sorted()
		}
	})
	add("brownout", "all workers 2x slower for 2 s", func(s *Scenario) {
		s.Changes = func(s *Scenario, r *rand.Rand) []Change {
			p := plan{s: s, r: r}
			for w := range s.Workers {
				p.slow(7*time.Second, 9*time.Second, w, 2)
			}
			return p.sorted()
		}
	})
	add("hotnodes", "zipf keys: share of workers over 1.5x the mean load", func(s *Scenario) {
		s.Zipf, s.Keys = 1, 10000
	})
}
