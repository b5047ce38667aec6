package ringwise

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A Request.Start ahead of the clock must not put cooldowns and answers there.
func TestRoute_StartAheadIsNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(workersNamed("a", "b", "c"))
		require.NoError(t, err)
		for _, ahead := range []time.Duration{29 * time.Minute, 24 * time.Hour, 100 * 365 * 24 * time.Hour} {
			c, err := r.Route(Request{Key: "k", Start: time.Now().Add(ahead)})
			require.NoError(t, err)
			c.DoneWith(Outcome{Verdict: Overload, RetryAfter: time.Second, RTT: time.Millisecond})
			for _, w := range r.Status().Workers {
				assert.LessOrEqual(t, w.RetryAfter, 2*time.Second, "%v ahead", ahead)
				assert.Less(t, w.Read.LastAnswer, time.Minute)
			}
		}
	})
}

// A worker's word on its own service time counts no more than a failure.
func TestObserve_ServiceTimeIsCapped(t *testing.T) {
	s := newStand(t, 1, workersNamed("a", "b", "c"))
	for range 100 {
		s.Observe(s.route(Request{Key: "k"}), time.Millisecond, nil)
	}
	s.step(time.Second)
	c := s.route(Request{Key: "k"})
	c.DoneWith(Outcome{RTT: time.Millisecond, Feedback: Feedback{ServiceTime: math.MaxInt64}})
	for _, w := range s.Status().Workers {
		assert.LessOrEqual(t, w.Read.Latency, 100*time.Millisecond, "%s", w.ID)
	}
}

// An RTT counts as 100 s at most, however it is told.
func TestObserve_WildRTTIsCapped(t *testing.T) {
	for name, tell := range map[string]func(g *rig, rtt time.Duration){
		"ProbeResult":   func(g *rig, rtt time.Duration) { g.ProbeResult("w0", rtt, nil) },
		"Observe":       func(g *rig, rtt time.Duration) { g.Observe(g.start("w0"), rtt, nil) },
		"DoneWith":      func(g *rig, rtt time.Duration) { g.start("w0").DoneWith(Outcome{RTT: rtt}) },
		"Superseded":    func(g *rig, rtt time.Duration) { g.start("w0").DoneWith(Outcome{RTT: rtt, Verdict: Superseded}) },
		"ObserveWorker": func(g *rig, rtt time.Duration) { g.ObserveWorker("w0", rtt, nil) },
		"Done": func(g *rig, rtt time.Duration) {
			c := g.start("w0")
			g.jump(min(rtt, 3*time.Minute))
			c.Done(nil)
		},
		"FirstByte": func(g *rig, rtt time.Duration) {
			c := g.start("w0")
			g.jump(min(rtt, 3*time.Minute))
			c.FirstByte()
			c.Done(nil)
		},
	} {
		for _, rtt := range []time.Duration{90 * time.Second, 1 << 62, math.MaxInt64} {
			g := newRig(t, 3)
			tell(g, rtt)
			ls := &g.node("w0").st.lane[laneRead]
			want := min(rtt, 100*time.Second)
			assert.InEpsilon(t, float64(want), unpackLat(ls.lat.Load()), 1e-4, "%s of %v", name, rtt)
			g.pass(time.Second)
			assert.LessOrEqual(t, g.snap.Load().fleet[laneRead].mean, float64(100*time.Second), "%s of %v", name, rtt)
			g.requireIdle()
		}
	}
}

// A closed router reserves nothing.
func TestStartWorker_AfterClose(t *testing.T) {
	g := newRig(t, 3)
	g.StartWorker("w0")
	require.NoError(t, g.Close())
	g.StartWorker("w0")
	require.Equal(t, 1, g.inFlight("w0"), "the one from before")
	g.ObserveWorker("w0", time.Millisecond, nil)
	g.requireIdle()
}

// One failure must not cost a worker with little traffic more than three that
// trip: its price fades, and the first success forgets what has faded.
func TestObserve_OneFaultIsForgivenInSeconds(t *testing.T) {
	s := newStand(t, 1, workersNamed("a", "b", "c"))
	failed, picks, window := false, 0, 0
	for ms := range 60_000 {
		c := s.route(Request{Key: "k"})
		if c.ID() == "a" {
			window++
		}
		if c.ID() == "a" && ms > 2000 && !failed {
			failed = true
			c.DoneWith(Outcome{Verdict: Fault, RTT: time.Millisecond})
		} else {
			s.Observe(c, time.Millisecond, nil)
		}
		s.step(time.Millisecond)
		if ms > 20_000 {
			picks += window
		}
		window = 0
	}
	require.True(t, failed)
	assert.Greater(t, picks, 40_000/6, "half its share from 18 s after the failure on")
}

// Superseded without a copy is no hedge won.
func TestHedge_LearnsFromCopiesAlone(t *testing.T) {
	s := newStand(t, 1, workersNamed("a", "b", "c"))
	for range 100 {
		s.route(Request{Key: "k", Intent: Read, Idempotent: true}).DoneWith(Outcome{Verdict: Superseded, RTT: time.Second})
	}
	st := s.Status()
	assert.Zero(t, st.HedgesWon)
	assert.Equal(t, DefaultTuning().HedgeStart, st.HedgeFactor)
}

// Leaks are counted in units, as picks are, so that the alarm compares like
// with like.
func TestStatus_LeaksInUnits(t *testing.T) {
	s := newStand(t, 1, workersNamed("a", "b", "c"))
	for i := range 1000 {
		c := s.route(Request{Key: "k", Size: 200})
		if i%10 != 0 {
			c.Done(nil)
		}
	}
	for range 40 {
		s.step(100 * time.Millisecond)
		s.Maintain(s.time())
	}
	st := s.Status()
	assert.EqualValues(t, 100*200, st.Leaked)
	assert.Contains(t, strings.Join(st.Warnings, "\n"), "never closed")
}

// A WithDiscard that panics takes nobody with it.
func TestDo_DiscardPanicIsIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(workersNamed("a", "b", "c"))
		require.NoError(t, err)
		q := Request{Key: "k", Intent: Read, Idempotent: true}
		call := func(first time.Duration) {
			var calls atomic.Int32
			_, err := Do(t.Context(), r, q, func(context.Context, Choice) (int, error) {
				n := calls.Add(1)
				if n == 1 {
					time.Sleep(first)
				}
				return int(n), nil
			}, WithDiscard(func(any) { panic("discard") }), nil)
			require.NoError(t, err)
		}
		for range 600 {
			call(time.Millisecond)
		}
		call(time.Second)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.EqualValues(t, 1, r.Status().PlugPanics)
	})
}

func TestNew_RefusesAClockWithoutTime(t *testing.T) {
	_, err := New(nil, WithClock(func() time.Time { return time.Time{} }))
	bad, ok := errors.AsType[*ConfigError](err)
	require.True(t, ok)
	assert.Equal(t, "WithClock", bad.Field)
	_, err = LoadTuning(nil)
	assert.ErrorIs(t, err, ErrConfig)
}

// I21: a clock or a random source that panics is isolated and counted; time
// stands still meanwhile.
func TestNew_IsolatesClockAndRandom(t *testing.T) {
	clock, bad := &labClock{}, false
	r, err := New(labNamed("a", "b", "c"), WithPoints(64), WithClock(func() time.Time {
		if bad {
			panic("clock")
		}
		return clock.now()
	}), WithRand(func() uint64 {
		if bad {
			panic("random")
		}
		return 1
	}))
	require.NoError(t, err)
	clock.advance(time.Minute)
	before := r.now()
	bad = true
	c, err := r.Pick("k")
	require.NoError(t, err)
	assert.EqualValues(t, 2, r.counters.plugPanics.Load(), "the clock's and the source's")
	c.Done(nil)
	r.Maintain(clock.peek())
	assert.InDelta(t, before, r.now(), float64(time.Second), "stands still")
	bad = false
	clock.advance(time.Second)
	assert.Greater(t, r.now(), before)
	assert.Zero(t, c.n.st.inFlight())
}

type namedByField struct {
	name string
	Picker
}

func (n *namedByField) Name() string { return n.name }

// A nil pointer in an interface is not nil, and may be no plug at all.
func TestNew_RefusesAPlugWithoutName(t *testing.T) {
	_, err := New(nil, WithName("x"), WithPicker((*namedByField)(nil)))
	bad, ok := errors.AsType[*ConfigError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, "Option[1]", bad.Field)
}

// The text of an error repeats 100 bytes of a value; the error holds all.
func TestErrors_AreShort(t *testing.T) {
	long := strings.Repeat("ä", 1<<19)
	g := newRig(t, 3)
	_, noWorker := g.Start(Request{}, long)
	_, twice := New([]Worker{{ID: "a"}, {ID: long[:254]}, {ID: long[:254]}})
	_, unknown := LoadTuning(strings.NewReader(`{"` + long[:1<<19] + `":"` + long[:1<<18] + `"}`))
	many := strings.Repeat(`,"x":1`, 1<<17)
	_, often := LoadTuning(strings.NewReader("{" + many[1:] + "}"))
	for name, err := range map[string]error{
		"Report":     g.Report(Report{Worker: long, Time: g.clock()}),
		"ReportJSON": new(Report).UnmarshalJSON([]byte(`{"worker_id":"` + long + `","cpu_usage":"` + long + `"}`)),
		"Start":      noWorker, "New": twice, "LoadTuning": unknown,
	} {
		require.Error(t, err, name)
		assert.Less(t, len(err.Error()), 600, name)
		assert.True(t, utf8.ValidString(err.Error()), "%s: %s", name, err)
	}
	assert.Less(t, len(often.Error()), 10_000)
	assert.ErrorContains(t, often, "more faults")
	detail, ok := errors.AsType[*NoWorkerError](noWorker)
	require.True(t, ok)
	assert.Equal(t, long, detail.Candidates[0].ID)
	assert.Equal(t, "short", shorten("short"))
	assert.Len(t, shorten(strings.Repeat("\x80", 1000)), 99, "no rune begins there")
}

// What docs/troubleshooting.md and docs/explain.md say of a fresh budget and
// of kept decisions.
func TestDocs_FreshBudgetAndKeptColumns(t *testing.T) {
	for name, says := range map[string]string{
		"troubleshooting.md": "it starts with 10 retries, its most,",
		"explain.md":         "they have the column of each",
	} {
		text, err := os.ReadFile("docs/" + name)
		require.NoError(t, err)
		assert.Contains(t, string(text), says)
	}
	g := newRig(t, 3, WithScorer(byID(map[string]float64{"w0": 100, "w1": 50, "w2": 0}), 0.1), WithDecisionSample(1, 8))
	assert.InDelta(t, 10, g.Status().RetriesBanked, 0)
	c, err := g.Route(Request{Key: "k"})
	require.NoError(t, err)
	c.Done(nil)
	require.Len(t, g.Decisions(), 1)
	scores := g.Decisions()[0].Candidates[0].Scores
	require.Len(t, scores, 2, "live cost and the scorer")
	assert.Empty(t, scores[0].Lines)
}
