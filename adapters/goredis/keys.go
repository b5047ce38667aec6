package goredis

import (
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/ringwise/ringwise"
)

// keyless commands have no key (TestKeyOf_MatchesServer asks a real one). A
// channel is none.
var keyless = set(`acl asking auth bgrewriteaof bgsave client cluster command config dbsize debug discard echo
	exec failover flushall flushdb function hello info keys lastsave latency lolwut module monitor multi
	pfselftest ping psubscribe psync publish pubsub punsubscribe quit randomkey readonly readwrite replconf
	replicaof reset role save scan script select shutdown slaveof slowlog spublish ssubscribe
	subscribe sunsubscribe swapdb sync time unsubscribe unwatch wait waitaof`)

// keyArg is which argument is the first key where it is not the one after the
// name: a count, an operation, a subcommand or a script stands before it.
var keyArg = map[string]int{
	"bitop": 2, "object": 2, "xinfo": 2, "xgroup": 2, "memory": 2, "pfdebug": 2,
	"lmpop": 2, "zmpop": 2, "sintercard": 2, "zintercard": 2, "zunion": 2, "zinter": 2, "zdiff": 2,
	"blmpop": 3, "bzmpop": 3, "migrate": 3,
	"eval": 3, "evalsha": 3, "eval_ro": 3, "evalsha_ro": 3, "fcall": 3, "fcall_ro": 3,
}

// keyOf is the first key of a command, nil where it has none. Of a command not
// known it is the first argument.
func keyOf(cmd redis.Cmder) any {
	name, args, at := cmd.Name(), cmd.Args(), 1
	switch {
	case keyless[name]:
		return nil
	case name == "xread" || name == "xreadgroup":
		if _, at = streamOptions(cmd); at == 0 {
			return nil
		}
	case keyArg[name] != 0:
		at = keyArg[name]
	}
	switch name {
	case "eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro":
		if len(args) > 2 && (text(args[2]) == "0" || fmt.Sprint(args[2]) == "0") {
			return nil // arguments follow, no keys
		}
	}
	if at >= len(args) {
		return nil
	}
	return args[at]
}

// keyed is a request for any node (each has all keys) with the first key among
// cmds: a canary by share of keys, WithKeyParser and WithHotKeys go by it.
func keyed(q ringwise.Request, cmds ...redis.Cmder) ringwise.Request {
	q.Any = true
	for _, cmd := range cmds {
		switch key := keyOf(cmd).(type) {
		case nil:
			continue
		case string:
			q.Key = key
		case []byte:
			q.KeyBytes = key
		default:
			if q.Key = text(key); q.Key == "" {
				q.Key = fmt.Sprint(key) // a number
			}
		}
		break
	}
	return q
}
