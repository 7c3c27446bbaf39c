package asl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// MaxData is the longest input, output or state data, in bytes of JSON, as Step Functions limits it.
const MaxData = 256 << 10

// State data is what encoding/json makes of JSON: nil, bool, string, json.Number, []any and map[string]any. It never
// changes once it is made, so states share it.

// decode reads one JSON value; numbers keep their digits.
func decode(data []byte) (v any, err error) {
	if !json.Valid(data) {
		return nil, errors.New("not JSON")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return v, d.Decode(&v)
}

// encode writes a value as compact JSON, of at most MaxData bytes.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, failf(Runtime, "%v", err)
	}
	data := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if len(data) > MaxData {
		return nil, failf(DataLimitExceeded, "the data is %d bytes, more than %d", len(data), MaxData)
	}
	return data, nil
}

// contextFields are the paths into the context object.
var contextFields = map[string]func(x *execution) any{
	"$$.Execution.Id":   func(x *execution) any { return x.arn },
	"$$.Execution.Name": func(x *execution) any { return x.rec.Name },
	// The engine knows no redrive: an execution that ended stays as it is.
	"$$.Execution.RedriveCount": func(*execution) any { return json.Number("0") },
	"$$.State.RetryCount":       func(x *execution) any { return json.Number(strconv.Itoa(x.retryCount())) },
	"$$.StateMachine.Id":        func(x *execution) any { return x.engine.ARN },
	"$$.Task.Token":             func(x *execution) any { return x.token },
}

// look returns the value at a path, in data or in the context object.
func (x *execution) look(data any, path string) (any, error) {
	if field, ok := contextFields[path]; ok {
		return field(x), nil
	}
	for _, name := range strings.Split(path, ".")[1:] {
		m, _ := data.(map[string]any)
		v, ok := m[name]
		if !ok {
			return nil, failf(Runtime, "the path %s leads nowhere", path)
		}
		data = v
	}
	return data, nil
}

// fill fills a payload template in.
func (x *execution) fill(template, data any) (any, error) {
	m, ok := template.(map[string]any)
	if !ok {
		return template, nil
	}
	out := make(map[string]any, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) { // in order, so that the same path fails every time
		var err error
		if name, isPath := strings.CutSuffix(key, ".$"); isPath {
			out[name], err = x.look(data, m[key].(string))
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
		return nil, failf(ResultPathMatchFailure, "ResultPath %s: the input is not an object", path)
	}
	m = maps.Clone(m)
	m[strings.Trim(string(path), `"$.`)] = result
	return m, nil
}

// Names of the errors that Step Functions itself raises in a state.
const (
	All                    = "States.ALL"
	Timeout                = "States.Timeout"
	HeartbeatTimeout       = "States.HeartbeatTimeout"
	Runtime                = "States.Runtime"
	DataLimitExceeded      = "States.DataLimitExceeded"
	ResultPathMatchFailure = "States.ResultPathMatchFailure"
)

// catchable are the names that ErrorEquals may use below "States.".
var catchable = map[string]bool{
	All: true, Timeout: true, HeartbeatTimeout: true, DataLimitExceeded: true, ResultPathMatchFailure: true,
}

// Failure is an error of a state: what Retry and Catch match and what a failed execution reports.
type Failure struct {
	Name  string
	Cause string
	err   error // of the handler; nil = another kind of failure
}

func failf(name, format string, args ...any) *Failure {
	return &Failure{Name: name, Cause: fmt.Sprintf(format, args...)}
}

func (f *Failure) Error() string { return f.Name + ": " + f.Cause }

// Unwrap returns the error of the handler that failed.
func (f *Failure) Unwrap() error { return f.err }

// matches tells whether ErrorEquals covers f. States.Runtime is never covered, States.DataLimitExceeded only by its own
// name, and a heartbeat timeout by States.Timeout too.
func (f *Failure) matches(names []string) bool {
	if f.Name == Runtime {
		return false
	}
	return slices.ContainsFunc(names, func(name string) bool {
		return name == f.Name || name == All && f.Name != DataLimitExceeded || name == Timeout && f.Name == HeartbeatTimeout
	})
}
