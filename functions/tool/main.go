// Command tool is functions/tool of the state machine.
package main

import (
	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/agents/compiled"
	"github.com/countersign/countersign/agents/hooks"
	"github.com/countersign/countersign/pkg/agent/lambdafn"
	"github.com/countersign/countersign/pkg/agent/reach"
)

func main() { lambdafn.Tool(compiled.Agents(), agents.Code().Tools(), hooks.All(), reach.Deployed) }
