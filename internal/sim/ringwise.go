package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ringwise/ringwise"
)

// All returns the oracle, ringwise with and without feedback, and the peers.
func All() []Factory {
	p := Policies()
	return slices.Insert(p, 1, Ringwise("ringwise", true, nil), Ringwise("ringwise-local", false, nil), RingwiseDo("ringwise-do"))
}

// Ringwise is the library itself: New with its defaults and the calls of its
// users. Only the clock and the random source are the simulator's, and each
// request carries the scenario's time-out. There is no formula here. tuning
// replaces the default one when it is not nil.
func Ringwise(name string, feedback bool, tuning *ringwise.Tuning) Factory {
	return RingwiseWired(name, feedback, tuning, Wiring{})
}

// Wiring is what tests add to the policy of Ringwise. Its zero value adds
// nothing.
type Wiring struct {
	// Transition is told of each change of a worker's phase at one client, at
	// the latest a fold interval after it.
	Transition func(client, worker int, now time.Duration, t ringwise.Transition)
	// Outcome may change what an attempt is closed with.
	Outcome func(client int, d *Done, o *ringwise.Outcome)
	// Finish is handed each client's Router at the end, still open.
	Finish func(client int, r *ringwise.Router)
}

// RingwiseWired is Ringwise with the hooks of a test.
func RingwiseWired(name string, feedback bool, tuning *ringwise.Tuning, w Wiring) Factory {
	return Factory{
		Name: name, Source: "this library", Feedback: feedback,
		New: func(e *Env) Policy {
			p := newRouter(e, tuning, nil)
			p.idempotent = e.Options.Hedge
			p.client, p.wiring = e.Client, w
			return p
		},
	}
}

// Profiles are the library's profiles without feedback, and some that show why
// they are as they are: scores of reports alone, and affinity of which workers
// tell.
func Profiles() []Factory {
	alone := func(p ringwise.Profile, temperature float64) ringwise.Profile {
		p.Tuning.LiveWeight, p.Tuning.Temperature = 0, temperature
		return p
	}
	strong := ringwise.CacheAffinity()
	strong.Tuning.LiveWeight = 1
	return []Factory{
		profile("ringwise-classic", ringwise.Classic()),
		profile("ringwise-readheavy", ringwise.ReadHeavy()),
		profile("ringwise-writeheavy", ringwise.WriteHeavy()),
		profile("ringwise-affinity", ringwise.CacheAffinity()),
		told("affinity-told", ringwise.CacheAffinity()),
		told("affinity-told-live1", strong),
		profile("reports-classic", alone(ringwise.Classic(), 10)),
		profile("reports-readheavy", alone(ringwise.ReadHeavy(), 10)),
	}
}

func profile(name string, pr ringwise.Profile) Factory {
	return Factory{Name: name, Source: "this library, profile " + pr.Name, New: func(e *Env) Policy {
		return newRouter(e, nil, &pr)
	}}
}

// told is a profile whose workers report how many requests of each tenant they
// served.
func told(name string, pr ringwise.Profile) Factory {
	return Factory{Name: name, Source: "this library, profile " + pr.Name + ", with reported fingerprints", New: func(e *Env) Policy {
		r := newRouter(e, nil, &pr)
		r.told = true
		return r
	}}
}

// simEpoch is the wall time of the start of a run.
var simEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Errors that stand for what a client of a real store gets; the default
// Classifier judges them.
var (
	errFault = fmt.Errorf("worker fails: %w", syscall.EIO)
	errCut   = fmt.Errorf("connection: %w", syscall.ECONNRESET)
	errApp   = errors.New("no such row")
)

type router struct {
	r                *ringwise.Router
	now              int64
	keys             []ringwise.KeyHash // by partition
	among            [][]ringwise.Ref   // by partition, where there is no such key
	ids              map[string]int
	tenants          []string
	told             bool              // reports carry fingerprints
	open             []ringwise.Choice // by Query.Ref
	idempotent       bool
	workers, clients int
	series           phases
	client           int
	wiring           Wiring
}

func newRouter(e *Env, tuning *ringwise.Tuning, pr *ringwise.Profile) *router {
	p := &router{workers: e.Scenario.Workers, clients: e.Scenario.Clients}
	workers := make([]ringwise.Worker, p.workers)
	p.ids = make(map[string]int, p.workers)
	for i := range workers {
		id := workerID(i)
		workers[i] = ringwise.Worker{ID: id}
		p.ids[id] = i
	}
	p.series.start(e.Scenario, e.Options.Series)
	for i := range e.Scenario.Tenants {
		p.tenants = append(p.tenants, fmt.Sprint("tenant", i))
	}
	opts := []ringwise.Option{
		ringwise.WithHooks(ringwise.Hooks{Transition: func(t ringwise.Transition) {
			p.series.note(p.now, p.ids[t.Worker], t)
			if p.wiring.Transition != nil {
				p.wiring.Transition(p.client, p.ids[t.Worker], time.Duration(p.now), t)
			}
		}}),
		ringwise.WithClock(func() time.Time { return simEpoch.Add(time.Duration(p.now)) }),
		ringwise.WithRand(e.Rand.Uint64),
	}
	if e.Scenario.Replicas != 3 {
		opts = append(opts, ringwise.WithReplicas(e.Scenario.Replicas))
	}
	if pr != nil {
		opts = append(opts, ringwise.WithProfile(*pr))
	}
	if tuning != nil {
		opts = append(opts, ringwise.WithTuning(*tuning))
	}
	r, err := ringwise.New(workers, opts...)
	if err != nil {
		panic(err) // a Tuning that was not validated: a mistake of the program
	}
	p.r = r
	cands := e.Scenario.ring(e.Seed)
	if p.keys = keysFor(e.Scenario, e.Seed, cands); p.keys != nil {
		return p
	}
	for _, c := range cands {
		refs := make([]ringwise.Ref, len(c))
		for i, w := range c {
			refs[i], _ = r.Ref(workerID(w))
		}
		p.among = append(p.among, refs)
	}
	return p
}

func workerID(i int) string { return fmt.Sprintf("w%02d", i) }

// keysFor finds for each partition a key that the library's own ring gives to
// the same workers, so that picks go the way a user's picks go. Beyond some
// thousands of combinations there is no such key in reasonable time: nil, and
// requests name their candidates with Among.
func keysFor(s *Scenario, seed uint64, cands [][]int) []ringwise.KeyHash {
	combos := 1.0
	for i := range s.Replicas {
		combos = combos * float64(s.Workers-i) / float64(i+1)
	}
	if combos > 5000 {
		return nil
	}
	type id struct {
		workers, replicas, partitions int
		seed                          uint64
	}
	k := id{s.Workers, s.Replicas, s.Partitions, seed}
	keyCache.Lock()
	defer keyCache.Unlock()
	if v, ok := keyCache.m[k]; ok {
		return v.([]ringwise.KeyHash)
	}
	workers := make([]ringwise.Worker, s.Workers)
	index := map[string]int{}
	for i := range workers {
		workers[i].ID = workerID(i)
		index[workers[i].ID] = i
	}
	ring, err := ringwise.NewRing(workers, ringwise.RingOptions{Replicas: s.Replicas})
	if err != nil {
		panic(err)
	}
	want := map[string][]int{} // sorted candidates: the partitions that have them
	name := func(c []int) string {
		c = slices.Sorted(slices.Values(c))
		return fmt.Sprint(c)
	}
	for p, c := range cands {
		n := name(c)
		want[n] = append(want[n], p)
	}
	keys := make([]ringwise.KeyHash, len(cands))
	left := len(cands)
	var ids []string
	for n := uint64(1); left > 0; n++ {
		if n > 1e7 {
			keys = nil
			break
		}
		h := ringwise.HashUint64(mix(n))
		ids = ring.Owners(h, ids[:0])
		c := make([]int, len(ids))
		for i, id := range ids {
			c[i] = index[id]
		}
		k := name(c)
		if ps := want[k]; len(ps) > 0 {
			keys[ps[0]] = h
			want[k] = ps[1:]
			left--
		}
	}
	if keyCache.m == nil {
		keyCache.m = map[any]any{}
	}
	keyCache.m[k] = keys
	return keys
}

// keyCache holds what keysFor found: the same for each client of a run. Its
// content is a pure function of its key, so runs side by side do not meet.
var keyCache struct {
	sync.Mutex
	m map[any]any
}

func (p *router) request(q *Query) ringwise.Request {
	p.now = q.Now
	req := ringwise.Request{
		Intent:  ringwise.Read,
		Start:   simEpoch.Add(time.Duration(q.Now)),
		Timeout: time.Duration(q.Timeout),
	}
	if q.Write {
		req.Intent = ringwise.Write
	}
	if q.Tenant >= 0 {
		req.Tenant = p.tenants[q.Tenant]
	}
	req.Idempotent = !q.Write && p.idempotent
	if p.keys != nil {
		req.Hash = p.keys[q.Partition]
	} else {
		req.Hash = ringwise.HashUint64(q.Hash)
		req.Among = p.among[q.Partition]
	}
	return req
}

func (p *router) Pick(q *Query, cands []int) int {
	c, err := p.r.Route(p.request(q))
	if err != nil {
		return -1
	}
	return p.opened(q, cands, c)
}

// opened keeps the choice until its Done.
func (p *router) opened(q *Query, cands []int, c ringwise.Choice) int {
	for len(p.open) <= int(q.Ref) {
		p.open = append(p.open, ringwise.Choice{})
	}
	p.open[q.Ref] = c
	i := slices.Index(cands, p.ids[c.ID()])
	if i < 0 {
		panic("sim: a pick outside the candidates: " + c.ID())
	}
	return i
}

func (p *router) Done(d *Done) {
	p.now = d.Now
	o := ringwise.Outcome{RTT: time.Duration(d.RTT)}
	switch d.Verdict {
	case Failed:
		o.Err = errFault
	case Broken:
		o.Err = errCut
	case TimedOut:
		o.Err = context.DeadlineExceeded
	case AppError:
		o.Err = errApp
	case Superseded:
		o.Verdict = ringwise.Superseded
	}
	if d.Feedback {
		o.Feedback = ringwise.Feedback{InService: float64(d.InService), ServiceTime: time.Duration(d.Service)}
	}
	if p.wiring.Outcome != nil {
		p.wiring.Outcome(p.client, d, &o)
	}
	p.open[d.Ref].DoneWith(o)
}

func (p *router) Report(r *Report) {
	rep := ringwise.Report{
		Worker: workerID(r.Worker), Time: simEpoch.Add(time.Duration(r.At)),
		CPU: ringwise.Some(r.CPU), Queue: ringwise.Some(float64(r.Queue)), Errors: ringwise.Some(r.ErrorRate),
		Compacting: ringwise.Some(r.Compacting),
	}
	if p.told {
		for t, n := range r.Tenants {
			rep.Fingerprints = append(rep.Fingerprints, ringwise.Fingerprint{Kind: ringwise.KindOf(p.tenants[t], ""), Count: n})
		}
	}
	if r.Mean > 0 {
		rep.RTTAvg, rep.RTTP99 = ringwise.Some(time.Duration(r.Mean)), ringwise.Some(time.Duration(r.P99))
	}
	if err := p.r.Report(rep); err != nil {
		panic(err)
	}
}

// Tick is the library's Run loop.
func (p *router) Tick(now int64) int64 {
	p.now = now
	return now + int64(p.r.Maintain(simEpoch.Add(time.Duration(now))))
}

// Finish closes the router and adds what its hooks saw.
func (p *router) Finish(r *Result) {
	if p.wiring.Finish != nil {
		p.wiring.Finish(p.client, p.r)
	}
	p.r.Close()
	p.series.add(r, p.clients)
}

// HedgeAfter passes on what the library says.
func (p *router) HedgeAfter(ref uint32) (int64, bool) {
	d, ok := p.open[ref].HedgeAfter()
	return int64(d), ok
}

// PickHedge passes on the worker that the library names for a copy.
func (p *router) PickHedge(q *Query, cands []int, first uint32) int {
	c, ok := p.r.Hedge(p.request(q), p.open[first])
	if !ok {
		return -1
	}
	return p.opened(q, cands, c)
}

// phases keeps what the hooks of one router say of its workers' phases.
type phases struct {
	now   []ringwise.Phase
	since []int64
	sums  [][]float64 // by bucket and worker, nanoseconds weighted by phase
	end   int64
	width int64 // of a bucket
	trips int
}

func (s *phases) start(sc *Scenario, width time.Duration) {
	s.width = int64(cmp.Or(width, seriesWidth))
	s.now = make([]ringwise.Phase, sc.Workers)
	s.since = make([]int64, sc.Workers)
	s.end = int64(sc.Duration)
}

// outOf is how much of a worker a phase takes away, for the chart of states.
var outOf = [...]float64{ringwise.Healthy: 0, ringwise.Observed: 0.15, ringwise.Cooldown: 1, ringwise.Probation: 0.5}

func (s *phases) note(now int64, w int, t ringwise.Transition) {
	if t.Write {
		return
	}
	s.fill(now, w)
	s.now[w] = t.To
	if t.To == ringwise.Cooldown {
		s.trips++
	}
}

// fill books the phase that ends now.
func (s *phases) fill(now int64, w int) {
	from, to := s.since[w], min(now, s.end)
	s.since[w] = now
	if s.now[w] == ringwise.Healthy {
		return
	}
	if s.sums == nil {
		s.sums = make([][]float64, (s.end+s.width-1)/s.width)
		for i := range s.sums {
			s.sums[i] = make([]float64, len(s.now))
		}
	}
	for from < to {
		b := from / s.width
		edge := min(to, (b+1)*s.width)
		s.sums[b][w] += outOf[s.now[w]] * float64(edge-from)
		from = edge
	}
}

// add puts the shares into the result, as the mean over clients.
func (s *phases) add(r *Result, clients int) {
	r.Notes["trips"] += float64(s.trips)
	for w := range s.now {
		s.fill(s.end, w)
	}
	if s.sums == nil {
		return
	}
	if r.States == nil {
		r.States = make([][]float64, len(s.sums))
		for i := range r.States {
			r.States[i] = make([]float64, len(s.now))
		}
	}
	for i := range s.sums {
		for w, v := range s.sums[i] {
			r.States[i][w] += v / float64(s.width) / float64(clients)
		}
	}
}
