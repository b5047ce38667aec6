// Quickstart runs five key-value servers on loopback sockets and sends them a
// few hundred thousand requests. One server, drawn at random, becomes ten
// times slower, then fails every request at once, then crashes and comes back
// with no data. Watch the traffic leave it and return step by step:
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -policy random       # or round-robin, p2c
//
// The exit status is 0 if the victim had under 5 % of the requests in each bad
// phase and over 12 % at the end, if its return never passed twice the ramp's
// cap in any 500 ms, and if under 0.1 % of all requests failed; 1 if not; 2 if
// the program could not run. It takes 25 s.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/ringwise/ringwise"
)

const (
	serverCount = 5
	serviceTime = time.Millisecond // time.Sleep is not to be had shorter
	// A busy machine stalls everything for 350 ms now and then, which is not
	// the victim's fault.
	requestTimeout = time.Second
	cooldownMax    = 2 * time.Second
)

// throughRingwise is all that a client does with ringwise.
type throughRingwise struct {
	router *ringwise.Router
	index  map[string]int // of a server by its ID
}

func newThroughRingwise(ctx context.Context, servers []*server) (*throughRingwise, error) {
	p := &throughRingwise{index: map[string]int{}}
	var workers []ringwise.Worker
	for i, s := range servers {
		workers = append(workers, ringwise.Worker{ID: s.id, Addr: s.addr})
		p.index[s.id] = i
	}
	tuning := ringwise.DefaultTuning()
	tuning.RequestTimeout = requestTimeout // of our own client
	tuning.CooldownMax = cooldownMax       // 30 s by default: longer than the demo
	var err error
	p.router, err = ringwise.New(workers,
		ringwise.WithReplicas(replicas), ringwise.WithTuning(tuning), ringwise.WithClassifier(classify))
	if err != nil {
		return nil, err
	}
	go p.router.Run(ctx)
	return p, nil
}

// do picks a server for the key and tells how it went: that is the whole loop.
func (p *throughRingwise) do(key string, call func(server int) error) error {
	choice, err := p.router.Route(ringwise.Request{Key: key, Intent: ringwise.Read, Idempotent: true})
	if err != nil {
		return err
	}
	err = call(p.index[choice.ID()])
	choice.Done(err)
	return err
}

// classify says that a server answering -ERR is at fault. Without it ringwise
// could not know and would compare the server's rate of such answers with its peers'.
func classify(err error) ringwise.Verdict {
	if _, ok := errors.AsType[serverError](err); ok {
		return ringwise.Fault
	}
	return ringwise.Classify(err)
}

// state is the penalty machine's view of a server, for the table.
func (p *throughRingwise) state(server int) string {
	for _, w := range p.router.Status().Workers {
		if p.index[w.ID] != server {
			continue
		}
		if w.Read.Phase == "probation" {
			return fmt.Sprintf("probation %.0f%%", 100*w.Read.Share)
		}
		return w.Read.Phase
	}
	return "-"
}

func main() {
	name := flag.String("policy", "ringwise", "`policy`: ringwise, random, round-robin or p2c")
	seed := flag.Uint64("seed", 0, "`seed` of victim and keys, 0 to draw one")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "quickstart: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	if *seed == 0 {
		*seed = uint64(rand.Uint32())
	}
	ok, err := run(*name, *seed, newScreen(os.Stdout))
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(2)
	case !ok:
		os.Exit(1)
	}
}

// run plays the scenario under one policy and tells whether it passed.
func run(name string, seed uint64, out *screen) (bool, error) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	var servers []*server
	for i := range serverCount {
		s := newServer(fmt.Sprintf("kv-%d", i), serviceTime)
		s.load(dataset())
		if err := s.open(); err != nil {
			return false, err
		}
		defer s.close()
		servers = append(servers, s)
	}
	victim := rand.New(rand.NewPCG(seed, 0)).IntN(serverCount)

	var chosen policy
	var err error
	if name == "ringwise" {
		chosen, err = newThroughRingwise(ctx, servers)
	} else {
		chosen, err = newBaseline(name, serverCount)
	}
	if err != nil {
		return false, err
	}

	out.say("policy=%s seed=%d victim=%s", name, seed, servers[victim].id)
	out.say("%d servers of %v a request, %d replicas of a key, %d callers, time-out %v, CooldownMax %v (default 30s)",
		serverCount, serviceTime, replicas, callers, requestTimeout, cooldownMax)
	out.say("* is the victim; victim_share: without the first %v of a phase; in recover, of its last %v", settleTime, backTime)

	l := newLoad(servers, chosen)
	done := make(chan struct{})
	go func() { defer close(done); l.run(ctx, seed) }()
	var spans []span
	for _, ph := range scenario {
		from := l.now()
		if err := ph.begin(servers[victim]); err != nil {
			return false, err
		}
		watch(l, out, ph, victim)
		spans = append(spans, span{ph.name, ph.bad, from, l.now()})
		tell(l, out, spans[len(spans)-1], victim)
	}
	stop()
	<-done
	return conclude(l, out, spans, victim), nil
}

// watch shows the table until the phase is over.
func watch(l *load, out *screen, ph phase, victim int) {
	end := l.now() + ph.lasts
	for left := ph.lasts; left > 0; left = end - l.now() {
		time.Sleep(min(left, out.refresh()))
		recent := l.since(l.now() - time.Second)
		var rows []row
		for i, s := range l.servers {
			times := recent.of(i).latencies()
			r := row{
				id: s.id, state: l.policy.state(i), share: recent.share(i),
				inFlight: l.gauges[i].inFlight.Load(), errors: l.gauges[i].errors.Load(),
				p50: quantile(times, 0.50), p99: quantile(times, 0.99),
			}
			if i == victim {
				r.id += "*"
			}
			rows = append(rows, r)
		}
		out.show(fmt.Sprintf("%4.1fs %-8s", l.now().Seconds(), ph.name), rows)
	}
}

// tell prints the line of a phase that has ended.
func tell(l *load, out *screen, s span, victim int) {
	all := l.since(s.from).byTime()
	part, times := all.between(s.from, s.to), all.between(s.from, s.to).latencies()
	out.say("phase=%s victim_share=%s p50=%s p99=%s errors=%d requests=%d",
		s.name, percent(all.between(s.settled()).share(victim)),
		millis(quantile(times, 0.50)), millis(quantile(times, 0.99)), part.errors(), len(part))
}

// conclude prints the sums and the verdict.
func conclude(l *load, out *screen, spans []span, victim int) bool {
	all := l.since(0).byTime()
	r := judgeRamp(all, victim, serverCount, spans[len(spans)-1].from)
	out.say("total requests=%d errors=%d error_rate=%s p99=%s ramp_peak=%.2f of %.0f allowed, at %.1fs; windows judged=%d thin=%d",
		len(all), all.errors(), percent(ratio(all.errors(), len(all))), millis(quantile(all.latencies(), 0.99)),
		r.peak, rampLimit, r.at.Seconds(), r.seen, r.thin)
	wrong := judge(all, spans, victim, r)
	if len(wrong) > 0 {
		out.say("result=FAILED reason=%q", strings.Join(wrong, "; "))
		return false
	}
	out.say("result=ok")
	return true
}
