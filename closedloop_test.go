package ringwise_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/ringwise/ringwise"
	"github.com/ringwise/ringwise/internal/sim"
)

// Closed-loop properties: the router's picks make the load that it then
// measures. internal/sim plays the workers; all seeds are fixed. Under the race
// detector a part of the cases runs, which the log says.

// loop is a fleet for these tests: what is left out is as in sim.DefaultScenario.
func loop(workers, clients int, load float64, service, duration time.Duration) sim.Scenario {
	s := sim.DefaultScenario()
	s.Name, s.Workers, s.Clients, s.Load = "loop", workers, clients, load
	s.Partitions = 16 * workers
	s.Service, s.Warmup, s.Duration = service, 0, duration
	return s
}

func playLoop(t *testing.T, s sim.Scenario, f sim.Factory, o sim.Options) *sim.Result {
	t.Helper()
	r, err := sim.Run(s, f, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// fewer is cases, or the first n of them under the race detector.
func fewer[T any](t *testing.T, cases []T, n int) []T {
	t.Helper()
	if !underRace || len(cases) <= n {
		return cases
	}
	t.Logf("under the race detector: %d of %d cases", n, len(cases))
	return cases[:n]
}

// square switches a change on one worker on and off from the third second on.
func square(worker int, kind sim.ChangeKind, on, off float64, period time.Duration) func(*sim.Scenario, *rand.Rand) []sim.Change {
	return func(s *sim.Scenario, _ *rand.Rand) (cs []sim.Change) {
		for at := 3 * time.Second; at < s.Duration; at += period {
			cs = append(cs, sim.Change{At: at, Worker: worker, Kind: kind, Value: on},
				sim.Change{At: at + period/2, Worker: worker, Kind: kind, Value: off})
		}
		return cs
	}
}

// TestClosedLoop_SquareWaves (I5): errors or latency that come and go with any
// period take a worker out at most once a cooldown, each longer than the one
// before, and nobody else with it.
func TestClosedLoop_SquareWaves(t *testing.T) {
	t.Parallel()
	const victim = 2
	type wave struct {
		name    string
		kind    sim.ChangeKind
		on, off float64
	}
	type run struct {
		wave
		period  time.Duration
		clients int
	}
	var runs []run
	for _, w := range []wave{{"errors", sim.Fail, 1, 0}, {"slow 20x", sim.Slow, 20, 1}, {"refused", sim.Refuse, 1, 0}, {"slow 4x", sim.Slow, 4, 1}} {
		for _, ms := range []int{300, 10_000, 100, 1000, 3000, 30_000, 60_000} {
			runs = append(runs, run{w, time.Duration(ms) * time.Millisecond, 1})
		}
		for _, ms := range []int{300, 3000, 30_000} {
			runs = append(runs, run{w, time.Duration(ms) * time.Millisecond, 10})
		}
	}
	trips := 0
	for _, c := range fewer(t, runs, 4) {
		s := loop(5, c.clients, 0.7, 20*time.Millisecond, max(40*time.Second, 3*c.period))
		s.Changes = square(victim, c.kind, c.on, c.off, c.period)
		type trip struct{ at, length time.Duration }
		out := make([][]trip, c.clients)
		name := fmt.Sprintf("%s, period %v, %d routers", c.name, c.period, c.clients)
		f := sim.RingwiseWired("ringwise", false, nil, sim.Wiring{
			Transition: func(client, w int, now time.Duration, tr ringwise.Transition) {
				if tr.Write || tr.To != ringwise.Cooldown {
					return
				}
				if w != victim {
					t.Errorf("%s: at %v worker %d went out, which is well", name, now, w)
				}
				out[client] = append(out[client], trip{now, tr.Until})
			},
		})
		r := playLoop(t, s, f, sim.Options{Seed: 1})
		// 1 + 2 + 4 + 8 s of cooldown and what is between: 5 or 6 trips in 40 s.
		most := 9 + int((s.Duration-40*time.Second)/(15*time.Second))
		for client, ts := range out {
			trips += len(ts)
			if len(ts) > most {
				t.Errorf("%s: router %d took the worker out %d times in %v, want at most %d", name, client, len(ts), s.Duration, most)
			}
			for i := 1; i < len(ts); i++ {
				// The hook may be told a fold later.
				if d := ts[i].at - ts[i-1].at; d < ts[i-1].length-200*time.Millisecond {
					t.Errorf("%s: router %d took it out %v after a trip of %v", name, client, d, ts[i-1].length)
				}
			}
		}
		if got := r.ErrorShare(); got > 0.01 {
			t.Errorf("%s: %.2f %% errors", name, 100*got)
		}
	}
	if trips == 0 {
		t.Error("no wave took a worker out: the test sees nothing")
	}
}

// ringing measures a run: the largest max/mean of a second, and how much more
// than chance the picks of one healthy worker vary from 100 ms to 100 ms
// (variance over mean, 1 is chance).
func ringing(r *sim.Result, slow int) (maxOverMean, dispersion float64) {
	const warm, second = 20, 10
	n := len(r.Share[0])
	for i := warm; i+second <= len(r.Share); i += second {
		sum, all := make([]float64, n), 0.0
		for _, b := range r.Share[i : i+second] {
			for w, v := range b {
				sum[w] += float64(v)
				all += float64(v)
			}
		}
		maxOverMean = max(maxOverMean, slices.Max(sum)*float64(n)/all)
	}
	for w := range n {
		if w == slow {
			continue
		}
		sum, squares := 0.0, 0.0
		for _, b := range r.Share[warm:] {
			v := float64(b[w])
			sum, squares = sum+v, squares+v*v
		}
		k := float64(len(r.Share) - warm)
		dispersion = max(dispersion, (squares/k-sum/k*sum/k)/(sum/k))
	}
	return maxOverMean, dispersion
}

// TestClosedLoop_OneSlowWorkerDoesNotRing (I5): beside one slow worker the
// load stays even and calm, for 1 to 50 routers and up to 95 % load.
func TestClosedLoop_OneSlowWorkerDoesNotRing(t *testing.T) {
	t.Parallel()
	const slow = 1
	type run struct {
		n       int
		factor  float64
		load    float64
		clients int
	}
	var runs []run
	for _, n := range []int{5, 12} {
		for _, factor := range []float64{3, 10} {
			for _, load := range []float64{0.95, 0.70, 0.85} {
				if n > 5 && factor < 10 {
					continue
				}
				for _, clients := range []int{1, 50} {
					if clients == 1 && n > 5 {
						clients = 10
					}
					runs = append(runs, run{n, factor, load, clients})
				}
			}
		}
	}
	scenario := func(c run) sim.Scenario {
		s := loop(c.n, c.clients, c.load, 4*time.Millisecond, 8*time.Second)
		s.Speed = (float64(c.n-1) + 1/c.factor) / float64(c.n) // the load is of what is left
		s.Changes = func(*sim.Scenario, *rand.Rand) []sim.Change {
			return []sim.Change{{Worker: slow, Kind: sim.Slow, Value: c.factor}}
		}
		return s
	}
	const evenLimit, calmLimit = 1.5, 4
	for _, c := range fewer(t, runs, 2) {
		r := playLoop(t, scenario(c), sim.Ringwise("ringwise", false, nil), sim.Options{Seed: 1})
		if even, calm := ringing(r, slow); even > evenLimit || calm > calmLimit {
			t.Errorf("%d workers, one %gx slower, load %g, %d routers: max/mean %.2f, want at most %v; dispersion %.1f, want at most %v",
				c.n, c.factor, c.load, c.clients, even, evenLimit, calm, calmLimit)
		}
	}
	// What these measures are for: the worker that was idle when it last said
	// so has everybody's requests until it says otherwise.
	herds, err := sim.PolicyByName(sim.Policies(), "highest,softmax-t5")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range herds {
		r := playLoop(t, scenario(run{5, 3, 0.7, 10}), f, sim.Options{Seed: 1})
		if even, calm := ringing(r, slow); even < evenLimit || calm < calmLimit {
			t.Errorf("%s: max/mean %.2f, dispersion %.1f: the test would not see it ring", f.Name, even, calm)
		}
	}
}

// shareOf is a worker's share of the picks from one time to another.
func shareOf(r *sim.Result, worker int, from, to time.Duration) float64 {
	own, all := 0.0, 0.0
	for _, b := range r.Share[from/r.Bucket : to/r.Bucket] {
		for w, v := range b {
			all += float64(v)
			if w == worker {
				own += float64(v)
			}
		}
	}
	return own / all
}

// TestClosedLoop_FastFailures (I9): a worker that fails at once, always or
// half of the time, gets less than its share from the first moment on and
// never as much as before.
func TestClosedLoop_FastFailures(t *testing.T) {
	t.Parallel()
	const victim, from, to = 3, 4 * time.Second, 8 * time.Second
	type failing struct {
		name    string
		clients int
		changes func(*sim.Scenario, *rand.Rand) []sim.Change
	}
	for _, c := range fewer(t, []failing{
		{"always", 1, func(*sim.Scenario, *rand.Rand) []sim.Change {
			return []sim.Change{{At: from, Worker: victim, Kind: sim.Fail, Value: 1}, {At: to, Worker: victim, Kind: sim.Fail}}
		}},
		{"always, 20 routers", 20, func(*sim.Scenario, *rand.Rand) []sim.Change {
			return []sim.Change{{At: from, Worker: victim, Kind: sim.Fail, Value: 1}, {At: to, Worker: victim, Kind: sim.Fail}}
		}},
		{"half of the time", 20, func(*sim.Scenario, *rand.Rand) (cs []sim.Change) {
			for at := from; at < to; at += 10 * time.Millisecond {
				cs = append(cs, sim.Change{At: at, Worker: victim, Kind: sim.Fail, Value: 1},
					sim.Change{At: at + 5*time.Millisecond, Worker: victim, Kind: sim.Fail})
			}
			return cs
		}},
	}, 1) {
		s := loop(6, c.clients, 0.7, 4*time.Millisecond, to)
		s.Warmup = 2 * time.Second
		s.Changes = c.changes
		share := func(r *sim.Result, from, to time.Duration) float64 { return shareOf(r, victim, from, to) }
		r := playLoop(t, s, sim.Ringwise("ringwise", false, nil), sim.Options{Seed: 1})
		before := share(r, s.Warmup, from)
		for at := from; at < to; at += 500 * time.Millisecond {
			if got := share(r, at, at+500*time.Millisecond); got > before/2 {
				t.Errorf("%s: from %v on it has %.1f %% of the picks, before %.1f %%", c.name, at, 100*got, 100*before)
			}
		}
		if got := share(r, from+time.Second, to); got > 0.01 {
			t.Errorf("%s: a second later it still has %.2f %% of the picks", c.name, 100*got)
		}
		// Least in flight is drawn to it, so the loop is closed indeed.
		peers, err := sim.PolicyByName(sim.Policies(), "least-inflight")
		if err != nil {
			t.Fatal(err)
		}
		if got := share(playLoop(t, s, peers[0], sim.Options{Seed: 1}), from, to); got < before {
			t.Errorf("%s: least in flight gives it %.1f %%: the failures attract nobody", c.name, 100*got)
		}
	}
}

// TestClosedLoop_CancellationIsNeutral (I9): callers who give up early, and
// only at one worker, move no load and no penalty.
func TestClosedLoop_CancellationIsNeutral(t *testing.T) {
	t.Parallel()
	const victim = 3
	s := loop(6, 10, 0.7, 4*time.Millisecond, 10*time.Second)
	s.Warmup = 2 * time.Second
	// play ends half of what the victim answers with o instead, and returns the
	// victim's share of the picks.
	play := func(o *ringwise.Outcome) (share float64, trips int) {
		r := rand.New(rand.NewPCG(7, 0))
		res := playLoop(t, s, sim.RingwiseWired("ringwise", false, nil, sim.Wiring{
			Transition: func(_, w int, _ time.Duration, tr ringwise.Transition) {
				if tr.To == ringwise.Cooldown {
					trips++
				}
			},
			Outcome: func(_ int, d *sim.Done, out *ringwise.Outcome) {
				if o != nil && d.Worker == victim && r.IntN(2) == 0 {
					*out = *o
					out.RTT = time.Duration(min(d.RTT, int64(600*time.Microsecond)))
				}
			},
		}), sim.Options{Seed: 1})
		return shareOf(res, victim, s.Warmup, s.Duration), trips
	}
	base, _ := play(nil)
	for _, o := range []ringwise.Outcome{{Err: context.Canceled}, {Err: context.DeadlineExceeded}, {Verdict: ringwise.Ignore}} {
		if got, trips := play(&o); got < 0.93*base || got > 1.07*base || trips > 0 {
			t.Errorf("%v %v: %.2f %% of the picks and %d trips, want about the %.2f %% without", o.Err, o.Verdict, 100*got, trips, 100*base)
		}
	}
	// A failure in the same place is not neutral.
	if got, _ := play(&ringwise.Outcome{Err: syscall.EIO}); got > base/2 {
		t.Errorf("half of the answers failed leaves it %.2f %% of the picks: the test sees nothing", 100*got)
	}
}

// TestClosedLoop_LanesApart (I9): a worker whose writes fail keeps its reads,
// and the other way round.
func TestClosedLoop_LanesApart(t *testing.T) {
	t.Parallel()
	const victim, from = 3, 3 * time.Second
	for _, writes := range []bool{true, false} { // which of them fail
		s := loop(6, 5, 0.6, 4*time.Millisecond, 10*time.Second)
		s.Writes = 0.4
		picks := map[bool][]float64{false: make([]float64, s.Workers), true: make([]float64, s.Workers)}
		f := sim.RingwiseWired("ringwise", false, nil, sim.Wiring{
			Transition: func(_, w int, now time.Duration, tr ringwise.Transition) {
				if w == victim && tr.Write != writes {
					t.Errorf("writes %v fail: at %v the lane that is well is %v", writes, now, tr.To)
				}
			},
			Outcome: func(_ int, d *sim.Done, o *ringwise.Outcome) {
				if d.Now < int64(from) {
					return
				}
				picks[d.Write][d.Worker]++
				if d.Worker == victim && d.Write == writes {
					*o = ringwise.Outcome{RTT: o.RTT, Err: fmt.Errorf("disk: %w", syscall.EIO)}
				}
			},
		})
		playLoop(t, s, f, sim.Options{Seed: 1})
		// Of a fair share, on the lane that fails and on the other.
		share := func(write bool) float64 {
			all := 0.0
			for _, n := range picks[write] {
				all += n
			}
			return picks[write][victim] / all * float64(s.Workers)
		}
		if got := share(writes); got > 0.1 {
			t.Errorf("writes %v: it keeps %.2f of a fair share of what fails", writes, got)
		}
		if got := share(!writes); got < 0.9 {
			t.Errorf("writes %v: it has %.2f of a fair share of what is well", writes, got)
		}
	}
}

// TestClosedLoop_NoHerd (I6): 1000 routers that have been told the same, a
// topology and then reports, do not start on the same worker. What keeps them
// apart is the random source that each has by default, so here it is not the
// test's; six standard deviations are allowed for. (Pickers with a position are
// in TestCase_038.)
func TestClosedLoop_NoHerd(t *testing.T) {
	t.Parallel()
	routers := 1000
	if underRace {
		routers = 200
		t.Logf("under the race detector: %d of 1000 routers", routers)
	}
	ids := []string{"a", "b", "c"}
	all := func(v time.Duration) []time.Duration { return []time.Duration{v, v, v} }
	updates := []struct {
		name string
		load []float64 // of each worker, in its report; nil: no reports yet
		p99  []time.Duration
		most float64 // share of the routers that is to be expected on one worker at most
	}{
		{"a topology", nil, nil, 1.0 / 3},
		{"reports, all alike", []float64{0.5, 0.5, 0.5}, all(10 * time.Millisecond), 1.0 / 3},
		{"reports, one worker idle", []float64{0.9, 0, 0.9}, all(10 * time.Millisecond), 1.0 / 3},
		// What the weak prior (PriorExponent) makes of noise.
		{"reports, p99s apart by chance", []float64{0.5, 0.5, 0.5}, []time.Duration{9500 * time.Microsecond, 10 * time.Millisecond, 10500 * time.Microsecond}, 0.43},
	}
	starts := make([]map[string]int, len(updates))
	for i := range starts {
		starts[i] = map[string]int{}
	}
	for range routers {
		now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
		r, err := ringwise.New(nil,
			ringwise.WithPoints(1), // the ring's balance is not asked for
			ringwise.WithClock(func() time.Time { return now }))
		if err != nil {
			t.Fatal(err)
		}
		top := ringwise.Topology{Version: 1}
		for _, id := range ids {
			top.Workers = append(top.Workers, ringwise.Worker{ID: id})
		}
		if err := r.SetTopology(top); err != nil {
			t.Fatal(err)
		}
		for u, up := range updates {
			now = now.Add(time.Second)
			for w := range up.load {
				if err := r.Report(ringwise.Report{Worker: ids[w], Time: now, CPU: ringwise.Some(up.load[w]),
					Queue: ringwise.Some(100 * up.load[w]), RTTP99: ringwise.Some(up.p99[w])}); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // the second publishes what the first summed up
				r.Maintain(now)
			}
			c, err := r.Route(ringwise.Request{Key: "k", Intent: ringwise.Read})
			if err != nil {
				t.Fatal(err)
			}
			starts[u][c.ID()]++
			c.Cancel()
		}
	}
	for u, up := range updates {
		t.Log(up.name, starts[u])
		for id, n := range starts[u] {
			all := float64(routers)
			if most := up.most*all + 6*math.Sqrt(up.most*(1-up.most)*all); float64(n) > most {
				t.Errorf("after %s %d of %d routers go to %s, want at most %.0f", up.name, n, routers, id, most)
			}
		}
	}
}

// starving finds the longest time for which a worker that was well was not
// picked. picks are sorted times by worker, ill the times when it was not well.
func starving(picks []time.Duration, ill [][2]time.Duration, end time.Duration) time.Duration {
	longest, last := time.Duration(0), time.Duration(0)
	i := 0
	count := func(until time.Duration) {
		for ; i < len(picks) && picks[i] < until; i++ {
			longest = max(longest, picks[i]-last)
			last = max(last, picks[i])
		}
		longest = max(longest, until-last)
	}
	for _, w := range ill {
		count(w[0])
		for ; i < len(picks) && picks[i] < w[1]; i++ {
		}
		last = w[1]
	}
	count(end)
	return longest
}

// TestClosedLoop_NobodyStarves (I10): whatever a worker has been through, once
// it is well it is tried within 30 s, its keys being asked for 10 times a
// second. One that is merely slower is well.
func TestClosedLoop_NobodyStarves(t *testing.T) {
	t.Parallel()
	const limit = 30 * time.Second
	seeds := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	type run struct {
		workers, replicas int
		seed              uint64
	}
	var runs []run
	for _, seed := range seeds {
		runs = append(runs, run{3, 3, seed}, run{2, 2, seed}, run{6, 3, seed}, run{5, 5, seed})
	}
	worst := time.Duration(0)
	for _, c := range fewer(t, runs, 2) {
		s := loop(c.workers, 1, 0.1, 4*time.Millisecond, 20*time.Minute)
		s.Replicas, s.Partitions = c.replicas, 12
		s.Load = 1
		s.Load = 10 * float64(c.workers) / float64(c.replicas) / s.Rate() // a worker's keys see 10 a second
		ill := make([][][2]time.Duration, c.workers)
		s.Changes = func(s *sim.Scenario, r *rand.Rand) (cs []sim.Change) {
			// One after the other has its trouble; its cooldown, of up to
			// 37.5 s, is not time in which it could be picked.
			at := 5 * time.Second
			for i := 0; ; i++ {
				w := i % s.Workers
				length := time.Duration(float64(time.Second) * []float64{0.3, 2, 20}[r.IntN(3)] * (0.5 + r.Float64()))
				if at+length > s.Duration {
					break
				}
				kind, v := sim.Slow, []float64{3, 10, 50, 200}[r.IntN(4)]
				if r.IntN(2) == 0 {
					kind, v = []sim.ChangeKind{sim.Fail, sim.Refuse, sim.Dead}[r.IntN(3)], 1
				}
				off := 0.0
				if kind == sim.Slow {
					off = 1
				}
				cs = append(cs, sim.Change{At: at, Worker: w, Kind: kind, Value: v}, sim.Change{At: at + length, Worker: w, Kind: kind, Value: off})
				ill[w] = append(ill[w], [2]time.Duration{at, at + length})
				at += length + time.Duration(r.Float64()*float64(20*time.Second))
			}
			return cs
		}
		r := playLoop(t, s, sim.Ringwise("ringwise", false, nil), sim.Options{Seed: c.seed})
		for w := range c.workers {
			var picks []time.Duration
			for i, b := range r.Share {
				if b[w] > 0 {
					picks = append(picks, time.Duration(i)*r.Bucket)
				}
			}
			got := starving(picks, ill[w], s.Duration-r.Bucket)
			worst = max(worst, got)
			if got > limit {
				t.Errorf("%d workers, %d a key, seed %d: worker %d was well and not picked for %v", c.workers, c.replicas, c.seed, w, got)
			}
		}
	}
	t.Logf("the longest wait was %v", worst)
}

// TestClosedLoop_DayOfFlapping: workers fail, refuse, swallow, pause and crawl
// for 23 hours; an hour later each router finds all of them healthy,
// owes nothing, and spreads its picks evenly. The generations of the penalty
// machine, 8 bits, turn over several times.
func TestClosedLoop_DayOfFlapping(t *testing.T) {
	t.Parallel()
	const clients = 2
	day := 23 * time.Hour // and the hour after
	if underRace {
		day = 30 * time.Minute
		t.Logf("under the race detector: %v of a day", day)
	}
	// All is well for an hour: eight requests a second come in runs to one
	// worker, so the shares of ten minutes say little.
	calm := day - 15*time.Minute
	s := loop(6, clients, 0.01, 4*time.Millisecond, calm+time.Hour)
	s.Partitions = 64 * s.Workers    // so that the choice is measured, not the placement
	s.Load = 8 / (s.Rate() / s.Load) // 8 requests a second: 690,000 a day
	s.Writes = 0.2
	s.Warmup = calm + 5*time.Minute // what is measured comes after
	s.ReportEvery = 10 * time.Second
	s.Changes = func(s *sim.Scenario, r *rand.Rand) (cs []sim.Change) {
		for w := range s.Workers {
			at := time.Duration(r.Float64() * float64(5*time.Minute))
			for {
				length := time.Duration(float64(time.Second) * []float64{0.2, 1, 5, 60}[r.IntN(4)] * (0.5 + r.Float64()))
				if at+length > calm {
					break
				}
				switch kind := []sim.ChangeKind{sim.Fail, sim.Refuse, sim.Dead, sim.Slow, sim.Pause}[r.IntN(5)]; kind {
				case sim.Pause:
					cs = append(cs, sim.Change{At: at, Worker: w, Kind: kind, Value: length.Seconds()})
				case sim.Slow:
					cs = append(cs, sim.Change{At: at, Worker: w, Kind: kind, Value: []float64{3, 30, 200}[r.IntN(3)]},
						sim.Change{At: at + length, Worker: w, Kind: kind, Value: 1})
				default:
					cs = append(cs, sim.Change{At: at, Worker: w, Kind: kind, Value: 1}, sim.Change{At: at + length, Worker: w, Kind: kind})
				}
				at += length + time.Duration((0.2+r.ExpFloat64())*float64(time.Minute))
			}
		}
		slices.SortStableFunc(cs, func(a, b sim.Change) int { return int(a.At - b.At) })
		return cs
	}
	trips := 0
	f := sim.RingwiseWired("ringwise", false, nil, sim.Wiring{
		Transition: func(_, _ int, now time.Duration, tr ringwise.Transition) {
			if tr.To == ringwise.Cooldown {
				trips++
				if now > calm+time.Minute {
					t.Errorf("a trip %v after all was well", now-calm)
				}
			}
		},
		Finish: func(client int, r *ringwise.Router) {
			st := r.Status()
			for _, w := range st.Workers {
				for lane, l := range map[string]ringwise.WorkerLane{"reads": w.Read, "writes": w.Write} {
					if l.Phase != ringwise.Healthy.String() {
						t.Errorf("router %d, %s of %s: %s at the end of the day", client, lane, w.ID, l.Phase)
					}
				}
				if w.InFlight != 0 {
					t.Errorf("router %d: %d in flight on %s, and nothing is", client, w.InFlight, w.ID)
				}
			}
			if st.Leaked != 0 || st.DoubleDone != 0 {
				t.Errorf("router %d: %d leaked, %d closed twice", client, st.Leaked, st.DoubleDone)
			}
		},
	})
	r := playLoop(t, s, f, sim.Options{Seed: 1, Series: 10 * time.Second})
	t.Logf("%d trips, %d requests measured, p99 %v, max/mean %.2f", trips, len(r.Latency), r.Quantile(0.99), r.MaxOverMean())
	if least := int(day.Hours()) * 256; trips < least {
		t.Errorf("%d trips, want %d at least: not much of a day", trips, least)
	}
	if r.Errors != 0 {
		t.Errorf("%d errors when all was well", r.Errors)
	}
	if got := r.MaxOverMean(); got > 1.3 {
		t.Errorf("max/mean %.2f when all was well", got)
	}
}

// Moving load off a slow node makes the next one slow, and so on round: at
// 85 % load with one worker of half the speed nothing rings and nothing fails.
// The one who takes its reading of the load from the last report rings.
func TestCase_106_OneOfHalfTheSpeedAt85Percent(t *testing.T) {
	t.Parallel()
	const n, slow = 5, 1
	s := loop(n, 10, 0.85, 4*time.Millisecond, 8*time.Second)
	s.Speed = (float64(n-1) + 0.5) / float64(n) // the load is of what is left
	s.Changes = func(*sim.Scenario, *rand.Rand) []sim.Change {
		return []sim.Change{{Worker: slow, Kind: sim.Slow, Value: 2}}
	}
	check := func(f sim.Factory) error {
		r := playLoop(t, s, f, sim.Options{Seed: 106})
		if even, calm := ringing(r, slow); even > 1.5 || calm > 4 || r.Errors > 0 {
			return fmt.Errorf("max/mean %.2f, dispersion %.1f, %d failed", even, calm, r.Errors)
		}
		return nil
	}
	if err := check(sim.Ringwise("ringwise", false, nil)); err != nil {
		t.Error(err)
	}
	naive, err := sim.PolicyByName(sim.Policies(), "highest")
	if err != nil {
		t.Fatal(err)
	}
	if check(naive[0]) == nil {
		t.Error("the naive balancer, which moves load by what nodes last reported, must ring")
	}
}
