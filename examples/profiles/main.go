// Command profiles plays the same ten seconds of traffic to twelve simulated
// servers under each profile, side by side. It uses no network, no real time
// and no real chance, so it prints the same each time.
//
//	go run ./examples/profiles
//
// What happens: from 3 to 5 s a quarter of the servers are half as fast; from
// 6 to 8 s one fails every request at once, and says so in its reports. Each
// server keeps the data of its last 12 tenants at hand, of 60; another tenant's
// request takes twice as long. Reports come every 2 s. The last row is a
// profile without live cost, to show why none is shipped like that.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ringwise/ringwise"
)

func main() {
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "profiles: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "profiles:", err)
		os.Exit(1)
	}
}

func run(w io.Writer) error {
	alone := ringwise.ReadHeavy()
	alone.Name = "reports alone"
	alone.Tuning.LiveWeight, alone.Tuning.Temperature = 0, 10

	fmt.Fprintln(w, "profile          hot servers      p50      p99   errors   cache hits")
	for _, p := range []ringwise.Profile{
		ringwise.Default(), ringwise.Classic(), ringwise.ReadHeavy(), ringwise.WriteHeavy(), ringwise.CacheAffinity(), alone,
	} {
		o, err := play(p)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%-15s %10.1f %% %8v %8v %7.2f %% %10.1f %%\n", p.Name, 100*o.hot, o.p50.Round(10*time.Microsecond), o.p99.Round(10*time.Microsecond),
			100*o.errors, 100*o.hits)
	}
	fmt.Fprintln(w, "\nhot servers: share that takes over 1.5 times the mean in a second.")
	return nil
}
