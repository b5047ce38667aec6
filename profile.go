package ringwise

// Profile is scorers, their weights and a Tuning that belong together. Change
// a copy's Tuning before WithProfile takes it, for what else you tune.
//
// What every shipped profile has in common: the live cost of a candidate, from
// what this client has in flight and has measured itself, keeps 0.93 or 0.85
// of the weight. Scores made of reports alone herd: all clients chase the
// worker that was idle when it last reported, and with reports every 2 s the
// p99 was 100 times the oracle's, worse than drawing at random (docs/policy.md).
// Beside live cost a scorer is a lean: with weight w beside LiveWeight L a
// candidate that is d points better there is chosen until it costs
// exp(w*d/(10*L)) times as much.
//
// A profile holds no state: one may serve many Routers.
type Profile struct {
	Name    string
	Scorers []Weighed
	// Tuning is complete; its LiveWeight and Temperature are part of what the
	// profile is.
	Tuning Tuning
}

// Weighed is a scorer with its weight in [0, 1000].
type Weighed struct {
	Scorer Scorer
	Weight float64
}

// classicLive is the weight of live cost beside classic scorers of weight 1. In
// the sum a 0/100 scorer then shifts 7 points, the most that Tuning.Warnings
// lets pass: as softmax at a temperature of 14 on that scorer alone would,
// times live cost to the power of -9.3.
const classicLive = 13.3

// Default is live cost alone: what New does that is told nothing.
func Default() Profile { return Profile{Name: "default", Tuning: DefaultTuning()} }

// Classic is Hybrid, less FakeHealth, beside live cost.
func Classic() Profile {
	return classic("classic", FakeHealth{Of: Hybrid{}})
}

// ReadHeavy is Weighted with the read-heavy weights beside live cost.
func ReadHeavy() Profile {
	return classic("read-heavy", FakeHealth{Of: ReadHeavyWeights})
}

// WriteHeavy is Weighted with the write-heavy weights beside live cost.
func WriteHeavy() Profile {
	return classic("write-heavy", FakeHealth{Of: WriteHeavyWeights})
}

// CacheAffinity is Affinity, LocalDensity and LatencyScore at 0.40, 0.35 and
// 0.25 beside live cost at 5.5: a worker that has served all of a kind's recent
// requests keeps the next until it costs 2.1 times as much as one that has
// served none. It needs WithKeyParser, or Request.Tenant.
func CacheAffinity() Profile {
	p := Default()
	p.Name = "cache-affinity"
	p.Scorers = []Weighed{
		{Affinity{}, CompositeWeights.Affinity},
		{LocalDensity{}, CompositeWeights.Density},
		{LatencyScore{}, CompositeWeights.Latency},
	}
	p.Tuning.LiveWeight = 5.5
	return p
}

func classic(name string, s Scorer) Profile {
	p := Default()
	p.Name = name
	p.Scorers = []Weighed{{s, 1}}
	p.Tuning.LiveWeight = classicLive
	return p
}

// WithProfile wires a profile: its scorers, in place of those given before, and
// its Tuning. Options after it override: WithScorer adds one, WithTuning
// replaces all coefficients, LiveWeight and Temperature too.
func WithProfile(p Profile) Option {
	return func(c *config) error {
		c.scorers = nil
		for _, s := range p.Scorers {
			if err := WithScorer(s.Scorer, s.Weight)(c); err != nil {
				return err
			}
		}
		return WithTuning(p.Tuning)(c)
	}
}
