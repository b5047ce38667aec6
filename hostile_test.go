package ringwise

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
