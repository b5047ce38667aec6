//go:build !race

package ringwise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What only one goroutine does: the race detector has nothing to say of it and
// makes it ten times slower.

func TestPenalty_RampCapsTheShare(t *testing.T) {
	t.Parallel()
	rnd := seeded(t, 4)
	g := newRig(t, 3, rigTuning(nil))
	g.shares(rnd, 3000, time.Millisecond)
	g.fails("w0", 3)
	g.pass(1100 * time.Millisecond)
	require.Equal(t, Probation, g.phase("w0"))
	shares := rampSteps(t, g, rnd, 100_000, g.pen("w0", laneRead).at())
	t.Logf("shares %.4f", shares)
	if err := checkRamp(shares, 3, 100_000); err != nil {
		t.Error(err)
	}
	require.Equal(t, Healthy, g.phase("w0"))
}

// I6. SmoothWeighted and RoundRobin start where Q2's example starts; used
// routers stand at different places, and a topology change leaves them there.
func TestCase_038_ManyRoutersDoNotStartOnOneWorker(t *testing.T) {
	t.Parallel()
	const routers = 1000
	next := func(weights []float64) Topology {
		top := Topology{Version: 2}
		for i, w := range weights {
			top.Workers = append(top.Workers, Worker{ID: fmt.Sprintf("w%02d", i), Weight: w})
		}
		return top
	}
	first := func(weights []float64, warm int, opts ...Option) []int {
		got := make([]int, len(weights))
		rnd := rand.New(rand.NewPCG(38, 0))
		model := newStand(t, 0, next(weights).Workers, append(opts, WithPoints(1))...)
		for i := range routers {
			s := model.twin(uint64(i))
			if warm > 0 {
				for range rnd.IntN(warm) {
					s.Observe(s.route(Request{Key: "k"}), time.Millisecond, nil)
				}
			}
			renewed := next(weights)
			for i := range renewed.Workers {
				renewed.Workers[i].Addr = "new"
			}
			require.NoError(t, s.SetTopology(renewed))
			got[numberOf(s.route(Request{Key: "k"}).ID())]++
		}
		return got
	}
	equal, unequal := []float64{1, 1, 1}, []float64{99, 1}
	// Each within four standard deviations of its share.
	spread := func(got []int, weights []float64) bool {
		sum := 0.0
		for _, w := range weights {
			sum += w
		}
		for i, n := range got {
			p := weights[i] / sum
			if math.Abs(float64(n)-p*routers) > min(4*math.Sqrt(routers*p*(1-p)), p*routers-1) {
				return false
			}
		}
		return true
	}
	// The faulty design: after an update everyone starts on the heaviest.
	require.False(t, spread([]int{routers, 0}, unequal))
	require.False(t, spread([]int{routers, 0, 0}, equal))

	for _, c := range []struct {
		name    string
		weights []float64
		warm    int
		opts    []Option
	}{
		{"default", equal, 0, nil},
		{"weighted random", unequal, 0, []Option{WithPicker(WeightedRandom{})}},
		{"smooth weighted, used", unequal, 1000, []Option{WithPicker(SmoothWeighted{})}},
		{"round robin, used", equal, 300, []Option{WithPicker(RoundRobin{})}},
	} {
		if got := first(c.weights, c.warm, c.opts...); !spread(got, c.weights) {
			t.Errorf("%s: first picks %v, weights %v", c.name, got, c.weights)
		}
	}

	a, err := New(nil)
	require.NoError(t, err)
	b, err := New(nil)
	require.NoError(t, err)
	assert.NotEqual(t, a.salt, b.salt, "the default salt is the router's own")
}

func TestCase_011_AnyNumberOfLoadedWorkers(t *testing.T) {
	t.Parallel()
	// n workers and as many requests as two each can take, twice over.
	check := func(n int, pick func(load []int) int) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("%d workers: %v", n, p)
			}
		}()
		load := make([]int, n)
		for range 4 * n {
			i := pick(load)
			load[i]++
		}
		return nil
	}
	for n := 1; n <= 64; n++ {
		s := newStand(t, uint64(n), numberedWorkers(n), WithReplicas(min(n, MaxCandidates)), WithPoints(16))
		require.NoError(t, check(n, func([]int) int { return numberOf(s.route(Request{Key: "hot", Intent: Read}).ID()) }))
		cands, least, most := s.Explain(Request{Key: "hot", Intent: Read}).Candidates, math.MaxInt, 0
		for _, c := range cands {
			in := s.state(c.ID).inFlight()
			least, most = min(least, in), max(most, in)
		}
		require.LessOrEqual(t, most-least, 1+most/2, "%d workers: the least loaded take it", n)
	}
	// The fault: a bound per worker, and a panic where nobody is under it.
	require.Error(t, check(7, func(load []int) int {
		for i, l := range load {
			if l < 2 {
				return i
			}
		}
		panic("not enough room to distribute partitions")
	}))
}

// Balance is computed from the table, so sampling does not blur it.
func TestRing_BalanceOfDefaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		workers, sets int
		want          float64
	}{{10, 20, 1.06}, {100, 20, 1.10}, {1000, 6, 1.25}} {
		sum := 0.0
		for set := range c.sets {
			r, err := newRing(measuredNames(c.workers, set), defaultPoints, defaultSlotBits, defaultReplicas)
			require.NoError(t, err)
			sum += maxOverMean(r)
		}
		assert.LessOrEqual(t, sum/float64(c.sets), c.want, "%d workers", c.workers)
	}
}

// I19: equal to a fresh build and to the naive ring after any history, and no
// needless move on the way.
func TestRing_MatchesNaiveModelOverHistories(t *testing.T) {
	t.Parallel()
	for seed := range uint64(24) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		place, kind := placement(placeV1), "v1"
		if seed%3 == 2 {
			place, kind = collide, "colliding"
		}
		perUnit := []int{1, 3, 50, 160}[rnd.IntN(4)]
		replicas := []int{1, 3, 3, 16}[rnd.IntN(4)]
		h := &history{rnd: rnd, pool: poolOf([]int{3, 12, 60}[seed%3])}
		if seed%4 == 3 {
			h.step(len(h.pool)) // start big, so that one change is small
		}
		r, err := newRingAt(place, h.members, perUnit, 16, replicas)
		require.NoError(t, err)
		for step := range 8 {
			msg := fmt.Sprintf("seed %d step %d %s points %d replicas %d", seed, step, kind, perUnit, replicas)
			before := r
			changed := h.step(1 + rnd.IntN(3))
			r, err = r.change(h.members)
			require.NoError(t, err, msg)

			fresh, err := newRingAt(place, h.members, perUnit, 16, replicas)
			require.NoError(t, err, msg)
			requireSame(t, fresh, r, msg)
			requireNoNeedlessMove(t, before, r, changed, msg)

			model := newNaive(place, h.members, perUnit, 16)
			skip, down := map[string]bool{}, []uint64{rnd.Uint64() & rnd.Uint64()}
			for _, m := range h.members {
				skip[m.id] = hasBit(down, m.slot)
			}
			for _, k := range randomKeys(rnd, 50) {
				require.Equal(t, model.from(k, replicas, nil), names(r, ownersOf(r, k)), msg)
				require.Equal(t, model.from(k, replicas, nil), r.Owners(k, []string{}), msg)
				n := rnd.IntN(len(h.pool) + 2)
				require.Equal(t, model.from(k, n, skip), names(r, r.walk(k, down, nil, n)), msg)
			}
		}
	}
}

// Each measure by itself is found worse, and named.
func TestCanary_FindsWhatIsWorse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, reason string
		set          func(l *rollLab, t *Tuning)
	}{
		{"errors", "errors", func(l *rollLab, _ *Tuning) {
			l.failed = func(c Choice, _ *Request) bool { return c.Canary() && l.rnd.Float64() < 0.05 }
		}},
		{"p99", "p99", func(l *rollLab, _ *Tuning) {
			l.slower = func(c Choice) float64 {
				if c.Canary() {
					return 1.5
				}
				return 1
			}
		}},
		{"load deviation", "deviation", func(l *rollLab, t *Tuning) { t.LoadWeight, t.Temperature = 0, 0.01 }},
	} {
		l := newRollLab(t, 1, 6)
		// w0 is a little better, so that what follows latency alone piles on it.
		l.mean = func(id string) time.Duration {
			if id == "w0" {
				return 800 * time.Microsecond
			}
			return time.Millisecond
		}
		tuning := l.Tuning()
		c.set(l, &tuning)
		require.NoError(t, l.StartCanary(CanaryConfig{Tuning: tuning, Steps: halves(time.Hour)}))
		l.run(60 * time.Second)
		s := l.Canary()
		require.Equal(t, CanaryRolledBack, s.State, "%s: %+v", c.name, s.Measures)
		require.Equal(t, Worse, s.Verdict, c.name)
		require.Contains(t, s.Reason, c.reason, c.name)
		require.Nil(t, l.snap.Load().trial, "and is out of the picks")
	}
}

// The statistics alone, at the level they promise: looks at 14 sizes and no
// more false verdicts than 5 %. Without the spending of alpha it is far more.
func TestCanary_RepeatedLooksSpendAlpha(t *testing.T) {
	t.Parallel()
	wrong, naive, seeds := 0, 0, 200
	for seed := range uint64(seeds) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		run := fakeRun(0.95)
		bad, badNaive := false, false
		for n := 0; n < 20_000; n++ {
			for g := groupControl; g < groups; g++ {
				v := OK
				if rnd.Float64() < 0.01 {
					v = Fault
				}
				run.trial.ended(g, 0, v, time.Duration(rnd.ExpFloat64()*1e6), true)
			}
			if uint64(n) >= run.nextLook {
				run.look(uint64(n))
				bad = bad || run.verdict == Worse
				for _, m := range run.measure(normalQuantile(0.05), 1) {
					badNaive = badNaive || m.Worse
				}
			}
		}
		if bad {
			wrong++
		}
		if badNaive {
			naive++
		}
	}
	t.Logf("%d of %d wrong, %d if each look were the only one", wrong, seeds, naive)
	require.LessOrEqual(t, wrong, seeds/20)
	require.Greater(t, naive, seeds/10, "else the test cannot see what looking often costs")
}

// O4: flaps are compared too. What piles on whoever is best now is worse by
// them where the best changes; what the live one does is not.
func TestCanary_ComparesFlaps(t *testing.T) {
	t.Parallel()
	for _, piles := range []bool{true, false} {
		l := newRollLab(t, 1, 6)
		l.mean = func(id string) time.Duration {
			if id == fmt.Sprint("w", time.Duration(l.now.Load())/(2*time.Second)%6) {
				return 800 * time.Microsecond
			}
			return time.Millisecond
		}
		tuning := l.Tuning()
		if piles {
			tuning.LoadWeight, tuning.Temperature = 0, 0.01
		}
		require.NoError(t, l.StartCanary(CanaryConfig{Tuning: tuning, Steps: halves(time.Hour), Attended: true}))
		l.run(60 * time.Second)
		measures := l.Canary().Measures
		i := slices.IndexFunc(measures, func(m Measure) bool { return m.Name == "flaps" })
		require.GreaterOrEqual(t, i, 0)
		require.True(t, measures[i].Enough)
		require.Equal(t, piles, measures[i].Worse, "%+v", measures)
		require.Equal(t, piles, measures[i].Canary > 2*measures[i].Control, "%+v", measures[i])
	}
}

// O4: by flag, then tenants, then 5 % of the keys, then 30 %, each with its
// own time, for who names no steps.
func TestCanary_DefaultSteps(t *testing.T) {
	t.Parallel()
	minute := time.Minute
	require.Equal(t, []CanaryStep{{MinTime: minute}, {Tenants: true, MinTime: 5 * minute}, {Tenants: true, Share: 0.05, MinTime: 5 * minute},
		{Tenants: true, Share: 0.3, MinTime: 10 * minute}}, DefaultCanarySteps(true))
	require.Equal(t, []CanaryStep{{MinTime: minute}, {Share: 0.05, MinTime: 5 * minute}, {Share: 0.3, MinTime: 10 * minute}}, DefaultCanarySteps(false))

	l := newRollLab(t, 1, 3)
	require.NoError(t, l.StartCanary(CanaryConfig{Tuning: l.Tuning()}))
	share := func() (x float64) {
		for i := range 20_000 {
			if l.Explain(Request{Key: fmt.Sprint("key", i)}).Group == "canary" {
				x += 1.0 / 20_000
			}
		}
		return x
	}
	l.every = 10 * time.Millisecond
	l.req = func(i int) Request { return Request{Hash: HashUint64(l.rnd.Uint64()), Intent: Read, Canary: i%2 == 0} }
	require.Zero(t, share(), "by flag alone")
	l.run(62 * time.Second)
	require.Equal(t, 2, l.Canary().Step)
	require.InDelta(t, 0.05, share(), 0.005)
}

// TestCanary_SameAgainstSame: 200 canaries whose coefficients are the live
// ones, each looked at a dozen times with four measures: at most 5 % are
// called worse. Three of the workers are slow, 2 % of requests fail.
func TestCanary_SameAgainstSame(t *testing.T) {
	t.Parallel()
	wrong, looks, seeds := 0, 0, 200
	reasons := map[string]int{}
	for seed := range uint64(seeds) {
		l := newRollLab(t, seed, 6, WithHooks(Hooks{Alarm: func(a Alarm) { reasons[a.Text]++ }}))
		l.mean = func(id string) time.Duration { return time.Duration(id[1]-'0'+1) * 500 * time.Microsecond }
		l.failed = func(Choice, *Request) bool { return l.rnd.Float64() < 0.02 }
		require.NoError(t, l.StartCanary(CanaryConfig{Name: fmt.Sprint(seed), Tuning: l.Tuning(), Steps: halves(time.Hour)}))
		l.run(6 * time.Second)
		s := l.Canary()
		looks += s.Looks
		require.GreaterOrEqual(t, s.Control.Ends, uint64(MinCanaryPicks))
		if s.Verdict == Worse {
			wrong++
			t.Logf("seed %d: %s", seed, s.Reason)
		}
	}
	t.Logf("%d of %d wrong after %d looks", wrong, seeds, looks)
	require.LessOrEqual(t, wrong, seeds/20)
	require.Greater(t, looks, seeds*5, "looked at often")
}

func TestCase_118_FlappingForADay(t *testing.T) {
	t.Parallel()
	n, steps := 1000, 24*12
	rnd := rand.New(rand.NewPCG(labSeed(t), 0))
	all := labWorkers("w", n)
	// Each 5 minutes a tenth of the fleet is disconnected, in one of three
	// ways, and connected again a minute later.
	check := func(down, up func(ids []string, how int), usable func(id string) bool, wait func(time.Duration)) error {
		for range steps {
			var ids []string
			for _, i := range rnd.Perm(n)[:n/10] {
				ids = append(ids, all[i].ID)
			}
			how := rnd.IntN(3)
			down(ids, how)
			wait(time.Minute)
			up(ids, how)
			wait(4 * time.Minute)
		}
		lost := 0
		for _, w := range all {
			if !usable(w.ID) {
				lost++
			}
		}
		if lost > 0 {
			return fmt.Errorf("%d of %d never came back", lost, n)
		}
		return nil
	}
	l := newLab(t, all, WithPoints(8))
	without := func(ids []string) (ws []Worker) {
		gone := map[string]bool{}
		for _, id := range ids {
			gone[id] = true
		}
		for _, w := range all {
			if !gone[w.ID] {
				ws = append(ws, w)
			}
		}
		return ws
	}
	answer := func(ids []string, v Verdict) {
		for _, id := range ids {
			if c, err := l.Start(Request{Intent: Read}, id); err == nil {
				c.DoneWith(Outcome{Verdict: v, RTT: time.Millisecond})
			}
		}
	}
	down := func(ids []string, how int) {
		switch how {
		case 0:
			require.NoError(t, l.SetTopology(Topology{Workers: without(ids)}))
		case 1:
			for _, id := range ids {
				l.SetState(id, Down)
			}
		case 2:
			for range 3 {
				answer(ids, Fault)
			}
		}
	}
	up := func(ids []string, how int) {
		switch how {
		case 0:
			require.NoError(t, l.SetTopology(Topology{Workers: all}))
		case 1:
			for _, id := range ids {
				l.SetState(id, Up)
			}
		}
	}
	wait := func(d time.Duration) {
		for range 4 {
			l.clock.advance(d / 4)
			l.Maintain(l.clock.peek())
			for range 200 { // some traffic, all of which must find somebody
				c, err := l.Route(Request{Hash: HashUint64(rnd.Uint64()), Intent: Read})
				require.NoError(t, err)
				l.Observe(c, time.Millisecond, nil)
			}
		}
	}
	usable := func(id string) bool {
		for range 8 { // those the traffic happened not to meet end their ramp
			answer([]string{id}, OK)
		}
		return l.pen(id, Read).phase() != Cooldown
	}
	require.NoError(t, check(down, up, usable, wait))
	for range 30 { // ramps end, error rates fade
		l.pass(time.Second)
		for _, w := range all {
			answer([]string{w.ID}, OK)
		}
	}
	for _, w := range l.Status().Workers {
		require.Equal(t, "healthy", w.Read.Phase, w.ID)
		require.Equal(t, 1.0, w.Read.Share, w.ID)
		require.Equal(t, "up", w.State)
	}
	assert.Zero(t, l.inFlight())
	assert.Zero(t, l.Status().Read.Cooldown)

	// The fault: the wait before a reconnect doubles and is never reset.
	type naive struct {
		backoff time.Duration
		at      time.Duration
	}
	clock, state := time.Duration(0), map[string]*naive{}
	for _, w := range all {
		state[w.ID] = &naive{backoff: time.Second}
	}
	require.Error(t, check(func([]string, int) {}, func(ids []string, _ int) {
		for _, id := range ids {
			s := state[id]
			s.backoff *= 2
			s.at = clock + s.backoff
		}
	}, func(id string) bool { return state[id].at <= clock }, func(d time.Duration) { clock += d }))
}

// And they draw from one distribution, the one Explain tells (I26).
func TestRoute_ShortAndLongPathDistribution(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		s := newStand(t, seed, numberedWorkers(4), WithReplicas(4), WithPoints(1))
		s.scramble(rand.New(rand.NewPCG(seed, 1)))
		restore := s.words()
		q := Request{Key: "k"}
		for _, plain := range []bool{true, false} {
			s.plain(plain)
			d := s.Explain(q)
			got, want := make([]int, 4), make([]float64, 4)
			for _, c := range d.Candidates {
				want[numberOf(c.ID)] = c.Probability
			}
			for range 100_000 {
				id := s.route(q).ID()
				got[numberOf(id)]++
				restore(id)
				s.salt = mix64(s.salt + 1)
			}
			checkDistribution(t, fmt.Sprintf("seed %d, short path %v", seed, plain), got, want)
		}
	}
}
