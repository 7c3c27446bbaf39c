// Command http is functions/http: the HTTP API of runs and approvals, behind API Gateway, the pages that people decide
// on, behind links that say who opens them, what is clicked in Slack, and streams of events by a function URL.
package main

import (
	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/pkg/agent/lambda"
)

func main() { lambda.HTTP(agents.Registry()) }
