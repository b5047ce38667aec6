package ringwise

import (
	"fmt"
	"math"
	"time"
)

// watching is what the Router watches over all workers; mu guards it.
type watching struct {
	ticks  int64 // seconds that were watched
	at     int64 // when the last one ended
	total  [sawScales]float64
	tries  budget // for workers that nobody has picked for long
	check  selfCheck
	flaps  []Flap
	levels [10]uint64 // worker-ticks by score, ten points each

	saturated, quiet uint64 // decisions as of the last tick; ticks without
	alarmed          bool   // of saturation
	hot, deviation   float64
}

// Flap is a share or weight that saws: four changes over a tenth in a row,
// each against the one before.
type Flap struct {
	Metric string // share, of all picks, or weight, of Tuning.WeightFeedback
	Worker string
	Period time.Duration `json:"Period_ns"`
}

func (f Flap) String() string {
	return fmt.Sprintf("the %s of %s saws with a period of %v", f.Metric, f.Worker, f.Period)
}

// watch looks at all workers once a second. The caller holds mu; sn is about
// to be published and its columns are not made yet.
func (r *Router) watch(sn *snapshot, now int64) {
	w := &r.watching
	if now-w.at < watchTick {
		return
	}
	w.at = now
	w.ticks++
	t := &sn.coef.tuning
	total := 0.0
	picks := make([]float64, len(sn.live))
	for i, slot := range sn.live {
		ww := &sn.nodes[slot].st.cold.watch
		issued := sn.nodes[slot].st.issued.Load()
		picks[i] = float64(issued - ww.issued)
		ww.issued = issued
		total += picks[i]
	}
	// As many tokens as a share of the picks, in steps that a budget takes.
	for left := min(tryShare*total, budgetCap/budgetUnit); left > 0; left-- {
		w.tries.earn(min(left, 1))
	}
	for s := range w.total {
		w.total[s] += total
	}
	cycle := w.ticks%watchCycle == 0
	was := w.flaps
	w.flaps = nil
	for i, slot := range sn.live {
		r.watchWorker(sn, sn.nodes[slot], picks[i], now)
		if cycle {
			r.endCycle(sn, sn.nodes[slot], t)
		}
		w.flaps = append(w.flaps, sn.nodes[slot].flapping()...)
	}
	for _, f := range w.flaps {
		if !has(was, f) {
			r.alarm(Alarm{Kind: AlarmFlap, Worker: f.Worker, Text: f.String()})
		}
	}
	for s := range w.total {
		if w.ticks%(1<<s) == 0 {
			w.total[s] = 0
		}
	}
	if cycle {
		r.compareLoad(sn)
		bad := w.check.bad
		if w.check.check(2*len(sn.live)) && !bad {
			r.alarm(Alarm{Kind: AlarmSelfCheck, Value: w.check.rho, Text: w.check.text()})
		}
	}
	r.watchSaturation()
}

func has(fs []Flap, f Flap) bool {
	for _, g := range fs {
		if g.Worker == f.Worker && g.Metric == f.Metric {
			return true
		}
	}
	return false
}

func (c *selfCheck) text() string {
	return fmt.Sprintf("scores run against success: rank correlation %.2f over %d worker-windows", c.rho, c.used)
}

// watchWorker takes in one worker's second.
func (r *Router) watchWorker(sn *snapshot, n *node, picks float64, now int64) {
	w, ww, st := &r.watching, &n.st.cold.watch, n.st
	ww.cycle += picks
	for s := range ww.saws {
		ww.acc[s] += picks
		if w.ticks%(1<<s) != 0 {
			continue
		}
		if all := w.total[s]; all > 0 {
			ww.saws[s].next(ww.acc[s]/all, max(ww.acc[s], 1)/(all*all))
		} else {
			ww.saws[s] = saw{}
		}
		ww.acc[s] = 0
	}
	if w.ticks%loadEvery == 0 {
		ww.load.push(st.inFlight())
		if m, ok := ww.load.median(); ok {
			ww.median, ww.limit = m, loadFactor*max(m, 1)
		}
	}
	score := r.liveScore(sn, n)
	w.levels[min(int(score/10), len(w.levels)-1)]++
	switch {
	case picks > 0 || ww.lastPick == 0:
		ww.lastPick = now
		ww.due.Store(false)
	case now-ww.lastPick >= int64(dueAfter):
		ww.due.Store(true)
	}
}

// liveScore is a worker's live cost score for reads, without load.
func (r *Router) liveScore(sn *snapshot, n *node) float64 {
	col, st := &sn.cols[n.slot], n.st
	if col.st != st {
		return par
	}
	lat := sn.coef.latency(&st.lane[laneRead], float64(col.base[laneRead]), st.busy.Load(), uint64(st.inFlight()), sn.published)
	return points(lat * float64(col.pre) * sn.fleet[laneRead].bare)
}

// endCycle moves a worker's weight and books its worker-window.
func (r *Router) endCycle(sn *snapshot, n *node, t *Tuning) {
	ww := &n.st.cold.watch
	if k := ww.scoredN.Swap(0); k > 0 { // of the picks themselves
		ww.score = float64(ww.scored.Swap(0)) / 1000 / float64(k)
	}
	if ww.answers >= checkAnswers && ww.score > 0 {
		r.watching.check.push(pair{ww.score, 1 - min(ww.fails/ww.answers, 1)})
	}
	ww.learn(t.WeightFeedback, t.ErrorSamples)
	if t.WeightFeedback > 0 {
		ww.saws2.next(ww.share(), 0)
	} else {
		ww.saws2 = saw{}
	}
	ww.answers, ww.fails, ww.score = 0, 0, r.liveScore(sn, n)
}

// flapping are the saws that a worker shows now, one a metric: the shortest.
func (n *node) flapping() (fs []Flap) {
	ww := &n.st.cold.watch
	for s := range ww.saws {
		if ww.saws[s].saws() {
			fs = append(fs, Flap{"share", n.ID, time.Duration(watchTick << (s + 1))})
			break
		}
	}
	if ww.saws2.saws() {
		fs = append(fs, Flap{"weight", n.ID, time.Duration(2 * watchCycle * watchTick)})
	}
	return fs
}

// compareLoad compares the workers' picks of a cycle, each by its weight.
func (r *Router) compareLoad(sn *snapshot) {
	w := &r.watching
	n, sum, squares := 0.0, 0.0, 0.0
	for _, slot := range sn.live {
		x := sn.nodes[slot].st.cold.watch.cycle / sn.nodes[slot].Weight
		n, sum, squares = n+1, sum+x, squares+x*x
	}
	w.hot, w.deviation = 0, 0
	if sum > 0 {
		mean := sum / n
		w.deviation = math.Sqrt(max(squares/n-mean*mean, 0)) / mean
		for _, slot := range sn.live {
			if sn.nodes[slot].st.cold.watch.cycle/sn.nodes[slot].Weight > 2*mean {
				w.hot += 1 / n
			}
		}
	}
	for _, slot := range sn.live {
		sn.nodes[slot].st.cold.watch.cycle = 0
	}
}

// watchSaturation raises the alarm at the first decision among saturated
// workers, and again after ten seconds without one.
func (r *Router) watchSaturation() {
	w, n := &r.watching, r.counters.saturated.Load()
	switch {
	case n == w.saturated:
		if w.quiet++; w.quiet >= watchCycle {
			w.alarmed = false
		}
	case !w.alarmed:
		w.alarmed = true
		r.alarm(Alarm{Kind: AlarmSaturated, Value: float64(n - w.saturated), Text: saturatedText})
		fallthrough
	default:
		w.quiet = 0
	}
	w.saturated = n
}

const saturatedText = "every candidate of a pick has over 8 times its usual load in flight: shed load, or add workers"
