package sim

import (
	"testing"
	"time"
)

func TestQuantile_NearestRank(t *testing.T) {
	s := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for _, c := range []struct {
		p    float64
		want int64
	}{{0, 1}, {0.1, 1}, {0.11, 2}, {0.5, 5}, {0.99, 10}, {1, 10}} {
		if got := quantile(s, c.p); got != c.want {
			t.Errorf("quantile %v: %d, want %d", c.p, got, c.want)
		}
	}
	if quantile(nil, 0.5) != 0 {
		t.Error("no samples: want 0")
	}
	if m, p := meanAndP99(nil); m != 0 || p != 0 {
		t.Errorf("no samples: mean %d, p99 %d", m, p)
	}
}

// TestResult_Shares: two seconds after the warm-up, four workers. In the first
// one of them has over 1.5 times the mean, in the second none.
func TestResult_Shares(t *testing.T) {
	s := DefaultScenario()
	s.Workers, s.Warmup, s.Duration = 4, time.Second, 3*time.Second
	r := newResult(&s, Factory{Name: "x"}, Options{})
	for b := range r.Share {
		copy(r.Share[b], []uint32{1, 1, 1, 1})
		switch {
		case b < 10: // warm-up: not counted
			r.Share[b][3] = 100
		case b < 20:
			r.Share[b][0] = 3 // of 6, mean 1.5: twice the mean
		}
	}
	if got := r.HotShare(); got != 1.0/8 {
		t.Errorf("hot share %v, want one of eight", got)
	}
	// 3*10 + 1*10 of 60 + 40, mean 25.
	if got := r.MaxOverMean(); got != 40.0/25 {
		t.Errorf("max over mean %v, want 1.6", got)
	}
}

func TestResult_FailuresAndLateAnswers(t *testing.T) {
	s := DefaultScenario()
	r := newResult(&s, Factory{Name: "x"}, Options{})
	fast := &request{start: 100, measured: true, over: true}
	r.settled(100+1e6, fast, 0, Failed, 250e6) // fails in 1 ms: counts as 250 ms
	slow := &request{start: 100, measured: true, over: true}
	r.settled(100+250e6, slow, 0, TimedOut, 250e6)
	r.late(slow, 100+400e6) // its answer took 400 ms
	good := &request{start: 100, measured: true, over: true}
	r.settled(100+2e6, good, 0, OK, 250e6)
	r.late(good, 100+900e6) // a loser's answer changes nothing
	early := &request{start: 100}
	r.settled(100+2e6, early, 0, Failed, 250e6)
	if want := []int64{250e6, 400e6, 2e6}; len(r.Latency) != 3 || r.Latency[0] != want[0] || r.Latency[1] != want[1] || r.Latency[2] != want[2] {
		t.Errorf("latencies %v, want %v", r.Latency, want)
	}
	if r.Errors != 2 {
		t.Errorf("%d errors, want 2: the warm-up is not measured", r.Errors)
	}
	r.finish()
	if r.Quantile(1) != 400*ms || r.Mean() != 652*ms/3 {
		t.Errorf("max %v, mean %v", r.Quantile(1), r.Mean())
	}
}
