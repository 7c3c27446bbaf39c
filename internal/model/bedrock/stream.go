package bedrock

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/countersign/countersign/internal/agent"
)

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
			u := start.Value
			return a.addCall(aws.ToInt32(e.Value.ContentBlockIndex), u.ToolUseId, u.Name, u.Type)
		}
	case *types.ConverseStreamOutputMemberContentBlockDelta:
		return a.addDelta(aws.ToInt32(e.Value.ContentBlockIndex), e.Value.Delta)
	case *types.ConverseStreamOutputMemberContentBlockStop:
		place := aws.ToInt32(e.Value.ContentBlockIndex)
		if c := a.blocks[place]; c != nil {
			c.whole = true
		}
		if t := a.thoughtAt(place); t != nil {
			t.whole = true
		}
	case *types.ConverseStreamOutputMemberMessageStop:
		a.stopped, a.stop = true, clip(string(e.Value.StopReason))
	case *types.ConverseStreamOutputMemberMetadata:
		a.metered, a.usage = true, tokens(e.Value.Usage)
		if e.Value.Trace != nil {
			a.addRoute(e.Value.Trace.PromptRouter)
		}
	}
	return nil
}

// addDelta takes a piece of text, of a call's input or of reasoning; pieces of other blocks add nothing.
func (a *assembly) addDelta(place int32, delta types.ContentBlockDelta) error {
	switch d := delta.(type) {
	case *types.ContentBlockDeltaMemberText:
		return a.addText(d.Value)
	case *types.ContentBlockDeltaMemberToolUse:
		return a.addInput(place, aws.ToString(d.Value.Input))
	case *types.ContentBlockDeltaMemberReasoningContent:
		return a.addReasoning(place, pieceOfThought(d.Value))
	}
	return nil
}
