package bedrock

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

// maxThoughts bounds the reasoning blocks of one reply.
const maxThoughts = 1000

// thought is a reasoning block under way: pieces are put behind one another, byte for byte.
type thought struct {
	place     int32
	afterText int
	text      []byte
	signature []byte
	redacted  []byte
	whole     bool // the block has ended; a piece of its proof is worth nothing
}

// wholeThought reads a reasoning block; one of a kind that is not known is empty.
func wholeThought(b types.ReasoningContentBlock) thought {
	switch b := b.(type) {
	case *types.ReasoningContentBlockMemberReasoningText:
		return thought{text: []byte(aws.ToString(b.Value.Text)), signature: []byte(aws.ToString(b.Value.Signature))}
	case *types.ReasoningContentBlockMemberRedactedContent:
		return thought{redacted: b.Value}
	}
	return thought{}
}

// pieceOfThought reads a piece of a reasoning block; one of a kind that is not known is empty.
func pieceOfThought(d types.ReasoningContentBlockDelta) thought {
	switch d := d.(type) {
	case *types.ReasoningContentBlockDeltaMemberText:
		return thought{text: []byte(d.Value)}
	case *types.ReasoningContentBlockDeltaMemberSignature:
		return thought{signature: []byte(d.Value)}
	case *types.ReasoningContentBlockDeltaMemberRedactedContent:
		return thought{redacted: d.Value}
	}
	return thought{}
}

func (t thought) size() int { return len(t.text) + len(t.signature) + len(t.redacted) }

// addReasoning goes on with the reasoning of a content block, which its first piece starts.
func (a *assembly) addReasoning(place int32, piece thought) error {
	if piece.size() == 0 {
		return nil
	}
	if err := a.grow(piece.size()); err != nil {
		return err
	}
	t := a.thoughtAt(place)
	if t == nil {
		if len(a.thoughts) == maxThoughts {
			return modelError(agent.ModelInvalid, fmt.Sprintf("reply has more than %d reasoning blocks", maxThoughts))
		}
		t = &thought{place: place, afterText: a.text.Len()}
		a.thoughts = append(a.thoughts, t)
	}
	if len(piece.text) > 0 {
		a.notify(agent.Delta{Kind: agent.DeltaReasoning, Text: string(piece.text)})
	}
	t.text = append(t.text, piece.text...)
	t.signature = append(t.signature, piece.signature...)
	t.redacted = append(t.redacted, piece.redacted...)
	return nil
}

// thoughtAt looks for the newest first: pieces come block by block.
func (a *assembly) thoughtAt(place int32) *thought {
	for _, t := range slices.Backward(a.thoughts) {
		if t.place == place {
			return t
		}
	}
	return nil
}

// reasoning is the reply's reasoning in order of the content blocks; calls are the places of the calls that are kept,
// in order.
func (a *assembly) reasoning(calls []int32) ([]agent.ReplyReasoning, error) {
	slices.SortStableFunc(a.thoughts, func(x, y *thought) int { return cmp.Compare(x.place, y.place) })
	var out []agent.ReplyReasoning
	said := 0
	for _, t := range a.thoughts {
		if len(t.redacted) > 0 && len(t.text)+len(t.signature) > 0 {
			return nil, modelError(agent.ModelInvalid, "reply has a reasoning block of two kinds")
		}
		said = max(said, t.afterText)
		out = append(out, agent.ReplyReasoning{
			Reasoning: run.Reasoning{
				Text: string(t.text), Signature: string(t.signature), Redacted: t.redacted, Provider: provider, Model: a.model,
			},
			AfterText:  said,
			AfterCalls: sort.Search(len(calls), func(i int) bool { return calls[i] > t.place }),
		})
	}
	return out, nil
}
