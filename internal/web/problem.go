package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"syscall"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
)

// ProblemType is the type member of a problem. Once released, a type keeps its meaning and its status.
type ProblemType string

// problemKinds has the status and the title of each type.
var problemKinds = map[ProblemType]problemKind{}

type problemKind struct {
	status int
	title  string
}

// The problem types.
var (
	InvalidRequest   = newProblemType("invalid-request", http.StatusBadRequest, "the request is not valid")
	UnknownAgent     = newProblemType("unknown-agent", http.StatusBadRequest, "there is no such agent")
	UnknownBlob      = newProblemType("unknown-blob", http.StatusBadRequest, "a message names a file that is not there")
	NotSupported     = newProblemType("not-supported", http.StatusBadRequest, "not supported yet")
	EditRefused      = newProblemType("edit-refused", http.StatusBadRequest, "the edited arguments are refused")
	GrantRefused     = newProblemType("grant-refused", http.StatusBadRequest, "the bounds of the grant are refused")
	AnswerRefused    = newProblemType("answer-refused", http.StatusBadRequest, "the answer is refused")
	Unauthenticated  = newProblemType("unauthenticated", http.StatusUnauthorized, "nobody knows who you are")
	NotAllowed       = newProblemType("not-allowed", http.StatusForbidden, "you may not do this")
	NoSuchPath       = newProblemType("no-such-path", http.StatusNotFound, "there is nothing at this path")
	RunNotFound      = newProblemType("run-not-found", http.StatusNotFound, "there is no such run")
	CallNotFound     = newProblemType("call-not-found", http.StatusNotFound, "the run has no such call")
	ApprovalNotFound = newProblemType("approval-not-found", http.StatusNotFound, "there is no such approval")
	GrantNotFound    = newProblemType("grant-not-found", http.StatusNotFound, "there is no such standing grant")
	BadMethod        = newProblemType("method-not-allowed", http.StatusMethodNotAllowed,
		"the path does not take this method")
	RunFinished     = newProblemType("run-finished", http.StatusConflict, "the run has finished")
	RunNotFinished  = newProblemType("run-not-finished", http.StatusConflict, "the run has not finished")
	CallRunning     = newProblemType("call-running", http.StatusConflict, "a call was running there")
	RunInUse        = newProblemType("run-in-use", http.StatusConflict, "the run cannot be deleted yet")
	KeyReused       = newProblemType("key-reused", http.StatusConflict, "the key was used with another body")
	AlreadyDecided  = newProblemType("already-decided", http.StatusConflict, "somebody has decided already")
	ApprovalExpired = newProblemType("approval-expired", http.StatusConflict, "the request has expired")
	NothingWaits    = newProblemType("nothing-waits", http.StatusConflict, "the call waits for nobody")
	NotLinked       = newProblemType("not-linked", http.StatusConflict, "this process lacks code of the agent")
	WrongKind       = newProblemType("wrong-kind", http.StatusConflict, "the request cannot be decided like that")
	RequestChanged  = newProblemType("request-changed", http.StatusConflict, "the request is about another action since")
	PolicyChanged   = newProblemType("policy-changed", http.StatusConflict, "the policy has changed since")
	NotUndoable     = newProblemType("not-undoable", http.StatusConflict, "the call cannot be taken back")
	CallbackExpired = newProblemType("callback-expired", http.StatusGone, "the time to answer is over")
	TooLarge        = newProblemType("too-large", http.StatusRequestEntityTooLarge, "too large")
	BadMediaType    = newProblemType("unsupported-media-type", http.StatusUnsupportedMediaType,
		"the body must be application/json")
	TooManyRuns    = newProblemType("too-many-runs", http.StatusTooManyRequests, "the tenant has too many running runs")
	Unavailable    = newProblemType("unavailable", http.StatusServiceUnavailable, "try again")
	Damaged        = newProblemType("damaged", http.StatusInternalServerError, "something stored cannot be read")
	AnswerTooLarge = newProblemType("answer-too-large", http.StatusInternalServerError, "the answer is too large")
	InternalError  = newProblemType("internal", http.StatusInternalServerError, "something went wrong here")
)

func newProblemType(name ProblemType, status int, title string) ProblemType {
	problemKinds[name] = problemKind{status, title}
	return name
}

// Problem is an error of the API (RFC 9457). The Client returns it.
type Problem struct {
	Type   ProblemType `json:"type"`
	Title  string      `json:"title"`
	Status int         `json:"status"`
	Detail string      `json:"detail"`
	Known  []string    `json:"known,omitempty"` // unknown-agent: the agents there are
	// already-decided, request-changed, policy-changed: the current request
	Approval *approval.Approval `json:"approval,omitempty"`
}

func (p *Problem) Error() string { return p.Detail }

// NewProblem returns a problem for a handler in front of an APIHandler. Clients see the detail.
func NewProblem(t ProblemType, detail string) *Problem { return problem(t, "%s", detail) }

func problem(t ProblemType, format string, args ...any) *Problem {
	k := problemKinds[t]
	return &Problem{Type: t, Title: k.title, Status: k.status, Detail: fmt.Sprintf(format, args...)}
}

func invalidProblem(format string, args ...any) error {
	return problem(InvalidRequest, format, args...)
}

// problemCauses maps errors to problem types, in order of precedence. find returns the part of an error that is shown;
// nil = the error is another one.
var problemCauses = []struct {
	find func(error) error
	kind ProblemType
}{
	{is(store.ErrDamaged), Damaged},
	{as[*approval.DecidedError], AlreadyDecided},
	{as[*approval.StaleError], RequestChanged},
	{as[*approval.PolicyError], PolicyChanged},
	{as[*runtime.BadStart], InvalidRequest},
	{as[*policy.UndoError], NotUndoable},
	{as[*runtime.NotDeletable], RunInUse},
	{as[*runtime.BadFork], InvalidRequest},
	{as[*run.ApplyError], InvalidRequest},
	{as[*policy.EditError], EditRefused},
	{as[*approval.GrantError], GrantRefused},
	{as[*policy.AnswerError], AnswerRefused},
	{is(store.ErrNoRun), RunNotFound},
	{is(store.ErrNoEntry), InvalidRequest},
	{is(policy.ErrNotFinished), RunNotFinished},
	{is(policy.ErrCallRunning, policy.ErrUndoing), CallRunning},
	{is(runtime.ErrNoSuchCall), CallNotFound},
	{is(approval.ErrNotFound), ApprovalNotFound},
	{is(approval.ErrNoGrant), GrantNotFound},
	{is(approval.ErrRemark), InvalidRequest},
	{is(approval.ErrThreadFull), TooLarge},
	{is(runtime.ErrRunFinished), RunFinished},
	{is(runtime.ErrTooManyRuns), TooManyRuns},
	{is(runtime.ErrKeyReused), KeyReused},
	{is(runtime.ErrUnknownBlob), UnknownBlob},
	{is(store.ErrOtherInput), KeyReused},
	{is(approval.ErrForbidden), NotAllowed},
	{is(approval.ErrExpired), ApprovalExpired},
	{is(approval.ErrFinished), RunFinished},
	{is(approval.ErrKind), WrongKind},
	{is(approval.ErrNotLinked), NotLinked},
	{is(approval.ErrNothing), NothingWaits},
	{is(approval.ErrNoCall), CallNotFound},
	{is(approval.ErrKept, store.ErrTooLarge), TooLarge},
	{is(store.ErrThrottled, store.ErrConflict, runtime.ErrContention, context.Canceled, context.DeadlineExceeded),
		Unavailable},
}

func is(targets ...error) func(error) error {
	return func(err error) error {
		if slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) }) {
			return err
		}
		return nil
	}
}

func as[E error](err error) error {
	if e, ok := errors.AsType[E](err); ok {
		return e
	}
	return nil
}

// problemOf returns the problem of an error. An unknown error is internal.
func problemOf(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if is(syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG)(err) != nil && !errors.Is(err, store.ErrDamaged) {
		return problem(Unavailable, "The disk that holds the store is full: free some space there, and send the "+
			"request again (%v).", err)
	}
	for _, c := range problemCauses {
		if found := c.find(err); found != nil {
			p := problem(c.kind, "%v", found)
			p.Approval = approval.RequestIn(found)
			return p
		}
	}
	return problem(InternalError, "%v", err)
}
