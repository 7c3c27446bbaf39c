package bedrock

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/countersign/countersign/internal/agent"
)

// markedMessages is how many of the user's messages, the newest, end in a cache point. The last is written for the next
// request, the one before it was written by the request before: a model that looks for nothing but its own points finds
// it there.
const markedMessages = 2

// mark puts cache points behind the parts of the prompt that the next request begins with too. All have the same life:
// a longer one must not stand behind a shorter one.
func (p *systemPrompt) mark(m agent.ModelSpec) {
	if m.Cache == "" || m.Cache == agent.CacheOff {
		return
	}
	// Five minutes is what a point has that says nothing, which every caching model takes.
	point := types.CachePointBlock{Type: types.CachePointTypeDefault}
	if m.Cache == agent.CacheOneHour {
		point.Ttl = types.CacheTTLOneHour
	}
	if p.system != nil {
		p.system = append(p.system, &types.SystemContentBlockMemberCachePoint{Value: point})
	}
	if p.tools != nil && cachesTools(m.ID) {
		p.tools.Tools = append(p.tools.Tools, &types.ToolMemberCachePoint{Value: point})
	}
	left := markedMessages
	for i := range slices.Backward(p.messages) {
		if said := &p.messages[i]; said.Role == types.ConversationRoleUser && left > 0 {
			said.Content = append(said.Content, &types.ContentBlockMemberCachePoint{Value: point})
			left--
		}
	}
}

// cachesTools reports whether the model takes a cache point among its tools. Nova does not; an application inference
// profile does not tell its model, and Claude's point behind the system prompt covers the tools before it as well.
func cachesTools(model string) bool { return strings.Contains(model, "anthropic.claude") }
