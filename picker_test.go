package ringwise

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stand is a router on a test stand: clock and salt are the test's, so a run
// is the same each time.
type stand struct {
	*Router
	tb testing.TB
	ns atomic.Int64
}

var standEpoch = time.Unix(1_700_000_000, 0)

func newStand(tb testing.TB, seed uint64, workers []Worker, opts ...Option) *stand {
	tb.Helper()
	s := &stand{tb: tb}
	r, err := New(workers, append([]Option{WithClock(s.time), WithPoints(64)}, opts...)...)
	require.NoError(tb, err)
	r.salt = mix64(seed + 1)
	s.Router = r
	return s
}

// twin is another router with the same workers, fresh, and a salt of its own.
// It shares the ring, whose building is what a New costs.
func (s *stand) twin(seed uint64) *stand {
	s.tb.Helper()
	t := &stand{tb: s.tb}
	r := &Router{config: s.config, keepUnder: s.keepUnder, versions: s.versions, done: make(chan struct{})}
	r.hub.epoch, r.hub.clock, r.hub.classify = standEpoch, t.time, s.hub.classify
	r.guard = &clockGuard{epoch: standEpoch}
	r.foldDue, r.hookRunner, r.salt = r.observeFold, newHookRunner(s.config.hooks), mix64(seed+1)
	sn := *s.snap.Load()
	sn.nodes = append([]*node(nil), sn.nodes...)
	for i, n := range sn.nodes {
		st := newWorkerState()
		sn.nodes[i] = &node{Worker: n.Worker, slot: n.slot, gen: n.gen, st: st, hub: &r.hub}
		r.gens = append(r.gens, n.gen)
	}
	sn.cols = r.columns(&sn, 0)
	r.snap.Store(&sn)
	t.Router = r
	return t
}

func (s *stand) time() time.Time { return standEpoch.Add(time.Duration(s.ns.Load())) }

// step moves the clock on.
func (s *stand) step(d time.Duration) { s.ns.Add(int64(d)) }

// maintain moves the clock on, a fold interval at a time, as Run would.
func (s *stand) maintain(d time.Duration) {
	every := s.Tuning().FoldInterval
	for ; d > 0; d -= every {
		s.step(min(d, every))
		s.Maintain(s.time())
	}
}

func (s *stand) refs(ids ...string) []Ref {
	s.tb.Helper()
	refs := make([]Ref, len(ids))
	for i, id := range ids {
		ref, ok := s.Ref(id)
		require.True(s.tb, ok, "no worker %q", id)
		refs[i] = ref
	}
	return refs
}

func (s *stand) route(q Request) Choice {
	s.tb.Helper()
	c, err := s.Route(q)
	if err != nil {
		s.tb.Fatalf("Route(%+v): %v", q, err)
	}
	return c
}

// view is what a picker is handed for a request.
func (s *stand) view(q Request) *View {
	s.tb.Helper()
	v := new(View)
	_, err := s.prepare(v, s.snap.Load(), &q, s.now())
	require.NoError(s.tb, err)
	return v
}

func (s *stand) state(id string) *workerState {
	sn := s.snap.Load()
	return sn.nodes[sn.byID[id]].st
}

// setLatency makes a worker's latency known as of now, on the read lane.
func (s *stand) setLatency(id string, d time.Duration) { s.setLatencyNS(id, float64(d)) }

func (s *stand) setLatencyNS(id string, ns float64) {
	ls := &s.state(id).lane[laneRead]
	ls.lat.Store(packLat(ns, s.now()))
	ls.mem.Store(s.snap.Load().coef.memory(0, 0))
}

func (s *stand) setPenalty(id string, p penalty) {
	s.state(id).lane[laneRead].pen.v.Store(uint64(p))
}

// share counts whom n requests go to, each answered at once in rtt.
func (s *stand) share(n int, q func(i int) Request, rtt func(id string) time.Duration) map[string]int {
	s.tb.Helper()
	got := map[string]int{}
	for i := range n {
		c := s.route(q(i))
		got[c.ID()]++
		s.Observe(c, rtt(c.ID()), nil)
	}
	return got
}

func always(q Request) func(int) Request { return func(int) Request { return q } }

func equalRTT(string) time.Duration { return time.Millisecond }

func workersNamed(ids ...string) []Worker {
	ws := make([]Worker, len(ids))
	for i, id := range ids {
		ws[i] = Worker{ID: id}
	}
	return ws
}

func numberedWorkers(n int) []Worker {
	ws := make([]Worker, n)
	for i := range ws {
		ws[i].ID = fmt.Sprintf("w%02d", i)
	}
	return ws
}

// checkDistribution compares counts with probabilities, which need not sum to
// 1, by chi-square at a level of 1e-5. Places of probability 0 must be empty.
func checkDistribution(t testing.TB, what string, got []int, want []float64) {
	t.Helper()
	if stat, limit, ok := chiSquare(got, want); !ok {
		t.Errorf("%s: got %v, want shares %.4v (chi-square %.1f, limit %.1f)", what, got, want, stat, limit)
	}
}

func chiSquare(got []int, want []float64) (stat, limit float64, ok bool) {
	n, sum := 0, 0.0
	for i := range got {
		n += got[i]
		sum += want[i]
	}
	df, rare, rareWant := -1.0, 0.0, 0.0
	for i, g := range got {
		e := want[i] / sum * float64(n)
		switch {
		case want[i] == 0 && g > 0:
			return math.Inf(1), 0, false
		case e < 8: // too rare each: taken together
			rare, rareWant = rare+float64(g), rareWant+e
		default:
			stat += (float64(g) - e) * (float64(g) - e) / e
			df++
		}
	}
	if rareWant > 0 {
		stat += (rare - rareWant) * (rare - rareWant) / max(rareWant, 1)
		df++
	}
	if df < 1 {
		return stat, 1, stat <= 20
	}
	// Wilson and Hilferty (PNAS 1931); 4.26 is the normal quantile of 1e-5.
	h := 2 / (9 * df)
	limit = df * math.Pow(1-h+4.26*math.Sqrt(h), 3)
	return stat, limit, stat <= limit
}

func TestChiSquare_Rejects(t *testing.T) {
	even := []float64{1, 1, 1}
	_, _, ok := chiSquare([]int{33_300, 33_400, 33_300}, even)
	assert.True(t, ok)
	_, _, ok = chiSquare([]int{32_300, 34_400, 33_300}, even)
	assert.False(t, ok, "3 %% off at 100k")
	_, _, ok = chiSquare([]int{50, 50, 1}, []float64{1, 1, 0})
	assert.False(t, ok, "what has no probability was drawn")
}

// Q2's worked example.
func TestExample_SmoothRoundRobin(t *testing.T) {
	s := newStand(t, 1, []Worker{{ID: "a", Weight: 5}, {ID: "b", Weight: 1}, {ID: "c", Weight: 1}}, WithPicker(SmoothWeighted{}))
	q := Request{Among: s.refs("a", "b", "c")}
	var got []string
	for range 21 {
		c := s.route(q)
		got = append(got, c.ID())
		s.Observe(c, time.Millisecond, nil)
	}
	assert.Equal(t, strings.Repeat("a a b a c a a ", 3), strings.Join(got, " ")+" ")
}

// rotates tells whether any n picks in a row are n different ones.
func rotates(picks []int, n int) bool {
	for i := range len(picks) - n + 1 {
		seen := map[int]bool{}
		for _, p := range picks[i : i+n] {
			seen[p] = true
		}
		if len(seen) != n {
			return false
		}
	}
	return true
}

func TestCase_035_EqualWeightsRotate(t *testing.T) {
	// The faulty design: weights scaled up, then counted down one by one.
	naive := func(n, picks int) (seq []int) {
		for i := range picks {
			seq = append(seq, i/2%n)
		}
		return seq
	}
	require.False(t, rotates(naive(2, 20), 2))
	for _, p := range []Picker{SmoothWeighted{}, RoundRobin{}} {
		for n := 2; n <= MaxCandidates; n++ {
			s := newStand(t, 1, numberedWorkers(n))
			v := s.view(Request{Any: true})
			score := make([]float64, n)
			for i := range score {
				score[i] = 70
			}
			var picks []int
			for range 5 * n {
				picks = append(picks, p.Pick(v, score, nil))
			}
			if !rotates(picks, n) {
				t.Errorf("%s, %d workers: %v", p.Name(), n, picks)
			}
		}
	}
}

func TestSmoothWeighted_LeastWeightKeepsItsPlace(t *testing.T) {
	s := newStand(t, 1, workersNamed("a", "b", "c"))
	v := s.view(Request{Among: s.refs("a", "b", "c")})
	count := func(n int, score ...float64) (got [3]int) {
		for range n {
			got[SmoothWeighted{}.Pick(v, score, nil)]++
		}
		return got
	}
	assert.Equal(t, [3]int{1000, 100, 1000}, count(2100, 70, 0, 70), "a score of 0 leaves a tenth")
	got := count(30, 70, 70, 70)
	for i, n := range got {
		assert.InDelta(t, 10, n, 1, "worker %d after its weight came back: %v", i, got)
	}
}

func TestSmoothWeighted_FactorScalesTheWeight(t *testing.T) {
	s := newStand(t, 1, workersNamed("a", "b", "c"), WithPicker(SmoothWeighted{}))
	s.setPenalty("b", penalty(0).setPhase(Observed))
	q := Request{Among: s.refs("a", "b", "c")}
	got := map[string]int{}
	for range 2850 { // Observe would heal it
		c := s.route(q)
		got[c.ID()]++
		c.Cancel()
	}
	assert.Equal(t, map[string]int{"a": 1000, "b": 850, "c": 1000}, got)
}

func TestCase_124_WeightRisesAndFallsWhileRunning(t *testing.T) {
	s := newStand(t, 1, workersNamed("a", "b"), WithPicker(SmoothWeighted{}))
	version := uint64(0)
	set := func(weight float64) {
		version++
		require.NoError(t, s.SetTopology(Topology{Version: version, Workers: []Worker{{ID: "a", Weight: weight}, {ID: "b", Weight: 1}}}))
	}
	run := func(n int) (b int, longest int) {
		q := Request{Among: s.refs("a", "b")}
		last, row := "", 0
		for range n {
			c := s.route(q)
			if c.ID() == "b" {
				b++
			}
			if row++; c.ID() != last {
				last, row = c.ID(), 1
			}
			longest = max(longest, row)
			s.Observe(c, time.Millisecond, nil)
		}
		return b, longest
	}
	set(1)
	b, _ := run(1000)
	assert.InDelta(t, 500, b, 1)
	set(1000)
	b, _ = run(10_010 + 400) // 400: the heavy one's debt is at its largest
	assert.InDelta(t, 10, b, 1)
	set(1)
	b, longest := run(10_000)
	assert.InDelta(t, 5000, b, 50, "shares after the weight is back")
	assert.LessOrEqual(t, longest, 20, "a debt of weight 1000 may not be paid at weight 1")
}

func TestSmoothWeighted_TinyWeightsRotate(t *testing.T) {
	ws := workersNamed("a", "b", "c")
	for i := range ws {
		ws[i].Weight = 1e-9
	}
	s := newStand(t, 1, ws)
	v := s.view(Request{Among: s.refs("a", "b", "c")})
	var got [3]int
	for range 300 {
		got[SmoothWeighted{}.Pick(v, []float64{70, 70, 70}, nil)]++
	}
	assert.Equal(t, [3]int{100, 100, 100}, got)
}

// hammer picks n times on each of g goroutines, from sets of candidates drawn
// by seed, and counts per worker the picks and what is due to it: the part
// of each pick that its weight gives it.
func hammer(s *stand, p Picker, g, n int, sets [][]Ref, weight func(w *Worker) float64) (got, due map[string]float64) {
	got, due = map[string]float64{}, map[string]float64{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for k := range g {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(k), 0))
			views := make([]*View, len(sets))
			for i := range sets {
				views[i] = s.view(Request{Among: sets[i]})
			}
			mine, mineDue := map[string]float64{}, map[string]float64{}
			score := [MaxCandidates]float64{}
			for i := range score {
				score[i] = 70
			}
			for range n {
				v := views[rnd.IntN(len(views))]
				mine[v.Worker(p.Pick(v, score[:v.n], &Rand{rnd.Uint64()})).ID]++
				sum := 0.0
				for i := range v.n {
					sum += weight(v.Worker(i))
				}
				for i := range v.n {
					mineDue[v.Worker(i).ID] += weight(v.Worker(i)) / sum
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for id := range mineDue {
				got[id] += mine[id]
				due[id] += mineDue[id]
			}
		})
	}
	wg.Wait()
	return got, due
}

// overlapping sets of three, as a ring makes them.
func overlappingSets(s *stand, n int) [][]Ref {
	var sets [][]Ref
	for i := range n {
		sets = append(sets, s.refs(fmt.Sprintf("w%02d", i), fmt.Sprintf("w%02d", (i+1)%n), fmt.Sprintf("w%02d", (i+3)%n)))
	}
	return sets
}

func TestRoundRobins_SharesOverOverlappingSets(t *testing.T) {
	for _, p := range []Picker{SmoothWeighted{}, RoundRobin{}} {
		for _, g := range []int{1, 8} {
			ws := numberedWorkers(10)
			weight := func(*Worker) float64 { return 1 }
			if _, ok := p.(SmoothWeighted); ok {
				// Every set has one of 3, so that what is charged is the same.
				for i := range ws {
					ws[i].Weight = 2
				}
				weight = func(w *Worker) float64 { return w.Weight }
			}
			s := newStand(t, 1, ws)
			got, due := hammer(s, p, g, 10_000/g, overlappingSets(s, len(ws)), weight)
			for id := range due {
				assert.InEpsilon(t, due[id], got[id], 0.02, "%s, %d goroutines, %s", p.Name(), g, id)
			}
			sum := int64(0)
			for _, w := range ws {
				c := s.state(w.ID).credit.Load()
				sum += c
				assert.Less(t, math.Abs(float64(c))/creditUnit, 4*3*2.0, "%s, %d goroutines: credit of %s", p.Name(), g, w.ID)
			}
			assert.Zero(t, sum, "%s, %d goroutines: what one is given another pays", p.Name(), g)
		}
	}
}

func TestSmoothWeighted_UnequalWeightsOnEightGoroutines(t *testing.T) {
	s := newStand(t, 1, []Worker{{ID: "a", Weight: 5}, {ID: "b", Weight: 1}, {ID: "c", Weight: 1}})
	got, due := hammer(s, SmoothWeighted{}, 8, 1400, [][]Ref{s.refs("a", "b", "c")}, func(w *Worker) float64 { return w.Weight })
	for id := range due {
		assert.InDelta(t, due[id], got[id], 9, "share of %s", id) // one a goroutine may be under way
	}
}

func TestCase_037_RebuildKeepsThePosition(t *testing.T) {
	t.Parallel()
	weights := []float64{128, 10}
	right := func(light, n int) bool { return math.Abs(float64(light)/float64(n)-10.0/138) <= 0.01 }

	// The faulty design: the scheduler starts anew with each rebuild.
	light := 0
	for range 5000 {
		credit := [2]float64{}
		for range 20 {
			credit[0], credit[1] = credit[0]+weights[0], credit[1]+weights[1]
			i := 0
			if credit[1] > credit[0] {
				i, light = 1, light+1
			}
			credit[i] -= weights[0] + weights[1]
		}
	}
	require.False(t, right(light, 100_000), "light got %d", light)

	for _, p := range []Picker{SmoothWeighted{}, WeightedRandom{}} {
		s := newStand(t, 1, []Worker{{ID: "heavy", Weight: 128}, {ID: "light", Weight: 10}}, WithPicker(p), WithPoints(1))
		light := 0
		for i := range 100_000 {
			if i%20 == 0 {
				require.NoError(t, s.SetTopology(Topology{Version: uint64(i + 1), Workers: []Worker{
					{ID: "heavy", Weight: 128, Addr: fmt.Sprint(i)}, {ID: "light", Weight: 10, Addr: fmt.Sprint(i)}}}))
			}
			c := s.route(Request{Key: "k"})
			if c.ID() == "light" {
				light++
			}
			s.Observe(c, time.Millisecond, nil)
		}
		if !right(light, 100_000) {
			t.Errorf("%s: light got %d of 100000, want %d", p.Name(), light, 100_000*10/138)
		}
	}
}

// numberOf is the number in an ID of numberedWorkers.
func numberOf(id string) int { return int(id[1]-'0')*10 + int(id[2]-'0') }

func TestSoftmax_Distribution(t *testing.T) {
	const seed = 11
	for _, temperature := range []float64{0.3, 1, 10} {
		tu := DefaultTuning()
		tu.Temperature = temperature
		s := newStand(t, seed, workersNamed("a", "b", "c", "d", "e"), WithTuning(tu))
		s.setPenalty("b", penalty(0).setPhase(Observed))
		v := s.view(Request{Among: s.refs("a", "b", "c", "d", "e")})
		score := []float64{70, 71, 69.5, 0, 68}
		want := make([]float64, 5)
		for i, x := range score {
			want[i] = math.Exp((x - 71) / temperature)
		}
		want[1] *= 0.85
		got := make([]int, 5)
		rnd := &Rand{mix64(seed)}
		for range 100_000 {
			got[Softmax{}.Pick(v, score, rnd)]++
		}
		checkDistribution(t, fmt.Sprintf("T=%g, seed %d", temperature, seed), got, want)
	}
}

func TestRandomPickers_Distribution(t *testing.T) {
	const seed = 12
	s := newStand(t, seed, []Worker{{ID: "a", Weight: 1}, {ID: "b", Weight: 3}, {ID: "c", Weight: 0.5}})
	s.setPenalty("b", penalty(0).setPhase(Observed))
	v := s.view(Request{Among: s.refs("a", "b", "c")})
	for _, c := range []struct {
		p    Picker
		want []float64
	}{
		{Random{}, []float64{1, 1, 1}},
		{WeightedRandom{}, []float64{1, 3 * 0.85, 0.5}},
	} {
		got := make([]int, 3)
		rnd := &Rand{mix64(seed)}
		for range 100_000 {
			got[c.p.Pick(v, []float64{0, 50, 100}, rnd)]++
		}
		checkDistribution(t, c.p.Name(), got, c.want)
	}
}

// TestCase_050: the walk along the weights, with zeros anywhere and the drawn
// number at both ends.
func TestCase_050_ZeroWeightsAnywhere(t *testing.T) {
	last := unit(math.MaxUint64) // 1 - 2^-53
	require.Less(t, last, 1.0)
	require.Equal(t, 1-0x1p-53, last)
	vectors := [][]float64{
		{0, 1, 2}, {1, 0, 2}, {1, 2, 0}, {0, 0, 3}, {3, 0, 0}, {0, 3, 0}, {0.1, 0.2, 0.3, 0}, {0, 1e-300, 0},
		{0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0}, {1e300, 1, 0}, {1, 1e-17, 0},
	}
	ok := func(pick func(w []float64, u float64) int) bool {
		for _, w := range vectors {
			for _, u := range []float64{0, 0x1p-53, 0.5, last} {
				if i := pick(w, u); i < 0 || i >= len(w) || w[i] == 0 {
					return false
				}
			}
		}
		return true
	}
	assert.True(t, ok(draw))
	assert.Equal(t, 0, draw([]float64{0, 0, 0}, last), "all zero: still someone")

	// The faulty designs: one stops on a zero, one walks past the end.
	assert.False(t, ok(func(w []float64, u float64) int {
		sum := 0.0
		for _, x := range w {
			sum += x
		}
		for i, x := range w {
			if u = u - x/sum; u <= 0 {
				return i
			}
		}
		return len(w)
	}))

	// The short path's draw without branches, at the same numbers: a worker so
	// slow that its weight is 0, in each place.
	for place, id := range []string{"a", "b", "c", "d"} {
		for _, u := range []uint64{0, 1 << 11, math.MaxUint64} {
			s := newStand(t, 1, workersNamed("a", "b", "c", "d"), WithReplicas(4), WithRand(func() uint64 { return u }))
			require.True(t, s.snap.Load().plain)
			s.nextFold.Store(math.MaxInt64) // its cost would become the fleet's
			s.setLatencyNS(id, 1e38)
			for k := range 64 {
				c := s.route(Request{Key: fmt.Sprint(k)})
				if c.ID() == id {
					t.Fatalf("u=%d: drew %s (%d), whose weight is 0", u, id, place)
				}
				c.Cancel()
				s.setLatencyNS(id, 1e38)
			}
		}
	}
}

func TestPrimaryFirst(t *testing.T) {
	ws := workersNamed("a", "b", "c")
	ws[1].Role = RolePrimary
	s := newStand(t, 1, ws, WithPicker(PrimaryFirst{}))
	for range 5 {
		assert.Equal(t, "b", s.route(Request{Intent: Read, Among: s.refs("a", "b", "c")}).ID())
		assert.Equal(t, "c", s.route(Request{Intent: Read, Among: s.refs("c", "a")}).ID(), "no primary: the first")
	}
}

func TestCase_040_TwoChoicesAreDistinct(t *testing.T) {
	const seed, n = 40, 5
	s := newStand(t, seed, numberedWorkers(n))
	var refs []Ref
	for i := range n {
		id := fmt.Sprintf("w%02d", i)
		refs = append(refs, s.refs(id)...)
		for range i {
			s.StartWorker(id)
		}
	}
	score := make([]float64, n)
	least := func(v *View, a, b int) int {
		if v.InFlight(b) < v.InFlight(a) {
			return b
		}
		return a
	}
	// Of two, the more loaded is never taken.
	neverBusier := func(pick func(v *View, rnd *Rand) int) bool {
		v, rnd := s.view(Request{Among: refs[:2]}), &Rand{mix64(seed)}
		for range 1000 {
			if pick(v, rnd) != 0 {
				return false
			}
		}
		return true
	}
	assert.False(t, neverBusier(func(v *View, rnd *Rand) int { // the faulty design: draws one twice
		return least(v, int(rnd.Uint64()%2), int(rnd.Uint64()%2))
	}))
	assert.True(t, neverBusier(func(v *View, rnd *Rand) int { return TwoChoices{}.Pick(v, score[:2], rnd) }))

	// Of five, each pair is as likely: rank r wins against the n-1-r behind it.
	v, rnd := s.view(Request{Among: refs}), &Rand{mix64(seed)}
	got, want := make([]int, n), make([]float64, n)
	for r := range want {
		want[r] = float64(n - 1 - r)
	}
	for range 100_000 {
		got[TwoChoices{}.Pick(v, score, rnd)]++
	}
	checkDistribution(t, "ranks", got, want)
	assert.Equal(t, 0, TwoChoices{}.Pick(s.view(Request{Among: refs[:1]}), score[:1], rnd), "one candidate")
}

func TestCase_041_InFlightCountsFromThePick(t *testing.T) {
	s := newStand(t, 1, workersNamed("a", "b", "c"))
	q := Request{Key: "k"}
	attached := map[string]int{} // the faulty design counts what has connected
	for n := 1; n <= 30; n++ {
		c := s.route(q)
		total := 0
		v := s.view(q)
		for i := range v.Len() {
			total += v.InFlight(i)
		}
		require.Equal(t, n, total, "picks out and nothing observed; %d would be by streams attached", attached[c.ID()])
	}
	v := s.view(q)
	for i := range v.Len() {
		assert.Equal(t, 10, v.InFlight(i), "reserved at once, so spread at once")
	}
}

func TestLeastInFlight_AndHighest(t *testing.T) {
	s := newStand(t, 1, workersNamed("a", "b", "c"))
	s.StartWorker("a")
	s.StartWorker("c")
	v, rnd := s.view(Request{Among: s.refs("a", "b", "c")}), &Rand{1}
	for range 100 {
		assert.Equal(t, 1, LeastInFlight{}.Pick(v, []float64{100, 0, 100}, rnd))
		assert.Equal(t, 2, Highest{}.Pick(v, []float64{10, 0, 10.1}, rnd))
	}
}

// Cases 53, 82 and 85: equals are equal, whoever stands first and whoever
// was skipped.
func TestCase_053_082_085_TiesAreFair(t *testing.T) {
	const seed, n, picks = 53, 5, 60_000
	fair := func(pick func(v *View, score []float64, rnd *Rand) int) bool {
		s := newStand(t, seed, numberedWorkers(n))
		rnd := &Rand{mix64(seed)}
		got, want := make([]float64, n), make([]float64, n)
		var views []*View // of all, and of all but one
		for skip := range n + 1 {
			var refs []Ref
			for i := range n {
				if i != skip {
					refs = append(refs, s.refs(fmt.Sprintf("w%02d", i))...)
				}
			}
			views = append(views, s.view(Request{Among: refs}))
		}
		score := []float64{42, 42, 42, 42, 42}
		for k := range picks {
			v := views[n] // the set changes every other time
			if k%2 == 1 {
				v = views[k/2%n]
			}
			for i := range v.n {
				want[numberOf(v.Worker(i).ID)] += 1 / float64(v.n)
			}
			got[numberOf(v.Worker(pick(v, score[:v.n], rnd)).ID)]++
		}
		for i := range got {
			if math.Abs(got[i]/want[i]-1) > 0.03 {
				return false
			}
		}
		return true
	}
	// The faulty designs: the first of the best, and the one after the last.
	last := 0
	assert.False(t, fair(func(*View, []float64, *Rand) int { return 0 }), "82, 85")
	assert.False(t, fair(func(v *View, _ []float64, _ *Rand) int { // 53
		if v.n == n {
			last = (last + 1) % n
			return last
		}
		return min(last, v.n-1)
	}))
	for _, p := range []Picker{Softmax{}, Highest{}, Random{}, WeightedRandom{}, TwoChoices{}, LeastInFlight{}, RoundRobin{}, SmoothWeighted{}} {
		if !fair(p.Pick) {
			t.Errorf("%s is unfair among equals", p.Name())
		}
	}
}

// Case 85 for the whole router: without load or history nobody is preferred,
// by the short path and by the long one.
func TestCase_085_IdleRouterPrefersNobody(t *testing.T) {
	for _, o := range []struct {
		name string
		opts []Option
	}{{"short path", nil}, {"long path", []Option{WithReplicas(5)}}} {
		s := newStand(t, 85, workersNamed("a", "b", "c", "d", "e"), o.opts...)
		got := map[string]int{}
		v := s.view(Request{Key: "one"})
		for range 30_000 {
			c := s.route(Request{Key: "one"})
			got[c.ID()]++
			c.Cancel()
			s.step(time.Microsecond)
		}
		counts, want := []int{}, []float64{}
		for i := range v.n {
			counts, want = append(counts, got[v.Worker(i).ID]), append(want, 1)
		}
		checkDistribution(t, o.name, counts, want)
	}
}

// golden is the step of Rand, inverse its inverse mod 2^64.
func drawsOf(before, after uint64) int {
	const golden = uint64(0x9e3779b97f4a7c15)
	inverse := golden
	for range 6 { // Newton
		inverse *= 2 - golden*inverse
	}
	return int((after - before) * inverse)
}

func TestCase_032_LoopsAreBounded(t *testing.T) {
	t.Parallel()
	bounded := func(loops, n int) bool { return loops <= 2*n }
	// The faulty design: a place is taken with probability weight/65535, and
	// all weights are 1.
	loops, rnd := 0, rand.New(rand.NewPCG(32, 0))
	for i := 0; ; i++ {
		if loops++; rnd.IntN(65535) < 1 {
			break
		}
	}
	require.False(t, bounded(loops, 5), "%d loops", loops)

	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 32))
		ws := numberedWorkers(1 + rnd.IntN(MaxCandidates))
		for i := range ws {
			ws[i].Weight = max(min(math.Pow(10, float64(rnd.IntN(14)-10)), MaxWeight), 0)
		}
		s := newStand(t, seed, ws, WithPoints(1), WithReplicas(len(ws)))
		v := s.view(Request{Any: true})
		score := make([]float64, v.n)
		for i := range score {
			score[i] = []float64{0, 1e-300, 50, 70, 100}[rnd.IntN(5)]
		}
		for _, p := range []Picker{Softmax{}, SmoothWeighted{}, Highest{}, Random{}, WeightedRandom{}, RoundRobin{}, PrimaryFirst{}, TwoChoices{}, LeastInFlight{}} {
			r := Rand{seed}
			i := p.Pick(v, score, &r)
			if i < 0 || i >= v.n {
				t.Fatalf("seed %d: %s picked %d of %d", seed, p.Name(), i, v.n)
			}
			if n := drawsOf(seed, r.s); !bounded(n, v.n) {
				t.Fatalf("seed %d: %s drew %d times for %d candidates", seed, p.Name(), n, v.n)
			}
		}
		// SmoothWeighted visits each once: the credits have moved by one weight.
		for i := range v.n {
			v.col(i).st.credit.Store(0)
		}
		chosen := SmoothWeighted{}.Pick(v, score, nil)
		for i := range v.n {
			if moved := v.col(i).st.credit.Load(); i != chosen && moved != creditOf(v, i, score[i]) {
				t.Fatalf("seed %d: credit of %d moved by %d, its weight is %d", seed, i, moved, creditOf(v, i, score[i]))
			}
		}
	}
}

// Case 34: what one of five reports makes no weight that the others lack.
// Here reports never make weights; the four without are as good as the one.
func TestCase_034_OneReportingWorkerChangesNothing(t *testing.T) {
	t.Parallel()
	equal := func(got map[string]int) bool {
		sum := 0
		for _, n := range got {
			sum += n
		}
		for _, n := range got {
			if math.Abs(float64(n)*5/float64(sum)-1) > 0.02 {
				return false
			}
		}
		return len(got) == 5
	}
	require.False(t, equal(map[string]int{"w00": 60_000, "w01": 10_000, "w02": 10_000, "w03": 10_000, "w04": 10_000}),
		"the faulty design: the known weight beside defaults of another scale")
	for _, c := range []struct {
		n    int
		opts []Option
	}{{100_000, nil}, {10_000, []Option{WithPicker(RoundRobin{})}}, {10_000, []Option{WithPicker(SmoothWeighted{})}}} {
		opts := append(c.opts, WithReplicas(5))
		s := newStand(t, 34, numberedWorkers(5), opts...)
		require.NoError(t, s.Report(Report{Worker: "w00", Time: s.time(), CPU: Some(0.9), Queue: Some(3.0),
			RTTAvg: Some(4 * time.Millisecond), RTTP99: Some(20 * time.Millisecond)}))
		s.maintain(time.Second)
		got := s.share(c.n, func(i int) Request { return Request{Hash: HashUint64(uint64(i))} }, equalRTT)
		if !equal(got) {
			t.Errorf("%v", got)
		}
	}
}

// loop is a closed loop with so many requests at once: the answer of each
// comes after its worker's rtt, in the order of time.
func (s *stand) loop(n, atOnce int, q func(i int) Request, rtt func(id string) time.Duration) map[string]int {
	s.tb.Helper()
	type flight struct {
		c   Choice
		end int64
		rtt time.Duration
	}
	var out []flight
	got := map[string]int{}
	for i := range n {
		if len(out) == atOnce {
			first := 0
			for j := range out {
				if out[j].end < out[first].end {
					first = j
				}
			}
			f := out[first]
			out[first] = out[len(out)-1]
			out = out[:len(out)-1]
			s.ns.Store(max(s.ns.Load(), f.end))
			s.Observe(f.c, f.rtt, nil)
		}
		c := s.route(q(i))
		got[c.ID()]++
		d := rtt(c.ID())
		out = append(out, flight{c, s.ns.Load() + int64(d), d})
	}
	for _, f := range out {
		s.ns.Store(max(s.ns.Load(), f.end))
		s.Observe(f.c, f.rtt, nil)
	}
	return got
}

func TestCase_056_FastGetsMoreThanSlow(t *testing.T) {
	right := func(got map[string]int) bool {
		return float64(got["fast"]) > 0.9*float64(got["fast"]+got["slow"])
	}
	rtt := func(id string) time.Duration {
		if id == "slow" {
			return 45 * time.Millisecond
		}
		return time.Millisecond
	}
	for _, c := range []struct {
		name string
		want bool
		opts []Option
	}{
		{"equal load, the faulty version", false, []Option{WithPicker(RoundRobin{})}},
		{"default", true, nil},
	} {
		s := newStand(t, 56, workersNamed("fast", "slow"), c.opts...)
		got := s.loop(20_000, 4, func(i int) Request { return Request{Hash: HashUint64(uint64(i))} }, rtt)
		if right(got) != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// Case 61 fits in its sense only: there is no dead band, so a lasting
// difference of 5 % may show as 1.05^10 = 1.6 while workers are idle, and
// load evens it out. What must not be is a spread of hundreds between equals.
func TestCase_061_NoiseIsNoDifference(t *testing.T) {
	t.Parallel()
	const n = 40_000
	spread := func(got map[string]int) float64 {
		lo, hi := n, 0
		for i := range 5 {
			k := got[fmt.Sprintf("w%02d", i)]
			lo, hi = min(lo, k), max(hi, k)
		}
		return float64(hi) / float64(max(lo, 1))
	}
	// The faulty design: strictly the least of measured latencies.
	lat, got := [5]float64{}, map[string]int{}
	rnd := rand.New(rand.NewPCG(61, 0))
	for range n {
		best := 0
		for i := range lat {
			if lat[i] < lat[best] {
				best = i
			}
		}
		got[fmt.Sprintf("w%02d", best)]++
		lat[best] = lat[best]*0.98 + 0.02*(1+0.05*rnd.Float64())
	}
	require.Greater(t, spread(map[string]int{"w00": got["w00"], "w01": n}), 5.0)

	for _, c := range []struct {
		name  string
		rtt   func(i int) float64 // ms
		limit float64
	}{
		{"5 % noise", func(int) float64 { return 1 + 0.05*rnd.Float64() }, 1.1},
		{"50 % noise", func(int) float64 { return 0.75 + 0.5*rnd.Float64() }, 1.1},
		{"exponential", func(int) float64 { return rnd.ExpFloat64() + 1e-3 }, 1.4},
		{"a standing 1 %", func(i int) float64 { return 1 + 0.01*float64(i%2) }, 1.2},
		{"a standing 5 %", func(i int) float64 { return 1 + 0.05*float64(i%2) }, 1.8},
	} {
		s := newStand(t, 61, numberedWorkers(5), WithReplicas(5))
		got := s.loop(n, 4, func(i int) Request { return Request{Hash: HashUint64(uint64(i))} }, func(id string) time.Duration {
			return time.Duration(c.rtt(numberOf(id)) * float64(time.Millisecond))
		})
		if x := spread(got); x > c.limit {
			t.Errorf("%s: spread %.2f, want at most %.2f: %v", c.name, x, c.limit, got)
		}
	}
}

func TestCase_071_BurstBetweenReportsSpreads(t *testing.T) {
	const n, burst = 10, 200
	maxOver := func(got map[string]int) float64 {
		top := 0
		for _, k := range got {
			top = max(top, k)
		}
		return float64(top) * n / burst
	}
	// The faulty design: the reported queue alone, least first.
	queue := []float64{9, 3, 5, 2, 7, 8, 4, 6, 5, 3}
	naive := map[string]int{}
	for range burst {
		best := 0
		for i := range queue {
			if queue[i] < queue[best] {
				best = i
			}
		}
		naive[fmt.Sprint(best)]++
	}
	require.Greater(t, maxOver(naive), 1.3)

	s := newStand(t, 71, numberedWorkers(n), WithReplicas(n))
	for i, x := range queue {
		require.NoError(t, s.Report(Report{Worker: fmt.Sprintf("w%02d", i), Time: s.time(), Queue: Some(x), CPU: Some(x / 10)}))
	}
	s.maintain(100 * time.Millisecond)
	got := map[string]int{}
	for i := range burst { // all out at once
		got[s.route(Request{Hash: HashUint64(uint64(i))}).ID()]++
	}
	if x := maxOver(got); x > 1.3 {
		t.Errorf("max/mean %.2f: %v", x, got)
	}
}

// affinity scores 100 for workers that hold a key, else 0: cold keys have 0
// everywhere.
type affinity map[string]string

func (affinity) Name() string { return "affinity" }
func (a affinity) Score(v *View, out []float64) {
	for i := range out {
		out[i] = 0
		if a[v.Key()] == v.Worker(i).ID {
			out[i] = 100
		}
	}
}

func TestCase_073_ColdKeysSpread(t *testing.T) {
	const n = 5
	s := newStand(t, 73, numberedWorkers(n), WithReplicas(n), WithScorer(affinity{"warm": "w03"}, 1))
	got, naive := make([]int, n), make([]int, n)
	want := []float64{1, 1, 1, 1, 1}
	for i := range 1000 {
		c := s.route(Request{Key: fmt.Sprintf("cold-%d", i)})
		got[numberOf(c.ID())]++
		s.Observe(c, time.Millisecond, nil)
		naive[0]++ // the first of those with the most affinity
	}
	_, _, ok := chiSquare(naive, want)
	require.False(t, ok)
	checkDistribution(t, "cold keys", got, want)
	warm := s.share(100, always(Request{Key: "warm"}), equalRTT)
	assert.Greater(t, warm["w03"], 95, "affinity itself must act: %v", warm)
}

// Case 74 and I10. The minimum quota is an option; without it, fading memory
// brings every healthy worker back.
func TestCase_074_NobodyStarves(t *testing.T) {
	const n = 5
	rtt := func(id string) time.Duration { // two of five slower
		if id == "w01" || id == "w04" {
			return 3 * time.Millisecond
		}
		return time.Millisecond
	}
	least := func(got map[string]int) int {
		lo := math.MaxInt
		for i := range n {
			lo = min(lo, got[fmt.Sprintf("w%02d", i)])
		}
		return lo
	}
	// The faulty design: what was slow once is never asked again.
	naive, seen := map[string]int{}, map[string]time.Duration{}
	for range 10_000 {
		best := "w00"
		for i := range n {
			if id := fmt.Sprintf("w%02d", i); seen[id] < seen[best] {
				best = id
			}
		}
		naive[best]++
		seen[best] = rtt(best)
	}
	require.Less(t, least(naive), 30)

	for _, quota := range []float64{0, 0.005} {
		tu := DefaultTuning()
		tu.MinShare = quota
		s := newStand(t, 74, numberedWorkers(n), WithReplicas(n), WithTuning(tu))
		got := map[string]int{}
		for i := range 10_000 { // ten a second: nothing in flight at the pick
			c := s.route(Request{Hash: HashUint64(uint64(i))})
			got[c.ID()]++
			s.step(100 * time.Millisecond)
			s.Observe(c, rtt(c.ID()), nil)
		}
		if x := least(got); float64(x) < max(10_000*quota*0.6, 30) {
			t.Errorf("MinShare %g: %v", quota, got)
		}
	}

}

// I10 and P6: whatever a worker's speed, it is tried every 30 s where its keys
// see ten picks a second. Fading alone would take a minute (forgetSlow).
func TestCost_NobodyStarves(t *testing.T) {
	t.Parallel()
	const n = 3
	for _, slower := range []float64{1, 3, 10, 50} {
		tu := DefaultTuning()
		tu.TripScore = 0 // no cooldown, which may last longer than that
		s := newStand(t, 10, numberedWorkers(n), WithTuning(tu))
		last, worst := [n]int64{}, int64(0)
		for i := range 20_000 {
			c := s.route(Request{Hash: HashUint64(uint64(i))})
			k := numberOf(c.ID())
			if i > 1000 { // the mean starts with the first answer, however untypical
				worst = max(worst, s.ns.Load()-last[k])
			}
			last[k] = s.ns.Load()
			s.step(100 * time.Millisecond)
			d := time.Millisecond
			if k == 2 {
				d = time.Duration(slower * float64(d))
			}
			s.Observe(c, d, nil)
		}
		for k := range last {
			worst = max(worst, s.ns.Load()-last[k])
		}
		if worst > int64(30*time.Second) {
			t.Errorf("%gx slower: %v between two tries", slower, time.Duration(worst))
		}
	}
}

// Thinning: a factor under 1 leaves a picker that knows nothing of factors
// that share, and someone is always left.
func TestThin_SharesAndNeverTheLast(t *testing.T) {
	t.Parallel()
	const n = 60_000
	s := newStand(t, 1, workersNamed("a", "b", "c"), WithPicker(Random{}))
	s.setPenalty("b", penalty(0).setPhase(Observed))
	q := Request{Among: s.refs("a", "b", "c")}
	got := make([]int, 3)
	for range n {
		c := s.route(q)
		got[c.ID()[0]-'a']++
		c.Cancel()
		s.step(time.Microsecond)
	}
	third, half := 0.85/3, 0.15/2
	checkDistribution(t, "one observed", got, []float64{third + half, third, third + half})

	// All on their ramp at a fifth: each draw leaves one at least, and none of
	// the equals is preferred.
	for _, id := range []string{"a", "b", "c"} {
		s.setPenalty(id, penalty(0).setPhase(Probation).setSuccesses(1).setAt(s.now()))
	}
	got = make([]int, 3)
	for range n {
		c := s.route(q)
		got[c.ID()[0]-'a']++
		c.Cancel()
		s.step(time.Microsecond)
	}
	checkDistribution(t, "all on a ramp", got, []float64{1, 1, 1})
}

// A picker sees the scores of the candidates it is asked about, also when one
// of them was cut since they were scored.
type byScore struct {
	seen func(v *View, score []float64)
}

func (byScore) Name() string { return "by-score" }
func (p byScore) Pick(v *View, score []float64, _ *Rand) int {
	p.seen(v, score)
	return 0
}

func TestPicker_ScoresBelongToTheCandidates(t *testing.T) {
	score := map[string]float64{"a": 10, "b": 20, "c": 30, "d": 40}
	calls := 0
	tu := DefaultTuning()
	tu.LiveWeight = 0
	check := byScore{func(v *View, got []float64) {
		calls++
		for i := range v.Len() {
			if want := score[v.Worker(i).ID]; got[i] != want {
				t.Errorf("%d of %d: %s has %g, want %g", i, v.Len(), v.Worker(i).ID, got[i], want)
			}
		}
	}}
	s := newStand(t, 1, workersNamed("a", "b", "c", "d"), WithPicker(check), WithTuning(tu),
		WithScorer(scorerFunc(func(v *View, out []float64) {
			for i := range out {
				out[i] = score[v.Worker(i).ID]
			}
		}), 1))
	q := Request{Among: s.refs("a", "b", "c", "d")}
	s.setPenalty("b", penalty(0).setPhase(Probation).setSuccesses(1).setAt(s.now())) // thinned four times of five
	for range 200 {
		s.route(q).Cancel()
		s.step(time.Microsecond)
	}
	// a's only probe goes out between the scores and the draw.
	s.setPenalty("a", penalty(0).setPhase(Probation).setAt(s.now()))
	s.setPenalty("b", 0)
	v := s.view(q)
	before := calls
	s.setPenalty("a", penalty(0).setPhase(Probation).setAt(s.now()).setProbes(1))
	for v.factor[0] < 1 { // whether it is thinned is chance: let it through
		v.factor[0] = 1
	}
	c, err := s.choose(v, 0, &q, 0)
	require.NoError(t, err)
	assert.Equal(t, "b", c.ID(), "a's place is taken")
	assert.Equal(t, 2, calls-before)
}

func TestPicker_BadIndexAndPanicFallBack(t *testing.T) {
	for _, c := range []struct {
		name string
		pick func(v *View) int
	}{
		{"negative", func(*View) int { return -1 }},
		{"past the end", func(v *View) int { return v.Len() }},
		{"panics", func(*View) int { panic("picker") }},
	} {
		calls := 0
		s := newStand(t, 1, workersNamed("a", "b", "c"), WithPicker(pickerFunc(func(v *View) int { calls++; return c.pick(v) })))
		got := map[string]int{}
		for range 3000 {
			x := s.route(Request{Key: "k"})
			got[x.ID()]++
			x.Cancel()
			s.step(time.Microsecond)
		}
		checkDistribution(t, c.name, []int{got["a"], got["b"], got["c"]}, []float64{1, 1, 1})
		if c.name == "panics" {
			assert.Equal(t, plugMaxPanics, calls, "switched off after so many")
			assert.EqualValues(t, plugMaxPanics, s.Status().PlugPanics)
		}
	}
}

type pickerFunc func(v *View) int

func (pickerFunc) Name() string                             { return "func" }
func (f pickerFunc) Pick(v *View, _ []float64, _ *Rand) int { return f(v) }

func TestPickers_DoNotAllocate(t *testing.T) {
	for _, p := range []Picker{Softmax{}, SmoothWeighted{}, Highest{}, Random{}, WeightedRandom{}, RoundRobin{}, PrimaryFirst{}, TwoChoices{}, LeastInFlight{}} {
		s := newStand(t, 1, numberedWorkers(5), WithPicker(p))
		key := "k"
		if n := testing.AllocsPerRun(200, func() {
			c, err := s.Pick(key)
			if err != nil {
				panic(err)
			}
			s.Observe(c, time.Millisecond, nil)
		}); n != 0 {
			t.Errorf("%s: %v allocations a pick", p.Name(), n)
		}
	}
}

// Case 52, the cost side: a worker that fails in 0.1 ms looks idle and fast.
// Its cost alone, with the penalty machine out of the way, must turn traffic
// away, whatever verdict the error has.
func TestCase_052_Cost_FastFailuresRepel(t *testing.T) {
	fail := errors.New("boom")
	tu := DefaultTuning()
	tu.MaxOut = 0 // no cooldown
	for _, c := range []struct {
		name    string
		verdict Verdict
		limit   float64
	}{{"fault", Fault, 0.05}, {"broken", Broken, 0.05}, {"overload", Overload, 0.05}} {
		s := newStand(t, 52, workersNamed("good", "fine", "bad"), WithTuning(tu))
		bad := 0
		for i := range 400 {
			x := s.route(Request{Hash: HashUint64(uint64(i))})
			if x.ID() == "bad" {
				if i >= 100 {
					bad++
				}
				s.step(100 * time.Microsecond)
				x.DoneWith(Outcome{Err: fail, Verdict: c.verdict, RTT: 100 * time.Microsecond})
				continue
			}
			s.step(time.Millisecond)
			s.Observe(x, time.Millisecond, nil)
		}
		if share := float64(bad) / 300; share >= c.limit {
			t.Errorf("%s: the failing worker got %.1f %%", c.name, share*100)
		}
	}
	// The faulty design: least in flight, where failing fast is being idle.
	s := newStand(t, 52, workersNamed("good", "fine", "bad"), WithTuning(tu), WithPicker(LeastInFlight{}))
	bad := 0
	var out []Choice
	for i := range 300 {
		x := s.route(Request{Hash: HashUint64(uint64(i))})
		if x.ID() == "bad" {
			bad++
			x.Cancel() // the penalty machine is not asked
			continue
		}
		if out = append(out, x); len(out) > 6 {
			s.Observe(out[0], time.Millisecond, nil)
			out = out[1:]
		}
	}
	require.Greater(t, bad, 100)
}

// Q1 and P6: MinShare is off by default, and where it is set no candidate's
// probability is under it.
func TestSoftmax_MinShare(t *testing.T) {
	assert.Zero(t, DefaultTuning().MinShare)
	assert.Equal(t, 1.0, DefaultTuning().Temperature, "in score points")
	for _, share := range []float64{0, 0.02} {
		tu := DefaultTuning()
		tu.MinShare = share
		s := newStand(t, 1, workersNamed("a", "b", "c"), WithTuning(tu))
		s.setLatency("a", time.Second) // 1000^-10
		s.setLatency("b", time.Millisecond)
		s.setLatency("c", time.Millisecond)
		d := s.Explain(Request{Key: "k", Intent: Read})
		assert.InDelta(t, share, candidate(d, "a").Probability, 1e-4)
		n := 0
		for range 20_000 {
			c := s.route(Request{Key: "k", Intent: Read})
			if c.ID() == "a" {
				n++
			}
			c.Cancel()
		}
		assert.InDelta(t, share*20_000, n, 100)
	}
}

// Where no load is tracked all score alike, and a path without it picked the
// first worker for ever. See TestCase_053_082_085_TiesAreFair for pickers; here
// through Route, with scores of nothing and scores of zero, on the first pick
// of many routers and on many of one.
func TestCase_082_NothingKnownIsNotTheFirst(t *testing.T) {
	check := func(pick func(i int) string) error {
		n := map[string]int{}
		for i := range 900 {
			n[pick(i)]++
		}
		for _, id := range []string{"a", "b", "c"} {
			if n[id] < 200 || n[id] > 400 {
				return fmt.Errorf("%v of 900 picks among equals", n)
			}
		}
		return nil
	}
	for name, score := range map[string]map[string]float64{"no signal": {}, "zero": {"a": 0, "b": 0, "c": 0}} {
		tu := DefaultTuning()
		tu.LiveWeight = 0
		for _, picker := range []Picker{nil, Highest{}, Softmax{}, TwoChoices{}} {
			opts := []Option{WithTuning(tu), WithScorer(byID(score), 1)}
			if picker != nil {
				opts = append(opts, WithPicker(picker))
			}
			s := newStand(t, 82, workersNamed("a", "b", "c"), opts...)
			q := Request{Among: s.refs("a", "b", "c"), Intent: Read}
			assert.NoError(t, check(func(int) string {
				c := s.route(q)
				defer c.Cancel() // load counts from the pick, so none is left
				return c.ID()
			}), "%s, %T", name, picker)
			assert.NoError(t, check(func(i int) string {
				first := s.twin(uint64(i))
				return first.route(Request{Among: first.refs("a", "b", "c"), Intent: Read}).ID()
			}), "%s, %T: first picks", name, picker)
		}
	}
	// The fault: the first of the best, with no load to tell them apart.
	assert.Error(t, check(func(int) string {
		ids, load, best := []string{"a", "b", "c"}, map[string]int{}, 0
		for i := range ids {
			if load[ids[i]] < load[ids[best]] {
				best = i
			}
		}
		return ids[best]
	}))
}

// Bounded load on a ring is no part of ringwise: load is a part of the cost of
// the key's candidates. What the three reports want of it holds all the same:
// the member that has room is found, whoever the others are (10, 23), any
// number of workers and any load ends in a pick of the least loaded one and in
// no panic (11), and what one cannot take goes to many (23).
func TestCase_010_023_TheOneWithRoomIsFound(t *testing.T) {
	const n = 10
	check := func(pick func(key string, room int) int) error {
		for room := range n {
			for k := range 50 {
				if got := pick(fmt.Sprint("key", k), room); got != room {
					return fmt.Errorf("key%d went to %d, the only one with room is %d", k, got, room)
				}
			}
		}
		return nil
	}
	id := func(i int) string { return fmt.Sprintf("w%02d", i) }
	s := newStand(t, 10, numberedWorkers(n), WithReplicas(n))
	ring := s.snap.Load().ring
	require.NoError(t, check(func(key string, room int) int {
		twin := s.twin(uint64(room))
		for i := range n {
			for range 20 * min(1, max(i-room, room-i)) {
				twin.StartWorker(id(i))
			}
		}
		d := twin.Explain(Request{Key: key, Intent: Read})
		require.Len(t, d.Candidates, n)
		return numberOf(twin.route(Request{Key: key, Intent: Read}).ID())
	}), "by live load")
	require.NoError(t, check(func(key string, room int) int {
		full := []uint64{(1<<n - 1) &^ (1 << room)}
		got := ring.walk(HashOf(key), full, nil, n)
		require.Len(t, got, 1, "the walk around those who are out ends with the last")
		require.Len(t, ring.walk(HashOf(key), nil, nil, n+5), n, "and visits each once")
		return int(got[0])
	}), "by the ring")

	// The faults: a fixed number of tries, and a count of the tried that gives
	// up one too early.
	hashed := func(key string, i uint64) int { return int(mix64(uint64(HashOf(key))+i) % n) }
	require.Error(t, check(func(key string, room int) int {
		for i := range uint64(4) {
			if h := hashed(key, i); h == room {
				return h
			}
		}
		return hashed(key, 0)
	}))
	require.Error(t, check(func(key string, room int) int {
		order := ring.walk(HashOf(key), nil, nil, n)
		for tried, slot := range order {
			if tried == n-1 {
				return -1 // "all tried"
			}
			if int(slot) == room {
				return room
			}
		}
		return -1
	}))
}

// Case 23's other half: the keys of one hot worker spill over many others, not
// onto its neighbour.
func TestCase_023_OverflowSpreads(t *testing.T) {
	check := func(spill func(key string) string) error {
		to := map[string]int{}
		for k := range 600 {
			to[spill(fmt.Sprint("key", k))]++
		}
		delete(to, "w00")
		others, most, all := 0, 0, 0
		for _, n := range to {
			all += n
			most = max(most, n)
			if n >= 10 {
				others++
			}
		}
		if others < 3 || most*2 > all {
			return fmt.Errorf("overflow goes to %v", to)
		}
		return nil
	}
	s := newStand(t, 23, numberedWorkers(10))
	var keys []string
	for k := 0; len(keys) < 600; k++ {
		if key := fmt.Sprint("k", k); s.snap.Load().ring.Owners(HashOf(key), nil)[0] == "w00" {
			keys = append(keys, key)
		}
	}
	for range 100 {
		s.StartWorker("w00")
	}
	i := 0
	require.NoError(t, check(func(string) string {
		c := s.route(Request{Key: keys[i], Intent: Read})
		i++
		defer c.Cancel()
		return c.ID()
	}))
	require.Error(t, check(func(string) string { return "w01" }), "the fault: the next on the ring")
}
