// Package goredis puts a ringwise.Router behind a go-redis client. The front
// client has no connections: each command goes to a client of the node that
// the Router picks, reads to replicas and primary, everything else to the
// primary. Every node is a candidate for every key; the Router is told a
// command's first key all the same, for a canary by share of keys, key parsers
// and hot keys. See the README for the pitfalls.
package goredis

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/ringwise/ringwise"
)

// Options are the wiring of New; the zero value is usable.
type Options struct {
	// Redis is the template of each node's client. Addr and NodeAddress come
	// from the worker, MaxRetries is always -1: the Router retries, elsewhere.
	// Zero values differ from go-redis, so that one attempt takes no longer
	// than ReadTimeout: ReadTimeout 1s, DialTimeout and PoolTimeout as
	// ReadTimeout, DialerRetries 1, PipelinePoolSize -1 (no second pool, whose
	// dial would come on top). ReadTimeout must not be negative.
	Redis redis.Options
	// OnNode is called with each node's client before its first command, for
	// tracing (redisotel) and hooks. It must not call the Client. Where it
	// panics, so does the command, and the next one calls it again: a node is
	// never used without it.
	OnNode func(id string, node *redis.Client)
	// Router is further wiring of the Router. New begins with Classify and
	// DefaultTuning, but with a MaxOut under which all nodes but one may be out
	// at once: of three nodes the default lets one, and a second dead one would
	// cost its share of the reads. A WithTuning here replaces that too.
	Router []ringwise.Option
}

// Client is the front. All of *redis.Client works on it but what needs one
// connection: Conn, PubSub and WithTimeout are refused with an
// *UnsupportedError, on Client.Client too; Watch works on Client only.
// Safe for concurrent use.
type Client struct {
	*redis.Client

	// Set by New, read-only afterwards.
	router *ringwise.Router
	opt    Options

	nodes  *nodes
	closed atomic.Bool
}

// New makes a front over workers: one with RolePrimary, the others with
// RoleReplica, at most 16. IDs are names; Addr is dialled. Close it after use.
func New(workers []ringwise.Worker, opt Options) (*Client, error) {
	o := &opt.Redis
	if o.ReadTimeout < 0 {
		return nil, &ringwise.ConfigError{Field: "Options.Redis.ReadTimeout", Value: o.ReadTimeout, Want: "at least 0: without it a stopped node holds its callers for ever"}
	}
	orElse(&o.ReadTimeout, time.Second)
	orElse(&o.DialTimeout, o.ReadTimeout)
	orElse(&o.PoolTimeout, o.ReadTimeout)
	orElse(&o.DialerRetries, 1)
	orElse(&o.PipelinePoolSize, -1)
	o.MaxRetries = -1

	t := ringwise.DefaultTuning()
	if n := float64(len(workers)); n > 0 {
		t.MaxOut = (n - 0.5) / n
	}
	r, err := ringwise.New(workers, append([]ringwise.Option{ringwise.WithClassifier(Classify), ringwise.WithTuning(t)}, opt.Router...)...)
	if err != nil {
		return nil, err
	}
	front := *o
	front.Addr, front.MinIdleConns = "goredis-front.invalid:0", 0 // never dialled: see hook.DialHook
	c := &Client{Client: redis.NewClient(&front), router: r, opt: opt, nodes: &nodes{
		known:  func(id string) bool { _, ok := r.Ref(id); return ok },
		opt:    opt,
		began:  time.Now(),
		linger: 2 * o.ReadTimeout,
		byID:   map[string]*node{},
		gone:   map[*node]bool{},
	}}
	h := &hook{c: c}
	c.AddHook(h)
	h.sealed = true
	return c, nil
}

func orElse[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Router is the Router that picks, for Status, Explain, SetTopology and Run.
func (c *Client) Router() *ringwise.Router { return c.router }

// Close closes the Router, the nodes' clients and the front. A second Close
// does nothing.
func (c *Client) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return nil
	}
	return errors.Join(c.router.Close(), c.Client.Close(), c.nodes.close())
}

// Primary is the primary's own client, for what is refused on the front:
// PubSub, Conn, WithTimeout. The Router does not see what is done with it. It
// is closed some time after the worker left the topology or moved: ask again
// then.
func (c *Client) Primary() (*redis.Client, error) {
	plan, err := c.router.Plan(ringwise.Request{Any: true, Intent: ringwise.Pinned}, nil)
	if err != nil {
		return nil, err
	}
	n := c.nodes.use(plan[0])
	n.lent.Store(true)
	c.nodes.release(n)
	return n.client, nil
}

// Watch runs fn in one connection to the primary, as redis.Client.Watch does.
// It holds a reservation; its time is the caller's own, so there is no verdict.
func (c *Client) Watch(ctx context.Context, fn func(*redis.Tx) error, keys ...string) (err error) {
	var q ringwise.Request
	if len(keys) > 0 {
		q.Key = keys[0]
	}
	if held := c.hold(q, func(n *redis.Client) error {
		err = n.Watch(ctx, fn, keys...)
		return nil
	}); held != nil {
		return held
	}
	return err
}

// hold reserves the primary for as long as the caller likes: no latency is
// learnt from it, and only a fault is a verdict.
func (c *Client) hold(q ringwise.Request, run func(*redis.Client) error) error {
	q.Any, q.Intent, q.Stream = true, ringwise.Write, true
	ch, err := c.router.Route(q)
	if err != nil {
		return err
	}
	o := ringwise.Outcome{Verdict: ringwise.Ignore}
	defer func() { ch.DoneWith(o) }() // also when run panics
	n := c.nodes.use(ch)
	defer c.nodes.release(n)
	err = run(n.client)
	if v := Classify(err); v == ringwise.Fault || v == ringwise.Broken {
		o.Verdict = v
	}
	return err
}

// process is the front's way of a single command.
func (c *Client) process(ctx context.Context, cmd redis.Cmder) error {
	switch {
	case stateful[cmd.Name()]:
		return &UnsupportedError{Op: cmd.FullName()}
	case blocks(cmd):
		return c.hold(keyed(ringwise.Request{}, cmd), func(n *redis.Client) error { return n.Process(ctx, cmd) })
	}
	return c.do(ctx, []redis.Cmder{cmd}, intentOf(ctx, cmd), func(ctx context.Context, n *redis.Client, cmds []redis.Cmder) error {
		return n.Process(ctx, cmds[0])
	})
}

// pipeline is the front's way of a pipeline, which is one pick.
func (c *Client) pipeline(ctx context.Context, cmds []redis.Cmder) error {
	exec, first, last := (*redis.Client).Pipeline, 0, len(cmds)
	if transaction(cmds) {
		exec, first, last = (*redis.Client).TxPipeline, 1, len(cmds)-1 // the node's client wraps again
	}
	for _, cmd := range cmds[first:last] {
		if stateful[cmd.Name()] {
			return fail(cmds, &UnsupportedError{Op: cmd.FullName() + " in a pipeline"})
		}
	}
	return c.do(ctx, cmds, intentOf(ctx, cmds...), func(ctx context.Context, n *redis.Client, cmds []redis.Cmder) error {
		p := exec(n)
		_ = p.BatchProcess(ctx, cmds[first:last]...)
		_, err := p.Exec(ctx)
		return err
	})
}

// transaction tells what TxPipeline made: something between MULTI and EXEC.
func transaction(cmds []redis.Cmder) bool {
	if len(cmds) < 3 {
		return false
	}
	multi, begins := cmds[0].(*redis.StatusCmd)
	exec, ends := cmds[len(cmds)-1].(*redis.SliceCmd)
	return begins && ends && multi.Name() == "multi" && exec.Name() == "exec"
}
