package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"

	"github.com/ringwise/ringwise/internal/sim"
)

// job is one run to play.
type job struct {
	scenario sim.Scenario
	policy   sim.Factory
	options  sim.Options
}

// runSet is the raw output: what -json writes, -from reads, and tables, page
// and judge are computed from.
type runSet struct {
	Scenarios []scenarioInfo `json:"scenarios"`
	Policies  []policyInfo   `json:"policies"`
	Runs      []summary      `json:"runs"`
}

type scenarioInfo struct {
	Name  string `json:"name"`
	Title string `json:"title"`
}

type policyInfo struct {
	Name   string `json:"name"`
	Source string `json:"source"`
}

// summary is what is kept of one run. Latencies are in milliseconds.
type summary struct {
	Scenario string  `json:"scenario"`
	Policy   string  `json:"policy"`
	Seed     uint64  `json:"seed"`
	Load     float64 `json:"load"`
	Lost     float64 `json:"lost,omitempty"`
	Feedback bool    `json:"feedback,omitempty"`
	Hedge    bool    `json:"hedge,omitempty"`
	Retry    bool    `json:"retry,omitempty"`

	Requests int     `json:"requests"`
	Errors   int     `json:"errors"`
	Hedges   int     `json:"hedges,omitempty"`
	Retries  int     `json:"retries,omitempty"`
	Wins     int     `json:"wins,omitempty"`
	Mean     float64 `json:"mean_ms"`
	P50      float64 `json:"p50_ms"`
	P90      float64 `json:"p90_ms"`
	P99      float64 `json:"p99_ms"`
	P999     float64 `json:"p999_ms"`
	P9999    float64 `json:"p9999_ms"`
	Hot      float64 `json:"hot_share"`            // of workers over 1.5x the mean load
	Max      float64 `json:"max_over_mean"`        // load of the busiest worker
	Trips    float64 `json:"trips,omitempty"`      // into cooldown, all clients together
	Miss     float64 `json:"miss_share,omitempty"` // of lookups in the workers' caches

	// CDF is the latency at each of cdfNines, in ms.
	CDF []float64 `json:"cdf_ms,omitempty"`
	// Share is the share of picks by bucket and worker, State how far clients
	// keep a worker out of use, both in 1/1000; kept for the first seed.
	Bucket float64 `json:"bucket_ms,omitempty"`
	Share  [][]int `json:"share,omitempty"`
	State  [][]int `json:"state,omitempty"`
}

// cdfNines are the points of the distribution, as -log10(1-p): to p99.99.
var cdfNines = func() (out []float64) {
	for i := range 81 {
		out = append(out, float64(i)*0.05)
	}
	return out
}()

const seriesBuckets = 160

func summarise(r *sim.Result, j *job, series bool) summary {
	ms := func(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e3 }
	s := summary{
		Scenario: r.Scenario, Policy: r.Policy, Seed: r.Seed, Load: j.scenario.Load, Lost: j.scenario.Lost,
		Feedback: r.Feedback, Hedge: r.Hedge, Retry: r.Retry,
		Requests: len(r.Latency), Errors: r.Errors, Hedges: r.Hedges, Retries: r.Retries, Wins: r.Wins,
		Mean: ms(r.Mean()), P50: ms(r.Quantile(0.5)), P90: ms(r.Quantile(0.9)), P99: ms(r.Quantile(0.99)),
		P999: ms(r.Quantile(0.999)), P9999: ms(r.Quantile(0.9999)),
		Hot: r.HotShare(), Max: r.MaxOverMean(), Trips: r.Notes["trips"],
	}
	if n := r.Notes["lookups"]; n > 0 {
		s.Miss = r.Notes["misses"] / n
	}
	if !series {
		return s
	}
	for _, n := range cdfNines {
		s.CDF = append(s.CDF, ms(r.Quantile(1-math.Pow(10, -n))))
	}
	merge := (len(r.Share) + seriesBuckets - 1) / seriesBuckets
	s.Bucket = float64(merge) * float64(r.Bucket) / 1e6
	for i := 0; i < len(r.Share); i += merge {
		row, total := make([]int, len(r.Share[i])), 0.0
		sum := make([]float64, len(row))
		for _, b := range r.Share[i:min(i+merge, len(r.Share))] {
			for w, v := range b {
				sum[w] += float64(v)
				total += float64(v)
			}
		}
		for w := range row {
			row[w] = int(math.Round(1000 * sum[w] / max(total, 1)))
		}
		s.Share = append(s.Share, row)
		if len(r.States) == len(r.Share) {
			row := make([]int, len(r.Share[i]))
			n := float64(min(i+merge, len(r.States)) - i)
			for _, b := range r.States[i:min(i+merge, len(r.States))] {
				for w, v := range b {
					row[w] += int(math.Round(1000 * v / n))
				}
			}
			s.State = append(s.State, row)
		}
	}
	return s
}

// play runs the jobs, some side by side, and keeps them in order.
func play(jobs []job, parallel int, progress io.Writer) (*runSet, error) {
	set := &runSet{Runs: make([]summary, len(jobs))}
	set.describe(jobs)
	first := map[string]bool{}
	series := make([]bool, len(jobs))
	for i, j := range jobs {
		k := fmt.Sprint(j.scenario.Name, j.policy.Name)
		series[i] = !first[k]
		first[k] = true
	}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		next  int
		done  int
		fault error
		meter = newMeter(progress, len(jobs))
	)
	for range min(parallel, len(jobs)) {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				stop := fault != nil
				mu.Unlock()
				if i >= len(jobs) || stop {
					return
				}
				j := &jobs[i]
				r, err := sim.Run(j.scenario, j.policy, j.options)
				var s summary
				if err == nil {
					s = summarise(r, j, series[i])
				}
				mu.Lock()
				set.Runs[i] = s
				if err != nil && fault == nil {
					fault = err
				}
				done++
				meter.step(done, j.scenario.Name+" "+j.policy.Name)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	meter.end()
	return set, fault
}

func (set *runSet) describe(jobs []job) {
	seenS, seenP := map[string]bool{}, map[string]bool{}
	for _, j := range jobs {
		if !seenS[j.scenario.Name] {
			seenS[j.scenario.Name] = true
			set.Scenarios = append(set.Scenarios, scenarioInfo{j.scenario.Name, j.scenario.Title})
		}
		if !seenP[j.policy.Name] {
			seenP[j.policy.Name] = true
			set.Policies = append(set.Policies, policyInfo{j.policy.Name, j.policy.Source})
		}
	}
}

func (set *runSet) write(w io.Writer) error {
	enc := json.NewEncoder(w)
	return enc.Encode(set)
}

func readRuns(name string) (*runSet, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	set := &runSet{}
	if err := json.Unmarshal(data, set); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := set.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return set, nil
}

// leastLatency and mostLatency, in ms, bound what a run may have measured: a
// figure is rounded to 1 us, and 1e15 ms are 30,000 years.
const leastLatency, mostLatency = 1e-3, 1e15

// check finds what tables and page cannot be made of: they divide by the
// oracle's figures and take the largest of a row.
func (set *runSet) check() error {
	switch {
	case len(set.Runs) == 0:
		return errors.New("no runs in it")
	case len(set.Scenarios) == 0:
		return errors.New("scenarios: empty, want those of the runs")
	case len(set.Policies) == 0:
		return errors.New("policies: empty, want those of the runs")
	}
	scenarios, policies := map[string]bool{}, map[string]bool{}
	for _, s := range set.Scenarios {
		scenarios[s.Name] = true
	}
	for _, p := range set.Policies {
		policies[p.Name] = true
	}
	for i := range set.Runs {
		r := &set.Runs[i]
		field := func(name string) string { return fmt.Sprintf("runs[%d].%s", i, name) }
		switch {
		case !scenarios[r.Scenario]:
			return fmt.Errorf("%s: %.100q: want one of scenarios", field("scenario"), r.Scenario)
		case !policies[r.Policy]:
			return fmt.Errorf("%s: %.100q: want one of policies", field("policy"), r.Policy)
		}
		for _, f := range []struct {
			name string
			v    float64
		}{{"p50_ms", r.P50}, {"p90_ms", r.P90}, {"p99_ms", r.P99}, {"p999_ms", r.P999}} {
			if !(f.v >= leastLatency && f.v <= mostLatency) && (f.v != 0 || r.Requests != 0) { // a run may have measured nothing
				return fmt.Errorf("%s: %v: want %g to %g ms", field(f.name), f.v, leastLatency, mostLatency)
			}
		}
		if n := len(r.CDF); n != 0 && n != len(cdfNines) {
			return fmt.Errorf("%s: %d figures: want none or %d", field("cdf_ms"), n, len(cdfNines))
		}
	}
	return nil
}

// meter writes progress and time left, on a line of its own where each update
// replaces the last.
type meter struct {
	w      io.Writer
	n      int
	began  time.Time
	last   time.Time
	length int
}

func newMeter(w io.Writer, n int) *meter { return &meter{w: w, n: n, began: time.Now()} }

func (m *meter) step(done int, what string) {
	now := time.Now()
	if now.Sub(m.last) < 200*time.Millisecond && done < m.n {
		return
	}
	m.last = now
	left := time.Duration(float64(now.Sub(m.began)) / float64(done) * float64(m.n-done))
	line := fmt.Sprintf("%d of %d runs, %v left  %s", done, m.n, left.Round(time.Second), what)
	fmt.Fprintf(m.w, "\r%-*s", m.length, line)
	m.length = len(line)
}

func (m *meter) end() { fmt.Fprintf(m.w, "\r%-*s\r", m.length, "") }
