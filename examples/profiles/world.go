package main

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/ringwise/ringwise"
	"github.com/ringwise/ringwise/keyspec"
)

const (
	servers  = 12
	slots    = 4 // requests a server works on at once
	service  = 4 * time.Millisecond
	load     = 0.55 // of what the fleet could serve without a miss
	tenants  = 60
	atHand   = 12 // tenants
	miss     = 2  // times the service
	duration = 10 * time.Second
	fold     = 100 * time.Millisecond
	report   = 2 * time.Second
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// server is one server: slots, a queue, and what it has at hand.
type server struct {
	id     string
	busy   int
	queue  []*request
	recent []int // tenants, the last used first

	// Since the last report.
	worked         time.Duration
	served, failed int
	spent          []time.Duration
}

type request struct {
	choice ringwise.Choice
	server int
	tenant int
	start  time.Duration
	work   time.Duration
	failed bool
}

// event is something that will happen.
type event struct {
	at   time.Duration
	seq  int
	what func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

// outcome is a row of the table.
type outcome struct {
	hot, errors, hits float64
	p50, p99          time.Duration
}

// world is one play.
type world struct {
	router  *ringwise.Router
	rnd     *rand.Rand
	now     time.Duration
	events  events
	seq     int
	servers [servers]server
	popular []float64 // tenants, cumulative

	latency       []time.Duration
	errors        int
	lookups, hits int
	picks         [int(duration / time.Second)][servers]float64
}

func play(p ringwise.Profile) (outcome, error) {
	w := &world{rnd: rand.New(rand.NewPCG(1, 2))}
	chance := rand.New(rand.NewPCG(3, 4)) // of the router: it does not disturb the traffic
	workers := make([]ringwise.Worker, servers)
	for i := range workers {
		w.servers[i].id = fmt.Sprintf("s%02d", i)
		workers[i].ID = w.servers[i].id
	}
	p.Tuning.RequestTimeout = 100 * time.Millisecond
	var err error
	w.router, err = ringwise.New(workers, ringwise.WithProfile(p), ringwise.WithKeyParser(keyspec.Default()),
		ringwise.WithClock(func() time.Time { return epoch.Add(w.now) }), ringwise.WithRand(chance.Uint64))
	if err != nil {
		return outcome{}, err
	}
	defer w.router.Close()
	sum := 0.0
	for i := range tenants {
		sum += 1 / float64(i+1)
		w.popular = append(w.popular, sum)
	}
	w.arrive()
	w.every(fold, func() { w.router.Maintain(epoch.Add(w.now)) })
	w.every(report, func() { err = w.report() })
	for len(w.events) > 0 && err == nil {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.what()
	}
	return w.outcome(), err
}

func (w *world) after(d time.Duration, what func()) {
	w.seq++
	heap.Push(&w.events, event{w.now + d, w.seq, what})
}

func (w *world) every(d time.Duration, what func()) {
	if w.now+d < duration {
		w.after(d, func() {
			what()
			w.every(d, what)
		})
	}
}

// arrive is a request, and the next one after it.
func (w *world) arrive() {
	rate := load * servers * slots / service.Seconds()
	w.after(time.Duration(w.rnd.ExpFloat64()/rate*1e9), func() {
		if w.now >= duration {
			return
		}
		tenant, _ := slices.BinarySearch(w.popular, w.rnd.Float64()*w.popular[tenants-1])
		key := fmt.Sprintf("tenant%d:order:%d", tenant, w.rnd.IntN(10_000))
		work := time.Duration(w.rnd.ExpFloat64() * float64(service))
		w.arrive()
		c, err := w.router.Route(ringwise.Request{Key: key, Intent: ringwise.Read, Start: epoch.Add(w.now)})
		if err != nil {
			w.errors++
			return
		}
		i := slices.IndexFunc(w.servers[:], func(s server) bool { return s.id == c.ID() })
		w.picks[int(w.now/time.Second)][i]++
		w.send(&request{choice: c, server: i, tenant: tenant, start: w.now, work: work})
	})
}

func (w *world) send(r *request) {
	s := &w.servers[r.server]
	switch {
	case r.server == 5 && w.now >= 6*time.Second && w.now < 8*time.Second:
		r.failed = true
		s.served++
		s.failed++
		w.after(100*time.Microsecond, func() { w.answer(r) })
	case s.busy < slots:
		w.begin(s, r)
	default:
		s.queue = append(s.queue, r)
	}
}

func (w *world) begin(s *server, r *request) {
	s.busy++
	work := r.work
	if w.now >= 3*time.Second && w.now < 5*time.Second && r.server%4 == 0 {
		work *= 2
	}
	w.lookups++
	i := slices.Index(s.recent, r.tenant)
	if i >= 0 {
		w.hits++
		s.recent = slices.Delete(s.recent, i, i+1)
	} else {
		work *= miss
	}
	s.recent = slices.Insert(s.recent, 0, r.tenant)
	s.recent = s.recent[:min(len(s.recent), atHand)]
	w.after(work, func() {
		s.busy--
		s.served++
		s.worked += work
		s.spent = append(s.spent, w.now-r.start)
		w.answer(r)
		if len(s.queue) > 0 {
			next := s.queue[0]
			s.queue = s.queue[1:]
			w.begin(s, next)
		}
	})
}

func (w *world) answer(r *request) {
	rtt := w.now - r.start
	if r.failed {
		w.errors++
		w.router.Observe(r.choice, rtt, fmt.Errorf("server: %w", syscall.EIO))
		return
	}
	w.latency = append(w.latency, rtt)
	w.router.Observe(r.choice, rtt, nil)
}

// report is what each server says of itself.
func (w *world) report() error {
	for i := range w.servers {
		s := &w.servers[i]
		rep := ringwise.Report{
			Worker: s.id, Time: epoch.Add(w.now),
			CPU:   ringwise.Some(min(float64(s.worked)/float64(report*slots), 1)),
			Queue: ringwise.Some(float64(len(s.queue) + s.busy)),
		}
		if s.served > 0 {
			rep.Errors = ringwise.Some(float64(s.failed) / float64(s.served))
			rep.Rejects = rep.Errors
		}
		if len(s.spent) > 0 {
			slices.Sort(s.spent)
			rep.RTTP99 = ringwise.Some(s.spent[len(s.spent)*99/100])
		}
		if err := w.router.Report(rep); err != nil {
			return err
		}
		s.worked, s.served, s.failed, s.spent = 0, 0, 0, nil
	}
	return nil
}

func (w *world) outcome() (o outcome) {
	slices.Sort(w.latency)
	at := func(p float64) time.Duration { return w.latency[int(math.Ceil(p*float64(len(w.latency))))-1] }
	o.p50, o.p99 = at(0.5), at(0.99)
	o.errors = float64(w.errors) / float64(w.errors+len(w.latency))
	o.hits = float64(w.hits) / float64(w.lookups)
	for _, second := range w.picks {
		sum := 0.0
		for _, n := range second {
			sum += n
		}
		for _, n := range second {
			if n > 1.5*sum/servers {
				o.hot += 1 / float64(len(w.picks)*servers)
			}
		}
	}
	return o
}
