package ringwise

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a pick reads of a candidate is one cache line, and the leases it
// writes first are another: Go aligns an object to 64 bytes where its size is
// a multiple of them.
func TestWorkerState_Layout(t *testing.T) {
	var st workerState
	const line = 64
	size := unsafe.Sizeof(st)
	assert.Zero(t, size%line, "size %d", size)
	assert.LessOrEqual(t, size, uintptr(512), "larger objects with pointers begin with a header")
	assert.EqualValues(t, line/2, unsafe.Sizeof(st.lane[0]))
	for name, at := range map[string]uintptr{
		"issued": unsafe.Offsetof(st.issued), "closed": unsafe.Offsetof(st.closed), "busy": unsafe.Offsetof(st.busy),
		"read lane": unsafe.Offsetof(st.lane) + unsafe.Sizeof(st.lane[0])*laneRead,
	} {
		assert.Less(t, at, uintptr(line), name)
	}
	assert.LessOrEqual(t, unsafe.Offsetof(st.lane)+unsafe.Sizeof(st.lane[0]), uintptr(line), "the end of the read lane")
	assert.Zero(t, unsafe.Offsetof(st.slots)%line, "the first eight leases share a line")
	l := newLab(t, labWorkers("w", 100))
	for _, n := range l.snap.Load().nodes {
		assert.Zero(t, uintptr(unsafe.Pointer(n.st))%line, "where the allocator puts it")
	}
}

// I18: each bad worker is refused by the name of its field.
func TestValidateWorkers_NamesTheField(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 256)
	for _, c := range []struct {
		name  string
		ws    []Worker
		field string // empty: it is fine
	}{
		{"none", nil, ""},
		{"one", labNamed("a"), ""},
		{"no name", []Worker{{ID: "a"}, {}}, "Workers[1].ID"},
		{"name of 255 bytes", labNamed(long[:255]), ""},
		{"name of 256 bytes", labNamed(long), "Workers[0].ID"},
		{"name that is no text", labNamed("\xff\x00\n"), ""},
		{"same name", labNamed("a", "b", "a"), "Workers[2].ID"},
		{"weight 0", []Worker{{ID: "a"}}, ""},
		{"least weight", []Worker{{ID: "a", Weight: math.SmallestNonzeroFloat64}}, ""},
		{"most weight", []Worker{{ID: "a", Weight: MaxWeight}}, ""},
		{"weight over 1000", []Worker{{ID: "a", Weight: math.Nextafter(MaxWeight, 2000)}}, "Workers[0].Weight"},
		{"huge weight", []Worker{{ID: "a", Weight: math.MaxFloat64}}, "Workers[0].Weight"},
		{"negative weight", []Worker{{ID: "a"}, {ID: "b", Weight: -1e-300}}, "Workers[1].Weight"},
		{"NaN weight", []Worker{{ID: "a", Weight: math.NaN()}}, "Workers[0].Weight"},
		{"+Inf weight", []Worker{{ID: "a", Weight: math.Inf(1)}}, "Workers[0].Weight"},
		{"-Inf weight", []Worker{{ID: "a", Weight: math.Inf(-1)}}, "Workers[0].Weight"},
		{"role", []Worker{{ID: "a", Role: RoleLearner + 1}}, "Workers[0].Role"},
		{"IO class", []Worker{{ID: "a", IO: IOFast + 1}}, "Workers[0].IO"},
		{"too many", make([]Worker, MaxWorkers+1), "Workers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, labNamed("before"))
			sn := l.snap.Load()
			_, fromNew := New(c.ws, WithPoints(8))
			for how, err := range map[string]error{
				"validate": validateWorkers(c.ws), "New": fromNew, "SetTopology": l.SetTopology(Topology{Workers: c.ws}),
			} {
				if c.field == "" {
					assert.NoError(t, err, how)
					continue
				}
				bad, ok := errors.AsType[*ConfigError](err)
				require.True(t, ok, "%s: %v", how, err)
				assert.ErrorIs(t, err, ErrConfig)
				assert.Equal(t, c.field, bad.Field, how)
				assert.Contains(t, err.Error(), c.field)
				assert.Same(t, sn, l.snap.Load(), "nothing changes")
			}
		})
	}
	err := newLab(t, nil).SetTopology(Topology{TTL: -1})
	bad, ok := errors.AsType[*ConfigError](err)
	require.True(t, ok)
	assert.Equal(t, "Topology.TTL", bad.Field)
}

// A field that sameWorkers did not compare would be lost by a reload.
func TestSameWorkers_ComparesEachField(t *testing.T) {
	a := []Worker{{ID: "a"}, {ID: "b"}}
	assert.True(t, sameWorkers(a, []Worker{{ID: "b"}, {ID: "a"}}))
	assert.False(t, sameWorkers(a, a[:1]))
	assert.False(t, sameWorkers(a, []Worker{{ID: "a"}, {ID: "c"}}))
	for i := range reflect.TypeFor[Worker]().NumField() {
		b := []Worker{{ID: "a"}, {ID: "b"}}
		f := reflect.ValueOf(&b[1]).Elem().Field(i)
		switch f.Kind() {
		case reflect.String:
			f.SetString("other")
		case reflect.Float64:
			f.SetFloat(0.5)
		default:
			f.SetUint(1)
		}
		assert.False(t, sameWorkers(a, b), reflect.TypeFor[Worker]().Field(i).Name)
	}
}

func TestOpt(t *testing.T) {
	var none Opt[float64]
	_, ok := none.Get()
	assert.False(t, ok)
	assert.Equal(t, 7.0, none.Or(7))
	v, ok := Some(0.0).Get()
	assert.True(t, ok, "a reported zero is reported")
	assert.Zero(t, v)
	assert.Zero(t, Some(0.0).Or(7))
}

// S3: the clock of one worker's reports, as a table.
func TestReportClock_Table(t *testing.T) {
	const s = time.Second
	type step struct {
		at      time.Duration // of the report, after the first
		wall    time.Duration // when it arrives
		want    ReportReason
		rebased bool
	}
	for name, steps := range map[string][]step{
		"forward":            {{0, 0, ReportOK, false}, {1, 1, ReportOK, false}, {5 * s, 5 * s, ReportOK, false}},
		"equal is duplicate": {{0, 0, ReportOK, false}, {0, s, ReportDuplicate, false}, {1, s, ReportOK, false}},
		"30 s ahead":         {{30 * s, 0, ReportOK, false}, {30*s + 1, 0, ReportFuture, false}, {30*s + 1, 1, ReportOK, false}},
		"far ahead":          {{0, 0, ReportOK, false}, {9999 * time.Hour, s, ReportFuture, false}, {2 * s, 2 * s, ReportOK, false}},
		"back by little, for ever": {
			{20 * s, 20 * s, ReportOK, false}, {10 * s, 21 * s, ReportBackwards, false}, {11 * s, 22 * s, ReportBackwards, false},
			{12 * s, 23 * s, ReportBackwards, false}, {13 * s, 24 * s, ReportBackwards, false}, {14 * s, 25 * s, ReportBackwards, false},
			{21 * s, 26 * s, ReportOK, false},
		},
		"back by much: taken the fourth time": {
			{20 * s, 20 * s, ReportOK, false}, {9 * s, 21 * s, ReportBackwards, false}, {9*s + 1, 22 * s, ReportBackwards, false},
			{9*s + 2, 23 * s, ReportBackwards, false}, {9*s + 3, 24 * s, ReportOK, true}, {9*s + 4, 25 * s, ReportOK, false},
			{9*s + 4, 26 * s, ReportDuplicate, false},
		},
		"only in a row": {
			{60 * s, 60 * s, ReportOK, false}, {s, 61 * s, ReportBackwards, false}, {2 * s, 62 * s, ReportBackwards, false},
			{3 * s, 63 * s, ReportBackwards, false}, {64 * s, 64 * s, ReportOK, false}, {5 * s, 65 * s, ReportBackwards, false},
			{66 * s, 66 * s, ReportOK, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var c reportClock
			for i, st := range steps {
				got, rebased := c.admit(labEpoch.Add(st.at), labEpoch.Add(st.wall))
				require.Equal(t, st.want, got, "step %d", i)
				require.Equal(t, st.rebased, rebased, "step %d", i)
			}
		})
	}
}

// naiveClock keeps the whole history and reads the rules off it.
type naiveClock struct {
	taken   []time.Time
	refused []time.Duration // by how much each went back, since the last taken
}

func (c *naiveClock) admit(t, now time.Time) (ReportReason, bool) {
	if t.Sub(now) > 30*time.Second {
		return ReportFuture, false
	}
	if n := len(c.taken); n > 0 {
		switch back := c.taken[n-1].Sub(t); {
		case back == 0:
			return ReportDuplicate, false
		case back > 0:
			far := 0
			for _, d := range c.refused {
				if d > 10*time.Second {
					far++
				}
			}
			if back <= 10*time.Second || far < 3 {
				c.refused = append(c.refused, back)
				return ReportBackwards, false
			}
			c.taken, c.refused = append(c.taken, t), nil
			return ReportOK, true
		}
	}
	c.taken, c.refused = append(c.taken, t), nil
	return ReportOK, false
}

func FuzzReportClock(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 0))
	for range 8 {
		b := make([]byte, 64)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, steps []byte) {
		var fast reportClock
		var naive naiveClock
		now := labEpoch
		for i := 0; len(steps) >= 2; i++ {
			d := int16(binary.LittleEndian.Uint16(steps))
			steps = steps[2:]
			now = now.Add(time.Duration(d&0x1f) * 500 * time.Millisecond)
			at := now.Add(time.Duration(d>>5) * 100 * time.Millisecond) // -102 s to 102 s
			r1, b1 := fast.admit(at, now)
			r2, b2 := naive.admit(at, now)
			if r1 != r2 || b1 != b2 {
				t.Fatalf("step %d, report of %v at %v: %v rebased %v, want %v %v", i, at, now, r1, b1, r2, b2)
			}
		}
	})
}

// I24: what is a time is a time.Duration, or a time.Time, everywhere.
func TestAPI_TimesAreDurations(t *testing.T) {
	require.NoError(t, checkUnits(apiTypes...))
	require.Error(t, checkUnits(reflect.TypeFor[struct{ TimeoutMs int }]()))
	require.Error(t, checkUnits(reflect.TypeFor[struct{ Latency float64 }]()))
}

var apiTypes = []reflect.Type{
	reflect.TypeFor[Tuning](), reflect.TypeFor[Request](), reflect.TypeFor[Outcome](), reflect.TypeFor[Feedback](),
	reflect.TypeFor[Report](), reflect.TypeFor[Topology](), reflect.TypeFor[Worker](), reflect.TypeFor[Transition](),
	reflect.TypeFor[Status](), reflect.TypeFor[WorkerStatus](), reflect.TypeFor[WorkerLane](), reflect.TypeFor[LaneStatus](),
	reflect.TypeFor[RTTStats](), reflect.TypeFor[Decision](), reflect.TypeFor[Candidate](),
}

// checkUnits looks for fields that are named for a time and hold a number.
func checkUnits(types ...reflect.Type) error {
	isTime := func(t reflect.Type) bool {
		return t == reflect.TypeFor[time.Duration]() || t == reflect.TypeFor[time.Time]() || t == reflect.TypeFor[Opt[time.Duration]]()
	}
	var errs []error
	for _, typ := range types {
		for _, f := range reflect.VisibleFields(typ) {
			for _, word := range []string{"Time", "Latency", "Timeout", "RTT", "Age", "TTL", "Interval", "Until", "After", "Decay", "Tau", "P99", "Trust", "Memory", "Cooldown"} {
				number := f.Type.Kind() == reflect.Int || f.Type.Kind() == reflect.Float64 || f.Type.Kind() == reflect.Int64
				if strings.Contains(f.Name, word) && number && !isTime(f.Type) && !notATime[f.Name] {
					errs = append(errs, fmt.Errorf("%v.%s is a %v", typ, f.Name, f.Type))
				}
			}
			for _, unit := range []string{"Ms", "Sec", "Millis", "Micros", "Nanos"} {
				if strings.HasSuffix(f.Name, unit) {
					errs = append(errs, fmt.Errorf("%v.%s has its unit in its name", typ, f.Name))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// notATime are counts, shares and factors whose names say otherwise.
var notATime = map[string]bool{
	"GapMemory": true, "CooldownJitter": true, "TrustIntervals": true, "Cooldown": true, // workers in it
}

func TestCase_131_UnitsAreInTheTypes(t *testing.T) {
	// A threshold of 15 ms must mean 15 ms: of 1 ms and 10 ms both are near,
	// 100 ms is not.
	check := func(near func(threshold, rtt time.Duration) bool) error {
		for rtt, want := range map[time.Duration]bool{time.Millisecond: true, 10 * time.Millisecond: true, 100 * time.Millisecond: false} {
			if near(15*time.Millisecond, rtt) != want {
				return fmt.Errorf("%v is near: %v, want %v", rtt, !want, want)
			}
		}
		return nil
	}
	// Ours: a request time-out decides whether a deadline is the caller's own,
	// and no latency sample of a failure.
	require.NoError(t, check(func(threshold, rtt time.Duration) bool {
		l := newLab(t, labNamed("a"), WithTuning(labTuned(func(t *Tuning) { t.RequestTimeout = threshold })))
		c, err := l.Pick("k")
		require.NoError(t, err)
		l.clock.advance(rtt)
		c.Done(fmt.Errorf("get: %w", context.DeadlineExceeded))
		return l.Status().Workers[0].Read.Failures == 0
	}))
	// The fault: a threshold in milliseconds against a latency in seconds x 1000 twice.
	require.Error(t, check(func(threshold, rtt time.Duration) bool {
		return rtt.Seconds()*1000 <= float64(threshold.Milliseconds())*1000
	}))

	l := newLab(t, labNamed("a"))
	text := l.Explain(Request{Key: "k"}).String()
	assert.Contains(t, text, "latency 1ms", "Explain prints units")
	assert.Contains(t, text, "fleet mean cost with load 1ms")
}
