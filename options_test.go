package ringwise

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// I18: each hostile option is refused by its name.
func TestNew_NamesTheOption(t *testing.T) {
	many := func(n int, o Option) (opts []Option) {
		for range n {
			opts = append(opts, o)
		}
		return opts
	}
	bad := labTuned(func(t *Tuning) { t.Temperature, t.RampSteps = -1, 99 })
	nan := labTuned(func(t *Tuning) { t.MaxOut = math.NaN() })
	for _, c := range []struct {
		name  string
		opts  []Option
		field string // empty: it is fine
	}{
		{"nil option", []Option{WithReplicas(2), nil}, "Option[1]"},
		{"replicas 0", []Option{WithReplicas(0)}, "WithReplicas"},
		{"replicas 17", []Option{WithReplicas(17)}, "WithReplicas"},
		{"replicas -1", []Option{WithReplicas(-1)}, "WithReplicas"},
		{"replicas 16", []Option{WithReplicas(16)}, ""},
		{"points 0", []Option{WithPoints(0)}, "WithPoints"},
		{"points -1", []Option{WithPoints(-1)}, "WithPoints"},
		{"points 65537", []Option{WithPoints(65537)}, "WithPoints"},
		{"huge points", []Option{WithPoints(math.MaxInt)}, "WithPoints"},
		{"points 1", []Option{WithPoints(1)}, ""},
		{"points 65536", []Option{WithPoints(65536)}, ""},
		{"nil locator", []Option{WithLocator(nil)}, "WithLocator"},
		{"nil scorer", []Option{WithScorer(nil, 1)}, "WithScorer"},
		{"scorer of NaN", []Option{WithScorer(labScorer{}, math.NaN())}, "WithScorer weight"},
		{"scorer of Inf", []Option{WithScorer(labScorer{}, math.Inf(1))}, "WithScorer weight"},
		{"scorer of -1", []Option{WithScorer(labScorer{}, -1)}, "WithScorer weight"},
		{"scorer of 1001", []Option{WithScorer(labScorer{}, 1001)}, "WithScorer weight"},
		{"scorer of 0", []Option{WithScorer(labScorer{}, 0)}, ""},
		{"8 scorers", many(8, WithScorer(labScorer{}, 1)), ""},
		{"9 scorers", many(9, WithScorer(labScorer{}, 1)), "WithScorer"},
		{"nil filter", []Option{WithFilter(nil)}, "WithFilter"},
		{"64 filters", many(64, WithFilter(lastFilter{})), ""},
		{"65 filters", many(65, WithFilter(lastFilter{})), "WithFilter"},
		{"nil picker", []Option{WithPicker(nil)}, "WithPicker"},
		{"nil classifier", []Option{WithClassifier(nil)}, "WithClassifier"},
		{"nil quota", []Option{WithQuota(nil)}, "WithQuota"},
		{"nil clock", []Option{WithClock(nil)}, "WithClock"},
		{"nil random", []Option{WithRand(nil)}, "WithRand"},
		{"no hooks", []Option{WithHooks(Hooks{})}, ""},
		{"names", []Option{WithName(""), WithLocalZone("")}, ""},
		{"bad tuning", []Option{WithTuning(bad)}, "Tuning.Temperature"},
		{"zero tuning", []Option{WithTuning(Tuning{})}, "Tuning"},
		{"tuning of NaN", []Option{WithTuning(nan)}, "Tuning.MaxOut"},
		{"sample over 1", []Option{WithDecisionSample(1.1, 1)}, "WithDecisionSample share"},
		{"sample of NaN", []Option{WithDecisionSample(math.NaN(), 1)}, "WithDecisionSample share"},
		{"sample keeps 0", []Option{WithDecisionSample(1, 0)}, "WithDecisionSample keep"},
		{"sample keeps 4097", []Option{WithDecisionSample(1, 4097)}, "WithDecisionSample keep"},
		{"sample of nothing", []Option{WithDecisionSample(0, 1)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := New(labNamed("a", "b"), c.opts...)
			if c.field == "" {
				require.NoError(t, err)
				for range 50 {
					if c, err := r.Pick("k"); err == nil {
						c.Done(nil)
					}
				}
				return
			}
			bad, ok := errors.AsType[*ConfigError](err)
			require.True(t, ok, "%v", err)
			assert.Nil(t, r)
			assert.ErrorIs(t, err, ErrConfig)
			assert.Equal(t, c.field, bad.Field)
			assert.NotEmpty(t, bad.Want)
			assert.Contains(t, err.Error(), c.field)
		})
	}
}

// More candidates asked for than there are: all there are.
func TestNew_MoreReplicasThanWorkers(t *testing.T) {
	for n := range 5 {
		l := newLab(t, labWorkers("w", n), WithReplicas(16))
		assert.Len(t, l.Explain(Request{Key: "k", Intent: Read}).Candidates, n)
	}
}

// The total of points is bounded, and refused before anything is built.
func TestNew_BoundedBuild(t *testing.T) {
	ws := labWorkers("w", 300)
	for i := range ws {
		ws[i].Weight = MaxWeight
	}
	_, err := New(ws)
	bad, ok := errors.AsType[*ConfigError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, "Points", bad.Field)
	for _, name := range []string{"Workers", "Weight", "300 workers"} { // none of them set Points
		assert.Contains(t, bad.Want, name)
	}
	if labRaced {
		return // the rest is a matter of memory, not of order
	}
	r, err := New(labWorkers("w", MaxWorkers), WithPoints(1))
	require.NoError(t, err, "as many workers as there may be")
	c, err := r.Pick("k")
	require.NoError(t, err)
	c.Done(nil)
	assert.ErrorIs(t, r.SetTopology(Topology{Workers: labWorkers("w", MaxWorkers+1)}), ErrConfig)
	require.NoError(t, r.SetTopology(Topology{Workers: labWorkers("x", MaxWorkers)}), "all replaced: their slots are used again")
	assert.Len(t, r.snap.Load().nodes, MaxWorkers)
}

// I18: New of anything ends, with a router that works or an error that names
// what is wrong.
func FuzzNew(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 0))
	for range 16 {
		b := make([]byte, 120)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		f.Add(b)
	}
	f.Add([]byte{})
	numbers := []float64{0, 1, -1, 0.5, MaxWeight, math.NaN(), math.Inf(1), math.Inf(-1), 1e-300, 1e300, 1001, 17, 16}
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func() (b int) {
			if len(data) > 0 {
				b, data = int(data[0]), data[1:]
			}
			return b
		}
		number := func() float64 {
			if b := next(); b < 200 {
				return numbers[b%len(numbers)]
			}
			var bits [8]byte
			for i := range bits {
				bits[i] = byte(next())
			}
			return math.Float64frombits(binary.LittleEndian.Uint64(bits[:]))
		}
		whole := func() int { return int(max(min(number(), 1e9), -1e9)) }
		var ws []Worker
		for range next() % 8 {
			w := Worker{ID: fmt.Sprint("w", next()%16), Weight: 1, Role: Role(next() % 5), IO: IOClass(next() % 5)}
			switch next() % 6 {
			case 0:
				w.Weight = number()
			case 1:
				w.ID = ""
			case 2:
				w.Zone, w.Incarnation = "z", uint64(next())
			}
			ws = append(ws, w)
		}
		tune := DefaultTuning()
		var opts []Option
		for range next() % 5 {
			switch next() % 12 {
			case 0:
				opts = append(opts, WithReplicas(whole()))
			case 1:
				opts = append(opts, WithPoints(whole()))
			case 2:
				opts = append(opts, WithScorer(labScorer{}, number()))
			case 3:
				opts = append(opts, WithDecisionSample(number(), whole()))
			case 4:
				tune.Temperature, tune.MinShare = number(), number()
				opts = append(opts, WithTuning(tune))
			case 5:
				tune.MaxOut, tune.RampSteps = number(), whole()
				opts = append(opts, WithTuning(tune))
			case 6:
				opts = append(opts, WithSeed(uint64(next())))
			case 7:
				opts = append(opts, WithPicker([]Picker{SmoothWeighted{}, RoundRobin{}, Highest{}, TwoChoices{}, nil}[next()%5]))
			case 8:
				opts = append(opts, WithLocalZone("z"))
			case 9:
				opts = append(opts, nil)
			case 10:
				opts = append(opts, WithRand(rnd.Uint64))
			case 11:
				opts = append(opts, WithFilter(lastFilter{}))
			}
		}
		r, err := New(ws, opts...)
		if err != nil {
			if r != nil || !errors.Is(err, ErrConfig) {
				t.Fatalf("%v, %v", r, err)
			}
			if bad, ok := errors.AsType[*ConfigError](err); !ok || bad.Field == "" || bad.Want == "" {
				t.Fatalf("%v names no field", err)
			}
			return
		}
		before := r.snap.Load()
		for i := range 20 {
			c, err := r.Route(Request{Key: fmt.Sprint(i), Intent: Read})
			if err != nil && !errors.Is(err, ErrNoWorker) {
				t.Fatal(err)
			}
			if err == nil && c.ID() == "" {
				t.Fatal("a choice that names nobody")
			}
			r.Observe(c, time.Millisecond, nil)
		}
		ws = append(ws, Worker{Weight: -1})
		if r.SetTopology(Topology{Workers: ws}) == nil || before.ring != r.snap.Load().ring {
			t.Fatal("a bad set was taken")
		}
	})
}

func TestCase_028_RouterSeedSpreadsCraftedKeys(t *testing.T) {
	ws := labWorkers("w", 10)
	first := func(l *lab, key string) string {
		for _, c := range l.Explain(Request{Key: key, Intent: Read}).Candidates {
			return c.ID
		}
		return ""
	}
	open := newLab(t, ws)
	var crafted []string
	for i := 0; len(crafted) < 1000; i++ {
		if key := fmt.Sprint("key", i); first(open, key) == "w0" {
			crafted = append(crafted, key)
		}
	}
	check := func(first func(key string) string) error {
		n := map[string]int{}
		for _, key := range crafted {
			n[first(key)]++
		}
		for id, k := range n {
			if k > 300 {
				return fmt.Errorf("%s is first for %d of 1000 keys crafted against w0", id, k)
			}
		}
		return nil
	}
	secret := newLab(t, ws, WithSeed(0x5eed_5eed_5eed))
	require.NoError(t, check(func(key string) string { return first(secret, key) }))
	require.NoError(t, check(func(key string) string { // also where the key came as a hash, or as bytes
		return candidatesIn(secret.Explain(Request{Hash: HashOf(key), Intent: Read}))[0]
	}))
	require.NoError(t, check(func(key string) string {
		return candidatesIn(secret.Explain(Request{KeyBytes: []byte(key), Intent: Read}))[0]
	}))
	// The same on the short way through a pick.
	one := newLab(t, ws, WithSeed(0x5eed_5eed_5eed), WithReplicas(1))
	for name, q := range map[string]func(key string) Request{
		"key":   func(key string) Request { return Request{Key: key} },
		"bytes": func(key string) Request { return Request{KeyBytes: []byte(key)} },
		"hash":  func(key string) Request { return Request{Hash: HashOf(key)} },
	} {
		require.NoError(t, check(func(key string) string {
			c, err := one.Route(q(key))
			require.NoError(t, err)
			defer c.Cancel()
			return c.ID()
		}), name)
	}
	require.NoError(t, check(func(key string) string {
		c, err := one.Pick(key)
		require.NoError(t, err)
		defer c.Cancel()
		require.Equal(t, candidatesIn(one.Explain(Request{Key: key})), []string{c.ID()}, "all ways agree")
		return c.ID()
	}))
	require.Error(t, check(func(key string) string { return first(open, key) }), "the fault: a fixed seed")
}

func TestCase_047_RoutersShareNothing(t *testing.T) {
	// Two clients of two clusters that name their workers alike.
	check := func(set func(client int, ws []Worker), down func(client int, id string), pick func(client int) Worker) error {
		set(0, []Worker{{ID: "a", Addr: "0"}, {ID: "b", Addr: "0"}})
		set(1, []Worker{{ID: "a", Addr: "1"}, {ID: "b", Addr: "1"}, {ID: "c", Addr: "1"}})
		down(0, "a")
		seen := map[string]bool{}
		for i := range 300 {
			client := i % 2
			w := pick(client)
			if w.Addr != fmt.Sprint(client) {
				return fmt.Errorf("client %d was given %+v", client, w)
			}
			if client == 0 && w.ID == "a" {
				return errors.New("client 0 was given a, which is Down there")
			}
			seen[w.Addr+w.ID] = true
		}
		if len(seen) != 4 {
			return fmt.Errorf("used are %v, want b of client 0 and all of client 1", seen)
		}
		return nil
	}
	ls := []*lab{newLab(t, nil), newLab(t, nil, WithPicker(Random{}), WithFilter(labFilter(func(v *View, m *Mask) {})))}
	require.NoError(t, check(
		func(client int, ws []Worker) { require.NoError(t, ls[client].SetTopology(Topology{Workers: ws})) },
		func(client int, id string) { ls[client].SetState(id, Down) },
		func(client int) Worker {
			c, err := ls[client].Pick("k")
			require.NoError(t, err)
			defer ls[1-client].Observe(c, time.Millisecond, nil) // closed where it was made, whoever is asked
			return c.Worker()
		}))
	for _, l := range ls {
		st := l.Status()
		assert.Zero(t, l.inFlight())
		assert.EqualValues(t, 150, st.Picks)
		assert.Zero(t, st.DoubleDone)
	}

	// The fault: one selector for the whole process.
	var global []Worker
	isDown, i := map[string]bool{}, 0
	require.Error(t, check(func(_ int, ws []Worker) { global = append(global, ws...) },
		func(_ int, id string) { isDown[id] = true },
		func(int) Worker {
			for {
				i++
				if w := global[i%len(global)]; !isDown[w.ID] {
					return w
				}
			}
		}))
}

func TestCase_077_UnknownNamesAreCountedNoOps(t *testing.T) {
	check := func(calls map[string]func(id string), counted func() uint64) (err error) {
		for name, call := range calls {
			for _, id := range []string{"nobody", "", "\x00"} {
				before := counted()
				func() {
					defer func() {
						if p := recover(); p != nil {
							err = fmt.Errorf("%s(%q) panics: %v", name, id, p)
						}
					}()
					call(id)
				}()
				if err == nil && counted() != before+1 {
					err = fmt.Errorf("%s(%q) was not counted", name, id)
				}
			}
		}
		return err
	}
	l := newLab(t, labNamed("a"))
	sn := l.snap.Load()
	require.NoError(t, check(map[string]func(id string){
		"SetState":      func(id string) { assert.False(t, l.SetState(id, Down)) },
		"StartWorker":   func(id string) { l.StartWorker(id) },
		"ObserveWorker": func(id string) { l.ObserveWorker(id, time.Millisecond, nil) },
		"Start": func(id string) {
			_, err := l.Start(Request{}, id)
			assert.ErrorIs(t, err, ErrNoWorker)
		},
		"Report": func(id string) {
			assert.ErrorIs(t, l.Report(Report{Worker: id, Time: l.clock.peek()}), ErrReport)
		},
	}, func() uint64 { return l.Status().UnknownIDs + l.Status().Reports["unknown worker"] }))
	assert.False(t, l.SetState("a", Draining+1), "no such state")
	now := l.snap.Load()
	assert.Equal(t, sn.nodes, now.nodes, "nothing changed")
	assert.Equal(t, sn.reports, now.reports)
	assert.Equal(t, "up", l.Status().Workers[0].State)
	l.Observe(Choice{}, time.Millisecond, nil)
	Choice{}.Done(nil)
	Choice{}.Cancel()
	Choice{}.FirstByte()
	Choice{}.Extend()
	assert.Empty(t, Choice{}.ID()+Choice{}.Addr()+Choice{}.Worker().ID)
	assert.True(t, Choice{}.IsZero())
	assert.Equal(t, Ref{}, Choice{}.Ref())

	// The fault: a map of statistics that new workers are not in yet.
	stats := map[string]*struct{ n int }{"a": {}}
	require.Error(t, check(map[string]func(id string){"observe": func(id string) { stats[id].n++ }}, func() uint64 { return 0 }))
}

func TestCase_128_NothingToChooseFrom(t *testing.T) {
	check := func(pick func(ws []Worker, key []byte) (string, error)) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
			}
		}()
		for _, ws := range [][]Worker{nil, {}, labNamed("a")} {
			for _, key := range [][]byte{nil, {}, []byte("k")} {
				id, err := pick(ws, key)
				switch good := len(ws) > 0 && len(key) > 0; {
				case good != (err == nil):
					return fmt.Errorf("%d workers, key %q: %q, %v", len(ws), key, id, err)
				case good && id != "a", !good && id != "":
					return fmt.Errorf("%d workers, key %q: %q", len(ws), key, id)
				case err != nil && !errors.Is(err, ErrNoWorker) && !errors.Is(err, ErrConfig):
					return fmt.Errorf("%d workers, key %q: %w is of no type", len(ws), key, err)
				}
			}
		}
		return nil
	}
	require.NoError(t, check(func(ws []Worker, key []byte) (string, error) {
		c, err := newLab(t, ws).Route(Request{KeyBytes: key})
		return c.ID(), err
	}))
	require.NoError(t, check(func(ws []Worker, key []byte) (string, error) {
		c, err := newLab(t, ws).Pick(string(key))
		return c.ID(), err
	}))
	require.NoError(t, check(func(ws []Worker, key []byte) (string, error) { // emptied while running
		l := newLab(t, labNamed("a", "b"))
		require.NoError(t, l.SetTopology(Topology{Workers: ws}))
		c, err := l.Route(Request{KeyBytes: key})
		return c.ID(), err
	}))
	// The fault: the position taken modulo the number of hosts.
	require.Error(t, check(func(ws []Worker, key []byte) (string, error) {
		return ws[int(HashBytes(key)>>1)%len(ws)].ID, nil
	}))
}
