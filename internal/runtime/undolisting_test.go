package runtime_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// TestUndoListsNothing: a call is taken back under the definition that its run was pinned to, which has the tools of the agent's servers: they
// are not asked again, and what the run has lost of them stays lost. Who continues the run asks them anew.
func TestUndoListsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := &servers{list: func(context.Context, string) (agent.ServerTools, error) { return has("a", "b"), nil }}
		w.serving(s, "files")
		for i := range w.def.Tools {
			if w.def.Tools[i].Name == "note" {
				w.def.Tools[i].Undo = &agent.Undo{Tool: "look"}
			}
		}
		w.startWith(calls("note c1"))
		require.Equal(t, runtime.NextDone, w.drive(0).Next)
		noted, past := w.run, w.state()
		require.Equal(t, 1, s.listed)

		back, again, err := w.starter().Undo(w.ctx, runtime.Undo{Tenant: tenant, Run: noted, Call: "c1", By: "user:ana"})
		require.False(t, again)
		w.follow(back, err)
		require.Equal(t, past.Definition, back.Definition)
		require.Equal(t, past.Servers, back.Servers)
		require.Equal(t, runtime.NextWait, w.drive(0).Next)
		undo := w.state()
		c, ok := undo.Undoing()
		require.True(t, ok)
		w.decide(c.ID)
		require.Equal(t, runtime.NextDone, w.drive(w.state().WaitSeq).Next)
		require.Equal(t, run.ReasonNaturalEnd, w.state().Reason)
		require.Equal(t, 1, w.tool("look").times())
		require.Equal(t, 1, s.listed)

		w.run = noted
		w.follow(w.starter().Start(w.ctx, w.goOn("And now?")))
		require.Equal(t, runtime.NextDone, w.drive(0).Next)
		require.Equal(t, 2, s.listed)
	})
}
