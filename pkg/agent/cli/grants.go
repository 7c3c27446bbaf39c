package cli

import (
	"context"
	"strings"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/api"
)

type grantsCommand struct {
	Agent string `placeholder:"A" help:"Only those of this agent."`
}

func (c *grantsCommand) run(ctx context.Context, p *program) error {
	if c.Agent != "" && !agent.ValidAgentName(c.Agent) {
		return usage("--agent: got %q, want an agent's name", c.Agent)
	}
	return p.looking(ctx, func(s *session) error {
		all, err := s.grants(ctx, c.Agent)
		if err != nil {
			return err
		}
		for _, g := range all {
			p.tellGrant(g)
		}
		if len(all) == 0 {
			p.tell("no standing grants")
		}
		return p.answer(api.GrantPage{Grants: all})
	})
}

// grants lists all standing grants of an agent, "" = of every one; of no session, none.
func (s *session) grants(ctx context.Context, of string) ([]api.Grant, error) {
	all := []api.Grant{}
	cursor := ""
	for s != nil {
		page, err := call(ctx, s, func(c *api.Client) (api.GrantPage, error) { return c.Grants(ctx, of, cursor, 200) })
		if err != nil {
			return nil, err
		}
		all = append(all, page.Grants...)
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	return all, nil
}

func (p *program) tellGrant(g api.Grant) {
	p.tell("%s may call %s in every run until %s", line(g.Agent), line(g.Tool), stamp(g.Expires))
	p.tell("  granted    by %s at %s in run %s%s", g.By, stamp(g.At), g.Run, noteOf(g.Note))
	p.tell("  approvers  %s", strings.Join(g.Approvers, ", "))
	p.tell("  %s", p.hint("revoke", g.Agent, g.Tool))
}

type revokeCommand struct {
	Agent string `arg:"" help:"The agent's name."`
	Tool  string `arg:"" help:"The tool's original name."`
}

// revoked is the JSON document of revoke.
type revoked struct {
	Agent   string `json:"agent"`
	Tool    string `json:"tool"`
	Revoked bool   `json:"revoked"`
}

func (c *revokeCommand) run(ctx context.Context, p *program) error {
	if !agent.ValidAgentName(c.Agent) {
		return usage("revoke: got %q, want an agent's name", c.Agent)
	}
	if !agent.ValidToolName(c.Tool) {
		return usage("revoke: got %q, want a tool's original name", c.Tool)
	}
	return p.looking(ctx, func(s *session) error {
		if s == nil {
			return p.nothing()
		}
		begun := context.WithoutCancel(ctx) // an interrupt must not leave open whether it was done
		_, err := call(begun, s, func(cl *api.Client) (struct{}, error) { return struct{}{}, cl.Revoke(begun, c.Agent, c.Tool) })
		if err != nil {
			return err
		}
		p.tell("%s asks again before it calls %s", line(c.Agent), line(c.Tool))
		return p.answer(revoked{c.Agent, c.Tool, true})
	})
}
