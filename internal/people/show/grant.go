package show

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/run"
)

// stands says how far a grant on the request goes at most, beside what is said anyway; nothing where no policy bounds it further.
func (s *shower) stands() Text {
	for _, p := range s.a.Permissions {
		if p.Bounds != nil { // they are the agent's: the same for each of its tools
			return s.bounds(*p.Bounds, " at most")
		}
	}
	return nil
}

// granted says how far the standing grant of a decision goes; nothing where nobody bounded it.
func (s *shower) granted(b *agent.GrantBounds) Text {
	if b == nil || b.Zero() {
		return nil
	}
	return slices.Concat(word("to stand "), s.bounds(*b, "")).joined()
}

// bounds are how far a grant goes, in words: for which arguments, how often, and how long. Most follows the time.
func (s *shower) bounds(b agent.GrantBounds, most string) Text {
	var said []Text
	for i, c := range b.When {
		before := "and "
		if i == 0 {
			before = "where "
		}
		said = append(said, slices.Concat(word(before), s.condition(c)))
	}
	switch {
	case b.Uses == 1:
		said = append(said, word("for one further call"))
	case b.Uses > 1:
		said = append(said, word(fmt.Sprintf("for %d further calls", b.Uses)))
	}
	if b.Seconds > 0 {
		said = append(said, word("for "+(time.Duration(b.Seconds)*time.Second).String()+most))
	}
	if !b.Until.IsZero() {
		said = append(said, word("until "+Stamp(b.Until)))
	}
	return listed(said)
}

// condition is a condition as agent.Condition.Words has it, with values as those of arguments.
func (s *shower) condition(c run.Condition) Text {
	op, values := c.Operator()
	all := make([]Text, len(values))
	for i, v := range values {
		all[i] = s.operand(v)
	}
	value := listed(all)
	if op == "in" {
		value = slices.Concat(word("["), value, word("]"))
	}
	return slices.Concat(s.foreign(c.Path), word(" "+op+" "), value)
}

func (s *shower) operand(raw json.RawMessage) Text {
	v, err := mask.Read(raw, nil)
	if err != nil {
		return s.foreign(string(raw))
	}
	return s.value(v)
}

// listed are texts with commas between them.
func listed(of []Text) Text {
	var all Text
	for i, t := range of {
		if i > 0 {
			all = append(all, Span{Text: ", "})
		}
		all = append(all, t...)
	}
	return all.joined()
}
