package sim

import "math/rand/v2"

// Policy is the state of one client: it sees that client's requests and
// answers, and what workers report, but no truth. Calls come from one
// goroutine with times that never go back.
type Policy interface {
	// Pick returns an index into cands, the workers that hold the key in ring
	// order. The request is sent at once, so a policy that counts in flight
	// counts here.
	Pick(q *Query, cands []int) int
	// Done tells how an attempt ended. It comes exactly once a Pick, save in
	// scenarios that lose some.
	Done(d *Done)
}

// Reporter is a Policy that listens to the reports of workers.
type Reporter interface{ Report(r *Report) }

// Ticker is a Policy with work of its own to do over time: Tick runs at the
// start and then whenever the time it returned has come.
type Ticker interface{ Tick(now int64) (next int64) }

// Hedger is a Policy that may send copies of a request that takes long.
type Hedger interface {
	// HedgeAfter is asked once a request, right after Pick. The delay counts
	// from the Pick; ok is false when no copy is wanted.
	HedgeAfter(ref uint32) (delay int64, ok bool)
	// PickHedge chooses the worker of the copy, an index into cands, or -1
	// for no copy after all. first is the attempt that takes long.
	PickHedge(q *Query, cands []int, first uint32) int
}

// Retrier is a Policy that may send a failed request again.
type Retrier interface {
	// PickRetry comes after the Done of the attempt failed; -1 gives up.
	PickRetry(q *Query, cands []int, failed uint32) int
}

// Query is a request as its client sees it when it chooses.
type Query struct {
	Now       int64  // nanoseconds since the start of the run
	Ref       uint32 // names the attempt until its Done: small, reused afterwards
	Request   uint64 // index in order of arrival, the same for each policy
	Hash      uint64 // of the key
	Timeout   int64  // nanoseconds; the client gives up then
	Partition int32  // which candidates: equal partition, equal candidates
	Tenant    int32  // whose it is; -1: nobody's
	Write     bool
}

// Verdict is how an attempt ended.
type Verdict uint8

const (
	OK         Verdict = iota
	Failed             // the worker answered with a fault of its own
	Broken             // the connection broke, or was refused
	TimedOut           // no answer within the time-out
	AppError           // the application answered with an error (a miss, a bad request)
	Superseded         // another copy of the request answered first
)

// Done is the end of one attempt.
type Done struct {
	Now     int64 // nanoseconds since the start of the run
	RTT     int64 // nanoseconds from Pick to now
	Timeout int64 // nanoseconds, as in Query
	Ref     uint32
	Worker  int32
	Verdict Verdict
	Write   bool
	// Feedback is true when the answer carried the two figures below.
	Feedback  bool
	InService int32 // requests inside the worker when this one left, itself not counted
	Service   int64 // the worker's own mean service time, nanoseconds
}

// Bad tells whether the attempt counts as a failure of the worker.
func (d *Done) Bad() bool { return d.Verdict == Failed || d.Verdict == Broken || d.Verdict == TimedOut }

// Report is what a worker says of itself once an interval.
type Report struct {
	At         int64 // when it was measured, nanoseconds since the start of the run
	Worker     int
	CPU        float64 // share of its slots busy over the interval, 0..1
	Queue      int     // requests inside
	Rate       float64 // requests finished a second over the interval
	Mean       int64   // nanoseconds a request spent inside, mean over the interval
	P99        int64   // the same, 99th percentile
	ErrorRate  float64 // share of failures over the interval
	Compacting bool
	Tenants    []uint32 // requests of each tenant; nil where there are none
}

// Env is what a policy is built from.
type Env struct {
	Scenario *Scenario
	Options  Options
	Client   int
	Seed     uint64
	Rand     *rand.Rand // of this client alone
	Truth    *Truth     // for the oracle only
}

// Factory builds the state of one client.
type Factory struct {
	Name   string
	Source string // the paper or source file the rule comes from
	// Feedback says that answers carry the worker's own figures.
	Feedback bool
	New      func(e *Env) Policy
}
