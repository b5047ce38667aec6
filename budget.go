package ringwise

import (
	"math"
	"sync/atomic"
)

// budget is a bucket of tokens in millionths, so that one word holds it and a
// share of a thousandth earns something.
type budget struct {
	n atomic.Int64
	_ [56]byte // many cores touch it, alone
}

const (
	budgetUnit = 1_000_000
	budgetCap  = 10 * budgetUnit
)

func (b *budget) earn(share float64) {
	n := b.n.Load()
	if n < budgetCap && share > 0 {
		// A lost race loses some thousandths of a token.
		b.n.CompareAndSwap(n, min(n+int64(math.Round(share*budgetUnit)), budgetCap))
	}
}

// fill starts the bucket full.
func (b *budget) fill() { b.n.Store(budgetCap) }

// refund gives tokens back.
func (b *budget) refund(cost float64) { b.n.Add(int64(cost * budgetUnit)) }

func (b *budget) spend(cost, share float64) bool {
	need := int64(cost * budgetUnit)
	for share > 0 {
		n := b.n.Load()
		if n < need {
			return false
		}
		if b.n.CompareAndSwap(n, n-need) {
			return true
		}
	}
	return false
}

func (b *budget) banked() float64 { return float64(b.n.Load()) / budgetUnit }
