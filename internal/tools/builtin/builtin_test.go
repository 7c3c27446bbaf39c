package builtin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/tool"
)

func TestTools(t *testing.T) {
	tools, err := Tools(t.TempDir())
	require.NoError(t, err)
	set, err := tool.NewSet(tools...)
	require.NoError(t, err)
	var names []string
	for _, s := range set.Specs() {
		names = append(names, s.Name)
	}
	require.Equal(t, []string{"list_directory", "read_text", "move_file", "extract_text"}, names)

	_, err = Tools("relative")
	require.ErrorContains(t, err, "make built-in tools")
}
