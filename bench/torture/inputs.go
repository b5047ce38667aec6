package torture

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Input is one hostile input. run gives what is wrong with the answer, or
// none if the library refuses it or does what it should.
type Input struct {
	Name string
	What string
	// takes tells whether a library has such an input at all.
	takes func(l library) bool
	run   func(l library) error
}

var (
	any3   = []string{"127.0.0.1:7000", "127.0.0.2:7000", "127.0.0.3:7000"}
	five   = []string{"127.0.0.1:7000", "127.0.0.2:7000", "127.0.0.3:7000", "127.0.0.4:7000", "127.0.0.5:7000"}
	always = func(library) bool { return true }
)

// has makes a takes of what a system of three workers has.
func has(f func(s *system) bool) func(library) bool {
	return func(l library) bool {
		s, err := l.build(setup{ids: any3})
		if err != nil {
			return false
		}
		defer s.stop()
		return f(s)
	}
}

func (s *system) stop() {
	if s.close != nil {
		s.close()
	}
}

func changes(s *system) bool { return s.one != nil && s.add != nil && s.remove != nil }

// name asks for a worker by whichever way there is. It closes what it picks.
func (s *system) name(key string) (string, error) {
	if s.one != nil {
		return s.one(key)
	}
	id, done, err := s.pick(key)
	if err != nil {
		return "", err
	}
	done(nil)
	return id, nil
}

// usable asks for many keys and checks that all names are of these.
func (s *system) usable(ids []string) error {
	for i := range 200 {
		id, err := s.name(fmt.Sprint("key-", i))
		if err != nil {
			return fmt.Errorf("no worker: %w", err)
		}
		if !slices.Contains(ids, id) {
			return fmt.Errorf("%.30q is no worker", id)
		}
		if s.pick != nil {
			id, done, err := s.pick(fmt.Sprint("key-", i))
			if err != nil || !slices.Contains(ids, id) {
				return fmt.Errorf("picks %.30q, %v", id, err)
			}
			done(nil)
		}
	}
	return nil
}

// building makes a run of one setup: refused is fine, built must be usable by
// every worker named in ids.
func building(s setup, ids []string) func(l library) error {
	return func(l library) error {
		sys, err := l.build(s)
		if err != nil {
			return nil // a refusal is the best answer
		}
		defer sys.stop()
		return sys.usable(ids)
	}
}

// nobody is right when there is no worker: an error, not a name.
func nobody(sys *system) error {
	if id, err := sys.name("key"); err == nil && id != "" {
		return fmt.Errorf("names %q", id)
	}
	return nil
}

// shares counts picks, each closed at once by err.
func (s *system) shares(n int, fail func(id string) error) (map[string]int, error) {
	got := map[string]int{}
	for i := range n {
		id, done, err := s.pick(fmt.Sprint("key-", i))
		if err != nil {
			return nil, err
		}
		got[id]++
		spin(s.pace)
		var e error
		if fail != nil {
			e = fail(id)
		}
		done(e)
	}
	return got, nil
}

// spin waits, by sleeping where that is exact enough.
func spin(d time.Duration) {
	if d > time.Millisecond {
		time.Sleep(d)
		return
	}
	for start := time.Now(); time.Since(start) < d; {
	}
}

var errFailed = errors.New("failed")

// built is for inputs that come after the build.
func built(ids []string, f func(sys *system) error) func(l library) error {
	return func(l library) error {
		sys, err := l.build(setup{ids: ids})
		if err != nil {
			return fmt.Errorf("did not build: %w", err)
		}
		defer sys.stop()
		switch {
		case l.coarse:
			sys.pace = 1100 * time.Microsecond
		case sys.clock == nil:
			sys.pace = 100 * time.Microsecond
		}
		return f(sys)
	}
}

func picker(l library) bool { return has(func(s *system) bool { return s.pick != nil })(l) }

func weighty(w ...float64) func(l library) error {
	return func(l library) error {
		// Whoever is refused, or gets next to nothing, is right; the others must get keys.
		sys, err := l.build(setup{ids: any3, weights: w})
		if err != nil {
			return nil
		}
		defer sys.stop()
		got := map[string]int{}
		for i := range 3000 {
			id, err := sys.name(fmt.Sprint("key-", i))
			if err != nil {
				return err
			}
			got[id]++
		}
		total := 0.0
		for _, x := range w {
			if x > 0 {
				total += x
			}
		}
		for i, x := range w {
			due := 3000 * max(x, 0) / total
			if n := float64(got[any3[i]]); !math.IsInf(total, 0) && !math.IsNaN(due) && (n > 3*due+300 || due > 600 && n < due/3) {
				return fmt.Errorf("weights %v give %v of 3000", w, got)
			}
		}
		return nil
	}
}

// reported tells one worker's load and looks at what it gets then.
func reported(load float64, refusalRight bool) func(l library) error {
	return built(any3, func(sys *system) error {
		if _, err := sys.shares(3000, nil); err != nil {
			return err
		}
		err := sys.report(any3[0], load)
		if err != nil && refusalRight {
			if _, err := sys.shares(100, nil); err != nil {
				return err
			}
		}
		deadline := time.Now().Add(300 * time.Millisecond) // reports come with answers, and are folded in by the way
		for time.Now().Before(deadline) {
			if _, err := sys.shares(600, nil); err != nil {
				return err
			}
			if sys.clock == nil {
				time.Sleep(20 * time.Millisecond)
			}
		}
		got, err := sys.shares(3000, nil)
		if err != nil {
			return err
		}
		if n := got[any3[0]]; n < 100 || n > 1500 {
			return fmt.Errorf("a load of %v gives it %d of 3000", load, n)
		}
		return nil
	})
}

// Inputs are the forty.
var Inputs = []Input{
	{"no-workers", "built of no workers, asked for one", always, func(l library) error {
		sys, err := l.build(setup{})
		if err != nil {
			return nil
		}
		defer sys.stop()
		return nobody(sys)
	}},
	{"one-worker-three", "three owners of one worker", has(func(s *system) bool { return s.many != nil }), building1(1, 3)},
	{"more-than-workers", "ten owners of five workers", has(func(s *system) bool { return s.many != nil }), building1(5, 10)},
	{"owners-negative", "minus one owners asked for", has(func(s *system) bool { return s.many != nil }), built(five, func(sys *system) error {
		if got := sys.many("key", -1); len(got) > 0 {
			return fmt.Errorf("gives %d owners", len(got))
		}
		return nil
	})},
	{"empty-id", "a worker without a name", always, building(setup{ids: []string{"127.0.0.1:7000", "", "127.0.0.2:7000"}}, []string{"127.0.0.1:7000", "", "127.0.0.2:7000"})},
	{"huge-id", "a name of a megabyte", always, building(setup{ids: append([]string{strings.Repeat("x", 1<<20)}, any3...)}, append([]string{strings.Repeat("x", 1<<20)}, any3...))},
	{"duplicate-ids", "a worker given twice, three owners asked for", has(func(s *system) bool { return s.many != nil }), func(l library) error {
		sys, err := l.build(setup{ids: []string{"a:1", "b:1", "a:1", "c:1"}})
		if err != nil {
			return nil
		}
		for i := range 300 {
			got := sys.many(fmt.Sprint("key-", i), 3)
			if slices.Sort(got); len(slices.Compact(got)) != 3 {
				return fmt.Errorf("owners %v", got)
			}
		}
		return nil
	}},
	{"duplicate-share", "a worker given twice must not get twice as much", func(l library) bool {
		return steady(l) && l.name != "dgryski/go-jump" // which knows no workers, only how many
	}, func(l library) error {
		ids := append(slices.Clone(five), five[0])
		sys, err := l.build(setup{ids: ids})
		if err != nil {
			return nil
		}
		defer sys.stop()
		plain, err := l.build(setup{ids: five})
		if err != nil {
			return err
		}
		defer plain.stop()
		count := func(s *system) (n float64, err error) {
			for i := range 4000 {
				id, err := s.name(fmt.Sprint("key-", i))
				if err != nil {
					return 0, err
				}
				if id == five[0] {
					n++
				}
			}
			return n, nil
		}
		twice, err := count(sys)
		if err != nil {
			return err
		}
		once, err := count(plain)
		if err != nil {
			return err
		}
		if twice > 1.35*once+100 {
			return fmt.Errorf("it gets %.0f of 4000 instead of %.0f", twice, once)
		}
		return nil
	}},
	{"duplicate-remove", "a worker given twice, then removed", has(changes), func(l library) error {
		sys, err := l.build(setup{ids: []string{"a:1", "b:1", "a:1"}})
		if err != nil {
			return nil
		}
		sys.remove("a:1")
		return sys.usable([]string{"b:1"})
	}},
	{"add-twice-two", "the only worker added twice, two owners asked for", has(func(s *system) bool { return s.many != nil && s.add != nil }), func(l library) error {
		sys, err := l.build(setup{ids: []string{"a:1"}})
		if err != nil {
			return err
		}
		sys.add("a:1")
		if got := sys.many("key", 2); len(got) > 1 {
			return fmt.Errorf("owners %v", got)
		}
		return nil
	}},
	{"remove-last", "the only worker removed", has(changes), built([]string{"a:1"}, func(sys *system) error {
		sys.remove("a:1")
		return nobody(sys)
	})},
	{"remove-unknown", "a worker removed that is not there", has(changes), built(any3, func(sys *system) error {
		sys.remove("127.0.0.1:9999")
		seen := map[string]bool{}
		for i := range 3000 {
			id, err := sys.one(fmt.Sprint("key-", i))
			if err != nil {
				return err
			}
			seen[id] = true
		}
		if len(seen) != 3 {
			return fmt.Errorf("then only %d of 3 get keys", len(seen))
		}
		return nil
	})},
	{"remove-twice", "a worker removed twice", has(changes), built(any3, func(sys *system) error {
		sys.remove(any3[1])
		sys.remove(any3[1])
		seen := map[string]bool{}
		for i := range 3000 {
			id, err := sys.one(fmt.Sprint("key-", i))
			if err != nil {
				return err
			}
			seen[id] = true
		}
		if len(seen) != 2 || seen[any3[1]] {
			return fmt.Errorf("then %d of 2 get keys", len(seen))
		}
		return nil
	})},
	{"names-that-collide", "workers whose names with a number behind or before are those of others", has(changes), func(l library) error {
		ids := []string{"1", "11", "111", "1-1", "2", "21", "12", "0", "10", "01", "1111", "211"}
		sys, err := l.build(setup{ids: ids})
		if err != nil {
			return err
		}
		for _, id := range ids[1:4] {
			sys.remove(id)
		}
		fresh, err := l.build(setup{ids: append([]string{ids[0]}, ids[4:]...)})
		if err != nil {
			return err
		}
		return same(sys, fresh)
	}},
	{"order-of-workers", "the same workers in another order must own the same", func(l library) bool { return l.order }, func(l library) error {
		ids := make([]string, 60)
		for i := range ids {
			ids[i] = fmt.Sprintf("127.0.1.%d:7000", i)
		}
		a, err := l.build(setup{ids: ids})
		if err != nil {
			return err
		}
		slices.Reverse(ids)
		b, err := l.build(setup{ids: ids})
		if err != nil {
			return err
		}
		defer a.stop()
		defer b.stop()
		return same(a, b)
	}},
	{"three-equal", "three equal workers must get about the same: within 20 %", steady, built(any3, func(sys *system) error {
		got := map[string]int{}
		for i := range 30_000 {
			id, err := sys.name(fmt.Sprint("key-", i))
			if err != nil {
				return err
			}
			got[id]++
		}
		for _, id := range any3 {
			if share := float64(got[id]) / 10_000; share > 1.2 || share < 0.8 {
				return fmt.Errorf("shares %d, %d and %d of 30000", got[any3[0]], got[any3[1]], got[any3[2]])
			}
		}
		return nil
	})},
	{"weight-zero", "weights 1, 0, 1", weighed, func(l library) error {
		if l.name == "ringwise" { // 0 is documented as 1
			return weighty(1, 1, 1)(l)
		}
		return weighty(1, 0, 1)(l)
	}},
	{"weight-all-zero", "all weights 0", weighed, building(setup{ids: any3, weights: []float64{0, 0, 0}}, any3)},
	{"weight-negative", "weights 5, -5, 5", weighed, weighty(5, -5, 5)},
	{"weight-nan", "a weight that is not a number", func(l library) bool { return l.floats }, weighty(1, math.NaN(), 1)},
	{"weight-inf", "an infinite weight", func(l library) bool { return l.floats }, weighty(1, math.Inf(1), 1)},
	{"weight-huge", "a weight of 2,000,000", weighed, weighty(1, 2_000_000, 1)},
	{"weight-overflow", "weights whose sum wraps", weighed, weighty(1<<62, 1<<62, 1<<62)},
	{"points-zero", "no virtual nodes", func(l library) bool { return l.points }, building(setup{ids: any3, points: noPoints}, any3)},
	{"points-negative", "minus one virtual nodes", func(l library) bool { return l.points && !l.unsigned }, building(setup{ids: any3, points: -1}, any3)},
	{"points-huge", "2^31-1 virtual nodes a worker", func(l library) bool { return l.points }, building(setup{ids: any3, points: math.MaxInt32}, any3)},
	{"bounded-load-half", "a load factor under 1", func(l library) bool { return l.loads }, building(setup{ids: any3, load: 0.5}, any3)},
	{"empty-key", "the empty key", has(func(s *system) bool { return s.one != nil }), built(any3, func(sys *system) error {
		_, _ = sys.name("")
		return sys.usable(any3)
	})},
	{"huge-key", "a key of 16 MB", has(func(s *system) bool { return s.one != nil }), built(any3, func(sys *system) error {
		if id, err := sys.one(strings.Repeat("k", 16<<20)); err == nil && !slices.Contains(any3, id) {
			return fmt.Errorf("names %q", id)
		}
		return nil
	})},
	{"report-nan", "a load report that is not a number", reports, reported(math.NaN(), true)},
	{"report-inf", "a load report of +Inf", reports, reported(math.Inf(1), true)},
	{"report-negative", "a load report under 0", reports, reported(-0.9, true)},
	{"double-done", "half the requests of a worker closed twice", picker, built(any3, func(sys *system) error {
		for i := range 600 {
			id, done, err := sys.pick(fmt.Sprint("key-", i))
			if err != nil {
				return err
			}
			done(nil)
			spin(sys.pace)
			if id == any3[0] && i%2 == 0 {
				done(nil)
			}
		}
		got, err := sys.shares(3000, nil)
		if err != nil {
			return err
		}
		if n := got[any3[0]]; n < 200 || n > 1500 {
			return fmt.Errorf("it then gets %d of 3000", n)
		}
		return nil
	})},
	{"never-done", "300 requests of a worker never closed, then 3 s", func(l library) bool { return l.live }, built(any3, func(sys *system) error {
		for i, lost := 0, 0; lost < 300 && i < 100_000; i++ {
			id, done, err := sys.pick(fmt.Sprint("key-", i))
			if err != nil {
				return err
			}
			if id == any3[0] {
				lost++
			} else {
				done(nil)
			}
			if sys.clock != nil && i%100 == 0 {
				sys.clock(time.Millisecond)
			}
		}
		if sys.clock != nil {
			for range 300 {
				sys.clock(10 * time.Millisecond)
			}
		} else {
			time.Sleep(3 * time.Second)
		}
		got, err := sys.shares(3000, nil)
		if err != nil {
			return err
		}
		if n := got[any3[0]]; n < 100 {
			return fmt.Errorf("it then gets %d of 3000", n)
		}
		return nil
	})},
	{"fast-failures", "a worker that fails at once must not get more than the others", func(l library) bool { return l.live }, built(any3, func(sys *system) error {
		got, err := sys.shares(3000, func(id string) error {
			if id == any3[0] {
				return errFailed
			}
			return nil
		})
		if err != nil {
			return err
		}
		if n := got[any3[0]]; n > 1100 {
			return fmt.Errorf("it gets %d of 3000", n)
		}
		return nil
	})},
	{"user-code-panics", "the caller's hash, scorer or key function panics", func(l library) bool { return l.plugs }, func(l library) error {
		sys, err := l.build(setup{ids: any3, panics: true})
		if err != nil {
			return nil
		}
		return sys.usable(any3)
	}},
	{"changed-while-used", "four goroutines look up while one changes the workers", func(l library) bool {
		return l.shared && has(changes)(l)
	}, built(five, changedWhileUsed)},
	{"clock-jumps", "the clock goes an hour back and a day on", clocked, built(any3, clockJumps)},
	{"answers-under-1ms", "answers of 50 and of 800 us must be told apart", func(l library) bool {
		return l.live && picker(l) && l.name != "gRPC least_request" // which reads no latency
	}, built(any3, underMillisecond)},
	{"used-after-close", "closed twice, then used", has(func(s *system) bool { return s.close != nil }), func(l library) error {
		sys, err := l.build(setup{ids: any3})
		if err != nil {
			return err
		}
		sys.close()
		sys.close()
		_, _ = sys.name("key")
		return nil
	}},
}

// steady are those that do not go by latencies, which are noise in a loop.
func steady(l library) bool {
	return !l.live || has(func(s *system) bool { return s.one != nil })(l)
}
func clocked(l library) bool { return has(func(s *system) bool { return s.clock != nil })(l) }
func reports(l library) bool { return has(func(s *system) bool { return s.report != nil })(l) }
func weighed(l library) bool { return l.floats || l.ints }

// building1 asks for n owners of the first so many workers.
func building1(workers, n int) func(l library) error {
	return built(five[:workers], func(sys *system) error {
		got := sys.many("key", n)
		all := slices.Compact(slices.Sorted(slices.Values(got)))
		if len(all) != len(got) || len(got) > workers {
			return fmt.Errorf("owners %v", got)
		}
		return nil
	})
}

// same compares owners.
func same(a, b *system) error {
	for i := range 2000 {
		key := fmt.Sprint("key-", i)
		x, err := a.one(key)
		if err != nil {
			return err
		}
		y, err := b.one(key)
		if err != nil {
			return err
		}
		if x != y {
			return fmt.Errorf("%s is at %q in one, at %q in the other", key, x, y)
		}
	}
	return nil
}

// changedWhileUsed is the input that needs goroutines.
func changedWhileUsed(sys *system) error {
	var stop atomic.Bool
	errs := make(chan error, 4)
	for range 4 {
		go func() {
			for i := 0; !stop.Load(); i++ {
				if id, err := sys.one(fmt.Sprint("key-", i)); err != nil || !slices.Contains(five, id) {
					errs <- fmt.Errorf("names %q, %w", id, err)
					return
				}
			}
			errs <- nil
		}()
	}
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		sys.remove(five[2])
		sys.add(five[2])
	}
	stop.Store(true)
	for range 4 {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// clockJumps is for those whose clock can be set: an hour back, an hour on,
// with a worker in cooldown.
func clockJumps(sys *system) error {
	fail := func(id string) error {
		if id == any3[0] {
			return errFailed
		}
		return nil
	}
	if _, err := sys.shares(300, fail); err != nil {
		return err
	}
	for _, d := range []time.Duration{-time.Hour, time.Hour, -time.Hour, 24 * time.Hour} {
		sys.clock(d)
		if _, err := sys.shares(300, nil); err != nil {
			return err
		}
	}
	for range 3000 {
		sys.clock(10 * time.Millisecond)
		if _, err := sys.shares(3, nil); err != nil {
			return err
		}
	}
	got, err := sys.shares(3000, nil)
	if err != nil {
		return err
	}
	if got[any3[0]] < 300 {
		return fmt.Errorf("the worker that had failed gets %d of 3000", got[any3[0]])
	}
	return nil
}

// underMillisecond has one worker answer in 50 us and the others in 800.
func underMillisecond(sys *system) error {
	rtt := func(id string) time.Duration {
		if id == any3[0] {
			return 50 * time.Microsecond
		}
		return 800 * time.Microsecond
	}
	got := map[string]int{}
	for i := range 1500 {
		key := fmt.Sprint("key-", i)
		if sys.rtt != nil {
			id, err := sys.rtt(key, rtt)
			if err != nil {
				return err
			}
			got[id]++
			continue
		}
		id, done, err := sys.pick(key)
		if err != nil {
			return err
		}
		spin(rtt(id))
		done(nil)
		got[id]++
	}
	if got[any3[0]] < 600 {
		return fmt.Errorf("the one that is 16 times as fast gets %d of 1500", got[any3[0]])
	}
	return nil
}
