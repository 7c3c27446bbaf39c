package main

import (
	"os"
	"os/exec"
	"path/filepath"
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

// TestDemo plays testdata/demo.txtar with a PATH that has the programs that the demo's script names, and no other.
func TestDemo(t *testing.T) {
	demo, err := filepath.Abs("../../agents/screenshots/demo.sh")
	require.NoError(t, err)
	testscript.Run(t, testscript.Params{Dir: "testdata", Setup: func(e *testscript.Env) error {
		path := e.Getenv("WORK") + "/path"
		require.NoError(t, os.Mkdir(path, 0o700))
		for _, name := range []string{"sh", "dirname", "rm", "mkdir", "cp", "ls"} {
			program, err := exec.LookPath(name)
			require.NoError(t, err)
			require.NoError(t, os.Symlink(program, filepath.Join(path, name)))
		}
		e.Setenv("PATH", path)
		e.Setenv("LC_ALL", "C")
		e.Setenv("COUNTERSIGN", countersign(t))
		e.Setenv("DEMO", demo)
		return nil
	}})
}
