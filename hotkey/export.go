package hotkey

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"
)

// The layout stands in the package documentation.
const (
	exportMagic  = "RWH\x01"
	headerSize   = 128
	sumAt        = 8
	takenAt      = 16
	tickAt       = 24
	sourceAt     = 32
	floorAt      = 40
	totalAt      = 48
	keySize      = 8 + 8 + lanes*slots*4 + 2
	cutBit       = 1 << 15
	maxExportKey = maxCapacity
	maxMissed    = 1 << 48
)

// Export appends this Tracker's n hottest keys, without what it merged, to dst:
// 128 bytes and, for each key, 98 and its text, as the package documentation
// lays them out. What a key that is not among them may have had is bounded by
// the export's floor; with n = Capacity nothing that is known is left out. A few
// hundred are enough to agree on what is hot.
func (t *Tracker) Export(dst []byte, now int64, n int) []byte {
	tick := t.tickOf(now)
	rows := make([]row, 0, t.capacity)
	arena := make([]byte, 0, t.capacity*min(t.maxKey, 32))
	var total totals
	var floor uint64
	for i := range t.sets {
		var f uint64
		rows, arena, f = t.sets[i].readAll(tick, rows, arena, &total)
		floor = max(floor, f)
	}
	rows, left := cutTo(rows, n)
	return encode(dst, &export{
		taken: now, tick: t.tick, source: t.source, floor: min(max(floor, left), maxMissed), total: total, rows: rows,
	})
}

// cutTo keeps the n hottest rows, ascending by hash, and gives the most requests
// that one of the others may have had.
func cutTo(rows []row, n int) (kept []row, left uint64) {
	top := hottest(rows, n)
	slices.Sort(top) // so that rows can move down in place
	for i, k := 0, 0; i < len(rows); i++ {
		if k < len(top) && top[k] == i {
			rows[k] = rows[i]
			k++
		} else {
			left = max(left, rows[i].count()+rows[i].missed)
		}
	}
	kept = rows[:len(top)]
	sortByHash(kept)
	return kept, left
}

// An export is what the bytes say.
type export struct {
	taken, tick   int64
	source, floor uint64
	total         totals
	rows          []row
}

func encode(dst []byte, e *export) []byte {
	le := binary.LittleEndian
	start := len(dst)
	dst = slices.Grow(dst, headerSize+len(e.rows)*(keySize+32))
	dst = append(dst, exportMagic...)
	dst = le.AppendUint32(dst, uint32(len(e.rows)))
	dst = le.AppendUint64(dst, 0)
	dst = le.AppendUint64(dst, uint64(e.taken))
	dst = le.AppendUint64(dst, uint64(e.tick))
	dst = le.AppendUint64(dst, e.source)
	dst = le.AppendUint64(dst, e.floor)
	for _, n := range e.total {
		dst = le.AppendUint64(dst, n)
	}
	for i := range e.rows {
		r := &e.rows[i]
		dst = le.AppendUint64(dst, r.hash)
		dst = le.AppendUint64(dst, min(r.missed, maxMissed))
		for l := range lanes {
			for _, n := range r.slot[l] {
				dst = le.AppendUint32(dst, n)
			}
		}
		size := uint16(len(r.text))
		if r.cut {
			size |= cutBit
		}
		dst = le.AppendUint16(dst, size)
		dst = append(dst, r.text...)
	}
	le.PutUint64(dst[start+sumAt:], xxh3.Hash(dst[start+takenAt:]))
	return dst
}

// ExportError says what is wrong with an export. It unwraps to ErrExport.
type ExportError struct {
	Index  int    // which of those given to Merge
	Offset int    // where in its bytes
	Field  string // "version", "key[3].hash"
	Value  any    // what stands there
	Want   string // what is allowed
}

// Error names the export, the place, the field, its value and what is allowed.
func (e *ExportError) Error() string {
	return fmt.Sprintf("hotkey: export %d, byte %d: %s = %v, want %s", e.Index, e.Offset, e.Field, e.Value, e.Want)
}

// Unwrap makes errors.Is(err, ErrExport) true.
func (e *ExportError) Unwrap() error { return ErrExport }

// decode reads an export. It takes at most 1.4 times the memory that the bytes
// do, and nothing before their length and sum were found right. The result
// does not hold on to b.
func decode(b []byte) (*export, *ExportError) {
	le := binary.LittleEndian
	if len(b) < headerSize {
		return nil, &ExportError{Field: "length", Value: len(b), Want: "at least 128"}
	}
	if string(b[:3]) != exportMagic[:3] {
		return nil, &ExportError{Field: "magic", Value: fmt.Sprintf("%q", b[:3]), Want: `"RWH"`}
	}
	if b[3] != exportMagic[3] {
		return nil, &ExportError{Offset: 3, Field: "version", Value: b[3], Want: "1"}
	}
	n := int(min(le.Uint32(b[4:]), maxExportKey+1))
	if n > maxExportKey || n*keySize > len(b)-headerSize {
		return nil, &ExportError{Offset: 4, Field: "keys", Value: le.Uint32(b[4:]), Want: "at most 65536, 98 bytes each"}
	}
	if sum := xxh3.Hash(b[takenAt:]); le.Uint64(b[sumAt:]) != sum {
		return nil, &ExportError{Offset: sumAt, Field: "sum", Value: le.Uint64(b[sumAt:]), Want: fmt.Sprint(sum)}
	}
	e := &export{
		taken: int64(le.Uint64(b[takenAt:])), tick: int64(le.Uint64(b[tickAt:])),
		source: le.Uint64(b[sourceAt:]), floor: le.Uint64(b[floorAt:]),
		rows: make([]row, n),
	}
	if e.floor > maxMissed {
		return nil, &ExportError{Offset: floorAt, Field: "floor", Value: e.floor, Want: "at most 2^48"}
	}
	for k := range e.total {
		e.total[k] = le.Uint64(b[totalAt+8*k:])
	}
	texts := make([]byte, 0, len(b)-headerSize-n*keySize)
	at := headerSize
	var sum totals
	for i := range e.rows {
		bad := func(offset int, field string, value any, want string) (*export, *ExportError) {
			return nil, &ExportError{Offset: at + offset, Field: fmt.Sprintf("key[%d].%s", i, field), Value: value, Want: want}
		}
		if len(b)-at < keySize {
			return bad(0, "length", len(b)-at, "at least 98")
		}
		r := &e.rows[i]
		r.hash, r.missed = le.Uint64(b[at:]), le.Uint64(b[at+8:])
		if r.hash == 0 || i > 0 && r.hash <= e.rows[i-1].hash {
			return bad(0, "hash", r.hash, "more than the one before")
		}
		if r.missed > maxMissed {
			return bad(8, "missed", r.missed, "at most 2^48")
		}
		for l := range lanes {
			for k := range slots {
				r.slot[l][k] = le.Uint32(b[at+16+4*(slots*l+k):])
			}
		}
		for k := range sum {
			sum[k] += uint64(r.slot[laneRead][k]) + uint64(r.slot[laneWrite][k])
		}
		size := int(le.Uint16(b[at+keySize-2:]))
		r.cut = size&cutBit != 0
		if size &^= cutBit; size > maxMaxKey || size > len(b)-at-keySize {
			return bad(keySize-2, "size", size, "at most 1024 and what is left")
		}
		from := len(texts)
		texts = append(texts, b[at+keySize:][:size]...)
		r.text = texts[from:]
		at += keySize + size
	}
	if at != len(b) {
		return nil, &ExportError{Offset: at, Field: "length", Value: len(b), Want: "no bytes past the last key"}
	}
	for k, n := range sum {
		if n > e.total[k] {
			return nil, &ExportError{Offset: totalAt + 8*k, Field: "total", Value: e.total[k], Want: "no less than the keys have together"}
		}
	}
	return e, nil
}
