package ringwise

import "sync/atomic"

// budget is a bucket of tokens in thousandths, so that one word holds it.
type budget struct {
	n atomic.Int64
	_ [56]byte // many cores touch it, alone
}

const (
	budgetUnit = 1000
	budgetCap  = 10 * budgetUnit
)

func (b *budget) earn(share float64) {
	n := b.n.Load()
	if n < budgetCap && share > 0 {
		// A lost race loses some thousandths.
		b.n.CompareAndSwap(n, min(n+int64(share*budgetUnit), budgetCap))
	}
}

// refund gives one token back.
func (b *budget) refund() { b.n.Add(budgetUnit) }

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
