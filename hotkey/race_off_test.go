//go:build !race

package hotkey

const raceOn = false
