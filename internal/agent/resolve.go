package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxServerTools is how many tools of one server are taken. What a server lists behind them is left.
const maxServerTools = 512

// Pins are the digests of a server's tools that people have approved, or trusted on first use, by the server's own names. nil = the server
// has never been listed for the agent: then all that it has is to be trusted.
type Pins map[string]string

// ListedServer is one server of an agent and what came of listing it.
type ListedServer struct {
	Server  MCPServer
	Tools   ServerTools
	Pins    Pins
	Problem string // why it could not be listed, fit to be shown; "" = it was
}

// ResolveServers is d with the tools of its servers, which come in the order of d, and what the run knows of each server from then on. d
// stays as it is.
func ResolveServers(d *Definition, listed []ListedServer) (Definition, []ServerState) {
	resolved := *d
	resolved.Tools = slices.Clip(d.Tools)
	states := make([]ServerState, len(listed))
	for i, l := range listed {
		states[i] = ServerState{Name: l.Server.Name, Protocol: l.Tools.Protocol, Problem: l.Problem}
		if l.Problem != "" {
			continue
		}
		if n := len(l.Tools.Tools); n > maxServerTools {
			l.Tools.Tools = l.Tools.Tools[:maxServerTools]
			states[i].Problem = fmt.Sprintf("it lists %d tools, of which the first %d are taken", n, maxServerTools)
		}
		tools, disabled := Resolve(&resolved, l.Server, l.Tools, l.Pins)
		resolved.Tools = append(resolved.Tools, tools...)
		for _, t := range tools {
			states[i].Tools = append(states[i].Tools, t.MCP.Tool)
		}
		states[i].Disabled = disabled
	}
	return resolved, states
}

// Resolve is what of a server's tools an agent d can use, and what it would and cannot. A tool that Deny or Allow leave out is neither: its
// author does not want it. Effect, timeout and priority are the author's word, by the first pattern that matches, and a tool that no pattern
// names cannot be repeated, whatever the server says of it: annotations are hints to people. Of two tools that are one to the model, neither
// takes the other's place: the one that d has stays, and the one that comes later is disabled.
func Resolve(d *Definition, server MCPServer, listed ServerTools, pins Pins) (tools []ToolSpec, disabled []DisabledTool) {
	taken := map[string]string{} // model-facing name to original
	for _, t := range slices.Concat(d.Tools, d.everyBuiltin()) {
		taken[t.ModelName()] = t.Name
	}
	for _, left := range listed.Left {
		if server.Wants(left.Name) {
			disabled = append(disabled, DisabledTool{Tool: shortName(left.Name), Why: DisabledUnusable, Detail: Bounded(left.Why)})
		}
	}
	for _, t := range listed.Tools {
		if !server.Wants(t.Name) {
			continue
		}
		spec := server.spec(t)
		if no, bad := refused(spec, t, pins, taken); bad {
			disabled = append(disabled, no)
			continue
		}
		taken[spec.ModelName()] = spec.Name
		tools = append(tools, spec)
	}
	return tools, disabled
}

// refused says why a tool cannot be used, if that is so. One that nobody has approved as it is takes no name from another one.
func refused(spec ToolSpec, t ServerTool, pins Pins, taken map[string]string) (DisabledTool, bool) {
	no := DisabledTool{Tool: shortName(t.Name)}
	pinned, known := pins[t.Name]
	schema := checkSchema(t.Schema)
	other, collides := taken[spec.ModelName()]
	switch {
	case !validToolName(spec.Name) || !validWord(spec.ModelName()):
		no.Why, no.Detail = DisabledUnusable, "with its server's name it is no tool's name: at most 64 letters, digits, _ and -, with dots between"
	case t.Digest == "":
		no.Why, no.Detail = DisabledUnusable, "its definition has no digest"
	case schema != nil:
		no.Why, no.Detail = DisabledUnusable, "its arguments' schema cannot be used: "+Bounded(schema.Error())
	case pins != nil && !known:
		no.Why, no.Digest = DisabledNew, t.Digest
	case pins != nil && pinned != t.Digest:
		no.Why, no.Digest = DisabledChanged, t.Digest
	case collides:
		no.Why, no.Detail = DisabledCollision, fmt.Sprintf("%s is %s to the model already", other, spec.ModelName())
	default:
		return DisabledTool{}, false
	}
	return no, true
}

// everyBuiltin are all tools that d may ever offer behind its own.
func (d *Definition) everyBuiltin() []ToolSpec {
	tools := d.loopBreaking()
	if t, ok := d.readMore(); ok {
		tools = append(tools, t)
	}
	return tools
}

// Wants reports whether the agent's author wants a tool of that name, the server's own.
func (m MCPServer) Wants(tool string) bool {
	matches := func(pattern string) bool { return matchTool(pattern, tool) }
	return !slices.ContainsFunc(m.Deny, matches) && (len(m.Allow) == 0 || slices.ContainsFunc(m.Allow, matches))
}

// spec is a tool of the server as an agent has it.
func (m MCPServer) spec(t ServerTool) ToolSpec {
	spec := ToolSpec{
		Name: m.Name + "." + t.Name, Kind: KindMCP, Description: strings.ToValidUTF8(t.Description, "\uFFFD"), Schema: t.Schema, Effect: EffectNonIdempotent,
		MCP: &MCPTool{Server: m.Name, Tool: t.Name, Digest: t.Digest},
	}
	if i := slices.IndexFunc(m.Tools, func(p MCPPattern) bool { return matchTool(p.Match, t.Name) }); i >= 0 {
		p := m.Tools[i]
		spec.Effect, spec.Timeout, spec.Priority = cmp.Or(p.Effect, EffectNonIdempotent), p.Timeout, p.Priority
	}
	return spec
}

// maxShownName is how many bytes of a name that a server made up are shown where it is no tool's.
const maxShownName = 80

func shortName(name string) string {
	name = strings.ToValidUTF8(name, "\uFFFD")
	if len(name) <= maxShownName {
		return name
	}
	return strings.ToValidUTF8(name[:maxShownName], "") + "…"
}
