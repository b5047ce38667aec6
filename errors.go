package ringwise

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
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
	// ErrCanary: not while a canary runs, or only while one does. The text
	// names the one that runs.
	ErrCanary = errors.New("ringwise: canary")
	// ErrReport: a worker report that was refused whole. Detail: *ReportError.
	ErrReport = errors.New("ringwise: bad report")
)

// ConfigError names one bad value. It unwraps to ErrConfig.
type ConfigError struct {
	Field string // as the caller wrote it: "Workers[3].Weight", "Tuning.Temperature"
	Value any    // what was given
	Want  string // what is allowed: "a number in (0, 1000]"
}

// Error names the field, its value and what is allowed; of a long value the
// first 100 bytes.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("ringwise: %s = %s, want %s", shorten(e.Field), shorten(fmt.Sprint(e.Value)), e.Want)
}

// maxShown is how many bytes of a value the text of an error repeats; the
// error itself holds all of it.
const maxShown = 100

// shorten cuts between runes, where there are any.
func shorten(s string) string {
	if len(s) <= maxShown {
		return s
	}
	cut := maxShown
	for cut > maxShown-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
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
	who := fmt.Sprintf("report of %q", shorten(e.Worker))
	switch {
	case e.Worker != "":
	case e.Reason == ReportUnknownWorker:
		return "ringwise: report refused: Report.Worker is missing, worker_id in JSON (unknown worker)"
	default:
		who = "report"
	}
	if e.Field == "" {
		return fmt.Sprintf("ringwise: %s refused: %v", who, e.Reason)
	}
	return fmt.Sprintf("ringwise: %s refused: %s = %s, want %s (%v)", who, shorten(e.Field), shorten(fmt.Sprint(e.Value)), e.Want, e.Reason)
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
		fmt.Fprintf(&b, " %s %s", shorten(c.ID), c.Reason)
	}
	return b.String()
}

// Unwrap makes errors.Is(err, ErrNoWorker) true.
func (e *NoWorkerError) Unwrap() error { return ErrNoWorker }
