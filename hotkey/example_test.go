package hotkey_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ringwise/ringwise/hotkey"
	"github.com/zeebo/xxh3"
)

// at is some time, in nanoseconds. A program takes its start in Unix time and
// adds the monotonic time since.
func at(d time.Duration) int64 { return 1_700_000_000e9 + int64(d) }

func Example() {
	t, err := hotkey.New(hotkey.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	user := xxh3.HashString("acme:user:1")
	for s := range 5 * 60 { // twenty reads a second, a write every fifth second
		now := at(time.Duration(s) * time.Second)
		t.AddN(now, user, "acme:user:1", false, 20)
		if s%5 == 0 {
			t.Add(now, user, "acme:user:1", true)
		}
	}
	now := at(5 * time.Minute)
	for _, c := range t.Refresh(now, nil) {
		fmt.Printf("%s: %v, was %v\n", c.Key, c.To, c.From)
	}
	if k := t.Heat(now, user); k.Sustained() && k.ReadHeavy() {
		fmt.Println("spread its replicas")
	}
	// Output:
	// acme:user:1: read sustained, was cold
	// spread its replicas
}

func ExampleTracker_Top() {
	t, _ := hotkey.New(hotkey.Options{})
	for key, n := range map[string]uint16{"a": 30, "b": 20, "c": 10} {
		t.AddN(at(0), xxh3.HashString(key), key, key == "b", n)
	}
	for _, k := range t.Top(at(0), 2) {
		fmt.Println(k.Key, k.Reads, k.Writes)
	}
	// Output:
	// a 30 0
	// b 0 20
}

// One request in eight is counted, as eight.
func ExampleTracker_AddN() {
	t, _ := hotkey.New(hotkey.Options{})
	chance := rand.New(rand.NewPCG(1, 0))
	for range 80_000 {
		if chance.Uint64()&7 == 0 {
			t.AddN(at(0), 1, "a", false, 8)
		}
	}
	n := t.Top(at(0), 1)[0].Reads
	fmt.Println(n > 77_000 && n < 83_000)
	// Output: true
}

// Three processes put their exports where the others find them.
func ExampleTracker_Merge() {
	var store [][]byte
	var fleet [3]*hotkey.Tracker
	for i := range fleet {
		fleet[i], _ = hotkey.New(hotkey.Options{})
		fleet[i].AddN(at(0), 1, "a", false, uint16(10*(i+1)))
		store = append(store, fleet[i].Export(nil, at(0), 256))
	}
	if err := fleet[0].Merge(at(time.Second), store...); err != nil { // passes over its own
		fmt.Println(err)
	}
	fmt.Println(fleet[0].Top(at(time.Second), 1)[0].Reads)

	err := fleet[0].Merge(at(time.Second), []byte("garbage"))
	bad, _ := errors.AsType[*hotkey.ExportError](err)
	fmt.Println(bad.Field, bad.Value, errors.Is(err, hotkey.ErrExport))
	// Output:
	// 60
	// length 7 true
}

func ExampleTracker_Refresh() {
	t, _ := hotkey.New(hotkey.Options{})
	for s := range 60 {
		t.AddN(at(time.Duration(s)*time.Second), 1, "a", s%2 == 0, 100)
	}
	var changes []hotkey.Change
	for m := range 3 {
		changes = t.Refresh(at(time.Duration(m+1)*time.Minute), changes[:0])
		for _, c := range changes {
			fmt.Printf("minute %d: %s is %v\n", m+1, c.Key, c.To)
		}
	}
	// Output:
	// minute 1: a is write burst
	// minute 2: a is cold
}

func ExampleTracker_Retune() {
	t, _ := hotkey.New(hotkey.Options{})
	u := hotkey.DefaultTuning()
	u.HotShare = 2
	fmt.Println(t.Retune(u))
	// Output: hotkey: Tuning.HotShare = 2, want a number in (0, 1]
}

func ExampleTracker_Heat() {
	t, _ := hotkey.New(hotkey.Options{})
	t.AddN(at(0), 1, "a", false, 1000)
	fmt.Println(t.Heat(at(0), 1))
	t.Refresh(at(0), nil)
	fmt.Println(t.Heat(at(0), 1), t.Heat(at(0), 2))
	// Output:
	// cold
	// read burst cold
}
