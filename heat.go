package ringwise

import (
	"sync"
	"sync/atomic"

	"github.com/ringwise/ringwise/hotkey"
)

// heating is when hot keys were judged, and room for what changed.
type heating struct {
	due atomic.Int64 // ns
	// mu guards changes. It is taken by TryLock alone.
	mu      sync.Mutex
	changes []hotkey.Change
}

const heatEvery = int64(1e9) // ns: how soon a burst is seen

// picked tells what remembers of a real pick: candidate i was chosen.
func (r *Router) picked(v *View, h KeyHash, q *Request, i int) {
	if r.hub.history != nil && v.key.kind != 0 {
		r.hub.history.add(v.now, v.key.kind, v.Ref(i).local())
	}
	if r.hot == nil || h == 0 || q.Tried.Len() > 0 { // a second try is no second request
		return
	}
	now, write := r.unix+v.now, q.Intent == Write
	if q.Key == "" {
		r.hot.AddBytes(now, uint64(h), q.KeyBytes, write, 1)
	} else {
		r.hot.Add(now, uint64(h), q.Key, write)
	}
}

// refreshHeat has keys judged once a second and queues what changed.
func (r *Router) refreshHeat(now int64) {
	h := &r.heat
	if r.hot == nil || now < h.due.Load() || !h.mu.TryLock() {
		return
	}
	defer h.mu.Unlock()
	if now < h.due.Load() {
		return
	}
	h.due.Store(now + heatEvery)
	h.changes = r.hot.Refresh(r.unix+now, h.changes[:0])
	if r.hooks.HotKey == nil {
		return
	}
	for _, c := range h.changes {
		r.enqueue(event{kind: eventHotKey, hot: c})
	}
}
