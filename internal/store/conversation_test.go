package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// Everything that was said can be read, whoever's journal it is in, each message once, in order; what has left is marked and counts no more.
func TestConversation(t *testing.T) {
	onEach(t, func(t *testing.T, table store.Table) {
		j := store.NewJournal(table, 0)
		first := evicting(t, j, 10)
		whole := func(s *run.AgentState, messages int) []policy.Spoken {
			all, err := j.Conversation(t.Context(), acme, s)
			require.NoError(t, err)
			require.Len(t, all, messages)
			ids := map[string]int{}
			for i, m := range all {
				require.Equal(t, i < int(s.EvictedMessages), m.Evicted, i)
				switch b := m.Block.(type) {
				case run.ToolUse:
					ids[b.ID]++
				case run.ToolResult:
					require.Equal(t, 1, ids[b.ID])
				}
			}
			require.Equal(t, run.Text{Text: "Begin."}, all[0].Block)
			return all
		}
		all := whole(&first, 1+2*10)
		require.Positive(t, first.EvictedMessages)
		require.EqualValues(t, 4, all[0].SeenCount, "it was in four inferences, and left with the fifth")

		second := (&story{t: t, j: j, s: first}).next("r2")
		second.commit(
			run.Evicted{Total: second.s.EvictedMessages + 2, Summary: "more was said"},
			run.Replied{Inference: 1, Model: "m", Requests: 1, Text: "Yes."},
		)
		require.Equal(t, "more was said", second.s.Summary)
		require.Equal(t, first.EvictedMessages+2, second.s.EvictedMessages)
		again := whole(&second.s, 1+2*10+1+1+1)
		require.Equal(t, all[0].SeenCount, again[0].SeenCount)
	})
}
