package rehearse

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// errStopped ends what a rehearsal does not do.
var errStopped = errors.New("a rehearsal asks nobody")

// nobody is the model: it is never asked. The rehearsal is over where it would be.
type nobody struct{ stage *stage }

// Generate implements runtime.Model.
func (n nobody) Generate(_ context.Context, r agent.Request) (agent.Reply, error) {
	if s := n.stage; !s.over {
		s.over = true
		s.did("the model is asked")
		s.curtain.Notify()
	}
	return agent.Reply{}, errStopped
}

// shown are the tools of the build, none of which is entered.
type shown struct{ stage *stage }

// Lookup implements runtime.ToolSource. What is not linked is not found.
func (t shown) Lookup(original string) (tool.Tool, bool) {
	code, ok := t.stage.Tools.Lookup(original)
	if !ok {
		return nil, false
	}
	return noted{t.stage, code.Spec()}, true
}

// noted is a tool that is noted in place of being entered.
type noted struct {
	stage *stage
	spec  agent.ToolSpec
}

// Spec implements tool.Tool.
func (n noted) Spec() agent.ToolSpec { return n.spec }

// Call implements tool.Tool. What a precondition reads is what it was when people were shown it: the rest of the run is rehearsed as if that were still true.
func (n noted) Call(_ context.Context, c tool.Call) (agent.ToolResultData, error) {
	if a := n.stage.asked; a != nil && a.Precondition != nil && strings.HasPrefix(c.ID, n.stage.wait.Call+"-precondition-") {
		return agent.ToolResultData{Content: asRead(a.Precondition.Content), IsError: a.Precondition.IsError}, nil
	}
	n.stage.runs(c.Name, c.Args)
	return agent.ToolResultData{Content: rehearsed}, nil
}

// away is everything that is somewhere else. Nothing is sent.
type away struct{ stage *stage }

var (
	_ runtime.Remote    = away{}
	_ runtime.Lister    = away{}
	_ runtime.Functions = away{}
	_ runtime.Emitter   = away{}
)

// Open implements runtime.Remote.
func (a away) Open(string, *agent.Definition) runtime.Session { return a }

// Tool implements runtime.Session.
func (a away) Tool(t agent.ToolSpec) tool.Tool { return noted{a.stage, t} }

// List implements runtime.Lister.
func (a away) List(context.Context, agent.MCPServer) (agent.ServerTools, error) {
	return agent.ServerTools{}, errStopped
}

// Close implements runtime.Session.
func (a away) Close() {}

// Invoke implements runtime.Functions.
func (a away) Invoke(_ context.Context, i runtime.Invoke) (runtime.Invoked, error) {
	a.stage.did("function %s is invoked", i.Function)
	return runtime.Invoked{Payload: json.RawMessage(`{}`)}, nil
}

// Emit implements runtime.Emitter.
func (a away) Emit(_ context.Context, e agent.Outgoing) error {
	if e.Call != "" {
		a.stage.did("a service is asked about call %s", e.Call)
	}
	return nil
}

func runHead(tenant, run string) store.Key {
	return store.Key{PK: "T#" + tenant + "#RUN#" + run, SK: "HEAD"}
}

// asRead is a result that gives what a precondition gave: its very text, or where that is values by pointer, an object that has them there.
func asRead(content string) string {
	var values map[string]json.RawMessage
	if json.Unmarshal([]byte(content), &values) != nil {
		return content
	}
	root := map[string]any{}
	for pointer, v := range values {
		path, ok := strings.CutPrefix(pointer, "/")
		if !ok {
			return content
		}
		at := root
		parts := strings.Split(path, "/")
		for _, key := range parts[:len(parts)-1] {
			below, _ := at[key].(map[string]any)
			if below == nil {
				below = map[string]any{}
				at[key] = below
			}
			at = below
		}
		at[parts[len(parts)-1]] = v
	}
	text, err := agent.MarshalVerbatim(root)
	if err != nil {
		return content
	}
	return string(text)
}
