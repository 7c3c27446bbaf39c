package agent

import (
	"cmp"
	"slices"
	"strings"
)

// InText is the request as it is sent to a model that writes its calls as text (DialectXML): calls stand in the model's words as it wrote
// them, results are the user's words, and the sections of the prompt say what the tools are. A provider is not asked
// for JSON where there are tools, as its model has to be free to call one: the system text asks. What the notices of the canonical request
// are is part of the texts, so that an adapter adds none. r is left as it is.
func (r Request) InText() Request {
	out := r
	if len(r.Tools) > 0 && r.Output.JSON {
		out.System, out.Output = paragraphs(out.System, r.jsonAsked()), OutputFormat{}
	}
	output := out.Output
	out.Output = OutputFormat{} // of that the adapter gives notice
	out = out.WithNotices()
	out.Late, out.Exhausted, out.Output = nil, false, output
	out.Messages, out.Tools = textMessages(out.Messages, r.Tools), nil
	return out
}

// textMessages are messages in which no call and no result is left. Those of one turn of the model's are one text, but for reasoning of
// the provider's own, which keeps its place.
func textMessages(messages []Message, tools []ToolSpec) []Message {
	t := textTurns{tools: map[string]ToolSpec{}, names: map[string]string{}}
	for _, spec := range tools {
		t.tools[spec.ModelName()] = spec
	}
	for _, m := range messages {
		t.add(m)
	}
	return t.out
}

type textTurns struct {
	tools map[string]ToolSpec // by the model's name
	names map[string]string   // of calls, by id
	out   []Message
	open  bool // the last of out is the model's text, which its turn goes on with
}

func (t *textTurns) add(m Message) {
	switch b := m.Block.(type) {
	case Text:
		if m.Role == RoleAssistant {
			t.say(m, b.Text, "")
			return
		}
	case ToolUse:
		spec, known := t.tools[b.Name]
		if !known {
			spec = ToolSpec{Name: b.Name}
		}
		t.names[b.ID] = b.Name
		t.say(m, textOfCall(spec, b.Input), "\n")
		return
	case Reasoning:
		if b.Provider == TextReasoning {
			return
		}
	case ToolResult:
		m.Block = Text{Text: textResult(t.names[b.ID], b.Content)}
	}
	t.open = false
	t.out = append(t.out, m)
}

// say goes on with the turn that m is part of, or begins one.
func (t *textTurns) say(m Message, text, between string) {
	last := len(t.out) - 1
	if !t.open || !m.Source.sameEvent(t.out[last].Source) {
		m.Block = Text{Text: text}
		t.out, t.open = append(t.out, m), true
		return
	}
	said, _ := t.out[last].Block.(Text) // open says so
	t.out[last].Block = Text{Text: said.Text + between + text}
}

// textResult is a tool's result as the user's words (seed 004).
func textResult(tool, content string) string { return "Tool '" + tool + "' result: " + content }

// jsonAsked asks for JSON of the output's schema where the provider is not asked.
func (r Request) jsonAsked() string {
	asked := cmp.Or(r.Notices.JSONOnly, (&Definition{}).word(wordJSONOnly, nil))
	if len(r.Output.Schema) == 0 {
		return asked
	}
	return asked + " It has to fit this JSON Schema:\n" + string(r.Output.Schema)
}

// writesCalls reports whether a model of the chain writes its calls as text.
func (d *Definition) writesCalls() bool {
	return slices.ContainsFunc(d.Model.Chain(), func(m ModelSpec) bool { return m.Dialect == DialectXML })
}

// TakenApart is a reply without calls as what its model said and thought, where models are told to put thinking and calls between tags: in
// DialectXML and under TextRequireTool. Else all of it is what was said.
func (d *Definition) TakenApart(text string) ToolText {
	if !d.writesCalls() && d.Text != TextRequireTool {
		return ToolText{Text: text}
	}
	return ReadToolText(text)
}

// spoken is what a last reply says: of a model that writes its calls as text, what it thought is no part of it.
func spoken(d *Definition, text string) string {
	if !d.writesCalls() || !strings.Contains(text, tagThinking) {
		return text
	}
	return ReadToolText(text).Text
}
