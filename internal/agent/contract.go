package agent

import (
	"encoding/json"
	"slices"
)

// contracts are services that people stand behind, with the forms of seed 003: an agent names them, and whoever serves their events
// answers in the form that the description gives.
var contracts = []ToolSpec{
	{
		Name: "human_review", Kind: KindService, Effect: EffectIdempotent, Priority: 2,
		Description: "Ask a person to review a plan, a draft or a question before you go on. They see the prompt alone: say in it all that " +
			"they need to know. Their answer is in response.",
		Schema: json.RawMessage(`{"type":"object","properties":{"source":{"type":"object","description":"Who asks.","properties":{"alias":{"type":"string"},"id":{"type":"string"}},"required":["id"],"additionalProperties":false},"prompt":{"type":"string","minLength":1}},"required":["source","prompt"],"additionalProperties":false}`),
	},
	{
		Name: "tool_approval", Kind: KindService, Effect: EffectIdempotent, Priority: 1,
		Description: "Ask for the approval of tools before you call them: name them all at once in tools, by the names you call them by, and " +
			"say in message what you mean to do with them. The answer says of each whether it is approved.",
		Schema: json.RawMessage(`{"type":"object","properties":{"message":{"type":"string","minLength":1},"tools":{"type":"array","items":{"type":"string"},"minItems":1}},"required":["message","tools"],"additionalProperties":false}`),
	},
}

// Contract finds a service that needs no schema of the agent's own: human_review {source {alias?, id}, prompt}, whose answer is
// {response}, and tool_approval {message, tools}, whose answer is {approvals: [{tool, value, comments?}]}.
func Contract(name string) (ToolSpec, bool) {
	i := slices.IndexFunc(contracts, func(t ToolSpec) bool { return t.Name == name })
	if i < 0 {
		return ToolSpec{}, false
	}
	return contracts[i], true
}
