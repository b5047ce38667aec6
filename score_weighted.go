package ringwise

// Weighted is the classic weighted score:
//
//	100 x (Free x free capacity + Idle x (1 - load) + Latency x latency health + Local x local hit rate)
//
// free capacity: storage free of Worker.Storage, else memory free. load: the
// largest of processor, IO wait, and network against Worker.Bandwidth. latency
// health: 1 - p99/worst candidate's p99, by reports where all candidates
// report it, else by what this client expects of each; 0 for a worker that
// fails more than 5 % of its requests. local hit rate: what the worker reports
// for the key's kind (View.Kind), else 0. The weights of parts that are not
// known are left out; a worker of which nothing was reported has no signal.
//
// The zero Weighted has the read-heavy weights.
type Weighted struct {
	Free, Idle, Latency, Local float64 // each in [0, 1000]
}

// Weights for two kinds of traffic (docs/scorers.md).
var (
	ReadHeavyWeights  = Weighted{0.2, 0.3, 0.2, 0.3}
	WriteHeavyWeights = Weighted{0.4, 0.3, 0.2, 0.1}
)

// Validate checks ranges.
func (s Weighted) Validate() error {
	for _, f := range [...]struct {
		name string
		v    float64
	}{{"Free", s.Free}, {"Idle", s.Idle}, {"Latency", s.Latency}, {"Local", s.Local}} {
		if !(f.v >= 0 && f.v <= 1000) {
			return &ConfigError{"Weighted." + f.name, f.v, "a number in [0, 1000]"}
		}
	}
	return nil
}

// Name is "weighted".
func (Weighted) Name() string { return "weighted" }

// Score rates each candidate.
func (s Weighted) Score(v *View, out []float64) {
	worst := worstLatency(v)
	for i := range out {
		var t tally
		if s.rate(v, i, worst, &t) {
			out[i] = t.total
		}
	}
}

// Lines is a line for each part that is known.
func (s Weighted) Lines(v *View, i int) []Line {
	t := tally{keep: true}
	s.rate(v, i, worstLatency(v), &t)
	return t.lines
}

// worst is the slowest candidate's latency, and where it comes from.
type worst struct {
	ns       float64
	reported bool // the p99 that all candidates reported
}

func worstLatency(v *View) (w worst) {
	w.reported = true
	for i := range v.n {
		p99, ok := v.Metric(i, MetricRTTP99)
		w.reported = w.reported && ok
		w.ns = max(w.ns, p99)
	}
	if !w.reported {
		w.ns = 0
		for i := range v.n {
			w.ns = max(w.ns, v.latency(i))
		}
	}
	return w
}

func (s Weighted) rate(v *View, i int, w worst, t *tally) bool {
	rep, fresh := v.Report(i)
	if !fresh {
		return false
	}
	if s == (Weighted{}) {
		s = ReadHeavyWeights
	}
	free, hasFree := freeCapacity(v, i, rep)
	load, hasLoad := loadOf(v, i)
	hit, hasHit := 0.0, false
	if kind := v.Kind(); kind != 0 {
		hit, _ = v.HitRate(i, kind)
		hasHit = true
	}
	latency := v.latency(i)
	if w.reported {
		latency, _ = v.Metric(i, MetricRTTP99)
	}
	health, hasLatency := 0.0, w.ns > 0
	if hasLatency && v.failing(i) <= failingTooMuch {
		health = 1 - latency/w.ns
	}
	parts := [...]struct {
		name   string
		input  float64
		unit   func(float64) string
		weight float64
		value  float64
		known  bool
	}{
		{"free capacity", free, asShare, s.Free, free, hasFree},
		{"load", load, asShare, s.Idle, 1 - load, hasLoad},
		{"latency health", latency, asTime, s.Latency, health, hasLatency},
		{"local hit rate", hit, asShare, s.Local, hit, hasHit},
	}
	sum := 0.0
	for j := range parts {
		if parts[j].known {
			sum += parts[j].weight
		}
	}
	if sum == 0 {
		return false
	}
	for j := range parts {
		if p := &parts[j]; p.known {
			t.add(p.name, p.input, p.unit, 100*p.weight/sum*min(max(p.value, 0), 1))
		}
	}
	t.clamp() // past rounding
	return true
}

func freeCapacity(v *View, i int, rep *Report) (share float64, known bool) {
	if free, ok := rep.StorageFree.Get(); ok && v.Worker(i).Storage > 0 {
		return min(float64(free)/float64(v.Worker(i).Storage), 1), true
	}
	if used, ok := v.Metric(i, MetricMemory); ok {
		return 1 - used, true
	}
	return 0, false
}

func loadOf(v *View, i int) (load float64, known bool) {
	for _, m := range [...]Metric{MetricCPU, MetricIOWait} {
		if x, ok := v.Metric(i, m); ok {
			load, known = max(load, x), true
		}
	}
	if width := float64(v.Worker(i).Bandwidth); width > 0 {
		for _, m := range [...]Metric{MetricNetIn, MetricNetOut} {
			if x, ok := v.Metric(i, m); ok {
				load, known = max(load, min(x/width, 1)), true
			}
		}
	}
	return load, known
}
