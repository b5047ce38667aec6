package ringwise

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

const rttTestWindow = time.Minute

func TestRTTBucket_Table(t *testing.T) {
	cases := []struct {
		rtt        time.Duration
		bucket     uint
		low, width time.Duration
	}{
		{math.MinInt64, 0, 0, 16},
		{-1, 0, 0, 16},
		{0, 0, 0, 16},
		{15, 0, 0, 16},
		{16, 1, 16, 16},
		{time.Microsecond, 62, 992, 16},
		{1023, 63, 1008, 16},
		{1024, 64, 1024, 16},
		{2047, 127, 2032, 16},
		{2048, 128, 2048, 32},
		{4096, 192, 4096, 64},
		{time.Millisecond, 64*10 + 58, 122 << 13, 1 << 13},
		{rttMax, 64*26 + 47, 111 << 29, 1 << 29},
		{rttMax + 1, 64*26 + 47, 111 << 29, 1 << 29},
		{math.MaxInt64, 64*26 + 47, 111 << 29, 1 << 29},
	}
	for _, c := range cases {
		got := rttBucket(c.rtt)
		low, width := rttBounds(got)
		if got != c.bucket || low != c.low || width != c.width {
			t.Errorf("%d: got bucket %d = [%d, +%d), want %d = [%d, +%d)", c.rtt, got, low, width, c.bucket, c.low, c.width)
		}
	}
}

func TestRTTBucket_EdgesMeet(t *testing.T) {
	end := time.Duration(0)
	for i := range uint(rttBuckets) {
		low, width := rttBounds(i)
		if low != end {
			t.Fatalf("bucket %d begins at %d, the one before ends at %d", i, low, end)
		}
		end = low + width
		for _, v := range []time.Duration{low, low + width/2, end - 1} {
			if v <= rttMax && rttBucket(v) != i {
				t.Fatalf("%d: got bucket %d, want %d", v, rttBucket(v), i)
			}
		}
		if low >= 1024 && float64(width/2) > float64(low)/128 {
			t.Fatalf("bucket %d: half a width %d is over 1/128 of %d", i, width/2, low)
		}
	}
	if end <= rttMax {
		t.Errorf("the last bucket ends at %v", end)
	}
}

func TestRTTHistogram_Table(t *testing.T) {
	cases := []struct {
		name    string
		samples []time.Duration
		want    RTTStats
	}{
		{"empty", nil, RTTStats{}},
		{"under a microsecond counts", []time.Duration{200, 200}, RTTStats{2, 200, 200, 200, 200, 208}},
		{"one of 1 us", []time.Duration{time.Microsecond}, RTTStats{1, 1000, 1000, 1000, 1000, 1008}},
		{"negative is 0", []time.Duration{-5}, RTTStats{1, 8, 8, 8, 8, 16}},
		{"beyond the range is its end", []time.Duration{time.Hour}, RTTStats{1, 223 << 28, 223 << 28, 223 << 28, 223 << 28, rttMax}},
		{"nearest rank", []time.Duration{100, 200, 1000}, RTTStats{3, 1304 / 3, 200, 1000, 1000, 1008}},
		{"the median of two is the lower", []time.Duration{1000, 100}, RTTStats{2, 1104 / 2, 104, 1000, 1000, 1008}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var h rttHistogram
			for _, v := range c.samples {
				h.record(v)
			}
			if got := h.stats(); got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

// rttPercentile is the nearest-rank percentile of sorted samples.
func rttPercentile(sorted []time.Duration, percent float64) time.Duration {
	return sorted[int(math.Ceil(float64(len(sorted))*percent/100-1e-9))-1]
}

// checkRTTStats compares with what sorting the samples gives. An error of one
// half of the finest bucket is allowed below 1 us.
func checkRTTStats(t *testing.T, got RTTStats, samples []time.Duration) {
	t.Helper()
	if got.Count != uint64(len(samples)) {
		t.Fatalf("count: got %d, want %d", got.Count, len(samples))
	}
	if len(samples) == 0 {
		if got != (RTTStats{}) {
			t.Fatalf("empty: got %+v", got)
		}
		return
	}
	sorted := slices.Sorted(slices.Values(samples))
	sum := 0.0
	for _, v := range sorted {
		sum += float64(v)
	}
	near := func(name string, got, want time.Duration) {
		t.Helper()
		if math.Abs(float64(got-want)) > max(8, 0.01*float64(want)) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	near("mean", got.Mean, time.Duration(sum/float64(len(sorted))))
	near("p50", got.P50, rttPercentile(sorted, 50))
	near("p95", got.P95, rttPercentile(sorted, 95))
	near("p99", got.P99, rttPercentile(sorted, 99))
	top := sorted[len(sorted)-1]
	if got.Max < top || float64(got.Max) > max(float64(top)+16, float64(top)*(1+1.0/64)) {
		t.Errorf("max: got %v, want the edge above %v", got.Max, top)
	}
	if !(got.P50 <= got.P95 && got.P95 <= got.P99 && got.P99 <= got.Max) {
		t.Errorf("out of order: %+v", got)
	}
}

func TestRTTHistogram_AccuracyWithinOnePercent(t *testing.T) {
	rnd := windowSeed(t)
	logRange := math.Log(float64(rttMax) / 1000)
	for name, draw := range map[string]func() float64{
		"log-uniform 1us..60s": func() float64 { return 1000 * math.Exp(logRange*rnd.Float64()) },
		"uniform 1us..60s":     func() float64 { return 1000 + rnd.Float64()*(float64(rttMax)-1000) },
		"exponential 4ms":      func() float64 { return 1000 + 4e6*rnd.ExpFloat64() },
		"log-normal 300us":     func() float64 { return 1000 + 3e5*math.Exp(rnd.NormFloat64()) },
		"heavy tail":           func() float64 { return 2e5 * math.Pow(1-rnd.Float64(), -1/1.1) },
		"1us..2us":             func() float64 { return 1000 + 1000*rnd.Float64() },
		"one value":            func() float64 { return 777_777 },
		"two far apart":        func() float64 { return 50_000 + float64(rnd.IntN(10)/9)*25e9 },
	} {
		for _, n := range []int{1, 2, 19, 100, 20_000} {
			var h rttHistogram
			samples := make([]time.Duration, n)
			for i := range samples {
				samples[i] = min(time.Duration(draw()), rttMax)
				h.record(samples[i])
			}
			checkRTTStats(t, h.stats(), samples)
			if t.Failed() {
				t.Fatalf("%s, %d samples", name, n)
			}
		}
	}
}

func TestRTTHistogram_Slides(t *testing.T) {
	const sec = int64(time.Second)
	type step struct {
		now    int64 // rotate
		record time.Duration
		want   uint64 // count after the rotate, before the record
	}
	for name, steps := range map[string][]step{
		"each part lives for the window": {
			{0, 1, 0}, {15 * sec, 2, 1}, {30 * sec, 3, 2}, {45 * sec, 4, 3}, {60 * sec, 0, 3}, {75 * sec, 0, 2}, {90 * sec, 0, 1}, {105 * sec, 0, 0},
		},
		"nothing leaves early":     {{0, 1, 0}, {14 * sec, 0, 1}, {59 * sec, 0, 1}, {60*sec - 1, 0, 1}, {60 * sec, 0, 0}},
		"a frozen clock shows all": {{9, 1, 0}, {9, 2, 1}, {9, 3, 2}, {9, 0, 3}},
		"a small step back changes nothing": {
			{1000 * sec, 1, 0}, {1016 * sec, 2, 1}, {1000 * sec, 3, 2}, {970 * sec, 0, 3}, {1016 * sec, 0, 3}, {1061 * sec, 0, 2}, {1076 * sec, 0, 0},
		},
		"an hour back keeps the ages": {
			{3600 * sec, 1, 0}, {3616 * sec, 2, 1}, {0, 3, 2}, {15 * sec, 0, 3}, {43 * sec, 0, 3}, {44 * sec, 0, 2}, {60 * sec, 0, 0},
		},
		"an hour ahead drops all": {{0, 1, 0}, {16 * sec, 2, 1}, {3600 * sec, 3, 0}, {3601 * sec, 0, 1}},
		"ends of the clock":       {{math.MinInt64, 1, 0}, {math.MaxInt64, 2, 0}, {math.MinInt64, 3, 1}, {math.MinInt64 + 60*sec, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var h rttHistogram
			for i, s := range steps {
				h.rotate(s.now, rttTestWindow)
				if got := h.stats().Count; got != s.want {
					t.Fatalf("step %d at %v: got %d, want %d", i, time.Duration(s.now), got, s.want)
				}
				if s.record != 0 {
					h.record(s.record)
				}
			}
		})
	}
}

func TestRTTHistogram_FirstRotateKeepsWhatCameBefore(t *testing.T) {
	var h rttHistogram
	h.record(1)
	h.rotate(int64(time.Hour), rttTestWindow)
	if got := h.stats().Count; got != 1 {
		t.Errorf("got %d, want 1", got)
	}
}

func TestRTTHistogram_WindowMayChangeOrBeNothing(t *testing.T) {
	for _, window := range []time.Duration{math.MinInt64, -1, 0, 1, 4} {
		var h rttHistogram
		h.rotate(7, window)
		h.record(1)
		for _, c := range []struct {
			now  int64
			want uint64
		}{{7, 1}, {8, 1}, {10, 1}, {11, 0}} {
			h.rotate(c.now, window)
			if got := h.stats().Count; got != c.want {
				t.Errorf("window %d at %d: got %d, want %d", window, c.now, got, c.want)
			}
		}
		h.record(1)
		h.rotate(1<<50, math.MaxInt64)
		if got := h.stats().Count; got != 1 {
			t.Errorf("window %d made endless: got %d, want 1", window, got)
		}
		h.rotate(1<<50, time.Minute)
		h.rotate(1<<50+1, time.Minute)
		if got := h.stats().Count; got != 0 {
			t.Errorf("made a minute: got %d, want 0", got)
		}
	}
}

func TestElapsedNanos(t *testing.T) {
	for _, c := range []struct{ from, to, want int64 }{
		{5, 8, 3}, {5, 5, 0}, {8, 5, 0}, {-5, 5, 10},
		{math.MinInt64, math.MaxInt64, math.MaxInt64},
		{math.MinInt64, 0, math.MaxInt64},
		{math.MaxInt64, math.MinInt64, 0},
	} {
		if got := elapsedNanos(c.from, c.to); got != c.want {
			t.Errorf("from %d to %d: got %d, want %d", c.from, c.to, got, c.want)
		}
	}
}

// rttModel is the naive model: every sample kept, with the start of its
// sub-window, in the clock the histogram has settled for.
type rttModel struct {
	started bool
	start   int64
	running []time.Duration
	past    []rttModelPart
}

type rttModelPart struct {
	start   int64
	samples []time.Duration
}

func (m *rttModel) rotate(now, window int64) {
	switch {
	case !m.started:
		m.started, m.start = true, now
	case now <= m.start-window:
		for i := range m.past {
			m.past[i].start -= m.start - now
		}
		m.start = now
	case now >= m.start+window/4:
		m.past = append(m.past, rttModelPart{m.start, m.running})
		m.running, m.start = nil, now
		m.past = m.past[max(0, len(m.past)-3):]
		fallthrough
	default:
		m.past = slices.DeleteFunc(m.past, func(p rttModelPart) bool { return now-p.start >= window })
	}
}

func (m *rttModel) samples() []time.Duration {
	all := slices.Clone(m.running)
	for _, p := range m.past {
		all = append(all, p.samples...)
	}
	return all
}

func TestRTTHistogram_MatchesNaiveModel(t *testing.T) {
	rnd := windowSeed(t)
	const window = int64(rttTestWindow)
	for range 8 {
		var h rttHistogram
		var m rttModel
		now := rnd.Int64N(int64(time.Hour))
		for range 150 {
			switch rnd.IntN(12) {
			case 0:
				now += rnd.Int64N(window) // late
			case 1:
				now -= rnd.Int64N(window) // steps back
			case 2:
				if rnd.IntN(4) == 0 {
					now += int64(time.Hour) * int64(1-2*rnd.IntN(2))
				}
			case 3: // freezes
			default:
				now += rnd.Int64N(window / 6)
			}
			h.rotate(now, rttTestWindow)
			m.rotate(now, window)
			for range rnd.IntN(60) {
				v := time.Duration(math.Exp(25*rnd.Float64())) - 5
				h.record(v)
				m.running = append(m.running, min(max(v, 0), rttMax))
			}
			checkRTTStats(t, h.stats(), m.samples())
			if t.Failed() {
				t.FailNow()
			}
		}
	}
}

// TestCase_133_saturates: counters that wrap make a hot item look cold. Here they
// stay where they are. The other half of the case, halving counters packed into
// one word, has no counterpart here (sub-windows are dropped whole, one counter a
// word); the test below shows that neighbours do not mix.
func TestCase_133_saturates(t *testing.T) {
	// How a counter that is about to overflow looks after n more.
	falls := func(add func(c *atomic.Uint32), full uint32) bool {
		var c atomic.Uint32
		c.Store(full - 2)
		last := c.Load()
		for range 10 {
			add(&c)
			if c.Load() < last || c.Load() > last+1 {
				return true
			}
			last = c.Load()
		}
		return last != full
	}
	h := rttHistogram{}
	h.record(0)
	real := func(c *atomic.Uint32) {
		h.pages[0].Load()[0].Store(c.Load())
		h.record(0)
		c.Store(h.pages[0].Load()[0].Load())
	}
	if falls(real, rttCountCap) {
		t.Error("the counter falls when it is full")
	}
	naive := func(c *atomic.Uint32) { c.Add(1) }
	if !falls(naive, math.MaxUint32) {
		t.Error("the check does not see a counter that wraps")
	}

	// Full counters survive the way through a rotation, the mean their sum.
	h.rotate(0, rttTestWindow)
	for page := range uint(rttPages) {
		h.addPage(page)
	}
	for part := range int64(rttSubWindows) {
		for i := range uint(rttBuckets) {
			h.pages[i/rttPageLen].Load()[i%rttPageLen].Store(math.MaxUint32)
		}
		h.rotate(part*int64(rttTestWindow)/rttSubWindows, rttTestWindow)
	}
	got := h.stats()
	if want := uint64(rttSubWindows-1) * rttBuckets * rttCountCap; got.Count != want {
		t.Errorf("count: got %d, want %d", got.Count, want)
	}
	sum := 0.0
	for i := range uint(rttBuckets) {
		low, width := rttBounds(i)
		sum += float64(low + width/2)
	}
	if want := time.Duration(sum / rttBuckets); (got.Mean - want).Abs() > time.Microsecond {
		t.Errorf("mean: got %v, want %v", got.Mean, want)
	}
	if !(got.P50 > 0 && got.P50 < got.P95 && got.P95 < got.P99) {
		t.Errorf("full counters: %+v", got)
	}
}

func TestCase_133_decaysPerLane(t *testing.T) {
	var h rttHistogram
	h.rotate(0, rttTestWindow)
	want := make(map[uint]uint64)
	// Neighbours, page edges and the ends; counts around the bytes of a uvarint.
	for k, i := range []uint{0, 1, 62, 63, 64, 127, 128, 700, 701, 703, 1710, 1711} {
		n := []uint32{1, 127, 128, 16383, 16384, rttCountCap}[k%6]
		h.addPage(i / rttPageLen)
		h.pages[i/rttPageLen].Load()[i%rttPageLen].Store(n)
		want[i] = uint64(n)
	}
	check := func(when string) {
		t.Helper()
		var c rttCounts
		h.addTo(&c)
		for i, n := range c {
			if n != want[uint(i)] {
				t.Errorf("%s, bucket %d: got %d, want %d", when, i, n, want[uint(i)])
			}
		}
	}
	check("running")
	h.rotate(int64(15*time.Second), rttTestWindow)
	check("moved")
	h.record(0)
	want[0]++
	check("running on top")
	clear(want)
	want[0] = 1
	h.rotate(int64(60*time.Second), rttTestWindow)
	check("dropped")
}

func TestRTTHistogram_ConcurrentRecordRotateRead(t *testing.T) {
	const recorders = 4
	for name, octaves := range map[string]int{"every octave": 36, "one bucket": 1} {
		t.Run(name, func(t *testing.T) {
			each := 10_000
			if octaves == 1 {
				each = 300_000 // so many meet a drain that one which is not atomic shows, if not each time
			}
			var h rttHistogram
			var recording, reading sync.WaitGroup
			var recorded atomic.Bool
			for g := range recorders {
				recording.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(g), 0))
					for range each {
						h.record(time.Duration(1) << rnd.IntN(octaves))
					}
				})
			}
			reading.Go(func() {
				// Not beside the one bucket: it would hold up rotate, which is to be quick
				// there to meet as many records as it can.
				for !recorded.Load() && octaves > 1 {
					if s := h.stats(); s.Count > uint64(recorders*each) || s.P99 > s.Max {
						t.Errorf("while rotating: %+v", s)
						return
					}
				}
			})
			reading.Go(func() {
				recording.Wait()
				recorded.Store(true)
			})
			// This goroutine alone rotates, so it may look at what is about to go.
			dropped, now := uint64(0), int64(0)
			for !recorded.Load() {
				for data := h.past[2].data; len(data) > 0; {
					_, k := binary.Uvarint(data)
					n, l := binary.Uvarint(data[k:])
					dropped += n
					data = data[k+l:]
				}
				h.rotate(now, rttTestWindow)
				now += int64(rttTestWindow) / rttSubWindows
			}
			reading.Wait()
			if got := dropped + h.stats().Count; got != uint64(recorders*each) {
				t.Errorf("got %d records in all, want %d", got, recorders*each)
			}
		})
	}
}

func TestRTTHistogram_ReaderNeverSeesAMoveHalfDone(t *testing.T) {
	for range 20 {
		var h rttHistogram
		h.rotate(0, rttTestWindow)
		for i := range 1000 {
			h.record(time.Duration(i) * time.Millisecond)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range int64(3) {
				h.rotate((i+1)*int64(15*time.Second), rttTestWindow)
			}
		})
		for range 20 {
			if got := h.stats().Count; got != 1000 {
				t.Fatalf("got %d, want 1000", got)
			}
		}
		wg.Wait()
	}
}

func TestRTTHistogram_Allocations(t *testing.T) {
	var h rttHistogram
	h.record(time.Millisecond)
	if n := testing.AllocsPerRun(100, func() { h.record(time.Millisecond) }); n != 0 {
		t.Errorf("record, warm: got %v allocations, want 0", n)
	}
	if n := testing.AllocsPerRun(100, func() { h.stats() }); n != 0 {
		t.Errorf("stats: got %v allocations, want 0", n)
	}
	now := int64(0)
	if n := testing.AllocsPerRun(100, func() {
		h.record(time.Millisecond)
		now += int64(rttTestWindow) / rttSubWindows
		h.rotate(now, rttTestWindow)
	}); n != 1 {
		t.Errorf("rotate: got %v allocations, want 1", n)
	}
}

func TestRTTHistogram_Memory(t *testing.T) {
	if got := unsafe.Sizeof(rttHistogram{}); got > 352 {
		t.Errorf("empty: got %d bytes, want at most 352", got)
	}
	if got := unsafe.Sizeof(rttPage{}); got != 256 {
		t.Errorf("page: got %d bytes, want 256", got)
	}
	// 1000 samples a second, between 1 and 8 ms, for five minutes.
	rnd := windowSeed(t)
	var h rttHistogram
	for now := range int64(300) {
		h.rotate(now*int64(time.Second), rttTestWindow)
		for range 1000 {
			h.record(time.Duration(1<<20 + rnd.IntN(7<<20)))
		}
	}
	size, pages := int(unsafe.Sizeof(h)), 0
	for i := range h.pages {
		if h.pages[i].Load() != nil {
			pages++
			size += 256
		}
	}
	for _, p := range h.past {
		size += cap(p.data)
	}
	t.Logf("%d bytes with %d octaves", size, pages)
	if pages != 3 || size > 3<<10 {
		t.Errorf("got %d bytes, %d octaves, want at most 3 KiB, 3 octaves", size, pages)
	}
}

func TestRTTStats_JSON(t *testing.T) {
	b, err := json.Marshal(RTTStats{Count: 1, Mean: 2, P50: 3, P95: 4, P99: 5, Max: 6})
	want := `{"count":1,"mean_ns":2,"p50_ns":3,"p95_ns":4,"p99_ns":5,"max_ns":6}`
	if err != nil || string(b) != want {
		t.Errorf("got %s, %v, want %s", b, err, want)
	}
}

func BenchmarkRTTHistogramRecord(b *testing.B) {
	b.Run("bare atomic add", func(b *testing.B) {
		b.ReportAllocs()
		var c atomic.Uint32
		for b.Loop() {
			c.Add(1)
		}
	})
	b.Run("one value", func(b *testing.B) {
		b.ReportAllocs()
		var h rttHistogram
		for b.Loop() {
			h.record(time.Millisecond)
		}
	})
	b.Run("three octaves", func(b *testing.B) {
		b.ReportAllocs()
		var h rttHistogram
		v := time.Duration(0)
		for b.Loop() {
			v = (v + 611_953) & (7<<20 - 1)
			h.record(1<<20 + v)
		}
	})
	b.Run("1000 workers", func(b *testing.B) {
		b.ReportAllocs()
		hs := make([]rttHistogram, 1000)
		v, w := time.Duration(0), 0
		for b.Loop() {
			v = (v + 611_953) & (7<<20 - 1)
			if w += 617; w >= len(hs) {
				w -= len(hs)
			}
			hs[w].record(1<<20 + v)
		}
	})
	b.Run("one histogram, all cores", func(b *testing.B) {
		b.ReportAllocs()
		var h rttHistogram
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				h.record(time.Millisecond)
			}
		})
	})
}

func BenchmarkRTTHistogramRotate(b *testing.B) {
	for name, due := range map[string]int64{"idle": 0, "due": int64(rttTestWindow) / rttSubWindows} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var h rttHistogram
			now := int64(0)
			for b.Loop() {
				if due > 0 {
					for i := range time.Duration(100) {
						h.record(1<<20 + i*7<<13)
					}
				}
				now += due
				h.rotate(now, rttTestWindow)
			}
		})
	}
}

func BenchmarkRTTHistogramStats(b *testing.B) {
	b.ReportAllocs()
	var h rttHistogram
	for now := range int64(60) {
		h.rotate(now*int64(time.Second), rttTestWindow)
		for i := range time.Duration(200) {
			h.record(1<<20 + i*7<<15)
		}
	}
	for b.Loop() {
		h.stats()
	}
}
