package ringwise

import (
	"fmt"
	"time"
)

// Role is a worker's part in the replication of a shard.
type Role uint8

// Write, StrongRead and Pinned requests go to the primary where a candidate
// has that role; a learner serves weak reads only.
const (
	RoleAny Role = iota
	RolePrimary
	RoleReplica
	RoleLearner
)

var roleNames = [...]string{"any", "primary", "replica", "learner"}

func (r Role) String() string { return nameOf(roleNames[:], int(r)) }

// Intent is what a request wants to do.
type Intent uint8

// The intents.
const (
	// Unspecified passes all filters of a Write, uses the read lane and is
	// never hedged: safe when the caller does not say.
	Unspecified Intent = iota
	// Read takes any candidate new enough for MinVersion, preferring but not
	// insisting on it.
	Read
	// StrongRead needs a worker at MinVersion or newer, the primary where one
	// exists.
	StrongRead
	// Write needs a worker that is not read-only, the primary where one
	// exists, and has a health lane of its own.
	Write
	// Pinned goes to the primary, else to the first candidate that is not
	// Down, whatever its penalty (lightweight transactions, leases).
	Pinned
	intents
)

var intentNames = [...]string{"unspecified", "read", "strong-read", "write", "pinned"}

func (i Intent) String() string { return nameOf(intentNames[:], int(i)) }

// State is a worker's connectivity as the caller's own events tell it.
type State uint8

// Up is the zero value. Down is never relaxed; Draining only when nothing
// else is left.
const (
	Up State = iota
	Down
	Draining
)

var stateNames = [...]string{"up", "down", "draining"}

func (s State) String() string { return nameOf(stateNames[:], int(s)) }

func nameOf(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "unknown"
}

// IOClass ranks a worker's storage.
type IOClass uint8

// IO classes from the slowest to the fastest; zero is not known.
const (
	IOUnknown IOClass = iota
	IOSlow
	IONormal
	IOFast
)

// Worker is one server behind the router. Once given to a Router it is
// immutable: a change comes with the next topology.
type Worker struct {
	// ID is the stable name that placement hashes; never a dial address,
	// which may change under it. Required, at most 255 bytes.
	ID string
	// Addr is where the caller dials; ringwise only carries it.
	Addr string
	// Weight is the worker's share of the ring against its peers, in
	// (0, 1000]. Zero means 1.
	Weight float64
	// Incarnation changes when a new process takes the name: statistics,
	// penalties and reservations of the old one are dropped.
	Incarnation uint64
	// Zone and Rack are failure domains. Racks count within a zone.
	Zone, Rack string
	// Role is the part it plays for all its keys; a Locator or Among may say
	// more by key. Default RoleAny.
	Role Role
	// Storage is its capacity in bytes, Bandwidth in bytes a second, IO the
	// class of its disks; zero is not known.
	Storage, Bandwidth uint64
	IO                 IOClass
}

// Topology is the full set of workers, replacing the one before.
type Topology struct {
	// Epoch rises when the control plane is rebuilt and its versions start
	// anew; Version rises with each change. Older ones are refused. Both zero
	// means unversioned: always the newest, until a versioned one is set.
	Epoch, Version uint64
	// TTL is how long the topology may be believed without being renewed.
	// Zero, the default, is for ever.
	TTL     time.Duration
	Workers []Worker
}

// Limits of a topology. One more: workers x weight x WithPoints is at most
// 16,777,216, so 16,777 workers of weight 1, or 16 of weight 1000, at the
// default points; take fewer points above that, for all clients at once.
const (
	MaxWorkers  = 65_534 // dense slots are 16 bits wide
	MaxWeight   = 1000.0
	maxIDLength = 255
)

// validateWorkers checks what no ring or table can hold.
func validateWorkers(ws []Worker) error {
	if len(ws) > MaxWorkers {
		return &ConfigError{"Workers", len(ws), fmt.Sprintf("at most %d workers", MaxWorkers)}
	}
	seen := make(map[string]int, len(ws))
	for i := range ws {
		w := &ws[i]
		field := func(name string) string { return fmt.Sprintf("Workers[%d].%s", i, name) }
		if w.ID == "" || len(w.ID) > maxIDLength {
			return &ConfigError{field("ID"), fmt.Sprintf("%.40q", w.ID), "a name of 1 to 255 bytes"}
		}
		if j, dup := seen[w.ID]; dup {
			return &ConfigError{field("ID"), fmt.Sprintf("%q", w.ID), fmt.Sprintf("a unique name; Workers[%d] has it too", j)}
		}
		seen[w.ID] = i
		if !(w.Weight >= 0 && w.Weight <= MaxWeight) {
			return &ConfigError{field("Weight"), w.Weight, "a number in [0, 1000], 0 meaning 1"}
		}
		if w.Role > RoleLearner {
			return &ConfigError{field("Role"), uint8(w.Role), "RoleAny, RolePrimary, RoleReplica or RoleLearner"}
		}
		if w.IO > IOFast {
			return &ConfigError{field("IO"), uint8(w.IO), "IOUnknown, IOSlow, IONormal or IOFast"}
		}
	}
	return nil
}

// validate checks everything but the version order, which needs the router.
func (t *Topology) validate() error {
	if t.TTL < 0 {
		return &ConfigError{"Topology.TTL", t.TTL, "a duration of at least 0, 0 meaning for ever"}
	}
	return validateWorkers(t.Workers)
}

// sameWorkers tells whether two topologies have equal content in any order.
func sameWorkers(a, b []Worker) bool {
	if len(a) != len(b) {
		return false
	}
	byID := make(map[string]*Worker, len(a))
	for i := range a {
		byID[a[i].ID] = &a[i]
	}
	for i := range b {
		if w := byID[b[i].ID]; w == nil || *w != b[i] {
			return false
		}
	}
	return true
}
