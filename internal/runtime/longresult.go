package runtime

import (
	"context"
	"fmt"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// showResult is what the model is shown of a call's result, and where all of it is, where it was cut and is kept: in a
// blob, before the entry that points at it. An error is the store's; the result beside it is cut and not kept.
func (p Ports) showResult(
	ctx context.Context, tenant, runID string, def *agent.Definition, c run.Call, text string,
) (prompt.Shown, *run.Whole, error) {
	spec, _ := def.Tool(c.Tool)
	shown := prompt.ShowResult(def, spec, c.ID, text, def.KeepsWhole())
	if shown.Whole == "" || !def.KeepsWhole() {
		return shown, nil, nil
	}
	w := &run.Whole{Blob: store.BlobDigest([]byte(shown.Whole)), Chars: shown.Chars}
	if err := p.putBlob(ctx, tenant, runID, w.Blob, []byte(shown.Whole)); err != nil {
		shown = prompt.ShowResult(def, spec, c.ID, text, false)
		return shown, nil, fmt.Errorf("store the whole result of call %s: %w", c.ID, err)
	}
	return shown, w, nil
}

// storeText moves a result that is too long for the journal into a blob.
func (p Ports) storeText(ctx context.Context, tenant, runID, call, text string) (content, blob string, err error) {
	if jsonx.StoredLen(text) <= maxInline {
		return text, "", nil
	}
	blob = store.BlobDigest([]byte(text))
	if err := p.putBlob(ctx, tenant, runID, blob, []byte(text)); err != nil {
		return "", "", fmt.Errorf("store result of call %s: %w", call, err)
	}
	return "", blob, nil
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
		return agent.ToolResultData{}, fmt.Errorf("the rest of the result of call %s cannot be read: %w", t.page.Whole.Call,
			err)
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
		s, ok := r.sessions.of(r.Remotes, r.inv.Tenant, r.def, spec.Kind)
		if !ok {
			return nil, false
		}
		return s.Tool(spec), true
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
	var err error
	e.Content, e.Blob, err = r.storeText(ctx, r.inv.Tenant, r.inv.Run, c.ID, e.Content)
	return e, err
}
