// Package bedrock asks models on Amazon Bedrock through Converse and ConverseStream. It is a thin adapter over the
// SDK's client: no retries (package modelretry), no fallbacks, no state.
//
// What it guarantees. Roles alternate, the user speaks first, and every tool_use it sends meets exactly one result. A
// stream counts as a reply only when it brought both messageStop and metadata: the SDK does not report every stream
// that was cut short. What was received of any other is its error's Partial, and whether that is a reply is for others
// to say. A content block that the SDK does not know adds nothing to a reply: some versions of the SDK repeat the block
// before it. No error text holds a credential, anything of the request, or anything the service wrote but the error
// codes of a list known here.
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
	converse       awssdk.Operation[bedrockruntime.ConverseInput, bedrockruntime.ConverseOutput, options]
	converseStream awssdk.Operation[bedrockruntime.ConverseStreamInput, bedrockruntime.ConverseStreamOutput, options]
	countTokens    awssdk.Operation[bedrockruntime.CountTokensInput, bedrockruntime.CountTokensOutput, options]
	invokeModel    awssdk.Operation[bedrockruntime.InvokeModelInput, bedrockruntime.InvokeModelOutput, options]
}

// Config says how models are asked. Only Client is required.
type Config struct {
	Client *Client
	// Stream asks through ConverseStream, else through Converse. Only a stream keeps a call's input byte for byte.
	Stream bool
	// OnDelta is told of replies as they arrive, one piece a block without Stream; nil = nobody is.
	OnDelta agent.OnDelta
	// Guardrail, as id:version, is what every request passes; "" = none.
	Guardrail string
}

// Model asks any model of one account and region. It is safe for concurrent use if OnDelta is.
type Model struct {
	client  *Client
	stream  bool
	onDelta agent.OnDelta
	// guardrail, in both forms; nil = none
	guardrail       *types.GuardrailConfiguration
	streamGuardrail *types.GuardrailStreamConfiguration
}

// New makes a model. It panics without a client, which is a programming error.
func New(c Config) *Model {
	if c.Client == nil {
		panic("bedrock: no client")
	}
	m := &Model{client: c.Client, stream: c.Stream, onDelta: c.OnDelta}
	if id, version, ok := strings.Cut(c.Guardrail, ":"); ok {
		m.guardrail = &types.GuardrailConfiguration{GuardrailIdentifier: &id, GuardrailVersion: &version}
		m.streamGuardrail = &types.GuardrailStreamConfiguration{GuardrailIdentifier: &id, GuardrailVersion: &version}
	}
	return m
}

// NewClient makes a client. The SDK itself reads one variable of the environment, AWS_BEARER_TOKEN_BEDROCK, and prefers
// that token to the configuration's credentials.
func NewClient(c aws.Config) *Client {
	client := bedrockruntime.NewFromConfig(c, func(o *options) {
		o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0 // Request.Model.Retry decides, and every request is counted
	})
	return &Client{client.Converse, client.ConverseStream, client.CountTokens, client.InvokeModel}
}

// Generate makes one request. Errors are *agent.ModelError, a context's deadline included (ModelTimeout); a context
// that was cancelled is returned as its error. A cause may have a method RetryAfter() time.Duration. A request that
// names a Model.BaseURL is ModelInvalid: the client's endpoint is the only one.
//
// A streamed call's Input is what the model wrote, byte for byte, JSON or not; without Stream the SDK has decoded it:
// digits are kept, keys are sorted, and of a key that came twice the last is there. No input at all counts as {}.
// Reply.Model is the request's model, or the one that a prompt router says it chose. Usage.Input excludes cached
// tokens, as Bedrock's does.
func (m *Model) Generate(ctx context.Context, r agent.Request) (_ agent.Reply, err error) {
	defer func() { modelretry.NameModel(err, r.Model.ID) }()
	if err := ctx.Err(); err != nil {
		return agent.Reply{}, callFailure(ctx, err)
	}
	if r.Model.BaseURL != "" {
		return agent.Reply{}, modelError(agent.ModelInvalid, "request is for another server")
	}
	p, err := newPrompt(r)
	if err != nil {
		return agent.Reply{}, err
	}
	a := newAssembly(r.Model.ID, func(d agent.Delta) {
		if m.onDelta != nil {
			m.onDelta(r, d)
		}
	})
	if m.stream {
		err = m.converseStream(ctx, p, a)
	} else {
		err = m.converse(ctx, p, a)
	}
	if err != nil {
		return agent.Reply{}, err
	}
	return a.reply()
}

func (m *Model) converse(ctx context.Context, p systemPrompt, a *assembly) error {
	out, err := m.client.converse(ctx, &bedrockruntime.ConverseInput{
		ModelId: p.model, System: p.system, Messages: p.messages, InferenceConfig: p.inference, ToolConfig: p.tools,
		OutputConfig: p.output, AdditionalModelRequestFields: p.options, GuardrailConfig: m.guardrail,
	})
	if err != nil {
		return callFailure(ctx, err)
	}
	// Take a reply that came in one piece.
	message, ok := out.Output.(*types.ConverseOutputMemberMessage)
	if !ok || out.StopReason == "" {
		return modelError(agent.ModelInvalid, "reply has no message or no stop reason")
	}
	if err := a.addBlocks(message.Value.Content); err != nil {
		return err
	}
	a.stop = modelretry.Clip(string(out.StopReason))
	a.usage = tokens(out.Usage)
	if out.Trace != nil {
		a.addRoute(out.Trace.PromptRouter)
	}
	return nil
}

func (m *Model) converseStream(ctx context.Context, p systemPrompt, a *assembly) error {
	out, err := m.client.converseStream(ctx, &bedrockruntime.ConverseStreamInput{
		ModelId: p.model, System: p.system, Messages: p.messages, InferenceConfig: p.inference, ToolConfig: p.tools,
		OutputConfig: p.output, AdditionalModelRequestFields: p.options, GuardrailConfig: m.streamGuardrail,
	})
	if err != nil {
		return callFailure(ctx, err)
	}
	stream := out.GetStream()
	defer func() { _ = stream.Close() }() // its error is the stream's, which readStream has looked at
	return a.interrupted(readStream(ctx, stream, a))
}
