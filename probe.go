package ringwise

import (
	"context"
	"errors"
	"time"
)

// Limits of what the Probe hook is asked for.
const (
	probeInterval = int64(time.Second) // for one worker
	probeBatch    = 32                 // workers a fold
)

// ProbeResult tells how a probe of a worker ended: that it may be sent
// requests, or why not. Tuning.ProbeFailures errors in a row with no answer
// in between take it out on both lanes, within MaxOut; a success brings it
// back by the ramp, and so does Tuning.ProbeOutTime without any result.
// context.Canceled is no result. rtt counts as a latency only for a worker
// that never was sent a request, as 100 s at most; 0: not known. A probe is not traffic, so a
// success ends no cooldown that traffic began. An unknown ID is counted and
// nothing else. Safe for concurrent use.
func (r *Router) ProbeResult(id string, rtt time.Duration, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	now := r.now() // the caller's code, so not under mu
	r.mu.Lock()
	r.probeLocked(id, rtt, err != nil, now)
	r.mu.Unlock()
	r.drain()
}

func (r *Router) probeLocked(id string, rtt time.Duration, failed bool, now int64) {
	sn := r.snap.Load()
	slot, ok := sn.byID[id]
	if sn.closed {
		return
	}
	if !ok {
		r.counters.unknownIDs.Add(1)
		return
	}
	n := sn.nodes[slot]
	st, p, t := n.st, &n.st.cold.probe, &sn.coef.tuning
	if now-r.lastAnswer(st, now) > p.result {
		p.fails = 0 // it has answered since, so they are not in a row
	}
	p.result = max(now, 1)
	if failed {
		r.counters.probesFailed.Add(1)
		p.fails++
	} else {
		p.fails = 0
	}
	for ln := range lanes {
		switch {
		case p.fails >= t.ProbeFailures && st.cold.state != Down: // who is Down needs no place under the cap
			r.change(n, ln, now, func(p penalty) (penalty, bool, penalty) {
				return p.probesFailed(now, int64(t.ProbeOutTime))
			})
		case !failed:
			r.change(n, ln, now, func(p penalty) (penalty, bool, penalty) {
				if p.probedOut() {
					p = p.letIn(now)
				}
				return p, false, p
			})
			if ls := &st.lane[ln]; rtt > 0 && st.issued.Load() == 0 {
				ls.lat.CompareAndSwap(0, packLat(float64(min(int64(rtt), maxSample)), now))
			}
		}
	}
}

// askProbes tells the hook whom to probe, at most probeBatch of them a fold
// and each fold on from where the last one stopped: workers that fell silent
// together are not probed together. The caller holds mu.
func (r *Router) askProbes(sn *snapshot, now int64) {
	if r.hooks.Probe == nil {
		return
	}
	asked := 0
	for range sn.live {
		if asked == probeBatch {
			return
		}
		r.probeNext = (r.probeNext + 1) % len(sn.live)
		n := sn.nodes[sn.live[r.probeNext]]
		if cold := n.st.cold; cold.probeDue(&sn.coef.tuning, now) {
			cold.probe.asked = now
			asked++
			r.counters.probesAsked.Add(1)
			r.enqueue(event{kind: eventProbe, worker: n.ID})
		}
	}
}

// probeDue: nothing was heard of the worker for ProbeAfter, be it an answer or
// a good probe, and it was not asked for just now.
func (c *coldState) probeDue(t *Tuning, now int64) bool {
	heard := c.heard
	if c.probe.fails == 0 {
		heard = max(heard, c.probe.result)
	}
	return c.state != Down && now-heard >= int64(t.ProbeAfter) && (c.probe.asked == 0 || now-c.probe.asked >= probeInterval)
}
