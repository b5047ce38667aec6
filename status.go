package ringwise

import (
	"fmt"
	"slices"
	"time"
)

// Status is a copy of all a person or an exporter needs, at one moment. It
// marshals to JSON; durations are integers in nanoseconds, hence their names.
// Its size is bounded by the number of workers. Counters only grow; at a
// billion a second they would do so for 500 years.
type Status struct {
	Name            string
	Time            time.Time
	Closed          bool `json:",omitempty"`
	Workers         []WorkerStatus
	TopologyEpoch   uint64
	TopologyVersion uint64
	TopologyAge     time.Duration `json:"TopologyAge_ns"`
	LowConfidence   bool          // the topology is past its TTL
	TuningVersion   uint64
	SnapshotAge     time.Duration `json:"SnapshotAge_ns"` // since the last fold
	// FoldTime is what the last fold of Maintain or Run took, its wait for
	// other writers and the new snapshot included; 0 where neither is called.
	FoldTime    time.Duration `json:"FoldTime_ns"`
	Read, Write LaneStatus
	MaxOut      int // workers that penalties may take out at once

	Picks                     uint64 // units reserved so far
	NoWorker                  uint64 // picks that found nobody
	Relaxed                   uint64 // picks for which a rule was given up
	Trips                     uint64 // times a worker went into cooldown
	Leaked                    uint64 // reservations never closed; seen one to two request time-outs after the pick, never by one Maintain alone
	LateDone                  uint64 // closed after they had expired
	DoubleDone                uint64 // closed a second time
	Untracked                 uint64 // picks beyond what one worker's leases hold
	Deadlines                 uint64 // callers' deadlines that ended before the request time-out: no failures
	StaleRefs                 uint64 // Refs of workers that have left
	Oversized                 uint64 // candidate lists over 16
	UnknownIDs                uint64 // calls that named no worker of the topology
	BadScores                 uint64 // scores that were not finite
	PlugPanics                uint64 // panics of scorers, filters, pickers, locators, quotas, parsers, directories, Classifiers and clocks
	HookPanics                uint64
	HooksDropped              uint64
	ProbesAsked, ProbesFailed uint64            // hooks Probe, and results that were failures
	Saturated                 uint64            // decisions among candidates all far over their usual load
	Tries                     uint64            // picks of workers that nobody had picked for 27 s
	LogDropped                uint64            // decisions that WithDecisionLog had no room for
	ClockRebased              uint64            // times a worker's report clock was set anew
	Verdicts                  map[string]uint64 // errors by verdict
	Reports                   map[string]uint64 // reports by what became of them
	PlugsOff                  []string          `json:",omitempty"` // scorers, filters and picker, switched off after panics
	Warnings                  []string          `json:",omitempty"` // of Tuning, and what looks wrong now
	RetriesBanked             float64           // retries Do may make at once
	HedgesBanked, HedgeFactor float64           // copies Do may send at once, and after how many fleet means
	Hedges, HedgesWon         uint64            // copies sent, and those that answered first

	// Scores counts workers' live scores, one a worker and second, by tens of
	// points: [0] is under 10, [9] 90 and over.
	Scores [10]uint64
	// Of the last 10 s: HotShare is the share of workers with over twice the
	// mean of picks by weight, LoadDeviation the standard deviation of these
	// picks as a share of their mean.
	HotShare, LoadDeviation float64
	// SelfCheck correlates scores with success.
	SelfCheck SelfCheck
	Flaps     []Flap `json:",omitempty"` // shares and weights that saw now
	Stale     int    // workers whose last report is past its trust window
	Canary    CanaryStatus
	Shadow    ShadowStatus
}

// SelfCheck is the rank correlation of workers' scores with the success of
// the requests that followed, over the newest worker-windows of 10 s.
type SelfCheck struct {
	Correlation float64 // Spearman's, -1 to 1; 0 under 30 windows
	Windows     int
	Alarmed     bool // below 0 by more than chance
}

// LaneStatus is the fleet on one lane.
type LaneStatus struct {
	Mean     time.Duration `json:"Mean_ns"` // EWMA of all workers' answers
	Samples  float64
	Cooldown int // workers taken out now
}

// WorkerStatus is one worker.
type WorkerStatus struct {
	ID, Addr, Zone, Rack string
	Role                 string
	State                string
	Weight               float64
	InFlight             int
	Picks                uint64 // units reserved since it joined
	Leaked               uint64
	Read, Write          WorkerLane
	ReportAge            time.Duration `json:"ReportAge_ns"` // 0: never reported
	Stale                bool
	Unconfirmed          bool
	Flags                []string `json:",omitempty"` // of its report
	UsualInFlight        int      // 5-minute median of InFlight; 0 until known
	Saturated            bool     // over 8 times that
	Share                float64  // that WeightFeedback leaves it; 1: all
	Version              uint64
	RetryAfter           time.Duration `json:"RetryAfter_ns"` // an Overload's
	FailedProbes         int           // in a row
	LastProbe            time.Duration `json:"LastProbe_ns"` // age of the last result; 0: none
}

// WorkerLane is one worker on one lane.
type WorkerLane struct {
	Phase      string
	Share      float64       // of its normal traffic that penalties leave it
	Until      time.Duration `json:"Until_ns"` // the rest of a cooldown
	Backoff    int           // cooldowns in a row that doubled
	Latency    time.Duration `json:"Latency_ns"` // expected now, before load
	Score      float64       // live cost score without load, 0..100
	LastAnswer time.Duration `json:"LastAnswer_ns"` // age; 0: none yet
	RTT        RTTStats
	Failures   uint64
	Unknown    uint64  // errors the Classifier does not know
	ErrorRate  float64 // of Failures, fading over some seconds; Unknown errors are not in it
}

// Status returns a copy of the present state; about 20 us a worker.
func (r *Router) Status() Status {
	now := r.now() // the caller's code, so not under mu
	canary, shadow := r.Canary(), r.ShadowStatus()
	r.mu.Lock()
	defer r.mu.Unlock()
	sn := r.snap.Load()
	c, w := &r.counters, &r.watching
	s := Status{Name: r.name, Time: r.wall(now), Closed: sn.closed, TopologyEpoch: sn.topology.Epoch,
		TopologyVersion: sn.topology.Version, TopologyAge: time.Duration(max(now-sn.topologyAt, 0)),
		LowConfidence: sn.lowConfidence, TuningVersion: sn.tuningVersion,
		SnapshotAge: time.Duration(max(now-sn.published, 0)), FoldTime: time.Duration(r.foldTook.Load()), MaxOut: int(r.out[0].max.Load()),
		Read: r.laneStatus(sn, laneRead), Write: r.laneStatus(sn, laneWrite),
		NoWorker: c.noWorker.Load(), Relaxed: c.relaxed.Load(), Trips: c.trips.Load(), Leaked: c.expired.Load(),
		LateDone: c.lateDone.Load(), DoubleDone: c.doubleDone.Load(), Untracked: c.untracked.Load(), Deadlines: c.deadlines.Load(),
		StaleRefs: c.staleRefs.Load(), Oversized: c.oversized.Load(), UnknownIDs: c.unknownIDs.Load(),
		BadScores: c.badScores.Load(), PlugPanics: c.plugPanics.Load(), HookPanics: r.panics.Load(),
		HooksDropped: r.dropped.Load(), ClockRebased: c.rebased.Load(), ProbesAsked: c.probesAsked.Load(), ProbesFailed: c.probesFailed.Load(),
		Verdicts: map[string]uint64{}, Reports: map[string]uint64{},
		RetriesBanked: r.retries.banked(), HedgesBanked: r.hedge.tokens.banked(), HedgeFactor: r.hedge.factor(&sn.coef.tuning),
		Hedges: r.hedge.sent.Load(), HedgesWon: r.hedge.won.Load(),
		Saturated: c.saturated.Load(), Tries: c.tries.Load(), Scores: w.levels, HotShare: w.hot, LoadDeviation: w.deviation,
		SelfCheck: SelfCheck{w.check.rho, w.check.used, w.check.bad}, Flaps: slices.Clone(w.flaps), Canary: canary, Shadow: shadow}
	if r.log != nil {
		s.LogDropped = r.log.dropped.Load()
	}
	for v := range c.verdicts {
		if n := c.verdicts[v].Load(); n > 0 {
			s.Verdicts[Verdict(v).String()] = n
		}
	}
	for v := range c.reports {
		if n := c.reports[v].Load(); n > 0 {
			s.Reports[ReportReason(v).String()] = n
		}
	}
	s.Picks = r.retiredPicks
	for _, slot := range sn.live {
		w := workerStatus(sn, slot, now)
		s.Picks += w.Picks
		if w.Stale {
			s.Stale++
		}
		s.Workers = append(s.Workers, w)
	}
	for _, p := range r.scorers {
		if p.off() {
			s.PlugsOff = append(s.PlugsOff, "scorer "+p.name)
		}
	}
	for _, p := range r.filters {
		if p.off() {
			s.PlugsOff = append(s.PlugsOff, "filter "+p.name)
		}
	}
	if r.picker != nil && r.picker.off() {
		s.PlugsOff = append(s.PlugsOff, "picker "+r.picker.name)
	}
	if sh := r.shadowed.Load(); sh != nil && sh.scorer != nil && sh.scorer.off() {
		s.PlugsOff = append(s.PlugsOff, "shadow scorer "+sh.scorer.name)
	}
	s.Warnings = r.warnings(&s, sn)
	return s
}

// leakAlarm is the share of picks never closed from which it shows: a lost
// Observe in a thousand costs 30 % of p99 (docs/policy.md).
const leakAlarm = 0.0005

// unknownAlarm is the share of ends that say nothing from which it shows.
const unknownAlarm = 0.01

func (r *Router) warnings(s *Status, sn *snapshot) []string {
	w := sn.coef.tuning.Warnings()
	for i, p := range r.scorers {
		if sn.coef.tuning.ScorerWeights[i] < 0 && sn.coef.tuning.drowns(p.weight) {
			w = append(w, sn.coef.tuning.drownWarning("scorer "+p.name, p.weight))
		}
	}
	if s.Leaked > 0 && float64(s.Leaked) > leakAlarm*float64(s.Picks) {
		w = append(w, fmt.Sprintf("%d of %d reservations were never closed: every Choice needs one Done", s.Leaked, s.Picks))
	}
	if n := s.Verdicts[Unknown.String()]; float64(n) > unknownAlarm*float64(s.Picks) {
		w = append(w, fmt.Sprintf("%d of %d requests ended in errors the Classifier does not know: WithClassifier says what they mean", n, s.Picks))
	}
	if float64(s.Deadlines) > unknownAlarm*float64(s.Picks) {
		w = append(w, fmt.Sprintf("%d of %d requests ended at a deadline of the caller's before RequestTimeout (%v), which is no failure: set it to your real time-out",
			s.Deadlines, s.Picks, sn.coef.tuning.RequestTimeout))
	}
	if s.SelfCheck.Alarmed {
		w = append(w, r.watching.check.text())
	}
	for _, f := range s.Flaps {
		w = append(w, f.String())
	}
	if r.watching.alarmed {
		w = append(w, saturatedText)
	}
	if s.Shadow.Alarmed {
		w = append(w, fmt.Sprintf("the shadow's scores differ by %.1f %%", s.Shadow.ScoreGap*100))
	}
	if (s.Canary.State == CanaryRunning || s.Canary.State == CanaryPassed) && s.Canary.Verdict == Worse {
		w = append(w, "canary "+s.Canary.Name+" does worse: "+s.Canary.Reason)
	}
	if s.LowConfidence {
		w = append(w, fmt.Sprintf("topology %d.%d is %v old, past its TTL of %v", s.TopologyEpoch, s.TopologyVersion,
			s.TopologyAge.Round(time.Millisecond), sn.topology.TTL))
	}
	return w
}

func (r *Router) laneStatus(sn *snapshot, ln int) LaneStatus {
	f := &sn.fleet[ln]
	return LaneStatus{Mean: time.Duration(f.mean), Samples: f.n, Cooldown: int(r.out[ln].n.Load())}
}

func workerStatus(sn *snapshot, slot uint16, now int64) WorkerStatus {
	col := &sn.cols[slot]
	n, st, cold := col.node, col.st, col.st.cold
	rep := cold.report()
	w := WorkerStatus{ID: n.ID, Addr: n.Addr, Zone: n.Zone, Rack: n.Rack, Role: n.Role.String(), State: cold.state.String(),
		Weight: n.Weight, InFlight: st.inFlight(), Picks: st.issued.Load(), Leaked: cold.leaks,
		Read: workerLane(sn, col, laneRead, now), Write: workerLane(sn, col, laneWrite, now),
		Stale: col.flags&flagStale != 0, Unconfirmed: col.flags&flagUnconfirmed != 0,
		UsualInFlight: cold.watch.median, Saturated: col.flags&flagSaturated != 0, Share: cold.watch.share(),
		Version: rep.Version.Or(0), RetryAfter: time.Duration(max(st.retryAt.Load()-now, 0))}
	w.FailedProbes = cold.probe.fails
	if cold.probe.result > 0 {
		w.LastProbe = time.Duration(max(now-cold.probe.result, 1))
	}
	if cold.taken > 0 {
		w.ReportAge = time.Duration(max(now-cold.taken, 1))
	}
	for _, f := range []struct {
		on   Opt[bool]
		name string
	}{{rep.Compacting, "compacting"}, {rep.Repairing, "repairing"}, {rep.Recovering, "recovering"},
		{rep.ReadOnly, "read-only"}, {rep.HealthFailed, "health check failed"}} {
		if f.on.Or(false) {
			w.Flags = append(w.Flags, f.name)
		}
	}
	return w
}

func workerLane(sn *snapshot, col *column, ln int, now int64) WorkerLane {
	st, c := col.st, sn.coef
	ls, cl := &st.lane[ln], &st.cold.lane[ln]
	p := ls.pen.load()
	share, _ := p.share(now, &c.rules)
	if st.retryAt.Load() > now {
		share = 0
	}
	if col.flags&flagUnconfirmed != 0 {
		share *= c.tuning.StaleFactor
	}
	lat := c.latency(ls, float64(col.base[ln]), st.busy.Load(), uint64(st.inFlight()), now)
	w := WorkerLane{Phase: p.shown().String(), Share: share, Backoff: max(p.level()-1, 0), Latency: nanos(lat),
		Score: points(lat * float64(col.pre) * sn.fleet[ln].bare), RTT: st.answers(ln),
		Failures: st.failed[ln].Load(), Unknown: st.unknown[ln].Load()}
	if p.phase() == Cooldown {
		w.Until = time.Duration(max(p.at()-now, 0))
	}
	if word := ls.lat.Load(); word != 0 {
		w.LastAnswer = time.Duration(max(ageOf(word, now), 1))
	}
	if cl.answers > 0 {
		w.ErrorRate = min(cl.failures/cl.answers, 1) // Broken counts on both lanes, the answer on one
	}
	return w
}
