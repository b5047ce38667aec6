package ringwise

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func (l *lab) node(id string) *node {
	sn := l.snap.Load()
	return sn.nodes[sn.byID[id]]
}

// probesFail tells of n failed probes, one after another.
func (l *lab) probesFail(id string, n int) {
	for range n {
		l.ProbeResult(id, 0, errRefused)
	}
}

func (l *lab) answers(t testing.TB, id string) {
	c, err := l.Start(Request{Intent: Read}, id)
	require.NoError(t, err)
	l.Observe(c, time.Millisecond, nil)
}

// probedLab is a lab and the list of those whom its hook was asked to probe.
func probedLab(t *testing.T, workers []Worker, opts ...Option) (l *lab, asked func() []string) {
	var got []string
	l = newLab(t, workers, append([]Option{WithHooks(Hooks{Probe: func(id string) { got = append(got, id) }})}, opts...)...)
	return l, func() []string {
		out := slices.Sorted(slices.Values(got))
		got = nil
		return out
	}
}

// S7: who has answered nothing for 30 s is asked about, once a second, until
// there is an answer or a result.
func TestProbe_AskedWhenBlind(t *testing.T) {
	l, asked := probedLab(t, labNamed("a", "b", "c"))
	l.pass(29 * time.Second)
	l.answers(t, "b")
	require.Empty(t, asked())
	l.pass(1100 * time.Millisecond)
	require.Equal(t, []string{"a", "c"}, asked(), "b has answered")
	for range 8 { // ten folds a second
		l.pass(100 * time.Millisecond)
	}
	require.Empty(t, asked(), "asked a moment ago")
	l.ProbeResult("a", time.Millisecond, nil)
	l.pass(200 * time.Millisecond)
	require.Equal(t, []string{"c"}, asked(), "a good result is heard of for as long as an answer")
	l.pass(31 * time.Second)
	got := asked()
	assert.Contains(t, got, "a")
	assert.Contains(t, got, "b")
	l.SetState("c", Down)
	l.pass(2 * time.Second)
	got = asked()
	assert.NotContains(t, got, "c", "who is Down is known to be")
	assert.NotZero(t, l.Status().ProbesAsked)

	// A failure is an answer as far as blindness goes, and a failed probe asks
	// for the next.
	c, err := l.Start(Request{}, "a")
	require.NoError(t, err)
	c.Done(errDisk)
	l.pass(time.Second)
	asked()
	l.probesFail("b", 1)
	l.pass(3 * time.Second)
	assert.Equal(t, []string{"b", "b", "b"}, asked())
}

// Without a hook nothing is asked, and nothing goes out.
func TestProbe_OnlyWithAHook(t *testing.T) {
	l := newLab(t, labNamed("a", "b"))
	l.pass(5 * time.Minute)
	assert.Zero(t, l.Status().ProbesAsked)
	assert.Equal(t, "healthy", l.Status().Workers[0].Read.Phase)
}

// A thousand workers that fell silent together are not probed together, and
// each gets its turn.
func TestProbe_AFewAtATime(t *testing.T) {
	l, asked := probedLab(t, labWorkers("w", 1000))
	l.clock.advance(31 * time.Second)
	turn := map[string]int{}
	for i := range 64 {
		l.Maintain(l.clock.peek())
		got := asked()
		require.LessOrEqual(t, len(got), 32)
		for _, id := range got {
			turn[id]++
		}
		if i == 31 {
			require.Len(t, turn, 1000, "all, one after another")
			l.clock.advance(time.Second)
		}
	}
	for id, n := range turn {
		require.Equal(t, 2, n, id)
	}
	assert.Zero(t, l.Status().HooksDropped)
}

// S7: three failed probes in a row take a worker out, on both lanes, and
// everyone says why.
func TestProbe_ThreeFailuresTakeOut(t *testing.T) {
	var told []Transition
	l := newLab(t, labNamed("a", "b", "c"), WithHooks(Hooks{Transition: func(tr Transition) { told = append(told, tr) }}))
	l.probesFail("a", 2)
	l.ProbeResult("a", 0, nil)
	l.probesFail("a", 2)
	require.Zero(t, l.pen("a", Read), "a success ends the row")
	l.clock.advance(time.Second)
	l.answers(t, "a")
	l.clock.advance(time.Second)
	l.probesFail("a", 2)
	require.Zero(t, l.pen("a", Read), "and so does an answer")
	require.Empty(t, told)
	l.ProbeResult("a", 0, context.Canceled)
	l.ProbeResult("a", 0, fmt.Errorf("gave up: %w", context.Canceled))
	require.Equal(t, 2, l.Status().Workers[0].FailedProbes, "no result")
	l.clock.advance(time.Second)

	l.ProbeResult("a", 0, errRefused)
	require.Equal(t, []Transition{{Worker: "a", To: ProbeOut, Until: told[0].Until}, {Worker: "a", Write: true, To: ProbeOut, Until: told[1].Until}}, told)
	assert.InDelta(t, 30, told[0].Until.Seconds(), 0.002)
	st := l.Status()
	assert.Equal(t, "probe-out", st.Workers[0].Read.Phase)
	assert.Equal(t, "probe-out", st.Workers[0].Write.Phase)
	assert.Zero(t, st.Workers[0].Read.Share)
	assert.Equal(t, 1, st.Write.Cooldown, "it counts as out")
	assert.Equal(t, 3, st.Workers[0].FailedProbes)
	assert.EqualValues(t, 7, st.ProbesFailed)
	for _, intent := range []Intent{Read, Write, StrongRead, Unspecified} {
		d := l.Explain(Request{Key: "k", Intent: intent})
		i := slices.IndexFunc(d.Candidates, func(c Candidate) bool { return c.ID == "a" })
		assert.Equal(t, "is out by failed probes", d.Candidates[i].Cut)
		assert.Equal(t, "probe-out", d.Candidates[i].Phase)
		assert.Zero(t, l.picks(t, 200, Request{Key: "k", Intent: intent})["a"])
	}
}

// S7, I15: out for 30 s after the last result, then in again by the ramp, by
// the clock alone.
func TestProbe_OutEndsByTime(t *testing.T) {
	l := newLab(t, labNamed("a", "b"))
	l.probesFail("a", 3)
	l.clock.advance(29 * time.Second)
	l.probesFail("a", 1)
	l.clock.advance(29 * time.Second)
	require.Zero(t, l.picks(t, 100, Request{Key: "k", Intent: Read})["a"], "a further failure keeps it out")
	l.clock.advance(1002 * time.Millisecond)
	require.NotZero(t, l.picks(t, 300, Request{Key: "k", Intent: Read})["a"], "no Maintain, no result, and back")
	p := l.pen("a", Read)
	require.Equal(t, Probation, p.phase())
	require.Equal(t, 0.2, p.ramp(&l.snap.Load().coef.rules))
	l.Maintain(l.clock.peek())
	require.Equal(t, Probation, l.pen("a", Write).phase())
	require.Zero(t, l.Status().Write.Cooldown)
}

// A success lets it into probation at once; a good probe ends no cooldown of
// traffic's.
func TestProbe_SuccessLetsIn(t *testing.T) {
	var told []Transition
	l := newLab(t, labNamed("a", "b", "c", "d"), WithHooks(Hooks{Transition: func(tr Transition) { told = append(told, tr) }}))
	l.probesFail("a", 3)
	l.trip(t, "b", Read)
	for _, id := range []string{"a", "b"} {
		l.ProbeResult(id, time.Millisecond, nil)
	}
	assert.Equal(t, Probation, l.pen("a", Read).phase())
	assert.Equal(t, Probation, l.pen("a", Write).phase())
	assert.Equal(t, Cooldown, l.pen("b", Read).shown(), "traffic decides")
	assert.Equal(t, 1, l.Status().Read.Cooldown)
	assert.Zero(t, l.Status().Write.Cooldown)
	assert.Zero(t, l.Status().Workers[0].Read.Backoff, "probes double no cooldown")

	// Failed probes of one that is in cooldown make it a probe-out, which is
	// not shorter than either; a success then ends that.
	until := l.pen("b", Read).at()
	told = nil
	l.probesFail("b", 3)
	require.Len(t, told, 2)
	assert.Equal(t, []Phase{Cooldown, ProbeOut, Healthy, ProbeOut}, []Phase{told[0].From, told[0].To, told[1].From, told[1].To})
	assert.Equal(t, ProbeOut, l.pen("b", Read).shown())
	assert.Greater(t, l.pen("b", Read).at(), until)
	assert.Equal(t, 1, l.Status().Read.Cooldown, "counted once")
	l.ProbeResult("b", 0, nil)
	assert.Equal(t, Probation, l.pen("b", Read).phase())
}

// I2, I3: probes take out no more than penalties may, nor the last one.
func TestProbe_CapHolds(t *testing.T) {
	for n := 1; n <= 7; n++ {
		l := newLab(t, labWorkers("w", n))
		for i := range n {
			l.probesFail(fmt.Sprint("w", i), 5)
		}
		st := l.Status()
		assert.Equal(t, n/2, st.Read.Cooldown, "of %d", n)
		assert.Equal(t, n/2, st.Write.Cooldown, "of %d", n)
		l.trip2(t, n)
		assert.Equal(t, n/2, l.Status().Read.Cooldown, "with failures of traffic")
		l.picks(t, 20, Request{Key: "k"})
	}
}

func (l *lab) trip2(t testing.TB, n int) {
	for i := range n {
		for range 4 {
			c, err := l.Start(Request{}, fmt.Sprint("w", i))
			require.NoError(t, err)
			c.DoneWith(Outcome{Verdict: Fault, RTT: time.Millisecond})
		}
	}
}

// F5: who is out by penalty is let in before who is out by probes, though its
// time is up later.
func TestProbe_GivenUpAfterPenalty(t *testing.T) {
	l := newLab(t, labNamed("penalty", "probed", "x", "y"), WithTuning(labTuned(func(t *Tuning) {
		t.CooldownMin, t.CooldownMax = 5*time.Minute, 5*time.Minute
	})))
	l.probesFail("probed", 3)
	l.trip(t, "penalty", Read)
	require.Greater(t, l.pen("penalty", Read).at(), l.pen("probed", Read).at())
	for range 50 {
		c, err := l.Route(Request{Among: l.refs(t, "probed", "penalty"), Intent: Read})
		require.NoError(t, err)
		require.Equal(t, "penalty", c.ID())
		require.Equal(t, RelaxedPenalty, c.Relaxed())
		c.Cancel()
	}
	c, err := l.Route(Request{Among: l.refs(t, "probed"), Intent: Read})
	require.NoError(t, err)
	require.Equal(t, "probed", c.ID(), "rather than nobody")
	require.Equal(t, "probe-out", c.Relaxed().String())
	c.Cancel()
	p, err := l.Plan(Request{Among: l.refs(t, "probed", "x"), Intent: Read}, nil)
	require.NoError(t, err)
	require.Len(t, p, 2)
	require.Equal(t, "probed", p[1].ID(), "a plan has it last")
}

// A probe's time is no latency of requests, but for who never had any.
func TestProbe_LatencyOnlyWhereThereIsNone(t *testing.T) {
	l := newLab(t, labNamed("a", "b"))
	l.answers(t, "a")
	for _, id := range []string{"a", "b"} {
		l.ProbeResult(id, 3*time.Millisecond, nil)
	}
	latency := map[string]time.Duration{}
	for _, c := range l.Explain(Request{Key: "k", Intent: Read}).Candidates {
		latency[c.ID] = c.Latency.Round(10 * time.Microsecond)
	}
	assert.Equal(t, map[string]time.Duration{"a": time.Millisecond, "b": 3 * time.Millisecond}, latency)
	assert.Zero(t, l.Status().Workers[1].Picks)

	// A ramp begins without a latency, and a ping is no request.
	l.trip(t, "a", Read)
	l.pass(2 * time.Second)
	require.Equal(t, Probation, l.pen("a", Read).phase())
	l.ProbeResult("a", time.Microsecond, nil)
	assert.Zero(t, l.node("a").st.lane[laneRead].lat.Load())
}

func TestProbe_UnknownAndClosed(t *testing.T) {
	l := newLab(t, labNamed("a", "b"))
	l.ProbeResult("z", time.Millisecond, nil)
	l.ProbeResult("", time.Millisecond, errRefused)
	assert.EqualValues(t, 2, l.Status().UnknownIDs)
	l.probesFail("a", 3)
	require.NoError(t, l.SetTopology(Topology{Workers: []Worker{{ID: "a", Incarnation: 1}, {ID: "b"}}}))
	assert.Zero(t, l.Status().Workers[0].FailedProbes, "of the process that was")
	l.SetState("a", Down)
	l.probesFail("a", 5)
	assert.Zero(t, l.Status().Read.Cooldown, "Down already, and no penalty")
	l.ProbeResult("a", 0, nil)
	require.NoError(t, l.Close())
	l.probesFail("a", 3)
	assert.Zero(t, l.Status().Workers[0].FailedProbes)
}
