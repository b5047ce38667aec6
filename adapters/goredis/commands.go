package goredis

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/ringwise/ringwise"
)

// reads are the commands that a replica may serve: those that Redis flags
// "readonly" (TestReads_MatchServer asks a real one), less the ones in
// TestReads_MatchServer's list that depend on the node they run on. A command
// that is not here goes to the primary, modules' included.
var reads = set(`bitcount bitfield_ro bitpos dbsize dump exists expiretime fcall_ro geodist geohash geopos
	georadius_ro georadiusbymember_ro geosearch get getbit getrange hexists hget hgetall hkeys hlen hmget
	hrandfield hstrlen hvals keys lcs lindex llen lpos lrange mget pexpiretime pfcount pttl randomkey scard
	sdiff sinter sintercard sismember smembers smismember sort_ro srandmember strlen substr sunion ttl type
	xlen xpending xrange xread xrevrange zcard zcount zdiff zinter zintercard zlexcount zmscore zrandmember
	zrange zrangebylex zrangebyscore zrank zrevrange zrevrangebylex zrevrangebyscore zrevrank zscore zunion`)

// blocking commands wait on the server for as long as they were told.
var blocking = set(`blmove blmpop blpop brpop brpoplpush bzmpop bzpopmax bzpopmin wait waitaof`)

// stateful commands change the connection they run on, which a pool then hands
// to somebody else.
var stateful = set(`asking auth discard exec hello monitor multi psubscribe quit readonly readwrite reset
	select ssubscribe subscribe sunsubscribe sync psync punsubscribe unsubscribe unwatch watch`)

func set(names string) map[string]bool {
	m := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		m[name] = true
	}
	return m
}

// blocks also knows XREAD and XREADGROUP, which block when they are told to.
func blocks(cmd redis.Cmder) bool {
	name := cmd.Name()
	if name != "xread" && name != "xreadgroup" {
		return blocking[name]
	}
	b, _ := streamOptions(cmd)
	return b
}

// streamOptions reads those of XREAD and XREADGROUP: whether BLOCK is among
// them, and which argument is the first key, 0 where there is none.
func streamOptions(cmd redis.Cmder) (block bool, key int) {
	args, at := cmd.Args(), 1
	if cmd.Name() == "xreadgroup" {
		at = 4 // after GROUP and two names, whatever they are
	}
	for ; at < len(args); at++ {
		switch strings.ToLower(text(args[at])) {
		case "block":
			block = true
		case "streams": // keys and IDs follow, whatever they look like
			return block, at + 1
		}
	}
	return block, 0
}

// text is an argument that is sent as it stands; empty for any other.
func text(arg any) string {
	switch s := arg.(type) {
	case string:
		return s
	case *string:
		if s != nil {
			return *s
		}
	case []byte:
		return string(s)
	}
	return ""
}

type strongRead struct{}

// StrongRead marks the reads under ctx as in need of the newest value: they go
// to the primary, so that a caller reads its own writes.
func StrongRead(ctx context.Context) context.Context {
	return context.WithValue(ctx, strongRead{}, true)
}

// intentOf is Read, or StrongRead, when a replica could serve all of cmds.
func intentOf(ctx context.Context, cmds ...redis.Cmder) ringwise.Intent {
	for _, cmd := range cmds {
		if !reads[cmd.Name()] || blocks(cmd) {
			return ringwise.Write
		}
	}
	if ctx.Value(strongRead{}) != nil {
		return ringwise.StrongRead
	}
	return ringwise.Read
}
