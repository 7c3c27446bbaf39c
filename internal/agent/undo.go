package agent

import (
	"encoding/json"
	"fmt"
	"strings"
)

// UndoUse is the call that takes a call back.
type UndoUse struct {
	Tool  string          `json:"tool"` // original name
	Input json.RawMessage `json:"input"`
}

// UndoError says why nothing takes a call back. It is fit to be shown.
type UndoError struct{ Problem string }

func (e *UndoError) Error() string { return "undo: " + e.Problem }

// Undoable reports whether calls of a tool can be taken back at all, as far as its definition goes.
func (d *Definition) Undoable(tool string) bool {
	t, ok := d.Tool(tool)
	return ok && t.Undo != nil
}

// UndoResult is where the result of a call is that its undo is made of: all of what its tool gave, in the blob of that digest, where the
// digest is not empty, or else text.
func UndoResult(c Call) (blob, text string) {
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
func UndoCall(d *Definition, c Call, result string) (UndoUse, error) {
	t, ok := d.Tool(c.Tool)
	switch {
	case !ok || t.Undo == nil:
		return UndoUse{}, &UndoError{"nothing takes calls of " + c.Tool + " back"}
	case c.Open():
		return UndoUse{}, &UndoError{"the call has not ended"}
	case c.Status != StatusSucceeded:
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
func undoArguments(template json.RawMessage, c Call, result string) (json.RawMessage, error) {
	if template == nil {
		return json.RawMessage(`{}`), nil
	}
	template, err := CompactJSON(template, JSONLimits{})
	if err != nil {
		return nil, fmt.Errorf("its arguments are no JSON: %w", err)
	}
	if by := c.Editor(); by != "" { // what the runtime said before a result is none of it
		result = strings.TrimPrefix(result, TextEdited(by, string(c.Input)))
	}
	var given json.RawMessage
	filled, err := filledUndo(template, func(p undoPlace) (json.RawMessage, error) {
		from, what := c.Input, "its arguments have"
		if p.from == "result" {
			if given == nil {
				var err error
				if given, err = CompactJSON([]byte(result), JSONLimits{Bytes: 2 * MaxResult}); err != nil {
					return nil, fmt.Errorf("its result is not JSON")
				}
			}
			from, what = given, "its result has"
		}
		v, found, err := Lookup(from, p.pointer)
		if err != nil || !found {
			return nil, fmt.Errorf("%s nothing at %.100q", what, p.pointer)
		}
		return v, nil
	})
	if err != nil {
		return nil, err
	}
	if filled, err = CompactJSON(filled, JSONLimits{}); err != nil {
		return nil, fmt.Errorf("its arguments are too much: %w", err)
	}
	return filled, nil
}

// UndoKey is the idempotency key of the run that takes a call back, of the keys of its agent: there is one such run for a call. No client
// can give it, since theirs have no NUL.
func UndoKey(run, call string) string { return "undo\x00" + run + "\x00" + call }

// UndoOrdered is a person's order to take back a call of the run that this one continues. It stands behind the run's first fact: the run
// makes that one call, under a person's word whatever policy says, and ends with it.
type UndoOrdered struct {
	Call RepliedCall `json:"call"` // that takes it back
	Of   string      `json:"of"`   // the call that is taken back
	By   string      `json:"by"`
}

func (UndoOrdered) event() {}

// OrderUndo is the order of a person to make the call use in the run that s is the first fact of, taking back the call of.
func OrderUndo(d *Definition, s *AgentState, of string, use UndoUse, by string) UndoOrdered {
	t, _ := d.Tool(use.Tool)
	used := func(id string) bool { return s.usedID(id, s.Prior+1) }
	return UndoOrdered{
		Call: plannedCall(d, CallID("", used, s.Prior+1, 0), ReplyCall{Name: t.ModelName(), Input: use.Input}), Of: of, By: by,
	}
}

func (s *AgentState) undoOrdered(e UndoOrdered) error {
	if c, again := s.Call(e.Call.ID); again && c.Undoes == e.Of && e.Of != "" {
		return nil
	}
	forbid := func(problem string) error {
		return &ApplyError{Event: "undo_ordered", Call: e.Of, Problem: problem}
	}
	of, ok := s.Settled.Find(e.Of)
	switch {
	case s.From == nil || s.From.Kind != OriginContinues || s.Inferences > 0 || len(s.Live) > 0 || s.Entries > 0:
		return forbid("only a run that begins with it takes a call back")
	case !ok && !s.Partial, ok && of.Status != StatusSucceeded: // a reader who began at a snapshot lacks what was settled before it
		return forbid("only a call that has succeeded is taken back")
	case e.Call.ID == "" || e.By == "":
		return forbid("a call and who ordered it are required")
	}
	s.Listed = len(s.Servers) > 0 // it is pinned to the definition that has their tools
	s.Prior++                     // a round of its own, that no inference has made
	if err := s.askedFor(Replied{Calls: []RepliedCall{e.Call}}, nil); err != nil {
		return err
	}
	s.Live[len(s.Live)-1].Undoes = e.Of // askedFor has made the list
	s.say(RoleAssistant, ToolUse{ID: e.Call.ID, Name: e.Call.Name, Input: e.Call.Input}, 0, s.source(0))
	return nil
}

// Undoing is the call by which the run takes another one back; false for a run that does not.
func (s *AgentState) Undoing() (Call, bool) {
	for _, c := range s.Live {
		if c.Undoes != "" {
			return c, true
		}
	}
	return Call{}, false
}

// CodeUndoFailed is the code of a run that was to take a call back and could not.
const CodeUndoFailed ErrorCode = "undo_failed"

// undoEnd ends a run that takes a call back, once that is settled; no model is asked about it.
func undoEnd(s *AgentState) (Finished, bool) {
	c, undoes := s.Undoing()
	if !undoes || c.Open() {
		return Finished{}, false
	}
	switch c.Status {
	case StatusSucceeded:
		end := Finished{Reason: ReasonNaturalEnd}
		if c.Result.Blob == "" {
			end.Output = textOutput(c.Result.Content)
		}
		return end, true
	case StatusFailed:
		return Fail(CodeUndoFailed, fmt.Sprintf("call %s was not taken back: the call of %s failed (%s)", c.Undoes, c.Tool, c.Reason)), true
	default:
		return Finished{Reason: ReasonCancelled, OpenText: textRunEnded, UnknownText: textOutcomeUnknown}, true
	}
}
