package policy

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// UndoUse is the call that takes a call back.
type UndoUse struct {
	Tool  string          `json:"tool"` // original name
	Input json.RawMessage `json:"input"`
}

// UndoError says why nothing takes a call back. It is fit to be shown.
type UndoError struct{ Problem string }

func (e *UndoError) Error() string { return "undo: " + e.Problem }

// UndoResult is where the result of a call is that its undo is made of: all of what its tool gave, in the blob of that digest, where the
// digest is not empty, or else text.
func UndoResult(c run.Call) (blob, text string) {
	switch {
	case c.Result == nil:
		return "", ""
	case c.Result.Whole != nil && c.Result.Whole.Call == "":
		return c.Result.Whole.Blob, ""
	default:
		return c.Result.Blob, c.Result.Content
	}
}

// UndoCall is the call that takes the settled call c back, whose result is the given text, by UndoResult. Whether it has been taken back
// already, the run that does that says. The error is an *UndoError.
func UndoCall(d *agent.Definition, c run.Call, result string) (UndoUse, error) {
	t, ok := d.Tool(c.Tool)
	switch {
	case !ok || t.Undo == nil:
		return UndoUse{}, &UndoError{"nothing takes calls of " + c.Tool + " back"}
	case c.Open():
		return UndoUse{}, &UndoError{"the call has not ended"}
	case c.Status != run.StatusSucceeded:
		return UndoUse{}, &UndoError{"the call has not succeeded: it is " + string(c.Status)}
	}
	if _, known := d.Tool(t.Undo.Tool); !known {
		return UndoUse{}, &UndoError{"the agent has no tool " + t.Undo.Tool}
	}
	args, err := undoArguments(t.Undo.Args, c, result)
	if err != nil {
		return UndoUse{}, &UndoError{err.Error()}
	}
	return UndoUse{Tool: t.Undo.Tool, Input: args}, nil
}

// undoArguments fills a template with what the call's result and its arguments hold.
func undoArguments(template json.RawMessage, c run.Call, result string) (json.RawMessage, error) {
	if template == nil {
		return json.RawMessage(`{}`), nil
	}
	template, err := jsonx.CompactJSON(template, jsonx.JSONLimits{})
	if err != nil {
		return nil, fmt.Errorf("its arguments are no JSON: %w", err)
	}
	if by := c.Editor(); by != "" { // what the runtime said before a result is none of it
		result = strings.TrimPrefix(result, agent.TextEdited(by, string(c.Input)))
	}
	var given json.RawMessage
	filled, err := agent.FilledUndo(template, func(p agent.UndoPlace) (json.RawMessage, error) {
		from, what := c.Input, "its arguments have"
		if p.From == "result" {
			if given == nil {
				var err error
				if given, err = jsonx.CompactJSON([]byte(result), jsonx.JSONLimits{Bytes: 2 * agent.MaxResult}); err != nil {
					return nil, fmt.Errorf("its result is not JSON")
				}
			}
			from, what = given, "its result has"
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

// UndoKey is the idempotency key of the run that takes a call back, of the keys of its agent: there is one such run for a call. No client
// can give it, since theirs have no NUL.
func UndoKey(run, call string) string { return "undo\x00" + run + "\x00" + call }

// OrderUndo is the order of a person to make the call use in the run that s is the first fact of, taking back the call of.
func OrderUndo(d *agent.Definition, s *run.AgentState, of string, use UndoUse, by string) run.UndoOrdered {
	t, _ := d.Tool(use.Tool)
	used := func(id string) bool { return s.UsedID(id, s.Prior+1) }
	return run.UndoOrdered{
		Call: PlannedCall(d, agent.CallID("", used, s.Prior+1, 0), agent.ReplyCall{Name: t.ModelName(), Input: use.Input}), Of: of, By: by,
	}
}

// undoEnd is the end of a run that takes a call back and has settled that; no model is asked about it.
func undoEnd(s *run.AgentState) run.Finished {
	c, _ := s.Undoing()
	switch c.Status {
	case run.StatusSucceeded:
		end := run.Finished{Reason: run.ReasonNaturalEnd}
		if c.Result.Blob == "" {
			end.Output = agent.TextOutput(c.Result.Content)
		}
		return end
	case run.StatusFailed:
		return Fail(run.CodeUndoFailed,
			fmt.Sprintf("call %s was not taken back: the call of %s failed (%s)", c.Undoes, c.Tool, c.Reason))
	default:
		return endFor(run.ReasonCancelled)
	}
}
