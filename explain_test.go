package ringwise

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// leaves visits every number and address in a value, however deep and private.
// Pointers are followed once; texts, and what is never written, are left out.
func leaves(v reflect.Value, path func() string, seen map[uintptr]bool, visit func(path func() string, x uint64)) {
	switch v.Kind() {
	case reflect.Struct:
		switch v.Type() {
		case reflect.TypeFor[View](), reflect.TypeFor[time.Time](), reflect.TypeFor[Ring]():
			return
		}
		for i := range v.NumField() {
			leaves(v.Field(i), func() string { return path() + "." + v.Type().Field(i).Name }, seen, visit)
		}
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			leaves(v.Index(i), func() string { return fmt.Sprintf("%s[%d]", path(), i) }, seen, visit)
		}
	case reflect.Map, reflect.Chan:
		visit(path, uint64(v.Len()))
	case reflect.Pointer:
		if !v.IsNil() && !seen[v.Pointer()] {
			seen[v.Pointer()] = true
			leaves(v.Elem(), path, seen, visit)
		}
		visit(path, uint64(v.Pointer()))
	case reflect.UnsafePointer:
		visit(path, uint64(v.Pointer()))
	case reflect.Uint64, reflect.Uint32, reflect.Uint16, reflect.Uint8, reflect.Uint:
		visit(path, v.Uint())
	case reflect.Int64, reflect.Int32, reflect.Int16, reflect.Int8, reflect.Int:
		visit(path, uint64(v.Int()))
	case reflect.Float64, reflect.Float32:
		visit(path, math.Float64bits(v.Float()))
	case reflect.Bool:
		if v.Bool() {
			visit(path, 1)
		} else {
			visit(path, 0)
		}
	}
}

// everything visits the state of a router: its own, its snapshot's, its
// workers'.
func (s *stand) everything(visit func(path func() string, x uint64)) {
	seen := map[uintptr]bool{}
	leaves(reflect.ValueOf(s.Router), func() string { return "router" }, seen, visit)
	leaves(reflect.ValueOf(s.snap.Load()), func() string { return "snapshot" }, seen, visit)
}

// changes names what f changes of a router's state, which has size numbers.
func (s *stand) changes(f func()) (diff []string, size int) {
	var before []uint64
	s.everything(func(_ func() string, x uint64) { before = append(before, x) })
	f()
	i := 0
	s.everything(func(path func() string, x uint64) {
		if i >= len(before) || before[i] != x {
			diff = append(diff, fmt.Sprintf("%s: now %d", path(), x))
		}
		i++
	})
	return diff, len(before)
}

func TestLeaves_SeeWhatAPickChanges(t *testing.T) {
	s := newStand(t, 1, numberedWorkers(3))
	diff, _ := s.changes(func() { s.route(Request{Key: "k"}) })
	assert.Contains(t, strings.Join(diff, "\n"), ".issued.v: now 1")
	diff, _ = s.changes(func() { s.counters.relaxed.Add(1) })
	assert.Equal(t, []string{"router.hub.counters.relaxed.v: now 1"}, diff)
}

// The states in which Explain is held against Pick.
var explainStates = []struct {
	name   string
	opts   []Option
	tune   func(tu *Tuning)
	set    func(s *stand)
	q      Request
	opaque bool                           // no probabilities can be known
	check  func(t *testing.T, d Decision) // beyond the distribution
}{
	{name: "idle"},
	{name: "trained", set: func(s *stand) { s.scramble(rand.New(rand.NewPCG(1, 26))) }},
	{name: "trained, writes", set: func(s *stand) { s.scramble(rand.New(rand.NewPCG(3, 26))) }, q: Request{Intent: Write}},
	{name: "exponent not whole", tune: func(tu *Tuning) { tu.Temperature = 3 }, set: func(s *stand) { s.scramble(rand.New(rand.NewPCG(2, 26))) }},
	{name: "in flight", set: func(s *stand) { s.StartWorker("w00"); s.StartWorker("w01"); s.StartWorker("w01") }},
	{name: "observed", set: func(s *stand) { s.setPenalty("w00", penalty(0).setPhase(Observed)) },
		check: func(t *testing.T, d Decision) {
			c := candidate(d, "w00")
			assert.Equal(t, 0.85, c.Factor)
			assert.Equal(t, "observed", c.Phase)
			assert.Contains(t, d.String(), "observed x 0.85")
		}},
	{name: "two ramping", set: func(s *stand) {
		s.setPenalty("w00", penalty(0).setPhase(Probation).setSuccesses(1).setAt(s.now()))
		s.setPenalty("w01", penalty(0).setPhase(Probation).setSuccesses(3).setAt(s.now()-int64(5*time.Second)))
	}, check: func(t *testing.T, d Decision) {
		assert.True(t, d.Ramp)
		assert.Contains(t, d.String(), ", ramp")
		assert.InDelta(t, 0.2, candidate(d, "w00").Factor, 1e-9)
		assert.InDelta(t, 0.6, candidate(d, "w01").Factor, 1e-9)
		assert.LessOrEqual(t, candidate(d, "w00").Probability, 0.2/4+1e-9, "held to its share of an even split")
	}},
	{name: "one probe free", set: func(s *stand) { s.setPenalty("w00", penalty(0).setPhase(Cooldown).setAt(s.now()-2e6)) },
		check: func(t *testing.T, d Decision) { assert.True(t, d.Ramp) }},
	{name: "one out", set: func(s *stand) { s.setPenalty("w00", penalty(0).setPhase(Cooldown).setAt(s.now()+int64(time.Second))) },
		check: func(t *testing.T, d Decision) {
			assert.Equal(t, "is in cooldown", candidate(d, "w00").Cut)
			assert.Zero(t, candidate(d, "w00").Probability)
			assert.Contains(t, d.String(), "cut: is in cooldown")
			assert.False(t, d.Panic)
		}},
	{name: "all but one out: panic", set: func(s *stand) {
		for i, id := range []string{"w00", "w01", "w02"} {
			s.setPenalty(id, penalty(0).setPhase(Cooldown).setAt(s.now()+int64(i+1)*1e9))
		}
	}, check: func(t *testing.T, d Decision) {
		assert.True(t, d.Panic)
		assert.Equal(t, "penalty", d.Relaxed)
		assert.Equal(t, 0.2, candidate(d, "w00").Factor, "the one whose time is up first is let in")
		assert.Contains(t, d.String(), ", relaxed penalty, panic")
	}},
	{name: "overload", set: func(s *stand) {
		s.state("w00").retryAt.Store(s.now() + 1e9)
		s.setPenalty("w00", penalty(0).setPhase(Observed))
	}, check: func(t *testing.T, d Decision) {
		assert.Equal(t, "asked for no requests yet", candidate(d, "w00").Cut)
	}},
	{name: "down", set: func(s *stand) { s.SetState("w01", Down) },
		check: func(t *testing.T, d Decision) { assert.Equal(t, "is down", candidate(d, "w01").Cut) }},
	{name: "draining", set: func(s *stand) { s.SetState("w01", Draining) }},
	{name: "all draining: relaxed", set: func(s *stand) {
		for i := range 4 {
			s.SetState(fmt.Sprintf("w%02d", i), Draining)
		}
	}, check: func(t *testing.T, d Decision) {
		assert.Equal(t, "draining", d.Relaxed)
		assert.Contains(t, d.String(), ", relaxed draining)")
	}},
	{name: "stale report", set: func(s *stand) {
		for i := range 4 {
			if err := s.Report(Report{Worker: fmt.Sprintf("w%02d", i), Time: s.time()}); err != nil {
				panic(err)
			}
		}
		s.maintain(6 * time.Second)
	}, check: func(t *testing.T, d Decision) {
		assert.Equal(t, "stale", d.Relaxed)
		assert.True(t, candidate(d, "w00").Stale)
		assert.Contains(t, d.String(), " stale\n")
	}},
	{name: "topology past its TTL", set: func(s *stand) {
		if err := s.SetTopology(Topology{Version: 7, TTL: time.Second, Workers: numberedWorkers(4)}); err != nil {
			panic(err)
		}
		s.maintain(2 * time.Second)
		s.setLatency("w02", time.Millisecond) // confirmed by an answer
		s.Maintain(s.time())
	}, check: func(t *testing.T, d Decision) {
		assert.True(t, d.LowConfidence)
		assert.EqualValues(t, 7, d.TopologyVersion)
		assert.Equal(t, 0.5, candidate(d, "w00").Factor)
		assert.Equal(t, 1.0, candidate(d, "w02").Factor)
		assert.Contains(t, d.String(), ", topology past its TTL)")
	}},
	{name: "extreme costs: clamped", set: func(s *stand) {
		s.nextFold.Store(math.MaxInt64)
		s.setLatencyNS("w00", 1)
		s.setLatencyNS("w01", 1e30)
		s.setLatencyNS("w02", 1e30)
		s.setLatencyNS("w03", 1.1)
	}, check: func(t *testing.T, d Decision) {
		c := candidate(d, "w01")
		assert.True(t, c.Clamped)
		assert.Zero(t, c.Score)
		assert.Equal(t, 100.0, candidate(d, "w00").Score)
		assert.Contains(t, d.String(), " clamped")
	}},
	{name: "minimum share", tune: func(tu *Tuning) { tu.MinShare = 0.02 }, set: func(s *stand) {
		s.setLatency("w00", 5*time.Millisecond)
		s.setPenalty("w01", penalty(0).setPhase(Observed))
	}, check: func(t *testing.T, d Decision) {
		assert.InDelta(t, 0.02, candidate(d, "w00").Probability, 0.001)
	}},
	{name: "feedback", set: func(s *stand) {
		for i := range 4 {
			c, err := s.Start(Request{}, fmt.Sprintf("w%02d", i))
			if err != nil {
				panic(err)
			}
			c.DoneWith(Outcome{RTT: time.Millisecond, Feedback: Feedback{InService: float64(i), ServiceTime: time.Millisecond}})
		}
		s.step(time.Millisecond)
		s.maintain(100 * time.Millisecond)
	}},
	{name: "health flags and zone", opts: []Option{WithLocalZone("here")}, tune: func(tu *Tuning) { tu.ZoneCost = 1.1 }, set: func(s *stand) {
		if err := s.Report(Report{Worker: "w00", Time: s.time(), Compacting: Some(true)}); err != nil {
			panic(err)
		}
	}, check: func(t *testing.T, d Decision) {
		assert.Contains(t, d.String(), "health flags and zone (cost x 1.57) -4.5")
	}},
	{name: "scorers", opts: []Option{
		WithScorer(byID(map[string]float64{"w00": 100, "w01": 40}), 0.3),
		WithScorer(byID(map[string]float64{"w02": math.NaN(), "w03": 10}), 0.01),
	}, tune: func(tu *Tuning) { tu.Temperature = 5 }, set: func(s *stand) { s.setLatency("w03", 2*time.Millisecond) }},
	{name: "scorers without live cost", opts: []Option{WithScorer(byID(map[string]float64{"w00": 71, "w01": 70}), 2)},
		tune: func(tu *Tuning) { tu.LiveWeight = 0 },
		set:  func(s *stand) { s.setPenalty("w01", penalty(0).setPhase(Observed)) }},
	{name: "a filter and a quota", opts: []Option{
		WithFilter(filterFunc(func(v *View, m *Mask) {
			for i := range v.Len() {
				if v.Worker(i).ID == "w00" {
					m.Clear(i)
				}
			}
		})),
		WithQuota(func(_ string, w *Worker) bool { return w.ID != "w01" }),
	}, q: Request{Tenant: "t"}, check: func(t *testing.T, d Decision) {
		assert.Equal(t, "was cut by filter func", candidate(d, "w00").Cut)
		assert.Equal(t, "has no quota left for the tenant", candidate(d, "w01").Cut)
	}},
	{name: "softmax by name", opts: []Option{WithPicker(Softmax{})}, set: func(s *stand) {
		s.setLatency("w00", 1200*time.Microsecond)
		s.setPenalty("w01", penalty(0).setPhase(Observed))
	}},
	{name: "random", opts: []Option{WithPicker(Random{})}, set: func(s *stand) { s.setLatency("w00", time.Second) }},
	{name: "weighted random", opts: []Option{WithPicker(WeightedRandom{})}, set: func(s *stand) {
		ws := numberedWorkers(4)
		ws[1].Weight, ws[2].Weight = 3, 0.5
		if err := s.SetTopology(Topology{Workers: ws}); err != nil {
			panic(err)
		}
		s.setPenalty("w01", penalty(0).setPhase(Observed))
	}},
	{name: "a picker that is switched off", opts: []Option{WithPicker(pickerFunc(func(*View) int { panic("off") }))}, set: func(s *stand) {
		for range plugMaxPanics {
			s.route(Request{Key: "k"}).Cancel()
		}
		s.setLatencyNS("w00", 1)
		s.setLatencyNS("w01", 2)
		s.setPenalty("w02", penalty(0).setPhase(Probation).setSuccesses(1).setAt(s.now()))
	}},
	{name: "smooth weighted", opts: []Option{WithPicker(SmoothWeighted{})}, opaque: true},
	{name: "round robin", opts: []Option{WithPicker(RoundRobin{})}, opaque: true},
	{name: "a picker of the caller's", opts: []Option{WithPicker(pickerFunc(func(*View) int { return 0 }))}, opaque: true},
	{name: "random, thinned before", opts: []Option{WithPicker(Random{})},
		set: func(s *stand) { s.setPenalty("w01", penalty(0).setPhase(Observed)) }, opaque: true},
	{name: "pinned", q: Request{Intent: Pinned}, check: func(t *testing.T, d Decision) {
		assert.Equal(t, 1.0, d.Candidates[0].Probability)
	}},
	{name: "pinned, a picker of the caller's", opts: []Option{WithPicker(pickerFunc(func(*View) int { return 0 }))}, q: Request{Intent: Pinned},
		check: func(t *testing.T, d Decision) {
			assert.Equal(t, 1.0, d.Candidates[0].Probability)
			assert.Equal(t, d.Candidates[0].ID, d.Chosen)
		}},
	{name: "many candidates", opts: []Option{WithReplicas(MaxCandidates)}, set: func(s *stand) {
		if err := s.SetTopology(Topology{Workers: numberedWorkers(20)}); err != nil {
			panic(err)
		}
		s.scramble(rand.New(rand.NewPCG(4, 26)))
	}},
}

func candidate(d Decision, id string) Candidate {
	for _, c := range d.Candidates {
		if c.ID == id {
			return c
		}
	}
	return Candidate{}
}

func explainStand(t *testing.T, i int) (*stand, Request) {
	c := explainStates[i]
	tu := DefaultTuning()
	if c.tune != nil {
		c.tune(&tu)
	}
	s := newStand(t, uint64(i), numberedWorkers(4), append([]Option{WithTuning(tu), WithReplicas(4)}, c.opts...)...)
	s.step(time.Minute)
	s.Maintain(s.time())
	if c.set != nil {
		c.set(s)
	}
	s.nextFold.Store(math.MaxInt64)
	q := c.q
	q.Key = "user:42"
	return s, q
}

// I26: what is picked 100,000 times in a state (20,000 in lesser ones) is what Explain says of it.
func TestExplain_TellsWhatPickDoes(t *testing.T) {
	for i, c := range explainStates {
		picks := 20_000
		switch c.name {
		case "idle", "trained", "observed", "two ramping", "all but one out: panic", "scorers", "extreme costs: clamped", "softmax by name":
			picks = 100_000
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, q := explainStand(t, i)
			d := s.Explain(q)
			if c.check != nil {
				c.check(t, d)
			}
			index, want, sum := map[string]int{}, []float64{}, 0.0
			for k, x := range d.Candidates {
				index[x.ID], want, sum = k, append(want, x.Probability), sum+x.Probability
			}
			if c.opaque {
				assert.Zero(t, sum, "no probability is better than a wrong one: %v", d)
				assert.Empty(t, d.Chosen)
				return
			}
			require.InDelta(t, 1, sum, 1e-9)
			got := make([]int, len(want))
			restore := s.words()
			for range picks {
				x := s.route(q)
				got[index[x.ID()]]++
				restore(x.ID())
				s.salt = mix64(s.salt + 1) // or every draw would be the same
			}
			checkDistribution(t, c.name, got, want)
		})
	}
}

// And the one it names is the one a Pick at that moment takes.
func TestExplain_NamesTheNextPick(t *testing.T) {
	t.Parallel()
	for i, c := range explainStates {
		s, q := explainStand(t, i)
		if d := s.Explain(q); d.Chosen == "" {
			continue
		}
		restore := s.words()
		for range 300 {
			s.ns.Add(1)
			d, x := s.Explain(q), s.route(q)
			if d.Chosen != x.ID() {
				t.Fatalf("%s: picked %s, Explain said\n%v", c.name, x.ID(), d)
			}
			restore(x.ID())
		}
	}
	// Any draws its candidates afresh, so Explain must draw the same.
	s := newStand(t, 5, numberedWorkers(40))
	for range 300 {
		s.step(time.Microsecond)
		d := s.Explain(Request{Any: true})
		x := s.route(Request{Any: true})
		require.Equal(t, d.Chosen, x.ID(), "%v", d)
		s.Observe(x, time.Millisecond, nil)
	}
}

// I26: Explain reserves nothing, advances nothing, counts nothing.
func TestExplain_ChangesNothing(t *testing.T) {
	t.Parallel()
	check := func(name string, s *stand, qs ...Request) {
		t.Helper()
		s.now() // reading the clock is allowed, and seen
		for _, q := range qs {
			diff, size := s.changes(func() {
				for range 3 {
					s.Explain(q)
				}
			})
			if len(diff) > 0 {
				t.Errorf("%s, %+v:\n%s", name, q, strings.Join(diff, "\n"))
			}
			require.Greater(t, size, 1000, "a state worth comparing")
		}
	}
	for i, c := range explainStates {
		if c.name == "scorers" {
			continue // one of them is at fault, which is counted: see below
		}
		s, q := explainStand(t, i)
		check(c.name, s, q)
	}

	// Requests that fail, or whose candidates are drawn or named by callers.
	s := newStand(t, 1, numberedWorkers(30))
	refs := s.refs("w00", "w01")
	stale := refs[1]
	stale.gen++
	var many []Ref
	for i := range 20 {
		many = append(many, s.refs(fmt.Sprintf("w%02d", i))...)
	}
	s.SetState("w00", Down)
	check("odd requests", s, Request{}, Request{Any: true}, Request{Among: refs[:1]}, Request{Among: []Ref{stale}}, Request{Among: many},
		Request{Key: "k", Intent: intents + 1}, Request{Key: "k", Intent: StrongRead, MinVersion: 9})

	// A random source of the caller's is not asked.
	asked := 0
	s = newStand(t, 1, numberedWorkers(30), WithRand(func() uint64 { asked++; return 7 }))
	asked = 0
	check("WithRand", s, Request{Key: "k"}, Request{Any: true})
	assert.Zero(t, asked)

	// After Close it says so, and after other explanations too.
	s = newStand(t, 1, numberedWorkers(3))
	s.Explain(Request{Key: "k"})
	require.NoError(t, s.Close())
	for range 3 {
		d := s.Explain(Request{Key: "k"})
		assert.Equal(t, ErrClosed.Error(), d.Error)
		assert.Empty(t, d.Candidates)
		assert.Equal(t, "k", d.Key)
		assert.EqualValues(t, 1, d.TuningVersion)
	}
}

func TestExplain_NoWorker(t *testing.T) {
	s := newStand(t, 1, workersNamed("a", "b"))
	s.SetState("a", Down)
	s.SetState("b", Down)
	d := s.Explain(Request{Key: "k"})
	_, err := s.Route(Request{Key: "k"})
	require.ErrorIs(t, err, ErrNoWorker)
	assert.Equal(t, err.Error(), d.Error)
	assert.Empty(t, d.Chosen)
	assert.Len(t, d.Candidates, 2)
	assert.Contains(t, d.String(), "a                cut: is down\n")
	assert.Contains(t, s.Explain(Request{Key: "k", Intent: 77}).Error, "Request.Intent")
	assert.Contains(t, s.Explain(Request{}).Error, "Request.Key")
}

// The lines of live cost add up to its points, those of all columns, weighted,
// to the score.
func TestExplain_LinesAddUp(t *testing.T) {
	t.Parallel()
	for i, c := range explainStates {
		s, q := explainStand(t, i)
		tu := s.Tuning()
		for _, x := range s.Explain(q).Candidates {
			if x.Cut != "" || q.Intent == Pinned {
				continue
			}
			require.NotEmpty(t, x.Scores, "%s: %+v", c.name, x)
			total, weights := 0.0, 0.0
			for k, col := range x.Scores {
				total, weights = total+col.Weight*col.Points, weights+col.Weight
				if k > 0 {
					continue
				}
				assert.Equal(t, "live cost", col.Name)
				assert.Equal(t, tu.LiveWeight, col.Weight)
				sum := 0.0
				for _, l := range col.Lines {
					sum += l.Points
				}
				assert.InDelta(t, col.Points, sum, 1e-6, "%s: %+v", c.name, col)
				assert.InDelta(t, rawPoints(x.Cost), sum, 1e-6, "%s: cost %g", c.name, x.Cost)
			}
			want := 70.0
			if weights > 0 {
				want = total / weights
			}
			assert.InDelta(t, min(max(want, 0), 100), x.Score, 1e-6, "%s: %+v", c.name, x)
		}
	}
}

// lined is a scorer that can take its score apart.
type lined struct{ scorerFunc }

func (lined) Name() string { return "lined" }
func (lined) Lines(v *View, i int) []Line {
	return []Line{{"half", v.Worker(i).ID, 25}, {"rest", "", 15}}
}

func goldenStand(t *testing.T) (*stand, Request) {
	tu := DefaultTuning()
	s := newStand(t, 1, []Worker{{ID: "a", Role: RolePrimary}, {ID: "b"}, {ID: "c"}, {ID: "d"}}, WithTuning(tu), WithReplicas(4), WithName("orders"),
		WithScorer(lined{byID(map[string]float64{"a": 40, "b": 40, "c": 40, "d": 40})}, 1), WithRand(func() uint64 { return 1 << 60 }))
	require.NoError(t, s.SetTopology(Topology{Epoch: 2, Version: 5, Workers: s.snap.Load().topology.Workers}))
	s.step(90 * time.Second)
	s.Maintain(s.time())
	s.setLatency("a", 4*time.Millisecond)
	s.setLatency("b", 1500*time.Microsecond)
	s.StartWorker("c")
	s.setPenalty("b", penalty(0).setPhase(Observed))
	s.setPenalty("d", penalty(0).setPhase(Cooldown).setAt(s.now()+1e9))
	return s, Request{Key: "user:42", Intent: Read, Among: s.refs("a", "b", "c", "d")}
}

func TestDecision_StringGolden(t *testing.T) {
	s, q := goldenStand(t)
	want := `read 0000000000000000 key "user:42" -> b  (picker softmax, topology 2.5, tuning 1)
  a                p   0.85 %  score  48.1  latency 4ms        in flight 0    healthy
      live cost, weight 1: 56.1 = par (fleet mean cost with load 1ms) +70.0, latency (4ms) -13.9, in flight (0) +0.0
      lined, weight 1: 40.0 = half (a) +25.0, rest () +15.0
* b                p  97.49 %  score  53.0  latency 1.5ms      in flight 0    observed x 0.85
      live cost, weight 1: 65.9 = par (fleet mean cost with load 1ms) +70.0, latency (1.5ms) -4.1, in flight (0) +0.0
      lined, weight 1: 40.0 = half (b) +25.0, rest () +15.0
  c                p   1.66 %  score  48.7  latency 1ms        in flight 1    healthy
      live cost, weight 1: 57.5 = par (fleet mean cost with load 1ms) +70.0, latency (1ms) +0.0, in flight (1) -12.5
      lined, weight 1: 40.0 = half (c) +25.0, rest () +15.0
  d                cut: is in cooldown
`
	got := s.Explain(q).String()
	got = strings.Replace(got, s.Explain(q).Hash, "0000000000000000", 1)
	assert.Equal(t, want, got)
}

// slog carries the hash, never the key.
func TestDecision_SlogGolden(t *testing.T) {
	s, q := goldenStand(t)
	d := s.Explain(q)
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch {
		case a.Key == slog.TimeKey:
			return slog.Attr{}
		case a.Key == "hash" && a.Value.String() == d.Hash:
			a.Value = slog.StringValue("H")
		case a.Value.Kind() == slog.KindFloat64:
			a.Value = slog.StringValue(fmt.Sprintf("%.3g", a.Value.Float64()))
		}
		return a
	}}))
	log.Info("picked", "d", d)
	want := "level=INFO msg=picked d.intent=read d.hash=H d.chosen=b d.topology=5 d.tuning=1" +
		" d.a.p=0.00851 d.a.score=48.1 d.a.latency=4ms d.a.in_flight=0 d.a.phase=healthy d.a.factor=1 \"d.a.scores.live cost\"=56.1 d.a.scores.lined=40" +
		" d.b.p=0.975 d.b.score=53 d.b.latency=1.5ms d.b.in_flight=0 d.b.phase=observed d.b.factor=0.85 \"d.b.scores.live cost\"=65.9 d.b.scores.lined=40" +
		" d.c.p=0.0166 d.c.score=48.7 d.c.latency=1ms d.c.in_flight=1 d.c.phase=healthy d.c.factor=1 \"d.c.scores.live cost\"=57.5 d.c.scores.lined=40" +
		" d.d.cut=\"is in cooldown\"\n"
	assert.Equal(t, want, b.String())
	assert.NotContains(t, b.String(), "user:42")

	b.Reset()
	log.Info("x", "d", Decision{Error: "e", Relaxed: "draining,version", Panic: true, Ramp: true, LowConfidence: true})
	assert.Contains(t, b.String(), "d.error=e d.relaxed=draining,version d.panic=true d.ramp=true d.low_confidence=true")
}

func TestDecision_JSON(t *testing.T) {
	s, q := goldenStand(t)
	d := s.Explain(q)
	enc, err := json.Marshal(d)
	require.NoError(t, err)
	var back Decision
	require.NoError(t, json.Unmarshal(enc, &back))
	d.Time, back.Time = d.Time.UTC(), back.Time.UTC()
	assert.Equal(t, d, back)
	assert.Equal(t, "orders", d.Router)
	assert.Equal(t, s.time().UTC(), d.Time)
}

// Case 131: 15 s where 15 ms was meant. Every time in the API is a
// time.Duration or a time.Time, and what is printed has its unit.
func TestCase_131_DurationsHaveUnits(t *testing.T) {
	words := []string{"time", "latency", "rtt", "interval", "trust", "tau", "memory", "decay", "cooldown", "ramp", "after", "until", "age", "mean", "p50", "p95", "p99", "ttl", "start"}
	untyped := func(name string) bool { // figures that are no times
		switch name {
		case "GapMemory", "TrustIntervals", "CooldownJitter", "RampSteps", "FeedbackDecay", "MeanGain", "HedgeStart", "Storage", "Memory":
			return true
		case "Cooldown", "Ramp": // a count of workers; a flag
			return true
		}
		return strings.Contains(name, "Ratio") || strings.Contains(name, "Factor") || strings.Contains(name, "Weight") || strings.Contains(name, "Share")
	}
	ok := func(name string, typ reflect.Type) bool {
		lower := strings.ToLower(name)
		for _, w := range words {
			if !strings.Contains(lower, w) || untyped(name) {
				continue
			}
			return typ == reflect.TypeFor[time.Duration]() || typ == reflect.TypeFor[time.Time]() || typ == reflect.TypeFor[Opt[time.Duration]]() ||
				typ.Kind() == reflect.Struct || typ.Kind() == reflect.Uint8 || typ.Kind() == reflect.Bool
		}
		return true
	}
	require.False(t, ok("LatencyThreshold", reflect.TypeFor[float64]()), "the faulty design: a bare number")
	for _, x := range []any{Tuning{}, Request{}, Outcome{}, Feedback{}, Report{}, Topology{}, Transition{}, Candidate{}, Decision{}, Status{}, LaneStatus{}, WorkerStatus{}, WorkerLane{}, RTTStats{}} {
		typ := reflect.TypeOf(x)
		for i := range typ.NumField() {
			f := typ.Field(i)
			if f.IsExported() && !ok(f.Name, f.Type) {
				t.Errorf("%s.%s is a %v", typ.Name(), f.Name, f.Type)
			}
			// In JSON a Duration is a bare number, so its name has the unit,
			// as Tuning, which writes strings, need not.
			if tag := f.Tag.Get("json"); f.Type == reflect.TypeFor[time.Duration]() && (typ.Name() == "Candidate" || strings.HasSuffix(typ.Name(), "Status")) {
				assert.Contains(t, tag, "_ns", "%s.%s", typ.Name(), f.Name)
			}
		}
	}
	s, q := goldenStand(t)
	text := s.Explain(q).String()
	for _, want := range []string{"latency 4ms", "latency 1.5ms", "fleet mean cost with load 1ms", "latency (1.5ms)"} {
		assert.Contains(t, text, want)
	}
}

func TestExplain_NameIsAskedOnce(t *testing.T) {
	asked := 0
	p := namedPicker{&asked}
	s := newStand(t, 1, numberedWorkers(3), WithPicker(p))
	s.Explain(Request{Key: "k"})
	assert.Equal(t, 1, asked, "Name is the caller's code: it might panic the next time")
	assert.Equal(t, "named", s.Explain(Request{Key: "k"}).Picker)
}

type namedPicker struct{ asked *int }

func (p namedPicker) Name() string                   { *p.asked++; return "named" }
func (namedPicker) Pick(*View, []float64, *Rand) int { return 0 }

// TestExplain_PanickingLinesCostNoScorer: who takes a score apart badly still
// scores the picks.
func TestExplain_PanickingLinesCostNoScorer(t *testing.T) {
	g := newRig(t, 3, WithReplicas(3), WithScorer(badLines{byID(map[string]float64{"w0": 100})}, 1))
	for range 3 {
		g.Explain(Request{Key: "k"})
	}
	s := g.Status()
	require.Empty(t, s.PlugsOff)
	require.GreaterOrEqual(t, s.PlugPanics, uint64(9))
}

type badLines struct{ scorerFunc }

func (badLines) Lines(*View, int) []Line { panic("x") }
