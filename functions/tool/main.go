// Command tool is functions/tool of the state machine.
package main

import (
	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/agents/hooks"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/tools/reach"
)

func main() {
	registry := agents.Registry()
	lambdafn.Tool(registry, registry.Tools(), hooks.All(), reach.Deployed)
}
