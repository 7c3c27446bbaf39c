package agent_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

func TestIDs(t *testing.T) {
	// Computed by another implementation: lengths are eight bytes, big-endian.
	require.Equal(t, "rcq4vzcenzajm3bblo4x6nttqs", agent.RunID("default", "refunds", "key-1"))
	require.Equal(t, "aljdoent422niseehe2flx7ud5", run.ApprovalID("r1", "c1", 0))
	require.NotEqual(t, run.ApprovalID("r1", "c1", 0), run.ApprovalID("r1", "c1", 1))
}

var idForm = regexp.MustCompile(`^r[a-z2-7]{25}$`)

func TestNoTwoSplitsCollide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringN(1, 12, -1).Draw(t, "s")
		split := func(name string) [3]string {
			i := rapid.IntRange(0, len(s)).Draw(t, name+"i")
			j := rapid.IntRange(i, len(s)).Draw(t, name+"j")
			return [3]string{s[:i], s[i:j], s[j:]}
		}
		a, b := split("a"), split("b")
		x, y := agent.RunID(a[0], a[1], a[2]), agent.RunID(b[0], b[1], b[2])
		require.Regexp(t, idForm, x)
		require.Equal(t, a == b, x == y)
	})
}

func TestCallID(t *testing.T) {
	longest := strings.Repeat("x", 64)
	for _, tt := range []struct {
		model string
		used  []string
		want  string
	}{
		{"toolu_01-A", nil, "toolu_01-A"},
		{longest, nil, longest},
		{longest + "x", nil, "c3-1"},
		{"a\n", nil, "c3-1"},
		{"é", nil, "c3-1"},
		{"call_0", []string{"call_0", "c3-1"}, "c3-1-2"},
		{"", []string{"c3-1", "c3-1-2"}, "c3-1-3"},
	} {
		used := func(id string) bool { return slices.Contains(tt.used, id) }
		require.Equal(t, tt.want, agent.CallID(tt.model, used, 3, 1), tt.model)
	}
}

func TestValidNames(t *testing.T) {
	forty := strings.Repeat("a", 40)
	for s, want := range map[string]struct{ tenant, agent bool }{
		"default": {true, true}, "a": {true, true}, "0a": {true, false}, "a-1": {true, true}, forty: {true, true},
		forty + "a": {}, "": {}, "-a": {}, "A": {}, "a_b": {}, "a\n": {}, "a#b": {}, "é": {},
	} {
		require.Equal(t, want.tenant, agent.ValidTenant(s), s)
		require.Equal(t, want.agent, agent.ValidAgentName(s), s)
	}
}
