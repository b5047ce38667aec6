package goredis

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/ringwise/ringwise"
	"github.com/ringwise/ringwise/adapters/goredis/internal/redistest"
)

// connections are those to a server but for the one that asks.
func connections(t *testing.T, s *redistest.Server) int {
	t.Helper()
	info, err := s.Info("clients")
	must(t, err)
	n, err := strconv.Atoi(info["connected_clients"])
	must(t, err)
	return n - 1
}

func alone(id, addr string) ringwise.Topology {
	return ringwise.Topology{Workers: []ringwise.Worker{{ID: id, Addr: addr, Role: ringwise.RolePrimary}}}
}

// TestClient_GoneWorkersClosed: the client of a worker that left is closed,
// when others take its place and when none does.
func TestClient_GoneWorkersClosed(t *testing.T) {
	s := server(t)
	c := front(t, []*redistest.Server{s}, Options{})
	ctx := context.Background()
	for i := range 50 {
		must(t, c.Router().SetTopology(alone(fmt.Sprint("w", i), s.Addr)))
		must(t, c.Set(ctx, "k", i, 0).Err())
	}
	eventually(t, func() bool { return connections(t, s) <= 1 }, "one connection")

	two := alone("w49", s.Addr)
	other := server(t)
	two.Workers = append(two.Workers, ringwise.Worker{ID: "r", Addr: other.Addr, Role: ringwise.RoleReplica})
	must(t, c.Router().SetTopology(two))
	eventually(t, func() bool { must(t, c.DBSize(ctx).Err()); return connections(t, other) == 1 }, "a read of r")
	must(t, c.Router().SetTopology(alone("w49", s.Addr)))
	eventually(t, func() bool { must(t, c.DBSize(ctx).Err()); return connections(t, other) == 0 }, "r's connection closed")
	wantHealthy(t, c)
}

// TestClient_GoneWorkerEndsItsCalls: a call inside the client of a worker that
// left gets its answer; then the client is closed.
func TestClient_GoneWorkerEndsItsCalls(t *testing.T) {
	old, other := server(t), server(t)
	c := front(t, []*redistest.Server{old}, Options{})
	ctx := context.Background()
	done := make(chan error, 1)
	go func() { done <- c.BLPop(ctx, 50*time.Second, "q").Err() }()
	eventually(t, func() bool { return inFlight(c) == 1 && connections(t, old) == 1 }, "BLPop in the old primary")
	must(t, c.Router().SetTopology(alone("q", other.Addr)))
	must(t, c.Set(ctx, "k", "v", 0).Err()) // a new client, so the old is seen to be gone
	c.nodes.mu.Lock()
	if len(c.nodes.byID) != 1 || len(c.nodes.gone) != 1 {
		t.Errorf("%d clients and %d that are gone, want 1 and 1", len(c.nodes.byID), len(c.nodes.gone))
	}
	c.nodes.mu.Unlock()
	direct := redis.NewClient(&redis.Options{Addr: old.Addr})
	must(t, direct.RPush(ctx, "q", "x").Err())
	must(t, direct.Close())
	if err := <-done; err != nil {
		t.Errorf("BLPop in a worker that left = %v", err)
	}
	eventually(t, func() bool { return connections(t, old) == 0 }, "the old connection closed")
}

// TestClient_WorkerComesBack: one that was not missed keeps its client, one
// that was gets another.
func TestClient_WorkerComesBack(t *testing.T) {
	s, other := server(t), server(t)
	made := map[string]int{}
	c := front(t, []*redistest.Server{s}, Options{OnNode: func(id string, _ *redis.Client) { made[id]++ }})
	ctx := context.Background()
	must(t, c.Set(ctx, "k", "v", 0).Err())
	must(t, c.Router().SetTopology(alone("q", other.Addr)))
	must(t, c.Router().SetTopology(alone("p", s.Addr)))
	c.nodes.mu.Lock()
	c.nodes.sweepLocked("")
	c.nodes.mu.Unlock()
	must(t, c.Set(ctx, "k", "v", 0).Err())
	if made["p"] != 1 {
		t.Errorf("%d clients of a worker that came back, want 1", made["p"])
	}
	must(t, c.Router().SetTopology(alone("q", other.Addr)))
	must(t, c.Set(ctx, "k", "v", 0).Err())
	must(t, c.Router().SetTopology(alone("p", s.Addr)))
	must(t, c.Set(ctx, "k", "v", 0).Err())
	if made["p"] != 2 || made["q"] != 1 {
		t.Errorf("clients %v, want two of p and one of q", made)
	}
	eventually(t, func() bool { return connections(t, s) == 1 && connections(t, other) == 0 }, "one connection, to p")
}

// TestClient_TopologiesUnderLoad: no call fails for a client that was closed
// while it was inside.
func TestClient_TopologiesUnderLoad(t *testing.T) {
	s := server(t)
	c := front(t, []*redistest.Server{s}, Options{})
	l := startLoad(goroutines, func(ctx context.Context) error { return c.Set(ctx, "k", "v", 0).Err() })
	for i := range 200 {
		must(t, c.Router().SetTopology(alone(fmt.Sprint("w", i%3), s.Addr)))
		l.further(t, 20)
	}
	l.end(t, readTimeout)
	noneInFlight(t, c)
	must(t, c.Set(context.Background(), "k", "v", 0).Err())
	eventually(t, func() bool {
		must(t, c.Set(context.Background(), "k", "v", 0).Err())
		c.nodes.mu.Lock()
		defer c.nodes.mu.Unlock()
		return len(c.nodes.byID) == 1 && len(c.nodes.gone) == 0
	}, "one client")
}

// TestClient_OnNodePanics: no command runs on a node that OnNode did not get
// ready, and nothing stays behind.
func TestClient_OnNodePanics(t *testing.T) {
	s := server(t)
	asked := 0
	c := front(t, []*redistest.Server{s}, Options{OnNode: func(string, *redis.Client) {
		if asked++; asked <= 2 {
			panic("not ready")
		}
	}})
	ctx := context.Background()
	set := func() (caught any) {
		defer func() { caught = recover() }()
		must(t, c.Set(ctx, "k", "v", 0).Err())
		return nil
	}
	for i, want := range []any{"not ready", "not ready", nil, nil} {
		if got := set(); got != want {
			t.Errorf("Set %d panicked with %v, want %v", i, got, want)
		}
	}
	if n := calls(t, s)[0]["set"]; n != 2 || asked != 3 {
		t.Errorf("%d sets, OnNode called %d times, want 2 and 3", n, asked)
	}
	noneInFlight(t, c)
}
