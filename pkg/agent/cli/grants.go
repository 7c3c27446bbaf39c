package cli

import (
	"context"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/web/api"
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
	revoke := []string{"revoke", g.Agent, g.Tool}
	switch g.Scope {
	case api.ScopePattern:
		p.tell("%s may call %s where %s in every run until %s", line(g.Agent), line(g.Tool), line(g.Pattern), stamp(g.Expires))
		revoke = append(revoke, "--digest", g.Digest)
	case agent.ScopeCall:
		p.tell("%s may call %s with these very arguments in every run until %s", line(g.Agent), line(g.Tool), stamp(g.Expires))
		p.tell("  arguments  %s", line(mask.Text(g.Args)))
		revoke = append(revoke, "--digest", g.Digest)
	default:
		p.tell("%s may call %s in every run until %s", line(g.Agent), line(g.Tool), stamp(g.Expires))
	}
	if g.Uses > 0 {
		p.tell("  uses       %d of %d left", g.Left, g.Uses)
	}
	p.tell("  granted    by %s at %s in run %s%s", g.By, stamp(g.At), g.Run, noteOf(g.Note))
	p.tell("  approvers  %s", deciders(g.Approvers, g.Above))
	p.tell("  %s", p.hint(revoke...))
}

type revokeCommand struct {
	Agent  string `arg:"" help:"The agent's name."`
	Tool   string `arg:"" help:"The tool's original name."`
	Digest string `placeholder:"D" help:"Only the grant of this digest."`
}

// revoked is the JSON document of revoke.
type revoked struct {
	Agent   string `json:"agent"`
	Tool    string `json:"tool"`
	Digest  string `json:"digest,omitempty"` // of the one that was meant
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
		_, err := call(begun, s, func(cl *api.Client) (struct{}, error) { return struct{}{}, cl.Revoke(begun, c.Agent, c.Tool, c.Digest) })
		if err != nil {
			return err
		}
		like := ""
		if c.Digest != "" {
			like = " as that grant let it"
		}
		p.tell("%s asks again before it calls %s%s", line(c.Agent), line(c.Tool), like)
		return p.answer(revoked{c.Agent, c.Tool, c.Digest, true})
	})
}
