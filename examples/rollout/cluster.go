package main

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ringwise/ringwise"
)

const (
	serverCount = 6
	serviceTime = 2 * time.Millisecond // mean; server 0 takes half as long again
	rate        = 1600                 // requests a second
)

var errServer = errors.New("server error")

// cluster is a router and its servers on a clock of their own.
type cluster struct {
	router *ringwise.Router
	rnd    *rand.Rand
	start  time.Time
	now    time.Time
	free   map[string]time.Time // when a server's only thread is done
	under  []request            // way, by their end
	folded time.Time
}

type request struct {
	end    time.Time
	choice ringwise.Choice
	rtt    time.Duration
	err    error
}

func newCluster() (*cluster, error) {
	c := &cluster{rnd: rand.New(rand.NewPCG(1, 0)), start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), free: map[string]time.Time{}}
	c.now = c.start
	var workers []ringwise.Worker
	for i := range serverCount {
		workers = append(workers, ringwise.Worker{ID: fmt.Sprint("kv-", i)})
	}
	var err error
	c.router, err = ringwise.New(workers,
		ringwise.WithClock(func() time.Time { return c.now }), ringwise.WithRand(c.rnd.Uint64),
		ringwise.WithClassifier(func(error) ringwise.Verdict { return ringwise.Fault }),
		ringwise.WithHooks(ringwise.Hooks{Alarm: func(a ringwise.Alarm) {
			fmt.Printf("   %6.1f s  alarm: %s\n", c.now.Sub(c.start).Seconds(), a.Text)
		}}))
	return c, err
}

// play runs the traffic for so long. What it does to the router is what a
// client does: Route, and Observe once the answer is there.
func (c *cluster) play(d time.Duration) {
	for end := c.now.Add(d); c.now.Before(end); {
		c.now = c.now.Add(time.Duration(float64(time.Second) / rate * c.rnd.ExpFloat64()))
		for len(c.under) > 0 && c.under[0].end.Before(c.now) {
			q := c.under[0]
			c.under = c.under[1:]
			c.router.Observe(q.choice, q.rtt, q.err)
		}
		if c.now.Sub(c.folded) > 100*time.Millisecond {
			c.folded = c.now
			c.router.Maintain(c.now) // instead of go router.Run(ctx), which has the real clock
		}
		c.send()
	}
}

func (c *cluster) send() {
	q := ringwise.Request{Key: fmt.Sprint("user:", c.rnd.IntN(50_000)), Intent: ringwise.Read}
	switch c.rnd.IntN(20) {
	case 0:
		q.Canary = true // say, our own staff
	case 1:
		q.Tenant = "friends"
	}
	choice, err := c.router.Route(q)
	if err != nil {
		return // nobody is left; cannot be here
	}
	id := choice.ID()
	service := time.Duration(float64(serviceTime) * (0.5 + 0.5*c.rnd.ExpFloat64()))
	if id == "kv-0" {
		service += service / 2
	}
	begin := c.now
	if c.free[id].After(begin) {
		begin = c.free[id] // it waits its turn
	}
	end := begin.Add(service)
	c.free[id] = end
	r := request{end: end, choice: choice, rtt: end.Sub(c.now)}
	if c.rnd.IntN(500) == 0 {
		r.err = errServer
	}
	i, _ := slices.BinarySearchFunc(c.under, end, func(q request, t time.Time) int { return cmp.Compare(q.end.UnixNano(), t.UnixNano()) })
	c.under = slices.Insert(c.under, i, r)
}

// follow plays until the canary is through, or for at most so long, and tells
// of each step.
func (c *cluster) follow(most time.Duration) {
	step := 0
	for range most / time.Second {
		s := c.router.Canary()
		if s.State != ringwise.CanaryRunning {
			return
		}
		if s.Step != step {
			step = s.Step
			fmt.Printf("   %6.1f s  step %d of %d, %.0f %% of the keys\n", c.now.Sub(c.start).Seconds(), step, s.Steps, s.Share*100)
		}
		c.play(time.Second)
	}
}
