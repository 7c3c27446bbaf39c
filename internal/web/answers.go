package web

import (
	"context"
	"slices"

	"github.com/countersign/countersign/internal/approval"
)

// answers adds the forms: what the visitor can do, and what they had typed where it was not taken.
func (s *server) answers(ctx context.Context, data map[string]any, v visit, m may, now said) error {
	typed := func(name string) string { return now.typed[name] }
	for name, value := range map[string]any{
		"note": typed("note"), "result": typed("result"), "text": typed("text"), "args": typed("args"),
		"editing": typed("action") == "edit", "asking": typed("action") == "remark", "each": nil,
		"approveLabel": "Approve", "denyLabel": "Deny", "resultLabel": "", "resultHelp": "", "resultButtons": nil,
		"may": map[string]any{"verdict": m.deny && v.a.Kind != approval.KindInput, "approve": m.approve, "result": m.result, "edit": m.edit, "ask": m.remark},
	} {
		data[name] = value
	}
	s.words(data, v, m)
	if v.a.Kind == approval.KindTools && m.deny {
		data["approveLabel"], data["denyLabel"], data["each"] = "Allow all", "Refuse all", s.each(v.a)
	}
	if m.result {
		results(data, v.a, m)
	}
	remarks(data, v.a, v.by.ID)
	if !m.edit || typed("args") != "" {
		return nil
	}
	args, err := s.Show.Editable(ctx, v.a)
	data["args"] = args
	return err
}

// words say what the visitor is asked, or why they are not.
func (s *server) words(data map[string]any, v visit, m may) {
	head, text := "Your answer", ""
	switch {
	case !s.open(v.a):
		head, text = "Nothing left to answer", "This page says what became of the request. Nothing on it can be changed."
	case v.voted():
		head, text = "You have answered", "Others have still to."
	case m.deny && !m.approve && !m.result && v.a.FourEyes:
		text = "It is done for you, so that somebody else has to approve it. You may deny it."
	case !m.approve && !m.deny && !m.result:
		head, text = "For you to know", "You are not among those who decide this."
	}
	data["answerHead"], data["answerText"] = head, text
	data["fine"] = "This address is yours alone: whoever has it answers as you. Do not pass it on."
}

// each is a form for each of the tools that nobody has decided about, where there are several.
func (s *server) each(a approval.Approval) []any {
	var out []any
	for _, p := range a.Permissions {
		if p.Verdict == "" {
			out = append(out, map[string]any{"tool": p.Tool, "name": Text(s.Show.Text(p.Tool))})
		}
	}
	if len(out) < 2 {
		return nil
	}
	return out
}

func button(action, label, class string) any {
	return map[string]any{"action": action, "label": label, "class": class}
}

// results adds the form of a request that is answered by data.
func results(data map[string]any, a approval.Approval, m may) {
	if a.Kind == approval.KindOutcome {
		data["resultLabel"], data["resultHelp"] = "What became of the call", "Nobody knows whether it happened. Find out, and say what it gave or why it failed; the agent is told."
		data["resultButtons"] = []any{
			button("happened", "It happened", "approve"), button("failed", "It failed", "deny"), button("rerun", "It did not happen: run it", "again"),
		}
		return
	}
	data["resultLabel"], data["resultHelp"] = "Your answer to the tool", "Words, or JSON where the tool asks for it. Nothing is a plain yes."
	buttons := []any{button("approve", "Send the answer", "approve")}
	if m.deny {
		buttons = append(buttons, button("deny", "Refuse to answer", "deny"))
	}
	data["resultButtons"] = buttons
}

// remarks adds the form that decides nothing: a question, or, of those for whom the run acts, an answer to one.
func remarks(data map[string]any, a approval.Approval, by string) {
	data["askAction"] = "remark"
	if slices.Contains(a.Requesters, by) {
		data["askLabel"], data["askField"], data["askButton"] = "Say something about it", "What those who decide should know", "Send"
		data["askHelp"] = "They are told. It decides nothing, and the time goes on."
		return
	}
	data["askLabel"], data["askField"], data["askButton"] = "Ask for information", "Your question", "Ask"
	data["askHelp"] = "Those for whom the agent acts are told. It decides nothing, and the time goes on."
}
