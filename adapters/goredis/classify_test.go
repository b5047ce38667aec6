package goredis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/ringwise/ringwise"
)

type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

func TestClassify(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want ringwise.Verdict
	}{
		{"no error", nil, ringwise.OK},
		{"a missing key", redis.Nil, ringwise.OK},
		{"a missing key, wrapped", fmt.Errorf("get: %w", redis.Nil), ringwise.OK},
		{"a failed transaction", redis.TxFailedErr, ringwise.OK},
		{"wrong type", reply("WRONGTYPE Operation against a key holding the wrong kind of value"), ringwise.OK},
		{"an error", reply("ERR unknown command 'x'"), ringwise.OK},
		{"no script", redis.ErrNoScript, ringwise.OK},
		{"no permission", reply("NOPERM this user has no permissions"), ringwise.OK},
		{"loading", reply("LOADING Redis is loading the dataset in memory"), ringwise.Fault},
		{"loading, wrapped", fmt.Errorf("x: %w", reply("LOADING Redis is loading the dataset in memory")), ringwise.Fault},
		{"read only", reply("READONLY You can't write against a read only replica."), ringwise.Fault},
		{"master down", reply("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."), ringwise.Fault},
		{"cluster down", reply("CLUSTERDOWN The cluster is down"), ringwise.Fault},
		{"a word that only begins so", reply("LOADINGS"), ringwise.OK},
		{"busy", reply("BUSY Redis is busy running a script."), ringwise.Fault},
		{"no auth", reply("NOAUTH Authentication required."), ringwise.Fault},
		{"out of memory", reply("OOM command not allowed when used memory > 'maxmemory'."), ringwise.Overload},
		{"too many clients", reply("ERR max number of clients reached"), ringwise.Overload},
		{"moved", reply("MOVED 3999 127.0.0.1:6381"), ringwise.Fault},
		{"moved, to nowhere", reply("MOVED"), ringwise.Fault},
		{"ask", reply("ASK 3999 127.0.0.1:6381"), ringwise.Fault},
		{"pool time-out", redis.ErrPoolTimeout, ringwise.Overload},
		{"pool exhausted", redis.ErrPoolExhausted, ringwise.Overload},
		{"cancelled", context.Canceled, ringwise.Ignore},
		{"client closed", redis.ErrClosed, ringwise.Ignore},
		{"deadline", context.DeadlineExceeded, ringwise.Fault},
		{"read time-out", &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, ringwise.Fault},
		{"end of file", io.EOF, ringwise.Broken},
		{"reset", &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, ringwise.Broken},
		{"refused", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, ringwise.Broken},
		{"no route", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}, ringwise.Fault},
		{"the caller's own", errors.New("mine"), ringwise.Unknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Classify(tc.err); got != tc.want {
				t.Errorf("Classify(%v) = %v, want %v", tc.err, got, tc.want)
			}
		})
	}
}
