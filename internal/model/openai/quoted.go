package openai

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
)

// stopRepaired is the StopReason of a reply that a server reported as an error of its own.
const stopRepaired = "repaired"

// recoverQuotedCall ends a reply with the call that a problem quotes, if it quotes one.
func (a *assembly) recoverQuotedCall(p problem) bool {
	if a.finish != "" {
		return false
	}
	c, ok := quotedCall(a.asked, p.message)
	if !ok {
		return false
	}
	part := &callParts{place: len(a.calls), id: c.ID, name: c.Name, repaired: true}
	part.arguments.Write(c.Input)
	a.calls, a.finish = append(a.calls, part), stopRepaired
	return true
}

// quotedCall is the call that a server's message quotes because the server could not read it, made readable. It has no
// id. ok is false where the request's model is not repaired, where what is quoted is not one call of a tool on offer,
// and where nothing is quoted.
//
// Ollama writes: error parsing tool call: raw='TEXT', err=REASON. TEXT is the arguments, and whose they are is known
// where one tool is on offer. llama.cpp writes: Failed to parse input at pos N: TEXT, where TEXT may stand in tags.
func quotedCall(r agent.Request, message string) (agent.ReplyCall, bool) {
	if r.Model.Repair != agent.RepairOn {
		return agent.ReplyCall{}, false
	}
	if _, raw, ok := strings.Cut(message, "error parsing tool call: raw='"); ok {
		end := strings.LastIndex(raw, "', err=")
		if end < 0 { // nobody knows how much is missing
			return agent.ReplyCall{}, false
		}
		return callIn(r.Tools, raw[:end], len(r.Tools) == 1)
	}
	if _, raw, ok := strings.Cut(message, "Failed to parse input at pos "); ok {
		return callIn(r.Tools, stripTags(raw), false)
	}
	return agent.ReplyCall{}, false
}

// stripTags returns a text from its first brace on, without a closing tag at its end.
func stripTags(text string) string {
	start := strings.IndexByte(text, '{')
	if start < 0 {
		return ""
	}
	text = text[start:]
	if end := strings.LastIndex(text, "</"); end >= 0 && !strings.ContainsAny(text[end:], `"'}`) {
		text = text[:end]
	}
	return text
}

// written is a call as models write it.
type written struct {
	Name       string
	Arguments  arguments
	Parameters arguments
	Function   *written
}

// callIn reads a call: an object with the name of a tool on offer and its arguments. With bare it may also be the
// arguments alone, of the only tool there is.
func callIn(tools []agent.ToolSpec, text string, bare bool) (agent.ReplyCall, bool) {
	object, ok := jsonx.RepairJSON([]byte(text))
	if !ok || object[0] != '{' {
		return agent.ReplyCall{}, false
	}
	var w written
	if err := json.Unmarshal(object, &w); err == nil && w.Function != nil {
		w = *w.Function
	}
	input := cmp.Or(w.Arguments, w.Parameters)
	offered := slices.ContainsFunc(tools, func(t agent.ToolSpec) bool { return t.ModelName() == w.Name })
	switch {
	case offered && input != "":
		return agent.ReplyCall{Name: w.Name, Input: json.RawMessage(input), Repaired: true}, true
	case bare && (w.Name == "" || input == ""):
		return agent.ReplyCall{Name: tools[0].ModelName(), Input: object, Repaired: true}, true
	}
	return agent.ReplyCall{}, false
}
