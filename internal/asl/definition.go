package asl

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Definition is a state machine that Parse accepted. It does not change and is safe for concurrent use.
type Definition struct {
	startAt string
	timeout int // seconds; 0 = none
	states  map[string]state
}

// state is one state of a definition.
type state interface {
	// enter does the state's work on its input. Next is empty after a terminal state. The error is a *Failure when the
	// state failed, else what stopped the execution in it.
	enter(x *execution, in any) (out any, next string, err error)
	// kind is the Type field.
	kind() string
	// targets are the states it can go to.
	targets() []target
	// final tells whether it can end the execution.
	final() bool
}

// target is a reference from a state, and the key it stands in.
type target struct{ key, name string }

// DefinitionError says what in a definition is not accepted. Parse joins them, ordered by state and key.
type DefinitionError struct {
	State  string // empty = the state machine itself
	Key    string // of the state, as in Retry[0].ErrorEquals; empty = the state itself
	Reason string
}

func (e *DefinitionError) Error() string {
	where := "state machine"
	if e.State != "" {
		where = fmt.Sprintf("state %q", e.State)
	}
	if e.Key != "" {
		where += ": " + e.Key
	}
	return where + ": " + e.Reason
}

// Parse reads a state machine in JSON. Placeholders ${Name} in its string values are replaced from subst, as SAM's
// DefinitionSubstitutions are. What the interpreter does not know, and what could never run, is refused: the error then
// joins one *DefinitionError for each fault.
func Parse(data []byte, subst map[string]string) (*Definition, error) {
	v, err := decodeStrict(data, func(s string) (string, error) { return substitute(s, subst) })
	if err != nil {
		return nil, fmt.Errorf("parse state machine: %w", err)
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("parse state machine: want an object")
	}
	p := &parser{}
	d := p.machine(m)
	if len(p.faults) == 0 {
		p.check(d)
	}
	if len(p.faults) > 0 {
		return nil, fmt.Errorf("parse state machine: %w", errors.Join(p.faults...))
	}
	return d, nil
}

var placeholder = regexp.MustCompile(`\$\{([^}]*)\}`)

func substitute(s string, subst map[string]string) (string, error) {
	var unknown []string
	s = placeholder.ReplaceAllStringFunc(s, func(m string) string {
		v, ok := subst[m[2:len(m)-1]]
		if !ok {
			unknown = append(unknown, m)
		}
		return v
	})
	if len(unknown) > 0 {
		return "", fmt.Errorf("no substitution for %s", strings.Join(unknown, ", "))
	}
	return s, nil
}

// machine reads the top level.
func (p *parser) machine(m map[string]any) *Definition {
	f := p.fields("", "", m)
	d := &Definition{startAt: f.text("StartAt", required), states: map[string]state{}}
	f.text("Comment", optional)
	if v := f.text("Version", optional); v != "" && v != "1.0" {
		f.fault("Version", "want 1.0")
	}
	d.timeout = f.seconds("TimeoutSeconds")
	states := f.object("States")
	f.end()
	for _, name := range slices.Sorted(maps.Keys(states)) {
		if s := p.state(name, states[name]); s != nil {
			d.states[name] = s
		}
	}
	return d
}

// maxStateName is the longest name of a state, in characters.
const maxStateName = 80

func (p *parser) state(name string, v any) state {
	m, ok := v.(map[string]any)
	if !ok {
		p.fault(name, "", "want an object")
		return nil
	}
	if n := len([]rune(name)); n == 0 || n > maxStateName {
		p.fault(name, "", "want a name of 1 to 80 characters")
	}
	f := p.fields(name, "", m)
	f.text("Comment", optional)
	kind := f.text("Type", required)
	parse, ok := kinds[kind]
	if !ok {
		f.fault("Type", fmt.Sprintf("%q is not supported", kind))
		return nil
	}
	s := parse(f)
	f.end()
	return s
}

// kinds are the states the interpreter knows.
var kinds = map[string]func(*fields) state{
	"Task":    parseTask,
	"Choice":  parseChoice,
	"Wait":    parseWait,
	"Pass":    parsePass,
	"Succeed": parseSucceed,
	"Fail":    parseFail,
}

// check finds what no single state can show: targets that are not there, states nobody reaches, no way to an end.
func (p *parser) check(d *Definition) {
	if d.states[d.startAt] == nil {
		p.fault("", "StartAt", fmt.Sprintf("there is no state %q", d.startAt))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(d.states)) {
		for _, t := range d.states[name].targets() {
			if d.states[t.name] == nil {
				p.fault(name, t.key, fmt.Sprintf("there is no state %q", t.name))
			}
		}
	}
	reached := d.reach()
	final := false
	for _, name := range slices.Sorted(maps.Keys(d.states)) {
		if !reached[name] {
			p.fault(name, "", "no other state leads here")
		}
		final = final || reached[name] && d.states[name].final()
	}
	if !final {
		p.fault("", "States", "no terminal state can be reached")
	}
}

// reach is the set of states that can be reached from the first.
func (d *Definition) reach() map[string]bool {
	reached := map[string]bool{d.startAt: true}
	for todo := []string{d.startAt}; len(todo) > 0; todo = todo[1:] {
		s := d.states[todo[0]]
		if s == nil {
			continue
		}
		for _, t := range s.targets() {
			if !reached[t.name] {
				reached[t.name] = true
				todo = append(todo, t.name)
			}
		}
	}
	return reached
}
