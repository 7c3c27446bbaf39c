package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// paid is a run that has ended and paid once, by call c1.
func (w *world) paid() {
	w.spec("pay", func(t *agent.ToolSpec) {
		t.Undo = &agent.Undo{Tool: "note", Args: json.RawMessage(`{"undo":{"args":"/n"}}`)}
	})
	w.startWith(calls(`pay c1 {"n":1}`))
	w.drive(0)
	require.Equal(w.t, run.RunDone, w.state().Status)
}

func (w *world) undo(by string) (run.AgentState, bool, error) {
	return w.starter().Undo(w.ctx, runtime.Undo{Tenant: tenant, Run: w.run, Call: "c1", By: by})
}

// However many ask at once, and whatever answers are lost, one run takes a call back, and it does so once.
func TestOneRunTakesACallBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.paid()
		w.table.Once(lost(entry("undo_ordered")))
		const all = 20
		var wait sync.WaitGroup
		var mu sync.Mutex
		runs := map[string]int{}
		first := 0
		for i := range all {
			wait.Go(func() {
				s, again, err := w.undo(fmt.Sprintf("user:bob%d", i))
				mu.Lock()
				defer mu.Unlock()
				require.NoError(t, err)
				runs[s.Run]++
				if !again {
					first++
				}
			})
		}
		wait.Wait()
		require.Len(t, runs, 1)
		require.Positive(t, first)
		s, again, err := w.undo("user:eve")
		require.NoError(t, err)
		require.True(t, again)
		w.run, w.owner = s.Run, s.Owner
		r := w.drive(0)
		require.Equal(t, runtime.NextWait, r.Next, "what no rule asks about waits for a person all the same")
		c, _ := s.Undoing()
		s = w.state()
		require.Len(t, s.Requesters(), all+2, "all who have asked are known, and nobody who started the first run")
		w.decide(c.ID)
		require.Equal(t, runtime.NextDone, w.drive(r.Woken).Next)
		require.Equal(t, 1, w.tool("note").times())
		require.JSONEq(t, `{"undo":1}`, string(w.tool("note").entered[0].Args))
		require.Equal(t, w.run+"/"+c.ID, w.tool("note").entered[0].Key)
	})
}

// A payment whose outcome was unknown when a run was forked is one payment of both, and taken back in the run that made
// it. One that people ordered to run again in the fork is the fork's own.
func TestUndoOfADoubtfulCallInAFork(t *testing.T) {
	for action, own := range map[approval.Action]bool{approval.ReportResult: false, approval.Rerun: true} {
		subtest(t, string(action), func(t *testing.T, w *world) {
			w.spec("pay", func(t *agent.ToolSpec) { t.Undo = &agent.Undo{Tool: "note"} })
			w.startRound(calls("pay c1"))
			w.interrupt("pay", 0)
			paid := w.run
			fork, err := w.fork(w.seq(), "f")
			for _, r := range []string{paid, fork.Run} {
				require.NoError(t, err)
				w.run, w.owner = r, runtime.ExecutionName(r, 0)
				of := approval.DecisionInput{ID: w.call("c1").Wait.Approval, Action: approval.ReportResult, Content: "paid"}
				if r == fork.Run && own {
					of.Action, of.Content = action, ""
				}
				w.drive(0)
				w.decided(of)
				require.Equal(t, runtime.NextDone, w.drive(w.state().WaitSeq).Next)
			}
			require.Equal(t, own, errOf2(w.undo("user:bob")) == nil)
			w.run = paid
			require.NoError(t, errOf2(w.undo("user:bob")))
		})
	}
}

func errOf2[T, U any](_ T, _ U, err error) error { return err }

// A long result is in a blob, as is all of one that was cut; both are read, and one that is gone says why nothing
// takes the call back.
func TestUndoReadsAllOfAResult(t *testing.T) {
	for name, keep := range map[string]bool{"kept": true, "lost": false} {
		subtest(t, name, func(t *testing.T, w *world) {
			w.def.Context.TruncateResult, w.def.Context.KeepWhole = 100, keep
			w.spec("pay", func(t *agent.ToolSpec) {
				t.Undo = &agent.Undo{Tool: "note", Args: json.RawMessage(`{"id":{"result":"/id"}}`)}
			})
			long := make([]int, 300)
			body, err := json.Marshal(map[string]any{"a": long, "id": "p1"})
			require.NoError(t, err)
			w.tool("pay").gives(string(body))
			w.startWith(calls("pay c1"))
			w.drive(0)
			s := w.state()
			got, err := w.ports.Undos(w.ctx, &s, w.def, []string{"c1"})
			require.NoError(t, err)
			if !keep {
				require.Equal(t, &policy.CallUndo{Reason: "its result is not JSON"}, got["c1"])
				return
			}
			require.Equal(t, `{"id":"p1"}`, string(got["c1"].Input))
		})
	}
}

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
