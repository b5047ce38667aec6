//go:build race

package ringwise_test

// underRace tells that the race detector runs, which makes the simulator ten
// times slower: the closed-loop tests then play a part of their cases.
const underRace = true
