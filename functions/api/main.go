// Command api is functions/api: the HTTP API of runs and approvals, behind API Gateway or a function URL.
package main

import (
	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/pkg/agent/lambda"
)

func main() { lambda.API(agents.Registry()) }
