package ringwise

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringwise/ringwise/hotkey"
	"github.com/ringwise/ringwise/keyspec"
)

func mustSpec(t testing.TB, o keyspec.Options) *keyspec.Spec {
	s, err := keyspec.New(o)
	require.NoError(t, err)
	return s
}

func mustTracker(t testing.TB, o hotkey.Options) *hotkey.Tracker {
	tr, err := hotkey.New(o)
	require.NoError(t, err)
	return tr
}

// K1: the prefix and the case of letters move no key, as a string or as bytes.
func TestKeyParser_PlacesWhatItSays(t *testing.T) {
	g := newRig(t, 30, WithKeyParser(mustSpec(t, keyspec.Options{Prefix: "prod/", Fold: true})), WithSeed(9))
	plain := newRig(t, 30, WithSeed(9))
	want := plain.Explain(Request{Key: "acme:order:17", Intent: Read})
	for _, q := range []Request{
		{Key: "acme:order:17"}, {Key: "PROD/Acme:ORDER:17"}, {KeyBytes: []byte("prod/acme:Order:17")}, {Hash: HashOf("x"), Key: "acme:order:17"},
	} {
		q.Intent = Read
		d := g.Explain(q)
		if q.Hash != 0 {
			assert.NotEqual(t, want.Hash, d.Hash, "a hash goes before a key, which is not read then")
			continue
		}
		assert.Equal(t, want.Hash, d.Hash, "%q%s", q.Key, q.KeyBytes)
		for i, c := range want.Candidates {
			assert.Equal(t, c.ID, d.Candidates[i].ID)
		}
	}
}

// The view has tenant, entity, kind and slot; the quota sees the tenant where
// the request names none.
func TestKeyParser_TenantEntitySlot(t *testing.T) {
	var tenants []string
	g := newRig(t, 3, WithKeyParser(keyspec.Default()),
		WithQuota(func(tenant string, w *Worker) bool { tenants = append(tenants, tenant); return true }))
	k, err := keyspec.Default().Parse("acme:order:17")
	require.NoError(t, err)
	look := func(q Request) (v View) {
		v.begin(g.snap.Load(), &q, 0)
		v.hash = g.readKey(&v, &q)
		return v
	}
	v := look(Request{Key: "acme:order:17"})
	assert.Equal(t, "acme", v.Tenant())
	assert.Equal(t, "order", v.Entity())
	assert.Equal(t, KindOf("acme", "order"), v.Kind())
	assert.EqualValues(t, k.Hash, v.hash)
	slot, ok := v.Slot()
	assert.True(t, ok)
	assert.EqualValues(t, k.Slot, slot)
	b := look(Request{KeyBytes: []byte("acme:order:17")})
	assert.Equal(t, "acme", b.Tenant())
	assert.Equal(t, v.Kind(), b.Kind())
	v = look(Request{Key: "acme:order:17", Tenant: "other"})
	assert.Equal(t, "other", v.Tenant())
	assert.Equal(t, KindOf("acme", "order"), v.Kind(), "the kind is the key's")
	v = look(Request{Key: "oddkey", Tenant: "other"})
	assert.Equal(t, KindOf("other", ""), v.Kind())
	v = look(Request{Key: "oddkey"})
	assert.Zero(t, v.Kind())
	v = look(Request{Any: true})
	_, ok = v.Slot()
	assert.False(t, ok)

	for _, q := range []Request{{Key: "acme:order:17"}, {KeyBytes: []byte("acme:order:17")}} {
		tenants = nil
		_, err := g.Route(q)
		require.NoError(t, err)
		assert.Equal(t, []string{"acme", "acme", "acme"}, tenants)
	}
}

// A parser that fails or panics leaves the key where its hash puts it.
func TestKeyParser_FailsSafe(t *testing.T) {
	var boom bool
	g := newRig(t, 30, WithKeyParser(keyspec.ParserFunc(func(key string) (keyspec.Key, error) {
		if boom {
			panic("no")
		}
		return keyspec.Key{Tenant: "evil", Text: "elsewhere"}, errors.New("no")
	})))
	want := newRig(t, 30).Explain(Request{Key: "k"}).Hash
	assert.Equal(t, want, g.Explain(Request{Key: "k"}).Hash)
	assert.Equal(t, want, g.Explain(Request{KeyBytes: []byte("k")}).Hash)
	assert.Zero(t, g.Status().PlugPanics)
	boom = true
	assert.Equal(t, want, g.Explain(Request{Key: "k"}).Hash)
	_, err := g.Pick("k")
	require.NoError(t, err)
	assert.EqualValues(t, 2, g.Status().PlugPanics)
	// One that gives a hash and no text places by the hash.
	h := newRig(t, 30, WithKeyParser(keyspec.ParserFunc(func(string) (keyspec.Key, error) { return keyspec.Key{Hash: 77}, nil })))
	assert.Equal(t, KeyHash(77).String(), h.Explain(Request{Key: "k"}).Hash)
}

// K2, K3, K4: reads and writes apart; the hook tells of bursts and of
// sustained heat; a Read of a key that is hot by reads for minutes has 2N
// candidates, all else has N.
func TestHotKeys_SpreadReads(t *testing.T) {
	var told []hotkey.Change
	tr := mustTracker(t, hotkey.Options{})
	g := newRig(t, 30, WithHotKeys(tr), WithHooks(Hooks{HotKey: func(c hotkey.Change) { told = append(told, c) }}))
	send := func(key string, intent Intent, n int) {
		for range n {
			c, err := g.Route(Request{Key: key, Intent: intent})
			require.NoError(t, err)
			g.Observe(c, time.Millisecond, nil)
		}
	}
	candidates := func(key string, intent Intent) int {
		return len(g.Explain(Request{Key: key, Intent: intent}).Candidates)
	}
	for minute := range 5 {
		for range 60 {
			send("hot", Read, 30)
			send("hotw", Write, 20)
			send("hotw", Read, 10)
			g.pass(time.Second)
		}
		if minute == 0 {
			assert.Equal(t, 3, candidates("hot", Read), "a burst is no reason to spread")
			assert.Equal(t, "read burst", g.Explain(Request{Key: "hot", Intent: Read}).Heat)
		}
	}
	kinds := map[string][]hotkey.Kind{}
	for _, c := range told {
		kinds[c.Key] = append(kinds[c.Key], c.To)
	}
	assert.Equal(t, map[string][]hotkey.Kind{
		"hot":  {hotkey.ReadBurst, hotkey.ReadSustained},
		"hotw": {hotkey.WriteBurst, hotkey.WriteSustained},
	}, kinds)
	assert.Equal(t, 6, candidates("hot", Read))
	assert.Equal(t, 3, candidates("hot", Write))
	assert.Equal(t, 3, candidates("hot", Unspecified))
	assert.Equal(t, 3, candidates("hotw", Read))
	assert.Equal(t, 3, candidates("cold", Read))
	got := map[string]bool{}
	for range 200 {
		c, err := g.Route(Request{Key: "hot", Intent: Read})
		require.NoError(t, err)
		got[c.ID()] = true
	}
	assert.Len(t, got, 6, "all of them serve")
	own := g.Explain(Request{Key: "hot", Intent: Write}).Candidates
	all := g.Explain(Request{Key: "hot", Intent: Read}).Candidates
	for i, c := range own {
		assert.Equal(t, c.ID, all[i].ID, "the key's own come first")
	}
	tu := g.Tuning()
	tu.HotSpread = 1
	require.NoError(t, g.Retune(tu))
	assert.Equal(t, 3, candidates("hot", Read))

	// A retry, Explain and Plan count nothing.
	before := tr.Top(g.unix+g.Router.now(), 1)[0]
	tried := &Tried{}
	tried.Add(must(g.Ref("w29")))
	_, err := g.Route(Request{Key: "hot", Intent: Read, Tried: tried})
	require.NoError(t, err)
	_, err = g.Plan(Request{Key: "hot", Intent: Read}, nil)
	require.NoError(t, err)
	assert.Equal(t, before, tr.Top(g.unix+g.Router.now(), 1)[0])
	// Group counts each key.
	_, err = g.Group([]string{"hot", "x"}, Request{Intent: Read}, nil)
	require.NoError(t, err)
	assert.Equal(t, before.Reads+1, tr.Top(g.unix+g.Router.now(), 1)[0].Reads)
}

// Capability, with heat known.
func TestCapability_ByHeat(t *testing.T) {
	tr := mustTracker(t, hotkey.Options{})
	g := newRig(t, 3, WithHotKeys(tr))
	ws := rigWorkers(3)
	ws[0].IO, ws[1].IO = IOFast, IOSlow
	ws[0].Bandwidth, ws[1].Bandwidth = 100, 50
	require.NoError(t, g.SetTopology(Topology{Workers: ws}))
	for range 60 {
		for range 30 {
			c, _ := g.Route(Request{Key: "w", Intent: Write})
			g.Observe(c, time.Millisecond, nil)
			c, _ = g.Route(Request{Key: "r", Intent: Read})
			g.Observe(c, time.Millisecond, nil)
		}
		g.pass(time.Second)
	}
	rate := func(key string) map[string]float64 {
		return g.rate(Capability{}, g.snap.Load(), Request{Key: key, Intent: Read})
	}
	assert.Equal(t, map[string]float64{"w0": 100, "w1": 20, "w2": NoSignal}, rate("w"))
	assert.Equal(t, map[string]float64{"w0": 60, "w1": 100, "w2": NoSignal}, rate("cold"))
	assert.Equal(t, map[string]float64{"w0": NoSignal, "w1": NoSignal, "w2": NoSignal}, rate("r"), "hot by reads")
	large := g.rate(Capability{}, g.snap.Load(), Request{Key: "cold", Intent: Read, Size: 8})
	assert.Equal(t, map[string]float64{"w0": (60 + 100) / 2, "w1": (100 + 50) / 2, "w2": NoSignal}, large, "disk and bandwidth, half each")
}

// C8: the directory is asked where the best score is under 60 and not else,
// and what it names is filtered and scored as the others.
func TestDirectory(t *testing.T) {
	asked, boom := 0, false
	var name string
	var g *rig
	g = newRig(t, 8, WithDirectory(func(h KeyHash, key string) (Ref, bool) {
		asked++
		if boom {
			panic("no")
		}
		assert.Equal(t, "k", key)
		return g.Ref(name)
	}))
	q := Request{Key: "k", Intent: Read}
	own := g.Explain(q).Candidates
	require.Len(t, own, 3)
	assert.Zero(t, asked, "par is 70")
	for i := range 8 {
		if id := fmt.Sprint("w", i); !slices.ContainsFunc(own, func(c Candidate) bool { return c.ID == id }) {
			name = id
		}
	}
	for i := range 8 {
		g.answers(fmt.Sprint("w", i), 20)
	}
	g.pass(time.Second)
	var held []Choice
	for _, c := range own { // load them: 3 in flight is 7 times the cost
		for range 6 {
			held = append(held, g.start(c.ID))
		}
	}
	d := g.Explain(q)
	assert.Equal(t, 1, asked)
	require.Len(t, d.Candidates, 4)
	assert.True(t, d.Directory)
	assert.Equal(t, name, d.Candidates[3].ID)
	c, err := g.Route(q)
	require.NoError(t, err)
	assert.Equal(t, name, c.ID(), "it wins by score")
	c.Cancel()

	g.SetState(name, Down)
	c, err = g.Route(q)
	require.NoError(t, err)
	assert.NotEqual(t, name, c.ID(), "filters apply")
	c.Cancel()
	g.SetState(name, Up)
	other := name
	name = own[0].ID
	assert.Len(t, g.Explain(q).Candidates, 3, "one of its own changes nothing")
	name = "nobody"
	assert.Len(t, g.Explain(q).Candidates, 3)
	name, asked = other, 0
	assert.Len(t, g.Explain(Request{Key: "k", Intent: Read, Among: []Ref{must(g.Ref(own[0].ID))}}).Candidates, 1)
	g.Explain(Request{Key: "k", Any: true})
	g.Explain(Request{Key: "k", Intent: Pinned})
	assert.Zero(t, asked, "their lists are not extended")
	boom = true
	_, err = g.Route(q)
	require.NoError(t, err)
	assert.EqualValues(t, 1, g.Status().PlugPanics)
	for _, c := range held {
		c.Cancel()
	}
}

// C3: the weights switch by the share of writes with hysteresis, and by hour.
func TestGears(t *testing.T) {
	g := newRig(t, 3, WithScorer(Gears{}, 1))
	send := func(writes, reads int) {
		for i := range writes + reads {
			intent := Read
			if i < writes {
				intent = Write
			}
			g.Observe(g.startAs("w0", intent), time.Millisecond, nil)
		}
		g.pass(200 * time.Millisecond)
	}
	window := func(writes, reads int) bool {
		for range 12 {
			send(writes, reads)
			g.pass(30 * time.Second)
		}
		return g.snap.Load().gears
	}
	assert.False(t, window(2, 0), "too few to tell")
	assert.False(t, window(0, 20))
	assert.False(t, window(39, 61))
	assert.True(t, window(41, 59), "over 40 %")
	assert.True(t, window(26, 74), "still: the gear stays until 25 %")
	assert.False(t, window(24, 76))
	assert.False(t, window(39, 61))

	sn := g.withReports(map[string]Report{"w0": {Memory: Some(0.5), CPU: Some(0.0)}, "w1": {}, "w2": {}})
	read := g.rate(Weighted{}, sn, scoreRequest)["w0"]
	write := g.rate(WriteHeavyWeights, sn, scoreRequest)["w0"]
	require.NotEqual(t, read, write)
	assert.Equal(t, read, g.rate(Gears{}, sn, scoreRequest)["w0"])
	sn.gears = true
	assert.Equal(t, write, g.rate(Gears{}, sn, scoreRequest)["w0"])

	// By time of day: the rig's epoch is midnight UTC.
	at := func(gears Gears, hour float64) bool {
		return gears.at(rigEpoch.Add(time.Duration(hour * float64(time.Hour))))
	}
	night := Gears{From: 22 * time.Hour, To: 6 * time.Hour}
	for hour, want := range map[float64]bool{0: true, 5.99: true, 6: false, 21.99: false, 22: true} {
		assert.Equal(t, want, at(night, hour), "%g h", hour)
	}
	day := Gears{From: 8 * time.Hour, To: 9 * time.Hour, Location: time.FixedZone("east", 2*3600)}
	for hour, want := range map[float64]bool{5.99: false, 6: true, 6.99: true, 7: false} {
		assert.Equal(t, want, at(day, hour), "%g h UTC", hour)
	}
	sn.gears = false
	for g.Router.now() < int64(6*time.Hour+30*time.Minute) {
		g.jump(10 * time.Minute) // a clock that leaps further has been set
	}
	sn = g.withReports(map[string]Report{"w0": {Memory: Some(0.5), CPU: Some(0.0)}, "w1": {}, "w2": {}})
	assert.Equal(t, write, g.rate(day, sn, scoreRequest)["w0"])
}

// naiveHeat is what a kindHistory says, from a list of requests.
func naiveHeat(times []int64, now int64) (heat float64) {
	for _, at := range times {
		if now/historySlot-at/historySlot < historySlots {
			heat += math.Pow(0.98, float64(now-at)/1e9)
		}
	}
	return heat
}

func TestExample_AffinityHeat(t *testing.T) {
	h := newHistory()
	const second = int64(time.Second)
	h.add(0, 7, 1)
	h.add(0, 7, 1)
	h.add(10*second, 7, 2)
	assert.InDelta(t, 2*math.Pow(0.98, 10), h.heat(10*second, 7, 1), 1e-5)
	assert.InDelta(t, 1, h.heat(10*second, 7, 2), 1e-5)
	assert.Zero(t, h.heat(10*second, 8, 1), "another kind")
	assert.InDelta(t, 2*math.Pow(0.98, 59), h.heat(59*second, 7, 1), 1e-5, "not yet 60 s")
	assert.Zero(t, h.heat(61*second, 7, 1), "over 60 s")
	assert.InDelta(t, math.Pow(0.98, 51), h.heat(61*second, 7, 2), 1e-5)

	// The share: failed requests count too, and it is 100 for one alone.
	g := newRig(t, 3, WithScorer(Affinity{}, 1), WithKeyParser(keyspec.Default()))
	c, err := g.Route(Request{Key: "acme:order:1", Intent: Read})
	require.NoError(t, err)
	g.Observe(c, time.Millisecond, errDisk)
	got := g.rate(Affinity{}, g.snap.Load(), Request{Key: "acme:order:2", Intent: Read})
	assert.InDelta(t, 100, got[c.ID()], 1e-9)
	assert.EqualValues(t, NoSignal, g.rate(Affinity{}, g.snap.Load(), Request{Key: "acme:user:2", Intent: Read})[c.ID()])
	// What workers report counts as much as the larger of the two.
	others := []string{"w0", "w1", "w2"}
	others = slices.DeleteFunc(others, func(id string) bool { return id == c.ID() })
	sn := g.withReports(map[string]Report{others[0]: {Fingerprints: []Fingerprint{{KindOf("acme", "order"), 3}}}})
	got = g.rate(Affinity{}, sn, Request{Key: "acme:order:2", Intent: Read})
	of3 := 3 * (1 - math.Pow(0.98, 60)) / (-math.Log(0.98) * 60)
	assert.InDelta(t, 100*of3/(1+of3), got[others[0]], 1e-3)
	assert.Zero(t, got[others[1]])
	// One that reports less than this client sent it has what it sent.
	kind := KindOf("acme", "order")
	sn = g.withReports(map[string]Report{others[0]: {Fingerprints: []Fingerprint{{kind, 3}}}, c.ID(): {Fingerprints: []Fingerprint{{kind, 1}}}})
	assert.InDelta(t, got[others[0]], g.rate(Affinity{}, sn, Request{Key: "acme:order:2", Intent: Read})[others[0]], 1e-9)
}

func TestHistory_MatchesModel(t *testing.T) {
	rnd := seeded(t, 4)
	h := newHistory()
	model := map[[2]uint64][]int64{}
	now := int64(0)
	for range 20_000 {
		now += rnd.Int64N(int64(400 * time.Millisecond))
		if rnd.IntN(500) == 0 {
			now += rnd.Int64N(int64(100 * time.Second))
		}
		k := [2]uint64{1 + rnd.Uint64N(20), rnd.Uint64N(4)}
		if rnd.IntN(2) == 0 {
			h.add(now, KeyHash(k[0]), k[1])
			model[k] = append(model[k], now)
			continue
		}
		want := naiveHeat(model[k], now)
		require.InDelta(t, want, h.heat(now, KeyHash(k[0]), k[1]), 1e-4*(1+want))
	}
}

// I16: kinds without number take no memory and leave the hot ones in place.
func TestHistory_Bounded(t *testing.T) {
	h := newHistory()
	kinds := uint64(10_000_000)
	if labRaced || testing.Short() {
		kinds = 200_000
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	rnd := rand.New(rand.NewPCG(1, 0))
	now := int64(0)
	for i := range kinds {
		now += int64(time.Microsecond)
		h.add(now, KeyHash(1000+i), rnd.Uint64N(3))
		if i%100 == 0 {
			h.add(now, 7, 1)
		}
	}
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
	assert.Greater(t, h.heat(now, 7, 1), 0.0, "a kind that is asked for all the time is remembered")
	runtime.KeepAlive(h)
}

func TestHistory_Concurrent(t *testing.T) {
	h := newHistory()
	concurrently(4, func(i int) {
		rnd := rand.New(rand.NewPCG(uint64(i), 0))
		now := int64(0)
		for range 20_000 {
			now += rnd.Int64N(int64(20 * time.Millisecond))
			kind, w := KeyHash(1+rnd.Uint64N(8000)), rnd.Uint64N(3)
			h.add(now, kind, w)
			if x := h.heat(now, kind, w); !(x >= 0 && x < 1e6) {
				t.Errorf("heat %g", x)
				return
			}
		}
	})
}

// C8: the best score decides, at 60 and not elsewhere, and a list that is the
// caller's own is never extended: of a Locator, of a pinned request.
func TestDirectory_UnderSixtyAndOnlyTheRing(t *testing.T) {
	play := func(best float64, intent Intent, opts ...Option) (asked int, ids []string) {
		var g *rig
		other, score := "", map[string]float64{}
		for i := range 8 {
			score[fmt.Sprint("w", i)] = min(best, 10)
		}
		g = newRig(t, 8, append([]Option{rigTuning(func(t *Tuning) { t.LiveWeight = 0 }), WithScorer(byID(score), 1),
			WithDirectory(func(KeyHash, string) (Ref, bool) {
				asked++
				return g.Ref(other)
			})}, opts...)...)
		q := Request{Key: "k", Intent: intent}
		own := g.snap.Load().ring.Owners(HashOf(q.Key), nil)
		for id := range score {
			if !slices.Contains(own, id) {
				other = id
			}
		}
		score[own[1]] = best
		return asked, candidatesIn(g.Explain(q))
	}
	for best, want := range map[float64]int{0: 1, 59.9: 1, 60: 0, 61: 0, 100: 0} {
		asked, ids := play(best, Read)
		assert.Equal(t, want, asked, "best score %g", best)
		assert.Len(t, ids, 3+want, "best score %g", best)
	}
	asked, ids := play(0, Read, rigTuning(func(t *Tuning) { t.LiveWeight, t.DirectoryScore = 0, 0 }))
	assert.Zero(t, asked, "a DirectoryScore of 0 is off")
	assert.Len(t, ids, 3)

	asked, ids = play(0, Pinned)
	assert.Zero(t, asked, "pinned")
	assert.Len(t, ids, 1)

	var list []Ref
	located := labLocator(func(dst []Ref) []Ref { return append(dst, list...) })
	var g *rig
	asked = 0
	g = newRig(t, 8, rigTuning(func(t *Tuning) { t.LiveWeight = 0 }), WithLocator(located),
		WithScorer(byID(map[string]float64{"w0": 1, "w1": 2, "w7": 100}), 1),
		WithDirectory(func(KeyHash, string) (Ref, bool) { asked++; return g.Ref("w7") }))
	list = []Ref{must(g.Ref("w0")), must(g.Ref("w1"))}
	for range 50 {
		c, err := g.Route(Request{Key: "k", Intent: Read})
		require.NoError(t, err)
		require.Contains(t, []string{"w0", "w1"}, c.ID())
		c.Cancel()
	}
	assert.Zero(t, asked, "a Locator's list is the caller's")
}
