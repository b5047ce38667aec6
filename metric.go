package ringwise

// Metric is one of the figures of a Report that have a window.
type Metric uint8

// The metrics, each in the unit of its field of Report; durations are
// nanoseconds.
const (
	MetricCPU Metric = iota
	MetricIOWait
	MetricMemory
	MetricGCPause
	MetricQueue
	MetricRate1m
	MetricRate5m
	MetricNetIn
	MetricNetOut
	MetricRTTAvg
	MetricRTTP99
	MetricErrors
	MetricRejects
	MetricTimeouts
	MetricVersionLag
	metrics
)

var metricNames = [...]string{"cpu", "io wait", "memory", "gc pause", "queue", "rate 1m", "rate 5m", "net in", "net out",
	"rtt avg", "rtt p99", "errors", "rejects", "timeouts", "version lag"}

func (m Metric) String() string { return nameOf(metricNames[:], int(m)) }

// metricSpans is the range of a metric, of which 5 % is the least value that
// the clamp of its EWMA takes a fifth of. Shares have one. For the others 5 %
// of it is small against any figure worth routing by: one request waiting, one
// a second, 1 kB/s, 1 ms, one version.
var metricSpans = [metrics]float64{
	MetricCPU: 1, MetricIOWait: 1, MetricMemory: 1, MetricGCPause: 1, MetricErrors: 1, MetricRejects: 1, MetricTimeouts: 1,
	MetricQueue: 20, MetricRate1m: 20, MetricRate5m: 20, MetricNetIn: 20e3, MetricNetOut: 20e3,
	MetricRTTAvg: 20e6, MetricRTTP99: 20e6, MetricVersionLag: 20,
}

// metric is the value of one metric in a report, if it has one.
func (r *Report) metric(m Metric) (float64, bool) {
	switch m {
	case MetricCPU:
		return r.CPU.Get()
	case MetricIOWait:
		return r.IOWait.Get()
	case MetricMemory:
		return r.Memory.Get()
	case MetricGCPause:
		return r.GCPause.Get()
	case MetricQueue:
		return r.Queue.Get()
	case MetricRate1m:
		return r.Rate1m.Get()
	case MetricRate5m:
		return r.Rate5m.Get()
	case MetricNetIn:
		return r.NetIn.Get()
	case MetricNetOut:
		return r.NetOut.Get()
	case MetricRTTAvg:
		v, ok := r.RTTAvg.Get()
		return float64(v), ok
	case MetricRTTP99:
		v, ok := r.RTTP99.Get()
		return float64(v), ok
	case MetricErrors:
		return r.Errors.Get()
	case MetricRejects:
		return r.Rejects.Get()
	case MetricTimeouts:
		return r.Timeouts.Get()
	case MetricVersionLag:
		v, ok := r.VersionLag.Get()
		return float64(v), ok
	}
	return 0, false
}

// measure takes a report's metrics into a worker's windows.
func (m *meter) measure(r *Report, now int64) {
	for k := range metrics {
		if x, ok := r.metric(k); ok {
			m.push(int(k), x, metricSpans[k], now)
		}
	}
}

// Metric is what candidate i's reports say of m: the exponentially weighted
// mean of the last 60 that had it, newest heaviest. fresh is false, and the
// value not to be scored by, once the last of them is past its trust window;
// the value is 0 where there never was one. A few nanoseconds.
func (v *View) Metric(i int, m Metric) (value float64, fresh bool) {
	if rep := v.metered(i, m); rep != nil {
		return rep.mean[m], v.sn.coef.trusts(rep.at[m], rep.every, v.now)
	}
	return 0, false
}

// SmoothedMetric is the same as an EWMA of gain 0.3, of which one report moves
// at most a fifth: steady enough for weights, too slow to judge health by.
func (v *View) SmoothedMetric(i int, m Metric) (value float64, fresh bool) {
	if rep := v.metered(i, m); rep != nil {
		return rep.smooth[m], v.sn.coef.trusts(rep.at[m], rep.every, v.now)
	}
	return 0, false
}

// metered is candidate i's last report, if any of its reports had m.
func (v *View) metered(i int, m Metric) *reported {
	if rep := v.reported(i); rep != nil && m < metrics && rep.at[m] > 0 {
		return rep
	}
	return nil
}

// HoldsShard tells whether candidate i said it holds the shard slot of the
// request's key. known is false where it has not said lately, or the request
// has no key.
func (v *View) HoldsShard(i int) (held, known bool) {
	rep := v.reported(i)
	slot, ok := v.Slot()
	if rep == nil || !ok || !v.sn.coef.trustsKeys(rep.shardsAt, rep.every, v.now) {
		return false, false
	}
	return rep.shards.Has(slot), true
}

// ShardHeat is how hot candidate i said the shard slot of the request's key
// is on it: 0 where its list leaves it out. known as in HoldsShard.
func (v *View) ShardHeat(i int) (heat float64, known bool) {
	rep := v.reported(i)
	slot, ok := v.Slot()
	if rep == nil || !ok || !v.sn.coef.trustsKeys(rep.heatAt, rep.every, v.now) {
		return 0, false
	}
	return rep.heatOf(slot), true
}

// HitRate is the cache hit rate candidate i reported for a kind of key; known
// is false where it has not said lately or its list leaves the kind out.
func (v *View) HitRate(i int, kind KeyHash) (rate float64, known bool) {
	rep := v.reported(i)
	if rep == nil || !v.sn.coef.trustsKeys(rep.ratesAt, rep.every, v.now) {
		return 0, false
	}
	return rep.rateOf(kind)
}

// FingerprintCount is how many requests of a kind candidate i reported for the
// last minute: 0 where its list leaves it out. known is false where it has
// not said lately.
func (v *View) FingerprintCount(i int, kind KeyHash) (count uint32, known bool) {
	rep := v.reported(i)
	if rep == nil || !v.sn.coef.trustsKeys(rep.printsAt, rep.every, v.now) {
		return 0, false
	}
	return rep.countOf(kind), true
}
