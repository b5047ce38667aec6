package goredis

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/ringwise/ringwise"
)

// sweepEvery bounds how long the client of a worker that left stays open once
// commands go on.
const sweepEvery = time.Second

// nodes are the clients, one a worker ID, made at first use. A client whose
// worker left the topology, or moved to another Addr, is closed when the last
// call that was given it has ended.
type nodes struct {
	// Set once, read-only afterwards.
	known  func(id string) bool // the worker is in the topology
	opt    Options
	began  time.Time
	linger time.Duration // for calls nobody counts: those of Primary's client

	sweepAt atomic.Int64 // since began

	// mu guards the rest. OnNode is called under it, nothing else of the
	// caller's is.
	mu     sync.RWMutex
	byID   map[string]*node
	gone   map[*node]bool // retired and still open
	closed bool
}

// node is one client and how many calls are inside it.
type node struct {
	client  *redis.Client
	calls   atomic.Int64
	lent    atomic.Bool // by Primary: there may be calls that are not counted
	retired atomic.Bool // out of byID, so calls only fall
}

// use gives the client of the chosen worker; release must follow.
func (ns *nodes) use(ch ringwise.Choice) *node {
	ns.sweepIfDue()
	ns.mu.RLock()
	n := ns.byID[ch.ID()]
	if n != nil && n.client.Options().Addr == ch.Addr() {
		n.calls.Add(1) // under mu: nobody retires it in between
		ns.mu.RUnlock()
		return n
	}
	ns.mu.RUnlock()
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if n = ns.byID[ch.ID()]; n == nil || n.client.Options().Addr != ch.Addr() {
		n = ns.makeLocked(ch)
	}
	n.calls.Add(1)
	return n
}

func (ns *nodes) makeLocked(ch ringwise.Choice) *node {
	o := ns.opt.Redis
	o.Addr, o.NodeAddress = ch.Addr(), ""
	n := &node{client: redis.NewClient(&o)}
	ready := false
	defer func() {
		if !ready { // OnNode panicked: never used without what it was to add
			_ = n.client.Close()
		}
	}()
	if ns.opt.OnNode != nil {
		ns.opt.OnNode(ch.ID(), n.client)
	}
	ready = true
	if ns.closed { // a pick from before Close
		_ = n.client.Close()
	}
	ns.retireLocked(ch.ID()) // it moved
	ns.byID[ch.ID()] = n
	ns.sweepLocked(ch.ID())
	return n
}

// release ends one call.
func (ns *nodes) release(n *node) {
	if n.calls.Add(-1) == 0 && n.retired.Load() {
		ns.shut(n)
	}
}

// sweepIfDue looks once in sweepEvery for workers that left.
func (ns *nodes) sweepIfDue() {
	now, due := int64(time.Since(ns.began)), ns.sweepAt.Load()
	if now < due || !ns.sweepAt.CompareAndSwap(due, now+int64(sweepEvery)) {
		return
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.sweepLocked("")
}

// sweepLocked retires the clients of workers that are not in the topology,
// but for the one a pick was just made of.
func (ns *nodes) sweepLocked(but string) {
	for id := range ns.byID {
		if id != but && !ns.known(id) {
			ns.retireLocked(id)
		}
	}
}

func (ns *nodes) retireLocked(id string) {
	n := ns.byID[id]
	if n == nil {
		return
	}
	delete(ns.byID, id)
	ns.gone[n] = true
	// Before the count is read, as release reads in the other order: one of
	// the two shuts it, or both.
	n.retired.Store(true)
	if n.calls.Load() == 0 {
		go ns.shut(n) // it takes mu
	}
}

// shut closes a retired client that no counted call is in.
func (ns *nodes) shut(n *node) {
	if n.lent.Load() {
		time.AfterFunc(ns.linger, func() { ns.end(n) })
		return
	}
	ns.end(n)
}

func (ns *nodes) end(n *node) {
	ns.mu.Lock()
	delete(ns.gone, n)
	ns.mu.Unlock()
	_ = n.client.Close() // a second one does nothing
}

// close closes all clients, with calls inside them or not.
func (ns *nodes) close() error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	ns.closed = true
	var errs []error
	for _, n := range ns.byID {
		errs = append(errs, n.client.Close())
	}
	for n := range ns.gone {
		_ = n.client.Close()
	}
	return errors.Join(errs...)
}
