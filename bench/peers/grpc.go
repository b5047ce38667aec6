package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	_ "google.golang.org/grpc/balancer/leastrequest" // registers itself
	_ "google.golang.org/grpc/balancer/ringhash"
	_ "google.golang.org/grpc/balancer/roundrobin"
	_ "google.golang.org/grpc/balancer/weightedroundrobin"
	"google.golang.org/grpc/connectivity"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// channel stands for a gRPC channel: it gives a balancer subchannels that
// connect at once, without a network, and keeps the picker it makes. This is
// the balancer API, as gRPC itself calls it.
type channel struct {
	balancer.ClientConn // nil; the API wants it embedded

	mu     sync.Mutex // ring_hash connects in goroutines
	picker balancer.Picker
	todo   []func() // state changes, which must not come from within a call
}

type noMetrics struct {
	estats.UnimplementedMetricsRecorder
}

// subchannel is one worker's connection.
type subchannel struct {
	balancer.SubConn // nil
	c                *channel
	id               string
	listen           func(balancer.SubConnState)
	gone             atomic.Bool
}

func (c *channel) NewSubConn(addrs []resolver.Address, o balancer.NewSubConnOptions) (balancer.SubConn, error) {
	return &subchannel{c: c, id: addrs[0].Addr, listen: o.StateListener}, nil
}

func (c *channel) UpdateState(s balancer.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.picker = s.Picker
}

func (c *channel) current() balancer.Picker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.picker
}

func (c *channel) later(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.todo = append(c.todo, f)
}
func (c *channel) ResolveNow(resolver.ResolveNowOptions)   {}
func (c *channel) Target() string                          { return "bench" }
func (c *channel) MetricsRecorder() estats.MetricsRecorder { return noMetrics{} }
func (c *channel) RemoveSubConn(s balancer.SubConn)        { s.Shutdown() }

func (s *subchannel) Connect() {
	for _, state := range []connectivity.State{connectivity.Connecting, connectivity.Ready} {
		s.c.later(func() {
			if !s.gone.Load() {
				s.listen(balancer.SubConnState{ConnectivityState: state})
			}
		})
	}
}

func (s *subchannel) RegisterHealthListener(f func(balancer.SubConnState)) {
	if f != nil {
		s.c.later(func() { f(balancer.SubConnState{ConnectivityState: connectivity.Ready}) })
	}
}
func (s *subchannel) UpdateAddresses([]resolver.Address) {}
func (s *subchannel) Shutdown()                          { s.gone.Store(true) }
func (s *subchannel) GetOrBuildProducer(balancer.ProducerBuilder) (balancer.Producer, func()) {
	return nil, func() {}
}

// settle lets the subchannels change their states, and tells whether any did.
func (c *channel) settle() bool {
	for any := false; ; any = true {
		c.mu.Lock()
		if len(c.todo) == 0 {
			c.mu.Unlock()
			return any
		}
		f := c.todo[0]
		c.todo = c.todo[1:]
		c.mu.Unlock()
		f()
	}
}

// pick asks the picker of the moment, and again while it has no connection
// yet, as gRPC does: ring_hash connects, in a goroutine, when it picks.
func (c *channel) pick(info balancer.PickInfo) (balancer.PickResult, error) {
	for tries := 0; ; tries++ {
		r, err := c.current().Pick(info)
		if !errors.Is(err, balancer.ErrNoSubConnAvailable) || tries == 2000 {
			return r, err
		}
		if !c.settle() {
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// grpcBalancer builds the named policy over the fleet and waits until all are connected.
func grpcBalancer(name, config string, f Fleet) (*channel, balancer.Balancer, error) {
	c, b, update, err := grpcStart(name, config)
	if err != nil {
		return nil, nil, err
	}
	if err := update(f); err != nil {
		b.Close()
		return nil, nil, err
	}
	return c, b, nil
}

// grpcStart is a balancer without workers, and what gives it some.
func grpcStart(name, config string) (*channel, balancer.Balancer, func(Fleet) error, error) {
	builder := balancer.Get(name)
	if builder == nil {
		return nil, nil, nil, fmt.Errorf("no policy %s", name)
	}
	var parsed serviceconfig.LoadBalancingConfig
	if p, ok := builder.(balancer.ConfigParser); ok {
		var err error
		if parsed, err = p.ParseConfig(json.RawMessage(config)); err != nil {
			return nil, nil, nil, err
		}
	}
	c := &channel{}
	b := builder.Build(c, balancer.BuildOptions{})
	update := func(f Fleet) error {
		var s resolver.State
		for _, id := range f.IDs {
			s.Addresses = append(s.Addresses, resolver.Address{Addr: id})
			s.Endpoints = append(s.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: id}}})
		}
		if err := b.UpdateClientConnState(balancer.ClientConnState{ResolverState: s, BalancerConfig: parsed}); err != nil {
			return err
		}
		c.settle()
		if c.current() == nil {
			return errors.New("the balancer made no picker")
		}
		return nil
	}
	return c, b, update, nil
}

// grpcPick is an open request.
type grpcPick struct {
	s    *subchannel
	done func(balancer.DoneInfo)
}

// grpcPicker drives a policy of gRPC's, or one for gRPC. load, if not nil, is
// what the server says of itself on each answer.
func grpcPicker(name, config string, load func(id string) any) func(f Fleet) (*Picker, error) {
	return func(f Fleet) (*Picker, error) {
		c, b, err := grpcBalancer(name, config, f)
		if err != nil {
			return nil, err
		}
		picker := c.current()
		info := balancer.PickInfo{FullMethodName: "/kv/Get", Ctx: context.Background()}
		pick := func(string) (grpcPick, string) {
			r, err := picker.Pick(info)
			if err != nil {
				return grpcPick{}, ""
			}
			s := r.SubConn.(*subchannel)
			return grpcPick{s, r.Done}, s.id
		}
		done := func(p grpcPick) {
			if p.done == nil {
				return
			}
			var i balancer.DoneInfo
			if load != nil {
				i.ServerLoad = load(p.s.id)
			}
			p.done(i)
		}
		return &Picker{
			Once: func(key string) (string, error) {
				p, id := pick(key)
				if p.s == nil {
					return "", errors.New("no subchannel")
				}
				done(p)
				return id, nil
			},
			Loop: window(pick, done), Close: b.Close,
		}, nil
	}
}

// pickInfo is a request whose key is in a header.
func pickInfo(key string) balancer.PickInfo {
	ctx := metadata.NewOutgoingContext(context.Background(), metadata.MD{hashHeader: []string{key}})
	return balancer.PickInfo{FullMethodName: "/kv/Get", Ctx: ctx}
}

// StartGRPC builds one of gRPC's policies, or one for gRPC, over some workers,
// for callers who open and close requests themselves.
func StartGRPC(name, config string, ids []string) (pick func(key string) (id string, done func(balancer.DoneInfo), err error), stop func(), err error) {
	c, b, err := grpcBalancer(name, config, Fleet{IDs: ids})
	if err != nil {
		return nil, nil, err
	}
	return func(key string) (string, func(balancer.DoneInfo), error) {
		r, err := c.pick(pickInfo(key))
		if err != nil {
			return "", nil, err
		}
		if r.Done == nil {
			r.Done = func(balancer.DoneInfo) {}
		}
		return r.SubConn.(*subchannel).id, r.Done, nil
	}, b.Close, nil
}
