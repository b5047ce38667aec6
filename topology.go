package ringwise

import "fmt"

// SetTopology replaces the set of workers. Statistics, reservations and
// penalties stay with workers that keep ID and Incarnation; one that joins a
// running fleet comes in by the ramp, unless more than half are new. It fails
// with ErrStaleTopology for an older epoch or version, ErrTopologyConflict
// for the version in force with other content, and a *ConfigError for bad
// workers; then nothing changes. The version in force with equal content
// renews its age. At 1000 workers it takes some milliseconds; picks go on.
func (r *Router) SetTopology(t Topology) error { return r.setTopology(t, false) }

func (r *Router) setTopology(t Topology, first bool) error {
	if err := t.validate(); err != nil {
		return err
	}
	workers := make([]Worker, len(t.Workers))
	copy(workers, t.Workers)
	for i := range workers {
		if workers[i].Weight == 0 {
			workers[i].Weight = 1
		}
	}
	t.Workers = workers
	now := r.now() // the caller's code, so not under mu
	r.mu.Lock()
	gone, err := r.setTopologyLocked(t, first, now)
	r.mu.Unlock()
	for _, id := range gone {
		r.failover(id)
	}
	r.drain()
	return err
}

func (r *Router) failover(id string) {
	if r.hooks.Failover != nil {
		r.enqueue(event{kind: eventFailover, worker: id})
	}
}

func (r *Router) setTopologyLocked(t Topology, first bool, now int64) (gone []string, err error) {
	sn := r.snap.Load()
	if sn.closed {
		return nil, ErrClosed
	}
	cur := &sn.topology
	same := !first && sameWorkers(cur.Workers, t.Workers)
	versioned := t.Epoch != 0 || t.Version != 0
	if !first {
		older := t.Epoch < cur.Epoch || t.Epoch == cur.Epoch && t.Version < cur.Version
		switch {
		case older && !versioned:
			return nil, fmt.Errorf("%w: it has no version, in force are epoch %d version %d: from the first with a version on each needs one",
				ErrStaleTopology, cur.Epoch, cur.Version)
		case older:
			return nil, fmt.Errorf("%w: epoch %d version %d, in force are %d and %d",
				ErrStaleTopology, t.Epoch, t.Version, cur.Epoch, cur.Version)
		case versioned && t.Epoch == cur.Epoch && t.Version == cur.Version && !same:
			return nil, fmt.Errorf("%w: epoch %d version %d has other workers than in force",
				ErrTopologyConflict, t.Epoch, t.Version)
		case t.Epoch == cur.Epoch && cur.Version != 0 && t.Version > cur.Version+1:
			r.refresh(Refresh{Reason: RefreshGap}, now)
		}
	}
	next := *sn
	next.topology, next.topologyAt = t, now
	if same {
		next.topology.Workers = cur.Workers
		r.age(&next, now)
		next.cols = r.columns(&next, now)
		r.publish(&next, now)
		return nil, nil
	}
	plan, err := r.place(sn, t.Workers)
	if err != nil {
		return nil, err
	}
	next.ring = plan.ring
	r.install(&next, sn, plan, now, first)
	return plan.gone, nil
}

// placement of a new topology on slots, made before anything changes.
type slotPlan struct {
	ring  *Ring
	slots []uint16 // of t.Workers
	fresh []bool   // has no statistics yet
	gone  []string
	size  int // of tables by slot
	free  []uint16
}

// place gives each worker the slot it has, or a free one, and builds the ring.
func (r *Router) place(sn *snapshot, workers []Worker) (*slotPlan, error) {
	p := &slotPlan{slots: make([]uint16, len(workers)), fresh: make([]bool, len(workers)), size: len(sn.cols)}
	stays := make([]bool, len(sn.cols))
	for i := range workers {
		if slot, ok := sn.byID[workers[i].ID]; ok {
			stays[slot] = true
			p.slots[i] = slot
			p.fresh[i] = sn.nodes[slot].Incarnation != workers[i].Incarnation
		}
	}
	p.free = append(p.free, r.free...)
	for _, slot := range sn.live {
		if !stays[slot] {
			p.gone = append(p.gone, sn.nodes[slot].ID)
			p.free = append(p.free, slot)
		}
	}
	members := make([]member, len(workers))
	for i := range workers {
		w := &workers[i]
		if _, ok := sn.byID[w.ID]; !ok {
			p.fresh[i] = true
			if n := len(p.free); n > 0 {
				p.slots[i], p.free = p.free[n-1], p.free[:n-1]
			} else {
				p.slots[i] = uint16(p.size)
				p.size++
			}
		}
		members[i] = member{slot: p.slots[i], id: w.ID, weight: w.Weight}
	}
	var err error
	p.ring, err = sn.ring.change(members)
	return p, err
}

// install makes nodes and states and publishes. Nothing fails from here on.
func (r *Router) install(next, sn *snapshot, p *slotPlan, now int64, first bool) {
	workers := next.topology.Workers
	for len(r.gens) < p.size {
		r.gens = append(r.gens, r.firstGen)
	}
	nFresh := 0
	for _, fresh := range p.fresh {
		if fresh {
			nFresh++
		}
	}
	ramp := !first && nFresh*2 <= len(workers)
	next.nodes = make([]*node, p.size)
	next.reports = make([]*reported, p.size)
	next.live = make([]uint16, 0, len(workers))
	next.byID = make(map[string]uint16, len(workers))
	var dropped []*workerState
	for _, slot := range sn.live {
		dropped = append(dropped, sn.nodes[slot].st)
	}
	kept := map[*workerState]bool{}
	for i := range workers {
		slot := p.slots[i]
		if p.fresh[i] {
			r.gens[slot]++
		}
		n := &node{Worker: workers[i], slot: slot, gen: r.gens[slot], hub: &r.hub}
		if p.fresh[i] {
			n.st = newWorkerState()
			n.st.cold.marked, n.st.cold.heard = now, now
			if ramp {
				for ln := range lanes {
					n.st.lane[ln].pen.v.Store(uint64(joined(now)))
				}
			}
		} else {
			old := sn.nodes[slot]
			n.st = old.st
			if old.Worker == n.Worker {
				n = old // a Pick may be reading it: not to be written to
			}
			next.reports[slot] = sn.reports[slot]
			kept[n.st] = true
		}
		next.nodes[slot], next.byID[n.ID] = n, slot
		next.live = append(next.live, slot)
	}
	r.free = p.free
	maxOut := int64(capOut(len(workers), next.coef.rules.maxOut))
	for _, st := range dropped {
		if !kept[st] {
			r.retire(st)
		}
	}
	r.capOut(next, maxOut, now)
	r.fold.cursor = 0
	r.age(next, now)

	next.cols = r.columns(next, now)
	r.publish(next, now)
}

// retire stops the penalty machine of a worker that has left: a word in
// cooldown for ever, which no late answer changes and nobody counts.
func (r *Router) retire(st *workerState) {
	r.retiredPicks += st.issued.Load()

	for ln := range lanes {
		w := &st.lane[ln].pen
		for {
			p := w.load()
			if w.v.CompareAndSwap(uint64(p), uint64(retired)) {
				if p.phase() == Cooldown && p != retired {
					r.out[ln].give()
				}
				break
			}
		}
	}
}

const retired = penalty(Cooldown) | (1<<39-1)<<penTimeShift

// capOut sets how many may be out at once and lets in at once who would be
// too many, those first whose time is up first.
func (r *Router) capOut(next *snapshot, limit int64, now int64) {
	for ln := range lanes {
		out := &r.out[ln]
		out.max.Store(limit)
		for out.n.Load() > limit {
			var first *node
			for _, slot := range next.live {
				n := next.nodes[slot]
				if p := n.st.lane[ln].pen.load(); p.phase() == Cooldown &&
					(first == nil || p.at() < first.st.lane[ln].pen.load().at()) {
					first = n
				}
			}
			if first == nil {
				break
			}
			r.change(first, ln, now, func(p penalty) (penalty, bool, penalty) {
				if p.phase() == Cooldown {
					p = p.letIn(now)
				}
				return p, false, p
			})
		}
	}
}

// SetState tells of a connectivity event. Down cuts the worker at once and
// sends its keys to the next on the ring; Up after Down brings it back by the
// ramp; Draining keeps it for when nothing else is left. It reports whether
// the worker is known; an unknown one is counted and nothing else.
func (r *Router) SetState(id string, s State) bool {
	now := r.now()
	r.mu.Lock()
	known, down := r.setStateLocked(id, s, now)
	r.mu.Unlock()
	if down {
		r.failover(id)
	}
	r.drain()
	return known
}

func (r *Router) setStateLocked(id string, s State, now int64) (known, down bool) {
	sn := r.snap.Load()
	slot, ok := sn.byID[id]
	if !ok || s > Draining || sn.closed {
		r.counters.unknownIDs.Add(1)
		return false, false
	}
	n := sn.nodes[slot]
	cold := n.st.cold
	was := cold.state
	if was == s {
		return true, false
	}
	cold.state = s
	if was == Down {
		for ln := range lanes {
			r.change(n, ln, now, func(p penalty) (penalty, bool, penalty) {
				if p.phase() != Cooldown {
					p = p.letIn(now)
				}
				return p, false, p
			})
		}
	}
	r.republish(sn, now)
	return true, s == Down
}

// republish publishes the same with its columns computed anew.
func (r *Router) republish(sn *snapshot, now int64) {
	next := *sn
	next.cols = r.columns(&next, now)
	r.publish(&next, now)
}
