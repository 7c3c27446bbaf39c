package agent_test

import (
	"context"
	"fmt"
	"testing/fstest"

	"github.com/countersign/countersign/pkg/agent"
)

type refund struct {
	Order string `json:"order" jsonschema_description:"the order's number"`
	Cents int    `json:"cents" jsonschema:"minimum=1"`
}

// pay would ask the shop; the call's key makes a second attempt the same refund.
func pay(_ context.Context, c agent.Call, in refund) (agent.Result, error) {
	if in.Order == "0" {
		return agent.Result{}, agent.Refuse("There is no order %s.", in.Order)
	}
	return agent.JSONResult(map[string]any{"order": in.Order, "cents": in.Cents, "refund": c.Key})
}

func refundTool() agent.Tool {
	tool, err := agent.NewTool("refunds.create", "Pays money back.", agent.EffectNonIdempotent, pay, nil)
	if err != nil {
		panic(err)
	}
	return tool
}

// A tool is a function over a struct. Arguments that do not fit its schema never reach the function.
func ExampleNewTool() {
	tool := refundTool()
	fmt.Println(string(tool.Spec().Schema))

	call := agent.Call{Key: "run1/c1", Args: []byte(`{"order":"17","cents":1200}`)}
	result, err := tool.Call(context.Background(), call)
	fmt.Println(result.Content, err)

	call.Args = []byte(`{"order":"17","cents":0}`)
	result, err = tool.Call(context.Background(), call)
	fmt.Println(result.IsError, err)
	// Output:
	// {"properties":{"order":{"type":"string","description":"the order's number"},"cents":{"type":"integer","minimum":1}},"additionalProperties":false,"type":"object","required":["order","cents"]}
	// {"cents":1200,"order":"17","refund":"run1/c1"} <nil>
	// true <nil>
}

// An agent in Go. Resolve fills in the defaults of the preset.
func ExampleDefinition() {
	d, err := agent.Definition{
		Name:   "refunds",
		System: "You refund orders that arrived broken. Today is {{.Date}}.",
		Model:  agent.ModelSpec{Provider: "bedrock", ID: "global.anthropic.claude-sonnet-4-5-20250929-v1:0"},
		Tools:  []agent.ToolSpec{refundTool().Spec()},
		Permission: agent.Permission{
			Approvers: []string{"group:support"},
			Rules: []agent.Rule{{
				Tool: "refunds.*", Verdict: agent.VerdictAsk, Quorum: 2, FourEyes: true, Via: []agent.Via{"page", "slack"},
			}},
		},
		Limits: agent.Limits{Period: &agent.PeriodBudget{Every: "day", Tokens: 1_000_000}},
	}.Resolve()
	if err != nil {
		panic(err)
	}
	r, err := agent.NewRegistry(refundTool())
	if err != nil {
		panic(err)
	}
	fmt.Println(r.Add(d), r.Agents(), d.Limits.Interactions)
	// Output: <nil> [refunds] 25
}

// Agents in YAML: every agent.yaml below a folder, usually an embed.FS.
func ExampleRegistry() {
	files := fstest.MapFS{"refunds/agent.yaml": {Data: []byte(`
name: refunds
system: You refund orders that arrived broken.
model: {provider: demo}
tools: [{name: refunds.create}]
permission:
  approvers: ["group:support"]
  rules:
    - {tool: refunds.create, when: [{path: /cents, lt: 1000}], verdict: allow}
`)}}
	r, err := agent.NewRegistry(refundTool())
	if err != nil {
		panic(err)
	}
	fmt.Println(r.AddFS(files))
	d, _ := r.Agent("refunds")
	fmt.Println(d.Name, d.Permission.Rules[0].Verdict)
	// Output:
	// <nil>
	// refunds allow
}

// A permission backend is written with the types of this package alone.
var _ interface {
	Get(context.Context, agent.PermissionContext, []agent.PermissionTool) (map[string]agent.Verdict, error)
} = agent.PermissionBackend(nil)
