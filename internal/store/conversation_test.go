package store_test

import (
	"testing"
	"time"

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
			all, err := j.Conversation(t.Context(), "default", s)
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

		d := run.NewDraft(first, "w", time.Unix(99, 0))
		require.NoError(t, d.Add(policy.CancelRun("user:ana", "enough")))
		require.NoError(t, j.Append(t.Context(), first, d))
		first = d.Committed()
		from, err := policy.ContinueFrom(&first)
		require.NoError(t, err)
		next := run.NewDraft(run.Seed(first), "w", time.Unix(100, 0))
		require.NoError(t, next.Add(run.RunStarted{
			Tenant: "default", Run: "r2", Agent: "a", Owner: "r2-0", MaxInteractions: 9, From: &from, Messages: []run.UserBlock{{Block: run.Text{Text: "Go on."}}},
		}))
		require.NoError(t, j.Append(t.Context(), run.Seed(first), next))
		second := next.Committed()
		more := run.NewDraft(second, "w", time.Unix(101, 0))
		require.NoError(t, more.Add(run.Evicted{Total: second.EvictedMessages + 2, Summary: "more was said"}, run.Replied{Inference: 1, Model: "m", Requests: 1, Text: "Yes."}))
		require.NoError(t, j.Append(t.Context(), second, more))
		second = more.Committed()
		require.Equal(t, "more was said", second.Summary)
		require.Equal(t, first.EvictedMessages+2, second.EvictedMessages)
		again := whole(&second, 1+2*10+1+1+1)
		require.Equal(t, all[0].SeenCount, again[0].SeenCount)
	})
}
