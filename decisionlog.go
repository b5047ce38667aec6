package ringwise

import (
	"log/slog"
	"sync"
	"sync/atomic"
)

// LogKeys says what of a key a decision log carries.
type LogKeys uint8

// What there is to choose from.
const (
	// LogHashes writes the hash alone. Who has the key can find its lines;
	// nobody reads the key off it, though few or short keys can be guessed.
	LogHashes LogKeys = iota
	// LogPlainKeys writes Request.Key as well. Keys may name people: ask who
	// reads the log, and how long it is kept.
	LogPlainKeys
)

// decisionLog hands sampled picks from Pick to whoever folds, who logs them.
type decisionLog struct {
	logger *slog.Logger
	keys   LogKeys
	under  uint64                      // of 32 random bits
	by     interface{ logView(*View) } // the Router, which renders

	// mu guards the queue. A Pick that finds it taken, or the queue full, logs
	// nothing.
	mu      sync.Mutex
	views   []View
	next, n int
	dropped atomic.Uint64
	// writing is taken by TryLock alone: one logs at a time, nobody waits.
	writing sync.Mutex
	view    View // being logged; of writing
}

const logQueue = 64

// put queues a view and the candidate it chose.
func (d *decisionLog) put(v *View, chosen int) {
	v.capture()
	v.chosen = chosen
	if !d.mu.TryLock() {
		d.dropped.Add(1)
		return
	}
	defer d.mu.Unlock()
	if d.n == len(d.views) {
		d.dropped.Add(1)
		return
	}
	d.views[(d.next+d.n)%len(d.views)] = *v
	d.n++
}

func (d *decisionLog) queued() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n
}

// get takes the oldest view out of the queue.
func (d *decisionLog) get(to *View) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.n == 0 {
		return false
	}
	*to = d.views[d.next]
	d.views[d.next] = View{} // it holds on to its snapshot
	d.next = (d.next + 1) % len(d.views)
	d.n--
	return true
}

// write logs what is queued when it begins, so that a handler slower than the
// picks ends; the caller holds no lock.
func (d *decisionLog) write() {
	if d == nil || !d.writing.TryLock() {
		return
	}
	defer d.writing.Unlock()
	for n := d.queued(); n > 0 && d.get(&d.view); n-- {
		d.by.logView(&d.view)
	}
	d.view = View{}
}

// busy tells that somebody is writing, perhaps for ever.
func (d *decisionLog) busy() bool {
	if d == nil {
		return false
	}
	if !d.writing.TryLock() {
		return true
	}
	d.writing.Unlock()
	return false
}
