package samtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Machine is a state machine's definition, or that of a branch inside it, as far as it is checked here. (internal/asl reads it whole.)
type Machine struct {
	StartAt string
	States  map[string]State
}

// State is one state.
type State struct {
	Type               string
	Resource           string
	Parameters         map[string]any
	TimeoutSeconds     int
	TimeoutSecondsPath string
	HeartbeatSeconds   int
	Retry              []any
	Catch              []Catcher
	Choices            []Choice
	Default            string
	Next               string
	End                bool
	Branches           []Machine
	Iterator           *Machine
	ItemProcessor      *Machine
}

// Catcher is where errors lead.
type Catcher struct {
	ErrorEquals []string
	Next        string
}

// Choice is where a condition leads.
type Choice struct{ Next string }

// Task is a state by its name.
type Task struct {
	Name  string
	State State
}

func (m Machine) tasks() []Task {
	var out []Task
	for _, name := range slices.Sorted(maps.Keys(m.States)) {
		s := m.States[name]
		if s.Type == "Task" {
			out = append(out, Task{name, s})
		}
		for _, inner := range s.inner() {
			out = append(out, inner.tasks()...)
		}
	}
	return out
}

func (s State) inner() []Machine {
	out := slices.Clone(s.Branches)
	for _, m := range []*Machine{s.Iterator, s.ItemProcessor} {
		if m != nil {
			out = append(out, *m)
		}
	}
	return out
}

// tasksOf are the tasks that invoke a function, by the substitution that names it.
func (p *Project) tasksOf(function string) []Task {
	var out []Task
	for _, t := range p.Machine.tasks() {
		name, _ := t.State.Parameters["FunctionName"].(string)
		if p.substitution(name) == function+".Arn" {
			out = append(out, t)
		}
	}
	return out
}

// substitution is what the template puts in the place of ${name}.
func (p *Project) substitution(text string) string {
	name := strings.TrimSuffix(strings.TrimPrefix(text, "${"), "}")
	for _, r := range p.Resources(machineType) {
		if n := r.Properties.Get("DefinitionSubstitutions", name); n != nil {
			return n.Short()
		}
	}
	return ""
}

const (
	machineType = "AWS::Serverless::StateMachine"
	forToken    = ".waitForTaskToken"
	taskToken   = "$$.Task.Token"
)

// integrations are the service integrations that the state machine may use: a misspelt one is found only when it runs.
var integrations = []string{"arn:aws:states:::lambda:invoke", "arn:aws:states:::lambda:invoke" + forToken, "arn:aws:states:::states:startExecution"}

// machine says what is wrong with tasks: integration, timeouts, task token, retries, a way out for every error.
func machine(p *Project) []Problem {
	var found []Problem
	for _, t := range p.Machine.tasks() {
		for _, text := range t.problems() {
			found = append(found, Problem{File: MachineFile, Of: t.Name, Text: text})
		}
	}
	return found
}

func (t Task) problems() []string {
	var found []string
	add := func(bad bool, format string, args ...any) {
		if bad {
			found = append(found, fmt.Sprintf(format, args...))
		}
	}
	s := t.State
	add(!slices.Contains(integrations, s.Resource), "Resource %q: want one of %s", s.Resource, strings.Join(integrations, ", "))
	add(s.TimeoutSeconds <= 0 && s.TimeoutSecondsPath == "", "TimeoutSeconds: a task without one waits a year")
	add(s.TimeoutSeconds > 0 && s.HeartbeatSeconds >= s.TimeoutSeconds,
		"HeartbeatSeconds: %d: want less than the timeout, %d", s.HeartbeatSeconds, s.TimeoutSeconds)
	has := mentions(s.Parameters, taskToken)
	add(strings.HasSuffix(s.Resource, forToken) && !has, "Parameters: want %s: nobody else could complete the task", taskToken)
	add(!strings.HasSuffix(s.Resource, forToken) && has, "Parameters: %s: the task does not wait for it", taskToken)
	add(len(s.Retry) == 0, "Retry: want the errors that are tried again")
	all := slices.ContainsFunc(s.Catch, func(c Catcher) bool { return slices.Contains(c.ErrorEquals, "States.ALL") })
	add(!all, "Catch: want States.ALL: the run's record must say that it failed")
	return found
}

func mentions(v any, text string) bool {
	switch v := v.(type) {
	case string:
		return v == text
	case map[string]any:
		for _, inner := range v {
			if mentions(inner, text) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(inner any) bool { return mentions(inner, text) })
	}
	return false
}

// flow says which states lead nowhere, out of the Map or Parallel they stand in, or are led to by none.
func flow(p *Project) []Problem { return p.Machine.flow("state machine") }

func (m Machine) flow(of string) []Problem {
	var found []Problem
	reached := map[string]bool{m.StartAt: true}
	for _, name := range slices.Sorted(maps.Keys(m.States)) {
		s := m.States[name]
		for _, next := range s.nexts() {
			reached[next] = true
			if _, ok := m.States[next]; !ok {
				found = append(found, Problem{File: MachineFile, Of: name, Text: fmt.Sprintf("Next %q: no such state in the same %s", next, of)})
			}
		}
		for _, inner := range s.inner() {
			found = append(found, inner.flow(s.Type+" "+name)...)
		}
	}
	for _, name := range append(slices.Sorted(maps.Keys(m.States)), m.StartAt) {
		_, ok := m.States[name]
		if !reached[name] || !ok {
			found = append(found, Problem{File: MachineFile, Of: name, Text: "no way leads to it, or it is not there"})
		}
	}
	return found
}

func (s State) nexts() []string {
	var out []string
	for _, c := range s.Catch {
		out = append(out, c.Next)
	}
	for _, c := range s.Choices {
		out = append(out, c.Next)
	}
	for _, next := range []string{s.Default, s.Next} {
		if next != "" {
			out = append(out, next)
		}
	}
	return out
}

// substitutions says which placeholders of the definition the template does not fill, and which it fills in vain. Every one is a function's
// ARN.
func substitutions(p *Project) []Problem {
	text, err := json.Marshal(p.Machine)
	if err != nil {
		return []Problem{{File: MachineFile, Of: "definition", Text: err.Error()}}
	}
	wanted := map[string]bool{}
	for _, m := range placeholder.FindAllStringSubmatch(string(text), -1) {
		wanted[m[1]] = true
	}
	var found []Problem
	for _, r := range p.Resources(machineType) {
		given := r.Properties.Get("DefinitionSubstitutions")
		for _, name := range slices.Sorted(maps.Keys(wanted)) {
			if given.Get(name) == nil {
				found = append(found, r.problem(given, "DefinitionSubstitutions: want %s, which %s has", name, MachineFile))
			}
		}
		for _, e := range given.entries() {
			line := &Node{Line: e.Line}
			if !wanted[e.Key] {
				found = append(found, r.problem(line, "DefinitionSubstitutions: %s: %s has no such placeholder", e.Key, MachineFile))
			}
			if want := strings.TrimSuffix(e.Key, "Arn") + ".Arn"; e.Value.Short() != want {
				found = append(found, r.problem(line, "DefinitionSubstitutions: %s: want %s", e.Key, want))
			}
		}
	}
	return found
}
