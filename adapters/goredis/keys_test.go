package goredis

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/ringwise/ringwise"
)

// TestKeyOf_MatchesServer holds the tables of keys against what a real server
// says of each command.
func TestKeyOf_MatchesServer(t *testing.T) {
	containers := set("object xinfo xgroup memory") // their subcommands have keys
	channels := set("spublish ssubscribe sunsubscribe")
	ctx := context.Background()
	c := redis.NewClient(&redis.Options{Addr: server(t).Addr})
	defer c.Close()
	infos, err := c.Command(ctx).Result()
	must(t, err)
	if len(infos) < 200 {
		t.Fatalf("COMMAND names %d commands", len(infos))
	}
	for name, info := range infos {
		got := keyOf(redis.NewCmd(ctx, name, "1", "2", "3", "4", "streams", "6"))
		switch {
		case channels[name]:
			if got != nil {
				t.Errorf("%s has the key %v, want none", name, got)
			}
		case info.FirstKeyPos > 0:
			if want := fmt.Sprint(info.FirstKeyPos); got != want {
				t.Errorf("%s has the key %v, want %s", name, got, want)
			}
		case containers[name], slices.Contains(info.Flags, "movablekeys"):
			if got == nil {
				t.Errorf("%s has no key", name)
			}
		case got != nil:
			t.Errorf("%s has the key %v, want none", name, got)
		}
	}
}

func TestKeyed(t *testing.T) {
	ctx := context.Background()
	cmd := func(args ...any) redis.Cmder { return redis.NewCmd(ctx, args...) }
	name := "pointed"
	for _, tc := range []struct {
		name  string
		cmds  []redis.Cmder
		key   string
		bytes string
	}{
		{"get", []redis.Cmder{cmd("GET", "k")}, "k", ""},
		{"bytes", []redis.Cmder{cmd("get", []byte("k"))}, "", "k"},
		{"a pointer", []redis.Cmder{cmd("get", &name)}, "pointed", ""},
		{"a number", []redis.Cmder{cmd("get", 7)}, "7", ""},
		{"no key", []redis.Cmder{cmd("ping", "k")}, "", ""},
		{"nothing", []redis.Cmder{cmd()}, "", ""},
		{"a key that is missing", []redis.Cmder{cmd("get")}, "", ""},
		{"zinter", []redis.Cmder{cmd("zinter", 2, "a", "b")}, "a", ""},
		{"bitop", []redis.Cmder{cmd("bitop", "not", "to", "from")}, "to", ""},
		{"blmpop", []redis.Cmder{cmd("blmpop", 1, 1, "q", "left")}, "q", ""},
		{"eval", []redis.Cmder{cmd("eval", "return 1", 1, "k", "arg")}, "k", ""},
		{"eval without keys", []redis.Cmder{cmd("eval", "return 1", 0, "arg")}, "", ""},
		{"eval without keys, as text", []redis.Cmder{cmd("eval", "return 1", []byte("0"), "arg")}, "", ""},
		{"object help", []redis.Cmder{cmd("object", "help")}, "", ""},
		{"object", []redis.Cmder{cmd("object", "encoding", "k")}, "k", ""},
		{"xread", []redis.Cmder{cmd("xread", "count", 1, "streams", "s", "0")}, "s", ""},
		{"xread of nothing", []redis.Cmder{cmd("xread", "count", 1)}, "", ""},
		{"xreadgroup", []redis.Cmder{cmd("xreadgroup", "group", "streams", "c", "streams", "s", ">")}, "s", ""},
		{"a module's", []redis.Cmder{cmd("json.get", "k")}, "k", ""},
		{"the first of a pipeline", []redis.Cmder{cmd("ping"), cmd("get", "a"), cmd("get", "b")}, "a", ""},
		{"a transaction", []redis.Cmder{cmd("multi"), cmd("set", "a", 1), cmd("exec")}, "a", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := keyed(ringwise.Request{}, tc.cmds...)
			if !q.Any || q.Key != tc.key || string(q.KeyBytes) != tc.bytes {
				t.Errorf("any %v, key %q, bytes %q, want %q, %q", q.Any, q.Key, q.KeyBytes, tc.key, tc.bytes)
			}
		})
	}
}

// TestClient_CanaryByKeys: a canary by share of the keys gets its share of all
// kinds of request, and each of the keys stays with its group.
func TestClient_CanaryByKeys(t *testing.T) {
	servers := trio(t)
	c := front(t, servers, Options{})
	ctx := context.Background()
	r := c.Router()
	must(t, r.StartCanary(ringwise.CanaryConfig{Tuning: r.Tuning(), Steps: []ringwise.CanaryStep{{Share: 0.5, MinTime: time.Hour}}}))
	groups := func() (control, canary int) {
		s := r.Canary()
		return int(s.Control.Picks), int(s.Canary.Picks)
	}
	for name, call := range map[string]func(key string) error{
		"get":   func(key string) error { return c.SMembers(ctx, key).Err() },
		"set":   func(key string) error { return c.Set(ctx, "w"+key, "v", 0).Err() },
		"bytes": func(key string) error { return c.Do(ctx, "strlen", []byte("b"+key)).Err() },
		"watch": func(key string) error { return c.Watch(ctx, func(*redis.Tx) error { return nil }, key) },
		"blocks": func(key string) error {
			must(t, c.RPush(ctx, "q"+key, 1).Err())
			return c.BLPop(ctx, time.Second, "q"+key).Err()
		},
		"pipe": func(key string) error {
			_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error { p.Ping(ctx); p.StrLen(ctx, "p"+key); return nil })
			return err
		},
		"tx": func(key string) error {
			_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error { p.StrLen(ctx, "t"+key); return nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			control, canary := groups()
			for i := range 200 {
				must(t, call(fmt.Sprint(i)))
			}
			a, b := groups()
			if a -= control; a < 50 {
				t.Errorf("the control got %d of 200", a)
			}
			if b -= canary; b < 50 {
				t.Errorf("the canary got %d of 200", b)
			}
		})
	}
	control, canary := groups()
	for range 100 {
		must(t, c.StrLen(ctx, "one").Err())
	}
	a, b := groups()
	if a != control && b != canary {
		t.Errorf("one key was %d times the control's and %d times the canary's", a-control, b-canary)
	}
	wantHealthy(t, c)
}
