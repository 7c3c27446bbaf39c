package asl

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// path is a reference path: $, $.a.b[0], $['a b'], or the same in the context object behind $$. It names at most one
// value.
type path struct {
	text    string
	context bool
	steps   []any // string: member of an object; int: element of an array
}

// parsePath refuses by name what JSONPath has beyond reference paths.
func parsePath(text string) (*path, error) {
	if strings.HasPrefix(text, "States.") {
		name, _, _ := strings.Cut(text, "(")
		return nil, fmt.Errorf("intrinsic function %s is not supported", name)
	}
	rest, ok := strings.CutPrefix(text, "$")
	if !ok {
		return nil, fmt.Errorf("path %q does not start with $", text)
	}
	p := &path{text: text}
	rest, p.context = strings.CutPrefix(rest, "$")
	for rest != "" {
		step, tail, err := parseStep(rest)
		if err != nil {
			return nil, fmt.Errorf("path %q: %w", text, err)
		}
		p.steps, rest = append(p.steps, step), tail
	}
	return p, nil
}

func parseStep(s string) (step any, rest string, err error) {
	switch s[0] {
	case '.':
		return parseMember(s[1:])
	case '[':
		return parseBracket(s[1:])
	default:
		return nil, "", fmt.Errorf("%q is not part of a reference path", s)
	}
}

func parseMember(s string) (any, string, error) {
	end := strings.IndexFunc(s, func(r rune) bool {
		return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	if end < 0 {
		end = len(s)
	}
	if end == 0 {
		return nil, "", fmt.Errorf("%q is not part of a reference path", "."+s)
	}
	return s[:end], s[end:], nil
}

func parseBracket(s string) (any, string, error) {
	if s != "" && (s[0] == '\'' || s[0] == '"') {
		name, rest, ok := strings.Cut(s[1:], string(s[0])+"]")
		if !ok || strings.ContainsAny(name, `\'"`) {
			return nil, "", errors.New("bad quoted member")
		}
		return name, rest, nil
	}
	digits, rest, ok := strings.Cut(s, "]")
	n, err := strconv.ParseUint(digits, 10, 31)
	if !ok || err != nil {
		return nil, "", fmt.Errorf("[%s is not an index", s)
	}
	return int(n), rest, nil
}

// get is the value at p below root.
func (p *path) get(root any) (any, bool) {
	for _, step := range p.steps {
		var ok bool
		switch step := step.(type) {
		case string:
			var m map[string]any
			if m, ok = root.(map[string]any); ok {
				root, ok = m[step]
			}
		case int:
			var list []any
			if list, ok = root.([]any); ok {
				if ok = step < len(list); ok {
					root = list[step]
				}
			}
		}
		if !ok {
			return nil, false
		}
	}
	return root, true
}

// set is root with v at p. Missing objects are made; everything else must be there. Root is not changed.
func (p *path) set(root, v any) (any, error) { return setAt(root, p.steps, v) }

func setAt(root any, steps []any, v any) (any, error) {
	if len(steps) == 0 {
		return v, nil
	}
	if name, ok := steps[0].(string); ok {
		return setMember(root, name, steps[1:], v)
	}
	return setElement(root, steps[0].(int), steps[1:], v)
}

func setMember(root any, name string, rest []any, v any) (any, error) {
	m, ok := root.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%q is below something that is no object", name)
	}
	child, ok := m[name]
	if !ok && len(rest) > 0 {
		child = map[string]any{}
	}
	child, err := setAt(child, rest, v)
	if err != nil {
		return nil, err
	}
	m = maps.Clone(m)
	m[name] = child
	return m, nil
}

func setElement(root any, i int, rest []any, v any) (any, error) {
	list, ok := root.([]any)
	if !ok || i >= len(list) {
		return nil, fmt.Errorf("there is no element %d", i)
	}
	child, err := setAt(list[i], rest, v)
	if err != nil {
		return nil, err
	}
	list = slices.Clone(list)
	list[i] = child
	return list, nil
}

// contextFields are the paths a context object has for certain; those below Execution.Input depend on the input.
var contextFields = []string{
	"$$", "$$.Execution", "$$.Execution.Id", "$$.Execution.Name", "$$.Execution.Input", "$$.Execution.StartTime", "$$.Execution.RoleArn",
	"$$.Execution.RedriveCount", "$$.State", "$$.State.Name", "$$.State.EnteredTime", "$$.State.RetryCount",
	"$$.StateMachine", "$$.StateMachine.Id", "$$.StateMachine.Name", taskToken,
}

const taskToken = "$$.Task.Token"

// checkContext refuses a path into the context object that leads nowhere.
func (p *path) checkContext(token bool) error {
	if !p.context || strings.HasPrefix(p.text, "$$.Execution.Input.") || strings.HasPrefix(p.text, "$$.Execution.Input[") {
		return nil
	}
	if p.text == taskToken && !token {
		return fmt.Errorf("%s is for the parameters of .waitForTaskToken only", taskToken)
	}
	if !slices.Contains(contextFields, p.text) {
		return fmt.Errorf("the context object has no %s", p.text)
	}
	return nil
}
