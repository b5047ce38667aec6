// Rollout changes the coefficients of a running router the careful way: first
// in shadow, then as a canary in steps, then for all, and back by one call.
// A bad candidate is caught on the way and ends by itself.
//
//	go run ./examples/rollout
//
// Servers and clock are simulated, so every run prints the same. The exit
// status is 0 if the bad candidate was rolled back and the good one promoted,
// else 1; 2 for an argument it does not know. It takes a few seconds.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/ringwise/ringwise"
)

func main() {
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "rollout: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	c, err := newCluster()
	if err != nil {
		return err
	}
	r := c.router
	c.play(10 * time.Second)

	// A candidate that looks only at latency: it forgets what is in flight.
	bad := r.Tuning()
	bad.LoadWeight = 0
	bad.Temperature = 0.5

	fmt.Println("\n1. A bad candidate in shadow: scored beside the live one, never used.")
	if err := r.Shadow(ringwise.ShadowConfig{Tuning: &bad, Share: 0.05}); err != nil {
		return err
	}
	c.play(20 * time.Second)
	c.printShadow()

	fmt.Println("\n2. The same as a canary, alarm or not.")
	if err := r.StartCanary(canary("by latency alone", bad)); err != nil {
		return err
	}
	c.follow(2 * time.Minute)
	c.printCanary()
	if s := r.Canary(); s.State != ringwise.CanaryRolledBack {
		return fmt.Errorf("the bad candidate is %s, want %s", s.State, ringwise.CanaryRolledBack)
	}

	// A candidate that spreads a little more.
	good := r.Tuning()
	good.LoadWeight = 3

	fmt.Println("\n3. A good candidate: first in shadow.")
	if err := r.Shadow(ringwise.ShadowConfig{Tuning: &good, Share: 0.05}); err != nil {
		return err
	}
	c.play(10 * time.Second)
	c.printShadow()
	if err := r.Shadow(ringwise.ShadowConfig{}); err != nil { // ends it
		return err
	}

	fmt.Println("\n4. Then as a canary: flagged requests, a tenant, 5 %, 30 %.")
	if err := r.StartCanary(canary("more spread", good)); err != nil {
		return err
	}
	c.follow(5 * time.Minute)
	c.printCanary()
	if s := r.Canary(); s.State != ringwise.CanaryPassed {
		return fmt.Errorf("the good candidate is %s (%s), want %s", s.State, s.Reason, ringwise.CanaryPassed)
	}

	fmt.Println("\n5. Promoted by one call, and back by another.")
	if err := r.Promote(); err != nil {
		return err
	}
	fmt.Printf("   LoadWeight %g, coefficients version %d\n", r.Tuning().LoadWeight, r.Status().TuningVersion)
	if err := r.RollBack(); err != nil {
		return err
	}
	fmt.Printf("   LoadWeight %g, coefficients version %d\n", r.Tuning().LoadWeight, r.Status().TuningVersion)
	c.play(time.Second)
	return nil
}

// canary has short steps, for the demo: a real one lasts minutes.
func canary(name string, t ringwise.Tuning) ringwise.CanaryConfig {
	return ringwise.CanaryConfig{
		Name: name, Tuning: t, Tenants: []string{"friends"},
		Steps: []ringwise.CanaryStep{
			{MinTime: 5 * time.Second},
			{Tenants: true, MinTime: 5 * time.Second},
			{Tenants: true, Share: 0.05, MinTime: 20 * time.Second},
			{Tenants: true, Share: 0.30, MinTime: 20 * time.Second},
		},
	}
}

func (c *cluster) printShadow() {
	s := c.router.ShadowStatus()
	fmt.Printf("   %d picks scored twice: same worker in %.0f %%, scores %.1f %% apart, alarm %v\n",
		s.Picks, s.Agreement*100, s.ScoreGap*100, s.Alarmed)
}

func (c *cluster) printCanary() {
	s := c.router.Canary()
	fmt.Printf("   %s in step %d of %d after %v: %s\n", s.State, s.Step, s.Steps, s.StepTime.Round(time.Second), s.Verdict)
	fmt.Printf("   %-10s %12s %12s\n", "", "control", "canary")
	fmt.Printf("   %-10s %12d %12d\n", "picks", s.Control.Picks, s.Canary.Picks)
	for _, m := range s.Measures {
		worse := ""
		if m.Worse {
			worse = "  worse"
		}
		if m.Name == "p99" {
			fmt.Printf("   %-10s %12v %12v%s\n", m.Name, time.Duration(m.Control).Round(10*time.Microsecond),
				time.Duration(m.Canary).Round(10*time.Microsecond), worse)
			continue
		}
		fmt.Printf("   %-10s %11.2f%% %11.2f%%%s\n", m.Name, m.Control*100, m.Canary*100, worse)
	}
}
