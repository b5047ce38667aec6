package ringwise

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"strconv"

	"github.com/zeebo/xxh3"
)

// Ring places keys on workers by consistent hashing with virtual nodes. It is
// a pure function of the set of (worker ID, weight) and of its options: input
// order and history do not matter, and a change moves only keys that come
// from or go to the changed worker. The rules are a wire format, "placement
// version 1", written down in docs/placement.md.
//
// A Ring is immutable and safe for concurrent use. Locate and Owners cost one
// load from a flat table and allocate nothing when dst has room. A ring of no
// workers is valid and locates nothing.
type Ring struct {
	// All set by the builder, read-only afterwards.

	// A row for each ring slot: its first stride distinct workers clockwise.
	// Rows of three worker slots under 1024 are packed, 10 bits each, and where
	// neighbours repeat only the first of a run is kept (ringruns.go): the less
	// of a core's second-level cache it takes, the faster is a pick (DESIGN.md).
	runs   []runs   // nil where rows seldom repeat: then packed has them all
	packed []uint32 // nil where they do not fit, then
	table  []uint16
	stride int   // min(replicas, workers)
	shift  uint8 // 64 - slotBits

	replicas int
	slotBits uint
	perUnit  int // points of a worker of weight 1

	// points are all virtual nodes clockwise, each the low 16 bits of its
	// position over its worker's slot; the high bits are the ring slot s whose
	// points are points[first[s]:first[s+1]].
	points []uint32
	first  []uint32

	members []placed // sorted by ID
	ids     []string // by worker slot, "" where there is none
	live    []uint64 // bit set of worker slots
	place   placement
}

// RingOptions tune a Ring. Clients that shall agree must use equal Points;
// Replicas only says how many owners a lookup gives.
type RingOptions struct {
	// Points is the number of virtual nodes of a worker of weight 1, 1 to
	// 65536, all workers together at most 16,777,216. More is better balance,
	// 4 bytes each and a slower change, at the same lookup. Default 1000:
	// docs/placement.md has the measured table.
	Points int
	// Replicas is the number of distinct workers a key has, 1 to 16. Default 3.
	Replicas int
}

// NewRing builds a Ring of the IDs and weights of workers. A bad worker or
// option gives a *ConfigError. It takes about 40 ms for 1000 workers.
func NewRing(workers []Worker, o RingOptions) (*Ring, error) {
	if err := validateWorkers(workers); err != nil {
		return nil, err
	}
	if o.Points == 0 {
		o.Points = defaultPoints
	}
	if o.Replicas == 0 {
		o.Replicas = defaultReplicas
	}
	members := make([]member, len(workers))
	for i := range workers {
		members[i] = member{id: workers[i].ID, weight: workers[i].Weight}
	}
	// Slots by ID, so that Refs do not depend on the order of the input either.
	sortByID(members)
	for i := range members {
		members[i].slot = uint16(i)
	}
	return newRing(members, o.Points, defaultSlotBits, o.Replicas)
}

// Locate appends the key's owners to dst, first owner first: Replicas distinct
// workers, or all when there are fewer. It implements Locator; the Refs carry
// generation 0 and RoleAny.
func (r *Ring) Locate(h KeyHash, dst []Ref) []Ref {
	var buf [maxReplicas]uint16
	for _, slot := range r.owners(h, &buf) {
		dst = append(dst, Ref{slot: slot})
	}
	return dst
}

// Owners appends the IDs of the key's owners to dst, as Locate does.
func (r *Ring) Owners(h KeyHash, dst []string) []string {
	var buf [maxReplicas]uint16
	for _, slot := range r.owners(h, &buf) {
		dst = append(dst, r.ids[slot])
	}
	return dst
}

// Len is the number of workers.
func (r *Ring) Len() int { return len(r.members) }

// Points is the number of virtual nodes of worker id, 0 when it is unknown.
// None is ever dropped: points that share a position are ordered by ID.
func (r *Ring) Points(id string) int {
	if i, ok := slices.BinarySearchFunc(r.members, id, placed.compareID); ok {
		return r.members[i].n
	}
	return 0
}

// owners is the key's owners as worker slots, in buf or in the ring itself:
// not to be written to.
func (r *Ring) owners(h KeyHash, buf *[maxReplicas]uint16) []uint16 {
	i := int(uint64(h) >> (r.shift & 63))
	if r.packed != nil {
		if r.runs != nil {
			i = r.runs[i>>6].rowOf(i)
		}
		row := r.packed[i]
		buf[0], buf[1], buf[2] = uint16(row&packMask), uint16(row>>packBits&packMask), uint16(row>>(2*packBits))
		return buf[:3]
	}
	return r.table[i*r.stride : (i+1)*r.stride]
}

const (
	packBits = 10
	packMask = 1<<packBits - 1
)

// row copies the row of a ring slot.
func (r *Ring) row(s int, dst []uint16) {
	if r.packed == nil {
		copy(dst, r.table[s*r.stride:])
		return
	}
	if r.runs != nil {
		s = r.runs[s>>6].rowOf(s)
	}
	for i := range dst {
		dst[i] = uint16(r.packed[s] >> (i * packBits) & packMask)
	}
}

// setRow sets a row of a table without runs.
func (r *Ring) setRow(s int, row []uint16) {
	if r.packed == nil {
		copy(r.table[s*r.stride:], row)
		return
	}
	r.packed[s] = uint32(row[0]) | uint32(row[1])<<packBits | uint32(row[2])<<(2*packBits)
}

// makeTable makes empty rows, packed where they fit.
func (r *Ring) makeTable() {
	r.runs, r.packed, r.table = nil, nil, nil
	if r.packs() {
		r.packed = make([]uint32, 1<<r.slotBits)
	} else {
		r.table = make([]uint16, r.stride<<r.slotBits)
	}
}

func (r *Ring) packs() bool { return r.stride == 3 && len(r.ids) <= 1<<packBits }

// walk appends the first n distinct workers clockwise from the key that are
// not in the bit set skip, fewer when there are not so many; skip may be
// shorter than the slots in use. It is the slow path behind owners: it ends once
// n are found or none is left, at the latest after one turn. n is meant to be
// small, as each point is compared with those found.
func (r *Ring) walk(h KeyHash, skip []uint64, dst []uint16, n int) []uint16 {
	n = min(n, r.usable(skip))
	from := len(dst)
	p := int(r.first[uint64(h)>>(r.shift&63)])
	for left := len(r.points); left > 0 && len(dst)-from < n; left-- {
		if p >= len(r.points) {
			p = 0
		}
		slot := uint16(r.points[p])
		p++
		if !hasBit(skip, slot) && !slices.Contains(dst[from:], slot) {
			dst = append(dst, slot)
		}
	}
	return dst
}

// usable counts the workers not in skip: without it a walk for more workers
// than are left would always take the full turn.
func (r *Ring) usable(skip []uint64) int {
	n := 0
	for i, w := range r.live {
		if i < len(skip) {
			w &^= skip[i]
		}
		n += bits.OnesCount64(w)
	}
	return n
}

func hasBit(set []uint64, slot uint16) bool {
	i := int(slot >> 6)
	return i < len(set) && set[i]>>(slot&63)&1 != 0
}

// Locator supplies the candidates of a key. Ring is one; a client whose store
// places data its own way plugs in another. Locate appends at most 16 Refs to
// dst, best first, must not keep dst, and is called by many goroutines at once.
type Locator interface {
	Locate(h KeyHash, dst []Ref) []Ref
}

// Ref names a worker of a Router without a string: Router.Ref gives it. It is
// comparable. A Ref of a worker that has left is skipped and counted by the
// Router, never taken for another worker; so is one of another Router in the
// process, and of a Ring built with NewRing, whose generation is 0.
type Ref struct {
	gen  uint32 // of the worker slot; each Router has 65,536 for a start
	slot uint16
	role Role
}

// Role is the part the worker plays for the key it was located for.
func (f Ref) Role() Role { return f.role }

// WithRole is f playing another part: for a Locator that knows the primary.
func (f Ref) WithRole(role Role) Ref {
	f.role = role
	return f
}

// KeyHash is the hash of a key. Its high bits choose the owners, so it must
// come from HashOf, HashBytes or HashUint64. Zero means unset; none of them
// gives it.
type KeyHash uint64

// Shards is the number of shard slots: shard = hash & (Shards-1).
const Shards = 512

// HashOf is the hash of a string key: XXH3_64bits with seed 0, and 1 in place
// of 0. The empty key has one too.
func HashOf(key string) KeyHash { return nonzero(xxh3.HashString(key)) }

// HashBytes is the hash of a key held as bytes, equal to HashOf of the same
// bytes. key is not retained.
func HashBytes(key []byte) KeyHash { return nonzero(xxh3.Hash(key)) }

// HashUint64 is the hash of a numeric key or of a hash made elsewhere: that of
// its 8 bytes, little-endian. Small integers spread over the whole ring.
func HashUint64(key uint64) KeyHash {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], key)
	return nonzero(xxh3.Hash(b[:]))
}

// hashOfSeeded is HashOf for a router with WithSeed. A seed that strangers do
// not know keeps them from crafting keys that meet on one worker; XXH3 is no
// cryptographic hash, so it raises the price and is no proof.
func hashOfSeeded(key string, seed uint64) KeyHash {
	if seed == 0 {
		return HashOf(key)
	}
	return nonzero(xxh3.HashStringSeed(key, seed))
}

// hashBytesSeeded is hashOfSeeded for bytes.
func hashBytesSeeded(key []byte, seed uint64) KeyHash {
	if seed == 0 {
		return HashBytes(key)
	}
	return nonzero(xxh3.HashSeed(key, seed))
}

// seeded remixes a hash that came without the key, so that hashes crafted
// under seed 0 do not meet under another. Seed 0 changes nothing.
func (h KeyHash) seeded(seed uint64) KeyHash {
	if seed == 0 {
		return h
	}
	return nonzero(ringMix(uint64(h) ^ seed))
}

// Shard is the shard slot of a key, in [0, Shards). Shards are the low bits,
// owners the high ones.
func (h KeyHash) Shard() int { return int(h & (Shards - 1)) }

func nonzero(h uint64) KeyHash { return KeyHash(max(h, 1)) }

// String is the hash in 16 hexadecimal digits, as in the golden vectors.
func (h KeyHash) String() string {
	s := strconv.FormatUint(uint64(h), 16)
	return "0000000000000000"[len(s):] + s
}
