package ringwise

import (
	"encoding"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	_ encoding.BinaryAppender    = (*Report)(nil)
	_ encoding.BinaryMarshaler   = (*Report)(nil)
	_ encoding.BinaryUnmarshaler = (*Report)(nil)
	_ json.Marshaler             = Report{}
	_ json.Unmarshaler           = (*Report)(nil)
)

// The layout is a format that other languages write: these bytes stay.
func TestReport_BinaryGolden(t *testing.T) {
	r := Report{
		Worker: "w1", Time: time.Unix(1_700_000_000, 250_000_000), CPU: Some(0.5), Timeouts: Some(1.0),
		RTTAvg: Some(2 * time.Microsecond), VersionLag: Some[uint64](3), Compacting: Some(true), HealthFailed: Some(false),
		Shards: Some(ShardSet{0: 5, 7: 1 << 63}), ShardHeat: []ShardHeat{{511, 2}}, HitRates: []HitRate{{0x0102030405060708, 0.5}},
		Fingerprints: []Fingerprint{{9, 1000}},
	}
	zeros := func(n int) string { return strings.Repeat("00", n) }
	present := uint32(1<<0 | 1<<11 | 1<<12 | 1<<16 | 1<<17 | 1<<21 | 1<<22)
	want := "525752" + "01" + // magic, version
		hex.EncodeToString(binary.LittleEndian.AppendUint32(nil, present)) +
		"00f1536500000000" + "80b2e60e" + // seconds, ns
		"01" + "02" + "0100" + "0100" + "0100" + "00000000" + // flags, ID length, list lengths, reserved
		"000000000000e03f" + zeros(80) + "000000000000f03f" + // floats
		"d007000000000000" + zeros(8) + // spans
		zeros(16) + "0300000000000000" + // counts
		"7731" + // ID
		"0500000000000000" + zeros(55) + "80" + // shards
		"ff01" + "0000000000000040" + "0807060504030201" + "000000000000e03f" + "0900000000000000" + "e8030000"
	got, err := r.MarshalBinary()
	require.NoError(t, err)
	require.Equal(t, want, hex.EncodeToString(got))
	require.Equal(t, 168, binHead, "docs/reports.md has the offsets")
	require.Equal(t, []int{32, 128, 144}, []int{binFloats, binSpans, binCounts})
	var again Report
	require.NoError(t, again.UnmarshalBinary(append([]byte{7}, got...)[1:]), "at any alignment")
	r.Time = r.Time.UTC()
	require.Equal(t, r, again)
}

// No field is lost, whatever was in the Report before.
func TestReport_BinaryRoundTrip(t *testing.T) {
	rnd := seeded(t, 2)
	var used Report
	for range 5000 {
		want := randomReport(rnd)
		prefix := []byte("before")
		b, err := want.AppendBinary(slices.Clone(prefix))
		require.NoError(t, err)
		require.Equal(t, prefix, b[:len(prefix)])
		b = b[len(prefix):]
		var fresh Report
		require.NoError(t, fresh.UnmarshalBinary(b))
		require.NoError(t, used.UnmarshalBinary(b))
		require.Equal(t, want, normal(fresh))
		require.Equal(t, want, normal(used), "a Report used before")
		clear(b)
		require.Equal(t, want, normal(used), "the bytes are not kept")
	}
}

// normal has nil for empty lists, which mean the same.
func normal(r Report) Report {
	if len(r.ShardHeat) == 0 {
		r.ShardHeat = nil
	}
	if len(r.HitRates) == 0 {
		r.HitRates = nil
	}
	if len(r.Fingerprints) == 0 {
		r.Fingerprints = nil
	}
	return r
}

// fullReport has everything, with n entries in each list.
func fullReport(n int) Report {
	r := Report{Worker: "worker-17.storage.example", Time: time.Unix(1_700_000_000, 5).UTC(), Shards: Some(ShardSet{1, 2, 3})}
	for i := range floatFields {
		*floatFields[i].of(&r) = Some(float64(i+1) / 100)
	}
	for i := range spanFields {
		*spanFields[i].of(&r) = Some(time.Duration(i+1) * 1234567)
	}
	for i := range countFields {
		*countFields[i].of(&r) = Some(uint64(i+1) * 1e9)
	}
	for i := range flagFields {
		*flagFields[i].of(&r) = Some(i%2 == 0)
	}
	for i := range n {
		r.ShardHeat = append(r.ShardHeat, ShardHeat{uint16(i), float64(i)})
		r.HitRates = append(r.HitRates, HitRate{HashUint64(uint64(i)), 0.25})
		r.Fingerprints = append(r.Fingerprints, Fingerprint{HashUint64(uint64(i)), uint32(i)})
	}
	return r
}

func TestReport_BinaryNoAllocations(t *testing.T) {
	r, small := fullReport(20), Report{Worker: "worker-17.storage.example", Time: time.Unix(1_700_000_000, 0), CPU: Some(0.5)}
	var got Report
	buf, err := r.MarshalBinary()
	require.NoError(t, err)
	other, err := small.MarshalBinary()
	require.NoError(t, err)
	dst := make([]byte, 0, len(buf))
	if n := testing.AllocsPerRun(100, func() {
		if _, err := r.AppendBinary(dst); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("AppendBinary: %v allocations, want 0", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		for _, b := range [][]byte{buf, other} { // the room of the lists outlives a report without them
			if err := got.UnmarshalBinary(b); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("UnmarshalBinary: %v allocations, want 0", n)
	}
}

// What is not the binary form gives a typed error and changes nothing.
func TestReport_BinaryErrors(t *testing.T) {
	full := fullReport(3)
	good, err := full.MarshalBinary()
	require.NoError(t, err)
	le := binary.LittleEndian
	edit := func(f func(b []byte)) []byte {
		b := slices.Clone(good)
		f(b)
		return b
	}
	minimal, err := (&Report{Time: time.Unix(0, 0)}).MarshalBinary()
	require.NoError(t, err)
	stray := func(at int) []byte {
		b := slices.Clone(minimal)
		b[at] = 1
		return b
	}
	cases := []struct {
		name, field string
		data        []byte
	}{
		{"empty", "length", nil},
		{"trailing", "length", append(slices.Clone(good), 0)},
		{"magic", "magic", edit(func(b []byte) { b[0]++ })},
		{"version", "version", edit(func(b []byte) { b[3] = 2 })},
		{"presence bit 23", "presence", edit(func(b []byte) { b[6] |= 1 << 7 })},
		{"presence bit 31", "presence", edit(func(b []byte) { b[7] |= 1 << 7 })},
		{"ns", "Time", edit(func(b []byte) { le.PutUint32(b[16:], 1e9) })},
		{"year 10000", "Time", edit(func(b []byte) { le.PutUint64(b[8:], 253402300800) })},
		{"time that wraps", "Time", edit(func(b []byte) { le.PutUint64(b[8:], math.MaxInt64) })},
		{"reserved", "reserved", edit(func(b []byte) { b[31] = 1 })},
		{"shards dropped", "length", edit(func(b []byte) { b[6] &^= 1 << 6 })},
		{"heats", "ShardHeat", edit(func(b []byte) { le.PutUint16(b[22:], 513) })},
		{"rates", "HitRates", edit(func(b []byte) { le.PutUint16(b[24:], 1025) })},
		{"prints", "Fingerprints", edit(func(b []byte) { le.PutUint16(b[26:], 65535) })},
		{"one print more", "length", edit(func(b []byte) { b[26]++ })},
		{"ID longer", "length", edit(func(b []byte) { b[21]++ })},
		{"flag unsaid", "flags", stray(20)},
		{"flag of none", "flags", edit(func(b []byte) { b[20] |= 1 << 5 })},
	}
	for at := binFloats; at < binHead; at += 8 {
		cases = append(cases, struct {
			name, field string
			data        []byte
		}{fmt.Sprint("value unsaid at ", at), "presence", stray(at + at/8%8)})
	}
	for n := range len(good) {
		if n < 10 || n%7 == 0 || n == len(good)-1 {
			cases = append(cases, struct {
				name, field string
				data        []byte
			}{fmt.Sprint("cut at ", n), "length", good[:n]})
		}
	}
	for _, c := range cases {
		got := Report{Worker: "old", CPU: Some(0.5)}
		err := got.UnmarshalBinary(c.data)
		e, ok := errors.AsType[*ReportError](err)
		require.True(t, ok, "%s: %v", c.name, err)
		assert.Equal(t, c.field, e.Field, c.name)
		assert.Equal(t, ReportMalformed, e.Reason, c.name)
		assert.Equal(t, Report{Worker: "old", CPU: Some(0.5)}, got, "%s: nothing changes", c.name)
	}
	for field, bad := range map[string]Report{
		"Worker":       {Worker: strings.Repeat("x", 256)},
		"Time":         {Time: time.Unix(1<<40, 0)},
		"ShardHeat":    {ShardHeat: make([]ShardHeat, 513)},
		"HitRates":     {HitRates: make([]HitRate, 1025)},
		"Fingerprints": {Fingerprints: make([]Fingerprint, 1025)},
	} {
		b, err := bad.AppendBinary([]byte{1})
		e, ok := errors.AsType[*ReportError](err)
		require.True(t, ok, field)
		assert.Equal(t, field, e.Field)
		assert.Equal(t, []byte{1}, b)
	}
}

func FuzzReportBinary(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 0))
	for range 8 {
		r := randomReport(rnd)
		b, err := r.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Report
		if err := r.UnmarshalBinary(data); err != nil {
			require.ErrorIs(t, err, ErrReport)
			return
		}
		b, err := r.MarshalBinary()
		require.NoError(t, err)
		require.Equal(t, data, b)
	})
}

// benchmarkReports is what a second's worth of a fleet looks like: a thousand
// reports with every figure and eight hit rates.
func benchmarkReports() []Report {
	rs := make([]Report, 1000)
	for i := range rs {
		rs[i] = fullReport(0)
		rs[i].Worker = fmt.Sprintf("worker-%d.storage.example", i)
		rs[i].HitRates = fullReport(8).HitRates
	}
	return rs
}

func BenchmarkReports1000_JSON(b *testing.B) {
	var msgs [][]byte
	for _, r := range benchmarkReports() {
		m, err := json.Marshal(r)
		if err != nil {
			b.Fatal(err)
		}
		msgs = append(msgs, m)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(slices.Concat(msgs...))))
	var r Report
	for b.Loop() {
		for _, m := range msgs {
			if err := json.Unmarshal(m, &r); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkReports1000_Binary(b *testing.B) {
	var msgs [][]byte
	rs := benchmarkReports()
	for i := range rs {
		m, err := rs[i].MarshalBinary()
		if err != nil {
			b.Fatal(err)
		}
		msgs = append(msgs, m)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(slices.Concat(msgs...))))
	into := make([]Report, len(msgs)) // one a connection
	for b.Loop() {
		for i, m := range msgs {
			if err := into[i].UnmarshalBinary(m); err != nil {
				b.Fatal(err)
			}
		}
	}
}
