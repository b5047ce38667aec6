package main

import (
	"math/rand/v2"

	"github.com/ringwise/ringwise"
)

// keyset are the keys of a run, made beforehand. They lie one after the other
// in memory and are walked in that order, so that their own cache misses are
// the same, and few, for all.
type keyset struct {
	random []string // all different
	hot    []string // 16 keys over and over
	one    []string // one key over and over
}

// newKeys makes n keys of 16 to 32 bytes.
func newKeys(n int) keyset {
	rnd := rand.New(rand.NewPCG(1, 0))
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789:-_."
	buf := make([]byte, 0, 24*n+32)
	ends := make([]int, n)
	for i := range ends {
		for range 16 + rnd.IntN(17) {
			buf = append(buf, letters[rnd.IntN(len(letters))])
		}
		ends[i] = len(buf)
	}
	all := string(buf)
	k := keyset{random: make([]string, n), hot: make([]string, 4096), one: make([]string, 4096)}
	from := 0
	for i, end := range ends {
		k.random[i] = all[from:end]
		from = end
	}
	for i := range k.hot {
		k.hot[i], k.one[i] = k.random[i%16], k.random[0]
	}
	return k
}

// walk calls f with n keys, in pieces, from where the last walk ended.
type walk struct {
	keys []string
	next int
}

func (w *walk) do(n int, f func(keys []string)) {
	for n > 0 {
		if w.next == len(w.keys) {
			w.next = 0
		}
		m := min(n, len(w.keys)-w.next)
		f(w.keys[w.next : w.next+m])
		w.next += m
		n -= m
	}
}

// slotHash is a hash in slot i of 2^18, the slots of placement version 1.
func slotHash(i int) ringwise.KeyHash { return ringwise.KeyHash(uint64(i)<<46 | 1) }

const slotCount = 1 << 18
