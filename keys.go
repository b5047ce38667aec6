package ringwise

import (
	"time"

	"github.com/ringwise/ringwise/hotkey"
	"github.com/ringwise/ringwise/keyspec"
)

// KindOf is the number of a kind of key, its tenant and entity, the same in
// every process: what HitRate and Fingerprint of a Report are listed by.
func KindOf(tenant, entity string) KeyHash {
	return KeyHash(keyspec.Key{Tenant: tenant, Entity: entity}.Fingerprint())
}

// Kind is the number of the key's tenant and entity (KindOf), as WithKeyParser
// reads them; of Request.Tenant alone where it finds neither; else 0.
func (v *View) Kind() KeyHash { return v.key.kind }

// Entity is the key's entity type; empty without WithKeyParser and where the
// key came as bytes.
func (v *View) Entity() string { return v.key.entity }

// Heat is the key's kind of heat; known is false without WithHotKeys and where
// the request has no key.
func (v *View) Heat() (kind hotkey.Kind, known bool) { return v.key.heat, v.key.heated }

// Time is the wall time of the pick.
func (v *View) Time() time.Time { return v.col(0).node.hub.wall(v.now) }

// Baseline is the fleet's median of a metric, over all workers whose value is
// fresh, at most a second old; false where there is none, and in a Router
// without scorers, which computes none.
func (v *View) Baseline(m Metric) (median float64, known bool) {
	if b := v.sn.base; b != nil && m < metrics {
		return b.median[m], b.known[m]
	}
	return 0, false
}

// history is what the router remembers of kinds, nil where no scorer needs it.
func (v *View) history() *kindHistory { return v.col(0).node.hub.history }

// spreadTo is how many candidates the ring yields instead of n.
func (v *View) spreadTo(n int) int {
	if v.key.heat == hotkey.ReadSustained && v.req.Intent == Read {
		return min(n*v.sn.coef.tuning.HotSpread, MaxCandidates)
	}
	return n
}
