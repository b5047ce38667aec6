package ringwise

// Composite is the weighted mean of Affinity, LocalDensity and LatencyScore
// as one scorer with one weight; the profile CacheAffinity has the same three
// side by side. As for the Router's own mean, a candidate of which a
// part knows nothing has the mean of its peers there, and a part that knows
// nothing of any is left out. The zero Composite has CompositeWeights: 0.40,
// 0.35 and 0.25.
type Composite struct {
	Affinity, Density, Latency float64 // each in [0, 1000]
}

// CompositeWeights are the defaults (docs/scorers.md).
var CompositeWeights = Composite{0.40, 0.35, 0.25}

// Validate checks ranges.
func (s Composite) Validate() error {
	for _, f := range [...]struct {
		name string
		v    float64
	}{{"Affinity", s.Affinity}, {"Density", s.Density}, {"Latency", s.Latency}} {
		if !(f.v >= 0 && f.v <= 1000) {
			return &ConfigError{"Composite." + f.name, f.v, "a number in [0, 1000]"}
		}
	}
	return nil
}

// Name is "composite".
func (Composite) Name() string { return "composite" }

func (Composite) remembers() {}

// composed are the parts' columns and the weights of those that know
// anything.
type composed struct {
	column [3][MaxCandidates]float64
	weight [3]float64
	sum    float64
}

var compositeNames = [3]string{"cache affinity", "local density", "latency"}

func (s Composite) compose(v *View) (c composed) {
	if s == (Composite{}) {
		s = CompositeWeights
	}
	for k := range c.column {
		for i := range v.n {
			c.column[k][i] = NoSignal
		}
	}
	Affinity{}.Score(v, c.column[0][:v.n])
	LocalDensity{}.Score(v, c.column[1][:v.n])
	LatencyScore{}.Score(v, c.column[2][:v.n])
	for k, weight := range [...]float64{s.Affinity, s.Density, s.Latency} {
		if fillNoSignal(c.column[k][:v.n]) {
			c.weight[k] = weight
			c.sum += weight
		}
	}
	return c
}

// Score is the weighted mean.
func (s Composite) Score(v *View, out []float64) {
	c := s.compose(v)
	if c.sum == 0 {
		return
	}
	for i := range out {
		out[i] = 0
		for k := range c.column {
			out[i] += c.weight[k] / c.sum * c.column[k][i]
		}
	}
}

// Lines is a line for each part that knows anything.
func (s Composite) Lines(v *View, i int) []Line {
	c := s.compose(v)
	t := tally{keep: true}
	for k, name := range compositeNames {
		if c.weight[k] > 0 {
			t.add(name, c.column[k][i], asNumber, c.weight[k]/c.sum*c.column[k][i])
		}
	}
	return t.lines
}
