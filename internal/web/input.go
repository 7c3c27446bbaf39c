package web

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/secrets"
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
// through the Desk, which applies it once. If the agent has `early: keep`, a decision on a call that is not
// suspended yet is kept.
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

// inputStep is one validated part of an input. With a check it is only checked further, and nothing is recorded.
type inputStep = approval.DecisionStep

func (s *apiServer) receiveInput(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	b, err := readBody[Input](w, r, false)
	if err != nil {
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
	a.Applied = new(l.State.Status != run.RunDone)
	if !*a.Applied {
		return http.StatusAccepted, a, nil
	}
	// A step on a run or call that has ended is not applied, without an error; nor is a second answer to a service's call.
	a.Already = true // all steps were applied before
	for _, step := range steps {
		err := step(r.Context(), nil)
		a.Already = a.Already && errors.Is(err, errRepeated)
		switch {
		case errors.Is(err, errRepeated):
		case isUnneeded(err):
			*a.Applied = false
		case err != nil:
			return 0, nil, err
		}
	}
	return http.StatusAccepted, a, nil
}

// isUnneeded reports whether a step on a run or call that has ended, or answers no more, was not applied.
func isUnneeded(err error) bool {
	return errors.Is(err, approval.ErrFinished) || errors.Is(err, approval.ErrIgnored) ||
		errors.Is(err, runtime.ErrNotAwaited)
}

// planInput validates the whole input before any step is applied. Of several, also the desk checks each, as it would
// meet it behind those before.
func (s *apiServer) planInput(ctx context.Context, l store.Loaded, b Input, c Caller, key string) ([]inputStep, error) {
	n := len(b.Messages) + len(b.Decisions) + len(b.Answers)
	switch {
	case n == 0:
		return nil, invalidProblem("input: got nothing, want messages, decisions or answers")
	case n > maxInputs:
		return nil, problem(TooLarge, "input: got %d messages, decisions and answers, want at most %d", n, maxInputs)
	}
	if l.State.Status == run.RunDone && len(b.Messages) > 0 {
		return nil, problem(RunFinished, "send to run %s: the run has finished", l.State.Run)
	}
	var steps []inputStep
	checked := approval.Checked{}
	add := func(list string, i int, step inputStep, err error) error {
		if err == nil && n > 1 {
			if refused := step(ctx, checked); refused != nil && !errors.Is(refused, errRepeated) && !isUnneeded(refused) {
				err = problemOf(refused)
			}
		}
		steps = append(steps, step)
		return prefixProblem(list, i, err)
	}
	for i, d := range b.Decisions {
		step, err := s.planDecision(ctx, &l.State, d, c)
		if err = add("decisions", i, step, err); err != nil {
			return nil, err
		}
	}
	for i, a := range b.Answers {
		if a.ID == "" && key != "" {
			a.ID = fmt.Sprintf("%s-%d", key, i)
		}
		step, err := s.planAnswer(ctx, &l.State, a, c)
		if err = add("answers", i, step, err); err != nil {
			return nil, err
		}
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
		steps = append(steps, func(ctx context.Context, _ approval.Checked) error {
			return s.Inputs.Send(ctx, l.State.Tenant, l.State.Run, id, c.Principal.ID, blocks)
		})
	}
	return steps, nil
}

// prefixProblem puts the place in the body before a problem's detail.
func prefixProblem(list string, i int, err error) error {
	if p, ok := errors.AsType[*Problem](err); ok {
		p.Detail = fmt.Sprintf("%s[%d]: %s", list, i, p.Detail)
	}
	return err
}

// errRepeated says that a step was applied before and has changed nothing.
var errRepeated = errors.New("that was said already")

func (s *apiServer) planDecision(ctx context.Context, state *run.AgentState, d Decision, c Caller) (inputStep, error) {
	r := approval.DecisionInput{Tenant: state.Tenant, Run: state.Run, Call: d.Target, Key: d.ID,
		Result: unlessNull(d.Result), Note: d.Reason, By: c.Principal, Via: s.Via}
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
	case r.Result != nil && r.Action == approval.Cancel:
		if string(r.Result) != "false" {
			return nil, invalidProblem("result: it goes with resume")
		}
		r.Result = nil
	}
	if state.Status == run.RunDone {
		return func(context.Context, approval.Checked) error { return approval.ErrFinished }, nil
	}
	step, err := s.Desk.PrepareDecision(ctx, state, r)
	if errors.Is(err, approval.ErrIgnored) {
		return func(context.Context, approval.Checked) error { return err }, nil
	}
	if err != nil {
		return nil, problemOf(err)
	}
	return step, nil
}

func (s *apiServer) planAnswer(ctx context.Context, state *run.AgentState, a Answer, c Caller) (inputStep, error) {
	if a.Error != nil || a.Rerun {
		a.Result = unlessNull(a.Result)
	}
	given := slices.DeleteFunc([]bool{a.Result != nil, a.Error != nil, a.Rerun}, func(is bool) bool { return !is })
	if len(given) != 1 {
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
		given.Content, given.IsError = answerText(a.Result, a.Error)
		return func(ctx context.Context, check approval.Checked) error {
			if check != nil {
				return nil
			}
			return s.Inputs.Answer(ctx, given)
		}, nil
	}
	return s.outcomeStep(state, a, c), nil
}

// planNamedAnswer plans an answer to a named request about an unknown outcome.
func (s *apiServer) planNamedAnswer(ctx context.Context, run *run.AgentState, a Answer, c Caller) (inputStep, error) {
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
func (s *apiServer) outcomeStep(run *run.AgentState, a Answer, c Caller) inputStep {
	r := approval.DecisionInput{
		Tenant: run.Tenant, Run: run.Run, Call: a.Call, ID: a.Approval, Key: a.ID, Action: approval.Rerun, By: c.Principal,
		Via: s.Via,
	}
	switch {
	case a.Error != nil:
		r.Action, r.Content = approval.ReportError, *a.Error
	case a.Result != nil:
		r.Action, r.Content = approval.ReportResult, policy.ResultText(a.Result)
	}
	return func(ctx context.Context, check approval.Checked) error {
		r.Check = check
		answered, err := s.Desk.Decide(ctx, r)
		if err == nil && answered.IsRepeated() {
			return errRepeated
		}
		return err
	}
}

// planAnsweredDecision plans an answer as a decision on a call that waits for one. An error in answer to a permission
// request says that the request itself has failed.
func (s *apiServer) planAnsweredDecision(
	state *run.AgentState, a Answer, c Caller, req approval.DecisionInput, what run.WaitFor,
) (inputStep, error) {
	req.Tenant, req.Action, req.By, req.Via = state.Tenant, approval.Deny, c.Principal, s.Via
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
	return func(ctx context.Context, check approval.Checked) error {
		req.Check = check
		_, err := s.Desk.Decide(ctx, req)
		return err
	}, nil
}

// MaxInline is the largest inline file of a message in bytes, before base64. A larger file is a blob.
const MaxInline = 128 << 10

// maxBlocks is how many blocks a message may have. Each file is looked up.
const maxBlocks = 100

// maxName is the longest name of a file, in bytes.
const maxName = 1024

// messageBlock is a content block of a client.
type messageBlock struct {
	Type      string  `json:"type"`
	Text      *string `json:"text"`
	Name      string  `json:"name"`
	MediaType *string `json:"mediaType"`
	Data      *string `json:"data"`
	Blob      *string `json:"blob"`
}

// ReadMessage reads a message of a client: a string, or a list of text and media blocks. key names it in errors,
// which are *Problem.
func ReadMessage(key string, raw json.RawMessage) ([]run.UserBlock, error) {
	if len(raw) > 0 && raw[0] == '[' {
		var blocks []messageBlock
		if err := jsonx.DecodeStrict(raw, &blocks); err != nil {
			return nil, invalidProblem("%s: %v", key, err)
		}
		if len(blocks) > maxBlocks {
			return nil, problem(TooLarge, "%s: got %d blocks, want at most %d", key, len(blocks), maxBlocks)
		}
		for i, b := range blocks {
			if err := b.check(); err != nil {
				return nil, invalidProblem("%s[%d]: %v", key, i, err)
			}
		}
	}
	blocks, err := policy.ParseMessage(raw)
	if err != nil {
		return nil, invalidProblem("%s: %v", key, err)
	}
	return blocks, nil
}

func (b messageBlock) check() error {
	switch b.Type {
	case "text":
		if b.Text == nil || *b.Text == "" || b.MediaType != nil || b.Data != nil || b.Blob != nil || b.Name != "" {
			return fmt.Errorf("want a text block of type and text alone")
		}
		return nil
	case "media":
	default:
		return fmt.Errorf("type: got %.64q, want text or media", b.Type)
	}
	if b.Text != nil || b.MediaType == nil || (b.Data == nil) == (b.Blob == nil) {
		return fmt.Errorf("want a media block of type, mediaType, data or blob, and perhaps name")
	}
	if len(b.Name) > maxName {
		return fmt.Errorf("name: got %d bytes, want at most %d", len(b.Name), maxName)
	}
	if b.Blob != nil {
		return agent.CheckMedia(run.Media{MediaType: *b.MediaType, Blob: *b.Blob})
	}
	data, err := base64.StdEncoding.Strict().DecodeString(*b.Data)
	if err != nil || len(data) == 0 || strings.ContainsAny(*b.Data, "\r\n") {
		// the decoder skips line ends, later readers may not
		return fmt.Errorf("data: want base64 of one byte or more")
	}
	if len(data) > MaxInline {
		return fmt.Errorf("data: got %d bytes, want at most %d inline; upload it and name it as blob", len(data),
			MaxInline)
	}
	return nil
}

// callbackPath is the one path without a caller. The token in it names the call to answer.
const callbackPath = secrets.Path + "{token}"

// IsPublic reports whether a request authenticates itself by its path or signature, so that no handler in front needs
// to.
func IsPublic(r *http.Request) bool {
	for _, path := range []string{secrets.Path, approval.LinkPath} {
		if token, ok := strings.CutPrefix(r.URL.Path, path); ok && token != "" && !strings.Contains(token, "/") {
			return true
		}
	}
	return r.URL.Path == slackPath
}

// slackPath is where Slack posts signed interactions. functions/http and dev serve it.
const slackPath = "/slack/interactions"

// CallbackAnswer is the body of POST /v1/callbacks/{token}. Exactly one of the two is set; a null result is set.
type CallbackAnswer struct {
	Result json.RawMessage `json:"result,omitempty"` // a string stands for its text, anything else for its JSON
	Error  *string         `json:"error,omitempty"`
}

// Applied says whether an answer was applied: only the first one to a call is.
type Applied struct {
	Applied bool `json:"applied"`
}

// answerText returns what the agent is told of an answer: an error, or the text that a result stands for.
func answerText(result json.RawMessage, failure *string) (content string, isError bool) {
	if failure != nil {
		return *failure, true
	}
	return policy.ResultText(result), false
}

// errCallbackNotFound is the error of every invalid token, whatever is wrong with it, and of a token whose run no
// longer exists.
func errCallbackNotFound() error { return problem(NoSuchPath, "there is nothing here") }

// receiveCallback applies the answer to the call that the token names.
func (s *apiServer) receiveCallback(w http.ResponseWriter, r *http.Request, _ Caller) (int, any, error) {
	claim, err := s.readClaim(r)
	if err != nil {
		return 0, nil, err
	}
	b, err := readBody[CallbackAnswer](w, r, false)
	if err != nil {
		return 0, nil, err
	}
	if b.Error != nil {
		b.Result = unlessNull(b.Result)
	}
	if (b.Result == nil) == (b.Error == nil) {
		return 0, nil, invalidProblem("want exactly one of result and error")
	}
	given := runtime.Answer{Tenant: claim.Tenant, Run: claim.Run, Call: claim.Call, By: "callback"}
	given.Content, given.IsError = answerText(b.Result, b.Error)
	switch err = s.Inputs.Answer(r.Context(), given); {
	case errors.Is(err, store.ErrNoRun):
		return 0, nil, errCallbackNotFound()
	case err != nil && !errors.Is(err, runtime.ErrNotAwaited):
		return 0, nil, err
	}
	return http.StatusAccepted, Applied{Applied: err == nil}, nil
}

// readClaim verifies the token and returns its claim.
func (s *apiServer) readClaim(r *http.Request) (secrets.Claim, error) {
	if s.Callbacks == nil {
		return secrets.Claim{}, errCallbackNotFound()
	}
	ring, err := s.Callbacks()
	switch {
	case err != nil:
		return secrets.Claim{}, err
	case ring == nil: // nothing was ever signed
		return secrets.Claim{}, errCallbackNotFound()
	}
	c, err := secrets.Read(ring, r.PathValue("token"), s.Clock.Now())
	switch {
	case errors.Is(err, secrets.ErrExpired):
		return secrets.Claim{}, problem(CallbackExpired, "the time to answer is over")
	case err != nil:
		return secrets.Claim{}, errCallbackNotFound()
	}
	return c, nil
}
