package ringwise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestObserve_Verdicts: what the default Classifier, a caller's and an
// explicit Verdict make of the end of a request.
func TestObserve_Verdicts(t *testing.T) {
	own := func(err error) Verdict {
		switch {
		case errors.Is(err, errNoRow):
			return OK
		case errors.Is(err, io.EOF):
			panic("classifier")
		}
		return 99 // none
	}
	for _, tt := range []struct {
		name string
		o    Outcome
		own  bool
		want Verdict
	}{
		{"nil", Outcome{}, false, OK},
		{"canceled", Outcome{Err: fmt.Errorf("get: %w", context.Canceled)}, false, Ignore},
		{"deadline after the time-out", Outcome{Err: context.DeadlineExceeded, RTT: time.Second}, false, Fault},
		{"net time-out", Outcome{Err: &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, RTT: time.Millisecond}, false, Fault},
		{"EOF", Outcome{Err: io.EOF}, false, Broken},
		{"refused", Outcome{Err: errRefused}, false, Broken},
		{"disk", Outcome{Err: errDisk}, false, Fault},
		{"no row", Outcome{Err: errNoRow}, false, Unknown},
		{"own OK", Outcome{Err: errNoRow}, true, OK},
		{"own none", Outcome{Err: errDisk}, true, Unknown},
		{"own panics", Outcome{Err: io.EOF}, true, Unknown},
		{"explicit before the error", Outcome{Err: errDisk, Verdict: OK}, false, OK},
		{"explicit nonsense", Outcome{Err: errDisk, Verdict: 77}, false, Fault},
		{"explicit without error", Outcome{Verdict: Broken}, false, Broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var opts []Option
			if tt.own {
				opts = append(opts, WithClassifier(own))
			}
			g := newRig(t, 3, opts...)
			if got := g.hub.finish(g.start("w0"), &tt.o); got != tt.want {
				t.Errorf("verdict %v, want %v", got, tt.want)
			}
			g.requireIdle()
		})
	}
}

// health is all that an end may change of a worker's lane, but its times.
type health struct {
	Latency            time.Duration
	Memory             int
	Pen                penalty
	Failed, RTTs       uint64
	Answers, Fails     float64
	Mean               time.Duration
	Samples, ErrorRate float64
}

func (g *rig) health(id string, lane int) health {
	st, s := g.node(id).st, g.Status()
	ls, cl := &st.lane[lane], &st.cold.lane[lane]
	h := health{
		Latency: g.latency(id, lane), Memory: memLevelOf(ls.mem.Load()), Pen: ls.pen.load(), Failed: st.failed[lane].Load(),
		Answers: math.Round(cl.answers*1000) / 1000, Fails: cl.failures, RTTs: uint64(st.answers(lane).Count),
		Mean: s.Read.Mean, Samples: s.Read.Samples,
	}
	if lane == laneWrite {
		h.Mean, h.Samples = s.Write.Mean, s.Write.Samples
	}
	return h
}

// TestObserve_CancelIsNeutral: the caller gave up; that says nothing of the
// worker, whatever the moment.
func TestObserve_CancelIsNeutral(t *testing.T) {
	ends := map[string]func(g *rig, c Choice){
		"Cancel":           func(_ *rig, c Choice) { c.Cancel() },
		"context.Canceled": func(_ *rig, c Choice) { c.Done(context.Canceled) },
		"Observe":          func(g *rig, c Choice) { g.Observe(c, 10*time.Millisecond, context.Canceled) },
		"Ignore":           func(_ *rig, c Choice) { c.DoneWith(Outcome{Verdict: Ignore, RTT: time.Microsecond}) },
		"stale topology":   func(_ *rig, c Choice) { c.DoneWith(Outcome{Verdict: StaleTopology}) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 3)
			for range 60 {
				g.answers("w0", 1)
				g.pass(20 * time.Millisecond)
			}
			g.fails("w0", 1)
			g.answers("w0", 1)
			g.Maintain(g.clock())
			before := g.health("w0", laneRead)
			for range 300 {
				end(g, g.start("w0"))
			}
			g.Maintain(g.clock()) // no time has passed
			after := g.health("w0", laneRead)
			// The mean takes them as samples of the mean: it may not move.
			before.Samples, after.Samples = 0, 0
			require.Equal(t, before, after)
			g.requireIdle()
		})
		t.Run(name+" before the first answer", func(t *testing.T) {
			g := newRig(t, 3)
			for range 300 {
				end(g, g.start("w0"))
			}
			g.pass(300 * time.Millisecond)
			require.Zero(t, g.Status().Read.Samples)
			g.Observe(g.start("w1"), 20*time.Millisecond, nil)
			g.pass(200 * time.Millisecond)
			require.InDelta(t, 20, float64(g.Status().Read.Mean)/1e6, 0.01, "the first answer replaces InitialLatency")
		})
	}
}

// TestObserve_OnlyAnswersReplaceInitialLatency: failures, application errors,
// batches and lost requests do not.
func TestObserve_OnlyAnswersReplaceInitialLatency(t *testing.T) {
	g := newRig(t, 3)
	for i := range 40 {
		q := Request{Intent: Read, Size: uint32(i % 7)}
		for _, o := range []Outcome{{Err: errDisk}, {Err: errNoRow}, {Batch: 5}, {Verdict: Superseded}, {Verdict: Overload},
			{Err: context.DeadlineExceeded, RTT: time.Millisecond}} {
			c, err := g.Start(q, "w0")
			require.NoError(t, err)
			c.DoneWith(o)
		}
		_, err := g.Start(q, "w0")
		require.NoError(t, err)
		g.StartWorker("w0")
	}
	g.pass(3 * time.Second)
	require.Zero(t, g.Status().Read.Samples)
	require.Equal(t, time.Millisecond, g.Status().Read.Mean)
	g.Observe(g.start("w1"), 20*time.Millisecond, nil)
	g.pass(200 * time.Millisecond)
	require.InDelta(t, 20, float64(g.Status().Read.Mean)/1e6, 0.01)
}

// TestObserve_ShortDeadline: a caller's deadline before the request time-out
// is a latency of at least so much, not a failure; one after it is a failure.
func TestObserve_ShortDeadline(t *testing.T) {
	for _, tt := range []struct {
		name    string
		timeout time.Duration // of the request
		rtt     time.Duration
		fails   bool
		raises  bool // the latency
	}{
		{"5 ms of 1 s", 0, 5 * time.Millisecond, false, true},
		{"999 ms of 1 s", 0, 999 * time.Millisecond, false, true},
		{"less than it takes", 0, 100 * time.Microsecond, false, false},
		{"1 s of 1 s", 0, time.Second, true, true},
		{"own time-out of 3 ms", 3 * time.Millisecond, 5 * time.Millisecond, true, true},
		{"own time-out of 3 s", 3 * time.Second, 2 * time.Second, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, 3)
			for range 60 {
				g.answers("w0", 1)
				g.pass(20 * time.Millisecond)
			}
			before := g.health("w0", laneRead)
			c, err := g.Start(Request{Intent: Read, Timeout: tt.timeout}, "w0")
			require.NoError(t, err)
			g.jump(tt.rtt)
			c.Done(fmt.Errorf("get: %w", context.DeadlineExceeded))
			after := g.health("w0", laneRead)
			require.Equal(t, tt.fails, after.Failed > before.Failed, "counted as a failure")
			require.Equal(t, tt.fails, after.Pen.fails() > 0)
			lat := unpackLat(g.node("w0").st.lane[laneRead].lat.Load())
			require.Equal(t, tt.raises, lat > float64(before.Latency)*1.01, "latency %v, was %v", time.Duration(lat), before.Latency)
			require.LessOrEqual(t, lat, max(float64(before.Latency), float64(tt.rtt), 50e6), "no more than was waited, or what a failure costs")
			require.GreaterOrEqual(t, lat*1.001, float64(before.Latency))
		})
	}
	// Three of them trip nothing.
	g := newRig(t, 3)
	for range 5 {
		g.Observe(g.start("w0"), 50*time.Millisecond, context.DeadlineExceeded)
	}
	require.Equal(t, Healthy, g.phase("w0"))
	// Without a Choice and without an RTT nothing says that it was short.
	for range 3 {
		g.ObserveWorker("w1", 0, context.DeadlineExceeded)
	}
	require.Equal(t, Cooldown, g.phase("w1"))
}

// TestObserve_UnknownErrors: errors the Classifier does not know are
// failures only where a worker has over 3 % and over 3 times what the others
// have of them. Nobody may herd on the last worker that has not failed.
func TestObserve_UnknownErrors(t *testing.T) {
	for _, tt := range []struct {
		name  string
		rates []float64 // of unknown errors by worker
		trips bool      // w0
	}{
		{"1 % everywhere", []float64{0.01, 0.01, 0.01, 0.01, 0.01}, false},
		{"40 % everywhere", []float64{0.4, 0.4, 0.4, 0.4, 0.4}, false},
		{"1 %, nobody else", []float64{0.01, 0, 0, 0, 0}, false},
		{"twice the others", []float64{0.4, 0.2, 0.2, 0.2, 0.2}, false},
		{"all of five, nobody else", []float64{1, 0, 0, 0, 0}, true},
		{"60 % against 10 %", []float64{0.6, 0.1, 0.1, 0.1, 0.1}, true},
		{"all of three, nobody else", []float64{1, 0, 0}, true},
		{"all of two, the other has none", []float64{1, 0}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, len(tt.rates), rigTuning(func(t *Tuning) { t.MaxOut = 1 }))
			rnd := seeded(t, 31)
			for k := range 1500 { // the first without errors: one in twenty is 5 %
				for i, rate := range tt.rates {
					c := g.start(fmt.Sprint("w", i))
					var err error
					if k >= 500 && rnd.Float64() < rate {
						err = errNoRow
					}
					g.Observe(c, time.Millisecond, err)
				}
				g.jump(10 * time.Millisecond)
			}
			s := g.Status()
			if got := s.Workers[0].Read.Failures > 0; got != tt.trips {
				t.Errorf("unknown errors of w0 count as failures: %v, want %v (%d, %d unknown)", got, tt.trips, s.Workers[0].Read.Failures, s.Workers[0].Read.Unknown)
			}
			for i := range tt.rates[1:] {
				require.Zero(t, s.Workers[1+i].Read.Failures, "failures of w%d", 1+i)
			}
			if !tt.trips {
				require.Zero(t, s.Trips)
			}
		})
	}
}

// TestObserve_BatchTrainsNoLatency: batches differ in size.
func TestObserve_BatchTrainsNoLatency(t *testing.T) {
	g := newRig(t, 3)
	for range 60 {
		g.answers("w0", 1)
		g.pass(20 * time.Millisecond)
	}
	g.Maintain(g.clock())
	before := g.health("w0", laneRead)
	for range 20 {
		g.start("w0").DoneWith(Outcome{Batch: 500, RTT: 80 * time.Millisecond})
	}
	g.Maintain(g.clock())
	after := g.health("w0", laneRead)
	require.Equal(t, before.Latency, after.Latency)
	require.Equal(t, before.RTTs, after.RTTs)
	require.Equal(t, before.Mean, after.Mean)
	require.Greater(t, after.Answers, before.Answers, "but it is an answer")
	for range 3 {
		g.start("w0").DoneWith(Outcome{Batch: 500, Err: errDisk})
	}
	require.Equal(t, Cooldown, g.phase("w0"), "a batch that fails is a failure")
}

// TestObserve_BatchEndsSilence: a worker that answers batches is not silent.
func TestObserve_BatchEndsSilence(t *testing.T) {
	g := newRig(t, 3)
	g.answers("w0", 50)
	held, err := g.Start(Request{Stream: true}, "w0")
	require.NoError(t, err)
	defer held.Cancel()
	g.jump(time.Second)
	g.start("w0").DoneWith(Outcome{Batch: 10, RTT: time.Millisecond})
	g.jump(time.Millisecond)
	n := g.node("w0")
	got := g.snap.Load().coef.latency(&n.st.lane[laneRead], 1e6, n.st.busy.Load(), 1, g.Router.now())
	require.Less(t, time.Duration(got), 5*time.Millisecond, "expected latency just after a batch was answered")
}

// TestObserve_Feedback: the worker's own service time is its latency at once,
// the requests in it are load, fading to what the fleet has.
func TestObserve_Feedback(t *testing.T) {
	g := newRig(t, 3)
	for range 20 {
		for i := range 3 {
			fb := Feedback{InService: 1, ServiceTime: time.Millisecond}
			if i == 0 {
				fb = Feedback{InService: 9, ServiceTime: 2 * time.Millisecond}
			}
			g.start(fmt.Sprint("w", i)).DoneWith(Outcome{RTT: 30 * time.Millisecond, Feedback: fb})
		}
		g.pass(100 * time.Millisecond)
	}
	for i := range 3 {
		fb := Feedback{InService: 1, ServiceTime: time.Millisecond}
		if i == 0 {
			fb = Feedback{InService: 9, ServiceTime: 2 * time.Millisecond}
		}
		g.start(fmt.Sprint("w", i)).DoneWith(Outcome{Feedback: fb, RTT: time.Nanosecond})
	}
	require.InDelta(t, 2, g.latency("w0", laneRead).Seconds()*1e3, 0.01, "gain 1, not the RTT")
	require.InDelta(t, 1, g.latency("w1", laneRead).Seconds()*1e3, 0.01)
	load := func(id string) float64 {
		sn, n := g.snap.Load(), g.node(id)
		return sn.coef.feedback(&n.st.lane[laneRead], &sn.fleet[laneRead], g.Router.now())
	}
	require.InDelta(t, 0.25*9, load("w0"), 0.01)
	require.InDelta(t, 0.25*1, load("w1"), 0.01)
	g.jump(300 * time.Millisecond) // ten decay times
	mean := float64(g.snap.Load().fleet[laneRead].rif)
	require.InDelta(t, 11.0/3, mean, 0.01, "the fleet's mean of requests in service")
	require.InDelta(t, 0.25*mean, load("w0"), 0.01, "faded to the fleet's")
	require.InDelta(t, 0.25*mean, load("w1"), 0.01)

	for _, bad := range []Feedback{{math.NaN(), time.Millisecond}, {math.Inf(1), time.Millisecond}, {-5, time.Millisecond}, {1, -1}, {math.Inf(-1), 1 << 62}} {
		g.start("w2").DoneWith(Outcome{RTT: time.Millisecond, Feedback: bad})
		x := load("w2")
		require.False(t, math.IsNaN(x) || math.IsInf(x, 0) || x < 0, "load %g of feedback %+v", x, bad)
		c, err := g.Pick("key")
		require.NoError(t, err)
		c.Cancel()
	}
}

// TestObserve_Superseded: another copy answered first. A latency of at least
// the time so far, remembered longer; neither answer nor failure.
func TestObserve_Superseded(t *testing.T) {
	g := newRig(t, 3)
	for range 60 {
		g.answers("w0", 1)
		g.pass(20 * time.Millisecond)
	}
	g.fails("w0", 1) // observed: a success would end it, a failure count
	g.pass(20 * time.Second)
	before := g.health("w0", laneRead)
	level := memLevelOf(g.node("w0").st.lane[laneRead].mem.Load())
	g.start("w0").DoneWith(Outcome{Verdict: Superseded, RTT: 90 * time.Millisecond})
	after := g.health("w0", laneRead)
	lat := unpackLat(g.node("w0").st.lane[laneRead].lat.Load())
	require.InDelta(t, 90e6, lat, 1e4, "gain 1")
	require.Equal(t, level+1, memLevelOf(g.node("w0").st.lane[laneRead].mem.Load()), "memory x1.5")
	require.Equal(t, []any{before.Pen, before.Failed, before.RTTs}, []any{after.Pen, after.Failed, after.RTTs})
	require.Equal(t, Observed, g.phase("w0"))
	g.requireIdle()
	g.start("w0").DoneWith(Outcome{Verdict: Superseded, RTT: 10 * time.Millisecond})
	require.InDelta(t, 90e6, unpackLat(g.node("w0").st.lane[laneRead].lat.Load()), 1e4, "never down")
}

// TestObserve_SupersededAgain: a worker 25 times slower than the others, whose
// every request ends when its copy wins at 5 ms, is not booked as 5 ms for
// ever: each loss of a request that was sent after the one before says that it
// is slower. Losses at the same time, as in a pause, say it once.
func TestObserve_SupersededAgain(t *testing.T) {
	g := newRig(t, 3)
	for range 60 {
		g.answers("w1", 1)
		g.answers("w2", 1)
		g.pass(20 * time.Millisecond)
	}
	lat := func() time.Duration {
		return time.Duration(unpackLat(g.node("w0").st.lane[laneRead].lat.Load())).Round(10 * time.Microsecond)
	}
	lose := func(cs ...Choice) {
		g.jump(5 * time.Millisecond)
		for _, c := range cs {
			c.DoneWith(Outcome{Verdict: Superseded, RTT: 5 * time.Millisecond})
		}
	}
	g.answers("w0", 1)
	lose(g.start("w0"), g.start("w0"), g.start("w0"))
	require.Equal(t, 5*time.Millisecond, lat(), "three at once")
	for _, want := range []time.Duration{7500 * time.Microsecond, 11250 * time.Microsecond, 16870 * time.Microsecond} {
		g.jump(time.Millisecond)
		lose(g.start("w0"))
		require.Equal(t, want, lat())
	}
	for range 20 {
		lose(g.start("w0"))
	}
	most := time.Duration(DefaultTuning().FailureCap * g.snap.Load().fleet[laneRead].mean)
	require.InEpsilon(t, most, lat(), 0.01, "no more than a failure")
	g.start("w0").DoneWith(Outcome{Verdict: Superseded, RTT: time.Millisecond})
	require.InEpsilon(t, most, lat(), 0.01, "one that ends at the fleet's own latency says nothing")
	g.jump(100 * time.Millisecond)
	g.answers("w0", 1)
	require.Less(t, lat(), most*7/10, "an answer counts at once")
}

// TestObserve_FailuresNeverMakeCheaper: I9. However fast the end, in whatever
// state, no verdict but an answer lowers what is expected of the worker.
func TestObserve_FailuresNeverMakeCheaper(t *testing.T) {
	// Each RTT and lane has a worker of its own; w6 and w7 are the fleet.
	states := map[string]func(g *rig, id string, intent Intent){
		"unknown": func(*rig, string, Intent) {},
		"known": func(g *rig, id string, intent Intent) {
			for range 50 {
				g.Observe(g.startAs(id, intent), time.Millisecond, nil)
			}
		},
		"slow": func(g *rig, id string, intent Intent) { g.Observe(g.startAs(id, intent), 500*time.Millisecond, nil) },
		"just failed": func(g *rig, id string, intent Intent) {
			g.Observe(g.startAs(id, intent), time.Millisecond, nil)
			g.startAs(id, intent).Done(errDisk)
		},
		"fleet faster": func(g *rig, id string, intent Intent) {
			g.warm("w6")
			g.Observe(g.startAs(id, intent), 9*time.Millisecond, nil)
		},
		"fleet slower": func(g *rig, id string, intent Intent) {
			for range 20 {
				g.Observe(g.startAs("w7", intent), 40*time.Millisecond, nil)
				g.pass(20 * time.Millisecond)
			}
		},
	}
	ends := map[string]Outcome{
		"fault": {Err: errDisk}, "broken": {Err: errRefused}, "overload": {Verdict: Overload},
		"overload with time": {Verdict: Overload, RetryAfter: time.Second}, "superseded": {Verdict: Superseded},
		"cancel": {Verdict: Ignore}, "short deadline": {Err: context.DeadlineExceeded}, "moved": {Verdict: StaleTopology},
		"unknown": {Err: errNoRow}, "failed batch": {Err: errDisk, Batch: 3},
	}
	for sn, prepare := range states {
		for en, o := range ends {
			g := newRig(t, 8)
			worker := 0
			for _, rtt := range []time.Duration{1, 100 * time.Microsecond, 30 * time.Millisecond} {
				for lane, intent := range []Intent{Read, Write} {
					id := fmt.Sprint("w", worker)
					worker++
					prepare(g, id, intent)
					c := g.startAs(id, intent)
					before := g.latency(id, lane)
					o.RTT = rtt
					c.DoneWith(o)
					if after := g.latency(id, lane); after < before*999/1000 {
						t.Errorf("%s, %s after %v: expected latency falls from %v to %v", sn, en, rtt, before, after)
					}
				}
			}
		}
	}
}

// closedLoop runs requests one after another, each to the worker that pick
// names, and counts who got how many.
func closedLoop(n int, now *int64, pick func() int, serve func(worker int) (time.Duration, error), end func(worker int, rtt time.Duration, err error)) map[int]int {
	got := map[int]int{}
	for range n {
		w := pick()
		rtt, err := serve(w)
		*now += int64(rtt)
		end(w, rtt, err)
		got[w]++
	}
	return got
}

// rigLoop is closedLoop with the router.
func rigLoop(g *rig, rnd *rand.Rand, n int, serve func(worker int) (time.Duration, error)) map[int]int {
	var c Choice
	var now int64
	return closedLoop(n, &now, func() int {
		var err error
		c, err = g.Route(Request{Hash: HashUint64(rnd.Uint64()), Intent: Read})
		require.NoError(g.t, err)
		return int(c.ID()[1] - '0')
	}, serve, func(_ int, rtt time.Duration, err error) {
		g.jump(rtt)
		g.Observe(c, rtt, err)
	})
}

// leastLatency is the naive balancer of the reports: the least EWMA of the
// latency of whatever came back.
type leastLatency struct{ ewma [3]float64 }

func (l *leastLatency) pick() (best int) {
	for i := range l.ewma {
		if l.ewma[i] < l.ewma[best] {
			best = i
		}
	}
	return best
}
func (l *leastLatency) end(w int, rtt time.Duration, _ error) {
	l.ewma[w] += 0.3 * (float64(rtt) - l.ewma[w])
}

// TestCase_052_FailingFastIsNotIdle: three workers, one of which fails after
// 0.1 ms, looks idle and must not get the traffic.
func TestCase_052_FailingFastIsNotIdle(t *testing.T) {
	t.Parallel()
	serve := func(w int) (time.Duration, error) {
		if w == 0 {
			return 100 * time.Microsecond, errDisk
		}
		return time.Millisecond, nil
	}
	for seed := range uint64(50) {
		g := newRig(t, 3, WithRand(rand.New(rand.NewPCG(seed, 1)).Uint64))
		got := rigLoop(g, rand.New(rand.NewPCG(seed, 0)), 100, serve)
		if got[0] >= 5 {
			t.Errorf("seed %d: the failing worker got %d of the first 100, want under 5", seed, got[0])
		}
	}
	var naive leastLatency
	var now int64
	require.Greater(t, closedLoop(100, &now, naive.pick, serve, naive.end)[0], 90, "the naive balancer must send all to it")
}

// TestCase_055_HalfFailingFast: the same with every second answer an error.
func TestCase_055_HalfFailingFast(t *testing.T) {
	t.Parallel()
	failing := func(rnd *rand.Rand) func(int) (time.Duration, error) {
		return func(w int) (time.Duration, error) {
			switch {
			case w == 0 && rnd.IntN(2) == 0:
				return 100 * time.Microsecond, errDisk
			case w == 0:
				return 800 * time.Microsecond, nil
			}
			return time.Millisecond, nil
		}
	}
	for seed := range uint64(30) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		g := newRig(t, 3, WithRand(rand.New(rand.NewPCG(seed, 1)).Uint64))
		got := rigLoop(g, rnd, 2000, failing(rnd))
		if got[0] > 100 {
			t.Errorf("seed %d: the worker that fails every second time got %d of 2000, want at most 5 %%", seed, got[0])
		}
	}
	var naive leastLatency
	var now int64
	rnd := seeded(t, 55)
	require.Greater(t, closedLoop(2000, &now, naive.pick, failing(rnd), naive.end)[0], 1000, "the naive balancer must prefer it")
}

// TestCase_101_LanesApart: write errors must not cut reads, and a good read
// must not excuse writes. The naive one has one score.
func TestCase_101_LanesApart(t *testing.T) {
	g := newRig(t, 3)
	g.warm("w0")
	g.warm("w1")
	g.warm("w2")
	g.pass(100 * time.Millisecond)
	read := g.latency("w0", laneRead)
	for range 3 {
		g.startAs("w0", Write).DoneWith(Outcome{Err: errDisk, RTT: 500 * time.Millisecond})
	}
	require.Equal(t, Cooldown, g.pen("w0", laneWrite).phase())
	require.Equal(t, Healthy, g.phase("w0"))
	require.Equal(t, read, g.latency("w0", laneRead))
	require.Greater(t, g.latency("w0", laneWrite), 10*read)
	count := func(intent Intent) (n int) {
		for i := range 3000 {
			c, err := g.Route(Request{Key: fmt.Sprint(i), Intent: intent})
			require.NoError(t, err)
			if c.ID() == "w0" {
				n++
			}
			c.Cancel()
		}
		return n
	}
	require.InDelta(t, 1000, count(Read), 150, "reads to w0")
	require.Zero(t, count(Write), "writes to w0")
	for range 20 {
		g.answers("w0", 1)
	}
	require.Equal(t, Cooldown, g.pen("w0", laneWrite).phase(), "good reads")
	g.pass(100 * time.Millisecond)
	require.Zero(t, g.Status().Write.Samples, "reads are not in the mean of writes")

	naive := struct{ score float64 }{1}
	observe := func(err error) {
		if err != nil {
			naive.score /= 10
		}
	}
	observe(errDisk)
	require.Less(t, naive.score, 0.5, "the naive score must keep reads away")
}

// TestObserve_WritesDoNotMakeReadsSilent: a worker that answers writes all the
// time and is seldom read is not silent to readers.
func TestObserve_WritesDoNotMakeReadsSilent(t *testing.T) {
	g := newRig(t, 3)
	g.answers("w0", 50)
	held := g.startAs("w0", Write)
	for range 500 {
		next := g.startAs("w0", Write) // one at least is always in flight
		g.jump(time.Millisecond)
		g.Observe(held, time.Millisecond, nil)
		held = next
	}
	sn, n := g.snap.Load(), g.node("w0")
	got := sn.coef.latency(&n.st.lane[laneRead], float64(sn.cols[n.slot].base[laneRead]), n.st.busy.Load(), uint64(n.st.inFlight()), g.Router.now())
	if time.Duration(got) > 10*time.Millisecond {
		t.Errorf("a read is expected to take %v, want about 1ms: the worker has answered a write 1 ms ago", time.Duration(got))
	}
	held.Cancel()
}

// TestCase_137_LongCallsCount: attempts count at the pick, and a call longer
// than the window does not skew the error rate. The naive throttle counts a
// request when it ends, so at first only those that fail at once.
func TestCase_137_LongCallsCount(t *testing.T) {
	const percent = 1 // fail at once, the others take 20 s
	sane := func(rate float64) bool { return rate < 0.03 }
	g := newRig(t, 1, rigTuning(func(t *Tuning) { t.SlowRatio = 100; t.TripFailures = 15 }))
	naiveEnds, naiveFails := 0.0, 0.0
	for i := range 4000 {
		picks := g.Status().Picks
		c, err := g.Route(Request{Key: "key", Intent: Read, Timeout: time.Minute})
		require.NoError(t, err)
		require.Equal(t, picks+1, g.Status().Picks, "counted at the pick")
		if i%100 < percent {
			c.Done(errDisk)
			naiveEnds, naiveFails = naiveEnds+1, naiveFails+1
		}
		if i%10 == 0 {
			g.pass(20 * time.Millisecond)
		}
	}
	require.Equal(t, 3960, g.inFlight("w0"))
	require.False(t, g.node("w0").st.cold.lane[laneRead].failing, "1 %% of what was sent has failed")
	require.False(t, sane(naiveFails/naiveEnds), "the naive rate must be 100 %%")
}

// TestObserve_WrongStart: a start stamp from the future is the caller's
// mistake; it must not end the cooldowns of others, nor stop the folds.
func TestObserve_WrongStart(t *testing.T) {
	g := newRig(t, 3, rigTuning(func(t *Tuning) { t.CooldownMin = 20 * time.Second }))
	g.fails("w0", 3)
	g.pass(200 * time.Millisecond)
	for range 5 {
		c, err := g.Start(Request{Intent: Read, Start: g.clock().Add(20 * time.Minute)}, "w1")
		require.NoError(t, err)
		g.jump(110 * time.Millisecond)
		g.Observe(c, time.Millisecond, nil)
		require.Equal(t, Cooldown, g.phase("w0"))
	}
	published := g.snap.Load().published
	g.jump(200 * time.Millisecond)
	g.answers("w2", 1)
	require.Greater(t, g.snap.Load().published, published, "folds go on")

	// Neither may an RTT that has not passed yet.
	g = newRig(t, 3, rigTuning(nil))
	g.fails("w0", 3)
	g.jump(200 * time.Millisecond)
	g.Observe(g.start("w1"), 900*time.Millisecond, nil)
	require.Equal(t, Cooldown, g.phase("w0"), "0.2 s of one second")
}

// TestObserve_AfterTheLastWorkerLeft: ends that come after the topology has
// emptied, and after a new one.
func TestObserve_AfterTheLastWorkerLeft(t *testing.T) {
	g := newRig(t, 3)
	open := []Choice{g.start("w0"), g.start("w1"), g.startAs("w2", Write)}
	require.NoError(t, g.SetTopology(Topology{}))
	open[0].Done(errRefused)
	open[1].FirstByte()
	require.NoError(t, g.SetTopology(Topology{Workers: rigWorkers(3)}))
	for _, c := range open {
		c.Done(errDisk)
	}
	g.requireIdle()
	for _, w := range g.Status().Workers {
		require.Zero(t, w.Read.Failures)
		require.Zero(t, w.Write.Failures)
	}
}
