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

// fakeRemote stands for whoever carries out the calls of tools that are somewhere else: tools.yaml says what they give.
type fakeRemote struct{ tools runtime.ToolSource }

func remotes(tools runtime.ToolSource) runtime.Remotes {
	r := fakeRemote{tools}
	return runtime.Remotes{agent.KindLambda: r, agent.KindHTTP: r}
}

// away carries out the calls of tools that are somewhere else: what their results say, and the scenario's servers.
func (s *simulation) away() runtime.Remotes {
	all := remotes(s.faults.Tools(fakePorts{s}))
	maps.Copy(all, s.faults.Remotes(runtime.Remotes{agent.KindMCP: s.servers}))
	return all
}

// Open implements runtime.Remote.
func (r fakeRemote) Open(string, *agent.Definition) runtime.Session { return r }

// Tool implements runtime.Session.
func (r fakeRemote) Tool(t agent.ToolSpec) tool.Tool {
	found, _ := r.tools.Lookup(t.Name) // every such tool has its results: loadTools
	return found
}

// Close implements runtime.Session.
func (fakeRemote) Close() {}

// recordInvoke takes the call of a function that answers later: people do. One that sees a key again has the same call again.
func (l *effectLog) recordInvoke(i runtime.Invoke, c policy.FunctionCall) (runtime.Invoked, error) {
	for _, seen := range l.invokes {
		if seen.key != c.Key {
			continue
		}
		if !bytes.Equal(seen.payload, i.Payload) {
			l.sim.addFailure(Failure{Path: "invoked", Got: fmt.Sprintf("%s again, and not the same", c.Key), Want: "one payload for each key"})
		}
		return runtime.Invoked{}, nil
	}
	l.invokes = append(l.invokes, recordedInvoke{key: c.Key, call: c.Call, Function: i.Function, payload: i.Payload})
	l.sim.actAt(trigger{"executing", c.Call, l.agentName})
	return runtime.Invoked{}, nil
}

// recordedInvoke is a call that a function took, in the form of want.json: the function and what it got.
type recordedInvoke struct {
	Function  string
	key, call string
	payload   json.RawMessage
}

// MarshalJSON gives the payload, with the function's name in it.
func (i recordedInvoke) MarshalJSON() ([]byte, error) {
	name, err := json.Marshal(i.Function)
	return append(append(append([]byte(`{"function":`), name...), ','), i.payload[1:]...), err
}
