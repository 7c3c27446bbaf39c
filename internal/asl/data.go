package asl

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
)

// MaxData is the longest input, output or state data, in bytes of JSON, as Step Functions limits it.
const MaxData = 256 << 10

// State data is what jsonx.DecodeNumbers makes of JSON. It never changes once it is made, so states share it.

// encode writes a value as compact JSON, of at most MaxData bytes.
func encode(v any) (json.RawMessage, error) {
	data, err := jsonx.MarshalVerbatim(v)
	if err != nil {
		return nil, errorf(Runtime, "%v", err)
	}
	if len(data) > MaxData {
		return nil, errorf(DataLimitExceeded, "the data is %d bytes, more than %d", len(data), MaxData)
	}
	return data, nil
}

// contextFields are the paths into the context object.
var contextFields = map[string]func(x *execution) any{
	"$$.Execution.Id":   func(x *execution) any { return x.arn },
	"$$.Execution.Name": func(x *execution) any { return x.rec.Name },
	// The engine knows no redrive: an execution that ended stays as it is.
	"$$.Execution.RedriveCount": func(*execution) any { return json.Number("0") },
	"$$.State.RetryCount": func(x *execution) any {
		n := 0
		for _, used := range x.retries {
			n += used
		}
		return json.Number(strconv.Itoa(n))
	},
	"$$.StateMachine.Id": func(x *execution) any { return x.engine.ARN },
	"$$.Task.Token":      func(x *execution) any { return x.attempt.token },
}

// look returns the value at a path, in data or in the context object.
func (x *execution) look(data any, path string) (any, error) {
	if field, ok := contextFields[path]; ok {
		return field(x), nil
	}
	if !strings.HasPrefix(path, "$") {
		return nil, errorf(Runtime, "%q is no path", path)
	}
	for _, name := range strings.Split(path, ".")[1:] {
		m, _ := data.(map[string]any)
		v, ok := m[name]
		if !ok {
			return nil, errorf(Runtime, "the path %s leads nowhere", path)
		}
		data = v
	}
	return data, nil
}

func (x *execution) fill(template, data any) (any, error) {
	m, ok := template.(map[string]any)
	if !ok {
		return template, nil
	}
	out := make(map[string]any, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) { // in order, so that the same path fails every time
		var err error
		if name, isPath := strings.CutSuffix(key, ".$"); isPath {
			path, _ := m[key].(string)
			out[name], err = x.look(data, path)
		} else {
			out[key], err = x.fill(m[key], data)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// place returns a state's input with its result where ResultPath says.
func place(path json.RawMessage, in, result any) (any, error) {
	switch string(path) {
	case "":
		return result, nil
	case "null":
		return in, nil
	}
	m, ok := in.(map[string]any)
	if !ok {
		return nil, errorf(ResultPathMatchFailure, "ResultPath %s: the input is not an object", path)
	}
	m = maps.Clone(m)
	m[strings.Trim(string(path), `"$.`)] = result
	return m, nil
}

// Names of the errors that Step Functions itself raises in a state.
const (
	All                    = "States.ALL"
	Timeout                = "States.Timeout"
	Runtime                = "States.Runtime"
	DataLimitExceeded      = "States.DataLimitExceeded"
	ResultPathMatchFailure = "States.ResultPathMatchFailure"
)

// Names of the errors of the Step Functions API.
const (
	TaskTimedOut           = "TaskTimedOut"
	TaskDoesNotExist       = "TaskDoesNotExist"
	InvalidOutput          = "InvalidOutput"
	InvalidName            = "InvalidName"
	InvalidExecutionInput  = "InvalidExecutionInput"
	ExecutionDoesNotExist  = "ExecutionDoesNotExist"
	ExecutionAlreadyExists = "ExecutionAlreadyExists"
)

// Error is an error with the name that Step Functions gives it: a refusal by the engine, or the failure of a state,
// which Retry and Catch match and a failed execution reports.
type Error struct {
	Name  string
	Cause string

	err    error  // of the handler; nil = another kind of error
	status Status // that the execution is closed with, whatever Retry and Catch say; empty = they decide
}

func errorf(name, format string, args ...any) *Error {
	return &Error{Name: name, Cause: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return e.Name + ": " + e.Cause }

// Unwrap returns the error of the handler that failed.
func (e *Error) Unwrap() error { return e.err }

// matches tells whether ErrorEquals covers e. States.Runtime is never covered, States.DataLimitExceeded only by its own
// name.
func (e *Error) matches(names []string) bool {
	if e.Name == Runtime || e.status != "" {
		return false
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return name == e.Name || name == All && e.Name != DataLimitExceeded
	})
}
