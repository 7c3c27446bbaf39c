package asl

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/jsonx"
)

// Definition is a state machine that Parse accepted. It does not change and is safe for concurrent use.
type Definition struct {
	startAt string
	states  map[string]state
}

// state is one state of a definition. Its exported fields are the keys that the interpreter knows.
type state interface {
	// check returns what the interpreter cannot play. Each error begins with the key.
	check() []error
	// targets are the names of the states it can go to.
	targets() []string
	// enter does the state's work. Next is empty after the last state. The error is a *Failure when the state failed,
	// otherwise what stopped the execution in it.
	enter(x *execution, in any) (out any, next string, err error)
}

type taskState struct {
	Type, Comment, Resource string
	Parameters              map[string]any
	ResultPath              json.RawMessage // none = the result replaces the input; null = it is dropped; "$.name"
	OutputPath              string          // empty = $
	TimeoutSeconds          int
	TimeoutSecondsPath      string // used when TimeoutSeconds is 0
	HeartbeatSeconds        int    // 0 = none
	Retry                   []retrier
	Catch                   []catcher
	Next                    string
}

type retrier struct {
	ErrorEquals                                   []string
	IntervalSeconds, MaxAttempts, MaxDelaySeconds int
	BackoffRate                                   float64
	JitterStrategy                                string // FULL or empty
}

type catcher struct {
	ErrorEquals []string
	ResultPath  json.RawMessage // as in taskState
	Next        string
}

type choiceState struct {
	Type, Comment string
	Choices       []struct{ Variable, StringEquals, Next string }
	Default       string
}

type succeedState struct{ Type, Comment string }

type failState struct{ Type, Comment, Error, Cause string }

// kinds are the states the interpreter knows, by Type.
var kinds = map[string]func() state{
	"Task":    func() state { return &taskState{} },
	"Choice":  func() state { return &choiceState{} },
	"Succeed": func() state { return &succeedState{} },
	"Fail":    func() state { return &failState{} },
}

// The resources the interpreter knows.
const (
	invokeFunction = "arn:aws:states:::lambda:invoke"
	invokeAndWait  = invokeFunction + ".waitForTaskToken"
	startExecution = "arn:aws:states:::states:startExecution"
)

// parameters are what each resource takes; all of them are required.
var parameters = map[string][]string{
	invokeFunction: {"FunctionName", "Payload"},
	invokeAndWait:  {"FunctionName", "Payload"},
	startExecution: {"StateMachineArn", "Name", "Input"},
}

// Parse reads a state machine in JSON. It replaces placeholders ${Name} from subst, as SAM's
// DefinitionSubstitutions do. The error joins all that the interpreter cannot play, each with its state and key.
func Parse(data []byte, subst map[string]string) (*Definition, error) {
	data, err := substitute(data, subst)
	if err != nil {
		return nil, fmt.Errorf("parse state machine: %w", err)
	}
	var m struct {
		Comment, StartAt string
		States           map[string]json.RawMessage
	}
	if err := jsonx.DecodeStrict(data, &m); err != nil {
		return nil, fmt.Errorf("parse state machine: %w", err)
	}
	d := &Definition{startAt: m.StartAt, states: map[string]state{}}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(m.States)) {
		s, errs := parseState(m.States[name])
		if s != nil {
			for _, to := range s.targets() {
				if _, ok := m.States[to]; !ok {
					errs = append(errs, fault("Next or Default", "there is no state %q", to))
				}
			}
		}
		for _, err := range errs {
			faults = append(faults, fmt.Errorf("state %q: %w", name, err))
		}
		d.states[name] = s
	}
	if m.States[m.StartAt] == nil {
		faults = append(faults, fmt.Errorf("StartAt: there is no state %q", m.StartAt))
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("parse state machine: %w", errors.Join(faults...))
	}
	return d, nil
}

func parseState(raw json.RawMessage) (state, []error) {
	var head struct{ Type string }
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, []error{errors.New("want an object with a Type")}
	}
	empty, ok := kinds[head.Type]
	if !ok {
		return nil, []error{fault("Type", "%q is not supported, want Task, Choice, Succeed or Fail", head.Type)}
	}
	s := empty()
	if err := jsonx.DecodeStrict(raw, s); err != nil {
		return nil, []error{err}
	}
	return s, s.check()
}

func fault(key, format string, args ...any) error {
	return fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...))
}

var placeholder = regexp.MustCompile(`\$\{([^}]*)\}`)

func substitute(data []byte, subst map[string]string) ([]byte, error) {
	var unknown []string
	data = placeholder.ReplaceAllFunc(data, func(m []byte) []byte {
		v, ok := subst[string(m[2:len(m)-1])]
		if !ok {
			unknown = append(unknown, string(m))
		}
		quoted, _ := json.Marshal(v) // a string always marshals
		return quoted[1 : len(quoted)-1]
	})
	if len(unknown) > 0 {
		return nil, fmt.Errorf("no substitution for %s", strings.Join(unknown, ", "))
	}
	return data, nil
}

func (s *taskState) targets() []string {
	all := []string{s.Next}
	for _, c := range s.Catch {
		all = append(all, c.Next)
	}
	return all
}

func (s *taskState) waits() bool { return s.Resource == invokeAndWait }

func (s *taskState) check() []error {
	var errs []error
	faultIf := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	known := parameters[s.Resource]
	faultIf(known == nil, "Resource: %q is not supported", s.Resource)
	given := slices.Sorted(maps.Keys(s.Parameters))
	for i, key := range given {
		given[i] = strings.TrimSuffix(key, ".$")
		faultIf(known != nil && !slices.Contains(known, given[i]), "Parameters.%s: not supported here", key)
	}
	for _, key := range known {
		faultIf(!slices.Contains(given, key), "Parameters.%s: missing", key)
	}
	errs = append(errs, checkTemplate("Parameters", s.Parameters, s.waits())...)
	faultIf(s.OutputPath != "" && !isPath(s.OutputPath, false), "OutputPath: path %q is not supported", s.OutputPath)
	faultIf(!resultPath.Match(s.ResultPath), "ResultPath: %s is not supported, want null or $.name", s.ResultPath)
	faultIf((s.TimeoutSeconds > 0) == (s.TimeoutSecondsPath != "") || s.TimeoutSeconds < 0,
		"TimeoutSeconds: want either TimeoutSeconds, 1 or more, or TimeoutSecondsPath")
	faultIf(s.TimeoutSecondsPath != "" && !isPath(s.TimeoutSecondsPath, false),
		"TimeoutSecondsPath: path %q is not supported", s.TimeoutSecondsPath)
	faultIf(s.HeartbeatSeconds < 0 || s.TimeoutSeconds > 0 && s.HeartbeatSeconds >= s.TimeoutSeconds,
		"HeartbeatSeconds: want less than TimeoutSeconds")
	for i, r := range s.Retry {
		at := fmt.Sprintf("Retry[%d]", i)
		errs = append(errs, checkErrorEquals(at, r.ErrorEquals, i == len(s.Retry)-1)...)
		faultIf(min(r.IntervalSeconds, r.MaxAttempts, r.MaxDelaySeconds) < 1 || r.BackoffRate < 1,
			"%s: want IntervalSeconds, MaxAttempts, MaxDelaySeconds and BackoffRate, each of at least 1", at)
		faultIf(r.MaxDelaySeconds > maxSeconds, "%s.MaxDelaySeconds: want at most %d", at, maxSeconds)
		faultIf(r.JitterStrategy != "" && r.JitterStrategy != "FULL", "%s.JitterStrategy: want FULL or nothing", at)
	}
	for i, c := range s.Catch {
		at := fmt.Sprintf("Catch[%d]", i)
		errs = append(errs, checkErrorEquals(at, c.ErrorEquals, i == len(s.Catch)-1)...)
		faultIf(!resultPath.Match(c.ResultPath), "%s.ResultPath: %s is not supported, want null or $.name", at, c.ResultPath)
	}
	return errs
}

// maxSeconds is the longest timeout and delay, in seconds, as Step Functions limits it.
const maxSeconds = 99_999_999

// delay is how long to wait before retry n, counted from 0, without jitter.
func (r retrier) delay(n int) time.Duration {
	seconds := float64(r.IntervalSeconds) * math.Pow(r.BackoffRate, float64(n))
	return time.Duration(min(seconds, float64(r.MaxDelaySeconds)) * float64(time.Second))
}

func checkErrorEquals(at string, names []string, last bool) []error {
	var errs []error
	if len(names) == 0 {
		errs = append(errs, fmt.Errorf("%s.ErrorEquals: want a list of names", at))
	}
	for _, name := range names {
		switch {
		case name == All && (len(names) > 1 || !last):
			errs = append(errs, fmt.Errorf("%s.ErrorEquals: %s must stand alone and in the last entry", at, All))
		case name == "", strings.HasPrefix(name, "States.") && !catchable[name]:
			errs = append(errs, fmt.Errorf("%s.ErrorEquals: %q is not supported", at, name))
		}
	}
	return errs
}

// checkTemplate returns what cannot be filled in of a payload template: JSON in which the members whose names end in .$
// are paths.
func checkTemplate(at string, v any, token bool) []error {
	var errs []error
	switch v := v.(type) {
	case []any:
		return []error{fmt.Errorf("%s: lists are not supported", at)}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			name, isRef := strings.CutSuffix(key, ".$")
			if _, twice := v[name]; isRef && twice {
				errs = append(errs, fmt.Errorf("%s.%s: given twice, with and without .$", at, name))
			}
			if text, _ := v[key].(string); isRef && !isPath(text, token) {
				errs = append(errs, fmt.Errorf("%s.%s: path %q is not supported", at, key, v[key]))
			}
			errs = append(errs, checkTemplate(at+"."+key, v[key], token)...)
		}
	}
	return errs
}

var (
	inputPath  = regexp.MustCompile(`^\$(\.[A-Za-z_]\w*)*$`)
	resultPath = regexp.MustCompile(`^(|null|"\$\.[A-Za-z_]\w*")$`)
)

// isPath tells whether a path can be looked up. The task token is for the parameters of invokeAndWait alone.
func isPath(path string, token bool) bool {
	_, inContext := contextFields[path]
	return inputPath.MatchString(path) || inContext && (token || path != "$$.Task.Token")
}

func (s *choiceState) targets() []string {
	all := []string{s.Default}
	for _, c := range s.Choices {
		all = append(all, c.Next)
	}
	return all
}

func (s *choiceState) check() []error {
	var errs []error
	for i, c := range s.Choices {
		if !isPath(c.Variable, false) || c.StringEquals == "" {
			errs = append(errs, fault(fmt.Sprintf("Choices[%d]", i), "want a path as Variable, StringEquals and Next"))
		}
	}
	return errs
}

func (*succeedState) check() []error    { return nil }
func (*succeedState) targets() []string { return nil }
func (*failState) check() []error       { return nil }
func (*failState) targets() []string    { return nil }
