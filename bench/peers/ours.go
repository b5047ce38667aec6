package peers

import (
	"time"

	"github.com/ringwise/ringwise"
)

// Workers is the fleet as ringwise takes it.
func Workers(f Fleet) []ringwise.Worker {
	ws := make([]ringwise.Worker, len(f.IDs))
	for i, id := range f.IDs {
		ws[i] = ringwise.Worker{ID: id, Addr: id, Weight: float64(f.Weight(i))}
	}
	return ws
}

// Ours is ringwise's ring: Owners of three, and of one from a ring with one.
var Ours = RingPeer{
	Name: "ringwise", Module: "github.com/ringwise/ringwise", Points: true, Weights: true, Default: "1000 points",
	Build: func(f Fleet, points int) (*Ring, error) {
		workers := Workers(f)
		three, err := ringwise.NewRing(workers, ringwise.RingOptions{Points: points, Replicas: 3})
		if err != nil {
			return nil, err
		}
		one, err := ringwise.NewRing(workers, ringwise.RingOptions{Points: points, Replicas: 1})
		if err != nil {
			return nil, err
		}
		buf := make([]string, 0, 1)
		return &Ring{
			One: func(key string) string { return one.Owners(ringwise.HashOf(key), buf)[0] },
			Three: func(key string, dst []string) []string {
				return three.Owners(ringwise.HashOf(key), dst[:0])
			},
		}, nil
	},
}

// OurPicker is ringwise's Router at its defaults but for three candidates:
// each answer's RTT is handed to Observe.
var OurPicker = PickerPeer{
	Name: "ringwise", Module: "github.com/ringwise/ringwise", LoadAware: true, Reads: "latency, in flight, failures, key",
	Build: func(f Fleet) (*Picker, error) {
		r, rtt, err := NewRouter(f)
		if err != nil {
			return nil, err
		}
		pick := func(key string) (ringwise.Choice, string) {
			c, _ := r.Pick(key)
			return c, c.ID()
		}
		done := func(c ringwise.Choice) { r.Observe(c, rtt(c), nil) }
		return &Picker{
			Once: func(key string) (string, error) {
				c, err := r.Pick(key)
				id := c.ID()
				r.Observe(c, rtt(c), nil)
				return id, err
			},
			Loop:  window(pick, done),
			Close: func() { _ = r.Close() },
			Idle:  func() { r.Maintain(time.Now()) }, // in place of go r.Run(ctx)
		}, nil
	},
}

// OurPickerDone is the same closed by Done, which reads the clock as the
// other libraries do.
var OurPickerDone = PickerPeer{
	Name: "ringwise, closed by Done", Module: "github.com/ringwise/ringwise", LoadAware: true, Reads: "the same, RTT by its own clock",
	Build: func(f Fleet) (*Picker, error) {
		r, _, err := NewRouter(f)
		if err != nil {
			return nil, err
		}
		pick := func(key string) (ringwise.Choice, string) {
			c, _ := r.Pick(key)
			return c, c.ID()
		}
		done := func(c ringwise.Choice) { c.Done(nil) }
		return &Picker{
			Once: func(key string) (string, error) {
				c, err := r.Pick(key)
				id := c.ID()
				c.Done(nil)
				return id, err
			},
			Loop:  window(pick, done),
			Close: func() { _ = r.Close() },
			Idle:  func() { r.Maintain(time.Now()) }, // in place of go r.Run(ctx)
		}, nil
	},
}

// NewRouter is a Router of three candidates and the RTT of a choice's worker.
// The RTT goes by a byte of the ID, so that it costs no lookup.
func NewRouter(f Fleet) (*ringwise.Router, func(ringwise.Choice) time.Duration, error) {
	r, err := ringwise.New(Workers(f), ringwise.WithReplicas(3))
	return r, func(c ringwise.Choice) time.Duration {
		id := c.ID()
		if len(id) < 6 {
			return time.Millisecond
		}
		return time.Duration(RTT(int(id[len(id)-6]))) // the last digit before ":7000"
	}, err
}
