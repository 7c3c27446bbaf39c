package bedrock

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/countersign/countersign/internal/agent"
)

// Counter is the part of *bedrockruntime.Client that counts tokens. It must be safe for concurrent use.
type Counter interface {
	CountTokens(ctx context.Context, in *bedrockruntime.CountTokensInput, opts ...func(*bedrockruntime.Options)) (*bedrockruntime.CountTokensOutput, error)
}

// CountTokens is how many tokens of input r would be charged for: system text, conversation and tools, as Generate
// would send them. It asks the service once and costs nothing. Errors are those of Generate; a model that the service
// cannot count for, and a client that is no Counter, is ModelInvalid. The form of the output that r wants is not
// counted: the service does not take it here.
func (m *Model) CountTokens(ctx context.Context, r agent.Request) (int64, error) {
	n, err := m.count(ctx, r)
	var failure *agent.ModelError
	if errors.As(err, &failure) {
		failure.Model = r.Model.ID
	}
	return n, err
}

func (m *Model) count(ctx context.Context, r agent.Request) (int64, error) {
	counter, ok := m.client.(Counter)
	switch {
	case !ok:
		return 0, modelError(agent.ModelInvalid, "client counts no tokens")
	case ctx.Err() != nil:
		return 0, callFailure(ctx, ctx.Err())
	case r.Model.BaseURL != "":
		return 0, modelError(agent.ModelInvalid, "request is for another server")
	}
	p, err := newPrompt(r)
	if err != nil {
		return 0, err
	}
	out, err := counter.CountTokens(ctx, &bedrockruntime.CountTokensInput{ModelId: p.model, Input: &types.CountTokensInputMemberConverse{
		Value: types.ConverseTokensRequest{Messages: p.messages, System: p.system, ToolConfig: p.tools, AdditionalModelRequestFields: p.options},
	}}, disableRetries)
	if err != nil {
		return 0, callFailure(ctx, err)
	}
	if out.InputTokens == nil || *out.InputTokens < 0 {
		return 0, modelError(agent.ModelInvalid, "reply has no count")
	}
	return int64(aws.ToInt32(out.InputTokens)), nil
}
