package sim

// The oracle is the limit: it sees each worker's true queue, speed, pauses and
// faults at the moment of choosing, and takes the shortest expected delay.

type oracle struct{ e *Env }

func newOracle(e *Env) Policy { return &oracle{e} }

func (o *oracle) Pick(_ *Query, cands []int) int {
	best, at := 0.0, -1
	ties := 1
	for i, w := range cands {
		d := o.e.Truth.Delay(w)
		switch {
		case at < 0 || d < best:
			best, at, ties = d, i, 1
		case d == best:
			if ties++; o.e.Rand.IntN(ties) == 0 {
				at = i
			}
		}
	}
	return at
}

func (o *oracle) Done(*Done) {}
