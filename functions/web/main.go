// Command web is functions/web: the pages that people decide on, behind links that say who opens them.
package main

import (
	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/pkg/agent/lambda"
)

func main() { lambda.Web(agents.Registry()) }
