package cli

import (
	"context"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// serversCommand looks at MCP servers, and approves what they say of their tools.
type serversCommand struct {
	List    serversListCommand    `cmd:"" default:"withargs" help:"List MCP servers, which of their tools are approved, and what waits for that."`
	Approve serversApproveCommand `cmd:"" help:"Approve what a server says of its tools, as it is shown, for runs that start from now on."`
}

type serversListCommand struct {
	Agent string `arg:"" optional:"" help:"Only those of this agent."`
}

func (c *serversListCommand) run(ctx context.Context, p *program) error {
	if c.Agent != "" && !agent.ValidAgentName(c.Agent) {
		return usage("servers: got %q, want an agent's name", c.Agent)
	}
	return p.looking(ctx, func(s *session) error {
		all, err := s.servers(ctx, c.Agent)
		if err != nil {
			return err
		}
		for _, v := range all {
			p.tellServer(v)
		}
		if len(all) == 0 {
			p.tell("no servers: no run has listed one's tools")
		}
		return p.answer(api.ServerPage{Servers: all})
	})
}

// servers lists all servers of an agent, "" = of every one; of no session, none.
func (s *session) servers(ctx context.Context, of string) ([]api.Server, error) {
	all := []api.Server{}
	cursor := ""
	for s != nil {
		page, err := call(ctx, s, func(c *api.Client) (api.ServerPage, error) { return c.Servers(ctx, of, cursor, 200) })
		if err != nil {
			return nil, err
		}
		all = append(all, page.Servers...)
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	return all, nil
}

func (p *program) tellServer(v api.Server) {
	p.tell("%s of %s, listed first at %s by run %s", line(v.Server), line(v.Agent), stamp(v.Since), v.Run)
	for _, t := range v.Tools {
		by := "trusted when the server was first listed"
		if t.By != "" {
			by = "approved by " + t.By + " at " + stamp(t.At) + noteOf(t.Note)
		}
		p.tell("  tool     %s  %s", line(t.Tool), by)
	}
	for _, t := range v.Pending {
		p.tellPending(t)
		p.tell("           %s", p.hint("servers", "approve", v.Agent, v.Server, t.Tool, "--digest", t.Digest))
	}
	if len(v.Pending) > 1 {
		p.tell("  all      %s", p.hint("servers", "approve", v.Agent, v.Server, "--digest", v.Digest))
	}
}

// tellPending shows the difference between what is approved and what the server says, whole: who approves it approves every character.
func (p *program) tellPending(t api.PendingTool) {
	what := "changed"
	if t.Before == nil {
		what = "new"
	}
	p.tell("  waits    %s  %s since %s, met by run %s; disabled until it is approved", line(t.Tool), what, stamp(t.Since), t.Run)
	p.tellDefinition("was", t.Before)
	if t.After == nil {
		p.tell("    is     not known but for its digest, %s", t.Digest)
		return
	}
	p.tellDefinition("is", t.After)
}

func (p *program) tellDefinition(when string, d *api.ToolDefinition) {
	if d == nil {
		return
	}
	p.tell("    %-6s %s", when, text(d.Description))
	p.tell("           arguments %s", line(string(d.Schema)))
	if h := d.Hints; h != nil && h.Title != "" {
		p.tell("           title %s", text(h.Title))
	}
}

type serversApproveCommand struct {
	Agent  string `arg:"" help:"The agent's name."`
	Server string `arg:"" help:"The server's name in the agent's definition."`
	Tool   string `arg:"" optional:"" help:"Only this tool, by the server's own name."`
	Digest string `placeholder:"D" help:"What was seen: where something else waits by now, nothing is approved."`
	Note   string `placeholder:"T" help:"Why."`
}

func (c *serversApproveCommand) run(ctx context.Context, p *program) error {
	if !agent.ValidAgentName(c.Agent) || !agent.ValidServerName(c.Server) {
		return usage("servers approve: got %q and %q, want the names of an agent and of one of its servers", c.Agent, c.Server)
	}
	return p.looking(ctx, func(s *session) error {
		if s == nil {
			return p.nothing()
		}
		v := api.ServerVerdict{Tool: c.Tool, Digest: c.Digest, Note: c.Note}
		if v.Digest == "" {
			var err error
			if v.Digest, err = c.seen(ctx, p, s); err != nil {
				return err
			}
		}
		begun := context.WithoutCancel(ctx) // an interrupt must not leave open whether it was done
		after, err := call(begun, s, func(cl *api.Client) (api.Server, error) { return cl.ApproveServer(begun, c.Agent, c.Server, v) })
		if err != nil {
			return err
		}
		what := line(c.Tool)
		if c.Tool == "" {
			what = "all that it says"
		}
		p.tell("approved: %s of %s, for runs of %s that start from now on", what, line(c.Server), line(c.Agent))
		return p.answer(after)
	})
}

// seen shows what waits and gives its digest: that, and nothing that comes later, is approved.
func (c *serversApproveCommand) seen(ctx context.Context, p *program, s *session) (string, error) {
	all, err := s.servers(ctx, c.Agent)
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(all, func(v api.Server) bool { return v.Server == c.Server })
	if at < 0 {
		return "", usage("servers approve: no run of %s has listed a server %s", c.Agent, c.Server)
	}
	digest := all[at].Digest
	waits := slices.DeleteFunc(slices.Clone(all[at].Pending), func(t api.PendingTool) bool { return c.Tool != "" && t.Tool != c.Tool })
	for _, t := range waits {
		p.tellPending(t)
		if c.Tool != "" {
			digest = t.Digest
		}
	}
	if len(waits) == 0 {
		return "", usage("servers approve: nothing of it waits to be approved")
	}
	return digest, nil
}

// tellServerOf says what a run has of a server, and what it has not.
func (p *program) tellServerOf(v run.ServerState, fact func(name, format string, args ...any)) {
	switch {
	case v.Problem != "" && len(v.Tools) == 0:
		fact("server", "%s could not be listed: %s", line(v.Name), line(v.Problem))
	case v.Problem != "":
		fact("server", "%s with %d tools: %s", line(v.Name), len(v.Tools), line(v.Problem))
	default:
		fact("server", "%s with %d tools", line(v.Name), len(v.Tools))
	}
	for _, t := range v.Disabled {
		fact("disabled", "%s of %s: %s", line(t.Tool), line(v.Name), p.disabled(t))
	}
}

// servers tells what a run has not got of its servers: who wonders why it does not call a tool reads it here.
func (pr *progress) servers(fact run.Event) {
	switch f := fact.(type) {
	case run.ToolsListed:
		for _, v := range f.Servers {
			pr.p.tellServerOf(v, func(name, format string, args ...any) {
				if name != "server" || v.Problem != "" {
					pr.tell(name, format, args...)
				}
			})
		}
	case run.ToolsDisabled:
		pr.tell("disabled", "%s of %s: %s", f.Tool, f.Server, pr.p.disabled(run.DisabledTool{Why: f.Why}))
	}
}

// disabled says why a tool is.
func (p *program) disabled(t run.DisabledTool) string {
	switch t.Why {
	case run.DisabledChanged:
		return "its server has changed it since it was approved (" + p.name() + " servers)"
	case run.DisabledNew:
		return "it was not there when its server was first listed (" + p.name() + " servers)"
	case run.DisabledCollision:
		return "its name is taken: " + line(t.Detail)
	default:
		return "it cannot be used: " + line(t.Detail)
	}
}
