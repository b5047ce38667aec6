package ringwise

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// labClock is a clock that tests turn by hand; it counts who reads it.
type labClock struct{ ns, reads atomic.Int64 }

var labEpoch = time.Unix(1_700_000_000, 0)

func (c *labClock) now() time.Time {
	c.reads.Add(1)
	return c.peek()
}

func (c *labClock) peek() time.Time         { return labEpoch.Add(time.Duration(c.ns.Load())) }
func (c *labClock) advance(d time.Duration) { c.ns.Add(int64(d)) }

// lab is a router on a clock of its own, with small rings.
type lab struct {
	*Router
	clock *labClock
}

func newLab(t testing.TB, workers []Worker, opts ...Option) *lab {
	t.Helper()
	c := &labClock{}
	r, err := New(workers, append([]Option{WithClock(c.now), WithPoints(64)}, opts...)...)
	require.NoError(t, err)
	return &lab{r, c}
}

func labNamed(ids ...string) []Worker {
	ws := make([]Worker, len(ids))
	for i, id := range ids {
		ws[i].ID = id
	}
	return ws
}

func labWorkers(prefix string, n int) []Worker {
	ws := make([]Worker, n)
	for i := range ws {
		ws[i].ID = prefix + strconv.Itoa(i)
	}
	return ws
}

// labTuned is the default Tuning, changed by f.
func labTuned(f func(t *Tuning)) Tuning {
	t := DefaultTuning()
	f(&t)
	return t
}

// pass turns the clock in steps of at most a second, with Maintain at each.
func (l *lab) pass(d time.Duration) {
	for d > 0 {
		step := min(d, time.Second)
		l.clock.advance(step)
		l.Maintain(l.clock.peek())
		d -= step
	}
}

func (l *lab) refs(t testing.TB, ids ...string) []Ref {
	t.Helper()
	refs := make([]Ref, len(ids))
	for i, id := range ids {
		f, ok := l.Ref(id)
		require.True(t, ok, id)
		refs[i] = f
	}
	return refs
}

func (l *lab) pen(id string, intent Intent) penalty {
	sn := l.snap.Load()
	return sn.nodes[sn.byID[id]].st.lane[laneOf(intent)].pen.load()
}

// trip puts one lane of a worker into cooldown by three failures.
func (l *lab) trip(t testing.TB, id string, intent Intent) {
	t.Helper()
	for range 3 {
		c, err := l.Start(Request{Intent: intent}, id)
		require.NoError(t, err)
		c.DoneWith(Outcome{Verdict: Fault, RTT: time.Millisecond})
	}
	require.Equal(t, Cooldown, l.pen(id, intent).phase())
}

// report has the router take in a report made now.
func (l *lab) report(t testing.TB, rep Report) {
	t.Helper()
	rep.Time = l.clock.peek()
	require.NoError(t, l.Report(rep))
}

func (l *lab) inFlight() (n int) {
	for _, w := range l.Status().Workers {
		n += w.InFlight
	}
	return n
}

// picks counts whom n requests go to; none of them fails or stays open.
func (l *lab) picks(t testing.TB, n int, q Request) map[string]int {
	t.Helper()
	count := map[string]int{}
	for range n {
		c, err := l.Route(q)
		require.NoError(t, err)
		count[c.ID()]++
		l.Observe(c, time.Millisecond, nil)
	}
	return count
}

// clockwise is all workers in the key's order on the ring.
func (l *lab) clockwise(key string) (ids []string) {
	sn := l.snap.Load()
	for _, slot := range sn.ring.walk(HashOf(key), nil, nil, len(sn.live)) {
		ids = append(ids, sn.nodes[slot].ID)
	}
	return ids
}

// candidatesIn lists the candidates of a decision that were not cut.
func candidatesIn(d Decision) (ids []string) {
	for _, c := range d.Candidates {
		if c.Cut == "" {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

type (
	labLocator func(dst []Ref) []Ref
	labFilter  func(v *View, m *Mask)
	labScorer  map[string]float64
)

func (f labLocator) Locate(_ KeyHash, dst []Ref) []Ref { return f(dst) }
func (labFilter) Name() string                         { return "lab filter" }
func (f labFilter) Keep(v *View, m *Mask)              { f(v, m) }
func (labScorer) Name() string                         { return "lab scorer" }
func (s labScorer) Score(v *View, out []float64) {
	for i := range out {
		out[i] = s[v.Worker(i).ID]
	}
}

// labRaced tells whether the race detector is on: such runs do a tenth.
var labRaced = func() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}()

func labFewer(n int) int {
	if labRaced || testing.Short() {
		return max(n/10, 1)
	}
	return n
}

// labSeed is the seed of a random history; RINGWISE_SEED repeats one.
func labSeed(t testing.TB) uint64 {
	seed := rand.Uint64()
	if s, err := strconv.ParseUint(os.Getenv("RINGWISE_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("RINGWISE_SEED=%d repeats this", seed)
	return seed
}

// R6: B Down gives A, C, D; B in penalty, or draining, does not.
func TestExample_FailoverTakesTheNextOnTheRing(t *testing.T) {
	var told []string
	l := newLab(t, labWorkers("w", 9), WithHooks(Hooks{Failover: func(id string) { told = append(told, id) }}))
	for k := range 50 {
		key := fmt.Sprint("key", k)
		q := Request{Key: key, Intent: Read}
		order := l.clockwise(key)
		a, b, c, d := order[0], order[1], order[2], order[3]
		require.Equal(t, []string{a, b, c}, candidatesIn(l.Explain(q)))

		require.True(t, l.SetState(b, Draining))
		require.ElementsMatch(t, []string{a, c}, candidatesIn(l.Explain(q)), "draining extends nothing")
		require.True(t, l.SetState(b, Down))
		require.Equal(t, []string{a, c, d}, candidatesIn(l.Explain(q)))
		require.Equal(t, b, l.Explain(q).Candidates[3].ID, "the one that is Down is named, last")
		require.True(t, l.SetState(c, Down))
		require.Equal(t, []string{a, d, order[4]}, candidatesIn(l.Explain(q)), "two Down")
		require.True(t, l.SetState(b, Up))
		require.True(t, l.SetState(c, Up))
		require.Equal(t, []string{a, b, c}, candidatesIn(l.Explain(q)))
		require.Equal(t, []string{b, c}, told, "told once for each that went Down")
		told = nil
		l.pass(15 * time.Second)
	}
	order := l.clockwise("another")
	l.trip(t, order[1], Read)
	d := l.Explain(Request{Key: "another", Intent: Read})
	assert.ElementsMatch(t, []string{order[0], order[2]}, candidatesIn(d), "in penalty")
	require.NoError(t, l.SetTopology(Topology{Workers: labWorkers("w", 8)}))
	assert.Equal(t, []string{"w8"}, told, "one that has left")
}

func TestRouter_ReplacementWinsByScore(t *testing.T) {
	l := newLab(t, labWorkers("w", 6))
	order := l.clockwise("k")
	l.SetState(order[1], Down)
	won := 0
	for i := range 400 {
		c, err := l.Pick("k")
		require.NoError(t, err)
		rtt := 10 * time.Millisecond
		if c.ID() == order[3] {
			rtt = time.Millisecond
			won += i / 300
		}
		l.Observe(c, rtt, nil)
		l.clock.advance(10 * time.Millisecond)
	}
	assert.Greater(t, won, 80, "of the last 100")
}

func TestRouter_FailoverNeverExtendsAmongOrLocator(t *testing.T) {
	var list []Ref
	l := newLab(t, labWorkers("w", 9), WithLocator(labLocator(func(dst []Ref) []Ref { return append(dst, list...) })))
	list = l.refs(t, "w1", "w2")
	among := Request{Among: l.refs(t, "w3", "w4"), Intent: Read}
	located := Request{Key: "k", Intent: Read}
	l.SetState("w1", Down)
	l.SetState("w3", Down)
	assert.Equal(t, []string{"w2"}, candidatesIn(l.Explain(located)))
	assert.Equal(t, []string{"w4"}, candidatesIn(l.Explain(among)))
	l.SetState("w2", Down)
	l.SetState("w4", Down)
	for _, q := range []Request{located, among} {
		_, err := l.Route(q)
		require.ErrorIs(t, err, ErrNoWorker)
	}
	list = nil
	_, err := l.Route(located)
	none, ok := errors.AsType[*NoWorkerError](err)
	require.True(t, ok)
	assert.Empty(t, none.Candidates, "an empty list falls back to no ring")
}

// R9.
func TestRouter_ZoneCost(t *testing.T) {
	ws := []Worker{{ID: "here", Zone: "z1"}, {ID: "there", Zone: "z2"}}
	twice := WithTuning(labTuned(func(t *Tuning) { t.ZoneCost = 2 }))
	remote := func(opts ...Option) int {
		l := newLab(t, ws, opts...)
		l.picks(t, 200, Request{Key: "k"})
		return l.picks(t, 2000, Request{Key: "k"})["there"]
	}
	assert.InDelta(t, 1000, remote(WithLocalZone("z1")), 150, "a ZoneCost of 1 is off")
	assert.InDelta(t, 1000, remote(twice), 150, "without a local zone")
	assert.Less(t, remote(WithLocalZone("z1"), twice), 20, "2^-10")

	l := newLab(t, ws, WithLocalZone("z1"), twice)
	for i := range 600 {
		c, err := l.Pick("k")
		require.NoError(t, err)
		rtt := time.Millisecond
		if i >= 300 && c.ID() == "here" {
			rtt = 20 * time.Millisecond
		}
		l.Observe(c, rtt, nil)
		l.clock.advance(time.Millisecond)
	}
	assert.Greater(t, l.picks(t, 100, Request{Key: "k"})["there"], 90, "used when the local one costs more")
}

// A Ref never names another worker than the one it was made for.
func TestRouter_RefsAreGenerationChecked(t *testing.T) {
	l := newLab(t, labNamed("a", "b", "c"))
	old := l.refs(t, "a", "b", "c")
	set := func(ws ...Worker) { require.NoError(t, l.SetTopology(Topology{Workers: ws})) }

	set(Worker{ID: "b", Weight: 3}, Worker{ID: "c"}, Worker{ID: "d"})
	c, err := l.Route(Request{Among: old[:2]})
	require.NoError(t, err)
	assert.Equal(t, "b", c.ID(), "a has left, b has another weight only")
	_, err = l.Route(Request{Among: old[:1]})
	require.ErrorIs(t, err, ErrNoWorker)
	assert.EqualValues(t, 2, l.Status().StaleRefs)

	set(Worker{ID: "b", Incarnation: 1}, Worker{ID: "c"}, Worker{ID: "a"}, Worker{ID: "d"})
	_, err = l.Route(Request{Among: old[:2]})
	require.ErrorIs(t, err, ErrNoWorker, "a came back, b is a new process: both old Refs are stale")
	fresh := l.refs(t, "a", "b")
	var tried Tried
	tried.Add(old[1])
	c, err = l.Route(Request{Among: fresh[1:], Tried: &tried})
	require.NoError(t, err, "the old process was tried, the new one was not")
	assert.Equal(t, "b", c.ID())

	for _, f := range []Ref{{}, {slot: 65_000, gen: 1}, {slot: 1, gen: 1 << 31}} {
		_, err = l.Route(Request{Among: []Ref{f}})
		require.ErrorIs(t, err, ErrNoWorker, "%v", f)
	}
	_, ok := l.Ref("nobody")
	assert.False(t, ok)
}

func TestRouter_RefsOverRandomHistories(t *testing.T) {
	rnd := rand.New(rand.NewPCG(labSeed(t), 0))
	l := newLab(t, nil, WithPoints(1))
	type process struct { // one that lived in the topologies from..to
		id       string
		inc      uint64
		from, to int
	}
	made := map[Ref]*process{}
	for step := range labFewer(300) {
		var ws []Worker
		for i := range 12 {
			if rnd.IntN(2) == 0 {
				ws = append(ws, Worker{ID: fmt.Sprint("w", i), Incarnation: rnd.Uint64N(2)})
			}
		}
		require.NoError(t, l.SetTopology(Topology{Workers: ws}))
		for _, w := range ws {
			f, ok := l.Ref(w.ID)
			require.True(t, ok)
			p := made[f]
			if p == nil {
				p = &process{w.ID, w.Incarnation, step, step}
				made[f] = p
			}
			require.Equal(t, process{w.ID, w.Incarnation, p.from, p.to}, *p, "one Ref for two")
			require.GreaterOrEqual(t, p.to, step-1, "%s was away, so the old Ref is another's", w.ID)
			p.to = step
		}
		for f, p := range made {
			c, err := l.Route(Request{Among: []Ref{f}, Intent: Read})
			require.Equal(t, p.to == step, err == nil, "Ref of %s, which lives: %v", p.id, p.to == step)
			if err == nil {
				require.Equal(t, p.id, c.ID())
				require.Equal(t, p.inc, c.Worker().Incarnation)
				c.Cancel()
			}
		}
	}
}

func TestRouter_AmongOverSixteenTakesTheFirst(t *testing.T) {
	ws := labWorkers("w", 20)
	var all []string
	for _, w := range ws {
		all = append(all, w.ID)
	}
	l := newLab(t, ws)
	refs := l.refs(t, all...)
	assert.Equal(t, all[:16], candidatesIn(l.Explain(Request{Among: refs, Intent: Read})))
	got := l.picks(t, 3000, Request{Among: refs, Intent: Read})
	assert.Len(t, got, 16)
	assert.EqualValues(t, 3000, l.Status().Oversized)
	d := l.Explain(Request{Among: []Ref{refs[3], refs[3], refs[5]}, Intent: Read})
	assert.Equal(t, []string{"w3", "w5"}, candidatesIn(d), "named twice, there once")
	many := append(slices.Repeat(refs[3:4], 16), refs[5])
	assert.Equal(t, []string{"w3"}, candidatesIn(l.Explain(Request{Among: many, Intent: Read})), "the 17th is not looked at")
}

func TestRouter_AnyDrawsDistinctWorkers(t *testing.T) {
	for _, n := range []int{1, 2, 15, 16, 17, 100} {
		l := newLab(t, labWorkers("w", n))
		seen := map[string]int{}
		for range 400 {
			cs, err := l.Plan(Request{Any: true, Intent: Read}, nil)
			require.NoError(t, err)
			distinct := map[string]bool{}
			for _, c := range cs {
				distinct[c.ID()] = true
				seen[c.ID()]++
			}
			require.Len(t, cs, min(n, 16))
			require.Len(t, distinct, min(n, 16), "a worker was drawn twice")
		}
		require.Len(t, seen, n)
		want := 400 * float64(min(n, 16)) / float64(n)
		for id, k := range seen { // at most 400 draws of chance 1/2: sigma is 10
			require.InDelta(t, want, k, 6*10, id)
		}
	}
}

// A worker that is up is found, however few they are.
func TestRouter_AnyFindsTheOneThatIsUp(t *testing.T) {
	l := newLab(t, labWorkers("w", 100))
	for i := range 100 {
		if i != 42 {
			l.SetState(fmt.Sprint("w", i), Down)
		}
	}
	assert.Equal(t, map[string]int{"w42": 200}, l.picks(t, 200, Request{Any: true}))
	l.SetState("w42", Down)
	_, err := l.Route(Request{Any: true})
	none, ok := errors.AsType[*NoWorkerError](err)
	require.True(t, ok)
	assert.Len(t, none.Candidates, 16, "all are Down, and named")
}

func TestRouter_AnyDrawsEvenlyAmongThoseUp(t *testing.T) {
	l := newLab(t, labWorkers("w", 60))
	for i := range 20 {
		l.SetState(fmt.Sprint("w", 3*i), Down)
	}
	seen := map[string]int{}
	for range 1000 {
		cs, err := l.Plan(Request{Any: true, Intent: Read}, nil)
		require.NoError(t, err)
		require.Len(t, cs, 16)
		for _, c := range cs {
			seen[c.ID()]++
		}
	}
	require.Len(t, seen, 40)
	for id, k := range seen {
		require.InDelta(t, 400, k, 6*15.5, id)
	}
}

func TestRouter_LocatorIsIsolated(t *testing.T) {
	var locate func(dst []Ref) []Ref
	l := newLab(t, labWorkers("w", 20), WithLocator(labLocator(func(dst []Ref) []Ref { return locate(dst) })))
	var all []Ref
	for i := range 20 {
		all = append(all, l.refs(t, fmt.Sprint("w", i))...)
	}
	q := Request{Key: "k", Intent: Read}

	locate = func([]Ref) []Ref { panic("locator") }
	for range 5 {
		_, err := l.Route(q)
		require.ErrorIs(t, err, ErrNoWorker)
	}
	assert.EqualValues(t, 5, l.Status().PlugPanics)

	locate = func(dst []Ref) []Ref {
		return append(dst, Ref{slot: 3, gen: 99}, all[7], Ref{slot: 60_000, gen: 1}, Ref{})
	}
	assert.Equal(t, map[string]int{"w7": 5}, l.picks(t, 5, q), "stale Refs are skipped")
	assert.EqualValues(t, 15, l.Status().StaleRefs)

	locate = func(dst []Ref) []Ref { return append(dst, all[:16]...) }
	assert.False(t, l.Explain(q).Truncated, "16 are not too many")
	locate = func(dst []Ref) []Ref { return append(dst, all...) }
	assert.Len(t, l.picks(t, 3000, q), 16)
	assert.True(t, l.Explain(q).Truncated)
	assert.EqualValues(t, 3000, l.Status().Oversized)

	locate = func(dst []Ref) []Ref { // a pick within a pick
		c, err := l.Route(Request{Among: all[:1]})
		require.NoError(t, err)
		c.Cancel()
		return append(dst, all[2].WithRole(RolePrimary), all[3])
	}
	d := l.Explain(Request{Key: "k", Intent: Write})
	assert.Equal(t, []string{"w2"}, candidatesIn(d))
	assert.Equal(t, "primary", d.Candidates[0].Role)
}

// I23.
func TestRouter_CloseIsFinalAndIdempotent(t *testing.T) {
	l := newLab(t, labWorkers("w", 5))
	out, err := l.Pick("k")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	sn := l.snap.Load()
	for name, call := range map[string]func() error{
		"Pick":        func() error { _, err := l.Pick("k"); return err },
		"Pick empty":  func() error { _, err := l.Pick(""); return err },
		"Route":       func() error { _, err := l.Route(Request{Any: true}); return err },
		"Start":       func() error { _, err := l.Start(Request{}, "w1"); return err },
		"Plan":        func() error { _, err := l.Plan(Request{Key: "k"}, nil); return err },
		"Group":       func() error { _, err := l.Group([]string{"k"}, Request{}, nil); return err },
		"SetTopology": func() error { return l.SetTopology(Topology{}) },
		"Retune":      func() error { return l.Retune(labTuned(func(t *Tuning) { t.LoadWeight = 3 })) },
	} {
		assert.ErrorIs(t, call(), ErrClosed, name)
	}
	assert.Same(t, sn, l.snap.Load(), "nothing was published")
	assert.Contains(t, l.Explain(Request{Key: "k"}).Error, "closed")
	assert.NoError(t, l.Run(t.Context()), "Run ends at once")

	l.Observe(out, time.Millisecond, nil)
	l.Observe(out, time.Millisecond, nil)
	assert.Zero(t, l.inFlight(), "what is out may still be closed")
	l.pass(10 * time.Second)
	assert.Same(t, sn, l.snap.Load())
	assert.True(t, l.Status().Closed)
}

// The refusal of an empty key names what does place it.
func TestRouter_EmptyKeySaysWhatWorks(t *testing.T) {
	l := newLab(t, labWorkers("w", 5))
	_, err := l.Pick("")
	assert.ErrorIs(t, err, ErrConfig)
	assert.ErrorContains(t, err, `for the empty key, Hash: HashOf("")`)
	c, err := l.Route(Request{Hash: HashOf("")})
	require.NoError(t, err)
	c.Cancel()
}

// Nothing of the pick before shows in a decision that has no candidates.
func TestRouter_ExplainOfWhatCannotBeAsked(t *testing.T) {
	l := newLab(t, labWorkers("w", 5))
	for range 100 {
		c, err := l.Route(Request{Key: "k", Intent: Pinned})
		require.NoError(t, err)
		c.Cancel()
		d := l.Explain(Request{Key: "k", Intent: 99})
		require.Contains(t, d.Error, "Request.Intent")
		require.Empty(t, d.Candidates)
		require.Empty(t, l.Explain(Request{}).Candidates)
	}
	require.NoError(t, l.Close())
	assert.Contains(t, l.Explain(Request{Key: "k"}).Error, "closed")
}

// I11: nothing allocated and the clock read at most once, on each way through
// a pick.
func TestRouter_PicksAllocateNothingAndReadTheClockOnce(t *testing.T) {
	cut := labFilter(func(_ *View, m *Mask) { m.Clear(0) })
	var list []Ref
	for _, w := range []struct {
		name string
		opts []Option
		q    Request
	}{
		{"short", nil, Request{Key: "key"}},
		{"bytes", nil, Request{KeyBytes: []byte("key")}},
		{"write", nil, Request{Key: "key", Intent: Write}},
		{"pinned", nil, Request{Key: "key", Intent: Pinned}},
		{"strong", nil, Request{Key: "key", Intent: StrongRead}},
		{"tenant", []Option{WithQuota(func(string, *Worker) bool { return true })}, Request{Key: "key", Tenant: "t"}},
		{"tried", nil, Request{Key: "key", Tried: &Tried{}}},
		{"any", nil, Request{Any: true}},
		{"filter", []Option{WithFilter(cut)}, Request{Key: "key"}},
		{"scorer", []Option{WithScorer(labScorer{}, 1)}, Request{Key: "key"}},
		{"picker", []Option{WithPicker(Highest{})}, Request{Key: "key"}},
		{"smooth", []Option{WithPicker(SmoothWeighted{})}, Request{Key: "key"}},
		{"locator", []Option{WithLocator(labLocator(func(dst []Ref) []Ref { return append(dst, list...) }))}, Request{Key: "key"}},
		{"sixteen", []Option{WithReplicas(16)}, Request{Key: "key"}},
		{"min share", []Option{WithTuning(labTuned(func(t *Tuning) { t.MinShare = 0.001 }))}, Request{Key: "key"}},
		{"sampled", []Option{WithDecisionSample(1, 8)}, Request{Key: "key"}},
	} {
		t.Run(w.name, func(t *testing.T) {
			l := newLab(t, labWorkers("w", 20), w.opts...)
			list = l.refs(t, "w1", "w2", "w3")
			l.Maintain(l.clock.peek()) // a fold that is due reads it once more
			for _, down := range []bool{false, true} {
				for i := range 10 {
					if down { // failover walks the ring
						l.SetState(fmt.Sprint("w", 2*i), Down)
					}
				}
				for name, end := range map[string]func(c Choice){
					"Observe": func(c Choice) { l.Observe(c, time.Millisecond, nil) },
					"Done":    func(c Choice) { c.Done(nil) },
					"Unknown": func(c Choice) { c.DoneWith(Outcome{Verdict: Unknown}) },
					"Cancel":  func(c Choice) { c.Cancel() },
				} {
					var err error
					var picking, closing int64
					once := func() {
						before := l.clock.reads.Load()
						var c Choice
						c, err = l.Route(w.q)
						picking = l.clock.reads.Load() - before
						end(c)
						closing = l.clock.reads.Load() - before - picking
					}
					once() // fills the pool
					require.NoError(t, err)
					if !labRaced { // the detector's pool drops views at will
						assert.Zero(t, testing.AllocsPerRun(100, once), "allocations of Route and %s, some down: %v", name, down)
					}
					assert.LessOrEqual(t, picking, int64(1), "clock reads of Route")
					assert.LessOrEqual(t, closing, int64(1), "clock reads of %s", name)
				}
			}
		})
	}
	l := newLab(t, labWorkers("w", 20))
	l.Maintain(l.clock.peek())
	before := l.clock.reads.Load()
	c, err := l.Route(Request{Key: "k", Start: labEpoch})
	require.NoError(t, err)
	l.Observe(c, time.Millisecond, nil)
	assert.Equal(t, before, l.clock.reads.Load(), "with Start and an RTT the clock is not read at all")
	if !labRaced {
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			c, _ := l.Pick("key")
			l.Observe(c, time.Millisecond, nil)
		}), "Pick and Observe")
	}
}

// A fifth word, or field, costs 30 ns a pick (docs/hotpath.md).
func TestChoice_StaysInRegisters(t *testing.T) {
	typ := reflect.TypeFor[Choice]()
	assert.EqualValues(t, 32, typ.Size())
	assert.Equal(t, 4, typ.NumField())
}

// What %v prints of a Choice.
func TestChoice_String(t *testing.T) {
	r, err := New([]Worker{{ID: "kv-1", Addr: "10.0.0.1:6379"}, {ID: "kv-2"}})
	require.NoError(t, err)
	for id, want := range map[string]string{"kv-1": "kv-1 10.0.0.1:6379", "kv-2": "kv-2"} {
		c, err := r.Start(Request{}, id)
		require.NoError(t, err)
		assert.Equal(t, want, fmt.Sprint(c))
		c.Cancel()
	}
	assert.Equal(t, "no worker", fmt.Sprint(Choice{}))
}

// I12: a decision names one version: all its candidates are of the topology
// it names, and its coefficients of the tuning.
func TestRouter_DecisionsNameOneVersion(t *testing.T) {
	t.Parallel()
	set := func(version uint64) []Worker { return labWorkers(fmt.Sprint("v", version, "-"), 6) }
	tuned := func(version uint64) Tuning {
		return labTuned(func(t *Tuning) { t.InitialLatency = time.Duration(version) * time.Millisecond })
	}
	l := newLab(t, nil, WithDecisionSample(1, 64), WithPoints(8))
	require.NoError(t, l.SetTopology(Topology{Epoch: 1, Version: 1, Workers: set(1)}))
	check := func(d Decision) error {
		if d.Error != "" {
			return errors.New(d.Error)
		}
		// The writer sets topology v, then tuning v, in turns.
		if d.TuningVersion != d.TopologyVersion && d.TuningVersion+1 != d.TopologyVersion {
			return fmt.Errorf("topology %d beside tuning %d", d.TopologyVersion, d.TuningVersion)
		}
		for _, c := range d.Candidates {
			if v, _, _ := strings.Cut(c.ID, "-"); v != fmt.Sprint("v", d.TopologyVersion) {
				return fmt.Errorf("%s in a decision of topology %d", c.ID, d.TopologyVersion)
			}
			if want := time.Duration(d.TuningVersion) * time.Millisecond; c.Latency != want {
				return fmt.Errorf("latency %v of an unknown worker under tuning %d", c.Latency, d.TuningVersion)
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	var stop atomic.Bool
	looks := make([]atomic.Int64, 3)
	errs := make(chan error, len(looks))
	for i, look := range []func() error{
		func() error { return check(l.Explain(Request{Key: "k"})) },
		func() error {
			c, err := l.Pick("k")
			c.Cancel()
			return err
		},
		func() error {
			for _, d := range l.Decisions() {
				if err := check(d); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		wg.Go(func() {
			for !stop.Load() {
				if err := look(); err != nil {
					errs <- err
					return
				}
				looks[i].Add(1)
				runtime.Gosched()
			}
		})
	}
	last := uint64(labFewer(400))
	for v := uint64(2); v <= last || looks[0].Load() < 30 || looks[1].Load() < 30 || looks[2].Load() < 5; v++ {
		require.NoError(t, l.SetTopology(Topology{Epoch: 1, Version: v, Workers: set(v)}))
		require.NoError(t, l.Retune(tuned(v)))
		bad := tuned(v + 1)
		bad.Temperature = -1
		require.Error(t, l.Retune(bad))
		require.Error(t, l.SetTopology(Topology{Epoch: 1, Version: v + 1, Workers: labNamed("x", "x")}))
		if len(errs) > 0 {
			break
		}
	}
	stop.Store(true)
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
}

// Picks that were out of the ordinary are kept like the rest: they are what
// people look for.
func TestRouter_SamplesWhatIsOutOfTheOrdinary(t *testing.T) {
	for name, q := range map[string]Request{
		"plain": {Key: "k", Intent: Read}, "pinned": {Key: "k", Intent: Pinned}, "version": {Key: "k", Intent: Read, MinVersion: 1},
		"any": {Any: true},
	} {
		l := newLab(t, labWorkers("w", 9), WithDecisionSample(1, 4096))
		l.picks(t, 100, q)
		assert.Equal(t, 100, len(l.Decisions()), name)
		l.trip(t, l.clockwise("k")[0], Read)
		l.picks(t, 100, q)
		assert.Equal(t, 200, len(l.Decisions()), "%s, with a worker in cooldown", name)
	}
	l := newLab(t, labWorkers("w", 9), WithDecisionSample(0.25, 4096))
	l.trip(t, l.clockwise("k")[0], Read)
	l.picks(t, 4000, Request{Key: "k", Intent: Read})
	assert.InDelta(t, 1000, len(l.Decisions()), 150)
}
