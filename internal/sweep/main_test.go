package main

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain collects garbage less often: a sweep makes many thousand short-lived simulations, and that halves the cost.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}
