package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/countersign/countersign/pkg/agent"
	"github.com/countersign/countersign/pkg/agent/approval"
	"github.com/countersign/countersign/pkg/agent/store"
)

// maxInputs is how many messages, decisions and answers one request brings at most: each is a transaction of its own.
const maxInputs = 100

// Input is the body of POST /v1/runs/{id}/input. At least one of the lists has an element, and together they have at most 100.
type Input struct {
	Messages  []json.RawMessage `json:"messages,omitempty"` // each a string or a list of blocks
	Decisions []Decision        `json:"decisions,omitempty"`
	Answers   []Answer          `json:"answers,omitempty"`
}

// Decision resumes or cancels a call that waits for approval, or the tool of one that was blocked. It goes through the Desk like every other decision, which takes it once
// whatever its id is.
type Decision struct {
	Target string          `json:"target"`       // the call's id, or the approval's
	ID     string          `json:"id,omitempty"` // the client's own
	Action string          `json:"action"`       // resume or cancel
	Result json.RawMessage `json:"result,omitempty"`
	Reason string          `json:"reason,omitempty"` // kept as the note
}

// Answer says what became of a call whose outcome is unknown. To a call that waits for approval it is a decision (semantics.md, 3.5); so it
// is to one that was blocked, but an error says that the request for permission has failed, and ends the run.
// Exactly one of Result, Error and Rerun is given.
type Answer struct {
	Call   string          `json:"call"`
	ID     string          `json:"id,omitempty"`     // the client's own
	Result json.RawMessage `json:"result,omitempty"` // a string stands for its text, anything else for its JSON
	Error  *string         `json:"error,omitempty"`
	Rerun  bool            `json:"rerun,omitempty"` // carry it out again
}

// step is one part of an input, ready to be done.
type step func(ctx context.Context) error

func (s *server) input(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if _, err := query(r); err != nil {
		return 0, nil, err
	}
	var b Input
	if err := body(w, r, &b, false); err != nil {
		return 0, nil, err
	}
	key, err := idempotencyKey(r, "")
	if err != nil {
		return 0, nil, err
	}
	l, err := s.load(r, c)
	if err != nil {
		return 0, nil, err
	}
	steps, err := s.plan(r.Context(), l, b, c, key)
	if err != nil {
		return 0, nil, err
	}
	applied, err := true, error(nil)
	if l.State.Status == agent.RunDone {
		applied = false
	} else {
		applied, err = do(r.Context(), steps)
	}
	if err != nil {
		return 0, nil, err
	}
	a := accepted(l.State)
	a.Applied = &applied
	return http.StatusAccepted, a, nil
}

// plan checks the whole input before any of it is done.
func (s *server) plan(ctx context.Context, l store.Loaded, b Input, c Caller, key string) ([]step, error) {
	switch n := len(b.Messages) + len(b.Decisions) + len(b.Answers); {
	case n == 0:
		return nil, invalid("input: got nothing, want messages, decisions or answers")
	case n > maxInputs:
		return nil, problem(TooLarge, "input: got %d messages, decisions and answers, want at most %d", n, maxInputs)
	}
	if l.State.Status == agent.RunDone && len(b.Messages) > 0 {
		return nil, problem(RunFinished, "send to run %s: the run has finished", l.State.Run)
	}
	var steps []step
	for i, d := range b.Decisions {
		step, err := s.planDecision(&l.State, d, c)
		if err != nil {
			return nil, at("decisions", i, err)
		}
		steps = append(steps, step)
	}
	for i, a := range b.Answers {
		step, err := s.planAnswer(&l.State, a, c)
		if err != nil {
			return nil, at("answers", i, err)
		}
		steps = append(steps, step)
	}
	for i, m := range b.Messages {
		said, err := readMessage(fmt.Sprintf("messages[%d]", i), m)
		if err != nil {
			return nil, err
		}
		if err := s.Inputs.Check(ctx, l.State.Tenant, said); err != nil {
			return nil, fmt.Errorf("messages[%d]: %w", i, err)
		}
		id := key
		if id != "" {
			id = fmt.Sprintf("%s-%d", key, i)
		}
		steps = append(steps, func(ctx context.Context) error {
			return s.Inputs.Send(ctx, l.State.Tenant, l.State.Run, id, c.Principal.ID, said)
		})
	}
	return steps, nil
}

// at puts the place in the body before a problem's detail.
func at(list string, i int, err error) error {
	var p *Problem
	if errors.As(err, &p) {
		p.Detail = fmt.Sprintf("%s[%d]: %s", list, i, p.Detail)
	}
	return err
}

// do takes the steps in order. A decision or answer that meets a run which ended meanwhile is not applied, and no error.
func do(ctx context.Context, steps []step) (applied bool, err error) {
	applied = true
	for _, step := range steps {
		err := step(ctx)
		switch {
		case errors.Is(err, approval.ErrFinished):
			applied = false
		case err != nil:
			return false, err
		}
	}
	return applied, nil
}

func (s *server) planDecision(run *agent.AgentState, d Decision, c Caller) (step, error) {
	req := approval.Request{Tenant: run.Tenant, Note: d.Reason, By: c.Principal}
	switch d.Action {
	case "resume":
		req.Action = approval.Approve
	case "cancel":
		req.Action = approval.Cancel
	default:
		return nil, invalid("action: got %q, want resume or cancel", d.Action)
	}
	if d.Result != nil {
		return nil, later("result of a decision")
	}
	call, ok := target(run, d.Target)
	if !ok {
		return nil, problem(CallNotFound, "target: run %s has no call %q", run.Run, d.Target)
	}
	if req.ID, ok = requestOf(run, call); !ok {
		return nil, problem(NothingWaits, "decide call %s: the call waits for nobody", call.ID)
	}
	if d.Target == call.ID { // what is decided about a blocked call is its tool; about the request, all of it
		req.Tool = blockedTool(run, call)
	}
	return s.deciding(req), nil
}

func (s *server) deciding(req approval.Request) step {
	return func(ctx context.Context) error {
		_, err := s.Desk.Decide(ctx, req)
		return err
	}
}

func (s *server) planAnswer(run *agent.AgentState, a Answer, c Caller) (step, error) {
	given := 0
	for _, is := range []bool{a.Result != nil, a.Error != nil, a.Rerun} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, invalid("want exactly one of result, error and rerun")
	}
	call, ok := run.Call(a.Call)
	if !ok {
		return nil, problem(CallNotFound, "call: run %s has no call %q", run.Run, a.Call)
	}
	tool := blockedTool(run, call)
	if id, asks := requestOf(run, call); asks && (tool != "" || call.Wait != nil && call.Wait.For == agent.ForApproval) {
		return s.answeredDecision(run, a, c, approval.Request{ID: id, Tool: tool})
	}
	o := approval.Outcome{Tenant: run.Tenant, Run: run.Run, Call: call.ID, Rerun: a.Rerun, By: c.Principal}
	switch {
	case a.Error != nil:
		o.Content, o.IsError = *a.Error, true
	case a.Result != nil:
		o.Content = resultText(a.Result)
	}
	return func(ctx context.Context) error {
		_, err := s.Desk.Settle(ctx, o)
		return err
	}, nil
}

// blockedTool is the tool whose permission a call was blocked for; "" where it was not.
func blockedTool(run *agent.AgentState, c agent.Call) string {
	if run.RequestOf(c) == "" {
		return ""
	}
	return c.Tool
}

// answeredDecision takes an answer to a call that waits for approval, or for the permission of its tool, as what it means. An error in
// answer to a request for permission says that the request itself has failed.
func (s *server) answeredDecision(run *agent.AgentState, a Answer, c Caller, req approval.Request) (step, error) {
	req.Tenant, req.Action, req.By = run.Tenant, approval.Deny, c.Principal
	switch {
	case a.Rerun:
		return nil, problem(WrongKind, "rerun: call %s waits for approval and has not run", a.Call)
	case a.Error != nil && req.Tool != "":
		req.Action, req.Tool, req.Note = approval.Fail, "", *a.Error
	case a.Error != nil:
		req.Note = *a.Error
	default:
		resume, reason := agent.DecisionFromJSON(a.Result)
		if req.Note = reason; resume {
			req.Action = approval.Approve
		}
	}
	return s.deciding(req), nil
}

// target finds a call by its id or by that of the request about it.
func target(run *agent.AgentState, id string) (agent.Call, bool) {
	if c, ok := run.Call(id); ok {
		return c, true
	}
	for _, c := range run.Calls() {
		if request, ok := requestOf(run, c); ok && request == id {
			return c, true
		}
	}
	return agent.Call{}, false
}

// requestOf is the id of the newest request about a call, decided or not.
func requestOf(run *agent.AgentState, c agent.Call) (string, bool) {
	switch {
	case run.RequestOf(c) != "":
		return c.Request, true
	case c.Wait != nil:
		return c.Wait.Approval, true
	case c.Asks > 0:
		return agent.ApprovalID(run.Run, c.ID, c.Asks), true
	default:
		return "", false
	}
}

// resultText is what the model will read.
func resultText(raw json.RawMessage) string {
	var s string
	if err := json.Unmarshal(raw, &s); err == nil && !bytes.Equal(raw, []byte("null")) {
		return s
	}
	return string(raw)
}
