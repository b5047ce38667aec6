package ringwise

import "time"

// Gears is Weighted with one of two sets of weights, switched and never mixed:
// the write set while writes are at least Tuning.GearWrite of this client's
// requests of the last five minutes, until they are at most Tuning.GearRead;
// or by time of day, where From and To differ. Writes are requests of intent
// Write.
type Gears struct {
	// Read and Write are the two sets. Defaults ReadHeavyWeights and
	// WriteHeavyWeights.
	Read, Write Weighted
	// From and To, times since midnight in Location, in [0, 24h), are when the
	// write set is in gear, whatever the share; To before From wraps over
	// midnight. Equal: the share decides (default). Location nil is UTC.
	From, To time.Duration
	Location *time.Location
}

// Validate checks ranges.
func (g Gears) Validate() error {
	const day = 24 * time.Hour
	for _, f := range [...]struct {
		name string
		d    time.Duration
	}{{"From", g.From}, {"To", g.To}} {
		if f.d < 0 || f.d >= day {
			return &ConfigError{"Gears." + f.name, f.d, "a time of day in [0, 24h)"}
		}
	}
	if err := g.Read.Validate(); err != nil {
		return err
	}
	return g.Write.Validate()
}

// Name is "gears".
func (Gears) Name() string { return "gears" }

// Score is that of the set in gear.
func (g Gears) Score(v *View, out []float64) { g.inGear(v).Score(v, out) }

// Lines are those of the set in gear.
func (g Gears) Lines(v *View, i int) []Line {
	name := "read gear"
	if g.writes(v) {
		name = "write gear"
	}
	if ls := g.inGear(v).Lines(v, i); ls != nil {
		return append([]Line{{name, "", 0}}, ls...)
	}
	return nil
}

func (g Gears) inGear(v *View) Weighted {
	set, other := g.Read, ReadHeavyWeights
	if g.writes(v) {
		set, other = g.Write, WriteHeavyWeights
	}
	if set == (Weighted{}) {
		return other
	}
	return set
}

func (g Gears) writes(v *View) bool {
	if g.From == g.To {
		return v.sn.gears
	}
	return g.at(v.Time())
}

// at tells whether a moment is within From and To.
func (g Gears) at(t time.Time) bool {
	if g.Location != nil {
		t = t.In(g.Location)
	} else {
		t = t.UTC()
	}
	h, m, s := t.Clock()
	day := time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(s)*time.Second
	if g.From < g.To {
		return g.From <= day && day < g.To
	}
	return day >= g.From || day < g.To
}
