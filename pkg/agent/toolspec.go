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
	Suspend *Ticket // the tool asks for input and is replayed with it; Content is ignored
}

// Ticket is a tool's own suspension: it cannot finish before somebody answers (seed 001, 3.1).
type Ticket struct {
	ID             string          `json:"id,omitempty"`
	Action         string          `json:"action,omitempty"`  // default tool:<name>
	Message        string          `json:"message,omitempty"` // what people are asked
	Parameters     json.RawMessage `json:"parameters,omitempty"`
	ResponseSchema json.RawMessage `json:"responseSchema,omitempty"`
	Mode           string          `json:"mode,omitempty"` // replay | result | pass

	Pending Pending `json:"pending,omitzero"` // the call that people see in the tool's place; by default the call itself
}

// Pending is the call that people see in the place of a suspended one: a decision may name its ID, too.
type Pending struct {
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}
