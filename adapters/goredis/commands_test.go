package goredis

import (
	"context"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/ringwise/ringwise"
)

// TestReads_MatchServer holds the table of reads against what a real server
// flags "readonly".
func TestReads_MatchServer(t *testing.T) {
	// Read-only, and yet not for any replica.
	primaryOnly := set(`
		scan hscan sscan zscan
		touch
		eval_ro evalsha_ro
		lolwut`)
	// scans: a cursor belongs to the node that gave it.
	// touch: is about the node's own eviction clock.
	// eval_ro, evalsha_ro: scripts are cached by node, and are not replicated.

	c := redis.NewClient(&redis.Options{Addr: server(t).Addr})
	defer c.Close()
	infos, err := c.Command(context.Background()).Result()
	must(t, err)
	if len(infos) < 200 {
		t.Fatalf("COMMAND names %d commands", len(infos))
	}
	for name, info := range infos {
		if want := slices.Contains(info.Flags, "readonly") && !primaryOnly[name]; reads[name] != want {
			t.Errorf("reads[%q] = %v, want %v: flags %v", name, reads[name], want, info.Flags)
		}
		if slices.Contains(info.Flags, "blocking") && name != "xread" && name != "xreadgroup" && !blocking[name] {
			t.Errorf("%q blocks", name)
		}
	}
	for name := range reads {
		if infos[name] == nil {
			t.Errorf("the server does not know %q", name)
		}
	}
}

func TestIntentOf(t *testing.T) {
	ctx := context.Background()
	strong := StrongRead(ctx)
	cmd := func(args ...any) redis.Cmder { return redis.NewCmd(ctx, args...) }
	for _, tc := range []struct {
		name  string
		ctx   context.Context
		cmds  []redis.Cmder
		want  ringwise.Intent
		block bool // the first
	}{
		{"get", ctx, []redis.Cmder{cmd("GET", "k")}, ringwise.Read, false},
		{"get, strong", strong, []redis.Cmder{cmd("get", "k")}, ringwise.StrongRead, false},
		{"set", ctx, []redis.Cmder{cmd("set", "k", 1)}, ringwise.Write, false},
		{"set, strong", strong, []redis.Cmder{cmd("set", "k", 1)}, ringwise.Write, false},
		{"unknown", ctx, []redis.Cmder{cmd("json.get", "k")}, ringwise.Write, false},
		{"two reads", ctx, []redis.Cmder{cmd("get", "k"), cmd("ttl", "k")}, ringwise.Read, false},
		{"a write among reads", ctx, []redis.Cmder{cmd("get", "k"), cmd("incr", "k")}, ringwise.Write, false},
		{"a transaction of reads", ctx, []redis.Cmder{cmd("multi"), cmd("get", "k"), cmd("exec")}, ringwise.Write, false},
		{"xread", ctx, []redis.Cmder{cmd("xread", "count", 1, "streams", "block", "0")}, ringwise.Read, false},
		{"xread that blocks", ctx, []redis.Cmder{cmd("xread", "BLOCK", 10, "streams", "s", "$")}, ringwise.Write, true},
		{"xread that blocks, of bytes", ctx, []redis.Cmder{cmd([]byte("XREAD"), []byte("Block"), 10, []byte("STREAMS"), "s", "$")}, ringwise.Write, true},
		{"xread of a stream named block", ctx, []redis.Cmder{cmd("xread", []byte("streams"), []byte("block"), "0")}, ringwise.Read, false},
		{"xreadgroup that blocks", ctx, []redis.Cmder{cmd("xreadgroup", "group", "g", "c", "block", 0, "streams", "s", ">")}, ringwise.Write, true},
		{"xreadgroup of a group named streams", ctx, []redis.Cmder{cmd("xreadgroup", "group", "streams", "block", "BLOCK", 0, "streams", "s", ">")}, ringwise.Write, true},
		{"xreadgroup of a consumer named block", ctx, []redis.Cmder{cmd("xreadgroup", "group", "g", "block", "streams", "s", ">")}, ringwise.Write, false},
		{"blpop", ctx, []redis.Cmder{cmd("blpop", "q", 0)}, ringwise.Write, true},
		{"lpop", ctx, []redis.Cmder{cmd("lpop", "q")}, ringwise.Write, false},
		{"scan", ctx, []redis.Cmder{cmd("scan", 0)}, ringwise.Write, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := intentOf(tc.ctx, tc.cmds...); got != tc.want {
				t.Errorf("intent %v, want %v", got, tc.want)
			}
			if got := blocks(tc.cmds[0]); got != tc.block {
				t.Errorf("blocks %v, want %v", got, tc.block)
			}
		})
	}
}
