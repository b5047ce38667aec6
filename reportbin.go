package ringwise

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// The binary form: a head of fixed layout, then what the head counts. All
// numbers are little-endian and may lie at any alignment. docs/reports.md has
// the table; a change of it is a new version.
const (
	binMagic   = "RWR"
	binVersion = 1

	binPresent = 4  // uint32: a bit a field, floats first, then spans, counts, flags, shards
	binTime    = 8  // int64 seconds since 1970, uint32 ns at 16
	binFlags   = 20 // byte: the values of the flags
	binIDLen   = 21 // byte
	binHeats   = 22 // uint16 each: the lengths of the lists
	binRates   = 24
	binPrints  = 26
	binFloats  = 32 // 28..31 are zero
	binSpans   = binFloats + 8*len(floatFields)
	binCounts  = binSpans + 8*len(spanFields)
	binHead    = binCounts + 8*len(countFields)

	binShardsSize = Shards / 8
	binHeatSize   = 2 + 8
	binRateSize   = 8 + 8
	binPrintSize  = 8 + 4

	bitSpans  = len(floatFields)
	bitCounts = bitSpans + len(spanFields)
	bitFlags  = bitCounts + len(countFields)
	bitShards = bitFlags + len(flagFields)
	binBits   = bitShards + 1
)

// AppendBinary appends the binary form of a report to dst. It fails with a
// *ReportError, and dst as it was, for a worker ID over 255 bytes, a list over
// its limit and a time outside the years 0 to 9999; other values are not
// checked. It allocates nothing where dst has room: 168 bytes, the ID and the
// lists.
func (r *Report) AppendBinary(dst []byte) ([]byte, error) {
	switch {
	case len(r.Worker) > maxIDLength:
		return dst, &ReportError{fmt.Sprintf("%.40s...", r.Worker), "Worker", len(r.Worker), "an ID of at most 255 bytes", ReportOutOfRange}
	case !writable(r.Time):
		return dst, &ReportError{r.Worker, "Time", r.Time, "a time of the years 0 to 9999", ReportOutOfRange}
	}
	if err := r.checkLengths(); err != nil {
		return dst, err
	}
	var head [binHead]byte
	copy(head[:], binMagic)
	head[3] = binVersion
	le := binary.LittleEndian
	present := uint32(0)
	for i := range floatFields {
		if x, ok := floatFields[i].of(r).Get(); ok {
			present |= 1 << i
			le.PutUint64(head[binFloats+8*i:], math.Float64bits(x))
		}
	}
	for i := range spanFields {
		if d, ok := spanFields[i].of(r).Get(); ok {
			present |= 1 << (bitSpans + i)
			le.PutUint64(head[binSpans+8*i:], uint64(d))
		}
	}
	for i := range countFields {
		if n, ok := countFields[i].of(r).Get(); ok {
			present |= 1 << (bitCounts + i)
			le.PutUint64(head[binCounts+8*i:], n)
		}
	}
	for i := range flagFields {
		if on, ok := flagFields[i].of(r).Get(); ok {
			present |= 1 << (bitFlags + i)
			if on {
				head[binFlags] |= 1 << i
			}
		}
	}
	shards, held := r.Shards.Get()
	if held {
		present |= 1 << bitShards
	}
	le.PutUint32(head[binPresent:], present)
	le.PutUint64(head[binTime:], uint64(r.Time.Unix()))
	le.PutUint32(head[binTime+8:], uint32(r.Time.Nanosecond()))
	head[binIDLen] = byte(len(r.Worker))
	le.PutUint16(head[binHeats:], uint16(len(r.ShardHeat)))
	le.PutUint16(head[binRates:], uint16(len(r.HitRates)))
	le.PutUint16(head[binPrints:], uint16(len(r.Fingerprints)))

	dst = append(dst, head[:]...)
	dst = append(dst, r.Worker...)
	if held {
		for _, w := range shards {
			dst = le.AppendUint64(dst, w)
		}
	}
	for _, h := range r.ShardHeat {
		dst = le.AppendUint64(le.AppendUint16(dst, h.Slot), math.Float64bits(h.Heat))
	}
	for _, h := range r.HitRates {
		dst = le.AppendUint64(le.AppendUint64(dst, uint64(h.Kind)), math.Float64bits(h.Rate))
	}
	for _, f := range r.Fingerprints {
		dst = le.AppendUint32(le.AppendUint64(dst, uint64(f.Kind)), f.Count)
	}
	return dst, nil
}

// MarshalBinary is AppendBinary to a buffer of its own.
func (r *Report) MarshalBinary() ([]byte, error) { return r.AppendBinary(nil) }

// UnmarshalBinary reads the binary form. It takes only what AppendBinary
// writes: an unknown version or presence bit, a value where none is reported,
// bytes missing or left over give a *ReportError, and r stays as it was.
// Ranges are checked by Router.Report. data is not kept. A Report that is used
// again keeps the room of its lists, and its worker ID where that is the same;
// then nothing is allocated. Some 100 ns without lists.
func (r *Report) UnmarshalBinary(data []byte) error {
	if err := checkBinary(data); err != nil {
		return err
	}
	le := binary.LittleEndian
	present := le.Uint32(data[binPresent:])
	sec, ns := int64(le.Uint64(data[binTime:])), le.Uint32(data[binTime+8:])
	r.Time = time.Unix(sec, int64(ns)).UTC()
	for i := range floatFields {
		*floatFields[i].of(r) = Opt[float64]{math.Float64frombits(le.Uint64(data[binFloats+8*i:])), present>>i&1 != 0}
	}
	for i := range spanFields {
		*spanFields[i].of(r) = Opt[time.Duration]{time.Duration(le.Uint64(data[binSpans+8*i:])), present>>(bitSpans+i)&1 != 0}
	}
	for i := range countFields {
		*countFields[i].of(r) = Opt[uint64]{le.Uint64(data[binCounts+8*i:]), present>>(bitCounts+i)&1 != 0}
	}
	for i := range flagFields {
		*flagFields[i].of(r) = Opt[bool]{data[binFlags]>>i&1 != 0, present>>(bitFlags+i)&1 != 0}
	}
	rest := data[binHead:]
	id := rest[:data[binIDLen]]
	if string(id) != r.Worker {
		r.Worker = string(id)
	}
	rest = rest[len(id):]
	r.Shards = Opt[ShardSet]{ok: present>>bitShards&1 != 0}
	if r.Shards.ok {
		for i := range r.Shards.v {
			r.Shards.v[i] = le.Uint64(rest[8*i:])
		}
		rest = rest[binShardsSize:]
	}
	r.ShardHeat = r.ShardHeat[:0]
	for range le.Uint16(data[binHeats:]) {
		r.ShardHeat = append(r.ShardHeat, ShardHeat{le.Uint16(rest), math.Float64frombits(le.Uint64(rest[2:]))})
		rest = rest[binHeatSize:]
	}
	r.HitRates = r.HitRates[:0]
	for range le.Uint16(data[binRates:]) {
		r.HitRates = append(r.HitRates, HitRate{KeyHash(le.Uint64(rest)), math.Float64frombits(le.Uint64(rest[8:]))})
		rest = rest[binRateSize:]
	}
	r.Fingerprints = r.Fingerprints[:0]
	for range le.Uint16(data[binPrints:]) {
		r.Fingerprints = append(r.Fingerprints, Fingerprint{KeyHash(le.Uint64(rest)), le.Uint32(rest[8:])})
		rest = rest[binPrintSize:]
	}
	return nil
}

// checkBinary tells whether data is what AppendBinary writes, so that reading
// it cannot fail half way.
func checkBinary(data []byte) error {
	bad := func(field string, value any, want string) error {
		return &ReportError{"", field, value, want, ReportMalformed}
	}
	le := binary.LittleEndian
	switch {
	case len(data) < binHead:
		return bad("length", len(data), fmt.Sprintf("at least %d bytes", binHead))
	case string(data[:3]) != binMagic:
		return bad("magic", fmt.Sprintf("%q", data[:3]), `"RWR"`)
	case data[3] != binVersion:
		return bad("version", data[3], "1")
	}
	present := le.Uint32(data[binPresent:])
	if present>>binBits != 0 {
		return bad("presence", fmt.Sprintf("%#x", present), fmt.Sprintf("bits of the first %d", binBits))
	}
	for i := range (binHead - binFloats) / 8 {
		if x := le.Uint64(data[binFloats+8*i:]); present>>i&1 == 0 && x != 0 {
			return bad("presence", fmt.Sprintf("%#x", present), fmt.Sprintf("bit %d for the value there is", i))
		}
	}
	if on := uint32(data[binFlags]); on&^(present>>bitFlags&(1<<len(flagFields)-1)) != 0 {
		return bad("flags", fmt.Sprintf("%#x", on), "only those that the presence bits have")
	}
	if pad := le.Uint32(data[binFloats-4:]); pad != 0 {
		return bad("reserved", pad, "0")
	}
	sec, ns := int64(le.Uint64(data[binTime:])), le.Uint32(data[binTime+8:])
	if ns >= 1e9 || !writable(time.Unix(sec, 0)) {
		return bad("Time", fmt.Sprintf("%d s %d ns", sec, ns), "a time of the years 0 to 9999")
	}
	want := binHead + int(data[binIDLen])
	if present>>bitShards&1 != 0 {
		want += binShardsSize
	}
	for _, l := range [...]struct {
		name          string
		at, size, max int
	}{{"ShardHeat", binHeats, binHeatSize, Shards}, {"HitRates", binRates, binRateSize, maxReportList}, {"Fingerprints", binPrints, binPrintSize, maxReportList}} {
		n := int(le.Uint16(data[l.at:]))
		if n > l.max {
			return bad(l.name, n, fmt.Sprintf("at most %d entries", l.max))
		}
		want += n * l.size
	}
	if len(data) != want {
		return bad("length", len(data), fmt.Sprintf("%d bytes", want))
	}
	return nil
}
