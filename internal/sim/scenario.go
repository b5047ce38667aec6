package sim

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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
	if err := s.ServiceDist.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
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
	partitions int
	seed       uint64
}

func (s *Scenario) keys(seed uint64) keys {
	k := keys{hot: s.HotKey, partitions: s.Partitions, seed: seed}
	if s.Zipf > 0 {
		k.cum = make([]float64, s.Keys)
		sum := 0.0
		for i := range k.cum {
			sum += math.Pow(float64(i+1), -s.Zipf)
			k.cum[i] = sum
		}
		for i := range k.cum {
			k.cum[i] /= sum
		}
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
		u := r.Float64()
		lo, hi := 0, len(k.cum)-1
		for lo < hi {
			m := (lo + hi) / 2
			if k.cum[m] < u {
				lo = m + 1
			} else {
				hi = m
			}
		}
		h := mix(k.seed ^ uint64(lo)<<20)
		return h, int32(h % uint64(k.partitions))
	}
	p := r.IntN(k.partitions)
	return mix(uint64(p)), int32(p)
}
