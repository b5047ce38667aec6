package ringwise

import (
	"sync/atomic"
	"time"
)

// clockGuard makes a caller's clock safe: one that steps back stands still
// instead, and one that leaps over maxLeap in one step is taken to have been
// set, not waited for. An idle client pays with one cooldown at most.
type clockGuard struct {
	epoch  time.Time
	last   atomic.Int64 // raw ns last seen
	offset atomic.Int64 // added to raw
}

// A clock that is back by less than maxStill stands still until it has caught
// up; one that is further back, or ahead by over maxLeap in one step, was set.
const (
	maxLeap  = 30 * time.Minute
	maxStill = time.Second
)

func (g *clockGuard) now(t time.Time) int64 {
	raw := int64(t.Sub(g.epoch))
	last := g.last.Load()
	d := raw - last
	switch {
	case d >= 0 && d < int64(time.Millisecond): // not written: all Picks share it
	case d < 0 && d > -int64(maxStill):
		raw = last
	case g.last.CompareAndSwap(last, raw):
		if d < 0 || d > int64(maxLeap) {
			g.offset.Add(-d)
		}
	}
	return max(raw+g.offset.Load(), 0)
}
