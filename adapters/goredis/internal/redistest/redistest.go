// Package redistest starts real redis-server processes on 127.0.0.1 for the
// tests and the example. Each has a folder of its own under the system's
// temporary one, and is ended by its pid.
package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrNotInstalled says how to get redis-server.
var ErrNotInstalled = errors.New("redis-server is not installed; on Debian or Ubuntu: apt-get update && apt-get install -y redis-server")

// Installed returns ErrNotInstalled where there is no redis-server.
func Installed() error {
	_, err := installed()
	return err
}

func installed() (bin string, err error) {
	if bin, err = exec.LookPath("redis-server"); err != nil {
		return "", ErrNotInstalled
	}
	return bin, nil
}

// startTimeout bounds how long a server may take to answer and to replicate.
const startTimeout = 20 * time.Second

// Server is one redis-server process.
type Server struct {
	Addr string
	Dir  string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has been reaped
}

// Start runs a server on a free port with the given further arguments. It
// returns once the server accepts connections.
func Start(args ...string) (*Server, error) {
	dir, err := os.MkdirTemp("", "ringwise-redis-")
	if err != nil {
		return nil, err
	}
	s, err := StartIn(dir, args...)
	if err != nil {
		os.RemoveAll(dir)
	}
	return s, err
}

// StartIn is Start with the folder of an earlier server, so that its dump is
// loaded. Stop removes the folder.
func StartIn(dir string, args ...string) (*Server, error) {
	bin, err := installed()
	if err != nil {
		return nil, err
	}
	// Another process may take a port between its choice and its use.
	for range 5 {
		var s *Server
		if s, err = start(bin, dir, args); err == nil {
			return s, nil
		}
	}
	return nil, err
}

func start(bin, dir string, args []string) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	l.Close()

	s := &Server{Addr: addr, Dir: dir, done: make(chan struct{})}
	s.cmd = exec.Command(bin, append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", dir,
		"--save", "", "--appendonly", "no", "--logfile", "log", "--repl-diskless-sync-delay", "0"}, args...)...)
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.done)
	}()
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		select {
		case <-s.done:
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			return nil, fmt.Errorf("redis-server ended: %s", log)
		default:
		}
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return s, nil
		}
	}
	s.Kill()
	return nil, fmt.Errorf("redis-server at %s does not listen", addr)
}

// Trio starts a primary and two replicas of it, and waits until both follow.
func Trio() ([]*Server, error) {
	primary, err := Start()
	if err != nil {
		return nil, err
	}
	trio := []*Server{primary}
	host, port, _ := net.SplitHostPort(primary.Addr)
	for range 2 {
		s, err := Start("--replicaof", host+" "+port)
		if err != nil {
			Stop(trio...)
			return nil, err
		}
		trio = append(trio, s)
	}
	for _, s := range trio[1:] {
		if err := s.waitInfo("replication", "master_link_status", "up"); err != nil {
			Stop(trio...)
			return nil, err
		}
	}
	return trio, nil
}

// Stop ends the servers and removes their folders.
func Stop(servers ...*Server) {
	for _, s := range servers {
		s.Kill()
		os.RemoveAll(s.Dir)
	}
}

// PID is the process id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Kill ends the process at once, as a crash would, stopped or not.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

// Pause stops the process (SIGSTOP) and returns once the kernel says so of
// each of its threads.
func (s *Server) Pause() error {
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if st, err := s.Threads(); err != nil || st.Stopped {
			time.Sleep(10 * time.Millisecond) // the state is set just before the thread leaves its core
			return err
		}
	}
	return fmt.Errorf("pid %d did not stop", s.PID())
}

// Resume lets a paused process go on (SIGCONT).
func (s *Server) Resume() error { return s.cmd.Process.Signal(syscall.SIGCONT) }

// ThreadState is what /proc tells of a process: two equal states with Stopped
// set mean that none of its threads ran in between, so that it served nothing.
type ThreadState struct {
	Stopped  bool // all threads are in state T
	Switches int  // context switches of all threads
	Ticks    int  // user and system time of all threads, in clock ticks
}

// Threads reads /proc/<pid>/task/*/{stat,status}.
func (s *Server) Threads() (ThreadState, error) {
	st := ThreadState{Stopped: true}
	dirs, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", s.PID()))
	if err != nil || len(dirs) == 0 {
		return st, fmt.Errorf("no /proc/%d/task: %w", s.PID(), errors.Join(err, os.ErrNotExist))
	}
	for _, dir := range dirs {
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			return st, err
		}
		// "pid (name) S ppid ...", and the name may hold spaces: proc(5).
		f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		st.Stopped = st.Stopped && f[0] == "T"
		for _, ticks := range f[11:13] {
			n, _ := strconv.Atoi(ticks)
			st.Ticks += n
		}
		status, err := os.ReadFile(dir + "/status")
		if err != nil {
			return st, err
		}
		for sc := bufio.NewScanner(strings.NewReader(string(status))); sc.Scan(); {
			if name, v, ok := strings.Cut(sc.Text(), ":"); ok && strings.HasSuffix(name, "voluntary_ctxt_switches") {
				n, _ := strconv.Atoi(strings.TrimSpace(v))
				st.Switches += n
			}
		}
	}
	return st, nil
}

// Info returns the fields of one section of INFO, by a connection of its own.
func (s *Server) Info(section string) (map[string]string, error) {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1, DisableIdentity: true, Protocol: 2})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	text, err := c.Info(ctx, section).Result()
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[k] = v
		}
	}
	return fields, err
}

// Calls returns how often the server has executed each command, by its name in
// INFO commandstats ("get", "client|setinfo").
func (s *Server) Calls() (map[string]int, error) {
	info, err := s.Info("commandstats")
	calls := map[string]int{}
	for k, v := range info {
		first, _, _ := strings.Cut(strings.TrimPrefix(v, "calls="), ",")
		calls[strings.TrimPrefix(k, "cmdstat_")], _ = strconv.Atoi(first)
	}
	return calls, err
}

func (s *Server) waitInfo(section, field, want string) error {
	var got string
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		info, err := s.Info(section)
		if err == nil && info[field] == want {
			return nil
		}
		got = info[field]
	}
	return fmt.Errorf("%s at %s: %q, want %q", field, s.Addr, got, want)
}
