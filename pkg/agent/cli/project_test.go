package cli

import (
	"os"
	"path/filepath"
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
