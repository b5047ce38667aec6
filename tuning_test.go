package ringwise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ringwise/ringwise/hotkey"
)

// tuningProbe shows a field at work: what look gives differs between base and
// base with change.
type tuningProbe struct {
	base   func(t *Tuning) // nil: the defaults
	change func(t *Tuning)
	look   func(p *probed) any
}

// probed is a router over a, b, c and d, with a the one that things happen to.
type probed struct {
	*lab
	t testing.TB
}

func newProbed(t testing.TB, tune Tuning) *probed {
	ws := []Worker{{ID: "a", Zone: "far"}, {ID: "b", Zone: "near"}, {ID: "c", Zone: "near"}, {ID: "d", Zone: "near"}}
	opts := []Option{WithTuning(tune), WithReplicas(4), WithRand(func() uint64 { return 1 << 62 }), WithLocalZone("near")}
	for i := range MaxScorers {
		if tune.ScorerWeights != DefaultTuning().ScorerWeights {
			opts = append(opts, WithScorer(labScorer{"a": float64(10 * i), "b": 50, "c": 50, "d": 50}, 1))
		}
	}
	return &probed{newLab(t, ws, opts...), t}
}

func (p *probed) start(id string) Choice {
	c, err := p.Start(Request{Intent: Read}, id)
	require.NoError(p.t, err)
	return c
}

func (p *probed) answer(id string, rtt time.Duration, n int) {
	for range n {
		p.Observe(p.start(id), rtt, nil)
	}
}

func (p *probed) fail(id string, n int) {
	for range n {
		p.start(id).DoneWith(Outcome{Verdict: Fault, RTT: time.Millisecond})
	}
}

func (p *probed) candidate(id string) Candidate {
	for _, c := range p.Explain(Request{Key: "k", Intent: Read}).Candidates {
		if c.ID == id {
			c.Latency = c.Latency.Round(10 * time.Microsecond)
			return c
		}
	}
	p.t.Fatalf("%s is no candidate", id)
	return Candidate{}
}

func (p *probed) latency() time.Duration { return p.candidate("a").Latency }

// settled has all four known at 1 ms.
func (p *probed) settled() *probed {
	for _, id := range []string{"a", "b", "c", "d"} {
		p.answer(id, time.Millisecond, 10)
	}
	p.fold()
	return p
}

func (p *probed) fold() { p.Maintain(p.clock.peek()) }

// after lets time go by without a fold and tells a's latency.
func (p *probed) after(d time.Duration) time.Duration {
	p.clock.advance(d)
	return p.latency()
}

func (p *probed) penalty() penalty { return p.pen("a", Read) }

// erring gives a so many failures, none after the other, in so many answers.
func (p *probed) erring(failures, answers int) {
	for i := range answers {
		if i < failures {
			p.fail("a", 1)
		}
		p.answer("a", time.Millisecond, 1)
	}
	p.fold()
	p.answer("a", time.Millisecond, 1)
	p.fold()
}

// slowFor has a answer at four times the others' latency for so long.
func (p *probed) slowFor(d time.Duration) Phase {
	p.settled()
	for range d / (100 * time.Millisecond) {
		p.answer("a", 4*time.Millisecond, 5)
		for _, id := range []string{"b", "c", "d"} {
			p.answer(id, time.Millisecond, 20)
		}
		p.clock.advance(100 * time.Millisecond)
		p.fold()
	}
	return p.penalty().phase()
}

// unknowing has every second answer of a, and one in fifty of the others,
// end in an error nobody knows.
func unknowing(p *probed) any {
	p.settled()
	for i := range 50 {
		for _, id := range []string{"a", "b", "c", "d"} {
			p.answer(id, time.Millisecond, 1)
			if id == "a" || i == 0 {
				p.start(id).DoneWith(Outcome{Verdict: Unknown, RTT: time.Millisecond})
			}
		}
	}
	p.fold()
	p.start("a").DoneWith(Outcome{Verdict: Unknown, RTT: time.Millisecond})
	return p.Status().Workers[0].Read.Failures
}

// limping trips a by its low scores: 20 times the fleet's mean cost, of which
// a itself is part, so that takes a fleet.
func limping(p *probed) any {
	others := labWorkers("w", 80)
	require.NoError(p.t, p.SetTopology(Topology{Workers: append(labNamed("a"), others...)}))
	for i := range 12 {
		p.answer("a", 800*time.Millisecond, 1)
		for _, w := range others {
			p.answer(w.ID, time.Millisecond, 1)
		}
		p.clock.advance(100 * time.Millisecond)
		p.fold()
		if p.penalty().phase() == Cooldown {
			return i
		}
	}
	return "never"
}

func healing(p *probed) any {
	p.fail("a", 3)
	p.clock.advance(2 * time.Second)
	var shares []float64
	for range 12 {
		p.answer("a", time.Millisecond, 1)
		share, _ := p.penalty().share(p.now(), &p.snap.Load().coef.rules)
		shares = append(shares, share)
		p.clock.advance(time.Second)
	}
	return fmt.Sprint(shares)
}

var tuningProbes = map[string]tuningProbe{
	"RequestTimeout": {nil, func(t *Tuning) { t.RequestTimeout = 3 * time.Second }, func(p *probed) any {
		p.start("a")
		p.pass(4 * time.Second)
		return p.inFlight()
	}},
	"InitialLatency": {nil, func(t *Tuning) { t.InitialLatency = time.Second }, func(p *probed) any { return p.latency() }},
	"Temperature": {nil, func(t *Tuning) { t.Temperature = 2 }, func(p *probed) any {
		p.start("a")
		return p.candidate("a").Probability
	}},
	"MinShare": {nil, func(t *Tuning) { t.MinShare = 0.05 }, func(p *probed) any {
		p.start("a")
		p.start("a")
		return p.candidate("a").Probability
	}},
	"LiveWeight": {func(t *Tuning) { t.ScorerWeights[0] = 1 }, func(t *Tuning) { t.LiveWeight = 3 }, func(p *probed) any {
		return p.candidate("a").Score
	}},
	"LatencyTau": {nil, func(t *Tuning) { t.LatencyTau = time.Second }, func(p *probed) any {
		p.settled().clock.advance(20 * time.Millisecond)
		p.answer("a", 11*time.Millisecond, 1)
		return p.latency()
	}},
	"GainMin": {func(t *Tuning) { t.LatencyTau = time.Minute }, func(t *Tuning) { t.GainMin = 0.1 }, func(p *probed) any {
		p.settled().answer("a", 101*time.Millisecond, 1)
		return p.latency()
	}},
	"GainMax": {nil, func(t *Tuning) { t.GainMax = 0.6 }, func(p *probed) any {
		p.settled().clock.advance(time.Second)
		p.answer("a", 11*time.Millisecond, 1)
		return p.latency()
	}},
	"FailureGain": {nil, func(t *Tuning) { t.FailureGain = 0.9 }, func(p *probed) any {
		p.settled().fail("a", 1)
		return p.latency()
	}},
	"FailureCap": {nil, func(t *Tuning) { t.FailureCap = 5 }, func(p *probed) any {
		p.settled().fail("a", 1)
		return p.latency()
	}},
	"MeanGain": {nil, func(t *Tuning) { t.MeanGain = 0.5 }, func(p *probed) any {
		p.settled().answer("b", 9*time.Millisecond, 2)
		p.fold()
		return p.Status().Read.Mean
	}},
	"MemoryMin": {nil, func(t *Tuning) { t.MemoryMin = time.Second }, func(p *probed) any {
		p.settled().answer("a", 100*time.Microsecond, 60) // good news fades by the least memory
		return p.after(40 * time.Millisecond)
	}},
	"MemoryMax": {func(t *Tuning) { t.GapMemory = 0 }, func(t *Tuning) { t.MemoryMax = time.Second }, func(p *probed) any {
		p.settled().answer("a", 100*time.Millisecond, 60)
		return p.after(2 * time.Second)
	}},
	"FailureMemory": {func(t *Tuning) { t.GapMemory = 0 }, func(t *Tuning) { t.FailureMemory = 8 * time.Second }, func(p *probed) any {
		p.settled().fail("a", 1)
		return p.after(time.Second)
	}},
	"GapMemory": {nil, func(t *Tuning) { t.GapMemory = 30 }, func(p *probed) any {
		p.settled()
		for range 10 {
			p.clock.advance(time.Second)
			p.answer("a", 1900*time.Microsecond, 1)
		}
		return p.after(3 * time.Second)
	}},
	"SilenceFactor": {nil, func(t *Tuning) { t.SilenceFactor = 9 }, func(p *probed) any {
		p.settled().start("a")
		return p.after(5 * time.Millisecond)
	}},
	"LoadWeight": {nil, func(t *Tuning) { t.LoadWeight = 5 }, func(p *probed) any {
		p.start("a")
		return p.candidate("a").Cost
	}},
	"FeedbackWeight": {nil, func(t *Tuning) { t.FeedbackWeight = 1 }, feedback},
	"FeedbackDecay":  {nil, func(t *Tuning) { t.FeedbackDecay = time.Second }, feedback},
	"PriorExponent": {nil, func(t *Tuning) { t.PriorExponent = 1 }, func(p *probed) any {
		p.report(p.t, Report{Worker: "a", RTTP99: Some(time.Second)})
		p.report(p.t, Report{Worker: "b", RTTP99: Some(time.Millisecond)})
		p.fold()
		return p.latency()
	}},
	"CompactingFactor": {nil, func(t *Tuning) { t.CompactingFactor = 0.1 }, func(p *probed) any {
		p.report(p.t, Report{Worker: "a", Compacting: Some(true)})
		return p.candidate("a").Cost
	}},
	"RepairFactor": {nil, func(t *Tuning) { t.RepairFactor = 0.1 }, func(p *probed) any {
		p.report(p.t, Report{Worker: "a", Repairing: Some(true)})
		return p.candidate("a").Cost
	}},
	"ZoneCost":      {nil, func(t *Tuning) { t.ZoneCost = 2 }, func(p *probed) any { return p.candidate("a").Cost }},
	"UnknownRate":   {nil, func(t *Tuning) { t.UnknownRate = 0.9 }, unknowing},
	"UnknownRatio":  {nil, func(t *Tuning) { t.UnknownRatio = 1000 }, unknowing},
	"TripFailures":  {nil, func(t *Tuning) { t.TripFailures = 5 }, func(p *probed) any { p.fail("a", 3); return p.penalty().phase() }},
	"TripLowScores": {nil, func(t *Tuning) { t.TripLowScores = 6 }, limping},
	"TripScore":     {nil, func(t *Tuning) { t.TripScore = 1 }, limping},
	"CooldownMin": {nil, func(t *Tuning) { t.CooldownMin = 4 * time.Second }, func(p *probed) any {
		p.fail("a", 3)
		return p.Status().Workers[0].Read.Until
	}},
	"CooldownMax": {nil, func(t *Tuning) { t.CooldownMax = time.Second }, func(p *probed) any {
		p.fail("a", 3)
		p.clock.advance(2 * time.Second)
		p.fail("a", 1)
		return p.Status().Workers[0].Read.Until
	}},
	"CooldownJitter": {nil, func(t *Tuning) { t.CooldownJitter = 0 }, func(p *probed) any {
		p.fail("a", 3)
		return p.Status().Workers[0].Read.Until
	}},
	"RampTime":  {nil, func(t *Tuning) { t.RampTime = 2 * time.Second }, healing},
	"RampSteps": {nil, func(t *Tuning) { t.RampSteps = 2 }, healing},
	"ProbeQuota": {nil, func(t *Tuning) { t.ProbeQuota = 3 }, func(p *probed) any {
		p.fail("a", 3)
		p.clock.advance(2 * time.Second)
		p.start("a")
		return p.candidate("a").Cut
	}},
	"ErrorRateHigh": {nil, func(t *Tuning) { t.ErrorRateHigh = 0.5 }, func(p *probed) any { p.erring(5, 100); return p.penalty().phase() }},
	"ErrorRateLow": {nil, func(t *Tuning) { t.ErrorRateLow = 0.029 }, func(p *probed) any {
		p.erring(5, 100)
		p.erring(0, 100) // now at 2.4 %
		return p.penalty().phase()
	}},
	"ErrorSamples": {nil, func(t *Tuning) { t.ErrorSamples = 1000 }, func(p *probed) any { p.erring(5, 100); return p.penalty().phase() }},
	"SlowRatio":    {nil, func(t *Tuning) { t.SlowRatio = 10 }, func(p *probed) any { return p.slowFor(2 * time.Second) }},
	"SlowTime":     {nil, func(t *Tuning) { t.SlowTime = time.Minute }, func(p *probed) any { return p.slowFor(2 * time.Second) }},
	"ObservedFactor": {nil, func(t *Tuning) { t.ObservedFactor = 0.5 }, func(p *probed) any {
		p.fail("a", 1)
		return p.candidate("a").Factor
	}},
	"PanicFactor": {nil, func(t *Tuning) { t.PanicFactor = 0.5 }, func(p *probed) any {
		p.fail("a", 3)
		return p.Explain(Request{Among: p.refs(p.t, "a"), Intent: Read}).Candidates[0].Factor
	}},
	"RetryBudget": {nil, func(t *Tuning) { t.RetryBudget = 0.5 }, func(p *probed) any {
		p.retries.n.Store(0)
		done(p, Read)
		return p.Status().RetriesBanked
	}},
	// A copy, which would cost one, is due in six minutes.
	"HedgeBudget": {func(t *Tuning) { t.InitialLatency = time.Minute }, func(t *Tuning) { t.HedgeBudget = 0.5 }, func(p *probed) any {
		done(p, Read)
		return p.Status().HedgesBanked
	}},
	"HedgeStart": {nil, func(t *Tuning) { t.HedgeStart = 20 }, func(p *probed) any { return p.Status().HedgeFactor }},
	"HedgeMin":   {nil, func(t *Tuning) { t.HedgeMin = 10 }, func(p *probed) any { return p.Status().HedgeFactor }},
	"HedgeMax":   {nil, func(t *Tuning) { t.HedgeMax = 5 }, func(p *probed) any { return p.Status().HedgeFactor }},
	"MaxOut": {nil, func(t *Tuning) { t.MaxOut = 0.25 }, func(p *probed) any {
		p.fail("a", 3)
		p.fail("b", 3)
		return p.Status().Read.Cooldown
	}},
	"LoadTrust": {nil, func(t *Tuning) { t.LoadTrust = time.Minute }, func(p *probed) any {
		p.report(p.t, Report{Worker: "a"})
		p.pass(10 * time.Second)
		return p.candidate("a").Stale
	}},
	"TrustIntervals": {nil, func(t *Tuning) { t.TrustIntervals = 10 }, func(p *probed) any {
		for range 20 {
			p.report(p.t, Report{Worker: "a"})
			p.clock.advance(3 * time.Second)
		}
		p.pass(10 * time.Second)
		return p.candidate("a").Stale
	}},
	"KeyTrust": {nil, func(t *Tuning) { t.KeyTrust = time.Minute }, func(p *probed) any {
		p.report(p.t, Report{Worker: "a", Shards: Some(ShardSet{})})
		p.clock.advance(40 * time.Second)
		v := View{sn: p.snap.Load(), n: 1, now: p.now(), plainHash: 1}
		v.idx[0] = p.node("a").slot
		_, known := v.HoldsShard(0)
		return known
	}},
	"ProbeAfter": {nil, func(t *Tuning) { t.ProbeAfter = time.Minute }, func(p *probed) any {
		p.hooks.Probe = func(string) {}
		p.hookRunner.hooks.Probe = p.hooks.Probe
		p.clock.advance(40 * time.Second)
		p.fold()
		return p.Status().ProbesAsked
	}},
	"ProbeFailures": {nil, func(t *Tuning) { t.ProbeFailures = 5 }, func(p *probed) any {
		p.probesFail("a", 3)
		return p.penalty().shown()
	}},
	"ProbeOutTime": {nil, func(t *Tuning) { t.ProbeOutTime = time.Minute }, func(p *probed) any {
		p.probesFail("a", 3)
		return p.Status().Workers[0].Read.Until
	}},
	"StaleFactor": {nil, func(t *Tuning) { t.StaleFactor = 0.1 }, func(p *probed) any {
		top := p.snap.Load().topology
		top.Version, top.TTL = 1, time.Second
		require.NoError(p.t, p.SetTopology(top))
		p.pass(3 * time.Second)
		return p.candidate("a").Factor
	}},
	"WeightFeedback": {func(t *Tuning) { t.TripFailures, t.TripScore = 15, 0 }, func(t *Tuning) { t.WeightFeedback = 0.2 }, func(p *probed) any {
		for i := range 30 {
			p.answer("a", time.Millisecond, 10)
			if i >= 10 {
				p.fail("a", 5)
			}
			p.clock.advance(time.Second)
			p.fold()
		}
		return p.Status().Workers[0].Share
	}},
	"FoldInterval": {nil, func(t *Tuning) { t.FoldInterval = time.Second }, func(p *probed) any {
		p.settled().clock.advance(200 * time.Millisecond)
		p.answer("b", 9*time.Millisecond, 5)
		p.answer("b", 9*time.Millisecond, 5)
		return p.Status().Read.Samples
	}},
}

// geared is the gear after n windows of traffic with so many writes in 100.
func geared(p *probed, windows ...int) bool {
	for _, writes := range windows {
		for range 11 {
			for i := range 100 {
				intent := Read
				if i < writes {
					intent = Write
				}
				c, err := p.Start(Request{Intent: intent}, "a")
				require.NoError(p.t, err)
				p.Observe(c, time.Millisecond, nil)
			}
			p.clock.advance(30 * time.Second)
			p.fold()
		}
	}
	return p.snap.Load().gears
}

func init() {
	tuningProbes["GearWrite"] = tuningProbe{nil, func(t *Tuning) { t.GearWrite = 0.3 }, func(p *probed) any { return geared(p, 0, 35) }}
	tuningProbes["GearRead"] = tuningProbe{nil, func(t *Tuning) { t.GearRead = 0.38 }, func(p *probed) any { return geared(p, 50, 35) }}
	tuningProbes["HotSpread"] = tuningProbe{nil, func(t *Tuning) { t.HotSpread = 3 }, func(p *probed) any {
		q := Request{Key: "k", Intent: Read}
		var v View
		v.begin(p.snap.Load(), &q, 0)
		v.key.heat = hotkey.ReadSustained
		return v.spreadTo(3)
	}}
	tuningProbes["DirectoryScore"] = tuningProbe{nil, func(t *Tuning) { t.DirectoryScore = 71 }, func(p *probed) any {
		asked := 0
		p.directory = func(KeyHash, string) (Ref, bool) { asked++; return Ref{}, false }
		p.Explain(Request{Key: "k", Intent: Read})
		return asked
	}}
	for i := range MaxScorers {
		tuningProbes[fmt.Sprintf("ScorerWeights[%d]", i)] = tuningProbe{
			func(t *Tuning) { t.ScorerWeights[(i+1)%MaxScorers] = 0 },
			func(t *Tuning) { t.ScorerWeights[i] = 7 },
			func(p *probed) any { return p.candidate("a").Score },
		}
	}
}

func feedback(p *probed) any {
	p.settled()
	for id, n := range map[string]float64{"a": 20, "b": 1} {
		p.start(id).DoneWith(Outcome{RTT: time.Millisecond, Feedback: Feedback{InService: n, ServiceTime: time.Millisecond}})
	}
	p.clock.advance(50 * time.Millisecond)
	p.fold()
	return p.candidate("a").Cost
}

func done(p *probed, intent Intent) {
	q := Request{Key: "k", Intent: intent, Idempotent: true}
	for range 3 {
		_, err := Do(p.t.Context(), p.Router, q, func(context.Context, Choice) (int, error) { return 1, nil })
		require.NoError(p.t, err)
	}
}

// I25: each field reaches the engine, given to New and given to Retune.
func TestTuning_EachFieldReachesTheEngine(t *testing.T) {
	want := 0
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Tuning]()) {
		names := []string{f.Name}
		if f.Type.Kind() == reflect.Array {
			names = nil
			for i := range f.Type.Len() {
				names = append(names, fmt.Sprintf("%s[%d]", f.Name, i))
			}
		}
		for _, name := range names {
			want++
			assert.Contains(t, tuningProbes, name, "a field that nothing shows at work")
		}
	}
	assert.Len(t, tuningProbes, want, "probes of fields that are gone")
	for i, name := range slices.Sorted(maps.Keys(tuningProbes)) {
		if labRaced && i%8 != 0 {
			continue // one goroutine, 250 routers: the others run without the detector
		}
		p := tuningProbes[name]
		t.Run(name, func(t *testing.T) {
			base := DefaultTuning()
			if p.base != nil {
				p.base(&base)
			}
			changed := base
			p.change(&changed)
			require.NotEqual(t, base, changed)
			before := p.look(newProbed(t, base))
			require.Equal(t, before, p.look(newProbed(t, base)), "the probe gives one answer")
			after := p.look(newProbed(t, changed))
			assert.NotEqual(t, before, after, "New: nothing shows of it")

			again := newProbed(t, base)
			require.NoError(t, again.Retune(changed))
			assert.Equal(t, after, p.look(again), "Retune: not as New")
			require.NoError(t, again.Retune(base))
			assert.Equal(t, base, again.Tuning())
		})
	}
}

// I25: the documented default is the real one.
func TestTuning_DocumentedDefaultsAreReal(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "tuning.go", nil, parser.ParseComments)
	require.NoError(t, err)
	tuning := file.Scope.Lookup("Tuning").Decl.(*ast.TypeSpec).Type.(*ast.StructType)
	defaults := regexp.MustCompile(`Defaults? ([-0-9a-z., ]+?)(?:\.$|\. |:|\n|$)`)
	value := reflect.ValueOf(DefaultTuning())
	doc, n := "", 0
	var group []string
	check := func() {
		if len(group) == 0 {
			return
		}
		text := strings.Join(strings.Fields(doc), " ")
		if group[0] == "ScorerWeights" {
			for _, w := range DefaultTuning().ScorerWeights {
				assert.Negative(t, w, `"a negative one takes the option's weight (default)"`)
			}
			assert.Contains(t, text, "(default)")
			n += len(group)
			return
		}
		m := defaults.FindStringSubmatch(text)
		require.NotNil(t, m, "%v: no default in %q", group, text)
		values := strings.Split(m[1], ", ")
		require.Len(t, values, len(group), "%v: defaults %q", group, m[1])
		for i, name := range group {
			var want any
			f := value.FieldByName(name)
			text := strings.ReplaceAll(values[i], " ", "")
			if f.Type() == reflect.TypeFor[time.Duration]() {
				want, err = time.ParseDuration(text)
			} else if f.Kind() == reflect.Int {
				want, err = strconv.Atoi(text)
			} else {
				want, err = strconv.ParseFloat(text, 64)
			}
			require.NoError(t, err, name)
			assert.Equal(t, want, f.Interface(), "the documented default of %s", name)
			n++
		}
	}
	for _, f := range tuning.Fields.List {
		if f.Doc != nil {
			check()
			doc, group = f.Doc.Text(), nil
		}
		for _, name := range f.Names {
			group = append(group, name.Name)
		}
	}
	check()
	assert.Equal(t, value.NumField(), n, "fields seen")
	assert.NoError(t, DefaultTuning().Validate())
	assert.Empty(t, DefaultTuning().Warnings())
}

// A Tuning of a few fields is one fault, not one a field.
func TestTuning_MostlyZeroIsOneFault(t *testing.T) {
	bad := Tuning{RequestTimeout: time.Second}
	_, err := New(rigWorkers(3), WithTuning(bad))
	for _, err := range []error{err, bad.Validate()} {
		detail, ok := errors.AsType[*ConfigError](err)
		require.True(t, ok)
		assert.Equal(t, "Tuning", detail.Field)
		assert.ErrorIs(t, err, ErrConfig)
		assert.ErrorContains(t, err, "start from DefaultTuning() or Router.Tuning()")
		assert.NotContains(t, err.Error(), "\n")
	}
	some := DefaultTuning()
	some.Temperature, some.LatencyTau = 0, 0
	assert.ErrorContains(t, some.Validate(), "Tuning.Temperature", "fields that were set to zero are named")
	assert.ErrorContains(t, some.Validate(), "Tuning.LatencyTau")
}

// Validate names each bad field, all of them, and NaN is bad.
func TestTuning_ValidateNamesEachField(t *testing.T) {
	fields := reflect.VisibleFields(reflect.TypeFor[Tuning]())
	named := func(err error) (names []string) {
		var walk func(error)
		walk = func(err error) {
			if many, ok := err.(interface{ Unwrap() []error }); ok {
				for _, e := range many.Unwrap() {
					walk(e)
				}
				return
			}
			bad, ok := errors.AsType[*ConfigError](err)
			require.True(t, ok, "%v", err)
			assert.NotEmpty(t, bad.Want)
			names = append(names, bad.Field)
		}
		if err != nil {
			assert.ErrorIs(t, err, ErrConfig)
			walk(err)
		}
		return names
	}
	set := func(tune *Tuning, i, at int, x float64) {
		f := reflect.ValueOf(tune).Elem().FieldByIndex(fields[i].Index)
		switch f.Kind() {
		case reflect.Array:
			f.Index(at).SetFloat(x)
		case reflect.Float64:
			f.SetFloat(x)
		default:
			f.SetInt(int64(max(min(x, math.MaxInt32), math.MinInt64)))
		}
	}
	for i, f := range fields {
		for at := range MaxScorers {
			name := "Tuning." + f.Name
			if f.Type.Kind() == reflect.Array {
				name += fmt.Sprintf("[%d]", at)
			} else if at > 0 {
				break
			}
			bad := []float64{-1e300}
			if k := f.Type.Kind(); k == reflect.Float64 || k == reflect.Array {
				bad = append(bad, math.NaN(), math.Inf(1), math.Inf(-1), 1e300)
			}
			for _, x := range bad {
				tune := DefaultTuning()
				set(&tune, i, at, x)
				assert.Contains(t, named(tune.Validate()), name, "%s = %g", name, x)
				assert.Contains(t, tune.Validate().Error(), name)
			}
		}
	}
	low, high := DefaultTuning(), DefaultTuning()
	for i, f := range fields {
		for at := range MaxScorers {
			if f.Type.Kind() == reflect.Array || at == 0 {
				set(&low, i, at, -1e300)
			}
		}
		if d := reflect.ValueOf(&high).Elem().FieldByIndex(f.Index); d.Type() == reflect.TypeFor[time.Duration]() {
			d.SetInt(math.MaxInt64)
			assert.Contains(t, named(high.Validate()), "Tuning."+f.Name)
		}
	}
	assert.GreaterOrEqual(t, len(named(low.Validate())), len(fields)-1+MaxScorers, "all at once")
	for _, c := range []struct {
		change func(t *Tuning)
		field  string
	}{
		{func(t *Tuning) { t.GainMin = 0.5 }, "Tuning.GainMin"},
		{func(t *Tuning) { t.MemoryMin = time.Minute }, "Tuning.MemoryMin"},
		{func(t *Tuning) { t.CooldownMin = time.Minute }, "Tuning.CooldownMin"},
		{func(t *Tuning) { t.HedgeMin = 31 }, "Tuning.HedgeMin"},
		{func(t *Tuning) { t.ErrorRateLow = 0.1 }, "Tuning.ErrorRateLow"},
	} {
		assert.Equal(t, []string{c.field}, named(labTuned(c.change).Validate()), "over its partner")
	}
}

// Each range in a tag parses, and its ends are allowed.
func TestTuning_RangesParse(t *testing.T) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Tuning]()) {
		low, high, ok := strings.Cut(f.Tag.Get("range"), "..")
		require.True(t, ok, f.Name)
		for _, end := range []string{low, high} {
			if f.Type == reflect.TypeFor[time.Duration]() {
				assert.Positive(t, mustDuration(end), f.Name)
				continue
			}
			x, err := strconv.ParseFloat(end, 64)
			require.NoError(t, err, f.Name)
			checkRange(f.Name, reflect.ValueOf(x), f.Tag.Get("range"), func(field string, v any, want string) {
				t.Errorf("%s: %v is not %s", field, v, want)
			})
		}
	}
}

func TestTuning_JSON(t *testing.T) {
	tune := labTuned(func(t *Tuning) {
		t.Temperature, t.MemoryMax, t.TripFailures = 0.1+0.2, 1234567890*time.Nanosecond, 7
		t.ScorerWeights[3] = 0.125
	})
	enc, err := json.Marshal(tune)
	require.NoError(t, err)
	assert.Contains(t, string(enc), `"RequestTimeout":"1s"`)
	assert.Contains(t, string(enc), `"MemoryMax":"1.23456789s"`)
	back, err := LoadTuning(strings.NewReader(string(enc)))
	require.NoError(t, err)
	assert.Equal(t, tune, back)
	var embedded struct{ T *Tuning }
	require.NoError(t, json.Unmarshal([]byte(`{"T":`+string(enc)+`}`), &embedded))
	assert.Equal(t, tune, *embedded.T)
	partly := tune
	require.NoError(t, json.Unmarshal([]byte(`{"LoadWeight": 3}`), &partly))
	tune.LoadWeight = 3
	assert.Equal(t, tune, partly, "what is not named stays")
	require.Error(t, json.Unmarshal([]byte(`{"LoadWeight": 4, "MaxOut": "x"}`), &partly))
	assert.Equal(t, tune, partly, "on an error nothing changes")
}

func TestLoadTuning_Table(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     func(t *Tuning) // nil: refused
		says     string
	}{
		{"nothing named", `{}`, func(*Tuning) {}, ""},
		{"white space", " \n{ }\t\n ", func(*Tuning) {}, ""},
		{"some", `{"RequestTimeout": "250ms", "Temperature": 2, "TripFailures": 5}`, func(t *Tuning) {
			t.RequestTimeout, t.Temperature, t.TripFailures = 250*time.Millisecond, 2, 5
		}, ""},
		{"scorer weights", `{"ScorerWeights": [1, 2, 3, -1, -1, -1, -1, 0]}`, func(t *Tuning) {
			t.ScorerWeights = [MaxScorers]float64{1, 2, 3, -1, -1, -1, -1, 0}
		}, ""},
		{"named twice", `{"Temperature": 2, "MaxOut": {"a": 1}, "Temperature": 5}`, nil, "Tuning.Temperature = 5, want each field once"},
		{"named twice by an escape", `{"Temperature": 2, "Temp\u0065rature": 5}`, nil, "Tuning.Temperature = 5, want each field once"},
		{"empty", ``, nil, "Tuning = empty, want a JSON object"},
		{"white space only", "  \n", nil, "Tuning = empty, want a JSON object"},
		{"cut off", `{"Temperature": 2`, nil, "unexpected EOF"},
		{"null", `null`, nil, "object"},
		{"array", `[]`, nil, "object"},
		{"string", `"x"`, nil, "object"},
		{"trailing object", `{} {}`, nil, "more data"},
		{"trailing garbage", `{}x`, nil, "more data"},
		{"unknown field", `{"Temprature": 2}`, nil, "Tuning.Temprature"},
		{"wrong case", `{"temperature": 2}`, nil, "Tuning.temperature = 2, want a field of Tuning, such as Temperature"},
		{"duration as number", `{"RequestTimeout": 250}`, nil, "Tuning.RequestTimeout"},
		{"duration without unit", `{"RequestTimeout": "250"}`, nil, "Tuning.RequestTimeout"},
		{"duration of null", `{"RequestTimeout": null}`, nil, "Tuning.RequestTimeout"},
		{"number as string", `{"Temperature": "2"}`, nil, "Tuning.Temperature"},
		{"number of null", `{"Temperature": null}`, nil, "Tuning.Temperature"},
		{"number too large", `{"Temperature": 1e999}`, nil, "Tuning.Temperature"},
		{"fraction of a count", `{"TripFailures": 2.5}`, nil, "Tuning.TripFailures"},
		{"short array", `{"ScorerWeights": [1]}`, nil, "Tuning.ScorerWeights"},
		{"long array", `{"ScorerWeights": [1,1,1,1,1,1,1,1,1]}`, nil, "Tuning.ScorerWeights"},
		{"array with null", `{"ScorerWeights": [null,1,1,1,1,1,1,1]}`, nil, "Tuning.ScorerWeights"},
		{"array of null", `{"ScorerWeights": null}`, nil, "Tuning.ScorerWeights"},
		{"out of range", `{"Temperature": 0}`, nil, "Tuning.Temperature"},
		{"several", `{"Temperature": 0, "MaxOut": 2}`, nil, "Tuning.MaxOut"},
		{"NaN", `{"Temperature": NaN}`, nil, "invalid character"},
		{"deep", strings.Repeat("[", 20_000), nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := LoadTuning(strings.NewReader(c.in))
			if c.want != nil {
				require.NoError(t, err)
				assert.Equal(t, labTuned(c.want), got)
				return
			}
			require.ErrorIs(t, err, ErrConfig)
			assert.ErrorContains(t, err, c.says)
			assert.Equal(t, Tuning{}, got)
		})
	}
	for name, r := range map[string]io.Reader{
		"white space without end": endless(' '),
		"a string without end":    io.MultiReader(strings.NewReader(`{"Temperature": "`), endless('x')),
		"an object, then more":    io.MultiReader(strings.NewReader(`{}`), endless(' ')),
	} {
		_, err := LoadTuning(r)
		require.ErrorIs(t, err, ErrConfig, name)
		assert.ErrorContains(t, err, "too much", name)
	}
	broken := errors.New("disk")
	_, err := LoadTuning(io.MultiReader(strings.NewReader(`{"Temp`), failing{broken}))
	require.ErrorIs(t, err, broken)
}

type endless byte

func (b endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b)
	}
	return len(p), nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// O3: validated, atomic, last good kept, and the version in each decision.
func TestRouter_RetuneKeepsTheLastGood(t *testing.T) {
	l := newLab(t, labWorkers("w", 5), WithDecisionSample(1, 8))
	version := func() uint64 {
		c, err := l.Pick("k")
		require.NoError(t, err)
		c.Cancel()
		ds := l.Decisions()
		v := ds[len(ds)-1].TuningVersion
		require.Equal(t, v, l.Explain(Request{Key: "k"}).TuningVersion)
		require.Equal(t, v, l.Status().TuningVersion)
		return v
	}
	require.EqualValues(t, 1, version())
	good := labTuned(func(t *Tuning) { t.LoadWeight = 3 })
	require.NoError(t, l.Retune(good))
	require.EqualValues(t, 2, version())
	sn := l.snap.Load()
	require.NoError(t, l.Retune(good))
	assert.Same(t, sn, l.snap.Load(), "equal coefficients change nothing")
	for _, bad := range []Tuning{{}, labTuned(func(t *Tuning) { t.LoadWeight = math.NaN() }), labTuned(func(t *Tuning) { t.LoadWeight, t.MaxOut = 4, 7 })} {
		require.ErrorIs(t, l.Retune(bad), ErrConfig)
		assert.Same(t, sn, l.snap.Load())
		assert.Equal(t, good, l.Tuning())
	}
	require.EqualValues(t, 2, version())
	require.NoError(t, l.Retune(DefaultTuning()))
	require.EqualValues(t, 3, version())
	assert.Same(t, sn.ring, l.snap.Load().ring)

	// Beside each other: each of them is in force whole, once.
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for k := range 25 {
				x := float64(10+25*i+k) / 10
				if err := l.Retune(labTuned(func(t *Tuning) { t.LoadWeight, t.FeedbackWeight = x, x })); err != nil {
					t.Error(err)
				}
				if now := l.Tuning(); now.LoadWeight != now.FeedbackWeight {
					t.Error("half a Tuning")
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 103, l.Status().TuningVersion)
}

// A lower MaxOut lets in at once who is too many, the one first whose time is
// up first.
func TestRouter_RetuneOfMaxOutLetsIn(t *testing.T) {
	l := newLab(t, labWorkers("w", 8))
	for i := range 4 {
		l.trip(t, fmt.Sprint("w", i), Read)
		l.clock.advance(100 * time.Millisecond)
	}
	require.NoError(t, l.Retune(labTuned(func(t *Tuning) { t.MaxOut = 0.25 })))
	st := l.Status()
	assert.Equal(t, 2, st.MaxOut)
	assert.Equal(t, 2, st.Read.Cooldown)
	require.NoError(t, l.Retune(labTuned(func(t *Tuning) { t.MaxOut = 0 })))
	assert.Zero(t, l.Status().Read.Cooldown)
	for range 3 {
		c, err := l.Start(Request{Intent: Read}, "w7")
		require.NoError(t, err)
		c.DoneWith(Outcome{Verdict: Fault})
	}
	assert.Equal(t, Observed, l.pen("w7", Read).phase(), "nobody may be taken out")
}

func TestTuning_Warnings(t *testing.T) {
	for _, c := range []struct {
		change func(t *Tuning)
		says   string
	}{
		{func(t *Tuning) { t.ScorerWeights[2] = 5 }, "ScorerWeights[2] 5"},
		{func(t *Tuning) { t.LiveWeight = 0 }, "LiveWeight 0"},
		{func(t *Tuning) { t.LoadTrust, t.FoldInterval = time.Second, 900*time.Millisecond }, "FoldInterval"},
		{func(t *Tuning) { t.Temperature = 3 }, "Temperature 3"},
		{func(t *Tuning) { t.MinShare = 0.01 }, "MinShare"},
	} {
		tune := labTuned(c.change)
		require.NoError(t, tune.Validate())
		w := tune.Warnings()
		require.Len(t, w, 1, "%v", w)
		assert.Contains(t, w[0], c.says)
		l := newLab(t, labNamed("a"), WithTuning(tune))
		assert.Equal(t, w, l.Status().Warnings)
	}
	assert.Empty(t, labTuned(func(t *Tuning) { t.Temperature, t.MinShare, t.ScorerWeights[0] = 10, 0.005, 0.01 }).Warnings())
	l := newLab(t, labNamed("a"), WithScorer(labScorer{}, 100))
	assert.Contains(t, fmt.Sprint(l.Status().Warnings), "lab scorer")
}
