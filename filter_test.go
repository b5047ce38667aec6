package ringwise

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// defectLab has workers that each break one rule that may be given up.
func defectLab(t *testing.T) *lab {
	l := newLab(t, labNamed("penalty", "stale", "recovering", "draining", "version", "penalty2", "x", "y"))
	l.report(t, Report{Worker: "stale", Version: Some[uint64](7)})
	l.clock.advance(20 * time.Second)
	for _, id := range []string{"penalty", "penalty2", "draining"} {
		l.report(t, Report{Worker: id, Version: Some[uint64](7)})
	}
	l.report(t, Report{Worker: "recovering", Version: Some[uint64](7), Recovering: Some(true)})
	l.report(t, Report{Worker: "version", Version: Some[uint64](6)})
	l.SetState("draining", Draining)
	l.Maintain(l.clock.peek())
	l.trip(t, "penalty", Read)
	l.trip(t, "penalty2", Read)
	return l
}

// F5: the rules that may be given up, in order. Of two candidates that each
// break one, the one goes whose rule is given up first.
func TestFilter_RelaxesInOrder(t *testing.T) {
	order := []struct {
		id  string
		bit Relaxed
	}{
		{"penalty", RelaxedPenalty}, {"stale", RelaxedStale}, {"recovering", RelaxedRecovering},
		{"draining", RelaxedDraining}, {"version", RelaxedVersion},
	}
	l := defectLab(t)
	for i, a := range order {
		for j := i; j < len(order); j++ {
			b := order[j]
			t.Run(a.id+" before "+b.id, func(t *testing.T) {
				among := l.refs(t, b.id, a.id) // the worse one first
				q := Request{Among: among, Intent: Read, MinVersion: 7}
				for range 20 {
					c, err := l.Route(q)
					require.NoError(t, err)
					require.Equal(t, a.id, c.ID())
					require.Equal(t, a.bit, c.Relaxed())
					c.Cancel()
				}
				d := l.Explain(q)
				assert.Equal(t, a.bit.String(), d.Relaxed)
				assert.Equal(t, a.bit == RelaxedPenalty, d.Panic)
				if i != j {
					assert.NotEmpty(t, d.Candidates[1].Cut)
				}
				among = append(among, l.refs(t, "x")...)
				l.report(t, Report{Worker: "x", Version: Some[uint64](7)})
				l.clock.advance(time.Millisecond)
				c, err := l.Route(Request{Among: among, Intent: Read, MinVersion: 7})
				require.NoError(t, err)
				assert.Equal(t, "x", c.ID(), "one without a defect goes first")
				assert.Zero(t, c.Relaxed())
				c.Cancel()
			})
		}
	}
	// A worker in penalty goes before a healthy one that breaks another rule,
	// and two rules are given up where the only one breaks both.
	l.SetState("penalty2", Draining)
	c, err := l.Route(Request{Among: l.refs(t, "penalty2"), Intent: Read, MinVersion: 8})
	require.NoError(t, err)
	assert.Equal(t, RelaxedPenalty|RelaxedDraining|RelaxedVersion, c.Relaxed())
	assert.Equal(t, "penalty,draining,version", c.Relaxed().String())
	assert.Equal(t, "penalty,probe-out,stale,recovering,draining,version", Relaxed(1<<6-1).String())
	assert.EqualValues(t, 20*15+1, l.Status().Relaxed)
}

// F5: the rules that are never given up, each with its reason.
func TestFilter_NeverRelaxes(t *testing.T) {
	t.Parallel()
	down := func(l *lab) { l.SetState("a", Down) }
	readOnly := func(l *lab) { l.report(t, Report{Worker: "a", ReadOnly: Some(true)}) }
	version := func(l *lab) { l.report(t, Report{Worker: "a", Version: Some[uint64](6)}) }
	none := func(*lab) {}
	noQuota := WithQuota(func(tenant string, w *Worker) bool { return tenant != "full" })
	cut := WithFilter(labFilter(func(_ *View, m *Mask) { m.Clear(0) }))
	all := []Intent{Unspecified, Read, StrongRead, Write, Pinned}
	for _, c := range []struct {
		name    string
		opts    []Option
		setup   func(l *lab)
		role    Role
		q       Request
		forbids []Intent
		reason  string
	}{
		{"down", nil, down, RoleAny, Request{}, all, "is down"},
		{"read-only", nil, readOnly, RoleAny, Request{}, []Intent{Unspecified, Write}, "is read-only"},
		{"learner", nil, none, RoleLearner, Request{}, []Intent{Unspecified, StrongRead, Write, Pinned}, "has the wrong role"},
		{"version floor", nil, version, RoleAny, Request{MinVersion: 7}, []Intent{StrongRead}, "is at an older version"},
		{"never reported", nil, none, RoleAny, Request{MinVersion: 1}, []Intent{StrongRead}, "is at an older version"},
		{"version enough", nil, version, RoleAny, Request{MinVersion: 6}, nil, ""},
		{"quota", []Option{noQuota}, none, RoleAny, Request{Tenant: "full"}, all, "has no quota left for the tenant"},
		{"quota of another", []Option{noQuota}, none, RoleAny, Request{Tenant: "other"}, nil, ""},
		{"no tenant", []Option{noQuota}, none, RoleAny, Request{}, nil, ""},
		{"filter", []Option{cut}, none, RoleAny, Request{}, all, "was cut by filter lab filter"},
	} {
		for _, intent := range all {
			t.Run(c.name+" "+intent.String(), func(t *testing.T) {
				l := newLab(t, []Worker{{ID: "a", Role: c.role}}, c.opts...)
				c.setup(l)
				for _, q := range []Request{{Key: "k"}, {Any: true}, {Among: l.refs(t, "a")}} {
					q.Intent, q.MinVersion, q.Tenant = intent, c.q.MinVersion, c.q.Tenant
					choice, err := l.Route(q)
					if !slices.Contains(c.forbids, intent) {
						require.NoError(t, err)
						assert.Equal(t, "a", choice.ID())
						continue
					}
					none, ok := errors.AsType[*NoWorkerError](err)
					require.True(t, ok, "%v", err)
					assert.ErrorIs(t, err, ErrNoWorker)
					assert.Equal(t, []CandidateReason{{"a", c.reason}}, none.Candidates)
					assert.Equal(t, "ringwise: no worker: a "+c.reason, err.Error())
					assert.True(t, choice.IsZero())
				}
				want := uint64(0)
				if slices.Contains(c.forbids, intent) {
					want = 3
				}
				assert.Equal(t, want, l.Status().NoWorker)
			})
		}
	}
}

// R8, from the topology, Among and a Locator alike.
func TestFilter_RolesByIntent(t *testing.T) {
	ws := []Worker{{ID: "p", Role: RolePrimary}, {ID: "r", Role: RoleReplica}, {ID: "l", Role: RoleLearner}, {ID: "a"}}
	for _, c := range []struct {
		ids  []string
		want map[Intent][]string // in order
	}{
		{[]string{"r", "p", "l", "a"}, map[Intent][]string{
			Unspecified: {"p"}, Read: {"r", "p", "l", "a"}, StrongRead: {"p"}, Write: {"p"}, Pinned: {"p"},
		}},
		{[]string{"l", "a", "r"}, map[Intent][]string{
			Unspecified: {"a", "r"}, Read: {"l", "a", "r"}, StrongRead: {"a", "r"}, Write: {"a", "r"}, Pinned: {"a"},
		}},
		{[]string{"l"}, map[Intent][]string{Unspecified: nil, Read: {"l"}, StrongRead: nil, Write: nil, Pinned: nil}},
	} {
		for intent, want := range c.want {
			var list []Ref
			topo := newLab(t, ws, WithLocator(labLocator(func(dst []Ref) []Ref { return append(dst, list...) })))
			list = topo.refs(t, c.ids...)
			assert.Equal(t, want, candidatesIn(topo.Explain(Request{Among: list, Intent: intent})), "Among, %v of %v", intent, c.ids)
			assert.Equal(t, want, candidatesIn(topo.Explain(Request{Key: "k", Intent: intent})), "Locator, %v of %v", intent, c.ids)

			plain := newLab(t, labNamed("p", "r", "l", "a"))
			refs := plain.refs(t, c.ids...)
			for i, id := range c.ids {
				refs[i] = refs[i].WithRole(map[string]Role{"p": RolePrimary, "r": RoleReplica, "l": RoleLearner}[id])
			}
			assert.Equal(t, want, candidatesIn(plain.Explain(Request{Among: refs, Intent: intent})), "WithRole, %v of %v", intent, c.ids)
		}
	}
	l := newLab(t, ws)
	for intent, want := range map[Intent]int{Unspecified: 1, Read: 4, StrongRead: 1, Write: 1, Pinned: 1} {
		got := l.picks(t, 400, Request{Any: true, Intent: intent})
		assert.Len(t, got, want, "%v among all", intent)
	}
	// A primary that is Down is not replaced: a replica must not take writes.
	l.SetState("p", Down)
	_, err := l.Route(Request{Among: l.refs(t, "p", "r"), Intent: Write})
	none, ok := errors.AsType[*NoWorkerError](err)
	require.True(t, ok)
	assert.ElementsMatch(t, []CandidateReason{{"p", "is down"}, {"r", "has the wrong role"}}, none.Candidates)
}

func TestFilter_PinnedIgnoresPenaltyAndStaysFirst(t *testing.T) {
	l := newLab(t, labNamed("a", "b", "c", "d"))
	q := Request{Among: l.refs(t, "a", "b", "c"), Intent: Pinned}
	assert.Equal(t, map[string]int{"a": 50}, l.picks(t, 50, q))
	l.trip(t, "a", Pinned)
	for range 50 {
		c, err := l.Route(q)
		require.NoError(t, err)
		require.Equal(t, "a", c.ID(), "whatever its penalty")
		require.Zero(t, c.Relaxed())
		c.Cancel()
	}
	l.SetState("a", Draining)
	l.report(t, Report{Worker: "a", Recovering: Some(true)})
	assert.Equal(t, map[string]int{"a": 50}, l.picks(t, 50, q))
	l.SetState("a", Down)
	assert.Equal(t, map[string]int{"b": 50}, l.picks(t, 50, q))
	q.Among[2] = q.Among[2].WithRole(RolePrimary)
	assert.Equal(t, map[string]int{"c": 50}, l.picks(t, 50, q))
}

// F3: the best score does not help.
func TestFilter_QuotaGoesBeforeScore(t *testing.T) {
	used := map[string]bool{}
	l := newLab(t, labNamed("a", "b", "c"), WithQuota(func(tenant string, w *Worker) bool { return !used[tenant+"/"+w.ID] }))
	for range 300 {
		c, err := l.Pick("k")
		require.NoError(t, err)
		rtt := 50 * time.Millisecond
		if c.ID() == "a" {
			rtt = time.Millisecond
		}
		l.Observe(c, rtt, nil)
		l.clock.advance(time.Millisecond)
	}
	used["t/a"] = true
	assert.NotContains(t, l.picks(t, 100, Request{Key: "k", Tenant: "t"}), "a")
	assert.Contains(t, l.picks(t, 100, Request{Key: "k", Tenant: "u"}), "a")
	used["t/b"], used["t/c"] = true, true
	_, err := l.Route(Request{Key: "k", Tenant: "t"})
	require.ErrorIs(t, err, ErrNoWorker)
}

func TestFilter_PanicsAreIsolated(t *testing.T) {
	bad, calls := true, 0
	broken := labFilter(func(_ *View, m *Mask) {
		calls++
		m.Clear(0)
		if bad {
			panic("filter")
		}
	})
	l := newLab(t, labNamed("a", "b", "c"), WithFilter(broken))
	for range 10 {
		require.Len(t, candidatesIn(l.Explain(Request{Key: "k"})), 3, "what a filter cut before its panic counts for nothing")
	}
	assert.Equal(t, 3, calls, "it is switched off after three")
	assert.EqualValues(t, 3, l.Status().PlugPanics)

	l = newLab(t, labNamed("a", "b", "c"), WithQuota(func(string, *Worker) bool { panic("quota") }))
	for range 10 {
		c, err := l.Route(Request{Key: "k", Tenant: "t"})
		require.NoError(t, err)
		c.Cancel()
	}
	assert.EqualValues(t, 30, l.Status().PlugPanics)

	// Each filter sees what the ones before left; bits out of range do nothing.
	var seen []string
	odd := labFilter(func(v *View, m *Mask) {
		m.Clear(99)
		m.Clear(-1)
		*m |= 0xff00
		for i := range v.Len() {
			if v.Worker(i).ID == "b" {
				m.Clear(i)
			}
		}
	})
	look := labFilter(func(v *View, m *Mask) {
		seen = nil
		for i := range v.Len() {
			seen = append(seen, v.Worker(i).ID)
		}
		assert.Equal(t, v.Len(), m.Len())
	})
	l = newLab(t, labNamed("a", "b", "c"), WithFilter(odd), WithFilter(look))
	assert.ElementsMatch(t, []string{"a", "c"}, candidatesIn(l.Explain(Request{Key: "k"})))
	assert.ElementsMatch(t, []string{"a", "c"}, seen)
}

// The last of as many filters as there may be acts like the first.
func TestFilter_AsManyAsThereMayBe(t *testing.T) {
	var opts []Option
	for range maxFilters - 1 {
		opts = append(opts, WithFilter(labFilter(func(*View, *Mask) {})))
	}
	opts = append(opts, WithFilter(lastFilter{}))
	l := newLab(t, labNamed("a"), opts...)
	_, err := l.Pick("k")
	none, ok := errors.AsType[*NoWorkerError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, []CandidateReason{{"a", "was cut by filter last"}}, none.Candidates)

	_, err = New(labNamed("a"), append(opts, WithFilter(lastFilter{}))...)
	bad, ok := errors.AsType[*ConfigError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, "WithFilter", bad.Field)
}

type lastFilter struct{}

func (lastFilter) Name() string          { return "last" }
func (lastFilter) Keep(_ *View, m *Mask) { *m = 0 }

func TestCase_062_WidensBeforeItReturnsTheUnusable(t *testing.T) {
	// fast are still loading their data; slow is usable, and out of the band.
	check := func(pick func() string) error {
		for range 50 {
			if id := pick(); id != "slow" {
				return fmt.Errorf("picked %s, which is loading, while slow is usable", id)
			}
		}
		return nil
	}
	l := newLab(t, labNamed("fast1", "fast2", "slow"))
	for range 20 {
		for id, rtt := range map[string]time.Duration{"fast1": 1, "fast2": 1, "slow": 100} {
			c, err := l.Start(Request{Intent: Read}, id)
			require.NoError(t, err)
			l.Observe(c, rtt*time.Millisecond, nil)
		}
		l.pass(100 * time.Millisecond)
	}
	l.report(t, Report{Worker: "fast1", Recovering: Some(true)})
	l.report(t, Report{Worker: "fast2", Recovering: Some(true)})
	require.NoError(t, check(func() string {
		c, err := l.Route(Request{Key: "k", Intent: Read})
		require.NoError(t, err)
		require.Zero(t, c.Relaxed())
		defer c.Cancel()
		return c.ID()
	}))

	// The fault: the band first, and then whoever is left in it.
	type node struct {
		id      string
		rtt     int
		loading bool
	}
	nodes := []node{{"fast1", 1, true}, {"fast2", 1, true}, {"slow", 100, false}}
	require.Error(t, check(func() string {
		var band []node
		for _, n := range nodes {
			if n.rtt <= 2*nodes[0].rtt {
				band = append(band, n)
			}
		}
		for _, n := range band {
			if !n.loading {
				return n.id
			}
		}
		return band[0].id
	}))
}

func TestCase_065_PanicStaysWithinTheCandidates(t *testing.T) {
	all := labWorkers("w", 12)
	check := func(own []string, fail func(id string), pick func() string) error {
		for _, id := range own {
			fail(id)
		}
		for range 100 {
			if id := pick(); !slices.Contains(own, id) {
				return fmt.Errorf("%s holds no copy of the key, %v do", id, own)
			}
		}
		return nil
	}
	l := newLab(t, all)
	own := l.clockwise("k")[:3]
	require.NoError(t, check(own, func(id string) { l.trip(t, id, Read) }, func() string {
		c, err := l.Route(Request{Key: "k", Intent: Read})
		require.NoError(t, err)
		require.NotZero(t, c.Relaxed()&RelaxedPenalty)
		defer c.Cancel()
		return c.ID()
	}))

	// The fault: any node, when all that hold the key are failing.
	failing, i := map[string]bool{}, 0
	require.Error(t, check(own, func(id string) { failing[id] = true }, func() string {
		for _, id := range own {
			if !failing[id] {
				return id
			}
		}
		i++
		return all[i%len(all)].ID
	}))
}

func TestCase_068_VersionLagCutsWithoutErrors(t *testing.T) {
	// b answers fast and without errors, and its replication is broken.
	check := func(pick func() string) error {
		for range 100 {
			if id := pick(); id == "b" {
				return errors.New("a strong read went to b, which lags")
			}
		}
		return nil
	}
	l := newLab(t, labNamed("a", "b", "c"))
	for id, v := range map[string]uint64{"a": 100, "b": 60, "c": 101} {
		l.report(t, Report{Worker: id, Version: Some(v), Errors: Some(0.0), RTTP99: Some(time.Millisecond)})
	}
	for range 200 {
		c, err := l.Pick("k")
		require.NoError(t, err)
		rtt := 9 * time.Millisecond
		if c.ID() == "b" {
			rtt = time.Millisecond
		}
		l.Observe(c, rtt, nil)
		l.clock.advance(time.Millisecond)
	}
	for _, intent := range []Intent{StrongRead, Read} { // a weak read prefers, and has who
		require.NoError(t, check(func() string {
			c, err := l.Route(Request{Key: "k", Intent: intent, MinVersion: 100})
			require.NoError(t, err)
			defer c.Cancel()
			return c.ID()
		}))
	}

	// The fault: a ping that is answered is all there is.
	rtt, errs := map[string]int{"a": 9, "b": 1, "c": 9}, map[string]int{}
	require.Error(t, check(func() string {
		best := "a"
		for id := range rtt {
			if errs[id] == 0 && rtt[id] < rtt[best] {
				best = id
			}
		}
		return best
	}))
}

// The other half of case 70: filters only cut, so each finds what it needs.
func TestCase_070_FiltersOnlyCut(t *testing.T) {
	cut := func(id string) func(ids []string) []string {
		return func(ids []string) []string {
			return slices.DeleteFunc(slices.Clone(ids), func(s string) bool { return s == id })
		}
	}
	check := func(pick func(filters ...func(ids []string) []string) string) error {
		if id := pick(cut("a"), cut("b")); id != "c" {
			return fmt.Errorf("picked %q, want c, the one that no filter cuts", id)
		}
		return nil
	}
	require.NoError(t, check(func(filters ...func([]string) []string) string {
		var opts []Option
		for _, f := range filters {
			opts = append(opts, WithFilter(labFilter(func(v *View, m *Mask) {
				for i := range v.Len() {
					if len(f([]string{v.Worker(i).ID})) == 0 {
						m.Clear(i)
					}
				}
			})))
		}
		c, err := newLab(t, labNamed("a", "b", "c"), opts...).Pick("k")
		require.NoError(t, err)
		return c.ID()
	}))

	// The fault: each filter returns the one it likes best.
	require.Error(t, check(func(filters ...func([]string) []string) string {
		ids := []string{"a", "b", "c"}
		for _, f := range filters {
			if ids = f(ids); len(ids) > 0 {
				ids = ids[:1]
			}
		}
		return fmt.Sprint(ids)
	}))
}

func TestCase_089_TheCapIsForPenaltiesOnly(t *testing.T) {
	check := func(down func(id string), pick func() string) error {
		for _, id := range []string{"w0", "w1", "w2"} {
			down(id)
		}
		for range 100 {
			if id := pick(); id != "w3" {
				return fmt.Errorf("%s is Down and was picked", id)
			}
		}
		return nil
	}
	l := newLab(t, labWorkers("w", 4), WithReplicas(4))
	for _, id := range []string{"w0", "w1"} { // the cap is used up, too
		l.trip(t, id, Unspecified)
	}
	require.NoError(t, check(func(id string) { require.True(t, l.SetState(id, Down)) }, func() string {
		c, err := l.Pick("k")
		require.NoError(t, err)
		defer c.Cancel()
		return c.ID()
	}))
	l.SetState("w3", Down)
	_, err := l.Pick("k")
	require.ErrorIs(t, err, ErrNoWorker, "I3: not even the last one")

	// The fault: one cap for both.
	out, i := map[string]bool{}, 0
	require.Error(t, check(func(id string) {
		if len(out) < 2 {
			out[id] = true
		}
	}, func() string {
		for {
			i++
			if id := fmt.Sprint("w", i%4); !out[id] {
				return id
			}
		}
	}))
}
