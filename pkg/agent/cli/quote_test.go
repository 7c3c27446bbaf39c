package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuoted(t *testing.T) {
	for in, want := range map[string]string{
		"plain-1.2/x": "plain-1.2/x", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$HOME": "'$HOME'", "a\nb": "'a\nb'",
	} {
		require.Equal(t, want, quoteShell(in))
	}
}
