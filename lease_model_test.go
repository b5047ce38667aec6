package ringwise

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// modelLease is one reservation as the caller remembers it.
type modelLease struct {
	c       Choice
	worker  string
	size    int
	at      int64
	stream  bool
	expired bool // by the model: over two time-outs old
}

// modelLeases is the naive reference: a list.
type modelLeases struct {
	timeout, slack int64
	open           []modelLease // lost ones too
}

// bounds are what may be in flight on a worker: a reservation under one
// time-out old must be held, one over two must not, between either is right.
func (m *modelLeases) bounds(worker string, now int64) (low, high int) {
	for _, l := range m.open {
		switch age := now - l.at; {
		case l.worker != worker:
		case l.stream || age < m.timeout:
			low += l.size
			high += l.size
		case age <= 2*m.timeout+m.slack:
			high += l.size
		}
	}
	return low, high
}

// TestLease_MatchesNaiveList: random histories of every call that reserves or
// closes, one request in a hundred lost, with reports, states and topologies
// between; in flight is always what the list allows.
func TestLease_MatchesNaiveList(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		g := newRig(t, 4)
		m := &modelLeases{timeout: int64(time.Second), slack: int64(250 * time.Millisecond)}
		anon := map[string][]int64{} // since when, oldest first
		lost, closed := 0, 0
		ws := rigWorkers(4)
		check := func(what string) {
			t.Helper()
			now := g.Router.now()
			for _, w := range ws {
				low, high := m.bounds(w.ID, now)
				for _, at := range anon[w.ID] {
					if now-at < m.timeout {
						low++
					}
					if now-at <= 2*m.timeout+m.slack {
						high++
					}
				}
				if got := g.inFlight(w.ID); got < low || got > high {
					t.Fatalf("seed %d at %v after %s: %d in flight on %s, want %d..%d", seed, time.Duration(now), what, got, w.ID, low, high)
				}
			}
		}
		for range 3000 {
			what := ""
			switch op := rnd.IntN(100); {
			case op < 40:
				what = "pick"
				q := Request{Key: fmt.Sprint(rnd.IntN(50)), Size: uint32(rnd.IntN(4)), Stream: rnd.IntN(50) == 0, Intent: Intent(rnd.IntN(4))}
				var c Choice
				var err error
				if rnd.IntN(4) == 0 {
					c, err = g.Start(q, ws[rnd.IntN(len(ws))].ID)
				} else {
					c, err = g.Route(q)
				}
				require.NoError(t, err)
				m.open = append(m.open, modelLease{c, c.ID(), int(max(q.Size, 1)), g.Router.now(), q.Stream, false})
			case op < 80 && len(m.open) > 0:
				i := rnd.IntN(len(m.open))
				l := m.open[i]
				if rnd.IntN(100) == 0 && !l.stream {
					what = "loss" // it stays in the list until it is too old
					lost++
					m.open[i].c = Choice{}
					break
				}
				if l.c.IsZero() {
					break
				}
				what = "close"
				closed++
				ways := closers(g.Router)
				ways[rnd.IntN(len(ways))](l.c)
				ways[rnd.IntN(len(ways))](l.c)
				m.open[i] = m.open[len(m.open)-1]
				m.open = m.open[:len(m.open)-1]
			case op < 83 && len(m.open) > 0:
				what = "extend"
				if l := &m.open[rnd.IntN(len(m.open))]; !l.c.IsZero() && g.Router.now()-l.at < m.timeout {
					l.c.Extend()
					l.stream = true
				}
			case op < 86 && len(m.open) > 0:
				what = "first byte"
				m.open[rnd.IntN(len(m.open))].c.FirstByte()
			case op < 89:
				what = "anonymous start"
				id := ws[rnd.IntN(len(ws))].ID
				g.StartWorker(id)
				anon[id] = append(anon[id], g.Router.now())
			case op < 92:
				what = "anonymous end"
				id := ws[rnd.IntN(len(ws))].ID
				if at := anon[id]; len(at) > 0 {
					if g.Router.now()-at[0] >= m.timeout {
						continue // it may be gone or not, and so be the one that is closed or not
					}
					anon[id] = at[1:]
				}
				g.ObserveWorker(id, time.Millisecond, nil)
			case op < 94:
				what = "state"
				g.SetState(ws[rnd.IntN(len(ws))].ID, []State{Up, Draining}[rnd.IntN(2)])
			case op < 95:
				what = "topology"
				if rnd.IntN(2) == 0 {
					i := rnd.IntN(len(ws))
					ws[i].Weight = float64(1 + rnd.IntN(3))
				}
				require.NoError(t, g.SetTopology(Topology{Workers: ws}))
			default:
				what = "time"
				g.pass(time.Duration(rnd.IntN(60)) * time.Millisecond)
			}
			kept := m.open[:0]
			for _, l := range m.open {
				if !l.c.IsZero() || g.Router.now()-l.at <= 2*m.timeout+m.slack {
					kept = append(kept, l)
				}
			}
			m.open = kept
			for id, at := range anon {
				for len(at) > 0 && g.Router.now()-at[0] > 2*m.timeout+m.slack {
					at = at[1:]
				}
				anon[id] = at
			}
			check(what)
		}
		require.Greater(t, lost, 2, "seed %d", seed)
		require.Greater(t, closed, 500, "seed %d", seed)
		for _, l := range m.open {
			l.c.Done(nil)
		}
		g.pass(2500 * time.Millisecond)
		g.requireIdle()
	}
}
