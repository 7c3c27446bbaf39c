package show

import (
	"fmt"
	"math"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/run"
)

// decisionGrantText says how far the standing grant of a decision goes; empty if nobody bounded it.
func (s *builder) decisionGrantText(b *agent.GrantBounds) Text {
	if b == nil || b.Zero() {
		return nil
	}
	return textf(", to stand %1", s.boundsText(*b, ""))
}

// boundsText is the bounds of a grant in words: which arguments, how often, how long. Most follows the time.
func (s *builder) boundsText(b agent.GrantBounds, most string) Text {
	var parts []Text
	for i, c := range b.When {
		before := "and %1"
		if i == 0 {
			before = "where %1"
		}
		parts = append(parts, textf(before, s.conditionText(c)))
	}
	switch {
	case b.Uses == 1:
		parts = append(parts, ownText("for one further call"))
	case b.Uses > 1:
		parts = append(parts, ownText(fmt.Sprintf("for %d further calls", b.Uses)))
	}
	if b.Seconds > 0 {
		parts = append(parts, ownText("for "+(time.Duration(b.Seconds)*time.Second).String()+most))
	}
	if !b.Until.IsZero() {
		parts = append(parts, ownText("until "+FormatTime(b.Until)))
	}
	return joinTexts(parts)
}

// conditionText writes a condition like agent.Condition.Words, with values written like those of arguments.
func (s *builder) conditionText(c run.Condition) Text {
	op, values := c.Operator()
	all := make([]Text, len(values))
	for i, v := range values {
		if read, err := mask.Read(v, nil); err == nil {
			all[i] = s.valueText(read)
		} else {
			all[i] = s.foreignText(string(v))
		}
	}
	value := joinTexts(all)
	if op == "in" {
		value = textf("[%1]", value)
	}
	return textf("%1 "+op+" %2", s.foreignText(c.Path), value)
}

// joinTexts joins texts with commas.
func joinTexts(of []Text) Text { return fitTexts(of, ", ", math.MaxInt) }
