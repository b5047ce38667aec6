package sim

import (
	"math"
	"math/rand/v2"
)

// attempt is one sending of a request. Slots are reused; gen tells them apart.
type attempt struct {
	start    int64 // when the client picked
	arrived  int64 // at the worker
	began    int64 // service
	pauses   int64 // worker.pauseSum when service began, or last accounted
	work     int64 // nanoseconds of service at speed 1
	query    Query
	gen      uint32
	req      uint32 // slot of the request
	worker   int32
	client   int32
	left     int32  // feedback: left behind in the worker
	service  int64  // feedback: its mean service time
	epoch    uint32 // of the worker, when it arrived
	verdict  Verdict
	done     bool // the client has its verdict
	orphan   bool // nobody will answer any more
	lost     bool // its Done never reaches the policy
	answered bool
	inside   bool // its worker
}

// request is one logical request: one attempt, or more with hedge and retry.
type request struct {
	start    int64
	work     int64
	index    uint64
	hash     uint64
	part     int32
	tenant   int32 // -1: none
	client   int32
	attempts int32            // without a verdict yet
	live     int32            // attempts whose slot is in use
	slots    [maxTries]uint32 // of its attempts so far, some of them reused since
	tries    uint8
	record   int // index of its latency in the result, once failed
	over     bool
	measured bool
	write    bool
	lost     bool
	apperr   bool
}

// expiry is a time-out to come; they come in order, as the time-out is one.
type expiry struct {
	t    int64
	slot uint32
	gen  uint32
}

// arrival is a new request: the client picks and sends.
func (e *engine) arrival(index uint64, r *rand.Rand, draw func(*rand.Rand) float64, k *keys) {
	s := e.s
	client := r.IntN(s.Clients)
	hash, part := k.draw(r)
	work := int64(draw(r) * e.meanService)
	var i uint32
	if n := len(e.freeReq); n > 0 {
		i = e.freeReq[n-1]
		e.freeReq = e.freeReq[:n-1]
	} else {
		i = uint32(len(e.requests))
		e.requests = append(e.requests, request{})
	}
	q := &e.requests[i]
	*q = request{start: e.now, work: work, index: index, hash: hash, part: part, tenant: k.tenant(index), client: int32(client), measured: e.now >= int64(s.Warmup)}
	// Rare properties come from a hash of the index: no draw, same everywhere.
	if s.Writes > 0 {
		q.write = unit(mix(index^mix(k.seed+1))) < s.Writes
	}
	if s.Lost > 0 {
		q.lost = unit(mix(index^mix(k.seed+2))) < s.Lost
	}
	if s.AppErrors > 0 {
		q.apperr = unit(mix(index^mix(k.seed+3))) < s.AppErrors
	}
	slot := e.send(i, -1, 0)
	if len(e.hedgers) > 0 && !e.requests[i].write && !e.requests[i].over {
		if d, ok := e.hedgers[client].HedgeAfter(slot); ok {
			e.heap.push(event{e.now + max(d, 0), pack(evHedge, e.attempts[slot].gen, slot)})
		}
	}
}

// send starts an attempt of request i. how: -1 a first one, 0 a hedge, 1 a
// retry, both beside attempt `beside`. It returns the slot; for hedge and retry
// the policy may refuse, then the slot is freed again.
func (e *engine) send(i uint32, how int, beside uint32) uint32 {
	slot := e.alloc()
	a := &e.attempts[slot]
	q := &e.requests[i]
	c := q.client
	cands := e.cands[q.part]
	a.query = Query{Now: e.now, Ref: slot, Request: q.index, Hash: q.hash, Timeout: e.timeout, Partition: q.part, Tenant: q.tenant, Write: q.write}
	a.start, a.work, a.req, a.client = e.now, q.work, i, c
	var n int
	switch how {
	case -1:
		n = e.policies[c].Pick(&a.query, cands)
	case 0:
		n = e.hedgers[c].PickHedge(&a.query, cands, beside)
	default:
		n = e.retriers[c].PickRetry(&a.query, cands, beside)
	}
	if n < 0 && how >= 0 {
		e.release(slot)
		return slot
	}
	if n < 0 {
		// No worker at all: the client fails at once.
		q.tries++
		q.attempts, q.live = 1, 1
		a.worker = -1
		a.verdict = Failed
		e.res.noWorker++
		e.verdict(slot, Failed)
		return slot
	}
	w := int32(cands[n])
	a.worker = w
	a.lost = q.lost
	q.attempts++
	q.live++
	q.slots[q.tries] = slot
	q.tries++
	e.workers[w].sent++
	e.res.picked(e.now, int(w), q, how)
	e.heap.push(event{e.now + e.net, pack(evArrive, a.gen, slot)})
	e.expiries.push(expiry{e.now + e.timeout, slot, a.gen})
	return slot
}

func (e *engine) alloc() uint32 {
	if n := len(e.free); n > 0 {
		s := e.free[n-1]
		e.free = e.free[:n-1]
		return s
	}
	e.attempts = append(e.attempts, attempt{})
	return uint32(len(e.attempts) - 1)
}

// release frees an attempt's slot. All but its generation is cleared.
func (e *engine) release(slot uint32) {
	gen := (e.attempts[slot].gen + 1) & genMask
	e.attempts[slot] = attempt{gen: gen}
	e.free = append(e.free, slot)
}

// arrive is the request at its worker.
func (e *engine) arrive(slot uint32) {
	a := &e.attempts[slot]
	w := &e.workers[a.worker]
	w.sent--
	a.arrived, a.epoch = e.now, w.epoch
	switch {
	case w.dead:
		e.orphaned(slot)
	case w.refuse:
		e.answer(slot, Broken)
	case w.fail:
		w.finished++
		w.failed++
		e.answer(slot, Failed)
	default:
		w.inside++
		a.inside = true
		if w.busy < e.slots && w.paused <= e.now {
			e.begin(slot, w)
		} else {
			w.queue.push(slot)
		}
	}
}

// begin puts an attempt into a slot of its worker.
func (e *engine) begin(slot uint32, w *worker) {
	a := &e.attempts[slot]
	w.account(e.now)
	w.busy++
	a.began, a.pauses = e.now, w.pauseSum
	work := float64(a.work) * w.slow
	if t := a.query.Tenant; t >= 0 {
		e.res.Notes["lookups"]++
		if w.tenants == nil {
			w.tenants = make([]uint32, e.s.Tenants)
		}
		w.tenants[t]++
		if !w.cache.touch(t, e.s.Cache) {
			e.res.Notes["misses"]++
			work *= e.s.Miss
		}
	}
	e.heap.push(event{e.now + int64(work), pack(evComplete, a.gen, slot)})
}

// complete is the end of a service, unless the worker paused meanwhile: then
// the end moves by the length of the pause.
func (e *engine) complete(slot, gen uint32) {
	if slot == resume { // a pause ends
		e.fill(&e.workers[gen])
		return
	}
	a := &e.attempts[slot]
	if a.gen != gen || a.orphan {
		return // lost in a crash meanwhile
	}
	w := &e.workers[a.worker]
	if a.epoch != w.epoch {
		return
	}
	if d := w.pauseSum - a.pauses; d > 0 {
		a.pauses = w.pauseSum
		e.heap.push(event{e.now + d, pack(evComplete, gen, slot)})
		return
	}
	w.account(e.now)
	w.busy--
	w.inside--
	w.finished++
	w.service += serviceGain * (float64(e.now-a.began) - w.service)
	if len(e.reporters) > 0 {
		w.spent = append(w.spent, e.now-a.arrived)
	}
	a.inside, a.left, a.service = false, int32(w.inside), int64(w.service)
	v := OK
	if e.requests[a.req].apperr {
		v = AppError
	}
	e.answer(slot, v)
	e.fill(w)
}

// fill starts what waits, while there are slots.
func (e *engine) fill(w *worker) {
	for w.queue.size > 0 && w.busy < e.slots && w.paused <= e.now {
		e.begin(w.queue.pop(), w)
	}
}

// resume is the slot number of an evComplete that stands for the end of a
// pause; the generation is the worker.
const resume = math.MaxUint32

// answer sends the attempt's answer back.
func (e *engine) answer(slot uint32, v Verdict) {
	a := &e.attempts[slot]
	a.verdict, a.answered = v, true
	e.heap.push(event{e.now + e.net, pack(evReply, a.gen, slot)})
}

// reply is the answer at its client.
func (e *engine) reply(slot uint32) {
	a := &e.attempts[slot]
	if !a.done {
		e.verdict(slot, a.verdict)
	} else {
		// The client gave up before. The request still took this long.
		e.res.late(&e.requests[a.req], e.now)
	}
	e.drop(slot)
}

// orphaned marks an attempt that nobody will answer.
func (e *engine) orphaned(slot uint32) {
	a := &e.attempts[slot]
	a.orphan = true
	if a.done {
		e.drop(slot)
	}
}

// expire is the client's time-out.
func (e *engine) expire(x expiry) {
	a := &e.attempts[x.slot]
	if a.gen != x.gen || a.done {
		return
	}
	e.verdict(x.slot, TimedOut)
	if e.attempts[x.slot].orphan {
		e.drop(x.slot)
	}
}

// verdict tells the policy how an attempt ended and settles the request.
func (e *engine) verdict(slot uint32, v Verdict) {
	a := &e.attempts[slot]
	a.done = true
	q := &e.requests[a.req]
	if !a.lost && a.worker >= 0 {
		e.tell(a, slot, v)
	}
	q.attempts--
	if q.over {
		return
	}
	bad := v == Failed || v == Broken || v == TimedOut
	if bad && q.attempts > 0 {
		return // the other copy may still answer
	}
	if bad && len(e.retriers) > 0 && !q.write && q.tries < maxTries && a.worker >= 0 {
		e.res.retryAsked++
		req := a.req
		before := q.attempts
		e.send(req, 1, slot)
		q = &e.requests[req]
		if q.attempts > before || q.over {
			return
		}
		a = &e.attempts[slot]
	}
	q.over = true
	if q.tries > 1 && !bad && slot != q.slots[0] {
		e.res.won(q)
	}
	e.res.settled(e.now, q, int(a.worker), v, e.timeout)
	if q.attempts > 0 {
		// The loser's context is cancelled. Its worker does not notice.
		for _, k := range q.slots[:q.tries] {
			b := &e.attempts[k]
			if b.req != a.req || b.done {
				continue
			}
			b.done = true
			q.attempts--
			if !b.lost {
				e.tell(b, k, Superseded)
			}
			if b.orphan {
				e.drop(k)
			}
		}
	}
	if a.worker < 0 {
		e.drop(slot)
	}
}

func (e *engine) tell(a *attempt, slot uint32, v Verdict) {
	d := &e.done
	*d = Done{Now: e.now, RTT: e.now - a.start, Timeout: e.timeout, Ref: slot, Worker: a.worker, Verdict: v, Write: a.query.Write}
	if e.feedback && (v == OK || v == AppError) {
		d.Feedback, d.InService, d.Service = true, a.left, a.service
	}
	e.policies[a.client].Done(d)
}

// drop frees the attempt, and the request with its last one.
func (e *engine) drop(slot uint32) {
	i := e.attempts[slot].req
	e.release(slot)
	q := &e.requests[i]
	if q.live--; q.live == 0 {
		e.freeReq = append(e.freeReq, i)
	}
}

// hedge asks for a copy of a request that has taken long.
func (e *engine) hedge(slot, gen uint32) {
	a := &e.attempts[slot]
	if a.gen != gen || a.done {
		return
	}
	if q := &e.requests[a.req]; q.over || q.tries >= maxTries {
		return
	}
	e.send(a.req, 0, slot)
}
