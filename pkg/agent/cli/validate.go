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
	Schema bool     `help:"Write the JSON Schema of agent.yaml instead, for editors."`
}

// validated is the JSON document of validate.
type validated struct {
	Agents []validatedAgent `json:"agents"`
}

type validatedAgent struct {
	Agent    string    `json:"agent"` // as it was named
	Name     string    `json:"name,omitempty"`
	Problems []problem `json:"problems"` // empty = it is fine

	Servers []validatedServer `json:"servers,omitempty"`
}

// validatedServer is an MCP server of an agent. Nobody asks it anything.
type validatedServer struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"` // command or url
	Required bool   `json:"required"`
}

// serversOf are the MCP servers of an agent, and told to people.
func (p *program) serversOf(d *agent.Definition) []validatedServer {
	var all []validatedServer
	for _, m := range d.MCP {
		v := validatedServer{Name: m.Name, Kind: "url", Required: !m.Optional}
		note := ""
		if len(m.Command) > 0 {
			v.Kind, note = "command", ", on this machine alone: a deployed function cannot run it"
		}
		p.tell("   server %s by %s%s; its tools are listed when a run begins", line(v.Name), v.Kind, note)
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
	case c.Schema && len(c.Agents) > 0:
		return usage("validate: want agents or --schema, not both")
	case c.Schema:
		return p.document(agentfile.Schema())
	case len(c.Agents) == 0:
		return usage("validate: want an agent, or --schema")
	}
	doc := validated{}
	var bad error
	read := map[string]*agent.Definition{}
	for _, arg := range c.Agents {
		if d, err := p.agent(arg, chosen{}); err == nil {
			read[d.Name] = d
		}
	}
	for _, arg := range c.Agents {
		v := validatedAgent{Agent: arg, Problems: []problem{}}
		d, err := p.agent(arg, chosen{})
		if err == nil {
			err = p.together(d, read)
		}
		if err != nil {
			v.Problems = problems(err)
			bad = exit(exitUsage)
			p.tell("%s", lines(err.Error()))
		} else {
			v.Name = d.Name
			p.tell("ok %s (%s)", d.Name, line(arg))
			v.Servers = p.serversOf(d)
		}
		doc.Agents = append(doc.Agents, v)
	}
	return errors.Join(p.answer(doc), bad)
}

// problems are those of a file, each with its line, or the one that kept it from being read.
func problems(err error) []problem {
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

// together is what is wrong with an agent and those that it asks: registered ones, those near, and those that are validated with it.
func (p *program) together(d *agent.Definition, read map[string]*agent.Definition) error {
	known, _ := p.nearAgents() // each is told of where it is validated
	names := slices.AppendSeq(known.Agents(), maps.Keys(read))
	return agent.CheckDelegates(d, slices.Compact(slices.Sorted(slices.Values(names))), func(name string) (*agent.Definition, bool) {
		if d, ok := read[name]; ok {
			return d, true
		}
		return known.Agent(name)
	})
}
