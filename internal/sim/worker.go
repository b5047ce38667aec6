package sim

import "slices"

// worker is a server with slots and one queue, first come first served.
type worker struct {
	slow     float64 // service times are multiplied by it; 1 is normal
	inside   int     // in service and queued
	sent     int     // on the network towards it
	busy     int     // in service
	fail     bool    // answers at once with a fault
	refuse   bool    // refuses connections at once
	dead     bool    // swallows what arrives
	flagged  bool    // reports that it compacts
	paused   int64   // no progress before this time
	pauseSum int64   // sum of all pauses begun, see engine.complete
	queue    fifo[uint32]
	epoch    uint32   // one more at each crash
	cache    lru      // of tenants
	tenants  []uint32 // requests of each since the start; runs take about a minute

	service float64 // its own mean service time, EWMA, nanoseconds

	// Since the last report.
	busyNS   int64 // slot-nanoseconds in service
	busyAt   int64 // busyNS counted up to here
	finished int
	failed   int
	spent    []int64 // time inside, per finished request
}

// lru is the tenants a worker has at hand, the last used first. They are few.
type lru []int32

// touch uses a tenant and tells whether it was at hand.
func (c *lru) touch(t int32, size int) (hit bool) {
	i := slices.Index(*c, t)
	if hit = i >= 0; !hit {
		if i = len(*c); i < size {
			*c = append(*c, t)
		} else {
			i--
		}
	}
	copy((*c)[1:i+1], (*c)[:i])
	(*c)[0] = t
	return hit
}

// serviceGain is the gain of the worker's own mean service time. 0.1 is about
// the last 10 requests, 10 ms of work of 4 slots at 4 ms; 0.05 gives the same
// p99 where speeds stay and 5 % more where they change every 200 ms.
const serviceGain = 0.1

// account brings busyNS up to now.
func (w *worker) account(now int64) {
	w.busyNS += int64(w.busy) * (now - w.busyAt)
	w.busyAt = now
}

// Truth is the state of the workers as it is, for the oracle and for tests.
type Truth struct {
	e *engine
}

// Inside returns the requests inside a worker and on the way to it.
func (t *Truth) Inside(w int) int { k := &t.e.workers[w]; return k.inside + k.sent }

// Delay is the expected time until a request sent now would be answered:
// the shortest expected delay rule with the true queue, speed and pauses. A
// worker that would not answer costs an hour.
func (t *Truth) Delay(w int) float64 {
	e := t.e
	k := &e.workers[w]
	if k.fail || k.refuse || k.dead {
		return 3600e9
	}
	s := e.meanService * k.slow
	n, slots := k.inside+k.sent, e.slots
	d := s
	if n >= slots {
		d += float64(n-slots+1) * s / float64(slots)
	}
	if k.paused > e.now {
		d += float64(k.paused - e.now)
	}
	// Workers with a free slot are equal by delay; the emptier one leaves more
	// room for the keys that have no other choice.
	return d + 1e-3*s*float64(n)/float64(slots)
}

// change does what the scenario laid out.
func (e *engine) change(c Change) {
	w := &e.workers[c.Worker]
	on := c.Value != 0
	switch c.Kind {
	case Slow:
		w.slow = c.Value
	case Pause:
		d := int64(c.Value * 1e9)
		if w.paused < e.now {
			w.paused = e.now
		}
		w.paused += d
		w.pauseSum += d
		e.heap.push(event{w.paused, pack(evComplete, uint32(c.Worker), resume)})
	case Fail:
		w.fail = on
	case Refuse:
		w.refuse = on
	case Dead:
		w.dead = on
	case Flag:
		w.flagged = on
	case Crash, Cut:
		w.account(e.now)
		w.epoch++
		w.busy, w.inside = 0, 0
		w.queue = fifo[uint32]{}
		w.cache = nil
		// In order of slots, which one seed and one policy always give alike.
		for i := range e.attempts {
			a := &e.attempts[i]
			if !a.inside || a.worker != int32(c.Worker) {
				continue
			}
			a.inside = false
			if c.Kind == Cut && !a.done {
				e.answer(uint32(i), Broken)
			} else {
				e.orphaned(uint32(i))
			}
		}
	}
}

// measure takes a worker's figures and sends them to all clients.
func (e *engine) measure(i int) {
	w := &e.workers[i]
	every := int64(e.s.ReportEvery)
	w.account(e.now)
	if !w.dead && !w.refuse {
		r := Report{
			At: e.now, Worker: i, Queue: w.inside,
			CPU:        min(1, float64(w.busyNS)/float64(every*int64(e.slots))),
			Rate:       float64(w.finished) / e.s.ReportEvery.Seconds(),
			Compacting: w.flagged, Tenants: slices.Clone(w.tenants),
		}
		if w.finished > 0 {
			r.ErrorRate = float64(w.failed) / float64(w.finished)
		}
		r.Mean, r.P99 = meanAndP99(w.spent)
		e.reports = append(e.reports, r)
		e.heap.push(event{e.now + e.net + int64(e.s.ReportDelay), pack(evReport, 0, uint32(len(e.reports)-1))})
	}
	w.busyNS, w.finished, w.failed, w.spent = 0, 0, 0, w.spent[:0]
	e.heap.push(event{e.now + every, pack(evMeasure, 0, uint32(i))})
}
