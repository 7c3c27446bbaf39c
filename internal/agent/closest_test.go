package agent_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
)

func TestClosest(t *testing.T) {
	names := []string{"ledger_read", "payments_send", "payments_refund", "fs_move_file", "look"}
	for asked, want := range map[string][]string{
		"Ledger.Read":                {"ledger_read"},
		"billing.look":               {"look"},
		"payments_sned":              {"payments_send", "payments_refund"},
		"move_file":                  {"fs_move_file"},
		"...":                        {},
		strings.Repeat("look", 1000): {},
	} {
		require.Equal(t, want, agent.Closest(asked, names), asked)
	}
	require.Len(t, agent.Closest("payments", []string{"payments_a", "payments_b", "payments_c", "payments_d"}), 3)
	require.Equal(t, []string{"a_b", "x_a_b"}, agent.Closest("A.B", []string{"x_a_b", "a_b"}), "the best first")
}
