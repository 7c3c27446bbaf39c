package run

import (
	"fmt"
	"slices"
)

// ServerState is what a run knows about an MCP server since its tools were listed. Slices are never written in place.
type ServerState struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol,omitempty"` // version of the protocol
	// tools that the run can call, by the server's own names and in its order
	Tools []string `json:"tools,omitempty"`
	// tools that the agent's author wants, as far as known, and that the run cannot call
	Disabled []DisabledTool `json:"disabled,omitempty"`
	// why its tools are incomplete: the server could not be listed, or lists too many
	Problem string `json:"problem,omitempty"`
}

// DisabledTool is a tool of a server that a run cannot call.
type DisabledTool struct {
	Tool   string      `json:"tool"` // the server's own name, shortened if it is invalid
	Why    DisabledWhy `json:"why"`
	Detail string      `json:"detail,omitempty"` // safe to show
	// digest of the server's definition of the tool; "" = the tool is gone or unusable
	Digest string `json:"digest,omitempty"`
}

// DisabledWhy says why a tool of a server is disabled.
type DisabledWhy string

// The tool differs from the one that mcp.lock pins; mcp.lock does not contain it; another tool has the same
// model-facing name; or its name or definition is unusable.
const (
	DisabledChanged   DisabledWhy = "changed"
	DisabledNew       DisabledWhy = "new"
	DisabledCollision DisabledWhy = "collision"
	DisabledUnusable  DisabledWhy = "unusable"
)

// Valid reports whether w is one of the reasons.
func (w DisabledWhy) Valid() bool {
	return slices.Contains([]DisabledWhy{DisabledChanged, DisabledNew, DisabledCollision, DisabledUnusable}, w)
}

// ToolsListed records the tools of the run's servers before anything else. From then on the definition contains them.
type ToolsListed struct {
	Definition string        `json:"definition"` // digest of the resolved definition's blob
	Servers    []ServerState `json:"servers"`    // all servers, in the order of the definition
}

// ToolsDisabled disables a server's tool that no longer matches the pinned one.
type ToolsDisabled struct {
	Server string      `json:"server"`
	Tool   string      `json:"tool"` // the server's own name
	Why    DisabledWhy `json:"why"`
	// digest of the server's current definition; "" = the server no longer has the tool
	Digest string `json:"digest,omitempty"`
}

// apply pins the run to a definition that contains its servers' tools. Later listings have no effect.
func (e ToolsListed) apply(s *AgentState) error {
	switch {
	case s.Listed && e.Definition == s.Definition:
		return nil
	case s.Listed:
		return &ApplyError{Problem: "the run's tools were listed before, with another definition"}
	case e.Definition == "" || len(e.Servers) == 0:
		return &ApplyError{Problem: "a definition and servers are required"}
	case s.Status != RunRunning:
		return &ApplyError{Problem: "the run is " + string(s.Status)}
	case s.Replies() > 0 || s.OpenCall() != nil:
		return &ApplyError{Problem: "the run has begun without its servers' tools"}
	}
	s.Definition, s.Servers, s.Listed = e.Definition, e.Servers, true
	return nil
}

func (e ToolsDisabled) apply(s *AgentState) error {
	if s.Lacks(e.Server, e.Tool) {
		return nil
	}
	if err := s.requireAwake(); err != nil {
		return err
	}
	at := s.server(e.Server)
	if at < 0 || !slices.Contains(s.Servers[at].Tools, e.Tool) || !e.Why.Valid() {
		return &ApplyError{Problem: fmt.Sprintf("the run has no tool %.64q of a server %.64q, or there is no reason", e.Tool,
			e.Server)}
	}
	s.Servers = slices.Clone(s.Servers)
	server := &s.Servers[at]
	server.Tools = slices.DeleteFunc(slices.Clone(server.Tools), func(name string) bool { return name == e.Tool })
	server.Disabled = append(slices.Clip(server.Disabled), DisabledTool{Tool: e.Tool, Why: e.Why, Digest: e.Digest})
	return nil
}

// server returns the index of the server among those of the run, or -1.
func (s *AgentState) server(name string) int {
	return slices.IndexFunc(s.Servers, func(have ServerState) bool { return have.Name == name })
}

// Lacks reports whether a server's tool, by the server's own name, is disabled in the run.
func (s *AgentState) Lacks(server, tool string) bool {
	at := s.server(server)
	return at >= 0 && slices.ContainsFunc(s.Servers[at].Disabled, func(d DisabledTool) bool { return d.Tool == tool })
}
