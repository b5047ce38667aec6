//go:build race

package sim

import "testing"

// plain ends a test under the race detector: the arithmetic of one goroutine
// has nothing for it and takes 11 times as long. CI runs it without, too.
func plain(t *testing.T) {
	t.Helper()
	t.Skip("one goroutine's arithmetic; runs without -race")
}
