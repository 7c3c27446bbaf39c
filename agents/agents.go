// Package agents is the registry of this deployment: its agents and its tools. Every main of the repository is one line
// over it. `countersign run agents/screenshots` runs one of them; copy a folder to begin your own.
package agents

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/countersign/countersign/agents/incident"
	"github.com/countersign/countersign/agents/ledger"
	"github.com/countersign/countersign/agents/refunds"
	"github.com/countersign/countersign/agents/research"
	"github.com/countersign/countersign/pkg/agent"
)

//go:embed */agent.yaml mcp.lock
var files embed.FS

// Registry holds the built-in tools and every agent of this folder: those that are files, and the one that is Go. It
// panics at start-up where Go code is wrong. A file is read when its agent is first needed; `make test` reads them all.
func Registry() *agent.Registry {
	builtins, noBuiltins := agent.BuiltinTools()
	onRefunds, noRefunds := refunds.Tools(state("REFUNDS_LEDGER", "countersign-refunds"))
	onResearch, noResearch := research.Tools()
	estate, noEstate := incident.Open(state("INCIDENT_STATE", "countersign-incident"))
	onIncidents, noIncidents := incident.Tools(estate)
	onCall, noAgent := incident.Agent(onIncidents)
	if err := errors.Join(noBuiltins, noRefunds, noResearch, noEstate, noIncidents, noAgent); err != nil {
		panic(err)
	}
	r, err := agent.NewRegistry(slices.Concat(builtins, onRefunds, onIncidents, onResearch)...)
	if err == nil {
		err = errors.Join(r.Hook(hooks), r.AddFS(files), r.Add(onCall))
	}
	if err != nil {
		panic(err)
	}
	return r
}

// hooks is the code of the agents beside their tools. Version is recorded in every run: raise it when what the code
// does changes.
var hooks = agent.Hooks{
	Version:  "1",
	Builders: map[string]agent.Builder{incident.AlarmBuilder: incident.Alarm},
	Plugins:  map[string]agent.PluginFactory{incident.OrderPlugin: incident.NewOrder},
}

// state is where an example keeps what it has done: the folder that a variable names, or one of this user's among the
// temporary files.
func state(variable, otherwise string) ledger.Ledger {
	otherwise = fmt.Sprintf("%s-%d", otherwise, os.Getuid())
	return ledger.Ledger{Dir: cmp.Or(os.Getenv(variable), filepath.Join(os.TempDir(), otherwise))}
}
