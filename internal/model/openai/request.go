package openai

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/model/modelretry"
	"github.com/countersign/countersign/internal/tool"
)

// chatRequest is the body of POST /chat/completions. The length goes out under the name that the server knows: OpenAI's
// current models refuse max_tokens, and other servers know nothing else.
type chatRequest struct {
	Model         string        `json:"model"`
	Messages      []chatMessage `json:"messages"`
	Tools         []chatTool    `json:"tools,omitempty"`
	MaxTokens     int           `json:"max_tokens,omitempty"`
	MaxCompletion int           `json:"max_completion_tokens,omitempty"`
	Temperature   *float64      `json:"temperature,omitempty"`
	Format        *chatFormat   `json:"response_format,omitempty"`
	Stream        bool          `json:"stream"`
	// StreamOptions ask for usage; Mistral refuses them, and tells it unasked.
	StreamOptions map[string]bool `json:"stream_options,omitempty"`
}

// chatMessage is a provider's message; Content is a string, []chatPart, or nil beside tool calls.
type chatMessage struct {
	Role       string     `json:"role"`
	Content    any        `json:"content"`
	ToolCalls  []chatCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`

	ReasoningContent string          `json:"reasoning_content,omitempty"`
	Reasoning        string          `json:"reasoning,omitempty"`
	Details          json.RawMessage `json:"reasoning_details,omitempty"`
	Blocks           json.RawMessage `json:"thinking_blocks,omitempty"`
}

type chatCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`

	Extra json.RawMessage `json:"extra_content,omitempty"`
}

type chatFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type chatPart struct {
	Type     string            `json:"type"`
	Text     *string           `json:"text,omitempty"`
	ImageURL map[string]string `json:"image_url,omitempty"` // url
	File     map[string]string `json:"file,omitempty"`      // filename, which must not be empty, and file_data
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

// maxDescription is how many characters of a tool's description OpenAI and Azure take.
const maxDescription = 1024

// encodeRequest encodes the body of a request for the server at its model's base URL.
func encodeRequest(r agent.Request) ([]byte, error) {
	if r.Output.JSON && !takesForm(r) {
		r = r.WithJSONAsked()
	}
	r = r.WithNotices()
	if strings.Contains(r.Model.ID, "claude") || strings.Contains(r.Model.ID, "nova") { // Bedrock's, behind a gateway
		r.Tools = modelretry.OfferedTools(r)
	}
	tools := make([]chatTool, len(r.Tools))
	kimi := strings.Contains(strings.ToLower(r.Model.ID), "kimi") || isHostedAt(r.Model.BaseURL, moonshot...)
	strict := kimi || isOpenAI(r.Model.BaseURL) || strings.Contains(r.Model.ID, "claude")
	for i, t := range r.Tools {
		description, schema := tool.ForModel(t, func(keyword string) bool {
			return !strict || !slices.Contains(tool.Combining, keyword)
		})
		if begins := []rune(description); isOpenAI(r.Model.BaseURL) && len(begins) > maxDescription {
			const more = " […] All of it is in the instructions."
			r.System += "\n\nThe tool " + t.ModelName() + ": " + description
			description = string(begins[:maxDescription-len([]rune(more))]) + more
		}
		if kimi {
			schema = tool.TypeBranches(schema)
		}
		tools[i] = chatTool{"function", toolFunction{t.ModelName(), description, schema}}
	}
	messages, err := conversation(r.Model, r.System, r.Messages)
	if err != nil {
		return nil, err
	}
	body := chatRequest{
		Model: r.Model.ID, Messages: messages, Tools: tools, Temperature: r.Model.Temperature, Stream: true,
	}
	if !isHostedAt(r.Model.BaseURL, "mistral.ai") {
		body.StreamOptions = map[string]bool{"include_usage": true}
	}
	if f := r.Output; f.JSON { // nothing is strict: strict servers refuse most schemas that were not written for them
		body.Format = &chatFormat{Type: "json_object"}
		if len(f.Schema) > 0 {
			body.Format = &chatFormat{"json_schema", &chatSchema{cmp.Or(f.Name, "output"), f.Schema}}
		}
	}
	// Only OpenAI and Azure know the newer name of the limit of a reply's tokens, and they want it.
	if isOpenAI(r.Model.BaseURL) {
		body.MaxCompletion = r.Model.MaxTokens
	} else {
		body.MaxTokens = r.Model.MaxTokens
	}
	data, err := marshal(body)
	if err != nil || len(r.Model.Options) == 0 {
		return data, err
	}
	// Each of the definition's options stands for the field of its name, and null takes that out.
	var fields, own map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil || json.Unmarshal(r.Model.Options, &own) != nil {
		return nil, modelError(agent.ModelInvalid, "options are not an object")
	}
	for key, value := range own {
		fields[key] = value
		if string(value) == "null" {
			delete(fields, key)
		}
	}
	return marshal(fields)
}

// takesForm reports whether a service takes the output's form as an option, and the model may call tools all the same.
func takesForm(r agent.Request) bool {
	base, schema := r.Model.BaseURL, r.Output.Schema
	switch {
	case isOpenAI(base): // it wants an object at the top, and no branches
		var top map[string]json.RawMessage
		combined := func(keyword string) bool { return top[keyword] != nil }
		return len(schema) == 0 || json.Unmarshal(schema, &top) == nil && scalarText(top["type"]) == "object" &&
			!slices.ContainsFunc(tool.Combining, combined)
	case len(r.Tools) > 0: // Groq and Gemini 2 refuse both, and with Ollama and vLLM the form forbids calls
		return false
	case len(schema) == 0:
		return !strings.Contains(base, ":1234") // LM Studio's port, which knows schemas alone
	}
	return !isHostedAt(base, "deepseek.com", "groq.com", "z.ai", "bigmodel.cn") // which take none, or few
}

func marshal(v any) ([]byte, error) {
	body, err := jsonx.MarshalVerbatim(v)
	if err != nil {
		return nil, modelError(agent.ModelInvalid, "request cannot be written as JSON")
	}
	return body, nil
}
