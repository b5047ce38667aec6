package peers

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/bitly/go-hostpool"
	"github.com/cloudwego/kitex/pkg/discovery"
	"github.com/cloudwego/kitex/pkg/loadbalance"
	orca "github.com/cncf/xds/go/xds/data/orca/v3"
	"github.com/go-kratos/kratos/v2/registry"
	"github.com/go-kratos/kratos/v2/selector"
	kp2c "github.com/go-kratos/kratos/v2/selector/p2c"
	kwrr "github.com/go-kratos/kratos/v2/selector/wrr"
)

// Pickers are the peers of OurPicker.
var Pickers = append(goZero,
	PickerPeer{Name: "kratos p2c", Module: "github.com/go-kratos/kratos/v2", LoadAware: true, Reads: "latency, in flight, success", Build: kratos(kp2c.NewBuilder())},
	PickerPeer{Name: "kratos wrr", Module: "github.com/go-kratos/kratos/v2", Reads: "fixed weights", Build: kratos(kwrr.NewBuilder())},
	PickerPeer{
		Name: "gRPC round_robin", Module: "google.golang.org/grpc", Reads: "nothing", Build: grpcPicker("round_robin", "{}", nil),
		Max: 1000, Why: "updates its state for each connection: minutes",
	},
	PickerPeer{
		Name: "gRPC weighted_round_robin", Module: "google.golang.org/grpc", Reads: "load reports on each answer; blackout period 0",
		Build: grpcPicker("weighted_round_robin", `{"blackoutPeriod":"0s"}`, orcaLoad()),
		Max:   1000, Why: "updates its state for each connection: minutes",
	},
	PickerPeer{
		Name: "gRPC least_request", Module: "google.golang.org/grpc", LoadAware: true, Reads: "in flight",
		Build: grpcPicker("least_request_experimental", "{}", nil),
		Max:   1000, Why: "updates its state for each connection: minutes",
	},
	PickerPeer{
		Name: "bitly/go-hostpool", Module: "github.com/bitly/go-hostpool", LoadAware: true, Reads: "latency; epsilon greedy, 5 min, linear",
		Build: buildHostpool,
		Max:   1000, Why: "each pick walks 120 buckets of each worker",
	},
	PickerPeer{Name: "kitex weighted round robin", Module: "github.com/cloudwego/kitex", Reads: "fixed weights", Build: buildKitex},
)

// RingHash is gRPC's, whose key comes in a header of the request's context,
// the public form (A76); the other is for xDS alone.
var RingHash = RingPeer{
	Name: "gRPC ring_hash", Module: "google.golang.org/grpc", Default: "ring of 1024 to 4096; key by requestHashHeader, context made by each call",
	Max: 1000, Why: "updates its state for each connection: minutes",
	Build: func(f Fleet, _ int) (*Ring, error) {
		if f.Weights != nil {
			return nil, errNoWeights // there are, by an attribute that only xDS can set
		}
		return ringHash(f)
	},
}

func kratos(b selector.Builder) func(f Fleet) (*Picker, error) {
	return func(f Fleet) (*Picker, error) {
		s := b.Build()
		nodes := make([]selector.Node, len(f.IDs))
		for i, id := range f.IDs {
			nodes[i] = selector.NewNode("grpc", id, &registry.ServiceInstance{
				ID: id, Name: "kv", Metadata: map[string]string{"weight": strconv.Itoa(100 * f.Weight(i))},
			})
		}
		s.Apply(nodes)
		ctx := context.Background()
		pick := func(string) (selector.DoneFunc, string) {
			n, done, err := s.Select(ctx)
			if err != nil {
				return func(context.Context, selector.DoneInfo) {}, ""
			}
			return done, n.Address()
		}
		done := func(d selector.DoneFunc) { d(ctx, selector.DoneInfo{}) }
		return &Picker{
			Once: func(string) (string, error) {
				n, d, err := s.Select(ctx)
				if err != nil {
					return "", err
				}
				d(ctx, selector.DoneInfo{})
				return n.Address(), nil
			},
			Loop: window(pick, done),
		}, nil
	}
}

// buildHostpool warms each host with one answer of 2 ms: answers under 1 ms
// count as 0, and a pool that has seen nothing else is a plain round robin.
func buildHostpool(f Fleet) (*Picker, error) {
	p := hostpool.NewEpsilonGreedy(f.IDs, 0, &hostpool.LinearEpsilonValueCalculator{})
	warm := make([]hostpool.HostPoolResponse, len(f.IDs))
	for i := range warm {
		warm[i] = p.Get()
	}
	time.Sleep(2 * time.Millisecond)
	for _, r := range warm {
		r.Mark(nil)
	}
	pick := func(string) (hostpool.HostPoolResponse, string) {
		r := p.Get()
		return r, r.Host()
	}
	done := func(r hostpool.HostPoolResponse) { r.Mark(nil) }
	return &Picker{
		Once: func(string) (string, error) {
			r := p.Get()
			r.Mark(nil)
			return r.Host(), nil
		},
		Loop: window(pick, done), Close: p.Close,
	}, nil
}

func buildKitex(f Fleet) (*Picker, error) {
	instances := make([]discovery.Instance, len(f.IDs))
	for i, id := range f.IDs {
		instances[i] = discovery.NewInstance("tcp", id, 10*f.Weight(i), nil)
	}
	p := loadbalance.NewWeightedRoundRobinBalancer().GetPicker(discovery.Result{Instances: instances})
	ctx := context.Background()
	pick := func(string) (discovery.Instance, string) {
		i := p.Next(ctx, nil)
		return i, i.Address().String()
	}
	return &Picker{
		Once: func(string) (string, error) {
			i := p.Next(ctx, nil)
			if i == nil {
				return "", errors.New("no instance")
			}
			return i.Address().String(), nil
		},
		Loop: window(pick, func(discovery.Instance) {}),
	}, nil
}

// orcaLoad is a report for each worker, made beforehand.
func orcaLoad() func(id string) any {
	var reports [16]*orca.OrcaLoadReport
	for i := range reports {
		reports[i] = &orca.OrcaLoadReport{CpuUtilization: 0.3 + 0.02*float64(i), RpsFractional: 1000}
	}
	return func(id string) any { return reports[id[len(id)-6]%16] }
}

const hashHeader = "bench-key"

func ringHash(f Fleet) (*Ring, error) {
	c, b, update, err := grpcStart("ring_hash_experimental", `{"requestHashHeader":"`+hashHeader+`"}`)
	if err != nil {
		return nil, err
	}
	if err := update(f); err != nil {
		b.Close()
		return nil, err
	}
	// Its subchannels connect when they are first picked.
	for i := range 200 * len(f.IDs) {
		if _, err := c.pick(pickInfo(strconv.Itoa(i))); err != nil {
			b.Close()
			return nil, err
		}
	}
	c.settle()
	picker := c.current()
	return &Ring{
		One: func(key string) string {
			r, err := picker.Pick(pickInfo(key))
			if err != nil {
				return ""
			}
			return r.SubConn.(*subchannel).id
		},
		Close: b.Close,
	}, nil
}
