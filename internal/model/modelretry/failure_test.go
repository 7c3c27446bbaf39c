package modelretry

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClip(t *testing.T) {
	require.Equal(t, "stop", Clip("stop"))
	require.Equal(t, strings.Repeat("x", 128), Clip(strings.Repeat("x", 500)))
	require.Equal(t, strings.Repeat("é", 63), Clip("x" + strings.Repeat("é", 100))[1:])
}
