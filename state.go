package ringwise

import (
	"sync/atomic"
	"time"
)

// lanes: reads (and unspecified requests) and writes have each their own
// latency, failures and penalty; requests in flight are shared.
const (
	laneRead = iota
	laneWrite
	lanes
)

func laneOf(i Intent) int {
	if i == Write {
		return laneWrite
	}
	return laneRead
}

// leaseSegments is how many tables of leases a worker may come to have.
const leaseSegments = 3

// workerState is what changes with each request. It outlives topologies as
// long as the worker keeps its ID and Incarnation. The first 64 bytes are all
// that a read needs of a candidate; the size is a multiple of 64 that Go's
// allocator aligns to 64, which TestWorkerState_Layout holds.
type workerState struct {
	// issued counts units reserved (a ticket); closed counts units given back
	// per lane in its low 24 bits and sums their RTT, in 32 ns, above: a sum
	// that overflows drops out at the top. In flight = issued - closed.
	issued atomic.Uint64
	closed [lanes]atomic.Uint64
	// busy is since when something is in flight. It is stored before the
	// ticket is issued: the other way round a reader sees false silence.
	busy atomic.Int64
	lane [lanes]laneState

	// What fills the line of the write lane changes seldom or never.
	rtt     [lanes]atomic.Pointer[rttHistogram] // nil until the lane's first answer
	cold    *coldState
	retryAt atomic.Int64 // ns; an Overload verdict came then, or asked for no picks until then

	// Leases: see lease.go. The first eight are one line.
	slots [16]atomic.Uint64
	more  [leaseSegments]atomic.Pointer[[]atomic.Uint64]

	// Anonymous reservations, of StartWorker: the oldest closes first.
	anonIssued, anonClosed atomic.Uint64
	credit                 atomic.Int64  // of smooth weighted round robin
	failed                 [lanes]counts // failures
	unknown                [lanes]counts // errors the Classifier does not know
	neutral                [lanes]counts // units closed with the fleet's mean for an RTT
	void                   [lanes]counts // those of them that were no answer

	waited [lanes]counts // ns of RTT over the service times that workers told
}

type counts struct{ atomic.Uint64 }

// laneState is half a cache line. lat and mem are packed words (cost.go).
type laneState struct {
	lat atomic.Uint64
	mem atomic.Uint64
	pen penaltyWord
	fb  atomic.Uint64 // what the worker said of itself on its last answer
}

// coldState is what only the fold, reports and topology changes touch, under
// the writer lock.
type coldState struct {
	lane   [lanes]coldLane
	marks  [2]uint64 // tickets as of half and one request time-out ago
	tombs  [2]uint64 // tickets under which expired leases are, or will be, forgotten
	forgot uint64    // tombs[0] as of the last sweep
	anon   [2]uint64 // anonIssued, likewise
	marked int64     // when marks moved last
	turns  uint64    // how often they have
	leaks  uint64    // reservations that expired

	clock reportClock
	last  *reported // nil until it reports; what the snapshot has
	taken int64     // when the last report arrived, ns
	meter *meter    // nil until it reports

	state State
	watch workerWatch
	heard int64 // as of the last fold that saw an answer, or when it joined; ns
	probe probeState
}

// probeState is what probes say of a worker.
type probeState struct {
	asked  int64 // when the hook was last told, ns
	result int64 // when the last result came, ns
	fails  int   // in a row
}

type coldLane struct {
	closed, failed              uint64  // as of the last fold
	unknown, neutral, void      uint64  // likewise
	waited                      uint64  // likewise
	answers, failures, unknowns float64 // fading counts behind the rates

	lowScores int   // folds in a row under TripScore
	lowGen    uint8 // of the penalty they belong to
	failing   bool  // over ErrorRateHigh and not yet under ErrorRateLow
	slow      bool  // over SlowRatio times the fleet
	sick      bool  // failing, slow or of failed health
	turned    int64 // since when slow looks to have changed; 0: it does not
	told      int   // folds since then in which the worker answered or was silent
}

func newWorkerState() *workerState {
	return &workerState{cold: &coldState{}}
}

// reported is a worker's last accepted report with what its windows say.
// Immutable once published.
type reported struct {
	Report
	readings
	keyStats
	every int64 // smoothed interval of its reports, ns
}

// report is the worker's last, one that says nothing where there is none.
func (c *coldState) report() *Report {
	if c.last == nil {
		return &noReport
	}
	return &c.last.Report
}

var noReport Report

// record counts an answer of a lane.
func (st *workerState) record(ln int, rtt time.Duration) {
	h := st.rtt[ln].Load()
	if h == nil {
		st.rtt[ln].CompareAndSwap(nil, new(rttHistogram))
		h = st.rtt[ln].Load()
	}
	h.record(rtt)
}

// answers are the RTTs of a lane.
func (st *workerState) answers(ln int) RTTStats {
	if h := st.rtt[ln].Load(); h != nil {
		return h.stats()
	}
	return RTTStats{}
}

// heard ends the silence of both lanes at an answer on one, where both are in
// use: what is in flight is not told apart.
func (st *workerState) heard(ln int, now int64) {
	if st.lane[ln&1^1].lat.Load() != 0 {
		st.busy.Store(now)
	}
}

const inFlightMask = 1<<24 - 1

// inFlight is the units reserved and not given back.
func (st *workerState) inFlight() int {
	c := st.closed[laneRead].Load() + st.closed[laneWrite].Load()
	return int((st.issued.Load() - c) & inFlightMask)
}
