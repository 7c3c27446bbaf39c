package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// UndoError says why nothing takes a call back. It is fit to be shown.
type UndoError struct{ Problem string }

func (e *UndoError) Error() string { return "undo: " + e.Problem }

// CallUndo is what would take a call back, or why nothing does.
type CallUndo struct {
	Tool   string          `json:"tool,omitempty"`   // of the call that would, by its original name
	Input  json.RawMessage `json:"input,omitempty"`  // and its arguments
	Reason string          `json:"reason,omitempty"` // why nothing does
	Run    string          `json:"run,omitempty"`    // that takes it back, once somebody has asked for it
	Status run.RunStatus   `json:"status,omitempty"` // of that run
	Ended  run.Reason      `json:"ended,omitempty"`  // why that run has ended
}

// UndoCall returns the arguments of the call that takes the call c back; d's tool says which tool that call is of.
// result is all of what c's tool gave. The error is an *UndoError.
func UndoCall(d *agent.Definition, c run.Call, result string) (json.RawMessage, error) {
	t, ok := d.Tool(c.Tool)
	switch {
	case !ok || t.Undo == nil:
		return nil, &UndoError{"nothing takes calls of " + c.Tool + " back"}
	case c.Open():
		return nil, &UndoError{"the call has not ended"}
	case c.Status != run.StatusSucceeded:
		return nil, &UndoError{"the call has not succeeded: it is " + string(c.Status)}
	}
	if _, known := d.Tool(t.Undo.Tool); !known {
		return nil, &UndoError{"the agent has no tool " + t.Undo.Tool}
	}
	if by := c.Editor(); by != "" { // what the runtime said before a result is none of it
		result = strings.TrimPrefix(result, agent.TextEdited(by, string(c.Input)))
	}
	args, err := fillArguments(t.Undo.Args, c.Input, result)
	if err != nil {
		return nil, &UndoError{err.Error()}
	}
	return args, nil
}

// fillArguments fills a template with values of a call's arguments and of its result, which the text holds as JSON.
func fillArguments(template, args json.RawMessage, result string) (json.RawMessage, error) {
	if template == nil {
		return json.RawMessage(`{}`), nil
	}
	template, err := jsonx.CompactJSON(template, jsonx.JSONLimits{})
	if err != nil {
		return nil, fmt.Errorf("its arguments are no JSON: %w", err)
	}
	filled, err := agent.FilledUndo(template, func(p agent.UndoPlace) (json.RawMessage, error) {
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

// undoEnd is the end of a run that takes a call back, once that call has ended. No model is asked about it.
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
		return endWithReason(run.ReasonCancelled)
	}
}
