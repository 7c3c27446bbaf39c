package asl

import "fmt"

// Names of errors that Step Functions itself raises in a state.
const (
	All                    = "States.ALL"
	Timeout                = "States.Timeout"
	HeartbeatTimeout       = "States.HeartbeatTimeout"
	TaskFailed             = "States.TaskFailed"
	Runtime                = "States.Runtime"
	DataLimitExceeded      = "States.DataLimitExceeded"
	ResultPathMatchFailure = "States.ResultPathMatchFailure"
	NoChoiceMatched        = "States.NoChoiceMatched"
	LambdaUnknown          = "Lambda.Unknown"
)

// reserved are the names that ErrorEquals may use below "States.".
var reserved = map[string]bool{
	All: true, Timeout: true, HeartbeatTimeout: true, TaskFailed: true, Runtime: true, DataLimitExceeded: true,
	"States.ParameterPathFailure": true, ResultPathMatchFailure: true, NoChoiceMatched: true,
	"States.Permissions": true, "States.IntrinsicFailure": true, "States.BranchFailed": true,
}

// Failure is an error of a state: what Retry and Catch match and what a failed execution reports.
type Failure struct {
	Name  string
	Cause string

	err   error // of the handler; nil = another kind of failure
	still error // it is none of the state's: the execution stands still for it
}

// Unwrap is the error of the handler that failed.
func (f *Failure) Unwrap() error { return f.err }

func (f *Failure) Error() string { return f.Name + ": " + f.Cause }

func failf(name, format string, args ...any) *Failure {
	return &Failure{Name: name, Cause: fmt.Sprintf(format, args...)}
}

// output is what a Catch puts at its ResultPath.
func (f *Failure) output() any { return map[string]any{"Error": f.Name, "Cause": f.Cause} }

// matches tells whether a name in ErrorEquals covers f. States.Runtime is never covered, States.DataLimitExceeded only by
// its own name, a timeout not by States.TaskFailed, and a heartbeat timeout by States.Timeout too.
func (f *Failure) matches(pattern string) bool {
	switch {
	case f.Name == Runtime:
		return false
	case pattern == f.Name:
		return true
	case f.Name == DataLimitExceeded:
		return false
	case pattern == All:
		return true
	case pattern == TaskFailed:
		return f.Name != Timeout && f.Name != HeartbeatTimeout
	default:
		return pattern == Timeout && f.Name == HeartbeatTimeout
	}
}
