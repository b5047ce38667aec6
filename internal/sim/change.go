package sim

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// Change is one thing that happens to a worker at a fixed time.
type Change struct {
	At     time.Duration
	Worker int
	Kind   ChangeKind
	// Value by kind: Slow, the factor of service times; Pause, seconds;
	// Fail, Refuse, Dead and Flag, 1 for on and 0 for off.
	Value float64
}

// ChangeKind says what happens.
type ChangeKind uint8

const (
	Slow   ChangeKind = iota // services that start from now on take Value times as long
	Pause                    // no progress for Value seconds; what is inside waits
	Fail                     // each request is answered at once with a fault
	Refuse                   // each connection is refused at once
	Dead                     // what arrives is swallowed
	Crash                    // what is inside is lost without a word
	Cut                      // what is inside and under way fails now with a broken connection
	Flag                     // the worker reports that it compacts
)

// plan collects changes while a scenario lays them out.
type plan struct {
	s  *Scenario
	r  *rand.Rand
	cs []Change
}

func (p *plan) add(at time.Duration, w int, k ChangeKind, v float64) {
	p.cs = append(p.cs, Change{at, w, k, v})
}

// window turns k on at `from` and off at `to`.
func (p *plan) window(from, to time.Duration, w int, k ChangeKind) {
	p.add(from, w, k, 1)
	p.add(to, w, k, 0)
}

// slow makes worker w f times slower from `from` to `to`.
func (p *plan) slow(from, to time.Duration, w int, f float64) {
	p.add(from, w, Slow, f)
	p.add(to, w, Slow, 1)
}

// cold makes worker w f times slower at `from`, and warms it evenly until `to`.
func (p *plan) cold(from, to time.Duration, w int, f float64) {
	const steps = 30
	for i := range steps {
		p.add(from+(to-from)*time.Duration(i)/steps, w, Slow, f-(f-1)*float64(i)/steps)
	}
	p.add(to, w, Slow, 1)
}

// sorted returns the changes in order of time, those of one time as laid out.
func (p *plan) sorted() []Change {
	slices.SortStableFunc(p.cs, func(a, b Change) int { return cmp.Compare(a.At, b.At) })
	return p.cs
}
