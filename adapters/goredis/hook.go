package goredis

import (
	"context"
	"errors"
	"net"
	"os"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/ringwise/ringwise"
)

// UnsupportedError is what the front refuses, because it would need one
// connection to one node. It unwraps to errors.ErrUnsupported.
type UnsupportedError struct {
	Op string // "PubSub", "watch"
}

// Error names the refused operation and the way out.
func (e *UnsupportedError) Error() string {
	return "goredis: " + e.Op + " needs one connection and the front has none: use Client.Watch or the client that Client.Primary returns"
}

// Unwrap makes errors.Is(err, errors.ErrUnsupported) true.
func (e *UnsupportedError) Unwrap() error { return errors.ErrUnsupported }

// hook takes the front's commands away from it. It never calls next.
type hook struct {
	c *Client
	// sealed is set by New once the front has its chain. Whoever asks for
	// another one is a Conn, a Tx or a WithTimeout clone, or AddHook, whose
	// hook would come after this one and never run.
	sealed bool
}

// DialHook refuses what bypasses the other two: PubSub and WithTimeout clones.
func (h *hook) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) {
		return nil, &UnsupportedError{Op: "PubSub or WithTimeout"}
	}
}

var errSealed = &UnsupportedError{Op: "Conn, Tx, WithTimeout or AddHook (hooks go to the nodes: Options.OnNode)"}

// ProcessHook is called once for the front, and for each client derived of it.
func (h *hook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	if h.sealed {
		return func(context.Context, redis.Cmder) error { return errSealed }
	}
	return h.c.process
}

// ProcessPipelineHook is ProcessHook for pipelines and for transactions.
func (h *hook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	if h.sealed {
		return func(_ context.Context, cmds []redis.Cmder) error { return fail(cmds, errSealed) }
	}
	return h.c.pipeline
}

// fail gives err to all commands, as go-redis does with what kept a pipeline
// from running.
func fail(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}

// do runs cmds on a node of the Router's choice. Reads may run on a second
// node as well, when the first fails or is slow, and after the caller has
// left: each attempt has commands of its own, and the caller's are written
// once, from the attempt that counts.
func (c *Client) do(ctx context.Context, cmds []redis.Cmder, intent ringwise.Intent, run func(context.Context, *redis.Client, []redis.Cmder) error) error {
	type attempt struct {
		cmds []redis.Cmder
		err  error
	}
	q := keyed(ringwise.Request{Intent: intent, Timeout: c.opt.Redis.ReadTimeout}, cmds...)
	var template []redis.Cmder
	if intent != ringwise.Write {
		template, q.Idempotent = clone(cmds)
	}
	got, err := ringwise.Do(ctx, c.router, q, func(ctx context.Context, ch ringwise.Choice) (attempt, error) {
		a := attempt{cmds: cmds}
		if q.Idempotent {
			a.cmds, _ = clone(template)
		}
		n := c.nodes.use(ch)
		defer c.nodes.release(n)
		a.err = run(ctx, n.client, a.cmds)
		return a, blame(ctx, a.err)
	})
	if got.cmds == nil { // no worker, or the caller left
		return fail(cmds, err)
	}
	if q.Idempotent {
		for i := range cmds {
			reflect.ValueOf(cmds[i]).Elem().Set(reflect.ValueOf(got.cmds[i]).Elem())
		}
	}
	return got.err
}

// clone copies commands. It is false for those that go-redis cannot copy: of
// types that others derive of its own, or writing where they were told to.
func clone(cmds []redis.Cmder) (copies []redis.Cmder, ok bool) {
	copies = make([]redis.Cmder, len(cmds))
	for i, cmd := range cmds {
		copies[i] = cmd.Clone()
		if cmd.NoRetry() || reflect.TypeOf(copies[i]) != reflect.TypeOf(cmd) {
			return nil, false
		}
	}
	return copies, true
}

// blame is err as the Router is to see it: nil for an answer, so that a miss
// counts as a success. go-redis calls both a deadline of the caller's and a
// time-out of its own by either name.
func blame(ctx context.Context, err error) error {
	switch Classify(err) {
	case ringwise.OK:
		return nil
	case ringwise.Fault:
		if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
			return context.DeadlineExceeded
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return os.ErrDeadlineExceeded // of DialTimeout
		}
	}
	return err
}
