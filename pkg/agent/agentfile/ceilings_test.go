package agentfile

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// No agent file says what the policies of those are that delegate to it.
func TestNoFileHasCeilings(t *testing.T) {
	for _, text := range []string{"ceilings: [{mode: advisory}]\n", "permission: {ceilings: [{mode: advisory}]}\n"} {
		_, err := Parse("agent.yaml", []byte(minimal+text), registered())
		require.ErrorContains(t, err, "ceilings: got an unknown key, want one of")
	}
}
