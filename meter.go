package ringwise

// maxMetrics is how many metrics a meter tells apart.
const maxMetrics = 16

// A meter holds the windows of one worker's reported metrics, by number. A
// metric that never was reported has none, so a worker costs about 520 bytes
// for each one it does report, and never more than maxMetrics of them. The
// caller holds whatever serialises its writers.
type meter struct {
	metrics [maxMetrics]*meterWindow
	read    readings // as of the last sample of each
}

type meterWindow struct {
	window window60    // for scorers
	smooth clampedEWMA // for weights
}

// readings are what a meter says of each metric at one moment: plain data,
// which a snapshot keeps a copy of.
type readings struct {
	mean, smooth [maxMetrics]float64
	at           [maxMetrics]int64 // ns, of the last sample; 0: never reported
}

// push takes in a sample of metric m, whose values lie span apart, at now.
// One that is not finite changes nothing.
func (m *meter) push(metric int, x, span float64, now int64) {
	w := m.metrics[metric]
	if w == nil {
		w = &meterWindow{}
	}
	if !w.window.push(x) {
		return
	}
	w.smooth.update(x, span, defaultEWMARule)
	m.metrics[metric] = w
	m.read.mean[metric], _ = w.window.mean()
	m.read.smooth[metric], _ = w.smooth.current()
	m.read.at[metric] = max(now, 1)
}
