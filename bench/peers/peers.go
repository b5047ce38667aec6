// Package peers puts ringwise and the libraries it is compared with behind two
// small forms, each through its public API: a Ring says who owns a key, a
// Picker names a worker for a request and is told how it ended.
//
// Every call goes through one func value, ringwise's too, so that the forms
// cost all of them the same.
package peers

import (
	"fmt"
	"net"
	"strconv"
)

// Fleet is what a peer is built of.
type Fleet struct {
	IDs     []string // host:port on loopback; nothing is ever dialled
	Weights []int    // nil: all 1
}

// NewFleet names n workers; set gives different names, 0 upwards.
func NewFleet(n, set int) Fleet {
	f := Fleet{IDs: make([]string, n)}
	for i := range f.IDs {
		f.IDs[i] = net.JoinHostPort(fmt.Sprintf("127.%d.%d.%d", set+1, i>>8, i&255), strconv.Itoa(7000))
	}
	return f
}

// Weight is the weight of worker i.
func (f Fleet) Weight(i int) int {
	if f.Weights == nil {
		return 1
	}
	return f.Weights[i]
}

// Weighted is f with the weights 1, 2, 4 in turn.
func (f Fleet) Weighted() Fleet {
	f.Weights = make([]int, len(f.IDs))
	for i := range f.Weights {
		f.Weights[i] = 1 << (i % 3)
	}
	return f
}

// RTT is what worker i's answers take, 1 to 2 ms: workers are unequal.
func RTT(i int) int64 { return 1_000_000 + int64(i%16)*60_000 }

// RingPeer is a library that says who owns a key.
type RingPeer struct {
	Name   string
	Module string // as in go.mod
	Build  func(f Fleet, points int) (*Ring, error)
	// Points tells that the number of points a worker can be set; Build
	// takes 0 for the library's documented default.
	Points bool
	// Weights tells that it knows workers' weights.
	Weights bool
	Default string // its documented defaults, for the report
	Max     int    // most workers it is measured with; 0: any
	Why     string // the reason for Max
}

// Ring is one built peer.
type Ring struct {
	One func(key string) string
	// Three are the key's first three owners; nil without such a call. It may
	// use dst. The answer is valid until the next call with the same dst.
	Three  func(key string, dst []string) []string
	Add    func(id string) // nil: it cannot
	Remove func(id string)
	// Shared tells that Add and Remove may run beside One.
	Shared bool
	Close  func()
}

// Release frees what the ring holds, goroutines included.
func (r *Ring) Release() {
	if r.Close != nil {
		r.Close()
	}
}

// PickerPeer is a library that names a worker by what it knows of load.
type PickerPeer struct {
	Name   string
	Module string
	Build  func(f Fleet) (*Picker, error)
	// LoadAware tells that each request's latency, or what is in flight, counts.
	LoadAware bool
	Reads     string // what it goes by
	Max       int
	Why       string
}

// Window is how many requests a loop of Picker.Loop holds open.
const Window = 32

// Picker is one built peer.
type Picker struct {
	// Once picks, closes the request, and tells the worker.
	Once func(key string) (id string, err error)
	// Loop makes a loop that picks for each key and closes the pick of Window
	// keys before, so that requests are in flight. Each goroutine makes its
	// own. drain closes what is open.
	Loop  func() (run func(keys []string), drain func())
	Close func()
	// Idle is what the library does in a goroutine of its own, as long as there
	// are no requests; nil where it does nothing.
	Idle func()
}

// Release frees what the picker holds, goroutines included.
func (p *Picker) Release() {
	if p.Close != nil {
		p.Close()
	}
}

// window is the loop of all pickers. It uses the name that a pick gives, as
// whoever dials it would.
func window[T any](pick func(key string) (T, string), done func(T)) func() (func([]string), func()) {
	return func() (func([]string), func()) {
		var open [Window]T
		n, named := 0, 0
		run := func(keys []string) {
			for _, key := range keys {
				at := &open[n%Window]
				if n >= Window {
					done(*at)
				}
				var id string
				*at, id = pick(key)
				named += len(id)
				n++
			}
		}
		drain := func() {
			for i := max(0, n-Window); i < n; i++ {
				done(open[i%Window])
			}
			if n > 0 && named == 0 {
				panic("no pick gave a name")
			}
			n, named = 0, 0
		}
		return run, drain
	}
}

// Missing are peers that were asked for and are not here.
type Missing struct{ Name, Reason string }

// Empty is the loop of Pickers around nothing.
func Empty() (run func(keys []string), drain func()) {
	return window(func(key string) (int, string) { return 0, key }, func(int) {})()
}

// Absent are the peers that were asked for and cannot be had.
var Absent = []Missing{
	{"grafana/dskit ring", "it is served, but drags in some hundred modules (etcd, Consul, memberlist, cloud SDKs), and builds only where hashicorp/memberlist is replaced by Grafana's fork"},
	{"dgryski/go-maglev", "the module proxy does not serve it; kkdai/maglev stands for Maglev"},
	{"gRPC ring_hash by xDS hash", "the hash goes into the context by an internal package; the public form, a header of the request, is measured"},
	{"kitex, load-aware", "its balancers go by fixed weights; its consistent hash is among the rings, its weighted round robin among the pickers"},
}
