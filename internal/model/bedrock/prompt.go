package bedrock

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/document"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// prompt is what Converse and ConverseStream are both asked.
type systemPrompt struct {
	model     *string
	system    []types.SystemContentBlock
	messages  []types.Message
	inference *types.InferenceConfiguration
	tools     *types.ToolConfiguration
	output    *types.OutputConfig
	options   document.Interface
}

func newPrompt(r agent.Request) (systemPrompt, error) {
	r = r.WithNotices()
	p := systemPrompt{model: aws.String(r.Model.ID), system: system(r.System), inference: inference(r.Model)}
	var err error
	if p.messages, err = conversation(r.Model.ID, r.Messages); err != nil {
		return systemPrompt{}, err
	}
	if p.tools, err = tools(r); err != nil {
		return systemPrompt{}, err
	}
	if p.output, err = output(r.Output); err != nil {
		return systemPrompt{}, err
	}
	if len(r.Model.Options) > 0 {
		if !isObject(r.Model.Options) {
			return systemPrompt{}, modelError(agent.ModelInvalid, "model's options are not a JSON object")
		}
		p.options = verbatim(r.Model.Options)
	}
	p.mark(r.Model)
	return p, nil
}

func (p systemPrompt) converseInput() *bedrockruntime.ConverseInput {
	return &bedrockruntime.ConverseInput{
		ModelId: p.model, System: p.system, Messages: p.messages, InferenceConfig: p.inference, ToolConfig: p.tools, OutputConfig: p.output,
		AdditionalModelRequestFields: p.options,
	}
}

func (p systemPrompt) converseStreamInput() *bedrockruntime.ConverseStreamInput {
	return &bedrockruntime.ConverseStreamInput{
		ModelId: p.model, System: p.system, Messages: p.messages, InferenceConfig: p.inference, ToolConfig: p.tools, OutputConfig: p.output,
		AdditionalModelRequestFields: p.options,
	}
}

// system is nil where there is nothing to say: a blank text is refused.
func system(text string) []types.SystemContentBlock {
	if isBlank(text) {
		return nil
	}
	return []types.SystemContentBlock{&types.SystemContentBlockMemberText{Value: text}}
}

// outputName is a schema's name where the request has none.
const outputName = "output"

// output is nil for free text, and for JSON of any form, which Converse cannot be asked for.
func output(f agent.OutputFormat) (*types.OutputConfig, error) {
	if !f.JSON || len(f.Schema) == 0 {
		return nil, nil
	}
	if !isObject(f.Schema) {
		return nil, modelError(agent.ModelInvalid, "output "+errSchema.Error())
	}
	return &types.OutputConfig{TextFormat: &types.OutputFormat{
		Type: types.OutputFormatTypeJsonSchema,
		Structure: &types.OutputFormatStructureMemberJsonSchema{Value: types.JsonSchemaDefinition{
			Name: aws.String(cmp.Or(f.Name, outputName)), Schema: aws.String(string(f.Schema)),
		}},
	}}, nil
}

// inference is nil where the model's own defaults hold.
func inference(m agent.ModelSpec) *types.InferenceConfiguration {
	if m.MaxTokens <= 0 && m.Temperature == nil {
		return nil
	}
	c := &types.InferenceConfiguration{}
	if m.MaxTokens > 0 {
		c.MaxTokens = aws.Int32(int32(min(m.MaxTokens, math.MaxInt32)))
	}
	if m.Temperature != nil {
		c.Temperature = aws.Float32(float32(*m.Temperature))
	}
	return c
}

// withdrawn describes a tool that is in the conversation and not on offer.
const withdrawn = "This tool is not available any more. Do not call it."

// tools is nil where there are none. Converse refuses a conversation that has tool blocks in it and no tools beside it,
// and has no way to forbid calls: when a request offers no tools, the conversation's own are listed as withdrawn, in
// order of their first use. A model that calls one all the same calls a tool that the core does not know, which the
// gate refuses.
func tools(r agent.Request) (*types.ToolConfiguration, error) {
	specs := r.Tools
	if len(specs) == 0 {
		specs = usedTools(r.Messages)
	}
	if len(specs) == 0 {
		return nil, nil
	}
	c := &types.ToolConfiguration{}
	for i, s := range specs {
		schema, err := schemaOf(s)
		if err != nil {
			return nil, modelError(agent.ModelInvalid, fmt.Sprintf("tool %d %s", i, err))
		}
		t := types.ToolSpecification{Name: aws.String(s.ModelName()), InputSchema: schema}
		if !isBlank(s.Description) {
			t.Description = aws.String(s.Description)
		}
		c.Tools = append(c.Tools, &types.ToolMemberToolSpec{Value: t})
	}
	return c, nil
}

// schemaOf is a tool's schema; its error completes the sentence "tool 3 ...".
func schemaOf(s agent.ToolSpec) (types.ToolInputSchema, error) {
	text := s.Schema
	if len(text) == 0 {
		text = []byte(`{"type":"object","properties":{}}`)
	}
	if !isObject(text) {
		return nil, errSchema
	}
	return &types.ToolInputSchemaMemberJson{Value: verbatim(text)}, nil
}

func usedTools(messages []run.Message) []agent.ToolSpec {
	var specs []agent.ToolSpec
	seen := map[string]bool{}
	for _, m := range messages {
		if u, ok := m.Block.(run.ToolUse); ok && !seen[u.Name] {
			seen[u.Name] = true
			specs = append(specs, agent.ToolSpec{Name: u.Name, Description: withdrawn})
		}
	}
	return specs
}

// isBlank reports whether Bedrock treats a text as empty.
func isBlank(s string) bool { return strings.TrimSpace(s) == "" }
