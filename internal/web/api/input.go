package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// maxInputs is how many messages, decisions and answers one request may have. Each is a transaction.
const maxInputs = 100

// Input is the body of POST /v1/runs/{id}/input. At least one of the lists has an element, and together they have at
// most 100.
type Input struct {
	Messages  []json.RawMessage `json:"messages,omitempty"` // each a string or a list of blocks
	Decisions []Decision        `json:"decisions,omitempty"`
	Answers   []Answer          `json:"answers,omitempty"`
}

// Decision resumes or cancels a call that waits for approval or input, or a blocked tool. Like every decision it goes
// through the Desk, which applies it once. If the agent has `early: keep`, a decision on a call that is not suspended
// yet is kept.
type Decision struct {
	Target string `json:"target"` // id of the call, of the approval, or of the pending call
	// idempotency key within the run; default: the target. Of several kept decisions the last counts
	ID     string          `json:"id,omitempty"`
	Action string          `json:"action"`           // resume or cancel
	Result json.RawMessage `json:"result,omitempty"` // resume: the answer to what the tool asked; none and null are true
	Reason string          `json:"reason,omitempty"` // kept as the note
}

// Answer is the answer of a service to its call, or settles a call whose outcome is unknown. For a call that waits for
// approval or input, or was blocked, it is a decision in the words of docs/presets.md, section 3. An error for a
// blocked call says that the permission request has failed and ends the run. Exactly one of Result, Error and Rerun is
// set.
//
// A repeated answer to the same request has no further effect. Approval names the request. A call that is lost again
// gets a new request; then an answer without Approval counts only if its ID, or the Idempotency-Key, shows that it is a
// repetition.
type Answer struct {
	Call     string          `json:"call,omitempty"`     // may be left out beside Approval
	Approval string          `json:"approval,omitempty"` // of an outcome that is unknown: the request that is answered
	ID       string          `json:"id,omitempty"`       // the client's own
	Result   json.RawMessage `json:"result,omitempty"`   // a string stands for its text, anything else for its JSON
	Error    *string         `json:"error,omitempty"`
	Rerun    bool            `json:"rerun,omitempty"` // carry it out again
}

// inputStep is one validated part of an input.
type inputStep func(ctx context.Context) error

func (s *server) receiveInput(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	var b Input
	if err := readBody(w, r, &b, false); err != nil {
		return 0, nil, err
	}
	key, err := idempotencyKey(r, "")
	if err != nil {
		return 0, nil, err
	}
	l, err := s.loadRun(r, c)
	if err != nil {
		return 0, nil, err
	}
	steps, err := s.planInput(r.Context(), l, b, c, key)
	if err != nil {
		return 0, nil, err
	}
	a := newAccepted(l.State)
	a.Applied = new(bool)
	if l.State.Status != run.RunDone {
		if *a.Applied, a.Already, err = applySteps(r.Context(), steps); err != nil {
			return 0, nil, err
		}
	}
	return http.StatusAccepted, a, nil
}

// planInput validates the whole input before any step is applied.
func (s *server) planInput(ctx context.Context, l store.Loaded, b Input, c Caller, key string) ([]inputStep, error) {
	switch n := len(b.Messages) + len(b.Decisions) + len(b.Answers); {
	case n == 0:
		return nil, invalidProblem("input: got nothing, want messages, decisions or answers")
	case n > maxInputs:
		return nil, problem(TooLarge, "input: got %d messages, decisions and answers, want at most %d", n, maxInputs)
	}
	if l.State.Status == run.RunDone && len(b.Messages) > 0 {
		return nil, problem(RunFinished, "send to run %s: the run has finished", l.State.Run)
	}
	var steps []inputStep
	for i, d := range b.Decisions {
		step, err := s.planDecision(ctx, &l.State, d, c)
		if err != nil {
			return nil, prefixProblem("decisions", i, err)
		}
		steps = append(steps, step)
	}
	for i, a := range b.Answers {
		if a.ID == "" && key != "" {
			a.ID = fmt.Sprintf("%s-%d", key, i)
		}
		step, err := s.planAnswer(ctx, &l.State, a, c)
		if err != nil {
			return nil, prefixProblem("answers", i, err)
		}
		steps = append(steps, step)
	}
	for i, m := range b.Messages {
		blocks, err := ReadMessage(fmt.Sprintf("messages[%d]", i), m)
		if err != nil {
			return nil, err
		}
		if err := s.Inputs.Check(ctx, l.State.Tenant, l.State.Run, blocks); err != nil {
			return nil, fmt.Errorf("messages[%d]: %w", i, err)
		}
		id := key
		if id != "" {
			id = fmt.Sprintf("%s-%d", key, i)
		}
		steps = append(steps, func(ctx context.Context) error {
			return s.Inputs.Send(ctx, l.State.Tenant, l.State.Run, id, c.Principal.ID, blocks)
		})
	}
	return steps, nil
}

// prefixProblem puts the place in the body before a problem's detail.
func prefixProblem(list string, i int, err error) error {
	var p *Problem
	if errors.As(err, &p) {
		p.Detail = fmt.Sprintf("%s[%d]: %s", list, i, p.Detail)
	}
	return err
}

// errRepeated says that a step was applied before and has changed nothing.
var errRepeated = errors.New("that was said already")

// applySteps applies the steps in order. A step on a run or call that has ended is not applied, without an error; nor
// is a second answer to a service's call. already reports that all steps were applied before.
func applySteps(ctx context.Context, steps []inputStep) (applied, already bool, err error) {
	applied, already = true, true
	for _, step := range steps {
		err := step(ctx)
		already = already && errors.Is(err, errRepeated)
		switch {
		case errors.Is(err, errRepeated):
		case errors.Is(err, approval.ErrFinished), errors.Is(err, approval.ErrIgnored), errors.Is(err, runtime.ErrUnasked):
			applied = false
		case err != nil:
			return false, false, err
		}
	}
	return applied, already, nil
}

func (s *server) planDecision(ctx context.Context, state *run.AgentState, d Decision, c Caller) (inputStep, error) {
	r := approval.DecisionInput{Tenant: state.Tenant, Run: state.Run, Call: d.Target, Key: d.ID, Result: d.Result,
		Note: d.Reason, By: c.Principal, Via: s.decisionChannel()}
	switch d.Action {
	case "resume":
		r.Action = approval.Approve
	case "cancel":
		r.Action = approval.Cancel
	default:
		return nil, invalidProblem("action: got %.64q, want resume or cancel", d.Action)
	}
	if err := errors.Join(checkText("id", d.ID, maxKey), checkText("target", d.Target, maxKey)); err != nil {
		return nil, err
	}
	switch {
	case d.Target == "":
		return nil, invalidProblem("target: got nothing, want a call, a suspension or a pending call")
	case d.Result != nil && r.Action == approval.Cancel:
		if string(d.Result) != "false" && string(d.Result) != "null" {
			return nil, invalidProblem("result: it goes with resume")
		}
		r.Result = nil
	}
	if state.Status == run.RunDone {
		return func(context.Context) error { return approval.ErrFinished }, nil
	}
	step, err := s.Desk.PrepareDecision(ctx, state, r)
	if errors.Is(err, approval.ErrIgnored) {
		return func(context.Context) error { return err }, nil
	}
	if err != nil {
		return nil, problemOf(err)
	}
	return step, nil
}

func (s *server) planAnswer(ctx context.Context, state *run.AgentState, a Answer, c Caller) (inputStep, error) {
	given := 0
	for _, is := range []bool{a.Result != nil, a.Error != nil, a.Rerun} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, invalidProblem("want exactly one of result, error and rerun")
	}
	if err := checkText("id", a.ID, maxKey); err != nil {
		return nil, err
	}
	if a.Approval != "" {
		return s.planNamedAnswer(ctx, state, a, c)
	}
	if a.Call == "" {
		return nil, invalidProblem("call: got nothing, want the id of one")
	}
	call, ok := state.Call(a.Call)
	if !ok {
		return nil, problem(CallNotFound, "call: run %s has no call %.64q", state.Run, a.Call)
	}
	if id := policy.RequestOf(state, call); id != "" {
		return s.planAnsweredDecision(state, a, c, approval.DecisionInput{ID: id, Tool: call.Tool}, run.ForApproval)
	}
	if w := call.Wait; w != nil && (w.For == run.ForApproval || w.For == run.ForInput) {
		return s.planAnsweredDecision(state, a, c, approval.DecisionInput{ID: w.Approval}, w.For)
	}
	if call.Service && (call.Wait == nil || call.Wait.For == run.ForAnswer) {
		if a.Rerun {
			return nil, problem(WrongKind, "rerun: call %s is a service's: want its result or an error", a.Call)
		}
		given := runtime.Answer{Tenant: state.Tenant, Run: state.Run, Call: a.Call, By: c.Principal.ID}
		if a.Error != nil {
			given.Content, given.IsError = *a.Error, true
		} else {
			given.Content = policy.ResultText(a.Result)
		}
		return func(ctx context.Context) error { return s.Inputs.Answer(ctx, given) }, nil
	}
	return s.outcomeStep(state, a, c), nil
}

// planNamedAnswer plans an answer to a named request about an unknown outcome.
func (s *server) planNamedAnswer(ctx context.Context, run *run.AgentState, a Answer, c Caller) (inputStep, error) {
	none := problem(ApprovalNotFound, "approval: run %s has no request %.64q", run.Run, a.Approval)
	if !approvalPattern.MatchString(a.Approval) {
		return nil, none
	}
	asked, err := approval.Get(ctx, s.Table, run.Tenant, a.Approval)
	switch {
	case err != nil && !errors.Is(err, approval.ErrNotFound):
		return nil, problemOf(err)
	case err != nil, asked.Run != run.Run:
		return nil, none
	case a.Call != "" && a.Call != asked.Call():
		return nil, invalidProblem("call: got %.64q, and approval %s is about call %s", a.Call, asked.ID, asked.Call())
	case asked.Kind != approval.KindOutcome:
		return nil,
			problem(WrongKind, "approval: %s does not ask what became of a call; decide it by POST /v1/approvals/%s/decision",
				asked.ID, asked.ID)
	}
	a.Call = asked.Call()
	return s.outcomeStep(run, a, c), nil
}

// outcomeStep settles the unknown outcome of a call.
func (s *server) outcomeStep(run *run.AgentState, a Answer, c Caller) inputStep {
	r := approval.DecisionInput{
		Tenant: run.Tenant, Run: run.Run, Call: a.Call, ID: a.Approval, Key: a.ID, Action: approval.Rerun, By: c.Principal,
		Via: s.decisionChannel(),
	}
	switch {
	case a.Error != nil:
		r.Action, r.Content = approval.ReportError, *a.Error
	case a.Result != nil:
		r.Action, r.Content = approval.ReportResult, policy.ResultText(a.Result)
	}
	return func(ctx context.Context) error {
		answered, err := s.Desk.Decide(ctx, r)
		if err == nil && answered.IsRepeated() {
			return errRepeated
		}
		return err
	}
}

// planAnsweredDecision plans an answer as a decision on a call that waits for one. An error in answer to a permission
// request says that the request itself has failed.
func (s *server) planAnsweredDecision(
	state *run.AgentState, a Answer, c Caller, req approval.DecisionInput, what run.WaitFor,
) (inputStep, error) {
	req.Tenant, req.Action, req.By = state.Tenant, approval.Deny, c.Principal
	switch {
	case a.Rerun:
		return nil, problem(WrongKind, "rerun: call %s waits for %s and has not run", a.Call, what)
	case a.Error != nil && req.Tool != "":
		req.Action, req.Tool, req.Note = approval.Fail, "", *a.Error
	case a.Error != nil:
		req.Note = *a.Error
	default:
		resume, reason := policy.DecisionFromJSON(a.Result)
		if req.Note = reason; resume {
			req.Action = approval.Approve
		}
		if resume && what == run.ForInput {
			req.Result, req.Note = a.Result, ""
		}
	}
	return func(ctx context.Context) error {
		_, err := s.Desk.Decide(ctx, req)
		return err
	}, nil
}
