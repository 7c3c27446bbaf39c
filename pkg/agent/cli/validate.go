package cli

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/pkg/agent/agentfile"
)

type validateCommand struct {
	Agents []string `arg:"" optional:"" name:"agent" help:"Directories or files with an agent.yaml, or registered agents."`
	Schema bool     `xor:"what" help:"Write the JSON Schema of agent.yaml instead, for editors."`
	Graph  bool     `xor:"what" help:"Draw the state machine and the states of runs and calls instead, as Mermaid."`
}

// validateResult is the JSON document of validate.
type validateResult struct {
	Agents []validatedAgentResult `json:"agents"`
}

type validatedAgentResult struct {
	Agent    string    `json:"agent"` // as typed
	Name     string    `json:"name,omitempty"`
	Problems []problem `json:"problems"` // empty = valid

	Servers []validatedServerResult `json:"servers,omitempty"`
}

// validatedServerResult is an MCP server of an agent. The server is not contacted.
type validatedServerResult struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"` // command or url
	Required bool   `json:"required"`
}

// printAgentServers prints and returns the MCP servers of an agent.
func (p *program) printAgentServers(d *agent.Definition) []validatedServerResult {
	var all []validatedServerResult
	for _, m := range d.MCP {
		v := validatedServerResult{Name: m.Name, Kind: "url", Required: !m.Optional}
		note := ""
		if len(m.Command) > 0 {
			v.Kind, note = "command", ", on this machine alone: a deployed function cannot run it"
		}
		p.printText("   server %s by %s%s; its tools are listed when a run begins", line(v.Name), v.Kind, note)
		all = append(all, v)
	}
	return all
}

type problem struct {
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Key  string `json:"key,omitempty"`
	Text string `json:"text"`
}

func (c *validateCommand) run(_ context.Context, p *program) error {
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
	doc := validateResult{}
	var bad error
	read, failed := map[string]*agent.Definition{}, map[string]error{}
	byArg := map[string]*agent.Definition{}
	for _, arg := range c.Agents {
		d, err := p.loadAgent(arg, agentOverrides{})
		if byArg[arg], failed[arg] = d, err; err == nil {
			read[d.Name] = d
		}
	}
	for _, arg := range c.Agents {
		v := validatedAgentResult{Agent: arg, Problems: []problem{}}
		d, err := byArg[arg], failed[arg]
		if err == nil {
			err = p.checkDelegates(d, read)
		}
		if err != nil {
			v.Problems = problemsOf(err)
			bad = exitCode(exitUsage)
			p.printText("%s", lines(err.Error()))
		} else {
			v.Name = d.Name
			p.printText("ok %s (%s)", d.Name, line(arg))
			v.Servers = p.printAgentServers(d)
		}
		doc.Agents = append(doc.Agents, v)
	}
	return errors.Join(p.printJSON(doc), bad)
}

// problemsOf returns the problems of a file, each with its line, or the one error that prevented reading it.
func problemsOf(err error) []problem {
	var found agentfile.Problems
	if !errors.As(err, &found) {
		return []problem{{Text: err.Error()}}
	}
	out := make([]problem, len(found))
	for i, f := range found {
		out[i] = problem{f.File, f.Line, f.Key, f.Text}
	}
	return out
}

// checkDelegates checks the agents that an agent calls: registered ones, local ones, and those that are validated
// with it.
func (p *program) checkDelegates(d *agent.Definition, read map[string]*agent.Definition) error {
	known, _ := p.loadLocalAgents() // problems of local agents are reported for their own argument
	names := slices.AppendSeq(known.Agents(), maps.Keys(read))
	return agent.CheckDelegates(d, slices.Compact(slices.Sorted(slices.Values(names))),
		func(name string) (*agent.Definition, bool) {
			if d, ok := read[name]; ok {
				return d, true
			}
			return known.Agent(name)
		})
}
