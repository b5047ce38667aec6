package main

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync/atomic"
)

// replicas is how many of the servers hold a key.
const replicas = 3

// policy chooses a server for a key, has call talk to it and learns from the
// outcome. Callers share one policy.
type policy interface {
	do(key string, call func(server int) error) error
	// state is what the policy thinks of a server, for the table.
	state(server int) string
}

// newBaseline makes one of the policies that ringwise is compared with. They
// choose among three replicas of the key as well, and know no health.
func newBaseline(name string, servers int) (policy, error) {
	switch name {
	case "random":
		return &random{servers}, nil
	case "round-robin":
		return &roundRobin{servers: servers}, nil
	case "p2c":
		return &p2c{servers, make([]atomic.Int64, servers)}, nil
	}
	return nil, fmt.Errorf("unknown policy %q: want ringwise, random, round-robin or p2c", name)
}

// placement is the server of a key's first replica; the next two follow it.
func placement(key string, servers int) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % uint32(servers))
}

// random takes any replica.
type random struct{ servers int }

func (p *random) do(key string, call func(server int) error) error {
	return call((placement(key, p.servers) + rand.IntN(replicas)) % p.servers)
}

func (p *random) state(int) string { return "-" }

// roundRobin takes the replicas in turn.
type roundRobin struct {
	servers int
	turn    atomic.Uint32
}

func (p *roundRobin) do(key string, call func(server int) error) error {
	return call((placement(key, p.servers) + int(p.turn.Add(1)%replicas)) % p.servers)
}

func (p *roundRobin) state(int) string { return "-" }

// p2c draws two replicas and takes the one with fewer requests in flight.
type p2c struct {
	servers  int
	inFlight []atomic.Int64
}

func (p *p2c) do(key string, call func(server int) error) error {
	first := rand.IntN(replicas)
	second := (first + 1 + rand.IntN(replicas-1)) % replicas
	a := (placement(key, p.servers) + first) % p.servers
	b := (placement(key, p.servers) + second) % p.servers
	if p.inFlight[b].Load() < p.inFlight[a].Load() {
		a = b
	}
	p.inFlight[a].Add(1)
	defer p.inFlight[a].Add(-1)
	return call(a)
}

func (p *p2c) state(int) string { return "-" }
