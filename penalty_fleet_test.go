package ringwise

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cooldowns counts the workers of the present topology whom a lane holds out.
func (g *rig) cooldowns(lane int) (n int) {
	sn := g.snap.Load()
	for _, slot := range sn.live {
		if sn.nodes[slot].st.lane[lane].pen.load().phase() == Cooldown {
			n++
		}
	}
	return n
}

// TestPenalty_CapHoldsAtEveryInstant: I2. Four goroutines fail every worker
// while another counts who is out; on a clock that stands still words only
// enter cooldown, so each count is a lower bound.
func TestPenalty_CapHoldsAtEveryInstant(t *testing.T) {
	for n := 1; n <= 20; n++ {
		g := newRig(t, n)
		for percent := 0; percent <= 100; percent += 10 {
			tn := g.Tuning()
			tn.MaxOut = float64(percent) / 100
			require.NoError(t, g.Retune(tn))
			limit := n * percent / 100
			require.LessOrEqual(t, g.cooldowns(laneRead), limit, "after Retune to %d %% of %d", percent, n)

			var failing sync.WaitGroup
			var over atomic.Int64
			done := make(chan struct{})
			for range 4 {
				failing.Go(func() {
					for i := range n {
						g.fails(fmt.Sprint("w", i), 4)
					}
				})
			}
			checked := make(chan struct{})
			go func() {
				defer close(checked)
				for {
					over.Store(max(over.Load(), int64(g.cooldowns(laneRead))))
					select {
					case <-done:
						return
					default:
					}
				}
			}()
			failing.Wait()
			close(done)
			<-checked
			require.LessOrEqual(t, over.Load(), int64(limit), "workers out at once, %d %% of %d", percent, n)
			require.Equal(t, limit, g.cooldowns(laneRead), "all fail, so the cap is reached: %d %% of %d", percent, n)
			require.EqualValues(t, limit, g.out[laneRead].n.Load())
			g.jump(40 * time.Second)
			g.Maintain(g.clock())
			require.Zero(t, g.cooldowns(laneRead), "time lets all in")
			require.Zero(t, g.out[laneRead].n.Load())
		}
	}
}

// TestPenalty_CapUnderTopologyChanges: the fleet grows and shrinks while its
// workers trip; after each change no more are out than the new fleet allows.
func TestPenalty_CapUnderTopologyChanges(t *testing.T) {
	t.Parallel()
	const most = 12
	g := newRig(t, most)
	rnd := seeded(t, 2)
	stop := make(chan struct{})
	var failing sync.WaitGroup
	for range 3 {
		failing.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if c, err := g.Start(Request{Intent: Intent(1 + 2*(i&1))}, fmt.Sprint("w", i%most)); err == nil {
					c.DoneWith(Outcome{Err: errRefused})
				}
			}
		})
	}
	for round := range 40 {
		all := rigWorkers(most)
		rnd.Shuffle(most, func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:rnd.IntN(most+1)]
		for i := range all {
			if rnd.IntN(4) == 0 {
				all[i].Incarnation = uint64(round)
			}
		}
		require.NoError(t, g.SetTopology(Topology{Workers: all}))
		for lane := range lanes {
			if out := g.cooldowns(lane); out > len(all)/2 {
				t.Errorf("round %d: %d of %d are out on lane %d, want at most half", round, out, len(all), lane)
			}
		}
	}
	close(stop)
	failing.Wait()
	require.NoError(t, g.SetTopology(Topology{Workers: rigWorkers(most)}))
	for lane := range lanes {
		require.EqualValues(t, g.cooldowns(lane), g.out[lane].n.Load(), "the count is of words in cooldown, lane %d", lane)
	}
	g.jump(time.Minute)
	g.Maintain(g.clock())
	for lane := range lanes {
		require.Zero(t, g.out[lane].n.Load(), "lane %d", lane)
	}
}

// spin waits for another goroutine that is about to be there.
func spin(until func() bool) {
	for i := 0; !until(); i++ {
		if i%1000 == 999 {
			runtime.Gosched()
		}
	}
}

// TestPenalty_CapShrinksInMidTrip: a place under the cap is had before the
// word changes. If the cap shrinks between the two, the trip is taken back.
func TestPenalty_CapShrinksInMidTrip(t *testing.T) {
	rules := newPenaltyBench(1, false).rules
	var w penaltyWord
	var out fleetOut
	var round, done atomic.Int64
	shrink := func() {
		out.max.Store(0)
		for out.n.Load() > 0 && w.load().phase() == Cooldown { // as capOut does
			w.change(&out, func(p penalty) (penalty, bool, penalty) {
				if p.phase() == Cooldown {
					p = p.letIn(0)
				}
				return p, false, p
			})
		}
	}
	const rounds = 8_000 // under -race, which widens the gap, enough to see it a hundred times
	var other sync.WaitGroup
	other.Go(func() {
		for i := range int64(rounds) {
			spin(func() bool { return round.Load() > i })
			shrink()
			done.Add(1)
		}
	})
	bad := 0
	for i := range int64(rounds) {
		w.v.Store(0)
		out.max.Store(1)
		round.Add(1)
		w.change(&out, func(p penalty) (penalty, bool, penalty) { return p.tripped(0, &rules, 0), true, p })
		spin(func() bool { return done.Load() > i })
		if w.load().phase() == Cooldown || out.n.Load() != 0 {
			bad++
			out.n.Store(0)
		}
	}
	other.Wait()
	if bad > 0 {
		t.Errorf("in %d of %d rounds a word is in cooldown under a cap of 0", bad, rounds)
	}
}

// TestPenalty_CapPerCandidateSet: the cap holds for each request's candidates
// as well, however few of the fleet are out; who is let in has the least left
// of its cooldown, gets PanicFactor, and the decision says so.
func TestPenalty_CapPerCandidateSet(t *testing.T) {
	for _, percent := range []int{0, 20, 34, 50, 67, 100} {
		g := newRig(t, 40, rigTuning(func(t *Tuning) { t.MaxOut = 1 }))
		for i := range 16 {
			g.fails(fmt.Sprint("w", i), 3)
			g.jump(time.Millisecond * 10)
		}
		// Sixteen are out of the fleet; by hand, for Retune would let some in.
		g.snap.Load().coef.rules.maxOut = float64(percent) / 100
		for n := 1; n <= 16; n++ {
			for out := 0; out <= n; out++ {
				var among []Ref
				for i := range n {
					id := fmt.Sprint("w", i) // out, the lower the sooner back
					if i >= out {
						id = fmt.Sprint("w", 16+i)
					}
					ref, _ := g.Ref(id)
					among = append(among, ref)
				}
				d := g.Explain(Request{Among: among, Intent: Read})
				cut, letIn := 0, 0
				for _, c := range d.Candidates {
					switch {
					case c.Cut == reasonNames[cutCooldown]:
						cut++
					case c.Phase == "cooldown":
						require.InDelta(t, 0.2, c.Factor, 1e-9)
						letIn++
						index := 0
						fmt.Sscanf(c.ID, "w%d", &index)
						limit := min(n*percent/100, n-1)
						require.Less(t, index, out-limit, "who is let in of %d of %d out at %d %%", out, n, percent)
					}
				}
				limit := min(out, n*percent/100, n-1)
				require.Equal(t, limit, cut, "cut of %d candidates, %d of them in cooldown, at %d %%", n, out, percent)
				require.Equal(t, out-limit, letIn)
				require.Equal(t, letIn > 0, d.Panic)
				require.Equal(t, letIn > 0, d.Relaxed == "penalty", d.Relaxed)
			}
		}
	}
}

// TestPenalty_LastUsableStays: I3. Penalties never take out the last usable
// candidate, Down always does.
func TestPenalty_LastUsableStays(t *testing.T) {
	type step func(g *rig)
	fail := func(ids ...string) step {
		return func(g *rig) {
			for _, id := range ids {
				g.fails(id, 5)
			}
		}
	}
	down := func(ids ...string) step {
		return func(g *rig) {
			for _, id := range ids {
				g.SetState(id, Down)
			}
		}
	}
	hold := func(ids ...string) step {
		return func(g *rig) {
			for _, id := range ids {
				g.start(id).DoneWith(Outcome{Verdict: Overload, RetryAfter: time.Minute})
			}
		}
	}
	for _, tt := range []struct {
		name   string
		n      int
		maxOut float64
		steps  []step
		want   map[string]bool // who may be picked; empty: nobody
	}{
		{"one, fails", 1, 0.5, []step{fail("w0")}, map[string]bool{"w0": true}},
		{"one, fails, no cap", 1, 1, []step{fail("w0")}, map[string]bool{"w0": true}},
		{"one, asks for less", 1, 1, []step{hold("w0")}, map[string]bool{"w0": true}},
		{"one, down", 1, 1, []step{down("w0")}, nil},
		{"two of three fail, cap holds one", 3, 0.5, []step{fail("w0", "w1")}, map[string]bool{"w1": true, "w2": true}},
		{"two of three fail, no cap", 3, 1, []step{fail("w0", "w1")}, map[string]bool{"w2": true}},
		{"all three fail, no cap", 3, 1, []step{fail("w0", "w1", "w2")}, map[string]bool{"w0": true, "w1": true, "w2": true}},
		{"all three fail", 3, 0.5, []step{fail("w0", "w1", "w2")}, map[string]bool{"w0": true, "w1": true, "w2": true}},
		{"all ask for less", 3, 1, []step{hold("w0", "w1", "w2")}, map[string]bool{"w0": true, "w1": true, "w2": true}},
		{"two down, the last fails", 3, 1, []step{fail("w2"), down("w0", "w1")}, map[string]bool{"w2": true}},
		{"down, then it fails", 3, 1, []step{down("w0", "w1"), fail("w2")}, map[string]bool{"w2": true}},
		{"all down", 3, 0, []step{down("w0", "w1", "w2")}, nil},
		{"in cooldown and down", 3, 1, []step{fail("w0", "w1", "w2"), down("w0", "w1", "w2")}, nil},
		{"the cap is no shelter from down", 3, 0, []step{down("w0", "w1")}, map[string]bool{"w2": true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, tt.n, rigTuning(func(t *Tuning) { t.MaxOut = tt.maxOut }))
			for _, s := range tt.steps {
				s(g)
			}
			for range 300 {
				c, err := g.Pick("key")
				if len(tt.want) == 0 {
					require.ErrorIs(t, err, ErrNoWorker)
					var detail *NoWorkerError
					require.True(t, errors.As(err, &detail))
					require.Len(t, detail.Candidates, tt.n)
					return
				}
				require.NoError(t, err)
				require.True(t, tt.want[c.ID()], "picked %s, want one of %v", c.ID(), tt.want)
				c.Cancel()
			}
		})
	}
}

// rampSteps takes w0 of three through a recovery that has begun and returns
// its share of n picks at each step and one second after the end.
func rampSteps(t *testing.T, g *rig, rnd *rand.Rand, n int, begin int64) (shares []float64) {
	t.Helper()
	for step := range 6 {
		at := begin + int64(step)*int64(2*time.Second) + int64(20*time.Millisecond)
		if step == 5 {
			at = begin + int64(10400*time.Millisecond)
		}
		g.jump(time.Duration(at - g.Router.now()))
		g.warm("w0")
		g.Maintain(g.clock())
		shares = append(shares, g.shares(rnd, n, time.Millisecond)["w0"])
	}
	return shares
}

// checkRamp: I4 for n equal candidates: never over the cap of the step, never
// falling, full after the end.
func checkRamp(shares []float64, n int, picks float64) error {
	for i, got := range shares {
		capped := min(0.2*float64(i+1), 1) / float64(n)
		noise := 4 * math.Sqrt(capped*(1-capped)/picks)
		switch {
		case i < 4 && got > capped+noise:
			return fmt.Errorf("share %.4f at step %d, want at most %.4f", got, i+1, capped)
		case i > 0 && i < 5 && got < shares[i-1]-2*noise:
			return fmt.Errorf("share falls from %.4f to %.4f at step %d", shares[i-1], got, i+1)
		case i == 5 && math.Abs(got-1/float64(n)) > 0.1/float64(n):
			return fmt.Errorf("share %.4f one second after the ramp, want %.4f", got, 1/float64(n))
		}
	}
	return nil
}

// TestPenalty_RampCapsTheShareWhenPeersAreLoaded: an idle worker beside busy
// ones is 81^10 times as attractive. The naive ramp multiplies that by 0.2.
func TestPenalty_RampCapsTheShareWhenPeersAreLoaded(t *testing.T) {
	rnd := seeded(t, 5)
	g := newRig(t, 3, rigTuning(nil))
	g.shares(rnd, 3000, time.Millisecond)
	g.fails("w0", 3)
	g.pass(1100 * time.Millisecond)
	for _, id := range []string{"w1", "w2"} {
		for range 40 {
			c, err := g.Start(Request{Intent: Read, Stream: true}, id)
			require.NoError(t, err)
			defer c.Cancel()
		}
	}
	const picks = 20_000
	shares := rampSteps(t, g, rnd, picks, g.pen("w0", laneRead).at())
	t.Logf("shares %.4f", shares)
	require.NoError(t, checkRamp(shares[:4], 3, picks))
	require.Greater(t, shares[5], 0.95, "and full is what cost says, which is all of it")

	load := math.Pow(1+2*40, -10)
	naive := func(factor float64) float64 { return factor / (factor + 2*load) }
	require.Error(t, checkRamp([]float64{naive(0.2), naive(0.4), naive(0.6), naive(0.8)}, 3, picks), "a factor alone must fail")
}

// TestPenalty_TwoRampTogether: each is held to its own share, for a healthy
// one is there to take the rest.
func TestPenalty_TwoRampTogether(t *testing.T) {
	rnd := seeded(t, 6)
	g := newRig(t, 5, WithReplicas(5), rigTuning(nil))
	g.shares(rnd, 3000, time.Millisecond)
	g.fails("w0", 3)
	g.fails("w1", 3)
	g.pass(1100 * time.Millisecond)
	got := g.shares(rnd, 20_000, time.Millisecond)
	for _, id := range []string{"w0", "w1"} {
		if got[id] > 0.04+0.006 {
			t.Errorf("share of %s is %.4f, want at most 0.04", id, got[id])
		}
	}
}

// TestPenalty_RecoveringBeforeCooling: where only workers in penalty are left,
// the one on its way back serves, not those that have just been taken out.
func TestPenalty_RecoveringBeforeCooling(t *testing.T) {
	g := newRig(t, 6, rigTuning(nil))
	rnd := seeded(t, 7)
	g.shares(rnd, 3000, time.Millisecond)
	g.fails("w0", 3)
	g.pass(1100 * time.Millisecond)
	g.warm("w0")
	g.fails("w1", 3)
	g.fails("w2", 3)
	require.Equal(t, []Phase{Probation, Cooldown, Cooldown}, []Phase{g.phase("w0"), g.phase("w1"), g.phase("w2")})
	var among []Ref
	for _, id := range []string{"w0", "w1", "w2"} {
		ref, ok := g.Ref(id)
		require.True(t, ok)
		among = append(among, ref)
	}
	got := map[string]int{}
	for range 2000 {
		c, err := g.Route(Request{Among: among, Intent: Read})
		require.NoError(t, err)
		got[c.ID()]++
		c.Cancel()
	}
	if got["w0"] < 1500 {
		t.Errorf("picks %v of 2000: the recovering w0 must serve, the others are in cooldown", got)
	}
}

// TestCase_049_RampClockIsTheWorkersOwn: each worker's ramp starts at its own
// recovery. The naive one uses the consumer's start time, so all look old.
func TestCase_049_RampClockIsTheWorkersOwn(t *testing.T) {
	check := func(share func(id string) float64) error {
		if a, b := share("w0"), share("w1"); math.Abs(a-0.6) > 1e-9 || math.Abs(b-0.2) > 1e-9 {
			return fmt.Errorf("shares are %.2f and %.2f, want 0.6 and 0.2", a, b)
		}
		return nil
	}
	g := newRig(t, 5, rigTuning(nil))
	g.pass(time.Minute) // the client is old
	g.fails("w0", 3)
	g.pass(1100 * time.Millisecond)
	for range 2 {
		g.answers("w0", 1)
		g.pass(2100 * time.Millisecond)
	}
	g.fails("w1", 3)
	g.pass(1100 * time.Millisecond)
	g.answers("w0", 1)
	g.answers("w1", 1)
	require.NoError(t, check(func(id string) float64 {
		s, _ := g.pen(id, laneRead).share(g.Router.now(), &g.snap.Load().coef.rules)
		return s
	}))
	require.Error(t, check(func(string) float64 {
		return min(float64(g.Router.now())/float64(10*time.Second), 1) // since the client began
	}), "the naive ramp must fail")
}

// TestCase_092_FullAfterTheRamp: one second after the ramp's end the share is
// full. The naive scheduler gave the ramping worker a deadline of 1/weight,
// which lies far beyond the end.
func TestCase_092_FullAfterTheRamp(t *testing.T) {
	full := func(share float64) bool { return math.Abs(share-1.0/3) < 0.03 }
	rnd := seeded(t, 92)
	g := newRig(t, 3, rigTuning(nil))
	g.shares(rnd, 3000, time.Millisecond)
	g.fails("w0", 3)
	g.pass(1100 * time.Millisecond)
	begin := g.pen("w0", laneRead).at()
	for range 9 {
		g.warm("w0")
		g.pass(500 * time.Millisecond)
	}
	g.pass(time.Duration(begin) + 10*time.Second - time.Duration(g.Router.now()))
	g.warm("w0")
	g.pass(time.Duration(begin) + 11*time.Second - time.Duration(g.Router.now()))
	got := g.shares(rnd, 20_000, time.Millisecond)["w0"]
	require.True(t, full(got), "share %.4f one second after the end", got)

	deadline, virtual, picks := [3]float64{1 / 0.001, 1, 1}, 0.0, [3]int{}
	for range 1500 { // after the ramp: weights are 1 again, the deadline stays
		first := 0
		for i := range deadline {
			if deadline[i] < deadline[first] {
				first = i
			}
		}
		virtual = deadline[first]
		deadline[first] = virtual + 1
		picks[first]++
	}
	require.False(t, full(float64(picks[0])/1500), "the naive scheduler must starve it")
}

// TestCase_095_RampAtEveryRecovery: and not only at the first join, as in the
// naive one.
func TestCase_095_RampAtEveryRecovery(t *testing.T) {
	ramps := func(share [2]float64) bool { return share[0] < 0.09 && share[1] < 0.09 }
	rnd := seeded(t, 95)
	g := newRig(t, 3, rigTuning(nil))
	g.shares(rnd, 3000, time.Millisecond)
	var got [2]float64
	for i := range got {
		g.fails("w0", 3)
		require.Equal(t, Cooldown, g.phase("w0"))
		g.pass(1100*time.Millisecond + time.Duration(i)*time.Second)
		g.warm("w0")
		got[i] = g.shares(rnd, 5000, time.Millisecond)["w0"]
		require.Greater(t, got[i], 0.05)
		for g.phase("w0") != Healthy {
			g.warm("w0")
		}
		require.Greater(t, g.shares(rnd, 5000, time.Millisecond)["w0"], 0.25, "recovered")
	}
	require.True(t, ramps(got), "shares at the start of both recoveries: %.3f", got)

	joined := false
	naive := func() float64 {
		if !joined {
			joined = true
			return 1.0 / 15
		}
		return 1.0 / 3
	}
	require.False(t, ramps([2]float64{naive(), naive()}), "the naive ramp must fail")

	// Down and Up again is a recovery too.
	g.SetState("w1", Down)
	g.SetState("w1", Up)
	require.Less(t, g.shares(rnd, 5000, time.Millisecond)["w1"], 0.09, "after Down and Up")
}

// TestCase_058_NewWorkerIsNotFlooded: a worker without statistics must not
// rank best. It joins by the ramp, probes first; the naive ranks it by the
// latency it has not got.
func TestCase_058_NewWorkerIsNotFlooded(t *testing.T) {
	rnd := seeded(t, 58)
	g := newRig(t, 4, WithReplicas(4), rigTuning(nil))
	for range 20 {
		g.shares(rnd, 300, 20*time.Millisecond)
		g.pass(100 * time.Millisecond)
	}
	require.NoError(t, g.SetTopology(Topology{Workers: rigWorkers(5)}))
	require.Equal(t, Probation, g.phase("w4"))
	require.Equal(t, Probation, g.pen("w4", laneWrite).phase())
	// Before its first answer one request is all it gets.
	var open []Choice
	n := 0
	for range 2000 {
		c, err := g.Route(Request{Hash: HashUint64(rnd.Uint64()), Intent: Read})
		require.NoError(t, err)
		if c.ID() == "w4" {
			n++
		}
		open = append(open, c)
	}
	require.LessOrEqual(t, n, 1, "requests to the new worker before it has answered one")
	for _, c := range open {
		c.Cancel()
	}
	begin := g.pen("w4", laneRead).at()
	var shares []float64
	for step := range 4 {
		g.jump(time.Duration(begin) + time.Duration(step)*2*time.Second + 20*time.Millisecond - time.Duration(g.Router.now()))
		shares = append(shares, g.shares(rnd, 20_000, 20*time.Millisecond)["w4"])
	}
	t.Logf("shares %.4f", shares)
	capped := func(shares []float64) bool { // of four candidates at most: a quarter
		for i, s := range shares {
			if s > 0.25*0.2*float64(i+1)*1.1 {
				return false
			}
		}
		return true
	}
	require.True(t, capped(shares), "shares %.4f", shares)
	naive := func(latency []float64) int { // none yet: zero
		best := 0
		for i := range latency {
			if latency[i] < latency[best] {
				best = i
			}
		}
		return best
	}
	require.Equal(t, 4, naive([]float64{20, 20, 20, 20, 0}), "the naive ranking must flood it")
}

// TestPenalty_FirstTopologyStartsFull: so does one that replaces more than
// half; half and less joins by the ramp (P3).
func TestPenalty_FirstTopologyStartsFull(t *testing.T) {
	for _, tt := range []struct {
		keep, add int
		want      Phase
	}{{0, 3, Healthy}, {4, 1, Probation}, {2, 2, Probation}, {2, 3, Healthy}, {1, 4, Healthy}, {0, 5, Healthy}} {
		g := newRig(t, 4)
		for i := range 4 {
			require.Equal(t, Healthy, g.phase(fmt.Sprint("w", i)), "first topology")
		}
		ws := rigWorkers(4)[:tt.keep]
		for i := range tt.add {
			ws = append(ws, Worker{ID: fmt.Sprint("new", i)})
		}
		require.NoError(t, g.SetTopology(Topology{Workers: ws}))
		for i := range tt.add {
			require.Equal(t, tt.want, g.phase(fmt.Sprint("new", i)), "%d stay, %d join", tt.keep, tt.add)
		}
		for i := range tt.keep {
			require.Equal(t, Healthy, g.phase(fmt.Sprint("w", i)), "who stays stays as it was")
		}
	}
	// The same name with a new process is new.
	g := newRig(t, 4)
	g.fails("w1", 3)
	ws := rigWorkers(4)
	ws[1].Incarnation = 7
	require.NoError(t, g.SetTopology(Topology{Workers: ws}))
	require.Equal(t, Probation, g.phase("w1"))
	require.Zero(t, g.out[laneRead].n.Load(), "and the old one's cooldown is not counted any more")
}

// TestCase_100_ReplacedFleetStartsHealthy: replace all workers while all old
// ones are in cooldown. The naive one keeps state by position.
func TestCase_100_ReplacedFleetStartsHealthy(t *testing.T) {
	g := newRig(t, 4, rigTuning(func(t *Tuning) { t.MaxOut = 1 }))
	old := g.snap.Load().nodes
	for i := range 4 {
		g.fails(fmt.Sprint("w", i), 3)
	}
	require.EqualValues(t, 4, g.out[laneRead].n.Load())
	c := g.start("w2")
	var ws []Worker
	for i := range 4 {
		ws = append(ws, Worker{ID: fmt.Sprint("deploy2-", i)})
	}
	require.NoError(t, g.SetTopology(Topology{Workers: ws}))
	require.Zero(t, g.out[laneRead].n.Load())
	healthy := func(phase func(i int) Phase) bool {
		for i := range 4 {
			if phase(i) != Healthy {
				return false
			}
		}
		return true
	}
	require.True(t, healthy(func(i int) Phase { return g.phase(fmt.Sprint("deploy2-", i)) }))
	c.DoneWith(Outcome{Err: errRefused}) // a late failure of the old
	g.pass(time.Minute)
	require.Zero(t, g.out[laneRead].n.Load(), "the old ones are nobody's concern")
	require.True(t, healthy(func(i int) Phase { return g.phase(fmt.Sprint("deploy2-", i)) }))
	require.False(t, healthy(func(i int) Phase { return old[i].st.lane[laneRead].pen.load().phase() }),
		"state by position must fail")
}

// TestCase_088_SingleWorkerStays and the naive ejector that always ejects one.
func TestCase_088_SingleWorkerStays(t *testing.T) {
	g := newRig(t, 1)
	for range 100 {
		c, err := g.Pick("key")
		require.NoError(t, err)
		c.DoneWith(Outcome{Err: errRefused})
		g.pass(100 * time.Millisecond)
	}
	require.NotEqual(t, Cooldown, g.phase("w0"))
	naive := func(n int, percent float64) int { return max(1, int(float64(n)*percent)) }
	require.Greater(t, naive(1, 0.5), capOut(1, 0.5), "at least one is always ejected by the naive one")
}

// TestCase_089_CapIsForPenaltiesOnly: the naive one asks the cap for an
// explicit Down as well.
func TestCase_089_CapIsForPenaltiesOnly(t *testing.T) {
	g := newRig(t, 4, WithReplicas(4), rigTuning(func(t *Tuning) { t.MaxOut = 0.5 }))
	down := []string{"w0", "w1", "w2"}
	for _, id := range down {
		require.True(t, g.SetState(id, Down))
	}
	picks := map[string]int{}
	for i := range 200 {
		c, err := g.Pick(fmt.Sprint(i))
		require.NoError(t, err)
		picks[c.ID()]++
		c.Cancel()
	}
	require.Equal(t, map[string]int{"w3": 200}, picks)
	naiveOut := 0
	for range down {
		if naiveOut < capOut(4, 0.5) {
			naiveOut++
		}
	}
	require.Less(t, naiveOut, len(down), "the naive cap must leave one of them in")
}

// TestCase_091_AllFailing: Pick still returns one, of the key's candidates.
func TestCase_091_AllFailing(t *testing.T) {
	g := newRig(t, 8, rigTuning(func(t *Tuning) { t.MaxOut = 1 }))
	for i := range 8 {
		g.fails(fmt.Sprint("w", i), 3)
	}
	require.Equal(t, 8, g.cooldowns(laneRead))
	for i := range 200 {
		c, err := g.Pick(fmt.Sprint("key", i))
		require.NoError(t, err)
		require.Contains(t, c.Relaxed().String(), "penalty")
		var own []string
		for _, x := range g.Explain(Request{Key: fmt.Sprint("key", i)}).Candidates {
			own = append(own, x.ID)
		}
		require.Contains(t, own, c.ID())
		c.Cancel()
	}
	naive := func(ejected [8]bool) (left int) { // without a panic threshold
		for _, out := range ejected {
			if !out {
				left++
			}
		}
		return left
	}
	require.Zero(t, naive([8]bool{true, true, true, true, true, true, true, true}), "nobody is left to the naive one")
	// Through a whole outage and after it: some answer is always had.
	for range 50 {
		c, err := g.Pick("key")
		require.NoError(t, err)
		c.DoneWith(Outcome{Err: errRefused})
		g.pass(time.Second)
	}
}

// TestCase_097_LowVolume: one failure of one is no rate. It is observed until
// the next answer, never out; the naive one divides.
func TestCase_097_LowVolume(t *testing.T) {
	// A failure counts as latency too; here only the rate is to speak.
	slow := rigTuning(func(t *Tuning) { t.SlowRatio = 100 })
	g := newRig(t, 3, slow)
	sick := func() bool { return g.node("w0").st.cold.lane[laneRead].sick }
	for range 30 { // once in 6 s one request, a third of them fail
		g.fails("w0", 1)
		g.pass(2 * time.Second)
		require.False(t, sick(), "a rate of %d samples", 1)
		g.answers("w0", 2)
		require.Equal(t, Healthy, g.phase("w0"))
		g.pass(4 * time.Second)
	}
	require.Zero(t, g.Status().Trips)
	naive := func(failures, answers float64) bool { return failures/answers > 0.03 }
	require.True(t, naive(1, 1), "the naive rate must condemn it")

	// Requests that said nothing of the worker are no samples either.
	g = newRig(t, 3, slow)
	for range 25 {
		g.start("w0").Cancel()
	}
	g.fails("w0", 1)
	g.pass(300 * time.Millisecond)
	require.False(t, sick(), "one failure and 25 cancelled requests")
	for range 300 {
		g.start("w1").Cancel()
	}
	for range 4 {
		g.answers("w1", 4)
		g.fails("w1", 1)
	}
	g.answers("w1", 1)
	g.pass(300 * time.Millisecond)
	require.True(t, g.node("w1").st.cold.lane[laneRead].sick, "4 of 21 answers are failures, whatever was cancelled")
}

// TestCase_103_RecoveryNeedsAnswers: a report of recovery alone does not bring
// traffic back, time alone neither.
func TestCase_103_RecoveryNeedsAnswers(t *testing.T) {
	back := func(share float64) bool { return share > 0.21 }
	g := newRig(t, 3, rigTuning(nil))
	g.fails("w0", 3)
	for i := range 20 {
		g.pass(time.Second)
		require.NoError(t, g.Report(Report{Worker: "w0", Time: g.clock(), CPU: Some(0.01), Recovering: Some(false), HealthFailed: Some(false)}))
		require.False(t, back(g.Status().Workers[0].Read.Share), "after %d good reports", i+1)
	}
	for range 2 {
		g.answers("w0", 1)
		g.pass(2100 * time.Millisecond)
	}
	require.True(t, back(g.Status().Workers[0].Read.Share))
	naive := func(rep Report) float64 {
		if !rep.Recovering.Or(true) {
			return 1
		}
		return 0
	}
	require.True(t, back(naive(Report{Recovering: Some(false)})), "the naive one must believe the report")
}

// TestCase_125_GoodReportEndsNothing: a good report does not end a cooldown
// that the client's own errors caused; a bad one counts like an error.
func TestCase_125_GoodReportEndsNothing(t *testing.T) {
	staysOut := func(report func(healthy bool), out func() bool) bool {
		for range 5 {
			report(true)
		}
		return out()
	}
	g := newRig(t, 3, rigTuning(nil))
	g.fails("w0", 3)
	require.True(t, staysOut(func(healthy bool) {
		g.jump(time.Millisecond)
		require.NoError(t, g.Report(Report{Worker: "w0", Time: g.clock(), HealthFailed: Some(!healthy), Errors: Some(0.0)}))
	}, func() bool { return g.phase("w0") == Cooldown }))

	for i := range 3 {
		require.NotEqual(t, Cooldown, g.phase("w1"), "after %d failed health checks", i)
		g.jump(time.Millisecond)
		require.NoError(t, g.Report(Report{Worker: "w1", Time: g.clock(), HealthFailed: Some(true)}))
	}
	// One of three may be out, and w0 is; so w1 is only observed.
	require.Equal(t, Observed, g.phase("w1"))
	g.pass(1500 * time.Millisecond)
	require.NoError(t, g.Report(Report{Worker: "w1", Time: g.clock(), HealthFailed: Some(true)}))
	require.Equal(t, Cooldown, g.phase("w1"))

	out := true // by the client's checks; the naive agent has the last word
	require.False(t, staysOut(func(healthy bool) { out = !healthy }, func() bool { return out }), "the naive agent must override")
}

// TestPenalty_OverloadHolds: no picks until RetryAfter is over, and no trip,
// in whatever phase it is said.
func TestPenalty_OverloadHolds(t *testing.T) {
	picked := func(g *rig, id string) bool {
		g.t.Helper()
		cut := false
		for _, c := range g.Explain(Request{Key: "key"}).Candidates {
			cut = cut || c.ID == id && c.Cut == reasonNames[cutOverload]
		}
		for i := range 100 {
			c, err := g.Pick(fmt.Sprint("key", i))
			require.NoError(t, err)
			c.Cancel()
			require.False(t, cut && c.ID() == id, "Explain cuts it, Pick takes it")
		}
		return !cut
	}
	for _, tt := range []struct {
		name    string
		prepare func(g *rig)
	}{
		{"healthy", func(g *rig) {}},
		{"observed", func(g *rig) { g.fails("w0", 1) }},
		{"early in probation", func(g *rig) { g.fails("w0", 3); g.pass(1100 * time.Millisecond); g.answers("w0", 1) }},
		{"late in probation", func(g *rig) {
			g.fails("w0", 3)
			g.pass(1100 * time.Millisecond)
			for range 99 {
				g.answers("w0", 1)
				g.pass(100 * time.Millisecond)
			}
			require.Equal(t, Probation, g.phase("w0"))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// Neither slowness nor a rate is to keep it observed.
			g := newRig(t, 3, rigTuning(func(t *Tuning) { t.SlowRatio, t.ErrorRateHigh = 100, 1 }))
			tt.prepare(g)
			trips := g.Status().Trips
			others := []Choice{g.start("w0"), g.start("w0")}
			g.start("w0").DoneWith(Outcome{Verdict: Overload, RetryAfter: 20 * time.Second})
			for i := range 19 {
				require.False(t, picked(g, "w0"), "%d s after an Overload of 20 s, in %v", i, g.phase("w0"))
				if i < len(others) {
					others[i].Done(nil) // an answer that was on its way ends nothing
				}
				g.pass(time.Second)
			}
			require.False(t, picked(g, "w0"))
			g.pass(1100 * time.Millisecond)
			require.True(t, picked(g, "w0"), "after RetryAfter")
			require.Equal(t, trips, g.Status().Trips)
			g.answers("w0", 1)
		})
	}
	t.Run("nor by low scores", func(t *testing.T) {
		const n = 60 // enough for scores under 40, see TestPenalty_ThreeLowScoresTrip
		g := newRig(t, n)
		serve := func(o Outcome) {
			for i := range n {
				if id := fmt.Sprint("w", i); id != "w7" {
					g.answers(id, 1)
				}
			}
			for range 5 {
				g.start("w7").DoneWith(o)
			}
			g.pass(100 * time.Millisecond)
		}
		for range 30 {
			serve(Outcome{RTT: time.Millisecond})
		}
		for range 30 {
			serve(Outcome{Verdict: Overload})
		}
		require.Less(t, g.Status().Workers[7].Read.Score, 40.0)
		require.Zero(t, g.Status().Trips)
		for range 30 {
			serve(Outcome{Verdict: Overload, RetryAfter: 500 * time.Millisecond})
		}
		require.Zero(t, g.Status().Trips)
	})
	t.Run("many trip nothing", func(t *testing.T) {
		g := newRig(t, 3)
		for range 50 {
			g.start("w0").DoneWith(Outcome{Verdict: Overload})
		}
		require.Zero(t, g.Status().Trips)
		require.Equal(t, Observed, g.phase("w0"))
		require.Greater(t, g.latency("w0", laneRead), 20*time.Millisecond, "it costs as a failure does")
	})
}
