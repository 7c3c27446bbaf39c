package research_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/agents/research"
	"github.com/countersign/countersign/pkg/agent"
)

func call(t *testing.T, which int, args string) agent.Result {
	t.Helper()
	tools, err := research.Tools()
	require.NoError(t, err)
	r, err := tools[which].Call(t.Context(), agent.Call{Args: json.RawMessage(args)})
	require.NoError(t, err)
	return r
}

type hit struct{ Document, Title, Begins string }

func search(t *testing.T, args string) (names []string, all []hit) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(call(t, 0, args).Content), &all))
	for _, h := range all {
		names = append(names, h.Document)
	}
	return names, all
}

func TestSearch(t *testing.T) {
	names, all := search(t, `{"query":"why was the old client of the card gateway replaced"}`)
	require.Len(t, names, 3)
	require.Equal(t, "card-gateway", names[0])
	require.Equal(t, "The card gateway", all[0].Title)
	require.Contains(t, all[0].Begins, "Payments go to the card gateway over one client library.")
	require.NotContains(t, all[0].Begins, "\n")
	require.LessOrEqual(t, len([]rune(all[0].Begins)), 161)
	names, _ = search(t, `{"query":"broken wheel","limit":1}`)
	require.Equal(t, []string{"suppliers"}, names)
	names, _ = search(t, `{"query":"zeppelin"}`)
	require.Empty(t, names)
	require.Equal(t, "[]", call(t, 0, `{"query":"zeppelin"}`).Content)
	require.True(t, call(t, 0, `{"query":"x","limit":11}`).IsError)
	require.True(t, call(t, 0, `{"query":""}`).IsError)
}

func TestRead(t *testing.T) {
	require.Contains(t, call(t, 1, `{"document":"on-call"}`).Content, "# On call\n")
	for _, name := range []string{"none", "../on-call", "on-call.md", ""} {
		r := call(t, 1, `{"document":"`+name+`"}`)
		require.True(t, r.IsError)
		require.Equal(t, "There is no document "+name+".", r.Content)
	}
}
