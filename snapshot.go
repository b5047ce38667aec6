package ringwise

import (
	"time"
)

// node is a worker in one topology: what a Choice points to. Immutable.
type node struct {
	Worker
	slot uint16
	gen  uint32
	st   *workerState
	hub  *hub
}

// Flags of a column.
const (
	flagDown uint32 = 1 << iota
	flagDraining
	flagRecovering
	flagReadOnly
	flagStale
	flagPrimary
	flagReplica
	flagLearner
	flagVersioned // reported a version
	flagUnconfirmed
	flagAbsent // no worker at this slot
	// Per lane, shifted left by the lane: errors unknown to the Classifier
	// count; smoothed figures say observed.
	flagUnknownCounts
	flagUnknownCountsWrite
	flagSick
	flagSickWrite
	flagSaturated // over loadFactor times its usual load
	flagDue       // not picked for dueAfter
)

// column is what a snapshot holds of one worker: half a cache line.
type column struct {
	st    *workerState
	node  *node
	base  [lanes]float32 // ns: what a worker without recent answers is taken for
	pre   float32        // cost factor of health flags and zone
	flags uint32
}

// snapshot is one consistent state of everything a Pick reads but the live
// words. It is replaced whole and never edited after Store: a Pick keeps the
// one it loaded, whatever goes on meanwhile.
type snapshot struct {
	cols  []column
	ring  *Ring
	coef  *coefficients
	fleet [lanes]fleet

	// special are the flags that send a pick of an intent to the filters.
	special [intents]uint32
	direct  bool // ring, live cost and softmax alone: the short path serves
	plain   bool // direct, and no canary runs
	// A pick whose 32 random bits are under it goes the long way, there to be
	// kept, logged or scored in shadow.
	sampleUnder, shadowUnder uint64
	fbOn                     bool // some worker gives feedback

	trial  *trial    // the step of the canary; nil: none runs
	canary *snapshot // this one as the candidate's coefficients see it
	shadow *snapshot // and as the shadow's do

	reports []*reported   // by slot; nil where none was accepted
	nodes   []*node       // by slot; nil where there is none
	down    []uint64      // bit set of slots that are Down
	geo     time.Duration // geometric mean of reported p99s
	base    *baselines    // nil until scorers need them
	gears   bool          // writes lead: Gears is in its write gear
	closed  bool
	live    []uint16 // slots of workers that are in the topology
	byID    map[string]uint16

	topology      Topology
	topologyAt    int64 // ns, when it was set or renewed
	lowConfidence bool  // past its TTL
	tuningVersion uint64
	published     int64
}

func (n *node) ref(role Role) Ref { return Ref{gen: n.gen, slot: n.slot, role: role} }

// word is the worker a Ref names, without its role.
func (f Ref) word() uint64 { return uint64(f.gen)<<16 | uint64(f.slot) }

// local is the same within one Router: equal from run to run, however many
// Routers were made before.
func (f Ref) local() uint64 { return uint64(f.gen&0xffff)<<16 | uint64(f.slot) }
