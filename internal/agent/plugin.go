package agent

import (
	"encoding/json"
	"slices"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// PluginSpec names a plugin of a definition. Plugins run in the order in which they are named.
type PluginSpec struct {
	Name   string          `json:"name"`             // ^[a-z][a-z0-9-]{0,39}$, as it is registered
	Config json.RawMessage `json:"config,omitempty"` // the plugin's own; nil = none
}

// RequestedEnd is the end that a plugin asked for. A run that a plugin ends has the last text so far as its output, as far as that is an
// output of the form that was asked for.
func RequestedEnd(d *Definition, s *run.AgentState) run.Finished {
	if s.Ending.Deferred() {
		return stoppedEnd(d, s)
	}
	end := run.Finished{Reason: s.Ending, OpenText: TextRunEnded, UnknownText: TextOutcomeLost}
	end.Output, end.History = outputSoFar(d, s), d.Output.History
	return end
}

// BrokenEnd is what is left of a run whose plugins have failed: what is under way is waited for, nothing else is started and nobody is
// waited for.
func BrokenEnd(s *run.AgentState) run.Action {
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

// Unended are the calls that are still carried out although a plugin has asked for the run's end: all where it only stops the run, and
// else what was approved or under way before. While somebody is asked, the run does not end, it parks (semantics 3.4).
func Unended(s *run.AgentState, calls []string) []string {
	if s.Ending.Deferred() {
		return calls
	}
	return slices.DeleteFunc(calls, func(id string) bool {
		c, _ := s.Call(id)
		return c.Status == run.StatusNew
	})
}

func outputSoFar(d *Definition, s *run.AgentState) json.RawMessage {
	if d.Output.Format != OutputJSON {
		if text := lastText(s); text != "" {
			return TextOutput(text)
		}
		return nil
	}
	text := LastReply(s)
	if s.Inferences == 0 || s.Correction != nil || text == "" {
		return nil
	}
	value, err := jsonx.CompactJSON([]byte(text), OutputLimits)
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

// PluginGate is what the plugins of an agent say of a call before it runs. At most one field is set; the zero value lets the call pass.
type PluginGate struct {
	Block   *string         // the reason, fit for the model: the call fails
	Result  *ToolResultData // the call's result: the tool is not entered
	Suspend *run.Ticket     // somebody is asked first
}
