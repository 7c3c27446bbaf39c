package cli

import (
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

// grantFlags bound the standing grant that an approval gives.
type grantFlags struct {
	GrantWhen []string `name:"grant-when" sep:"none" placeholder:"'/PATH OP JSON'" help:"A standing grant is for arguments that fit this, such as '/amount lte 50'. Repeat it for more."`
	GrantUses int      `name:"grant-uses" placeholder:"N" help:"A standing grant covers so many further calls."`
	GrantFor  string   `name:"grant-for" placeholder:"TIME" help:"A standing grant holds so long, such as 7d."`
}

// parseBounds are what the flags say; nil = nothing.
func (f grantFlags) parseBounds() (*agent.GrantBounds, error) {
	var b agent.GrantBounds
	for _, words := range f.GrantWhen {
		c, err := agent.ParseCondition(words)
		if err != nil {
			return nil, usageErrorf("--grant-when: %v", err)
		}
		b.When = append(b.When, c)
	}
	if f.GrantUses < 0 {
		return nil, usageErrorf("--grant-uses: got %d, want more than zero", f.GrantUses)
	}
	b.Uses = f.GrantUses
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
