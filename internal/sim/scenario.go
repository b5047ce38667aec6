package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"time"
)

// Scenario is a fleet, a load and what goes wrong. It is plain data but for
// Changes; [DefaultScenario] has the figures that the built-in ones share.
type Scenario struct {
	Name  string // short: "a" or "rolling"
	Title string // for people: "homog: nothing happens"

	Workers    int
	Slots      int // requests a worker serves at once
	Clients    int // each with a policy of its own
	Replicas   int // candidates of a key
	Partitions int // of the ring; a key's partition fixes its candidates

	// Load is the arrival rate as a share of what the fleet can serve, (0, 1.5].
	Load float64
	// Speed is the fleet's mean speed over the run, 1 for an even fleet. The
	// arrival rate is Load times the slots times Speed over Service, so that a
	// fleet with slow workers is loaded to the same share.
	Speed float64

	Service     time.Duration // mean service time at speed 1
	ServiceDist Dist
	Net         time.Duration // one way
	Timeout     time.Duration // the client gives up; the worker does not notice
	Warmup      time.Duration // requests that arrive before it are not measured
	Duration    time.Duration // arrivals end here, then the fleet drains

	ReportEvery time.Duration
	ReportDelay time.Duration // on top of the network

	HotKey    float64 // share of the traffic that one key takes
	Zipf      float64 // exponent of key popularity; 0 is uniform over partitions
	Keys      int     // number of keys when Zipf is set
	Writes    float64 // share of requests that write
	Lost      float64 // share of attempts whose Done never comes
	AppErrors float64 // share of requests answered with an application error, anywhere

	// Tenants, when set, has each request belong to one, drawn by a zipf of
	// exponent TenantZipf. A worker keeps the last Cache of them at hand; a
	// request of another takes Miss times the service.
	Tenants    int
	TenantZipf float64
	Cache      int
	Miss       float64

	// Changes lays out the disturbances; nil is none. It draws from r only, so
	// a seed gives the same to each policy.
	Changes func(s *Scenario, r *rand.Rand) []Change
}

// DefaultScenario is an even fleet: 15 workers of 4 slots, 4 ms exponential
// service, 20 clients, 3 candidates of a 240-partition ring, 70 % load.
func DefaultScenario() Scenario {
	return Scenario{
		Name: "a", Title: "homog: nothing happens",
		Workers: 15, Slots: 4, Clients: 20, Replicas: 3, Partitions: 240,
		Load: 0.7, Speed: 1,
		Service: 4 * time.Millisecond, Net: 250 * time.Microsecond, Timeout: 250 * time.Millisecond,
		Warmup: 5 * time.Second, Duration: 16 * time.Second,
		ReportEvery: 2 * time.Second,
	}
}

// MaxReplicas is the most candidates a key may have.
const MaxReplicas = 16

// Validate names each field that is out of range, with its value.
func (s *Scenario) Validate() error {
	var errs []error
	bad := func(ok bool, field string, v any, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("sim: %s %v: want %s", field, v, want))
		}
	}
	bad(s.Workers >= 1 && s.Workers <= 10000, "Workers", s.Workers, "1..10000")
	bad(s.Slots >= 1 && s.Slots <= 100000, "Slots", s.Slots, "1..100000")
	bad(s.Clients >= 1 && s.Clients <= 100000, "Clients", s.Clients, "1..100000")
	bad(s.Replicas >= 1 && s.Replicas <= min(MaxReplicas, s.Workers), "Replicas", s.Replicas, "1..16 and no more than workers")
	bad(s.Partitions >= 1 && s.Partitions <= 1<<20, "Partitions", s.Partitions, "1..1048576")
	bad(s.Load > 0 && s.Load <= 1.5, "Load", s.Load, "(0, 1.5]")
	bad(s.Speed > 0 && s.Speed <= 100, "Speed", s.Speed, "(0, 100]")
	bad(s.Service > 0, "Service", s.Service, "> 0")
	bad(s.Net >= 0, "Net", s.Net, ">= 0")
	bad(s.Timeout > 0, "Timeout", s.Timeout, "> 0")
	bad(s.Warmup >= 0 && s.Warmup < s.Duration, "Warmup", s.Warmup, ">= 0 and below Duration")
	bad(s.Duration > 0 && s.Duration <= 24*time.Hour, "Duration", s.Duration, "(0, 24h]")
	bad(s.ReportEvery >= 0, "ReportEvery", s.ReportEvery, ">= 0 (0 is no reports)")
	bad(s.ReportDelay >= 0, "ReportDelay", s.ReportDelay, ">= 0")
	share := func(field string, v float64) { bad(v >= 0 && v < 1, field, v, "[0, 1)") }
	share("HotKey", s.HotKey)
	share("Writes", s.Writes)
	share("Lost", s.Lost)
	share("AppErrors", s.AppErrors)
	bad(s.Zipf >= 0 && s.Zipf <= 5, "Zipf", s.Zipf, "[0, 5]")
	bad(s.Zipf == 0 || s.Keys >= 1 && s.Keys <= 1<<24, "Keys", s.Keys, "1..16777216 when Zipf is set")
	bad(s.Tenants >= 0 && s.Tenants <= 1<<20, "Tenants", s.Tenants, "0..1048576")
	if s.Tenants > 0 {
		bad(s.TenantZipf >= 0 && s.TenantZipf <= 5, "TenantZipf", s.TenantZipf, "[0, 5]")
		bad(s.Cache >= 1 && s.Cache <= s.Tenants, "Cache", s.Cache, "1..Tenants")
		bad(s.Miss >= 1 && s.Miss <= 1000, "Miss", s.Miss, "[1, 1000]")
	}
	if err := s.ServiceDist.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Limits of what one run may keep in memory.
const (
	// MaxRequests is the most requests of a run, 8 bytes each.
	MaxRequests = 50_000_000
	// MaxSeries is the most workers times buckets of the series, 16 bytes each:
	// 15 workers for a day at 100 ms are 13 million.
	MaxSeries = 20_000_000
)

// Fits tells what a run with these options would have too much of to be kept
// in memory, if anything, and what to lower. The scenario must be valid.
func (s *Scenario) Fits(o Options) error {
	if n := s.Rate() * s.Duration.Seconds(); n > MaxRequests {
		return fmt.Errorf("sim: %.3g requests in %v: want at most %d; lower Duration, Load, Workers or Slots, or raise Service",
			n, s.Duration, MaxRequests)
	}
	width := cmp.Or(o.Series, seriesWidth)
	if n := math.Ceil(float64(s.Duration)/float64(width)) * float64(s.Workers); width < 0 || n > MaxSeries {
		return fmt.Errorf("sim: a series of %.3g (%d workers, every %v for %v): want at most %d; lower Duration or Workers",
			n, s.Workers, width, s.Duration, MaxSeries)
	}
	return nil
}

// Rate is the arrival rate, requests a second.
func (s *Scenario) Rate() float64 {
	return s.Load * float64(s.Workers*s.Slots) * s.Speed / s.Service.Seconds()
}

// stream returns a generator for one purpose: purposes do not disturb each
// other, so a policy that draws more changes nothing but its own choices.
func stream(seed uint64, purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(mix(seed), mix(purpose)))
}

const (
	streamArrivals = 1 << 32 * (iota + 1)
	streamChanges
	streamRing
	streamLoss
	streamReports
	streamPolicy // plus the client
)

// ring places the partitions: each worker takes an equal number of points of a
// ring in random order, and a partition's candidates are the next distinct
// workers clockwise.
func (s *Scenario) ring(seed uint64) [][]int {
	pts := make([]int, s.Partitions)
	for i := range pts {
		pts[i] = i % s.Workers
	}
	r := stream(seed, streamRing)
	r.Shuffle(len(pts), func(i, j int) { pts[i], pts[j] = pts[j], pts[i] })
	out := make([][]int, s.Partitions)
	for p := range out {
		c := make([]int, 0, s.Replicas)
		for i := 0; len(c) < s.Replicas && i < len(pts); i++ {
			c = appendNew(c, pts[(p+i)%len(pts)])
		}
		for w := 0; len(c) < s.Replicas; w++ { // fewer points than workers
			c = appendNew(c, w)
		}
		out[p] = c
	}
	return out
}

func appendNew(c []int, w int) []int {
	for _, v := range c {
		if v == w {
			return c
		}
	}
	return append(c, w)
}

// keys draws the key of a request.
type keys struct {
	hot        float64
	cum        []float64 // of a zipf, cumulative
	tenants    []float64 // likewise
	partitions int
	seed       uint64
}

// zipf is the cumulative distribution of n ranks.
func zipf(n int, exponent float64) []float64 {
	cum := make([]float64, n)
	sum := 0.0
	for i := range cum {
		sum += math.Pow(float64(i+1), -exponent)
		cum[i] = sum
	}
	for i := range cum {
		cum[i] /= sum
	}
	return cum
}

// rank is where u in [0, 1) falls.
func rank(cum []float64, u float64) int {
	return min(sort.SearchFloat64s(cum, u), len(cum)-1)
}

// tenant is the one of a request, by its index: no draw, the same for each
// policy.
func (k *keys) tenant(index uint64) int32 {
	if k.tenants == nil {
		return -1
	}
	return int32(rank(k.tenants, unit(mix(index^mix(k.seed+4)))))
}

func (s *Scenario) keys(seed uint64) keys {
	k := keys{hot: s.HotKey, partitions: s.Partitions, seed: seed}
	if s.Zipf > 0 {
		k.cum = zipf(s.Keys, s.Zipf)
	}
	if s.Tenants > 0 {
		k.tenants = zipf(s.Tenants, s.TenantZipf)
	}
	return k
}

// draw returns the hash of the key and its partition.
func (k *keys) draw(r *rand.Rand) (hash uint64, partition int32) {
	if k.hot > 0 && r.Float64() < k.hot {
		h := mix(k.seed ^ 0x407)
		return h, int32(h % uint64(k.partitions))
	}
	if k.cum != nil {
		h := mix(k.seed ^ uint64(rank(k.cum, r.Float64()))<<20)
		return h, int32(h % uint64(k.partitions))
	}
	p := r.IntN(k.partitions)
	return mix(uint64(p)), int32(p)
}
