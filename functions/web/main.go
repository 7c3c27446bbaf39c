// Command web is functions/web: the pages that people decide on, behind links that say who opens them.
package main

import (
	"github.com/countersign/countersign/agents"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/tools/schema"
	"github.com/countersign/countersign/internal/web/front"
)

func main() { lambdafn.Web(agents.Registry(), schema.Validate, front.Pages) }
