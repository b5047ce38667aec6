package measure

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestOf_MedianAndQuartiles(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float64
		want   Spread
	}{
		{"none", nil, Spread{}},
		{"one", []float64{7}, Spread{7, 7, 7}},
		{"odd, unsorted", []float64{5, 1, 4, 2, 3}, Spread{3, 2, 4}},
		{"even", []float64{4, 1, 3, 2}, Spread{2.5, 1.75, 3.25}},
	} {
		if got := Of(c.values); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestRatio_IsTakenRoundByRound(t *testing.T) {
	// The machine slowed down by ten in the last round: of the medians the
	// ratio would be 2, of the rounds it is 4 each time.
	a := Series{NS: []float64{40, 80, 400}}
	b := Series{NS: []float64{10, 20, 100}}
	if got, want := Ratio(a, b), (Spread{4, 4, 4}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := Ratio(a, Series{NS: []float64{0, 0, 0}}); got != (Spread{}) {
		t.Errorf("of nothing: %v", got)
	}
}

func TestInterleave_RunsAllAsOften(t *testing.T) {
	var order []string
	calls := map[string]int{}
	contender := func(name string) Contender {
		return Contender{Name: name, Run: func(n int) {
			order = append(order, name)
			calls[name] += n
			time.Sleep(0)
		}}
	}
	got := Interleave([]Contender{contender("a"), contender("b")}, 20*time.Microsecond, 3)
	if len(got) != 2 || got[0].Name != "a" || len(got[0].NS) != 3 || len(got[1].NS) != 3 {
		t.Fatalf("got %+v", got)
	}
	if want := []string{"a", "b", "b", "a", "a", "b"}; !slices.Equal(order[len(order)-6:], want) {
		t.Errorf("order %v, want %v", order[len(order)-6:], want)
	}
}

var keep []byte

func TestInterleave_CountsAllocations(t *testing.T) {
	got := Interleave([]Contender{
		{Name: "none", Run: func(int) {}},
		{Name: "two", Run: func(n int) {
			for range n {
				keep = make([]byte, 100)
				keep = make([]byte, 200)
			}
		}},
	}, time.Millisecond, 5)
	if got[0].Allocs > 0.01 {
		t.Errorf("none: %v allocations", got[0].Allocs)
	}
	if got[1].Allocs < 1.99 || got[1].Allocs > 2.5 {
		t.Errorf("two: %v allocations", got[1].Allocs)
	}
}

func TestHistogram_QuantilesToTwoPerCent(t *testing.T) {
	const seed = 3
	rnd := rand.New(rand.NewPCG(seed, 0))
	var h, other Histogram
	var all []time.Duration
	for i := range 100_000 {
		d := time.Duration(rnd.ExpFloat64() * 5000)
		all = append(all, d)
		if i%2 == 0 {
			h.Record(d)
		} else {
			other.Record(d)
		}
	}
	h.Merge(&other)
	slices.Sort(all)
	if h.N() != 100_000 || h.Longest() != all[len(all)-1] {
		t.Errorf("n %d, longest %v, want %v", h.N(), h.Longest(), all[len(all)-1])
	}
	for _, q := range []float64{0, 0.5, 0.99, 0.9999, 1} {
		want := all[min(int(q*100_000), len(all)-1)]
		if got := h.Quantile(q); got < want || float64(got) > float64(want)*1.017+1 {
			t.Errorf("seed %d: quantile %v: got %v, want %v", seed, q, got, want)
		}
	}
	var none Histogram
	if none.Quantile(0.5) != 0 {
		t.Error("a quantile of nothing")
	}
}
