package ringwise

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func ringOf(t testing.TB, o RingOptions, ids ...string) *Ring {
	t.Helper()
	ws := make([]Worker, len(ids))
	for i, id := range ids {
		ws[i].ID = id
	}
	r, err := NewRing(ws, o)
	require.NoError(t, err)
	return r
}

func poolMembers(n int) []member {
	members := make([]member, n)
	for i, id := range poolOf(n) {
		members[i] = member{uint16(i), id, 1}
	}
	return members
}

// measuredNames is one of many sets of names of four usual shapes.
func measuredNames(n, set int) []member {
	shape := []string{"kv-%d-%d", "10.%d.0.%d:6379", "node%d.%d.eu.example.com", "s%dw%d"}[set%4]
	members := make([]member, n)
	for i := range members {
		members[i] = member{uint16(i), fmt.Sprintf(shape, set, i), 1}
	}
	return members
}

// ownersOf are the key's owners as worker slots, in a slice of their own.
func ownersOf(r *Ring, h KeyHash) []uint16 {
	var buf [maxReplicas]uint16
	return slices.Clone(r.owners(h, &buf))
}

// ownedSlots counts, by worker slot, the ring slots it owns first.
func ownedSlots(r *Ring) []int {
	owned := make([]int, len(r.ids))
	row := make([]uint16, r.stride)
	for i := range 1 << r.slotBits {
		r.row(i, row)
		owned[row[0]]++
	}
	return owned
}

func maxOverMean(r *Ring) float64 {
	return float64(slices.Max(ownedSlots(r))) * float64(len(r.members)) / float64(int(1)<<r.slotBits)
}

func ringBytes(r *Ring) float64 {
	return float64(4*cap(r.points) + 4*cap(r.first) + 2*cap(r.table) + 4*cap(r.packed) + 16*cap(r.runs) + 16*len(r.ids) + 32*len(r.members))
}

func BenchmarkRingLookup(b *testing.B) {
	keys := make([]string, 1<<20)
	for i := range keys {
		keys[i] = fmt.Sprintf("tenant%d:entity:%08x", i%1000, uint32(i)*2654435761)
	}
	for _, n := range []int{10, 100, 1000} {
		r, err := newRing(poolMembers(n), defaultPoints, defaultSlotBits, 3)
		require.NoError(b, err)
		for _, c := range []struct {
			name string
			mask int
		}{{"hot", 15}, {"random", len(keys) - 1}} {
			b.Run(fmt.Sprintf("workers=%d/%s", n, c.name), func(b *testing.B) {
				b.ReportAllocs()
				dst := make([]Ref, 0, 4)
				i := 0
				for b.Loop() {
					dst = r.Locate(HashOf(keys[i&c.mask]), dst[:0])
					i++
				}
			})
		}
	}
}

func BenchmarkRingWalk(b *testing.B) {
	r, err := newRing(poolMembers(1000), defaultPoints, defaultSlotBits, 3)
	require.NoError(b, err)
	for _, share := range []float64{0, 0.5, 0.99} {
		skip := make([]uint64, 16)
		for i := range int(1000 * share) {
			skip[i>>6] |= 1 << (i & 63)
		}
		b.Run(fmt.Sprintf("down=%v", share), func(b *testing.B) {
			b.ReportAllocs()
			dst := make([]uint16, 0, 8)
			k := uint64(0)
			for b.Loop() {
				k += 0x9e3779b97f4a7c15
				dst = r.walk(KeyHash(k), skip, dst[:0], 4)
			}
		})
	}
}

func BenchmarkRingBuild(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("workers=%d", n), func(b *testing.B) {
			members := poolMembers(n)
			b.ReportAllocs()
			for b.Loop() {
				_, err := newRing(members, defaultPoints, defaultSlotBits, 3)
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkRingChange takes one worker away and back, or its weight up and
// down, in turn.
func BenchmarkRingChange(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10_000} {
		members := poolMembers(n)
		r, err := newRing(members, defaultPoints, defaultSlotBits, 3)
		require.NoError(b, err)
		heavier := slices.Clone(members)
		heavier[n/2].weight = 1.5
		for _, c := range []struct {
			name  string
			other []member
		}{{"member", members[:n-1]}, {"weight", heavier}} {
			b.Run(fmt.Sprintf("workers=%d/%s", n, c.name), func(b *testing.B) {
				b.ReportAllocs()
				next, turn := r, false
				for b.Loop() {
					turn = !turn
					to := members
					if turn {
						to = c.other
					}
					next, err = next.change(to)
					require.NoError(b, err)
				}
			})
		}
	}
}

// BenchmarkPlacementTable prints the table of docs/placement.md, each time the
// best of several, as the machine is shared. It takes minutes:
// go test -run '^$' -bench PlacementTable -benchtime 1x .
func BenchmarkPlacementTable(t *testing.B) {
	const sets = 20
	rnd := rand.New(rand.NewPCG(1, 0))
	keys := randomKeys(rnd, 1<<20)
	var b strings.Builder
	b.WriteString("| points | slot bits | max/mean 10 | 100 | 1000 | build 1000, ms | change at 1000, ms | MB at 1000 | lookup hot, ns | random, ns |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, points := range []int{160, 640, 800, 1000, 1280, 1600, 2000} {
		for _, bits := range []uint{16, 17, 18, 19} {
			fmt.Fprintf(&b, "| %d | %d ", points, bits)
			var r *Ring
			var builds, changes, hot, random []float64
			for _, n := range []int{10, 100, 1000} {
				sum := 0.0
				for set := range sets {
					members := measuredNames(n, set)
					start := time.Now()
					var err error
					r, err = newRing(members, points, bits, 3)
					require.NoError(t, err)
					if n == 1000 {
						builds = append(builds, float64(time.Since(start))/1e6)
						start = time.Now()
						_, err = r.change(members[:n-1])
						require.NoError(t, err)
						changes = append(changes, float64(time.Since(start))/1e6)
					}
					sum += maxOverMean(r)
				}
				fmt.Fprintf(&b, "| %.3f ", sum/sets)
			}
			dst := make([]Ref, 0, 4)
			for range 7 {
				start := time.Now()
				for i := range keys {
					dst = r.Locate(keys[i&15], dst[:0])
				}
				hot = append(hot, float64(time.Since(start))/float64(len(keys)))
				start = time.Now()
				for _, k := range keys {
					dst = r.Locate(k, dst[:0])
				}
				random = append(random, float64(time.Since(start))/float64(len(keys)))
			}
			fmt.Fprintf(&b, "| %.1f | %.1f | %.1f | %.1f | %.1f |\n", slices.Min(builds), slices.Min(changes), ringBytes(r)/1e6, slices.Min(hot), slices.Min(random))
		}
	}
	t.Log("\n" + b.String())
}
