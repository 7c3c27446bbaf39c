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

// maxInputs is how many messages, decisions and answers one request brings at most: each is a transaction of its own.
const maxInputs = 100

// Input is the body of POST /v1/runs/{id}/input. At least one of the lists has an element, and together they have at most 100.
type Input struct {
	Messages  []json.RawMessage `json:"messages,omitempty"` // each a string or a list of blocks
	Decisions []Decision        `json:"decisions,omitempty"`
	Answers   []Answer          `json:"answers,omitempty"`
}

// Decision resumes or cancels a call that waits for approval or for input, or the tool of one that was blocked. It goes through the Desk like
// every other decision, which takes it once whatever its id is. One on what is not suspended yet is kept where the agent says early: keep.
type Decision struct {
	Target string          `json:"target"`           // the call's id, the suspension's (of an approval: its own), or the pending call's
	ID     string          `json:"id,omitempty"`     // idempotency key: decided once in the run; without it the target is, and of kept ones the last counts
	Action string          `json:"action"`           // resume or cancel
	Result json.RawMessage `json:"result,omitempty"` // resume: the answer to what the tool asked; none and null are true
	Reason string          `json:"reason,omitempty"` // kept as the note
}

// Answer is what a service gives to its call, or says what became of a call whose outcome is unknown. To a call that waits for approval or
// input it is a decision, whose words are those of docs/presets.md, section 3; so it is to one that was blocked, but an error says that the request
// for permission has failed, and ends the run. Exactly one of Result, Error and Rerun is given.
//
// Every answer to the same request that says the same is the first one again. Approval names the request: a call that is lost again is asked about
// under a new one, and then an answer without Approval counts only as the repetition that its ID, or the request's Idempotency-Key, shows it to be.
type Answer struct {
	Call     string          `json:"call,omitempty"`     // may be left out beside Approval
	Approval string          `json:"approval,omitempty"` // of an outcome that is unknown: the request that is answered
	ID       string          `json:"id,omitempty"`       // the client's own
	Result   json.RawMessage `json:"result,omitempty"`   // a string stands for its text, anything else for its JSON
	Error    *string         `json:"error,omitempty"`
	Rerun    bool            `json:"rerun,omitempty"` // carry it out again
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
	a := accepted(l.State)
	a.Applied = new(bool)
	if l.State.Status != run.RunDone {
		if *a.Applied, a.Already, err = do(r.Context(), steps); err != nil {
			return 0, nil, err
		}
	}
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
	if l.State.Status == run.RunDone && len(b.Messages) > 0 {
		return nil, problem(RunFinished, "send to run %s: the run has finished", l.State.Run)
	}
	var steps []step
	for i, d := range b.Decisions {
		step, err := s.planDecision(ctx, &l.State, d, c)
		if err != nil {
			return nil, at("decisions", i, err)
		}
		steps = append(steps, step)
	}
	for i, a := range b.Answers {
		if a.ID == "" && key != "" {
			a.ID = fmt.Sprintf("%s-%d", key, i)
		}
		step, err := s.planAnswer(ctx, &l.State, a, c)
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

// errAlready says of a step that it was taken before, and has changed nothing.
var errAlready = errors.New("that was said already")

// do takes the steps in order. A decision or answer that meets a run or call which has ended is not applied, and no error; nor is an answer
// to a service's call that has one. Already says that all of them were taken before.
func do(ctx context.Context, steps []step) (applied, already bool, err error) {
	applied, already = true, true
	for _, step := range steps {
		err := step(ctx)
		already = already && errors.Is(err, errAlready)
		switch {
		case errors.Is(err, errAlready):
		case errors.Is(err, approval.ErrFinished), errors.Is(err, approval.ErrIgnored), errors.Is(err, runtime.ErrUnasked):
			applied = false
		case err != nil:
			return false, false, err
		}
	}
	return applied, already, nil
}

func (s *server) planDecision(ctx context.Context, state *run.AgentState, d Decision, c Caller) (step, error) {
	r := approval.CallDecision{Tenant: state.Tenant, Run: state.Run, Target: d.Target, ID: d.ID, Result: d.Result, Note: d.Reason, By: c.Principal, Via: s.via()}
	switch d.Action {
	case "resume":
		r.Action = approval.Approve
	case "cancel":
		r.Action = approval.Cancel
	default:
		return nil, invalid("action: got %.64q, want resume or cancel", d.Action)
	}
	if err := errors.Join(shortText("id", d.ID, maxKey), shortText("target", d.Target, maxKey)); err != nil {
		return nil, err
	}
	switch {
	case d.Target == "":
		return nil, invalid("target: got nothing, want a call, a suspension or a pending call")
	case d.Result != nil && r.Action == approval.Cancel:
		if string(d.Result) != "false" && string(d.Result) != "null" {
			return nil, invalid("result: it goes with resume")
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

func (s *server) deciding(req approval.DecisionInput) step {
	return func(ctx context.Context) error {
		_, err := s.Desk.Decide(ctx, req)
		return err
	}
}

func (s *server) planAnswer(ctx context.Context, state *run.AgentState, a Answer, c Caller) (step, error) {
	given := 0
	for _, is := range []bool{a.Result != nil, a.Error != nil, a.Rerun} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, invalid("want exactly one of result, error and rerun")
	}
	if err := shortText("id", a.ID, maxKey); err != nil {
		return nil, err
	}
	if a.Approval != "" {
		return s.namedAnswer(ctx, state, a, c)
	}
	if a.Call == "" {
		return nil, invalid("call: got nothing, want the id of one")
	}
	call, ok := state.Call(a.Call)
	if !ok {
		return nil, problem(CallNotFound, "call: run %s has no call %.64q", state.Run, a.Call)
	}
	if id := state.RequestOf(call); id != "" {
		return s.answeredDecision(state, a, c, approval.DecisionInput{ID: id, Tool: call.Tool}, run.ForApproval)
	}
	if w := call.Wait; w != nil && (w.For == run.ForApproval || w.For == run.ForInput) {
		return s.answeredDecision(state, a, c, approval.DecisionInput{ID: w.Approval}, w.For)
	}
	if call.Service && (call.Wait == nil || call.Wait.For == run.ForAnswer) {
		if a.Rerun {
			return nil, problem(WrongKind, "rerun: call %s is a service's: want its result or an error", a.Call)
		}
		return s.serviceAnswer(state, a, c), nil
	}
	return s.settling(state, a, c), nil
}

// namedAnswer takes an answer to the request that it names: one that asks what became of a call.
func (s *server) namedAnswer(ctx context.Context, run *run.AgentState, a Answer, c Caller) (step, error) {
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
		return nil, invalid("call: got %.64q, and approval %s is about call %s", a.Call, asked.ID, asked.Call())
	case asked.Kind != approval.KindOutcome:
		return nil, problem(WrongKind, "approval: %s does not ask what became of a call; decide it by POST /v1/approvals/%s/decision", asked.ID, asked.ID)
	}
	a.Call = asked.Call()
	return s.settling(run, a, c), nil
}

// settling says what became of a call whose outcome is unknown.
func (s *server) settling(run *run.AgentState, a Answer, c Caller) step {
	o := approval.Outcome{
		Tenant: run.Tenant, Run: run.Run, Call: a.Call, ID: a.Approval, Key: a.ID, Rerun: a.Rerun, By: c.Principal, Via: s.via(),
	}
	switch {
	case a.Error != nil:
		o.Content, o.IsError = *a.Error, true
	case a.Result != nil:
		o.Content = policy.ResultText(a.Result)
	}
	return func(ctx context.Context) error {
		answered, err := s.Desk.SettleOutcome(ctx, o)
		if err == nil && answered.IsRepeated() {
			return errAlready
		}
		return err
	}
}

// serviceAnswer hands an answer to a service's call on as the data it is.
func (s *server) serviceAnswer(run *run.AgentState, a Answer, c Caller) step {
	given := runtime.Answer{Tenant: run.Tenant, Run: run.Run, Call: a.Call, By: c.Principal.ID}
	if a.Error != nil {
		given.Content, given.IsError = *a.Error, true
	} else {
		given.Content = policy.ResultText(a.Result)
	}
	return func(ctx context.Context) error { return s.Inputs.Answer(ctx, given) }
}

// answeredDecision takes an answer to a call that waits for a decision, or for the permission of its tool, as what it means. An error in
// answer to a request for permission says that the request itself has failed.
func (s *server) answeredDecision(state *run.AgentState, a Answer, c Caller, req approval.DecisionInput, what run.WaitFor) (step, error) {
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
	return s.deciding(req), nil
}
