package observe

import (
	"context"
	"encoding/json"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/countersign/countersign/internal/agent"

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

// Generate asks next.
func (m *model) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	ctx, span := m.span(ctx, "chat "+r.Model.ID, trace.SpanKindClient,
		keyKind.String(kindLLM), keyModel.String(r.Model.ID), keyProvider.String(r.Model.Provider),
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
		out = append(out, keyCacheRead.Int64(u.CacheRead),
			semconv.GenAIUsageCacheReadInputTokensKey.Int64(u.CacheRead))
	}
	if u.CacheWrite != 0 {
		out = append(out, keyCacheWrite.Int64(u.CacheWrite),
			semconv.GenAIUsageCacheCreationInputTokensKey.Int64(u.CacheWrite))
	}
	return out
}

// requestAttributes returns the attributes of a request.
func (h Hide) requestAttributes(r agent.Request) []attribute.KeyValue {
	var out []attribute.KeyValue
	if !h.Inputs && !h.InputMessages {
		out = h.messages(conversation(r))
	}
	if h.Inputs || h.Tools {
		return out
	}
	for i, t := range r.Tools {
		schema, err := run.MarshalVerbatim(toolJSON{t.ModelName(), t.Description, t.Schema})
		if err == nil { // a schema that is no JSON was refused long before
			out = append(out, toolSchemaKey(i).String(string(schema)))
		}
	}
	return out
}

// toolJSON is a tool as it was advertised.
type toolJSON struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

// message is one turn in the words of OpenInference.
type message struct {
	role, content string
	media         bool // content names media
	calls         []run.ToolUse
}

// conversation is the system text and the turns. What one side says in a row is one turn, but each result and each
// picture is one of its own.
func conversation(r agent.Request) []message {
	out := []message{{role: "system", content: r.System}}
	for _, m := range r.Messages {
		last := &out[len(out)-1]
		switch b := m.Block.(type) {
		case run.ToolUse:
			if last.role != string(run.RoleAssistant) {
				out = append(out, message{role: string(run.RoleAssistant)})
				last = &out[len(out)-1]
			}
			last.calls = append(last.calls, b)
		case run.ToolResult:
			out = append(out, message{role: "tool", content: b.Content})
		case run.Media:
			out = append(out, message{role: string(m.Role), content: blockText(b), media: true})
		case run.Text:
			out = append(out, message{role: string(m.Role), content: b.Text})
		}
	}
	if r.System == "" {
		return out[1:]
	}
	return out
}

// blockText is a block as text: of media, only their name and type.
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

func (h Hide) messages(turns []message) []attribute.KeyValue {
	var out []attribute.KeyValue
	for i, m := range turns {
		hidden := h.InputText
		if m.media {
			hidden = h.InputImages
		}
		out = append(out, keyRole(inputMessages, i).String(m.role))
		if m.content != "" {
			out = append(out, keyContent(inputMessages, i).String(hiddenOr(hidden, m.content)))
		}
		for j, c := range m.calls {
			out = append(out, callAttributes(inputMessages, i, j, c, h.InputText)...)
		}
	}
	return out
}

func callAttributes(prefix string, n, call int, c run.ToolUse, hidden bool) []attribute.KeyValue {
	return []attribute.KeyValue{
		toolCallKey(prefix, n, call, "id").String(c.ID), toolCallKey(prefix, n, call, "function.name").String(c.Name),
		toolCallKey(prefix, n, call, "function.arguments").String(hiddenOr(hidden, string(c.Input))),
	}
}

// replyAttributes returns the attributes of a reply.
func (h Hide) replyAttributes(r agent.Reply) []attribute.KeyValue {
	if h.Outputs || h.OutputMessages {
		return nil
	}
	out := []attribute.KeyValue{keyRole(outputMessages, 0).String(string(run.RoleAssistant))}
	if r.Text != "" {
		out = append(out, keyContent(outputMessages, 0).String(hiddenOr(h.OutputText, r.Text)))
	}
	for j, c := range r.Calls {
		out = append(out, callAttributes(outputMessages, 0, j, run.ToolUse{ID: c.ID, Name: c.Name, Input: c.Input}, h.OutputText)...)
	}
	return out
}
