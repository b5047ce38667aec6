package sim

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Result is what one run measured. Latencies, errors and counts are of the
// requests that arrived after the warm-up; the series cover the whole run.
type Result struct {
	Scenario, Policy string
	Seed             uint64
	Feedback         bool
	Hedge, Retry     bool

	// Latency of each request, sorted, nanoseconds: from arrival to the answer
	// the caller used. A failure counts as the longer of its time and the
	// time-out, and one that timed out as the time its answer took in the end.
	Latency []int64
	Errors  int // requests that failed; application errors are no failures
	Hedges  int // copies of slow requests
	Retries int
	Wins    int // requests whose copy, or second try, gave the answer

	// Share is picks by bucket of time and worker; Failures the failed ones.
	Bucket   time.Duration
	Share    [][]uint32
	Failures [][]uint32

	// Notes are figures a policy adds at the end, by name.
	Notes map[string]float64
	// States is what policies say of workers over time, by bucket and worker:
	// the share of clients that keep the worker out of use.
	States [][]float64

	warmup     int64
	bucket     int64
	noWorker   int
	retryAsked int
}

// seriesWidth is the width of a bucket where Options.Series is 0.
const seriesWidth = 100 * time.Millisecond

func newResult(s *Scenario, f Factory, o Options) *Result {
	b := cmp.Or(o.Series, seriesWidth)
	n := int((s.Duration + b - 1) / b)
	r := &Result{
		Scenario: s.Name, Policy: f.Name, Seed: o.Seed, Feedback: f.Feedback, Hedge: o.Hedge, Retry: o.Retry,
		Bucket: b, bucket: int64(b), warmup: int64(s.Warmup),
		Share: make([][]uint32, n), Failures: make([][]uint32, n),
		Latency: make([]int64, 0, int(s.Rate()*(s.Duration-s.Warmup).Seconds()*1.02)+100),
		Notes:   map[string]float64{},
	}
	flat := make([]uint32, 2*n*s.Workers)
	for i := range n {
		r.Share[i], flat = flat[:s.Workers:s.Workers], flat[s.Workers:]
		r.Failures[i], flat = flat[:s.Workers:s.Workers], flat[s.Workers:]
	}
	return r
}

// picked counts an attempt; how is as in engine.send.
func (r *Result) picked(now int64, w int, q *request, how int) {
	r.Share[min(int(now/r.bucket), len(r.Share)-1)][w]++
	if how >= 0 && q.measured {
		if how == 0 {
			r.Hedges++
		} else {
			r.Retries++
		}
	}
}

// won counts a request whose copy, or second try, gave the answer.
func (r *Result) won(q *request) {
	if q.measured {
		r.Wins++
	}
}

// settled records a request that has its answer, or has failed.
func (r *Result) settled(now int64, q *request, w int, v Verdict, timeout int64) {
	q.record = -1
	bad := v == Failed || v == Broken || v == TimedOut
	if bad && w >= 0 {
		r.Failures[min(int(now/r.bucket), len(r.Failures)-1)][w]++
	}
	if !q.measured {
		return
	}
	lat := now - q.start
	if bad {
		r.Errors++
		lat = max(lat, timeout)
		q.record = len(r.Latency)
	}
	r.Latency = append(r.Latency, lat)
}

// late is an answer that comes after the caller has failed.
func (r *Result) late(q *request, now int64) {
	if q.over && q.measured && q.record >= 0 {
		r.Latency[q.record] = max(r.Latency[q.record], now-q.start)
	}
}

func (r *Result) finish() { slices.Sort(r.Latency) }

// Quantile returns the latency that a share p of the requests stays within.
func (r *Result) Quantile(p float64) time.Duration {
	return time.Duration(quantile(r.Latency, p))
}

// quantile is the nearest rank in a sorted slice.
func quantile(s []int64, p float64) int64 {
	if len(s) == 0 {
		return 0
	}
	return s[min(max(int(math.Ceil(p*float64(len(s))))-1, 0), len(s)-1)]
}

// Mean returns the mean latency.
func (r *Result) Mean() time.Duration {
	sum := 0.0
	for _, v := range r.Latency {
		sum += float64(v)
	}
	return time.Duration(sum / float64(max(len(r.Latency), 1)))
}

// ErrorShare is the share of requests that failed.
func (r *Result) ErrorShare() float64 {
	return float64(r.Errors) / float64(max(len(r.Latency), 1))
}

// HedgeShare is the copies as a share of the requests.
func (r *Result) HedgeShare() float64 {
	return float64(r.Hedges) / float64(max(len(r.Latency), 1))
}

// HotShare is the share of workers that take over 1.5 times the mean load,
// over all whole seconds after the warm-up.
func (r *Result) HotShare() float64 {
	per := max(int(time.Second/r.Bucket), 1)
	hot, all := 0, 0
	for i := int(r.warmup / r.bucket); i+per <= len(r.Share); i += per {
		n := len(r.Share[i])
		sum := make([]float64, n)
		total := 0.0
		for _, b := range r.Share[i : i+per] {
			for w, v := range b {
				sum[w] += float64(v)
				total += float64(v)
			}
		}
		for _, v := range sum {
			all++
			if v > 1.5*total/float64(n) {
				hot++
			}
		}
	}
	return float64(hot) / float64(max(all, 1))
}

// MaxOverMean is the largest worker's picks over the mean, after the warm-up.
func (r *Result) MaxOverMean() float64 {
	if len(r.Share) == 0 {
		return 0
	}
	sum := make([]float64, len(r.Share[0]))
	total := 0.0
	for _, b := range r.Share[min(int(r.warmup/r.bucket), len(r.Share)):] {
		for w, v := range b {
			sum[w] += float64(v)
			total += float64(v)
		}
	}
	return slices.Max(sum) * float64(len(sum)) / max(total, 1)
}

// meanAndP99 sorts s.
func meanAndP99(s []int64) (mean, p99 int64) {
	if len(s) == 0 {
		return 0, 0
	}
	slices.Sort(s)
	sum := int64(0)
	for _, v := range s {
		sum += v
	}
	return sum / int64(len(s)), quantile(s, 0.99)
}
