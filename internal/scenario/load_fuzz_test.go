package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzLoad: an archive is a scenario, or every error names it and a line; it never panics.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("../../scenarios/*.txtar")
	require.NoError(f, err)
	for i, name := range files {
		if i%12 == 0 {
			data, err := os.ReadFile(name)
			require.NoError(f, err)
			f.Add(data)
		}
	}
	f.Add([]byte("-- agent.yaml --\n-- agent.yaml --\n"))
	f.Add([]byte("-- want.json --\n{\"status\": \"done\", \"status\": 1}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := Load("x.txtar", data); err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "x.txtar:"), "%v", err)
		}
	})
}
