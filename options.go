package ringwise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Option is wiring: what New is told once. Coefficients are in Tuning.
type Option func(*config) error

type config struct {
	name      string
	replicas  int
	points    int
	locator   Locator
	scorers   []*plug[Scorer]
	filters   []*plug[Filter]
	picker    *plug[Picker]
	quota     func(tenant string, w *Worker) bool
	classify  Classifier
	seed      uint64
	localZone string
	clock     func() time.Time
	random    func() uint64
	hooks     Hooks
	tuning    Tuning
	sample    float64
	keep      int
}

func fail(field string, value any, want string) Option {
	return func(*config) error { return &ConfigError{field, value, want} }
}

// WithReplicas sets how many candidates the ring yields for a key, 1 to 16.
// Default 3.
func WithReplicas(n int) Option {
	if n < 1 || n > MaxCandidates {
		return fail("WithReplicas", n, "1 to 16")
	}
	return func(c *config) error { c.replicas = n; return nil }
}

// WithPoints sets the virtual nodes of a worker of weight 1, 1 to 65536.
// Clients that are to agree on placement need equal ones. Default: see
// docs/placement.md.
func WithPoints(n int) Option {
	return func(c *config) error {
		if n < 1 || n > maxPoints {
			return &ConfigError{"WithPoints", n, fmt.Sprintf("1 to %d", maxPoints)}
		}
		c.points = n
		return nil
	}
}

// WithLocator lets a store that places data its own way name the candidates.
// A list of its is never extended.
func WithLocator(l Locator) Option {
	if l == nil {
		return fail("WithLocator", nil, "a Locator")
	}
	return func(c *config) error { c.locator = l; return nil }
}

// WithScorer adds a scorer beside the live cost score, whose own weight is
// Tuning.LiveWeight. weight is in [0, 1000], 0 for a scorer that only Explain
// shows; Tuning.ScorerWeights overrides it. At most MaxScorers.
func WithScorer(s Scorer, weight float64) Option {
	if s == nil {
		return fail("WithScorer", nil, "a Scorer")
	}
	if !(weight >= 0 && weight <= 1000) {
		return fail("WithScorer weight", weight, "a number in [0, 1000]")
	}
	return func(c *config) error {
		if len(c.scorers) == MaxScorers {
			return &ConfigError{"WithScorer", s.Name(), fmt.Sprintf("at most %d scorers", MaxScorers)}
		}
		c.scorers = append(c.scorers, &plug[Scorer]{code: s, weight: weight, name: s.Name()})
		return nil
	}
}

// maxFilters of the caller's: a reason names one in what its byte has left.
const maxFilters = 64

// WithFilter adds a hard filter, after the built-in ones. At most 64.
func WithFilter(f Filter) Option {
	if f == nil {
		return fail("WithFilter", nil, "a Filter")
	}
	return func(c *config) error {
		if len(c.filters) == maxFilters {
			return &ConfigError{"WithFilter", f.Name(), fmt.Sprintf("at most %d filters", maxFilters)}
		}
		c.filters = append(c.filters, &plug[Filter]{code: f, name: f.Name()})
		return nil
	}
}

// WithPicker replaces Softmax.
func WithPicker(p Picker) Option {
	if p == nil {
		return fail("WithPicker", nil, "a Picker")
	}
	return func(c *config) error {
		if _, ok := p.(Softmax); ok {
			c.picker = nil // the default, which draws by weights that need no score
			return nil
		}
		c.picker = &plug[Picker]{code: p, name: p.Name()}
		return nil
	}
}

// WithClassifier says what an error means. Default Classify.
func WithClassifier(f Classifier) Option {
	if f == nil {
		return fail("WithClassifier", nil, "a Classifier")
	}
	return func(c *config) error { c.classify = f; return nil }
}

// WithQuota cuts workers whose quota for the request's tenant is used up: has
// reports whether some is left. It runs in Pick like a Filter, for requests
// with a Tenant.
func WithQuota(has func(tenant string, w *Worker) bool) Option {
	if has == nil {
		return fail("WithQuota", nil, "a function")
	}
	return func(c *config) error { c.quota = has; return nil }
}

// WithSeed seeds the hash of keys, so that strangers cannot craft keys that
// meet on one worker. Clients that are to agree on placement need equal
// seeds. Default 0: the documented placement.
func WithSeed(seed uint64) Option { return func(c *config) error { c.seed = seed; return nil } }

// WithLocalZone says where the caller runs; Tuning.ZoneCost then applies to
// workers elsewhere.
func WithLocalZone(zone string) Option {
	return func(c *config) error { c.localZone = zone; return nil }
}

// WithName names the router in Status and decisions.
func WithName(name string) Option { return func(c *config) error { c.name = name; return nil } }

// WithClock replaces the monotonic clock, for simulations. It is called at
// most once a Pick and must be safe for concurrent use; one that steps back,
// or leaps by more than 30 minutes at once, is taken to have stood still.
func WithClock(now func() time.Time) Option {
	if now == nil {
		return fail("WithClock", nil, "a function")
	}
	return func(c *config) error { c.clock = now; return nil }
}

// WithRand replaces the random source; it must be safe for concurrent use.
// The default mixes the key's hash, the time and the candidates' tickets.
func WithRand(random func() uint64) Option {
	if random == nil {
		return fail("WithRand", nil, "a function")
	}
	return func(c *config) error { c.random = random; return nil }
}

// WithHooks sets the hooks.
func WithHooks(h Hooks) Option { return func(c *config) error { c.hooks = h; return nil } }

// WithTuning starts with these coefficients instead of DefaultTuning.
func WithTuning(t Tuning) Option {
	return func(c *config) error {
		c.tuning = t
		return t.Validate()
	}
}

// WithDecisionSample keeps the decisions of a share of the real picks, in
// [0, 1]; the last keep of them, 1 to 4096, are read with Router.Decisions.
// A kept decision costs about a microsecond, the others nothing. Each holds on
// to its snapshot, some 50 bytes a worker.
func WithDecisionSample(share float64, keep int) Option {
	if !(share >= 0 && share <= 1) {
		return fail("WithDecisionSample share", share, "a number in [0, 1]")
	}
	if keep < 1 || keep > 4096 {
		return fail("WithDecisionSample keep", keep, "1 to 4096")
	}
	return func(c *config) error { c.sample, c.keep = share, keep; return nil }
}

func newConfig(opts []Option) (*config, error) {
	c := &config{replicas: defaultReplicas, points: defaultPoints, classify: Classify, tuning: DefaultTuning()}
	for i, o := range opts {
		if o == nil {
			return nil, &ConfigError{fmt.Sprintf("Option[%d]", i), nil, "an Option"}
		}
		if err := o(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// plain: the short path of Pick serves.
func (c *config) plain() bool {
	return c.locator == nil && len(c.scorers) == 0 && len(c.filters) == 0 && c.picker == nil && c.replicas <= fastCandidates
}

// salt keeps routers that see the same from choosing the same.
func newSalt() uint64 { return rand.Uint64() }

// sampleLimit turns a share into what 32 random bits must be under.
func sampleLimit(share float64) uint64 { return uint64(math.Round(share * (1 << 32))) }
