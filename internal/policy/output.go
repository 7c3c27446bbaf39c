package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/dialect"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// WrongOutput is what code finds wrong with an output that fits its schema.
type WrongOutput string

func (w WrongOutput) Error() string { return "it was checked, and is wrong:\n" + string(w) }

// judgeOutput refuses what is not JSON, or does not fit the schema. valid checks a value; its error is for the model to
// read.
func judgeOutput(
	d *agent.Definition, s *run.AgentState, e run.Replied, valid func(value json.RawMessage) error,
) run.Replied {
	value, err := jsonx.CompactJSON([]byte(dialect.Spoken(d, joinPieces(s, e.Text))), agent.OutputLimits)
	if err != nil {
		err = fmt.Errorf("it is not one JSON value: %w", err)
	} else if err = valid(value); err != nil && !errors.As(err, new(WrongOutput)) {
		err = fmt.Errorf("it does not fit the schema:\n%w", err)
	}
	switch {
	case err == nil:
	case e.Summary:
		e.Correction = &run.Correction{Text: err.Error()}
	default:
		e.Correction = &run.Correction{
			Lifecycle: run.LifecycleOutputError, Text: agent.TextOutputRefused(d, err),
			Ephemeral: d.Corrections == agent.CorrectionsEphemeral,
		}
		if strings.TrimSpace(e.Text) == "" { // seed 000 keeps a turn of the model's here, too
			e.Text = d.Word(agent.WordNoReply, nil)
		}
	}
	return e
}

// naturalEnd ends a run whose model has said its last word, in a text or by a tool.
func naturalEnd(d *agent.Definition, s *run.AgentState) run.Finished {
	said := dialect.Spoken(d, finalText(s))
	c, exits := s.Exit()
	if exits {
		said = loopBreakingText(c.Tool, c.Input)
	}
	end := run.Finished{Reason: run.ReasonNaturalEnd, Output: agent.TextOutput(said), History: d.Output.History}
	if d.Output.Format != agent.OutputJSON {
		return end
	}
	if s.Correction != nil && !exits {
		code, why := run.CodeBreaker, "the run left its loop"
		if i := exhaustedLimit(d, s); i >= 0 {
			code, why = limits[i].code, limits[i].text(stopInput{d: d, s: s})
		}
		return Fail(code, why+", and its summary is not the output that was asked for: "+s.Correction.Text)
	}
	value, err := jsonx.CompactJSON([]byte(said), agent.OutputLimits)
	if exits {
		value, err = dialect.CompletedValue(d, c.Input)
	}
	switch {
	case err == nil:
		end.Output = value
	case d.Limits.Validators == agent.ValidatorsNotExhausted && !exits: // an exhausted reply, which nobody has judged
	default: // Judge and the gate let nothing else through
		return Fail(run.CodeInternal, "the run's output is not JSON: "+err.Error())
	}
	return end
}

// gateLoopBreaking settles a call of a loop-breaking tool: nothing runs and no policy is asked, as it has no effect but
// the run's end.
func gateLoopBreaking(d *agent.Definition, t agent.ToolSpec, c run.Call, valid agent.Validator) Gate {
	said, err := loopBreakingAnswer(d, t, c, valid)
	if err != nil {
		return refuseArguments(d, c, err, Decision{})
	}
	return Gate{Give: &agent.ToolResultData{Content: said}}
}

// LastWordRefused is the gate of a loop-breaking call whose output code finds wrong.
func LastWordRefused(d *agent.Definition, c run.Call, wrong WrongOutput) Gate {
	return refuseArguments(d, c, wrong, Decision{})
}

// loopBreakingAnswer returns the run's answer in a call of a loop-breaking tool. Errors are of its arguments and fit
// for the model.
func loopBreakingAnswer(d *agent.Definition, t agent.ToolSpec, c run.Call, valid agent.Validator) (string, error) {
	if d.Output.Format == agent.OutputJSON {
		value, err := dialect.CompletedValue(d, c.Input)
		if err == nil && d.Output.Schema != nil {
			err = valid(agent.ToolSpec{Name: t.Name, Schema: d.Output.Schema}, value)
		}
		return string(value), err
	}
	if err := agent.ValidArguments(valid, t, c.Input); err != nil {
		return "", err
	}
	said := loopBreakingText(t.Name, c.Input)
	if strings.TrimSpace(said) == "" {
		return "", errors.New("it says nothing")
	}
	return said, nil
}

// loopBreakingText is what a call says whose arguments are valid: a question with its suggestions, numbered.
func loopBreakingText(tool string, input json.RawMessage) string {
	var in dialect.LoopBreakingArguments
	if json.Unmarshal(input, &in) != nil { // the gate lets nothing else through
		return ""
	}
	switch tool {
	case agent.ToolAsk:
		text := strings.TrimSpace(in.Question)
		for i, s := range in.Suggestions {
			text += fmt.Sprintf("\n%d. %s", i+1, s)
		}
		return text
	case agent.ToolConverse:
		return in.Message
	default:
		var result string
		if json.Unmarshal(in.Result, &result) != nil {
			return ""
		}
		return result
	}
}

// ToolsIn are the agent's tools and the built-in ones that it is offered in the state s.
func ToolsIn(d *agent.Definition, s *run.AgentState) []agent.ToolSpec {
	tools := slices.DeleteFunc(slices.Clone(d.Tools), func(t agent.ToolSpec) bool { return Disabled(s, t) })
	return append(tools, d.Builtins(s)...)
}
