package ringwise

import "github.com/ringwise/ringwise/hotkey"

// Capability matches what a request needs to what a worker is: a write to a
// write-hot key leans to fast disks, a large request to bandwidth, a key that is not
// hot to slow disks, which leaves the fast ones to the hot. Heat comes from
// WithHotKeys, the rest from Worker; without either, and for all other
// requests, there is no signal. Where two needs apply, their mean counts.
//
//	write-hot key    IOFast 100, IONormal 60, IOSlow 20
//	large request    100 x bandwidth / that of the widest candidate
//	cold key         IOSlow 100, IONormal 80, IOFast 60
type Capability struct {
	// Large is from which Request.Size on a request is large, in units.
	// Default 8.
	Large uint32
}

// Name is "capability".
func (Capability) Name() string { return "capability" }

// By IOClass from IOUnknown; 0 is not known.
var (
	hotDisks  = [...]float64{IOUnknown: 0, IOSlow: 20, IONormal: 60, IOFast: 100}
	coldDisks = [...]float64{IOUnknown: 0, IOSlow: 100, IONormal: 80, IOFast: 60}
)

// Score rates each candidate.
func (s Capability) Score(v *View, out []float64) {
	for i := range out {
		var t tally
		if s.rate(v, i, &t) {
			out[i] = t.total
		}
	}
}

// Lines is a line for each need.
func (s Capability) Lines(v *View, i int) []Line {
	t := tally{keep: true}
	s.rate(v, i, &t)
	return t.lines
}

func (s Capability) rate(v *View, i int, t *tally) bool {
	w := v.Worker(i)
	disk, name := 0.0, ""
	switch kind, known := v.Heat(); {
	case !known:
	case kind == hotkey.WriteBurst || kind == hotkey.WriteSustained:
		disk, name = hotDisks[w.IO], "disk for a write-hot key"
	case kind == hotkey.Cold:
		disk, name = coldDisks[w.IO], "disk for a cold key"
	}
	width, large := 0.0, s.Large
	if large == 0 {
		large = 8
	}
	if v.Size() >= large && w.Bandwidth > 0 {
		for k := range v.n {
			width = max(width, float64(v.Worker(k).Bandwidth))
		}
		width = 100 * float64(w.Bandwidth) / width
	}
	share := 1.0
	if disk > 0 && width > 0 {
		share = 0.5
	}
	if disk > 0 {
		t.add(name, float64(w.IO), ioName, share*disk)
	}
	if width > 0 {
		t.add("bandwidth for a large request", float64(w.Bandwidth), asNumber, share*width)
	}
	return disk > 0 || width > 0
}

func ioName(x float64) string { return nameOf(ioNames[:], int(x)) }

var ioNames = [...]string{"unknown", "slow", "normal", "fast"}
