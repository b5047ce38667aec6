package goredis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/ringwise/ringwise"
	"github.com/ringwise/ringwise/adapters/goredis/internal/redistest"
)

const (
	// readTimeout of every client in the tests.
	readTimeout = time.Second
	// slack is what a busy machine may add to one call: a wake-up, a dial and
	// an answer, of two cores that run the load, the race detector and three
	// servers. A second time-out would still show.
	slack = 800 * time.Millisecond
)

// goroutines of a load: a third of them are inside the node that fails, and
// each needs a retry that Do's budget must hold (a time-out takes 2 of 10).
const goroutines = 8

// bank reads until Do's retry budget is full.
func bank(t *testing.T, c *Client) {
	t.Helper()
	eventually(t, func() bool {
		for range 100 {
			_ = c.Get(context.Background(), "k").Err()
		}
		return c.Router().Status().RetriesBanked > 9.9
	}, "a full retry budget")
}

// trio starts a primary and two replicas; a missing server fails the test.
func trio(t *testing.T) []*redistest.Server {
	t.Helper()
	servers, err := redistest.Trio()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { redistest.Stop(servers...) })
	return servers
}

func server(t *testing.T, args ...string) *redistest.Server {
	t.Helper()
	s, err := redistest.Start(args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { redistest.Stop(s) })
	return s
}

// workers names them p, r1, r2.
func workers(servers []*redistest.Server) []ringwise.Worker {
	ws := make([]ringwise.Worker, len(servers))
	for i, s := range servers {
		ws[i] = ringwise.Worker{ID: fmt.Sprintf("r%d", i), Addr: s.Addr, Role: ringwise.RoleReplica}
	}
	ws[0].ID, ws[0].Role = "p", ringwise.RolePrimary
	return ws
}

func front(t *testing.T, servers []*redistest.Server, opt Options) *Client {
	t.Helper()
	if opt.Redis.ReadTimeout == 0 {
		opt.Redis.ReadTimeout = readTimeout
	}
	c, err := New(workers(servers), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// calls of each server, by command.
func calls(t *testing.T, servers ...*redistest.Server) []map[string]int {
	t.Helper()
	out := make([]map[string]int, len(servers))
	for i, s := range servers {
		var err error
		if out[i], err = s.Calls(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// replicated waits until every replica has what the primary has.
func replicated(t *testing.T, servers []*redistest.Server, key, want string) {
	t.Helper()
	for _, s := range servers[1:] {
		c := redis.NewClient(&redis.Options{Addr: s.Addr})
		defer c.Close()
		eventually(t, func() bool { return c.Get(context.Background(), key).Val() == want }, "%s at %s", key, s.Addr)
	}
}

// eventually allows what takes its time a minute.
func eventually(t *testing.T, ok func() bool, format string, args ...any) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: "+format, args...)
		}
	}
}

// load is closed-loop traffic of one kind, from several goroutines.
type load struct {
	stop chan struct{}
	wg   sync.WaitGroup

	mu    sync.Mutex
	took  []time.Duration
	errs  []error
	ended atomic.Int64 // calls that are over
}

func startLoad(goroutines int, call func(ctx context.Context) error) *load {
	l := &load{stop: make(chan struct{})}
	for range goroutines {
		l.wg.Go(func() {
			var took []time.Duration
			var errs []error
			defer func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.took, l.errs = append(l.took, took...), append(l.errs, errs...)
			}()
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				begin := time.Now()
				err := call(context.Background())
				took = append(took, time.Since(begin))
				if err != nil {
					errs = append(errs, err)
				}
				l.ended.Add(1)
			}
		})
	}
	return l
}

// further lets n more calls end.
func (l *load) further(t *testing.T, n int64) {
	t.Helper()
	from := l.ended.Load()
	eventually(t, func() bool { return l.ended.Load() >= from+n }, "%d more calls", n)
}

// end stops the load: no caller may have seen an error, nor a call longer than
// bound and slack.
func (l *load) end(t *testing.T, bound time.Duration) {
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	worst := slices.Max(l.took)
	t.Logf("%d calls, worst %v", len(l.took), worst)
	if len(l.errs) > 0 {
		t.Errorf("%d caller errors: %v", len(l.errs), errors.Join(l.errs[:min(len(l.errs), 5)]...))
	}
	if worst > bound+slack {
		t.Errorf("worst took %v, want at most %v (and %v of slack)", worst, bound, slack)
	}
}

// noneInFlight waits for all reservations to be given back.
func noneInFlight(t *testing.T, c *Client) {
	t.Helper()
	eventually(t, func() bool { return inFlight(c) == 0 }, "no reservation in flight")
}

func lines(m map[string]int) string {
	var b strings.Builder
	for k, v := range m {
		fmt.Fprintf(&b, "%s=%d ", k, v)
	}
	return b.String()
}

func inFlight(c *Client) (n int) {
	for _, w := range c.Router().Status().Workers {
		n += w.InFlight
	}
	return n
}

func picks(c *Client) int { return int(c.Router().Status().Picks) }

// observed counts the answers that trained a latency, and the failures.
func observed(c *Client) (answers, failures int) {
	s := c.Router().Status()
	for _, w := range s.Workers {
		answers += int(w.Read.RTT.Count + w.Write.RTT.Count)
	}
	for _, v := range []string{"fault", "broken", "overload", "unknown"} {
		failures += int(s.Verdicts[v])
	}
	return answers, failures
}

// wantHealthy: nobody is in penalty, and every reservation was closed once.
func wantHealthy(t *testing.T, c *Client) {
	t.Helper()
	s := c.Router().Status()
	for _, w := range s.Workers {
		for _, l := range []ringwise.WorkerLane{w.Read, w.Write} {
			if l.Phase != ringwise.Healthy.String() || l.Failures != 0 || l.Unknown != 0 {
				t.Errorf("%s: %+v", w.ID, l)
			}
		}
	}
	if s.Leaked+s.LateDone+s.DoubleDone+s.Untracked != 0 {
		t.Errorf("leaked %d, late %d, double %d, untracked %d", s.Leaked, s.LateDone, s.DoubleDone, s.Untracked)
	}
}
