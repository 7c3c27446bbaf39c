package dialect

import (
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// WithCallsAsText is the request as it is sent to a model that writes its calls as text (DialectXML): calls stand in
// the model's words as it wrote them, results are the user's words, and the sections of the prompt say what the tools
// are. A provider is not asked for JSON where there are tools, as its model has to be free to call one: the system text
// asks. What the notices of the canonical request are is part of the texts, so that an adapter adds none. r is left as
// it is.
func WithCallsAsText(r agent.Request) agent.Request {
	out := r
	if len(r.Tools) > 0 && r.Output.JSON {
		out.System, out.Output = agent.Paragraphs(out.System, r.JSONAsked()), agent.OutputFormat{}
	}
	output := out.Output
	out.Output = agent.OutputFormat{} // of that the adapter gives notice
	out = out.WithNotices()
	out.Late, out.Exhausted, out.Output = nil, false, output
	t := textTurns{tools: map[string]agent.ToolSpec{}, names: map[string]string{}}
	for _, spec := range r.Tools {
		t.tools[spec.ModelName()] = spec
	}
	for _, m := range out.Messages {
		t.add(m)
	}
	// The texts of one turn of the model's are one text, but for reasoning of the provider's own, which keeps its
	// place.
	out.Messages, out.Tools = t.out, nil
	return out
}

type textTurns struct {
	tools map[string]agent.ToolSpec // by the model's name
	names map[string]string         // of calls, by id
	out   []run.Message
	open  bool // the last of out is the model's text, which its turn goes on with
}

func (t *textTurns) add(m run.Message) {
	switch b := m.Block.(type) {
	case run.Text:
		if m.Role == run.RoleAssistant {
			t.addText(m, b.Text, "")
			return
		}
	case run.ToolUse:
		spec, known := t.tools[b.Name]
		if !known {
			spec = agent.ToolSpec{Name: b.Name}
		}
		t.names[b.ID] = b.Name
		t.addText(m, textOfCall(spec, b.Input), "\n")
		return
	case run.Reasoning:
		if b.Provider == TextReasoning {
			return
		}
	case run.ToolResult:
		m.Block = run.Text{Text: "Tool '" + t.names[b.ID] + "' result: " + b.Content} // seed 004
	}
	t.open = false
	t.out = append(t.out, m)
}

// addText adds text to the turn that m is part of, or begins one.
func (t *textTurns) addText(m run.Message, text, between string) {
	last := len(t.out) - 1
	if !t.open || !m.Source.SameEvent(t.out[last].Source) {
		m.Block = run.Text{Text: text}
		t.out, t.open = append(t.out, m), true
		return
	}
	said, _ := t.out[last].Block.(run.Text) // open says so
	t.out[last].Block = run.Text{Text: said.Text + between + text}
}

// SplitReply splits a reply without calls into text and thinking, if the model has to put thinking and calls between
// tags: in DialectXML and under TextRequireTool. Otherwise all of the reply is text.
func SplitReply(d *agent.Definition, text string) ToolText {
	if !d.WritesCalls() && d.Text != agent.TextRequireTool {
		return ToolText{Text: text}
	}
	return ReadToolText(text)
}

// Spoken is what a last reply says: of a model that writes its calls as text, what it thought is no part of it.
func Spoken(d *agent.Definition, text string) string {
	if !d.WritesCalls() || !strings.Contains(text, tagThinking) {
		return text
	}
	return ReadToolText(text).Text
}
