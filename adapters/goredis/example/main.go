// Command example starts a Redis primary and two replicas, reads at a steady
// rate, pauses one replica (SIGSTOP) for three seconds, and prints the
// latencies: first with go-redis as it is, round robin over the replicas, then
// with ringwise in front. It needs redis-server and takes about 15 s:
//
//	go -C adapters/goredis run ./example
//
// With -hedge the replica is paused for 200 ms every second instead, and
// ringwise is played without and with copies of slow reads, each three times
// in turn, since a busy machine has its good and bad moments; two minutes:
//
//	go -C adapters/goredis run ./example -hedge
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/ringwise/ringwise"
	"github.com/ringwise/ringwise/adapters/goredis"
	"github.com/ringwise/ringwise/adapters/goredis/internal/redistest"
)

const (
	interval = 2 * time.Millisecond // between reads: 500 a second
	healthy  = time.Second          // before the first pause and after the last
)

// plan is when the replica is paused, and how often all is played.
type plan struct {
	pause, every  time.Duration
	times, rounds int
}

func (p plan) duration() time.Duration {
	return 2*healthy + time.Duration(p.times-1)*p.every + p.pause
}

func main() {
	hedge := flag.Bool("hedge", false, "pause a replica for 200 ms every second, and compare without and with copies of slow reads")
	flag.Parse()
	if err := run(*hedge); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(hedge bool) error {
	if err := redistest.Installed(); err != nil {
		return err
	}
	logging.Disable() // go-redis logs each connection that it loses
	p := plan{pause: 3 * time.Second, times: 1, rounds: 1}
	if hedge {
		p = plan{pause: 200 * time.Millisecond, every: time.Second, times: 10, rounds: 3}
	}
	fmt.Printf("A primary and two replicas; %d reads/s for %v; one replica paused (SIGSTOP) for %v, %d times.\n\n",
		time.Second/interval, p.duration(), p.pause, p.times)

	bare := &series{name: "go-redis, round robin, defaults", open: func(s []*redistest.Server) (*client, error) {
		nodes := []*redis.Client{
			redis.NewClient(&redis.Options{Addr: s[1].Addr}),
			redis.NewClient(&redis.Options{Addr: s[2].Addr}),
		}
		var n atomic.Uint64
		return &client{
			read:   func(ctx context.Context) error { return nodes[n.Add(1)%2].Get(ctx, "k").Err() },
			copies: func() uint64 { return 0 },
			close:  func() { nodes[0].Close(); nodes[1].Close() },
		}, nil
	}}
	all := []*series{bare, {name: "ringwise, defaults", open: front(ringwise.DefaultTuning().HedgeBudget)}}
	if hedge {
		all = append(all, &series{name: "ringwise, HedgeBudget 0", open: front(0)})
	}
	for range p.rounds {
		for _, s := range all {
			if err := p.measure(s); err != nil {
				return err
			}
		}
	}
	fmt.Printf("%-34s %7s %7s %7s %10s %10s %10s %10s %9s\n", "", "reads", "errors", "copies", "p50", "p99", "p99.9", "max", "> 100 ms")
	for _, s := range all {
		s.print()
	}
	return nil
}

// series is one way to read, and what its reads took in all rounds.
type series struct {
	name   string
	open   func([]*redistest.Server) (*client, error)
	took   []time.Duration
	failed atomic.Int64
	copies uint64
}

func (s *series) print() {
	slices.Sort(s.took)
	at := func(q float64) time.Duration {
		return s.took[int(q*float64(len(s.took)-1))].Round(10 * time.Microsecond)
	}
	over, _ := slices.BinarySearch(s.took, 100*time.Millisecond)
	fmt.Printf("%-34s %7d %7d %7d %10v %10v %10v %10v %9d\n", s.name, len(s.took), s.failed.Load(), s.copies,
		at(0.5), at(0.99), at(0.999), at(1), len(s.took)-over)
}

// front is ringwise before the three servers.
func front(hedgeBudget float64) func([]*redistest.Server) (*client, error) {
	return func(s []*redistest.Server) (*client, error) {
		c, err := goredis.New([]ringwise.Worker{
			{ID: "primary", Addr: s[0].Addr, Role: ringwise.RolePrimary},
			{ID: "replica-1", Addr: s[1].Addr, Role: ringwise.RoleReplica},
			{ID: "replica-2", Addr: s[2].Addr, Role: ringwise.RoleReplica},
		}, goredis.Options{})
		if err != nil {
			return nil, err
		}
		t := c.Router().Tuning()
		t.HedgeBudget = hedgeBudget
		if err := c.Router().Retune(t); err != nil {
			return nil, err
		}
		return &client{
			read:   func(ctx context.Context) error { return c.Get(ctx, "k").Err() },
			copies: func() uint64 { return c.Router().Status().Hedges },
			close:  func() { c.Close() },
		}, nil
	}
}

// client is what is measured.
type client struct {
	read   func(context.Context) error
	copies func() uint64 // sent so far
	close  func()
}

// measure is open-loop: a read begins when its time has come, whether or not
// the ones before have ended, as the requests of independent users do.
func (p plan) measure(s *series) error {
	servers, err := redistest.Trio()
	if err != nil {
		return err
	}
	defer redistest.Stop(servers...)
	c, err := s.open(servers)
	if err != nil {
		return err
	}
	defer c.close()

	ctx := context.Background()
	primary := redis.NewClient(&redis.Options{Addr: servers[0].Addr})
	defer primary.Close()
	// WAIT: both replicas have the key.
	if err := primary.Set(ctx, "k", "v", 0).Err(); err != nil {
		return err
	}
	if err := primary.Wait(ctx, 2, time.Second).Err(); err != nil {
		return err
	}

	pauses := make(chan error, 1)
	go func() {
		begin := time.Now().Add(healthy)
		for i := range p.times {
			at := begin.Add(time.Duration(i) * p.every)
			time.Sleep(time.Until(at))
			if err := servers[2].Pause(); err != nil {
				pauses <- err
				return
			}
			time.Sleep(time.Until(at.Add(p.pause)))
			if err := servers[2].Resume(); err != nil {
				pauses <- err
				return
			}
		}
		pauses <- nil
	}()

	took := make([]time.Duration, p.duration()/interval)
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range took {
		due := begin.Add(time.Duration(i) * interval)
		time.Sleep(time.Until(due))
		wg.Go(func() {
			if err := c.read(ctx); err != nil {
				s.failed.Add(1)
			}
			took[i] = time.Since(due)
		})
	}
	wg.Wait()
	if err := <-pauses; err != nil {
		return err
	}

	s.took = append(s.took, took...)
	s.copies += c.copies()
	return nil
}
