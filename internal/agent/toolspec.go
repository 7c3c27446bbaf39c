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
	// a text/template over the arguments: what a call would do, in one sentence, for who is asked to approve it. "" = the
	// sentence of the tool's code, or the call itself
	Describe string `json:"describe,omitempty"`
	// absolute path of the folder a built-in file tool is confined to
	Root  string `json:"root,omitempty"`
	Event string `json:"event,omitempty"` // of a service: the type of its event; "" = Name
	// of a service: where its event is to be routed; "" = nowhere in particular
	Domain string `json:"domain,omitempty"`

	MCP    *MCPTool    `json:"mcp,omitempty"`    // of kind mcp, and nil of any other; likewise the next three
	Lambda *LambdaTool `json:"lambda,omitempty"` // of kind lambda
	HTTP   *HTTPTool   `json:"http,omitempty"`   // of kind http
	Agent  *Delegate   `json:"agent,omitempty"`  // of kind agent

	Retry       ToolRetry `json:"retry,omitzero"`
	Concurrency int       `json:"concurrency,omitempty"` // calls of the tool at a time in one batch; 0 = no bound
	// bytes of a result's text that are taken; 0 = the runtime's default
	MaxResult int64 `json:"maxResult,omitempty"`
	Undo      *Undo `json:"undo,omitempty"` // nil = nothing takes a call back

	// what a call that people are asked about depends on; nil = nothing in particular
	Precondition *Precondition `json:"precondition,omitempty"`
}

// AnsweredLater reports whether a call of t is sent out and its answer comes in by itself, perhaps days later: it is
// claimed whatever its effect, suspended once it is out, and never of unknown outcome, since it goes out again under
// the same id (ADR 3).
func (t ToolSpec) AnsweredLater() bool {
	return t.Kind == KindService || t.Kind == KindAgent || t.Kind == KindLambda && t.Lambda != nil && t.Lambda.Async
}

// DescribeCall is what Describe says of a call with these arguments. The error is that of the template: it names an
// argument that is missing.
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

// ModelName is the name the model knows: the original with '.' as '_', no prefixes, in every preset.
func (t ToolSpec) ModelName() string { return ModelName(t.Name) }

// ModelName maps an original tool name to its model-facing one.
func ModelName(original string) string { return strings.ReplaceAll(original, ".", "_") }

// ToolResultData is what a tool gave back, before it becomes messages.
type ToolResultData struct {
	Content string      // the text the model sees
	IsError bool        // the tool failed in a way the model should hear of
	Media   []run.Media // shown to the model right after the result
	Suspend *run.Ticket // the tool has had no effect and asks for input first; the rest is ignored
	// changes of the state that the run's tools share, in order. A call that fails or suspends changes nothing
	Patch []run.Patch
}

// The tools that end a run under TextRequireTool (seed 004).
const (
	ToolCompletion = "task_completion"
	ToolAsk        = "ask_question"
	ToolConverse   = "converse"
)

// Builtins are the tools that s's model is offered behind the definition's own.
// nil as s is one in whose conversation nothing stands.
func (d *Definition) Builtins(s *run.AgentState) []ToolSpec {
	tools := d.LoopBreaking()
	if s != nil && slices.ContainsFunc(s.Messages.All(), func(m run.Message) bool {
		r, ok := m.Block.(run.ToolResult)
		return ok && r.Whole != nil // its rest can be read
	}) {
		tools = append(tools, d.readMoreTool()...)
	}
	return tools
}

// LoopBreaking are the loop-breaking tools that d offers. Where the output has to be JSON, only a completion gives it:
// questions and words are none.
func (d *Definition) LoopBreaking() []ToolSpec {
	if d.Text != TextRequireTool {
		return nil
	}
	const text = `{"type":"string","minLength":1}`
	result := text
	switch {
	case d.Output.Format != OutputJSON:
	case d.Output.Schema == nil || bytes.Contains(d.Output.Schema, []byte(`"$`)):
		result = "{}" // what refers within itself cannot stand within another one
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

// BreaksLoop reports whether a tool of that original name is a loop-breaking one of d's.
func (d *Definition) BreaksLoop(tool string) bool {
	return slices.ContainsFunc(d.LoopBreaking(), func(t ToolSpec) bool { return t.Name == tool })
}

// MaxResult is how many bytes of a result's text are taken, whatever its tool says.
const MaxResult = 8 << 20

// contracts are services that people stand behind, with the forms of seed 003: an agent names them, and whoever serves
// their events answers in the form that the description gives.
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

// Contract finds a service that needs no schema of the agent's own: human_review {source {alias?, id}, prompt}, whose
// answer is {response}, and tool_approval {message, tools}, whose answer is {approvals: [{tool, value, comments?}]}.
func Contract(name string) (ToolSpec, bool) {
	t, ok := contracts[name]
	return t, ok
}

// MCPServer is a server of tools by the Model Context Protocol. Its tools are not part of the definition an agent is
// written as: they are listed when a run begins, and the definition that the run is pinned to from then on has them.
type MCPServer struct {
	Name string `json:"name"` // [a-z0-9][a-z0-9_-]*; the first part of its tools' names
	// a program on this machine that speaks over its standard streams; a deployed function refuses it
	Command []string `json:"command,omitempty"`
	Dir     string   `json:"dir,omitempty"` // absolute path of the folder the command runs in
	// of the command, beside PATH and HOME; values may hold ${secret:NAME}
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`     // streamable HTTP
	Headers map[string]string `json:"headers,omitempty"` // of each request; values may hold ${secret:NAME}
	Tools   []MCPPattern      `json:"tools,omitempty"`   // what holds of its tools; the first that matches wins
	Allow   []string          `json:"allow,omitempty"`   // patterns of the server's own names; none = all of them
	Deny    []string          `json:"deny,omitempty"`    // likewise, before Allow
	Timeout time.Duration     `json:"timeout,omitempty"` // to connect and to list; 0 = 20 s

	// Locked are the digests of the tools that mcp.lock pins, by the server's own names. Nil = the server is not in
	// mcp.lock: a deployed function disables all of its tools.
	Locked map[string]string `json:"locked,omitzero"`

	// a run goes on without its tools where it cannot be listed; else that ends the run
	Optional bool `json:"optional,omitempty"`
}

// MCPPattern is what an agent's author says of the tools of a server whose names match. What the server says of them is
// a hint at most.
type MCPPattern struct {
	Match    string        `json:"match"`            // the server's own name; * stands for any characters
	Effect   run.Effect    `json:"effect,omitempty"` // "" = non_idempotent
	Timeout  time.Duration `json:"timeout,omitempty"`
	Priority int           `json:"priority,omitempty"`
}

// ServerTools is what an MCP server says it has, as it was read and held to its bounds; nothing of it is trusted.
type ServerTools struct {
	Protocol string       // the version that was spoken
	Tools    []ServerTool // in the server's order, each name once
	Left     []LeftTool   // what it listed and cannot be used
}

// ServerTool is one tool as a server describes it.
type ServerTool struct {
	Name        string          // the server's own
	Description string          // valid text
	Schema      json.RawMessage // of the arguments: compact, self-contained, of an object
	Hints       MCPHints
	Digest      string // of all of the definition, as the server sent it
}

// LeftTool is a tool that a server listed and that is not to be had.
type LeftTool struct{ Name, Why string }

// MCPHints are a server's annotations of a tool. They are shown to people and decide nothing.
type MCPHints struct {
	Title       string `json:"title,omitempty"`
	ReadOnly    bool   `json:"readOnly,omitempty"`
	Destructive bool   `json:"destructive,omitempty"`
	Idempotent  bool   `json:"idempotent,omitempty"`
	OpenWorld   bool   `json:"openWorld,omitempty"`
}

// MaxMessageMedia is how many media one message may hold.
const MaxMessageMedia = 100

// Program is the name of the first MCP server of d that is a program on the machine it runs on. False where there is
// none: then d runs in a deployed function.
func (d *Definition) Program() (server string, needed bool) {
	for _, s := range d.MCP {
		if len(s.Command) > 0 {
			return s.Name, true
		}
	}
	return "", false
}

// Remote reports whether a tool's calls are carried out somewhere else, by what its description says alone: no code of
// the deployment runs them.
func (k ToolKind) Remote() bool { return k == KindMCP || k == KindLambda || k == KindHTTP }

// MCPTool is where a tool of an MCP server comes from, and the definition of it that people have seen.
type MCPTool struct {
	Server string `json:"server"` // by MCPServer.Name
	Tool   string `json:"tool"`   // the server's own name
	Digest string `json:"digest"` // of the server's definition of the tool: name, description, schemas and annotations
}

// HTTPTool is a request that a tool makes. Templates hold {name} for the value at that top-level key of the arguments,
// and ${secret:NAME} for a secret, which is put in when the request is sent and is never stored.
type HTTPTool struct {
	Method  string            `json:"method"`            // upper case
	URL     string            `json:"url"`               // a template in its path and query; scheme and host are fixed
	Headers map[string]string `json:"headers,omitempty"` // templates
	Query   map[string]string `json:"query,omitempty"`   // templates; one whose argument is missing is left out
	// JSON whose strings are templates; one that is a single {name} becomes that value. nil = all arguments that nothing
	// else takes, if the method has a body
	Body  json.RawMessage `json:"body,omitempty"`
	Allow []string        `json:"allow,omitempty"` // other hosts, host or host:port, that redirects may lead to
}

// LambdaTool is a function that a tool invokes.
type LambdaTool struct {
	Function string `json:"function"`        // name, ARN or partial ARN, with an optional version or alias
	Async    bool   `json:"async,omitempty"` // the function answers later, as a service does
}

// Delegate is another agent that a tool is: its call is a run of that agent.
type Delegate struct {
	Agent   string `json:"agent"`             // by name, of the same deployment
	History bool   `json:"history,omitempty"` // its conversation is part of the result

	Tokens int64   `json:"tokens,omitempty"` // at most so many of the tokens that the caller has left; 0 = all of them
	USD    run.USD `json:"usd,omitempty"`    // likewise
}

// ToolRetry says how often a call is entered again in one invocation after an error of infrastructure. Only calls of
// effect read or idempotent are. The zero value is one attempt.
type ToolRetry struct {
	Attempts   int           `json:"attempts,omitempty"`   // in all; 0 and 1 = one
	Backoff    time.Duration `json:"backoff,omitempty"`    // before the second; doubled for each one after it
	MaxBackoff time.Duration `json:"maxBackoff,omitempty"` // 0 = no bound
}

// Undo is a call that takes a call back which has succeeded. It is never made without a person's word.
type Undo struct {
	Tool string `json:"tool"` // original name, of the same agent
	// an object; strings that are {"result": "/pointer"} or {"args": "/pointer"} objects take the value there
	Args json.RawMessage `json:"args,omitempty"`
}

// Again says how long to wait before a call of effect e is entered again that an error of infrastructure has ended for
// the n-th time, from 1; false where it is not: n attempts are all it has, or the call may not be repeated.
func (r ToolRetry) Again(e run.Effect, n int) (time.Duration, bool) {
	if n >= r.Attempts || e != run.EffectRead && e != run.EffectIdempotent {
		return 0, false
	}
	return Backoff(r.Backoff, r.MaxBackoff, n), true
}

// Backoff is the wait after the n-th failure, from 1: first, doubled n-1 times, at most longest (0 = no bound). It
// leaves room to add as much jitter.
func Backoff(first, longest time.Duration, n int) time.Duration {
	limit := time.Duration(math.MaxInt64 / 2)
	if longest > 0 {
		limit = min(limit, longest)
	}
	doublings := min(max(n-1, 0), 62)
	if first > limit>>doublings { // it would be longer than limit, or overflow
		return limit
	}
	return max(0, first) << doublings
}

// ReadMore is the name of the built-in tool by which a model reads on in a result that was cut.
const ReadMore = "read_more"

// KeepsWhole reports whether results that are cut are kept, so that the model can read on in them.
func (d *Definition) KeepsWhole() bool { return d.Context.KeepWhole && d.Context.TruncateResult > 0 }

// readMoreTool is the tool, if the agent has it. The tool reads stored results only.
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

// EveryBuiltin are all tools that d may ever offer behind its own.
func (d *Definition) EveryBuiltin() []ToolSpec {
	return slices.Concat(d.LoopBreaking(), d.readMoreTool(), d.budgetTools())
}

// budgetTools are what a run asks people with for more budget. They are offered to no model.
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

// Wants reports whether the agent's author wants a tool of that name, the server's own.
func (m MCPServer) Wants(tool string) bool {
	matches := func(pattern string) bool { return MatchTool(pattern, tool) }
	return !slices.ContainsFunc(m.Deny, matches) && (len(m.Allow) == 0 || slices.ContainsFunc(m.Allow, matches))
}

// Spec is a tool of the server as an agent has it.
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
