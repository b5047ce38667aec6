package ringwise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// idem is a request that may be retried and, being unspecified, is never
// hedged, so that it runs in the caller's goroutine.
func idem(key string) Request { return Request{Key: key, Idempotent: true} }

// bank gives Do's retries their tokens.
func (g *rig) bank(tokens float64) { g.retries.n.Store(int64(tokens * budgetUnit)) }

// calls runs one Do whose function ends with the errors given, one a call, and
// returns who was called.
func (g *rig) calls(ctx context.Context, q Request, errs ...error) (ids []string, err error) {
	_, err = Do(ctx, g.Router, q, func(_ context.Context, c Choice) (int, error) {
		ids = append(ids, c.ID())
		return len(ids), errs[min(len(ids), len(errs))-1]
	})
	return ids, err
}

// TestDo_ClosesWhateverHappens: one pick, one end, however f comes back.
func TestDo_ClosesWhateverHappens(t *testing.T) {
	type ends struct {
		panics, goexits bool
	}
	for name, f := range map[string]func(ctx context.Context, c Choice) (int, error){
		"value":  func(context.Context, Choice) (int, error) { return 7, nil },
		"error":  func(context.Context, Choice) (int, error) { return 0, errDisk },
		"panic":  func(context.Context, Choice) (int, error) { panic("boom") },
		"goexit": func(context.Context, Choice) (int, error) { runtime.Goexit(); return 0, nil },
		"stream": func(_ context.Context, c Choice) (int, error) { c.Extend(); c.FirstByte(); return 7, nil },
		"closes": func(_ context.Context, c Choice) (int, error) { c.Done(nil); return 7, nil }, // it must not
	} {
		for _, q := range []Request{{Key: "k"}, idem("k"), {Key: "k", Intent: Write}, {Key: "k", Intent: Read, Idempotent: true, Timeout: time.Hour}} {
			g := newRig(t, 3)
			g.warm("w0") // hedging needs a mean
			g.Maintain(g.clock())
			var v int
			var err error
			var panicked any
			var ended ends
			var wg sync.WaitGroup
			wg.Go(func() {
				ended = ends{true, true}
				defer func() {
					panicked = recover()
					ended.panics = panicked != nil
				}()
				v, err = Do(context.Background(), g.Router, q, f)
				ended.goexits = false
			})
			wg.Wait()
			switch name {
			case "panic":
				require.Equal(t, "boom", panicked, "%s %+v", name, q)
			case "goexit":
				require.Equal(t, ends{false, true}, ended, "%s %+v: %v", name, q, panicked)
			case "error":
				require.ErrorIs(t, err, errDisk)
			default:
				require.NoError(t, err)
				require.Equal(t, 7, v)
			}
			g.requireIdle()
			want := uint64(0)
			if name == "closes" {
				want = 1
			}
			require.Equal(t, want, g.Status().DoubleDone, name)
		}
	}
}

// TestDo_Retries: once, at once, only what is Idempotent, only by the
// worker's fault, only with a token, only while the context lives.
func TestDo_Retries(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tt := range []struct {
		name   string
		q      Request
		err    error
		tokens float64
		ctx    context.Context
		calls  int
	}{
		{"fault", idem("k"), errDisk, 10, nil, 2},
		{"refused", idem("k"), errRefused, 1, nil, 2},
		{"time-out", idem("k"), os.ErrDeadlineExceeded, 2, nil, 2},
		{"time-out costs two", idem("k"), os.ErrDeadlineExceeded, 1.9, nil, 1},
		{"fault costs one", idem("k"), errDisk, 0.9, nil, 1},
		{"write", Request{Key: "k", Intent: Write, Idempotent: true}, errDisk, 10, nil, 2},
		{"not idempotent", Request{Key: "k"}, errDisk, 10, nil, 1},
		{"not idempotent write", Request{Key: "k", Intent: Write}, errRefused, 10, nil, 1},
		{"unknown error", idem("k"), errNoRow, 10, nil, 1},
		{"canceled by f", idem("k"), context.Canceled, 10, nil, 1},
		{"context over", idem("k"), errDisk, 10, canceled, 1},
		{"no tokens", idem("k"), errDisk, 0, nil, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, 3)
			g.bank(tt.tokens)
			ctx := tt.ctx
			if ctx == nil {
				ctx = context.Background()
			}
			ids, err := g.calls(ctx, tt.q, tt.err)
			require.Len(t, ids, tt.calls)
			require.ErrorIs(t, err, tt.err)
			if tt.calls == 2 {
				require.NotEqual(t, ids[0], ids[1], "on another candidate")
			}
			g.requireIdle()
		})
	}
	// The second's value and error count.
	g := newRig(t, 3)
	g.bank(10)
	ids, err := g.calls(context.Background(), idem("k"), errDisk, nil)
	require.NoError(t, err)
	require.Len(t, ids, 2)
	_, err = g.calls(context.Background(), idem("k"), errDisk, errRefused)
	require.ErrorIs(t, err, errRefused)
	require.Equal(t, uint64(2), func() (n uint64) {
		for _, w := range g.Status().Workers {
			n += w.Read.Failures
		}
		return n - 1 // the refused one counts on both lanes, here on this one
	}())
}

// TestDo_RetryNeedsAnother: where nobody else may serve, the first error is
// returned, and nothing was spent.
func TestDo_RetryNeedsAnother(t *testing.T) {
	g := newRig(t, 1)
	g.bank(10)
	for range 5 {
		ids, err := g.calls(context.Background(), idem("k"), errDisk)
		require.ErrorIs(t, err, errDisk)
		require.Len(t, ids, 1)
	}
	require.InDelta(t, 10, g.Status().RetriesBanked, 1e-9)
	// Tried of the caller's counts as well.
	g = newRig(t, 3)
	g.bank(10)
	var tried Tried
	for _, id := range []string{"w0", "w1"} {
		ref, _ := g.Ref(id)
		tried.Add(ref)
	}
	q := idem("k")
	q.Tried = &tried
	ids, err := g.calls(context.Background(), q, errDisk)
	require.ErrorIs(t, err, errDisk)
	require.Equal(t, []string{"w2"}, ids)
}

// TestDo_Budget: a retry for each 50 successes, ten saved up at most.
func TestDo_Budget(t *testing.T) {
	ctx := context.Background()
	g := newRig(t, 3)
	calls := func(err error) int {
		ids, _ := g.calls(ctx, idem("k"), err)
		return len(ids)
	}
	require.InDelta(t, 10, g.Status().RetriesBanked, 1e-9, "a Router starts with a full bucket")
	g.bank(0)
	require.Equal(t, 1, calls(errDisk), "nothing is banked")
	for range 49 {
		calls(nil)
	}
	require.Equal(t, 1, calls(errDisk), "after 49 successes")
	calls(nil)
	require.Equal(t, 2, calls(errDisk), "after 50")
	require.Equal(t, 1, calls(errDisk), "and it is spent")
	for range 99 {
		calls(nil)
	}
	require.Equal(t, 1, calls(os.ErrDeadlineExceeded), "a time-out after 99")
	calls(nil)
	require.Equal(t, 2, calls(os.ErrDeadlineExceeded), "after 100")
	for range 5000 {
		calls(nil)
	}
	require.InDelta(t, 10, g.Status().RetriesBanked, 1e-9)
	retries := 0
	for range 30 {
		retries += calls(errDisk) - 1
	}
	require.Equal(t, 10, retries, "of what was saved up")
	// Requests that are not idempotent neither earn nor spend.
	for range 500 {
		g.calls(ctx, Request{Key: "k"}, nil)
	}
	require.InDelta(t, 0, g.Status().RetriesBanked, 1e-9)

	for _, tt := range []struct{ share, want float64 }{{0, 0}, {0.02, 2}, {0.0005, 0.05}, {0.029, 2.9}, {0.7, 10}, {1, 10}} {
		tn := g.Tuning()
		tn.RetryBudget = tt.share
		require.NoError(t, g.Retune(tn))
		g.bank(0)
		for range 100 {
			calls(nil)
		}
		require.InDelta(t, tt.want, g.Status().RetriesBanked, 1e-6, "RetryBudget %g, 100 successes", tt.share)
	}
	tn := g.Tuning()
	tn.RetryBudget = 0
	require.NoError(t, g.Retune(tn))
	g.bank(10)
	require.Equal(t, 1, calls(errDisk), "off")
}

// TestCase_122_BudgetRefills: after an outage has used it up, successes bring
// it back. The naive quota never refills.
func TestCase_122_BudgetRefills(t *testing.T) {
	refills := func(request func(err error) (retried bool)) bool {
		for range 100 {
			request(errDisk) // the outage
		}
		for range 200 {
			request(nil)
		}
		return request(errDisk)
	}
	g := newRig(t, 3)
	g.bank(10)
	require.True(t, refills(func(err error) bool {
		ids, _ := g.calls(context.Background(), idem("k"), err)
		return len(ids) == 2
	}))
	quota := 10
	require.False(t, refills(func(err error) bool {
		if err == nil || quota == 0 {
			return false
		}
		quota--
		return true
	}), "the naive quota must stay empty")
}

// TestDo_BrownOut: with everything failing, retries are no load worth
// speaking of.
func TestDo_BrownOut(t *testing.T) {
	g := newRig(t, 3)
	n := 0
	for i := range 2000 {
		err := error(nil)
		if i >= 1000 {
			err = errDisk
		}
		ids, _ := g.calls(context.Background(), idem(fmt.Sprint(i)), err)
		n += len(ids)
	}
	require.LessOrEqual(t, n, 2000+10, "calls for 2000 requests")
}

// TestDo_ContextEnds: the caller gave up; that is no fault of the worker.
func TestDo_ContextEnds(t *testing.T) {
	g := newRig(t, 3)
	g.bank(10)
	for range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		_, err := Do(ctx, g.Router, idem("k"), func(ctx context.Context, c Choice) (int, error) {
			cancel()
			<-ctx.Done()
			return 0, fmt.Errorf("get: %w", ctx.Err())
		})
		require.ErrorIs(t, err, context.Canceled)
	}
	for _, w := range g.Status().Workers {
		require.Zero(t, w.Read.Failures)
		require.Equal(t, "healthy", w.Read.Phase)
	}
	g.requireIdle()
	require.InDelta(t, 10, g.Status().RetriesBanked, 1e-9)
}

// TestDo_Verdicts: WithVerdict judges errors instead of the Router's
// Classifier; a caller's short deadline stays what it is.
func TestDo_Verdicts(t *testing.T) {
	all := WithVerdict(func(error) Verdict { return Fault })
	for _, tt := range []struct {
		name  string
		err   error
		opts  []DoOption
		fails bool
	}{
		{"unknown", errNoRow, nil, false},
		{"unknown, own", errNoRow, []DoOption{all}, true},
		{"disk, own OK", errDisk, []DoOption{WithVerdict(func(error) Verdict { return OK })}, false},
		{"disk, own panics", errDisk, []DoOption{WithVerdict(func(error) Verdict { panic("x") })}, false},
		{"short deadline", context.DeadlineExceeded, nil, false},
		{"short deadline, the default by hand", context.DeadlineExceeded, []DoOption{WithVerdict(Classify)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, 1)
			_, err := Do(context.Background(), g.Router, Request{Key: "k"}, func(context.Context, Choice) (int, error) {
				g.jump(time.Millisecond)
				return 0, tt.err
			}, tt.opts...)
			require.ErrorIs(t, err, tt.err)
			require.Equal(t, tt.fails, g.Status().Workers[0].Read.Failures > 0)
			g.requireIdle()
		})
	}
}

// TestDo_RouterErrors are returned and f is not called.
func TestDo_RouterErrors(t *testing.T) {
	g := newRig(t, 2)
	never := func(context.Context, Choice) (int, error) { t.Error("f was called"); return 0, nil }
	_, err := Do(context.Background(), g.Router, Request{}, never)
	require.ErrorIs(t, err, ErrConfig)
	g.SetState("w0", Down)
	g.SetState("w1", Down)
	_, err = Do(context.Background(), g.Router, idem("k"), never)
	require.ErrorIs(t, err, ErrNoWorker)
	require.NoError(t, g.Close())
	_, err = Do(context.Background(), g.Router, idem("k"), never)
	require.ErrorIs(t, err, ErrClosed)
}

// TestDo_RetryOfAHedgeable: a Read that fails fast is retried like any other,
// in the goroutines that hedging needs, and leaves none (I22).
func TestDo_RetryOfAHedgeable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(rigWorkers(3))
		require.NoError(t, err)
		q := Request{Key: "k", Intent: Read, Idempotent: true}
		for range 1000 { // a mean and tokens
			v, err := Do(context.Background(), r, q, func(context.Context, Choice) (int, error) {
				time.Sleep(time.Millisecond) // of the bubble
				return 1, nil
			})
			require.NoError(t, err)
			require.Equal(t, 1, v)
		}
		var mu sync.Mutex
		var ids []string
		v, err := Do(context.Background(), r, q, func(_ context.Context, c Choice) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			if ids = append(ids, c.ID()); len(ids) == 1 {
				return 0, errDisk
			}
			return 2, nil
		})
		require.NoError(t, err)
		require.Equal(t, 2, v)
		require.Len(t, ids, 2)
		require.NotEqual(t, ids[0], ids[1])

		// A caller that leaves is not held up by an f that ignores its context.
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err = Do(ctx, r, q, func(context.Context, Choice) (int, error) {
			time.Sleep(time.Hour)
			return 0, errors.New("too late")
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 20*time.Millisecond, time.Since(start))
		for _, w := range r.Status().Workers {
			require.Zero(t, w.InFlight, w.ID)
		}
		time.Sleep(2 * time.Hour) // until f has ended; the bubble finds what is left
	})
}
