// Package proof holds the product to what docs/reliability.md promises of many runs and long ones. Outside its tests it
// has the work of docs/performance.md, for what measures and counts: an agent whose model replies at once with calls of
// 200 bytes of arguments, and whose tools return 2,048 bytes at once.
package proof

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

const argsBytes = 200

// ToolResult is what a tool returns.
var ToolResult = strings.Repeat("r", 2048)

// workTool is a tool that returns at once.
type workTool struct {
	name   string
	effect run.Effect
	result func(c tool.Call) string
}

func (w workTool) Spec() agent.ToolSpec {
	return agent.ToolSpec{Name: w.name, Kind: agent.KindInternal, Effect: w.effect, Description: "Work.",
		Schema: json.RawMessage(`{"type":"object"}`)}
}

func (w workTool) Call(_ context.Context, c tool.Call) (agent.ToolResultData, error) {
	if w.result == nil {
		return agent.ToolResultData{Content: ToolResult}, nil
	}
	return agent.ToolResultData{Content: w.result(c)}, nil
}

// Workload returns work.read, which is called without asking, and work.pay, which is not. result is what a call of them
// returns; nil = Result.
func Workload(result func(c tool.Call) string) []tool.Tool {
	return []tool.Tool{
		workTool{"work.read", run.EffectRead, result}, workTool{"work.pay", run.EffectNonIdempotent, result},
	}
}

// WorkModel asks for N iterations of calls, each with arguments of its own, and then ends the run.
type WorkModel struct {
	N     int
	Tool  string              // as models name it
	Width int                 // calls of an iteration; 0 = one
	Seen  func(agent.Request) // is told of every request; nil = nobody is
}

// Generate implements runtime.Model.
func (m WorkModel) Generate(_ context.Context, r agent.Request) (agent.Reply, error) {
	if m.Seen != nil {
		m.Seen(r)
	}
	reply := agent.Reply{Model: "instant", Usage: run.Usage{Input: 10, Output: 10}}
	if r.Inference > int64(m.N) {
		reply.Text = "Done."
		return reply, nil
	}
	args := fmt.Sprintf(`{"q":"%06d%s"}`, r.Inference, strings.Repeat("a", argsBytes-14))
	for i := range max(m.Width, 1) {
		c := agent.ReplyCall{ID: fmt.Sprintf("toolu_%06d", r.Inference), Name: m.Tool, Input: json.RawMessage(args)}
		if m.Width > 0 {
			c.ID += fmt.Sprint("_", i)
		}
		reply.Calls = append(reply.Calls, c)
	}
	return reply, nil
}

// WorkAgent returns an agent for n iterations.
func WorkAgent(name string, n int) (*agent.Definition, error) {
	d, err := agent.PresetDefaults(agent.PresetCountersign)
	if err != nil {
		return nil, err
	}
	d.Name, d.System = name, "You work."
	d.Model.Provider, d.Model.ID = "demo", "instant"
	d.Limits.Interactions = n + 10
	for _, t := range Workload(nil) {
		d.Tools = append(d.Tools, t.Spec())
	}
	return &d, d.Check()
}

// StartWork starts a run of the agent.
func StartWork(d *agent.Definition, key string) runtime.Start {
	message := []run.UserBlock{{Block: run.Text{Text: "Work."}}}
	return runtime.Start{Tenant: local.Tenant, Agent: d, Key: key, Message: message}
}
