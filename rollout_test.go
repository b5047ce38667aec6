package ringwise

import (
	"container/heap"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ringwise/ringwise/keyspec"
	"github.com/stretchr/testify/require"
)

// rollLab plays requests against servers that are slower the more they have
// in hand. The clock is the rig's.
type rollLab struct {
	*rig
	rnd  *rand.Rand
	open pendingHeap
	// What a server does to a request; the defaults are 1 ms and no errors.
	mean   func(id string) time.Duration
	failed func(c Choice, q *Request) bool
	slower func(c Choice) float64
	req    func(i int) Request
	every  time.Duration
	n      int
	picks  map[string]int
}

type pendingEnd struct {
	at  int64
	c   Choice
	rtt time.Duration
	err error
}

type pendingHeap []pendingEnd

func (h pendingHeap) Len() int           { return len(h) }
func (h pendingHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h pendingHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *pendingHeap) Push(x any)        { *h = append(*h, x.(pendingEnd)) }
func (h *pendingHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func newRollLab(t testing.TB, seed uint64, n int, opts ...Option) *rollLab {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 0))
	l := &rollLab{rnd: rnd, every: 500 * time.Microsecond, picks: map[string]int{}}
	l.rig = newRig(t, n, append([]Option{rigTuning(nil), WithRand(rnd.Uint64)}, opts...)...)
	l.mean = func(string) time.Duration { return time.Millisecond }
	l.req = func(i int) Request {
		return Request{Hash: HashUint64(l.rnd.Uint64() % 100_000), Intent: Read}
	}
	return l
}

// run plays for so long.
func (l *rollLab) run(d time.Duration) {
	l.t.Helper()
	end := l.now.Load() + int64(d)
	fold := l.now.Load()
	for next := l.now.Load(); next < end; next += int64(l.every) {
		for len(l.open) > 0 && l.open[0].at <= next {
			e := heap.Pop(&l.open).(pendingEnd)
			l.now.Store(max(e.at, l.now.Load()))
			l.Observe(e.c, e.rtt, e.err)
		}
		l.now.Store(max(next, l.now.Load()))
		if next >= fold {
			l.Maintain(l.clock())
			fold += int64(100 * time.Millisecond)
		}
		q := l.req(l.n)
		l.n++
		c, err := l.Route(q)
		require.NoError(l.t, err)
		l.picks[c.ID()]++
		x := float64(l.mean(c.ID())) * l.rnd.ExpFloat64() * (1 + 0.2*float64(c.n.st.inFlight()))
		if l.slower != nil {
			x *= l.slower(c)
		}
		rtt := max(time.Duration(x), 10*time.Microsecond)
		e := pendingEnd{at: next + int64(rtt), c: c, rtt: rtt}
		if l.failed != nil && l.failed(c, &q) {
			e.err = errDisk
		}
		heap.Push(&l.open, e)
	}
	for len(l.open) > 0 {
		e := heap.Pop(&l.open).(pendingEnd)
		l.now.Store(max(e.at, l.now.Load()))
		l.Observe(e.c, e.rtt, e.err)
	}
	l.Maintain(l.clock())
}

// halves is one step in which each key is in one of the groups.
func halves(d time.Duration) []CanaryStep { return []CanaryStep{{Share: 0.5, MinTime: d}} }

func fakeRun(confidence float64) *canaryRun {
	run := &canaryRun{cfg: CanaryConfig{Confidence: confidence, Tolerance: 0.05, Steps: halves(time.Hour)},
		trial: &trial{group: [groups]*trialGroup{groupControl: newTrialGroup(1), groupCanary: newTrialGroup(1)}}, nextLook: MinCanaryPicks}
	return run
}

// Under 1000 picks a side nothing is said, however bad it looks.
func TestCanary_UndecidedUnderAThousand(t *testing.T) {
	l := newRollLab(t, 1, 3)
	l.failed = func(c Choice, _ *Request) bool { return c.Canary() }
	require.NoError(t, l.StartCanary(CanaryConfig{Tuning: l.Tuning(), Steps: halves(time.Second)}))
	for l.Canary().Canary.Ends < MinCanaryPicks-60 {
		l.run(20 * time.Millisecond)
		s := l.Canary()
		require.Equal(t, Undecided, s.Verdict)
		require.Equal(t, CanaryRunning, s.State, "and it stays, though its time is over or not")
		if s.Canary.Ends < 100 {
			l.jump(3 * time.Second)
		}
	}
	l.run(time.Second)
	require.Equal(t, Worse, l.Canary().Verdict)
	require.Equal(t, CanaryRolledBack, l.Canary().State)
}

// Steps: by flag, by tenant, by share; each for its time at least; passed,
// and promoted by one call, with the version the canary had.
func TestCanary_StepsAndPromotion(t *testing.T) {
	t.Parallel()
	var alarms []string
	l := newRollLab(t, 3, 6, WithHooks(Hooks{Alarm: func(a Alarm) { alarms = append(alarms, a.Kind.String()+" "+a.Text) }}))
	l.req = func(i int) Request {
		q := Request{Key: fmt.Sprint("key", l.rnd.IntN(10_000)), Intent: Read}
		switch i % 10 {
		case 0:
			q.Canary = true
		case 1:
			q.Tenant = "beta"
		case 2:
			q.Tenant = "other"
		}
		return q
	}
	candidate := l.Tuning()
	candidate.LoadWeight, candidate.RampTime = 2.5, 20*time.Second
	steps := []CanaryStep{{MinTime: 2 * time.Second}, {Tenants: true, MinTime: 2 * time.Second}, {Tenants: true, Share: 0.3, MinTime: 4 * time.Second}}
	require.NoError(t, l.StartCanary(CanaryConfig{Tuning: candidate, Tenants: []string{"beta"}, Steps: steps}))
	require.ErrorContains(t, l.StartCanary(CanaryConfig{Tuning: candidate}), "a canary (tuning 2, step 1 of 3) is running: Promote or RollBack it first")
	require.ErrorIs(t, l.StartCanary(CanaryConfig{Tuning: candidate}), ErrCanary)
	require.ErrorIs(t, l.Retune(candidate), ErrCanary, "or the groups were no longer what they are compared as")
	require.Equal(t, []string{"RampTime"}, l.Canary().Untested, "both groups ramp alike")

	is := func(q Request) bool { return l.Explain(q).Group == "canary" }
	flagged, beta, other := Request{Key: "a", Canary: true}, Request{Key: "a", Tenant: "beta"}, Request{Key: "a", Tenant: "other"}
	l.run(time.Second)
	require.Equal(t, 1, l.Canary().Step)
	require.True(t, is(flagged))
	require.False(t, is(beta))
	d := l.Explain(flagged)
	require.Equal(t, uint64(2), d.TuningVersion)
	require.Equal(t, uint64(1), l.Explain(beta).TuningVersion)
	require.Equal(t, uint64(1), l.Status().TuningVersion)

	l.run(1500 * time.Millisecond)
	require.Equal(t, 2, l.Canary().Step)
	require.ErrorContains(t, l.Retune(candidate), "a canary (tuning 2, step 2 of 3) is running")
	require.True(t, is(flagged) && is(beta) && !is(other))
	l.run(2 * time.Second)
	require.Equal(t, 3, l.Canary().Step)
	share := 0.0
	for i := range 10_000 {
		if is(Request{Key: fmt.Sprint("key", i)}) {
			share += 1.0 / 10_000
		}
	}
	require.InDelta(t, 0.3, share, 0.02)
	l.run(3 * time.Second)
	require.Equal(t, CanaryRunning, l.Canary().State, "its time is not over")
	l.run(3 * time.Second)
	require.Equal(t, CanaryPassed, l.Canary().State)
	require.Equal(t, NoWorse, l.Canary().Verdict)
	require.NotEqual(t, candidate, l.Tuning(), "nobody promoted it")

	require.NoError(t, l.Promote())
	require.Equal(t, candidate, l.Tuning())
	require.Equal(t, uint64(2), l.Status().TuningVersion)
	require.Equal(t, CanaryPromoted, l.Canary().State)
	require.ErrorIs(t, l.Promote(), ErrCanary)
	require.NoError(t, l.RollBack(), "one call back")
	require.NotEqual(t, candidate, l.Tuning())
	require.Equal(t, uint64(3), l.Status().TuningVersion, "a version of its own")
	require.ErrorIs(t, l.RollBack(), ErrCanary)
	require.Equal(t, []string{"canary canary passed all steps", "canary canary promoted: by Promote",
		"canary canary rolled back: after its promotion"}, alarms)
}

// A key stays in its group from step to step and on each client, and what
// tells the group has nothing to do with where the key is on the ring.
func TestCanary_GroupsAreSticky(t *testing.T) {
	t.Parallel()
	a, b := newRollLab(t, 1, 6), newRollLab(t, 2, 9)
	for _, l := range []*rollLab{a, b} {
		require.NoError(t, l.StartCanary(CanaryConfig{Tuning: l.Tuning(), Steps: []CanaryStep{{Share: 0.05, MinTime: time.Second}, {Share: 0.3, MinTime: time.Hour}}}))
	}
	group := func(l *rollLab, i int) string { return l.Explain(Request{Key: fmt.Sprint(i), Intent: Read}).Group }
	first := map[int]string{}
	owners := map[string]float64{}
	for i := range 5000 {
		first[i] = group(a, i)
		require.Equal(t, first[i], group(b, i), "another client")
		if first[i] == "canary" {
			owners[a.Explain(Request{Key: fmt.Sprint(i), Intent: Read}).Candidates[0].ID]++
		}
	}
	require.Len(t, owners, 6, "from all over the ring")
	a.run(12 * time.Second)
	require.Equal(t, 2, a.Canary().Step)
	for i := range 5000 {
		if first[i] != "" {
			require.Equal(t, first[i], group(a, i), "key %d in the next step", i)
		}
	}
}

// The pick really uses the candidate's coefficients, for the canary's keys
// alone, and what it says is what Explain says.
func TestCanary_PicksByTheCandidate(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]Option{nil, {WithScorer(byID(map[string]float64{"w1": 100}), 0)}} {
		l := newRollLab(t, 1, 3, opts...)
		l.mean = func(id string) time.Duration { return time.Duration(id[1]-'0'+1) * time.Millisecond }
		l.run(2 * time.Second)
		candidate := l.Tuning()
		candidate.Temperature, candidate.LoadWeight = 1000, 0 // even
		require.NoError(t, l.StartCanary(CanaryConfig{Tuning: candidate, Steps: halves(time.Hour), Attended: true}))
		got := map[string]map[string]float64{"canary": {}, "control": {}}
		n := map[string]float64{}
		for i := range 6000 {
			q := Request{Key: fmt.Sprint(i), Intent: Read}
			g := l.Explain(q).Group
			c, err := l.Route(q)
			require.NoError(t, err)
			require.Equal(t, g == "canary", c.Canary())
			got[g][c.ID()]++
			n[g]++
			c.Cancel()
		}
		require.InDelta(t, 1.0/3, got["canary"]["w2"]/n["canary"], 0.06, "even, but for the 0.85 of a slow worker")
		require.Less(t, got["control"]["w2"]/n["control"], 0.1)
	}
}

func TestCanary_RollBackIsAtOnce(t *testing.T) {
	l := newRollLab(t, 1, 3)
	require.ErrorIs(t, l.RollBack(), ErrCanary)
	require.ErrorContains(t, l.RollBack(), "no canary is running: nothing to roll back")
	require.ErrorIs(t, l.Promote(), ErrCanary)
	require.ErrorContains(t, l.Promote(), "no canary is running: nothing to promote")
	require.Equal(t, CanaryNone, l.Canary().State)
	require.NoError(t, l.StartCanary(CanaryConfig{Tuning: l.Tuning(), Steps: halves(time.Hour)}))
	late, err := l.Route(Request{Key: "x", Canary: true})
	require.NoError(t, err)
	require.True(t, late.Canary())
	require.NoError(t, l.RollBack())
	c, err := l.Route(Request{Key: "x", Canary: true})
	require.NoError(t, err)
	require.False(t, c.Canary())
	require.True(t, l.snap.Load().plain, "and the picks are as fast as before")
	l.Observe(late, time.Millisecond, nil) // of a group that is no more
	l.Observe(c, time.Millisecond, nil)
	l.requireIdle()
	require.Equal(t, "by RollBack", l.Canary().Reason)
	require.Equal(t, uint64(2), l.Canary().TuningVersion)
	require.NoError(t, l.StartCanary(CanaryConfig{Tuning: l.Tuning()}))
	require.Equal(t, uint64(3), l.Canary().TuningVersion, "no version is used twice")

	// An answer of an earlier canary is not this one's.
	late, err = l.Route(Request{Key: "x", Canary: true})
	require.NoError(t, err)
	require.NoError(t, l.RollBack())
	l.jump(time.Millisecond)
	require.NoError(t, l.StartCanary(CanaryConfig{Tuning: l.Tuning()}))
	l.Observe(late, 2*time.Millisecond, nil)
	require.Zero(t, l.Canary().Canary.Ends)
	l.requireIdle()
}

func TestCanary_AttendedStaysAndAutoPromotes(t *testing.T) {
	t.Parallel()
	l := newRollLab(t, 1, 3)
	l.failed = func(c Choice, _ *Request) bool { return c.Canary() && l.rnd.Float64() < 0.2 }
	require.NoError(t, l.StartCanary(CanaryConfig{Tuning: l.Tuning(), Steps: halves(time.Second), Attended: true, AutoPromote: true}))
	l.run(4 * time.Second)
	require.Equal(t, Worse, l.Canary().Verdict)
	require.Equal(t, CanaryRunning, l.Canary().State, "nor is what is worse promoted")

	l = newRollLab(t, 1, 3)
	candidate := l.Tuning()
	candidate.LoadWeight = 2.1
	require.NoError(t, l.StartCanary(CanaryConfig{Tuning: candidate, Steps: halves(2 * time.Second), AutoPromote: true}))
	l.run(4 * time.Second)
	require.Equal(t, CanaryPromoted, l.Canary().State)
	require.Equal(t, candidate, l.Tuning())
}

func TestCanary_NamesTheBadField(t *testing.T) {
	l := newRollLab(t, 1, 3)
	bad := l.Tuning()
	bad.Temperature = math.NaN()
	for field, c := range map[string]CanaryConfig{
		"CanaryConfig.Tuning":             {},
		"CanaryConfig.Tuning.Temperature": {Tuning: bad},
		"CanaryConfig.Confidence":         {Tuning: l.Tuning(), Confidence: 1},
		"CanaryConfig.Tolerance":          {Tuning: l.Tuning(), Tolerance: math.NaN()},
		"CanaryConfig.Steps[0].Share":     {Tuning: l.Tuning(), Steps: []CanaryStep{{Share: 0.51, MinTime: time.Second}}},
		"CanaryConfig.Steps[0].MinTime":   {Tuning: l.Tuning(), Steps: []CanaryStep{{Share: 0.5}}},
		"CanaryConfig.Tenants":            {Tuning: l.Tuning(), Steps: []CanaryStep{{Tenants: true, MinTime: time.Second}}},
	} {
		err := l.StartCanary(c)
		detail, ok := errors.AsType[*ConfigError](err)
		require.True(t, ok, field)
		require.Equal(t, field, detail.Field)
		require.ErrorIs(t, err, ErrConfig)
		require.Equal(t, CanaryNone, l.Canary().State)
	}
	require.NoError(t, l.StartCanary(CanaryConfig{Tuning: l.Tuning()}))
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.StartCanary(CanaryConfig{Tuning: l.Tuning()}), ErrClosed, "though a canary was running")
}

// Topologies, reports, states and Close come and go under a canary, and its
// view of the workers is the live one's.
func TestCanary_SeesWhatTheLiveSees(t *testing.T) {
	l := newRollLab(t, 1, 4)
	require.NoError(t, l.StartCanary(CanaryConfig{Tuning: l.Tuning(), Steps: halves(time.Hour), Attended: true}))
	l.SetState("w0", Down)
	require.NoError(t, l.Report(Report{Worker: "w1", Time: l.clock(), ReadOnly: Some(true)}))
	require.NoError(t, l.SetTopology(Topology{Workers: rigWorkers(3)}))
	sn := l.snap.Load()
	require.Equal(t, len(sn.cols), len(sn.canary.cols))
	for i := range sn.cols {
		require.Equal(t, sn.cols[i], sn.canary.cols[i])
	}
	require.Same(t, sn.ring, sn.canary.ring)
	l.run(time.Second)
	require.Zero(t, l.picks["w0"])
	require.NoError(t, l.Close())
	_, err := l.Route(Request{Key: "x", Canary: true})
	require.ErrorIs(t, err, ErrClosed)
}

// Counters stand still at the top.
func TestCanary_CountersSaturate(t *testing.T) {
	run := fakeRun(0.95)
	g := run.trial.group[groupCanary]
	g.ends.Store(math.MaxInt64)
	g.picks.Store(math.MaxInt64)
	run.trial.ended(groupCanary, 0, OK, time.Millisecond, true)
	run.trial.picked(groupCanary, []uint16{0}, 0)
	require.Equal(t, uint64(math.MaxInt64), g.ends.Load())
	require.Equal(t, uint64(math.MaxInt64), g.picks.Load())
}

func TestCanary_StatusIsPlainData(t *testing.T) {
	l := newRollLab(t, 1, 3)
	require.NoError(t, l.StartCanary(CanaryConfig{Tuning: l.Tuning(), Steps: halves(time.Hour)}))
	l.run(4 * time.Second)
	s := l.Canary()
	require.Len(t, s.Measures, 4)
	for _, m := range s.Measures {
		require.LessOrEqual(t, m.Low, m.High, m.Name)
	}
	_, err := json.Marshal(s)
	require.NoError(t, err)
	var b strings.Builder
	fmt.Fprint(&b, l.Explain(Request{Key: "x", Canary: true}))
	require.Contains(t, b.String(), "canary")
}

// Without figures a measure has no interval, and a canary that passes says
// of which measures it had enough.
func TestCanary_SaysWhatItHadEnoughOf(t *testing.T) {
	t.Parallel()
	l := newRollLab(t, 1, 3)
	require.NoError(t, l.StartCanary(CanaryConfig{Tuning: l.Tuning(), Steps: halves(3 * time.Second)}))
	l.run(3500 * time.Millisecond)
	s := l.Canary()
	require.Equal(t, CanaryPassed, s.State)
	require.Equal(t, "all steps passed, with enough figures of errors, p99 and too few of deviation, flaps", s.Reason)
	require.Len(t, s.Measures, 4)
	for _, m := range s.Measures {
		if m.Name == "p99" {
			require.Less(t, m.Low, m.High)
		}
		if !m.Enough {
			require.Zero(t, m.Low, m.Name)
			require.Zero(t, m.High, m.Name)
			require.NotZero(t, m.Control+m.Canary, "%s is told all the same", m.Name)
		}
	}
	l.run(20 * time.Second)
	require.Equal(t, "all steps passed, with enough figures of errors, p99, deviation, flaps", l.Canary().Reason, "as of the last look")

	l = newRollLab(t, 1, 3)
	require.NoError(t, l.StartCanary(CanaryConfig{Tuning: l.Tuning(), Steps: []CanaryStep{{MinTime: time.Second}}}))
	l.run(2 * time.Second)
	require.Equal(t, "all steps passed, the last without enough figures to compare", l.Canary().Reason)
}

// TestCanary_AttendedWorseIsTold: the alarm comes once, the canary stays, and
// Status warns.
func TestCanary_AttendedWorseIsTold(t *testing.T) {
	var alarms []Alarm
	l := newRollLab(t, 1, 6, WithHooks(Hooks{Alarm: func(a Alarm) { alarms = append(alarms, a) }}))
	l.failed = func(c Choice, _ *Request) bool { return c.Canary() && l.rnd.Float64() < 0.1 }
	require.NoError(t, l.StartCanary(CanaryConfig{Name: "odd", Tuning: l.Tuning(), Steps: halves(time.Hour), Attended: true}))
	l.run(30 * time.Second)
	require.Equal(t, CanaryRunning, l.Canary().State)
	require.Equal(t, Worse, l.Canary().Verdict)
	worse := 0
	for _, a := range alarms {
		if a.Kind == AlarmCanary && strings.Contains(a.Text, "odd does worse: errors") {
			worse++
		}
	}
	require.Equal(t, 1, worse, "%v", alarms)
	require.Contains(t, strings.Join(l.Status().Warnings, "\n"), "odd does worse")
}

// TestCanary_GroupsByTheParsedKey: tenants are those the parser reads, and two
// spellings of one key are in one group.
func TestCanary_GroupsByTheParsedKey(t *testing.T) {
	spec := keyspec.Default()
	g := newRig(t, 3, WithKeyParser(spec))
	require.NoError(t, g.StartCanary(CanaryConfig{Tuning: g.Tuning(), Tenants: []string{"acme"}, Steps: []CanaryStep{{Tenants: true, MinTime: time.Hour}}}))
	for key, in := range map[string]bool{"acme:order:1": true, "other:order:1": false} {
		for _, q := range []Request{{Key: key}, {KeyBytes: []byte(key)}} {
			c, err := g.Route(q)
			require.NoError(t, err)
			require.Equal(t, in, c.Canary(), key)
			c.Cancel()
		}
	}
}
