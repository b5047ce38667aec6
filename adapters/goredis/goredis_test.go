package goredis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/ringwise/ringwise"
	"github.com/ringwise/ringwise/adapters/goredis/internal/redistest"
)

// TestClient_StoppedReplica stops a replica under load. Whoever was inside it
// waits one read time-out and is answered by another node; nobody sees an
// error, and /proc shows that the stopped process did not run at all.
func TestClient_StoppedReplica(t *testing.T) {
	servers := trio(t)
	c := front(t, servers, Options{})
	ctx := context.Background()
	must(t, c.Set(ctx, "k", "v", 0).Err())
	replicated(t, servers, "k", "v")

	l := startLoad(goroutines, func(ctx context.Context) error { return c.Get(ctx, "k").Err() })
	l.further(t, 2000)
	bank(t, c)
	sick := servers[2]
	must(t, sick.Pause())
	before, err := sick.Threads()
	must(t, err)
	for begin := time.Now(); time.Since(begin) < 3*time.Second; time.Sleep(50 * time.Millisecond) {
		if st, err := sick.Threads(); err != nil || !st.Stopped {
			t.Fatalf("the replica runs: %+v %v", st, err)
		}
	}
	l.further(t, 2000)
	after, err := sick.Threads()
	must(t, err)
	if before != after || !after.Stopped {
		t.Errorf("the stopped replica ran: %+v, then %+v", before, after)
	}

	// It comes back by itself once it answers again.
	must(t, sick.Resume())
	was := calls(t, sick)[0]["get"]
	eventually(t, func() bool { return calls(t, sick)[0]["get"] > was+100 }, "reads of the resumed replica")

	l.end(t, readTimeout) // and an answer elsewhere
	noneInFlight(t, c)
}

// TestClient_HedgesPausedReplica pauses a replica for 200 ms every second until
// copies have won: no caller sees an error, the copies keep to their budget,
// and with none to spend there are none.
func TestClient_HedgesPausedReplica(t *testing.T) {
	for _, budget := range []float64{ringwise.DefaultTuning().HedgeBudget, 0} {
		t.Run(fmt.Sprint("budget ", budget), func(t *testing.T) {
			servers := trio(t)
			c := front(t, servers, Options{})
			tuning := c.Router().Tuning()
			tuning.HedgeBudget = budget
			must(t, c.Router().Retune(tuning))
			ctx := context.Background()
			must(t, c.Set(ctx, "k", "v", 0).Err())
			replicated(t, servers, "k", "v")
			l := startLoad(goroutines, func(ctx context.Context) error { return c.Get(ctx, "k").Err() })
			l.further(t, 2000)
			bank(t, c)

			sick := servers[2]
			for round := 1; ; round++ {
				must(t, sick.Pause())
				time.Sleep(200 * time.Millisecond)
				must(t, sick.Resume())
				time.Sleep(800 * time.Millisecond)
				if s := c.Router().Status(); budget == 0 && round == 3 || budget > 0 && s.HedgesWon >= 3 {
					break
				} else if round == 60 {
					t.Fatalf("%d copies sent and %d won in %d pauses", s.Hedges, s.HedgesWon, round)
				}
			}
			l.end(t, readTimeout)
			noneInFlight(t, c)
			s := c.Router().Status()
			t.Logf("%d reads, %d copies, %d won", s.Picks, s.Hedges, s.HedgesWon)
			if most := budget * (float64(s.Picks) + 500); float64(s.Hedges) > most { // 500 reads' worth were saved: ten
				t.Errorf("%d copies of %d reads, want at most %.0f", s.Hedges, s.Picks, most)
			}
		})
	}
}

// TestClient_KilledReplica ends a replica under load.
func TestClient_KilledReplica(t *testing.T) {
	servers := trio(t)
	c := front(t, servers, Options{})
	ctx := context.Background()
	must(t, c.Set(ctx, "k", "v", 0).Err())
	replicated(t, servers, "k", "v")

	l := startLoad(goroutines, func(ctx context.Context) error { return c.Get(ctx, "k").Err() })
	l.further(t, 2000)
	bank(t, c)
	servers[1].Kill()
	l.further(t, 20_000)
	l.end(t, 0) // a broken connection is noticed at once
	noneInFlight(t, c)
}

// TestClient_BothReplicasDie: with both out, reads go to the primary. A call
// that meets the one and then the other fails, for there is one retry; if one
// of the dead had to stay in (the default MaxOut), hundreds would.
func TestClient_BothReplicasDie(t *testing.T) {
	servers := trio(t)
	c := front(t, servers, Options{})
	ctx := context.Background()
	must(t, c.Set(ctx, "k", "v", 0).Err())
	replicated(t, servers, "k", "v")
	var failed atomic.Int64
	l := startLoad(goroutines, func(ctx context.Context) error {
		if err := c.Get(ctx, "k").Err(); err != nil {
			failed.Add(1)
		}
		return nil
	})
	for i, s := range servers[1:] {
		bank(t, c)
		s.Kill()
		eventually(t, func() bool { return c.Router().Status().Read.Cooldown == i+1 }, "%d replicas in cooldown", i+1)
	}
	l.further(t, 50_000)
	l.end(t, 0)
	if n := failed.Load(); n > 20 {
		t.Errorf("%d calls failed", n)
	}
	noneInFlight(t, c)
}

// TestClient_ReadsOffThePrimary: the README's way to spare the primary.
func TestClient_ReadsOffThePrimary(t *testing.T) {
	servers := trio(t)
	ws := workers(servers)
	ws[0].Zone, ws[1].Zone, ws[2].Zone = "primary", "replicas", "replicas"
	tuning := ringwise.DefaultTuning()
	tuning.ZoneCost = 20
	tuning.MaxOut = 0.7
	c, err := New(ws, Options{Router: []ringwise.Option{ringwise.WithTuning(tuning), ringwise.WithLocalZone("replicas")}})
	must(t, err)
	defer c.Close()
	ctx := context.Background()
	must(t, c.Set(ctx, "k", "v", 0).Err())
	replicated(t, servers, "k", "v")
	l := startLoad(goroutines, func(ctx context.Context) error { return c.Get(ctx, "k").Err() })
	l.further(t, 20_000)
	l.end(t, readTimeout)
	if got, all := calls(t, servers[0])[0]["get"], len(l.took); got > all/10 {
		t.Errorf("the primary served %d of %d reads", got, all)
	}
}

// TestClient_WriteErrorStays stops the primary: a write may have been done, so
// its error is the caller's, after one attempt. Reads go on.
func TestClient_WriteErrorStays(t *testing.T) {
	servers := trio(t)
	c := front(t, servers, Options{})
	ctx := context.Background()
	must(t, c.Set(ctx, "k", "v", 0).Err())
	replicated(t, servers, "k", "v")
	bank(t, c)
	must(t, servers[0].Pause())

	begin, was := time.Now(), picks(c)
	err := c.Set(ctx, "k", "w", 0).Err()
	if took := time.Since(begin); took > readTimeout+slack {
		t.Errorf("Set took %v, want one read time-out", took)
	}
	if ne, ok := errors.AsType[net.Error](err); !ok || !ne.Timeout() {
		t.Errorf("Set = %v, want a time-out", err)
	}
	// A pipeline's first connection to a node is not one time-out more.
	begin = time.Now()
	cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error { p.Set(ctx, "k", "w", 0); p.Incr(ctx, "n"); return nil })
	if took := time.Since(begin); took > readTimeout+slack {
		t.Errorf("Pipelined took %v, want one read time-out", took)
	}
	if err == nil || cmds[0].Err() == nil || cmds[1].Err() == nil {
		t.Errorf("Pipelined = %v, %v", cmds, err)
	}
	if n := picks(c) - was; n != 2 {
		t.Errorf("%d picks for two writes", n)
	}
	for i := range 20 {
		if got, err := c.Get(ctx, "k").Result(); got != "v" || err != nil {
			t.Errorf("Get %d = %q, %v", i, got, err)
		}
	}
	for _, m := range calls(t, servers[1:]...) {
		if m["set"] != 1 { // by replication
			t.Errorf("replica got %s", lines(m))
		}
	}
	noneInFlight(t, c)
}

// TestClient_WriteErrorStaysAmongPrimaries: nor does it move to another node
// that could take it, where the roles are not known.
func TestClient_WriteErrorStaysAmongPrimaries(t *testing.T) {
	servers := []*redistest.Server{server(t), server(t)}
	ws := workers(servers)
	ws[0].Role, ws[1].Role = ringwise.RoleAny, ringwise.RoleAny
	c, err := New(ws, Options{})
	must(t, err)
	defer c.Close()
	bank(t, c)
	servers[1].Kill()
	ctx, sets, was := context.Background(), 0, picks(c)
	eventually(t, func() bool {
		sets++
		return c.Set(ctx, "k", "v", 0).Err() != nil
	}, "a write that meets the killed node")
	if got := picks(c) - was; got != sets {
		t.Errorf("%d picks for %d writes", got, sets)
	}
}

// TestClient_HealthyAnswers: a miss and an error of the caller's own make say
// that the node works.
func TestClient_HealthyAnswers(t *testing.T) {
	servers := trio(t)
	c := front(t, servers, Options{})
	ctx := context.Background()
	must(t, c.Set(ctx, "k", "v", 0).Err())
	replicated(t, servers, "k", "v")
	for range 50 {
		if err := c.Get(ctx, "none").Err(); err != redis.Nil { // users compare it with ==
			t.Fatalf("Get of nothing = %v", err)
		}
		if err := c.LLen(ctx, "k").Err(); !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Fatalf("LLen of a string = %v", err)
		}
		if err := c.LPush(ctx, "k", 1).Err(); !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Fatalf("LPush on a string = %v", err)
		}
	}
	wantHealthy(t, c)
	if ok, bad := observed(c); ok != 151 || bad != 0 {
		t.Errorf("%d answers and %d failures observed, want 151 and 0", ok, bad)
	}
}

// TestClient_HandshakeNotObserved: HELLO, CLIENT SETINFO and the like are the
// node clients' own.
func TestClient_HandshakeNotObserved(t *testing.T) {
	servers := trio(t)
	c := front(t, servers, Options{})
	ctx := context.Background()
	for range 30 {
		_ = c.Get(ctx, "k").Err()
	}
	if ok, bad := observed(c); ok != 30 || bad != 0 || picks(c) != 30 {
		t.Errorf("%d answers, %d failures, %d picks, want 30, 0, 30", ok, bad, picks(c))
	}
	gets, hellos := 0, 0
	for _, m := range calls(t, servers...) {
		gets, hellos = gets+m["get"], hellos+m["hello"]
	}
	if gets != 30 || hellos == 0 {
		t.Errorf("the servers count %d gets and %d hellos", gets, hellos)
	}
}

// TestClient_EqualNodesShareReads: nodes that differ by noise share the load
// (go-redis#3974: the strict minimum of latency spread it 590 to 1), and with
// one of them dead nobody pings anybody (go-redis#2782).
func TestClient_EqualNodesShareReads(t *testing.T) {
	servers := trio(t)
	c := front(t, servers, Options{})
	l := startLoad(goroutines, func(ctx context.Context) error {
		if err := c.Get(ctx, "none").Err(); err != redis.Nil {
			return fmt.Errorf("Get of nothing = %w", err)
		}
		return nil
	})
	l.further(t, 30_000)
	low, high := 1<<30, 0
	for _, m := range calls(t, servers...) {
		low, high = min(low, m["get"]), max(high, m["get"])
	}
	if high > 5*low {
		t.Errorf("one node served %d reads, another %d", high, low)
	}
	servers[2].Kill()
	l.further(t, 10_000)
	l.end(t, 0)
	for _, m := range calls(t, servers[:2]...) {
		if m["ping"] > 20 { // replication pings now and then
			t.Errorf("pinged: %s", lines(m))
		}
	}
}

// TestClient_FaultyReplies: replies by which a node says that it cannot serve
// are faults: reads are answered by another node.
func TestClient_FaultyReplies(t *testing.T) {
	ctx := context.Background()
	good := func(t *testing.T) *redistest.Server {
		s := server(t)
		c := redis.NewClient(&redis.Options{Addr: s.Addr})
		defer c.Close()
		must(t, c.Set(ctx, "k", "v", 0).Err())
		return s
	}
	read := func(t *testing.T, bad *redistest.Server) {
		t.Helper()
		well := good(t)
		c := front(t, []*redistest.Server{well, bad}, Options{})
		c.Router().SetState("r1", ringwise.Down)
		bank(t, c)
		c.Router().SetState("r1", ringwise.Up)
		l := startLoad(goroutines, func(ctx context.Context) error {
			got, err := c.Get(ctx, "k").Result()
			if err == nil && got != "v" {
				return fmt.Errorf("got %q", got)
			}
			return err
		})
		eventually(t, func() bool { _, bad := observed(c); return bad > 2 }, "a fault observed")
		l.further(t, 1000)
		l.end(t, readTimeout)
		noneInFlight(t, c)
	}
	t.Run("LOADING", func(t *testing.T) { read(t, loading(t)) })
	t.Run("MASTERDOWN", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0") // nobody answers there
		must(t, err)
		defer l.Close()
		alone := server(t, "--replica-serve-stale-data", "no", "--replicaof",
			"127.0.0.1 "+strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
		read(t, alone)
	})
	t.Run("READONLY", func(t *testing.T) {
		servers := trio(t)
		demoted := []*redistest.Server{servers[1], servers[0], servers[2]} // the topology is behind
		c := front(t, demoted, Options{})
		if err := c.Set(ctx, "k", "v", 0).Err(); !redis.IsReadOnlyError(err) {
			t.Errorf("Set = %v, want READONLY", err)
		}
		if n, bad := observed(c); n != 0 || bad != 1 || picks(c) != 1 {
			t.Errorf("%d answers, %d failures, %d picks, want 0, 1, 1", n, bad, picks(c))
		}
	})
}

// loading starts a server that is busy with its data set for half a minute.
func loading(t *testing.T) *redistest.Server {
	t.Helper()
	ctx := context.Background()
	s := server(t)
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	p := c.Pipeline()
	for i := range 30_000 {
		p.Set(ctx, fmt.Sprint("key", i), i, 0)
	}
	_, err := p.Exec(ctx)
	must(t, err)
	must(t, c.Save(ctx).Err())
	s.Kill()
	again, err := redistest.StartIn(s.Dir, "--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
	must(t, err)
	t.Cleanup(func() { redistest.Stop(again) })
	n := redis.NewClient(&redis.Options{Addr: again.Addr, MaxRetries: -1})
	defer n.Close()
	if err := n.Get(ctx, "k").Err(); !redis.IsLoadingError(err) {
		t.Fatalf("the server is not loading: %v", err)
	}
	return again
}

func TestClient_TxPipelined(t *testing.T) {
	servers := trio(t)
	c := front(t, servers, Options{})
	ctx := context.Background()
	was := picks(c)
	var n *redis.IntCmd
	cmds, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "n", 41, 0)
		n = p.Incr(ctx, "n")
		p.Get(ctx, "n")
		return nil
	})
	if err != nil || n.Val() != 42 || len(cmds) != 3 || cmds[2].(*redis.StringCmd).Val() != "42" {
		t.Errorf("TxPipelined = %v, %v", cmds, err)
	}
	if got := picks(c) - was; got != 1 {
		t.Errorf("%d picks for a transaction", got)
	}
	// An error within is the caller's, and the other commands stand.
	cmds, err = c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.LPush(ctx, "n", 1)
		p.Incr(ctx, "n")
		return nil
	})
	if !redis.HasErrorPrefix(err, "WRONGTYPE") || cmds[1].(*redis.IntCmd).Val() != 43 {
		t.Errorf("TxPipelined with an error = %v, %v", cmds, err)
	}
	m := calls(t, servers...)
	if m[0]["multi"] != 2 || m[0]["exec"] != 2 || m[0]["lpush"] != 1 {
		t.Errorf("the primary got %s", lines(m[0]))
	}
	if m[1]["get"]+m[2]["get"] != 0 {
		t.Errorf("the replicas got %s, %s", lines(m[1]), lines(m[2]))
	}
	wantHealthy(t, c)
}

// TestClient_Watch: the lock holds, and it is lost when another client writes.
func TestClient_Watch(t *testing.T) {
	servers := trio(t)
	c := front(t, servers, Options{})
	ctx := context.Background()
	must(t, c.Set(ctx, "n", 1, 0).Err())
	incr := func(between func()) error {
		return c.Watch(ctx, func(tx *redis.Tx) error {
			n, err := tx.Get(ctx, "n").Int()
			if err != nil {
				return err
			}
			between()
			_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Set(ctx, "n", n+1, 0); return nil })
			return err
		}, "n")
	}
	if err := incr(func() {}); err != nil {
		t.Errorf("Watch = %v", err)
	}
	if err := incr(func() { must(t, c.Set(ctx, "n", 100, 0).Err()) }); err != redis.TxFailedErr {
		t.Errorf("Watch with another write between = %v, want %v", err, redis.TxFailedErr)
	}
	mine := errors.New("mine")
	if err := c.Watch(ctx, func(*redis.Tx) error { return mine }, "n"); err != mine {
		t.Errorf("Watch = %v, want the caller's error", err)
	}
	if got := c.Get(StrongRead(ctx), "n").Val(); got != "100" {
		t.Errorf("n = %s, want 100", got)
	}
	wantHealthy(t, c)
	noneInFlight(t, c)
	if m := calls(t, servers...); m[0]["watch"] != 3 || m[1]["watch"]+m[2]["watch"] != 0 {
		t.Errorf("watches %d, %d, %d, want 3, 0, 0", m[0]["watch"], m[1]["watch"], m[2]["watch"])
	}
}

// TestClient_Refuses: what needs one connection fails loudly with one type,
// and nothing of it reaches a server.
func TestClient_Refuses(t *testing.T) {
	servers := trio(t)
	c := front(t, servers, Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	was := picks(c)
	set := func(p redis.Pipeliner) error { p.Set(ctx, "k", "v", 0); return nil }
	for name, call := range map[string]func() error{
		"Subscribe":        func() error { _, err := c.Subscribe(ctx, "ch").Receive(ctx); return err },
		"PSubscribe":       func() error { _, err := c.PSubscribe(ctx, "ch*").ReceiveMessage(ctx); return err },
		"SSubscribe":       func() error { return c.SSubscribe(ctx, "ch").Ping(ctx) },
		"PubSub.Subscribe": func() error { return c.Subscribe(ctx).Subscribe(ctx, "ch") },
		"Conn":             func() error { return c.Conn().Get(ctx, "k").Err() },
		"Conn.Select":      func() error { return c.Conn().Select(ctx, 1).Err() },
		"Conn pipeline":    func() error { _, err := c.Conn().Pipelined(ctx, set); return err },
		"EphemeralConn":    func() error { return c.EphemeralConn().Set(ctx, "k", "v", 0).Err() },
		"WithTimeout":      func() error { return c.WithTimeout(time.Second).Get(ctx, "k").Err() },
		"inner Watch": func() error {
			return c.Client.Watch(ctx, func(tx *redis.Tx) error { t.Error("fn was called"); return nil }, "k")
		},
		"inner Watch without keys": func() error {
			return c.Client.Watch(ctx, func(tx *redis.Tx) error { _, err := tx.TxPipelined(ctx, set); return err })
		},
		"Do watch":  func() error { return c.Do(ctx, "WATCH", "k").Err() },
		"Do multi":  func() error { return c.Do(ctx, "multi").Err() },
		"Do select": func() error { return c.Do(ctx, "select", 1).Err() },
		"Pipeline.Select": func() error {
			p := c.Pipeline()
			kept, cmd := p.Set(ctx, "k", "v", 0), p.Select(ctx, 3)
			_, err := p.Exec(ctx)
			if kept.Err() != err || cmd.Err() != err {
				t.Errorf("commands %v and %v, want both %v", kept.Err(), cmd.Err(), err)
			}
			return err
		},
		"Pipeline multi": func() error {
			p := c.Pipeline()
			_ = p.Process(ctx, redis.NewStatusCmd(ctx, "multi"))
			_, err := p.Exec(ctx)
			return err
		},
		"Pipeline multi and exec": func() error {
			p := c.Pipeline()
			_ = p.BatchProcess(ctx, redis.NewStatusCmd(ctx, "multi"), redis.NewSliceCmd(ctx, "exec"))
			_, err := p.Exec(ctx)
			return err
		},
		"Pipeline Do multi to exec": func() error {
			_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
				p.Do(ctx, "MULTI")
				p.Set(ctx, "k", "v", 0)
				p.Do(ctx, "EXEC")
				return nil
			})
			return err
		},
		"Pipeline monitor": func() error {
			_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error { p.Do(ctx, []byte("Monitor")); return nil })
			return err
		},
		"Pipeline subscribe": func() error {
			_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error { p.Do(ctx, "subscribe", "ch"); return nil })
			return err
		},
		"TxPipeline watch": func() error {
			_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Do(ctx, "watch", "k"); return nil })
			return err
		},
		"TxPipeline select": func() error {
			_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Select(ctx, 1); p.Set(ctx, "k", "v", 0); return nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := call()
			if _, ok := errors.AsType[*UnsupportedError](err); !ok || !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("error %v, want an *UnsupportedError", err)
			}
		})
	}
	if got := picks(c) - was; got != 0 {
		t.Errorf("%d picks", got)
	}
	for _, name := range []string{"set", "select", "multi", "exec", "watch", "monitor", "subscribe"} {
		if n := calls(t, servers[0])[0][name]; n != 0 {
			t.Errorf("the primary got %d %s", n, name)
		}
	}
	// A hook added to the front would never run: it says so from then on.
	c2 := front(t, servers, Options{})
	c2.AddHook(&hook{c: c2})
	if err := c2.Get(ctx, "k").Err(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Get after AddHook = %v", err)
	}
	cmds, err := c2.Pipelined(ctx, set)
	if !errors.Is(err, errors.ErrUnsupported) || !errors.Is(cmds[0].Err(), errors.ErrUnsupported) {
		t.Errorf("Pipelined after AddHook = %v, %v", cmds, err)
	}
}

// TestClient_Primary: the way out for what is refused.
func TestClient_Primary(t *testing.T) {
	servers := trio(t)
	c := front(t, servers, Options{})
	ctx := context.Background()
	p, err := c.Primary()
	must(t, err)
	if got := p.Options().Addr; got != servers[0].Addr {
		t.Errorf("Primary is at %s, want %s", got, servers[0].Addr)
	}
	sub := p.Subscribe(ctx, "ch")
	defer sub.Close()
	_, err = sub.Receive(ctx)
	must(t, err)
	must(t, c.Publish(ctx, "ch", "hello").Err())
	msg, err := sub.ReceiveMessage(ctx)
	if err != nil || msg.Payload != "hello" {
		t.Errorf("received %v, %v", msg, err)
	}
	noneInFlight(t, c)
}

func TestClient_PipelineIsOnePick(t *testing.T) {
	servers := trio(t)
	tuning := ringwise.DefaultTuning()
	tuning.HedgeBudget = 0 // a copy is a pick as well
	c := front(t, servers, Options{Router: []ringwise.Option{ringwise.WithTuning(tuning)}})
	ctx := context.Background()
	was := picks(c)
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 50 {
			p.Set(ctx, fmt.Sprint("k", i), i, 0)
		}
		return nil
	})
	must(t, err)
	if got := picks(c) - was; got != 1 {
		t.Errorf("%d picks for 50 writes", got)
	}
	replicated(t, servers, "k49", "49")

	const rounds = 60
	was = picks(c)
	before := calls(t, servers...)
	for range rounds {
		cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range 50 {
				p.Get(ctx, fmt.Sprint("k", i))
			}
			return nil
		})
		must(t, err)
		for i, cmd := range cmds {
			if got := cmd.(*redis.StringCmd).Val(); got != strconv.Itoa(i) {
				t.Fatalf("k%d = %q", i, got)
			}
		}
	}
	if got := picks(c) - was; got != rounds {
		t.Errorf("%d picks for %d pipelines", got, rounds)
	}
	m := calls(t, servers...)
	for i := range m {
		if got := m[i]["get"] - before[i]["get"]; got%50 != 0 {
			t.Errorf("a pipeline was split: node %d got %d", i, got)
		}
	}

	// One write in it, and all of it goes to the primary.
	was, reads := picks(c), m[0]["get"]
	_, err = c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 49 {
			p.Get(ctx, fmt.Sprint("k", i))
		}
		p.Incr(ctx, "n")
		return nil
	})
	must(t, err)
	if got := calls(t, servers[0])[0]["get"] - reads; got != 49 || picks(c)-was != 1 {
		t.Errorf("the primary got %d of the 49 reads beside a write, in %d picks", got, picks(c)-was)
	}

	// A miss is no failure, and is the pipeline's error as in go-redis.
	cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "k1"); p.Get(ctx, "none"); return nil })
	if err != redis.Nil || cmds[0].Err() != nil || cmds[1].Err() != redis.Nil {
		t.Errorf("pipeline with a miss = %v, %v", cmds, err)
	}
	wantHealthy(t, c)
}

// TestClient_PipelineRetried: a pipeline of reads survives a stopped replica
// and a killed one.
func TestClient_PipelineRetried(t *testing.T) {
	for name, fail := range map[string]func(*redistest.Server) error{
		"stopped": (*redistest.Server).Pause,
		"killed":  func(s *redistest.Server) error { s.Kill(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			servers := trio(t)
			c := front(t, servers, Options{})
			tuning := c.Router().Tuning()
			tuning.HedgeBudget = 0 // a copy that wins leaves nothing to retry
			must(t, c.Router().Retune(tuning))
			ctx := context.Background()
			must(t, c.Set(ctx, "k", "v", 0).Err())
			replicated(t, servers, "k", "v")
			var wrong atomic.Int64
			l := startLoad(goroutines, func(ctx context.Context) error {
				cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
					for range 50 {
						p.Get(ctx, "k")
					}
					return nil
				})
				for _, cmd := range cmds {
					if cmd.Err() != nil || cmd.(*redis.StringCmd).Val() != "v" {
						wrong.Add(1)
					}
				}
				return err
			})
			l.further(t, 200)
			bank(t, c)
			must(t, fail(servers[2]))
			l.further(t, 2000)
			l.end(t, readTimeout)
			if wrong.Load() != 0 {
				t.Errorf("%d wrong replies", wrong.Load())
			}
			if _, bad := observed(c); bad == 0 {
				t.Error("no pipeline met the failing replica: the test proves nothing")
			}
			noneInFlight(t, c)
		})
	}
}

// TestClient_StrongRead: what was written is read back at once, where a plain
// read may still find the old value on a replica: here on two that no longer
// follow the primary.
func TestClient_StrongRead(t *testing.T) {
	servers := trio(t)
	c := front(t, servers, Options{})
	ctx := context.Background()
	must(t, c.Set(ctx, "k", "0", 0).Err())
	replicated(t, servers, "k", "0")
	for _, s := range servers[1:] {
		// Cut off: they keep the old value and go on serving it.
		r := redis.NewClient(&redis.Options{Addr: s.Addr})
		must(t, r.ReplicaOf(ctx, "127.0.0.1", "1").Err())
		must(t, r.Close())
	}
	must(t, c.Set(ctx, "k", "1", 0).Err())
	var stale atomic.Int64
	l := startLoad(8, func(ctx context.Context) error {
		got, err := c.Get(ctx, "k").Result()
		if got == "0" {
			stale.Add(1)
		}
		return err
	})
	for i := 2; i <= 200; i++ {
		want := strconv.Itoa(i)
		must(t, c.Set(ctx, "k", want, 0).Err())
		if got := c.Get(StrongRead(ctx), "k").Val(); got != want {
			t.Fatalf("strong read %d = %q", i, got)
		}
		cmds, err := c.Pipelined(StrongRead(ctx), func(p redis.Pipeliner) error { p.Get(ctx, "k"); return nil })
		if err != nil || cmds[0].(*redis.StringCmd).Val() != want {
			t.Fatalf("strong pipeline %d = %v, %v", i, cmds, err)
		}
	}
	// The plain reads beside them do meet the replicas.
	eventually(t, func() bool { return stale.Load() > 0 }, "a stale plain read")
	l.end(t, readTimeout)
}

// TestClient_Blocking: a blocking command waits as long as it was told to,
// past the read time-out, and trains no latency.
func TestClient_Blocking(t *testing.T) {
	servers := trio(t)
	c := front(t, servers, Options{})
	ctx := context.Background()
	// go-redis itself knows no wait under a second.
	if err := c.BLPop(ctx, time.Second, "q").Err(); err != redis.Nil {
		t.Errorf("BLPop of nothing = %v", err)
	}
	done := make(chan error, 1)
	go func() {
		got, err := c.BLPop(ctx, 20*time.Second, "q").Result()
		if err == nil && (len(got) != 2 || got[1] != "x") {
			err = fmt.Errorf("got %v", got)
		}
		done <- err
	}()
	eventually(t, func() bool { return inFlight(c) == 1 }, "a reservation for BLPop")
	select {
	case err := <-done:
		t.Fatalf("BLPop did not wait: %v", err)
	case <-time.After(2 * readTimeout):
	}
	must(t, c.RPush(ctx, "q", "x").Err())
	must(t, <-done)
	noneInFlight(t, c)
	wantHealthy(t, c)
	if ok, bad := observed(c); ok != 1 || bad != 0 {
		t.Errorf("%d answers and %d failures, want 1 (RPush) and 0", ok, bad)
	}
}

// TestClient_CallerLeaves: a cancelled caller says nothing of the node.
func TestClient_CallerLeaves(t *testing.T) {
	c := front(t, trio(t), Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 20 {
		if err := c.Get(ctx, "k").Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("Get = %v", err)
		}
		if err := c.Set(ctx, "k", "v", 0).Err(); !errors.Is(err, context.Canceled) {
			t.Errorf("Set = %v", err)
		}
	}
	if _, bad := observed(c); bad != 0 {
		t.Errorf("%d failures", bad)
	}
	wantHealthy(t, c)
	noneInFlight(t, c)
}

// TestClient_CallerDeadline: a caller with less time than the read time-out
// says nothing of the node; a dial of its own that takes too long does.
func TestClient_CallerDeadline(t *testing.T) {
	servers := trio(t)
	ctx := context.Background()
	c := front(t, servers, Options{Redis: redis.Options{ContextTimeoutEnabled: true}})
	must(t, c.Set(ctx, "k", "v", 0).Err())
	must(t, servers[0].Pause())
	for range 5 {
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		for _, cmd := range []redis.Cmder{c.Get(StrongRead(short), "k"), c.Set(short, "k", "w", 0)} {
			if cmd.Err() == nil {
				t.Errorf("%v, want an error", cmd)
			}
		}
		cancel()
	}
	if _, bad := observed(c); bad != 0 {
		t.Errorf("%d failures observed", bad)
	}
	wantHealthy(t, c)

	late := front(t, servers, Options{Redis: redis.Options{
		DialTimeout: 10 * time.Millisecond,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}})
	if err := late.Set(ctx, "k", "v", 0).Err(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Set = %v", err)
	}
	if _, bad := observed(late); bad != 1 {
		t.Errorf("%d failures observed, want 1: the dial's", bad)
	}
}

// TestClient_ReadsAnswerAsBefore: reads answer what the node's own client
// answers, whatever type their value is of: it is copied from another command.
func TestClient_ReadsAnswerAsBefore(t *testing.T) {
	servers := trio(t)
	c := front(t, servers, Options{})
	ctx := context.Background()
	must(t, c.MSet(ctx, "s", "some text", "t", "text so", "i", 7).Err())
	must(t, c.RPush(ctx, "l", "a", "b", "c").Err())
	must(t, c.HSet(ctx, "h", "f", "1", "g", "2").Err())
	must(t, c.SAdd(ctx, "set", "a").Err())
	must(t, c.ZAdd(ctx, "z", redis.Z{Score: 1.5, Member: "a"}, redis.Z{Score: 2, Member: "b"}).Err())
	must(t, c.GeoAdd(ctx, "geo", &redis.GeoLocation{Name: "x", Longitude: 13.36, Latitude: 38.11}, &redis.GeoLocation{Name: "y", Longitude: 15.08, Latitude: 37.5}).Err())
	must(t, c.XAdd(ctx, &redis.XAddArgs{Stream: "x", ID: "1-1", Values: []string{"f", "v"}}).Err())
	must(t, c.XGroupCreate(ctx, "x", "g", "0").Err())
	must(t, c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "me", Streams: []string{"x", ">"}, Block: -1}).Err())
	must(t, c.PFAdd(ctx, "hll", "a", "b").Err())
	must(t, c.Set(ctx, "last", "1", 0).Err())
	replicated(t, servers, "last", "1")
	run := func(c redis.Cmdable) []redis.Cmder {
		near := &redis.GeoSearchQuery{Member: "x", Radius: 500, RadiusUnit: "km", Sort: "ASC"}
		box := &redis.GeoRadiusQuery{Radius: 500, Unit: "km", WithCoord: true, WithDist: true, Sort: "ASC"}
		return []redis.Cmder{
			c.Get(ctx, "s"), c.Get(ctx, "none"), c.MGet(ctx, "s", "none"), c.StrLen(ctx, "s"), c.GetRange(ctx, "s", 1, 3),
			c.GetBit(ctx, "s", 1), c.BitCount(ctx, "s", nil), c.BitPos(ctx, "s", 1), c.BitFieldRO(ctx, "s", "u4", 0),
			c.LCS(ctx, &redis.LCSQuery{Key1: "s", Key2: "t"}), c.LCS(ctx, &redis.LCSQuery{Key1: "s", Key2: "t", Idx: true, WithMatchLen: true}),
			c.Exists(ctx, "s", "none"), c.Type(ctx, "z"), c.TTL(ctx, "s"), c.PTTL(ctx, "none"), c.ExpireTime(ctx, "s"), c.Dump(ctx, "i"),
			c.SortRO(ctx, "l", &redis.Sort{Alpha: true}), c.LRange(ctx, "l", 0, -1), c.LIndex(ctx, "l", 1), c.LLen(ctx, "l"),
			c.LPos(ctx, "l", "b", redis.LPosArgs{}), c.LPosCount(ctx, "l", "b", 0, redis.LPosArgs{}),
			c.HGet(ctx, "h", "f"), c.HGetAll(ctx, "h"), c.HMGet(ctx, "h", "f", "none"), c.HExists(ctx, "h", "f"), c.HStrLen(ctx, "h", "f"),
			c.SMembers(ctx, "set"), c.SMembersMap(ctx, "set"), c.SIsMember(ctx, "set", "a"), c.SMIsMember(ctx, "set", "a", "b"), c.SInter(ctx, "set", "set"),
			c.ZRange(ctx, "z", 0, -1), c.ZRangeWithScores(ctx, "z", 0, -1), c.ZRank(ctx, "z", "b"), c.ZRankWithScore(ctx, "z", "b"), c.ZScore(ctx, "z", "a"),
			c.ZMScore(ctx, "z", "a", "none"), c.ZCount(ctx, "z", "-inf", "+inf"), c.ZUnionWithScores(ctx, redis.ZStore{Keys: []string{"z"}}), c.ZInter(ctx, &redis.ZStore{Keys: []string{"z"}}),
			c.GeoPos(ctx, "geo", "x"), c.GeoDist(ctx, "geo", "x", "y", "km"), c.GeoHash(ctx, "geo", "x"), c.GeoSearch(ctx, "geo", near),
			c.GeoSearchLocation(ctx, "geo", &redis.GeoSearchLocationQuery{GeoSearchQuery: *near, WithCoord: true, WithDist: true}), c.GeoRadiusByMember(ctx, "geo", "x", box),
			c.XRange(ctx, "x", "-", "+"), c.XLen(ctx, "x"), c.XRead(ctx, &redis.XReadArgs{Streams: []string{"x", "0"}, Block: -1}),
			c.XPending(ctx, "x", "g"), c.PFCount(ctx, "hll"), c.DBSize(ctx), c.LLen(ctx, "s"),
		}
	}
	text := func(cmd redis.Cmder) string {
		val, err := json.Marshal(reflect.ValueOf(cmd).MethodByName("Val").Call(nil)[0].Interface())
		must(t, err)
		return fmt.Sprintf("%v: %s, %v", cmd.Args(), val, cmd.Err())
	}
	node, err := c.Primary()
	must(t, err)
	want := run(node)
	piped, _ := c.Pipelined(ctx, func(p redis.Pipeliner) error { run(p); return nil })
	for i, cmd := range run(c) {
		if !reads[cmd.Name()] {
			t.Errorf("%v is not a read", cmd)
		}
		want := text(want[i])
		if got := text(cmd); got != want {
			t.Errorf("front: %s\nnode:  %s", got, want)
		}
		if got := text(piped[i]); got != want {
			t.Errorf("front, piped: %s\nnode:         %s", got, want)
		}
	}
}

// TestClient_DerivedCommand: a command of the caller's own type cannot be
// copied, so it runs once, and is filled in place.
func TestClient_DerivedCommand(t *testing.T) {
	servers := trio(t)
	c := front(t, servers, Options{})
	ctx := context.Background()
	must(t, c.Set(ctx, "k", "v", 0).Err())
	replicated(t, servers, "k", "v")
	type mine struct{ *redis.StringCmd }
	cmd := mine{redis.NewStringCmd(ctx, "get", "k")}
	if err := c.Process(ctx, cmd); err != nil || cmd.Val() != "v" {
		t.Errorf("%v, %v", cmd, err)
	}
	var b strings.Builder
	if err := c.DoRawWriteTo(ctx, &b, "get", "k").Err(); err != nil || b.String() != "$1\r\nv\r\n" {
		t.Errorf("%v, %q", err, b.String())
	}
}

// TestClient_MovedWorker: an ID keeps its name when its address changes.
func TestClient_MovedWorker(t *testing.T) {
	servers := trio(t)
	seen := map[string]string{}
	c := front(t, servers, Options{OnNode: func(id string, n *redis.Client) { seen[id] = n.Options().Addr }})
	ctx := context.Background()
	must(t, c.Set(ctx, "k", "old", 0).Err())
	other := server(t)
	ws := workers(servers)
	ws[0].Addr = other.Addr
	must(t, c.Router().SetTopology(ringwise.Topology{Workers: ws}))
	must(t, c.Set(ctx, "k", "new", 0).Err())
	if m := calls(t, servers[0], other); m[0]["set"] != 1 || m[1]["set"] != 1 {
		t.Errorf("sets %d and %d, want 1 and 1", m[0]["set"], m[1]["set"])
	}
	if seen["p"] != other.Addr {
		t.Errorf("OnNode saw %v", seen)
	}
}

func TestClient_Close(t *testing.T) {
	servers := trio(t)
	c := front(t, servers, Options{})
	ctx := context.Background()
	l := startLoad(8, func(ctx context.Context) error {
		err := c.Get(ctx, "none").Err()
		if err == redis.Nil || errors.Is(err, redis.ErrClosed) || errors.Is(err, ringwise.ErrClosed) || errors.Is(err, net.ErrClosed) {
			return nil
		}
		return err
	})
	l.further(t, 500)
	must(t, c.Close())
	l.further(t, 500)
	l.end(t, readTimeout)
	if err := c.Get(ctx, "k").Err(); !errors.Is(err, ringwise.ErrClosed) {
		t.Errorf("Get after Close = %v", err)
	}
	cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "k"); return nil })
	if !errors.Is(err, ringwise.ErrClosed) || !errors.Is(cmds[0].Err(), ringwise.ErrClosed) {
		t.Errorf("Pipelined after Close = %v, %v", cmds, err)
	}
	if err := c.Watch(ctx, func(*redis.Tx) error { return nil }, "k"); !errors.Is(err, ringwise.ErrClosed) {
		t.Errorf("Watch after Close = %v", err)
	}
	if _, err := c.Primary(); !errors.Is(err, ringwise.ErrClosed) {
		t.Errorf("Primary after Close = %v", err)
	}
	must(t, c.Close())
}

func TestNew_Refuses(t *testing.T) {
	_, err := New([]ringwise.Worker{{ID: "p", Addr: "127.0.0.1:1"}}, Options{Redis: redis.Options{ReadTimeout: -1}})
	if e, ok := errors.AsType[*ringwise.ConfigError](err); !ok || e.Field != "Options.Redis.ReadTimeout" {
		t.Errorf("New without a read time-out = %v", err)
	}
}

var _ redis.UniversalClient = (*Client)(nil)
