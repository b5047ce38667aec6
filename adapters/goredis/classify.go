package goredis

import (
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/ringwise/ringwise"
)

// verdicts of the error replies that say something of the node and not of the
// request. Any other (WRONGTYPE, NOSCRIPT, NOPERM, a failed transaction) is an
// answer of a healthy node.
var verdicts = map[string]ringwise.Verdict{
	"LOADING":     ringwise.Fault, // reads its data set, and may for minutes
	"READONLY":    ringwise.Fault, // a replica that the topology calls the primary
	"MASTERDOWN":  ringwise.Fault, // a replica that lost its primary and may not serve stale data
	"CLUSTERDOWN": ringwise.Fault,
	"MISCONF":     ringwise.Fault, // cannot save, so refuses writes
	"NOREPLICAS":  ringwise.Fault, // too few good replicas, so refuses writes
	"BUSY":        ringwise.Fault, // inside a script
	"NOAUTH":      ringwise.Fault, // serves nobody with our credentials
	"WRONGPASS":   ringwise.Fault,
	"OOM":         ringwise.Overload,
	"TRYAGAIN":    ringwise.Overload,
	"MOVED":       ringwise.Fault, // a node of a Redis Cluster, which does not have all keys
	"ASK":         ringwise.Fault,
}

// Classify says what an error of go-redis tells of the node it came from; New
// gives it to the Router. A missing key (redis.Nil) is an answer.
func Classify(err error) ringwise.Verdict {
	if reply, ok := errors.AsType[redis.Error](err); ok {
		word, rest, _ := strings.Cut(reply.Error(), " ")
		if word == "" {
			return ringwise.Broken // no Redis sends an error of no words
		}
		if v, ok := verdicts[word]; ok {
			return v
		}
		if word == "ERR" && strings.HasPrefix(rest, "max number of clients") {
			return ringwise.Overload
		}
		return ringwise.OK
	}
	switch {
	case errors.Is(err, redis.ErrClosed):
		return ringwise.Ignore // Close was called
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return ringwise.Overload // more calls to this node than its pool has connections
	}
	if v := ringwise.Classify(err); v != ringwise.Unknown || !breach(err) {
		return v
	}
	return ringwise.Broken
}

// types begin a reply: RESP2 and RESP3, redis.io/docs/reference/protocol-spec.
const types = "+-:$*_#,(!=%~|>"

// breach tells a reply that no Redis sends. go-redis has only words for it, and
// uses the same ones for a sound reply that the command's Go type cannot hold:
// what tells them apart is the byte that the quoted reply begins with. Two
// cannot be told: a number that is none (":x") stays Unknown, and a SliceCmd of
// the caller's own for a command that answers with a string is a breach.
func breach(err error) bool {
	if e, ok := errors.AsType[*strconv.NumError](err); ok {
		return e.Func == "Atoi" // the length of a reply; its values are not read so
	}
	said := err.Error()
	if strings.HasPrefix(said, "redis: invalid reply: ") || strings.HasPrefix(said, "redis: invalid line") ||
		strings.HasPrefix(said, "redis: connection unusable") {
		return true
	}
	if !strings.HasPrefix(said, "redis: can't parse ") {
		return false
	}
	at := strings.IndexByte(said, '"')
	if at < 0 {
		return false
	}
	quoted, bad := strconv.QuotedPrefix(said[at:])
	if bad != nil {
		return false
	}
	line, bad := strconv.Unquote(quoted)
	return bad == nil && line != "" && strings.IndexByte(types, line[0]) < 0
}
