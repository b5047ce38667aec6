package ringwise

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// setLatency makes a worker's last answer one of so long, by hand.
func (g *rig) setLatency(id string, d time.Duration) {
	ls := &g.node(id).st.lane[laneRead]
	ls.lat.Store(packLat(float64(d), g.Router.now()))
	ls.mem.Store(g.snap.Load().coef.memory(0, 5))
}

func idsOf(cs []Choice) (ids []string) {
	for _, c := range cs {
		ids = append(ids, c.ID())
	}
	return ids
}

// TestPlan_Order: the first as a Pick draws it, the others by cost, those in
// penalty last, who must not serve not at all.
func TestPlan_Order(t *testing.T) {
	g := newRig(t, 7, WithReplicas(7), rigTuning(nil))
	g.fails("w5", 3)
	g.SetState("w6", Down)
	for i, ms := range []float64{1, 1.1, 1.2, 1.3, 1.4} {
		g.setLatency(fmt.Sprint("w", i), time.Duration(ms*1e6))
	}
	firsts := map[string]int{}
	const plans = 20_000
	rnd := seeded(t, 1)
	for range plans {
		p, err := g.Plan(Request{Hash: HashUint64(rnd.Uint64()), Intent: Read}, nil)
		require.NoError(t, err)
		ids := idsOf(p)
		require.Len(t, ids, 6)
		require.Equal(t, "w5", ids[5], "in cooldown, so last")
		require.True(t, slices.IsSorted(ids[1:5]), "after the first by cost: %v", ids)
		firsts[ids[0]]++
	}
	sum := 0.0
	want := map[string]float64{}
	for i, ms := range []float64{1, 1.1, 1.2, 1.3, 1.4} {
		want[fmt.Sprint("w", i)] = math.Pow(ms, -10)
		sum += math.Pow(ms, -10)
	}
	for id, w := range want {
		p := w / sum
		require.InDelta(t, p, float64(firsts[id])/plans, 4*math.Sqrt(p*(1-p)/plans)+0.001, "share of plans that begin with %s", id)
	}
}

// TestPlan_TouchesNothing: it reserves nothing, opens no probation and takes
// no probe.
func TestPlan_TouchesNothing(t *testing.T) {
	g := newRig(t, 3, rigTuning(nil))
	g.fails("w0", 3)
	g.jump(1100 * time.Millisecond)
	before := g.pen("w0", laneRead)
	dst := []Choice{{}}
	for i := range 300 {
		var err error
		dst, err = g.Plan(Request{Key: fmt.Sprint(i), Intent: Read}, dst[:1])
		require.NoError(t, err)
		require.Len(t, dst, 4, "appended")
		require.True(t, dst[0].IsZero())
	}
	require.Equal(t, before, g.pen("w0", laneRead))
	g.requireIdle()
	require.Equal(t, uint64(3), g.Status().Picks, "those of the failures")
	// Each of them can be started.
	for _, c := range dst[1:] {
		s, err := g.Start(Request{Intent: Read}, c.ID())
		require.NoError(t, err)
		require.Equal(t, c.ID(), s.ID())
		require.Equal(t, 1, g.inFlight(c.ID()))
		s.Done(nil)
	}
	_, err := g.Plan(Request{}, nil)
	require.ErrorIs(t, err, ErrConfig)
	_, err = g.Plan(Request{Key: "k", Intent: 99}, nil)
	require.ErrorIs(t, err, ErrConfig)
	for i := range 3 {
		g.SetState(fmt.Sprint("w", i), Down)
	}
	_, err = g.Plan(Request{Key: "k"}, nil)
	require.ErrorIs(t, err, ErrNoWorker)
}

// TestPlan_RacksApart: F4. The next one is not in a rack already used, as long
// as there is one that is not.
func TestPlan_RacksApart(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		ws := rigWorkers(1 + rnd.IntN(16))
		for i := range ws {
			if rnd.IntN(6) > 0 {
				ws[i].Rack = fmt.Sprint("rack", rnd.IntN(4))
			}
			ws[i].Zone = fmt.Sprint("zone", rnd.IntN(2))
		}
		r, err := New(ws, WithReplicas(16), WithClock(func() time.Time { return rigEpoch }))
		require.NoError(t, err)
		p, err := r.Plan(Request{Key: "k", SpreadRacks: true}, nil)
		require.NoError(t, err)
		require.Len(t, p, len(ws))
		place := func(c Choice) string {
			if c.Worker().Rack == "" {
				return "own of " + c.ID() // not known is a domain of its own
			}
			return c.Worker().Zone + "/" + c.Worker().Rack
		}
		used := map[string]bool{}
		for i, c := range p {
			if used[place(c)] {
				for _, later := range p[i:] {
					require.True(t, used[place(later)], "seed %d: place %d repeats %s while %s is unused", seed, i, place(c), place(later))
				}
			}
			used[place(c)] = true
		}
		ids := idsOf(p)
		slices.Sort(ids)
		require.Len(t, slices.Compact(ids), len(ws), "each once")
	}
	// Without being asked, cost alone decides.
	ws := rigWorkers(3)
	ws[0].Rack, ws[1].Rack, ws[2].Rack = "a", "a", "b"
	apart := func(spread bool) bool {
		g := &rig{t: t}
		r, err := New(ws, WithClock(g.clock))
		require.NoError(t, err)
		g.Router = r
		for i, d := range []time.Duration{time.Millisecond, 2 * time.Millisecond, 9 * time.Millisecond} {
			g.setLatency(fmt.Sprint("w", i), d)
		}
		p, err := g.Plan(Request{Key: "k", SpreadRacks: spread}, nil)
		require.NoError(t, err)
		return p[0].Worker().Rack != p[1].Worker().Rack
	}
	require.True(t, apart(true))
	require.False(t, apart(false))
}

// TestHedge_RacksApart: F4 for copies. The copy of a request goes to another
// rack as long as one is there, may serve and is not held back.
func TestHedge_RacksApart(t *testing.T) {
	ws := rigWorkers(4)
	ws[0].Rack, ws[1].Rack, ws[2].Rack, ws[3].Rack = "a", "a", "a", "b"
	g := newRig(t, 4, WithReplicas(4), rigTuning(func(t *Tuning) { t.MaxOut = 1 }))
	require.NoError(t, g.SetTopology(Topology{Workers: ws}))
	copies := func(spread bool, n int) map[string]int {
		got := map[string]int{}
		for i := range n {
			g.hedge.tokens.fill()
			for k := range 3 {
				g.answers(fmt.Sprint("w", k), 1)
			}
			g.setLatency("w3", 20*time.Millisecond) // cost alone would never take it
			q := Request{Hash: HashUint64(uint64(i)), Intent: Read, Idempotent: true, SpreadRacks: spread}
			first, err := g.Route(q)
			require.NoError(t, err)
			require.NotEqual(t, "w3", first.ID())
			c, ok := g.Hedge(q, first)
			require.True(t, ok)
			require.NotEqual(t, first.ID(), c.ID())
			got[c.ID()]++
			c.Cancel()
			first.Cancel()
		}
		return got
	}
	require.Equal(t, map[string]int{"w3": 30}, copies(true, 30))
	require.Zero(t, copies(false, 30)["w3"], "not asked for")
	g.SetState("w3", Down)
	require.Len(t, copies(true, 60), 3, "with nobody elsewhere, in the same rack")
	g.SetState("w3", Up)
	g.recovers("w3")
	g.fails("w3", 3)
	require.Equal(t, Cooldown, g.phase("w3"))
	require.Zero(t, copies(true, 30)["w3"], "a worker that is held back is not worth it")
	g.requireIdle()
}

// Plugs of every bad habit, for case 127.
type badScorer struct{ rnd *rand.Rand }

func (badScorer) Name() string { return "bad" }
func (s badScorer) Score(v *View, out []float64) {
	for i := range out {
		out[i] = []float64{math.NaN(), math.Inf(1), math.Inf(-1), -5, 1e300, NoSignal, 50}[s.rnd.IntN(7)]
	}
	if s.rnd.IntN(50) == 0 {
		panic("scorer")
	}
}

type badFilter struct{ rnd *rand.Rand }

func (badFilter) Name() string { return "bad" }
func (f badFilter) Keep(v *View, m *Mask) {
	*m = Mask(f.rnd.Uint32()) // sets bits, clears bits, changes its mind
	if f.rnd.IntN(50) == 0 {
		panic("filter")
	}
}

type badPicker struct{ rnd *rand.Rand }

func (badPicker) Name() string { return "bad" }
func (p badPicker) Pick(v *View, score []float64, rnd *Rand) int {
	if p.rnd.IntN(50) == 0 {
		panic("picker")
	}
	return p.rnd.IntN(40) - 20
}

type badLocator struct {
	rnd  *rand.Rand
	refs []Ref
}

func (l badLocator) Locate(_ KeyHash, dst []Ref) []Ref {
	for range l.rnd.IntN(40) {
		dst = append(dst, l.refs[l.rnd.IntN(len(l.refs))])
	}
	return dst
}

// TestCase_127_IterationIsFinite: whatever scorers, filters, pickers and
// locators do, a plan names each worker once at most, and a caller who tries
// one after another comes to an end. The naive iterator starts over.
func TestCase_127_IterationIsFinite(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var opts []Option
		if rnd.IntN(2) == 0 {
			opts = append(opts, WithScorer(badScorer{rnd}, 1))
		}
		if rnd.IntN(2) == 0 {
			opts = append(opts, WithFilter(badFilter{rnd}))
		}
		if rnd.IntN(2) == 0 {
			opts = append(opts, WithPicker(badPicker{rnd}))
		}
		locator := &badLocator{rnd: rnd, refs: []Ref{{}}}
		if rnd.IntN(3) == 0 {
			opts = append(opts, WithLocator(locator))
		}
		g := newRig(t, 1+rnd.IntN(20), append(opts, WithReplicas(1+rnd.IntN(16)))...)
		for _, w := range g.Status().Workers {
			ref, _ := g.Ref(w.ID)
			locator.refs = append(locator.refs, ref)
		}
		for k := range 30 {
			key := fmt.Sprint(k)
			p, err := g.Plan(Request{Key: key}, nil)
			require.True(t, err == nil || errors.Is(err, ErrNoWorker), "seed %d: %v", seed, err)
			ids := idsOf(p)
			slices.Sort(ids)
			require.Len(t, slices.Compact(ids), len(p), "seed %d: each once", seed)
			var tried Tried
			tries := 0
			for misses := 0; misses < 40; { // the filter may cut all and then again none
				c, err := g.Route(Request{Key: key, Tried: &tried})
				if err != nil {
					require.ErrorIs(t, err, ErrNoWorker)
					misses++
					continue
				}
				tries++
				c.Done(errDisk)
				if !tried.Add(c.Ref()) {
					break // 16 workers: a locator that names others each time
				}
				require.LessOrEqual(t, tries, MaxCandidates, "seed %d", seed)
			}
		}
		g.requireIdle()
	}
	naive := func(hosts []string, yield func(string) bool) {
		for i := 0; ; i++ { // no end to the rounds
			if !yield(hosts[i%len(hosts)]) {
				return
			}
		}
	}
	steps := 0
	naive([]string{"a", "b"}, func(string) bool { steps++; return steps < 10_000 })
	require.Greater(t, steps, 2*MaxCandidates, "the naive iterator must run on")
}

// TestCase_104_CandidateOrder: a table of access paths, each candidate in each
// state. The request goes to the best that may serve, the next try to the next
// best, nobody twice, and then it is over. The naive order puts a slow leader
// first and stays on the busy one.
func TestCase_104_CandidateOrder(t *testing.T) {
	type state int
	const (
		ok state = iota
		slow
		cooldown
		overload
		draining
		down
		states
	)
	// What is better comes first; those of the same rank in any order.
	rank := [states]int{ok: 0, slow: 1, cooldown: 2, overload: 2, draining: 3}
	// Three workers in each state, so that each path finds its own.
	g := newRig(t, 3*int(states), rigTuning(func(t *Tuning) { t.MaxOut = 1 }))
	id := func(s state, i int) string { return fmt.Sprint("w", 3*int(s)+i) }
	of := func(c Choice) state {
		n := 0
		fmt.Sscanf(c.ID(), "w%d", &n)
		return state(n / 3)
	}
	for i := range 3 {
		for s := range states {
			g.setLatency(id(s, i), time.Millisecond)
		}
		g.setLatency(id(slow, i), 20*time.Millisecond)
		g.fails(id(cooldown, i), 3)
		g.start(id(overload, i)).DoneWith(Outcome{Verdict: Overload, RetryAfter: time.Minute})
		g.SetState(id(draining, i), Draining)
		g.SetState(id(down, i), Down)
	}
	// order tries one after another and holds each against the best left.
	order := func(path [3]state, refs []Ref, next func(tried *Tried) (Choice, error)) error {
		var tried Tried
		for tries := 0; ; tries++ {
			if tries > len(path) {
				return fmt.Errorf("path %v: no end after %d tries", path, tries)
			}
			best, left := math.MaxInt, 0
			for i, s := range path {
				if s != down && !tried.has(refs[i]) {
					best = min(best, rank[s])
					left++
				}
			}
			c, err := next(&tried)
			if errors.Is(err, ErrNoWorker) && left == 0 {
				return nil
			}
			if err != nil {
				return fmt.Errorf("path %v: %d are left after %d tries: %w", path, left, tries, err)
			}
			c.Cancel()
			switch {
			case tried.has(c.Ref()):
				return fmt.Errorf("path %v: try %d goes to %s again", path, tries, c.ID())
			case of(c) == down || rank[of(c)] != best:
				return fmt.Errorf("path %v: try %d goes to %s, state %d; the best rank left is %d", path, tries, c.ID(), of(c), best)
			}
			tried.Add(c.Ref())
		}
	}
	paths := 0
	for a := range states {
		for b := range states {
			for c := range states {
				paths++
				path := [3]state{a, b, c}
				var refs []Ref
				for i, s := range path {
					ref, ok := g.Ref(id(s, i))
					require.True(t, ok)
					refs = append(refs, ref)
				}
				for range 5 {
					require.NoError(t, order(path, refs, func(tried *Tried) (Choice, error) {
						return g.Route(Request{Among: refs, Intent: Read, Tried: tried})
					}))
				}
				if a == slow && b == ok {
					require.Error(t, order(path, refs, func(*Tried) (Choice, error) { return g.Start(Request{Intent: Read}, id(a, 0)) }),
						"the leader first, always, must fail")
				}
			}
		}
	}
	require.Equal(t, 216, paths)
}

// TestStart_NamedWorker: reserved whatever its penalty, refused where it is
// not known or Down.
func TestStart_NamedWorker(t *testing.T) {
	g := newRig(t, 4, rigTuning(nil))
	g.fails("w0", 3)
	c := g.start("w0")
	require.Equal(t, 1, g.inFlight("w0"))
	before := g.pen("w0", laneRead)
	c.Done(errDisk)
	require.Equal(t, before, g.pen("w0", laneRead), "a failure in cooldown doubles nothing")
	g.start("w0").Done(nil)
	require.Equal(t, before, g.pen("w0", laneRead), "a success in cooldown ends nothing")

	_, err := g.Start(Request{}, "nobody")
	var detail *NoWorkerError
	require.ErrorAs(t, err, &detail)
	require.Equal(t, []CandidateReason{{"nobody", "is not in the topology"}}, detail.Candidates)
	require.EqualValues(t, 1, g.Status().UnknownIDs)
	g.SetState("w1", Down)
	_, err = g.Start(Request{}, "w1")
	require.ErrorAs(t, err, &detail)
	require.Equal(t, []CandidateReason{{"w1", reasonNames[cutDown]}}, detail.Candidates)
	_, err = g.Start(Request{Intent: 99}, "w2")
	require.ErrorIs(t, err, ErrConfig)
	g.SetState("w2", Draining)
	g.start("w2").Done(nil)
	g.requireIdle()
}

// TestGroup_OneReservationAndVerdictPerWorker: each key once, on one of its
// own candidates, few workers.
func TestGroup_OneReservationAndVerdictPerWorker(t *testing.T) {
	t.Parallel()
	rnd := seeded(t, 9)
	used := 0
	defer func() { require.Less(t, used, 50*6, "workers of ten in 50 calls: few are enough") }()
	for range 50 {
		g := newRig(t, 10)
		keys := make([]string, 1+rnd.IntN(60))
		for i := range keys {
			keys[i] = fmt.Sprint("key", rnd.Uint32())
		}
		prefix := []Batch{{Keys: []int{99}}}
		all, err := g.Group(keys, Request{Intent: Read}, prefix)
		require.NoError(t, err)
		require.Equal(t, []int{99}, all[0].Keys, "what dst held stays")
		batches := all[1:]
		seen := map[int]bool{}
		workers := map[string]bool{}
		for _, b := range batches {
			require.False(t, workers[b.Choice.ID()], "%s twice", b.Choice.ID())
			workers[b.Choice.ID()] = true
			require.Equal(t, len(b.Keys), g.inFlight(b.Choice.ID()), "as many units as keys")
			for _, k := range b.Keys {
				require.False(t, seen[k], "key %d twice", k)
				seen[k] = true
				var own []string
				for _, c := range g.Explain(Request{Key: keys[k], Intent: Read}).Candidates {
					own = append(own, c.ID)
				}
				require.Contains(t, own, b.Choice.ID(), "key %d", k)
			}
		}
		require.Len(t, seen, len(keys))
		used += len(batches)
		for _, b := range batches {
			b.Choice.DoneWith(Outcome{Batch: len(b.Keys), Err: errDisk})
		}
		for _, w := range g.Status().Workers {
			require.Zero(t, w.InFlight)
			want := "healthy"
			if workers[w.ID] {
				want = "observed" // one failure, however many keys
			}
			require.Equal(t, want, w.Read.Phase, w.ID)
		}
	}
}

// cutKey is a Filter that forbids one key.
type cutKey string

func (cutKey) Name() string { return "cut-key" }
func (f cutKey) Keep(v *View, m *Mask) {
	if v.Key() == string(f) {
		*m = 0
	}
}

// TestGroup_AllOrNothing: one key without a worker fails the whole, with
// nothing reserved and what dst held kept.
func TestGroup_AllOrNothing(t *testing.T) {
	g := newRig(t, 5, WithFilter(cutKey("bad")))
	dst := []Batch{{Keys: []int{1}}}
	for _, keys := range [][]string{{"bad"}, {"a", "b", "bad"}, {"a", "bad", "c"}, {"a", ""}} {
		got, err := g.Group(keys, Request{}, dst)
		require.Error(t, err)
		if slices.Contains(keys, "bad") {
			require.ErrorIs(t, err, ErrNoWorker)
			require.ErrorContains(t, err, "cut-key")
		} else {
			require.ErrorIs(t, err, ErrConfig)
		}
		require.Equal(t, dst, got)
		g.requireIdle()
	}
	got, err := g.Group(nil, Request{}, dst)
	require.NoError(t, err)
	require.Equal(t, dst, got)
	require.Zero(t, g.Status().Picks)
}

// TestGroup_HugeBatch: over 255 keys on one worker count as 255 units.
func TestGroup_HugeBatch(t *testing.T) {
	g := newRig(t, 1)
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	b, err := g.Group(keys, Request{Intent: Write}, nil)
	require.NoError(t, err)
	require.Len(t, b, 1)
	require.Len(t, b[0].Keys, 1000)
	require.Equal(t, 255, g.inFlight("w0"))
	b[0].Choice.DoneWith(Outcome{Batch: 1000})
	g.requireIdle()
}

// TestGroup_KeepsTheRamp: a recovering worker is not filled by whole batches:
// over many calls its part of the keys stays under the cap of its step.
func TestGroup_KeepsTheRamp(t *testing.T) {
	g := newRig(t, 6, rigTuning(nil))
	rnd := seeded(t, 12)
	g.shares(rnd, 3000, time.Millisecond)
	g.fails("w0", 3)
	g.pass(1100 * time.Millisecond)
	g.answers("w0", 5)
	require.InDelta(t, 0.2, g.Status().Workers[0].Read.Share, 1e-9)
	mine, own := 0, 0
	for range 1500 {
		keys := make([]string, 20)
		for i := range keys {
			keys[i] = fmt.Sprint(rnd.Uint32())
			for _, c := range g.Explain(Request{Key: keys[i], Intent: Read}).Candidates {
				if c.ID == "w0" {
					own++
				}
			}
		}
		bs, err := g.Group(keys, Request{Intent: Read}, nil)
		require.NoError(t, err)
		for _, b := range bs {
			if b.Choice.ID() == "w0" {
				mine += len(b.Keys)
			}
			b.Choice.Cancel()
		}
	}
	// A third of a fifth of the keys it is a candidate of.
	if got := float64(mine) / float64(own); got > 0.0667*1.15 {
		t.Errorf("share of its keys is %.4f, want at most 0.0667", got)
	}
}

// TestRef_OfAnotherRouter is no worker of this one, in whatever slot it stands.
func TestRef_OfAnotherRouter(t *testing.T) {
	a, b := newLab(t, labNamed("a", "b", "c")), newLab(t, labNamed("c", "b", "a"))
	foreign, ok := b.Ref("a")
	require.True(t, ok)
	_, err := a.Route(Request{Among: []Ref{foreign}})
	var none *NoWorkerError
	require.ErrorAs(t, err, &none)
	require.EqualValues(t, 1, a.Status().StaleRefs)
	own, _ := a.Ref("a")
	var tried Tried
	tried.Add(foreign)
	c, err := a.Route(Request{Among: []Ref{own}, Tried: &tried})
	require.NoError(t, err)
	require.Equal(t, "a", c.ID())
	c.Cancel()
}
