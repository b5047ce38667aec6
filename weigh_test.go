package ringwise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scramble puts every worker into a random state of the kind that traffic
// leaves: latencies, memories, silences, requests in flight, feedback.
func (s *stand) scramble(rnd *rand.Rand) {
	s.nextFold.Store(math.MaxInt64) // what follows is to stay as it is
	s.ns.Store(int64(time.Hour) + rnd.Int64N(int64(time.Hour)))
	now := s.now()
	sn := *s.snap.Load()
	sn.fbOn = rnd.IntN(2) == 0
	cols := append([]column(nil), sn.cols...)
	sn.cols = cols
	for ln := range sn.fleet {
		f := &sn.fleet[ln]
		f.mean = 1e6 * math.Exp(rnd.NormFloat64())
		f.inv, f.slow, f.rif, f.n = 1/(f.mean*(1+3*rnd.Float64())), 2*f.mean, float32(5*rnd.Float64()), 1000
	}
	for _, slot := range sn.live {
		col := &cols[slot]
		col.pre = float32([]float64{1, 1, 1, 1 / 0.7, 3}[rnd.IntN(5)])
		st := col.st
		st.issued.Store(rnd.Uint64N(1 << 40))
		n := []uint64{0, 0, 1, 2, uint64(rnd.IntN(40))}[rnd.IntN(5)]
		reads := rnd.Uint64N(1 << 24)
		st.closed[laneRead].Store(rnd.Uint64N(1<<20)<<24 | reads)
		st.closed[laneWrite].Store((st.issued.Load() - n - reads) & inFlightMask)
		if st.inFlight() != int(n) {
			panic(fmt.Sprint("in flight ", st.inFlight(), " want ", n))
		}
		st.busy.Store(now - rnd.Int64N(1e9)>>rnd.IntN(20))
		for ln := range st.lane {
			ls, f := &st.lane[ln], &sn.fleet[ln]
			col.base[ln] = float32(f.mean * math.Exp(0.3*rnd.NormFloat64()))
			ls.lat.Store(0)
			ls.fb.Store(0)
			if rnd.IntN(5) > 0 {
				ls.lat.Store(packLat(f.mean*math.Exp(0.5*rnd.NormFloat64()), now-rnd.Int64N(2e9)>>rnd.IntN(20)))
				ls.mem.Store(sn.coef.memory(1e7*rnd.Float64(), rnd.IntN(14)))
			}
			if rnd.IntN(2) == 0 {
				ls.fb.Store(packLat(20*rnd.Float64()+0.001, now-rnd.Int64N(1e8)))
			}
		}
	}
	s.snap.Store(&sn)
}

// plain switches the short path off, or on again.
func (s *stand) plain(on bool) {
	sn := *s.snap.Load()
	sn.plain = on
	s.snap.Store(&sn)
}

// The weights of a pick are, worker by worker, what View tells of its cost.
func TestWeigh_MatchesCost(t *testing.T) {
	for _, temperature := range []float64{0.5, 1, 2, 10, 0.7, 3, 40} {
		tu := DefaultTuning()
		tu.Temperature = temperature
		s := newStand(t, 1, numberedWorkers(MaxCandidates), WithTuning(tu), WithReplicas(MaxCandidates), WithPoints(1))
		for seed := range uint64(200) {
			s.scramble(rand.New(rand.NewPCG(seed, 0)))
			sn := s.snap.Load()
			for _, ln := range []int{laneRead, laneWrite} {
				v := &View{sn: sn, now: s.now(), lane: ln, n: len(sn.live)}
				copy(v.idx[:], sn.live)
				sn.weighView(v)
				for i := range v.n {
					want := math.Pow(v.cost(i), -10/temperature)
					if math.Abs(v.w[i]/want-1) > 1e-9 {
						t.Fatalf("T=%g, seed %d, lane %d, %d: weight %g, cost %g gives %g", temperature, seed, ln, i, v.w[i], v.cost(i), want)
					}
					if got := v.Live(i); got != min(max(rawPoints(v.cost(i)), 0), 100) {
						t.Fatalf("Live %g, cost %g", got, v.cost(i))
					}
				}
			}
		}
	}
}

// What weigh says of all candidates at once: flags, penalties, who is quiet.
func TestWeigh_SumsUp(t *testing.T) {
	s := newStand(t, 1, workersNamed("a", "b", "c"))
	s.step(time.Minute)
	sn := *s.snap.Load()
	sn.cols = append([]column(nil), sn.cols...)
	sn.cols[0].flags, sn.cols[2].flags = flagStale, flagDraining
	s.setPenalty("b", penalty(0).setPhase(Cooldown))
	slots := func(ids ...string) (cand []uint16) {
		for _, id := range ids {
			cand = append(cand, sn.byID[id])
		}
		return cand
	}
	see := func(ids ...string) live {
		cand := slots(ids...)
		return sn.weigh(laneRead, s.now(), cand, make([]float64, len(cand)))
	}
	all := see("a", "b", "c")
	assert.Equal(t, flagStale|flagDraining, all.flags)
	assert.Equal(t, Cooldown, all.pen.phase())
	assert.EqualValues(t, 7, all.quiet, "never answered: since when they are busy is not known")
	assert.Zero(t, see("a", "c").pen)
	mix := sn.tickets(slots("a", "b", "c"))
	assert.NotEqual(t, sn.tickets(slots("a", "b")), sn.tickets(slots("a", "c")))

	s.setLatency("a", 4*time.Millisecond)
	assert.EqualValues(t, 6, see("a", "b", "c").quiet, "just answered")
	s.step(time.Millisecond + 2048)
	assert.EqualValues(t, 7, see("a", "b", "c").quiet, "a quarter of a latency ago")
	s.StartWorker("a")
	assert.EqualValues(t, 6, see("a", "b", "c").quiet, "busy already")
	assert.NotEqual(t, mix, sn.tickets(slots("a", "b", "c")), "tickets are in the mix")
}

// words keeps the live words of all workers as they are. What it returns puts
// one worker's back: a pick touches no other's.
func (s *stand) words() (restore func(id string)) {
	undo := map[string]func(){}
	for _, n := range s.snap.Load().nodes {
		st := n.st
		words := []*atomic.Uint64{&st.issued}
		for ln := range lanes {
			words = append(words, &st.closed[ln], &st.lane[ln].lat, &st.lane[ln].mem, &st.lane[ln].fb, &st.lane[ln].pen.v)
		}
		for i := range st.slots {
			words = append(words, &st.slots[i])
		}
		was, busy := make([]uint64, len(words)), st.busy.Load()
		for i, w := range words {
			was[i] = w.Load()
		}
		undo[n.ID] = func() {
			st.busy.Store(busy)
			for i, w := range words {
				if w.Load() != was[i] {
					w.Store(was[i])
				}
			}
		}
	}
	return func(id string) { undo[id]() }
}

// The short path and the long one are the same pick: in equal states they
// name the same worker, and both what Explain says.
func TestRoute_ShortAndLongPathAgree(t *testing.T) {
	for seed := range uint64(25) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		s := newStand(t, seed, numberedWorkers(4), WithReplicas(1+rnd.IntN(4)), WithPoints(1))
		s.scramble(rnd)
		restore := s.words()
		for k := range 100 {
			q := Request{Hash: HashUint64(rnd.Uint64()), Intent: []Intent{Unspecified, Read, StrongRead, Write}[k%4]}
			s.ns.Add(1)
			told := s.Explain(q)
			s.plain(true)
			short := s.route(q)
			restore(short.ID())
			s.plain(false)
			long := s.route(q)
			restore(long.ID())
			s.plain(true)
			if short.ID() != long.ID() || told.Chosen != short.ID() {
				t.Fatalf("seed %d, %d: short path %s, long path %s, Explain\n%v", seed, k, short.ID(), long.ID(), told)
			}
		}
	}
}

// Costs out of the range of powers: no NaN, no infinity, the cheapest wins.
func TestRoute_ExtremeCosts(t *testing.T) {
	extremes := []float64{1e-3, 1, 1e6, 1e12, 1e18, 1e30, 3e38}
	for _, temperature := range []float64{0.5, 1, 3, 10} {
		tu := DefaultTuning()
		tu.Temperature = temperature
		s := newStand(t, 1, workersNamed("a", "b", "c"), WithTuning(tu), WithPoints(1))
		s.nextFold.Store(math.MaxInt64)
		for _, a := range extremes {
			for _, b := range extremes {
				for _, c := range extremes {
					ns := map[string]float64{"a": a, "b": b, "c": c}
					for id, x := range ns {
						s.setLatencyNS(id, x)
					}
					d := s.Explain(Request{Key: "k"})
					sum, best := 0.0, min(a, b, c)
					for _, x := range d.Candidates {
						sum += x.Probability
						if !(x.Probability >= 0 && x.Probability <= 1) || !(x.Score >= 0 && x.Score <= 100) {
							t.Fatalf("T=%g, %v: %+v", temperature, ns, x)
						}
						// Under 1e-60 a weight may be 0 as a float64.
						if want := math.Pow(ns[x.ID]/best, -10/temperature); x.Probability < want/3*0.99 && want > 1e-60 || x.Probability > want*1.01 {
							t.Fatalf("T=%g, %v: probability of %s %g, of the order of %g", temperature, ns, x.ID, x.Probability, want)
						}
					}
					if math.Abs(sum-1) > 1e-9 {
						t.Fatalf("T=%g, %v: sum %g", temperature, ns, sum)
					}
					chosen := s.route(Request{Key: "k"})
					chosen.Cancel()
					if math.Pow(ns[chosen.ID()]/best, -10/temperature) < 1e-4 {
						t.Fatalf("T=%g, %v: picked %s", temperature, ns, chosen.ID())
					}
				}
			}
		}
	}
}

// Two lanes: what writes taught says nothing of reads, in flight is shared.
func TestWeigh_Lanes(t *testing.T) {
	s := newStand(t, 1, workersNamed("a", "b"))
	ls := &s.state("a").lane[laneWrite]
	ls.lat.Store(packLat(50e6, s.now()))
	ls.mem.Store(s.snap.Load().coef.memory(0, 0))
	q := Request{Among: s.refs("a", "b")}
	p := func(intent Intent) float64 {
		q.Intent = intent
		d := s.Explain(q)
		return d.Candidates[0].Probability
	}
	assert.InDelta(t, 0.5, p(Read), 1e-9)
	assert.Less(t, p(Write), 1e-9)
	_, err := s.Start(Request{Intent: Write}, "a")
	require.NoError(t, err)
	assert.Less(t, p(Read), 0.01, "in flight is one")
}
