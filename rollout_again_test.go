package ringwise

import (
	"strings"
	"testing"
	"time"

	"github.com/ringwise/ringwise/keyspec"
	"github.com/stretchr/testify/require"
)

// TestCanary_RollBackOutlastsAnother: a canary that was started and rolled
// back in between takes nothing from the promotion before it; a Retune does.
func TestCanary_RollBackOutlastsAnother(t *testing.T) {
	var told []string
	g := newRig(t, 3, WithHooks(Hooks{Alarm: func(a Alarm) { told = append(told, a.Text) }}))
	first := g.Tuning()
	candidate := first
	candidate.LoadWeight++
	require.NoError(t, g.StartCanary(CanaryConfig{Name: "one", Tuning: candidate}))
	require.NoError(t, g.Promote())
	require.NoError(t, g.StartCanary(CanaryConfig{Name: "two", Tuning: first}))
	require.NoError(t, g.RollBack())
	require.Equal(t, candidate, g.Tuning())
	told = nil
	require.NoError(t, g.RollBack())
	require.Equal(t, first, g.Tuning())
	require.Equal(t, "one rolled back: after its promotion", strings.Join(told, "\n"))
	require.Equal(t, "two", g.Canary().Name, "which ended by itself")
	require.Equal(t, "by RollBack", g.Canary().Reason)
	require.ErrorIs(t, g.RollBack(), ErrCanary)

	require.NoError(t, g.StartCanary(CanaryConfig{Tuning: candidate}))
	require.NoError(t, g.Promote())
	require.NoError(t, g.Retune(first))
	require.NoError(t, g.StartCanary(CanaryConfig{Tuning: candidate}))
	require.NoError(t, g.RollBack())
	require.ErrorIs(t, g.RollBack(), ErrCanary, "there was a Retune")
}

// TestCanary_SpellingsShareAGroup: two spellings that the parser takes for one
// key are in one group, as they are in one place.
func TestCanary_SpellingsShareAGroup(t *testing.T) {
	spec, err := keyspec.New(keyspec.Options{Fold: true})
	require.NoError(t, err)
	g := newRig(t, 3, WithKeyParser(spec))
	require.NoError(t, g.StartCanary(CanaryConfig{Tuning: g.Tuning(), Steps: halves(time.Hour)}))
	in := 0
	for i := range 200 {
		key := "acme:order:" + strings.Repeat("a", i)
		var is [3]bool
		for j, q := range []Request{{Key: key}, {Key: strings.ToUpper(key)}, {KeyBytes: []byte(strings.ToUpper(key))}} {
			c, err := g.Route(q)
			require.NoError(t, err)
			is[j] = c.Canary()
			c.Cancel()
			require.Equal(t, is[j], g.Explain(q).Group == "canary", "Explain agrees")
		}
		require.Equal(t, [3]bool{is[0], is[0], is[0]}, is, key)
		if is[0] {
			in++
		}
	}
	require.InDelta(t, 100, in, 40)
}
