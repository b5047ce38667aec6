package ringwise

import (
	"syscall"
	"testing"
	"time"
)

func cpu() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestCPU(t *testing.T) {
	for _, n := range benchSizes {
		r, keys := benchFleet(t, n)
		const N = 2_000_000
		best := [4]time.Duration{1 << 60, 1 << 60, 1 << 60, 1 << 60}
		for range 5 {
			t0 := cpu()
			for i := range N {
				_ = HashOf(keys[i&(1<<20-1)])
			}
			best[0] = min(best[0], cpu()-t0)
			t0 = cpu()
			for i := range N {
				c, _ := r.Pick(keys[i&(1<<20-1)])
				r.Observe(c, time.Millisecond, nil)
			}
			best[1] = min(best[1], cpu()-t0)
			st := time.Now()
			t0 = cpu()
			for i := range N {
				if i&1023 == 0 {
					st = time.Now()
				}
				c, _ := r.Route(Request{Key: keys[i&(1<<20-1)], Start: st})
				r.Observe(c, time.Millisecond, nil)
			}
			best[2] = min(best[2], cpu()-t0)
			t0 = cpu()
			for range N {
				_ = time.Since(st)
			}
			best[3] = min(best[3], cpu()-t0)
		}
		t.Logf("n=%d hash %v pick+observe %v route(start)+observe %v since %v", n, best[0]/N, best[1]/N, best[2]/N, best[3]/N)
	}
}
