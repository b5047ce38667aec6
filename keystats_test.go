package ringwise

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// look reads worker "a" in a pick of a request.
func (l *lab) look(q Request, f func(v *View, i int)) {
	v := &View{}
	v.begin(l.snap.Load(), &q, l.now())
	if _, err := l.prepare(v, v.sn, &q, l.now()); err != nil {
		panic(err)
	}
	for i := range v.all {
		if v.Worker(i).ID == "a" {
			f(v, i)
			return
		}
	}
	panic("a is no candidate")
}

// R4: shard = hash & 511, and a worker says which it holds.
func TestView_HoldsShard(t *testing.T) {
	for _, seed := range []uint64{0, 7} {
		l := newLab(t, labNamed("a"), WithSeed(seed))
		held := func(q Request) (s string) {
			l.look(q, func(v *View, i int) { s = fmt.Sprint(v.HoldsShard(i)) })
			return s
		}
		key := "tenant:user:17"
		slot := int(uint64(HashOf(key)) & 511)
		require.Equal(t, slot, HashOf(key).Shard())
		all := []Request{{Key: key}, {KeyBytes: []byte(key)}, {Hash: HashOf(key)}}
		for _, q := range all {
			require.Equal(t, "false false", held(q), "not reported")
		}
		var set ShardSet
		set.Add(slot)
		l.report(t, Report{Worker: "a", Shards: Some(set)})
		for _, q := range all {
			require.Equal(t, "true true", held(q), "whatever the seed of the placement is: %+v", q)
		}
		require.Equal(t, "false false", held(Request{Any: true}), "no key, no shard")
		l.clock.advance(time.Second)
		for i := range set {
			set[i] = ^set[i]
		}
		l.report(t, Report{Worker: "a", Shards: Some(set)})
		require.Equal(t, "false true", held(all[0]), "known, and not held")
	}
}

// S8: the lists of a report are believed for 30 s, or as long as the rest of
// it, by the age of each, whether later reports have them or not.
func TestReport_KeyStatisticsTrust(t *testing.T) {
	l := newLab(t, labNamed("a"))
	q := Request{Key: "k"}
	slot := HashOf("k").Shard()
	read := func() (s string) {
		l.look(q, func(v *View, i int) {
			_, shards := v.HoldsShard(i)
			heat, known := v.ShardHeat(i)
			rate, known2 := v.HitRate(i, 2)
			count, known3 := v.FingerprintCount(i, 3)
			s = fmt.Sprint(shards, heat, known, rate, known2, count, known3)
		})
		return s
	}
	require.Equal(t, "false 0 false 0 false 0 false", read())
	l.report(t, Report{Worker: "a", Shards: Some(ShardSet{}), ShardHeat: []ShardHeat{{511, 1}, {uint16(slot), 7}},
		HitRates: []HitRate{{9, 0.1}, {2, 0.5}, {1, 0.2}}, Fingerprints: []Fingerprint{{8, 1}, {3, 30}}})
	for i := range 30 {
		require.Equal(t, "true 7 true 0.5 true 30 true", read(), "after %d s", i)
		l.clock.advance(time.Second)
		rep := Report{Worker: "a", CPU: Some(0.5)}
		if i == 9 {
			rep.HitRates = []HitRate{{2, 0.5}}
		}
		l.report(t, rep)
	}
	require.Equal(t, "true 7 true 0.5 true 30 true", read(), "at 30 s")
	l.clock.advance(2)
	require.Equal(t, "false 0 false 0.5 true 0 false", read(), "but what came again at 10 s")
	l.clock.advance(10 * time.Second)
	require.Equal(t, "false 0 false 0 false 0 false", read())

	// Reports every 20 s are believed for three intervals, and so is all in them.
	for range 40 {
		l.clock.advance(20 * time.Second)
		l.report(t, Report{Worker: "a", HitRates: []HitRate{{2, 0.5}}})
	}
	l.clock.advance(59 * time.Second)
	require.Equal(t, "false 0 false 0.5 true 0 false", read())
	l.clock.advance(2 * time.Second)
	require.Equal(t, "false 0 false 0 false 0 false", read())

	l.report(t, Report{Worker: "a", ShardHeat: []ShardHeat{{uint16(slot+1) % 512, 7}}, HitRates: []HitRate{{1, 1}}, Fingerprints: []Fingerprint{{1, 1}}})
	require.Equal(t, "false 0 true 0 false 0 true", read(), "sparse: what is left out has no heat and no requests, and no known rate")
	require.NoError(t, l.SetTopology(Topology{Workers: []Worker{{ID: "a", Incarnation: 1}}}))
	require.Equal(t, "false 0 false 0 false 0 false", read())
}

// S8: who is stale is asked about once a second each, and never cut for it
// when nobody else is left.
func TestReport_StaleAsksForRefresh(t *testing.T) {
	asked := map[string]int{}
	l := newLab(t, labNamed("a", "b", "never", "down"), WithHooks(Hooks{Refresh: func(f Refresh) {
		assert.Equal(t, RefreshStaleReport, f.Reason)
		assert.Equal(t, "stale report", f.Reason.String())
		asked[f.Worker]++
	}}))
	for _, id := range []string{"a", "b", "down"} {
		l.report(t, Report{Worker: id, CPU: Some(0.5)})
	}
	l.SetState("down", Down)
	l.pass(5 * time.Second)
	require.Empty(t, asked, "within the window")
	for range 100 {
		l.pass(100 * time.Millisecond)
	}
	for _, id := range []string{"a", "b"} {
		assert.Equal(t, 10, asked[id], "%s, over 10 s", id)
	}
	assert.Len(t, asked, 2, "who never reported owes nothing, and who is down cannot")
	l.picks(t, 20, Request{Among: l.refs(t, "a", "b"), Intent: Read})
	l.report(t, Report{Worker: "a", CPU: Some(0.5)})
	clear(asked)
	l.pass(3 * time.Second)
	assert.Zero(t, asked["a"], "heard of again")
	assert.NotZero(t, asked["b"])
}
