package ringwise

import (
	"errors"
	"fmt"
	"strings"
)

// Sentinels: test for them with errors.Is, read the detail with errors.AsType.
var (
	// ErrNoWorker: no candidate may serve the request. Detail: *NoWorkerError.
	ErrNoWorker = errors.New("ringwise: no worker")
	// ErrClosed: the Router was closed.
	ErrClosed = errors.New("ringwise: router closed")
	// ErrConfig: an option, a Tuning or a topology is out of range. Detail: *ConfigError.
	ErrConfig = errors.New("ringwise: bad configuration")
	// ErrStaleTopology: a topology older than the one in force.
	ErrStaleTopology = errors.New("ringwise: stale topology")
	// ErrTopologyConflict: the version in force with other content.
	ErrTopologyConflict = errors.New("ringwise: topology conflict")
	// ErrReport: a worker report that was refused whole. Detail: *ReportError.
	ErrReport = errors.New("ringwise: bad report")
)

// ConfigError names one bad value. It unwraps to ErrConfig.
type ConfigError struct {
	Field string // as the caller wrote it: "Workers[3].Weight", "Tuning.Temperature"
	Value any    // what was given
	Want  string // what is allowed: "a number in (0, 1000]"
}

// Error names the field, its value and what is allowed.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("ringwise: %s = %v, want %s", e.Field, e.Value, e.Want)
}

// Unwrap makes errors.Is(err, ErrConfig) true.
func (e *ConfigError) Unwrap() error { return ErrConfig }

// ReportReason says why a report was refused; reports are counted by it.
type ReportReason uint8

// The reasons.
const (
	ReportOK            ReportReason = iota
	ReportUnknownWorker              // no such worker in the topology
	ReportNotFinite                  // a field is NaN or infinite
	ReportOutOfRange                 // a field is outside its range
	ReportFuture                     // timestamp more than 30 s ahead
	ReportBackwards                  // timestamp before the last one
	ReportDuplicate                  // timestamp equal to the last one: dropped, no error
	ReportMalformed                  // the bytes are not a report
	reportReasons
)

var reportReasonNames = [...]string{"ok", "unknown worker", "not finite", "out of range",
	"from the future", "time went back", "duplicate", "malformed"}

func (r ReportReason) String() string {
	if int(r) < len(reportReasonNames) {
		return reportReasonNames[r]
	}
	return "unknown"
}

// ReportError says why a report was refused; nothing of it was stored. It
// unwraps to ErrReport.
type ReportError struct {
	Worker string
	Field  string // empty when the whole report is at fault
	Value  any
	Want   string
	Reason ReportReason
}

// Error names the worker, the field, its value and what is allowed.
func (e *ReportError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("ringwise: report of %q refused: %v", e.Worker, e.Reason)
	}
	return fmt.Sprintf("ringwise: report of %q refused: %s = %v, want %s (%v)", e.Worker, e.Field, e.Value, e.Want, e.Reason)
}

// Unwrap makes errors.Is(err, ErrReport) true.
func (e *ReportError) Unwrap() error { return ErrReport }

// CandidateReason is one candidate and why it was cut.
type CandidateReason struct {
	ID     string
	Reason string
}

// NoWorkerError lists every candidate with the rule that forbids it. It
// unwraps to ErrNoWorker. A ring without workers gives an empty list.
type NoWorkerError struct {
	Candidates []CandidateReason
}

// Error lists the candidates and reasons.
func (e *NoWorkerError) Error() string {
	if len(e.Candidates) == 0 {
		return "ringwise: no worker: the key has no candidates"
	}
	var b strings.Builder
	b.WriteString("ringwise: no worker:")
	for i, c := range e.Candidates {
		if i > 0 {
			b.WriteByte(';')
		}
		fmt.Fprintf(&b, " %s %s", c.ID, c.Reason)
	}
	return b.String()
}

// Unwrap makes errors.Is(err, ErrNoWorker) true.
func (e *NoWorkerError) Unwrap() error { return ErrNoWorker }
