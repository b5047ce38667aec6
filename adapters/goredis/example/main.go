// Command example starts a Redis primary and two replicas, reads at a steady
// rate, pauses one replica (SIGSTOP) for three seconds, and prints the
// latencies: first with go-redis as it is, round robin over the replicas, then
// with ringwise in front. It needs redis-server and takes about 15 s:
//
//	go -C adapters/goredis run ./example
package main

import (
	"context"
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
	healthy  = time.Second          // before and after the pause
	paused   = 3 * time.Second
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if err := redistest.Installed(); err != nil {
		return err
	}
	logging.Disable() // go-redis logs each connection that it loses
	fmt.Printf("A primary and two replicas; %d reads/s for %v; one replica paused (SIGSTOP) for %v.\n\n",
		time.Second/interval, 2*healthy+paused, paused)
	fmt.Printf("%-34s %7s %7s %10s %10s %10s %10s\n", "", "reads", "errors", "p50", "p99", "p99.9", "max")

	if err := measure("go-redis, round robin, defaults", func(s []*redistest.Server) (reader, func(), error) {
		nodes := []*redis.Client{
			redis.NewClient(&redis.Options{Addr: s[1].Addr}),
			redis.NewClient(&redis.Options{Addr: s[2].Addr}),
		}
		var n atomic.Uint64
		read := func(ctx context.Context) error { return nodes[n.Add(1)%2].Get(ctx, "k").Err() }
		return read, func() { nodes[0].Close(); nodes[1].Close() }, nil
	}); err != nil {
		return err
	}

	return measure("ringwise, defaults", func(s []*redistest.Server) (reader, func(), error) {
		c, err := goredis.New([]ringwise.Worker{
			{ID: "primary", Addr: s[0].Addr, Role: ringwise.RolePrimary},
			{ID: "replica-1", Addr: s[1].Addr, Role: ringwise.RoleReplica},
			{ID: "replica-2", Addr: s[2].Addr, Role: ringwise.RoleReplica},
		}, goredis.Options{})
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context) error { return c.Get(ctx, "k").Err() }, func() { c.Close() }, nil
	})
}

type reader func(context.Context) error

// measure is open-loop: a read begins when its time has come, whether or not
// the ones before have ended, as the requests of independent users do.
func measure(name string, open func([]*redistest.Server) (reader, func(), error)) error {
	servers, err := redistest.Trio()
	if err != nil {
		return err
	}
	defer redistest.Stop(servers...)
	read, done, err := open(servers)
	if err != nil {
		return err
	}
	defer done()

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
		time.Sleep(healthy)
		if err := servers[2].Pause(); err != nil {
			pauses <- err
			return
		}
		time.Sleep(paused)
		pauses <- servers[2].Resume()
	}()

	took := make([]time.Duration, (2*healthy+paused)/interval)
	var failed atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range took {
		due := begin.Add(time.Duration(i) * interval)
		time.Sleep(time.Until(due))
		wg.Go(func() {
			if err := read(ctx); err != nil {
				failed.Add(1)
			}
			took[i] = time.Since(due)
		})
	}
	wg.Wait()
	if err := <-pauses; err != nil {
		return err
	}

	slices.Sort(took)
	at := func(q float64) time.Duration { return took[int(q*float64(len(took)-1))].Round(10 * time.Microsecond) }
	fmt.Printf("%-34s %7d %7d %10v %10v %10v %10v\n", name, len(took), failed.Load(), at(0.5), at(0.99), at(0.999), at(1))
	return nil
}
