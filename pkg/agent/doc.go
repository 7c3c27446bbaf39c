// Package agent is what the author of an agent writes against: definitions, tools, and the code that runs beside them.
//
// An agent is a model, a system text, tools, and a policy that says which tool calls wait for a person. Countersign
// runs it as a loop: it asks the model, carries out the tool calls of the reply, and asks again until a reply has no
// calls. Every step is committed before the next begins, so a run survives a crash, a deploy and a week's wait for a
// decision.
//
// # A tool
//
// A tool is a function with a name, a description for the model, and an effect. Its arguments are a struct; the JSON
// Schema that the model is told, and that arguments are checked against, is derived from it.
//
//	type refund struct {
//		Order string `json:"order" jsonschema_description:"the order's number"`
//		Cents int    `json:"cents" jsonschema:"minimum=1"`
//	}
//
//	func pay(ctx context.Context, c agent.Call, in refund) (agent.Result, error) {
//		id, err := shop.Refund(ctx, in.Order, in.Cents, c.Key)
//		if err != nil {
//			return agent.Result{}, &agent.LostError{Err: err} // it may have happened
//		}
//		return agent.TextResult("refund " + id), nil
//	}
//
//	tool, err := agent.NewTool("refunds.create", "Pays money back.", agent.EffectNonIdempotent, pay, nil)
//
// The effect decides what happens after a crash. A tool that only reads is called again. An idempotent one is called
// again with the same [Call.Key]. A non-idempotent one is asked what became of the call, if it has
// [ToolOptions].Reconcile; otherwise a person decides. A [LostError] says that a call may have happened, and any other
// error that it did not. By default the policy lets tools that only read run at once, and asks people about every other
// call. What they read first is the sentence of [ToolOptions].Describe, if a tool has one.
//
// # An agent
//
// Most agents are files, agents/NAME/agent.yaml, which package agentfile reads; an agent may also be a [Definition] in
// Go:
//
//	name: refunds
//	system: You refund orders that arrived broken. Today is {{.Date}}.
//	model: {provider: bedrock, id: global.anthropic.claude-sonnet-4-5-20250929-v1:0}
//	tools: [{name: refunds.create}]
//	permission:
//	  approvers: ["group:support"]
//	  rules:
//	    - {tool: refunds.create, when: [{path: /cents, lt: 1000}], verdict: allow}
//
// # A registry
//
// [NewRegistry] holds the tools, the code beside them and the agents of a program. The command line ([cli.Main]), the
// Lambda functions (package lambda), a server of one's own (package client) and tests (package agenttest) all start
// from it:
//
//	r, err := agent.NewRegistry(tool)
//	err = r.AddFS(files) // every agent.yaml in an embed.FS; r.Check() says what is wrong with them
//	cli.Main(r)
//
// # Code beside tools
//
// [Hooks] holds code that agents name: a [Builder] makes the system text and first messages, a [Plugin] takes part in
// each phase of the loop and may block or answer a call, a [Policy] lists tools that need a person, a
// [PermissionBackend] keeps permissions elsewhere, a [CheckOutput] says what is wrong with a JSON output, a
// [ContextSource] adds what was looked up. What such code decides is committed, so that a resumed run sees the same.
//
// # Fields and methods
//
// Most types here are names of internal ones. `go doc` has their fields and methods under those names:
//
//	go doc github.com/countersign/countersign/internal/agent Definition  # ToolSpec, Rule, ModelSpec, ToolResultData, …
//	go doc github.com/countersign/countersign/internal/hook BeforeTool   # Set, Plugin, Moment, BuildInput, …
//	go doc github.com/countersign/countersign/internal/run Ticket        # Message, Condition, AgentState, …
//	go doc github.com/countersign/countersign/internal/tool Call
//
// [cli.Main]: https://pkg.go.dev/github.com/countersign/countersign/pkg/agent/cli#Main
package agent
