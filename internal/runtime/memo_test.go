package runtime_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/hook"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// What a tool wants back it has back with the answer to its own question, also where a plugin asks another in between, and nobody reads it.
func TestAToolHasItsMemoBack(t *testing.T) {
	for name, plugin := range map[string]bool{"alone": false, "behind a plugin's question": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.guarded(func(m *hook.BeforeTool) {
					if plugin && m.Call().Asks == 1 {
						m.Suspend(run.Ticket{Message: "sure?"})
					}
				})
				w.model.replies = []agent.Reply{calls("pay c1")}
				memos := []string{"first", "second"}
				w.tool("pay").work = func(context.Context, tool.Call) (agent.ToolResultData, error) {
					if len(memos) == 0 {
						return agent.ToolResultData{Content: "ok"}, nil
					}
					ask := &run.Ticket{Message: "which?", Memo: memos[0]}
					memos = memos[1:]
					return agent.ToolResultData{Suspend: ask}, nil
				}
				w.start()
				r := w.drive(0)
				for r.Next == runtime.NextWait {
					pending, _, err := approval.List(w.ctx, w.table, tenant, approval.Query{Status: approval.Pending})
					require.NoError(t, err)
					require.Len(t, pending, 1)
					require.Empty(t, pending[0].Ticket.Memo)
					r = w.answers(r, `"mine"`)
				}
				var had []string
				for _, in := range w.tool("pay").entered {
					had = append(had, in.Memo)
				}
				require.Equal(t, []string{"", "first", "second"}, had)
			})
		})
	}
}
