package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/statemachine"
)

// graphResult is the JSON document of validate --graph.
type graphResult struct {
	Mermaid []string `json:"mermaid"`
}

// printGraph draws the state machine, and what the status of a run and of a call may do.
func (p *program) printGraph() error {
	machine, err := machineDiagram(statemachine.Agent)
	if err != nil {
		return err
	}
	doc := graphResult{[]string{machine, statesDiagram(run.RunArrows()), statesDiagram(run.CallArrows())}}
	p.printText("%s", strings.TrimSuffix(strings.Join(doc.Mermaid, "\n"), "\n"))
	return p.printJSON(doc)
}

// statesDiagram returns a transition table as a Mermaid stateDiagram-v2, with the ends of terminal states last.
func statesDiagram[S interface {
	~string
	Terminal() bool
}](arrows []run.Arrow[S]) string {
	lines, ends := []string{"stateDiagram-v2"}, []string(nil)
	for _, a := range arrows {
		lines = append(lines, fmt.Sprintf("    %s --> %s : %s", cmp.Or(string(a.From), "[*]"), a.To, a.Why))
		if end := fmt.Sprintf("    %s --> [*]", a.To); a.To.Terminal() && !slices.Contains(ends, end) {
			ends = append(ends, end)
		}
	}
	return strings.Join(append(lines, ends...), "\n") + "\n"
}

// machineState is a state of the Amazon States Language, as far as the diagram shows it.
type machineState struct {
	Type     string
	Next     string
	Default  string
	Resource string
	Choices  []struct{ StringEquals, Next string }
	Catch    []struct {
		ErrorEquals []string
		Next        string
	}
}

// machineDiagram returns a state machine as a Mermaid stateDiagram-v2.
func machineDiagram(definition []byte) (string, error) {
	var m struct {
		StartAt string
		States  map[string]machineState
	}
	if err := json.Unmarshal(definition, &m); err != nil {
		return "", fmt.Errorf("draw the state machine: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "stateDiagram-v2\n    [*] --> %s\n", m.StartAt)
	for _, name := range slices.Sorted(maps.Keys(m.States)) {
		arrow := func(to, why string) {
			if why != "" {
				why = " : " + why
			}
			fmt.Fprintf(&b, "    %s --> %s%s\n", name, to, why)
		}
		s := m.States[name]
		for _, c := range s.Choices {
			arrow(c.Next, c.StringEquals)
		}
		if s.Default != "" {
			arrow(s.Default, "otherwise")
		}
		if s.Next != "" {
			why := ""
			if strings.HasSuffix(s.Resource, ".waitForTaskToken") {
				why = "task token"
			}
			arrow(s.Next, why)
		}
		for _, c := range s.Catch {
			arrow(c.Next, strings.Join(c.ErrorEquals, ", "))
		}
		if s.Type == "Succeed" || s.Type == "Fail" {
			arrow("[*]", "")
		}
	}
	return b.String(), nil
}
