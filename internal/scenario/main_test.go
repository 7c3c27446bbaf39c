package scenario

import (
	"os"
	"runtime/debug"
	"testing"
)

// The corpus makes some thirty thousand small worlds and drops each: collecting less often halves what that costs.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}
