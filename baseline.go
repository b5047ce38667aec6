package ringwise

import "slices"

// baselineEvery is how often the fleet's medians are computed anew, ns:
// reports come every 2..5 s, and sorting 15 metrics of 1000 workers takes a
// millisecond.
const baselineEvery = int64(1e9)

// baselines are the medians over the fleet of each metric. Immutable.
type baselines struct {
	at     int64
	median [maxMetrics]float64
	known  [maxMetrics]bool
}

// baselinesOf computes them from the fresh values of all workers.
func baselinesOf(sn *snapshot, now int64) *baselines {
	b := &baselines{at: now}
	var values []float64
	for m := range maxMetrics {
		values = values[:0]
		for _, slot := range sn.live {
			if int(slot) >= len(sn.reports) || sn.reports[slot] == nil {
				continue
			}
			rep := sn.reports[slot]
			if rep.at[m] > 0 && sn.coef.trusts(rep.at[m], rep.every, now) {
				values = append(values, rep.mean[m])
			}
		}
		b.median[m], b.known[m] = median(values)
	}
	return b
}

// median sorts its argument; of an even number it is the mean of the middle
// two.
func median(x []float64) (float64, bool) {
	if len(x) == 0 {
		return 0, false
	}
	slices.Sort(x)
	n := len(x) / 2
	if len(x)%2 == 1 {
		return x[n], true
	}
	return x[n-1] + (x[n]-x[n-1])/2, true
}
