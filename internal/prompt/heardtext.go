package prompt

import (
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/dialect"
)

// maxHeard bounds how many runs' replies are taken apart at once. Where there are more, the pieces of some are told as
// they come.
const maxHeard = 1024

// HearTags tells next of the replies of models that write their calls as text (DialectXML) as what they are: text,
// reasoning between thinking tags, and the first call, its tool as soon as that can be told. Pieces of other models
// pass as they come. Safe for concurrent use if next is; the pieces of one request come in order.
func HearTags(next agent.OnDelta) agent.OnDelta {
	h := &tagHearing{next: next, heard: map[string]*heardReply{}}
	return h.hear
}

type tagHearing struct {
	next agent.OnDelta

	mu    sync.Mutex
	heard map[string]*heardReply // by tenant and run: the newest reply
}

// heardReply is a reply that is coming in.
type heardReply struct {
	inference int64
	attempt   int
	tool      string // of its call, "" = not known yet
	text      dialect.ToolStream
}

func (h *tagHearing) hear(r agent.Request, d agent.Delta) {
	if r.Model.Dialect != agent.DialectXML || d.Kind != agent.DeltaText {
		h.next(r, d)
		return
	}
	for _, piece := range h.taken(r, d.Text) {
		h.next(r, piece)
	}
}

// taken is what the piece makes certain.
func (h *tagHearing) taken(r agent.Request, text string) []agent.Delta {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := r.Tenant + "/" + r.Run
	reply := h.heard[key]
	if reply == nil || reply.inference != r.Inference || reply.attempt != r.Attempt {
		if reply == nil && len(h.heard) == maxHeard {
			clear(h.heard)
		}
		reply = &heardReply{inference: r.Inference, attempt: r.Attempt}
		h.heard[key] = reply
	}
	var out []agent.Delta
	for _, d := range reply.text.Write(text) {
		if told, ok := reply.told(d); ok {
			out = append(out, told)
		}
	}
	return out
}

// told is a piece between tags as listeners of any model hear it; false where it tells nothing.
func (h *heardReply) told(d dialect.ToolDelta) (agent.Delta, bool) {
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
