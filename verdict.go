package ringwise

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"syscall"
	"time"
)

// Verdict is what the end of a request says of the worker.
type Verdict uint8

// The verdicts. Classify gives the zero one never; in an Outcome it means
// that Err is to be classified.
const (
	_ Verdict = iota
	// OK: it answered. A miss or a value error is an answer too.
	OK
	// Fault: it failed or timed out. Three in a row trip the lane.
	Fault
	// Broken: the connection broke (EOF, reset, refused), which counts as a
	// Fault of both lanes.
	Broken
	// Overload: it asked for less. Costs as a failure, trips nothing; no
	// picks until Outcome.RetryAfter is over.
	Overload
	// Ignore says nothing of it: the caller gave up.
	Ignore
	// StaleTopology: it is not the one to ask (MOVED, not leader). Says
	// nothing of its health and asks for a topology.
	StaleTopology
	// Superseded: another copy of the request answered first. A latency of at
	// least the time so far, neither answer nor failure.
	Superseded
	// Unknown: an error nobody classified. It counts as a failure only while
	// the worker's share of them is far over the fleet's.
	Unknown
	verdicts
)

var verdictNames = [...]string{"unclassified", "ok", "fault", "broken", "overload", "ignore",
	"stale-topology", "superseded", "unknown"}

func (v Verdict) String() string { return nameOf(verdictNames[:], int(v)) }

// Classifier says what an error means; err is not nil. It is called from
// Observe, from many goroutines, must not block, and is isolated when it
// panics (then the error is Unknown, and Status.PlugPanics counts it). Zero
// counts as Unknown.
type Classifier func(err error) Verdict

// Classify is the default Classifier. context.Canceled is Ignore; EOF and
// reset, refused or aborted connections are Broken; time-outs and other net,
// io and syscall errors are Fault; anything else is Unknown.
func Classify(err error) Verdict {
	// AsType, for the targets of As escape: two allocations an error.
	type timeout interface {
		error
		Timeout() bool
	}
	_, timed := errors.AsType[timeout](err)
	_, errno := errors.AsType[syscall.Errno](err)
	switch {
	case err == nil:
		return OK
	case errors.Is(err, context.Canceled):
		return Ignore
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.ECONNREFUSED),
		errors.Is(err, syscall.ECONNABORTED), errors.Is(err, syscall.EPIPE):
		return Broken
	case timed, errno,
		errors.Is(err, io.ErrNoProgress), errors.Is(err, io.ErrShortWrite), errors.Is(err, io.ErrShortBuffer):
		return Fault
	}
	return Unknown
}

// judges: the verdict says something of the worker's health.
func (v Verdict) judges() bool { return v != Ignore && v != StaleTopology && v != Superseded }

// Outcome is how a request ended, for Choice.DoneWith.
type Outcome struct {
	Err error
	// RTT is the round-trip time; 0 or less: measured from the pick. One over
	// 100 s counts as 100 s.
	RTT time.Duration
	// Verdict overrides the Classifier; zero: Err is classified.
	Verdict Verdict
	// Batch is the number of keys in a multi-key call. Over 0, its latency
	// does not train the worker's: batches differ in size.
	Batch int
	// RetryAfter of an Overload: no picks until it is over, at most 5 min.
	RetryAfter time.Duration
	// Leader is whom the worker named instead (with StaleTopology); handed to
	// Hooks.Refresh.
	Leader string
	// Feedback is what the worker said of itself on this answer.
	Feedback Feedback
}

// Feedback is what a worker can piggyback on an answer. A ServiceTime over 0
// says it is there.
type Feedback struct {
	InService   float64       // requests in the worker when this one left
	ServiceTime time.Duration // its own mean time to serve one, without queueing
}

const (
	maxRetryAfter = 5 * time.Minute
	maxInService  = 1e6
)

// of classifies err with the caller's code isolated; a panic is counted.
func (f Classifier) of(err error, panics *atomic.Uint64) (v Verdict) {
	v = Unknown
	defer func() {
		if recover() != nil {
			panics.Add(1)
		}
	}()
	if got := f(err); got > 0 && got < verdicts {
		v = got
	}
	return v
}
