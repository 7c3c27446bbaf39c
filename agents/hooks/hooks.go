// Package hooks is the code of this deployment's agents beside their tools, apart from them so that functions/step links the one
// without the other.
package hooks

import (
	"github.com/countersign/countersign/agents/incident/duty"
	"github.com/countersign/countersign/pkg/agent"
)

// All is that code. Version is recorded in every run: raise it when what the code does changes.
func All() agent.Hooks {
	return agent.Hooks{
		Version:  "1",
		Builders: map[string]agent.Builder{duty.AlarmBuilder: duty.Alarm},
		Plugins:  map[string]agent.PluginFactory{duty.OrderPlugin: duty.NewOrder},
	}
}
