// Package agents is the registry of this deployment: its agents and its tools. Every main of the repository is one line
// over it. `countersign run agents/screenshots` runs one of them; copy a folder to begin your own.
package agents

import (
	"embed"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/countersign/countersign/agents/incident"
	"github.com/countersign/countersign/agents/incident/duty"
	"github.com/countersign/countersign/agents/ledger"
	"github.com/countersign/countersign/agents/refunds"
	"github.com/countersign/countersign/agents/research"
	"github.com/countersign/countersign/pkg/agent"
)

//go:embed */agent.yaml mcp.lock
var files embed.FS

// Registry holds the built-in tools and every agent of this folder: those that are files, and the one that is Go. It
// panics at start-up where one of them is broken.
func Registry() *agent.Registry {
	builtins, noBuiltins := agent.BuiltinTools()
	onRefunds, noRefunds := refunds.Tools(state("REFUNDS_LEDGER", "countersign-refunds"))
	onIncidents, noIncidents := incidentTools()
	onResearch, noResearch := research.Tools()
	if err := errors.Join(noBuiltins, noRefunds, noIncidents, noResearch); err != nil {
		panic(err)
	}
	r, err := agent.NewRegistry(slices.Concat(builtins, onRefunds, onIncidents, onResearch)...)
	if err == nil {
		err = errors.Join(r.Hook(hooks()), r.AddFS(files), addIncident(r), r.Check())
	}
	if err != nil {
		panic(err)
	}
	return r
}

// hooks is the code of the agents beside their tools. Version is recorded in every run: raise it when what the code
// does changes.
func hooks() agent.Hooks {
	return agent.Hooks{
		Version:  "1",
		Builders: map[string]agent.Builder{duty.AlarmBuilder: duty.Alarm},
		Plugins:  map[string]agent.PluginFactory{duty.OrderPlugin: duty.NewOrder},
	}
}

// addIncident adds the agent that is not a file.
func addIncident(r *agent.Registry) error {
	tools, err := incidentTools()
	if err != nil {
		return err
	}
	d, err := incident.Agent(tools)
	if err != nil {
		return err
	}
	return r.Add(d)
}

func incidentTools() ([]agent.Tool, error) {
	estate, err := incident.Open(state("INCIDENT_STATE", "countersign-incident"))
	if err != nil {
		return nil, err
	}
	return incident.Tools(estate)
}

// state is where an example keeps what it has done: the folder that a variable names, or one among the temporary files.
func state(variable, otherwise string) ledger.Ledger {
	if dir := os.Getenv(variable); dir != "" {
		return ledger.Ledger{Dir: dir}
	}
	return ledger.Ledger{Dir: filepath.Join(os.TempDir(), otherwise)}
}
