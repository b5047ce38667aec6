package ringwise

import (
	"context"
	"errors"
	"time"
)

// DoOption changes one Do.
type DoOption func(*doConfig)

type doConfig struct {
	classify Classifier
}

// WithVerdict classifies the errors of this Do instead of the Router's
// Classifier.
func WithVerdict(f Classifier) DoOption { return func(c *doConfig) { c.classify = f } }

// Do picks a worker, calls f with it and closes the choice, whatever happens:
// a panic in f gives the reservation back and goes on. A request that is
// Idempotent is tried once more, at once, on a candidate not tried, when it
// failed by the worker's fault and the budget allows (Tuning.RetryBudget).
// The error is f's last, or the router's where nobody could be picked.
//
// f must honour its context. It must not close the choice; Extend and
// FirstByte are fine.
func Do[T any](ctx context.Context, r *Router, q Request, f func(context.Context, Choice) (T, error), opts ...DoOption) (T, error) {
	var c doConfig
	for _, o := range opts {
		o(&c)
	}
	var tried Tried
	if q.Idempotent && q.Tried == nil {
		q.Tried = &tried
	}
	v, err, verdict := attempt(ctx, r, &q, f, &c)
	if err == nil {
		if q.Idempotent {
			r.retries.earn(r.snap.Load().coef.tuning.RetryBudget)
		}
		return v, nil
	}
	if !q.Idempotent || !retriable(verdict) || ctx.Err() != nil {
		return v, err
	}
	cost := 1.0
	if isTimeout(err) {
		cost = 2
	}
	if !r.retries.spend(cost, r.snap.Load().coef.tuning.RetryBudget) {
		return v, err
	}
	q.Start = time.Time{} // the second attempt begins now
	again, err2, _ := attempt(ctx, r, &q, f, &c)
	if errors.Is(err2, ErrNoWorker) {
		return v, err // nobody else: the first error tells more
	}
	return again, err2
}

// attempt is one pick, one call and its end.
func attempt[T any](ctx context.Context, r *Router, q *Request, f func(context.Context, Choice) (T, error), c *doConfig) (v T, err error, verdict Verdict) {
	choice, err := r.Route(*q)
	if err != nil {
		return v, err, 0
	}
	q.Tried.add(choice)
	done := false
	defer func() {
		if !done { // f panicked
			choice.Cancel()
		}
	}()
	v, err = f(ctx, choice)
	done = true
	o := Outcome{Err: err}
	if err != nil && c.classify != nil {
		o.Verdict = c.classify.of(err)
	}
	return v, err, r.hub.finish(choice, &o)
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
