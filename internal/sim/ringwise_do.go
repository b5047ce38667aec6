package sim

import (
	"context"
	"iter"
	"slices"

	"github.com/ringwise/ringwise"
)

// RingwiseDo is the library's Do: it picks, retries by its own budget and
// closes by itself. The simulator only plays the function it calls: each call
// waits in a coroutine for the answer in simulated time. Reads are idempotent.
// Copies are left to HedgeAfter, since Do times them by the real clock.
func RingwiseDo(name string) Factory {
	return Factory{Name: name, Source: "this library, ringwise.Do", New: func(e *Env) Policy {
		t := ringwise.DefaultTuning()
		// Unknown to a library without hedging: then there is nothing to set.
		_ = t.UnmarshalJSON([]byte(`{"HedgeBudget":0}`))
		return &doRouter{router: newRouter(e, &t, nil), idempotent: e.Options.Retry}
	}}
}

type doRouter struct {
	*router
	idempotent bool
	calls      []*call // by Query.Ref of the attempt under way
	again      *call   // its last attempt has failed and its next one is picked
}

// call is one Do in a coroutine.
type call struct {
	next   func() (ringwise.Choice, bool)
	stop   func()
	choice ringwise.Choice // of the attempt to come
	err    error           // what the function returns when it goes on
}

func (p *doRouter) Pick(q *Query, cands []int) int {
	req := p.request(q)
	req.Idempotent = p.idempotent && !q.Write
	c := &call{}
	c.next, c.stop = iter.Pull(func(yield func(ringwise.Choice) bool) {
		_, _ = ringwise.Do(context.Background(), p.r, req, func(_ context.Context, ch ringwise.Choice) (struct{}, error) {
			if !yield(ch) {
				return struct{}{}, context.Canceled
			}
			return struct{}{}, c.err
		})
	})
	ch, ok := c.next()
	if !ok {
		return -1
	}
	return p.sent(q, cands, c, ch)
}

func (p *doRouter) sent(q *Query, cands []int, c *call, ch ringwise.Choice) int {
	for len(p.calls) <= int(q.Ref) {
		p.calls = append(p.calls, nil)
	}
	p.calls[q.Ref] = c
	return slices.Index(cands, p.ids[ch.ID()])
}

func (p *doRouter) Done(d *Done) {
	p.now = d.Now
	c := p.calls[d.Ref]
	p.calls[d.Ref] = nil
	switch d.Verdict {
	case Failed:
		c.err = errFault
	case Broken:
		c.err = errCut
	case TimedOut:
		c.err = context.DeadlineExceeded
	case AppError:
		c.err = errApp
	default:
		c.err = nil
	}
	p.again = nil
	if ch, ok := c.next(); ok {
		c.choice = ch
		p.again = c
	}
}

// PickRetry hands over the attempt that Do has begun, if it has.
func (p *doRouter) PickRetry(q *Query, cands []int, _ uint32) int {
	c := p.again
	if c == nil {
		return -1
	}
	p.again = nil
	return p.sent(q, cands, c, c.choice)
}

// HedgeAfter wants none: its Choices are in Do, not in the router's list.
func (p *doRouter) HedgeAfter(uint32) (int64, bool) { return 0, false }

func (p *doRouter) Finish(r *Result) {
	for _, c := range p.calls {
		if c != nil {
			c.stop()
		}
	}
	p.router.Finish(r)
}
