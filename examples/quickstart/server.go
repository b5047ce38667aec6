package main

import (
	"bufio"
	"errors"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// server is a small key-value server on a real loopback socket. It speaks the
// inline form of the Redis protocol (GET key, SET key value) and knows nothing
// of routing: setService, setFailing, close and open are all that can be done
// to it from outside.
type server struct {
	id   string
	addr string // set by the first open, kept by the later ones

	service atomic.Int64 // nanoseconds each request takes
	failing atomic.Bool  // answer every request with an error, at once

	// mu guards the rest.
	mu       sync.Mutex
	data     map[string]string
	listener net.Listener // nil while closed
	conns    map[net.Conn]struct{}
}

func newServer(id string, service time.Duration) *server {
	s := &server{id: id, addr: "127.0.0.1:0", data: map[string]string{}, conns: map[net.Conn]struct{}{}}
	s.setService(service)
	return s
}

func (s *server) setService(d time.Duration) { s.service.Store(int64(d)) }
func (s *server) setFailing(on bool)         { s.failing.Store(on) }

// load fills the store from outside, as a backup would.
func (s *server) load(data map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.data, data)
}

// open listens, on the address of before if there was one, and serves in the
// background until close.
func (s *server) open() error {
	var ln net.Listener
	var err error
	// While the server was away somebody's outgoing connection may have taken
	// the port for a moment.
	for try := 0; try < 50; try++ {
		if ln, err = net.Listen("tcp", s.addr); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.addr, s.listener = ln.Addr().String(), ln
	s.mu.Unlock()
	go s.accept(ln)
	return nil
}

// close is the crash: the listener, every connection and all data are gone.
func (s *server) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return
	}
	s.listener.Close()
	s.listener = nil
	for c := range s.conns {
		c.Close()
	}
	clear(s.conns)
	clear(s.data)
}

func (s *server) accept(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, or reset before it was accepted
			time.Sleep(time.Millisecond)
			continue
		}
		s.mu.Lock()
		alive := s.listener == ln // accepted in the instant of the crash?
		if alive {
			s.conns[c] = struct{}{}
		}
		s.mu.Unlock()
		if !alive {
			c.Close()
			return
		}
		go s.serve(c)
	}
}

// serve answers one connection's requests, one after the other.
func (s *server) serve(c net.Conn) {
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadSlice('\n') // a line longer than the buffer is an error too
		if err != nil {
			return
		}
		failing := s.failing.Load()
		if !failing {
			time.Sleep(time.Duration(s.service.Load()))
		}
		if _, err := c.Write(s.answer(string(line), failing)); err != nil {
			return
		}
	}
}

// answer is the whole protocol: one request line in, one reply out.
func (s *server) answer(line string, failing bool) []byte {
	if failing {
		return []byte("-ERR failing\r\n")
	}
	command := strings.Fields(line)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(command) == 2 && strings.EqualFold(command[0], "GET"):
		value, ok := s.data[command[1]]
		if !ok {
			return []byte("$-1\r\n")
		}
		return bulk(value)
	case len(command) == 3 && strings.EqualFold(command[0], "SET"):
		s.data[command[1]] = command[2]
		return []byte("+OK\r\n")
	}
	return []byte("-ERR want GET key or SET key value\r\n")
}
