package runtime

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// Limits for the journal, in stored bytes. A longer result becomes a blob (media: see maxMedia). Results that exceed
// maxResults together take several entries.
const (
	maxInline  = 48 << 10
	maxResults = 96 << 10
)

// execution is one execution of a tool call.
type execution struct {
	call run.Call // as it was entered, including a claim if any
	// set once finished: CallFinished, or a CallSuspended, which for a tool lacks its request; nil = the outcome is
	// unknown, because the call timed out or its answer was lost
	event run.Event
	err   error     // the call may not have been sent; it has to be sent again
	size  int       // approximate size of the event in bytes
	late  run.Event // the event in its form for the inbox, the same at every try; nil = not needed yet
	// set if the call was not made because the server has changed the tool
	changed *run.ToolsDisabled
}

// inflight holds the running calls of one invocation, and the results it has not stored yet. Safe for concurrent use.
type inflight struct {
	signal   clock.Signal
	mu       sync.Mutex
	running  map[string]*execution
	finished []*execution // finished, not yet stored
}

func (f *inflight) has(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.running[id] != nil || slices.ContainsFunc(f.finished, func(x *execution) bool { return x.call.ID == id })
}

func (f *inflight) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.running)
}

func (f *inflight) add(x *execution) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running[x.call.ID] = x
}

func (f *inflight) finish(x *execution, e run.Event) {
	f.mu.Lock()
	x.event = e
	switch e := e.(type) {
	case run.CallFinished:
		x.size = jsonx.StoredLen(e.Content) + policy.PatchSize(e.Patch)
		for _, m := range e.Media {
			x.size += len(m.Data) + len(m.Blob) + len(m.Name) + len(m.MediaType)
		}
	case run.CallSuspended:
		if e.Ticket != nil { // nil for a service
			x.size = policy.TicketSize(*e.Ticket)
		}
	}
	delete(f.running, x.call.ID)
	f.finished = append(f.finished, x)
	f.mu.Unlock()
	f.signal.Notify()
}

// results returns the finished calls. They stay until remove is called.
func (f *inflight) results() []*execution {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.finished)
}

func (f *inflight) remove(done []*execution) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.finished = slices.DeleteFunc(slices.Clone(f.finished), func(x *execution) bool { return slices.Contains(done, x) })
}

// wait returns nil once a call has finished, or clock.ErrTimeout after limit (0 = none).
func (f *inflight) wait(ctx context.Context, limit time.Duration) error {
	if len(f.results()) > 0 {
		return nil
	}
	return f.signal.Wait(ctx, limit)
}

// waitForAll returns nil once no call runs.
func (f *inflight) waitForAll(ctx context.Context) error {
	for f.count() > 0 {
		if err := f.signal.Wait(ctx, 0); err != nil {
			return err
		}
	}
	return nil
}

// runningTools returns the tools of calls that run, that the plan launches, or that this invocation has claimed and not
// finished.
func (r *round) runningTools(p *batchPlan) []string {
	running := map[string]string{}
	for _, c := range p.draft.State.Live {
		if c.Status == run.StatusRunning && c.Claim == r.inv.Writer {
			running[c.ID] = c.Tool
		}
	}
	for _, c := range p.launch {
		running[c.ID] = c.Tool
	}
	r.inflight.mu.Lock()
	defer r.inflight.mu.Unlock()
	for id, x := range r.inflight.running {
		running[id] = x.call.Tool
	}
	return slices.Collect(maps.Values(running))
}

// launch starts the plan's calls concurrently, in request order. All of them read the plan's final shared state.
func (r *round) launch(ctx context.Context, p *batchPlan) {
	for _, c := range p.launch {
		x := &execution{call: c}
		r.inflight.add(x)
		if c.Service {
			send, err := r.outgoing(c, &p.draft.State) // built now, because the round continues concurrently
			r.Clock.Go(func() { r.sendOut(ctx, x, send, err) })
			continue
		}
		entered := r.toolCall(c, &p.draft.State)
		t, ok := r.tool(c, &p.draft.State)
		r.Clock.Go(func() { r.inflight.finish(x, r.runTool(ctx, x, entered, t, ok)) })
	}
}

// toolCall returns the call as its tool receives it in state s. The tool gets its own copies.
func (r *round) toolCall(c run.Call, s *run.AgentState) tool.Call {
	spec, _ := r.def.Tool(c.Tool)
	return tool.Call{
		Tenant: r.inv.Tenant, Run: r.inv.Run, ID: c.ID, Name: c.Tool, Args: bytes.Clone(c.Input), Key: r.inv.Run + "/" + c.ID,
		Root:   spec.Root,
		State:  bytes.Clone(s.SharedState()),
		Resume: bytes.Clone(c.ToolAnswer()), Memo: c.ToolMemo(),
	}
}

// runTool calls a tool until it ends or its deadline passes, and returns the event to store. It returns nil if the
// outcome is unknown: a non-idempotent tool timed out or panicked, or its answer was lost.
func (r *round) runTool(ctx context.Context, x *execution, entered tool.Call, t tool.Tool, known bool) run.Event {
	c, times := x.call, 0
	failed := func(why run.CallReason, said string) run.CallFinished {
		return run.CallFinished{
			Call: c.ID, Ran: c.Claim == "", IsError: true, Reason: why, Content: said, Entered: times,
		}
	}
	if !known {
		return failed(run.WhyUnknownTool, "The tool "+c.Name+" is not part of this deployment.")
	}
	a := r.callWithRetries(ctx, t, c, entered)
	var changed *tool.ChangedError
	var lost *tool.LostError
	if spec, _ := r.def.Tool(c.Tool); spec.MCP != nil && errors.As(a.err, &changed) { // other tools have no pinned digest
		x.changed = &run.ToolsDisabled{
			Server: spec.MCP.Server, Tool: spec.MCP.Tool, Why: run.DisabledChanged, Digest: changed.Got,
		}
		r.warnUnlocked(spec.MCP.Server, spec.MCP.Tool)
		return run.CallFinished{
			Call: c.ID, IsError: true, Reason: run.WhyToolChanged, Content: policy.TextToolChanged(r.def, c),
		}
	}
	_, panicked := errors.AsType[*panicError](a.err)
	if c.Effect == run.EffectNonIdempotent && (a.timedOut || panicked || errors.As(a.err, &lost)) {
		return nil
	}
	tries := ""
	if a.n > 1 { // a single execution is recorded by Ran or the claim
		times, tries = a.n, fmt.Sprintf("\n[It was tried %d times.]", a.n)
	}
	switch {
	case a.timedOut:
		return failed(run.WhyTimeout, agent.TextTimeout(c.Name)+tries)
	case a.err != nil:
		a.result = agent.ToolResultData{Content: c.Name + " failed: " + agent.Bounded(a.err.Error()) + tries, IsError: true}
	}
	e, err := r.toolEvent(context.WithoutCancel(ctx), t, c, withCheckedPatch(c, entered.State, a.result))
	if err != nil {
		return failed(run.WhyToolError, "The tool ran, but its result could not be stored.")
	}
	if suspended, ok := e.(run.CallSuspended); ok {
		suspended.Entered = times
		return suspended
	}
	finished := e.(run.CallFinished)
	finished.Entered = times
	return finished
}

// callResult is the last result or error of calling a tool as often as its retry policy allows.
type callResult struct {
	n        int // how often the tool was entered
	result   agent.ToolResultData
	err      error
	timedOut bool // the last attempt was abandoned and may still be running
}

// callWithRetries calls a tool until it answers, or until its retry policy, the invocation or the run allows no further
// attempt. Every attempt has the same key, the same state and the tool's full timeout.
func (r *round) callWithRetries(ctx context.Context, t tool.Tool, c run.Call, entered tool.Call) callResult {
	spec, _ := r.def.Tool(c.Tool)
	var a callResult
	_ = clock.Retry(r.retrying, r.Clock, func(n int) (time.Duration, bool) { // a holds the last attempt's result
		once := entered // the tool gets its own copies, which it may change
		once.Attempt, once.Args = n, bytes.Clone(entered.Args)
		once.State, once.Resume = bytes.Clone(entered.State), bytes.Clone(entered.Resume)
		a.n = n
		limited, cancel := r.Clock.WithTimeout(ctx, r.timeout(ctx, c))
		defer cancel()
		call := func() (agent.ToolResultData, error) { return t.Call(limited, once) }
		a.result, a.err = callWithDeadline(limited, r.Clock, call)
		a.timedOut = a.err != nil && limited.Err() != nil
		if p, ok := errors.AsType[*panicError](a.err); ok {
			r.warn(fmt.Sprintf("call %s of run %s: it panicked at %s", c.Tool, r.inv.Run, p.place), a.err)
		}
		wait, again := spec.Retry.Again(c.Effect, n)
		if at, ok := ctx.Deadline(); ok && at.Sub(r.Clock.Now())-wait < launchMargin { // no time for another attempt
			again = false
		}
		var changed *tool.ChangedError // another attempt does not change that the tool differs from the pinned one
		return wait, again && a.err != nil && !errors.As(a.err, &changed)
	})
	return a
}

// timeout returns the tool's timeout within the invocation.
func (r *round) timeout(ctx context.Context, c run.Call) time.Duration {
	t, _ := r.def.Tool(c.Tool)
	return r.withinInvocation(ctx, cmp.Or(t.Timeout, defaultTimeout))
}

// withinInvocation shortens a timeout so that its deadline is before the invocation's own.
func (p Ports) withinInvocation(ctx context.Context, limit time.Duration) time.Duration {
	if at, ok := ctx.Deadline(); ok {
		limit = min(limit, at.Sub(p.Clock.Now())-deadlineMargin)
	}
	return max(limit, time.Millisecond)
}

// panicError is the error of a tool that panicked. The panic's value is dropped, because it may contain anything.
type panicError struct{ place string } // its file and line, for logs; "" = it ended its goroutine

func (*panicError) Error() string { return "it panicked" }

// panicPlace returns where the panic that is being recovered began.
func panicPlace() string {
	pcs := make([]uintptr, 32)
	frames := goruntime.CallersFrames(pcs[:goruntime.Callers(2, pcs)])
	for panicked, more := false, true; more; {
		var f goruntime.Frame
		f, more = frames.Next()
		switch {
		case strings.HasPrefix(f.Function, "runtime."):
			panicked = panicked || f.Function == "runtime.gopanic"
		case panicked:
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
	}
	return ""
}

// callWithDeadline calls f in its own goroutine and returns when ctx ends, even if f does not. A later result is lost.
func callWithDeadline[T any](ctx context.Context, c clock.Clock, f func() (T, error)) (T, error) {
	type outcome struct {
		result T
		err    error
	}
	answer, done := make(chan outcome, 1), c.NewSignal()
	c.Go(func() {
		panicked := &panicError{}
		got := outcome{err: panicked}
		defer func() {
			if recover() != nil {
				panicked.place = panicPlace()
			}
			answer <- got
			done.Notify()
		}()
		got.result, got.err = f()
	})
	if ended := done.Wait(ctx, 0); ended != nil {
		return *new(T), ended
	}
	got := <-answer
	return got.result, got.err
}

// withCheckedPatch returns the result with the tool's state patch if the patch applies, otherwise an error result that
// says why. A failed or suspended call changes no state.
func withCheckedPatch(c run.Call, view json.RawMessage, res agent.ToolResultData) agent.ToolResultData {
	if res.IsError || res.Suspend != nil {
		res.Patch = nil
	}
	if err := policy.CheckPatch(view, res.Patch); err != nil {
		res.Patch, res.IsError = nil, true
		res.Content = agent.TextPatchRefused(c.Name, err) + res.Content
	}
	return res
}

// toolEvent returns the event for a tool's result or question. A question that cannot be shown is an error of the tool.
// A page of read_more is never cut, because it says which part it is.
func (r *round) toolEvent(ctx context.Context, t tool.Tool, c run.Call, res agent.ToolResultData) (run.Event, error) {
	if p, ok := t.(pages); ok {
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
	if res.Suspend == nil {
		return r.resultEvent(ctx, c, res)
	}
	ticket, err := policy.NormalizeTicket(*res.Suspend)
	if err == nil {
		err = r.checkAnswerSchema(ticket)
	}
	if err != nil {
		why := c.Name + " asked for input in a way that cannot be shown: " + agent.Bounded(err.Error())
		return r.resultEvent(ctx, c, agent.ToolResultData{Content: why, IsError: true})
	}
	return run.CallSuspended{Call: c.ID, For: run.ForInput, Ticket: &ticket, Ran: c.Claim == ""}, nil
}

// checkAnswerSchema returns an error if the schema of a ticket's answer is broken. Such a schema would refuse every
// answer.
func (r *round) checkAnswerSchema(t run.Ticket) error {
	if t.ResponseSchema == nil {
		return nil
	}
	var broken *policy.SchemaError
	if fits := r.Valid(agent.ToolSpec{Name: "response", Schema: t.ResponseSchema},
		json.RawMessage("null")); errors.As(fits, &broken) {
		return fmt.Errorf("responseSchema: %w", broken.Err)
	}
	return nil
}

// resultEvent returns a tool's result in stored form: valid text and media, cut to the agent's limit, long parts in
// blobs, and a note in front if a person edited the arguments.
func (r *round) resultEvent(ctx context.Context, c run.Call, res agent.ToolResultData) (run.CallFinished, error) {
	stored, err := r.storeMedia(ctx, res.Media)
	if err != nil {
		return run.CallFinished{}, fmt.Errorf("store media of call %s: %w", c.ID, err)
	}
	shown, whole, err := r.showResult(ctx, r.inv.Tenant, r.inv.Run, r.def, c, res.Content)
	if err != nil { // the cut text is still shown
		r.warn("keep a long result of run "+r.inv.Run, err)
	}
	if shown.Lost != "" {
		stored.notices = append([]string{shown.Lost}, stored.notices...)
	}
	e := run.CallFinished{
		Call: c.ID, Ran: c.Claim == "", IsError: res.IsError, Media: stored.media, Patch: res.Patch, Whole: whole,
	}
	if res.IsError {
		e.Reason = run.WhyToolError
	}
	e.Content, e.Blob, err = r.storeText(ctx, r.inv.Tenant, r.inv.Run, c.ID, resultText(c, shown.Text, stored))
	return e, err
}

// resultText returns the text of a result for the model: the tool's text or the names of its media, preceded by a note
// about edited arguments and followed by notices about left-out parts.
func resultText(c run.Call, text string, stored storedMedia) string {
	if text == "" && len(stored.media) > 0 {
		text = agent.TextMedia(stored.media)
	}
	if text == "" {
		text = agent.TextNothing(c.Name)
	}
	text = withEditNote(c, text)
	for _, notice := range stored.notices {
		if text != "" {
			text += "\n"
		}
		text += notice
	}
	return text
}

// withEditNote puts a note before the result if a person edited the call's arguments.
func withEditNote(c run.Call, text string) string {
	if by := c.Editor(); by != "" {
		return agent.TextEdited(by, string(c.Input)) + text
	}
	return text
}

// showResult returns the part of a result that the model is shown. If the result was cut and is kept, it also returns
// the place of the full text, which it has stored in a blob before the entry that refers to it. On an error of the
// store, the result is cut and not kept.
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

// pages is the built-in tool read_more for one call. The requested page is determined before the call runs, from the
// state on which it was planned.
type pages struct {
	blobs store.Blobs
	def   *agent.Definition
	spec  agent.ToolSpec
	page  prompt.Page
	err   error // the error for the model; nil = page is valid
}

func (t pages) Spec() agent.ToolSpec { return t.spec }

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
