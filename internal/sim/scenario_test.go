package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// calm is the scenario without what goes wrong in it, at the same rate.
func calm(s Scenario) Scenario {
	if s.Lost == 0 {
		s.Changes = nil // lost keeps its slow workers
	}
	s.HotKey, s.Zipf, s.Lost, s.AppErrors, s.Tenants = 0, 0, 0, 0, 0
	return s
}

// counting is least in flight that counts what it hears.
type counting struct {
	leastInFlight
	verdicts [6]float64
	flagged  float64
}

func countingPolicy() Factory {
	return Factory{Name: "count", New: func(e *Env) Policy {
		return &counting{leastInFlight: leastInFlight{make(inFlight, e.Scenario.Workers), e.Rand}}
	}}
}

func (c *counting) Done(d *Done) {
	c.leastInFlight.Done(d)
	c.verdicts[d.Verdict]++
}

func (c *counting) Report(r *Report) {
	if r.Compacting {
		c.flagged++
	}
}

func (c *counting) Finish(r *Result) {
	for v, n := range c.verdicts {
		r.Notes["verdict"+string('0'+rune(v))] += n
	}
	r.Notes["flagged"] += c.flagged
}

// TestScenario_BurstBreaksAConnectionful: about 64 at once, twice.
func TestScenario_BurstBreaksAConnectionful(t *testing.T) {
	s, _ := ScenarioByName("burst")
	r, err := Run(s[0], countingPolicy(), Options{Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Notes["verdict2"]; n < 100 || n > 160 {
		t.Errorf("%v broken, want about 2 times 64", n)
	}
}

func TestScenario_RateKeepsTheLoad(t *testing.T) {
	for _, s := range Scenarios() {
		if strings.Contains("abcdefghij", s.Name) {
			if s.Load != 0.7 {
				t.Errorf("%s: load %v, want 0.7", s.Name, s.Load)
			}
		}
	}
	a := Scenarios()[0]
	if got := a.Rate(); math.Abs(got-10500) > 1e-6 {
		t.Errorf("rate of a: %v, want 10500 a second", got)
	}
	// A fleet a third of which is 3x slower carries 7/9 as much.
	b := Scenarios()[1]
	if got := b.Rate(); math.Abs(got-10500*7.0/9) > 1e-6 {
		t.Errorf("rate of b: %v, want %v", got, 10500.0*7/9)
	}
}

// TestScenario_RingIsEven: each worker leads as many partitions as any other,
// candidates differ, and only the seed decides.
func TestScenario_RingIsEven(t *testing.T) {
	s := DefaultScenario()
	cands := s.ring(3)
	lead := make([]int, s.Workers)
	for _, c := range cands {
		if len(c) != 3 || c[0] == c[1] || c[1] == c[2] || c[0] == c[2] {
			t.Fatalf("candidates %v", c)
		}
		lead[c[0]]++
	}
	if slices.Min(lead) != 16 || slices.Max(lead) != 16 {
		t.Errorf("partitions led: %v, want 16 each", lead)
	}
	s.Partitions, s.Replicas = 3, 15
	for _, c := range s.ring(1) {
		if len(c) != 15 {
			t.Errorf("candidates of a ring smaller than the fleet: %v", c)
		}
	}
}

// TestScenario_ValidateNamesTheField breaks one field at a time.
func TestScenario_ValidateNamesTheField(t *testing.T) {
	for _, c := range []struct {
		field string
		set   func(s *Scenario)
	}{
		{"Workers", func(s *Scenario) { s.Workers = 0 }},
		{"Slots", func(s *Scenario) { s.Slots = -1 }},
		{"Clients", func(s *Scenario) { s.Clients = 0 }},
		{"Replicas", func(s *Scenario) { s.Replicas = 17 }},
		{"Replicas", func(s *Scenario) { s.Workers, s.Replicas = 2, 3 }},
		{"Partitions", func(s *Scenario) { s.Partitions = 0 }},
		{"Load", func(s *Scenario) { s.Load = math.NaN() }},
		{"Load", func(s *Scenario) { s.Load = 2 }},
		{"Speed", func(s *Scenario) { s.Speed = 0 }},
		{"Service", func(s *Scenario) { s.Service = 0 }},
		{"Net", func(s *Scenario) { s.Net = -1 }},
		{"Timeout", func(s *Scenario) { s.Timeout = 0 }},
		{"Warmup", func(s *Scenario) { s.Warmup = s.Duration }},
		{"Duration", func(s *Scenario) { s.Duration = 48 * time.Hour }},
		{"HotKey", func(s *Scenario) { s.HotKey = 1 }},
		{"Writes", func(s *Scenario) { s.Writes = -0.1 }},
		{"Lost", func(s *Scenario) { s.Lost = math.NaN() }},
		{"AppErrors", func(s *Scenario) { s.AppErrors = 2 }},
		{"Zipf", func(s *Scenario) { s.Zipf = 9 }},
		{"Keys", func(s *Scenario) { s.Zipf = 1 }},
		{"shape", func(s *Scenario) { s.ServiceDist = Dist{Kind: "pareto", Shape: 0.5} }},
		{"kind", func(s *Scenario) { s.ServiceDist = Dist{Kind: "gauss"} }},
	} {
		s := DefaultScenario()
		c.set(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s: error %v does not name it", c.field, err)
		}
		if _, err := Run(s, Policies()[0], Options{}); err == nil {
			t.Errorf("%s: Run took it", c.field)
		}
	}
	for _, s := range Scenarios() {
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
}

func TestScenarioByName(t *testing.T) {
	for in, want := range map[string]int{"a": 1, "a-j": 10, "a,rolling": 2, "all": len(Scenarios())} {
		if got, err := ScenarioByName(in); err != nil || len(got) != want {
			t.Errorf("%q: %d scenarios, %v; want %d", in, len(got), err, want)
		}
	}
	if _, err := ScenarioByName("a,nosuch"); err == nil || !strings.Contains(err.Error(), "nosuch") || !strings.Contains(err.Error(), "rolling") {
		t.Errorf("error %v names neither the unknown one nor what there is", err)
	}
}

func TestKeys_HotAndZipf(t *testing.T) {
	s := DefaultScenario()
	s.HotKey = 0.1
	k := s.keys(1)
	r := rand.New(rand.NewPCG(1, 0))
	n := map[uint64]int{}
	for range 100000 {
		h, p := k.draw(r)
		if p < 0 || int(p) >= s.Partitions {
			t.Fatalf("partition %d", p)
		}
		n[h]++
	}
	top := 0
	for _, c := range n {
		top = max(top, c)
	}
	if top < 9500 || top > 10800 {
		t.Errorf("hot key took %d of 100000, want 10 %%", top)
	}
	s.HotKey, s.Zipf, s.Keys = 0, 1, 100
	k = s.keys(1)
	n = map[uint64]int{}
	for range 100000 {
		h, _ := k.draw(r)
		n[h]++
	}
	counts := []int{}
	for _, c := range n {
		counts = append(counts, c)
	}
	slices.SortFunc(counts, func(a, b int) int { return b - a })
	// The harmonic number of 100 is 5.187: 19.3 %, 9.6 %, 6.4 %.
	for i, want := range []float64{19279, 9639, 6426} {
		if math.Abs(float64(counts[i])/want-1) > 0.05 {
			t.Errorf("key %d of a zipf: %d, want about %v", i+1, counts[i], want)
		}
	}
}

// TestScenario_FitsIntoMemory: a run too long or too wide is refused before a
// byte is made; the built-in scenarios, at any load, and a day of 15 workers fit.
func TestScenario_FitsIntoMemory(t *testing.T) {
	for _, c := range []struct {
		want string // in the error; empty: it fits
		set  func(s *Scenario, o *Options)
	}{
		{"", func(*Scenario, *Options) {}},
		{"", func(s *Scenario, _ *Options) { s.Load, s.Duration = 0.01, 24*time.Hour }},
		{"requests", func(s *Scenario, _ *Options) { s.Slots, s.Service, s.Duration = 100000, time.Microsecond, 24*time.Hour }},
		{"series", func(s *Scenario, _ *Options) {
			s.Workers, s.Load, s.Service, s.Duration = 10000, 0.01, time.Hour, 24*time.Hour
		}},
		{"series", func(_ *Scenario, o *Options) { o.Series = 1 }},
		{"series", func(_ *Scenario, o *Options) { o.Series = -1 }},
	} {
		s, o := DefaultScenario(), Options{Seed: 1}
		c.set(&s, &o)
		err := s.Fits(o)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", s, err, c.want)
		}
		if err != nil {
			if _, err := Run(s, Policies()[0], o); err == nil {
				t.Errorf("%+v: it runs", s)
			}
		}
	}
	for _, s := range Scenarios() {
		s.Load = 1.5
		if err := s.Fits(Options{}); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
}
