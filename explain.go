package ringwise

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"
)

// Decision is one pick, told in full. It is plain data: print it, log it
// with slog, or marshal it.
type Decision struct {
	Router string    `json:",omitempty"` // WithName
	Time   time.Time // of the pick
	Key    string    `json:",omitempty"` // as the request had it
	Hash   string    // the key's place, 16 hex digits; zeros without a key
	Intent string
	Write  bool // on the lane of writes, else of reads
	Picker string

	// Chosen is the worker named. Explain leaves it empty where a Picker of
	// the caller's, or one with a position, would have to be asked.
	Chosen string
	// Error is why nobody could be named.
	Error string `json:",omitempty"`

	Candidates []Candidate // those that are in first, in ring order

	Relaxed       string `json:",omitempty"` // rules given up, comma-separated
	Panic         bool   // a worker in cooldown was let in
	Ramp          bool   // a recovering worker was held to its share
	LowConfidence bool   // the topology is past its TTL
	Saturated     bool   // every candidate has far more in flight than usual
	Try           bool   // of a candidate that was not picked for 27 s
	Truncated     bool   // more than 16 candidates were named: the first 16
	Directory     bool   `json:",omitempty"` // WithDirectory named the last candidate in ring order
	Heat          string `json:",omitempty"` // of the key, where it is hot (WithHotKeys)

	// TuningVersion names the coefficients: a canary's has a number of its own.
	TopologyEpoch, TopologyVersion, TuningVersion uint64
	Group                                         string `json:",omitempty"` // of a canary: canary or control
}

// Candidate is one worker of a Decision.
type Candidate struct {
	ID    string
	Role  string
	Cut   string `json:",omitempty"` // why it was cut; empty: it is in
	Phase string
	// Factor is the share of its normal traffic that penalties leave it.
	Factor float64
	// Probability of being chosen; the sum over candidates is 1. Left at 0
	// for all where it cannot be known (see Decision.Chosen).
	Probability float64
	InFlight    int           // units this client has reserved on it
	Latency     time.Duration `json:"Latency_ns"` // expected before load
	Cost        float64       // latency x load, relative to the fleet's mean
	Score       float64       // combined, 0..100
	Clamped     bool          // Score is at a limit; the choice is not
	Stale       bool          // its last report is past its trust window
	Scores      []ScoreColumn
}

// ScoreColumn is one scorer's say.
type ScoreColumn struct {
	Name   string
	Weight float64
	Points float64 // 0..100; of live cost not clamped
	Lines  []Line  `json:",omitempty"`
}

// Explain tells what Pick would do with a request now, by the code that Pick
// runs. It reserves nothing and advances nothing. Some microseconds.
func (r *Router) Explain(q Request) Decision {
	sn, now := r.snap.Load(), r.startOf(&q)
	v := viewPool.Get().(*View)
	defer v.release()
	v.rec = &recorder{}
	v.chosen = -1
	v.begin(sn, &q, now) // prepare refuses some requests before it does
	group := groupNone
	if sn.trial != nil {
		h, tenant := r.placed(&q, sn, now)
		sn, group = sn.as(&q, tenant, h)
	}
	h, err := r.prepare(v, sn, &q, now)
	v.group = group
	v.capture()
	known := true
	if err == nil {
		rnd := Rand{r.chanceNow(h, v.now, v.mix)}
		if i := r.due(v, false); i >= 0 {
			v.tried = true
			v.w = [MaxCandidates]float64{}
			v.w[i] = 1
		}
		switch {
		case r.picker == nil || r.picker.off() || q.Intent == Pinned:
			v.chosen = draw(v.w[:v.n], unit(rnd.s))
		default:
			known = r.probabilities(v, &rnd)
		}
	}
	d := r.decide(v, known)
	if err != nil {
		d.Error = err.Error()
	}
	return d
}

func (r *Router) pickerName() string {
	if r.picker == nil || r.picker.off() {
		return Softmax{}.Name()
	}
	return r.picker.name
}

// probabilities writes a built-in picker's probabilities into v.w and has it
// pick, where it has any that do not depend on a position or on the caller.
func (r *Router) probabilities(v *View, rnd *Rand) bool {
	p, ok := r.picker.code.(interface {
		Picker
		probability(v *View, score []float64, p []float64)
	})
	if !ok {
		return false
	}
	for i := range v.n {
		if _, f := r.picker.code.(factored); !f && v.factor[i] != 1 {
			return false // thinned before the picker is asked
		}
		v.scratch[i] = min(max(v.total[i], 0), 100)
	}
	p.probability(v, v.scratch[:v.n], v.w[:v.n])
	v.chosen = p.Pick(v, v.scratch[:v.n], rnd)
	return true
}

// decide renders a view that has been captured.
func (r *Router) decide(v *View, known bool) Decision {
	d := Decision{Router: r.name, Time: r.wall(v.now), Key: v.req.Key, Hash: v.hash.String(), Intent: v.req.Intent.String(),
		Write: v.lane == laneWrite, Picker: r.pickerName()}
	sn := v.sn
	d.Relaxed, d.Panic, d.Ramp, d.LowConfidence = v.relaxed.String(), v.panic, v.ramp, sn.lowConfidence
	d.Truncated, d.Directory = v.truncated, v.directed
	if heat, _ := v.Heat(); heat.Hot() {
		d.Heat = heat.String()
	}
	d.TopologyEpoch, d.TopologyVersion, d.TuningVersion = sn.topology.Epoch, sn.topology.Version, sn.tuningVersion
	d.Group, d.Saturated, d.Try = groupNames[v.group], v.saturated(), v.tried
	sum := v.sum()
	for i := range v.all {
		c := Candidate{ID: v.idName(i), Role: v.role[i].String(), Phase: v.cap.pen[i].shown().String(),
			InFlight: v.cap.inFlight[i], Latency: nanos(v.cap.latency[i]), Cost: v.cap.cost[i],
			Stale: sn.cols[v.idx[i]].flags&flagStale != 0}
		if i >= v.n {
			c.Cut = r.reasonText(v.why[i])
			d.Candidates = append(d.Candidates, c)
			continue
		}
		c.Factor = v.factor[i]
		if known && sum > 0 {
			c.Probability = v.w[i] / sum
		}
		total := rawPoints(v.cap.cost[i])
		if v.scored {
			total = v.total[i]
		}
		if v.rec != nil {
			c.Scores = r.scoreColumns(v, i)
		} else if v.said != 0 {
			c.Scores = r.keptColumns(v, i)
		}
		c.Score = min(max(total, 0), 100)
		c.Clamped = total < 0 || total > 100
		d.Candidates = append(d.Candidates, c)
	}
	if v.chosen >= 0 && v.chosen < v.n {
		d.Chosen = v.idName(v.chosen)
	}
	return d
}

// scoreColumns takes candidate i's score apart.
func (r *Router) scoreColumns(v *View, i int) []ScoreColumn {
	var out []ScoreColumn
	for j, name := range v.rec.names {
		col := ScoreColumn{Name: name, Weight: v.rec.weights[j], Points: v.rec.columns[j][i]}
		if j == 0 {
			col.Lines = v.costLines(i)
		} else if p := r.scorers[v.rec.scorer[j]]; !p.off() {
			if ls, ok := p.code.(LineScorer); ok {
				r.hub.isolate(func() { col.Lines = ls.Lines(v, i) }) // not a fault of its scores
			}
		}
		out = append(out, col)
	}
	return out
}

// logView logs a decision of the queue, with the caller's handler isolated.
func (r *Router) logView(v *View) {
	defer func() {
		if recover() != nil {
			r.panics.Add(1)
		}
	}()
	if r.stopped.Load() {
		return
	}
	d := r.decide(v, r.picker == nil)
	attrs := make([]slog.Attr, 0, 4)
	if r.name != "" {
		attrs = append(attrs, slog.String("router", r.name))
	}
	if r.log.keys == LogPlainKeys {
		attrs = append(attrs, slog.String("key", d.Key))
	}
	attrs = append(attrs, slog.Time("at", d.Time), slog.Any("decision", d))
	r.log.logger.LogAttrs(context.Background(), slog.LevelInfo, "ringwise pick", attrs...)
}

// keptColumns are the scores of a real pick, without their lines.
func (r *Router) keptColumns(v *View, i int) []ScoreColumn {
	t := &v.sn.coef.tuning
	out := []ScoreColumn{{Name: "live cost", Weight: t.LiveWeight, Points: rawPoints(v.cap.cost[i])}}
	for j, p := range r.scorers {
		if v.said>>j&1 != 0 {
			weight := t.ScorerWeights[j]
			if weight < 0 {
				weight = p.weight
			}
			out = append(out, ScoreColumn{Name: p.name, Weight: weight, Points: v.points[j][i]})
		}
	}
	return out
}

// costLines takes the live cost apart; in points its factors add up.
func (v *View) costLines(i int) []Line {
	col, c, f := v.col(i), v.sn.coef, &v.sn.fleet[v.lane]
	in := func(x float64) float64 { return 0 - 10*math.Log(x) } // never -0
	lat, n := v.cap.latency[i], v.cap.inFlight[i]
	load := 1 + c.load*float64(n)
	lines := []Line{
		{"par", fmt.Sprintf("fleet mean cost with load %v", nanos(1/f.inv).Round(time.Microsecond)), par},
		{"latency", nanos(lat).Round(time.Microsecond).String(), in(lat * f.inv)},
		{"in flight", fmt.Sprint(n), in(load)},
	}
	if v.sn.fbOn {
		if fb := c.feedback(&col.st.lane[v.lane], f, v.now); fb > 0 {
			lines = append(lines, Line{"feedback", fmt.Sprintf("load +%.2f", fb), in((load + fb) / load)})
		}
	}
	if col.pre != 1 {
		lines = append(lines, Line{"health flags and zone", fmt.Sprintf("cost x %.2f", col.pre), in(float64(col.pre))})
	}
	return lines
}

// String is the decision for people, a line a candidate.
func (d Decision) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", d.Intent, d.Hash)
	if d.Key != "" {
		fmt.Fprintf(&b, " key %q", d.Key)
	}
	if d.Chosen != "" {
		fmt.Fprintf(&b, " -> %s", d.Chosen)
	}
	if d.Error != "" {
		fmt.Fprintf(&b, ": %s", d.Error)
	}
	fmt.Fprintf(&b, "  (picker %s, topology %d.%d, tuning %d", d.Picker, d.TopologyEpoch, d.TopologyVersion, d.TuningVersion)
	for _, f := range []struct {
		on   bool
		name string
	}{{d.Group != "", d.Group}, {d.Relaxed != "", "relaxed " + d.Relaxed}, {d.Panic, "panic"}, {d.Ramp, "ramp"}, {d.LowConfidence, "topology past its TTL"}, {d.Saturated, "saturated"}, {d.Try, "a try"}, {d.Truncated, "first 16 named"},
		{d.Directory, "directory asked"}, {d.Heat != "", d.Heat}} {
		if f.on {
			b.WriteString(", " + f.name)
		}
	}
	b.WriteString(")\n")
	for _, c := range d.Candidates {
		mark := " "
		if c.ID == d.Chosen {
			mark = "*"
		}
		if c.Cut != "" {
			fmt.Fprintf(&b, "%s %-16s cut: %s\n", mark, c.ID, c.Cut)
			continue
		}
		fmt.Fprintf(&b, "%s %-16s p %6.2f %%  score %5.1f  latency %-10v in flight %-4d %s", mark, c.ID,
			c.Probability*100, c.Score, c.Latency.Round(time.Microsecond), c.InFlight, c.Phase)
		if c.Factor != 1 {
			fmt.Fprintf(&b, " x %.2f", c.Factor)
		}
		if c.Clamped {
			b.WriteString(" clamped")
		}
		if c.Stale {
			b.WriteString(" stale")
		}
		b.WriteByte('\n')
		for _, s := range c.Scores {
			fmt.Fprintf(&b, "      %s, weight %g: %.1f", s.Name, s.Weight, s.Points)
			for k, l := range s.Lines {
				sep := ", "
				if k == 0 {
					sep = " = "
				}
				fmt.Fprintf(&b, "%s%s (%s) %+.1f", sep, l.Name, l.Input, math.Round(l.Points*10)/10+0)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// LogValue is the decision for slog: chosen, flags and one group a candidate.
// It carries the hash, never the key.
func (d Decision) LogValue() slog.Value {
	attrs := []slog.Attr{
		slog.String("intent", d.Intent), slog.String("hash", d.Hash), slog.String("chosen", d.Chosen),
		slog.Uint64("topology", d.TopologyVersion), slog.Uint64("tuning", d.TuningVersion),
	}
	for _, f := range []struct{ name, v string }{{"error", d.Error}, {"group", d.Group}, {"relaxed", d.Relaxed}} {
		if f.v != "" {
			attrs = append(attrs, slog.String(f.name, f.v))
		}
	}
	for _, f := range []struct {
		name string
		on   bool
	}{{"panic", d.Panic}, {"ramp", d.Ramp}, {"low_confidence", d.LowConfidence}, {"saturated", d.Saturated}, {"try", d.Try}} {
		if f.on {
			attrs = append(attrs, slog.Bool(f.name, true))
		}
	}
	for _, c := range d.Candidates {
		if c.Cut != "" {
			attrs = append(attrs, slog.Group(c.ID, slog.String("cut", c.Cut)))
			continue
		}
		group := []any{slog.Float64("p", c.Probability), slog.Float64("score", c.Score),
			slog.Duration("latency", c.Latency), slog.Int("in_flight", c.InFlight), slog.String("phase", c.Phase),
			slog.Float64("factor", c.Factor)}
		if len(c.Scores) > 1 {
			var scores []any
			for _, s := range c.Scores {
				scores = append(scores, slog.Float64(s.Name, s.Points))
			}
			group = append(group, slog.Group("scores", scores...))
		}
		attrs = append(attrs, slog.Group(c.ID, group...))
	}
	return slog.GroupValue(attrs...)
}

// Decisions returns the kept decisions of real picks, oldest first; none
// without WithDecisionSample. Scores of scorers are kept, the lines behind
// them are not.
func (r *Router) Decisions() []Decision {
	s := &r.samples
	s.mu.Lock()
	views := make([]View, 0, s.n)
	for i := range s.n {
		views = append(views, s.views[(s.next-s.n+i+len(s.views))%len(s.views)])
	}
	s.mu.Unlock()
	out := make([]Decision, len(views))
	for i := range views {
		v := &views[i]
		out[i] = r.decide(v, r.picker == nil)
	}
	return out
}
