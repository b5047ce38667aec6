package ringwise

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Statistics for people who decide on a rollout. Nothing here runs in a pick;
// all of it is deterministic, so that two who look at the same counts read
// the same.

// normalTail is P(Z > z) of a standard normal.
func normalTail(z float64) float64 { return 0.5 * math.Erfc(z/math.Sqrt2) }

// normalQuantile is the z with P(Z > z) = alpha.
func normalQuantile(alpha float64) float64 { return math.Sqrt2 * math.Erfinv(1-2*alpha) }

// twoProportions is the z of the pooled test that the second share, b of nb,
// is over the first, a of na; 0 where one side is empty or nothing differs.
func twoProportions(a, na, b, nb float64) float64 {
	if na <= 0 || nb <= 0 {
		return 0
	}
	p := (a + b) / (na + nb)
	sd := math.Sqrt(p * (1 - p) * (1/na + 1/nb))
	if !(sd > 0) {
		return 0
	}
	return (b/nb - a/na) / sd
}

// studentZ is the normal z that is as unlikely as t with so many degrees of
// freedom, to three digits from 5 on (Wallace, Ann. Math. Stat. 1959).
func studentZ(t float64, df float64) float64 {
	z := (8*df + 1) / (8*df + 3) * math.Sqrt(df*math.Log1p(t*t/df))
	return math.Copysign(z, t)
}

// leastPairs are the fewest differences that pairedZ says anything of.
const leastPairs = 8

// pairedZ tests whether the mean of differences is over zero: Student's t as
// the z of a normal. Under eight there is no saying: 0.
func pairedZ(d []float64) (mean, z float64) {
	n := float64(len(d))
	if n == 0 {
		return 0, 0
	}
	for _, x := range d {
		mean += x / n
	}
	ss := 0.0
	for _, x := range d {
		ss += (x - mean) * (x - mean)
	}
	if n < leastPairs || !(ss > 0) {
		return mean, 0
	}
	return mean, studentZ(mean/math.Sqrt(ss/(n-1)/n), n-1)
}

// bootDraws is how often a quantile is drawn again. The tail that is read off
// them by their mean and deviation, not by counting, is good to 2 % of z.
const bootDraws = 500

// bootstrapQuantile draws the logarithm of a quantile as often as a bootstrap
// would: the k-th of n drawn with replacement has the rank of the k-th of n
// uniform numbers, a Beta(k, n+1-k) (Efron 1979, exact; Maritz and Jarrett
// 1978), so no sample is drawn again, and none is kept: counts are enough.
// Within a bucket values lie evenly. It returns mean and standard deviation;
// without samples both are 0.
func bootstrapQuantile(c *rttCounts, q float64, seed uint64) (mean, sd float64) {
	total := 0.0
	var sum [rttBuckets + 1]float64 // counts below a bucket
	for i, n := range c {
		total += float64(n)
		sum[i+1] = total
	}
	if total == 0 {
		return 0, 0
	}
	rnd := rand.New(rand.NewPCG(seed, 0x626f6f74))
	k := math.Ceil(q * total)
	m2 := 0.0
	for i := range bootDraws {
		a, b := gammaDraw(rnd, k), gammaDraw(rnd, total+1-k)
		rank := a / (a + b) * total
		j := min(max(sortedIndex(sum[:], rank), 0), rttBuckets-1)
		low, width := rttBounds(uint(j))
		in := 0.5
		if n := sum[j+1] - sum[j]; n > 0 {
			in = clamp((rank-sum[j])/n, 0, 1)
		}
		x := math.Log(max(float64(low)+in*float64(width), 1))
		d := x - mean
		mean += d / float64(i+1)
		m2 += d * (x - mean)
	}
	return mean, math.Sqrt(m2 / (bootDraws - 1))
}

// sortedIndex is the last i with sum[i] <= x and something in bucket i.
func sortedIndex(sum []float64, x float64) int {
	i, _ := slices.BinarySearch(sum, x)
	for i > 0 && (i >= len(sum)-1 || sum[i] > x || sum[i+1] == sum[i]) {
		i--
	}
	return i
}

// gammaDraw is a Gamma(shape, 1) for shapes of 1 and over (Marsaglia and
// Tsang, ACM TOMS 2000).
func gammaDraw(rnd *rand.Rand, shape float64) float64 {
	d := max(shape, 1) - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rnd.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v *= v * v
		if u := rnd.Float64(); math.Log(1-u) < 0.5*x*x+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

// spearman is the rank correlation of two columns, ties at their mean rank; 0
// where one of them is all the same.
func spearman(x, y []float64) float64 {
	return pearson(ranks(x), ranks(y))
}

func pearson(x, y []float64) float64 {
	n := float64(len(x))
	mx, my := 0.0, 0.0
	for i := range x {
		mx, my = mx+x[i]/n, my+y[i]/n
	}
	xy, xx, yy := 0.0, 0.0, 0.0
	for i := range x {
		xy += (x[i] - mx) * (y[i] - my)
		xx += (x[i] - mx) * (x[i] - mx)
		yy += (y[i] - my) * (y[i] - my)
	}
	if !(xx > 0 && yy > 0) {
		return 0
	}
	return clamp(xy/math.Sqrt(xx*yy), -1, 1)
}

func ranks(x []float64) []float64 {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case x[a] < x[b]:
			return -1
		case x[a] > x[b]:
			return 1
		}
		return 0
	})
	out := make([]float64, len(x))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && x[order[j]] == x[order[i]] {
			j++
		}
		for _, k := range order[i:j] {
			out[k] = float64(i+j-1) / 2
		}
		i = j
	}
	return out
}

// spent is what the look number i (from 1) may use up of alpha: 6/(pi^2 i^2)
// of it, which sums to alpha over however many looks (alpha spending: Lan and
// DeMets, Biometrika 1983, by the union bound, so without an assumption on how
// the looks hang together).
func spent(alpha float64, i int) float64 {
	return alpha * 6 / (math.Pi * math.Pi * float64(i) * float64(i))
}
