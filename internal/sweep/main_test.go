package sweep

import (
	"os"
	"runtime/debug"
	"testing"
)

// The sweep makes many thousand small worlds and drops each: collecting less often halves what that costs.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	os.Exit(m.Run())
}
