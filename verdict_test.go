package ringwise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

type timeoutError bool

func (timeoutError) Error() string   { return "slow" }
func (e timeoutError) Timeout() bool { return bool(e) }

func TestClassify(t *testing.T) {
	op := func(err error) error {
		return &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", err)}
	}
	for _, c := range []struct {
		err  error
		want Verdict
	}{
		{nil, OK},
		{context.Canceled, Ignore},
		{fmt.Errorf("get: %w", context.Canceled), Ignore},
		{context.DeadlineExceeded, Fault},
		{os.ErrDeadlineExceeded, Fault},
		{timeoutError(true), Fault},
		{fmt.Errorf("x: %w", timeoutError(true)), Fault},
		{io.EOF, Broken},
		{io.ErrUnexpectedEOF, Broken},
		{io.ErrClosedPipe, Broken},
		{fmt.Errorf("read: %w", io.EOF), Broken},
		{errors.Join(errors.New("a"), io.EOF), Broken},
		{op(syscall.ECONNRESET), Broken},
		{op(syscall.ECONNREFUSED), Broken},
		{op(syscall.ECONNABORTED), Broken},
		{op(syscall.EPIPE), Broken},
		{op(syscall.ETIMEDOUT), Fault},
		{op(syscall.EHOSTUNREACH), Fault},
		{syscall.EIO, Fault},
		{&net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}, Fault},
		{&net.OpError{Op: "dial", Err: errors.New("anything")}, Fault},
		{io.ErrNoProgress, Fault},
		{io.ErrShortWrite, Fault},
		{io.ErrShortBuffer, Fault},
		{errors.New("key not found"), Unknown},
		{ErrNoWorker, Unknown},
	} {
		if got := Classify(c.err); got != c.want {
			t.Errorf("Classify(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}

func TestVerdict_String(t *testing.T) {
	for v, want := range map[Verdict]string{0: "unclassified", OK: "ok", Fault: "fault", Broken: "broken", Overload: "overload", Ignore: "ignore",
		StaleTopology: "stale-topology", Superseded: "superseded", Unknown: "unknown", verdicts: "unknown", 255: "unknown"} {
		assert.Equal(t, want, v.String())
	}
}

func TestClassifier_BadAnswersAreUnknown(t *testing.T) {
	boom := errors.New("boom")
	for name, f := range map[string]Classifier{
		"zero":      func(error) Verdict { return 0 },
		"too large": func(error) Verdict { return verdicts },
		"panics":    func(error) Verdict { panic("classifier") },
	} {
		s := newStand(t, 1, workersNamed("a"), WithClassifier(f))
		s.Observe(s.route(Request{Key: "k"}), time.Millisecond, boom)
		assert.Equal(t, map[string]uint64{"unknown": 1}, s.Status().Verdicts, name)
		assert.Zero(t, s.state("a").inFlight(), name)
	}
	s := newStand(t, 1, workersNamed("a"), WithClassifier(func(err error) Verdict { return Overload }))
	s.Observe(s.route(Request{Key: "k"}), time.Millisecond, boom)
	assert.Equal(t, map[string]uint64{"overload": 1}, s.Status().Verdicts)
}

// What each end does: to latency, failures, penalty and what is in flight.
func TestVerdict_Effects(t *testing.T) {
	boom := errors.New("boom")
	deadline := fmt.Errorf("get: %w", context.DeadlineExceeded)
	for _, c := range []struct {
		name     string
		o        Outcome
		timeout  time.Duration // of the request
		latency  time.Duration // after; before it is 1 ms
		failed   uint64
		observed bool // the lane of reads
		other    bool // and of writes
		counted  string
	}{
		{"answer", Outcome{RTT: 2 * time.Millisecond}, 0, 1020 * time.Microsecond, 0, false, false, ""},
		{"verdict without an error", Outcome{RTT: 2 * time.Millisecond, Verdict: OK}, 0, 1020 * time.Microsecond, 0, false, false, "ok"},
		{"miss", Outcome{RTT: 2 * time.Millisecond, Err: boom, Verdict: OK}, 0, 1020 * time.Microsecond, 0, false, false, "ok"},
		{"fault", Outcome{RTT: time.Millisecond, Err: boom, Verdict: Fault}, 0, 15700 * time.Microsecond, 1, true, false, "fault"},
		{"fast fault", Outcome{RTT: 1, Err: boom, Verdict: Fault}, 0, 15700 * time.Microsecond, 1, true, false, "fault"},
		{"fault, short time-out", Outcome{RTT: time.Millisecond, Err: boom, Verdict: Fault}, 11 * time.Millisecond, 4 * time.Millisecond, 1, true, false, "fault"},
		{"broken", Outcome{RTT: time.Millisecond, Err: io.EOF}, 0, 15700 * time.Microsecond, 1, true, true, "broken"},
		{"overload", Outcome{RTT: time.Millisecond, Err: boom, Verdict: Overload}, 0, 15700 * time.Microsecond, 1, true, true, "overload"},
		{"time-out", Outcome{RTT: time.Second, Err: deadline}, 0, 15700 * time.Microsecond, 1, true, false, "fault"},
		{"time-out of the request", Outcome{RTT: 20 * time.Millisecond, Err: deadline}, 20 * time.Millisecond, 6700 * time.Microsecond, 1, true, false, "fault"},
		{"caller's own deadline", Outcome{RTT: 20 * time.Millisecond, Err: deadline}, 0, 1380 * time.Microsecond, 0, false, false, ""},
		{"caller's deadline, sooner than an answer", Outcome{RTT: 500 * time.Microsecond, Err: deadline}, 0, time.Millisecond, 0, false, false, ""},
		{"cancelled", Outcome{RTT: 20 * time.Millisecond, Err: context.Canceled}, 0, time.Millisecond, 0, false, false, "ignore"},
		{"stale topology", Outcome{RTT: 20 * time.Millisecond, Err: boom, Verdict: StaleTopology}, 0, time.Millisecond, 0, false, false, "stale-topology"},
		{"superseded", Outcome{RTT: 20 * time.Millisecond, Verdict: Superseded}, 0, 20 * time.Millisecond, 0, false, false, "superseded"},
		{"superseded soon", Outcome{RTT: 1, Verdict: Superseded}, 0, time.Millisecond, 0, false, false, "superseded"},
		{"unknown error", Outcome{RTT: 1, Err: boom}, 0, time.Millisecond, 0, false, false, "unknown"},
		{"slow unknown error", Outcome{RTT: 2 * time.Millisecond, Err: boom}, 0, 1020 * time.Microsecond, 0, false, false, "unknown"},
		{"batch", Outcome{RTT: time.Second, Batch: 100}, 0, time.Millisecond, 0, false, false, ""},
		{"verdict that is none", Outcome{RTT: time.Millisecond, Err: io.EOF, Verdict: 200}, 0, 15700 * time.Microsecond, 1, true, true, "broken"},
	} {
		s := newStand(t, 1, workersNamed("a"))
		s.nextFold.Store(1 << 62)
		s.step(time.Hour)
		s.setLatency("a", time.Millisecond)
		x := s.route(Request{Key: "k", Intent: Read, Timeout: c.timeout})
		// An EWMA's gain grows with time: keep it at its least, 0.02.
		x.start -= int64(max(c.o.RTT, 0))
		s.setLatency("a", time.Millisecond)
		x.DoneWith(c.o)

		st := s.state("a")
		assert.InEpsilon(t, float64(c.latency), unpackLat(st.lane[laneRead].lat.Load()), 0.001, "%s: latency", c.name)
		assert.Zero(t, st.lane[laneWrite].lat.Load(), "%s: the other lane learns nothing of latency", c.name)
		assert.Equal(t, c.failed, st.failed[laneRead].Load(), "%s: failures", c.name)
		assert.Equal(t, c.observed, st.lane[laneRead].pen.load().phase() == Observed, "%s: phase %v", c.name, st.lane[laneRead].pen.load().phase())
		assert.Equal(t, c.other, st.lane[laneWrite].pen.load().phase() == Observed, "%s: other lane %v", c.name, st.lane[laneWrite].pen.load().phase())
		assert.Zero(t, st.inFlight(), "%s: in flight", c.name)
		want := map[string]uint64{}
		if c.counted != "" {
			want[c.counted] = 1
		}
		assert.Equal(t, want, s.Status().Verdicts, "%s: counted", c.name)
	}
}

func TestVerdict_OverloadHoldsBack(t *testing.T) {
	s := newStand(t, 1, workersNamed("a", "b"))
	x, err := s.Start(Request{}, "a")
	assert.NoError(t, err)
	x.DoneWith(Outcome{Verdict: Overload, RTT: time.Millisecond, RetryAfter: 2 * time.Second})
	for range 20 {
		s.step(90 * time.Millisecond)
		for _, intent := range []Intent{Read, Write} {
			c := s.route(Request{Key: "k", Intent: intent})
			assert.Equal(t, "b", c.ID(), "no picks until RetryAfter, on either lane")
			c.Cancel()
		}
	}
	s.maintain(30 * time.Second)
	got := s.share(200, func(i int) Request { return Request{Hash: HashUint64(uint64(i))} }, equalRTT)
	assert.Greater(t, got["a"], 20, "and then again: %v", got)
}

// A Classifier that panics is counted, the Router's and that of one Do.
func TestClassifier_PanicIsCounted(t *testing.T) {
	broken := func(error) Verdict { panic("of the caller") }
	g := newRig(t, 3, WithClassifier(broken))
	g.start("w0").Done(errNoRow)
	assert.EqualValues(t, 1, g.Status().PlugPanics)
	assert.EqualValues(t, 1, g.Status().Verdicts["unknown"])

	g = newRig(t, 3)
	_, err := Do(t.Context(), g.Router, Request{Key: "k"}, func(context.Context, Choice) (int, error) { return 0, errNoRow }, WithVerdict(broken))
	assert.ErrorIs(t, err, errNoRow)
	assert.EqualValues(t, 1, g.Status().PlugPanics)
	assert.EqualValues(t, 1, g.Status().Verdicts["unknown"])
}
