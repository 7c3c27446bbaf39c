// Command tool is functions/tool of the state machine.
package main

import (
	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/internal/lambdafn"
)

func main() { lambdafn.Tool(agents.Registry()) }
