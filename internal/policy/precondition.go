package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// MaxChecked is the maximum size of a precondition's result that people are shown, in bytes.
const MaxChecked = 16 << 10

// preconditionDigest returns the digest of all that people are shown of a precondition.
func preconditionDigest(k *run.Checked) string {
	if k == nil {
		return ""
	}
	of := map[string]any{"tool": k.Tool, "args": string(k.Args), "content": k.Content, "isError": k.IsError,
		"at": k.At.UTC().Format(time.RFC3339Nano)}
	if k.Was != nil {
		of["was"] = map[string]any{"args": string(k.Was.Args), "content": k.Was.Content, "isError": k.Was.IsError,
			"at": k.Was.At.UTC().Format(time.RFC3339Nano)}
	}
	return agent.HashCanonical(of)
}

// Reading is the call of a precondition. It is made before the gate's verdict on a call takes effect.
type Reading struct {
	Tool    agent.ToolSpec
	Args    json.RawMessage
	compare []string
}

// RequiredReading returns what must be read before the verdict g on the call c takes effect: before people are asked
// about it, and before it runs because they have approved it. It is false if nothing must be read. The error tells the
// model why it cannot be read.
func RequiredReading(d *agent.Definition, s *run.AgentState, c run.Call, g Gate) (Reading, bool, error) {
	asks := g.Suspend != nil && (g.Suspend.For == "" || g.Suspend.Gate)
	runs := g.Run && c.Grant != nil && !c.Grant.Tool && c.Checked != nil
	if runs && c.Grant.Consumed { // a retry under the same key runs, even if the first attempt changed the value
		runs = c.Effect == run.EffectNonIdempotent && !c.Service
	}
	t, known := d.Tool(c.Tool)
	if !known || t.Precondition == nil || !asks && !runs {
		return Reading{}, false, nil
	}
	r := Reading{compare: t.Precondition.Compare}
	r.Tool, known = d.Tool(t.Precondition.Tool)
	switch {
	case !known || Disabled(s, r.Tool):
		return r, true, errors.New("the agent has no tool " + t.Precondition.Tool)
	case r.Tool.Effect != run.EffectRead:
		return r, true, errors.New(r.Tool.Name + " does more than read")
	}
	var err error
	if r.Args, err = fillArguments(t.Precondition.Args, c.Input, ""); err != nil {
		return r, true, err
	}
	if DecideIn(d, s, r.Tool, r.Args).Verdict == agent.VerdictDeny {
		return r, true, errors.New("policy denies " + r.Tool.Name)
	}
	return r, true, nil
}

// Checked returns the result of the reading at that time in the form that people are shown. The error may be shown to
// the model.
func (r Reading) Checked(res agent.ToolResultData, at time.Time) (*run.Checked, error) {
	checked := &run.Checked{Tool: r.Tool.Name, Args: r.Args, Content: res.Content, IsError: res.IsError,
		At: at.UTC().Truncate(time.Millisecond)}
	if len(r.compare) > 0 && !res.IsError {
		whole, err := jsonx.CompactJSON(json.RawMessage(res.Content), jsonx.JSONLimits{Bytes: 2 * agent.MaxResult})
		if err != nil {
			return nil, errors.New(r.Tool.Name + " gave no JSON to compare")
		}
		values := []byte{'{'}
		for _, pointer := range r.compare {
			v, found, err := jsonx.Lookup(whole, pointer)
			if err != nil || !found {
				continue
			}
			if len(values) > 1 {
				values = append(values, ',')
			}
			values = append(append(jsonx.AppendCanonicalString(values, pointer), ':'), v...)
		}
		checked.Content = string(append(values, '}'))
	}
	if len(checked.Content) > MaxChecked {
		return nil, fmt.Errorf("%s gave more than the %d bytes that people are shown", r.Tool.Name, MaxChecked)
	}
	return checked, nil
}

// GateChecked returns the verdict g after the precondition was read: people are shown its current result. An approved
// call runs if they saw the same result. Otherwise people are asked again, unless they were asked too often.
func GateChecked(d *agent.Definition, s *run.AgentState, c run.Call, g Gate, current *run.Checked, now time.Time) Gate {
	if g.Run && c.Checked.Same(*current) {
		return g
	}
	if g.Run && d.Limits.Asks > 0 && c.Asks >= d.Limits.Asks {
		return refuseCall(c, run.WhyVoided, d.Word(agent.WordAskedOften, map[string]any{"Tool": c.Name, "Asks": c.Asks}),
			g.Rule)
	}
	if old := c.Checked; old != nil && !old.Same(*current) {
		current.Was = &run.Was{Args: old.Args, Content: old.Content, IsError: old.IsError, At: old.At}
	}
	c.Checked = current
	anew := AskFor(d, s, c, g.Rule, now)
	ask := g.Suspend
	if ask == nil {
		ask = anew
		ask.Why = run.WhyStateChanged
	}
	ask.Checked, ask.Digest = current, anew.Digest
	return Gate{Suspend: ask, Rule: g.Rule}
}

// RefuseUnreadable ends a call whose precondition cannot be read.
func RefuseUnreadable(d *agent.Definition, c run.Call, why error) *run.CallFinished {
	fields := map[string]any{"Tool": c.Name, "Reads": "", "Problem": agent.Bounded(why.Error())}
	if t, _ := d.Tool(c.Tool); t.Precondition != nil {
		fields["Reads"] = t.Precondition.Tool
	}
	return refuseCall(c, run.WhyPrecondition, d.Word(agent.WordUnread, fields), Decision{}).Refuse
}

// UndoError says why a call cannot be undone. It may be shown to people.
type UndoError struct{ Problem string }

func (e *UndoError) Error() string { return "undo: " + e.Problem }

// CallUndo is the call that would undo a call, or why none does.
type CallUndo struct {
	Tool   string          `json:"tool,omitempty"`   // original name of the undoing call's tool
	Input  json.RawMessage `json:"input,omitempty"`  // arguments of the undoing call
	Reason string          `json:"reason,omitempty"` // why no call undoes it
	Run    string          `json:"run,omitempty"`    // the run that undoes the call, once a person has ordered it
	Status run.RunStatus   `json:"status,omitempty"` // status of that run
	Ended  run.Reason      `json:"ended,omitempty"`  // why that run has ended
}

// UndoCall returns the arguments of the call that undoes the call c; d names its tool. result is the whole result of c.
// The error is an *UndoError.
func UndoCall(d *agent.Definition, c run.Call, result string) (json.RawMessage, error) {
	t, ok := d.Tool(c.Tool)
	switch {
	case !ok || t.Undo == nil:
		return nil, &UndoError{"calls of " + c.Tool + " cannot be undone"}
	case c.Open():
		return nil, &UndoError{"the call has not ended"}
	case c.Status != run.StatusSucceeded:
		return nil, &UndoError{"the call has not succeeded: it is " + string(c.Status)}
	}
	if _, known := d.Tool(t.Undo.Tool); !known {
		return nil, &UndoError{"the agent has no tool " + t.Undo.Tool}
	}
	args, err := fillArguments(t.Undo.Args, c.Input, WithoutEditNote(c, result))
	if err != nil {
		return nil, &UndoError{err.Error()}
	}
	return args, nil
}

// WithoutEditNote returns a call's result without what the runtime said before it of an edit.
func WithoutEditNote(c run.Call, result string) string {
	return strings.TrimPrefix(result, agent.TextEdited(c.Editor(), string(c.Input)))
}

// fillArguments fills a template with values of a call's arguments and of its result, which is JSON text.
func fillArguments(template, args json.RawMessage, result string) (json.RawMessage, error) {
	if template == nil {
		return json.RawMessage(`{}`), nil
	}
	template, err := jsonx.CompactJSON(template, jsonx.JSONLimits{})
	if err != nil {
		return nil, fmt.Errorf("its arguments are no JSON: %w", err)
	}
	filled, err := agent.FillUndoArgs(template, func(p agent.UndoPlaceholder) (json.RawMessage, error) {
		from, what := args, "its arguments have"
		if p.From == "result" {
			var err error
			if from, err = jsonx.CompactJSON([]byte(result), jsonx.JSONLimits{Bytes: 2 * agent.MaxResult}); err != nil {
				return nil, errors.New("its result is not JSON")
			}
			what = "its result has"
		}
		v, found, err := jsonx.Lookup(from, p.Pointer)
		if err != nil || !found {
			return nil, fmt.Errorf("%s nothing at %.100q", what, p.Pointer)
		}
		return v, nil
	})
	if err != nil {
		return nil, err
	}
	if filled, err = jsonx.CompactJSON(filled, jsonx.JSONLimits{}); err != nil {
		return nil, fmt.Errorf("its arguments are too much: %w", err)
	}
	return filled, nil
}

// undoEnd returns the end of a run that undoes a call, once the undoing call has ended. No model is asked.
func undoEnd(s *run.AgentState) run.Finished {
	c, _ := s.Undoing()
	switch {
	case c.Status == run.StatusSucceeded:
		end := run.Finished{Reason: run.ReasonNaturalEnd}
		if c.Result.Blob == "" {
			end.Output = agent.TextOutput(c.Result.Content)
		}
		return end
	case c.Reason == run.WhyOutcomeUnknown:
		return Fail(run.CodeUndoFailed, fmt.Sprintf(
			"nobody knows whether call %s was taken back: the outcome of the call of %s is unknown", c.Undoes, c.Tool))
	case c.Status == run.StatusFailed:
		return Fail(run.CodeUndoFailed,
			fmt.Sprintf("call %s was not taken back: the call of %s failed (%s)", c.Undoes, c.Tool, c.Reason))
	default:
		return endWithReason(run.ReasonCancelled)
	}
}
