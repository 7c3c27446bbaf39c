package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// ProblemType is the type member of a problem. Once released, a type keeps its meaning and its status.
type ProblemType string

// The problem types.
const (
	InvalidRequest   ProblemType = "invalid-request"
	UnknownAgent     ProblemType = "unknown-agent"
	UnknownBlob      ProblemType = "unknown-blob"
	NotSupported     ProblemType = "not-supported"
	EditRefused      ProblemType = "edit-refused"
	GrantRefused     ProblemType = "grant-refused"
	AnswerRefused    ProblemType = "answer-refused"
	Unauthenticated  ProblemType = "unauthenticated"
	NotAllowed       ProblemType = "not-allowed"
	NoSuchPath       ProblemType = "no-such-path"
	RunNotFound      ProblemType = "run-not-found"
	CallNotFound     ProblemType = "call-not-found"
	ApprovalNotFound ProblemType = "approval-not-found"
	GrantNotFound    ProblemType = "grant-not-found"
	BadMethod        ProblemType = "method-not-allowed"
	RunFinished      ProblemType = "run-finished"
	RunNotFinished   ProblemType = "run-not-finished"
	CallRunning      ProblemType = "call-running"
	KeyReused        ProblemType = "key-reused"
	AlreadyDecided   ProblemType = "already-decided"
	ApprovalExpired  ProblemType = "approval-expired"
	NothingWaits     ProblemType = "nothing-waits"
	NotLinked        ProblemType = "not-linked"
	WrongKind        ProblemType = "wrong-kind"
	RequestChanged   ProblemType = "request-changed"
	PolicyChanged    ProblemType = "policy-changed"
	NotUndoable      ProblemType = "not-undoable"
	CallbackExpired  ProblemType = "callback-expired"
	TooLarge         ProblemType = "too-large"
	BadMediaType     ProblemType = "unsupported-media-type"
	Unavailable      ProblemType = "unavailable"
	Damaged          ProblemType = "damaged"
	AnswerTooLarge   ProblemType = "answer-too-large"
	Internal         ProblemType = "internal"
)

// problemKinds maps each type to its status and title.
var problemKinds = map[ProblemType]struct {
	status int
	title  string
}{
	InvalidRequest:   {http.StatusBadRequest, "the request is not valid"},
	UnknownAgent:     {http.StatusBadRequest, "there is no such agent"},
	UnknownBlob:      {http.StatusBadRequest, "a message names a file that is not there"},
	NotSupported:     {http.StatusBadRequest, "not supported yet"},
	EditRefused:      {http.StatusBadRequest, "the edited arguments are refused"},
	GrantRefused:     {http.StatusBadRequest, "the bounds of the grant are refused"},
	AnswerRefused:    {http.StatusBadRequest, "the answer is refused"},
	Unauthenticated:  {http.StatusUnauthorized, "nobody knows who you are"},
	NotAllowed:       {http.StatusForbidden, "you may not do this"},
	NoSuchPath:       {http.StatusNotFound, "there is nothing at this path"},
	RunNotFound:      {http.StatusNotFound, "there is no such run"},
	CallNotFound:     {http.StatusNotFound, "the run has no such call"},
	ApprovalNotFound: {http.StatusNotFound, "there is no such approval"},
	GrantNotFound:    {http.StatusNotFound, "there is no such standing grant"},
	BadMethod:        {http.StatusMethodNotAllowed, "the path does not take this method"},
	RunFinished:      {http.StatusConflict, "the run has finished"},
	RunNotFinished:   {http.StatusConflict, "the run has not finished"},
	CallRunning:      {http.StatusConflict, "a call was running there"},
	KeyReused:        {http.StatusConflict, "the key was used with another body"},
	AlreadyDecided:   {http.StatusConflict, "somebody has decided already"},
	ApprovalExpired:  {http.StatusConflict, "the request has expired"},
	NothingWaits:     {http.StatusConflict, "the call waits for nobody"},
	RequestChanged:   {http.StatusConflict, "the request is about another action since"},
	PolicyChanged:    {http.StatusConflict, "the policy has changed since"},
	NotLinked:        {http.StatusConflict, "this process does not have the tool"},
	WrongKind:        {http.StatusConflict, "the request cannot be decided like that"},
	NotUndoable:      {http.StatusConflict, "the call cannot be taken back"},
	CallbackExpired:  {http.StatusGone, "the time to answer is over"},
	TooLarge:         {http.StatusRequestEntityTooLarge, "too large"},
	BadMediaType:     {http.StatusUnsupportedMediaType, "the body must be application/json"},
	Unavailable:      {http.StatusServiceUnavailable, "try again"},
	Damaged:          {http.StatusInternalServerError, "something stored cannot be read"},
	AnswerTooLarge:   {http.StatusInternalServerError, "the answer is too large"},
	Internal:         {http.StatusInternalServerError, "something went wrong here"},
}

// Problem is an error of the API (RFC 9457). The Client returns it.
type Problem struct {
	Type     ProblemType        `json:"type"`
	Title    string             `json:"title"`
	Status   int                `json:"status"`
	Detail   string             `json:"detail"`
	Known    []string           `json:"known,omitempty"`    // unknown-agent: the agents there are
	Approval *approval.Approval `json:"approval,omitempty"` // already-decided, request-changed, policy-changed: the current request
}

func (p *Problem) Error() string { return p.Detail }

// NewProblem returns a problem for a handler in front of a Handler. Clients see the detail.
func NewProblem(t ProblemType, detail string) *Problem { return problem(t, "%s", detail) }

func problem(t ProblemType, format string, args ...any) *Problem {
	k := problemKinds[t]
	return &Problem{Type: t, Title: k.title, Status: k.status, Detail: fmt.Sprintf(format, args...)}
}

func invalidProblem(format string, args ...any) error {
	return problem(InvalidRequest, format, args...)
}

// problemCauses maps errors to problem types, in order of precedence.
var problemCauses = []struct {
	is   error
	kind ProblemType
}{
	{store.ErrNoRun, RunNotFound},
	{store.ErrNoEntry, InvalidRequest},
	{policy.ErrNotFinished, RunNotFinished},
	{policy.ErrCallRunning, CallRunning},
	{policy.ErrUndoing, CallRunning},
	{runtime.ErrNoSuchCall, CallNotFound},
	{approval.ErrNotFound, ApprovalNotFound},
	{approval.ErrNoGrant, GrantNotFound},
	{approval.ErrRemark, InvalidRequest},
	{approval.ErrThreadFull, TooLarge},
	{runtime.ErrRunFinished, RunFinished},
	{runtime.ErrKeyReused, KeyReused},
	{runtime.ErrUnknownBlob, UnknownBlob},
	{store.ErrOtherInput, KeyReused},
	{approval.ErrForbidden, NotAllowed},
	{approval.ErrExpired, ApprovalExpired},
	{approval.ErrFinished, RunFinished},
	{approval.ErrKind, WrongKind},
	{approval.ErrNotLinked, NotLinked},
	{approval.ErrNothing, NothingWaits},
	{approval.ErrNoCall, CallNotFound},
	{approval.ErrKept, TooLarge},
	{store.ErrTooLarge, TooLarge},
	{store.ErrThrottled, Unavailable},
	{store.ErrConflict, Unavailable},
	{runtime.ErrContention, Unavailable},
	{context.Canceled, Unavailable},
	{context.DeadlineExceeded, Unavailable},
}

// problemWithApproval adds the current request to a problem.
func problemWithApproval(t ProblemType, err error, a approval.Approval) *Problem {
	p := problem(t, "%v", err)
	p.Approval = &a
	return p
}

// problemOf returns the problem of an error. An unknown error is internal.
func problemOf(err error) *Problem {
	var p *Problem
	var decided *approval.DecidedError
	var stale *approval.StaleError
	var rules *approval.PolicyError
	var start *runtime.BadStart
	var fork *runtime.BadFork
	var undo *policy.UndoError
	var forbidden *run.ApplyError
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, store.ErrDamaged): // before any other error
		return problem(Damaged, "%v", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return problem(Unavailable, "The disk that holds the store is full: free some space there, and send the request again (%v).", err)
	case errors.As(err, &decided):
		return problemWithApproval(AlreadyDecided, decided, decided.Approval)
	case errors.As(err, &stale):
		return problemWithApproval(RequestChanged, stale, stale.Approval)
	case errors.As(err, &rules):
		return problemWithApproval(PolicyChanged, rules, rules.Approval)
	case errors.As(err, &start):
		return problem(InvalidRequest, "%v", start)
	case errors.As(err, &undo):
		return problem(NotUndoable, "%v", undo)
	case errors.As(err, &fork):
		return problem(InvalidRequest, "%v", fork)
	case errors.As(err, &forbidden):
		return problem(InvalidRequest, "%v", forbidden)
	}
	if refused := refusedProblem(err); refused != nil {
		return refused
	}
	for _, c := range problemCauses {
		if errors.Is(err, c.is) {
			return problem(c.kind, "%v", err)
		}
	}
	return problem(Internal, "%v", err)
}

// refusedProblem returns the problem of refused arguments, bounds or answers of a decision; nil for any other error.
func refusedProblem(err error) *Problem {
	var edit *approval.EditError
	var grant *approval.GrantError
	var answer *policy.AnswerError
	switch {
	case errors.As(err, &edit):
		return problem(EditRefused, "%v", edit)
	case errors.As(err, &grant):
		return problem(GrantRefused, "%v", grant)
	case errors.As(err, &answer):
		return problem(AnswerRefused, "%v", answer)
	default:
		return nil
	}
}
