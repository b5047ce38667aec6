package ringwise

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// R5: which topology is taken, in turn.
func TestTopology_VersionsAndEpochs(t *testing.T) {
	ab, abc := labNamed("a", "b"), labNamed("a", "b", "c")
	for name, steps := range map[string][]struct {
		epoch, version uint64
		workers        []Worker
		want           error
	}{
		"versions rise": {
			{1, 5, ab, nil}, {1, 6, abc, nil}, {1, 5, ab, ErrStaleTopology}, {1, 6, abc, nil}, {1, 6, ab, ErrTopologyConflict}, {1, 9, ab, nil},
		},
		"order is no content": {{1, 1, labNamed("a", "b"), nil}, {1, 1, labNamed("b", "a"), nil}},
		"weight 0 is 1":       {{1, 1, []Worker{{ID: "a"}}, nil}, {1, 1, []Worker{{ID: "a", Weight: 1}}, nil}},
		"weight is content":   {{1, 1, []Worker{{ID: "a"}}, nil}, {1, 1, []Worker{{ID: "a", Weight: 2}}, ErrTopologyConflict}},
		"address is content":  {{1, 1, []Worker{{ID: "a"}}, nil}, {1, 1, []Worker{{ID: "a", Addr: "x"}}, ErrTopologyConflict}},
		"a rebuilt control plane": {
			{1, 900, ab, nil}, {2, 1, abc, nil}, {1, 901, ab, ErrStaleTopology}, {2, 1, ab, ErrTopologyConflict}, {2, 2, ab, nil},
		},
		"unversioned until versioned": {
			{0, 0, abc, nil}, {0, 0, ab, nil}, {0, 1, abc, nil}, {0, 0, ab, ErrStaleTopology}, {0, 1, ab, ErrTopologyConflict},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, nil)
			for i, s := range steps {
				before := l.snap.Load()
				err := l.SetTopology(Topology{Epoch: s.epoch, Version: s.version, Workers: s.workers})
				require.ErrorIs(t, err, s.want, "step %d", i)
				st := l.Status()
				if s.want == ErrStaleTopology && s.epoch == 0 && s.version == 0 {
					require.ErrorContains(t, err, "has no version, in force are epoch 0 version 1: from the first with a version on each needs one")
				}
				if s.want != nil {
					require.Same(t, before, l.snap.Load(), "step %d: nothing changes", i)
					continue
				}
				require.Len(t, st.Workers, len(s.workers), "step %d", i)
				require.Equal(t, []uint64{s.epoch, s.version}, []uint64{st.TopologyEpoch, st.TopologyVersion})
				require.Equal(t, s.version, l.Explain(Request{Any: true}).TopologyVersion)
			}
		})
	}
}

// What a caller does with its slice afterwards changes nothing.
func TestTopology_IsCopied(t *testing.T) {
	ws := []Worker{{ID: "a", Addr: "one"}}
	l := newLab(t, ws)
	ws[0] = Worker{ID: "z", Addr: "two"}
	c, err := l.Pick("k")
	require.NoError(t, err)
	assert.Equal(t, "a", c.ID())
	assert.Equal(t, "one", c.Addr())
	assert.Equal(t, 1.0, c.Worker().Weight)
}

// R5: past its TTL decisions are marked, a refresh is asked for, and workers
// that have not been heard of are thinned by half; nothing is flattened.
func TestTopology_PastItsTTL(t *testing.T) {
	var asked []Refresh
	l := newLab(t, nil, WithHooks(Hooks{Refresh: func(r Refresh) { asked = append(asked, r) }}))
	top := Topology{Epoch: 1, Version: 1, TTL: 60 * time.Second, Workers: labNamed("a", "b", "c")}
	require.NoError(t, l.SetTopology(top))
	q := Request{Key: "k", Intent: Read}
	answer := func() {
		for _, id := range []string{"a", "b"} { // c is never heard of; b is slow
			c, err := l.Start(q, id)
			require.NoError(t, err)
			l.Observe(c, map[string]time.Duration{"a": 1 * time.Millisecond, "b": 3 * time.Millisecond}[id], nil)
		}
	}
	for range 60 {
		answer()
		l.pass(time.Second)
	}
	assert.False(t, l.Status().LowConfidence, "at its TTL")
	assert.Empty(t, asked)
	for range 5 {
		answer()
		l.pass(time.Second)
	}
	answer()
	assert.True(t, l.Status().LowConfidence)
	d := l.Explain(q)
	assert.True(t, d.LowConfidence)
	factors, p := map[string]float64{}, map[string]float64{}
	for _, c := range d.Candidates {
		factors[c.ID], p[c.ID] = c.Factor, c.Probability
	}
	assert.Equal(t, map[string]float64{"a": 1, "b": 1, "c": 0.5}, factors)
	assert.Greater(t, p["a"], 100*p["b"], "live cost keeps acting")
	c, err := l.Route(q)
	require.NoError(t, err)
	assert.True(t, c.LowConfidence())
	c.Cancel()
	require.Len(t, asked, 5, "at most once a second")
	assert.Equal(t, Refresh{Reason: RefreshExpired}, asked[0])
	assert.Contains(t, fmt.Sprint(l.Status().Warnings), "past its TTL")

	ring := l.snap.Load().ring
	require.NoError(t, l.SetTopology(top), "equal content renews the age")
	assert.Same(t, ring, l.snap.Load().ring)
	d = l.Explain(q)
	assert.False(t, d.LowConfidence)
	for _, c := range d.Candidates {
		assert.Equal(t, 1.0, c.Factor, c.ID)
	}
	assert.Zero(t, l.Status().TopologyAge)
	l.pass(59 * time.Second)
	assert.False(t, l.Status().LowConfidence)

	require.NoError(t, l.SetTopology(Topology{Epoch: 1, Version: 2, Workers: top.Workers}))
	l.pass(time.Hour)
	assert.False(t, l.Status().LowConfidence, "a TTL of 0 is for ever")
}

// R5: a worker that answered, reported or passed a probe within the TTL is
// confirmed, however old the topology; what is known of its health acts.
func TestTopology_ConfirmedBySignsOfLife(t *testing.T) {
	l := newLab(t, nil, WithReplicas(6))
	ws := labNamed("answers", "reports", "probed", "failed", "silent", "tripped")
	require.NoError(t, l.SetTopology(Topology{Version: 1, TTL: 60 * time.Second, Workers: ws}))
	for range 70 {
		l.answers(t, "answers")
		l.report(t, Report{Worker: "reports", Compacting: Some(true)})
		l.ProbeResult("probed", 0, nil)
		l.ProbeResult("failed", 0, nil)
		l.ProbeResult("failed", 0, errRefused)
		l.pass(time.Second)
	}
	l.trip(t, "tripped", Read)
	l.Maintain(l.clock.peek())
	d := l.Explain(Request{Key: "k", Intent: Read})
	require.True(t, d.LowConfidence)
	factors, cost := map[string]float64{}, map[string]float64{}
	for _, c := range d.Candidates {
		factors[c.ID], cost[c.ID] = c.Factor, c.Cost
		require.Equal(t, c.ID == "tripped", c.Cut != "", "%s: %s", c.ID, c.Cut)
	}
	assert.Equal(t, map[string]float64{"answers": 1, "reports": 1, "probed": 1, "failed": 0.5, "silent": 0.5, "tripped": 0}, factors)
	assert.InEpsilon(t, 1/0.7, cost["reports"]/cost["silent"], 1e-6, "its flag keeps acting")
	for i, w := range l.Status().Workers {
		assert.Equal(t, i == 3 || i == 4, w.Unconfirmed, w.ID)
	}
}

// I12: a no-op reload keeps what is in flight, ramps, positions and the ring.
func TestTopology_NoOpReloadKeepsEverything(t *testing.T) {
	ws := labWorkers("w", 4)
	l := newLab(t, ws, WithPicker(RoundRobin{}), WithReplicas(4))
	l.trip(t, "w0", Read)
	l.pass(2 * time.Second)
	c, err := l.Start(Request{Intent: Read}, "w0")
	require.NoError(t, err)
	l.Observe(c, time.Millisecond, nil)
	open, err := l.Start(Request{Intent: Read}, "w1")
	require.NoError(t, err)
	l.report(t, Report{Worker: "w2", CPU: Some(0.5), Version: Some[uint64](7)})
	l.SetState("w3", Draining)
	l.Start(Request{}, "w2")

	look := func() (words []uint64) {
		sn := l.snap.Load()
		for _, n := range sn.nodes {
			words = append(words, n.st.issued.Load(), uint64(n.st.credit.Load()), uint64(n.st.inFlight()),
				uint64(n.st.lane[0].pen.load()), n.st.lane[0].lat.Load(), uint64(n.gen), uint64(n.st.cold.state), sn.reports[n.slot].version())
		}
		return words
	}
	before, sn := look(), l.snap.Load()
	for i := range 100 {
		again := slices.Clone(ws)
		if i%2 == 1 {
			slices.Reverse(again)
		}
		require.NoError(t, l.SetTopology(Topology{Workers: again}))
		require.Equal(t, before, look())
		require.Same(t, sn.ring, l.snap.Load().ring)
		require.Equal(t, sn.nodes, l.snap.Load().nodes)
		require.Same(t, sn.nodes[0], l.snap.Load().nodes[0])
	}
	assert.Equal(t, Probation, l.pen("w0", Read).phase())
	l.Observe(open, time.Millisecond, nil)
	assert.Zero(t, l.Status().DoubleDone)
}

func (r *reported) version() uint64 {
	if r == nil {
		return 0
	}
	return r.Version.Or(0)
}

// A change of weight keeps all that is known of the worker and moves keys by
// the difference only.
func TestTopology_WeightChangeKeepsStatistics(t *testing.T) {
	l := newLab(t, labWorkers("w", 5))
	open, err := l.Start(Request{Intent: Read}, "w1")
	require.NoError(t, err)
	l.trip(t, "w2", Read)
	refs := l.refs(t, "w0", "w1", "w2")
	old := l.snap.Load()
	ws := labWorkers("w", 5)
	ws[1].Weight, ws[2].Weight = 3, 0.5
	require.NoError(t, l.SetTopology(Topology{Workers: ws}))
	sn := l.snap.Load()
	for i, n := range sn.nodes {
		assert.Same(t, old.nodes[i].st, n.st)
	}
	assert.Equal(t, refs, l.refs(t, "w0", "w1", "w2"))
	assert.Equal(t, Cooldown, l.pen("w2", Read).phase())
	assert.Equal(t, []int{64, 192, 32}, []int{sn.ring.Points("w0"), sn.ring.Points("w1"), sn.ring.Points("w2")})
	assert.Equal(t, 1.0, open.Worker().Weight, "a Choice keeps the worker as it was picked")
	l.Observe(open, time.Millisecond, nil)
	assert.Zero(t, l.inFlight())
}

// A new process under an old name starts anew; the others keep what they have.
func TestTopology_IncarnationDropsStatistics(t *testing.T) {
	l := newLab(t, labNamed("a", "b", "c", "d"))
	l.trip(t, "a", Read)
	l.SetState("b", Down)
	l.report(t, Report{Worker: "c", ReadOnly: Some(true)})
	open := map[string]Choice{}
	for _, id := range []string{"c", "d"} {
		c, err := l.Start(Request{Intent: Read}, id)
		require.NoError(t, err)
		open[id] = c
	}
	l.Observe(open["d"], 50*time.Millisecond, nil)
	require.EqualValues(t, 1, l.out[laneRead].n.Load())

	ws := labNamed("a", "b", "c", "d")
	for i := range ws {
		ws[i].Incarnation = 1
	}
	require.NoError(t, l.SetTopology(Topology{Workers: ws}))
	assert.Zero(t, l.out[laneRead].n.Load(), "nobody counts as taken out")
	for _, w := range l.Status().Workers {
		assert.Equal(t, "healthy", w.Read.Phase, "all new: they start full")
		assert.Equal(t, "up", w.State)
		assert.Zero(t, w.InFlight)
		assert.Zero(t, w.Picks)
		assert.Empty(t, w.Flags)
		assert.Zero(t, w.Read.LastAnswer)
		assert.Zero(t, w.ReportAge)
	}
	for range 5 { // what the old processes still answer
		l.Observe(open["c"], 0, fmt.Errorf("late"))
		open["c"].DoneWith(Outcome{Verdict: Fault})
	}
	for _, w := range l.Status().Workers {
		assert.Zero(t, w.Read.Failures+w.Read.Unknown)
		assert.Zero(t, w.InFlight)
	}
	assert.EqualValues(t, 5, l.Status().Picks, "what the old ones had is counted still")

	ws[1].Incarnation = 2
	require.NoError(t, l.SetTopology(Topology{Workers: ws}))
	assert.Equal(t, "probation", l.Status().Workers[1].Read.Phase, "one of four joins by the ramp")
}

// P3: who starts full and who by the ramp.
func TestTopology_WhoRamps(t *testing.T) {
	for _, c := range []struct {
		before, after []string
		ramps         []string
	}{
		{nil, []string{"a", "b"}, nil},
		{[]string{"a"}, []string{"b"}, nil},
		{[]string{"a", "b", "c"}, []string{"a", "b", "c", "d"}, []string{"d"}},
		{[]string{"a", "b"}, []string{"a", "c"}, []string{"c"}},
		{[]string{"a", "b"}, []string{"a", "b", "c", "d"}, []string{"c", "d"}},
		{[]string{"a", "b"}, []string{"a", "b", "c", "d", "e"}, nil},
	} {
		l := newLab(t, nil)
		require.NoError(t, l.SetTopology(Topology{Workers: labNamed(c.before...)}))
		require.NoError(t, l.SetTopology(Topology{Workers: labNamed(c.after...)}))
		var ramps []string
		for _, w := range l.Status().Workers {
			if w.Read.Phase == "probation" && w.Write.Phase == "probation" {
				ramps = append(ramps, w.ID)
			}
		}
		assert.Equal(t, c.ramps, ramps, "%v to %v", c.before, c.after)
	}
}

// A worker that was Down comes back by the ramp; one that is still in cooldown
// stays there.
func TestRouter_UpAfterDownRamps(t *testing.T) {
	l := newLab(t, labNamed("a", "b", "c", "d"))
	l.SetState("a", Down)
	l.SetState("a", Up)
	l.SetState("b", Down)
	l.SetState("b", Draining)
	l.trip(t, "c", Read)
	l.SetState("c", Down)
	l.SetState("c", Up)
	l.SetState("d", Draining)
	l.SetState("d", Up)
	phases := map[string]string{}
	for _, w := range l.Status().Workers {
		phases[w.ID] = w.Read.Phase + ", " + w.Write.Phase
	}
	assert.Equal(t, map[string]string{
		"a": "probation, probation", "b": "probation, probation", "c": "cooldown, probation", "d": "healthy, healthy",
	}, phases)
	for range 2000 { // its share is held to 20 % of an even one, and rises with time and successes
		c, err := l.Route(Request{Among: l.refs(t, "a", "d"), Intent: Write})
		require.NoError(t, err)
		l.Observe(c, time.Millisecond, nil)
		l.clock.advance(10 * time.Microsecond)
	}
	assert.InDelta(t, 200, l.Status().Workers[0].Picks, 80)
}

func TestCase_016_RouterTakesNewWeights(t *testing.T) {
	ws := labWorkers("w", 4)
	check := func(set func([]Worker), first func(key string) string) error {
		share := func() float64 {
			n := 0
			for k := range 5000 {
				if first(fmt.Sprint("key", k)) == "w3" {
					n++
				}
			}
			return float64(n) / 5000
		}
		before := share()
		heavy := slices.Clone(ws)
		heavy[3].Weight = 4
		set(heavy)
		if after := share(); !(before < 0.4 && after > 0.45) {
			return fmt.Errorf("share %.2f at weight 1, %.2f at weight 4", before, after)
		}
		return nil
	}
	l := newLab(t, ws, WithPoints(500))
	set := func(ws []Worker) { require.NoError(t, l.SetTopology(Topology{Workers: ws})) }
	require.NoError(t, check(set, func(key string) string { return l.clockwise(key)[0] }))
	same := l.snap.Load().ring
	set(slices.Clone(l.snap.Load().topology.Workers))
	assert.Same(t, same, l.snap.Load().ring, "an unchanged update")

	// The fault: a worker is known by its address, so one of another weight
	// is the one that is there.
	known := map[string]bool{}
	ring, err := NewRing(ws, RingOptions{})
	require.NoError(t, err)
	naive := func(ws []Worker) {
		fresh := map[string]bool{}
		for _, w := range ws {
			fresh[w.ID] = true
		}
		if len(known) == 0 || !maps.Equal(known, fresh) {
			ring, _ = NewRing(ws, RingOptions{})
		}
		known = fresh
	}
	naive(ws)
	require.Error(t, check(naive, func(key string) string { return ring.Owners(HashOf(key), nil)[0] }))
}

func TestCase_017_RouterMovesKeysOnlyToTheJoiner(t *testing.T) {
	old := labWorkers("w", 8)
	check := func(set func([]Worker), first func(key string) string) error {
		set(old)
		was := map[string]string{}
		for k := range 3000 {
			key := fmt.Sprint("key", k)
			was[key] = first(key)
		}
		set(append(labNamed("a new one"), old...))
		moved := 0
		for key, from := range was {
			switch to := first(key); {
			case to == from:
			case to != "a new one":
				return fmt.Errorf("%s moved from %s to %s", key, from, to)
			default:
				moved++
			}
		}
		if moved == 0 || moved > len(was)/4 {
			return fmt.Errorf("%d of %d keys moved", moved, len(was))
		}
		return nil
	}
	l := newLab(t, nil)
	require.NoError(t, check(func(ws []Worker) { require.NoError(t, l.SetTopology(Topology{Workers: ws})) },
		func(key string) string { return l.clockwise(key)[0] }))

	// The fault: virtual nodes are numbered across all addresses.
	type point struct {
		at KeyHash
		id string
	}
	var points []point
	naive := func(ws []Worker) {
		points = nil
		for _, w := range ws {
			for range 64 {
				points = append(points, point{HashOf(fmt.Sprint("vnode", len(points))), w.ID})
			}
		}
		slices.SortFunc(points, func(a, b point) int { return int(a.at>>1) - int(b.at>>1) })
	}
	require.Error(t, check(naive, func(key string) string {
		h := HashOf(key)
		for _, p := range points {
			if p.at >= h {
				return p.id
			}
		}
		return points[0].id
	}))
}

func TestCase_025_RemovedWorkerIsNeverPicked(t *testing.T) {
	keys := make([]string, 200)
	for i := range keys {
		keys[i] = fmt.Sprint("key", i)
	}
	check := func(pick func(key string) string, set func([]Worker)) error {
		set(labWorkers("w", 6))
		for range 3 {
			for _, key := range keys {
				pick(key)
			}
		}
		set(labWorkers("w", 5))
		for range 3 {
			for _, key := range keys {
				if id := pick(key); id == "w5" {
					return fmt.Errorf("%s went to w5, which has left", key)
				}
			}
		}
		return nil
	}
	l := newLab(t, nil)
	pick := func(key string) string {
		c, err := l.Pick(key)
		require.NoError(t, err)
		defer c.Done(nil)
		return c.ID()
	}
	require.NoError(t, check(pick, func(ws []Worker) { require.NoError(t, l.SetTopology(Topology{Workers: ws})) }))

	// The fault: candidates are cached by key, and touching keeps them.
	cache := map[string][]string{}
	ring, _ := NewRing(nil, RingOptions{})
	require.Error(t, check(func(key string) string {
		if cache[key] == nil {
			cache[key] = ring.Owners(HashOf(key), nil)
		}
		return cache[key][0]
	}, func(ws []Worker) { ring, _ = NewRing(ws, RingOptions{}) }))

	// Beside picks: once SetTopology has returned nobody picks it.
	var wg sync.WaitGroup
	var stop, gone atomic.Bool
	for range 2 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				left := gone.Load()
				c, err := l.Pick(keys[i%len(keys)])
				if err != nil || left && c.ID() == "w5" {
					t.Errorf("%s: %v, %v", keys[i%len(keys)], c.ID(), err)
					return
				}
				c.Done(nil)
				runtime.Gosched()
			}
		})
	}
	for range labFewer(60) {
		gone.Store(false)
		assert.NoError(t, l.SetTopology(Topology{Workers: labWorkers("w", 6)}))
		assert.NoError(t, l.SetTopology(Topology{Workers: labWorkers("w", 5)}))
		gone.Store(true)
		runtime.Gosched()
	}
	stop.Store(true)
	wg.Wait()
}

func TestCase_029_RemovedWorkerTakesItsLoadAlong(t *testing.T) {
	check := func(pick func() string, remove func(id string), total func() int, of func(id string) int) error {
		for range 60 {
			pick()
		}
		mine := of("w1")
		remove("w1")
		if got, want := total(), 60-mine; got != want || mine == 0 {
			return fmt.Errorf("%d in flight after w1 left with %d, want %d", got, mine, want)
		}
		return nil
	}
	l := newLab(t, labWorkers("w", 3))
	of := func(id string) int {
		sn := l.snap.Load()
		return sn.nodes[sn.byID[id]].st.inFlight()
	}
	var open []Choice
	pick := func() string {
		c, err := l.Route(Request{Any: true})
		require.NoError(t, err)
		open = append(open, c)
		return c.ID()
	}
	remove := func(string) { require.NoError(t, l.SetTopology(Topology{Workers: labNamed("w0", "w2")})) }
	require.NoError(t, check(pick, remove, l.inFlight, of))
	for _, c := range open {
		l.Observe(c, time.Millisecond, nil)
	}
	assert.Zero(t, l.inFlight(), "what w1 still answers is not taken off the others")

	// The fault: a total of its own, which removal forgets.
	loads, total, i := map[string]int{}, 0, 0
	require.Error(t, check(func() string {
		i++
		id := fmt.Sprint("w", i%3)
		loads[id]++
		total++
		return id
	}, func(id string) { delete(loads, id) }, func() int { return total }, func(id string) int { return loads[id] }))
}

func TestCase_031_InconsistentTopologyKeepsTheOld(t *testing.T) {
	good := labWorkers("w", 5)
	bad := map[string][]Worker{
		"two of one name": append(labNamed("w1"), good...),
		"no name":         append(slices.Clone(good), Worker{}),
		"bad weight":      append(slices.Clone(good), Worker{ID: "x", Weight: -1}),
		"too many points": {{ID: "a", Weight: 1000}, {ID: "b", Weight: 1000}, {ID: "c", Weight: 1000}},
	}
	check := func(set func([]Worker) error, pick func(key string) string) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		if err := set(good); err != nil {
			return err
		}
		was := pick("k")
		for name, ws := range bad {
			if set(ws) == nil {
				return fmt.Errorf("%s was taken", name)
			}
			if now := pick("k"); now != was {
				return fmt.Errorf("after %s: %s, before %s", name, now, was)
			}
		}
		return nil
	}
	l := newLab(t, nil, WithPoints(8000))
	var sn *snapshot
	require.NoError(t, check(func(ws []Worker) error {
		err := l.SetTopology(Topology{Workers: ws})
		if err != nil {
			require.ErrorIs(t, err, ErrConfig)
			require.Same(t, sn, l.snap.Load())
		}
		sn = l.snap.Load()
		return err
	}, func(key string) string { return l.clockwise(key)[0] }))

	// The fault: tokens and hosts are two lists of different length.
	var tokens []KeyHash
	hosts := map[string]int{}
	require.Error(t, check(func(ws []Worker) error {
		tokens, hosts = nil, map[string]int{}
		for _, w := range ws {
			tokens = append(tokens, HashOf(w.ID))
			hosts[w.ID] = len(hosts)
		}
		return nil
	}, func(key string) string {
		names := slices.Sorted(maps.Keys(hosts))
		return names[len(tokens)-1]
	}))
}

func TestCase_043_ReportsRebuildNothing(t *testing.T) {
	check := func(report func(i int), rebuilds func() int) error {
		for i := range 1000 {
			report(i)
		}
		if n := rebuilds(); n > 0 {
			return fmt.Errorf("1000 reports caused %d rebuilds", n)
		}
		return nil
	}
	l := newLab(t, labWorkers("w", 5))
	ring, rebuilt := l.snap.Load().ring, 0
	require.NoError(t, check(func(i int) {
		l.clock.advance(200 * time.Millisecond)
		l.report(t, Report{Worker: fmt.Sprint("w", i%5), CPU: Some(float64(i%100) / 100), RTTP99: Some(time.Duration(i)), Compacting: Some(i%2 == 0)})
		if now := l.snap.Load().ring; now != ring {
			ring = now
			rebuilt++
		}
	}, func() int { return rebuilt }))

	// The fault: weights the balancer makes of reports look like a new config.
	weights, n := map[string]float64{}, 0
	require.Error(t, check(func(i int) {
		id, w := fmt.Sprint("w", i%5), 1-float64(i%100)/100
		if weights[id] != w {
			weights[id] = w
			n++
		}
	}, func() int { return n }))
}

func TestCase_046_StateOfThoseWhoLeftIsDropped(t *testing.T) {
	// 100k names come and go, each used; then one that was there before.
	const rounds = 100
	each := 1000 // names a round: 100k in all
	if labRaced {
		each = 100 // they take minutes under the race detector
	}
	check := func(set func([]Worker), use func(id string), size func() int, credit func(id string) int64) error {
		set(labNamed("first", "w0-0"))
		for range 5 {
			use("first")
		}
		for i := range rounds {
			ws := labWorkers(fmt.Sprint("w", i, "-"), each)
			set(ws)
			for _, w := range ws {
				use(w.ID)
			}
			if size() != each {
				return fmt.Errorf("round %d: state of %d workers, of which %d live", i, size(), each)
			}
		}
		set(labNamed("first"))
		if c := credit("first"); c != 0 {
			return fmt.Errorf("a name added again starts with a credit of %d", c)
		}
		return nil
	}
	l := newLab(t, nil, WithPoints(4), WithPicker(SmoothWeighted{}))
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var start uint64
	round := 0
	set := func(ws []Worker) {
		require.NoError(t, l.SetTopology(Topology{Workers: ws}))
		if round++; round == 10 {
			start = heap()
		}
		if round == rounds {
			assert.Less(t, heap(), start+4<<20, "I16: the heap after 10k and after 100k names")
		}
	}
	use := func(id string) {
		sn := l.snap.Load()
		sn.nodes[sn.byID[id]].st.credit.Add(7)
		if id[len(id)-1] == '0' {
			l.report(t, Report{Worker: id, CPU: Some(0.1)})
		}
		l.ObserveWorker(id, time.Millisecond, nil)
		l.ObserveWorker("gone "+id, time.Millisecond, nil)
	}
	size := func() int {
		n := 0
		for _, x := range l.snap.Load().nodes {
			if x != nil {
				n++
			}
		}
		assert.LessOrEqual(t, len(l.gens), each+2, "case 134: slots are used again")
		assert.Len(t, l.Status().Workers, n, "case 134: what an exporter sees are the live ones")
		assert.Len(t, l.snap.Load().byID, n)
		return n
	}
	require.NoError(t, check(set, use, size, func(id string) int64 {
		sn := l.snap.Load()
		return sn.nodes[sn.byID[id]].st.credit.Load()
	}))

	// The fault: credits by name, for ever.
	credits := map[string]int64{}
	require.Error(t, check(func([]Worker) {}, func(id string) { credits[id] += 7 },
		func() int { return len(credits) }, func(id string) int64 { return credits[id] }))
}

func TestCase_076_NewWorkersAreScoredByTheirOwn(t *testing.T) {
	// A first set that answers in 1 ms, then another in 100 ms.
	check := func(set func([]Worker), answer func(id string, rtt time.Duration), score func(id string) float64) error {
		for round, rtt := range []time.Duration{time.Millisecond, 100 * time.Millisecond} {
			ws := labWorkers(fmt.Sprint("v", round, "-"), 4)
			set(ws)
			for range 300 {
				for _, w := range ws {
					answer(w.ID, rtt)
				}
			}
			for _, w := range ws {
				if s := score(w.ID); s < 60 {
					return fmt.Errorf("%s, as fast as its peers, has a score of %.0f", w.ID, s)
				}
			}
		}
		return nil
	}
	l := newLab(t, nil)
	set := func(ws []Worker) { require.NoError(t, l.SetTopology(Topology{Workers: ws})) }
	answer := func(id string, rtt time.Duration) {
		c, err := l.Start(Request{Intent: Read}, id)
		require.NoError(t, err)
		l.Observe(c, rtt, nil)
		l.clock.advance(5 * time.Millisecond)
	}
	require.NoError(t, check(set, answer, func(id string) float64 {
		l.pass(100 * time.Millisecond)
		sn := l.snap.Load()
		return workerStatus(sn, sn.byID[id], l.now()).Read.Score
	}))

	// The fault: the scale is that of the first worker ever seen.
	var scale time.Duration
	last := map[string]time.Duration{}
	require.Error(t, check(func([]Worker) {}, func(id string, rtt time.Duration) {
		if scale == 0 {
			scale = 10 * rtt
		}
		last[id] = rtt
	}, func(id string) float64 { return max(100*(1-float64(last[id])/float64(scale)), 0) }))
}

func TestCase_086_ReloadKeepsThePosition(t *testing.T) {
	ws := labWorkers("w", 4)
	check := func(pick func() string, reload func()) error {
		count := map[string]int{}
		for range 1000 {
			count[pick()]++
			reload()
		}
		for _, w := range ws {
			if n := count[w.ID]; n < 225 || n > 275 {
				return fmt.Errorf("%s has %d of 1000", w.ID, n)
			}
		}
		return nil
	}
	for _, p := range []Picker{RoundRobin{}, SmoothWeighted{}, Softmax{}, LeastInFlight{}} {
		l := newLab(t, ws, WithPicker(p), WithReplicas(4))
		var open []Choice
		pick := func() string {
			c, err := l.Pick("k")
			require.NoError(t, err)
			open = append(open, c)
			return c.ID()
		}
		require.NoError(t, check(pick, func() { require.NoError(t, l.SetTopology(Topology{Workers: slices.Clone(ws)})) }), p.Name())
		assert.Equal(t, 1000, l.inFlight(), "in flight outlasts reloads")
		for _, c := range open {
			c.Done(nil)
		}
		assert.Zero(t, l.inFlight())
	}

	// The fault: a reload makes a picker that starts at the first.
	next := 0
	require.Error(t, check(func() string { next++; return ws[(next-1)%4].ID }, func() { next = 0 }))
}

func TestCase_100_NewWorkersStartHealthy(t *testing.T) {
	ids := func(prefix string) (ids []string) {
		for _, w := range labWorkers(prefix, 6) {
			ids = append(ids, w.ID)
		}
		return ids
	}
	check := func(set func(ids []string), fail func(id string), usable func(id string) bool) error {
		set(ids("old"))
		for _, id := range ids("old") {
			fail(id)
		}
		set(ids("new"))
		for _, id := range ids("new") {
			if !usable(id) {
				return fmt.Errorf("%s, which never failed, is not used", id)
			}
		}
		for _, id := range ids("new") { // and what is left of the old ones takes no place
			fail(id)
		}
		set(ids("old"))
		for _, id := range ids("old") {
			if !usable(id) {
				return fmt.Errorf("%s came back and is not used", id)
			}
		}
		return nil
	}
	l := newLab(t, nil, WithTuning(labTuned(func(t *Tuning) { t.MaxOut = 1 })))
	set := func(ids []string) { require.NoError(t, l.SetTopology(Topology{Workers: labNamed(ids...)})) }
	fail := func(id string) { l.trip(t, id, Read); l.trip(t, id, Write) }
	require.NoError(t, check(set, fail, func(id string) bool {
		for ln := range lanes {
			require.Zero(t, l.out[ln].n.Load())
		}
		d := l.Explain(Request{Among: l.refs(t, id), Intent: Read})
		return d.Chosen == id && d.Relaxed == "" && d.Candidates[0].Factor == 1
	}))

	// The fault: one breaker for the service, which nobody told of the deploy.
	failed := 0
	require.Error(t, check(func([]string) {}, func(string) { failed++ }, func(string) bool { return failed < 3 }))
}

func TestCase_124_RouterTakesAnyWeightInTurn(t *testing.T) {
	check := func(set func(weight float64), share func() float64) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		for _, step := range []struct{ weight, want float64 }{{1, 0.25}, {1000, 1000.0 / 1003}, {1, 0.25}, {0.01, 0.01 / 3.01}, {1, 0.25}} {
			set(step.weight)
			if got := share(); got < step.want-0.08 || got > step.want+0.08 {
				return fmt.Errorf("share %.3f at weight %g, want about %.3f", got, step.weight, step.want)
			}
		}
		return nil
	}
	l := newLab(t, nil, WithPoints(300))
	open := 0
	require.NoError(t, check(func(weight float64) {
		ws := labWorkers("w", 4)
		ws[1].Weight = weight
		require.NoError(t, l.SetTopology(Topology{Workers: ws}))
		_, err := l.Start(Request{}, "w1")
		require.NoError(t, err)
		open++
		require.Equal(t, open, l.inFlight(), "kept through all of it")
	}, func() float64 {
		n := 0
		for k := range 4000 {
			if l.clockwise(fmt.Sprint(k))[0] == "w1" {
				n++
			}
		}
		return float64(n) / 4000
	}))

	// The fault: a table as long as the first weights asked for.
	var table []int
	weights := [4]int{1, 1, 1, 1}
	require.Error(t, check(func(weight float64) {
		weights[1] = int(weight)
		if table == nil {
			table = make([]int, 4)
		}
		at := 0
		for i, w := range weights {
			for range w {
				table[at] = i
				at++
			}
		}
	}, func() float64 { return 0.25 }))
}

func TestCase_130_MissedEventIsMadeGood(t *testing.T) {
	type subject struct {
		// event is one change as the control plane sends it: the full set, and
		// what came and went.
		event     func(version uint64, full []Worker, added, removed string)
		live      func() []string
		refreshes func() int
	}
	check := func(s subject) error {
		s.event(1, labNamed("a", "b"), "b", "")
		if s.refreshes() != 0 {
			return fmt.Errorf("asked for a refresh without need")
		}
		// Version 2, in which b was replaced by c, is missed.
		s.event(3, labNamed("a", "c", "d"), "d", "")
		if got := s.live(); !slices.Equal(got, []string{"a", "c", "d"}) {
			return fmt.Errorf("live are %v, want a, c, d", got)
		}
		if s.refreshes() != 1 {
			return fmt.Errorf("%d refreshes for the gap, want 1", s.refreshes())
		}
		return nil
	}
	var asked []Refresh
	l := newLab(t, labNamed("a"), WithHooks(Hooks{Refresh: func(r Refresh) { asked = append(asked, r) }}))
	require.NoError(t, check(subject{
		func(version uint64, full []Worker, _, _ string) {
			require.NoError(t, l.SetTopology(Topology{Version: version, Workers: full}))
		},
		func() (ids []string) {
			for _, w := range l.Status().Workers {
				ids = append(ids, w.ID)
			}
			return slices.Sorted(slices.Values(ids))
		},
		func() int { return len(asked) },
	}))
	assert.Equal(t, Refresh{Reason: RefreshGap}, asked[0])

	// The fault: events are applied one by one, so one that is missed is
	// never made good.
	live := map[string]bool{"a": true}
	require.Error(t, check(subject{
		func(_ uint64, _ []Worker, added, removed string) { live[added] = true; delete(live, removed) },
		func() []string { return slices.Sorted(maps.Keys(live)) },
		func() int { return 0 },
	}))
}
