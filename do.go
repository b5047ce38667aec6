package ringwise

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// DoOption changes one Do.
type DoOption func(*doConfig)

type doConfig struct {
	classify Classifier
	discard  func(any)
	batch    int
	noHedge  bool
}

// WithVerdict classifies the errors of this Do instead of the Router's
// Classifier.
func WithVerdict(f Classifier) DoOption { return func(c *doConfig) { c.classify = f } }

// WithDiscard is given the value of an attempt that answered too late, in a
// goroutine of its own, to close what it holds.
func WithDiscard(f func(any)) DoOption { return func(c *doConfig) { c.discard = f } }

// WithBatch says that the call is for n keys, so that its latency does not
// train the worker's (Outcome.Batch).
func WithBatch(n int) DoOption { return func(c *doConfig) { c.batch = n } }

// WithoutHedge sends no copy of this request: f then runs in the caller's
// goroutine, one attempt after the other.
func WithoutHedge() DoOption { return func(c *doConfig) { c.noHedge = true } }

// Do picks a worker, calls f with it and closes the choice, whatever happens:
// a panic in f gives the reservation back and goes on in the caller. The
// error is f's, or the router's where nobody could be picked.
//
// A request that is Idempotent is tried once more, at once, on a candidate
// not tried, when it failed by the worker's fault and Tuning.RetryBudget
// allows. If it is a Read or StrongRead as well and Tuning.HedgeBudget is not
// 0, a copy goes to another candidate when the first answer is long in
// coming: the first answer wins and the other's context is cancelled. Such
// requests run in goroutines of their own, so that a function that is slow to
// honour its context does not hold up the winner; Do then returns as soon as
// ctx ends. Without a hedge f runs in the caller's goroutine.
//
// f must not close the choice; Extend and FirstByte are fine.
func Do[T any](ctx context.Context, r *Router, q Request, f func(context.Context, Choice) (T, error), opts ...DoOption) (v T, err error) {
	var c doConfig
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	if q.Idempotent && q.Tried == nil {
		q.Tried = new(Tried)
	}
	first, err := r.Route(q)
	if err != nil {
		return v, err
	}
	q.Tried.add(first)
	if delay, ok := first.HedgeAfter(); ok && !c.noHedge {
		h := hedged[T]{r: r, q: &q, f: f, c: &c, out: make(chan result[T], 2)}
		return h.run(ctx, first, delay)
	}
	v, verdict, err := attempt(ctx, r, first, f, &c)
	if !q.Idempotent {
		return v, err
	}
	if verdict == OK || verdict == Unknown { // a miss is an answer too
		r.retries.earn(r.Tuning().RetryBudget)
		return v, err
	}
	second, ok := r.retry(ctx, &q, err, verdict)
	if !ok {
		return v, err
	}
	v, _, err = attempt(ctx, r, second, f, &c)
	return v, err
}

// attempt is one call and its end.
func attempt[T any](ctx context.Context, r *Router, choice Choice, f func(context.Context, Choice) (T, error), c *doConfig) (v T, verdict Verdict, err error) {
	done := false
	defer func() {
		if !done { // f panicked
			choice.Cancel()
		}
	}()
	v, err = f(ctx, choice)
	done = true
	return v, c.finish(r, choice, err), err
}

func (c *doConfig) finish(r *Router, choice Choice, err error) Verdict {
	o := Outcome{Err: err, Batch: c.batch}
	if err != nil && c.classify != nil && !choice.cutShort(err) {
		o.Verdict = c.classify.of(err, &r.counters.plugPanics)
	}
	return r.hub.finish(choice, &o)
}

// cutShort tells a caller's own deadline, which no Classifier is asked about.
func (c Choice) cutShort(err error) bool {
	return c.n != nil && errors.Is(err, context.DeadlineExceeded) && c.n.hub.now()-c.start < c.timeout()
}

// retry picks the worker of a second attempt, if there is to be one.
func (r *Router) retry(ctx context.Context, q *Request, err error, verdict Verdict) (Choice, bool) {
	if !retriable(verdict) || ctx.Err() != nil {
		return Choice{}, false
	}
	cost := 1.0
	if isTimeout(err) {
		cost = 2
	}
	if !r.retries.spend(cost, r.Tuning().RetryBudget) {
		return Choice{}, false
	}
	q.Start = time.Time{} // it begins now
	second, err := r.Route(*q)
	if err != nil {
		r.retries.refund(cost)
		return Choice{}, false // nobody else: the first error tells more
	}
	q.Tried.add(second)
	return second, true
}

func (t *Tried) add(c Choice) {
	if t != nil {
		t.Add(c.Ref())
	}
}

// retriable: the worker is at fault and another may do better.
func retriable(v Verdict) bool { return v == Fault || v == Broken || v == Overload }

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// Hedge picks the worker of a copy of the request that first is serving, not
// among those tried, with SpreadRacks in another rack where there is one, and
// takes it off the budget. It is false where the budget or the candidates are
// used up. Whoever answers first is closed as
// usual, the other with the verdict Superseded, its context cancelled.
func (r *Router) Hedge(q Request, first Choice) (Choice, bool) {
	if first.meta&metaHedgeable == 0 || !r.hedge.tokens.spend(1, r.Tuning().HedgeBudget) {
		return Choice{}, false
	}
	if q.Tried == nil {
		q.Tried = new(Tried)
	}
	q.Tried.add(first)
	q.Start = time.Time{}
	c, err := r.copyOf(&q, first)
	if err != nil {
		r.hedge.tokens.refund(1)
		return Choice{}, false
	}
	r.hedge.sent.Add(1)
	c.meta |= metaCopy
	q.Tried.add(c)
	return c, true
}

// copyOf picks the worker of a copy: with SpreadRacks one of another rack than
// the first's, as long as there is one.
func (r *Router) copyOf(q *Request, first Choice) (Choice, error) {
	w := first.Worker()
	if q.SpreadRacks && w.Rack != "" {
		near := new(Tried) // for all of the first's rack
		near.add(first)
		others, _ := r.Plan(*q, nil)
		for _, c := range others {
			if o := c.Worker(); o.Zone == w.Zone && o.Rack == w.Rack {
				near.add(c)
			}
		}
		for i := range q.Tried.Len() {
			near.addWord(q.Tried.refs[i].Load())
		}
		apart := *q
		apart.Tried = near
		if c, err := r.notHeldBack(&apart); err == nil {
			return c, nil
		}
	}
	return r.notHeldBack(q)
}

// notHeldBack is Route but for workers in penalty, who are not worth a copy.
func (r *Router) notHeldBack(q *Request) (Choice, error) {
	c, err := r.Route(*q)
	if err == nil && c.Relaxed()&RelaxedPenalty != 0 {
		c.Cancel()
		return Choice{}, ErrNoWorker
	}
	return c, err
}

// hedged is one call of Do that may have two attempts at once.
type hedged[T any] struct {
	r   *Router
	q   *Request
	f   func(context.Context, Choice) (T, error)
	c   *doConfig
	out chan result[T] // has room for both, so no attempt is left behind
}

type result[T any] struct {
	v        T
	err      error
	choice   Choice
	panicked any
	failed   bool // f did not return
}

// start runs one attempt in a goroutine, which ends with f.
func (h *hedged[T]) start(ctx context.Context, choice Choice) context.CancelFunc {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		res := result[T]{choice: choice, failed: true}
		defer func() {
			if res.failed {
				res.panicked = recover()
			}
			h.out <- res
		}()
		res.v, res.err = h.f(ctx, choice)
		res.failed = false
	}()
	return cancel
}

func (h *hedged[T]) run(ctx context.Context, first Choice, delay time.Duration) (v T, err error) {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	open := make([]Choice, 1, 2)
	open[0] = first
	cancels := make([]context.CancelFunc, 1, 2)
	cancels[0] = h.start(ctx, first)
	defer func() {
		for _, cancel := range cancels {
			cancel()
		}
	}()
	second := func(c Choice) {
		open = append(open, c)
		cancels = append(cancels, h.start(ctx, c))
	}
	for {
		select {
		case <-timer.C:
			if len(cancels) == 1 {
				if c, ok := h.r.Hedge(*h.q, first); ok {
					second(c)
				}
			}
			continue
		case <-ctx.Done():
			for _, c := range open {
				h.c.finish(h.r, c, ctx.Err())
			}
			h.drain(len(open))
			return v, ctx.Err()
		case res := <-h.out:
			open = without(open, res.choice)
			if res.failed {
				res.choice.Cancel()
				h.supersede(open)
				if res.panicked == nil {
					runtime.Goexit() // as f did
				}
				panic(res.panicked)
			}
			verdict := h.c.finish(h.r, res.choice, res.err)
			if verdict == OK || verdict == Unknown {
				h.r.retries.earn(h.r.Tuning().RetryBudget)
				h.supersede(open)
				return res.v, res.err
			}
			if len(open) > 0 && retriable(verdict) {
				v, err = res.v, res.err
				continue // the other may still answer
			}
			if len(cancels) == 1 {
				if c, ok := h.r.retry(ctx, h.q, res.err, verdict); ok {
					second(c)
					continue
				}
			}
			h.supersede(open)
			return res.v, res.err
		}
	}
}

func without(cs []Choice, c Choice) []Choice {
	for i := range cs {
		if cs[i].lease == c.lease && cs[i].n == c.n {
			return append(cs[:i:i], cs[i+1:]...)
		}
	}
	return cs
}

// supersede closes the losers at once; their values go to WithDiscard when
// they come.
func (h *hedged[T]) supersede(open []Choice) {
	for _, c := range open {
		h.r.hub.finish(c, &Outcome{Verdict: Superseded})
	}
	h.drain(len(open))
}

// drain hands late values of n attempts to WithDiscard.
func (h *hedged[T]) drain(n int) {
	if n == 0 || h.c.discard == nil {
		return
	}
	discard := h.c.discard
	go func() {
		for range n {
			if res := <-h.out; res.err == nil && !res.failed {
				h.r.isolate(func() { discard(res.v) })
			}
		}
	}()
}
