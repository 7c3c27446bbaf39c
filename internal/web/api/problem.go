package api

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
	RunInUse         ProblemType = "run-in-use"
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
	TooManyRuns      ProblemType = "too-many-runs"
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
	RunInUse:         {http.StatusConflict, "the run cannot be deleted yet"},
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
	TooManyRuns:      {http.StatusTooManyRequests, "the tenant has too many running runs"},
	Unavailable:      {http.StatusServiceUnavailable, "try again"},
	Damaged:          {http.StatusInternalServerError, "something stored cannot be read"},
	AnswerTooLarge:   {http.StatusInternalServerError, "the answer is too large"},
	Internal:         {http.StatusInternalServerError, "something went wrong here"},
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

// NewProblem returns a problem for a handler in front of a Handler. Clients see the detail.
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
	{as[*approval.EditError], EditRefused},
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
	return problem(Internal, "%v", err)
}
