package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// What has left the conversation is in the pages of its messages, marked, and not in the run.
func TestEvictedMessagesArePaged(t *testing.T) {
	b := newBench(t, pay)
	id := agent.RunID("default", "payer", "evicted")
	s := run.AgentState{}
	for i, events := range [][]run.Event{
		{run.RunStarted{Tenant: "default", Run: id, Agent: "payer", Definition: "d", Owner: "x", MaxInteractions: 9, Messages: []run.UserBlock{{Block: run.Text{Text: "Hello."}}}}},
		{run.Replied{Inference: 1, Model: "m", Requests: 1, Text: "Hello yourself."}},
		{
			run.InputReceived{Slot: 1, ID: "m1", Blocks: []run.UserBlock{{Block: run.Text{Text: "And?"}}}},
			run.Evicted{Total: 1, Summary: "- user: Hello.", Files: []string{"a.txt"}}, run.Replied{Inference: 2, Model: "m", Requests: 1, Text: "Nothing."},
		},
	} {
		d := run.NewDraft(s, "w", time.Unix(int64(i), 0))
		require.NoError(t, d.Add(events...))
		require.NoError(t, b.Ports.Journal.Append(t.Context(), s, d))
		s = d.Committed()
	}
	run, err := b.client.Run(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, run.Messages, 3)
	require.Equal(t, "- user: Hello.\nFiles: a.txt", run.Summary)
	var all []api.Message
	for cursor := ""; ; {
		p, err := b.client.Messages(t.Context(), id, cursor, 1)
		require.NoError(t, err)
		all = append(all, p.Items...)
		if cursor = p.Cursor; cursor == "" {
			break
		}
	}
	require.Len(t, all, 4)
	require.True(t, all[0].Evicted)
	require.EqualValues(t, 1, all[0].SeenCount, "the second inference did not have it")
	require.JSONEq(t, `{"type":"text","text":"Hello."}`, string(all[0].Content))
	require.Equal(t, run.Messages, all[1:])
}
