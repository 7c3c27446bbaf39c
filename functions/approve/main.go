// Command approve is functions/approve of the state machine.
package main

import (
	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/internal/lambdafn"
)

func main() { lambdafn.Approve(agents.Registry()) }
