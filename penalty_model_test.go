package ringwise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// naivePenalty is the machine as docs/policy.md tells it: plain fields, no
// packing, one goroutine.
type naivePenalty struct {
	rules *penaltyRules

	phase                    Phase
	fails, successes, probes int
	level                    int
	until                    int64 // end of the cooldown
	since                    int64 // start of any other phase, or of the ramp's step
	transitions              int   // how often it tripped or let in: the generation
	out, maxOut              int   // workers in cooldown: this one, and others
}

type naiveRequest struct {
	transitions int
	probe       bool
}

// tick is the resolution of the machine's times, which are rounded up.
func tick(ns int64) int64 { return int64(math.Ceil(float64(ns)/(1<<20))) << 20 }

func (m *naivePenalty) letIn(now int64) {
	m.phase, m.fails, m.successes, m.probes, m.since = Probation, 0, 0, 0, tick(now)
	m.transitions++
	m.out--
}

// time does what time alone does.
func (m *naivePenalty) time(now int64) {
	switch {
	case m.phase == Cooldown && now >= m.until:
		m.letIn(now)
	case m.phase == Probation && m.successes == 5 && now-m.since >= int64(2*time.Second):
		m.phase, m.successes, m.probes, m.since = Healthy, 0, 0, tick(now)
	case m.phase == Healthy && m.level > 0 && now-m.since >= int64(m.cooldownOf(m.level)):
		m.level--
		m.since = tick(now)
	}
}

func (m *naivePenalty) cooldownOf(level int) time.Duration {
	return time.Duration(min(math.Pow(2, float64(level-1)), 30) * float64(time.Second))
}

func (m *naivePenalty) pick(now int64) (naiveRequest, bool) {
	if m.phase == Cooldown {
		if m.time(now); m.phase == Cooldown {
			return naiveRequest{}, false
		}
	}
	probe := m.phase == Probation && m.successes == 0
	if probe {
		if m.probes == m.rules.quota {
			return naiveRequest{}, false
		}
		m.probes++
	}
	return naiveRequest{m.transitions, probe}, true
}

// cancel, success and failure close a request.
func (m *naivePenalty) cancel(q naiveRequest) {
	if q.probe && q.transitions == m.transitions && m.phase == Probation {
		m.probes = max(m.probes-1, 0)
	}
}

func (m *naivePenalty) stale(q naiveRequest) bool {
	return q.transitions != m.transitions || m.phase == Cooldown
}

func (m *naivePenalty) success(now int64, q naiveRequest, sick bool) {
	m.cancel(q)
	if m.stale(q) {
		return
	}
	m.fails = 0
	switch {
	case m.phase == Observed && !sick:
		m.phase, m.since = Healthy, tick(now)
	case m.phase == Probation:
		// A step takes a success, and two seconds since the step before.
		if m.successes == 0 || m.successes < 5 && now-m.since >= int64(2*time.Second) {
			m.successes++
			m.since = tick(now)
		}
		m.time(now)
		if m.phase == Healthy && sick {
			m.phase = Observed
		}
	}
}

func (m *naivePenalty) failure(now int64, q naiveRequest, u uint64) (tripped bool) {
	m.cancel(q)
	if m.stale(q) {
		return false
	}
	m.fails++
	trips := m.fails >= 3 || m.phase == Probation
	if trips && m.out < m.maxOut {
		m.level = min(m.level+1, 15)
		jitter := 1 + 0.25*(2*unit(u)-1)
		m.phase, m.until = Cooldown, tick(now+int64(float64(m.cooldownOf(m.level))*jitter))
		m.fails, m.successes, m.probes = 0, 0, 0
		m.transitions++
		m.out++
		return true
	}
	if m.phase == Healthy {
		m.phase, m.since = Observed, tick(now)
	}
	return false
}

func (m *naivePenalty) share(now int64) float64 {
	switch m.phase {
	case Observed:
		return 0.85
	case Cooldown:
		if now < m.until {
			return 0
		}
		return 0.2
	case Probation:
		if m.successes == 0 && m.probes == m.rules.quota {
			return 0
		}
		return 0.2 * float64(max(m.successes, 1))
	}
	return 1
}

// penaltyBench drives the real word and the naive machine alike.
type penaltyBench struct {
	word  penaltyWord
	out   fleetOut
	rules penaltyRules
	naive naivePenalty
	now   int64
	open  []penaltyOpen
	note  string // the last operation
}

type penaltyOpen struct {
	gen   uint8
	probe bool
	naive naiveRequest
}

func newPenaltyBench(quota int, joins bool) *penaltyBench {
	t := DefaultTuning()
	t.ProbeQuota = quota
	b := &penaltyBench{rules: compilePenalty(&t)}
	b.naive = naivePenalty{rules: &b.rules, maxOut: 1}
	b.out.max.Store(1)
	if joins {
		b.word.v.Store(uint64(joined(0)))
		b.naive.phase = Probation
	}
	return b
}

func (b *penaltyBench) pick() (real, naive bool) {
	var gen uint8
	var probe bool
	real = true
	p := b.word.load()
	if p.phase() == Cooldown && b.now < p.at() {
		real = false
	} else {
		b.word.change(&b.out, func(p penalty) (penalty, bool, penalty) {
			if p.phase() != Probation && p.phase() != Cooldown {
				gen, probe, real = p.gen(), false, true
				return p, false, p
			}
			next, ok := p.reserveProbe(b.now, &b.rules)
			if real = ok; !ok {
				return p, false, p
			}
			gen, probe = next.gen(), next.successes() == 0
			return next, false, next
		})
	}
	q, naive := b.naive.pick(b.now)
	if real && naive {
		b.open = append(b.open, penaltyOpen{gen, probe, q})
	}
	return real, naive
}

func (b *penaltyBench) take(i int) penaltyOpen {
	o := b.open[i]
	b.open[i] = b.open[len(b.open)-1]
	b.open = b.open[:len(b.open)-1]
	return o
}

func (b *penaltyBench) close(i int, failed, sick bool, u uint64) {
	o := b.take(i)
	b.word.change(&b.out, func(p penalty) (penalty, bool, penalty) {
		return p.releaseProbeIf(o.probe, o.gen).next(b.now, outcome{failed: failed, gen: o.gen, sick: sick, u: u}, &b.rules)
	})
	if failed {
		b.naive.failure(b.now, o.naive, u)
	} else {
		b.naive.success(b.now, o.naive, sick)
	}
}

func (b *penaltyBench) cancel(i int) {
	o := b.take(i)
	b.word.change(&b.out, func(p penalty) (penalty, bool, penalty) {
		next := p.releaseProbeIf(o.probe, o.gen)
		return next, false, next
	})
	b.naive.cancel(o.naive)
}

func (b *penaltyBench) settle() {
	b.word.change(&b.out, func(p penalty) (penalty, bool, penalty) {
		next := p.settle(b.now, &b.rules)
		return next, false, next
	})
	b.naive.time(b.now)
}

// penaltyState is what both are compared by.
type penaltyState struct {
	phase                           Phase
	fails, successes, probes, level int
	at                              int64
	gen                             uint8
	share                           float64
	out                             int
}

// differs tells how the word and the naive machine differ; empty: they do not.
func (b *penaltyBench) differs() string {
	p, m := b.word.load(), &b.naive
	share, _ := p.share(b.now, &b.rules)
	at := m.since
	if m.phase == Cooldown {
		at = m.until
	}
	got := penaltyState{p.phase(), p.fails(), p.successes(), p.probes(), p.level(), p.at(), p.gen(), share, int(b.out.n.Load())}
	want := penaltyState{m.phase, min(m.fails, 15), m.successes, m.probes, m.level, at, uint8(m.transitions), m.share(b.now), m.out}
	if d := got.share - want.share; math.Abs(d) < 1e-9 {
		got.share = want.share
	}
	if got == want {
		return ""
	}
	return fmt.Sprintf("after %s at %v:\n got  %+v\n want %+v", b.note, time.Duration(b.now), got, want)
}

// step does one operation that op names, with u as its chance.
func (b *penaltyBench) step(op byte, u uint64) string {
	i := 0
	if len(b.open) > 0 {
		i = int(u % uint64(len(b.open)))
	}
	switch op % 8 {
	case 0, 1:
		b.note = "pick"
		if real, naive := b.pick(); real != naive {
			return fmt.Sprintf("pick at %v: got %v, want %v; %s", time.Duration(b.now), real, naive, b.differs())
		}
	case 2:
		if b.note = "success"; len(b.open) > 0 {
			b.close(i, false, u>>62 == 0, u)
		}
	case 3:
		if b.note = "failure"; len(b.open) > 0 {
			b.close(i, true, false, u)
		}
	case 4:
		if b.note = "cancel"; len(b.open) > 0 {
			b.cancel(i)
		}
	case 5:
		b.note = "time"
		// Mostly a step, now and then one over whole cooldowns.
		b.now += int64(u>>40) * [...]int64{1, 20, 1000, 4000}[u%4]
	case 6:
		b.note = "settle"
		b.settle()
	case 7:
		b.note = "cap"
		free := int64(u % 4 / 3) // 0 in three of four: the cap is used up by others
		if b.word.load().phase() != Cooldown {
			b.out.max.Store(1 - free)
			b.naive.maxOut = int(1 - free)
		}
	}
	return b.differs()
}

func TestPenalty_MatchesNaiveMachine(t *testing.T) {
	phases := map[Phase]int{}
	trips := 0
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		b := newPenaltyBench(1+int(seed%3), seed%5 == 0)
		for range 600 {
			if diff := b.step(byte(rnd.IntN(8)), rnd.Uint64()); diff != "" {
				t.Fatalf("seed %d: %s", seed, diff)
			}
			phases[b.word.load().phase()]++
		}
		trips = max(trips, b.naive.transitions)
	}
	for p := Healthy; p <= Probation; p++ {
		require.Greater(t, phases[p], 1000, "the histories visit %v", p)
	}
	require.Greater(t, trips, 20, "the histories trip")
}

// progress: from any state some change is possible within twice the longest
// back-off by time alone, which a pick and its answer may need to show.
func progress(p penalty, now int64, rules *penaltyRules) error {
	later := now + 2*rules.cooldown
	switch p.phase() {
	case Cooldown:
		if q := p.settle(later, rules); q.phase() != Probation {
			return fmt.Errorf("cooldown until %v is still %v at %v", time.Duration(p.at()), q.phase(), time.Duration(later))
		}
		if share, _ := p.share(later, rules); share <= 0 {
			return fmt.Errorf("cooldown is over at %v but the share is %g", time.Duration(later), share)
		}
	case Observed:
		if q := p.succeeded(later, outcome{gen: p.gen()}, rules); q.phase() != Healthy {
			return fmt.Errorf("observed stays %v after a success", q.phase())
		}
	case Probation:
		// Probes out come back with their leases, so a success is possible.
		q := p.setProbes(0)
		if share, _ := q.share(later, rules); share <= 0 {
			return fmt.Errorf("probation has the share %g", share)
		}
		for range rules.steps {
			q, _, _ = q.next(later, outcome{gen: q.gen()}, rules)
			later += rules.step() + 1<<penTickShift
		}
		if q = q.settle(later, rules); q.phase() != Healthy {
			return fmt.Errorf("probation is %v after %d successes in as many steps", q.phase(), rules.steps)
		}
	case Healthy:
		if q := p.settle(later, rules); p.level() > 0 && q.level() >= p.level() {
			return fmt.Errorf("health keeps back-off level %d", p.level())
		}
	}
	return nil
}

// FuzzPenalty runs any history on the word and the naive machine and asks of
// each state it reaches for the next.
func FuzzPenalty(f *testing.F) {
	f.Add([]byte{0, 3, 0, 3, 0, 3, 5, 0, 2}, uint64(1), false)
	f.Add([]byte{0, 0, 3, 2, 4, 6}, uint64(2), true)
	f.Fuzz(func(t *testing.T, ops []byte, seed uint64, joins bool) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		b := newPenaltyBench(1+int(seed%15), joins)
		for _, op := range ops[:min(len(ops), 500)] {
			if diff := b.step(op, rnd.Uint64()); diff != "" {
				t.Fatal(diff)
			}
			p := b.word.load()
			if share, _ := p.share(b.now, &b.rules); !(share >= 0 && share <= 1) {
				t.Fatalf("share of %v is %g, want 0..1", p.phase(), share)
			}
			if p.probes() > b.rules.quota {
				t.Fatalf("%d probes are out, want at most %d", p.probes(), b.rules.quota)
			}
			if err := progress(p, b.now, &b.rules); err != nil {
				t.Fatal(err)
			}
		}
	})
}
