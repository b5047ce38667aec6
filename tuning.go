package ringwise

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
)

// MaxScorers is how many scorers of the caller's a Router takes.
const MaxScorers = 8

// Tuning holds every coefficient, as plain comparable data: copy one, change
// it, hand it to Retune. DefaultTuning has the defaults and DESIGN.md where
// each was measured. The range of each field stands in its tag; Validate
// checks it.
type Tuning struct {
	// RequestTimeout is the time after which a caller gives up. It is the
	// least latency a failure counts as, the age at which a reservation may
	// expire (after one to two of them), and what tells a caller's own shorter
	// deadline apart. Request.Timeout overrides it. Default 1 s.
	RequestTimeout time.Duration `range:"1ms..1h"`
	// InitialLatency stands for the fleet's mean latency until a request has
	// been answered. Default 1 ms.
	InitialLatency time.Duration `range:"1us..1m"`

	// Temperature of softmax in score points; 10 points are a factor e in
	// cost, so a worker's probability is cost^-10 at 1. Whole numbers of
	// 10/Temperature up to 20 are the fast ones; classic scorers want about 10.
	// Default 1.
	Temperature float64 `range:"0.01..1000"`
	// MinShare is the least probability of a candidate that is not in
	// penalty. Default 0: fading memory retries a slow worker already, and a
	// standing quota of 1 % costs 25 % of p99.9 (DESIGN.md).
	MinShare float64 `range:"0..0.05"`
	// LiveWeight is the weight of the live cost score beside the scorers of
	// WithScorer. Without scorers it has no effect unless it is 0. Default 1.
	LiveWeight float64 `range:"0..1000"`
	// ScorerWeights are the weights of the scorers, in the order of their
	// WithScorer options; a negative one takes the option's weight (default).
	ScorerWeights [MaxScorers]float64 `range:"-1..1000"`

	// LatencyTau is the time constant of a worker's latency EWMA; the gain of
	// a sample is clamped to GainMin..GainMax. Defaults 50 ms, 0.02, 0.4.
	LatencyTau time.Duration `range:"1ms..1m"`
	GainMin    float64       `range:"0..1"`
	GainMax    float64       `range:"0..1"`
	// FailureGain is the least gain of a failure, FailureCap the most a
	// failure counts, in fleet means. Defaults 0.3, 50.
	FailureGain float64 `range:"0..1"`
	FailureCap  float64 `range:"1..1e6"`
	// MeanGain is the gain of the fleet mean per sample. Default 0.01.
	MeanGain float64 `range:"1e-6..1"`
	// MemoryMin and MemoryMax bound how long an idle worker's bad latency is
	// remembered; it grows by 1.5 with each answer that confirms it. A failure
	// is remembered for FailureMemory. Defaults 50 ms, 10 s, 1 s.
	MemoryMin     time.Duration `range:"1ms..1m"`
	MemoryMax     time.Duration `range:"1ms..10m"`
	FailureMemory time.Duration `range:"1ms..1m"`
	// GapMemory: an idle worker's latency is remembered for at least this
	// many of its mean gaps between answers. Default 10.
	GapMemory float64 `range:"0..100"`
	// SilenceFactor: a worker with requests in flight that has not answered
	// for so many of its latencies is as slow as its silence is long.
	// Default 1.8.
	SilenceFactor float64 `range:"1..100"`
	// LoadWeight is the cost of one request in flight: load = 1 + it*n.
	// Default 2.5.
	LoadWeight float64 `range:"0..100"`
	// FeedbackWeight and FeedbackDecay weigh the requests a worker said were
	// in it when its last answer left. Defaults 0.25, 30 ms.
	FeedbackWeight float64       `range:"0..100"`
	FeedbackDecay  time.Duration `range:"1ms..1m"`
	// PriorExponent weighs the reported p99 against the fleet's geometric
	// mean in what an unknown or idle worker is taken for. At Temperature 1 a
	// share goes with the reported p99 to the power of -10 times this: with 0.1
	// in proportion, with 0.5 all clients herd on the last report's favourite
	// (DESIGN.md). Default 0.1.
	PriorExponent float64 `range:"0..2"`
	// CompactingFactor and RepairFactor: the cost of a worker that reports
	// compaction or repair is divided by them. Defaults 0.7, 0.5.
	CompactingFactor float64 `range:"0.01..1"`
	RepairFactor     float64 `range:"0.01..1"`
	// ZoneCost multiplies the cost of candidates outside WithLocalZone.
	// Default 1: off.
	ZoneCost float64 `range:"1..1000"`
	// UnknownRate and UnknownRatio: errors the Classifier does not know count
	// as failures only where their share is over UnknownRate and over
	// UnknownRatio times the fleet's. Defaults 0.03, 3.
	UnknownRate  float64 `range:"0..1"`
	UnknownRatio float64 `range:"1..1000"`

	// TripFailures in a row, or TripLowScores folds in a row with a score
	// under TripScore, put a worker into cooldown. Defaults 3, 3, 40.
	TripFailures  int     `range:"1..15"`
	TripLowScores int     `range:"1..15"`
	TripScore     float64 `range:"0..70"`
	// CooldownMin doubles with each trip up to CooldownMax, each +-
	// CooldownJitter; a healthy time as long as the last cooldown takes one
	// doubling back. Defaults 1 s, 30 s, 0.25.
	CooldownMin    time.Duration `range:"1ms..10m"`
	CooldownMax    time.Duration `range:"1ms..1h"`
	CooldownJitter float64       `range:"0..0.5"`
	// RampTime and RampSteps: a recovering worker's share rises in so many
	// steps, one success each at least, over at least this time. Defaults
	// 10 s, 5.
	RampTime  time.Duration `range:"1ms..10m"`
	RampSteps int           `range:"1..7"`
	// ProbeQuota is how many requests a worker out of cooldown may have in
	// flight until one of them succeeds. Default 1.
	ProbeQuota int `range:"1..15"`
	// ErrorRateHigh and ErrorRateLow are the hysteresis of the observed
	// state over at least ErrorSamples answers; SlowRatio times the fleet's
	// latency for SlowTime is slow. Defaults 0.03, 0.015, 20, 2, 1 s.
	ErrorRateHigh float64       `range:"0..1"`
	ErrorRateLow  float64       `range:"0..1"`
	ErrorSamples  int           `range:"1..1000000"`
	SlowRatio     float64       `range:"1..100"`
	SlowTime      time.Duration `range:"1ms..10m"`
	// ObservedFactor and PanicFactor scale the share of an observed worker
	// and of one in cooldown that is let in because too many are out.
	// Defaults 0.85, 0.2.
	ObservedFactor float64 `range:"0.01..1"`
	PanicFactor    float64 `range:"0.01..1"`
	// RetryBudget is the share of Do's idempotent requests that may be tried
	// once more: each success earns so much of a retry, up to 10; a time-out
	// costs two. 0 is off. Default 0.02.
	RetryBudget float64 `range:"0..1"`
	// HedgeBudget is the share of Do's idempotent reads of which a copy may be
	// sent, up to 10 at once; 0 is off. A copy is due after k fleet means; k
	// starts at HedgeStart and moves within HedgeMin and HedgeMax so that seven
	// in ten
	// of the copies win. Defaults 0.02, 6, 5, 30.
	HedgeBudget float64 `range:"0..1"`
	HedgeStart  float64 `range:"1..1000"`
	HedgeMin    float64 `range:"1..1000"`
	HedgeMax    float64 `range:"1..1000"`
	// MaxOut is the most of the fleet, and of a request's candidates, that
	// penalties may take out. Default 0.5.
	MaxOut float64 `range:"0..1"`

	// LoadTrust is how long a report is believed at least; TrustIntervals
	// times the worker's own report interval if that is longer. Defaults
	// 5 s, 3.
	LoadTrust      time.Duration `range:"1ms..1h"`
	TrustIntervals float64       `range:"1..100"`
	// KeyTrust is how long the lists of a report (shards held and their heat,
	// hit rates, fingerprints) are believed, or as long as the rest of it if
	// that is longer. Default 30 s.
	KeyTrust time.Duration `range:"1ms..1h"`
	// StaleFactor scales the share of a worker whose membership is
	// unconfirmed once the topology is past its TTL. Default 0.5.
	StaleFactor float64 `range:"0.01..1"`

	// ProbeAfter: a worker that has answered nothing for so long is to be
	// probed, where there is a hook that does. ProbeFailures failed probes in a
	// row take it out until one succeeds, or for ProbeOutTime after the last
	// result. Defaults 30 s, 3, 30 s.
	ProbeAfter    time.Duration `range:"1s..1h"`
	ProbeFailures int           `range:"1..15"`
	ProbeOutTime  time.Duration `range:"1s..1h"`
	// WeightFeedback turns on a slow loop over errors: every 10 s a worker
	// with more errors than its own history has its share lowered, by at most
	// this part of it, never under a tenth; a clean 10 s raise it. 0.1 to 0.2
	// is sane. Default 0: off, for live cost and penalties do it within
	// milliseconds, and two loops on one figure are one too many.
	WeightFeedback float64 `range:"0..0.2"`

	// DirectoryScore: where the best candidate's score is under it, the
	// directory of WithDirectory is asked; 70 is par. Default 60.
	DirectoryScore float64 `range:"0..100"`
	// HotSpread: a Read of a key that is hot by reads for minutes has so many
	// times the usual candidates (WithHotKeys). 1 is off. Default 2.
	HotSpread int `range:"1..16"`
	// GearWrite and GearRead are the shares of writes in the last five minutes
	// at which Gears goes over to its write set and back. Defaults 0.4, 0.25.
	GearWrite float64 `range:"0..1"`
	GearRead  float64 `range:"0..1"`

	// FoldInterval is how often means, ages and flags are published.
	// Default 100 ms.
	FoldInterval time.Duration `range:"1ms..10s"`
}

// DefaultTuning returns the defaults.
func DefaultTuning() Tuning {
	t := Tuning{
		RequestTimeout: time.Second, InitialLatency: time.Millisecond,
		Temperature: 1, LiveWeight: 1,
		LatencyTau: 50 * time.Millisecond, GainMin: 0.02, GainMax: 0.4,
		FailureGain: 0.3, FailureCap: 50, MeanGain: 0.01,
		MemoryMin: 50 * time.Millisecond, MemoryMax: 10 * time.Second, FailureMemory: time.Second,
		GapMemory: 10, SilenceFactor: 1.8, LoadWeight: 2.5,
		FeedbackWeight: 0.25, FeedbackDecay: 30 * time.Millisecond,
		PriorExponent: 0.1, CompactingFactor: 0.7, RepairFactor: 0.5, ZoneCost: 1,
		UnknownRate: 0.03, UnknownRatio: 3,
		TripFailures: 3, TripLowScores: 3, TripScore: 40,
		CooldownMin: time.Second, CooldownMax: 30 * time.Second, CooldownJitter: 0.25,
		RampTime: 10 * time.Second, RampSteps: 5, ProbeQuota: 1,
		ErrorRateHigh: 0.03, ErrorRateLow: 0.015, ErrorSamples: 20, SlowRatio: 2, SlowTime: time.Second,
		ObservedFactor: 0.85, PanicFactor: 0.2, MaxOut: 0.5, RetryBudget: 0.02, HedgeBudget: 0.02, HedgeStart: 6, HedgeMin: 5, HedgeMax: 30,
		LoadTrust: 5 * time.Second, TrustIntervals: 3, KeyTrust: 30 * time.Second, StaleFactor: 0.5,
		ProbeAfter: 30 * time.Second, ProbeFailures: 3, ProbeOutTime: 30 * time.Second,
		DirectoryScore: 60, HotSpread: 2, GearWrite: 0.4, GearRead: 0.25,
		FoldInterval: 100 * time.Millisecond,
	}
	for i := range t.ScorerWeights {
		t.ScorerWeights[i] = -1
	}
	return t
}

// Validate names every field out of its range, joined; where most are zero,
// one error says so. Each is a *ConfigError. Nothing is repaired.
func (t Tuning) Validate() error { return t.validate("Tuning") }

// validate names the fields as those of name.
func (t Tuning) validate(name string) error {
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, &ConfigError{name + "." + field, value, want})
	}
	v := reflect.ValueOf(t)
	zero, fields := 0, reflect.VisibleFields(v.Type())
	for _, f := range fields {
		if v.FieldByIndex(f.Index).IsZero() {
			zero++
		}
		checkRange(f.Name, v.FieldByIndex(f.Index), f.Tag.Get("range"), bad)
	}
	for _, o := range [...]struct {
		low, high   string
		ordered     bool
		lowV, highV any
	}{
		{"GainMin", "GainMax", t.GainMin <= t.GainMax, t.GainMin, t.GainMax},
		{"MemoryMin", "MemoryMax", t.MemoryMin <= t.MemoryMax, t.MemoryMin, t.MemoryMax},
		{"CooldownMin", "CooldownMax", t.CooldownMin <= t.CooldownMax, t.CooldownMin, t.CooldownMax},
		{"HedgeMin", "HedgeMax", t.HedgeMin <= t.HedgeMax, t.HedgeMin, t.HedgeMax},
		{"GearRead", "GearWrite", t.GearRead <= t.GearWrite, t.GearRead, t.GearWrite},
		{"ErrorRateLow", "ErrorRateHigh", t.ErrorRateLow <= t.ErrorRateHigh, t.ErrorRateLow, t.ErrorRateHigh},
	} {
		if !o.ordered {
			bad(o.low, o.lowV, fmt.Sprintf("at most %s (%v)", o.high, o.highV))
		}
	}
	if len(errs) > 0 && zero > len(fields)/2 { // made from nothing: a line for each would hide why
		return &ConfigError{name, fmt.Sprintf("%d of %d fields zero", zero, len(fields)),
			"every field set: start from DefaultTuning() or Router.Tuning() and change that"}
	}
	return errors.Join(errs...)
}

func checkRange(name string, v reflect.Value, tag string, bad func(string, any, string)) {
	if v.Kind() == reflect.Array {
		for i := range v.Len() {
			checkRange(fmt.Sprintf("%s[%d]", name, i), v.Index(i), tag, bad)
		}
		return
	}
	low, high, _ := bytes.Cut([]byte(tag), []byte(".."))
	want := fmt.Sprintf("in [%s, %s]", low, high)
	if d, ok := v.Interface().(time.Duration); ok {
		lo, hi := mustDuration(string(low)), mustDuration(string(high))
		if d < lo || d > hi {
			bad(name, d, want)
		}
		return
	}
	var lo, hi float64
	fmt.Sscan(string(low), &lo)
	fmt.Sscan(string(high), &hi)
	x := 0.0
	if v.Kind() == reflect.Int {
		x = float64(v.Int())
	} else {
		x = v.Float()
	}
	if !(x >= lo && x <= hi) { // NaN fails
		bad(name, v.Interface(), want)
	}
}

func mustDuration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err) // a tag of ours; TestTuning_RangesParse sees each
	}
	return d
}

// Warnings tells of values that are allowed and seldom meant. Status.Warnings
// adds what only the Router knows.
func (t Tuning) Warnings() []string {
	var w []string
	for i, x := range t.ScorerWeights {
		if x >= 0 && t.drowns(x) {
			w = append(w, t.drownWarning(fmt.Sprintf("ScorerWeights[%d]", i), x))
		}
	}
	if t.LiveWeight == 0 {
		w = append(w, "LiveWeight 0: a score without live cost herds (DESIGN.md)")
	}
	if t.LoadTrust < 2*t.FoldInterval {
		w = append(w, fmt.Sprintf("FoldInterval %v refreshes more slowly than LoadTrust %v believes", t.FoldInterval, t.LoadTrust))
	}
	if k := exponent(t.Temperature); k == 0 {
		w = append(w, fmt.Sprintf("Temperature %g: 10/T is no whole number of 1..20, so each weight costs an exp", t.Temperature))
	}
	if t.MinShare > 0.005 {
		w = append(w, fmt.Sprintf("MinShare %g: over 0.5 %% of every candidate's picks go to a sick one (DESIGN.md)", t.MinShare))
	}
	return w
}

// shift is the most points a scorer of this weight moves the combined score.
func (t Tuning) shift(weight float64) float64 { return weight / max(t.LiveWeight+weight, 1e-9) * 100 }

// drowns: a 0/100 scorer of this weight outweighs live cost (docs/policy.md).
func (t Tuning) drowns(weight float64) bool { return t.shift(weight)/t.Temperature > 7 }

func (t Tuning) drownWarning(name string, weight float64) string {
	return fmt.Sprintf("%s %g: a 0/100 scorer shifts up to %.0f points at Temperature %g and drowns live cost", name, weight, t.shift(weight), t.Temperature)
}

// exponent is 10/T when that is a whole number of 1..20, else 0.
func exponent(temperature float64) int {
	k := math.Round(10 / temperature)
	if k >= 1 && k <= 20 && math.Abs(k*temperature-10) < 1e-9 {
		return int(k)
	}
	return 0
}

// MarshalJSON writes durations as strings such as "250ms".
func (t Tuning) MarshalJSON() ([]byte, error) {
	v := reflect.ValueOf(t)
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range reflect.VisibleFields(v.Type()) {
		if i > 0 {
			b.WriteByte(',')
		}
		val := v.FieldByIndex(f.Index).Interface()
		if d, ok := val.(time.Duration); ok {
			val = d.String()
		}
		enc, err := json.Marshal(val)
		if err != nil {
			return nil, fmt.Errorf("ringwise: Tuning.%s: %w", f.Name, err)
		}
		fmt.Fprintf(&b, "%q:%s", f.Name, enc)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// UnmarshalJSON sets the fields that are named and leaves the others. An
// unknown field and one that is given twice are errors, and on any error
// nothing changes.
func (t *Tuning) UnmarshalJSON(data []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return fmt.Errorf("%w: Tuning is not a JSON object: %w", ErrConfig, err)
	}
	if raw == nil {
		return &ConfigError{"Tuning", "null", "a JSON object"}
	}
	next := *t
	v := reflect.ValueOf(&next).Elem()
	errs := namedTwice(data)
	for name, enc := range raw {
		f := v.FieldByName(name)
		if !f.IsValid() {
			want := "a field of Tuning"
			if like, ok := v.Type().FieldByNameFunc(func(s string) bool { return strings.EqualFold(s, name) }); ok {
				want += ", such as " + like.Name
			}
			errs = append(errs, &ConfigError{"Tuning." + name, string(enc), want})
			continue
		}
		if err := setField(f, enc); err != nil {
			errs = append(errs, &ConfigError{"Tuning." + name, string(enc), err.Error()})
		}
	}
	if n := len(errs) - maxTuningErrors; n > 0 {
		errs = append(errs[:maxTuningErrors], fmt.Errorf("%w: Tuning: %d more faults", ErrConfig, n))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	*t = next
	return nil
}

// namedTwice are the errors of fields that valid JSON names again: a map has
// the last value and tells nothing of the others.
func namedTwice(object []byte) (errs []error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	_, err := dec.Token() // the brace
	seen := map[any]bool{}
	for err == nil && dec.More() {
		var name json.Token
		if name, err = dec.Token(); err != nil {
			break
		}
		var enc json.RawMessage
		if err = dec.Decode(&enc); seen[name] {
			errs = append(errs, &ConfigError{fmt.Sprintf("Tuning.%v", name), string(enc), "each field once"})
		}
		seen[name] = true
	}
	return errs
}

var errDuration = errors.New(`a duration such as "250ms"`)

func setField(f reflect.Value, enc json.RawMessage) error {
	if _, ok := f.Interface().(time.Duration); ok {
		var s string
		if json.Unmarshal(enc, &s) != nil {
			return errDuration
		}
		d, err := time.ParseDuration(s)
		if err != nil {
			return errDuration
		}
		f.SetInt(int64(d))
		return nil
	}
	if string(bytes.TrimSpace(enc)) == "null" {
		return errors.New("a number")
	}
	if f.Kind() == reflect.Array {
		var xs []*float64
		if err := json.Unmarshal(enc, &xs); err != nil || len(xs) != f.Len() || slices.Contains(xs, nil) {
			return fmt.Errorf("an array of %d numbers", f.Len())
		}
	}
	if json.Unmarshal(enc, f.Addr().Interface()) != nil {
		return fmt.Errorf("a value of type %v", f.Type())
	}
	return nil
}

// LoadTuning reads a JSON object over the defaults: what it does not name
// stays at its default. Durations are strings such as "250ms"; an unknown
// field, one given twice, trailing data, a value out of range or over a
// megabyte is an error that names it.
func LoadTuning(r io.Reader) (Tuning, error) {
	if r == nil {
		return Tuning{}, &ConfigError{"Tuning", nil, "a reader"}
	}
	t := DefaultTuning()
	limited := &io.LimitedReader{R: r, N: maxTuningBytes}
	dec := json.NewDecoder(limited)
	err := dec.Decode(&t)
	more := false
	if err == nil {
		_, end := dec.Token()
		more = end != io.EOF
	}
	switch {
	case limited.N == 0:
		return Tuning{}, &ConfigError{"Tuning", "too much data", fmt.Sprintf("less than %d bytes", maxTuningBytes)}
	case err == io.EOF:
		return Tuning{}, &ConfigError{"Tuning", "empty", "a JSON object"}
	case errors.Is(err, ErrConfig):
		return Tuning{}, err
	case err != nil:
		return Tuning{}, fmt.Errorf("%w: Tuning: %w", ErrConfig, err)
	case more:
		return Tuning{}, &ConfigError{"Tuning", "more data after the object", "one JSON object"}
	}
	if err := t.Validate(); err != nil {
		return Tuning{}, err
	}
	return t, nil
}

const (
	maxTuningBytes  = 1 << 20
	maxTuningErrors = 100 // more than there are fields
)
