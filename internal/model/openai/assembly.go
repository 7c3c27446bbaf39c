package openai

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/model/modelretry"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// maxCalls bounds the tool calls of one reply; no model makes as many on purpose.
const maxCalls = 1000

// assembly is a reply under way.
type assembly struct {
	asked   agent.Request
	onDelta func(agent.Delta)
	model   string // that answers; the one that was asked until the server says
	text    strings.Builder
	reason  strings.Builder
	field   string // under which reasoning came
	details []*detail
	blocks  []*detail
	refuse  bool // the model refuses: the text says why
	calls   []*callParts
	finish  string
	usage   run.Usage
}

// callParts is a tool call under way. Place is the index the server gave it, or its rank where it gave none.
type callParts struct {
	place     int
	id, name  string
	repaired  bool // the server could not read it
	arguments strings.Builder
	extra     json.RawMessage // what the server wants back with the call; nil = nothing
}

// provider is this adapter's name in a definition.
const provider = "openai"

// add takes the delta of a completion's first choice and tells of it.
func (a *assembly) add(c completion) error {
	a.model = cmp.Or(modelretry.Clip(c.Model), a.model)
	if c.Usage != nil {
		// Each token counts once: the provider's prompt_tokens include the cached ones, Usage.Input does not. Some servers
		// (xAI, Gemini) bill for reasoning that their total_tokens alone include.
		u, prompt := c.Usage, boundTokens(c.Usage.Prompt)
		cached := min(boundTokens(u.Details.Cached), prompt)
		a.usage = run.Usage{Input: prompt - cached, Output: max(boundTokens(u.Completion), boundTokens(u.Total)-prompt),
			CacheRead: cached}
	}
	for _, ch := range c.Choices {
		if ch.Index != 0 {
			continue
		}
		p := ch.Delta
		a.addReasoning(p)
		text := p.Content.text + p.Refusal.is
		a.refuse = a.refuse || p.Refusal.is != ""
		a.text.WriteString(text)
		a.addText(agent.DeltaText, text)
		for _, d := range p.ToolCalls {
			if a.addCall(d); len(a.calls) > maxCalls {
				return modelError(agent.ModelInvalid, fmt.Sprintf("reply has more than %d tool calls", maxCalls))
			}
		}
		finish, _, _ := strings.Cut(modelretry.Clip(ch.FinishReason), ":") // Gemini says more behind it
		a.finish = cmp.Or(stopWords[finish], finish, a.finish)
	}
	return nil
}

// boundTokens returns a server's count in bounds within which sums, and so budgets, do not overflow.
func boundTokens(n int64) int64 { return min(max(0, n), 1_000_000_000_000) }

func (a *assembly) addText(kind agent.DeltaKind, text string) {
	if text != "" {
		a.onDelta(agent.Delta{Kind: kind, Text: text})
	}
}

func (a *assembly) addCall(d callPiece) {
	c := a.findCall(d)
	begins := c == nil
	if begins {
		c = &callParts{place: len(a.calls)}
		if d.Index != nil {
			c.place = *d.Index
		}
		a.calls = append(a.calls, c)
	}
	c.id, c.name = cmp.Or(c.id, string(d.ID)), cmp.Or(c.name, d.Function.Name)
	if c.extra == nil && len(d.Extra) > 0 && d.Extra[0] == '{' {
		c.extra = d.Extra
	}
	c.arguments.WriteString(string(d.Function.Arguments))
	if begins || d.Function.Arguments != "" {
		a.onDelta(agent.Delta{Kind: agent.DeltaCall, Text: string(d.Function.Arguments), Place: slices.Index(a.calls, c),
			Call: c.id, Name: c.name})
	}
}

// findCall finds the call that a piece continues, the newest first; nil if the piece starts a call. Some servers give
// every call index 0 and some give none, so another id is another call whatever the index says, unless the piece names
// no tool: some give each piece an id of its own. Arguments with neither name nor id, at an index where nothing began,
// belong to the newest call.
func (a *assembly) findCall(d callPiece) *callParts {
	name, id := d.Function.Name, string(d.ID)
	for _, c := range slices.Backward(a.calls) {
		switch {
		case d.Index != nil && c.place != *d.Index:
		case name != "" && id != "" && c.id != "" && c.id != id:
		case d.Index == nil && name != "" && (id == "" || id != c.id):
		case name != "" && id == "" && c.whole() && strings.HasPrefix(string(d.Function.Arguments), "{"):
		default:
			return c
		}
	}
	last := len(a.calls) - 1
	if last >= 0 && name == "" && id == "" && d.Function.Arguments != "" && !a.calls[last].whole() {
		return a.calls[last]
	}
	return nil
}

// whole reports whether nothing can follow the arguments.
func (c *callParts) whole() bool {
	written := c.arguments.String()
	return strings.HasSuffix(written, "}") && agent.IsJSONObject([]byte(written))
}

// stopWords are other words for a filter and for the limit: Z.ai's, and those of Gemini itself.
var stopWords = map[string]string{
	"sensitive": "content_filter", "SAFETY": "content_filter", "RECITATION": "content_filter",
	"BLOCKLIST": "content_filter", "PROHIBITED_CONTENT": "content_filter", "SPII": "content_filter",
	"MAX_TOKENS": "length", "max_tokens": "length",
}

// givenUp are the finish reasons of replies that a server did not finish: Mistral's and OpenRouter's, DeepSeek's,
// Z.ai's, and Gemini's for a call that it could not read.
var givenUp = map[string]agent.ModelErrorClass{
	"error": agent.ModelServer, "insufficient_system_resource": agent.ModelUnavailable,
	"network_error": agent.ModelServer, "function_call_filter": agent.ModelServer,
	"MALFORMED_FUNCTION_CALL": agent.ModelServer,
}

// interrupted is the failure of a reply that broke off, with what there is of it.
func (a *assembly) interrupted(err error) error {
	if failure, ok := errors.AsType[*agent.ModelError](err); ok {
		// they were still to come
		a.calls = slices.DeleteFunc(a.calls, func(c *callParts) bool { return c.arguments.Len() == 0 })
		failure.Partial = policy.KeepInterrupted(a.reply())
	}
	return err
}

// reply is what was put together, calls in order of their index.
func (a *assembly) reply() agent.Reply {
	slices.SortStableFunc(a.calls, func(x, y *callParts) int { return cmp.Compare(x.place, y.place) })
	r := agent.Reply{Model: a.model, Text: a.text.String(), StopReason: a.finish, Truncated: a.finish == "length",
		Usage: a.usage}
	if a.refuse {
		r.StopReason = "refusal"
	}
	r.Reasoning = a.reasoning()
	for i, c := range a.calls {
		if c.extra != nil {
			thought := a.thought()
			thought.Redacted, thought.Field = c.extra, fieldExtra
			r.Reasoning = append(r.Reasoning, run.RepliedReasoning{Reasoning: thought, AfterText: len(r.Text),
				AfterCalls: i + 1})
		}
		input := modelretry.Arguments(c.arguments.String(), policy.IsCutShort(a.finish) && i == len(a.calls)-1)
		// Kimi's and GLM's names have come with blanks around them, and gpt-oss' with what its format has behind them
		name, _, _ := strings.Cut(strings.TrimSpace(c.name), "<|")
		r.Calls = append(r.Calls, agent.ReplyCall{ID: c.id, Name: name, Input: input, Repaired: c.repaired})
	}
	return r
}

// stopRepaired is the StopReason of a reply that a server reported as an error of its own.
const stopRepaired = "repaired"

// recoverQuotedCall ends a reply with the call that a problem quotes, if it quotes one.
func (a *assembly) recoverQuotedCall(p problem) bool {
	c, ok := quotedCall(a.asked, p)
	if a.finish != "" || !ok {
		return false
	}
	part := &callParts{place: len(a.calls), id: c.ID, name: c.Name, repaired: true}
	part.arguments.Write(c.Input)
	a.calls, a.finish = append(a.calls, part), stopRepaired
	return true
}

// quotedCall is the call that a server's message quotes because the server could not read it, made readable. It has no
// id. ok is false where the request's model is not repaired, where what is quoted is not one call of a tool on offer or
// may be cut, and where nothing is quoted.
//
// Ollama writes: error parsing tool call: raw='TEXT', err=REASON. TEXT is the arguments, and whose they are is known
// where one tool is on offer. llama.cpp writes: Failed to parse input at pos N: TEXT, where TEXT may stand in tags.
// Groq, which checks arguments against schemas too, has a field for the call.
func quotedCall(r agent.Request, p problem) (agent.ReplyCall, bool) {
	if r.Model.Repair != agent.RepairOn {
		return agent.ReplyCall{}, false
	}
	if p.failed != "" {
		return callIn(r.Tools, p.failed, false, true)
	}
	if _, raw, ok := strings.Cut(p.message, "error parsing tool call: raw='"); ok {
		end := strings.LastIndex(raw, "', err=")
		return callIn(r.Tools, raw[:max(0, end)], len(r.Tools) == 1, true)
	}
	if _, raw, ok := strings.Cut(p.message, "Failed to parse input at pos "); ok {
		text, tagged := stripTags(raw)
		return callIn(r.Tools, text, false, !tagged)
	}
	return agent.ReplyCall{}, false
}

// stripTags returns a text from its first brace on, without a closing tag at its end. A text with one is not cut.
func stripTags(text string) (stripped string, tagged bool) {
	text = text[max(0, strings.IndexByte(text, '{')):]
	if end := strings.LastIndex(text, "</"); end >= 0 && !strings.ContainsAny(text[end:], `"'}`) {
		return text[:end], true
	}
	return text, false
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
func callIn(tools []agent.ToolSpec, text string, bare, mayBeCut bool) (agent.ReplyCall, bool) {
	object, ok := jsonx.RepairJSON([]byte(text), mayBeCut)
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
