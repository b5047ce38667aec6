package ringwise

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestSmoke(t *testing.T) {
	var ws []Worker
	for i := range 5 {
		ws = append(ws, Worker{ID: fmt.Sprint("w", i)})
	}
	r, err := New(ws)
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	bad := errors.New("x")
	for i := range 30000 {
		c, err := r.Pick(fmt.Sprint("key", i))
		if err != nil {
			t.Fatal(err)
		}
		n[c.ID()]++
		if c.ID() == "w3" {
			c.DoneWith(Outcome{Verdict: Fault, RTT: time.Microsecond, Err: bad})
		} else {
			r.Observe(c, time.Millisecond, nil)
		}
	}
	t.Log(n)
	for _, x := range r.snap.Load().nodes {
		t.Log(x.ID, x.st.inFlight(), x.st.lane[0].pen.load().phase(), x.st.rtt[0].stats())
	}
}
