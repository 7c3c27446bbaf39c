package main

import (
	"os/exec"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
)

// TestMain makes this test binary the command itself where it is started as countersign, so that no test builds it.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"countersign": main})
}

// countersign is the path of the command.
func countersign(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("countersign")
	require.NoError(t, err)
	return path
}
