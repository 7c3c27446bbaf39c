package prompt

import (
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/dialect"
)

// maxStreamed bounds how many runs' replies are parsed at once. Beyond that, some replies' pieces pass unparsed.
const maxStreamed = 1024

// TranslateTags translates the text of models that write their calls as text (DialectXML) and passes it to next: text,
// reasoning between thinking tags, and the first call, with its tool as soon as that is certain. Pieces of other models
// pass unchanged. Safe for concurrent use if next is; the pieces of one request come in order.
func TranslateTags(next agent.OnDelta) agent.OnDelta {
	h := &tagTranslator{next: next, replies: map[string]*streamedReply{}}
	return h.translate
}

type tagTranslator struct {
	next agent.OnDelta

	mu      sync.Mutex
	replies map[string]*streamedReply // by tenant and run: the newest reply
}

// streamedReply is a reply that is coming in.
type streamedReply struct {
	inference int64
	attempt   int
	tool      string // of its call, "" = not known yet
	text      dialect.ToolStream
}

func (h *tagTranslator) translate(r agent.Request, d agent.Delta) {
	if r.Model.Dialect != agent.DialectXML || d.Kind != agent.DeltaText {
		h.next(r, d)
		return
	}
	for _, piece := range h.deltas(r, d.Text) {
		h.next(r, piece)
	}
}

// deltas returns the deltas that are certain once this text has come in.
func (h *tagTranslator) deltas(r agent.Request, text string) []agent.Delta {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := r.Tenant + "/" + r.Run
	reply := h.replies[key]
	if reply == nil || reply.inference != r.Inference || reply.attempt != r.Attempt {
		if reply == nil && len(h.replies) == maxStreamed {
			clear(h.replies)
		}
		reply = &streamedReply{inference: r.Inference, attempt: r.Attempt}
		h.replies[key] = reply
	}
	var out []agent.Delta
	for _, d := range reply.text.Write(text) {
		if told, ok := reply.delta(d); ok {
			out = append(out, told)
		}
	}
	return out
}

// delta translates a delta between tags for listeners of any model. It returns false if there is nothing to report.
func (h *streamedReply) delta(d dialect.ToolDelta) (agent.Delta, bool) {
	switch d.Kind {
	case dialect.TagDeltaText:
		return agent.Delta{Kind: agent.DeltaText, Text: d.Text}, true
	case dialect.TagDeltaThinking:
		return agent.Delta{Kind: agent.DeltaReasoning, Text: d.Text}, true
	case dialect.TagDeltaToolStart:
		return agent.Delta{Kind: agent.DeltaCall}, true
	case dialect.TagDeltaToolName:
		h.tool = d.Text
		return agent.Delta{Kind: agent.DeltaCall, Name: h.tool}, true
	case dialect.TagDeltaTool:
		return agent.Delta{Kind: agent.DeltaCall, Name: h.tool, Text: d.Text}, true
	default:
		return agent.Delta{}, false
	}
}
