//go:build !race

package sim

import "testing"

func plain(*testing.T) {}
