package runtime_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// refusing is a Remote that nothing of a definition can be carried out by.
type refusing string

func (r refusing) Refuses(*agent.Definition) string             { return string(r) }
func (refusing) Open(string, *agent.Definition) runtime.Session { panic("nothing is opened") }

// A run whose definition cannot be carried out here ends and says why; no tool of it is entered.
func TestARefusedDefinition(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.ports.Remotes = runtime.Remotes{agent.KindMCP: refusing("agent a needs a program")}
		w.startWith(calls("look c1"))
		require.Equal(t, runtime.NextFailed, w.drive(0).Next)
		require.Zero(t, w.tool("look").times())
		require.Equal(t, &run.RunError{Code: run.CodeDefinition, Message: "agent a needs a program"}, w.state().Error)
	})
}
