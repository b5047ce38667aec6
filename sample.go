package ringwise

import "sync"

// sampleRing keeps the last decisions of real picks as they were captured;
// they are rendered when they are read.
type sampleRing struct {
	// mu guards the rest. A Pick that finds it taken keeps nothing.
	mu    sync.Mutex
	views []View
	next  int
	n     int
}

func (s *sampleRing) init(n int) { s.views = make([]View, n) }

// keep copies a view and the candidate it chose, before the reservation.
func (s *sampleRing) keep(v *View, chosen int) {
	v.capture()
	v.chosen = chosen
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	if len(s.views) == 0 {
		return
	}
	s.views[s.next] = *v
	s.next = (s.next + 1) % len(s.views)
	s.n = min(s.n+1, len(s.views))
}
