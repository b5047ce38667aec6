// Package ringwise names, inside the caller's own process, the worker that
// should serve a request.
//
// A key-value client asks before each request and tells how it went:
//
//	r, err := ringwise.New(workers, ringwise.WithReplicas(3))
//	...
//	go r.Run(ctx)
//
//	c, err := r.Pick(key)             // c.ID(), c.Addr()
//	...                               // send the request to c.Addr()
//	r.Observe(c, rtt, err)            // or defer c.Done(err), or Do
//
// A ring of virtual nodes yields the key's candidates; hard filters cut those
// that must not serve; a live cost (what this client has in flight on each,
// how fast each answered a moment ago, how long each has been silent, how
// often each failed) rates the rest; a penalty machine holds back workers
// that fail and lets them back in step by step; a picker names one.
//
// Pick and Observe take no lock and allocate nothing. There is no network
// code and no goroutine of the package's own: Run, if the caller starts it,
// does the work of time, else Observe does.
//
// Use one Router per process and cluster, not one per goroutine or pool: it
// learns from the answers it sees.
package ringwise
