package hotkey

import (
	"math/rand/v2"
	"testing"
)

// zipfHashes are hashes of a zipf(1.1) stream over ten million keys.
func zipfHashes(n int) []uint64 {
	z := rand.NewZipf(rand.New(rand.NewPCG(1, 0)), 1.1, 1, 9_999_999)
	out := make([]uint64, n)
	for i := range out {
		out[i] = z.Uint64()*0x9e3779b97f4a7c15 + 1
	}
	return out
}

const benchKey = "acme:order:0123456789"

func BenchmarkTracker_Add(b *testing.B) {
	zipf := zipfHashes(1 << 16)
	for _, c := range []struct {
		name string
		hash func(i uint64) uint64
	}{
		{"stream=hot", func(i uint64) uint64 { return i%32 + 1 }},
		{"stream=zipf", func(i uint64) uint64 { return zipf[i%(1<<16)] }},
		{"stream=distinct", func(i uint64) uint64 { return i*0x9e3779b97f4a7c15 + 1 }},
	} {
		b.Run(c.name, func(b *testing.B) {
			tr := mustNew(b, Options{})
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				tr.Add(start, c.hash(i), benchKey, i&127 == 0)
			}
		})
	}
	b.Run("stream=zipf/parallel", func(b *testing.B) {
		tr := mustNew(b, Options{})
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for i := rand.Uint64(); pb.Next(); i++ {
				tr.Add(start, zipf[i%(1<<16)], benchKey, i&127 == 0)
			}
		})
	})
	b.Run("stream=one/parallel", func(b *testing.B) {
		tr := mustNew(b, Options{})
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				tr.Add(start, 1, benchKey, false)
			}
		})
	})
	b.Run("stream=zipf/sampled=8", func(b *testing.B) {
		tr := mustNew(b, Options{})
		chance := rand.NewPCG(1, 0)
		b.ReportAllocs()
		for i := uint64(0); b.Loop(); i++ {
			if chance.Uint64()&7 == 0 {
				tr.AddN(start, zipf[i%(1<<16)], benchKey, false, 8)
			}
		}
	})
}

// warm is a Tracker that has seen a zipf stream.
func warm(b *testing.B) *Tracker {
	tr := mustNew(b, Options{})
	for _, h := range zipfHashes(1 << 16) {
		tr.Add(start, h, benchKey, false)
	}
	return tr
}

func BenchmarkTracker_Heat(b *testing.B) {
	tr := warm(b)
	tr.Refresh(start, nil)
	b.ReportAllocs()
	for i := uint64(0); b.Loop(); i++ {
		tr.Heat(start, (i%64)*0x9e3779b97f4a7c15+1)
	}
}

func BenchmarkTracker_Refresh(b *testing.B) {
	tr := warm(b)
	var changes []Change
	b.ReportAllocs()
	for b.Loop() {
		changes = tr.Refresh(start, changes[:0])
	}
}

func BenchmarkTracker_Top(b *testing.B) {
	tr := warm(b)
	b.ReportAllocs()
	for b.Loop() {
		tr.Top(start, 10)
	}
}

func BenchmarkTracker_Export(b *testing.B) {
	tr := warm(b)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = tr.Export(buf[:0], start, 256)
	}
	b.ReportMetric(float64(len(buf)), "bytes")
}

func BenchmarkTracker_Merge(b *testing.B) {
	var exports [][]byte
	for range 10 {
		exports = append(exports, warm(b).Export(nil, start, 256))
	}
	tr := mustNew(b, Options{})
	b.ReportAllocs()
	for b.Loop() {
		if err := tr.Merge(start, exports...); err != nil {
			b.Fatal(err)
		}
	}
}
