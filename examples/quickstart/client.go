package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// errMiss is a healthy answer: the server does not have the key.
var errMiss = errors.New("no such key")

// serverError is an error that the server itself answered with.
type serverError string

func (e serverError) Error() string { return "server: " + string(e) }

// client is one goroutine's connection to one server: dialled when needed,
// dropped on a broken or late answer. Not for use by two goroutines.
type client struct {
	addr string
	conn net.Conn // nil: dial first
	in   *bufio.Reader
}

// fetch gets a key. A server that misses it, as it does when it came back
// cold, is filled with the value on the way, at the price of a second request.
func (c *client) fetch(key, origin string) (string, error) {
	value, err := c.do("GET " + key)
	if err != errMiss {
		return value, err
	}
	if _, err := c.do("SET " + key + " " + origin); err != nil {
		return "", err
	}
	return origin, nil
}

// do sends one request line and reads its reply within requestTimeout. A
// connection that turns out to have been closed since its last use is replaced
// once, as net/http does it: that says nothing of how the server is now.
func (c *client) do(line string) (string, error) {
	deadline := time.Now().Add(requestTimeout)
	used := c.conn != nil
	reply, err := c.exchange(line, deadline)
	if used && c.conn == nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		reply, err = c.exchange(line, deadline)
	}
	return reply, err
}

func (c *client) exchange(line string, deadline time.Time) (reply string, err error) {
	if c.conn == nil {
		conn, err := (&net.Dialer{Deadline: deadline}).Dial("tcp", c.addr)
		if err != nil {
			return "", err
		}
		c.conn, c.in = conn, bufio.NewReader(conn)
	}
	defer func() {
		// After a time-out the answer may still come and would be taken for
		// the next request's, so the connection goes as well.
		if _, answered := errors.AsType[serverError](err); err != nil && err != errMiss && !answered {
			c.hangUp()
		}
	}()
	if err := c.conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c.conn, line+"\r\n"); err != nil {
		return "", err
	}
	return readReply(c.in)
}

func (c *client) hangUp() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// bulk is the reply that carries a value.
func bulk(value string) []byte {
	return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(value), value)
}

// readReply reads one reply: +status, -error, $length and value, or $-1.
func readReply(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimRight(line, "\r\n")
	kind, rest := line[:min(1, len(line))], line[min(1, len(line)):]
	switch kind {
	case "+":
		return rest, nil
	case "-":
		return "", serverError(rest)
	case "$":
		n, err := strconv.Atoi(rest)
		if err != nil || n < -1 || n > 1<<20 {
			break
		}
		if n == -1 {
			return "", errMiss
		}
		value := make([]byte, n+len("\r\n"))
		if _, err := io.ReadFull(in, value); err != nil {
			return "", err
		}
		return string(value[:n]), nil
	}
	return "", fmt.Errorf("malformed reply %.40q", line)
}
