// Command sweep is functions/sweep: the scheduled repair of runs, and that of a run whose execution has ended badly.
package main

import (
	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/pkg/agent/lambda"
)

func main() { lambda.Sweep(agents.Registry()) }
