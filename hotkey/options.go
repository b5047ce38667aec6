package hotkey

import (
	"errors"
	"fmt"
	"math"
	"time"
)

var (
	// ErrConfig: an option or a Tuning is out of range. Detail: *ConfigError,
	// one for each bad field.
	ErrConfig = errors.New("hotkey: bad configuration")
	// ErrExport: bytes that are not an export which can be merged. Detail:
	// *ExportError.
	ErrExport = errors.New("hotkey: bad export")
)

// ConfigError names one bad value. It unwraps to ErrConfig.
type ConfigError struct {
	Field string // as the caller wrote it: "Capacity", "Tuning.HotShare"
	Value any    // what was given
	Want  string // what is allowed: "a number in (0, 1]"
}

// Error names the field, its value and what is allowed.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("hotkey: %s = %v, want %s", e.Field, e.Value, e.Want)
}

// Unwrap makes errors.Is(err, ErrConfig) true.
func (e *ConfigError) Unwrap() error { return ErrConfig }

// Options are what a Tracker is built with. A zero field stands for its
// default.
type Options struct {
	// Capacity is how many keys are tracked, rounded up to a multiple of 7, in
	// [64, 65536]. A key needs more than about 1/Capacity of the traffic to
	// stay. Memory is Capacity times (150 + MaxKey) bytes, all of it taken by
	// New, and once more at most for what is merged. Default 2048: 0.44 MB.
	Capacity int
	// MaxKey is how many bytes of a key's text are kept, in [1, 1024]. Longer
	// ones are cut and flagged; they are still counted apart, by hash.
	// Default 64.
	MaxKey int
	// Tick is the length of a slot, in [1 s, 1 h]. The window is ten of them,
	// decay comes once in each, a minute of SustainedMinutes is two. Default
	// 30 s. Only trackers with the same Tick can merge.
	Tick time.Duration
	// Seed places keys in sets. 0 draws one at random, which is right but
	// where a run must repeat.
	Seed uint64
	// Source names this Tracker in its exports, so that Merge knows its own and
	// the newer of two. 0 draws one at random; two trackers must not share one.
	Source uint64
	// Tuning is what is called hot. Default DefaultTuning.
	Tuning Tuning
}

const (
	defaultCapacity = 2048
	minCapacity     = 64
	maxCapacity     = 65536
	defaultMaxKey   = 64
	maxMaxKey       = 1024
	defaultTick     = 30 * time.Second
	minTick         = time.Second
	maxTick         = time.Hour
)

// withDefaults fills in what was left zero.
func (o Options) withDefaults() Options {
	if o.Capacity == 0 {
		o.Capacity = defaultCapacity
	}
	if o.MaxKey == 0 {
		o.MaxKey = defaultMaxKey
	}
	if o.Tick == 0 {
		o.Tick = defaultTick
	}
	if o.Tuning == (Tuning{}) {
		o.Tuning = DefaultTuning()
	}
	return o
}

func (o Options) validate() error {
	var errs []error
	if o.Capacity < minCapacity || o.Capacity > maxCapacity {
		errs = append(errs, &ConfigError{"Capacity", o.Capacity, "a number in [64, 65536]"})
	}
	if o.MaxKey < 1 || o.MaxKey > maxMaxKey {
		errs = append(errs, &ConfigError{"MaxKey", o.MaxKey, "a number in [1, 1024]"})
	}
	if o.Tick < minTick || o.Tick > maxTick {
		errs = append(errs, &ConfigError{"Tick", o.Tick, "a duration in [1s, 1h]"})
	}
	return errors.Join(append(errs, o.Tuning.Validate())...)
}

// Tuning says what is hot. It is plain data and may be changed at any time with
// Retune.
type Tuning struct {
	// A key is hot in a minute in which it has both HotShare of all requests,
	// in (0, 1], and HotRate requests a second, in (0, 1e9]. The share alone
	// would call every key of an idle process hot. Defaults 0.01, 10.
	HotShare float64
	HotRate  float64
	// SustainedMinutes of the last five must be hot for the heat to be
	// sustained, in [1, 5]. Default 4.
	SustainedMinutes int
	// ReadHeavy and WriteHeavy are the reads for each write of a typical key of
	// either kind, in [0.001, 1e6], WriteHeavy the smaller. A key counts as the
	// kind that it is nearer to by ratio: with the defaults, 100 and 1 (half of
	// the requests are writes), as read-heavy from 10 reads a write on.
	ReadHeavy  float64
	WriteHeavy float64
	// Trust is for how long a Refresh and the exports merged are fresh, in
	// (0, 1h]: see Tracker.Stale. Default 30 s.
	Trust time.Duration
}

// DefaultTuning is what a Tracker uses that was told nothing.
func DefaultTuning() Tuning {
	return Tuning{
		HotShare: 0.01, HotRate: 10, SustainedMinutes: 4,
		ReadHeavy: 100, WriteHeavy: 1, Trust: 30 * time.Second,
	}
}

// Validate names every bad field (errors.Join of *ConfigError).
func (u Tuning) Validate() error {
	var errs []error
	// Written so that NaN fails.
	if !(u.HotShare > 0 && u.HotShare <= 1) {
		errs = append(errs, &ConfigError{"Tuning.HotShare", u.HotShare, "a number in (0, 1]"})
	}
	if !(u.HotRate > 0 && u.HotRate <= 1e9) {
		errs = append(errs, &ConfigError{"Tuning.HotRate", u.HotRate, "a number in (0, 1e9]"})
	}
	if u.SustainedMinutes < 1 || u.SustainedMinutes > minutes {
		errs = append(errs, &ConfigError{"Tuning.SustainedMinutes", u.SustainedMinutes, "a number in [1, 5]"})
	}
	if !(u.ReadHeavy >= 0.001 && u.ReadHeavy <= 1e6) {
		errs = append(errs, &ConfigError{"Tuning.ReadHeavy", u.ReadHeavy, "a number in [0.001, 1e6]"})
	}
	if !(u.WriteHeavy >= 0.001 && u.WriteHeavy < u.ReadHeavy) {
		errs = append(errs, &ConfigError{"Tuning.WriteHeavy", u.WriteHeavy, "a number in [0.001, ReadHeavy)"})
	}
	if u.Trust <= 0 || u.Trust > time.Hour {
		errs = append(errs, &ConfigError{"Tuning.Trust", u.Trust, "a duration in (0, 1h]"})
	}
	return errors.Join(errs...)
}

// readBorder is how many reads a write make a key read-heavy.
func (u Tuning) readBorder() float64 { return math.Sqrt(u.ReadHeavy * u.WriteHeavy) }
