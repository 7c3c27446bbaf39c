package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/dialect"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// modelTexts are the messages that are texts of the model, less empty ones.
func modelTexts(messages []run.Message) []run.Message {
	return slices.DeleteFunc(slices.Clone(messages), func(m run.Message) bool {
		t, ok := m.Block.(run.Text)
		return !ok || t.Text == "" || m.Role != run.RoleAssistant
	})
}

// replyPieces are the texts of the model from where the newest reply begins.
func replyPieces(s *run.AgentState) (text string) {
	for _, m := range modelTexts(s.Messages.All()[max(0, s.Cut.From-s.EvictedMessages):]) {
		text += m.Block.(run.Text).Text
	}
	return text
}

// endWithReason returns an end that is not a natural one.
func endWithReason(r run.Reason) run.Finished {
	return run.Finished{Reason: r, OpenText: agent.TextRunEnded, UnknownText: agent.TextOutcomeLost}
}

// Fail is the end of a run in error. message must be fit to be stored and shown.
func Fail(code run.ErrorCode, message string) run.Finished {
	end := endWithReason(run.ReasonError)
	end.Error = &run.RunError{Code: code, Message: message}
	return end
}

// finalText returns the text the model ended with, "" when it said nothing: all texts of its newest turn, or of all its
// turns where that was said in pieces. Reasoning is no part of it, but may stand within it.
func finalText(s *run.AgentState) string {
	if s.Cut.Prompts > 0 {
		return replyPieces(s)
	}
	all, text := s.Messages.All(), ""
	for i := len(all) - 1; i >= 0 && all[i].Role == run.RoleAssistant &&
		all[i].Source.SameEvent(all[len(all)-1].Source); i-- {
		switch b := all[i].Block.(type) {
		case run.Text:
			text = b.Text + text
		case run.ToolUse:
			return ""
		}
	}
	return text
}

// requestedEnd is the end that a stop policy or a plugin asked for. The output of a run that was stopped is the last
// word of its model, if it has said one. A run that a plugin ends has the last text so far, if that is an output of the
// form that was asked for.
func requestedEnd(d *agent.Definition, s *run.AgentState) run.Finished {
	end, stopped, text := endWithReason(s.Ending), s.Ending.Deferred(), finalText(s)
	end.Detail = s.EndingDetail
	switch {
	case d.Output.Format == agent.OutputJSON:
		value, err := jsonx.CompactJSON([]byte(text), agent.OutputLimits)
		if err == nil && s.Correction == nil && (stopped || s.Inferences > 0) {
			end.Output = value
		}
	case !stopped:
		text = newestText(s)
		fallthrough
	case s.Correction == nil:
		if text != "" {
			end.Output = agent.TextOutput(text)
		}
	}
	end.History = d.Output.History && (!stopped || end.Output != nil)
	return end
}

// callsBeforeEnd returns the calls that are still carried out although the run is to end. Where plugins have failed,
// what is under way is waited for and nothing is started. Where a plugin has asked for the end, what was approved
// before is carried out, too: while somebody is asked, the run does not end, it parks (presets 3). A run that is only
// stopped carries out all.
func callsBeforeEnd(s *run.AgentState, calls []string) []string {
	switch {
	case s.Broken != nil:
		calls = nil
		for _, c := range s.Live {
			if c.Status == run.StatusRunning {
				calls = append(calls, c.ID)
			}
		}
	case s.Ending != "" && !s.Ending.Deferred():
		calls = slices.DeleteFunc(calls, func(id string) bool {
			c, _ := s.Call(id)
			return c.Status == run.StatusNew
		})
	}
	return calls
}

// newestText returns the model's newest live text, "" if there is none: all texts of the newest turn that has one.
func newestText(s *run.AgentState) (text string) {
	texts := modelTexts(s.Messages.All())
	for _, m := range texts {
		if m.Source.SameEvent(texts[len(texts)-1].Source) {
			text += m.Block.(run.Text).Text
		}
	}
	return text
}

// ModelFailed is what becomes of a run whose models have all failed after so many requests: the definition's static
// text is its natural end, it waits for the models, or it ends in error. An error of a class that does not move on
// ended the chain before its last model, and has no static text; nor may that close what people were asked and calls
// that are open. ok is false while the run waits: it does not end, and nothing is committed.
func ModelFailed(
	d *agent.Definition, s *run.AgentState, failed *agent.ModelError, requests int, at time.Time,
) (end run.Finished, ok bool) {
	m := d.Model
	switch waits := m.Waits(failed); {
	case m.StaticText != "" && m.MovesOn(failed.Class) && s.OpenCall() == nil && len(s.Permissions.Asked) == 0:
		end = run.Finished{Reason: run.ReasonNaturalEnd, Static: m.StaticText, History: d.Output.History}
		end.Output = agent.TextOutput(m.StaticText)
		if d.Output.Format == agent.OutputJSON { // Check lets nothing but JSON through
			end.Output = []byte(m.StaticText)
		}
	case waits && !timedOut(d, s, at.UnixMilli()):
		return run.Finished{}, false
	case waits:
		end = endWithReason(run.Stopped(StopTimeout))
	default:
		end = Fail(run.CodeModelFailed, failed.Error())
	}
	end.Requests = requests
	return end, true
}

// CancelRun is the end of a run that somebody called off. The note tells a run that continues this one what happened.
func CancelRun(by, note string) run.Finished {
	end := endWithReason(run.ReasonCancelled)
	end.By, end.Note = by, agent.TextCancelled(by, note)
	return end
}

// Interrupt is CancelRun of a run as it is: the note says what it was at.
func Interrupt(s *run.AgentState, by, note string) run.Finished {
	stage := "during inference"
	if len(s.Waits()) > 0 {
		stage = "while it waited"
	}
	if slices.ContainsFunc(s.Live, func(c run.Call) bool { return c.Open() && c.Status != run.StatusSuspended }) {
		stage = "during tools"
	}
	end := CancelRun(by, note)
	end.Note = agent.TextInterrupted(stage, by, note)
	return end
}

// TextAttempts stands behind the last error of a call that was entered n times, from 2.
func TextAttempts(n int) string { return fmt.Sprintf("\n[It was tried %d times.]", n) }

// WrongOutput is what code finds wrong with an output that fits its schema.
type WrongOutput string

func (w WrongOutput) Error() string { return "it was checked, and is wrong:\n" + string(w) }

// judgeOutput refuses what is not JSON, or does not fit the schema. valid checks a value, with an error for the model.
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
	var said string
	var err error
	if d.Output.Format == agent.OutputJSON {
		var value json.RawMessage
		value, err = dialect.CompletedValue(d, c.Input)
		if err == nil && d.Output.Schema != nil {
			err = valid(agent.ToolSpec{Name: t.Name, Schema: d.Output.Schema}, value)
		}
		said = string(value)
	} else if err = agent.ValidArguments(valid, t, c.Input); err == nil {
		if said = loopBreakingText(t.Name, c.Input); strings.TrimSpace(said) == "" {
			err = errors.New("it says nothing")
		}
	}
	if err != nil {
		return refuseArguments(d, c, err, Decision{})
	}
	return Gate{Give: &agent.ToolResultData{Content: said}}
}

// LastWordRefused is the gate of a loop-breaking call whose output code finds wrong.
func LastWordRefused(d *agent.Definition, c run.Call, wrong WrongOutput) Gate {
	return refuseArguments(d, c, wrong, Decision{})
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
