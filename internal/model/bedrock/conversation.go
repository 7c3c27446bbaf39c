package bedrock

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/model/modelretry"
	"github.com/countersign/countersign/internal/run"
)

// provider is this adapter's name in a definition.
const provider = "bedrock"

// conversation groups one-block messages into Converse's. A turn's texts, calls and reasoning become one assistant
// message; its results follow at once, in the order of the calls, wherever they stood; what the user's side says
// between two turns comes behind them in the same user message. Blank texts are left out, and what stood at either side
// of one is joined.
//
// A conversation that ends with the assistant is sent as it is: some models go on with it, others refuse it.
func conversation(model string, messages []run.Message) ([]types.Message, error) {
	results, err := modelretry.CheckConversation(messages)
	if err != nil {
		return nil, err
	}
	isClaude := strings.Contains(model, "anthropic.claude")
	g := grouping{model: model, results: results, attachments: newAttachments(isClaude, messages),
		marksErrors: isClaude || strings.Contains(model, "amazon.nova")}
	g.resultsAlone = strings.Contains(model, "meta.llama") || strings.Contains(model, "mistral.")
	for _, m := range messages {
		g.add(m)
	}
	g.endTurn()
	g.endUser()
	if len(g.out) == 0 {
		return nil, modelError(agent.ModelInvalid, "conversation is empty")
	}
	return g.out, nil
}

// grouping is the messages so far, and the one that is still open: a turn of the model's or one of the user's, never
// both.
type grouping struct {
	model       string
	out         []types.Message
	results     map[string]run.ToolResult
	attachments attachments
	// The model's family takes a tool result's status. Others refuse it and learn of an error from the result's text. An
	// application inference profile does not tell its model and counts as others.
	marksErrors  bool
	resultsAlone bool                 // the model's family refuses anything beside results
	thoughts     []types.ContentBlock // reasoning that the turn has yet to go on behind
	turn         []types.ContentBlock
	calls        []string // of turn
	user         []types.ContentBlock
}

// add takes the next message.
func (g *grouping) add(m run.Message) {
	switch b := m.Block.(type) {
	case run.Text:
		if isBlank(b.Text) {
			return
		}
		// In a turn text comes before calls. A text behind calls starts the next turn.
		block := &types.ContentBlockMemberText{Value: b.Text}
		if m.Role == run.RoleAssistant {
			g.endCalls()
			g.addModelBlock(block)
			return
		}
		g.endTurn()
		g.user = append(g.user, block)
	case run.Media:
		block, err := g.attachments.block(b)
		if err != nil { // a file that a tool gave does not end the run
			g.add(run.Message{Role: m.Role, Block: run.Text{Text: agent.TextMediaLeftOut(b, err.Error())}})
			return
		}
		g.endTurn()
		g.user = append(g.user, block)
	case run.Reasoning:
		g.addReasoning(b)
	case run.ToolUse:
		g.addModelBlock(&types.ContentBlockMemberToolUse{Value: types.ToolUseBlock{
			ToolUseId: aws.String(b.ID), Name: aws.String(b.Name), Input: verbatim(modelretry.SentArguments(b.Input)),
		}})
		g.calls = append(g.calls, b.ID)
	case run.ToolResult:
		g.endCalls()
	}
}

// addReasoning holds reasoning back until the turn goes on: at its end it would be refused. Reasoning without a proof,
// of another provider or of another model is left out.
func (g *grouping) addReasoning(b run.Reasoning) {
	if b.Provider != provider || b.Model != g.model {
		return
	}
	switch {
	case len(b.Redacted) > 0:
		g.thoughts = append(g.thoughts, reasoning(&types.ReasoningContentBlockMemberRedactedContent{Value: b.Redacted}))
	case b.Signature != "":
		g.thoughts = append(g.thoughts, reasoning(&types.ReasoningContentBlockMemberReasoningText{
			Value: types.ReasoningTextBlock{Text: aws.String(b.Text), Signature: aws.String(b.Signature)},
		}))
	}
}

func reasoning(b types.ReasoningContentBlock) types.ContentBlock {
	return &types.ContentBlockMemberReasoningContent{Value: b}
}

// addModelBlock adds a block to the model's turn, behind the reasoning that came before it.
func (g *grouping) addModelBlock(block types.ContentBlock) {
	g.endUser()
	g.turn = append(append(g.turn, g.thoughts...), block)
	g.thoughts = nil
}

// endCalls ends a turn that has calls: nothing more of the model's can stand between them and their results.
func (g *grouping) endCalls() {
	if len(g.calls) > 0 {
		g.endTurn()
	}
}

// endTurn closes the model's turn and opens the user's with the results of its calls.
func (g *grouping) endTurn() {
	g.thoughts = nil
	if len(g.turn) == 0 {
		return
	}
	if len(g.out) == 0 {
		g.emit(types.ConversationRoleUser, []types.ContentBlock{&types.ContentBlockMemberText{Value: modelretry.Opening}})
	}
	g.emit(types.ConversationRoleAssistant, g.turn)
	for _, id := range g.calls {
		r, ok := g.results[id]
		if !ok {
			r = run.ToolResult{Content: modelretry.NoResponse, IsError: true}
		}
		if isBlank(r.Content) {
			r.Content = modelretry.NoOutput
		}
		block := types.ToolResultBlock{ToolUseId: aws.String(id),
			Content: []types.ToolResultContentBlock{&types.ToolResultContentBlockMemberText{Value: r.Content}}}
		if r.IsError && g.marksErrors {
			block.Status = types.ToolResultStatusError
		}
		g.user = append(g.user, &types.ContentBlockMemberToolResult{Value: block})
	}
	g.turn, g.calls = nil, nil
}

func (g *grouping) endUser() {
	if len(g.user) == 0 {
		return
	}
	document, text := false, false
	for _, b := range g.user {
		switch b.(type) {
		case *types.ContentBlockMemberText:
			text = true
		case *types.ContentBlockMemberDocument:
			document = true
		}
	}
	if document && !text {
		g.user = append(g.user, &types.ContentBlockMemberText{Value: attached})
	}
	isResult := func(b types.ContentBlock) bool { _, ok := b.(*types.ContentBlockMemberToolResult); return ok }
	rest := slices.IndexFunc(g.user, func(b types.ContentBlock) bool { return !isResult(b) })
	if g.resultsAlone && rest > 0 {
		g.emit(types.ConversationRoleUser, g.user[:rest])
		g.emit(types.ConversationRoleAssistant,
			[]types.ContentBlock{&types.ContentBlockMemberText{Value: modelretry.GotResults}})
		g.user = g.user[rest:]
	}
	g.emit(types.ConversationRoleUser, g.user)
	g.user = nil
}

func (g *grouping) emit(role types.ConversationRole, content []types.ContentBlock) {
	g.out = append(g.out, types.Message{Role: role, Content: content})
}

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

// addReasoning goes on with the reasoning of a content block, which its first piece starts. A piece of a kind that is
// not known adds nothing.
func (a *assembly) addReasoning(place int32, d types.ReasoningContentBlockDelta) error {
	var piece thought
	switch d := d.(type) {
	case *types.ReasoningContentBlockDeltaMemberText:
		piece.text = []byte(d.Value)
	case *types.ReasoningContentBlockDeltaMemberSignature:
		piece.signature = []byte(d.Value)
	case *types.ReasoningContentBlockDeltaMemberRedactedContent:
		piece.redacted = d.Value
	}
	size := len(piece.text) + len(piece.signature) + len(piece.redacted)
	if size == 0 {
		return nil
	}
	if err := a.grow(size); err != nil {
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
func (a *assembly) reasoning(calls []int32) ([]run.RepliedReasoning, error) {
	slices.SortStableFunc(a.thoughts, func(x, y *thought) int { return cmp.Compare(x.place, y.place) })
	var out []run.RepliedReasoning
	said := 0
	for _, t := range a.thoughts {
		if len(t.redacted) > 0 && len(t.text)+len(t.signature) > 0 {
			return nil, modelError(agent.ModelInvalid, "reply has a reasoning block of two kinds")
		}
		said = max(said, t.afterText)
		out = append(out, run.RepliedReasoning{
			Reasoning: run.Reasoning{
				Text: string(t.text), Signature: string(t.signature), Redacted: t.redacted, Provider: provider, Model: a.model,
			},
			AfterText:  said,
			AfterCalls: sort.Search(len(calls), func(i int) bool { return calls[i] > t.place }),
		})
	}
	return out, nil
}
