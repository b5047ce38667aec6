package goredis

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/ringwise/ringwise"
	"github.com/ringwise/ringwise/adapters/goredis/internal/redistest"
)

// fake listens as a server that answers GET with whatever it was told, and
// greets as an old Redis does.
func fake(t *testing.T, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	serve := func(conn net.Conn) {
		defer conn.Close()
		for b := bufio.NewReader(conn); ; {
			cmd, err := command(b)
			if err != nil {
				return
			}
			say := "+OK\r\n"
			switch strings.ToLower(cmd[0]) {
			case "hello":
				say = "-ERR unknown command\r\n"
			case "get":
				say = answer
			}
			if _, err := io.WriteString(conn, say); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return l.Addr().String()
}

// command reads what a client sends: an array of strings.
func command(b *bufio.Reader) (cmd []string, err error) {
	length := func() (n int) {
		var line string
		if line, err = b.ReadString('\n'); err == nil {
			n, err = strconv.Atoi(strings.TrimSpace(line[1:]))
		}
		return n
	}
	for range length() {
		arg := make([]byte, length()+2)
		if err != nil {
			return nil, err
		}
		if _, err = io.ReadFull(b, arg); err != nil {
			return nil, err
		}
		cmd = append(cmd, string(arg[:len(arg)-2]))
	}
	return cmd, err
}

// TestClient_BreachIsBroken: a read that a replica answers with what no Redis
// sends is answered by another node, and the replica is left alone.
func TestClient_BreachIsBroken(t *testing.T) {
	for name, tc := range map[string]struct {
		answer  string
		verdict string
	}{
		"garbage":          {"\x00\xff!!garbage\r\n\r\n", "broken"},
		"a line of text":   {"HTTP/1.1 400 Bad Request\r\n\r\n", "broken"},
		"an empty line":    {"\r\n", "broken"},
		"no line end":      {"+v\n", "broken"},
		"a length below 0": {"$-5\r\n", "broken"},
		"no length":        {"$many\r\n", "broken"},
		"an error of none": {"-\r\n", "broken"},
		"moved":            {"-MOVED 1 10.0.0.1:6379\r\n", "fault"},
		"moved to nowhere": {"-MOVED\r\n", "fault"},
		"ask":              {"-ASK 1 10.0.0.1:6379\r\n", "fault"},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t)
			c, err := New([]ringwise.Worker{
				{ID: "p", Addr: s.Addr, Role: ringwise.RolePrimary},
				{ID: "r", Addr: fake(t, tc.answer), Role: ringwise.RoleReplica},
			}, Options{Redis: redis.Options{ReadTimeout: readTimeout}})
			must(t, err)
			defer c.Close()
			ctx := context.Background()
			must(t, c.Set(ctx, "k", "v", 0).Err())
			// Once it is found out, nothing but a try goes there.
			eventually(t, func() bool {
				got, err := c.Get(ctx, "k").Result()
				if got != "v" || err != nil {
					t.Fatalf("Get = %q, %v", got, err)
				}
				return c.Router().Status().Verdicts[tc.verdict] > 0
			}, "the verdict %s of %v", tc.verdict, c.Router().Status().Verdicts)
			for range 100 {
				must(t, c.Get(ctx, "k").Err())
			}
			noneInFlight(t, c)
		})
	}
}

// TestClient_MismatchIsNoBreach: a sound reply that the caller's own command
// type cannot hold does not put a node out.
func TestClient_MismatchIsNoBreach(t *testing.T) {
	c := front(t, []*redistest.Server{server(t)}, Options{})
	ctx := context.Background()
	must(t, c.Set(ctx, "k", "text", 0).Err())
	must(t, c.RPush(ctx, "l", "a").Err())
	for _, cmd := range []redis.Cmder{
		redis.NewIntCmd(ctx, "get", "k"),
		redis.NewFloatCmd(ctx, "get", "k"),
		redis.NewStringCmd(ctx, "lrange", "l", 0, -1),
		redis.NewIntCmd(ctx, "lrange", "l", 0, -1),
		redis.NewMapStringStringCmd(ctx, "lrange", "l", 0, -1),
		redis.NewStringSliceCmd(ctx, "llen", "l"),
		redis.NewBoolCmd(ctx, "lrange", "l", 0, -1),
	} {
		err := c.Process(ctx, cmd)
		if v := Classify(err); err == nil || v != ringwise.Unknown {
			t.Errorf("%s: %v is %v", fmt.Sprintf("%T", cmd), err, v)
		}
	}
	must(t, c.Get(ctx, "k").Err())
	if n := c.Router().Status().Verdicts["broken"]; n != 0 {
		t.Errorf("%d broken", n)
	}
}
