package local

// This file is a stand-in for a model: small deterministic programs that really read the conversation they are
// sent and decide the next call from it. It lets the demo and the first steps of README.md run without a model or a
// network, says in every first text that it is no model, and knows two jobs: tidying a folder (agents/screenshots, with
// or without MCP) and refunding (agents/refunds).

import (
	"context"
	"encoding/json"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// Hello is how the first text of each conversation begins.
const Hello = "I am the demo's stand-in, a small program and no model."

// DemoModel answers by rule. The zero Model is ready and safe for concurrent use.
type DemoModel struct{}

// job is one thing that the stand-in can do, by the conversation alone, so that a run picked up by another process goes
// on where it was.
type job struct {
	agent  string   // the example that has it
	tools  []string // that it takes, by their model-facing names
	decide func(agent.Request) agent.Reply
}

// jobs are looked through in this order: who has the tools of the last one may have those of an earlier one, too.
var jobs = []job{tidying, tidyingServed, refunding}

// Generate decides the next call. A request without the tools of any job is refused.
func (DemoModel) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	if err := ctx.Err(); err != nil {
		return agent.Reply{}, err
	}
	i := slices.IndexFunc(jobs, func(j job) bool { return j.fits(r) })
	if i < 0 {
		names := make([]string, len(jobs))
		for i, j := range jobs {
			names[i] = "agents/" + j.agent
		}
		known := strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
		return agent.Reply{}, &agent.ModelError{Class: agent.ModelInvalid, Model: "stand-in", Message: "the stand-in knows " +
			"the jobs of " + known + ", and this agent has the tools of none of them; use a real model for anything else"}
	}
	reply := jobs[i].decide(r)
	reply.Model, reply.StopReason = "stand-in", "end_turn"
	reply.Usage = run.Usage{Input: int64(len(r.Messages)) * 20, Output: 20}
	return reply, nil
}

// fits reports whether the agent has every tool of the job. A tool that was called before counts although it is not
// offered: a guard withdraws one that fails too often.
func (j job) fits(r agent.Request) bool {
	return !slices.ContainsFunc(j.tools, func(want string) bool { return !offers(r, want) && !called(r.Messages, want) })
}

func offers(r agent.Request, tool string) bool {
	return slices.ContainsFunc(r.Tools, func(t agent.ToolSpec) bool { return t.ModelName() == tool })
}

func called(messages []run.Message, tool string) bool {
	return slices.ContainsFunc(messages, func(m run.Message) bool {
		use, ok := m.Block.(run.ToolUse)
		return ok && use.Name == tool
	})
}

// call asks for a tool.
func call(text, name string, args any) agent.Reply {
	input, err := json.Marshal(args)
	if err != nil {
		return agent.Reply{Text: "I could not write the call: " + err.Error()}
	}
	return agent.Reply{Text: text, Calls: []agent.ReplyCall{{Name: name, Input: input}}}
}

// answer is a call and what came of it.
type answer struct {
	tool    string // model-facing
	input   json.RawMessage
	content string
	failed  bool
}

// answers are the calls of a conversation that have come to something, in order.
func answers(messages []run.Message) (all []answer) {
	calls := map[string]run.ToolUse{}
	for _, m := range messages {
		switch b := m.Block.(type) {
		case run.ToolUse:
			calls[b.ID] = b
		case run.ToolResult:
			c := calls[b.ID]
			all = append(all, answer{c.Name, c.Input, b.Content, b.IsError})
		}
	}
	return all
}

// last is the newest answer of a tool.
func last(all []answer, tool string) (answer, bool) {
	for _, a := range slices.Backward(all) {
		if a.tool == tool {
			return a, true
		}
	}
	return answer{}, false
}

// asked is the text that the conversation begins with.
func asked(messages []run.Message) string {
	for _, m := range messages {
		if t, ok := m.Block.(run.Text); ok && m.Role == run.RoleUser {
			return t.Text
		}
	}
	return ""
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// refunding is the job of agents/refunds: look the order up that a customer names, and refund what they ask for, or all
// of it.
var refunding = job{"refunds", []string{orderTool, refundTool},
	func(r agent.Request) agent.Reply { return refund(asked(r.Messages), answers(r.Messages)) }}

const (
	orderTool  = "orders_get"
	refundTool = "refunds_create"
)

var (
	orderNumber = regexp.MustCompile(`(?i)order\s+(?:no\.?\s*)?(\d+)`)
	wantedBack  = regexp.MustCompile(`(?i)refund\s+(\d+(?:\.\d+)?)`)
)

func refund(message string, all []answer) agent.Reply {
	number := orderNumber.FindStringSubmatch(message)
	if number == nil {
		return agent.Reply{Text: Hello + " I look for \"order\" and its number in what you say, and there is none."}
	}
	order, looked := last(all, orderTool)
	if !looked {
		return call(Hello+" I will look order "+number[1]+" up.", orderTool, map[string]string{"order": number[1]})
	}
	var found struct {
		Item string      `json:"item"`
		Paid json.Number `json:"paid"`
	}
	if order.failed || json.Unmarshal([]byte(order.content), &found) != nil {
		return agent.Reply{Text: "I could not look the order up: " + firstLine(order.content)}
	}
	paid, tried := last(all, refundTool)
	switch {
	case !tried:
		return call("", refundTool, map[string]any{"order": number[1], "amount": owed(message, found.Paid),
			"reason": firstLine(message)})
	case paid.failed:
		return agent.Reply{Text: "I am sorry: the refund for your " + strings.ToLower(found.Item) + " was not made. " +
			firstLine(paid.content)}
	default:
		return agent.Reply{Text: "Your refund is on its way: " + paid.content}
	}
}

// owed is what the customer asks for by "refund 20", where that is no more than they have paid, and else all of it.
func owed(message string, paid json.Number) json.Number {
	m := wantedBack.FindStringSubmatch(message)
	if m == nil {
		return paid
	}
	want, _ := new(big.Rat).SetString(m[1])
	all, ok := new(big.Rat).SetString(paid.String())
	if !ok || want.Cmp(all) > 0 {
		return paid
	}
	return json.Number(m[1])
}
