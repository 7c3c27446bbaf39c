package agent

// LifecycleNudge asks a model to go on, with a reply that was cut short or with its work.
const LifecycleNudge Lifecycle = "nudge"

// Cut is where the newest reply begins, if it came in pieces because its provider cut it short.
type Cut struct {
	From    int64 `json:"from,omitempty"`    // how many messages of the conversation stand before it, evicted ones included
	Prompts int   `json:"prompts,omitempty"` // how often the model was asked to go on; 0 = the reply came whole
}

// continued asks the model to go on with a planned reply that was cut by the limit of its output (semantics 3.7), as far as the definition
// has it and another inference is left. Otherwise what was said so far stands.
func continued(d *Definition, s *AgentState, e Replied) Replied {
	prompts := 0
	if s.Correction.continues() {
		prompts = s.Cut.Prompts
	}
	if prompts >= d.Model.Continuations || len(e.Calls) > 0 || e.Summary || e.Halt != nil {
		return e
	}
	if noneLeft(d, s, e) {
		return e
	}
	e.Correction = &Correction{Lifecycle: LifecycleNudge, Text: d.word(wordGoOn, nil)}
	return e
}

// noneLeft reports whether the limits leave no inference behind a planned reply to s, but for a summary.
func noneLeft(d *Definition, s *AgentState, e Replied) bool {
	after := *s
	after.Interactions.Current++
	after.Usage, after.Cost = s.Usage.Add(e.Usage), s.Cost.add(e.Cost)
	return quotaUsed(d, &after)
}

// continues reports whether the model is to go on with what it said.
func (c *Correction) continues() bool {
	return c != nil && c.Lifecycle == LifecycleNudge && c.Kind == ""
}

// cut keeps where a reply in pieces begins; it is called before the reply's messages are said.
func (s *AgentState) cut(e Replied) {
	goesOn := s.Correction.continues() && len(e.Calls) == 0
	if !goesOn {
		s.Cut = Cut{}
	}
	if !e.Correction.continues() {
		return
	}
	if !goesOn {
		s.Cut.From = s.EvictedMessages + int64(s.Messages.Len())
	}
	s.Cut.Prompts++
}

// stitched is the text of a reply to s with the pieces that it goes on with.
func stitched(s *AgentState, text string) string {
	if !s.Correction.continues() {
		return text
	}
	return s.pieces() + text
}

// pieces are the texts of the model from where the newest reply begins.
func (s *AgentState) pieces() string {
	text := ""
	for _, m := range s.Messages.All()[max(0, s.Cut.From-s.EvictedMessages):] {
		if t, ok := m.Block.(Text); ok && m.Role == RoleAssistant {
			text += t.Text
		}
	}
	return text
}

// GoesOn reports whether the correction takes nothing back: the model is only to go on with what it said.
func (c *Correction) GoesOn() bool { return c.continues() }
