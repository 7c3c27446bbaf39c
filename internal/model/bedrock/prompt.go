package bedrock

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/document"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/model/modelretry"
	"github.com/countersign/countersign/internal/tool"
)

// newPrompt is the request for a reply, which can only go to the client's own endpoint.
func newPrompt(ctx context.Context, r agent.Request) (*bedrockruntime.ConverseStreamInput, error) {
	switch {
	case ctx.Err() != nil:
		return nil, callFailure(ctx, ctx.Err())
	case r.Model.BaseURL != "":
		return nil, modelError(agent.ModelInvalid, "request is for another server")
	}
	if f := r.Output; f.JSON && isObject(f.Schema) && !takesForm(r.Model.ID, f.Schema) {
		r = r.WithJSONAsked()
	}
	r = r.WithNotices()
	p := &bedrockruntime.ConverseStreamInput{ModelId: aws.String(r.Model.ID)}
	if !isBlank(r.System) { // a blank text is refused
		p.System = []types.SystemContentBlock{&types.SystemContentBlockMemberText{Value: r.System}}
	}
	if m := r.Model; m.MaxTokens > 0 || m.Temperature != nil { // else the model's own defaults hold
		p.InferenceConfig = &types.InferenceConfiguration{}
		if m.MaxTokens > 0 {
			p.InferenceConfig.MaxTokens = aws.Int32(int32(min(m.MaxTokens, math.MaxInt32)))
		}
		if m.Temperature != nil {
			p.InferenceConfig.Temperature = aws.Float32(float32(*m.Temperature))
		}
	}
	var err error
	if p.Messages, err = conversation(r.Model.ID, r.Messages); err != nil {
		return nil, err
	}
	if p.ToolConfig, err = tools(r); err != nil {
		return nil, err
	}
	if f := r.Output; f.JSON && len(f.Schema) > 0 { // Converse cannot be asked for JSON of any form
		if !isObject(f.Schema) {
			return nil, modelError(agent.ModelInvalid, "output "+errSchema.Error())
		}
		p.OutputConfig = &types.OutputConfig{TextFormat: &types.OutputFormat{
			Type: types.OutputFormatTypeJsonSchema,
			Structure: &types.OutputFormatStructureMemberJsonSchema{Value: types.JsonSchemaDefinition{
				Name: aws.String(cmp.Or(f.Name, "output")), Schema: aws.String(string(f.Schema)),
			}},
		}}
	}
	if len(r.Model.Options) > 0 {
		if !isObject(r.Model.Options) {
			return nil, modelError(agent.ModelInvalid, "model's options are not a JSON object")
		}
		p.AdditionalModelRequestFields = verbatim(withoutThinking(r.Model, p.Messages))
	}
	mark(p, r.Model)
	return p, nil
}

var (
	// withoutForms matches the ids of models that refuse a request with a form of the reply.
	withoutForms = regexp.MustCompile(`amazon\.nova|meta\.llama|pixtral|claude-(v|instant|3|(opus|sonnet)-4-(1-|2))`)
	// refusedInForms are the keywords that Claude refuses in a form. It takes a $ref only if the schema does not recur,
	// which is not looked at.
	refusedInForms = []string{
		"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "maxItems",
		"$ref",
	}
)

// takesForm reports whether a model takes a schema as the form of its reply. Many models take none. Claude takes one
// whose objects are closed and that has none of refusedInForms.
func takesForm(id string, schema json.RawMessage) bool {
	decoded, err := jsonx.DecodeNumbers(schema)
	return err == nil && !withoutForms.MatchString(id) &&
		(!strings.Contains(id, "anthropic.claude") || claudeTakes(decoded, false))
}

// claudeTakes reports whether Claude takes a part of a schema, or, with byName, the parts that stand under names, such
// as those of properties.
func claudeTakes(part any, byName bool) bool {
	if list, ok := part.([]any); ok {
		return !slices.ContainsFunc(list, func(v any) bool { return !claudeTakes(v, false) })
	}
	object, _ := part.(map[string]any)
	_, properties := object["properties"]
	if !byName && (properties || object["type"] == "object") && object["additionalProperties"] != false {
		return false
	}
	for key, value := range object {
		if !byName && slices.Contains(refusedInForms, key) ||
			!claudeTakes(value, !byName && slices.Contains([]string{"properties", "$defs", "definitions"}, key)) {
			return false
		}
	}
	return true
}

// tools is nil where there are none. Converse refuses a conversation that has tool blocks in it and no tools beside it,
// and has no way to forbid calls. A model that calls a withdrawn tool all the same calls one that the core does not
// know, which the gate refuses.
func tools(r agent.Request) (*types.ToolConfiguration, error) {
	specs := modelretry.OfferedTools(r)
	if len(specs) == 0 {
		return nil, nil
	}
	c := &types.ToolConfiguration{}
	allows := func(keyword string) bool { return !slices.Contains(tool.Combining, keyword) }
	if strings.Contains(r.Model.ID, "amazon.nova") {
		allows = func(keyword string) bool { return slices.Contains([]string{"type", "properties", "required"}, keyword) }
	}
	for i, s := range specs {
		description, schema := tool.ForModel(s, allows)
		if !isObject(schema) {
			return nil, modelError(agent.ModelInvalid, fmt.Sprintf("tool %d %s", i, errSchema))
		}
		t := types.ToolSpecification{
			Name: aws.String(s.ModelName()), InputSchema: &types.ToolInputSchemaMemberJson{Value: verbatim(schema)},
		}
		if !isBlank(description) {
			t.Description = aws.String(description)
		}
		c.Tools = append(c.Tools, &types.ToolMemberToolSpec{Value: t})
	}
	return c, nil
}

// withoutThinking returns a model's options, for Claude without the thinking that is on in a turn of calls that began
// without reasoning, as another model of the chain or a reply without its proof leaves it: Claude refuses to go on.
func withoutThinking(m agent.ModelSpec, messages []types.Message) json.RawMessage {
	first := len(messages) - 1
	for ; first >= 0; first -= 2 { // the user's messages, to the one that the turn answers
		if _, result := messages[first].Content[0].(*types.ContentBlockMemberToolResult); !result {
			break
		}
	}
	var options map[string]json.RawMessage
	var thinking struct{ Type string }
	if first++; first >= len(messages) || !strings.Contains(m.ID, "anthropic.claude") ||
		json.Unmarshal(m.Options, &options) != nil || json.Unmarshal(options["thinking"], &thinking) != nil ||
		thinking.Type != "enabled" {
		return m.Options
	}
	if _, thinks := messages[first].Content[0].(*types.ContentBlockMemberReasoningContent); thinks {
		return m.Options
	}
	delete(options, "thinking")
	without, err := jsonx.MarshalVerbatim(options)
	if err != nil {
		return m.Options
	}
	return without
}

// isBlank reports whether Bedrock treats a text as empty.
func isBlank(s string) bool { return strings.TrimSpace(s) == "" }

// mark puts cache points behind the parts of the prompt that the next request begins with too. All have the same life:
// a longer one must not stand behind a shorter one.
func mark(p *bedrockruntime.ConverseStreamInput, m agent.ModelSpec) {
	if m.Cache == "" || m.Cache == agent.CacheOff {
		return
	}
	// Five minutes is what a point has that says nothing, which every caching model takes.
	point := types.CachePointBlock{Type: types.CachePointTypeDefault}
	if m.Cache == agent.CacheOneHour {
		point.Ttl = types.CacheTTLOneHour
	}
	if p.System != nil {
		p.System = append(p.System, &types.SystemContentBlockMemberCachePoint{Value: point})
	}
	// Nova takes no cache point among its tools. An application inference profile does not tell its model, and Claude's
	// point behind the system prompt covers the tools before it as well.
	if p.ToolConfig != nil && strings.Contains(m.ID, "anthropic.claude") {
		p.ToolConfig.Tools = append(p.ToolConfig.Tools, &types.ToolMemberCachePoint{Value: point})
	}
	// The newest two of the user's messages end in a point. The last is written for the next request, the other was
	// written by the request before: a model that looks for nothing but its own points finds it there. Nova refuses a
	// point behind a tool's result, a picture or a document.
	left := 2
	for i := range slices.Backward(p.Messages) {
		said := &p.Messages[i]
		_, text := said.Content[len(said.Content)-1].(*types.ContentBlockMemberText)
		if said.Role == types.ConversationRoleUser && left > 0 && (text || !strings.Contains(m.ID, "amazon.nova")) {
			said.Content = append(said.Content, &types.ContentBlockMemberCachePoint{Value: point})
			left--
		}
	}
}

// CountTokens is how many tokens of input r would be charged for: system text, conversation and tools, as Generate
// would send them. It asks the service once and costs nothing. Errors are those of Generate; a model that the service
// cannot count for is ModelInvalid. The form of the output that r wants is not counted: the service does not take it
// here.
func (m Model) CountTokens(ctx context.Context, r agent.Request) (_ int64, err error) {
	defer func() { modelretry.NameModel(err, r.Model.ID) }()
	p, err := newPrompt(ctx, r)
	if err != nil {
		return 0, err
	}
	out, err := m.Client.countTokens(ctx, &bedrockruntime.CountTokensInput{
		ModelId: p.ModelId, Input: &types.CountTokensInputMemberConverse{Value: types.ConverseTokensRequest{
			Messages: p.Messages, System: p.System, ToolConfig: p.ToolConfig,
			AdditionalModelRequestFields: p.AdditionalModelRequestFields,
		}},
	})
	if err != nil {
		return 0, callFailure(ctx, err)
	}
	if out.InputTokens == nil || *out.InputTokens < 0 {
		return 0, modelError(agent.ModelInvalid, "reply has no count")
	}
	return int64(aws.ToInt32(out.InputTokens)), nil
}

var errSchema = errors.New("has a schema that is not a JSON object")

// jsonText is a document that is sent byte for byte. The SDK's own documents are Go values: to make one of JSON sorts
// its keys and, unless every number is turned into the SDK's kind, rounds its digits. The embedded document is there
// for the other methods of one and is not used.
type jsonText struct {
	document.Interface
	text []byte
}

// verbatim makes a document of JSON that the caller has checked.
func verbatim(text []byte) document.Interface {
	return jsonText{document.NewLazyDocument(nil), text}
}

func (j jsonText) MarshalSmithyDocument() ([]byte, error) { return j.text, nil }

// isObject reports whether a text is one JSON object.
func isObject(text []byte) bool {
	return json.Valid(text) && bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{"))
}
