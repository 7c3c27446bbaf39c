package asl

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/jsonx"
)

// Definition is a state machine that Parse accepted. It does not change and is safe for concurrent use.
type Definition struct {
	startAt string
	states  map[string]*state
}

// state is a state of any Type. The tag says of which one a key is; none = of all.
type state struct {
	Type, Comment string

	Next               string          `of:"Task"`
	Resource           string          `of:"Task"`
	Parameters         map[string]any  `of:"Task"`
	ResultPath         json.RawMessage `of:"Task"` // none = the result replaces the input; null = it is dropped; "$.name"
	OutputPath         string          `of:"Task"` // empty = $
	TimeoutSeconds     int             `of:"Task"`
	TimeoutSecondsPath string          `of:"Task"` // used when TimeoutSeconds is 0
	Retry              []retrier       `of:"Task"`
	Catch              []catcher       `of:"Task"`

	Choices []struct{ Variable, StringEquals, Next string } `of:"Choice"`
	Default string                                          `of:"Choice"`

	Error string `of:"Fail"`
	Cause string `of:"Fail"`
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

// parameters are what each supported resource takes, sorted; all of them are required.
var parameters = map[string][]string{
	invokeFunction: {"FunctionName", "Payload"},
	invokeAndWait:  {"FunctionName", "Payload"},
	startExecution: {"Input", "Name", "StateMachineArn"},
}

// maxSeconds is the longest timeout and delay, in seconds, as Step Functions limits it.
const maxSeconds = 99_999_999

var (
	placeholder = regexp.MustCompile(`\$\{([^}]*)\}`)
	inputPath   = regexp.MustCompile(`^\$(\.[A-Za-z_]\w*)*$`)
	resultPath  = regexp.MustCompile(`^(|null|"\$\.[A-Za-z_]\w*")$`)
)

// Parse reads a state machine in JSON. It replaces placeholders ${Name} from subst, as SAM's
// DefinitionSubstitutions do. The error joins all that the interpreter does not support, each with its state and key.
func Parse(data []byte, subst map[string]string) (*Definition, error) {
	var c checker
	data = placeholder.ReplaceAllFunc(data, func(m []byte) []byte {
		v, ok := subst[string(m[2:len(m)-1])]
		c.want(ok, string(m), "a substitution")
		quoted, _ := json.Marshal(v) // a string always marshals
		return quoted[1 : len(quoted)-1]
	})
	var m struct {
		Comment, StartAt string
		States           map[string]*state
	}
	if err := jsonx.DecodeStrict(data, &m); err != nil {
		return nil, fmt.Errorf("parse state machine: %w", err)
	}
	c.states = m.States
	c.next("StartAt", m.StartAt)
	for _, name := range slices.Sorted(maps.Keys(m.States)) {
		c.at = fmt.Sprintf("state %q: ", name)
		c.state(cmp.Or(m.States[name], &state{}))
	}
	if len(c.faults) > 0 {
		return nil, fmt.Errorf("parse state machine: %w", errors.Join(c.faults...))
	}
	return &Definition{startAt: m.StartAt, states: m.States}, nil
}

// checker collects what the interpreter does not support of a definition.
type checker struct {
	states map[string]*state
	at     string // the state that is checked
	faults []error
}

// want notes, unless ok, that a key has a value that is not supported, or is not supported itself.
func (c *checker) want(ok bool, key, want string) {
	if !ok {
		c.faults = append(c.faults, fmt.Errorf("%s%s is not supported, want %s", c.at, key, want))
	}
}

func (c *checker) state(s *state) {
	known := slices.Contains([]string{"Task", "Choice", "Succeed", "Fail"}, s.Type)
	c.want(known, fmt.Sprintf("Type %q", s.Type), "Task, Choice, Succeed or Fail")
	v := reflect.ValueOf(*s)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		of := f.Tag.Get("of")
		c.want(v.Field(i).IsZero() || !known || of == "" || of == s.Type, f.Name, "a key of a "+s.Type)
	}
	switch s.Type {
	case "Task":
		c.task(s)
	case "Choice":
		c.next("Default", s.Default)
		for i, choice := range s.Choices {
			at := fmt.Sprintf("Choices[%d].", i)
			c.path(at+"Variable", choice.Variable, false)
			c.want(choice.StringEquals != "", at+"StringEquals", "a text")
			c.next(at+"Next", choice.Next)
		}
	}
}

func (c *checker) task(s *state) {
	known := parameters[s.Resource]
	c.want(known != nil, "Resource "+s.Resource, "one that the interpreter knows")
	given := slices.Sorted(maps.Keys(s.Parameters))
	for i, key := range given {
		given[i] = strings.TrimSuffix(key, ".$")
	}
	c.want(known == nil || slices.Equal(given, known), fmt.Sprint("Parameters ", given), fmt.Sprint(known))
	c.template("Parameters", s.Parameters, s.Resource == invokeAndWait)
	c.path("OutputPath", cmp.Or(s.OutputPath, "$"), false)
	c.path("TimeoutSecondsPath", cmp.Or(s.TimeoutSecondsPath, "$"), false)
	c.want((s.TimeoutSeconds > 0) != (s.TimeoutSecondsPath != "") && s.TimeoutSeconds >= 0, "TimeoutSeconds",
		"either TimeoutSeconds, of at least 1, or TimeoutSecondsPath")
	c.want(resultPath.Match(s.ResultPath), "ResultPath "+string(s.ResultPath), "null or $.name")
	c.next("Next", s.Next)
	for i, r := range s.Retry {
		at := fmt.Sprintf("Retry[%d].", i)
		c.want(len(r.ErrorEquals) > 0, at+"ErrorEquals", "a list of names")
		c.want(min(r.IntervalSeconds, r.MaxAttempts, r.MaxDelaySeconds) >= 1 && r.MaxDelaySeconds <= maxSeconds &&
			r.BackoffRate >= 1, at+"IntervalSeconds, MaxAttempts, MaxDelaySeconds or BackoffRate", "each of at least 1")
		c.want(r.JitterStrategy == "" || r.JitterStrategy == "FULL", at+"JitterStrategy", "FULL or nothing")
	}
	for i, k := range s.Catch {
		at := fmt.Sprintf("Catch[%d].", i)
		c.want(len(k.ErrorEquals) > 0, at+"ErrorEquals", "a list of names")
		c.want(resultPath.Match(k.ResultPath), at+"ResultPath "+string(k.ResultPath), "null or $.name")
		c.next(at+"Next", k.Next)
	}
}

func (c *checker) next(key, name string) {
	c.want(c.states[name] != nil, fmt.Sprintf("%s %q", key, name), "the name of a state")
}

// path wants a path that can be looked up. The task token is for the parameters of invokeAndWait alone.
func (c *checker) path(key, path string, token bool) {
	_, inContext := contextFields[path]
	ok := inputPath.MatchString(path) || inContext && (token || path != "$$.Task.Token")
	c.want(ok, fmt.Sprintf("%s %q", key, path), "a path like $.a.b, or one of those into the context object")
}

// template checks a payload template: JSON objects in which the members whose names end in .$ are paths.
func (c *checker) template(at string, v any, token bool) {
	_, isList := v.([]any)
	c.want(!isList, at, "no list")
	m, _ := v.(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if name, isPath := strings.CutSuffix(key, ".$"); isPath {
			text, _ := m[key].(string)
			c.path(at+"."+key, text, token)
			c.want(m[name] == nil, at+"."+name, "it with or without .$, not both")
		}
		c.template(at+"."+key, m[key], token)
	}
}
