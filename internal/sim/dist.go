package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Dist is a distribution of service times with mean 1; a scenario scales it.
// Its zero value is exponential.
type Dist struct {
	// Kind is "exponential" (also ""), "fixed", "lognormal", "bimodal" or "pareto".
	Kind string
	// Shape is, by kind: lognormal, the sigma of the logarithm (default 1);
	// bimodal, how many times longer the long requests are (default 10);
	// pareto, the tail index, above 1 (default 2.2). Others ignore it.
	Shape float64
	// Share is the share of long requests of bimodal, in (0, 1); default 0.05.
	Share float64
}

// Validate names the field that is out of range.
func (d Dist) Validate() error {
	switch d.Kind {
	case "", "exponential", "fixed", "lognormal", "bimodal", "pareto":
	default:
		return fmt.Errorf("sim: service kind %q: want exponential, fixed, lognormal, bimodal or pareto", d.Kind)
	}
	if !(d.Shape >= 0) || math.IsInf(d.Shape, 0) {
		return fmt.Errorf("sim: service shape %v: want a number >= 0", d.Shape)
	}
	if d.Kind == "pareto" && d.Shape != 0 && d.Shape <= 1 {
		return fmt.Errorf("sim: service shape %v of pareto: want > 1, the mean is infinite below", d.Shape)
	}
	if !(d.Share >= 0 && d.Share < 1) {
		return fmt.Errorf("sim: service share %v: want [0, 1)", d.Share)
	}
	return nil
}

// sampler returns the draw function; it is chosen once, outside the loop.
func (d Dist) sampler() func(*rand.Rand) float64 {
	switch d.Kind {
	case "fixed":
		return func(*rand.Rand) float64 { return 1 }
	case "lognormal":
		s := or(d.Shape, 1)
		mu := -s * s / 2
		return func(r *rand.Rand) float64 { return math.Exp(mu + s*r.NormFloat64()) }
	case "bimodal":
		k, p := or(d.Shape, 10), or(d.Share, 0.05)
		short := 1 / (1 - p + p*k)
		return func(r *rand.Rand) float64 {
			if r.Float64() < p {
				return short * k
			}
			return short
		}
	case "pareto":
		a := or(d.Shape, 2.2)
		xm := (a - 1) / a
		return func(r *rand.Rand) float64 { return xm * math.Pow(1-r.Float64(), -1/a) }
	}
	return func(r *rand.Rand) float64 { return r.ExpFloat64() }
}

func or(v, def float64) float64 {
	if v == 0 {
		return def
	}
	return v
}

// mix is the finaliser of splitmix64: a hash of a counter as good as a draw.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// unit maps a hash to [0, 1).
func unit(h uint64) float64 { return float64(h>>11) * (1.0 / (1 << 53)) }
