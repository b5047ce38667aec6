package ringwise

import "math"

// Affinity is a candidate's share, in per cent, of the recent requests for
// the key's kind (View.Kind: tenant and entity), as this client sent them and
// as workers report them. heat = the sum of 0.98^age over the requests of the
// last 60 s, age in seconds; failed requests count too, since they warmed the
// cache as far as they came. A kind that nobody has served, or a request that
// has none (WithKeyParser, Request.Tenant), has no signal, so that first
// requests spread.
//
// The client's own history belongs to the Router: 256 KiB for the 4096 most
// recent pairs of kind and worker. A worker's own count of a kind
// (Report.Fingerprints) stands for requests spread evenly over its last minute;
// the larger of the two heats counts, since it includes this client's.
type Affinity struct{}

// Name is "cache affinity".
func (Affinity) Name() string { return "cache affinity" }

// remembers marks scorers that need the Router's history.
func (Affinity) remembers() {}

func remembers(s Scorer) bool {
	if f, ok := s.(FakeHealth); ok {
		return remembers(f.Of)
	}
	_, ok := s.(interface{ remembers() })
	return ok
}

// reportedHeat is the heat of one request among those of a minute: the mean of
// 0.98^age.
var reportedHeat = (1 - math.Pow(historyCool, 60)) / (-historyLog * 60)

func (Affinity) heat(v *View, i int) float64 {
	kind := v.Kind()
	if kind == 0 {
		return 0
	}
	heat := 0.0
	if h := v.history(); h != nil {
		heat = h.heat(v.now, kind, v.Ref(i).local())
	}
	if n, known := v.FingerprintCount(i, kind); known {
		heat = max(heat, reportedHeat*float64(n))
	}
	return heat
}

// Score is the share of each candidate.
func (s Affinity) Score(v *View, out []float64) {
	sum := 0.0
	for i := range out {
		sum += s.heat(v, i)
	}
	if sum == 0 {
		return
	}
	for i := range out {
		out[i] = min(100*s.heat(v, i)/sum, 100)
	}
}

// Lines is the candidate's heat.
func (s Affinity) Lines(v *View, i int) []Line {
	sum := 0.0
	for k := range v.n {
		sum += s.heat(v, k)
	}
	if sum == 0 {
		return nil
	}
	h := s.heat(v, i)
	return []Line{{"heat of " + asNumber(sum), asNumber(h), min(100*h/sum, 100)}}
}
