package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
)

// Model records every request to next as an LLM span. It belongs below the retries, so that each try is one. A nil
// Tracer gives next itself.
func (t *Tracer) Model(next runtime.Model) runtime.Model {
	if t == nil || next == nil {
		return next
	}
	return &model{t, next}
}

type model struct {
	*Tracer
	next runtime.Model
}

func (m *model) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	ctx, span := m.span(ctx, "chat "+r.Model.ID, trace.SpanKindClient,
		keyKind.String("LLM"), keyModel.String(r.Model.ID), keyProvider.String(r.Model.Provider),
		semconv.GenAIOperationNameChat, ModelProvider(r.Model.Provider),
		semconv.GenAIRequestModel(r.Model.ID))
	if span.IsRecording() {
		span.SetAttributes(m.hide.requestAttributes(r)...)
	}
	reply, err := m.next.Generate(ctx, r)
	if err != nil {
		markFailed(span, errorClass(err))
	} else if span.IsRecording() {
		if reply.Model != "" {
			span.SetAttributes(keyModel.String(reply.Model), semconv.GenAIResponseModel(reply.Model))
		}
		if reply.StopReason != "" {
			span.SetAttributes(keyFinish.String(reply.StopReason), semconv.GenAIResponseFinishReasons(reply.StopReason))
		}
		span.SetAttributes(tokens(reply.Usage)...)
		span.SetAttributes(m.hide.replyAttributes(reply)...)
	}
	m.end(span)
	return reply, err
}

// CountTokens counts with next. It is no request to a model and has no span.
func (m *model) CountTokens(ctx context.Context, r agent.Request) (int64, error) {
	return runtime.CountWith(ctx, m.next, r)
}

// tokens are the counts of a usage. The prompt's tokens are all of them, those of the cache too, as OpenInference and
// the GenAI conventions count.
func tokens(u run.Usage) []attribute.KeyValue {
	prompt := u.Input + u.CacheRead + u.CacheWrite
	out := []attribute.KeyValue{
		keyPromptTokens.Int64(prompt), keyReplyTokens.Int64(u.Output), keyTotalTokens.Int64(prompt + u.Output),
		semconv.GenAIUsageInputTokensKey.Int64(prompt), semconv.GenAIUsageOutputTokensKey.Int64(u.Output),
	}
	if u.CacheRead != 0 {
		out = append(out, keyCacheRead.Int64(u.CacheRead), semconv.GenAIUsageCacheReadInputTokensKey.Int64(u.CacheRead))
	}
	if u.CacheWrite != 0 {
		out = append(out, keyCacheWrite.Int64(u.CacheWrite),
			semconv.GenAIUsageCacheCreationInputTokensKey.Int64(u.CacheWrite))
	}
	return out
}

func (h Hide) requestAttributes(r agent.Request) []attribute.KeyValue {
	var out []attribute.KeyValue
	if !h.Inputs && !h.InputMessages {
		// The system text and the turns: the calls of one side in a row are one turn with what it says before them.
		n, calls, side := -1, 0, ""
		begin := func(role, content string, hidden bool) {
			n, calls, side = n+1, 0, role
			out = append(out, keyRole(inputMessages, n).String(role))
			if content != "" {
				out = append(out, keyContent(inputMessages, n).String(hiddenOr(hidden, content)))
			}
		}
		if r.System != "" {
			begin("system", r.System, h.InputText)
		}
		for _, m := range r.Messages {
			switch b := m.Block.(type) {
			case run.ToolUse:
				if side != string(run.RoleAssistant) {
					begin(string(run.RoleAssistant), "", false)
				}
				out = append(out, callAttributes(inputMessages, n, calls, b, h.InputText)...)
				calls++
			case run.ToolResult:
				begin("tool", b.Content, h.InputText)
			case run.Media:
				begin(string(m.Role), blockText(b), h.InputImages)
			case run.Text:
				begin(string(m.Role), b.Text, h.InputText)
			}
		}
	}
	if h.Inputs || h.Tools {
		return out
	}
	for i, t := range r.Tools {
		schema, err := jsonx.MarshalVerbatim(toolJSON{t.ModelName(), t.Description, t.Schema})
		if err == nil { // a schema that is no JSON was refused long before
			key := attribute.Key("llm.tools." + strconv.Itoa(i) + ".tool.json_schema")
			out = append(out, key.String(string(schema)))
		}
	}
	return out
}

type toolJSON struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// blockText returns a block as text: of media, only their name and type.
func blockText(b run.Block) string {
	switch b := b.(type) {
	case run.Text:
		return b.Text
	case run.ToolResult:
		return b.Content
	case run.Media:
		return strings.TrimSpace(b.Name + " (" + b.MediaType + ")")
	default:
		return ""
	}
}

func callAttributes(prefix string, n, call int, c run.ToolUse, hidden bool) []attribute.KeyValue {
	return []attribute.KeyValue{
		toolCallKey(prefix, n, call, "id").String(c.ID), toolCallKey(prefix, n, call, "function.name").String(c.Name),
		toolCallKey(prefix, n, call, "function.arguments").String(hiddenOr(hidden, string(c.Input))),
	}
}

func (h Hide) replyAttributes(r agent.Reply) []attribute.KeyValue {
	if h.Outputs || h.OutputMessages {
		return nil
	}
	out := []attribute.KeyValue{keyRole(outputMessages, 0).String(string(run.RoleAssistant))}
	if r.Text != "" {
		out = append(out, keyContent(outputMessages, 0).String(hiddenOr(h.OutputText, r.Text)))
	}
	for j, c := range r.Calls {
		out = append(out, callAttributes(outputMessages, 0, j, run.ToolUse{ID: c.ID, Name: c.Name, Input: c.Input},
			h.OutputText)...)
	}
	return out
}

// The attributes of OpenInference that are written. Those of OpenTelemetry's GenAI conventions stand beside them.
const (
	keyKind = attribute.Key("openinference.span.kind")

	keyInput   = attribute.Key("input.value")
	keyOutput  = attribute.Key("output.value")
	keySession = attribute.Key("session.id") // the run
	keyUser    = attribute.Key("user.id")    // the run's subject; of an approval, who decided
	keyAgent   = attribute.Key("agent.name")

	keyModel        = attribute.Key("llm.model_name")
	keyProvider     = attribute.Key("llm.provider")
	keyFinish       = attribute.Key("llm.finish_reason")
	keyPromptTokens = attribute.Key("llm.token_count.prompt")
	keyReplyTokens  = attribute.Key("llm.token_count.completion")
	keyTotalTokens  = attribute.Key("llm.token_count.total")
	keyCacheRead    = attribute.Key("llm.token_count.prompt_details.cache_read")
	keyCacheWrite   = attribute.Key("llm.token_count.prompt_details.cache_write")

	keyToolName       = attribute.Key("tool.name")
	keyToolID         = attribute.Key("tool.id")
	keyToolParameters = attribute.Key("tool.parameters")
)

// Two attributes of ours, for which OpenInference has none.
const (
	// GUARDRAIL: ask, deny, expire, void; of a person: approve, deny, edit, cancel
	keyVerdict = attribute.Key("countersign.verdict")
	keyReason  = attribute.Key("countersign.reason") // AGENT: the run's reason
)

// The prefixes of messages; an index and a name follow.
const (
	inputMessages  = "llm.input_messages."
	outputMessages = "llm.output_messages."
)

func keyRole(prefix string, n int) attribute.Key { return messageKey(prefix, n, "role") }

func keyContent(prefix string, n int) attribute.Key { return messageKey(prefix, n, "content") }

func messageKey(prefix string, n int, name string) attribute.Key {
	return attribute.Key(prefix + strconv.Itoa(n) + ".message." + name)
}

func toolCallKey(prefix string, n, call int, name string) attribute.Key {
	return messageKey(prefix, n, "tool_calls."+strconv.Itoa(call)+".tool_call."+name)
}

// Hide says what is kept out of spans, in the words of OpenInference's OPENINFERENCE_HIDE_* variables. The zero Hide
// hides nothing; see HideFromEnv for what holds where nobody said anything.
type Hide struct {
	Inputs         bool // input.value, tool.parameters, input messages, tool definitions
	Outputs        bool // output.value, output messages
	InputMessages  bool
	OutputMessages bool
	InputText      bool // text and tool arguments in input messages
	OutputText     bool // text and tool arguments in output messages
	InputImages    bool // names and types of media in input messages; their bytes are never written
	Tools          bool // tool definitions
}

// HideFromEnv reads OPENINFERENCE_HIDE_*. INPUTS and OUTPUTS are hidden unless their variable says false: agents that
// need a countersignature handle what not everybody with access to traces may read. The other switches are off unless
// they say true.
func HideFromEnv(getenv func(string) string) (Hide, error) {
	h := Hide{Inputs: true, Outputs: true}
	for name, to := range map[string]*bool{
		"INPUTS": &h.Inputs, "OUTPUTS": &h.Outputs, "INPUT_MESSAGES": &h.InputMessages, "OUTPUT_MESSAGES": &h.OutputMessages,
		"INPUT_TEXT": &h.InputText, "OUTPUT_TEXT": &h.OutputText, "INPUT_IMAGES": &h.InputImages, "LLM_TOOLS": &h.Tools,
	} {
		name = "OPENINFERENCE_HIDE_" + name
		v := strings.TrimSpace(getenv(name))
		if v == "" {
			continue
		}
		hide, err := strconv.ParseBool(strings.ToLower(v))
		if err != nil {
			return Hide{}, fmt.Errorf("%s: got %q, want true or false", name, v)
		}
		*to = hide
	}
	return h, nil
}

func (h Hide) input(v string) attribute.KeyValue { return keyInput.String(hiddenOr(h.Inputs, v)) }

func (h Hide) output(v string) attribute.KeyValue { return keyOutput.String(hiddenOr(h.Outputs, v)) }

func hiddenOr(hidden bool, v string) string {
	if hidden {
		return "__REDACTED__"
	}
	return v
}
