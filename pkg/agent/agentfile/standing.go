package agentfile

import "github.com/countersign/countersign/internal/agent"

// standing reads how far standing grants go at most.
func (r *reader) standing(b *agent.StandingBounds) read {
	return func(f field) {
		r.mapping(f, map[string]read{
			"uses": r.whole(&b.Uses), "expires": r.duration(&b.Expires), "when": r.conditions(&b.When), "pattern": r.boolean(&b.Pattern),
		})
	}
}
