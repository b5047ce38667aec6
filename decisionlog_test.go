package ringwise

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDecisionLog_TellsAll: key, candidates, each score, who was chosen and
// why the others were not.
func TestDecisionLog_TellsAll(t *testing.T) {
	for _, keys := range []LogKeys{LogHashes, LogPlainKeys} {
		var b bytes.Buffer
		l := slog.New(slog.NewJSONHandler(&b, nil))
		g := newRig(t, 4, rigTuning(nil), WithName("front"), WithReplicas(4), WithDecisionLog(l, 1, keys),
			WithScorer(byID(map[string]float64{"w0": 100, "w1": 50, "w2": 0, "w3": 50}), 0.01))
		g.SetState("w3", Down)
		g.fails("w2", 3)
		c, err := g.Route(Request{Key: "user:alice", Intent: Read})
		require.NoError(t, err)
		require.Empty(t, b.String(), "never from Pick")
		g.Maintain(g.clock())
		var rec struct {
			Msg, Router, Key string
			At               time.Time
			Decision         map[string]json.RawMessage
		}
		require.NoError(t, json.Unmarshal(b.Bytes(), &rec), b.String())
		require.Equal(t, "ringwise pick", rec.Msg)
		require.Equal(t, "front", rec.Router)
		require.True(t, g.clock().Equal(rec.At))
		require.JSONEq(t, fmt.Sprintf("%q", c.ID()), string(rec.Decision["chosen"]))
		require.JSONEq(t, fmt.Sprintf("%q", HashOf("user:alice").String()), string(rec.Decision["hash"]))
		var in struct {
			P, Score float64
			Scores   map[string]float64
			Cut      string
		}
		require.NoError(t, json.Unmarshal(rec.Decision["w1"], &in))
		require.Positive(t, in.P)
		require.Equal(t, 50.0, in.Scores["func"])
		require.InDelta(t, 70, in.Scores["live cost"], 30)
		for id, why := range map[string]string{"w2": "cooldown", "w3": "down"} {
			require.NoError(t, json.Unmarshal(rec.Decision[id], &in))
			require.Contains(t, in.Cut, why)
		}
		if keys == LogPlainKeys {
			require.Equal(t, "user:alice", rec.Key)
		} else {
			require.NotContains(t, b.String(), "alice")
		}
	}
}

// A share of the picks is logged, on the short path too, and what finds no
// room is counted.
func TestDecisionLog_SharesAndDrops(t *testing.T) {
	var b bytes.Buffer
	g := newRig(t, 3, WithDecisionLog(slog.New(slog.NewTextHandler(&b, nil)), 0.1, LogHashes))
	for i := range 10_000 {
		c, err := g.Pick(fmt.Sprint(i))
		require.NoError(t, err)
		c.Cancel()
		if i%100 == 99 {
			g.Maintain(g.clock())
		}
	}
	require.InDelta(t, 1000, strings.Count(b.String(), "ringwise pick"), 120)
	require.Zero(t, g.Status().LogDropped)
	for i := range 2000 {
		c, _ := g.Pick(fmt.Sprint(i))
		c.Cancel()
	}
	require.InDelta(t, 200-logQueue, g.Status().LogDropped, 60)
}

type panicHandler struct{ slog.Handler }

func (panicHandler) Handle(context.Context, slog.Record) error { panic("x") }

// A handler that panics is isolated; after Close nothing is logged; a Pick
// with a log allocates nothing.
func TestDecisionLog_IsolatedAndFree(t *testing.T) {
	g := newRig(t, 3, WithDecisionLog(slog.New(panicHandler{slog.Default().Handler()}), 1, LogHashes))
	for range 3 {
		c, _ := g.Pick("x")
		c.Cancel()
	}
	g.Maintain(g.clock())
	require.Equal(t, uint64(3), g.Status().HookPanics)

	var b bytes.Buffer
	g = newRig(t, 3, WithDecisionLog(slog.New(slog.NewTextHandler(&b, nil)), 1, LogHashes))
	require.Less(t, testing.AllocsPerRun(500, func() {
		c, _ := g.Pick("x")
		c.Cancel()
	}), 0.5)
	require.NoError(t, g.Close())
	before := b.Len() // of the fold that a Cancel did
	g.Maintain(g.clock())
	require.Equal(t, before, b.Len())
	for _, o := range []Option{WithDecisionLog(nil, 1, LogHashes), WithDecisionLog(slog.Default(), 0, LogHashes), WithDecisionLog(slog.Default(), 1, 7)} {
		_, err := New(nil, o)
		require.ErrorIs(t, err, ErrConfig)
	}
}

// Many pick while many fold: each line is whole and nothing deadlocks.
func TestDecisionLog_Concurrent(t *testing.T) {
	var lines atomic.Int64
	g := newRig(t, 3, WithDecisionLog(slog.New(countHandler{&lines}), 1, LogHashes))
	within(t, "logging", func() {
		concurrently(8, func(i int) {
			for j := range 500 {
				c, _ := g.Pick(fmt.Sprint(i, j))
				g.Observe(c, time.Millisecond, nil)
				if j%10 == 0 {
					g.Maintain(g.clock())
				}
			}
		})
	})
	g.Maintain(g.clock())
	require.Equal(t, int64(4000), lines.Load()+int64(g.Status().LogDropped))
}

type countHandler struct{ n *atomic.Int64 }

func (countHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h countHandler) Handle(context.Context, slog.Record) error {
	h.n.Add(1)
	return nil
}
func (h countHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h countHandler) WithGroup(string) slog.Handler      { return h }

// pickingHandler is slower than the picks: each line it writes brings one more.
type pickingHandler struct {
	slog.Handler
	r     *Router
	lines int
}

// Enabled, else Handle is never called.
func (*pickingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *pickingHandler) Handle(context.Context, slog.Record) error {
	if h.lines++; h.lines < 10_000 {
		c, err := h.r.Pick("k")
		if err == nil {
			c.Cancel()
		}
	}
	return nil
}

// TestDecisionLog_SlowHandlerEnds: a write handles what was queued when it
// began, so that neither Maintain nor an Observe stays in it for as long as
// there is traffic, and hooks are told first.
func TestDecisionLog_SlowHandlerEnds(t *testing.T) {
	h := &pickingHandler{Handler: slog.DiscardHandler}
	told := -1
	g := newRig(t, 3, WithDecisionLog(slog.New(h), 1, LogHashes), WithHooks(Hooks{Transition: func(Transition) { told = h.lines }}))
	h.r = g.Router
	for range 5 {
		g.start("w0") // not sampled
		c, err := g.Pick("k")
		require.NoError(t, err)
		c.Cancel()
	}
	g.fails("w1", 3)
	before := h.lines // of the fold that a Cancel did
	g.Maintain(g.clock())
	require.Greater(t, h.lines, before)
	require.Less(t, h.lines, 64)
	require.Equal(t, before, told, "before the log")
}
