// Package torture holds hostile inputs, what each library makes of them, and
// the harness that runs one of them in a process of its own.
package torture

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/bitly/go-hostpool"
	buraksezer "github.com/buraksezer/consistent"
	"github.com/cloudwego/kitex/pkg/discovery"
	"github.com/cloudwego/kitex/pkg/loadbalance"
	orca "github.com/cncf/xds/go/xds/data/orca/v3"
	"github.com/dgryski/go-jump"
	"github.com/dgryski/go-rendezvous"
	kerrors "github.com/go-kratos/kratos/v2/errors"
	"github.com/go-kratos/kratos/v2/registry"
	"github.com/go-kratos/kratos/v2/selector"
	kp2c "github.com/go-kratos/kratos/v2/selector/p2c"
	kwrr "github.com/go-kratos/kratos/v2/selector/wrr"
	"github.com/golang/groupcache/consistenthash"
	"github.com/kkdai/maglev"
	lafikl "github.com/lafikl/consistent"
	"github.com/redis/go-redis/v9"
	"github.com/serialx/hashring"
	"github.com/zeebo/xxh3"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	stathat "stathat.com/c/consistent"

	"github.com/ringwise/ringwise"
	"github.com/ringwise/ringwise/bench/peers"
)

// setup is what a library is built of.
type setup struct {
	ids     []string
	weights []float64 // nil: all equal, not given
	points  int       // 0: the default; noPoints: 0 itself
	load    float64   // of bounded loads; 0: the default
	panics  bool      // the user's plug panics
}

const noPoints = math.MinInt

// system is a library that was built. What it has not is nil.
type system struct {
	one    func(key string) (string, error)
	many   func(key string, n int) []string
	add    func(id string)
	remove func(id string)
	pick   func(key string) (id string, done func(err error), err error)
	// report tells the load that a worker says it has.
	report func(id string, load float64) error
	// rtt closes a pick with a given round-trip time.
	rtt   func(key string, d func(id string) time.Duration) (string, error)
	close func()
	// pace is how long a request lasts at least, so that what the library
	// measures is no noise.
	pace time.Duration
	// clock moves an injected clock.
	clock func(d time.Duration)
}

// library is one of those under test.
type library struct {
	name   string
	build  func(s setup) (*system, error)
	floats bool // weights may be any number
	ints   bool // weights are whole numbers
	points bool
	// unsigned tells that the number of points cannot be negative by its type.
	unsigned bool
	loads    bool
	plugs    bool
	shared   bool // may be used and changed by many goroutines, by its own word
	live     bool // it goes by latency or what is in flight
	coarse   bool // it counts answers in whole milliseconds
	order    bool // the order of the workers must not matter
}

var errUnavailable = status.Error(codes.Unavailable, "unavailable")

var libraries = []library{
	{name: "ringwise", build: ours, floats: true, points: true, plugs: true, shared: true, live: true, order: true},
	{name: "buraksezer/consistent", points: true, loads: true, plugs: true, shared: true, order: true, build: func(s setup) (*system, error) {
		cfg := buraksezer.Config{Hasher: peers.Hasher{}, ReplicationFactor: points(s), Load: s.load}
		if s.panics {
			cfg.Hasher = panicking{armed: new(bool)}
		}
		ms := make([]buraksezer.Member, len(s.ids))
		for i, id := range s.ids {
			ms[i] = peers.Member(id)
		}
		c := buraksezer.New(ms, cfg)
		if p, ok := cfg.Hasher.(panicking); ok {
			*p.armed = true
		}
		return &system{
			one: func(key string) (string, error) {
				m := c.LocateKey([]byte(key))
				if m == nil {
					return "", errors.New("nobody")
				}
				return m.String(), nil
			},
			many: func(key string, n int) (out []string) {
				ms, _ := c.GetClosestN([]byte(key), n)
				for _, m := range ms {
					out = append(out, m.String())
				}
				return out
			},
			add: func(id string) { c.Add(peers.Member(id)) }, remove: c.Remove,
		}, nil
	}},
	{name: "serialx/hashring", ints: true, order: true, build: func(s setup) (*system, error) {
		h := hashring.New(slices.Clone(s.ids))
		if s.weights != nil {
			weights := map[string]int{}
			for i, id := range s.ids {
				weights[id] = int(s.weights[i])
			}
			h = hashring.NewWithWeights(weights)
		}
		return &system{
			one: func(key string) (string, error) {
				id, ok := h.GetNode(key)
				if !ok {
					return "", errors.New("nobody")
				}
				return id, nil
			},
			many: func(key string, n int) []string { ids, _ := h.GetNodes(key, n); return ids },
			add:  func(id string) { h = h.AddNode(id) }, remove: func(id string) { h = h.RemoveNode(id) },
		}, nil
	}},
	{name: "stathat/consistent", points: true, shared: true, order: true, build: func(s setup) (*system, error) {
		c := stathat.New()
		if n := points(s); n != 0 || s.points == noPoints {
			c.NumberOfReplicas = n
		}
		for _, id := range s.ids {
			c.Add(id)
		}
		return &system{
			one: c.Get, many: func(key string, n int) []string { ids, _ := c.GetN(key, n); return ids },
			add: c.Add, remove: c.Remove,
		}, nil
	}},
	{name: "lafikl/consistent", shared: true, order: true, build: func(s setup) (*system, error) {
		c := lafikl.New()
		for _, id := range s.ids {
			c.Add(id)
		}
		return &system{
			one: c.Get, add: c.Add, remove: func(id string) { c.Remove(id) },
			pick: func(key string) (string, func(error), error) {
				id, err := c.GetLeast(key)
				if err != nil {
					return "", nil, err
				}
				c.Inc(id)
				return id, func(error) { c.Done(id) }, nil
			},
			report: func(id string, load float64) error {
				if math.IsNaN(load) || math.IsInf(load, 0) {
					return errNotTaken
				}
				c.UpdateLoad(id, int64(load))
				c.MaxLoad()
				return nil
			},
		}, nil
	}},
	{name: "groupcache/consistenthash", points: true, order: true, build: func(s setup) (*system, error) {
		n := points(s)
		if n == 0 && s.points != noPoints {
			n = 50
		}
		m := consistenthash.New(n, nil)
		m.Add(s.ids...)
		return &system{one: func(key string) (string, error) { return named(m.Get(key)) }, add: func(id string) { m.Add(id) }}, nil
	}},
	{name: "go-redis Ring", shared: true, order: true, plugs: true, build: func(s setup) (*system, error) {
		addrs := map[string]string{}
		for _, id := range s.ids {
			addrs[id] = id
		}
		o := &redis.RingOptions{Addrs: addrs, HeartbeatFn: func(context.Context, *redis.Client) bool { return true }}
		if s.panics {
			o.NewConsistentHash = func([]string) redis.ConsistentHash { return panickingRing{} }
		}
		r := redis.NewRing(o)
		set := func() {
			now := map[string]string{}
			for id := range addrs {
				now[id] = id
			}
			r.SetAddrs(now)
		}
		return &system{
			one: func(key string) (string, error) {
				c, err := r.GetShardClientForKey(key)
				if err != nil {
					return "", err
				}
				return c.Options().Addr, nil
			},
			add: func(id string) { addrs[id] = id; set() }, remove: func(id string) { delete(addrs, id); set() },
			close: func() { _ = r.Close() },
		}, nil
	}},
	{name: "dgryski/go-rendezvous", order: true, build: func(s setup) (*system, error) {
		r := rendezvous.New(s.ids, xxh3.HashString)
		return &system{one: func(key string) (string, error) { return named(r.Lookup(key)) }, add: r.Add, remove: r.Remove}, nil
	}},
	{name: "dgryski/go-jump", build: func(s setup) (*system, error) {
		return &system{one: func(key string) (string, error) {
			i := jump.Hash(xxh3.HashString(key), len(s.ids))
			if i < 0 {
				return "", errors.New("nobody")
			}
			return s.ids[i], nil
		}}, nil
	}},
	{name: "kkdai/maglev", points: true, unsigned: true, shared: true, order: true, build: func(s setup) (*system, error) {
		size := uint64(65_537)
		if n := points(s); n != 0 || s.points == noPoints {
			size = uint64(n)
		}
		m, err := maglev.NewMaglev(s.ids, size)
		if err != nil {
			return nil, err
		}
		return &system{one: m.Get, add: func(id string) { _ = m.Add(id) }, remove: func(id string) { _ = m.Remove(id) }}, nil
	}},
	{name: "kitex consist", ints: true, points: true, unsigned: true, order: true, plugs: true, build: func(s setup) (*system, error) {
		o := loadbalance.NewConsistentHashOption(func(_ context.Context, request any) string {
			if s.panics {
				panic("the user's")
			}
			return request.(string)
		})
		if n := points(s); n != 0 || s.points == noPoints {
			o.VirtualFactor = uint32(n)
		}
		b := loadbalance.NewConsistBalancer(o)
		p := b.GetPicker(discovery.Result{Instances: instances(s)})
		return &system{one: func(key string) (string, error) { return instance(p.Next(context.Background(), key)) }}, nil
	}},
	{name: "kitex wrr", ints: true, build: func(s setup) (*system, error) {
		p := loadbalance.NewWeightedRoundRobinBalancer().GetPicker(discovery.Result{Instances: instances(s)})
		return &system{pick: func(string) (string, func(error), error) {
			id, err := instance(p.Next(context.Background(), nil))
			return id, func(error) {}, err
		}}, nil
	}},
	{name: "go-zero p2c", live: true, build: grpcLibrary("p2c_ewma", "", false)},
	{name: "kratos p2c", live: true, build: kratosLibrary(kp2c.NewBuilder())},
	{name: "kratos wrr", ints: true, build: kratosLibrary(kwrr.NewBuilder())},
	{name: "gRPC round_robin", build: grpcLibrary("round_robin", "{}", false)},
	{name: "gRPC wrr", build: grpcLibrary("weighted_round_robin", `{"blackoutPeriod":"0s","weightUpdatePeriod":"0.1s"}`, true)},
	{name: "gRPC least_request", live: true, build: grpcLibrary("least_request_experimental", "{}", false)},
	{name: "gRPC ring_hash", build: func(s setup) (*system, error) {
		sys, err := grpcLibrary("ring_hash_experimental", `{"requestHashHeader":"bench-key"}`, false)(s)
		if err != nil {
			return nil, err
		}
		sys.one = func(key string) (string, error) {
			id, done, err := sys.pick(key)
			if err == nil {
				done(nil)
			}
			return id, err
		}
		return sys, nil
	}},
	{name: "bitly/go-hostpool", live: true, coarse: true, build: func(s setup) (*system, error) {
		p := hostpool.NewEpsilonGreedy(s.ids, 0, &hostpool.LinearEpsilonValueCalculator{})
		return &system{
			pick: func(string) (string, func(error), error) {
				r := p.Get()
				return r.Host(), r.Mark, nil
			},
			close: p.Close,
		}, nil
	}},
}

var errNotTaken = errors.New("it takes no such value")

func points(s setup) int {
	if s.points == noPoints {
		return 0
	}
	return s.points
}

func named(id string) (string, error) {
	if id == "" {
		return "", errors.New("nobody")
	}
	return id, nil
}

type panicking struct{ armed *bool }

func (p panicking) Sum64(b []byte) uint64 {
	if *p.armed {
		panic("the user's")
	}
	return xxh3.Hash(b)
}

type panickingRing struct{}

func (panickingRing) Get(string) string { panic("the user's") }

func instances(s setup) []discovery.Instance {
	out := make([]discovery.Instance, len(s.ids))
	for i, id := range s.ids {
		w := 10
		if s.weights != nil {
			w = int(s.weights[i])
		}
		out[i] = discovery.NewInstance("tcp", id, w, nil)
	}
	return out
}

func instance(i discovery.Instance) (string, error) {
	if i == nil {
		return "", errors.New("nobody")
	}
	return i.Address().String(), nil
}

func grpcLibrary(name, config string, reports bool) func(s setup) (*system, error) {
	return func(s setup) (*system, error) {
		pick, stop, err := peers.StartGRPC(name, config, s.ids)
		if err != nil {
			return nil, err
		}
		loads := map[string]float64{}
		sys := &system{close: stop}
		sys.pick = func(key string) (string, func(error), error) {
			id, done, err := pick(key)
			if err != nil {
				return "", nil, err
			}
			return id, func(err error) {
				i := balancer.DoneInfo{Err: err}
				if err != nil {
					i.Err = errUnavailable
				}
				if reports {
					load, ok := loads[id]
					if !ok {
						load = 0.5
					}
					i.ServerLoad = &orca.OrcaLoadReport{CpuUtilization: load, RpsFractional: 100}
				}
				done(i)
			}, nil
		}
		if reports {
			sys.report = func(id string, load float64) error {
				loads[id] = load
				return nil
			}
		}
		return sys, nil
	}
}

func kratosLibrary(b selector.Builder) func(s setup) (*system, error) {
	return func(s setup) (*system, error) {
		sel := b.Build()
		var nodes []selector.Node
		for i, id := range s.ids {
			md := map[string]string{}
			if s.weights != nil {
				md["weight"] = strconv.FormatInt(int64(s.weights[i]), 10)
			}
			nodes = append(nodes, selector.NewNode("grpc", id, &registry.ServiceInstance{ID: id, Metadata: md}))
		}
		sel.Apply(nodes)
		ctx := context.Background()
		return &system{pick: func(string) (string, func(error), error) {
			n, done, err := sel.Select(ctx)
			if err != nil {
				return "", nil, err
			}
			return n.Address(), func(err error) {
				if err != nil {
					err = kerrors.ServiceUnavailable("unavailable", "")
				}
				done(ctx, selector.DoneInfo{Err: err})
			}, nil
		}}, nil
	}
}

type panickingScorer struct{}

func (panickingScorer) Name() string                        { return "panicking" }
func (panickingScorer) Score(*ringwise.View, []float64)     { panic("the user's") }
func (panickingScorer) Keep(*ringwise.View, *ringwise.Mask) { panic("the user's") }
func ourWorkers(ids []string, weights []float64) []ringwise.Worker {
	ws := make([]ringwise.Worker, len(ids))
	for i, id := range ids {
		ws[i] = ringwise.Worker{ID: id, Addr: id}
		if weights != nil {
			ws[i].Weight = weights[i]
		}
	}
	return ws
}

// ours is ringwise: its ring and its Router over the same workers.
func ours(s setup) (*system, error) {
	ids := slices.Clone(s.ids)
	o := ringwise.RingOptions{Points: s.points, Replicas: min(max(len(ids), 1), ringwise.MaxCandidates)}
	now := time.Unix(1_000_000, 0)
	opts := []ringwise.Option{ringwise.WithClock(func() time.Time { return now }), ringwise.WithReplicas(o.Replicas)}
	if s.points == noPoints {
		return nil, errors.New("0 is the default by its documentation") // WithPoints refuses 0
	}
	if s.points != 0 {
		opts = append(opts, ringwise.WithPoints(s.points))
	}
	if s.panics {
		opts = append(opts, ringwise.WithScorer(panickingScorer{}, 1), ringwise.WithFilter(panickingScorer{}))
	}
	first, err := ringwise.NewRing(ourWorkers(ids, s.weights), o)
	if err != nil {
		return nil, err
	}
	var ring atomic.Pointer[ringwise.Ring]
	ring.Store(first)
	r, err := ringwise.New(ourWorkers(ids, s.weights), opts...)
	if err != nil {
		return nil, err
	}
	set := func() {
		if s.weights != nil {
			panic("not with weights")
		}
		if next, err := ringwise.NewRing(ourWorkers(ids, nil), o); err == nil {
			ring.Store(next)
		}
		_ = r.SetTopology(ringwise.Topology{Workers: ourWorkers(ids, nil)})
	}
	step := func() { now = now.Add(time.Millisecond) }
	return &system{
		one: func(key string) (string, error) {
			if got := ring.Load().Owners(ringwise.HashOf(key), nil); len(got) > 0 {
				return got[0], nil
			}
			return "", ringwise.ErrNoWorker
		},
		many: func(key string, n int) []string {
			got := ring.Load().Owners(ringwise.HashOf(key), nil)
			return got[:min(max(n, 0), len(got))]
		},
		add: func(id string) { ids = append(ids, id); set() },
		remove: func(id string) {
			ids = slices.DeleteFunc(slices.Clone(ids), func(s string) bool { return s == id })
			set()
		},
		pick: func(key string) (string, func(error), error) {
			step()
			c, err := r.Pick(key)
			if err != nil {
				return "", nil, err
			}
			return c.ID(), func(err error) {
				if err != nil {
					err = context.DeadlineExceeded
					c.DoneWith(ringwise.Outcome{Err: err, Verdict: ringwise.Fault})
					return
				}
				step()
				c.Done(nil)
			}, nil
		},
		report: func(id string, load float64) error {
			return r.Report(ringwise.Report{Worker: id, Time: now, CPU: ringwise.Some(load)})
		},
		rtt: func(key string, d func(id string) time.Duration) (string, error) {
			step()
			c, err := r.Pick(key)
			if err == nil {
				r.Observe(c, d(c.ID()), nil)
			}
			return c.ID(), err
		},
		clock: func(d time.Duration) {
			now = now.Add(d)
			r.Maintain(now)
		},
		close: func() { _ = r.Close() },
	}, nil
}
