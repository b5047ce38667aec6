package ringwise

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The JSON names that no table has.
const (
	jsonWorker, jsonWorkerAlias = "worker_id", "node_id"
	jsonTime                    = "timestamp"
	jsonShards                  = "shards"
	jsonHeat                    = "shard_heat"
	jsonRates, jsonRatesAlias   = "hit_rates", "key_hit_rates"
	jsonPrints                  = "fingerprints"
)

// jsonField is one name in a JSON report; number is the same for a name and
// its alias, of which a report has one.
type jsonField struct {
	number int
	alias  int    // 1 for the second name of a field, else 0
	other  string // the other name, if there is one
	read   func(r *Report, raw []byte) (want string, ok bool)
}

// jsonFields are all names of a JSON report.
var jsonFields = func() map[string]jsonField {
	m := map[string]jsonField{}
	n := 0
	add := func(name, alias string, read func(r *Report, raw []byte) (string, bool)) {
		m[name] = jsonField{n, 0, alias, read}
		if alias != "" {
			m[alias] = jsonField{n, 1, name, read}
		}
		n++
	}
	add(jsonWorker, jsonWorkerAlias, func(r *Report, raw []byte) (string, bool) {
		id, ok := unquote(raw)
		r.Worker = string(id)
		return "a string", ok
	})
	add(jsonTime, "", func(r *Report, raw []byte) (want string, ok bool) {
		r.Time, ok = parseReportTime(raw)
		return "seconds or ms since 1970, or an RFC 3339 string, of the years 0 to 9999", ok
	})
	for i := range floatFields {
		f := &floatFields[i]
		add(f.json, f.alias, func(r *Report, raw []byte) (string, bool) {
			v, ok := parseNumber(raw)
			*f.of(r) = Some(v)
			return "a number", ok
		})
	}
	for i := range spanFields {
		f := &spanFields[i]
		add(f.json, "", func(r *Report, raw []byte) (string, bool) {
			ms, ok := parseNumber(raw)
			ns := math.RoundToEven(ms * 1e6)
			*f.of(r) = Some(time.Duration(ns))
			return "milliseconds, within 292 years", ok && math.Abs(ns) <= float64(maxReportSpan)
		})
	}
	for i := range countFields {
		f := &countFields[i]
		add(f.json, "", func(r *Report, raw []byte) (string, bool) {
			v, err := strconv.ParseUint(string(raw), 10, 64)
			*f.of(r) = Some(v)
			return "a whole number in [0, 2^64)", err == nil
		})
	}
	for i := range flagFields {
		f := &flagFields[i]
		add(f.json, "", func(r *Report, raw []byte) (string, bool) {
			*f.of(r) = Some(raw[0] == 't')
			return "true or false", raw[0] == 't' || raw[0] == 'f'
		})
	}
	add(jsonShards, "", readShards)
	add(jsonHeat, "", func(r *Report, raw []byte) (string, bool) {
		return "an object of slot: heat, slots in [0, 511]", eachNumber(raw, func(name []byte, x float64) bool {
			slot, err := strconv.ParseUint(string(name), 10, 16)
			r.ShardHeat = append(r.ShardHeat, ShardHeat{uint16(slot), x})
			return err == nil && slot < Shards && len(r.ShardHeat) <= Shards
		})
	})
	add(jsonRates, "", func(r *Report, raw []byte) (string, bool) {
		return "an object of hash in hexadecimal: rate, at most 1024", eachNumber(raw, func(name []byte, x float64) bool {
			h, err := strconv.ParseUint(string(name), 16, 64)
			r.HitRates = append(r.HitRates, HitRate{KeyHash(h), x})
			return err == nil && len(r.HitRates) <= maxReportList
		})
	})
	// Workers know their kinds of key by name. It is the same field as the
	// list of hashes.
	m[jsonRatesAlias] = jsonField{m[jsonRates].number, 1, jsonRates, func(r *Report, raw []byte) (string, bool) {
		return "an object of name: rate, at most 1024", eachNumber(raw, func(name []byte, x float64) bool {
			r.HitRates = append(r.HitRates, HitRate{HashBytes(name), x})
			return len(r.HitRates) <= maxReportList
		})
	}}
	add(jsonPrints, "", func(r *Report, raw []byte) (string, bool) {
		return "an object of hash in hexadecimal: count, at most 1024, each a whole number in [0, 2^32)",
			eachNumber(raw, func(name []byte, x float64) bool {
				h, err := strconv.ParseUint(string(name), 16, 64)
				r.Fingerprints = append(r.Fingerprints, Fingerprint{KeyHash(h), uint32(clamp(x, 0, math.MaxUint32))})
				return err == nil && x == float64(uint32(clamp(x, 0, math.MaxUint32))) && len(r.Fingerprints) <= maxReportList
			})
	})
	return m
}()

func readShards(r *Report, raw []byte) (want string, ok bool) {
	var slots []uint16
	// Unmarshal takes a null in it for 0.
	ok = raw[0] == '[' && bytes.IndexByte(raw, 'n') < 0 && json.Unmarshal(raw, &slots) == nil
	var set ShardSet
	for _, i := range slots {
		ok = ok && i < Shards
		set.Add(int(i))
	}
	r.Shards = Some(set)
	return "an array of slots in [0, 511]", ok
}

// UnmarshalJSON reads a report from a JSON object; docs/reports.md has the
// names. A field that is absent or null is not reported. Unknown fields are
// ignored, so that a worker may say more than this version knows; names are
// matched exactly. A wrong type, or a field given twice or beside its alias,
// gives a *ReportError that names it and leaves r as it was. Ranges are checked
// by Router.Report. Some microseconds.
func (r *Report) UnmarshalJSON(data []byte) error {
	var next Report
	bad := func(field string, value []byte, want string) error {
		if len(value) > 40 {
			value = append(bytes.ToValidUTF8(value[:40], nil), "..."...)
		}
		return &ReportError{next.Worker, field, string(value), want, ReportMalformed}
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return bad("JSON", []byte("empty"), "an object")
	}
	if !json.Valid(data) {
		return bad("JSON", data, "an object")
	}
	var given [2]uint64 // names that were there, nulls too; [1] are the aliases
	var seen uint64     // fields that have a value
	var err error
	object := eachMember(data, func(name, raw []byte) bool {
		f, known := jsonFields[string(name)]
		bit, null := uint64(1)<<f.number, raw[0] == 'n'
		switch {
		case !known:
			return true
		case given[f.alias]&bit != 0 || seen&bit != 0 && !null:
			want := "each field once"
			if f.other != "" {
				want = string(name) + " or " + f.other + ", and once"
			}
			err = bad(string(name), raw, want)
			return false
		}
		given[f.alias] |= bit
		if null {
			return true
		}
		seen |= bit
		want, ok := f.read(&next, raw)
		if !ok {
			err = bad(string(name), raw, want)
		}
		return ok
	})
	switch {
	case err != nil:
		return err
	case !object:
		return bad("JSON", data, "an object")
	}
	*r = next
	return nil
}

func parseNumber(raw []byte) (float64, bool) {
	if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	return v, err == nil
}

// eachNumber calls f for each name and number of a JSON object, until f says
// no. It reports whether all were taken.
func eachNumber(raw []byte, f func(name []byte, x float64) bool) bool {
	return eachMember(raw, func(name, value []byte) bool {
		x, ok := parseNumber(value)
		return ok && f(name, x)
	})
}

// eachMember calls f for each name and value of a JSON object, until f says
// no. It reports whether obj is an object and all were taken. obj must be
// valid JSON: then it is walked in place, where a json.Decoder would allocate
// for each token.
func eachMember(obj []byte, f func(name, value []byte) bool) bool {
	s := jsonWalk{obj, 0}
	if s.space() != '{' {
		return false
	}
	for s.i++; s.space() != '}'; {
		name := s.value()
		s.space() // the colon
		s.i++
		s.space()
		value := s.value()
		if s.space() == ',' {
			s.i++
		}
		name, ok := unquote(name)
		if !ok || !f(name, value) {
			return false
		}
	}
	return true
}

// jsonWalk is a place in valid JSON.
type jsonWalk struct {
	b []byte
	i int
}

// space skips white space and returns what follows.
func (s *jsonWalk) space() byte {
	for s.b[s.i] == ' ' || s.b[s.i] == '\n' || s.b[s.i] == '\t' || s.b[s.i] == '\r' {
		s.i++
	}
	return s.b[s.i]
}

// value is the value that begins here.
func (s *jsonWalk) value() []byte {
	from, depth := s.i, 0
	for ; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '"':
			for s.i++; s.b[s.i] != '"'; s.i++ {
				if s.b[s.i] == '\\' {
					s.i++
				}
			}
			if depth == 0 {
				s.i++
				return s.b[from:s.i]
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // of the object around a number
				return s.b[from:s.i]
			}
			if depth--; depth == 0 {
				s.i++
				return s.b[from:s.i]
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return s.b[from:s.i]
			}
		}
	}
	return s.b[from:s.i]
}

// unquote is the content of a JSON string.
func unquote(raw []byte) ([]byte, bool) {
	if raw[0] != '"' {
		return nil, false
	}
	if in := raw[1 : len(raw)-1]; bytes.IndexByte(in, '\\') < 0 && utf8.Valid(in) {
		return in, true
	}
	var s string
	ok := json.Unmarshal(raw, &s) == nil
	return []byte(s), ok
}

// reportMillis is the number from which a timestamp is in milliseconds: as
// seconds it would be the year 5138, as milliseconds it is 1973.
const reportMillis = 100_000_000_000

// parseReportTime reads a JSON timestamp, digit by digit: a float64 of the
// seconds is off by up to 120 ns.
func parseReportTime(raw []byte) (time.Time, bool) {
	s := string(raw)
	if text, ok := unquote(raw); ok {
		t, err := time.Parse(time.RFC3339Nano, string(text))
		return t.UTC(), err == nil && writable(t)
	}
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		x, ok := parseNumber(raw)
		if !ok || math.Abs(x) >= 1e17 {
			return time.Time{}, false
		}
		s = strconv.FormatFloat(x, 'f', -1, 64)
	}
	s, negative := strings.CutPrefix(s, "-")
	whole, frac, _ := strings.Cut(s, ".")
	sec, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || sec >= 1e17 {
		return time.Time{}, false
	}
	frac = (frac + "000000000")[:9]
	ns, err := strconv.ParseInt(frac, 10, 64)
	if err != nil {
		return time.Time{}, false
	}
	if !negative && (sec > reportMillis || sec == reportMillis && ns > 0) {
		sec, ns = sec/1000, sec%1000*1e6+ns/1000
	}
	if negative {
		sec, ns = -sec, -ns
	}
	t := time.Unix(sec, ns).UTC()
	return t, writable(t)
}

// writable: of a year that RFC 3339 has, so that both forms can tell it.
func writable(t time.Time) bool {
	sec := t.Unix()
	return sec >= -62167219200 && sec < 253402300800
}

// MarshalJSON writes a report as UnmarshalJSON reads it, with the first names;
// what was not reported is left out. All that a report can hold comes back
// exactly, but for a worker ID that is no UTF-8 and a duration beyond 20 days,
// which has the 16 digits of a float64. A number that is not finite, a time
// outside the years 0 to 9999, a duration beyond 292 years, a shard slot over
// 511 and a list over its limit give a *ReportError.
func (r Report) MarshalJSON() ([]byte, error) {
	if err := r.checkLengths(); err != nil {
		return nil, err
	}
	for i, h := range r.ShardHeat {
		if h.Slot >= Shards {
			return nil, &ReportError{r.Worker, fmt.Sprintf("ShardHeat[%d].Slot", i), h.Slot, "a slot in [0, 511]", ReportOutOfRange}
		}
	}
	worker, err := json.Marshal(r.Worker)
	if err != nil {
		return nil, err
	}
	b := append([]byte(`{"`+jsonWorker+`":`), worker...)
	name := func(s string) {
		b = append(b, `,"`...)
		b = append(b, s...)
		b = append(b, `":`...)
	}
	float := func(field string, x float64) {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			err = errors.Join(err, &ReportError{r.Worker, field, x, "a finite number", ReportNotFinite})
			return
		}
		b = strconv.AppendFloat(b, x, 'g', -1, 64)
	}
	if !r.Time.IsZero() {
		if !writable(r.Time) {
			return nil, &ReportError{r.Worker, jsonTime, r.Time, "a time of the years 0 to 9999", ReportOutOfRange}
		}
		name(jsonTime)
		b = appendReportTime(b, r.Time)
	}
	for i := range floatFields {
		if x, ok := floatFields[i].of(&r).Get(); ok {
			name(floatFields[i].json)
			float(floatFields[i].json, x)
		}
	}
	for i := range spanFields {
		if d, ok := spanFields[i].of(&r).Get(); ok {
			if d < -maxReportSpan || d > maxReportSpan {
				return nil, &ReportError{r.Worker, spanFields[i].json, d, "a duration within 292 years", ReportOutOfRange}
			}
			name(spanFields[i].json)
			b = appendMillis(b, d)
		}
	}
	for i := range countFields {
		if n, ok := countFields[i].of(&r).Get(); ok {
			name(countFields[i].json)
			b = strconv.AppendUint(b, n, 10)
		}
	}
	for i := range flagFields {
		if on, ok := flagFields[i].of(&r).Get(); ok {
			name(flagFields[i].json)
			b = strconv.AppendBool(b, on)
		}
	}
	if set, ok := r.Shards.Get(); ok {
		name(jsonShards)
		b = appendShards(b, &set)
	}
	open := byte('{')
	member := func(key string) {
		b = append(b, open, '"')
		b = append(b, key...)
		b = append(b, `":`...)
		open = ','
	}
	list := func(field string, n int, each func(i int)) {
		if n == 0 {
			return
		}
		name(field)
		open = '{'
		for i := range n {
			each(i)
		}
		b = append(b, '}')
	}
	list(jsonHeat, len(r.ShardHeat), func(i int) {
		member(strconv.Itoa(int(r.ShardHeat[i].Slot)))
		float(jsonHeat, r.ShardHeat[i].Heat)
	})
	list(jsonRates, len(r.HitRates), func(i int) {
		member(r.HitRates[i].Kind.String())
		float(jsonRates, r.HitRates[i].Rate)
	})
	list(jsonPrints, len(r.Fingerprints), func(i int) {
		member(r.Fingerprints[i].Kind.String())
		b = strconv.AppendUint(b, uint64(r.Fingerprints[i].Count), 10)
	})
	if err != nil {
		return nil, err
	}
	return append(b, '}'), nil
}

func appendShards(b []byte, set *ShardSet) []byte {
	b = append(b, '[')
	for i, n := 0, 0; i < Shards; i++ {
		if set.Has(i) {
			if n++; n > 1 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(i), 10)
		}
	}
	return append(b, ']')
}

func appendReportTime(b []byte, t time.Time) []byte {
	sec, ns := t.Unix(), uint64(t.Nanosecond())
	switch {
	case sec >= reportMillis: // which would be read as milliseconds
		return appendFraction(strconv.AppendInt(b, sec*1000+int64(ns/1e6), 10), ns%1e6, 6)
	case sec < 0 && ns > 0: // -1.5 is 2 s before and 0.5 s after
		b = append(b, '-')
		b = strconv.AppendInt(b, -(sec + 1), 10)
		return appendFraction(b, 1e9-ns, 9)
	}
	return appendFraction(strconv.AppendInt(b, sec, 10), ns, 9)
}

// maxReportSpan is 292 years: a float64 of ms near the most a Duration holds
// could be read as more.
const maxReportSpan = 292 * 365 * 24 * time.Hour

func appendMillis(b []byte, d time.Duration) []byte {
	if d < 0 {
		b = append(b, '-')
	}
	ns := uint64(max(d, -d))
	return appendFraction(strconv.AppendUint(b, ns/1e6, 10), ns%1e6, 6)
}

// appendFraction writes the digits after a point, if there are any.
func appendFraction(b []byte, frac uint64, digits int) []byte {
	if frac == 0 {
		return b
	}
	s := strconv.FormatUint(frac, 10)
	b = append(b, '.')
	b = append(b, "000000000"[:digits-len(s)]...)
	return append(b, strings.TrimRight(s, "0")...)
}
