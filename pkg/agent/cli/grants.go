package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/web"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

type grantsCommand struct {
	List   grantsListCommand `cmd:"" default:"withargs" help:"List standing grants."`
	Revoke revokeCommand     `cmd:"" help:"Revoke the standing grants of an agent's tool: it asks again."`
}

type grantsListCommand struct {
	Agent string `placeholder:"A" help:"Only those of this agent."`
}

func (c *grantsListCommand) run(ctx context.Context, p *program) error {
	if c.Agent != "" && !agent.ValidAgentName(c.Agent) {
		return usageErrorf("--agent: got %q, want an agent's name", c.Agent)
	}
	return printList(ctx, p, "no standing grants", func(s *session) ([]web.Grant, error) {
		return listAll(ctx, s, func(cl *web.Client, cursor string) (web.Page[web.Grant], error) {
			return cl.Grants(ctx, c.Agent, cursor, pageSize)
		})
	}, p.printGrant)
}

func (p *program) printGrant(g web.Grant) {
	revoke, which := []string{"grants", "revoke", g.Agent, g.Tool}, ""
	switch g.Scope {
	case web.ScopePattern:
		which = " where " + line(g.Pattern)
	case agent.ScopeCall:
		which = " with these very arguments"
	}
	p.printText("%s may call %s%s in every run until %s", line(g.Agent), line(g.Tool), which, p.stamp(g.Expires))
	if g.Scope == agent.ScopeCall {
		p.printText("  arguments  %s", line(mask.Text(g.Args)))
	}
	if which != "" { // the tool may have other grants
		revoke = append(revoke, "--digest", g.Digest)
	}
	if g.Uses > 0 {
		p.printText("  uses       %d of %d left", g.Left, g.Uses)
	}
	p.printText("  granted    by %s at %s in run %s%s", g.By, p.stamp(g.At), g.Run, noteSuffix(g.Note))
	p.printText("  approvers  %s", people.ApproversText(g.Approvers, g.Above))
	p.printText("  %s", p.commandLine(revoke...))
}

type revokeCommand struct {
	Agent  string `arg:"" help:"The agent's name."`
	Tool   string `arg:"" help:"The tool's original name."`
	Digest string `placeholder:"D" help:"Only the grant of this digest."`
}

type revokeResult struct {
	Agent   string `json:"agent"`
	Tool    string `json:"tool"`
	Digest  string `json:"digest,omitempty"` // of the one grant to revoke
	Revoked bool   `json:"revoked"`
}

func (c *revokeCommand) run(ctx context.Context, p *program) error {
	if !agent.ValidAgentName(c.Agent) {
		return usageErrorf("revoke: got %q, want an agent's name", c.Agent)
	}
	if !agent.ValidToolName(c.Tool) {
		return usageErrorf("revoke: got %q, want a tool's original name", c.Tool)
	}
	return p.withExistingStore(ctx, "", func(s *session) error {
		begun := context.WithoutCancel(ctx) // an interrupt must not leave the outcome unknown
		_, err := callAPI(begun, s, func(cl *web.Client) (struct{}, error) {
			return struct{}{}, cl.Revoke(begun, c.Agent, c.Tool, c.Digest)
		})
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

// grantFlags are the flags that bound the standing grant of an approval.
type grantFlags struct {
	GrantWhen []string `name:"grant-when" sep:"none" placeholder:"'/PATH OP JSON'" help:"Bound of a standing grant."`
	GrantUses *int     `name:"grant-uses" placeholder:"N" help:"A standing grant covers so many further calls."`
	GrantFor  string   `name:"grant-for" placeholder:"TIME" help:"A standing grant holds so long, such as 7d."`
}

// parseBounds returns the bounds in the flags; nil = none.
func (f grantFlags) parseBounds() (*agent.GrantBounds, error) {
	var b agent.GrantBounds
	for _, words := range f.GrantWhen {
		c, err := agent.ParseCondition(words)
		if err != nil {
			return nil, usageErrorf("--grant-when: %v", err)
		}
		b.When = append(b.When, c)
	}
	if f.GrantUses != nil {
		if *f.GrantUses < 1 { // zero bounds nothing
			return nil, usageErrorf("--grant-uses: got %d, want more than zero", *f.GrantUses)
		}
		b.Uses = *f.GrantUses
	}
	if f.GrantFor != "" {
		d, err := agentfile.ParseDuration(f.GrantFor)
		if err != nil || d < time.Second {
			return nil, usageErrorf("--grant-for: got %q, want a duration such as 12h or 7d", f.GrantFor)
		}
		b.Seconds = int64(d / time.Second)
	}
	if b.Zero() {
		return nil, nil
	}
	return &b, nil
}

// inFlags has a refusal of the bounds name the flags that set them, in place of the keys of the API.
func (f grantFlags) inFlags(err error, b *agent.GrantBounds) error {
	bad, ok := errors.AsType[*web.Problem](err)
	if !ok || b == nil || bad.Type != web.GrantRefused {
		return err
	}
	why := strings.TrimPrefix(bad.Detail, "grant refused: ")
	before := fmt.Sprintf("grant.seconds: got %d, want at most ", b.Seconds)
	if most, err := time.ParseDuration(strings.TrimPrefix(why, before) + "s"); err == nil {
		why = fmt.Sprintf("grant.seconds: got %s, want at most %s", f.GrantFor, formatDuration(most))
	}
	for key, flag := range map[string]string{"when": "--grant-when", "uses": "--grant-uses", "seconds": "--grant-for"} {
		if rest, ok := strings.CutPrefix(why, "grant."+key+": "); ok {
			bad.Detail = flag + ": " + rest
		}
	}
	return err
}

// formatDuration writes a duration of whole seconds as people type it: 7d, 1d12h, 2h30m.
func formatDuration(d time.Duration) string {
	const day = 24 * time.Hour
	long := fmt.Sprintf("%dd%s", d/day, d%day)
	return strings.TrimPrefix(strings.NewReplacer("d0s", "d", "h0m0s", "h", "m0s", "m").Replace(long), "0d")
}
