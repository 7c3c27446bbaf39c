package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// maxServerTools is how many tools of one server are used. Further ones are ignored.
const maxServerTools = 512

// ListedServer is one server of an agent and the result of listing its tools.
type ListedServer struct {
	Server  agent.MCPServer // every tool is trusted if Locked is nil
	Tools   agent.ServerTools
	Problem string // why it could not be listed, fit to be shown; "" = it was
}

// ResolveServers returns d with the tools of its servers, in the order of d, and what the run records of each server. d
// is not changed.
func ResolveServers(d *agent.Definition, listed []ListedServer) (agent.Definition, []run.ServerState) {
	resolved := *d
	resolved.Tools = slices.Clip(d.Tools)
	states := make([]run.ServerState, len(listed))
	for i, l := range listed {
		states[i] = run.ServerState{Name: l.Server.Name, Protocol: l.Tools.Protocol, Problem: l.Problem}
		if l.Problem != "" {
			continue
		}
		if n := len(l.Tools.Tools); n > maxServerTools {
			l.Tools.Tools = l.Tools.Tools[:maxServerTools]
			states[i].Problem = fmt.Sprintf("it lists %d tools, of which the first %d are taken", n, maxServerTools)
		}
		tools, disabled := Resolve(&resolved, l.Server, l.Tools)
		resolved.Tools = append(resolved.Tools, tools...)
		states[i].Tools = run.Map(tools, func(t agent.ToolSpec) string { return t.MCP.Tool })
		states[i].Disabled = disabled
	}
	return resolved, states
}

// Resolve returns the tools of a server that the agent d can use, and those that are disabled, with the reason. Tools
// that Deny or Allow exclude are in neither list. Effect, timeout and priority come from the first pattern of d that
// matches. A tool that no pattern names must not be repeated, whatever the server's annotations say: they are hints for
// people. If two tools have one name for the model, the one that d already has stays, and the other is disabled.
func Resolve(
	d *agent.Definition, server agent.MCPServer, listed agent.ServerTools,
) (tools []agent.ToolSpec, disabled []run.DisabledTool) {
	taken := map[string]string{} // model-facing name to original
	for _, t := range slices.Concat(d.Tools, d.EveryBuiltin()) {
		taken[t.ModelName()] = t.Name
	}
	for _, left := range listed.Left {
		if server.Wants(left.Name) {
			disabled = append(disabled, run.DisabledTool{Tool: shortName(left.Name), Why: run.DisabledUnusable,
				Detail: shortText(left.Why, maxShownWhy)})
		}
	}
	for _, t := range listed.Tools {
		if !server.Wants(t.Name) {
			continue
		}
		spec := server.Spec(t)
		if no := whyUnusable(spec, t, server.Locked, taken); no.Why != "" {
			disabled = append(disabled, no)
			continue
		}
		taken[spec.ModelName()] = spec.Name
		tools = append(tools, spec)
	}
	return tools, disabled
}

// whyUnusable says why a listed tool cannot be used; Why is "" if it can. A tool that differs from its pinned digest
// does not take a name from another tool.
func whyUnusable(spec agent.ToolSpec, t agent.ServerTool, pins, taken map[string]string) run.DisabledTool {
	no := run.DisabledTool{Tool: shortName(t.Name)}
	pinned, known := pins[t.Name]
	schema := agent.CheckSchema(t.Schema)
	other, collides := taken[spec.ModelName()]
	switch {
	case !agent.ValidToolName(spec.Name) || !agent.ValidWord(spec.ModelName()):
		no.Why, no.Detail = run.DisabledUnusable, "with its server's name it is no tool's name: at most 64 letters, "+
			"digits, _ and -, with dots between"
	case t.Digest == "":
		no.Why, no.Detail = run.DisabledUnusable, "its definition has no digest"
	case schema != nil:
		no.Why = run.DisabledUnusable
		no.Detail = "its arguments' schema cannot be used: " + shortText(schema.Error(), maxShownWhy)
	case pins != nil && !known:
		no.Why, no.Digest = run.DisabledNew, t.Digest
	case pins != nil && pinned != t.Digest:
		no.Why, no.Digest = run.DisabledChanged, t.Digest
	case collides:
		no.Why, no.Detail = run.DisabledCollision, fmt.Sprintf("%s is %s to the model already", other, spec.ModelName())
	}
	return no
}

// How many bytes are shown of a server's invalid tool name, and of why the tool cannot be used. One entry has all of
// them.
const (
	maxShownName = 80
	maxShownWhy  = 240
)

func shortName(name string) string { return shortText(name, maxShownName) }

func shortText(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// Disabled reports whether t is a server's tool that the run has lost.
func Disabled(s *run.AgentState, t agent.ToolSpec) bool {
	return s != nil && t.MCP != nil && s.Lacks(t.MCP.Server, t.MCP.Tool)
}

// Offered returns the tools of the request as the model sees them: without those that plugins and guards hide, and none
// for the forced summary.
func Offered(d *agent.Definition, s *run.AgentState, a Action) []agent.ToolSpec {
	if a.Lifecycle == run.LifecycleSummary {
		return nil
	}
	tools, r := make([]agent.ToolSpec, 0, len(d.Tools)), roundStreaks(d, s)
	for _, t := range flaggedTools(d, s) {
		if !Disabled(s, t) && !slices.Contains(s.Hidden, t.Name) && a.Offers(t.Name) &&
			!isOverLimit(d, r, failingTool+t.Name) {
			tools = append(tools, t.ModelFacing())
		}
	}
	for _, t := range d.Builtins(s) {
		if !slices.Contains(s.Hidden, t.Name) {
			tools = append(tools, t)
		}
	}
	return tools
}
