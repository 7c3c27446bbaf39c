package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/module"

	"github.com/countersign/countersign/internal/lambdafn"
)

// A project of a published version depends on that version, has its sums, and names neither the sample nor a checkout.
func TestProjectOfAVersion(t *testing.T) {
	library := module.Version{Path: lambdafn.ModulePath, Version: "v1.2.3"}
	p := project{module: "example.com/acme/desk", sum: "h1:zip=", library: library}
	files, err := p.files()
	require.NoError(t, err)
	require.Contains(t, string(files["go.mod"]), "module example.com/acme/desk\n")
	require.Contains(t, string(files["go.mod"]), "\nrequire "+lambdafn.ModulePath+" v1.2.3\n")
	require.NotContains(t, string(files["go.mod"]), "replace")
	require.Contains(t, string(files["go.sum"]), "\n"+lambdafn.ModulePath+" v1.2.3 h1:zip=\n"+lambdafn.ModulePath+" v1.2.3/go.mod h1:")
	for file, data := range files {
		require.NotContains(t, string(data), "internal/scaffold", file)
		require.NotContains(t, string(data), "my-agents", file)
	}
	for _, file := range []string{"template.yaml", "statemachine/agent.asl.json"} { // whose tests hold for the copy, too
		want, err := os.ReadFile(filepath.Join("../../..", file))
		require.NoError(t, err)
		require.Equal(t, string(want), string(files[file]))
	}
}

// A project that cannot be written whole leaves the place as it was.
func TestWriteProjectLeavesNothingBehind(t *testing.T) {
	beside := t.TempDir()
	dir := filepath.Join(beside, "new")
	broken := map[string][]byte{"a": nil, "a/b": nil, "c": nil} // a is a file and a folder
	require.Error(t, writeProject(dir, broken))
	require.Error(t, writeProject(beside, broken))
	entries, err := os.ReadDir(beside)
	require.NoError(t, err)
	require.Empty(t, entries)

	require.NoError(t, writeProject(dir, map[string][]byte{"a/b": []byte(strings.Repeat("x", 3))}))
	info, err := os.Stat(filepath.Join(dir, "a"))
	require.NoError(t, err)
	require.Equal(t, "drwxr-xr-x", info.Mode().String())
	require.ErrorIs(t, writeProject(dir, nil), errNotEmpty)
}
