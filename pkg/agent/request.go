package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
)

// BuildRequest is what the model is asked for action a, which Next gave for s. systemDigest is the system prompt's digest,
// empty where the newest inference had the same.
func BuildRequest(d *Definition, s *AgentState, a Action) (r Request, systemDigest string, err error) {
	system, err := RenderSystem(*d, systemData(s))
	if err != nil {
		return Request{}, "", err
	}
	sum := sha256.Sum256([]byte(system))
	if systemDigest = hex.EncodeToString(sum[:]); systemDigest == s.System {
		systemDigest = ""
	}
	return Request{
		Tenant: s.Tenant, Run: s.Run, Agent: s.Agent, Inference: s.Inferences + 1, Model: d.Model, System: system,
		Messages: requested(s, a), Inferences: s.Inferences, Tools: offered(d, s, a), Lifecycle: a.Lifecycle,
		Interactions: s.Interactions, Exhausted: a.Exhausted, Output: d.Output.asked(d.Name),
	}, systemDigest, nil
}

// requested is the conversation, and behind it what this request alone says: an ephemeral correction, the order to summarise.
func requested(s *AgentState, a Action) []Message {
	messages := s.Messages.All()
	once := func(text string) {
		messages = append(messages, Message{Role: RoleUser, Block: Text{Text: text}, Base: -s.Inferences}) // never in place: All has no room
	}
	if c := s.Correction; c.owed() && c.Ephemeral {
		once(c.Text)
	}
	if a.Lifecycle == LifecycleSummary {
		once(textSummarise)
	}
	return messages
}

// offered are the tools of the request: what plugins left of them, and none once the model is only to sum up.
func offered(d *Definition, s *AgentState, a Action) []ToolSpec {
	if a.Lifecycle == LifecycleSummary {
		return nil
	}
	if len(s.Hidden) == 0 {
		return d.Tools
	}
	return slices.DeleteFunc(slices.Clone(d.Tools), func(t ToolSpec) bool { return slices.Contains(s.Hidden, t.Name) })
}

// WithNotices is the request as a provider's adapter sends it: with what the flags of the canonical one mean to a model. That the quota
// is used up stands behind the system text and behind the conversation (seed 000); the forced summary says it itself. JSON of no
// particular schema, which not every provider can be asked for, stands behind the system text. r is left as it is.
func (r Request) WithNotices() Request {
	if r.Exhausted && r.Lifecycle != LifecycleSummary {
		notice := textExhausted(r.Interactions)
		r.System = paragraphs(r.System, notice)
		r.Messages = append(r.Messages[:len(r.Messages):len(r.Messages)], Message{Role: RoleUser, Block: Text{Text: notice}, Base: -r.Inferences})
	}
	if r.Output.JSON && len(r.Output.Schema) == 0 {
		r.System = paragraphs(r.System, textJSONOnly)
	}
	return r
}

// WithContext is the request with more of the system's words: paragraphs behind the system text, and messages before the conversation, in
// order. r is left as it is.
func (r Request) WithContext(system, session []string) Request {
	for _, text := range system {
		r.System = paragraphs(r.System, text)
	}
	if len(session) == 0 {
		return r
	}
	messages := make([]Message, 0, len(session)+len(r.Messages))
	for _, text := range session {
		messages = append(messages, Message{Role: RoleUser, Block: Text{Text: TextFromSystem(text)}, Base: -r.Inferences})
	}
	r.Messages = append(messages, r.Messages...)
	return r
}

func paragraphs(first, second string) string {
	if first == "" {
		return second
	}
	return first + "\n\n" + second
}

// systemData is the same at every inference: the text is built once, so it shows the quota as it is at the start.
func systemData(s *AgentState) SystemData {
	return SystemData{
		Date: s.StartedAt.UTC().Format("2006-01-02"), Run: s.Run, Input: s.Input,
		Interactions: Interactions{Max: s.Interactions.Max},
	}
}
