package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// modelTexts returns the messages that are texts of the model, without empty ones.
func modelTexts(messages []run.Message) []run.Message {
	return slices.DeleteFunc(slices.Clone(messages), func(m run.Message) bool {
		t, ok := m.Block.(run.Text)
		return !ok || t.Text == "" || m.Role != run.RoleAssistant
	})
}

// replyPieces joins the model's texts from the start of its newest reply.
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

// Fail returns the end of a run in error. message must be fit to be stored and shown.
func Fail(code run.ErrorCode, message string) run.Finished {
	end := endWithReason(run.ReasonError)
	end.Error = &run.RunError{Code: code, Message: message}
	return end
}

// finalText returns the model's final text: all texts of its newest turn, or of all turns of a reply that came in
// pieces. It is "" if that turn has a call, or no text. Reasoning is left out, and what users have said since.
func finalText(d *agent.Definition, s *run.AgentState) string {
	if s.Cut.Prompts > 0 {
		return Spoken(d, replyPieces(s))
	}
	all, text := s.Messages.All(), ""
	last := len(all) - 1
	for ; last > 0 && all[last].Role == run.RoleUser && all[last].Seen(s.Inferences) == 0; last-- {
		if _, result := all[last].Block.(run.ToolResult); result {
			return ""
		}
	}
	for i := last; i >= 0 && all[i].Role == run.RoleAssistant && all[i].Seen(s.Inferences) <= 1 &&
		all[i].Source.SameEvent(all[last].Source); i-- {
		switch b := all[i].Block.(type) {
		case run.Text:
			text = b.Text + text
		case run.ToolUse:
			return ""
		}
	}
	return Spoken(d, text)
}

// requestedEnd returns the end that a stop policy or a plugin asked for. The output of a stopped run is the model's
// final text, if there is one. The output of a run that a plugin ends is the newest text, if it has the requested
// format.
func requestedEnd(d *agent.Definition, s *run.AgentState) run.Finished {
	end, stopped, text := endWithReason(s.Ending), s.Ending.Deferred(), finalText(d, s)
	end.Detail = s.EndingDetail
	switch {
	case d.Output.Format == agent.OutputJSON:
		value, err := jsonx.CompactJSON([]byte(text), agent.OutputLimits)
		if err == nil && s.Correction == nil && (stopped || s.Inferences > 0) {
			end.Output = value
		}
	case !stopped:
		text = Spoken(d, newestText(s))
		fallthrough
	case s.Correction == nil:
		if text != "" {
			end.Output = agent.TextOutput(text)
		}
	}
	end.History = d.Output.History && (!stopped || end.Output != nil)
	return end
}

// callsBeforeEnd returns the calls that are carried out before the run ends. If plugins have failed, the run waits for
// running calls and starts none. If a plugin has asked for the end, calls that were approved before are carried out,
// and no new ones; while a request is open, the run parks and does not end (presets 3). A run that a stop policy ends
// carries out all its calls.
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

// newestText returns all texts of the model's newest turn that has one. "" means that there is none.
func newestText(s *run.AgentState) (text string) {
	texts := modelTexts(s.Messages.All())
	for _, m := range texts {
		if m.Source.SameEvent(texts[len(texts)-1].Source) {
			text += m.Block.(run.Text).Text
		}
	}
	return text
}

// ModelFailed returns the end of a run whose models have all failed after this many requests. With static text the run
// ends naturally, unless calls or requests to people are open, or the class of the error ended the chain of models
// early. Otherwise the run waits for the models, or ends in error. ok is false while it waits: nothing is committed.
func ModelFailed(
	d *agent.Definition, s *run.AgentState, failed *agent.ModelError, requests int, at time.Time,
) (end run.Finished, ok bool) {
	m, timedOut := d.Model, TimeLeft(d, s, at) <= 0
	switch waits := m.Waits(failed); {
	case m.StaticText != "" && m.MovesOn(failed.Class) && s.OpenCall() == nil && len(s.Permissions.Asked) == 0:
		end = run.Finished{Reason: run.ReasonNaturalEnd, Static: m.StaticText, History: d.Output.History}
		end.Output = agent.TextOutput(m.StaticText)
		if d.Output.Format == agent.OutputJSON { // Check lets nothing but JSON through
			end.Output = []byte(m.StaticText)
		}
	case waits && !timedOut:
		return run.Finished{}, false
	case waits, timedOut && failed.Class == agent.ModelTimeout:
		end = endWithReason(run.Stopped(StopTimeout))
	default:
		end = Fail(run.CodeModelFailed, failed.Error())
	}
	end.Requests = requests
	return end, true
}

// CancelRun returns the end of a cancelled run. Its note tells a run that continues this one what happened.
func CancelRun(by, note string) run.Finished {
	end := endWithReason(run.ReasonCancelled)
	end.By, end.Note, end.Noted = by, agent.TextCancelled(by, note), note != ""
	return end
}

// InterruptRun is CancelRun with a note that says what the run was doing.
func InterruptRun(s *run.AgentState, by, note string) run.Finished {
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

// WrongOutput says what code finds wrong with an output that fits its schema.
type WrongOutput string

func (w WrongOutput) Error() string { return "it was checked, and is wrong:\n" + string(w) }

// judgeOutput refuses a final answer that is not JSON, or does not fit the schema. valid checks a value; its error is
// for the model.
func judgeOutput(
	d *agent.Definition, s *run.AgentState, e run.Replied, valid func(value json.RawMessage) error,
) run.Replied {
	value, err := jsonx.CompactJSON([]byte(spoken(d, s, e)), agent.OutputLimits)
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

// naturalEnd ends a run whose model has given its final answer, as text or by a tool.
func naturalEnd(d *agent.Definition, s *run.AgentState) run.Finished {
	said := finalText(d, s)
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
		value, err = CompletedValue(d, c.Input)
	}
	switch {
	case err == nil:
		end.Output = value
	case d.Limits.Validators == agent.ValidatorsNotExhausted && !exits: // an exhausted reply, which was not judged
	default: // Judge and the gate refuse every other output
		return Fail(run.CodeInternal, "the run's output is not JSON: "+err.Error())
	}
	return end
}

// gateLoopBreaking settles a call of a loop-breaking tool. No code runs and no policy decides, because the call only
// ends the run.
func gateLoopBreaking(d *agent.Definition, t agent.ToolSpec, c run.Call, valid agent.Validator) Gate {
	var said string
	var err error
	if d.Output.Format == agent.OutputJSON {
		var value json.RawMessage
		value, err = CompletedValue(d, c.Input)
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
		return RefuseArguments(d, c, err, Decision{})
	}
	return Gate{Give: &agent.ToolResultData{Content: said}}
}

// loopBreakingText returns the text of a call whose arguments are valid: of a question, with its suggestions numbered.
func loopBreakingText(tool string, input json.RawMessage) string {
	var in LoopBreakingArguments
	if json.Unmarshal(input, &in) != nil { // the gate refuses such arguments
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

// ToolsIn returns the agent's tools and the built-in ones that it is offered in state s.
func ToolsIn(d *agent.Definition, s *run.AgentState) []agent.ToolSpec {
	tools := slices.DeleteFunc(slices.Clone(d.Tools), func(t agent.ToolSpec) bool { return Disabled(s, t) })
	return append(tools, d.Builtins(s)...)
}
