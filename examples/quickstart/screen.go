package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// screen shows lines that stay and below them, on a terminal, one table that
// is drawn over and over. Elsewhere the table is plain lines, less often.
type screen struct {
	out   io.Writer
	live  bool
	drawn int // lines of the table on the terminal now
}

func newScreen(f *os.File) *screen {
	info, err := f.Stat()
	return &screen{out: f, live: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// refresh is the time from one table to the next.
func (s *screen) refresh() time.Duration {
	if s.live {
		return 250 * time.Millisecond
	}
	return 2 * time.Second
}

// say prints a line that stays.
func (s *screen) say(format string, args ...any) {
	s.erase()
	fmt.Fprintf(s.out, format+"\n", args...)
}

// row is a server in the table. Share, p50 and p99 are those of the last second.
type row struct {
	id       string
	share    float64
	inFlight int64
	p50, p99 time.Duration
	errors   int64 // since the start
	state    string
}

// show draws the table, in less than 80 columns: a line that wraps would spoil
// the drawing over.
func (s *screen) show(title string, rows []row) {
	var b strings.Builder
	if !s.live {
		for _, r := range rows {
			fmt.Fprintf(&b, "%s %s share=%s in_flight=%d p50=%s p99=%s errors=%d state=%s\n",
				title, r.id, percent(r.share), r.inFlight, millis(r.p50), millis(r.p99), r.errors, r.state)
		}
		io.WriteString(s.out, b.String())
		return
	}
	fmt.Fprintf(&b, "%s\n%-6s %6s %-10s %9s %8s %8s %6s  %s\n",
		title, "server", "share", "", "in flight", "p50", "p99", "errors", "state")
	for _, r := range rows {
		bar := strings.Repeat("#", min(int(r.share*25+0.5), 10))
		fmt.Fprintf(&b, "%-6s %6s %-10s %9d %8s %8s %6d  %s\n",
			r.id, percent(r.share), bar, r.inFlight, millis(r.p50), millis(r.p99), r.errors, r.state)
	}
	s.erase()
	s.drawn = strings.Count(b.String(), "\n")
	io.WriteString(s.out, b.String())
}

// erase takes the table off the terminal: up to its first line, clear from there.
func (s *screen) erase() {
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.drawn)
		s.drawn = 0
	}
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
}
