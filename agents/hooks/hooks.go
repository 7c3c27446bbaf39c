// Package hooks is the code of this deployment's agents beside their tools, apart from them so that functions/step links the one
// without the other.
package hooks

import (
	"github.com/countersign/countersign/agents/incident/duty"
	"github.com/countersign/countersign/internal/hook"
)

// All is that code. Version is recorded in every run: raise it when what the code does changes.
func All() hook.Set {
	return hook.Set{
		Version:  "1",
		Builders: map[string]hook.Builder{duty.AlarmBuilder: duty.Alarm},
		Plugins:  map[string]hook.Factory{duty.OrderPlugin: duty.NewOrder},
	}
}
