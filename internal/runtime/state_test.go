package runtime_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// changes makes the tool set the path to its call's id.
func (f *fake) changes(path string) {
	f.work = func(_ context.Context, c tool.Call) (agent.ToolResultData, error) {
		return tool.Patched(tool.Text("ok "+c.ID), tool.SetState(path, c.ID))
	}
}

// lateChange runs pay and note in one round. While pay is inside its tool, another invocation stores what note did and
// parks on pay's unknown outcome; pay's own result comes through the inbox.
func (w *world) lateChange(payPath, notePath string) {
	w.t.Helper()
	w.tool("note").changes(notePath)
	w.startRound(calls("pay c1", "note c2"))
	var r runtime.Route
	during := true
	w.tool("pay").work = func(_ context.Context, c tool.Call) (agent.ToolResultData, error) {
		if during {
			during = false
			w.batchRun(0)
			require.JSONEq(w.t, `{}`, string(asShared(w.state())), "the round is not at rest while nobody knows")
			r = w.step(0)
			w.park(r.Woken, 0, "t1")
		}
		return tool.Patched(tool.Text("ok "+c.ID), tool.SetState(payPath, c.ID))
	}
	w.batchRun(0)
	w.drive(r.Woken)
}

func asShared(s run.AgentState) json.RawMessage { return s.SharedState() }

func TestALateResultBringsItsChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.lateChange("/paid/by", "/noted")
		require.Equal(t, `{"noted":"c2","paid":{"by":"c1"}}`, string(asShared(w.state())))
		require.Equal(t, run.ReasonNaturalEnd, w.state().Reason)
	})
	inBubble(t, func(t *testing.T, w *world) {
		w.lateChange("/paid/by", "/paid")
		s := w.state()
		require.Equal(t, run.CodeStateConflict, s.Error.Code)
		require.Equal(
			t, `calls c1 and c2 changed the same of the run's state, and neither saw the other's change: "/paid/by" and "/paid"`, s.Error.Message,
		)
		require.Equal(t, run.StatusSucceeded, w.call("c1").Status)
		require.Equal(t, run.StatusSucceeded, w.call("c2").Status)
	})
}

// A tool has a copy of its own: what it writes into it is neither a change nor seen by another.
func TestAToolCannotWriteIntoTheState(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.tool("note").changes("/a")
		scribble := func(path string) func(context.Context, tool.Call) (agent.ToolResultData, error) {
			return func(_ context.Context, c tool.Call) (agent.ToolResultData, error) {
				require.Equal(t, `{"a":"c1"}`, string(c.State))
				for i := range c.State {
					c.State[i] = 'x'
				}
				return tool.Patched(tool.Text("ok"), tool.SetState(path, 1))
			}
		}
		w.tool("pay").work, w.tool("look").work = scribble("/b"), scribble("/c")
		w.startWith(calls("note c1"), calls("pay c2", "look c3"))
		w.drive(0)
		require.Equal(t, `{"a":"c1","b":1,"c":1}`, string(asShared(w.state())))
	})
}

// A change of any size the bounds allow fits an entry, beside a result and an inbox that are as large as they may be.
func TestLargeChangesFitTheJournal(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.startWith(calls("pay c1"), calls("note c2", "look c3", "note c4"))
		big := strings.Repeat("s", 65_000)
		w.tool("pay").work = func(context.Context, tool.Call) (agent.ToolResultData, error) {
			require.NoError(t, w.send("m1", strings.Repeat("m", 90<<10)))
			return tool.Patched(tool.Text(strings.Repeat("r", 48_000)), tool.SetState("/big", big))
		}
		w.tool("note").work = func(_ context.Context, c tool.Call) (agent.ToolResultData, error) {
			return tool.Patched(tool.Text("x"), tool.SetState("/"+c.ID, big))
		}
		w.drive(0)
		s := w.state()
		require.Len(t, s.SharedState(), len(`{"big":""}`)+len(big))
		for _, id := range []string{"c2", "c4"} {
			require.Equal(t, run.StatusFailed, w.call(id).Status)
			require.Equal(
				t, "note ran, but what it changed of the run's state was refused: a state of 130018 bytes, want at most 65536\nx", w.call(id).Result.Content,
			)
		}
	})
}
