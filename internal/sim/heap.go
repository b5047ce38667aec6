package sim

// event is something that happens at time t. What it is sits in x: the kind,
// the generation of the slot and the slot (see pack).
type event struct {
	t int64 // nanoseconds since the start of the run
	x uint64
}

// pack builds event.x: 4 bits kind, 28 bits generation, 32 bits slot.
func pack(kind uint64, gen, slot uint32) uint64 {
	return kind<<60 | uint64(gen&genMask)<<32 | uint64(slot)
}

const genMask = 1<<28 - 1

// heap is a 4-ary min-heap of events. Four children lie in one cache line, so
// it is shallower than a binary heap at the same number of lines touched. The
// order of events with equal times depends only on the order of the calls.
type heap struct {
	ev []event
}

func (h *heap) push(e event) {
	h.ev = append(h.ev, e)
	s := h.ev
	i := len(s) - 1
	for i > 0 {
		p := (i - 1) >> 2
		if s[p].t <= e.t {
			break
		}
		s[i] = s[p]
		i = p
	}
	s[i] = e
}

func (h *heap) pop() event {
	s := h.ev
	top := s[0]
	n := len(s) - 1
	e := s[n]
	s = s[:n]
	h.ev = s
	if n == 0 {
		return top
	}
	i := 0
	for {
		c := i<<2 + 1
		if c >= n {
			break
		}
		m, mt := c, s[c].t
		for j := c + 1; j < min(c+4, n); j++ {
			if s[j].t < mt {
				m, mt = j, s[j].t
			}
		}
		if mt >= e.t {
			break
		}
		s[i] = s[m]
		i = m
	}
	s[i] = e
	return top
}

// fifo is a queue in a ring that grows; it holds events whose times never go
// back, which is what a constant delay gives, so they need no heap.
type fifo[T any] struct {
	buf        []T
	head, size int
}

func (q *fifo[T]) push(v T) {
	if q.size == len(q.buf) {
		old := q.buf
		q.buf = make([]T, max(16, 2*len(old)))
		n := copy(q.buf, old[q.head:])
		copy(q.buf[n:], old[:q.head])
		q.head = 0
	}
	q.buf[(q.head+q.size)&(len(q.buf)-1)] = v
	q.size++
}

func (q *fifo[T]) front() *T { return &q.buf[q.head] }

func (q *fifo[T]) pop() T {
	v := q.buf[q.head]
	q.head = (q.head + 1) & (len(q.buf) - 1)
	q.size--
	return v
}
