package ringwise

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Values of the normal and of Student's t from tables.
func TestStats_TailsMatchTables(t *testing.T) {
	for _, x := range []struct{ z, p float64 }{{0, 0.5}, {1.6449, 0.05}, {2.3263, 0.01}, {3.0902, 0.001}} {
		require.InDelta(t, x.p, normalTail(x.z), 1e-5)
		require.InDelta(t, x.z, normalQuantile(x.p), 1e-3)
	}
	for _, x := range []struct{ df, t, p float64 }{{7, 1.895, 0.05}, {7, 2.998, 0.01}, {19, 2.539, 0.01}, {19, 3.579, 0.001}, {60, 3.232, 0.001}} {
		require.InEpsilon(t, x.p, normalTail(studentZ(x.t, x.df)), 0.03, "t %v of %v", x.t, x.df)
		require.InEpsilon(t, x.p, normalTail(-studentZ(-x.t, x.df)), 0.03)
	}
}

// 30 of 1000 against 50 of 1000: z by hand 2.282.
func TestStats_TwoProportions(t *testing.T) {
	require.InDelta(t, 2.282, twoProportions(30, 1000, 50, 1000), 0.001)
	require.InDelta(t, -2.282, twoProportions(50, 1000, 30, 1000), 0.001)
	for _, x := range [][4]float64{{0, 0, 1, 10}, {0, 10, 0, 10}, {10, 10, 10, 10}, {0, 0, 0, 0}} {
		require.Zero(t, twoProportions(x[0], x[1], x[2], x[3]), x)
	}
}

// A bootstrap by drawing again, the plain way, agrees with the one by ranks.
func TestStats_BootstrapMatchesNaive(t *testing.T) {
	rnd := seeded(t, 1)
	var c rttCounts
	samples := make([]float64, 2000)
	for i := range samples {
		d := time.Duration(rnd.ExpFloat64() * 1e6)
		samples[i] = float64(d)
		c[rttBucket(d)]++
	}
	mean, sd := bootstrapQuantile(&c, 0.99, 7)
	var naive []float64
	for range 1000 {
		again := make([]float64, len(samples))
		for i := range again {
			again[i] = samples[rnd.IntN(len(samples))]
		}
		slices.Sort(again)
		naive = append(naive, math.Log(again[len(again)*99/100-1]))
	}
	m, v := 0.0, 0.0
	for _, x := range naive {
		m += x / 1000
	}
	for _, x := range naive {
		v += (x - m) * (x - m) / 999
	}
	require.InDelta(t, m, mean, 0.02)
	require.InEpsilon(t, math.Sqrt(v), sd, 0.2)
	again, _ := bootstrapQuantile(&c, 0.99, 7)
	require.Equal(t, mean, again, "the same counts and seed give the same")
}

func TestStats_BootstrapEdges(t *testing.T) {
	var c rttCounts
	m, sd := bootstrapQuantile(&c, 0.99, 1)
	require.Zero(t, m)
	require.Zero(t, sd)
	for _, d := range []time.Duration{0, time.Millisecond, rttMax, 1 << 62} {
		c = rttCounts{}
		c[rttBucket(d)] = 5000
		m, sd = bootstrapQuantile(&c, 0.99, 1)
		require.InDelta(t, max(math.Log(min(float64(d), float64(rttMax))), 0), m, 3, d)
		require.Less(t, sd, 0.02, d)
	}
}

func TestStats_Spearman(t *testing.T) {
	x := []float64{1, 2, 3, 4, 5}
	require.Equal(t, 1.0, spearman(x, []float64{1, 4, 9, 16, 25}), "by rank alone")
	require.Equal(t, -1.0, spearman(x, []float64{5, 4, 3, 2, 1}))
	require.Zero(t, spearman(x, []float64{7, 7, 7, 7, 7}), "nothing to rank")
	require.InDelta(t, 0.8, spearman(x, []float64{2, 1, 4, 3, 5}), 1e-12)
	require.Equal(t, []float64{0, 1.5, 1.5, 3}, ranks([]float64{1, 2, 2, 3}), "ties share a rank")
}

// However often one looks, no more than alpha is spent.
func TestStats_SpendingSumsToAlpha(t *testing.T) {
	sum := 0.0
	for i := 1; i < 100_000; i++ {
		sum += spent(0.05, i)
	}
	require.InDelta(t, 0.05, sum, 1e-5)
	require.Less(t, sum, 0.05)
}

func TestStats_PairedZ(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 0))
	over := 0
	for range 2000 {
		d := make([]float64, 20)
		for i := range d {
			d[i] = rnd.NormFloat64()
		}
		if _, z := pairedZ(d); z > normalQuantile(0.05) {
			over++
		}
	}
	require.InDelta(t, 100, over, 30, "5 % of 2000")
	_, z := pairedZ([]float64{1, 2, 3})
	require.Zero(t, z, "too few")
}
