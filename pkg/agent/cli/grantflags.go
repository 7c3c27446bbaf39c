package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/agentfile"
	"github.com/countersign/countersign/pkg/agent/approval"
)

// grantFlags bound the standing grant that an approval gives.
type grantFlags struct {
	GrantWhen []string `name:"grant-when" sep:"none" placeholder:"'/PATH OP JSON'" help:"A standing grant is for arguments that fit this, such as '/amount lte 50'. Repeat it for more."`
	GrantUses int      `name:"grant-uses" placeholder:"N" help:"A standing grant covers so many further calls."`
	GrantFor  string   `name:"grant-for" placeholder:"TIME" help:"A standing grant holds so long, such as 7d."`
}

// bounds are what the flags say; nil = nothing.
func (f grantFlags) bounds() (*agent.GrantBounds, error) {
	var b agent.GrantBounds
	for _, words := range f.GrantWhen {
		c, err := agent.ParseCondition(words)
		if err != nil {
			return nil, usage("--grant-when: %v", err)
		}
		b.When = append(b.When, c)
	}
	if f.GrantUses < 0 {
		return nil, usage("--grant-uses: got %d, want more than zero", f.GrantUses)
	}
	b.Uses = f.GrantUses
	if f.GrantFor != "" {
		d, err := agentfile.ParseDuration(f.GrantFor)
		if err != nil || d < time.Second {
			return nil, usage("--grant-for: got %q, want a duration such as 12h or 7d", f.GrantFor)
		}
		b.Seconds = int64(d / time.Second)
	}
	if b.Zero() {
		return nil, nil
	}
	return &b, nil
}

// boundsOf says in words how far a grant on the request goes at most, beside what is said anyway; "" = nothing bounds it further.
func boundsOf(a approval.Approval) string {
	var said []string
	for _, p := range a.Permissions {
		if p.Bounds == nil {
			continue
		}
		if p.Bounds.Seconds > 0 {
			said = append(said, "for "+(time.Duration(p.Bounds.Seconds)*time.Second).String()+" at most")
		}
		if p.Bounds.Uses > 0 {
			said = append(said, calls(p.Bounds.Uses))
		}
		if len(p.Bounds.When) > 0 {
			said = append(said, "where "+line(agent.ConditionWords(p.Bounds.When)))
		}
		break
	}
	return strings.Join(said, ", ")
}

// grantOf says how far the standing grant of a decision goes; "" = nobody bounded it.
func grantOf(b *agent.GrantBounds) string {
	if b == nil {
		return ""
	}
	var said []string
	if len(b.When) > 0 {
		said = append(said, "where "+line(agent.ConditionWords(b.When)))
	}
	if b.Uses > 0 {
		said = append(said, calls(b.Uses))
	}
	if b.Seconds > 0 {
		said = append(said, "for "+(time.Duration(b.Seconds)*time.Second).String())
	}
	if !b.Until.IsZero() {
		said = append(said, "until "+stamp(b.Until))
	}
	return ", to stand " + strings.Join(said, ", ")
}

func calls(n int) string {
	if n == 1 {
		return "for one further call"
	}
	return fmt.Sprintf("for %d further calls", n)
}
