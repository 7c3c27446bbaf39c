package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/countersign/countersign"
	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/scenario"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

type validateCommand struct {
	Agents []string `arg:"" optional:"" name:"agent" help:"Directories or files with an agent.yaml, or registered agents."`
	Schema bool     `xor:"what" help:"Write the JSON Schema of agent.yaml instead, for editors."`
	Graph  bool     `xor:"what" help:"Draw the state machine and the states of runs and calls instead, as Mermaid."`
}

type validatedAgentResult struct {
	Agent    string    `json:"agent"` // as typed
	Name     string    `json:"name,omitempty"`
	Problems []problem `json:"problems"` // empty = valid
	Warnings []string  `json:"warnings,omitempty"`

	Servers []validatedServerResult `json:"servers,omitempty"`
}

// validatedServerResult is an MCP server of an agent. The server is not contacted.
type validatedServerResult struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"` // command or url
	Required bool   `json:"required"`
}

type problem struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Key  string `json:"key,omitempty"`
	Text string `json:"text"`
}

func (c *validateCommand) run(ctx context.Context, p *program) error {
	switch {
	case (c.Schema || c.Graph) && len(c.Agents) > 0:
		return usageErrorf("validate: want agents, --schema or --graph, not two of them")
	case c.Schema:
		return p.writeJSON(agentfile.Schema())
	case c.Graph:
		return p.printGraph()
	case len(c.Agents) == 0:
		return usageErrorf("validate: want an agent, --schema or --graph")
	}
	var all []validatedAgentResult
	var bad error
	read := map[string]*agent.Definition{} // by name
	defs, failed := make([]*agent.Definition, len(c.Agents)), make([]error, len(c.Agents))
	known, _ := p.loadLocalAgents() // problems of local agents are reported for their own argument
	find := agent.Agents(func(name string) (*agent.Definition, bool) {
		if d, ok := read[name]; ok {
			return d, true
		}
		return known.Agent(name)
	})
	files := filesByName{}
	for i, arg := range c.Agents {
		if defs[i], failed[i] = p.loadAgent(arg, agentOverrides{}); failed[i] != nil {
			continue
		}
		name, file := defs[i].Name, filepath.Clean(arg)
		if info, err := os.Stat(arg); err != nil { // a registered agent, which a file may replace
			continue
		} else if info.IsDir() {
			file = filepath.Join(arg, agentFile)
		}
		if failed[i] = files.add(name, file); failed[i] == nil {
			read[name] = defs[i]
		}
	}
	for i, arg := range c.Agents {
		v := validatedAgentResult{Agent: arg, Problems: []problem{}}
		d, err := defs[i], failed[i]
		if err == nil {
			names := slices.Sorted(slices.Values(slices.AppendSeq(known.Agents(), maps.Keys(read))))
			err = agent.CheckDelegates(d, slices.Compact(names), find)
		}
		if err != nil {
			var found agentfile.Problems
			if !errors.As(err, &found) {
				found = agentfile.Problems{{Text: err.Error()}}
			}
			for _, f := range found {
				v.Problems = append(v.Problems, problem(f))
			}
			bad = exitCode(exitUsage)
			p.printText("%s", lines(err.Error()))
		} else {
			unknown, err := p.unknownApprovers(ctx, d)
			if err != nil {
				unknown = append(unknown, err.Error())
			}
			v.Name, v.Warnings = d.Name, append(find.Warnings(d), unknown...)
			p.printText("ok %s (%s)", d.Name, line(arg))
			for _, w := range v.Warnings {
				p.printText("   warning: %s", line(w))
			}
			v.Servers = p.printServers(d)
		}
		all = append(all, v)
	}
	return errors.Join(p.printJSON(map[string]any{"agents": all}), bad)
}

// printServers prints the MCP servers of an agent, and returns them.
func (p *program) printServers(d *agent.Definition) (all []validatedServerResult) {
	for _, m := range d.MCP {
		server, note := validatedServerResult{m.Name, "url", !m.Optional}, ""
		if len(m.Command) > 0 {
			server.Kind, note = "command", ", on this machine alone: a deployed function cannot run it"
		}
		listed := "its tools are listed when a run begins"
		if m.Locked == nil {
			listed += ", and rules that name them are checked once mcp lock pins them"
		}
		p.printText("   server %s by %s%s; %s", line(m.Name), server.Kind, note, listed)
		all = append(all, server)
	}
	return all
}

func (p *program) printGraph() error {
	machine, err := machineDiagram(countersign.StateMachine)
	if err != nil {
		return err
	}
	all := []string{machine, statesDiagram(run.RunTransitions()), statesDiagram(run.CallTransitions())}
	p.printText("%s", strings.TrimSuffix(strings.Join(all, "\n"), "\n"))
	return p.printJSON(map[string]any{"mermaid": all})
}

// statesDiagram returns a transition table as a Mermaid stateDiagram-v2, with the ends of terminal states last.
func statesDiagram[S interface {
	~string
	Terminal() bool
}](arrows []run.Transition[S]) string {
	lines, ends := []string{"stateDiagram-v2"}, []string(nil)
	for _, a := range arrows {
		lines = append(lines, fmt.Sprintf("    %s --> %s : %s", cmp.Or(string(a.From), "[*]"), a.To, a.Why))
		if end := fmt.Sprintf("    %s --> [*]", a.To); a.To.Terminal() && !slices.Contains(ends, end) {
			ends = append(ends, end)
		}
	}
	return strings.Join(append(lines, ends...), "\n") + "\n"
}

// machineDiagram returns a state machine as a Mermaid stateDiagram-v2.
func machineDiagram(definition []byte) (string, error) {
	var m struct {
		StartAt string
		States  map[string]struct {
			Type, Next, Default, Resource string
			Choices                       []struct{ StringEquals, Next string }
			Catch                         []struct {
				ErrorEquals []string
				Next        string
			}
		}
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
		switch {
		case s.Next == "":
		case strings.HasSuffix(s.Resource, ".waitForTaskToken"):
			arrow(s.Next, "task token")
		default:
			arrow(s.Next, "")
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

type testCommand struct {
	Paths []string `arg:"" name:"file" help:"Scenarios (.txtar), or directories of them."`
	Crash bool     `help:"Repeat each with a crash at every I/O point."`
}

type scenarioResult struct {
	Name     string   `json:"name"`
	File     string   `json:"file"`
	OK       bool     `json:"ok"`
	Crashes  int      `json:"crashes,omitempty"` // number of crashes tried
	Failures []string `json:"failures"`
}

func (c *testCommand) run(ctx context.Context, p *program) error {
	files, err := scenarioFiles(c.Paths)
	if err != nil {
		return err
	}
	all := []scenarioResult{}
	var bad error
	for _, file := range files {
		if err := ctx.Err(); err != nil {
			return err
		}
		t, err := c.runScenario(file, p.registry.Options())
		switch {
		case err != nil: // it cannot run
			t.Failures = []string{err.Error()}
			bad = exitCode(exitUsage)
			p.logLine("%s", lines(err.Error()))
		case !t.OK:
			if bad == nil {
				bad = exitCode(exitFailed)
			}
			for _, f := range t.Failures {
				p.printText("FAIL %s: %s", t.Name, lines(f))
			}
		default:
			p.printText("ok %s", t.Name)
		}
		all = append(all, t)
	}
	if err := p.printJSON(map[string]any{"scenarios": all}); err != nil {
		return err
	}
	return bad
}

// scenarioFiles returns the scenario files of the arguments, and of directories with all that is below.
func scenarioFiles(paths []string) ([]string, error) {
	var files []string
	for _, arg := range paths {
		before := len(files)
		err := filepath.WalkDir(arg, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && (path == arg || filepath.Ext(path) == ".txtar") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			return nil, usageErrorf("read scenarios: %w", err)
		}
		if len(files) == before {
			return nil, usageErrorf("read scenarios: there is none in %s", arg)
		}
	}
	return files, nil
}

func (c *testCommand) runScenario(file string, known agentfile.Options) (scenarioResult, error) {
	t := scenarioResult{Name: file, File: file, Failures: []string{}}
	data, err := os.ReadFile(file)
	if err != nil {
		return t, err
	}
	s, err := scenario.LoadWithOptions(file, data, known)
	if err != nil {
		return t, err
	}
	t.Name = s.Name
	add := func(where string, failures []scenario.Failure) {
		for _, f := range failures {
			t.Failures = append(t.Failures, where+f.String())
		}
	}
	if c.Crash {
		r := s.Crash(0)
		t.Crashes = r.Runs
		add("", r.Plain.Failures)
		for _, f := range r.Failures {
			add(fmt.Sprintf("%v %v: ", f.Kind, f.At), f.Failures)
		}
	} else {
		add("", s.Run(scenario.Options{}).Failures)
	}
	t.OK = len(t.Failures) == 0
	return t, nil
}
