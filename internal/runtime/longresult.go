package runtime

import (
	"context"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// cutResult is a call's result as the agent's context takes it, and where all of it is, where it was cut and is kept:
// in a blob, before the entry that points at it. An error is the store's.
func (p Ports) cutResult(ctx context.Context, tenant string, def *agent.Definition, call, text string) (string, *run.Whole, error) {
	head, chars, cut := prompt.CutResult(def, text)
	switch {
	case !cut:
		return text, nil, nil
	case !def.KeepsWhole():
		return head + prompt.CutNotice(def, call, chars, false), nil, nil
	}
	w := &run.Whole{Blob: store.BlobDigest([]byte(text)), Chars: chars}
	if err := p.Blobs.Put(ctx, tenant, w.Blob, []byte(text)); err != nil {
		return "", nil, fmt.Errorf("store the whole result of call %s: %w", call, err)
	}
	return head + prompt.CutNotice(def, call, chars, true), w, nil
}

// cutToolResult is cutResult for a tool that has run: if the whole result cannot be kept, the cut one is still shown.
func (r *round) cutToolResult(ctx context.Context, call, text string) (string, *run.Whole) {
	short, whole, err := r.cutResult(ctx, r.inv.Tenant, r.def, call, text)
	if err != nil {
		r.warn("keep a long result of run "+r.inv.Run, err)
		head, chars, _ := prompt.CutResult(r.def, text)
		return head + prompt.CutNotice(r.def, call, chars, false), nil
	}
	return short, whole
}

// pages is the built-in tool read_more as one call of it finds it: what the call asks for is known before it runs, of
// the state that it was planned on.
type pages struct {
	blobs store.Blobs
	def   *agent.Definition
	spec  agent.ToolSpec
	page  prompt.Page
	err   error // what the model is told instead of a page; nil = nothing
}

var _ tool.Tool = pages{}

// Spec implements tool.Tool.
func (t pages) Spec() agent.ToolSpec { return t.spec }

// Call implements tool.Tool.
func (t pages) Call(ctx context.Context, c tool.Call) (agent.ToolResultData, error) {
	if t.err != nil {
		return agent.ToolResultData{Content: t.err.Error(), IsError: true}, nil
	}
	all, err := t.blobs.Get(ctx, c.Tenant, t.page.Whole.Blob)
	if err != nil {
		return agent.ToolResultData{}, fmt.Errorf("the rest of the result of call %s cannot be read: %w", t.page.Whole.Call, err)
	}
	text, err := prompt.PageText(t.def, t.page, string(all))
	return agent.ToolResultData{Content: text}, err
}

// tool finds what runs the call c, of the state s.
func (r *round) tool(c run.Call, s *run.AgentState) (tool.Tool, bool) {
	spec, known := r.def.Tool(c.Tool)
	switch {
	case known && spec.Name == agent.ReadMore && r.def.KeepsWhole():
		page, err := prompt.PageOf(r.def, s, c)
		return pages{r.Blobs, r.def, spec, page, err}, true
	case known && spec.Kind.Remote():
		return r.remoteTool(spec)
	}
	return r.Tools.Lookup(c.Tool)
}

// toolEventOf is toolEvent for any tool. A page of read_more is never cut, because it says itself which part it is.
func (r *round) toolEventOf(ctx context.Context, t tool.Tool, c run.Call, res agent.ToolResultData) (run.Event, error) {
	p, ok := t.(pages)
	if !ok {
		return r.toolEvent(ctx, c, res)
	}
	e := run.CallFinished{Call: c.ID, Ran: c.Claim == "", IsError: res.IsError, Content: withEditNote(c, res.Content)}
	if res.IsError {
		e.Reason = run.WhyToolError
		return e, nil
	}
	e.Whole = &p.page.Whole
	return r.storeResult(ctx, c, e)
}
