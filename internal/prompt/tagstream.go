package prompt

import (
	"sync"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
)

// maxStreamed bounds how many runs' replies are parsed at once. Beyond that, some replies' pieces pass unparsed.
const maxStreamed = 1024

// TranslateTags translates the text of models that write their calls as text (DialectXML) and passes it to next: text,
// reasoning between thinking tags, and the first call, with its tool as soon as that is certain. Pieces of other models
// pass unchanged. Safe for concurrent use if next is; the pieces of one request must come in order.
func TranslateTags(next agent.OnDelta) agent.OnDelta {
	var mu sync.Mutex
	replies := map[string]*streamedReply{} // by tenant and run: the newest reply
	certain := func(r agent.Request, text string) []agent.Delta {
		mu.Lock()
		defer mu.Unlock()
		key := r.Tenant + "/" + r.Run
		reply := replies[key]
		if reply == nil || reply.inference != r.Inference || reply.attempt != r.Attempt {
			if reply == nil && len(replies) == maxStreamed {
				clear(replies)
			}
			reply = &streamedReply{inference: r.Inference, attempt: r.Attempt}
			replies[key] = reply
		}
		return reply.text.Write(text)
	}
	return func(r agent.Request, d agent.Delta) {
		if r.Model.Dialect != agent.DialectXML || d.Kind != agent.DeltaText {
			next(r, d)
			return
		}
		for _, piece := range certain(r, d.Text) {
			next(r, piece)
		}
	}
}

type streamedReply struct {
	inference int64
	attempt   int
	text      policy.ToolStream
}
