package agent

import (
	"cmp"
	"slices"
)

// BuildRequest is what the model is asked for action a, which Next gave for s, under a system text, behind which stands the summary of what
// was evicted. systemDigest is that text's digest, without the summary; empty where the newest inference had the same.
func BuildRequest(d *Definition, s *AgentState, a Action, system string) (r Request, systemDigest string) {
	if systemDigest = SystemDigest(system); systemDigest == s.System {
		systemDigest = ""
	}
	r = Request{
		Tenant: s.Tenant, Run: s.Run, Agent: s.Agent, Inference: s.Replies() + 1, Attempt: s.Plan.Failed, Model: d.Model, System: withSummary(d, s, system),
		Messages: requested(d, s, a), Inferences: s.Inferences, Tools: offered(d, s, a), Lifecycle: a.Lifecycle,
		Interactions: s.Interactions, Exhausted: a.Exhausted, Output: d.Output.asked(d.Name), Late: s.late(),
	}
	r.Notices = d.notices(r)
	if d.Text == TextRequireTool && a.Lifecycle != LifecycleSummary { // no text is the output
		r.Output = OutputFormat{}
	}
	return r, systemDigest
}

// requested is the conversation as the request holds it: each call's result with it, through every transform, and behind it what this
// request alone says, an ephemeral correction, the guards' hints or the order to summarise.
func requested(d *Definition, s *AgentState, a Action) []Message {
	messages := s.paired()
	for _, t := range transforms {
		messages = t(d, s, messages)
	}
	once := func(text string) {
		said := Message{Role: RoleUser, Block: Text{Text: text}, Base: -s.Inferences}
		messages = append(messages[:len(messages):len(messages)], said) // never in place
	}
	summary := a.Lifecycle == LifecycleSummary
	if c := s.Correction; c.owed() && c.Ephemeral && (!summary || c.Lifecycle == LifecycleOutputError) { // who is to sum up is not to go on
		once(c.Text)
	}
	if summary {
		once(d.word(wordSummarise, nil))
		return messages
	}
	for _, hint := range hints(d, s) {
		once(hint)
	}
	if text := d.reminder(s); text != "" {
		once(text)
	}
	return messages
}

// transform makes of a request's messages those that it holds instead. It changes no message in place and no seenCount: what it leaves
// out or shortens is in the call all the same.
type transform func(d *Definition, s *AgentState, messages []Message) []Message

// transforms in their order (semantics 6, row 13).
var transforms = []transform{maskMedia, compressResults}

// maskMedia puts a text in the place of media that an inference has carried, so that each is shown to one successful call. A call that
// failed has carried nothing.
func maskMedia(d *Definition, s *AgentState, messages []Message) []Message {
	if !d.Context.Mask {
		return messages
	}
	var out []Message
	for i, m := range messages {
		media, ok := m.Block.(Media)
		if !ok || !masked(d, s, m) {
			continue
		}
		if out == nil {
			out = append([]Message(nil), messages...)
		}
		out[i].Block = Text{Text: textMediaSeen(d, media)}
	}
	if out == nil {
		return messages
	}
	return out
}

// masked reports whether a message with media stands as text in the next request.
func masked(d *Definition, s *AgentState, m Message) bool {
	return d.Context.Mask && m.Seen(s.Inferences) > 0
}

// offered are the tools of the request as the model is told of them: what plugins and guards left of them, and none once it is
// only to sum up.
func offered(d *Definition, s *AgentState, a Action) []ToolSpec {
	if a.Lifecycle == LifecycleSummary {
		return nil
	}
	tools, watch := make([]ToolSpec, 0, len(d.Tools)), newestWatch(d, s)
	for _, t := range d.flagged(s) {
		if !s.Disabled(t) && !slices.Contains(s.Hidden, t.Name) && a.offers(t.Name) && !withdrawn(d, watch, t.Name) {
			tools = append(tools, t.ModelFacing())
		}
	}
	for _, t := range d.builtins(s) {
		if !slices.Contains(s.Hidden, t.Name) {
			tools = append(tools, t)
		}
	}
	return tools
}

// WithNotices is the request as a provider's adapter sends it: with the sections of its prompt, and with what the flags of the canonical one
// mean to a model. That the quota is used up stands behind the system text and behind the conversation (seed 000); the forced summary says
// it itself. JSON of no particular schema, which not every provider can be asked for, stands behind the system text. Results that are new
// and stand farther up are named behind the conversation, which would else end with the model's own words. r is left as it is.
func (r Request) WithNotices() Request {
	r = r.Prompted().withTurn()
	if len(r.Late) > 0 {
		r.Messages = append(r.Messages[:len(r.Messages):len(r.Messages)], r.once(textLate(r.Messages, r.Late)))
	}
	if r.Exhausted && r.Lifecycle != LifecycleSummary {
		notice := cmp.Or(r.Notices.Exhausted, (&Definition{}).notices(r).Exhausted)
		r.System = paragraphs(r.System, notice)
		r.Messages = append(r.Messages[:len(r.Messages):len(r.Messages)], r.once(notice))
	}
	if r.Output.JSON && len(r.Output.Schema) == 0 {
		r.System = paragraphs(r.System, cmp.Or(r.Notices.JSONOnly, (&Definition{}).notices(r).JSONOnly))
	}
	return r
}

// once is a user text that stands in this request alone.
func (r Request) once(text string) Message {
	return Message{Role: RoleUser, Block: Text{Text: text}, Base: -r.Inferences}
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
