//go:build race

package hotkey

// raceOn: a stream of ten million takes half a minute under the detector.
const raceOn = true
