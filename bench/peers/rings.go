package peers

import (
	"context"
	"errors"
	"slices"

	buraksezer "github.com/buraksezer/consistent"
	"github.com/cloudwego/kitex/pkg/discovery"
	"github.com/cloudwego/kitex/pkg/loadbalance"
	"github.com/dgryski/go-jump"
	"github.com/dgryski/go-rendezvous"
	"github.com/golang/groupcache/consistenthash"
	"github.com/kkdai/maglev"
	lafikl "github.com/lafikl/consistent"
	"github.com/redis/go-redis/v9"
	"github.com/serialx/hashring"
	"github.com/zeebo/xxh3"
	stathat "stathat.com/c/consistent"
)

// errNoWeights is for peers that know none.
var errNoWeights = errors.New("it has no weights")

// Member is a worker as buraksezer/consistent takes it.
type Member string

func (m Member) String() string { return string(m) }

// Hasher is the hash that buraksezer/consistent asks its user for.
type Hasher struct{}

// Sum64 is XXH3, the fastest there is, and ringwise's.
func (Hasher) Sum64(b []byte) uint64 { return xxh3.Hash(b) }

// Rings are the peers of Ours.
var Rings = []RingPeer{
	{
		Name: "buraksezer/consistent", Module: "github.com/buraksezer/consistent", Points: true,
		Default: "271 partitions, 20 points, load 1.25; above 100 workers it panics with these, so 20 partitions a worker there",
		Max:     1000, Why: "New sorts all points again for each member: minutes",
		Build: func(f Fleet, points int) (*Ring, error) {
			if f.Weights != nil {
				return nil, errNoWeights
			}
			cfg := buraksezer.Config{Hasher: Hasher{}, ReplicationFactor: points}
			if points > 0 || len(f.IDs) > 100 {
				cfg.PartitionCount = max(271, 20*len(f.IDs)|1)
			}
			members := make([]buraksezer.Member, len(f.IDs))
			for i, id := range f.IDs {
				members[i] = Member(id)
			}
			c := buraksezer.New(members, cfg)
			return &Ring{
				Shared: true,
				One:    func(key string) string { return c.LocateKey([]byte(key)).String() },
				Three: func(key string, dst []string) []string {
					ms, err := c.GetClosestN([]byte(key), 3)
					if err != nil {
						return nil
					}
					dst = dst[:0]
					for _, m := range ms {
						dst = append(dst, m.String())
					}
					return dst
				},
				Add:    func(id string) { c.Add(Member(id)) },
				Remove: func(id string) { c.Remove(id) },
			}, nil
		},
	},
	{
		Name: "serialx/hashring", Module: "github.com/serialx/hashring", Points: true, Weights: true,
		Default: "one point for each unit of weight",
		Build: func(f Fleet, points int) (*Ring, error) {
			weights := make(map[string]int, len(f.IDs))
			for i, id := range f.IDs {
				weights[id] = f.Weight(i) * max(points, 1)
			}
			h := hashring.NewWithWeights(weights)
			return &Ring{
				One: func(key string) string { id, _ := h.GetNode(key); return id },
				Three: func(key string, _ []string) []string {
					ids, _ := h.GetNodes(key, 3)
					return ids
				},
				Add:    func(id string) { h = h.AddWeightedNode(id, max(points, 1)) },
				Remove: func(id string) { h = h.RemoveNode(id) },
			}, nil
		},
	},
	{
		Name: "stathat/consistent", Module: "stathat.com/c/consistent", Points: true, Default: "20 points",
		Max: 1000, Why: "each Add sorts all points again: minutes",
		Build: func(f Fleet, points int) (*Ring, error) {
			if f.Weights != nil {
				return nil, errNoWeights
			}
			c := stathat.New()
			if points > 0 {
				c.NumberOfReplicas = points
			}
			for _, id := range f.IDs {
				c.Add(id)
			}
			return &Ring{
				Shared: true,
				One:    func(key string) string { id, _ := c.Get(key); return id },
				Three:  func(key string, _ []string) []string { ids, _ := c.GetN(key, 3); return ids },
				Add:    c.Add, Remove: c.Remove,
			}, nil
		},
	},
	{
		Name: "lafikl/consistent", Module: "github.com/lafikl/consistent", Default: "10 points, which cannot be changed",
		Max: 1000, Why: "each Add sorts all points again: minutes",
		Build: func(f Fleet, points int) (*Ring, error) {
			if f.Weights != nil {
				return nil, errNoWeights
			}
			c := lafikl.New()
			for _, id := range f.IDs {
				c.Add(id)
			}
			return &Ring{
				Shared: true,
				One:    func(key string) string { id, _ := c.Get(key); return id },
				Add:    c.Add, Remove: func(id string) { c.Remove(id) },
			}, nil
		},
	},
	{
		Name: "groupcache/consistenthash", Module: "github.com/golang/groupcache", Points: true, Default: "50 points, as its HTTP pool has",
		Build: func(f Fleet, points int) (*Ring, error) {
			if f.Weights != nil {
				return nil, errNoWeights
			}
			if points == 0 {
				points = 50
			}
			ids := slices.Clone(f.IDs)
			build := func() *consistenthash.Map {
				m := consistenthash.New(points, nil)
				m.Add(ids...)
				return m
			}
			m := build()
			return &Ring{
				One:    func(key string) string { return m.Get(key) },
				Add:    func(id string) { ids = append(ids, id); m.Add(id) },
				Remove: func(id string) { ids = slices.DeleteFunc(ids, func(s string) bool { return s == id }); m = build() },
			}, nil
		},
	},
	{
		Name: "go-redis Ring", Module: "github.com/redis/go-redis/v9", Default: "rendezvous over the shards (GetShardClientForKey)",
		Max: 1000, Why: "makes a client with a pool for each shard",
		Build: func(f Fleet, _ int) (*Ring, error) {
			if f.Weights != nil {
				return nil, errNoWeights
			}
			addrs := make(map[string]string, len(f.IDs))
			for _, id := range f.IDs {
				addrs[id] = id
			}
			r := redis.NewRing(&redis.RingOptions{
				Addrs:       addrs,
				HeartbeatFn: func(context.Context, *redis.Client) bool { return true }, // no server, no ping
			})
			return &Ring{
				Shared: true,
				One: func(key string) string {
					c, err := r.GetShardClientForKey(key)
					if err != nil {
						return ""
					}
					return c.Options().Addr
				},
				Add:    func(id string) { addrs[id] = id; r.SetAddrs(addrs) },
				Remove: func(id string) { delete(addrs, id); r.SetAddrs(addrs) },
				Close:  func() { _ = r.Close() },
			}, nil
		},
	},
	{
		Name: "dgryski/go-rendezvous", Module: "github.com/dgryski/go-rendezvous", Default: "none; hashed with XXH3",
		Build: func(f Fleet, _ int) (*Ring, error) {
			if f.Weights != nil {
				return nil, errNoWeights
			}
			r := rendezvous.New(f.IDs, xxh3.HashString)
			return &Ring{One: func(key string) string { return r.Lookup(key) }, Add: r.Add}, nil // Remove panics, see TORTURE.md
		},
	},
	{
		Name: "dgryski/go-jump", Module: "github.com/dgryski/go-jump", Default: "none; hashed with XXH3",
		Build: func(f Fleet, _ int) (*Ring, error) {
			if f.Weights != nil {
				return nil, errNoWeights
			}
			ids := slices.Clone(f.IDs)
			return &Ring{
				One: func(key string) string { return ids[jump.Hash(xxh3.HashString(key), len(ids))] },
				Add: func(id string) { ids = append(ids, id) },
				// It numbers buckets: one in the middle leaves by taking the last one's number.
				Remove: func(id string) {
					if i := slices.Index(ids, id); i >= 0 {
						ids[i] = ids[len(ids)-1]
						ids = ids[:len(ids)-1]
					}
				},
			}, nil
		},
	},
	{
		Name: "kkdai/maglev", Module: "github.com/kkdai/maglev", Default: "a table of 65,537 as in its README and the paper",
		Max: 1000, Why: "holds a permutation of the table for each worker: 5 GB",
		Build: func(f Fleet, _ int) (*Ring, error) {
			if f.Weights != nil {
				return nil, errNoWeights
			}
			m, err := maglev.NewMaglev(f.IDs, 65_537)
			if err != nil {
				return nil, err
			}
			return &Ring{
				Shared: true,
				One:    func(key string) string { id, _ := m.Get(key); return id },
				Add:    func(id string) { _ = m.Add(id) }, Remove: func(id string) { _ = m.Remove(id) },
			}, nil
		},
	},
	{
		Name: "kitex consist", Module: "github.com/cloudwego/kitex", Points: true, Weights: true, Default: "100 points, weighted; picker taken once",
		Build: func(f Fleet, points int) (*Ring, error) {
			opt := loadbalance.NewConsistentHashOption(func(_ context.Context, request any) string { return *request.(*string) })
			if points > 0 {
				opt.VirtualFactor = uint32(points)
			}
			ids := slices.Clone(f.IDs)
			weights := make(map[string]int, len(ids))
			for i, id := range ids {
				weights[id] = f.Weight(i)
			}
			build := func() loadbalance.Picker {
				instances := make([]discovery.Instance, len(ids))
				for i, id := range ids {
					instances[i] = discovery.NewInstance("tcp", id, max(weights[id], 1), nil)
				}
				return loadbalance.NewConsistBalancer(opt).GetPicker(discovery.Result{Instances: instances})
			}
			p := build()
			ctx := context.Background()
			return &Ring{
				One:    func(key string) string { return p.Next(ctx, &key).Address().String() },
				Add:    func(id string) { ids = append(ids, id); p = build() },
				Remove: func(id string) { ids = slices.DeleteFunc(ids, func(s string) bool { return s == id }); p = build() },
			}, nil
		},
	},
	RingHash,
}

// All are ringwise's ring and its peers.
func All() []RingPeer { return append([]RingPeer{Ours}, Rings...) }
