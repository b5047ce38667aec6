package ringwise

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// stuckHandler blocks until it is let go.
type stuckHandler struct {
	slog.Handler
	in, out chan struct{}
}

func (stuckHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h stuckHandler) Handle(context.Context, slog.Record) error {
	h.in <- struct{}{}
	<-h.out
	return nil
}

// TestDecisionLog_StuckHandlerStopsNothing: where the goroutine that writes
// never comes back, Run's or an Observe's, others still tell hooks and roll
// back a canary that is worse.
func TestDecisionLog_StuckHandlerStopsNothing(t *testing.T) {
	for _, run := range []bool{true, false} {
		h := stuckHandler{slog.DiscardHandler, make(chan struct{}), make(chan struct{})}
		tripped := false
		l := newRollLab(t, 1, 6, WithDecisionLog(slog.New(h), 1, LogHashes), WithHooks(Hooks{Transition: func(tr Transition) {
			tripped = tripped || tr.To == Cooldown
		}}))
		l.failed = func(c Choice, _ *Request) bool { return c.Canary() && l.rnd.Float64() < 0.1 }
		require.NoError(t, l.StartCanary(CanaryConfig{Tuning: l.Tuning(), Steps: halves(time.Hour)}))
		c, err := l.Pick("k")
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if run {
				_ = l.Router.Run(t.Context())
				return
			}
			l.jump(time.Second)
			l.Observe(c, time.Second, nil)
		}()
		within(t, "getting stuck", func() { <-h.in })
		within(t, "traffic beside it", func() {
			for i := 0; l.Canary().State == CanaryRunning && i < 60_000; i++ {
				c, err := l.Route(l.req(i))
				require.NoError(t, err)
				l.jump(500 * time.Microsecond)
				if l.failed(c, nil) {
					l.Observe(c, time.Millisecond, errDisk)
				} else {
					l.Observe(c, time.Millisecond, nil)
				}
			}
			for range 3 {
				l.fails("w1", 1)
			}
			l.jump(time.Second)
			l.answers("w0", 1)
		})
		require.Equal(t, CanaryRolledBack, l.Canary().State, "with Run: %v", run)
		require.True(t, tripped, "with Run: %v", run)
		require.NoError(t, l.Close())
		go func() {
			for range h.in { // what else was queued
			}
		}()
		close(h.out)
		within(t, "the writer, once let go,", func() { <-done })
		close(h.in)
	}
}

// TestRun_TellsAfterIdleWithoutDelay: Run sleeps a second where nothing
// happens; a fold of an Observe wakes it, so that hooks and the log are as
// early with it as without it, and stay in its goroutine.
func TestRun_TellsAfterIdleWithoutDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan time.Time, 8)
		lines := &countLines{Handler: slog.DiscardHandler}
		r, err := New(rigWorkers(3), WithDecisionLog(slog.New(lines), 1, LogHashes), WithHooks(Hooks{Transition: func(tr Transition) {
			if tr.To == Cooldown {
				told <- time.Now()
			}
		}}))
		require.NoError(t, err)
		go func() { _ = r.Run(t.Context()) }()
		time.Sleep(10*time.Second + 300*time.Millisecond) // in the middle of a sleep
		synctest.Wait()
		began := time.Now()
		for range 3 {
			c, err := r.Pick("k")
			require.NoError(t, err)
			c.Cancel()
			c, err = r.Start(Request{Intent: Read}, "w0")
			require.NoError(t, err)
			time.Sleep(time.Millisecond)
			c.Done(errDisk)
		}
		time.Sleep(200 * time.Millisecond)
		c, err := r.Pick("k")
		require.NoError(t, err)
		c.Cancel()
		synctest.Wait()
		require.Less(t, (<-told).Sub(began), 250*time.Millisecond)
		require.Positive(t, lines.n)
		require.NoError(t, r.Close())
	})
}

type countLines struct {
	slog.Handler
	n int
}

func (*countLines) Enabled(context.Context, slog.Level) bool    { return true }
func (h *countLines) Handle(context.Context, slog.Record) error { h.n++; return nil }
