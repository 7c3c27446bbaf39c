package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The tools that end a run under TextRequireTool (seed 004).
const (
	toolCompletion = "task_completion"
	toolAsk        = "ask_question"
	toolConverse   = "converse"
)

// builtins are the tools that s's model is offered behind the definition's own.
// nil as s is one in whose conversation nothing stands.
func (d *Definition) builtins(s *AgentState) []ToolSpec {
	tools := d.loopBreaking()
	if t, ok := d.readMore(); ok && s != nil && s.cutResults() {
		tools = append(tools, t)
	}
	return tools
}

// builtin finds one of all the tools that d may ever offer behind its own.
func (d *Definition) builtin(is func(ToolSpec) bool) (ToolSpec, bool) {
	tools := d.everyBuiltin()
	if i := slices.IndexFunc(tools, is); i >= 0 {
		return tools[i], true
	}
	return ToolSpec{}, false
}

// reserved are the names of tools that d's own may not have.
func (d *Definition) reserved() []string {
	if d.Text == TextRequireTool {
		return LoopBreaking
	}
	return nil
}

// loopBreaking are the loop-breaking tools that d offers. Where the output has to be JSON, only a completion gives it: questions and words
// are none.
func (d *Definition) loopBreaking() []ToolSpec {
	if d.Text != TextRequireTool {
		return nil
	}
	var tools []ToolSpec
	for _, name := range LoopBreaking {
		if slices.Contains(d.XML.Disable, name) || d.Output.Format == OutputJSON && name != toolCompletion {
			continue
		}
		tools = append(tools, ToolSpec{
			Name: name, Kind: KindInternal, Effect: EffectRead, Description: d.word(loopBreakingWord[name], nil), Schema: d.loopBreakingSchema(name),
		})
	}
	return tools
}

// loopBreakingWord are the keys of the tools' descriptions.
var loopBreakingWord = map[string]string{toolCompletion: wordCompletion, toolAsk: wordAsk, toolConverse: wordConverse}

func (d *Definition) loopBreakingSchema(name string) json.RawMessage {
	switch {
	case name == toolAsk:
		return json.RawMessage(`{"type":"object","properties":{"question":{"type":"string","minLength":1},` +
			`"suggestions":{"type":"array","items":{"type":"string","minLength":1},"maxItems":4}},"required":["question"]}`)
	case name == toolConverse:
		return json.RawMessage(`{"type":"object","properties":{"message":{"type":"string","minLength":1}},"required":["message"]}`)
	case d.Output.Format != OutputJSON:
		return json.RawMessage(`{"type":"object","properties":{"result":{"type":"string","minLength":1}},"required":["result"]}`)
	case d.Output.Schema == nil || bytes.Contains(d.Output.Schema, []byte(`"$`)): // what refers within itself cannot stand within another one
		return json.RawMessage(`{"type":"object","properties":{"result":{}},"required":["result"]}`)
	default:
		return json.RawMessage(`{"type":"object","properties":{"result":` + string(d.Output.Schema) + `},"required":["result"]}`)
	}
}

// breaksLoop reports whether a tool of that original name is a loop-breaking one of d's.
func (d *Definition) breaksLoop(tool string) bool {
	_, ok := d.builtin(func(t ToolSpec) bool { return t.Name == tool })
	return ok && slices.Contains(LoopBreaking, tool)
}

// gateLoopBreaking settles a call of a loop-breaking tool: nothing runs and no policy is asked, as it has no effect but the run's end.
func gateLoopBreaking(d *Definition, t ToolSpec, c Call, valid Validator) Gate {
	said, err := d.lastWord(t, c, valid)
	if err != nil {
		return refuse(c, WhyInvalidArguments, d.word(wordInvalidArguments, map[string]any{"Tool": c.Name, "Problem": err.Error()}), Decision{})
	}
	return Gate{Give: &ToolResultData{Content: said}}
}

// lastWord is what a call of a loop-breaking tool says. Errors are of its arguments and fit for the model.
func (d *Definition) lastWord(t ToolSpec, c Call, valid Validator) (string, error) {
	if d.Output.Format == OutputJSON {
		value, err := d.completedValue(c.Input)
		if err == nil && d.Output.Schema != nil {
			err = valid(ToolSpec{Name: t.Name, Schema: d.Output.Schema}, value)
		}
		return string(value), err
	}
	if err := ValidArguments(valid, t, c.Input); err != nil {
		return "", err
	}
	said := loopBreakingText(t.Name, c.Input)
	if strings.TrimSpace(said) == "" {
		return "", errors.New("it says nothing")
	}
	return said, nil
}

// loopBreakingArguments are those of all three tools.
type loopBreakingArguments struct {
	Result      json.RawMessage `json:"result"`
	Question    string          `json:"question"`
	Suggestions []string        `json:"suggestions"`
	Message     string          `json:"message"`
}

// loopBreakingText is what a call says whose arguments are valid: a question with its suggestions, numbered.
func loopBreakingText(tool string, input json.RawMessage) string {
	var in loopBreakingArguments
	if json.Unmarshal(input, &in) != nil { // the gate lets nothing else through
		return ""
	}
	switch tool {
	case toolAsk:
		text := strings.TrimSpace(in.Question)
		for i, s := range in.Suggestions {
			text += fmt.Sprintf("\n%d. %s", i+1, s)
		}
		return text
	case toolConverse:
		return in.Message
	default:
		var result string
		if json.Unmarshal(in.Result, &result) != nil {
			return ""
		}
		return result
	}
}

// completedValue is the result of a completion whose run has to end in JSON: the value itself, or the one that a text spells where the
// output's schema wants no text.
func (d *Definition) completedValue(input json.RawMessage) (json.RawMessage, error) {
	var in loopBreakingArguments
	if len(input) == 0 || input[0] != '{' || json.Unmarshal(input, &in) != nil {
		return nil, errors.New("want an object with a result")
	}
	if len(in.Result) == 0 {
		return nil, errors.New("result is missing")
	}
	value, err := CompactJSON(in.Result, outputLimits)
	if err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	var text string
	if json.Unmarshal(value, &text) != nil {
		return value, nil
	}
	schema, err := readSchema(d.Output.Schema)
	if err != nil {
		schema = nil
	}
	spelled, err := CompactJSON([]byte(text), outputLimits)
	if err != nil || schema["type"] != nil && wants(schema, "string") || schema["type"] == nil && spelled[0] != '{' && spelled[0] != '[' {
		return value, nil
	}
	return spelled, nil
}

// exitEnd ends a run by its call of a loop-breaking tool: what that said is the output.
func exitEnd(d *Definition, c Call) Finished {
	end := Finished{Reason: ReasonNaturalEnd, Output: textOutput(loopBreakingText(c.Tool, c.Input)), History: d.Output.History}
	if d.Output.Format != OutputJSON {
		return end
	}
	value, err := d.completedValue(c.Input)
	if err != nil { // the gate lets nothing else through
		return Fail(CodeInternal, "the run's output is not JSON: "+err.Error())
	}
	end.Output = value
	return end
}

// exit is the call by which the run is over: one of a loop-breaking tool, that succeeded, of the newest inference. Whatever was said since,
// but for what its round gave, is owed an answer first.
func (s *AgentState) exit() (Call, bool) {
	if s.Round.Inference != s.Prior+s.Inferences {
		return Call{}, false
	}
	round := s.newest()
	i := slices.IndexFunc(round, func(c Call) bool { return c.Breaks && c.Status == StatusSucceeded })
	if i < 0 {
		return Call{}, false
	}
	all := s.Messages.All()
	turn := len(all) - 1
	for turn >= 0 && all[turn].Role != RoleAssistant {
		turn--
	}
	for _, m := range all[turn+1:] {
		_, text := m.Block.(Text) // the note of a cancelled run stands in the event that closed its calls
		own := func(c Call) bool { return !text && c.Result != nil && c.Result.source.sameEvent(m.Source) }
		if !slices.ContainsFunc(round, own) && (turn < 0 || !m.Source.sameEvent(all[turn].Source)) {
			return Call{}, false
		}
	}
	return round[i], true
}

// builtinNames refuses tools that the model could not tell from the one that reads on in results.
func (c *checker) builtinNames(d *Definition) {
	_, reads := d.readMore()
	for i, t := range d.Tools {
		if reads && t.ModelName() == ReadMore {
			c.add(fmt.Sprintf("tools[%d].name", i), t.ModelName()+" is the name of a built-in tool, want another one, or context.keepWhole: false")
		}
	}
}

// ToolsIn are the agent's tools and the built-in ones that it is offered in the state s.
func (d *Definition) ToolsIn(s *AgentState) []ToolSpec {
	return append(slices.Clip(d.usable(s)), d.builtins(s)...)
}
