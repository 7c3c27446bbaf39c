package presets

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/presets.md again")

const document = "../../docs/presets.md"

func TestPage(t *testing.T) {
	page, err := Page()
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(document, []byte(page), 0o644))
	}
	have, err := os.ReadFile(document)
	require.NoError(t, err)
	require.Equal(t, page, string(have), "docs/presets.md is old: go test ./internal/presets -update")
}

// A value that a preset gets and the page does not know is noticed, and so is a line that says nothing where a preset is silent.
func TestPageIsComplete(t *testing.T) {
	columns := []map[string]string{{"batch": `"all"`, "surprise": "1"}}
	require.ErrorContains(t, complete(columns), "say what it means where a preset does not set it")
	all := map[string]string{}
	for _, k := range keys {
		all[k.path()] = "1"
	}
	require.NoError(t, complete([]map[string]string{all}))
	all["surprise"] = "1"
	require.EqualError(t, complete([]map[string]string{all}), "preset page: countersign sets surprise, which the page has no line for")
}
