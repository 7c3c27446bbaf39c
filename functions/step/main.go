// Command step is functions/step of the state machine.
package main

import (
	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/agents/hooks"
	"github.com/countersign/countersign/pkg/agent/deployed"
	"github.com/countersign/countersign/pkg/agent/lambdafn"
	"github.com/countersign/countersign/pkg/agent/tool/schema"
)

func main() { lambdafn.Step(agents.Registry(), deployed.Models, schema.Fits, hooks.All()) }
