// Command step is functions/step of the state machine.
package main

import (
	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/internal/lambdafn"
)

func main() { lambdafn.Step(agents.Registry()) }
