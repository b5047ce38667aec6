package ringwise

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSample_KeepsWhatWasPicked(t *testing.T) {
	for _, o := range []struct {
		name string
		opts []Option
		set  func(s *stand)
		q    func(i int) Request
	}{
		{name: "short path"},
		{name: "long path", opts: []Option{WithReplicas(5)}},
		{name: "a picker", opts: []Option{WithPicker(RoundRobin{})}},
		{name: "a scorer", opts: []Option{WithScorer(byID(map[string]float64{"w00": 100}), 1)}},
		{name: "in penalty", set: func(s *stand) { s.setPenalty("w00", penalty(0).setPhase(Observed)) }},
		{name: "tried", q: func(i int) Request {
			var tried Tried
			return Request{Key: fmt.Sprint("key-", i), Tried: &tried}
		}},
		{name: "pinned", q: func(i int) Request { return Request{Key: fmt.Sprint("key-", i), Intent: Pinned} }},
		{name: "any", q: func(i int) Request { return Request{Key: fmt.Sprint("key-", i), Any: true} }},
	} {
		s := newStand(t, 1, numberedWorkers(5), append(o.opts, WithDecisionSample(1, 16), WithName("r"))...)
		if o.set != nil {
			o.set(s)
		}
		q := o.q
		if q == nil {
			q = func(i int) Request { return Request{Key: fmt.Sprint("key-", i)} }
		}
		var picked []string
		for i := range 40 {
			c := s.route(q(i))
			picked = append(picked, c.ID())
			c.Cancel()
			s.step(time.Second)
		}
		ds := s.Decisions()
		require.Len(t, ds, 16, "%s: the last 16", o.name)
		for k, d := range ds {
			i := 40 - 16 + k
			assert.Equal(t, picked[i], d.Chosen, "%s: decision %d", o.name, i)
			assert.Equal(t, fmt.Sprint("key-", i), d.Key, o.name)
			assert.Equal(t, standEpoch.Add(time.Duration(i)*time.Second).UTC(), d.Time.UTC(), "%s: oldest first", o.name)
			assert.Equal(t, "r", d.Router)
			assert.Positive(t, candidate(d, d.Chosen).Score)
			assert.Zero(t, candidate(d, d.Chosen).InFlight, "%s: as it stood before the pick", o.name)
		}
	}
}

// Decisions before the buffer is full, and after it has gone round.
func TestSample_Bounded(t *testing.T) {
	s := newStand(t, 1, numberedWorkers(3), WithDecisionSample(1, 3))
	assert.Empty(t, s.Decisions())
	for n := 1; n <= 10; n++ {
		s.route(Request{Key: fmt.Sprint(n)}).Cancel()
		ds := s.Decisions()
		require.Len(t, ds, min(n, 3))
		assert.Equal(t, fmt.Sprint(n), ds[len(ds)-1].Key)
		assert.Equal(t, fmt.Sprint(max(n-2, 1)), ds[0].Key)
	}
	assert.Empty(t, newStand(t, 1, numberedWorkers(3)).Decisions(), "none without the option")
}

// The share holds in every state, so that what is kept is like what was
// picked; above all a pick in which something was wrong must not be left out.
func TestSample_Share(t *testing.T) {
	t.Parallel()
	const n, share = 40_000, 0.05
	for _, o := range []struct {
		name string
		opts []Option
		set  func(s *stand)
		q    Request
	}{
		{name: "short path"},
		{name: "long path", opts: []Option{WithReplicas(5)}},
		{name: "random source", opts: []Option{WithRand(newLockedRand(1))}},
		{name: "in penalty", set: func(s *stand) { s.setPenalty("w00", penalty(0).setPhase(Observed)) }},
		{name: "draining", set: func(s *stand) { s.SetState("w00", Draining) }},
		{name: "tenant", q: Request{Tenant: "t"}},
	} {
		s := newStand(t, 1, numberedWorkers(5), append(o.opts, WithDecisionSample(share, 1))...)
		if o.set != nil {
			o.set(s)
		}
		kept := 0
		got := map[string]float64{}
		for i := range n {
			q := o.q
			q.Hash = HashUint64(uint64(i))
			s.samples.n = 0
			c := s.route(q)
			if s.samples.n == 1 {
				kept++
				got[c.ID()]++
			}
			c.Cancel()
		}
		sd := math.Sqrt(n * share * (1 - share))
		if math.Abs(float64(kept)-n*share) > 4*sd {
			t.Errorf("%s: %d of %d decisions kept, want %g +- %.0f", o.name, kept, n, n*share, 4*sd)
		}
	}
}

// newLockedRand is a random source for WithRand.
func newLockedRand(seed uint64) func() uint64 {
	var mu sync.Mutex
	r := &Rand{seed}
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return r.Uint64()
	}
}

func TestSample_DoesNotAllocate(t *testing.T) {
	for _, share := range []float64{0, 1} {
		var opts []Option
		if share > 0 {
			opts = append(opts, WithDecisionSample(share, 100))
		}
		s := newStand(t, 1, numberedWorkers(5), opts...)
		if n := testing.AllocsPerRun(500, func() {
			c, _ := s.Pick("some key")
			s.Observe(c, time.Millisecond, nil)
		}); n != 0 {
			t.Errorf("share %g: %v allocations a pick", share, n)
		}
	}
}

// Reading decisions beside picks, and beside everything that replaces what
// they point to.
func TestSample_Concurrent(t *testing.T) {
	s := newStand(t, 1, numberedWorkers(5), WithDecisionSample(1, 8))
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 2000 {
				c, err := s.Pick(fmt.Sprint(g, i))
				if err != nil {
					t.Error(err)
					return
				}
				s.Observe(c, time.Millisecond, nil)
			}
		})
	}
	wg.Go(func() {
		for i := range 50 {
			if err := s.SetTopology(Topology{Version: uint64(i + 1), Workers: numberedWorkers(5 + i%2)}); err != nil {
				t.Error(err)
			}
			s.step(50 * time.Millisecond)
		}
	})
	wg.Go(func() {
		for range 300 {
			for _, d := range s.Decisions() {
				if d.Chosen == "" || candidate(d, d.Chosen).ID == "" || d.Key == "" {
					t.Errorf("torn: %v", d)
				}
			}
		}
	})
	wg.Wait()
}
