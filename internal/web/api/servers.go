package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
)

// Servers keeps what people have approved of MCP servers; *approval.ServerPins is one, and says what the errors are.
type Servers interface {
	List(ctx context.Context, tenant string, q approval.Servers) (list []approval.Server, next string, err error)
	Definition(ctx context.Context, tenant, blob, tool string) (approval.SeenTool, error)
	Approve(ctx context.Context, a approval.ServerApproval) (approval.Server, error)
}

// Server is an MCP server of an agent: which of its tools agents may call, and which wait for people to approve what the server says of them.
type Server struct {
	Agent   string        `json:"agent"`
	Server  string        `json:"server"` // its name in the agent's definition
	Since   time.Time     `json:"since"`  // when it was first listed
	Run     string        `json:"run"`    // and by which run
	Tools   []PinnedTool  `json:"tools"`
	Pending []PendingTool `json:"pending"`
	Digest  string        `json:"digest,omitempty"` // of all that waits; "" = nothing does
}

// PinnedTool is a tool that agents may call as long as its definition has that digest.
type PinnedTool struct {
	Tool   string    `json:"tool"` // the server's own name
	Digest string    `json:"digest"`
	By     string    `json:"by,omitempty"` // who approved it; "" = it was trusted when the server was first listed
	At     time.Time `json:"at"`
	Note   string    `json:"note,omitempty"`
}

// PendingTool is a definition that nobody has approved, beside the one that is.
type PendingTool struct {
	Tool   string          `json:"tool"`
	Digest string          `json:"digest"`
	Since  time.Time       `json:"since"`
	Run    string          `json:"run"`              // that met it
	Before *ToolDefinition `json:"before,omitempty"` // as it is approved; nil = the tool is new
	After  *ToolDefinition `json:"after,omitempty"`  // as it waits; nil = the run that met it could not read it
}

// ToolDefinition is what a server says of a tool. None of it is to be trusted.
type ToolDefinition struct {
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"` // of the arguments
	Hints       *agent.MCPHints `json:"hints,omitempty"`
}

// ServerPage is a page of servers, by agent and name.
type ServerPage struct {
	Servers []Server `json:"servers"`
	Cursor  string   `json:"cursor,omitempty"`
}

// ServerVerdict approves what a server says of its tools: of one, or of all that wait.
type ServerVerdict struct {
	Tool   string `json:"tool,omitempty"` // the server's own name; "" = all that waits
	Digest string `json:"digest"`         // of what was seen: the tool's, or without one the server's
	Note   string `json:"note,omitempty"`
}

func (s *server) listServers(_ http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	q, err := query(r, "agent", "cursor", "limit")
	if err != nil {
		return 0, nil, err
	}
	n, err := limit(q)
	if err != nil {
		return 0, nil, err
	}
	if q.Has("agent") && !agent.ValidAgentName(q.Get("agent")) {
		return 0, nil, invalid("agent: got %.64q, want an agent's name", q.Get("agent"))
	}
	list, next, err := s.Servers.List(r.Context(), c.Tenant, approval.Servers{Agent: q.Get("agent"), Limit: n, Cursor: q.Get("cursor")})
	if err != nil {
		return 0, nil, badCursor(q.Get("cursor"), err)
	}
	p := ServerPage{Servers: []Server{}, Cursor: next}
	for _, v := range list {
		shown, err := s.shownServer(r.Context(), c.Tenant, v)
		if err != nil {
			return 0, nil, err
		}
		p.Servers = append(p.Servers, shown)
	}
	return http.StatusOK, p, nil
}

// approveServer lets agents call a server's tools as they were seen. Only an operator may.
func (s *server) approveServer(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if _, err := query(r); err != nil {
		return 0, nil, err
	}
	var v ServerVerdict
	if err := body(w, r, &v, false); err != nil {
		return 0, nil, err
	}
	if v.Digest == "" {
		return 0, nil, invalid("digest: got nothing, want that of what you have seen")
	}
	of, name := r.PathValue("agent"), r.PathValue("server")
	if !agent.ValidAgentName(of) || !agent.ValidServerName(name) {
		return 0, nil, problem(ServerNotFound, "server %.64q of agent %.64q: there is no such server on record", name, of)
	}
	after, err := s.Servers.Approve(r.Context(), approval.ServerApproval{
		Tenant: c.Tenant, Agent: of, Server: name, Tool: v.Tool, Digest: v.Digest, Note: v.Note, By: c.Principal,
	})
	if err != nil {
		return 0, nil, err
	}
	shown, err := s.shownServer(r.Context(), c.Tenant, after)
	return http.StatusOK, shown, err
}

// shownServer is a record with the definitions that it names.
func (s *server) shownServer(ctx context.Context, tenant string, v approval.Server) (Server, error) {
	shown := Server{
		Agent: v.Agent, Server: v.Server, Since: v.Since, Run: v.Run, Tools: []PinnedTool{}, Pending: []PendingTool{}, Digest: v.PendingDigest(),
	}
	seen := map[string]string{} // by tool: the blob of the definition that is approved
	for _, t := range v.Tools {
		seen[t.Tool] = t.Seen
		shown.Tools = append(shown.Tools, PinnedTool{t.Tool, t.Digest, t.By, t.At, t.Note})
	}
	for _, p := range v.Pending {
		before, err := s.toolDefinition(ctx, tenant, seen[p.Tool], p.Tool)
		if err != nil {
			return shown, err
		}
		after, err := s.toolDefinition(ctx, tenant, p.Seen, p.Tool)
		if err != nil {
			return shown, err
		}
		shown.Pending = append(shown.Pending, PendingTool{p.Tool, p.Digest, p.Since, p.Run, before, after})
	}
	return shown, nil
}

func (s *server) toolDefinition(ctx context.Context, tenant, blob, tool string) (*ToolDefinition, error) {
	t, err := s.Servers.Definition(ctx, tenant, blob, tool)
	if err != nil || t.Digest == "" {
		return nil, err
	}
	d := &ToolDefinition{Description: t.Description, Schema: t.Schema}
	if t.Hints != (agent.MCPHints{}) {
		d.Hints = &t.Hints
	}
	return d, nil
}
