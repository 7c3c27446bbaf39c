package bedrock

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
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
	p := systemPrompt{model: aws.String(r.Model.ID)}
	if !isBlank(r.System) { // a blank text is refused
		p.system = []types.SystemContentBlock{&types.SystemContentBlockMemberText{Value: r.System}}
	}
	if m := r.Model; m.MaxTokens > 0 || m.Temperature != nil { // else the model's own defaults hold
		p.inference = &types.InferenceConfiguration{}
		if m.MaxTokens > 0 {
			p.inference.MaxTokens = aws.Int32(int32(min(m.MaxTokens, math.MaxInt32)))
		}
		if m.Temperature != nil {
			p.inference.Temperature = aws.Float32(float32(*m.Temperature))
		}
	}
	var err error
	if p.messages, err = conversation(r.Model.ID, r.Messages); err != nil {
		return systemPrompt{}, err
	}
	if p.tools, err = tools(r); err != nil {
		return systemPrompt{}, err
	}
	if f := r.Output; f.JSON && len(f.Schema) > 0 { // Converse cannot be asked for JSON of any form
		if !isObject(f.Schema) {
			return systemPrompt{}, modelError(agent.ModelInvalid, "output "+errSchema.Error())
		}
		p.output = &types.OutputConfig{TextFormat: &types.OutputFormat{
			Type: types.OutputFormatTypeJsonSchema,
			Structure: &types.OutputFormatStructureMemberJsonSchema{Value: types.JsonSchemaDefinition{
				Name: aws.String(cmp.Or(f.Name, outputName)), Schema: aws.String(string(f.Schema)),
			}},
		}}
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

// outputName is a schema's name where the request has none.
const outputName = "output"

// withdrawn describes a tool that is in the conversation and not on offer.
const withdrawn = "This tool is not available any more. Do not call it."

// tools is nil where there are none. Converse refuses a conversation that has tool blocks in it and no tools beside it,
// and has no way to forbid calls: when a request offers no tools, the conversation's own are listed as withdrawn, in
// order of their first use. A model that calls one all the same calls a tool that the core does not know, which the
// gate refuses.
func tools(r agent.Request) (*types.ToolConfiguration, error) {
	specs := r.Tools
	if len(specs) == 0 {
		seen := map[string]bool{}
		for _, m := range r.Messages {
			if u, ok := m.Block.(run.ToolUse); ok && !seen[u.Name] {
				seen[u.Name] = true
				specs = append(specs, agent.ToolSpec{Name: u.Name, Description: withdrawn})
			}
		}
	}
	if len(specs) == 0 {
		return nil, nil
	}
	c := &types.ToolConfiguration{}
	for i, s := range specs {
		schema := s.Schema
		if len(schema) == 0 {
			schema = []byte(`{"type":"object","properties":{}}`)
		}
		if !isObject(schema) {
			return nil, modelError(agent.ModelInvalid, fmt.Sprintf("tool %d %s", i, errSchema))
		}
		t := types.ToolSpecification{
			Name: aws.String(s.ModelName()), InputSchema: &types.ToolInputSchemaMemberJson{Value: verbatim(schema)},
		}
		if !isBlank(s.Description) {
			t.Description = aws.String(s.Description)
		}
		c.Tools = append(c.Tools, &types.ToolMemberToolSpec{Value: t})
	}
	return c, nil
}

// isBlank reports whether Bedrock treats a text as empty.
func isBlank(s string) bool { return strings.TrimSpace(s) == "" }
