package agent

import "sync"

// maxHeard bounds how many runs' replies are taken apart at once. Where there are more, the pieces of some are told as they come.
const maxHeard = 1024

// HearTags tells next of the replies of models that write their calls as text (DialectXML) as what they are: text, reasoning between thinking
// tags, and the first call, its tool as soon as that can be told. Pieces of other models pass as they come. Safe for concurrent use if next
// is; the pieces of one request come in order.
func HearTags(next OnDelta) OnDelta {
	h := &tagHearing{next: next, heard: map[string]*heardReply{}}
	return h.hear
}

type tagHearing struct {
	next OnDelta

	mu    sync.Mutex
	heard map[string]*heardReply // by tenant and run: the newest reply
}

// heardReply is a reply that is coming in.
type heardReply struct {
	inference int64
	attempt   int
	tool      string // of its call, "" = not known yet
	text      ToolStream
}

func (h *tagHearing) hear(r Request, d Delta) {
	if r.Model.Dialect != DialectXML || d.Kind != DeltaText {
		h.next(r, d)
		return
	}
	for _, piece := range h.taken(r, d.Text) {
		h.next(r, piece)
	}
}

// taken is what the piece makes certain.
func (h *tagHearing) taken(r Request, text string) []Delta {
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
	var out []Delta
	for _, d := range reply.text.Write(text) {
		if told, ok := reply.told(d); ok {
			out = append(out, told)
		}
	}
	return out
}

// told is a piece between tags as listeners of any model hear it; false where it tells nothing.
func (h *heardReply) told(d ToolDelta) (Delta, bool) {
	switch d.Kind {
	case TagDeltaText:
		return Delta{Kind: DeltaText, Text: d.Text}, true
	case TagDeltaThinking:
		return Delta{Kind: DeltaReasoning, Text: d.Text}, true
	case TagDeltaToolStart:
		return Delta{Kind: DeltaCall}, true
	case TagDeltaToolName:
		h.tool = d.Text
		return Delta{Kind: DeltaCall, Name: h.tool}, true
	case TagDeltaTool:
		return Delta{Kind: DeltaCall, Name: h.tool, Text: d.Text}, true
	default:
		return Delta{}, false
	}
}
