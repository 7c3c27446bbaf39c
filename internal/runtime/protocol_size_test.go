package runtime_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// What was accepted can always be drained, whatever the run does next: no entry has to hold more than an item can.

const large = 256 << 10

// flood accepts twice what an entry can hold.
func (w *world) flood() {
	w.t.Helper()
	for i := range 2 {
		require.NoError(w.t, w.send(fmt.Sprint("m", i), strings.Repeat("x", large)))
	}
}

func TestLargeInputsAreDrained(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"step":   func(w *world) { require.Equal(w.t, runtime.NextDone, w.drive(0).Next) },
		"cancel": func(w *world) { w.cancel() },
		"fail": func(w *world) {
			require.NoError(w.t, errOf(w.stepper().Fail(w.ctx, w.inv(0), "gave up")))
		},
		"batch": func(w *world) {
			w.model.replies = []agent.Reply{calls("pay c1")}
			w.drive(0)
			require.Equal(t, 1, w.tool("pay").times())
		},
	} {
		subtest(t, name, func(t *testing.T, w *world) {
			w.start()
			if name == "batch" {
				w.tool("pay").inside(w.flood)
			} else {
				w.flood()
			}
			end(w)
			s := w.state()
			require.Equal(t, run.RunDone, s.Status)
			require.EqualValues(t, 2, s.Drained)
			require.Equal(t, "Work.", w.heard()[0])
			require.GreaterOrEqual(t, len(w.heard()), 3)
		})
	}
	subtest(t, "a parked run", func(t *testing.T, w *world) {
		r := w.parkedRun()
		w.flood()
		again := w.drive(r.Woken)
		require.Equal(t, runtime.NextWait, again.Next)
		require.Greater(t, again.Woken, r.Woken)
		require.EqualValues(t, 2, w.head().Drained)
	})
	subtest(t, "what is larger is not accepted", func(t *testing.T, w *world) {
		w.start()
		require.ErrorIs(t, w.send("m", strings.Repeat("x", 300<<10)), store.ErrTooLarge)
	})
}

// Results that finish together are one entry as far as one can hold them.
func TestLargeResultsTakeSeveralEntries(t *testing.T) {
	for name, content := range map[string]string{"text": strings.Repeat("x", 45<<10), "control characters": strings.Repeat("\x01", 45<<10)} {
		subtest(t, name, func(t *testing.T, w *world) {
			var specs []string
			for i := range 12 {
				specs = append(specs, fmt.Sprintf("look c%d", i))
			}
			w.def.Context.TruncateResult = 0
			w.tool("look").work = func(context.Context, tool.Call) (agent.ToolResultData, error) {
				return agent.ToolResultData{Content: content}, nil
			}
			w.startWith(calls(specs...))
			require.Equal(t, runtime.NextDone, w.drive(0).Next)
			require.Equal(t, 12, w.tool("look").times())
			require.Equal(t, 12, w.written("call_finished"))
			require.Equal(t, name != "text", w.call("c0").Result.Blob != "", "what counts is its stored length")
			last := w.model.asked[1].Messages
			require.Equal(t, content, last[len(last)-1].Block.(run.ToolResult).Content, "whole, from the blob if need be")
		})
	}
}
