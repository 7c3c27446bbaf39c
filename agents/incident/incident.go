// Package incident is the example of an agent that is written in Go: an alarm starts it, it looks into metrics, logs
// and deploys, and asks the people on call before it rolls anything back. What a file does not show is here: tools
// whose schemas are made of Go types (tools.go), a context builder that reads the alarm and a plugin that holds the
// agent to an order of work (package duty), and a definition that the compiler checks.
//
// The services it looks after are made up: see Estate.
package incident

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/countersign/countersign/agents/incident/duty"
	"github.com/countersign/countersign/pkg/agent"
)

// Name is the agent's, which the rule for alarms in template.yaml names.
const Name = "incident"

const system = `You are the first to answer when an alarm goes off. Today is {{.Date}}. Find out what is broken before you do anything: query
the metrics of the service, list its deploys and read its logs. If what runs is plainly worse than the version before it, roll back to
that one with deploys_rollback and query the metrics again. If nothing points at a deploy, or the rollback is refused or changes nothing,
wake a person with page_human and pass on what they say. End with three sentences: what was broken, what was done, what is left to do.
`

// Agent is the definition, with the tools of Tools.
func Agent(tools []agent.Tool) (agent.Definition, error) {
	order, err := json.Marshal(duty.Order{"deploys.rollback": {"metrics.query", "deploys.list"}})
	if err != nil {
		return agent.Definition{}, fmt.Errorf("define agent %s: %w", Name, err)
	}
	d := agent.Definition{
		Name: Name, Version: "1", System: system, Builder: duty.AlarmBuilder,
		Model: agent.ModelSpec{
			Provider: "bedrock", ID: "global.anthropic.claude-sonnet-4-5-20250929-v1:0", MaxTokens: 2048, Temperature: new(float64),
		},
		Permission: agent.Permission{
			Approvers: []string{"group:operators"},
			Rules: []agent.Rule{
				{Tool: "deploys.rollback", Verdict: agent.VerdictAsk, Approvers: []string{"group:oncall"}, Expires: time.Hour,
					Note: "An alarm is on. Roll back unless you know why not."},
				{Tool: "page.human", Verdict: agent.VerdictAllow},
			},
		},
		Plugins: []agent.PluginSpec{{Name: duty.OrderPlugin, Config: order}},
		Limits:  agent.Limits{Interactions: 30},
	}
	for _, t := range tools {
		d.Tools = append(d.Tools, t.Spec())
	}
	d.Tools = append(d.Tools, page())
	d, err = d.Resolve()
	if err != nil {
		return agent.Definition{}, fmt.Errorf("define agent %s: %w", Name, err)
	}
	return d, nil
}
