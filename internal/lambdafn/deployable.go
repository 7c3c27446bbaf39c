package lambdafn

import (
	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/web/api"
)

// deployable are the agents of a registry that a deployed function can run. Those that need a program on the machine
// are taken out of it, each with a word to log; whoever starts one is told why it is not there. Safe for concurrent
// use.
type deployable struct {
	all   api.Agents
	names []string          // of those that are there
	unfit map[string]string // why others are not, by name
}

// fitAgents leaves out the agents that cannot run in a function.
func fitAgents(agents api.Agents, log func(text string)) *deployable {
	out := &deployable{all: agents, unfit: map[string]string{}}
	for _, name := range agents.Agents() {
		if d, ok := agents.Agent(name); ok {
			if server, needed := d.Program(); needed {
				out.unfit[name] = policy.TextNeedsProgram(name, server)
				log(out.unfit[name])
				continue
			}
		}
		out.names = append(out.names, name)
	}
	return out
}

// Agent finds one of those that can run.
func (d *deployable) Agent(name string) (*agent.Definition, bool) {
	if d.unfit[name] != "" {
		return nil, false
	}
	return d.all.Agent(name)
}

// Agents are the names of those that can run.
func (d *deployable) Agents() []string { return d.names }

// Unfit is why an agent that is registered cannot run; "" = it can, or there is none.
func (d *deployable) Unfit(name string) string { return d.unfit[name] }
