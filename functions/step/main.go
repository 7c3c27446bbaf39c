// Command step is functions/step of the state machine.
package main

import (
	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/pkg/agent/lambda"
)

func main() { lambda.Step(agents.Registry()) }
