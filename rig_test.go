package ringwise

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rig is a router on a clock that only the test moves.
type rig struct {
	*Router
	t   testing.TB
	now atomic.Int64 // ns since rigEpoch
}

var rigEpoch = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// Errors of a store that the default Classifier knows, and one it does not.
var (
	errRefused = fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	errDisk    = fmt.Errorf("read: %w", syscall.EIO)
	errNoRow   = fmt.Errorf("no such row")
)

// rigWorkers are w0..w(n-1).
func rigWorkers(n int) []Worker {
	ws := make([]Worker, n)
	for i := range ws {
		ws[i] = Worker{ID: fmt.Sprint("w", i), Addr: fmt.Sprint("host", i)}
	}
	return ws
}

// newRig is a router over w0..w(n-1), all of them candidates of each key where
// n is 3.
func newRig(t testing.TB, n int, opts ...Option) *rig {
	t.Helper()
	g := &rig{t: t}
	// Few points, for many rigs are made and none of them asks for balance.
	r, err := New(rigWorkers(n), append([]Option{WithClock(g.clock), WithPoints(50)}, opts...)...)
	require.NoError(t, err)
	g.Router = r
	return g
}

// rigTuning is the default without jitter, changed by f.
func rigTuning(f func(t *Tuning)) Option {
	t := DefaultTuning()
	t.CooldownJitter = 0
	if f != nil {
		f(&t)
	}
	return WithTuning(t)
}

func (g *rig) clock() time.Time { return rigEpoch.Add(time.Duration(g.now.Load())) }

// jump moves the clock and does nothing else.
func (g *rig) jump(d time.Duration) { g.now.Add(int64(d)) }

// pass lets time go by with a Maintain at each fold interval.
func (g *rig) pass(d time.Duration) {
	for d > 0 {
		step := min(d, 100*time.Millisecond)
		g.jump(step)
		g.Maintain(g.clock())
		d -= step
	}
}

func (g *rig) node(id string) *node {
	g.t.Helper()
	sn := g.snap.Load()
	slot, ok := sn.byID[id]
	require.True(g.t, ok, "worker %s is in the topology", id)
	return sn.nodes[slot]
}

func (g *rig) pen(id string, lane int) penalty { return g.node(id).st.lane[lane].pen.load() }

func (g *rig) phase(id string) Phase { return g.pen(id, laneRead).phase() }

func (g *rig) inFlight(id string) int { return g.node(id).st.inFlight() }

// latency is what the router expects of a worker with nothing in flight.
func (g *rig) latency(id string, lane int) time.Duration {
	sn, n := g.snap.Load(), g.node(id)
	col := &sn.cols[n.slot]
	return time.Duration(sn.coef.latency(&n.st.lane[lane], float64(col.base[lane]), n.st.busy.Load(), 0, g.Router.now()))
}

// start reserves a named worker for a read.
func (g *rig) start(id string) Choice {
	g.t.Helper()
	c, err := g.Start(Request{Intent: Read}, id)
	require.NoError(g.t, err)
	return c
}

func (g *rig) startAs(id string, intent Intent) Choice {
	g.t.Helper()
	c, err := g.Start(Request{Intent: intent}, id)
	require.NoError(g.t, err)
	return c
}

// fails makes n requests to a worker fail one after another.
func (g *rig) fails(id string, n int) {
	g.t.Helper()
	for range n {
		g.start(id).DoneWith(Outcome{Err: errDisk})
	}
}

// answers makes n requests to a worker succeed one after another.
func (g *rig) answers(id string, n int) {
	g.t.Helper()
	for range n {
		g.Observe(g.start(id), time.Millisecond, nil)
	}
}

// warm lets a worker answer for 0.6 s, so that what it was before, which an
// idle worker's memory holds for long, does not show in its cost.
func (g *rig) warm(id string) {
	g.t.Helper()
	for range 30 {
		g.answers(id, 1)
		g.jump(20 * time.Millisecond)
	}
}

// recovers takes a worker from cooldown, whose end it waits for, to health.
func (g *rig) recovers(id string) {
	g.t.Helper()
	for range 1000 {
		if g.phase(id) == Healthy {
			return
		}
		g.pass(500 * time.Millisecond)
		if p := g.pen(id, laneRead); p.phase() != Cooldown || g.Router.now() >= p.at() {
			g.answers(id, 1)
		}
	}
	g.t.Fatalf("%s is %v after 500 s of answers, want healthy", id, g.phase(id))
}

// shares picks n times with random keys, closes each at once with the same
// RTT and returns each worker's part.
func (g *rig) shares(rnd *rand.Rand, n int, rtt time.Duration) map[string]float64 {
	g.t.Helper()
	got := map[string]float64{}
	for range n {
		c, err := g.Route(Request{Hash: HashUint64(rnd.Uint64()), Intent: Read})
		require.NoError(g.t, err)
		got[c.ID()] += 1 / float64(n)
		g.Observe(c, rtt, nil)
	}
	return got
}

// seeded is a random source whose seed is in the test's log.
func seeded(t testing.TB, seed uint64) *rand.Rand {
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// concurrently runs n copies of f at once and waits for all.
func concurrently(n int, f func(i int)) {
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-gate
			f(i)
		})
	}
	close(gate)
	wg.Wait()
}

// requireIdle checks that no worker has anything in flight.
func (g *rig) requireIdle() {
	g.t.Helper()
	for _, w := range g.Status().Workers {
		require.Zero(g.t, w.InFlight, "in flight on %s", w.ID)
	}
}
