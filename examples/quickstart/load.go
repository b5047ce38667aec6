package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	callers = 16    // goroutines, each with one request at a time
	keys    = 2_000 // drawn by zipf: the ten hottest get a quarter of the requests
)

// gauge is what the table shows of a server beside the samples.
type gauge struct {
	inFlight atomic.Int64
	errors   atomic.Int64 // since the start
}

// load is what the callers do and what came of it.
type load struct {
	servers []*server
	policy  policy
	gauges  []gauge // by server
	start   time.Time

	mu      sync.Mutex
	samples []sample // by the time of the answer
}

func newLoad(servers []*server, p policy) *load {
	return &load{
		servers: servers,
		policy:  p,
		gauges:  make([]gauge, len(servers)),
		samples: make([]sample, 0, 1<<19), // growing it would stall the callers
		start:   time.Now(),
	}
}

func (l *load) now() time.Duration { return time.Since(l.start) }

// run sends requests until ctx ends.
func (l *load) run(ctx context.Context, seed uint64) {
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() { l.call(ctx, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	wg.Wait()
}

// call is one caller: draw a key, have the policy choose a server, fetch.
func (l *load) call(ctx context.Context, rng *rand.Rand) {
	zipf := rand.NewZipf(rng, 1.1, 4, keys-1)
	clients := make([]client, len(l.servers))
	for i, s := range l.servers {
		clients[i].addr = s.addr
	}
	defer func() {
		for i := range clients {
			clients[i].hangUp()
		}
	}()

	for ctx.Err() == nil {
		key := keyName(zipf.Uint64())
		chosen := none
		began := l.now()
		err := l.policy.do(key, func(server int) error {
			chosen = server
			l.gauges[server].inFlight.Add(1)
			defer l.gauges[server].inFlight.Add(-1)
			value, err := clients[server].fetch(key, valueOf(key))
			if err == nil && value != valueOf(key) {
				err = fmt.Errorf("%s has %q for %s", l.servers[server].id, value, key)
			}
			if err != nil {
				l.gauges[server].errors.Add(1)
			}
			return err
		})
		l.record(sample{at: began, took: l.now() - began, server: chosen, failed: err != nil})
		if chosen == none {
			time.Sleep(serviceTime) // nobody to ask: do not spin
		}
	}
}

func (l *load) record(s sample) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.samples = append(l.samples, s)
}

// since copies the samples that were answered at t or later.
func (l *load) since(t time.Duration) samples {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := len(l.samples)
	for i > 0 && l.samples[i-1].at+l.samples[i-1].took >= t {
		i--
	}
	return append(samples(nil), l.samples[i:]...)
}

func keyName(n uint64) string   { return fmt.Sprintf("user:%d", n) }
func valueOf(key string) string { return "value-of-" + key }

// dataset is every key with its value.
func dataset() map[string]string {
	all := make(map[string]string, keys)
	for n := range uint64(keys) {
		all[keyName(n)] = valueOf(keyName(n))
	}
	return all
}
