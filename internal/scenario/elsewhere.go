package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// cannedRemote stands for whoever carries out the calls of tools that are somewhere else: tools.yaml says what they give.
type cannedRemote struct{ tools runtime.ToolSource }

func remotes(tools runtime.ToolSource) runtime.Remotes {
	r := cannedRemote{tools}
	return runtime.Remotes{agent.KindLambda: r, agent.KindHTTP: r}
}

// away carries out the calls of tools that are somewhere else: what their results say, and the scenario's servers.
func (s *stage) away() runtime.Remotes {
	all := remotes(s.faults.Tools(world{s}))
	maps.Copy(all, s.faults.Remotes(runtime.Remotes{agent.KindMCP: s.servers}))
	return all
}

// Open implements runtime.Remote.
func (r cannedRemote) Open(string, *agent.Definition) runtime.Session { return r }

// Tool implements runtime.Session.
func (r cannedRemote) Tool(t agent.ToolSpec) tool.Tool {
	found, _ := r.tools.Lookup(t.Name) // every such tool has its results: loadTools
	return found
}

// Close implements runtime.Session.
func (cannedRemote) Close() {}

// invoke takes the call of a function that answers later: people do. One that sees a key again has the same call again.
func (l *ledger) invoke(i runtime.Invoke, c policy.FunctionCall) (runtime.Invoked, error) {
	for _, seen := range l.invoked {
		if seen.key != c.Key {
			continue
		}
		if !bytes.Equal(seen.payload, i.Payload) {
			l.stage.fail(Failure{Path: "invoked", Got: fmt.Sprintf("%s again, and not the same", c.Key), Want: "one payload for each key"})
		}
		return runtime.Invoked{}, nil
	}
	l.invoked = append(l.invoked, invoked{key: c.Key, call: c.Call, Function: i.Function, payload: i.Payload})
	l.stage.act(moment{"executing", c.Call, l.name})
	return runtime.Invoked{}, nil
}

// invoked is a call that a function took, in the form of want.json: the function and what it got.
type invoked struct {
	Function  string
	key, call string
	payload   json.RawMessage
}

// MarshalJSON gives the payload, with the function's name in it.
func (i invoked) MarshalJSON() ([]byte, error) {
	name, err := json.Marshal(i.Function)
	return append(append(append([]byte(`{"function":`), name...), ','), i.payload[1:]...), err
}
