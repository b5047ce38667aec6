package ringwise

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Opt is an optional value: the zero Opt is "not reported", which differs
// from a reported zero.
type Opt[T any] struct {
	v  T
	ok bool
}

// Some is a reported value.
func Some[T any](v T) Opt[T] { return Opt[T]{v, true} }

// Get returns the value and whether it was reported.
func (o Opt[T]) Get() (T, bool) { return o.v, o.ok }

// Or returns the value, or def when it was not reported.
func (o Opt[T]) Or(def T) T {
	if o.ok {
		return o.v
	}
	return def
}

// Report is what a worker says of itself. Every field but Worker and Time is
// optional. Reports feed hard filters, health flags, a weak prior and the
// classic scorers, never the default choice alone: a choice made of reports
// herds (DESIGN.md).
type Report struct {
	Worker string    // its ID; required
	Time   time.Time // when the worker took the figures, by its own clock; required

	CPU      Opt[float64] // busy share, 0..1
	IOWait   Opt[float64] // share, 0..1
	Memory   Opt[float64] // used share, 0..1
	GCPause  Opt[float64] // share of time in collector pauses, 0..1
	Queue    Opt[float64] // requests waiting, 0..1e9
	Rate1m   Opt[float64] // requests a second over the last minute, 0..1e9
	Rate5m   Opt[float64] // over the last five minutes, 0..1e9
	NetIn    Opt[float64] // bytes a second, 0..1e15
	NetOut   Opt[float64] // bytes a second, 0..1e15
	RTTAvg   Opt[time.Duration]
	RTTP99   Opt[time.Duration]
	Errors   Opt[float64] // share of requests, 0..1
	Rejects  Opt[float64] // share of requests, 0..1
	Timeouts Opt[float64] // share of requests, 0..1

	StorageFree Opt[uint64] // bytes; of Worker.Storage
	Version     Opt[uint64] // newest version applied, for MinVersion
	VersionLag  Opt[uint64] // versions behind the newest it knows of

	Compacting, Repairing, Recovering, ReadOnly Opt[bool]
	HealthFailed                                Opt[bool] // its own health check fails

	Shards Opt[ShardSet] // shard slots it holds
	// ShardHeat, HitRates and Fingerprints are sparse lists without order, at
	// most 512, 1024 and 1024 long, none of them naming a thing twice; an empty
	// one is not reported. The Router keeps its own copy.
	ShardHeat    []ShardHeat
	HitRates     []HitRate
	Fingerprints []Fingerprint
}

// ShardSet is a set of shard slots, one bit each.
type ShardSet [Shards / 64]uint64

// Add puts slots into the set; what is over Shards counts modulo Shards.
func (s *ShardSet) Add(slots ...int) {
	for _, i := range slots {
		s[i&(Shards-1)>>6] |= 1 << (i & 63)
	}
}

// Has tells whether a slot is in the set.
func (s *ShardSet) Has(slot int) bool { return s[slot&(Shards-1)>>6]>>(slot&63)&1 != 0 }

// ShardHeat is how hot one shard slot is on a worker: 0..1e9, 40 and above
// count alike in LocalDensity.
type ShardHeat struct {
	Slot uint16 // 0..511
	Heat float64
}

// HitRate is the cache hit rate, 0..1, of one kind of key: KindOf its tenant
// and entity, or whatever the caller's scorer looks up.
type HitRate struct {
	Kind KeyHash
	Rate float64
}

// Fingerprint is how many requests of one (tenant, entity), by KindOf, a worker
// served in the last minute.
type Fingerprint struct {
	Kind  KeyHash
	Count uint32
}

// Limits of a report's lists.
const (
	maxReportRTT  = time.Hour
	maxReportList = 1024
)

// The optional fields by type, in the order of the binary form, with their
// names in JSON. Whatever goes over all fields goes over these.
var (
	floatFields = [...]struct {
		name, json, alias string
		limit             float64
		of                func(r *Report) *Opt[float64]
	}{
		{"CPU", "cpu_usage", "", 1, func(r *Report) *Opt[float64] { return &r.CPU }},
		{"IOWait", "io_wait", "", 1, func(r *Report) *Opt[float64] { return &r.IOWait }},
		{"Memory", "memory_usage", "", 1, func(r *Report) *Opt[float64] { return &r.Memory }},
		{"GCPause", "gc_pause", "", 1, func(r *Report) *Opt[float64] { return &r.GCPause }},
		{"Queue", "queue_depth", "request_queue_depth", 1e9, func(r *Report) *Opt[float64] { return &r.Queue }},
		{"Rate1m", "request_rate_1m", "", 1e9, func(r *Report) *Opt[float64] { return &r.Rate1m }},
		{"Rate5m", "request_rate_5m", "", 1e9, func(r *Report) *Opt[float64] { return &r.Rate5m }},
		{"NetIn", "network_in", "", 1e15, func(r *Report) *Opt[float64] { return &r.NetIn }},
		{"NetOut", "network_out", "", 1e15, func(r *Report) *Opt[float64] { return &r.NetOut }},
		{"Errors", "error_rate", "", 1, func(r *Report) *Opt[float64] { return &r.Errors }},
		{"Rejects", "reject_rate", "", 1, func(r *Report) *Opt[float64] { return &r.Rejects }},
		{"Timeouts", "timeout_rate", "", 1, func(r *Report) *Opt[float64] { return &r.Timeouts }},
	}
	spanFields = [...]struct {
		name, json string
		of         func(r *Report) *Opt[time.Duration]
	}{
		{"RTTAvg", "rtt_ms_avg", func(r *Report) *Opt[time.Duration] { return &r.RTTAvg }},
		{"RTTP99", "rtt_ms_p99", func(r *Report) *Opt[time.Duration] { return &r.RTTP99 }},
	}
	countFields = [...]struct {
		json string
		of   func(r *Report) *Opt[uint64]
	}{
		{"storage_free", func(r *Report) *Opt[uint64] { return &r.StorageFree }},
		{"version", func(r *Report) *Opt[uint64] { return &r.Version }},
		{"version_lag", func(r *Report) *Opt[uint64] { return &r.VersionLag }},
	}
	flagFields = [...]struct {
		json string
		of   func(r *Report) *Opt[bool]
	}{
		{"compacting", func(r *Report) *Opt[bool] { return &r.Compacting }},
		{"repairing", func(r *Report) *Opt[bool] { return &r.Repairing }},
		{"recovering", func(r *Report) *Opt[bool] { return &r.Recovering }},
		{"read_only", func(r *Report) *Opt[bool] { return &r.ReadOnly }},
		{"health_failed", func(r *Report) *Opt[bool] { return &r.HealthFailed }},
	}
)

// check finds the first field that is not finite or out of range.
func (r *Report) check() *ReportError {
	for i := range floatFields {
		f := &floatFields[i]
		if v, ok := f.of(r).Get(); ok {
			if err := r.checkFloat(f.name, v, f.limit); err != nil {
				return err
			}
		}
	}
	for i := range spanFields {
		f := &spanFields[i]
		if v, ok := f.of(r).Get(); ok && (v < 0 || v > maxReportRTT) {
			return &ReportError{r.Worker, f.name, v, "a duration in [0, 1h]", ReportOutOfRange}
		}
	}
	if r.Time.IsZero() {
		return &ReportError{r.Worker, "Time", r.Time, "a time", ReportOutOfRange}
	}
	return r.checkLists()
}

func (r *Report) checkFloat(name string, v, limit float64) *ReportError {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return &ReportError{r.Worker, name, v, "a finite number", ReportNotFinite}
	case v < 0 || v > limit:
		return &ReportError{r.Worker, name, v, fmt.Sprintf("a number in [0, %g]", limit), ReportOutOfRange}
	}
	return nil
}

func (r *Report) checkLengths() *ReportError {
	for _, l := range [...]struct {
		name   string
		n, max int
	}{{"ShardHeat", len(r.ShardHeat), Shards}, {"HitRates", len(r.HitRates), maxReportList}, {"Fingerprints", len(r.Fingerprints), maxReportList}} {
		if l.n > l.max {
			return &ReportError{r.Worker, l.name, l.n, fmt.Sprintf("at most %d entries", l.max), ReportOutOfRange}
		}
	}
	return nil
}

func (r *Report) checkLists() *ReportError {
	if err := r.checkLengths(); err != nil {
		return err
	}
	var seen ShardSet
	for i, h := range r.ShardHeat {
		name := fmt.Sprintf("ShardHeat[%d].", i)
		if h.Slot >= Shards || seen.Has(int(h.Slot)) {
			return &ReportError{r.Worker, name + "Slot", h.Slot, "a slot in [0, 511], each once", ReportOutOfRange}
		}
		seen.Add(int(h.Slot))
		if err := r.checkFloat(name+"Heat", h.Heat, 1e9); err != nil {
			return err
		}
	}
	for i, h := range r.HitRates {
		if err := r.checkFloat(fmt.Sprintf("HitRates[%d].Rate", i), h.Rate, 1); err != nil {
			return err
		}
	}
	if err := eachOnce(r, "HitRates", r.HitRates, func(h HitRate) KeyHash { return h.Kind }); err != nil {
		return err
	}
	return eachOnce(r, "Fingerprints", r.Fingerprints, func(f Fingerprint) KeyHash { return f.Kind })
}

func eachOnce[T any](r *Report, name string, list []T, kind func(T) KeyHash) *ReportError {
	seen := make(map[KeyHash]struct{}, len(list))
	for i, x := range list {
		k := kind(x)
		if _, twice := seen[k]; twice {
			return &ReportError{r.Worker, fmt.Sprintf("%s[%d].Kind", name, i), uint64(k), "each kind once", ReportOutOfRange}
		}
		seen[k] = struct{}{}
	}
	return nil
}

// clone is a copy that shares no list with r.
func (r *Report) clone() Report {
	c := *r
	c.ShardHeat = slices.Clone(r.ShardHeat)
	c.HitRates = slices.Clone(r.HitRates)
	c.Fingerprints = slices.Clone(r.Fingerprints)
	return c
}

// Rules for a worker's clock (S3).
const (
	reportMaxAhead     = 30 * time.Second
	reportMaxBack      = 10 * time.Second // further back than this may be a new time base
	reportBackRefusals = 3                // so many in a row and it is one
)

// reportClock holds one worker's time line. The caller holds the writer lock.
type reportClock struct {
	last     time.Time
	refusals int // in a row, for going far back
}

// admit says whether a report of time t may be taken at wall time now, and
// whether it starts a new time base.
func (c *reportClock) admit(t, now time.Time) (reason ReportReason, rebased bool) {
	switch {
	case t.After(now.Add(reportMaxAhead)):
		return ReportFuture, false
	case c.last.IsZero() || t.After(c.last):
		c.last, c.refusals = t, 0
		return ReportOK, false
	case t.Equal(c.last):
		return ReportDuplicate, false
	case c.last.Sub(t) <= reportMaxBack:
		return ReportBackwards, false
	case c.refusals < reportBackRefusals:
		c.refusals++
		return ReportBackwards, false
	}
	c.last, c.refusals = t, 0
	return ReportOK, true
}
