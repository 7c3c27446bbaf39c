// Command web is functions/web: the pages that people decide on, behind links that say who opens them.
package main

import (
	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/pkg/agent/front"
	"github.com/countersign/countersign/pkg/agent/lambdafn"
	"github.com/countersign/countersign/pkg/agent/tool/schema"
)

func main() { lambdafn.Web(agents.Registry(), schema.Validate, front.Pages) }
