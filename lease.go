package ringwise

import "sync/atomic"

// A lease is a reservation in flight, in one word:
//
//	bits  0-42 ticket: the worker's issued count before it, in units
//	bits 43-50 size in units, 1..255
//	bits 51-58 generation of the lane's penalty at the pick
//	bit  59    lane
//	bit  60    a probe
//	bits 61-63 what may change while it is held: stream, first byte seen,
//	           expired (given back already, kept so that a late Done is heard)
//
// The word stands in a slot of its worker until it is closed. The ticket
// tells one lease from the next, so closing is exactly-once and a copy of a
// Choice is harmless; its order tells the age, so expiry needs no clock.
const (
	leaseTicketBits = 43
	leaseTicketMask = 1<<leaseTicketBits - 1
	leaseSizeShift  = 43
	leaseGenShift   = 51
	leaseLane       = 1 << 59
	leaseProbe      = 1 << 60
	leaseStream     = 1 << 61
	leaseFirstByte  = 1 << 62
	leaseExpired    = 1 << 63
	leaseIdentity   = leaseStream - 1

	maxSize = 255
)

func leaseSize(l uint64) uint64 { return l >> leaseSizeShift & 0xff }
func leaseGen(l uint64) uint8   { return uint8(l >> leaseGenShift) }
func leaseLaneOf(l uint64) int  { return int(l >> 59 & 1) }

// Slots: 16 with the worker, then segments that are allocated once, when the
// ones before are full. A lease that finds no place (over 69,000 in flight on
// one worker) is not tracked: it is counted and its Done does nothing.
const (
	leaseProbes     = 16 // slots tried in a segment
	leaseUntracked  = 1<<17 - 1
	leaseFirstShift = 8 // segment sizes 2^8, 2^12, 2^16
)

func segmentSize(seg int) int { return 1 << (leaseFirstShift + 4*seg) }

// reserve issues a ticket and finds its lease a slot. quiet: it is to be
// stored first since when the worker is busy (live.quiet).
func (st *workerState) reserve(now int64, size uint64, quiet bool, bits uint64) (lease uint64, pos uint32) {
	if quiet {
		st.busy.Store(now)
	}
	ticket := st.issued.Add(size) - size
	lease = ticket&leaseTicketMask | size<<leaseSizeShift | bits
	i := uint32(ticket) & 7
	if st.slots[i].Load() == 0 && st.slots[i].CompareAndSwap(0, lease) {
		return lease, i
	}
	return lease, st.findSlot(lease, i)
}

// findSlot is the rare rest of reserve.
func (st *workerState) findSlot(lease uint64, start uint32) uint32 {
	for _, takeExpired := range [...]bool{false, true} {
		for i := range uint32(len(st.slots)) {
			j := (start + i) % uint32(len(st.slots))
			if takeSlot(&st.slots[j], lease, takeExpired) {
				return j
			}
		}
		base := uint32(len(st.slots))
		for seg := range leaseSegments {
			size := segmentSize(seg)
			p := st.more[seg].Load()
			if p == nil {
				if takeExpired {
					break
				}
				fresh := make([]atomic.Uint64, size)
				if p = &fresh; !st.more[seg].CompareAndSwap(nil, p) {
					p = st.more[seg].Load()
				}
			}
			first := uint32(lease*0x9e3779b97f4a7c15>>40) & uint32(size-1)
			for i := range uint32(leaseProbes) {
				j := (first + i) & uint32(size-1)
				if takeSlot(&(*p)[j], lease, takeExpired) {
					return base + j
				}
			}
			base += uint32(size)
		}
	}
	return leaseUntracked
}

// takeSlot puts a lease into a free slot or, where asked to, over one whose
// lease expired and was never heard of again.
func takeSlot(s *atomic.Uint64, lease uint64, takeExpired bool) bool {
	old := s.Load()
	if old == 0 || takeExpired && old&leaseExpired != 0 {
		return s.CompareAndSwap(old, lease)
	}
	return false
}

// slot finds the slot of a position that reserve gave out.
func (st *workerState) slot(pos uint32) *atomic.Uint64 {
	if pos < uint32(len(st.slots)) {
		return &st.slots[pos]
	}
	pos -= uint32(len(st.slots))
	for seg := range leaseSegments {
		if size := uint32(segmentSize(seg)); pos >= size {
			pos -= size
			continue
		}
		if p := st.more[seg].Load(); p != nil {
			return &(*p)[pos]
		}
		break
	}
	return nil
}

// take closes a lease: the first of all copies gets its word as it stood, the
// others zero.
func (st *workerState) take(lease uint64, pos uint32) uint64 {
	s := st.slot(pos)
	if s == nil {
		return 0
	}
	for {
		old := s.Load()
		if (old^lease)&leaseIdentity != 0 {
			return 0
		}
		if s.CompareAndSwap(old, 0) {
			return old
		}
	}
}

// mark sets bits of a lease that is still held and returns its word from
// before, zero where it is closed.
func (st *workerState) mark(lease uint64, pos uint32, bits uint64) uint64 {
	s := st.slot(pos)
	if s == nil || lease == 0 { // of a Plan: it would match a free slot
		return 0
	}
	for {
		old := s.Load()
		if (old^lease)&leaseIdentity != 0 {
			return 0
		}
		if s.CompareAndSwap(old, old|bits) {
			return old
		}
	}
}

// olderThan compares tickets that wrap.
func olderThan(lease, ticket uint64) bool {
	return (lease-ticket)&leaseTicketMask > leaseTicketMask/2
}

// sweep expires what was reserved before ticket expire, and forgets expired
// leases from before ticket forget. release is called for each one expired,
// which the sweep has given back already but for its units.
func (st *workerState) sweep(expire, forget uint64, release func(lease uint64)) {
	visit := func(s *atomic.Uint64) {
		l := s.Load()
		switch {
		case l == 0:
		case l&leaseExpired != 0:
			if olderThan(l, forget) {
				s.CompareAndSwap(l, 0)
			}
		case l&leaseStream == 0 && olderThan(l, expire):
			if s.CompareAndSwap(l, l|leaseExpired) {
				release(l)
			}
		}
	}
	for i := range st.slots {
		visit(&st.slots[i])
	}
	for seg := range st.more {
		if p := st.more[seg].Load(); p != nil {
			for i := range *p {
				visit(&(*p)[i])
			}
		}
	}
}

// The meta word: bits 0-16 the lease's position, 17-19 and 26-31 flags, 20-25
// Relaxed, 32-63 the request's time-out in us, rounded up.
const (
	metaPosMask       = 1<<17 - 1
	metaSaturated     = 1 << 17
	metaCanary        = 1 << 18 // of the canary's group, else of its control
	metaRelaxedShift  = 20
	metaLowConfidence = 1 << 26
	metaPanic         = 1 << 27
	metaReserved      = 1 << 28 // without it nothing is to be given back
	metaHedgeable     = 1 << 29 // an idempotent read
	metaCopy          = 1 << 30 // the copy of another
	metaCounted       = 1 << 31 // in a group of a canary, so its end takes the long way
	metaTimeoutShift  = 32
)

func timeoutMeta(d int64) uint64 {
	return uint64(min(max(d, 0)+999, (1<<32-1)*1000)/1000) << metaTimeoutShift
}

// takeAnon closes the oldest anonymous reservation, if there is one.
func (st *workerState) takeAnon(n uint64) uint64 {
	for {
		closed := st.anonClosed.Load()
		n := min(n, st.anonIssued.Load()-closed)
		if n == 0 || st.anonClosed.CompareAndSwap(closed, closed+n) {
			return n
		}
	}
}
