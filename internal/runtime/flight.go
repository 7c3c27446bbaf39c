package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
)

// What stands in the journal itself, in bytes as it is stored: a longer result is a blob (media: see maxMedia), and results that are
// more together take several entries.
const (
	maxInline  = 48 << 10
	maxResults = 96 << 10
)

// execution is one entering of a tool.
type execution struct {
	call    run.Call
	claimed bool
	event   run.Event // once finished: CallFinished, or a CallSuspended, of a tool's without its request; nil where it ran out of time, or its answer was lost, and nobody can say what became of it
	err     error     // what is answered later may not be out; it is to be sent again
	size    int       // of the event, in bytes, about
	late    run.Event // the event as it comes through the inbox, once it has to: the same at every try; nil = not yet
}

// flight is what one invocation has in the air and in its hands. Safe for concurrent use.
type flight struct {
	clock  clock.Clock
	signal clock.Signal
	mu     sync.Mutex
	air    map[string]*execution
	hands  []*execution // finished, not yet stored
}

func newFlight(c clock.Clock) *flight {
	return &flight{clock: c, signal: c.NewSignal(), air: map[string]*execution{}}
}

func (f *flight) has(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.hands {
		if x.call.ID == id {
			return true
		}
	}
	return f.air[id] != nil
}

func (f *flight) running() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.air)
}

func (f *flight) empty() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.air) == 0 && len(f.hands) == 0
}

func (f *flight) took(x *execution) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.air[x.call.ID] = x
}

func (f *flight) landed(x *execution, e run.Event) {
	f.mu.Lock()
	x.event, x.size = e, eventSize(e)
	delete(f.air, x.call.ID)
	f.hands = append(f.hands, x)
	f.mu.Unlock()
	f.signal.Notify()
}

// eventSize is how many bytes of an entry a result takes, less what names it.
func eventSize(e run.Event) int {
	switch e := e.(type) {
	case run.CallFinished:
		return run.StoredLen(e.Content) + mediaSize(e.Media) + policy.PatchSize(e.Patch)
	case run.CallSuspended:
		if e.Ticket == nil { // a service's
			return 0
		}
		return e.Ticket.Size()
	default:
		return 0
	}
}

func mediaSize(media []run.Media) int {
	n := 0
	for _, m := range media {
		n += len(m.Data) + len(m.Blob) + len(m.Name) + len(m.MediaType)
	}
	return n
}

// finishedNow is what has landed and is not stored; it stays in hand until stored says otherwise.
func (f *flight) finishedNow() []*execution {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*execution(nil), f.hands...)
}

func (f *flight) stored(done []*execution) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var left []*execution
	for _, x := range f.hands {
		keep := true
		for _, d := range done {
			keep = keep && d != x
		}
		if keep {
			left = append(left, x)
		}
	}
	f.hands = left
}

// wait returns nil once something has landed; clock.ErrTimeout after limit (0 = none).
func (f *flight) wait(ctx context.Context, limit time.Duration) error {
	if len(f.finishedNow()) > 0 {
		return nil
	}
	return f.signal.Wait(ctx, limit)
}

// group gives what is about to land a moment, so that what finishes together is committed together.
func (f *flight) group(ctx context.Context, within time.Duration) {
	until := f.clock.Now().Add(within)
	for f.running() > 0 {
		left := until.Sub(f.clock.Now())
		if left <= 0 || f.signal.Wait(ctx, left) != nil {
			return
		}
	}
}

// busy are the tools of the calls that are under way, and of those that the plan is to launch or that this invocation has claimed, by id:
// one that is claimed and has not landed runs, or is about to.
func (r *round) busy(p *batchPlan) []string {
	running := map[string]string{}
	for _, c := range p.draft.State.Live {
		if c.Status == run.StatusRunning && c.Claim == r.inv.Writer {
			running[c.ID] = c.Tool
		}
	}
	for _, c := range p.launch {
		running[c.ID] = c.Tool
	}
	r.flight.mu.Lock()
	defer r.flight.mu.Unlock()
	for id, x := range r.flight.air {
		running[id] = x.call.Tool
	}
	return slices.Collect(maps.Values(running))
}

// launch enters the tools of the plan's calls, in request order, each on its own. All of them see the shared state that the plan ends with.
func (r *round) launch(ctx context.Context, p *batchPlan) {
	for _, c := range p.launch {
		x := &execution{call: c, claimed: c.Claim != ""}
		r.flight.took(x)
		if c.Service {
			send, err := r.outgoing(c, &p.draft.State) // of the state as it is now: the round goes on beside it
			r.Clock.Go(func() { r.sendOut(ctx, x, send, err) })
			continue
		}
		entered := r.toolCall(c, &p.draft.State)
		t, ok := r.tool(c, &p.draft.State)
		r.Clock.Go(func() { r.flight.landed(x, r.enter(ctx, c, entered, t, ok)) })
	}
}

// toolCall is the call as its tool receives it in the state s, of which it gets a copy of its own.
func (r *round) toolCall(c run.Call, s *run.AgentState) tool.Call {
	spec, _ := r.def.Tool(c.Tool)
	return tool.Call{
		Tenant: r.inv.Tenant, Run: r.inv.Run, ID: c.ID, Name: c.Tool, Args: c.Input, Key: r.inv.Run + "/" + c.ID, Root: spec.Root,
		State:  bytes.Clone(s.SharedState()),
		Resume: c.ToolAnswer(), Memo: c.ToolMemo(),
	}
}

// enter runs a tool to its end or its deadline and says what is to be stored. A tool that cannot be repeated and ran out
// of time, or whose answer was lost, may or may not have happened.
func (r *round) enter(ctx context.Context, c run.Call, entered tool.Call, t tool.Tool, known bool) run.Event {
	if !known {
		return run.CallFinished{Call: c.ID, Ran: c.Claim == "", IsError: true, Reason: run.WhyUnknownTool,
			Content: "The tool " + c.Name + " is not part of this deployment."}
	}
	a := r.attempts(ctx, t, c, entered)
	if fact, changed := r.changed(c, a.err); changed {
		return r.lose(ctx, c, fact)
	}
	switch {
	case c.Effect == run.EffectNonIdempotent && a.unsure():
		return nil
	case a.ranOut:
		return run.CallFinished{
			Call: c.ID, Ran: c.Claim == "", IsError: true, Reason: run.WhyTimeout, Content: a.text(agent.TextTimeout(c.Name)), Entered: a.entered(),
		}
	case a.err != nil:
		a.result = agent.ToolResultData{Content: a.text(c.Name + " failed: " + run.Bounded(a.err.Error())), IsError: true}
	}
	e, err := r.wordOf(context.WithoutCancel(ctx), t, c, checkedPatch(c, entered.State, a.result))
	if err != nil {
		e = run.CallFinished{Call: c.ID, Ran: c.Claim == "", IsError: true, Reason: run.WhyToolError,
			Content: "The tool ran, but its result could not be stored."}
	}
	return enteredOften(e, a.entered())
}

// enteredOften is the fact with how often its tool was entered.
func enteredOften(e run.Event, n int) run.Event {
	switch e := e.(type) {
	case run.CallFinished:
		e.Entered = n
		return e
	case run.CallSuspended:
		e.Entered = n
		return e
	default:
		return e
	}
}

// timeout is the tool's, cut so that its deadline lies before the invocation's own.
func (r *round) timeout(ctx context.Context, c run.Call) time.Duration {
	limit := defaultTimeout
	if t, ok := r.def.Tool(c.Tool); ok && t.Timeout > 0 {
		limit = t.Timeout
	}
	if at, ok := ctx.Deadline(); ok {
		limit = min(limit, at.Sub(r.Clock.Now())-deadlineMargin)
	}
	return max(limit, time.Millisecond)
}

// errPanicked is the error of a tool that panicked. What it panicked with may hold anything, so nobody is told.
var errPanicked = errors.New("it panicked")

// call enters the tool and gives up on it when ctx ends, also if the tool does not: then what it does later is lost.
func call(ctx context.Context, clk clock.Clock, t tool.Tool, c tool.Call) (agent.ToolResultData, error) {
	var res agent.ToolResultData
	err := errPanicked
	done := clk.NewSignal()
	var mu sync.Mutex
	clk.Go(func() {
		defer done.Notify()
		defer func() {
			if recover() != nil {
				mu.Lock()
				defer mu.Unlock()
				err = errPanicked
			}
		}()
		got, failed := t.Call(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		res, err = got, failed
	})
	if ended := done.Wait(ctx, 0); ended != nil {
		return agent.ToolResultData{}, ended
	}
	mu.Lock()
	defer mu.Unlock()
	return res, err
}

// checkedPatch is the result with what the tool changed of the state it saw, or, where that cannot be, as the error that says so: the tool
// has run, and nothing is changed. A call that failed or suspends changes nothing either.
func checkedPatch(c run.Call, view json.RawMessage, res agent.ToolResultData) agent.ToolResultData {
	if res.IsError || res.Suspend != nil {
		res.Patch = nil
	}
	if err := policy.CheckPatch(view, res.Patch); err != nil {
		res.Patch, res.IsError = nil, true
		res.Content = agent.TextPatchRefused(c.Name, err) + res.Content
	}
	return res
}

// word is what a tool said, as it is stored: its result, or what it asks people. A question that nobody could be asked is an error of the
// tool's.
func (r *round) word(ctx context.Context, c run.Call, res agent.ToolResultData) (run.Event, error) {
	if res.Suspend == nil {
		return r.finished(ctx, c, res)
	}
	t, err := policy.Checked(*res.Suspend)
	if err == nil {
		err = r.answerable(t)
	}
	if err != nil {
		return r.finished(ctx, c, agent.ToolResultData{Content: c.Name + " asked for input in a way that cannot be shown: " + run.Bounded(err.Error()), IsError: true})
	}
	return run.CallSuspended{Call: c.ID, For: run.ForInput, Ticket: &t, Ran: c.Claim == ""}, nil
}

// answerable reports what is wrong with the schema of a ticket's answer: one that nothing can be checked against would refuse every answer.
func (r *round) answerable(t run.Ticket) error {
	if t.ResponseSchema == nil {
		return nil
	}
	var broken *policy.SchemaError
	if fits := r.Valid(agent.ToolSpec{Name: "response", Schema: t.ResponseSchema}, json.RawMessage("null")); errors.As(fits, &broken) {
		return fmt.Errorf("responseSchema: %w", broken.Err)
	}
	return nil
}

// finished is a tool's result as it is stored: valid text and media, as much of the text as the agent's context takes, with what is long in
// blobs, and what a person changed said first.
func (r *round) finished(ctx context.Context, c run.Call, res agent.ToolResultData) (run.CallFinished, error) {
	k, err := r.keep(ctx, res.Media)
	if err != nil {
		return run.CallFinished{}, fmt.Errorf("store media of call %s: %w", c.ID, err)
	}
	spec, _ := r.def.Tool(c.Tool)
	text, notice := prompt.CapResult(spec, res.Content)
	if notice != "" {
		k.notices = append([]string{notice}, k.notices...)
	}
	text, whole := r.shortened(ctx, c.ID, text)
	e := run.CallFinished{Call: c.ID, Ran: c.Claim == "", IsError: res.IsError, Content: resultText(c, text, k), Media: k.media, Patch: res.Patch, Whole: whole}
	if res.IsError {
		e.Reason = run.WhyToolError
	}
	return r.stored(ctx, c, e)
}

// stored is a result as its entry holds it: a long text is in a blob.
func (r *round) stored(ctx context.Context, c run.Call, e run.CallFinished) (run.CallFinished, error) {
	if run.StoredLen(e.Content) <= maxInline {
		return e, nil
	}
	text := []byte(e.Content)
	e.Content, e.Blob = "", store.BlobDigest(text)
	if err := r.Blobs.Put(ctx, r.inv.Tenant, e.Blob, text); err != nil {
		return run.CallFinished{}, fmt.Errorf("store result of call %s: %w", c.ID, err)
	}
	return e, nil
}

// resultText is what the model reads of a result: the tool's own words, or which media it gave; what a person changed before, and what
// was left out behind.
func resultText(c run.Call, text string, k kept) string {
	if text == "" && len(k.media) > 0 {
		text = agent.TextMedia(k.media)
	}
	if text == "" {
		text = agent.TextNothing(c.Name)
	}
	text = edited(c, text)
	for _, notice := range k.notices {
		if text != "" {
			text += "\n"
		}
		text += notice
	}
	return text
}

// edited is a result with what a person changed of its call's arguments said first.
func edited(c run.Call, text string) string {
	if by := c.Editor(); by != "" {
		return agent.TextEdited(by, string(c.Input)) + text
	}
	return text
}
