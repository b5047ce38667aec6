package goredis

import (
	"errors"
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
	"MOVED":       ringwise.StaleTopology,
	"ASK":         ringwise.StaleTopology,
}

// Classify says what an error of go-redis tells of the node it came from; New
// gives it to the Router. A missing key (redis.Nil) is an answer.
func Classify(err error) ringwise.Verdict {
	if reply, ok := errors.AsType[redis.Error](err); ok {
		word, rest, _ := strings.Cut(reply.Error(), " ")
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
	return ringwise.Classify(err)
}
