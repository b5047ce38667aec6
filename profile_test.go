package ringwise

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringwise/ringwise/hotkey"
	"github.com/ringwise/ringwise/keyspec"
)

func profiles() []Profile {
	return []Profile{Default(), Classic(), ReadHeavy(), WriteHeavy(), CacheAffinity()}
}

// Every shipped profile is valid, gives no warning, and leaves live cost an
// exponent of at least 8, over which results are flat (docs/policy.md).
func TestProfile_LiveCostLeads(t *testing.T) {
	for _, p := range profiles() {
		t.Run(p.Name, func(t *testing.T) {
			r, err := New(rigWorkers(3), WithProfile(p))
			require.NoError(t, err)
			assert.Empty(t, r.Status().Warnings)
			sum := p.Tuning.LiveWeight
			for _, s := range p.Scorers {
				sum += s.Weight
			}
			k := 10 / p.Tuning.Temperature * p.Tuning.LiveWeight / sum
			assert.GreaterOrEqual(t, k, 8.0)
			assert.LessOrEqual(t, k, 16.0)
		})
	}
	herding := Classic()
	herding.Tuning.LiveWeight, herding.Tuning.Temperature = 0, 10
	r, err := New(rigWorkers(3), WithProfile(herding))
	require.NoError(t, err)
	assert.NotEmpty(t, r.Status().Warnings, "reports alone: said so")
}

// I6 in small: 200 picks between two reports do not chase the worker that was
// idle in the last one; without live cost they do.
func TestProfile_NoHerd(t *testing.T) {
	spread := func(p Profile) (top float64) {
		g := newRig(t, 3, WithProfile(p), WithKeyParser(keyspec.Default()))
		for i, id := range []string{"w0", "w1", "w2"} {
			g.answers(id, 20)
			idle := float64(i) / 2 // w0 is idle, w2 is full
			require.NoError(t, g.Report(Report{Worker: id, Time: g.clock(), CPU: Some(idle), Memory: Some(idle), Queue: Some(30 * idle),
				RTTP99: Some(time.Duration(1+20*idle) * time.Millisecond), RTTAvg: Some(time.Duration(1+10*idle) * time.Millisecond)}))
		}
		g.pass(time.Second)
		got := map[string]float64{}
		for i := range 200 {
			c, err := g.Route(Request{Key: fmt.Sprintf("t%d:e:1", i), Intent: Read})
			require.NoError(t, err)
			got[c.ID()]++
		}
		for _, n := range got {
			top = max(top, n/(200.0/3))
		}
		return top
	}
	for _, p := range profiles() {
		// Of a whole score apart, a lean: twice the cost, not all the traffic.
		assert.LessOrEqual(t, spread(p), 1.5, p.Name)
	}
	herding := ReadHeavy()
	herding.Tuning.LiveWeight, herding.Tuning.Temperature = 0, 1
	assert.Greater(t, spread(herding), 2.0, "reports alone herd")
}

func TestProfile_LaterOptionsOverride(t *testing.T) {
	own := DefaultTuning()
	own.Temperature = 2
	r, err := New(rigWorkers(3), WithScorer(Trend{}, 1), WithProfile(Classic()), WithScorer(GCPause{}, 0.5), WithTuning(own))
	require.NoError(t, err)
	assert.Equal(t, own, r.Tuning())
	var names []string
	for _, p := range r.scorers {
		names = append(names, p.name)
	}
	assert.Equal(t, []string{"hybrid less fake health", "gc pause"}, names)
	bad := Classic()
	bad.Scorers[0].Weight = -1
	_, err = New(rigWorkers(3), WithProfile(bad))
	assert.ErrorIs(t, err, ErrConfig)
	bad = Classic()
	bad.Tuning.MaxOut = 2
	_, err = New(rigWorkers(3), WithProfile(bad))
	assert.ErrorIs(t, err, ErrConfig)
	assert.Equal(t, Classic(), Classic(), "a Profile is plain data")
}

// Two routers of one Profile remember apart (case 47).
func TestProfile_SharesNoState(t *testing.T) {
	p := CacheAffinity()
	a := newRig(t, 3, WithProfile(p), WithKeyParser(keyspec.Default()))
	b := newRig(t, 3, WithProfile(p), WithKeyParser(keyspec.Default()))
	_, err := a.Pick("acme:order:1")
	require.NoError(t, err)
	for id, x := range b.rate(Affinity{}, b.snap.Load(), Request{Key: "acme:order:1", Intent: Read}) {
		assert.EqualValues(t, NoSignal, x, id)
	}
	assert.Nil(t, newRig(t, 3, WithProfile(Classic())).hub.history, "no memory where nothing needs it")
}

// profiled is a fleet that reports, under a profile with keys parsed; all has
// hot keys, directory and quota on as well.
func profiled(t testing.TB, p Profile, all bool) (*Router, []string) {
	opts := []Option{WithProfile(p), WithKeyParser(keyspec.Default())}
	if all {
		tr, err := hotkey.New(hotkey.Options{})
		require.NoError(t, err)
		opts = append(opts, WithHotKeys(tr), WithQuota(func(string, *Worker) bool { return true }),
			WithDirectory(func(KeyHash, string) (Ref, bool) { return Ref{}, false }))
	}
	r, keys := benchFleet(t, 100, opts...)
	var shards ShardSet
	for i := range 256 {
		shards.Add(i)
	}
	for i := range 100 {
		require.NoError(t, r.Report(Report{Worker: fmt.Sprint("worker-", i), Time: time.Now(), CPU: Some(0.5), Memory: Some(0.3), Errors: Some(0.01), Rejects: Some(0.0),
			RTTP99: Some(3 * time.Millisecond), Queue: Some(3.0), Shards: Some(shards), HitRates: []HitRate{{1, 0.5}, {2, 0.5}}}))
	}
	r.Maintain(time.Now())
	return r, keys
}

// I11 with all of it on.
func TestProfile_PickAllocatesNothing(t *testing.T) {
	all := profiles()
	if labRaced { // which has nothing to say of allocations
		all = all[len(all)-1:]
	}
	for _, p := range all {
		r, keys := profiled(t, p, true)
		i := 0
		for _, bytes := range []bool{false, true} {
			// Bytes without a quota's tenant, which is a string.
			if bytes {
				r.quota = nil
			}
			buf := make([]byte, 0, 64)
			n := testing.AllocsPerRun(2000, func() {
				q := Request{Key: keys[i], Intent: Read}
				if bytes {
					buf = append(buf[:0], keys[i]...)
					q = Request{KeyBytes: buf, Intent: Write}
				}
				c, err := r.Route(q)
				if err != nil {
					t.Fatal(err)
				}
				r.Observe(c, time.Millisecond, nil)
				i++
			})
			if !labRaced { // the detector allocates
				assert.Less(t, n, 0.05, "%s, bytes %t", p.Name, bytes) // a fold now and then
			}
		}
	}
}
