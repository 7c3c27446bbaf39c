package asl

import "fmt"

// Names of the errors of the Step Functions API.
const (
	TaskTimedOut             = "TaskTimedOut"
	TaskDoesNotExist         = "TaskDoesNotExist"
	InvalidToken             = "InvalidToken"
	InvalidOutput            = "InvalidOutput"
	InvalidArn               = "InvalidArn"
	InvalidName              = "InvalidName"
	InvalidExecutionInput    = "InvalidExecutionInput"
	ExecutionDoesNotExist    = "ExecutionDoesNotExist"
	ExecutionAlreadyExists   = "ExecutionAlreadyExists"
	ExecutionLimitExceeded   = "ExecutionLimitExceeded"
	ExecutionNotRedrivable   = "ExecutionNotRedrivable"
	StateMachineDoesNotExist = "StateMachineDoesNotExist"
)

// Error is a refusal by the engine, with the name that Step Functions gives it.
type Error struct {
	Name    string
	Message string
}

func (e *Error) Error() string { return e.Name + ": " + e.Message }

func refuse(name, format string, args ...any) *Error {
	return &Error{Name: name, Message: fmt.Sprintf(format, args...)}
}
