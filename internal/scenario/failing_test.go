package scenario

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"github.com/countersign/countersign/internal/hook"
)

var update = flag.Bool("update", false, "rewrite what the scenarios of testdata/failing are told")

// TestFailing: each scenario of testdata/failing fails, at Load or when it is run, with exactly the lines that stand
// before its first file.
func TestFailing(t *testing.T) {
	files, err := filepath.Glob("testdata/failing/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			a := txtar.Parse(data)
			got := problemsOf(filepath.Base(file), data)
			require.NotEmpty(t, got, "it must fail")
			if *update {
				a.Comment = []byte(got)
				require.NoError(t, os.WriteFile(file, txtar.Format(a), 0o600))
			}
			require.Equal(t, string(a.Comment), got)
		})
	}
}

// problemsOf returns the problems of a scenario, a line each.
func problemsOf(name string, data []byte) string {
	s, err := Load(name, data)
	if err != nil {
		return err.Error() + "\n"
	}
	got := ""
	for _, f := range s.Run(Options{}).Failures {
		got += f.String() + "\n"
	}
	return got
}

// TestFailingUnderCrash: what fails as it is is not repeated with crashes.
func TestFailingUnderCrash(t *testing.T) {
	r := loadFile(t, "testdata/failing/wrong-want.txtar", hook.Set{}).Crash(0)
	require.NotEmpty(t, r.Plain.Failures)
	require.Zero(t, r.Runs)
}
