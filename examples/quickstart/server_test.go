package main

import (
	"bufio"
	"errors"
	"net"
	"strings"
	"testing"
)

func TestServer_Answer(t *testing.T) {
	s := newServer("kv-0", 0)
	for _, step := range []struct {
		name, line string
		failing    bool
		want       string
	}{
		{"miss", "GET a\r\n", false, "$-1\r\n"},
		{"set", "SET a apple\r\n", false, "+OK\r\n"},
		{"hit", "get a\n", false, "$5\r\napple\r\n"},
		{"failing", "GET a\r\n", true, "-ERR failing\r\n"},
		{"unknown command", "DEL a\r\n", false, "-ERR want GET key or SET key value\r\n"},
		{"no key", "GET\r\n", false, "-ERR want GET key or SET key value\r\n"},
		{"empty line", "\r\n", false, "-ERR want GET key or SET key value\r\n"},
	} {
		if got := string(s.answer(step.line, step.failing)); got != step.want {
			t.Errorf("%s: answer(%q) = %q, want %q", step.name, step.line, got, step.want)
		}
	}
}

func TestReadReply(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		err            string // part of it; empty: none
	}{
		{"status", "+OK\r\n", "OK", ""},
		{"value", "$5\r\napple\r\n", "apple", ""},
		{"empty value", "$0\r\n\r\n", "", ""},
		{"miss", "$-1\r\n", "", errMiss.Error()},
		{"error", "-ERR failing\r\n", "", "server: ERR failing"},
		{"cut short", "$5\r\nap", "", "unexpected EOF"},
		{"hung up", "", "", "EOF"},
		{"huge", "$99999999999\r\n", "", "malformed"},
		{"negative", "$-2\r\n", "", "malformed"},
		{"other kind", "?\r\n", "", "malformed"},
		{"empty line", "\r\n", "", "malformed"},
	} {
		got, err := readReply(bufio.NewReader(strings.NewReader(c.in)))
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %q, %v; want %q, error %q", c.name, got, err, c.want, c.err)
		}
	}
}

// The life of the victim, seen by a client over a real socket.
func TestServer_FailsCrashesAndComesBackCold(t *testing.T) {
	s := newServer("kv-0", 0)
	s.load(map[string]string{"a": "apple"})
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	defer s.close()
	addr := s.addr
	c := client{addr: addr}
	defer c.hangUp()

	if got, err := c.do("GET a"); got != "apple" || err != nil {
		t.Fatalf("loaded: got %q, %v", got, err)
	}
	s.setFailing(true)
	if _, err := c.do("GET a"); err != serverError("ERR failing") {
		t.Errorf("failing: %v", err)
	}
	if c.conn == nil {
		t.Error("an error that the server answers costs the connection")
	}
	s.setFailing(false)
	s.close()
	if _, err := c.do("GET a"); !isDialError(err) {
		t.Errorf("crashed: want a refused dial, got %v", err)
	}
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	if s.addr != addr {
		t.Errorf("came back at %s, was at %s", s.addr, addr)
	}
	if _, err := c.do("GET a"); err != errMiss {
		t.Errorf("came back with data: %v", err)
	}
	if got, err := c.fetch("a", "apple"); got != "apple" || err != nil {
		t.Errorf("fetch: got %q, %v", got, err)
	}
	if got, err := c.do("GET a"); got != "apple" || err != nil {
		t.Errorf("fetch did not fill the server: got %q, %v", got, err)
	}

	s.close()
	if err := s.open(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.do("GET a"); err != errMiss {
		t.Errorf("a connection from before the restart must be replaced: %v", err)
	}
}

func isDialError(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}
