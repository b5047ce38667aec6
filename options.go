package ringwise

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"github.com/ringwise/ringwise/hotkey"
	"github.com/ringwise/ringwise/keyspec"
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
	parser    keyspec.Parser
	hot       *hotkey.Tracker
	directory func(h KeyHash, key string) (Ref, bool)
	classify  Classifier
	seed      uint64
	localZone string
	clock     func() time.Time
	random    func() uint64
	hooks     Hooks
	tuning    Tuning
	sample    float64
	keep      int
	log       *decisionLog
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
// All workers together have at most 16,777,216, which is their weights' sum
// times n. Clients that are to agree on placement need equal ones. Default: see
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
		if err := validateScorer(s); err != nil {
			return err
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

// WithKeyParser reads keys: their tenant, for WithQuota where Request.Tenant
// is empty; their tenant and entity, for Affinity and Weighted (View.Kind);
// their shard slot, for LocalDensity (View.Slot); and the text by which they
// are placed, so that a prefix or the case of letters moves no key. It runs in
// Pick for requests with Key, and KeyBytes where it has keyspec.Spec's
// ParseBytes; else KeyBytes are copied. A key it fails on is placed by its
// hash and says nothing else; one that panics is counted and does the same.
func WithKeyParser(p keyspec.Parser) Option {
	if p == nil {
		return fail("WithKeyParser", nil, "a keyspec.Parser")
	}
	return func(c *config) error { c.parser = p; return nil }
}

// WithHotKeys counts the key of each pick in t, reads and writes apart: about
// 50 ns and no allocation. Hooks.HotKey tells of keys whose kind of heat
// changes, View.Heat tells scorers, and a Read of one that is hot by reads for
// minutes has Tuning.HotSpread times the candidates: the further ones on the
// ring must then be able to serve it. The Router calls t.Refresh once a second,
// in Maintain; nobody else should, or changes are missed. t remains the
// caller's: Top, Export and Merge, at Unix time in nanoseconds, are his.
func WithHotKeys(t *hotkey.Tracker) Option {
	if t == nil {
		return fail("WithHotKeys", nil, "a *hotkey.Tracker")
	}
	return func(c *config) error { c.hot = t; return nil }
}

// WithDirectory names a further candidate for a key whose own are all in a bad
// way: where the best score is under Tuning.DirectoryScore, newest is asked for
// the worker with the key's newest replica. That worker is filtered and scored
// like the others and may win; false, or a Ref of a worker that has left,
// changes nothing. It serves requests placed by the ring, not those with Among,
// Any or a Locator, runs in Pick and Explain, must not block, and is isolated
// when it panics. key is empty where the request has none as a string.
func WithDirectory(newest func(h KeyHash, key string) (Ref, bool)) Option {
	if newest == nil {
		return fail("WithDirectory", nil, "a function")
	}
	return func(c *config) error { c.directory = newest; return nil }
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

// WithDecisionLog logs the decisions of a share of the real picks, in (0, 1],
// at level Info: the key's hash (or the key, as keys says), the candidates
// with their scores or why they were cut, who was chosen, and what was given
// up. Pick queues them, a microsecond each; Run, Maintain or, without Run, an
// Observe that folds writes them, under no lock: one at a time, at most what
// was queued when it began, for which that one waits and nobody else. A handler
// that blocks for ever costs the log and that goroutine; penalties, hooks and
// canaries go on with whoever folds next. At most 64 wait, further ones are
// dropped and counted in Status.LogDropped; a handler that panics is isolated
// and counted in Status.HookPanics.
func WithDecisionLog(l *slog.Logger, share float64, keys LogKeys) Option {
	if l == nil {
		return fail("WithDecisionLog", nil, "a *slog.Logger")
	}
	if !(share > 0 && share <= 1) {
		return fail("WithDecisionLog share", share, "a number in (0, 1]")
	}
	if keys > LogPlainKeys {
		return fail("WithDecisionLog keys", uint8(keys), "LogHashes or LogPlainKeys")
	}
	return func(c *config) error {
		c.log = &decisionLog{logger: l, keys: keys, under: sampleLimit(share), views: make([]View, logQueue)}
		return nil
	}
}

func newConfig(opts []Option) (*config, error) {
	c := &config{replicas: defaultReplicas, points: defaultPoints, classify: Classify, tuning: DefaultTuning()}
	for i, o := range opts {
		if o == nil {
			return nil, &ConfigError{fmt.Sprintf("Option[%d]", i), nil, "an Option"}
		}
		if err := apply(o, i, c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// apply isolates the Name method of a plug, which a nil pointer may not have.
func apply(o Option, i int, c *config) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &ConfigError{fmt.Sprintf("Option[%d]", i), p, "a plug whose Name does not panic"}
		}
	}()
	return o(c)
}

// plain: the short path of Pick serves.
func (c *config) plain() bool {
	return c.locator == nil && len(c.scorers) == 0 && len(c.filters) == 0 && c.picker == nil && c.replicas <= fastCandidates &&
		c.parser == nil && c.hot == nil && c.directory == nil
}

// salt keeps routers that see the same from choosing the same.
func newSalt() uint64 { return rand.Uint64() }

// sampleLimit turns a share into what 32 random bits must be under.
func sampleLimit(share float64) uint64 { return uint64(math.Round(share * (1 << 32))) }
