package sim

import (
	"fmt"
	"math"
	"time"
)

// Kinds of heap events.
const (
	evArrive   = iota // an attempt reaches its worker
	evComplete        // a service ends
	evReply           // an answer reaches its client
	evHedge           // a request has taken long
	evReport          // a report reaches the clients
	evMeasure         // a worker takes its figures
	evTick            // a policy asked to be called
)

const never = math.MaxInt64

// maxTries bounds the attempts of a request: the first, a hedge, a retry.
const maxTries = 3

type engine struct {
	s           *Scenario
	now         int64
	heap        heap
	expiries    fifo[expiry]
	workers     []worker
	slots       int
	meanService float64
	net         int64
	timeout     int64
	attempts    []attempt
	free        []uint32
	requests    []request
	freeReq     []uint32
	cands       [][]int
	policies    []Policy
	reporters   []Reporter
	hedgers     []Hedger
	retriers    []Retrier
	tickers     []Ticker
	feedback    bool
	reports     []Report // under way; the slot in evReport is an index
	res         *Result
	done        Done
}

// Options choose the mode of a run.
type Options struct {
	Seed  uint64
	Hedge bool // ask policies that can for copies of slow requests
	Retry bool // ask policies that can to send failed requests again
	// Series is the width of the buckets of shares over time; 0 is 100 ms.
	Series time.Duration
}

// Run plays the scenario with one policy. The same arguments give the same
// result, whatever else runs. A scenario that is out of range or does not fit
// into memory is refused.
func Run(s Scenario, f Factory, o Options) (*Result, error) {
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	if err := s.Fits(o); err != nil {
		return nil, fmt.Errorf("scenario %s: %w", s.Name, err)
	}
	e := &engine{
		s: &s, slots: s.Slots, meanService: float64(s.Service),
		net: int64(s.Net), timeout: int64(s.Timeout), feedback: f.Feedback,
		workers: make([]worker, s.Workers), cands: s.ring(o.Seed),
		res: newResult(&s, f, o),
	}
	for i := range e.workers {
		e.workers[i].slow = 1
		e.workers[i].service = e.meanService
	}
	truth := &Truth{e}
	for c := range s.Clients {
		p := f.New(&Env{Scenario: &s, Options: o, Client: c, Seed: o.Seed, Rand: stream(o.Seed, streamPolicy+uint64(c)), Truth: truth})
		e.policies = append(e.policies, p)
		if r, ok := p.(Reporter); ok {
			e.reporters = append(e.reporters, r)
		}
		if h, ok := p.(Hedger); ok && o.Hedge {
			e.hedgers = append(e.hedgers, h)
		}
		if r, ok := p.(Retrier); ok && o.Retry {
			e.retriers = append(e.retriers, r)
		}
		if t, ok := p.(Ticker); ok {
			e.tickers = append(e.tickers, t)
			e.heap.push(event{0, pack(evTick, 0, uint32(c))})
		}
	}
	if s.ReportEvery > 0 && len(e.reporters) > 0 {
		r := stream(o.Seed, streamReports)
		for w := range e.workers {
			e.heap.push(event{r.Int64N(int64(s.ReportEvery)), pack(evMeasure, 0, uint32(w))})
		}
	}
	e.loop(o.Seed)
	for _, p := range e.policies {
		if c, ok := p.(interface{ Finish(*Result) }); ok {
			c.Finish(e.res)
		}
	}
	e.res.finish()
	return e.res, nil
}

func (e *engine) loop(seed uint64) {
	s := e.s
	var changes []Change
	if s.Changes != nil {
		changes = s.Changes(s, stream(seed, streamChanges))
	}
	arr := stream(seed, streamArrivals)
	draw := s.ServiceDist.sampler()
	keys := s.keys(seed)
	gap := 1e9 / s.Rate()
	end := int64(s.Duration)
	next := arr.ExpFloat64() * gap
	var index uint64
	arrivals := true
	ci := 0
	for {
		t, what := int64(never), 0
		if arrivals {
			t, what = int64(next), 1
		}
		if ci < len(changes) && int64(changes[ci].At) <= t {
			t, what = int64(changes[ci].At), 2
		}
		if len(e.heap.ev) > 0 && e.heap.ev[0].t < t {
			t, what = e.heap.ev[0].t, 3
		}
		if e.expiries.size > 0 && e.expiries.front().t < t {
			t, what = e.expiries.front().t, 4
		}
		e.now = t
		switch what {
		case 0:
			return
		case 1:
			e.arrival(index, arr, draw, &keys)
			index++
			next += arr.ExpFloat64() * gap
			arrivals = int64(next) < end
		case 2:
			e.change(changes[ci])
			ci++
		case 3:
			ev := e.heap.pop()
			kind, gen, slot := ev.x>>60, uint32(ev.x>>32)&genMask, uint32(ev.x)
			switch kind {
			case evArrive:
				e.arrive(slot)
			case evComplete:
				e.complete(slot, gen)
			case evReply:
				e.reply(slot)
			case evHedge:
				e.hedge(slot, gen)
			case evMeasure:
				if e.now < end {
					e.measure(int(slot))
				}
			case evReport:
				for _, r := range e.reporters {
					r.Report(&e.reports[slot])
				}
			case evTick:
				if e.now < end {
					at := e.tickers[slot].Tick(e.now)
					e.heap.push(event{max(at, e.now+1), pack(evTick, 0, slot)})
				}
			}
		case 4:
			x := e.expiries.pop()
			e.expire(x)
		}
	}
}
