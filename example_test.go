package ringwise_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"
	"time"

	"github.com/ringwise/ringwise"
)

func workers(ids ...string) (ws []ringwise.Worker) {
	for _, id := range ids {
		ws = append(ws, ringwise.Worker{ID: id, Addr: id + ".internal:6379"})
	}
	return ws
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func ExampleNew() {
	r, err := ringwise.New(workers("kv-1", "kv-2", "kv-3", "kv-4"), ringwise.WithReplicas(2), ringwise.WithName("sessions"))
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	fmt.Println(len(r.Status().Workers), "workers")

	_, err = ringwise.New(workers("kv-1", "kv-1"))
	fmt.Println(err)
	// Output:
	// 4 workers
	// ringwise: Workers[1].ID = "kv-1", want a unique name; Workers[0] has it too
}

func ExampleRouter_Pick() {
	r := must(ringwise.New(workers("kv-1")))
	c, err := r.Pick("user:42")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { c.Done(err) }()
	fmt.Println(c.ID(), c.Addr())
	// Output: kv-1 kv-1.internal:6379
}

func ExampleRouter_Observe() {
	r := must(ringwise.New(workers("kv-1")))
	c := must(r.Pick("user:42"))
	// ... the request took 3 ms and succeeded.
	r.Observe(c, 3*time.Millisecond, nil)
	fmt.Println(r.Status().Workers[0].InFlight, "in flight,", r.Status().Workers[0].Read.RTT.Count, "answer")
	// Output: 0 in flight, 1 answer
}

func ExampleRouter_Route() {
	ws := workers("kv-1", "kv-2", "kv-3")
	ws[1].Role = ringwise.RolePrimary
	r := must(ringwise.New(ws))
	c, err := r.Route(ringwise.Request{Key: "user:42", Intent: ringwise.Write, Timeout: 200 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Done(nil)
	fmt.Println(c.ID())

	r.SetState("kv-2", ringwise.Down)
	_, err = r.Route(ringwise.Request{Among: []ringwise.Ref{c.Ref()}})
	if e, ok := errors.AsType[*ringwise.NoWorkerError](err); ok {
		fmt.Println(e.Candidates[0].ID, e.Candidates[0].Reason)
	}
	// Output:
	// kv-2
	// kv-2 is down
}

func ExampleChoice_Done() {
	r := must(ringwise.New(workers("kv-1")))
	get := func(key string) (err error) {
		c, err := r.Pick(key)
		if err != nil {
			return err
		}
		defer func() { c.Done(err) }() // measures the time itself
		return errors.New("connection lost")
	}
	fmt.Println(get("user:42"))
	fmt.Println(r.Status().Workers[0].InFlight, "in flight")
	// Output:
	// connection lost
	// 0 in flight
}

func ExampleChoice_Cancel() {
	r := must(ringwise.New(workers("kv-1")))
	c := must(r.Pick("user:42"))
	c.Cancel() // the caller gave up: says nothing of the worker
	c.Cancel() // harmless
	s := r.Status()
	fmt.Println(s.Workers[0].InFlight, "in flight,", s.Workers[0].Read.Failures, "failures,", s.DoubleDone, "closed twice")
	// Output: 0 in flight, 0 failures, 1 closed twice
}

func ExampleChoice_FirstByte() {
	r := must(ringwise.New(workers("kv-1")))
	c := must(r.Route(ringwise.Request{Key: "video:7", Stream: true}))
	c.FirstByte() // the latency that counts is known; the stream goes on
	w := r.Status().Workers[0]
	fmt.Println(w.Read.RTT.Count, "answer,", w.InFlight, "in flight")
	c.Done(nil)
	fmt.Println(r.Status().Workers[0].InFlight, "in flight")
	// Output:
	// 1 answer, 1 in flight
	// 0 in flight
}

func ExampleChoice_Extend() {
	now := time.Now()
	r := must(ringwise.New(workers("kv-1"), ringwise.WithClock(func() time.Time { return now })))
	forgotten, long := must(r.Pick("a")), must(r.Pick("b"))
	long.Extend() // takes longer than any time-out
	for range 3 {
		now = now.Add(ringwise.DefaultTuning().RequestTimeout)
		r.Maintain(now)
	}
	s := r.Status()
	fmt.Println(s.Workers[0].InFlight, "in flight,", s.Leaked, "leaked")
	long.Done(nil)
	forgotten.Done(nil)
	fmt.Println(r.Status().Workers[0].InFlight, "in flight,", r.Status().LateDone, "late")
	// Output:
	// 1 in flight, 1 leaked
	// 0 in flight, 1 late
}

// A worker that says on its answers how busy it is saves a few percent of p99.
func ExampleChoice_DoneWith() {
	r := must(ringwise.New(workers("kv-1")))
	c := must(r.Pick("user:42"))
	c.DoneWith(ringwise.Outcome{
		RTT:      5 * time.Millisecond,
		Feedback: ringwise.Feedback{InService: 3, ServiceTime: 2 * time.Millisecond},
	})
	c = must(r.Pick("user:43"))
	c.DoneWith(ringwise.Outcome{Err: errors.New("too many requests"), Verdict: ringwise.Overload, RetryAfter: time.Second})
	fmt.Println(r.Status().Verdicts)
	// Output: map[overload:1]
}

// A multi-key call says nothing of the latency of a single one.
func ExampleChoice_DoneWith_batch() {
	r := must(ringwise.New(workers("kv-1")))
	c := must(r.Route(ringwise.Request{Key: "user:42", Size: 50}))
	fmt.Println(r.Status().Workers[0].InFlight, "in flight")
	c.DoneWith(ringwise.Outcome{RTT: 80 * time.Millisecond, Batch: 50})
	fmt.Println(r.Status().Workers[0].InFlight, "in flight,", r.Status().Workers[0].Read.RTT.Count, "latencies")
	// Output:
	// 50 in flight
	// 0 in flight, 0 latencies
}

func ExampleDo() {
	r := must(ringwise.New(workers("kv-1", "kv-2")))
	calls := 0
	value, err := ringwise.Do(context.Background(), r, ringwise.Request{Key: "user:42", Intent: ringwise.Read},
		func(_ context.Context, c ringwise.Choice) (string, error) {
			calls++
			return "Ada", nil // a request to c.Addr()
		})
	fmt.Println(value, err, calls, "call")
	// Output: Ada <nil> 1 call
}

// Hedging by hand: where the first answer does not come in time, Hedge names a
// second worker. Who answers first is closed as usual, the other as superseded.
// Do has all of this.
func ExampleRouter_Hedge() {
	r := must(ringwise.New(workers("kv-1", "kv-2", "kv-3")))
	q := ringwise.Request{Key: "user:42", Intent: ringwise.Read, Idempotent: true}
	for range 100 { // what is usual; each request earns 2 % of a copy
		c := must(r.Route(q))
		c.HedgeAfter()
		r.Observe(c, 2*time.Millisecond, nil)
		r.Maintain(time.Now().Add(time.Second))
	}

	type answer struct {
		from ringwise.Choice
		err  error
	}
	answers := make(chan answer, 2)
	stuck, release := context.WithCancel(context.Background())
	defer release()

	first := must(r.Route(q))
	go func() { <-stuck.Done(); answers <- answer{first, stuck.Err()} }() // the request; this worker is stuck
	after, ok := first.HedgeAfter()                                       // since the pick; false: not to be copied
	var due <-chan time.Time
	if ok {
		due = time.After(after)
	}
	open := []ringwise.Choice{first}
	for {
		select {
		case <-due:
			due = nil
			if second, ok := r.Hedge(q, first); ok {
				open = append(open, second)
				go func() { answers <- answer{second, nil} }() // the copy
			}
			continue
		case a := <-answers:
			for _, c := range open {
				if c == a.from {
					c.Done(a.err)
				} else {
					c.DoneWith(ringwise.Outcome{Verdict: ringwise.Superseded})
				}
			}
			fmt.Println("the copy won:", a.from.ID() != first.ID())
		}
		break
	}
	s := r.Status()
	fmt.Println(s.Hedges, "copy,", s.HedgesWon, "won")
	// Output:
	// the copy won: true
	// 1 copy, 1 won
}

func ExampleRouter_Plan() {
	r := must(ringwise.New(workers("kv-1", "kv-2", "kv-3")))
	plan, err := r.Plan(ringwise.Request{Key: "user:42"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(plan), "to try, none reserved")
	for _, p := range plan {
		c, err := r.Start(ringwise.Request{Key: "user:42"}, p.ID())
		if err != nil {
			continue
		}
		c.Done(nil)
		break
	}
	fmt.Println(r.Status().Picks, "reserved")
	// Output:
	// 3 to try, none reserved
	// 1 reserved
}

// Start takes the worker that a server named.
func ExampleRouter_Start() {
	r := must(ringwise.New(workers("kv-1", "kv-2")))
	c := must(r.Pick("user:42"))
	moved := map[string]string{"kv-1": "kv-2", "kv-2": "kv-1"}[c.ID()]
	c.DoneWith(ringwise.Outcome{Err: errors.New("MOVED"), Verdict: ringwise.StaleTopology, Leader: moved})

	c, err := r.Start(ringwise.Request{Key: "user:42"}, moved)
	fmt.Println(c.ID() == moved, err)
	c.Done(nil)
	_, err = r.Start(ringwise.Request{}, "kv-9")
	fmt.Println(err)
	// Output:
	// true <nil>
	// ringwise: no worker: kv-9 is not in the topology
}

// For drivers whose hooks name a server but carry no state.
func ExampleRouter_StartWorker() {
	r := must(ringwise.New(workers("kv-1")))
	r.StartWorker("kv-1")
	fmt.Println(r.Status().Workers[0].InFlight, "in flight")
	r.ObserveWorker("kv-1", 2*time.Millisecond, nil)
	fmt.Println(r.Status().Workers[0].InFlight, "in flight")
	// Output:
	// 1 in flight
	// 0 in flight
}

func ExampleRouter_Group() {
	r := must(ringwise.New(workers("kv-1", "kv-2", "kv-3")))
	keys := []string{"a", "b", "c", "d", "e", "f"}
	batches, err := r.Group(keys, ringwise.Request{Intent: ringwise.Read}, nil)
	if err != nil {
		log.Fatal(err)
	}
	n := 0
	for _, b := range batches {
		n += len(b.Keys) // one multi-get of these to b.Choice.Addr()
		b.Choice.DoneWith(ringwise.Outcome{Batch: len(b.Keys)})
	}
	fmt.Println(n, "keys in few calls:", len(batches) < len(keys))
	// Output: 6 keys in few calls: true
}

func ExampleRouter_SetTopology() {
	r := must(ringwise.New(workers("kv-1", "kv-2")))
	err := r.SetTopology(ringwise.Topology{Version: 7, Workers: workers("kv-1", "kv-2", "kv-3")})
	fmt.Println(len(r.Status().Workers), err)
	err = r.SetTopology(ringwise.Topology{Version: 6, Workers: workers("kv-1")})
	fmt.Println(len(r.Status().Workers), errors.Is(err, ringwise.ErrStaleTopology))
	// Output:
	// 3 <nil>
	// 3 true
}

func ExampleRouter_SetState() {
	r := must(ringwise.New(workers("kv-1", "kv-2"), ringwise.WithHooks(ringwise.Hooks{
		Failover: func(worker string) { fmt.Println("repair the replicas of", worker) },
	})))
	fmt.Println(r.SetState("kv-1", ringwise.Down))
	c := must(r.Pick("user:42"))
	fmt.Println(c.ID())
	c.Done(nil)
	fmt.Println(r.SetState("kv-9", ringwise.Down))
	// Output:
	// repair the replicas of kv-1
	// true
	// kv-2
	// false
}

func ExampleRouter_Report() {
	r := must(ringwise.New(workers("kv-1", "kv-2")))
	now := time.Now()
	err := r.Report(ringwise.Report{Worker: "kv-1", Time: now, CPU: ringwise.Some(0.4), Compacting: ringwise.Some(true)})
	fmt.Println(err, r.Status().Workers[0].Flags)

	err = r.Report(ringwise.Report{Worker: "kv-1", Time: now.Add(time.Second), CPU: ringwise.Some(-1.0)})
	fmt.Println(err)
	// Output:
	// <nil> [compacting]
	// ringwise: report of "kv-1" refused: CPU = -1, want a number in [0, 1] (out of range)
}

func ExampleReport_UnmarshalJSON() {
	var rep ringwise.Report
	err := json.Unmarshal([]byte(`{"node_id": "kv-1", "timestamp": 1793527200.5, "cpu_usage": 0, "key_hit_rates": {"acme:user": 0.9}}`), &rep)
	if err != nil {
		log.Fatal(err)
	}
	cpu, reported := rep.CPU.Get()
	_, queue := rep.Queue.Get()
	fmt.Println(rep.Worker, rep.Time, cpu, reported, queue, rep.HitRates[0].Kind == ringwise.HashOf("acme:user"))

	err = json.Unmarshal([]byte(`{"worker_id": "kv-1", "cpu_usage": "half"}`), &rep)
	fmt.Println(err)
	// Output:
	// kv-1 2026-11-01 10:00:00.5 +0000 UTC 0 true false true
	// ringwise: report of "kv-1" refused: cpu_usage = "half", want a number (malformed)
}

func ExampleReport_AppendBinary() {
	rep := ringwise.Report{Worker: "kv-1", Time: time.Unix(1793527200, 0), CPU: ringwise.Some(0.5)}
	buf := must(rep.AppendBinary(nil))

	var got ringwise.Report // used again and again: nothing is allocated
	if err := got.UnmarshalBinary(buf); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(buf), "bytes:", got.Worker, got.CPU.Or(0))
	// Output: 172 bytes: kv-1 0.5
}

func ExampleRouter_ProbeResult() {
	r := must(ringwise.New(workers("kv-1", "kv-2", "kv-3"), ringwise.WithHooks(ringwise.Hooks{
		Probe: func(worker string) { /* send it a ping; tell ProbeResult what came of it */ },
	})))
	defer r.Close()
	for range 3 {
		r.ProbeResult("kv-2", 0, errors.New("connection refused"))
	}
	fmt.Println(r.Status().Workers[1].Read.Phase)
	r.ProbeResult("kv-2", 2*time.Millisecond, nil)
	fmt.Println(r.Status().Workers[1].Read.Phase)
	// Output:
	// probe-out
	// probation
}

func ExampleRouter_Retune() {
	r := must(ringwise.New(workers("kv-1")))
	t := r.Tuning()
	t.RequestTimeout = 250 * time.Millisecond
	fmt.Println(r.Retune(t), r.Status().TuningVersion)

	t.Temperature = -1
	fmt.Println(r.Retune(t))
	fmt.Println(r.Tuning().Temperature, r.Status().TuningVersion)
	// Output:
	// <nil> 2
	// ringwise: Tuning.Temperature = -1, want in [0.01, 1000]
	// 1 2
}

func ExampleLoadTuning() {
	t, err := ringwise.LoadTuning(strings.NewReader(`{"RequestTimeout": "250ms", "CooldownMax": "10s"}`))
	fmt.Println(t.RequestTimeout, t.CooldownMax, t.Temperature, err)

	_, err = ringwise.LoadTuning(strings.NewReader(`{"RequestTimeout": 250}`))
	fmt.Println(err)
	// Output:
	// 250ms 10s 1 <nil>
	// ringwise: Tuning.RequestTimeout = 250, want a duration such as "250ms"
}

func ExampleRouter_Explain() {
	r := must(ringwise.New(workers("kv-1", "kv-2")))
	r.SetState("kv-2", ringwise.Draining)
	fmt.Print(r.Explain(ringwise.Request{Key: "user:42", Intent: ringwise.Read}))
	// Output:
	// read 9fc1e605fa7174aa key "user:42" -> kv-1  (picker softmax, topology 0.0, tuning 1)
	// * kv-1             p 100.00 %  score  70.0  latency 1ms        in flight 0    healthy
	//       live cost, weight 1: 70.0 = par (fleet mean cost with load 1ms) +70.0, latency (1ms) +0.0, in flight (0) +0.0
	//   kv-2             cut: is draining
}

func ExampleRouter_Decisions() {
	r := must(ringwise.New(workers("kv-1"), ringwise.WithDecisionSample(1, 100)))
	c := must(r.Pick("user:42"))
	c.Done(nil)
	for _, d := range r.Decisions() {
		fmt.Println(d.Key, d.Chosen, d.Candidates[0].Probability)
	}
	// Output: user:42 kv-1 1
}

func ExampleRouter_Status() {
	r := must(ringwise.New(workers("kv-1")))
	for i := range 3 {
		c := must(r.Pick(fmt.Sprint("user:", i)))
		r.Observe(c, 2*time.Millisecond, nil)
	}
	s := r.Status()
	w := s.Workers[0]
	fmt.Println(s.Picks, "picks;", w.ID, w.State, w.Read.Phase, w.Read.RTT.Count, "answers")
	// Output: 3 picks; kv-1 up healthy 3 answers
}

// Without a goroutine: call Maintain when it wants to be called.
func ExampleRouter_Maintain() {
	now := time.Now()
	r := must(ringwise.New(workers("kv-1"), ringwise.WithClock(func() time.Time { return now })))
	c := must(r.Pick("user:42"))
	r.Observe(c, 2*time.Millisecond, nil)
	now = now.Add(time.Second)
	fmt.Println(r.Maintain(now))
	fmt.Println(r.Status().Read.Mean)
	// Output:
	// 100ms
	// 2ms
}

func ExampleRouter_Run() {
	r := must(ringwise.New(workers("kv-1")))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	cancel()
	fmt.Println(<-done)
	// Output: context canceled
}

// warm scores workers by whether they hold a key in their cache.
type warm map[string]string

func (warm) Name() string { return "warm" }
func (w warm) Score(v *ringwise.View, out []float64) {
	holder, known := w[v.Key()]
	for i := range out {
		switch {
		case !known:
			out[i] = ringwise.NoSignal
		case v.Worker(i).ID == holder:
			out[i] = 100
		default:
			out[i] = 0
		}
	}
}

func ExampleWithScorer() {
	r := must(ringwise.New(workers("kv-1", "kv-2", "kv-3"), ringwise.WithScorer(warm{"user:42": "kv-2"}, 0.5)))
	c := must(r.Pick("user:42"))
	defer c.Done(nil)
	fmt.Println(c.ID())
	// Output: kv-2
}

// canary keeps requests off a worker unless they ask for it.
type canary struct{ id string }

func (canary) Name() string { return "canary" }
func (c canary) Keep(v *ringwise.View, m *ringwise.Mask) {
	for i := range v.Len() {
		if v.Worker(i).ID == c.id && v.Tenant() != "us" {
			m.Clear(i)
		}
	}
}

func ExampleWithFilter() {
	r := must(ringwise.New(workers("kv-1", "kv-2"), ringwise.WithFilter(canary{"kv-1"})))
	c := must(r.Pick("user:42"))
	defer c.Done(nil)
	fmt.Println(c.ID())
	// Output: kv-2
}

func ExampleWithPicker() {
	ws := workers("kv-1", "kv-2")
	ws[0].Weight = 3
	r := must(ringwise.New(ws, ringwise.WithPicker(ringwise.SmoothWeighted{})))
	got := map[string]int{}
	for range 8 {
		c := must(r.Pick("user:42"))
		got[c.ID()]++
		r.Observe(c, time.Millisecond, nil)
	}
	fmt.Println(got)
	// Output: map[kv-1:6 kv-2:2]
}

// tables is a store that places keys by a list of its own.
type tables struct{ router *ringwise.Router }

func (t *tables) Locate(h ringwise.KeyHash, dst []ringwise.Ref) []ringwise.Ref {
	for _, id := range []string{"kv-3", "kv-1"} {
		if ref, ok := t.router.Ref(id); ok {
			dst = append(dst, ref)
		}
	}
	return dst
}

func ExampleWithLocator() {
	place := &tables{}
	r := must(ringwise.New(workers("kv-1", "kv-2", "kv-3"), ringwise.WithLocator(place), ringwise.WithPicker(ringwise.PrimaryFirst{})))
	place.router = r
	c := must(r.Pick("user:42"))
	defer c.Done(nil)
	fmt.Println(c.ID())
	// Output: kv-3
}

// A Ring alone, for those who only place.
func ExampleNewRing() {
	ring, err := ringwise.NewRing(workers("kv-1", "kv-2", "kv-3", "kv-4"), ringwise.RingOptions{Replicas: 2})
	if err != nil {
		log.Fatal(err)
	}
	owners := ring.Owners(ringwise.HashOf("user:42"), nil)
	less, err := ringwise.NewRing(workers("kv-4", "kv-3", "kv-2", "kv-1"), ringwise.RingOptions{Replicas: 2})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(owners), slices.Equal(owners, less.Owners(ringwise.HashOf("user:42"), nil)))
	// Output: 2 true
}
