// Command step is functions/step of the state machine.
package main

import (
	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/pkg/agent/deployed"
	"github.com/countersign/countersign/pkg/agent/lambdafn"
)

func main() { lambdafn.Step(agents.Registry(), deployed.Models) }
