package ringwise

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// randomReport has about half of its fields, with any value they can hold.
func randomReport(rnd *rand.Rand) Report {
	r := Report{Worker: []string{"w1", "a worker \"with\" \\ names\n", "ünïcode", ""}[rnd.IntN(4)]}
	r.Time = time.Unix(rnd.Int64N(253402300800+62167219200)-62167219200, rnd.Int64N(1e9)).UTC()
	if rnd.IntN(4) == 0 {
		r.Time = time.Unix(1_700_000_000, rnd.Int64N(1e9)).UTC()
	}
	coin := func() bool { return rnd.IntN(2) == 0 }
	float := func() float64 {
		switch rnd.IntN(4) {
		case 0:
			return rnd.Float64()
		case 1:
			return rnd.ExpFloat64() * 1e15
		case 2:
			return []float64{0, math.Copysign(0, -1), 1, math.MaxFloat64, math.SmallestNonzeroFloat64, -1}[rnd.IntN(6)]
		}
		for {
			x := math.Float64frombits(rnd.Uint64())
			if !math.IsNaN(x) && !math.IsInf(x, 0) {
				return x
			}
		}
	}
	for i := range floatFields {
		if coin() {
			*floatFields[i].of(&r) = Some(float())
		}
	}
	for i := range spanFields {
		if coin() {
			*spanFields[i].of(&r) = Some(time.Duration(rnd.Int64N(2*int64(maxReportRTT)) - int64(maxReportRTT)))
		}
	}
	for i := range countFields {
		if coin() {
			*countFields[i].of(&r) = Some(rnd.Uint64() >> rnd.IntN(64))
		}
	}
	for i := range flagFields {
		if coin() {
			*flagFields[i].of(&r) = Some(coin())
		}
	}
	if coin() {
		var set ShardSet
		for range rnd.IntN(100) {
			set.Add(rnd.IntN(Shards))
		}
		r.Shards = Some(set)
	}
	for range rnd.IntN(3) {
		r.ShardHeat = append(r.ShardHeat, ShardHeat{uint16(rnd.IntN(Shards)), float()})
	}
	for range rnd.IntN(3) {
		r.HitRates = append(r.HitRates, HitRate{KeyHash(rnd.Uint64() >> rnd.IntN(64)), float()})
	}
	for range rnd.IntN(3) {
		r.Fingerprints = append(r.Fingerprints, Fingerprint{KeyHash(rnd.Uint64()), rnd.Uint32()})
	}
	return r
}

// The field tables name each field of a Report once, by the field they lead to.
func TestReportFields_AreComplete(t *testing.T) {
	var r Report
	v := reflect.ValueOf(&r).Elem()
	names := map[uintptr]string{}
	for i := range v.NumField() {
		names[v.Field(i).Addr().Pointer()] = v.Type().Field(i).Name
	}
	seen, json := map[string]int{}, map[string]int{}
	add := func(p any, name, js string) {
		field := names[reflect.ValueOf(p).Pointer()]
		if name != "" {
			assert.Equal(t, field, name)
		}
		seen[field]++
		json[js]++
	}
	for _, f := range floatFields {
		add(f.of(&r), f.name, f.json)
	}
	for _, f := range spanFields {
		add(f.of(&r), f.name, f.json)
	}
	for _, f := range countFields {
		add(f.of(&r), "", f.json)
	}
	for _, f := range flagFields {
		add(f.of(&r), "", f.json)
	}
	for _, name := range []string{"Worker", "Time", "Shards", "ShardHeat", "HitRates", "Fingerprints"} {
		seen[name]++
	}
	for _, name := range names {
		assert.Equal(t, 1, seen[name], name)
	}
	for js, n := range json {
		assert.Equal(t, 1, n, js)
		assert.Contains(t, jsonFields, js)
	}
}

// S2: the names and aliases asked for, each in its unit.
func TestReport_JSONNames(t *testing.T) {
	want := Report{
		Worker: "w1", Time: time.Unix(1_700_000_000, 250e6).UTC(),
		CPU: Some(0.5), Queue: Some(7.0), RTTAvg: Some(1500 * time.Microsecond), RTTP99: Some(12 * time.Millisecond),
		Errors: Some(0.02), Compacting: Some(true), VersionLag: Some[uint64](3), IOWait: Some(0.1), NetIn: Some(1e6), NetOut: Some(2e6),
		HitRates: []HitRate{{HashOf("tenant1:user"), 0.9}},
	}
	const rest = `"timestamp":1700000000.25,"cpu_usage":0.5,"rtt_ms_avg":1.5,"rtt_ms_p99":12,"error_rate":0.02,
		"compacting":true,"version_lag":3,"io_wait":0.1,"network_in":1e6,"network_out":2000000,"key_hit_rates":{"tenant1:user":0.9}`
	for _, s := range []string{
		`{"worker_id":"w1","queue_depth":7,` + rest + `}`,
		` { "node_id" : "w1" , "request_queue_depth" : 7 , ` + rest + ` , "something_new" : [ { "a" : null } ] } `,
	} {
		var got Report
		require.NoError(t, json.Unmarshal([]byte(s), &got))
		require.Equal(t, want, got, s)
	}
	for _, name := range []string{"memory_usage", "gc_pause", "request_rate_1m", "request_rate_5m", "reject_rate", "timeout_rate",
		"storage_free", "version", "repairing", "recovering", "read_only", "health_failed", "shards", "shard_heat", "hit_rates", "fingerprints"} {
		assert.Contains(t, jsonFields, name)
	}
	b, err := json.Marshal(Report{Worker: "w", Shards: Some(ShardSet{1, 2}), ShardHeat: []ShardHeat{{511, 0.5}},
		HitRates: []HitRate{{0xab, 1}}, Fingerprints: []Fingerprint{{1, 2}}, ReadOnly: Some(false), RTTP99: Some(-1500 * time.Nanosecond)})
	require.NoError(t, err)
	assert.Equal(t, `{"worker_id":"w","rtt_ms_p99":-0.0015,"read_only":false,"shards":[0,65],"shard_heat":{"511":0.5},`+
		`"hit_rates":{"00000000000000ab":1},"fingerprints":{"0000000000000001":2}}`, string(b))
}

// S3: seconds with a fraction, milliseconds over 1e11, or a string.
func TestReport_JSONTime(t *testing.T) {
	for s, want := range map[string]time.Time{
		`1700000000`:                     time.Unix(1_700_000_000, 0),
		`1700000000.123456789`:           time.Unix(1_700_000_000, 123456789),
		`1700000000.1234567891`:          time.Unix(1_700_000_000, 123456789),
		`1.7e9`:                          time.Unix(1_700_000_000, 0),
		`1700000000123`:                  time.Unix(1_700_000_000, 123e6),
		`1700000000123.456789`:           time.Unix(1_700_000_000, 123456789),
		`100000000000`:                   time.Unix(1e11, 0),
		`100000000000.5`:                 time.Unix(1e8, 500e3),
		`100000000001`:                   time.Unix(1e8, 1e6),
		`0`:                              time.Unix(0, 0),
		`-1.5`:                           time.Unix(-2, 5e8),
		`-0.5`:                           time.Unix(-1, 5e8),
		`"2026-11-01T10:00:00.5+02:00"`:  time.Date(2026, 11, 1, 8, 0, 0, 5e8, time.UTC),
		`"2026-11-01T10:00:00.000001Z"`:  time.Date(2026, 11, 1, 10, 0, 0, 1000, time.UTC),
		`null`:                           {},
		`1700000000000.0000000000000001`: time.Unix(1_700_000_000, 0),
	} {
		var got Report
		require.NoError(t, json.Unmarshal([]byte(`{"timestamp": `+s+`}`), &got), s)
		assert.True(t, want.Equal(got.Time), "%s: got %v, want %v", s, got.Time, want)
		b, err := json.Marshal(got)
		require.NoError(t, err)
		var again Report
		require.NoError(t, json.Unmarshal(b, &again))
		assert.Equal(t, got, again, "%s", b)
	}
}

// "Not reported" differs from zero.
func TestReport_JSONAbsentIsNotZero(t *testing.T) {
	var absent, null, zero Report
	require.NoError(t, json.Unmarshal([]byte(`{"worker_id":"a"}`), &absent))
	all := func(value func(f string) string) string {
		s := `{"worker_id":"a"`
		for name, f := range jsonFields {
			if f.other == "" || f.other == "request_queue_depth" {
				if v := value(name); v != "" {
					s += `,"` + name + `":` + v
				}
			}
		}
		return s + "}"
	}
	require.NoError(t, json.Unmarshal([]byte(all(func(string) string { return "null" })), &null))
	require.Equal(t, absent, null)
	bools := map[string]bool{}
	for _, f := range flagFields {
		bools[f.json] = true
	}
	s := all(func(name string) string {
		switch name {
		case "shards":
			return "[]"
		case "shard_heat", "hit_rates", "fingerprints":
			return "{}"
		}
		if bools[name] {
			return "false"
		}
		return "0"
	})
	require.NoError(t, json.Unmarshal([]byte(s), &zero), s)
	for _, f := range floatFields {
		require.Equal(t, Some(0.0), *f.of(&zero), f.name)
	}
	for _, f := range spanFields {
		require.Equal(t, Some[time.Duration](0), *f.of(&zero), f.name)
	}
	for _, f := range countFields {
		require.Equal(t, Some[uint64](0), *f.of(&zero), f.json)
	}
	for _, f := range flagFields {
		require.Equal(t, Some(false), *f.of(&zero), f.json)
	}
	require.Equal(t, Some(ShardSet{}), zero.Shards)
	b, err := json.Marshal(zero)
	require.NoError(t, err)
	var again Report
	require.NoError(t, json.Unmarshal(b, &again))
	require.Equal(t, zero, again)
}

// A wrong type names the field and changes nothing.
func TestReport_JSONErrors(t *testing.T) {
	old := Report{Worker: "old", CPU: Some(0.5)}
	for s, field := range map[string]string{
		`{"worker_id":7}`:                             "worker_id",
		`{"node_id":{}}`:                              "node_id",
		`{"worker_id":"a","node_id":"a"}`:             "node_id",
		`{"worker_id":"a","worker_id":"a"}`:           "worker_id",
		`{"queue_depth":1,"request_queue_depth":1}`:   "request_queue_depth",
		`{"hit_rates":{},"key_hit_rates":{}}`:         "key_hit_rates",
		`{"key_hit_rates":{},"hit_rates":{}}`:         "hit_rates",
		`{"timestamp":true}`:                          "timestamp",
		`{"timestamp":"yesterday"}`:                   "timestamp",
		`{"timestamp":1e300}`:                         "timestamp",
		`{"timestamp":99999999999999999999999}`:       "timestamp",
		`{"timestamp":-99999999999999}`:               "timestamp",
		`{"cpu_usage":"0.5"}`:                         "cpu_usage",
		`{"cpu_usage":[]}`:                            "cpu_usage",
		`{"cpu_usage":1e999}`:                         "cpu_usage",
		`{"rtt_ms_avg":"1ms"}`:                        "rtt_ms_avg",
		`{"rtt_ms_p99":1e300}`:                        "rtt_ms_p99",
		`{"version":1.5}`:                             "version",
		`{"version":-1}`:                              "version",
		`{"version":18446744073709551616}`:            "version",
		`{"version_lag":"3"}`:                         "version_lag",
		`{"compacting":1}`:                            "compacting",
		`{"read_only":"true"}`:                        "read_only",
		`{"shards":{}}`:                               "shards",
		`{"shards":[512]}`:                            "shards",
		`{"shards":[-1]}`:                             "shards",
		`{"shards":["1"]}`:                            "shards",
		`{"shards":[null]}`:                           "shards",
		`{"shards":[1,null]}`:                         "shards",
		`{"worker_id":"a","worker_id":null}`:          "worker_id",
		`{"worker_id":null,"worker_id":"a"}`:          "worker_id",
		`{"cpu_usage":null,"cpu_usage":null}`:         "cpu_usage",
		`{"queue_depth":1,"queue_depth":null}`:        "queue_depth",
		`{"shard_heat":[1]}`:                          "shard_heat",
		`{"shard_heat":{"512":1}}`:                    "shard_heat",
		`{"shard_heat":{"x":1}}`:                      "shard_heat",
		`{"shard_heat":{"1":"hot"}}`:                  "shard_heat",
		`{"key_hit_rates":{"a":null}}`:                "key_hit_rates",
		`{"key_hit_rates":0.5}`:                       "key_hit_rates",
		`{"hit_rates":{"not hex":0.5}}`:               "hit_rates",
		`{"fingerprints":{"1":1.5}}`:                  "fingerprints",
		`{"fingerprints":{"1":-1}}`:                   "fingerprints",
		`{"fingerprints":{"1":4294967296}}`:           "fingerprints",
		`{"fingerprints":` + manyMembers(1025) + `}`:  "fingerprints",
		`{"hit_rates":` + manyMembers(1025) + `}`:     "hit_rates",
		`{"key_hit_rates":` + manyMembers(1025) + `}`: "key_hit_rates",
		`{"shard_heat":` + manyMembers(513) + `}`:     "shard_heat",
		`null`: "JSON", `[]`: "JSON", `7`: "JSON", ``: "JSON", `{`: "JSON", `{"a":1 "b":2}`: "JSON", `{"a"`: "JSON",
		`{"cpu_usage":}`: "JSON", `{} {}`: "JSON", `{}x`: "JSON",
	} {
		got := old
		err := got.UnmarshalJSON([]byte(s))
		e, ok := errors.AsType[*ReportError](err)
		require.True(t, ok, "%.80s: %v", s, err)
		require.ErrorIs(t, err, ErrReport)
		assert.Equal(t, field, e.Field, "%.80s", s)
		assert.Equal(t, ReportMalformed, e.Reason)
		assert.Contains(t, e.Error(), field)
		assert.Less(t, len(e.Error()), 300)
		assert.Equal(t, old, got, "%.80s: nothing changes", s)
	}
	var r Report
	err := json.Unmarshal([]byte(`[{"worker_id":"a"},{"worker_id":"b","cpu_usage":"x"}]`), &[]Report{})
	e, ok := errors.AsType[*ReportError](err)
	require.True(t, ok)
	assert.Equal(t, "b", e.Worker, "it says whose report it was")
	require.NoError(t, json.Unmarshal([]byte(`{"worker_id":"a","node_id":null,"CPU_usage":"ignored"}`), &r))
	assert.Equal(t, Report{Worker: "a"}, r)
	require.NoError(t, json.Unmarshal([]byte(`{"node_id":null,"worker_id":"a","hit_rates":null,"key_hit_rates":null}`), &r))

	for field, bad := range map[string]Report{
		"cpu_usage":  {CPU: Some(math.NaN())},
		"network_in": {NetIn: Some(math.Inf(1))},
		"shard_heat": {ShardHeat: []ShardHeat{{1, math.Inf(-1)}}},
		"hit_rates":  {HitRates: []HitRate{{1, math.NaN()}}},
		"timestamp":  {Time: time.Unix(1<<40, 0)},
		// What UnmarshalJSON would refuse.
		"ShardHeat[1].Slot": {ShardHeat: []ShardHeat{{511, 1}, {600, 1}}},
		"ShardHeat":         {ShardHeat: make([]ShardHeat, 513)},
		"HitRates":          {HitRates: make([]HitRate, 1025)},
		"Fingerprints":      {Fingerprints: make([]Fingerprint, 1025)},
		"rtt_ms_avg":        {RTTAvg: Some(time.Duration(math.MinInt64))},
		"rtt_ms_p99":        {RTTP99: Some(time.Duration(math.MaxInt64))},
	} {
		_, err := bad.MarshalJSON()
		e, ok := errors.AsType[*ReportError](err)
		require.True(t, ok, field)
		assert.Equal(t, field, e.Field)
	}
}

func manyMembers(n int) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"` + KeyHash(i + 1).String()[13:] + `":1`)
	}
	return b.String() + "}"
}

func TestReport_JSONRoundTrip(t *testing.T) {
	for _, d := range []time.Duration{maxReportSpan, -maxReportSpan} {
		b, err := json.Marshal(Report{RTTAvg: Some(d)})
		require.NoError(t, err)
		var got Report
		require.NoError(t, json.Unmarshal(b, &got), "%s", b)
		assert.InEpsilon(t, float64(d), float64(got.RTTAvg.Or(0)), 1e-15)
	}
	rnd := seeded(t, 1)
	for range 2000 {
		want := randomReport(rnd)
		b, err := json.Marshal(want)
		require.NoError(t, err)
		var got Report
		require.NoError(t, json.Unmarshal(b, &got), "%s", b)
		require.Equal(t, want, got, "%s", b)
	}
}

// A refusal says what is missing, not that "" is unknown.
func TestReport_MissingWorkerAndEmptyInput(t *testing.T) {
	g := newRig(t, 3)
	var rep Report
	require.NoError(t, json.Unmarshal([]byte(`{"timestamp": 1793491200, "cpu_usage": 0.5}`), &rep))
	err := g.Report(rep)
	detail, ok := errors.AsType[*ReportError](err)
	require.True(t, ok)
	require.Equal(t, ReportUnknownWorker, detail.Reason)
	require.EqualError(t, err, "ringwise: report refused: Report.Worker is missing, worker_id in JSON (unknown worker)")
	rep.CPU = Some(2.0)
	require.EqualError(t, g.Report(rep), "ringwise: report refused: CPU = 2, want a number in [0, 1] (out of range)")
	for _, in := range []string{"", " \n"} {
		err := new(Report).UnmarshalJSON([]byte(in))
		require.EqualError(t, err, "ringwise: report refused: JSON = empty, want an object (malformed)")
	}
}

func FuzzReportJSON(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 0))
	for range 8 {
		b, err := json.Marshal(randomReport(rnd))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"node_id":"a","timestamp":"2026-11-01T10:00:00Z","key_hit_rates":{"a":1},"shards":[1,2]}`))
	f.Add([]byte(`{"timestamp":1e11,"rtt_ms_avg":-1e-9}`))
	f.Add([]byte(" {\"a\\n\\\"\" : [ {\"b\":\"}]\\\\\"} , 1 ] ,\n\"c\":-1.5e3\t,\"d\":true} "))
	f.Fuzz(func(t *testing.T, data []byte) {
		// The walk sees what encoding/json does.
		var want map[string]json.RawMessage
		if json.Unmarshal(data, &want) == nil && want != nil {
			got := map[string]json.RawMessage{}
			require.True(t, eachMember(data, func(name, value []byte) bool { got[string(name)] = value; return true }))
			require.Equal(t, want, got)
		}
		var r Report
		if err := r.UnmarshalJSON(data); err != nil {
			require.ErrorIs(t, err, ErrReport)
			return
		}
		require.True(t, json.Valid(data), "taken, but no JSON")
		b, err := r.MarshalJSON()
		require.NoError(t, err)
		require.True(t, json.Valid(b), "%s", b)
		var again Report
		require.NoError(t, again.UnmarshalJSON(b), "%s", b)
		for i := range spanFields { // exact within what a report may hold
			if d, _ := spanFields[i].of(&r).Get(); d > 1<<53 || d < -1<<53 {
				*spanFields[i].of(&r), *spanFields[i].of(&again) = Opt[time.Duration]{}, Opt[time.Duration]{}
			}
		}
		require.Equal(t, r, again, "%s", b)
	})
}
