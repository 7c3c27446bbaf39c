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
		return usageErrorf("--agent: got %q, want an agent's name", c.Agent)
	}
	return p.withReadSession(ctx, func(s *session) error {
		all, err := s.listGrants(ctx, c.Agent)
		if err != nil {
			return err
		}
		for _, g := range all {
			p.printGrant(g)
		}
		if len(all) == 0 {
			p.printText("no standing grants")
		}
		return p.printJSON(api.GrantPage{Grants: all})
	})
}

// listGrants lists all standing grants of an agent, "" = of every one; of no session, none.
func (s *session) listGrants(ctx context.Context, of string) ([]api.Grant, error) {
	all := []api.Grant{}
	cursor := ""
	for s != nil {
		page, err := callAPI(ctx, s, func(c *api.Client) (api.GrantPage, error) { return c.Grants(ctx, of, cursor, 200) })
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

func (p *program) printGrant(g api.Grant) {
	revoke := []string{"revoke", g.Agent, g.Tool}
	switch g.Scope {
	case api.ScopePattern:
		p.printText("%s may call %s where %s in every run until %s", line(g.Agent), line(g.Tool), line(g.Pattern), stamp(g.Expires))
		revoke = append(revoke, "--digest", g.Digest)
	case agent.ScopeCall:
		p.printText("%s may call %s with these very arguments in every run until %s", line(g.Agent), line(g.Tool), stamp(g.Expires))
		p.printText("  arguments  %s", line(mask.Text(g.Args)))
		revoke = append(revoke, "--digest", g.Digest)
	default:
		p.printText("%s may call %s in every run until %s", line(g.Agent), line(g.Tool), stamp(g.Expires))
	}
	if g.Uses > 0 {
		p.printText("  uses       %d of %d left", g.Left, g.Uses)
	}
	p.printText("  granted    by %s at %s in run %s%s", g.By, stamp(g.At), g.Run, noteSuffix(g.Note))
	p.printText("  approvers  %s", formatDeciders(g.Approvers, g.Above))
	p.printText("  %s", p.commandLine(revoke...))
}

type revokeCommand struct {
	Agent  string `arg:"" help:"The agent's name."`
	Tool   string `arg:"" help:"The tool's original name."`
	Digest string `placeholder:"D" help:"Only the grant of this digest."`
}

// revokeResult is the JSON document of revoke.
type revokeResult struct {
	Agent   string `json:"agent"`
	Tool    string `json:"tool"`
	Digest  string `json:"digest,omitempty"` // of the one that was meant
	Revoked bool   `json:"revoked"`
}

func (c *revokeCommand) run(ctx context.Context, p *program) error {
	if !agent.ValidAgentName(c.Agent) {
		return usageErrorf("revoke: got %q, want an agent's name", c.Agent)
	}
	if !agent.ValidToolName(c.Tool) {
		return usageErrorf("revoke: got %q, want a tool's original name", c.Tool)
	}
	return p.withReadSession(ctx, func(s *session) error {
		if s == nil {
			return p.noStoreError()
		}
		begun := context.WithoutCancel(ctx) // an interrupt must not leave open whether it was done
		_, err := callAPI(begun, s, func(cl *api.Client) (struct{}, error) { return struct{}{}, cl.Revoke(begun, c.Agent, c.Tool, c.Digest) })
		if err != nil {
			return err
		}
		like := ""
		if c.Digest != "" {
			like = " as that grant let it"
		}
		p.printText("%s asks again before it calls %s%s", line(c.Agent), line(c.Tool), like)
		return p.printJSON(revokeResult{c.Agent, c.Tool, c.Digest, true})
	})
}
