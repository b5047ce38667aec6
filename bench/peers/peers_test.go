package peers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Each ring names a worker of the fleet, always the same one, and where it
// has such a call three different ones, the first being the owner.
func TestRings_AnswerSanely(t *testing.T) {
	f := NewFleet(20, 0)
	for _, p := range All() {
		t.Run(strings.ReplaceAll(p.Name, "/", "_"), func(t *testing.T) {
			for _, points := range []int{0, 100} {
				if points > 0 && !p.Points {
					continue
				}
				r, err := p.Build(f, points)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Release()
				seen := map[string]int{}
				dst := make([]string, 0, 4)
				for i := range 2000 {
					key := fmt.Sprint("key-", i)
					id := r.One(key)
					if !slices.Contains(f.IDs, id) || r.One(key) != id {
						t.Fatalf("%s goes to %q and then to %q", key, id, r.One(key))
					}
					seen[id]++
					if r.Three == nil {
						continue
					}
					three := r.Three(key, dst)
					if len(three) != 3 || three[0] == three[1] || three[1] == three[2] || three[0] == three[2] || three[0] != id {
						t.Fatalf("%s has the owners %v, the first by itself is %s", key, three, id)
					}
				}
				// serialx has one point a worker: some own next to nothing.
				if len(seen) < 10 {
					t.Errorf("only %d of 20 workers are used", len(seen))
				}
			}
		})
	}
}

func TestRings_RemoveAndAdd(t *testing.T) {
	for _, p := range Rings {
		f := NewFleet(20, 0)
		r, err := p.Build(f, 0)
		if err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		defer r.Release()
		if r.Remove == nil || r.Add == nil {
			continue
		}
		gone := f.IDs[7]
		r.Remove(gone)
		for i := range 2000 {
			if id := r.One(fmt.Sprint("key-", i)); id == gone || id == "" {
				t.Fatalf("%s: %q still gets keys after %q left", p.Name, id, gone)
			}
		}
		r.Add(gone)
	}
}

func TestPickers_AnswerSanely(t *testing.T) {
	f := NewFleet(12, 0).Weighted()
	for _, p := range append([]PickerPeer{OurPicker, OurPickerDone}, Pickers...) {
		t.Run(strings.ReplaceAll(p.Name, "/", "_"), func(t *testing.T) {
			picker, err := p.Build(f)
			if err != nil {
				t.Fatal(err)
			}
			defer picker.Release()
			seen := map[string]bool{}
			for i := range 3000 {
				id, err := picker.Once(fmt.Sprint("key-", i))
				if err != nil || !slices.Contains(f.IDs, id) {
					t.Fatalf("got %q, %v", id, err)
				}
				seen[id] = true
			}
			if len(seen) < 6 {
				t.Errorf("only %d of 12 workers are used", len(seen))
			}
			run, drain := picker.Loop()
			run([]string{"a", "b", "c"})
			run(make([]string, 3*Window)[:0])
			drain()
		})
	}
}

func TestWindow_ClosesEachOnce(t *testing.T) {
	open := map[int]bool{}
	next, most := 0, 0
	run, drain := window(func(string) (int, string) {
		next++
		open[next] = true
		most = max(most, len(open))
		return next, "worker"
	}, func(i int) {
		if !open[i] {
			t.Errorf("%d is closed but not open", i)
		}
		delete(open, i)
	})()
	for _, n := range []int{0, 1, Window, 3*Window + 5} {
		run(make([]string, n))
		drain()
		if len(open) != 0 {
			t.Errorf("after %d keys %d are open", n, len(open))
		}
	}
	if most != Window {
		t.Errorf("%d were open, want %d", most, Window)
	}
}

func TestFleet(t *testing.T) {
	f := NewFleet(600, 2)
	if f.IDs[599] != "127.3.2.87:7000" || f.Weight(5) != 1 || f.Weighted().Weight(5) != 4 {
		t.Errorf("%s %d %d", f.IDs[599], f.Weight(5), f.Weighted().Weight(5))
	}
	if len(slices.Compact(slices.Sorted(slices.Values(f.IDs)))) != 600 {
		t.Error("names are not unique")
	}
}

func TestNewRouter_WorkersAreUnequal(t *testing.T) {
	r, rtt, err := NewRouter(NewFleet(10, 0))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int64]bool{}
	for i := range 500 {
		c, err := r.Pick(fmt.Sprint("key-", i))
		if err != nil {
			t.Fatal(err)
		}
		seen[int64(rtt(c))] = true
		r.Observe(c, rtt(c), nil)
	}
	if len(seen) < 5 {
		t.Errorf("RTTs %v", seen)
	}
}
