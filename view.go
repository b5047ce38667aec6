package ringwise

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/ringwise/ringwise/hotkey"
)

// MaxCandidates is the most workers one request chooses among.
const MaxCandidates = 16

// Request is one call to be routed. The zero Request has no key, so it fails
// unless Any, Among or Hash says where its candidates come from.
type Request struct {
	// Key places the request on the ring; KeyBytes does the same without a
	// conversion, is never retained and is not shown to plugs; Hash (HashOf,
	// HashBytes, HashUint64) does it without hashing. Give one: Hash goes
	// before Key, Key before KeyBytes.
	Key      string
	KeyBytes []byte
	Hash     KeyHash

	Intent     Intent
	MinVersion uint64 // least version a worker must have reported; 0: any
	Tenant     string // for WithQuota and View.Kind; empty: what WithKeyParser reads

	// Start is when the caller began, if it read the clock anyway: saves Pick
	// a clock read, half its time. Zero: Pick reads the clock.
	Start time.Time
	// Timeout overrides Tuning.RequestTimeout for this request; 0: does not.
	Timeout time.Duration

	// Idempotent allows Do to retry and to hedge.
	Idempotent bool
	// Stream keeps the reservation from expiring, like Choice.Extend.
	Stream bool
	// Any draws min(16, n) workers afresh instead of asking the ring.
	Any bool
	// SpreadRacks keeps racks apart: in Plan, and the copy of Hedge and Do from
	// the first, as long as there is a worker that allows it.
	SpreadRacks bool
	// Canary asks for the candidate Tuning, where a canary runs.
	Canary bool
	// Among are the only candidates, with their roles, first ones preferred
	// where roles decide. Over 16: the first 16, counted.
	Among []Ref
	// Tried are workers not to be used again for this call.
	Tried *Tried
	// Size is how many units in flight the request counts as; 0: 1, over 255: 255.
	Size uint32
}

// Tried is a set of at most 16 workers a call has been sent to already. Its
// zero value is empty and ready; it is safe for concurrent use and must not
// be copied after first use.
type Tried struct {
	n    atomic.Int32
	refs [MaxCandidates]atomic.Uint64
}

// Add puts a worker into the set; it reports false where the set is full.
func (t *Tried) Add(r Ref) bool { return t.addWord(r.word()) }

func (t *Tried) addWord(w uint64) bool {
	if t.hasWord(w) {
		return true
	}
	for {
		n := t.n.Load()
		if n >= MaxCandidates {
			return false
		}
		if t.n.CompareAndSwap(n, n+1) {
			t.refs[n].Store(w)
			return true
		}
	}
}

// Len is the number of workers in the set.
func (t *Tried) Len() int {
	if t == nil {
		return 0
	}
	return int(t.n.Load())
}

func (t *Tried) has(r Ref) bool { return t.hasWord(r.word()) }

func (t *Tried) hasWord(w uint64) bool {
	for i := range t.Len() {
		if t.refs[i].Load() == w {
			return true
		}
	}
	return false
}

// Mask is the candidates a filter may still cut.
type Mask uint16

// Has tells whether candidate i is still in.
func (m *Mask) Has(i int) bool { return *m>>uint(i)&1 != 0 }

// Clear cuts candidate i.
func (m *Mask) Clear(i int) { *m &^= 1 << uint(i) }

// Len is the number of candidates still in.
func (m *Mask) Len() int { return bits.OnesCount16(uint16(*m)) }

// View is what plugs see of one pick: the candidates, the request and one
// snapshot of worker state. It is valid during the call only. Candidates are
// numbered 0 to Len-1 in ring order.
type View struct {
	sn        *snapshot
	req       Request
	now       int64
	lane      int
	hash      KeyHash
	plainHash KeyHash // without WithSeed: what workers know the key by
	scored    bool    // total is filled
	key       parsedKey
	keyBuf    [128]byte // for a parser that folds
	group     int       // of a canary
	tried     bool      // the choice is a try of one not picked for long

	// The first n candidates are in, those up to all were cut.
	n, all int
	idx    [MaxCandidates]uint16
	role   [MaxCandidates]Role

	why       [MaxCandidates]reason
	w         [MaxCandidates]float64 // cost^-k, then times share; 0 is out
	factor    [MaxCandidates]float64 // penalty share; 0 is out
	relaxed   Relaxed
	truncated bool // Among or the Locator named more than 16
	directed  bool // the directory named a candidate
	panic     bool // a worker in cooldown was let in
	ramp      bool // some candidate is ramping
	seen      live
	mix       uint64 // of the candidates' tickets
	chosen    int    // of Explain and samples; -1: nobody

	total [MaxCandidates]float64 // combined score in points, not clamped
	// What scorers said, for those whose bit is set: decisions show it.
	said    uint32
	points  [MaxScorers][MaxCandidates]float64
	scratch [MaxCandidates]float64
	// What plugs get a pointer to: on the stack it would escape, one
	// allocation a pick.
	rnd  Rand
	mask Mask
	refs [MaxCandidates]Ref
	rec  *recorder // of Explain; nil in a Pick
	cap  captured
}

// parsedKey is what a pick knows of its key.
type parsedKey struct {
	entity string
	kind   KeyHash // of tenant and entity; 0: none
	slot   uint32
	parsed bool
	heat   hotkey.Kind
	heated bool // heat is known
}

// captured is what the live words said at the time of the pick.
type captured struct {
	latency, cost [MaxCandidates]float64
	inFlight      [MaxCandidates]int
	pen           [MaxCandidates]penalty
}

// capture reads the live words of all candidates.
func (v *View) capture() {
	for i := range v.all {
		if v.sn.cols[v.idx[i]].st == nil {
			continue
		}
		v.cap.latency[i], v.cap.cost[i] = v.latency(i), v.cost(i)
		v.cap.inFlight[i] = v.InFlight(i)
		v.cap.pen[i] = v.col(i).st.lane[v.lane].pen.load()
	}
}

// recorder keeps what a Pick would throw away.
type recorder struct {
	names   []string
	weights []float64
	scorer  []int // of the Router; -1 for live cost
	columns [][MaxCandidates]float64
}

// Len is the number of candidates. Scorers and pickers see only those that
// passed the filters.
func (v *View) Len() int { return v.n }

// Worker is candidate i; not to be changed.
func (v *View) Worker(i int) *Worker { return &v.col(i).node.Worker }

// Ref names candidate i in Among, Tried and a Locator.
func (v *View) Ref(i int) Ref { return v.col(i).node.ref(v.role[i]) }

// Role is candidate i's role for this request.
func (v *View) Role(i int) Role { return v.role[i] }

// InFlight is the units this client has reserved on candidate i.
func (v *View) InFlight(i int) int { return v.col(i).st.inFlight() }

// Latency is what this client expects of candidate i now, before load.
func (v *View) Latency(i int) time.Duration {
	return nanos(v.latency(i))
}

func (v *View) latency(i int) float64 {
	col := v.col(i)
	n := uint64(col.st.inFlight())
	return v.sn.coef.latency(&col.st.lane[v.lane], float64(col.base[v.lane]), col.st.busy.Load(), n, v.now)
}

// Live is candidate i's live cost score: 70 is the fleet's mean, 7 points are
// a factor of 2, clamped to 0..100.
func (v *View) Live(i int) float64 { return points(v.cost(i)) }

// cost is candidate i's expected cost relative to the fleet's mean.
func (v *View) cost(i int) float64 {
	col, c, f := v.col(i), v.sn.coef, &v.sn.fleet[v.lane]
	load := 1 + c.load*float64(col.st.inFlight())
	if v.sn.fbOn {
		load += c.feedback(&col.st.lane[v.lane], f, v.now)
	}
	return v.latency(i) * load * float64(col.pre) * f.inv
}

// Factor is the share of its normal traffic the penalty machine leaves
// candidate i, in (0, 1].
func (v *View) Factor(i int) float64 {
	if f := v.factor[i]; f > 0 {
		return f
	}
	return 1
}

// Report is candidate i's last accepted report and whether it is fresh.
func (v *View) Report(i int) (rep *Report, fresh bool) {
	if r := v.reported(i); r != nil {
		return &r.Report, v.col(i).flags&flagStale == 0
	}
	return nil, false
}

// reported is candidate i's last report with its windows, nil where there is
// none.
func (v *View) reported(i int) *reported {
	if slot := int(v.idx[i]); slot < len(v.sn.reports) {
		return v.sn.reports[slot]
	}
	return nil
}

// Intent, Key and Tenant are the request's.
func (v *View) Intent() Intent { return v.req.Intent }

// Key is the request's key; empty where it came as bytes or hash.
func (v *View) Key() string { return v.req.Key }

// Tenant is the request's tenant.
func (v *View) Tenant() string { return v.req.Tenant }

// Size is the request's units in flight.
func (v *View) Size() uint32 { return max(v.req.Size, 1) }

// Slot is the key's shard slot, 0..511: what the parser says, else the low
// bits of its hash. False where the request has no key.
func (v *View) Slot() (slot int, ok bool) {
	if v.key.parsed {
		return int(v.key.slot & (Shards - 1)), true
	}
	return int(v.plainHash & (Shards - 1)), v.plainHash != 0
}

func (v *View) col(i int) *column { return &v.sn.cols[v.idx[i]] }

func badIntent(i Intent) error {
	return &ConfigError{"Request.Intent", uint8(i), "Unspecified, Read, StrongRead, Write or Pinned"}
}

// saturated: every candidate has far more in flight than usual.
func (v *View) saturated() bool {
	if v.seen.flags&flagSaturated == 0 {
		return false
	}
	for i := range v.n {
		if v.col(i).flags&flagSaturated == 0 {
			return false
		}
	}
	return true
}
