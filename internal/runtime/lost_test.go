package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// A lost answer is nobody's knowledge where the call cannot be repeated, and an error the model reads where it can. Any other error says
// that the call was not carried out.
func TestALostAnswer(t *testing.T) {
	reset := errors.New("connection reset")
	for name, c := range map[string]struct {
		tool    string
		err     error
		unknown bool
		says    string
	}{
		"not to be repeated": {tool: "pay", err: fmt.Errorf("call server bank: %w", &tool.LostError{Err: reset}), unknown: true},
		"not sent":           {tool: "pay", err: reset, says: "pay failed: connection reset"},
		"changed":            {tool: "pay", err: &tool.ChangedError{Server: "bank", Tool: "pay"}, says: "pay failed: the server bank no longer has the tool pay; the call was not made"},
		"idempotent":         {tool: "note", err: &tool.LostError{Err: reset}, says: "note failed: the answer was lost: connection reset"},
	} {
		subtest(t, name, func(t *testing.T, w *world) {
			w.tool(c.tool).work = func(context.Context, tool.Call) (agent.ToolResultData, error) { return agent.ToolResultData{}, c.err }
			w.startWith(calls(c.tool + " c1"))
			r := w.drive(0)
			require.Equal(t, 1, w.tool(c.tool).times())
			if c.unknown {
				require.Equal(t, runtime.NextWait, r.Next)
				require.Equal(t, run.ForOutcome, w.call("c1").Wait.For)
				return
			}
			require.Equal(t, runtime.NextDone, r.Next)
			require.Equal(t, c.says, w.call("c1").Result.Content)
			require.Equal(t, run.WhyToolError, w.call("c1").Reason)
		})
	}
}
