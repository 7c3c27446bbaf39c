package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// ToolSpec describes one tool of a definition. It is pinned with the run.
type ToolSpec struct {
	Name        string          `json:"name"` // the original, dotted name
	Kind        ToolKind        `json:"kind"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"` // JSON Schema 2020-12 of the arguments, always an object schema
	Effect      run.Effect      `json:"effect"`
	Priority    int             `json:"priority,omitempty"`
	Timeout     time.Duration   `json:"timeout,omitempty"` // 0 = the runtime's default
	// a text/template over the arguments that says in one sentence what a call would do, for the approver; "" = the
	// sentence of the tool's code, or the call itself
	Describe string `json:"describe,omitempty"`
	// absolute path of the folder to which a built-in file tool is confined
	Root  string `json:"root,omitempty"`
	Event string `json:"event,omitempty"` // kind service: type of its event; "" = Name
	// kind service: where its event is routed; "" = no particular place
	Domain string `json:"domain,omitempty"`

	MCP    *MCPTool    `json:"mcp,omitempty"`    // set for kind mcp only
	Lambda *LambdaTool `json:"lambda,omitempty"` // set for kind lambda only
	HTTP   *HTTPTool   `json:"http,omitempty"`   // set for kind http only
	Agent  *Delegate   `json:"agent,omitempty"`  // set for kind agent only

	Retry       ToolRetry `json:"retry,omitzero"`
	Concurrency int       `json:"concurrency,omitempty"` // calls of the tool that run at a time in one batch; 0 = no limit
	// longest text of a result, in bytes; 0 = the runtime's default
	MaxResult int64 `json:"maxResult,omitempty"`
	Undo      *Undo `json:"undo,omitempty"` // nil = a call cannot be undone

	// the state that an approved call depends on; nil = none
	Precondition *Precondition `json:"precondition,omitempty"`
}

// AnsweredLater reports whether a call of t is sent out and answered later, perhaps after days. Such a call is claimed
// whatever its effect, and suspended once it is out. Its outcome is never unknown, since it can be sent again under the
// same id (ADR 3).
func (t ToolSpec) AnsweredLater() bool {
	return t.Kind == KindService || t.Kind == KindAgent || t.Kind == KindLambda && t.Lambda != nil && t.Lambda.Async
}

// DescribeCall renders Describe for a call with these arguments. An error of the template names the missing argument.
func (t ToolSpec) DescribeCall(args json.RawMessage) (string, error) {
	parsed, err := parseTemplate("describe", t.Describe)
	if err != nil {
		return "", err
	}
	dot, err := jsonx.DecodeNumbers(args)
	if err != nil {
		return "", err
	}
	return executeTemplate(parsed, dot)
}

// ModelName returns the model-facing name: the original with '_' for each '.', without prefixes, in every preset.
func (t ToolSpec) ModelName() string { return ModelName(t.Name) }

// ModelName returns the model-facing name of an original tool name.
func ModelName(original string) string { return strings.ReplaceAll(original, ".", "_") }

// ToolResultData is the result of a tool before it becomes messages.
type ToolResultData struct {
	Content string      // the text the model sees
	IsError bool        // the tool failed, and the model is told
	Media   []run.Media // shown to the model right after the result
	Suspend *run.Ticket // the tool has had no effect yet and asks for input; the other fields are ignored
	// changes of the state that the run's tools share, in order. They are dropped if the call fails or suspends
	Patch []run.Patch
}

// The tools that end a run under TextRequireTool (seed 004).
const (
	ToolCompletion = "task_completion"
	ToolAsk        = "ask_question"
	ToolConverse   = "converse"
)

// Builtins returns the built-in tools that the model of run s is offered in addition to the definition's tools. A nil s
// is a run with an empty conversation.
func (d *Definition) Builtins(s *run.AgentState) []ToolSpec {
	tools := d.LoopBreaking()
	if s != nil && slices.ContainsFunc(s.Messages.All(), func(m run.Message) bool {
		r, ok := m.Block.(run.ToolResult)
		return ok && r.Whole != nil // the rest of this result can be read
	}) {
		tools = append(tools, d.readMoreTool()...)
	}
	return tools
}

// LoopBreaking returns the loop-breaking tools that d offers. If the output has to be JSON, task_completion is the only
// one, because the others end the run with text.
func (d *Definition) LoopBreaking() []ToolSpec {
	if d.Text != TextRequireTool {
		return nil
	}
	const text = `{"type":"string","minLength":1}`
	result := text
	switch {
	case d.Output.Format != OutputJSON:
	case d.Output.Schema == nil || bytes.Contains(d.Output.Schema, []byte(`"$`)):
		result = "{}" // a schema with references to itself cannot be nested in another one
	default:
		result = string(d.Output.Schema)
	}
	var tools []ToolSpec
	for _, t := range []struct{ name, word, properties, required string }{
		{ToolCompletion, wordCompletion, `"result":` + result, "result"},
		{ToolAsk, wordAsk, `"question":` + text + `,"suggestions":{"type":"array","items":` + text + `,"maxItems":4}`,
			"question"},
		{ToolConverse, wordConverse, `"message":` + text, "message"},
	} {
		if slices.Contains(d.XML.Disable, t.name) || d.Output.Format == OutputJSON && t.name != ToolCompletion {
			continue
		}
		tools = append(tools, ToolSpec{
			Name: t.name, Kind: KindInternal, Effect: run.EffectRead, Description: d.Word(t.word, nil),
			Schema: json.RawMessage(`{"type":"object","properties":{` + t.properties + `},"required":["` + t.required + `"]}`),
		})
	}
	return tools
}

// BreaksLoop reports whether d offers a loop-breaking tool of that original name.
func (d *Definition) BreaksLoop(tool string) bool {
	return slices.ContainsFunc(d.LoopBreaking(), func(t ToolSpec) bool { return t.Name == tool })
}

// MaxResult is the longest text of a result that is accepted from any tool, in bytes.
const MaxResult = 8 << 20

// contracts are services that people answer, with the forms of seed 003. An agent refers to them by name. The consumer
// of their events has to answer in the form that the description states.
var contracts = map[string]ToolSpec{
	"human_review": {
		Name: "human_review", Kind: KindService, Effect: run.EffectIdempotent, Priority: 2,
		Description: "Ask a person to review a plan, a draft or a question before you go on. They see the prompt alone: " +
			"say in it all that they need to know. Their answer is in response.",
		Schema: json.RawMessage(`{"type":"object","properties":{` +
			`"source":{"type":"object","description":"Who asks.","properties":{"alias":{"type":"string"},` +
			`"id":{"type":"string"}},"required":["id"],"additionalProperties":false},` +
			`"prompt":{"type":"string","minLength":1}},"required":["source","prompt"],"additionalProperties":false}`),
	},
	"tool_approval": {
		Name: "tool_approval", Kind: KindService, Effect: run.EffectIdempotent, Priority: 1,
		Description: "Ask for the approval of tools before you call them: name them all at once in tools, by the names " +
			"you call them by, and say in message what you mean to do with them. The answer says of each whether it is " +
			"approved.",
		Schema: json.RawMessage(`{"type":"object","properties":{"message":{"type":"string","minLength":1},` +
			`"tools":{"type":"array","items":{"type":"string"},"minItems":1}},` +
			`"required":["message","tools"],"additionalProperties":false}`),
	},
}

// Contract returns a service whose schema is built in. human_review takes {source {alias?, id}, prompt} and is answered
// with {response}. tool_approval takes {message, tools} and is answered with {approvals: [{tool, value, comments?}]}.
func Contract(name string) (ToolSpec, bool) {
	t, ok := contracts[name]
	return t, ok
}

// DelegateSchema is the schema of a tool of kind agent that has none of its own: the message to the other agent.
var DelegateSchema = json.RawMessage(`{"type":"object","properties":{"message":{"type":"string","minLength":1,` +
	`"description":"What the agent is to do, with everything it has to know."}},` +
	`"required":["message"],"additionalProperties":false}`)

// MCPServer is a server of tools by the Model Context Protocol. An author's definition does not contain its tools. They
// are listed when a run begins, and the definition that is pinned to the run contains them.
type MCPServer struct {
	Name string `json:"name"` // [a-z0-9][a-z0-9_-]*; the first part of its tools' names
	// a program on this machine that uses its standard streams; a deployed function refuses it
	Command []string `json:"command,omitempty"`
	Dir     string   `json:"dir,omitempty"` // absolute path of the folder the command runs in
	// environment of the command, in addition to PATH and HOME; values may hold ${secret:NAME}
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`     // streamable HTTP
	Headers map[string]string `json:"headers,omitempty"` // of each request; values may hold ${secret:NAME}
	Tools   []MCPPattern      `json:"tools,omitempty"`   // settings of its tools; the first match applies
	Allow   []string          `json:"allow,omitempty"`   // patterns of the server's own names; none = all tools
	Deny    []string          `json:"deny,omitempty"`    // likewise; checked before Allow
	Timeout time.Duration     `json:"timeout,omitempty"` // to connect and to list; 0 = 20 s

	// Locked holds the digests of the tools that mcp.lock pins, by the server's own names. If it is nil, the server is not
	// in mcp.lock, and a deployed function disables all of its tools.
	Locked map[string]string `json:"locked,omitzero"`

	// if the server cannot be listed, the run continues without its tools; otherwise that ends the run
	Optional bool `json:"optional,omitempty"`
}

// MCPPattern holds an author's settings for a server's tools with matching names. The server's annotations are hints.
type MCPPattern struct {
	Match    string        `json:"match"`            // the server's own name; * stands for any characters
	Effect   run.Effect    `json:"effect,omitempty"` // "" = non_idempotent
	Timeout  time.Duration `json:"timeout,omitempty"`
	Priority int           `json:"priority,omitempty"`
}

// ServerTools is the list of tools of an MCP server, after limits were applied. Nothing in it is trusted.
type ServerTools struct {
	Protocol string       // version of the protocol
	Tools    []ServerTool // in the server's order, each name once
	Left     []LeftTool   // listed tools that cannot be used
}

// ServerTool is one tool as a server describes it.
type ServerTool struct {
	Name        string          // the server's own
	Description string          // valid text
	Schema      json.RawMessage // of the arguments: compact, self-contained, of an object
	Hints       MCPHints
	Digest      string // digest of the whole definition, as the server sent it
}

// LeftTool is a tool that a server listed and that cannot be used.
type LeftTool struct{ Name, Why string }

// MCPHints are a server's annotations of a tool. They are shown to people and decide nothing.
type MCPHints struct {
	Title       string `json:"title,omitempty"`
	ReadOnly    bool   `json:"readOnly,omitempty"`
	Destructive bool   `json:"destructive,omitempty"`
	Idempotent  bool   `json:"idempotent,omitempty"`
	OpenWorld   bool   `json:"openWorld,omitempty"`
}

// MaxMessageMedia is the highest number of media in one message.
const MaxMessageMedia = 100

// Program returns the name of the first MCP server of d that is a local program. needed is false if there is none; only
// then can d run in a deployed function.
func (d *Definition) Program() (server string, needed bool) {
	for _, s := range d.MCP {
		if len(s.Command) > 0 {
			return s.Name, true
		}
	}
	return "", false
}

// Remote reports whether calls of the tool are carried out elsewhere, as described by its definition alone, without
// code of the deployment.
func (k ToolKind) Remote() bool { return k == KindMCP || k == KindLambda || k == KindHTTP }

// MCPTool says which server a tool comes from, and which definition of it people have reviewed.
type MCPTool struct {
	Server string `json:"server"` // an MCPServer.Name
	Tool   string `json:"tool"`   // the server's own name
	Digest string `json:"digest"` // of the server's definition of the tool: name, description, schemas and annotations
}

// HTTPTool is the request that a tool sends. In templates, {name} stands for the argument with that top-level key, and
// ${secret:NAME} for a secret. Secrets are filled in when the request is sent, and never stored.
type HTTPTool struct {
	Method  string            `json:"method"`            // upper case
	URL     string            `json:"url"`               // path and query are templates; scheme and host are fixed
	Headers map[string]string `json:"headers,omitempty"` // templates
	Query   map[string]string `json:"query,omitempty"`   // templates; a parameter is left out if its argument is missing
	// JSON whose strings are templates; a string that is a single {name} becomes that value. nil = if the method has a
	// body, all arguments that no other template uses
	Body  json.RawMessage `json:"body,omitempty"`
	Allow []string        `json:"allow,omitempty"` // other hosts, as host or host:port, that redirects may lead to
}

// LambdaTool is the function that a tool invokes.
type LambdaTool struct {
	Function string `json:"function"`        // name, ARN or partial ARN, with an optional version or alias
	Async    bool   `json:"async,omitempty"` // the function answers later, as a service does
}

// Delegate is the agent that a tool delegates to. A call of the tool is a run of that agent.
type Delegate struct {
	Agent   string `json:"agent"`             // name of an agent of the same deployment
	History bool   `json:"history,omitempty"` // the result contains the conversation

	// most tokens the delegated run may use of those the caller has left; 0 = all of them
	Tokens int64   `json:"tokens,omitempty"`
	USD    run.USD `json:"usd,omitempty"` // likewise
}

// ToolRetry says how often a call is attempted again in one invocation after an infrastructure error. This applies to
// calls of effect read or idempotent only. The zero value is one attempt.
type ToolRetry struct {
	Attempts   int           `json:"attempts,omitempty"`   // total; 0 and 1 = one
	Backoff    time.Duration `json:"backoff,omitempty"`    // before the second attempt; doubles with each one
	MaxBackoff time.Duration `json:"maxBackoff,omitempty"` // 0 = no limit
}

// Undo is a call that reverses a successful call. It is made only after a person decided so.
type Undo struct {
	Tool string `json:"tool"` // original name of a tool of the same agent
	// an object, in which {"result": "/pointer"} and {"args": "/pointer"} stand for the value at that place
	Args json.RawMessage `json:"args,omitempty"`
}

// Again returns how long to wait before a call of effect e is attempted again after its n-th infrastructure error,
// counted from 1. It returns false if the attempts are used up or the call may not be repeated.
func (r ToolRetry) Again(e run.Effect, n int) (time.Duration, bool) {
	if n >= r.Attempts || e != run.EffectRead && e != run.EffectIdempotent {
		return 0, false
	}
	return Backoff(r.Backoff, r.MaxBackoff, n), true
}

// Backoff returns the wait after the n-th failure, from 1: first, doubled n-1 times, at most longest (0 = no limit).
// The result leaves room to add as much jitter without an overflow.
func Backoff(first, longest time.Duration, n int) time.Duration {
	limit := time.Duration(math.MaxInt64 / 2)
	if longest > 0 {
		limit = min(limit, longest)
	}
	doublings := min(max(n-1, 0), 62)
	if first > limit>>doublings { // the result would exceed limit or overflow
		return limit
	}
	return max(0, first) << doublings
}

// ReadMore is the name of the built-in tool with which a model reads the rest of a cut result.
const ReadMore = "read_more"

// KeepsWhole reports whether the full text of cut results is kept, so that the model can read the rest.
func (d *Definition) KeepsWhole() bool { return d.Context.KeepWhole && d.Context.TruncateResult > 0 }

// readMoreTool returns the tool ReadMore, or nil if the agent does not have it. The tool only reads stored results.
func (d *Definition) readMoreTool() []ToolSpec {
	if !d.KeepsWhole() {
		return nil
	}
	return []ToolSpec{{
		Name: ReadMore, Kind: KindInternal, Effect: run.EffectRead,
		Description: "Read on in the result of a tool call that was cut because it is long. Characters are counted from 0.",
		Schema: json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{`+
			`"call":{"type":"string","description":"The id of the call, as the notice behind its result gives it."},`+
			`"from":{"type":"integer","minimum":0,"description":"The first character to be shown."},`+
			`"chars":{"type":"integer","minimum":1,"maximum":%[1]d,`+
			`"description":"How many characters to show; %[1]d if left out."}},`+
			`"required":["call","from"],"additionalProperties":false}`, d.Context.TruncateResult)),
	}}
}

// EveryBuiltin returns all built-in tools that d may ever offer.
func (d *Definition) EveryBuiltin() []ToolSpec {
	return slices.Concat(d.LoopBreaking(), d.readMoreTool(), d.budgetTools())
}

// budgetTools returns the tools for which a run requests approval to get more budget. No model is offered them.
func (d *Definition) budgetTools() []ToolSpec {
	if d.Limits.OnBudget != OnBudgetAsk {
		return nil
	}
	return []ToolSpec{
		budgetTool(run.ToolBudget, "Raise the budget of this run.", "the run", "Its budget is used up."),
		budgetTool(run.ToolAgentBudget, "Raise the budget of all runs of this agent.", "all runs of this agent",
			"Their budget of the period is used up."),
		budgetTool(run.ToolTenantBudget, "Raise the budget of all runs.", "all runs of all agents",
			"Their budget of the period is used up."),
	}
}

func budgetTool(name, description, who, why string) ToolSpec {
	return ToolSpec{
		Name: name, Kind: KindInternal, Effect: run.EffectNonIdempotent, Description: description,
		Describe: `Let ` + who + ` spend more:{{with index . "usd"}} {{.}} USD{{end}}` +
			`{{with index . "tokens"}} {{.}} tokens{{end}}. ` + why,
		Schema: json.RawMessage(`{"type":"object","minProperties":1,"additionalProperties":false,"properties":{` +
			`"usd":{"type":"number","exclusiveMinimum":0,"maximum":1000000,"multipleOf":0.000001},` +
			`"tokens":{"type":"integer","minimum":1,"maximum":1000000000000}}}`),
	}
}

// Wants reports whether the agent uses the server's tool of that name, the server's own.
func (m MCPServer) Wants(tool string) bool {
	matches := func(pattern string) bool { return MatchTool(pattern, tool) }
	return !slices.ContainsFunc(m.Deny, matches) && (len(m.Allow) == 0 || slices.ContainsFunc(m.Allow, matches))
}

// Spec returns the agent's tool for a tool of the server.
func (m MCPServer) Spec(t ServerTool) ToolSpec {
	spec := ToolSpec{
		Name: m.Name + "." + t.Name, Kind: KindMCP, Description: strings.ToValidUTF8(t.Description, "\uFFFD"),
		Schema: t.Schema, Effect: run.EffectNonIdempotent,
		MCP: &MCPTool{Server: m.Name, Tool: t.Name, Digest: t.Digest},
	}
	if i := slices.IndexFunc(m.Tools, func(p MCPPattern) bool { return MatchTool(p.Match, t.Name) }); i >= 0 {
		p := m.Tools[i]
		spec.Effect, spec.Timeout, spec.Priority = cmp.Or(p.Effect, run.EffectNonIdempotent), p.Timeout, p.Priority
	}
	return spec
}
