package policy

import (
	"encoding/json"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// replyPieces are the texts of the model from where the newest reply begins.
func replyPieces(s *run.AgentState) string {
	text := ""
	for _, m := range s.Messages.All()[max(0, s.Cut.From-s.EvictedMessages):] {
		if t, ok := m.Block.(run.Text); ok && m.Role == run.RoleAssistant {
			text += t.Text
		}
	}
	return text
}

// Fail is the end of a run in error. message must be fit to be stored and shown.
func Fail(code run.ErrorCode, message string) run.Finished {
	return run.Finished{Reason: run.ReasonError, Error: &run.RunError{Code: code, Message: message}, OpenText: agent.TextRunEnded, UnknownText: agent.TextOutcomeLost}
}

// lastReply is the text the model ended with, "" when it said nothing: all texts of its newest turn, or of all its turns where that was
// said in pieces. Reasoning is no part of it, but may stand within it.
func lastReply(s *run.AgentState) string {
	if s.Cut.Prompts > 0 {
		return replyPieces(s)
	}
	all, text := s.Messages.All(), ""
	for i := len(all) - 1; i >= 0 && all[i].Role == run.RoleAssistant && all[i].Source.SameEvent(all[len(all)-1].Source); i-- {
		switch b := all[i].Block.(type) {
		case run.Text:
			text = b.Text + text
		case run.ToolUse:
			return ""
		}
	}
	return text
}

// stoppedEnd ends a run that was stopped. Where its model had said its last word anyway, that is the output.
func stoppedEnd(d *agent.Definition, s *run.AgentState) run.Finished {
	end := run.Finished{Reason: s.Ending, Detail: s.EndingDetail, OpenText: agent.TextRunEnded, UnknownText: agent.TextOutcomeLost}
	text := lastReply(s)
	if text == "" || s.Correction != nil {
		return end
	}
	if d.Output.Format != agent.OutputJSON {
		end.Output, end.History = agent.TextOutput(text), d.Output.History
		return end
	}
	if value, err := jsonx.CompactJSON([]byte(text), agent.OutputLimits); err == nil {
		end.Output, end.History = value, d.Output.History
	}
	return end
}

// requestedEnd is the end that a plugin asked for. A run that a plugin ends has the last text so far as its output, as far as that is an
// output of the form that was asked for.
func requestedEnd(d *agent.Definition, s *run.AgentState) run.Finished {
	if s.Ending.Deferred() {
		return stoppedEnd(d, s)
	}
	end := run.Finished{Reason: s.Ending, OpenText: agent.TextRunEnded, UnknownText: agent.TextOutcomeLost}
	end.Output, end.History = outputSoFar(d, s), d.Output.History
	return end
}

// brokenEnd is what is left of a run whose plugins have failed: what is under way is waited for, nothing else is started and nobody is
// waited for.
func brokenEnd(s *run.AgentState) run.Action {
	var calls []string
	for _, c := range s.Live {
		if c.Status == run.StatusRunning {
			calls = append(calls, c.ID)
		}
	}
	if len(calls) > 0 {
		return run.Action{Kind: run.ActTools, Calls: calls}
	}
	return run.Action{Kind: run.ActEnd, End: Fail(s.Broken.Code, s.Broken.Message)}
}

// unended are the calls that are still carried out although a plugin has asked for the run's end: all where it only stops the run, and
// else what was approved or under way before. While somebody is asked, the run does not end, it parks (semantics 3.4).
func unended(s *run.AgentState, calls []string) []string {
	if s.Ending.Deferred() {
		return calls
	}
	return slices.DeleteFunc(calls, func(id string) bool {
		c, _ := s.Call(id)
		return c.Status == run.StatusNew
	})
}

func outputSoFar(d *agent.Definition, s *run.AgentState) json.RawMessage {
	if d.Output.Format != agent.OutputJSON {
		if text := lastText(s); text != "" {
			return agent.TextOutput(text)
		}
		return nil
	}
	text := lastReply(s)
	if s.Inferences == 0 || s.Correction != nil || text == "" {
		return nil
	}
	value, err := jsonx.CompactJSON([]byte(text), agent.OutputLimits)
	if err != nil { // Judge lets nothing else through
		return nil
	}
	return value
}

// lastText is the newest text of a model that is live, "" where there is none: all texts of the newest turn that has one.
func lastText(s *run.AgentState) string {
	text := ""
	var turn run.Source
	all := s.Messages.All()
	for i := len(all) - 1; i >= 0; i-- {
		t, ok := all[i].Block.(run.Text)
		switch {
		case !ok || all[i].Role != run.RoleAssistant:
		case text == "":
			text, turn = t.Text, all[i].Source
		case all[i].Source.SameEvent(turn):
			text = t.Text + text
		default:
			return text
		}
	}
	return text
}
