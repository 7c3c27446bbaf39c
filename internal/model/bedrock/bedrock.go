// Package bedrock asks models on Amazon Bedrock through ConverseStream. It is a thin adapter over the SDK's client: no
// retries (package modelretry), no fallbacks, no state.
//
// What it guarantees. Roles alternate, the user speaks first, and every tool_use it sends meets exactly one result. A
// stream counts as a reply only when it brought both messageStop and metadata: the SDK does not report every stream
// that was cut short. What was received of any other is its error's Partial, and whether that is a reply is for others
// to say. A content block that the SDK does not know adds nothing to a reply. No error text holds a credential,
// anything of the request, or anything the service wrote but the error codes of a list known here.
//
// Reasoning. A reply's reasoning is kept byte for byte and sent back where it stood, to the very model that wrote it
// and only with the proof it came with, a signature or redacted content: Bedrock refuses reasoning without one, and a
// model that of another. What ends a turn with reasoning is not sent back either: Bedrock refuses such turns too. A
// prompt router may ask another model the next time; what its models reasoned bears their names and is not sent.
//
// Caching. Model.Cache puts cache points behind the system prompt, the tools (Claude's alone take one there) and the
// last two messages of the user's, so that each request reads what the one before it wrote. They are four, which is all
// that Bedrock takes. Models that cannot cache refuse such requests.
package bedrock

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/awssdk"
	"github.com/countersign/countersign/internal/model/modelretry"
)

type options = bedrockruntime.Options

// Client is the operations of the SDK's client that are used. Make one with NewClient. Safe for concurrent use.
type Client struct {
	converseStream awssdk.Operation[bedrockruntime.ConverseStreamInput, bedrockruntime.ConverseStreamOutput, options]
	countTokens    awssdk.Operation[bedrockruntime.CountTokensInput, bedrockruntime.CountTokensOutput, options]
	invokeModel    awssdk.Operation[bedrockruntime.InvokeModelInput, bedrockruntime.InvokeModelOutput, options]
}

// Model asks any model of one account and region. It is safe for concurrent use if OnDelta is.
type Model struct {
	Client  *Client       // required
	OnDelta agent.OnDelta // is told of replies as they arrive; nil = nobody is
	// Guardrail, as id:version, is what every request for a reply passes; "" = none.
	Guardrail string
}

// NewClient makes a client. The SDK itself reads one variable of the environment, AWS_BEARER_TOKEN_BEDROCK, and prefers
// that token to the configuration's credentials.
func NewClient(c aws.Config) *Client {
	client := bedrockruntime.NewFromConfig(c, func(o *options) {
		o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0 // Request.Model.Retry decides, and every request is counted
	})
	return &Client{client.ConverseStream, client.CountTokens, client.InvokeModel}
}

// Generate makes one request. Errors are *agent.ModelError, a context's deadline included (ModelTimeout); a context
// that was cancelled is returned as its error. A cause may have a method RetryAfter() time.Duration. A request that
// names a Model.BaseURL is ModelInvalid: the client's endpoint is the only one.
//
// A call's Input is what the model wrote, byte for byte, JSON or not; none at all counts as {}, unless a limit cut the
// reply there. Reply.Model is the request's model, or the one that a prompt router says it chose. Usage.Input excludes
// cached tokens, as Bedrock's does.
func (m Model) Generate(ctx context.Context, r agent.Request) (_ agent.Reply, err error) {
	defer func() { modelretry.NameModel(err, r.Model.ID) }()
	in, err := newPrompt(ctx, r)
	if err != nil {
		return agent.Reply{}, err
	}
	if id, version, ok := strings.Cut(m.Guardrail, ":"); ok {
		in.GuardrailConfig = &types.GuardrailStreamConfiguration{GuardrailIdentifier: &id, GuardrailVersion: &version}
	}
	out, err := m.Client.converseStream(ctx, in)
	if err != nil {
		return agent.Reply{}, callFailure(ctx, err)
	}
	stream := out.GetStream()
	defer func() { _ = stream.Close() }() // its error is the stream's, which readStream has looked at
	a := newAssembly(r.Model.ID, func(d agent.Delta) {
		if m.OnDelta != nil {
			m.OnDelta(r, d)
		}
	})
	if err := readStream(ctx, stream, a); err != nil {
		return agent.Reply{}, a.interrupted(err)
	}
	return a.reply()
}
