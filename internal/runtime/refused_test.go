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
	for why, next := range map[string]string{"agent a needs a program": runtime.NextFailed, "": runtime.NextDone} {
		inBubble(t, func(t *testing.T, w *world) {
			w.ports.Remotes = runtime.Remotes{agent.KindMCP: refusing(why)}
			w.model.replies = []agent.Reply{calls("look c1"), {Text: "done"}}
			w.start()
			require.Equal(t, next, w.drive(0).Next)
			if why == "" {
				require.Equal(t, 1, w.tool("look").times())
				return
			}
			require.Zero(t, w.tool("look").times())
			require.Equal(t, run.CodeDefinition, w.state().Error.Code)
			require.Equal(t, why, w.state().Error.Message)
		})
	}
}
