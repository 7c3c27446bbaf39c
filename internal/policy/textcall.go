package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// Reply returns r with the remaining text instead of the whole text, and with the thinking blocks added to the
// provider's reasoning.
func (t ToolText) Reply(r agent.Reply) agent.Reply {
	var all []run.RepliedReasoning
	thoughts := t.Thoughts
	before := func(n int) {
		for len(thoughts) > 0 && thoughts[0].at <= n {
			all = append(all, run.RepliedReasoning{Reasoning: run.Reasoning{Text: thoughts[0].Text, Provider: TextReasoning},
				AfterText: thoughts[0].After})
			thoughts = thoughts[1:]
		}
	}
	for _, own := range r.Reasoning {
		before(own.AfterText - 1)
		own.AfterText = t.offsetOf(own.AfterText)
		all = append(all, own)
	}
	before(len(r.Text))
	r.Text, r.Reasoning = t.Text, all
	return r
}

// TextReasoning is the provider of reasoning from thinking tags in a reply's text. It is never sent back.
const TextReasoning = "text"

// Call converts a call in tags to a native one: under the model-facing name of its tool, and with texts of elements
// converted to the types of the tool's schema. The run creates the id.
func Call(d *agent.Definition, c TextCall) agent.ReplyCall {
	t, ok := findTool(d, c)
	if !ok {
		return agent.ReplyCall{Name: unknownName(d, c), Input: c.Arguments}
	}
	if c.Elements {
		c.Arguments = fitArguments(t.Schema, c.Arguments)
	}
	return agent.ReplyCall{Name: t.ModelName(), Input: c.Arguments}
}

// findTool finds the tool of a call in tags. The server local has every tool. A tool with a dot also belongs to the
// server before the dot, under its full name or the rest. Names may be model-facing.
func findTool(d *agent.Definition, c TextCall) (agent.ToolSpec, bool) {
	t, ok := d.Tool(c.Tool)
	if !ok {
		t, ok = d.ToolByModelName(c.Tool)
	}
	prefix := c.Server + "."
	if ok && (c.Server == localServer || strings.HasPrefix(t.Name, prefix)) {
		return t, true
	}
	return d.Tool(prefix + c.Tool)
}

// unknownName returns the name for a call of a tool that does not exist: the model's name, as far as every provider
// accepts it, and never that of a tool.
func unknownName(d *agent.Definition, c TextCall) string {
	name := c.Tool
	if c.Server != localServer {
		name = c.Server + "_" + c.Tool
	}
	safe := agent.SentName(name)
	safe = safe[:min(len(safe), 60)]
	for _, taken := d.ToolByModelName(safe); taken; _, taken = d.ToolByModelName(safe) {
		safe += "_"
	}
	return safe
}

// fitArguments converts the texts of arguments from elements to the types of a schema: numbers, booleans, null, lists
// and objects. A text that does not fit stays, and the check of the arguments reports it.
func fitArguments(schema, arguments json.RawMessage) json.RawMessage {
	wanted, err := agent.ReadSchema(schema)
	if err != nil {
		return arguments
	}
	value, err := jsonx.DecodeNumbers(arguments)
	if err != nil {
		return arguments
	}
	out, err := jsonx.MarshalVerbatim(fitValue(wanted, value))
	if err != nil {
		return arguments
	}
	return out
}

func fitValue(schema map[string]any, value any) any {
	text, isText := value.(string)
	switch {
	case isText && allowsType(schema, "string"):
		return value
	case isText && !allowsType(schema, "array"):
		return fitText(schema, text)
	}
	if allowsType(schema, "array") {
		return fitList(schema, value)
	}
	object, ok := value.(map[string]any)
	if !ok {
		return value
	}
	properties, _ := schema["properties"].(map[string]any)
	for key, v := range object {
		if inner, ok := properties[key].(map[string]any); ok {
			object[key] = fitValue(inner, v)
		}
	}
	return object
}

// fitText returns the JSON value that a text spells, if the schema wants a value of its kind.
func fitText(schema map[string]any, text string) any {
	raw, err := jsonx.CompactJSON([]byte(text), jsonx.JSONLimits{})
	if err != nil || !allowsType(schema, jsonTypes[jsonx.JSONKind(raw)]...) {
		return text
	}
	value, err := jsonx.DecodeNumbers(raw)
	if err != nil {
		return text
	}
	return value
}

// fitList returns a list: of elements with the same name, of the only child elements, of a single value, or as a text
// spells it.
func fitList(schema map[string]any, value any) any {
	items, _ := schema["items"].(map[string]any)
	var list []any
	switch v := value.(type) {
	case []any:
		list = v
	case map[string]any:
		if list = onlyMember(items, v); list == nil {
			list = []any{v}
		}
	case string:
		if strings.TrimSpace(v) == "" {
			return []any{}
		}
		if spelled, ok := fitText(schema, v).([]any); ok {
			return spelled
		}
		list = []any{v}
	}
	for i := range list {
		list[i] = fitValue(items, list[i])
	}
	return list
}

// onlyMember returns the values of an object's only key, as in <tags><tag>a</tag><tag>b</tag></tags>. It returns nil if
// there are more keys, or if the items themselves have such a key.
func onlyMember(items, object map[string]any) []any {
	if len(object) != 1 {
		return nil
	}
	properties, _ := items["properties"].(map[string]any)
	for key, v := range object {
		if _, own := properties[key]; own {
			return nil
		}
		if list, ok := v.([]any); ok {
			return list
		}
		return []any{v}
	}
	return nil
}

// allowsType reports whether a schema's own type is one of the kinds. A schema without a type counts as a string.
func allowsType(schema map[string]any, kinds ...string) bool {
	var types []any
	switch t := schema["type"].(type) {
	case string:
		types = []any{t}
	case []any:
		types = t
	default:
		types = []any{"string"}
	}
	return slices.ContainsFunc(types, func(t any) bool {
		kind, ok := t.(string)
		return ok && slices.Contains(kinds, kind)
	})
}

// jsonTypes are the types of JSON Schema for each kind of value. A string has none, because it is a text already.
var jsonTypes = map[byte][]string{
	'{': {"object"}, '[': {"array"}, 'b': {"boolean"}, 'n': {"null"}, '0': {"number", "integer"},
}

// LoopBreakingArguments holds the arguments of all three loop-breaking tools.
type LoopBreakingArguments struct {
	Result      json.RawMessage `json:"result"`
	Question    string          `json:"question"`
	Suggestions []string        `json:"suggestions"`
	Message     string          `json:"message"`
}

// CompletedValue returns the result of a completion whose run has to end in JSON: the value itself, or the value that a
// text spells if the output's schema wants no text.
func CompletedValue(d *agent.Definition, input json.RawMessage) (json.RawMessage, error) {
	var in LoopBreakingArguments
	if len(input) == 0 || input[0] != '{' || json.Unmarshal(input, &in) != nil {
		return nil, errors.New("want an object with a result")
	}
	if len(in.Result) == 0 {
		return nil, errors.New("result is missing")
	}
	value, err := jsonx.CompactJSON(in.Result, agent.OutputLimits)
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	text, ok := jsonx.JSONString(value)
	if !ok {
		return value, nil
	}
	schema, err := agent.ReadSchema(d.Output.Schema)
	if err != nil {
		schema = nil
	}
	spelled, err := jsonx.CompactJSON([]byte(text), agent.OutputLimits)
	if err != nil || schema["type"] != nil && allowsType(schema, "string") || schema["type"] == nil && spelled[0] != '{' &&
		spelled[0] != '[' {
		return value, nil
	}
	return spelled, nil
}
