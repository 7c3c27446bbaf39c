package asl

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/jsonx"
)

// Definition is a state machine that Parse accepted. It does not change and is safe for concurrent use.
type Definition struct {
	startAt string
	states  map[string]*state
}

// state is a state of any Type.
type state struct {
	Type, Comment string

	// Of a Task.
	Next               string
	Resource           string
	Parameters         map[string]any  // a member whose name ends in .$ is a path
	ResultPath         json.RawMessage // none = the result replaces the input; null = it is dropped; "$.name"
	OutputPath         string          // empty = $
	TimeoutSeconds     int
	TimeoutSecondsPath string // used when TimeoutSeconds is 0
	Retry              []retrier
	Catch              []catcher

	// Of a Choice.
	Choices []struct{ Variable, StringEquals, Next string }
	Default string

	// Of a Fail.
	Error, Cause string
}

type catcher struct {
	ErrorEquals []string
	ResultPath  json.RawMessage // as a state's
	Next        string
}

type retrier struct {
	ErrorEquals                                   []string
	IntervalSeconds, MaxAttempts, MaxDelaySeconds int
	BackoffRate                                   float64
	JitterStrategy                                string // FULL or empty
}

// delay is how long to wait before retry n, counted from 0, without jitter.
func (r retrier) delay(n int) time.Duration {
	seconds := float64(r.IntervalSeconds) * math.Pow(r.BackoffRate, float64(n))
	return time.Duration(min(seconds, float64(r.MaxDelaySeconds)) * float64(time.Second))
}

const (
	invokeFunction = "arn:aws:states:::lambda:invoke"
	invokeAndWait  = invokeFunction + ".waitForTaskToken"
	startExecution = "arn:aws:states:::states:startExecution"
)

var resources = []string{invokeFunction, invokeAndWait, startExecution}

// maxSeconds is the longest timeout and delay, in seconds, as Step Functions limits it.
const maxSeconds = 99_999_999

var (
	placeholder = regexp.MustCompile(`\$\{([^}]*)\}`)
	resultPath  = regexp.MustCompile(`^(|null|"\$\.[A-Za-z_]\w*")$`)
)

// Parse reads a state machine in JSON. It replaces placeholders ${Name} from subst, as SAM's DefinitionSubstitutions
// do. The error joins what the interpreter would play wrongly, each with its state and key: an unknown key, type or
// resource, a state that is not there, and values that need a default of Step Functions. A path that leads nowhere
// fails the execution that comes to it.
func Parse(data []byte, subst map[string]string) (*Definition, error) {
	var faults []error
	at := ""
	want := func(ok bool, key, want string) {
		if !ok {
			faults = append(faults, fmt.Errorf("%s%s is not supported, want %s", at, key, want))
		}
	}
	data = placeholder.ReplaceAllFunc(data, func(m []byte) []byte {
		v, ok := subst[string(m[2:len(m)-1])]
		want(ok, string(m), "a substitution")
		quoted, _ := json.Marshal(v) // a string always marshals
		return quoted[1 : len(quoted)-1]
	})
	var m struct {
		Comment, StartAt string
		States           map[string]state
	}
	if err := jsonx.DecodeStrict(data, &m); err != nil {
		return nil, fmt.Errorf("parse state machine: %w", err)
	}
	d := &Definition{startAt: m.StartAt, states: map[string]*state{}}
	next := func(key, name string) {
		_, ok := m.States[name]
		want(ok, fmt.Sprintf("%s %q", key, name), "the name of a state")
	}
	next("StartAt", m.StartAt)
	for _, name := range slices.Sorted(maps.Keys(m.States)) {
		s := m.States[name]
		at, d.states[name] = fmt.Sprintf("state %q: ", name), &s
		switch s.Type {
		case "Task":
			want(slices.Contains(resources, s.Resource), "Resource "+s.Resource, "one that the interpreter knows")
			want((s.TimeoutSeconds > 0) != (s.TimeoutSecondsPath != ""), "TimeoutSeconds",
				"either TimeoutSeconds, of at least 1, or TimeoutSecondsPath")
			want(resultPath.Match(s.ResultPath), "ResultPath "+string(s.ResultPath), "null or $.name")
			next("Next", s.Next)
		case "Choice":
			next("Default", s.Default)
			for _, c := range s.Choices {
				next("Choices", c.Next)
			}
		case "Succeed", "Fail":
		default:
			want(false, fmt.Sprintf("Type %q", s.Type), "Task, Choice, Succeed or Fail")
		}
		for _, r := range s.Retry {
			want(min(r.IntervalSeconds, r.MaxAttempts, r.MaxDelaySeconds) >= 1 && r.MaxDelaySeconds <= maxSeconds &&
				r.BackoffRate >= 1, "Retry", "IntervalSeconds, MaxAttempts, MaxDelaySeconds and BackoffRate of at least 1")
			want(r.JitterStrategy == "" || r.JitterStrategy == "FULL", "Retry: JitterStrategy", "FULL or nothing")
		}
		for _, c := range s.Catch {
			want(resultPath.Match(c.ResultPath), "Catch: ResultPath "+string(c.ResultPath), "null or $.name")
			next("Catch", c.Next)
		}
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("parse state machine: %w", errors.Join(faults...))
	}
	return d, nil
}
