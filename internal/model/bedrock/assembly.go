package bedrock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/model/modelretry"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// MaxReply is how many bytes of text, reasoning and tool input a reply may have together; a longer one is ModelInvalid.
const MaxReply = 16 << 20

// maxCalls bounds the tool calls of one reply; no model makes as many on purpose.
const maxCalls = 1000

// assembly is a reply under way.
type assembly struct {
	model    string
	notify   func(agent.Delta)
	text     strings.Builder
	calls    []*callParts
	blocks   map[int32]*callParts // the calls by their content block
	thoughts []*thought
	size     int
	stop     string
	stopped  bool // messageStop came
	metered  bool // metadata came
	usage    run.Usage
}

// callParts is a tool call under way. A server's is carried out by the model's own side and is none of ours.
type callParts struct {
	place    int32
	id, name string
	server   bool
	whole    bool // the block has ended: no input is still to come
	input    bytes.Buffer
}

func newAssembly(model string, notify func(agent.Delta)) *assembly {
	return &assembly{model: model, notify: notify, blocks: map[int32]*callParts{}}
}

func (a *assembly) addText(text string) error {
	if text == "" {
		return nil
	}
	if err := a.grow(len(text)); err != nil {
		return err
	}
	a.text.WriteString(text)
	a.notify(agent.Delta{Kind: agent.DeltaText, Text: text})
	return nil
}

func (a *assembly) addCall(place int32, start types.ToolUseBlockStart) error {
	if a.blocks[place] != nil {
		return modelError(agent.ModelInvalid, "reply starts a content block twice")
	}
	if len(a.blocks) == maxCalls {
		return modelError(agent.ModelInvalid, fmt.Sprintf("reply has more than %d tool calls", maxCalls))
	}
	c := &callParts{place: place, id: aws.ToString(start.ToolUseId), name: aws.ToString(start.Name),
		server: start.Type == types.ToolUseTypeServerToolUse}
	if err := a.grow(len(c.id) + len(c.name)); err != nil {
		return err
	}
	a.blocks[place] = c
	a.calls = append(a.calls, c)
	a.notifyCall(c, "")
	return nil
}

func (a *assembly) addInput(place int32, piece string) error {
	c := a.blocks[place]
	if c == nil {
		return modelError(agent.ModelInvalid, "reply has input for a tool call that did not start")
	}
	if err := a.grow(len(piece)); err != nil {
		return err
	}
	c.input.WriteString(piece)
	if piece != "" {
		a.notifyCall(c, piece)
	}
	return nil
}

// notifyCall reports a call that the model makes. Calls of the provider's own tools are not reported and have no place.
func (a *assembly) notifyCall(c *callParts, piece string) {
	if c.server {
		return
	}
	d := agent.Delta{Kind: agent.DeltaCall, Text: piece, Call: c.id, Name: c.name}
	for _, earlier := range a.calls {
		if earlier == c {
			break
		}
		if !earlier.server {
			d.Place++
		}
	}
	a.notify(d)
}

// interrupted is the failure of a reply that broke off, with what there is of it.
func (a *assembly) interrupted(err error) error {
	var failure *agent.ModelError
	if !errors.As(err, &failure) || a.size > MaxReply {
		return err
	}
	a.calls = slices.DeleteFunc(a.calls, func(c *callParts) bool { return !c.whole })
	a.thoughts = slices.DeleteFunc(a.thoughts, func(t *thought) bool { return !t.whole })
	if reply, nonsense := a.reply(); nonsense == nil { // else the error says enough
		failure.Partial = policy.KeepInterrupted(reply)
	}
	return err
}

func (a *assembly) grow(n int) error {
	if a.size += n; a.size > MaxReply {
		return modelError(agent.ModelInvalid, fmt.Sprintf("reply is larger than %d MiB", MaxReply>>20))
	}
	return nil
}

// reply is what was put together, calls and reasoning in order of their content blocks.
func (a *assembly) reply() (agent.Reply, error) {
	slices.SortStableFunc(a.calls, func(x, y *callParts) int { return cmp.Compare(x.place, y.place) })
	stop := types.StopReason(a.stop)
	r := agent.Reply{Model: a.model, Text: a.text.String(), StopReason: a.stop,
		Truncated: stop == types.StopReasonMaxTokens, Usage: a.usage}
	first, kept := map[string]*callParts{}, []int32{}
	for i, c := range a.calls {
		if c.server {
			continue
		}
		if again, err := c.repeats(first[c.id]); err != nil {
			return agent.Reply{}, err
		} else if again {
			continue
		}
		first[c.id], kept = c, append(kept, c.place)
		input := modelretry.Arguments(c.input.String(), policy.IsCutShort(a.stop) && i == len(a.calls)-1)
		r.Calls = append(r.Calls, agent.ReplyCall{ID: c.id, Name: c.name, Input: input})
	}
	var err error
	if r.Reasoning, err = a.reasoning(kept); err != nil {
		return agent.Reply{}, err
	}
	// A model may end without a reply. Either its output was neither a call nor readable text, which may pass, or no room
	// was left for text.
	switch {
	case len(r.Calls) > 0:
	case stop == types.StopReasonMalformedToolUse, stop == types.StopReasonMalformedModelOutput:
		return agent.Reply{}, modelError(agent.ModelServer, "reply cannot be read, "+a.stop)
	case stop == types.StopReasonModelContextWindowExceeded && isBlank(r.Text):
		return agent.Reply{}, modelError(agent.ModelContextOverflow, "reply is empty, "+a.stop)
	}
	return r, nil
}

// repeats reports whether c is a call that the reply has already. The same id with the same name and input is one call
// told twice and must not be carried out twice; the same id with anything else is a reply that makes no sense. Calls
// without an id are all different.
func (c *callParts) repeats(earlier *callParts) (bool, error) {
	if earlier == nil || c.id == "" {
		return false, nil
	}
	if c.name != earlier.name || !bytes.Equal(c.input.Bytes(), earlier.input.Bytes()) {
		return false, modelError(agent.ModelInvalid, "reply has two different tool calls of the same id")
	}
	return true, nil
}

// events is a stream of the SDK. Err says why Events was closed; nil = the bytes ended between two events, which says
// nothing of whether the reply did.
type events interface {
	Events() <-chan types.ConverseStreamOutput
	Err() error
}

// readStream puts a streamed reply together. It reads to the stream's end, so that the connection can be used again;
// what goes wrong once messageStop and metadata are there loses no reply.
func readStream(ctx context.Context, s events, a *assembly) error {
	for {
		select {
		case <-ctx.Done():
			return a.end(ctx, ctx.Err())
		case event, open := <-s.Events():
			if !open {
				return a.end(ctx, s.Err())
			}
			if err := a.addEvent(event); err != nil {
				return err
			}
		}
	}
}

// end decides what a stream was that ended with err, nil for one that just ended.
func (a *assembly) end(ctx context.Context, err error) error {
	switch {
	case a.stopped && a.metered:
		return nil
	case err != nil:
		return streamFailure(ctx, err)
	case ctx.Err() != nil:
		return callFailure(ctx, ctx.Err())
	}
	return modelError(agent.ModelConnection, "stream ended before the reply did")
}

// addEvent takes one event. Events of kinds that are not known here add nothing.
func (a *assembly) addEvent(event types.ConverseStreamOutput) error {
	switch e := event.(type) {
	case *types.ConverseStreamOutputMemberContentBlockStart:
		if start, ok := e.Value.Start.(*types.ContentBlockStartMemberToolUse); ok {
			return a.addCall(aws.ToInt32(e.Value.ContentBlockIndex), start.Value)
		}
	case *types.ConverseStreamOutputMemberContentBlockDelta:
		place := aws.ToInt32(e.Value.ContentBlockIndex)
		switch d := e.Value.Delta.(type) { // pieces of other blocks add nothing
		case *types.ContentBlockDeltaMemberText:
			return a.addText(d.Value)
		case *types.ContentBlockDeltaMemberToolUse:
			return a.addInput(place, aws.ToString(d.Value.Input))
		case *types.ContentBlockDeltaMemberReasoningContent:
			return a.addReasoning(place, d.Value)
		}
	case *types.ConverseStreamOutputMemberContentBlockStop:
		place := aws.ToInt32(e.Value.ContentBlockIndex)
		if c := a.blocks[place]; c != nil {
			c.whole = true
		}
		if t := a.thoughtAt(place); t != nil {
			t.whole = true
		}
	case *types.ConverseStreamOutputMemberMessageStop:
		a.stopped, a.stop = true, modelretry.Clip(string(e.Value.StopReason))
	case *types.ConverseStreamOutputMemberMetadata:
		a.metered = true
		if u := e.Value.Usage; u != nil { // each token counts once: inputTokens exclude those of the cache
			count := func(n *int32) int64 { return int64(max(0, aws.ToInt32(n))) }
			a.usage = run.Usage{Input: count(u.InputTokens), Output: count(u.OutputTokens),
				CacheRead: count(u.CacheReadInputTokens), CacheWrite: count(u.CacheWriteInputTokens)}
		}
		if trace := e.Value.Trace; trace != nil && trace.PromptRouter != nil {
			a.model = cmp.Or(modelretry.Clip(aws.ToString(trace.PromptRouter.InvokedModelId)), a.model)
		}
	}
	return nil
}
