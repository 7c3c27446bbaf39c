package agent

import "strings"

// LifecycleNotes asks a model for notes of messages that are about to leave. It quotes the conversation and does not carry it.
const LifecycleNotes Lifecycle = "notes"

// What a request for a summary quotes: bytes of one message, and of all of them, the newest first.
const (
	maxNoted    = 4 << 10
	maxNotedAll = 64 << 10
)

// SummaryRequest is the request for the summary of what e evicts from s; owed is false where the definition has it written by rule, or e has none.
func SummaryRequest(d *Definition, s *AgentState, e Evicted) (r Request, owed bool) {
	n := int(e.Total - s.EvictedMessages)
	if d.Context.SummaryBy != SummaryModel || e.Summary == s.Summary || n <= 0 || n > s.Messages.Len() {
		return Request{}, false
	}
	return Request{
		Tenant: s.Tenant, Run: s.Run, Agent: s.Agent, Inference: s.Replies() + 1, Model: d.Model, System: d.word(wordWriteSummary, nil),
		Messages:   []Message{{Role: RoleUser, Block: Text{Text: notedText(s.Summary, s.Messages.All()[:n])}, Base: -s.Inferences}},
		Inferences: s.Inferences, Lifecycle: LifecycleNotes, Interactions: s.Interactions,
	}, true
}

// notedText quotes the notes so far and the messages, each as one line of JSON text, so that none of them can pretend to be another.
func notedText(notes string, left []Message) string {
	var lines []string
	size := 0
	for i := len(left) - 1; i >= 0 && size <= maxNotedAll; i-- {
		if line := notedLine(left[i]); line != "" {
			lines = append(lines, line)
			size += len(line)
		}
	}
	text := ""
	if notes != "" {
		text = "Notes so far: " + string(textOutput(notes)) + "\n"
	}
	for i := len(lines) - 1; i >= 0; i-- {
		text += lines[i] + "\n"
	}
	return strings.TrimSuffix(text, "\n")
}

func notedLine(m Message) string {
	quoted := func(who, text string) string {
		return who + ": " + string(textOutput(text[:runeStart(text, maxNoted)]))
	}
	switch b := m.Block.(type) {
	case Text:
		return quoted(string(m.Role), b.Text)
	case ToolUse:
		return quoted("call of "+quotedName(b.Name), string(b.Input))
	case ToolResult:
		return quoted("result", b.Content)
	case Media:
		return quoted(string(m.Role)+" gave", mediaName(b))
	default:
		return ""
	}
}

// Summarised is the eviction with the summary that a model wrote, and with what that took in so many requests. One that failed or said nothing
// leaves the summary as it was.
func Summarised(d *Definition, e Evicted, r Reply, requests int) Evicted {
	e.Requests = requests
	if r.Usage != (Usage{}) {
		e.Usage, e.Units, e.Cost = &r.Usage, r.Usage.Input+r.Usage.Output, d.Model.Answering(r.Place).Price.of(r.Usage)
	}
	text := validText(r.Text)
	if d.Model.Answering(r.Place).Dialect == DialectXML { // what it thought is no part of its notes, and there is nothing to call
		text = ReadToolText(text).Text
	}
	if text = strings.TrimSpace(text); text == "" {
		return e
	}
	if most := proseBytes(d.Context.Summary); len(text) > most {
		text = text[:runeStart(text, most)]
	}
	e.Summary = text
	return e
}
