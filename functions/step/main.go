// Command step is functions/step of the state machine.
package main

import (
	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/agents/hooks"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/model/deployed"
	"github.com/countersign/countersign/internal/tools/schema"
)

func main() { lambdafn.Step(agents.Registry(), deployed.Models, schema.Fits, hooks.All()) }
