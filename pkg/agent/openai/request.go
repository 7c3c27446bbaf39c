package openai

import (
	"bytes"
	"cmp"
	"encoding/json"

	"github.com/countersign/countersign/pkg/agent"
)

// chatRequest is the body of POST /chat/completions. The length goes out as max_tokens: max_completion_tokens is known
// to OpenAI alone, while every server takes the old name.
type chatRequest struct {
	Model         string        `json:"model"`
	Messages      []chatMessage `json:"messages"`
	Tools         []chatTool    `json:"tools,omitempty"`
	MaxTokens     int           `json:"max_tokens,omitempty"`
	Temperature   *float64      `json:"temperature,omitempty"`
	Format        *chatFormat   `json:"response_format,omitempty"`
	Stream        bool          `json:"stream"`
	StreamOptions streamOptions `json:"stream_options"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// chatMessage is a provider's message; Content is a string, []chatPart, or nil beside tool calls.
type chatMessage struct {
	Role       string     `json:"role"`
	Content    any        `json:"content"`
	ToolCalls  []chatCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type chatCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type chatPart struct {
	Type     string    `json:"type"`
	Text     *string   `json:"text,omitempty"`
	ImageURL *imageURL `json:"image_url,omitempty"`
	File     *fileData `json:"file,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

type fileData struct {
	Name string `json:"filename,omitempty"`
	Data string `json:"file_data"`
}

type chatTool struct {
	Type     string       `json:"type"`
	Function toolFunction `json:"function"`
}

type toolFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

// chatFormat is json_schema with a schema, or json_object without.
type chatFormat struct {
	Type   string      `json:"type"`
	Schema *chatSchema `json:"json_schema,omitempty"`
}

type chatSchema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
}

// outputName is a schema's name where the request has none.
const outputName = "output"

// format is nil for free text. It is not strict: strict servers refuse most schemas that were not written for them.
func format(f agent.OutputFormat) *chatFormat {
	switch {
	case !f.JSON:
		return nil
	case len(f.Schema) == 0:
		return &chatFormat{Type: "json_object"}
	}
	return &chatFormat{"json_schema", &chatSchema{cmp.Or(f.Name, outputName), f.Schema}}
}

// encode writes a request's body.
func encode(r agent.Request) ([]byte, error) {
	r = r.WithNotices()
	messages, err := conversation(r.System, r.Messages)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err = enc.Encode(chatRequest{
		Model:         r.Model.ID,
		Messages:      messages,
		Tools:         chatTools(r.Tools),
		MaxTokens:     r.Model.MaxTokens,
		Temperature:   r.Model.Temperature,
		Format:        format(r.Output),
		Stream:        true,
		StreamOptions: streamOptions{IncludeUsage: true},
	})
	if err != nil {
		return nil, failed(agent.ModelInvalid, "request cannot be written as JSON")
	}
	return b.Bytes(), nil
}

func chatTools(specs []agent.ToolSpec) []chatTool {
	tools := make([]chatTool, len(specs))
	for i, t := range specs {
		schema := t.Schema
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object","properties":{}}`)
		}
		tools[i] = chatTool{"function", toolFunction{t.ModelName(), t.Description, schema}}
	}
	return tools
}
