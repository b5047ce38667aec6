package ringwise

import (
	"sync/atomic"
	"time"
)

// clockGuard makes a caller's clock safe: one that steps back stands still
// instead, and one that leaps over maxLeap in one step is taken to have been
// set, not waited for. An idle client pays with one cooldown at most.
type clockGuard struct {
	epoch time.Time
	// base is replaced whole when the clock was set: last and offset of two
	// different settings would make a leap of their own.
	base atomic.Pointer[clockBase]
}

type clockBase struct {
	offset int64        // added to raw
	last   atomic.Int64 // raw ns last seen
}

// A clock that is back by less than maxStill stands still until it has caught
// up; one that is further back, or ahead by over maxLeap in one step, was set.
const (
	maxLeap  = 30 * time.Minute
	maxStill = time.Second
)

func (g *clockGuard) now(t time.Time) int64 {
	for {
		raw, b := int64(t.Sub(g.epoch)), g.current()
		last := b.last.Load()
		switch d := raw - last; {
		case d >= 0 && d < int64(time.Millisecond): // not written: all Picks share it
		case d < 0 && d > -int64(maxStill):
			raw = last
		case d >= 0 && d <= int64(maxLeap):
			b.last.CompareAndSwap(last, raw)
		default:
			next := &clockBase{offset: b.offset - d}
			next.last.Store(raw)
			if !g.base.CompareAndSwap(b, next) {
				continue
			}
			b = next
		}
		return max(raw+b.offset, 0)
	}
}

func (g *clockGuard) current() *clockBase {
	for {
		if b := g.base.Load(); b != nil {
			return b
		}
		g.base.CompareAndSwap(nil, new(clockBase))
	}
}

// at is a caller's time on the guarded line; set tells that it is so far off
// that the clock may have been set and nobody has seen it yet.
func (g *clockGuard) at(t time.Time) (ns int64, set bool) {
	raw, b := int64(t.Sub(g.epoch)), g.current()
	d := raw - b.last.Load()
	return max(raw+b.offset, 0), d <= -int64(maxStill) || d > int64(maxLeap)
}
