package show

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/pkg/agent"
)

// stands says how far a grant on the request goes at most, beside what is said anyway; nothing where no policy bounds it further.
func (s *shower) stands() Text {
	for _, p := range s.a.Permissions {
		if p.Bounds != nil { // they are the agent's: the same for each of its tools
			return s.foreign(bounds(*p.Bounds, " at most"))
		}
	}
	return nil
}

// granted says how far the standing grant of a decision goes; nothing where nobody bounded it.
func (s *shower) granted(b *agent.GrantBounds) Text {
	if b == nil || b.Zero() {
		return nil
	}
	return slices.Concat(word("to stand "), s.foreign(bounds(*b, ""))).joined()
}

// bounds are how far a grant goes, in words: for which arguments, how often, and how long.
func bounds(b agent.GrantBounds, most string) string {
	var said []string
	if len(b.When) > 0 {
		said = append(said, "where "+agent.ConditionWords(b.When))
	}
	switch {
	case b.Uses == 1:
		said = append(said, "for one further call")
	case b.Uses > 1:
		said = append(said, fmt.Sprintf("for %d further calls", b.Uses))
	}
	if b.Seconds > 0 {
		said = append(said, "for "+(time.Duration(b.Seconds)*time.Second).String()+most)
	}
	if !b.Until.IsZero() {
		said = append(said, "until "+Stamp(b.Until))
	}
	return strings.Join(said, ", ")
}
