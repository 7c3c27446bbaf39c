package observe

import (
	"strconv"

	"go.opentelemetry.io/otel/attribute"
)

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
	keyVerdict = attribute.Key("countersign.verdict") // GUARDRAIL: ask, deny, expire, void; of a person: approve, deny, edit, cancel
	keyReason  = attribute.Key("countersign.reason")  // AGENT: the run's reason
)

// The kinds of spans.
const (
	kindAgent     = "AGENT"
	kindChain     = "CHAIN"
	kindLLM       = "LLM"
	kindTool      = "TOOL"
	kindGuardrail = "GUARDRAIL"
)

// The prefixes of messages and tools; an index and a name follow.
const (
	inputMessages  = "llm.input_messages."
	outputMessages = "llm.output_messages."
	llmTools       = "llm.tools."
)

func keyRole(prefix string, n int) attribute.Key { return messageKey(prefix, n, "role") }

func keyContent(prefix string, n int) attribute.Key { return messageKey(prefix, n, "content") }

func messageKey(prefix string, n int, name string) attribute.Key {
	return attribute.Key(prefix + strconv.Itoa(n) + ".message." + name)
}

func toolCallKey(prefix string, n, call int, name string) attribute.Key {
	return messageKey(prefix, n, "tool_calls."+strconv.Itoa(call)+".tool_call."+name)
}

func toolSchemaKey(n int) attribute.Key {
	return attribute.Key(llmTools + strconv.Itoa(n) + ".tool.json_schema")
}
