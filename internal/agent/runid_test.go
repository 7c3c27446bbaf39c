package agent_test

import (
	"regexp"
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
		name, model string
		used        []string
		want        string
	}{
		{"the model's", "toolu_01-A", nil, "toolu_01-A"},
		{"the longest", longest, nil, longest},
		{"too long", longest + "x", nil, "c3-1"},
		{"empty", "", nil, "c3-1"},
		{"a dot", "a.b", nil, "c3-1"},
		{"a line break behind", "a\n", nil, "c3-1"},
		{"not ASCII", "é", nil, "c3-1"},
		{"used", "call_0", []string{"call_0"}, "c3-1"},
		{"used, minted too", "call_0", []string{"call_0", "c3-1"}, "c3-1-2"},
		{"used, minted twice", "", []string{"c3-1", "c3-1-2"}, "c3-1-3"},
		{"used, as minted", "c3-1", []string{"c3-1"}, "c3-1-2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			used := func(id string) bool {
				for _, u := range tt.used {
					if u == id {
						return true
					}
				}
				return false
			}
			require.Equal(t, tt.want, agent.CallID(tt.model, used, 3, 1))
		})
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
