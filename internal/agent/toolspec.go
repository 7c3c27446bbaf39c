package agent

import (
	"encoding/json"
	"time"
)

// Effect says what running a tool twice means.
type Effect string

// The effects; a tool that says nothing is NonIdempotent.
const (
	EffectRead          Effect = "read"
	EffectIdempotent    Effect = "idempotent"
	EffectNonIdempotent Effect = "non_idempotent"
)

// Valid reports whether e is one of the effects.
func (e Effect) Valid() bool {
	return e == EffectRead || e == EffectIdempotent || e == EffectNonIdempotent
}

// ToolKind says who runs a tool.
type ToolKind string

// The kinds of interfaces.md section 2.
const (
	KindInternal ToolKind = "internal"
	KindMCP      ToolKind = "mcp"
	KindService  ToolKind = "service"
	KindLambda   ToolKind = "lambda"
	KindHTTP     ToolKind = "http"
	KindAgent    ToolKind = "agent"
)

// ToolSpec describes one tool of a definition. It is pinned with the run.
type ToolSpec struct {
	Name        string          `json:"name"` // the original, dotted name
	Kind        ToolKind        `json:"kind"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"` // JSON Schema 2020-12 of the arguments, always an object schema
	Effect      Effect          `json:"effect"`
	Priority    int             `json:"priority,omitempty"`
	Timeout     time.Duration   `json:"timeout,omitempty"` // 0 = the runtime's default
	Root        string          `json:"root,omitempty"`    // absolute path of the folder a built-in file tool is confined to
	Event       string          `json:"event,omitempty"`   // of a service: the type of its event; "" = Name
	Domain      string          `json:"domain,omitempty"`  // of a service: where its event is to be routed; "" = nowhere in particular

	MCP    *MCPTool    `json:"mcp,omitempty"`    // of kind mcp, and nil of any other; likewise the next three
	Lambda *LambdaTool `json:"lambda,omitempty"` // of kind lambda
	HTTP   *HTTPTool   `json:"http,omitempty"`   // of kind http
	Agent  *Delegate   `json:"agent,omitempty"`  // of kind agent

	Retry       ToolRetry `json:"retry,omitzero"`
	Concurrency int       `json:"concurrency,omitempty"` // calls of the tool at a time in one batch; 0 = no bound
	MaxResult   int64     `json:"maxResult,omitempty"`   // bytes of a result's text that are taken; 0 = the runtime's default
	Undo        *Undo     `json:"undo,omitempty"`        // nil = nothing takes a call back

	Precondition *Precondition `json:"precondition,omitempty"` // what a call that people are asked about depends on; nil = nothing in particular
}

// AnsweredLater reports whether a call of t is sent out and its answer comes in by itself, perhaps days later: it is claimed whatever its
// effect, suspended once it is out, and never of unknown outcome, since it goes out again under the same id (ADR 26).
func (t ToolSpec) AnsweredLater() bool {
	return t.Kind == KindService || t.Kind == KindAgent || t.Kind == KindLambda && t.Lambda != nil && t.Lambda.Async
}

// ModelName is the name the model knows: the original with '.' as '_', no prefixes, in every preset.
func (t ToolSpec) ModelName() string { return ModelName(t.Name) }

// ModelName maps an original tool name to its model-facing one.
func ModelName(original string) string {
	b := []byte(original)
	for i, c := range b {
		if c == '.' {
			b[i] = '_'
		}
	}
	return string(b)
}

// ToolResultData is what a tool gave back, before it becomes messages.
type ToolResultData struct {
	Content string  // the text the model sees
	IsError bool    // the tool failed in a way the model should hear of
	Media   []Media // shown to the model right after the result
	Suspend *Ticket // the tool has had no effect and asks for input first; the rest is ignored
	Patch   []Patch // changes of the state that the run's tools share, in order. A call that fails or suspends changes nothing
}
