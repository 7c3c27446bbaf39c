package stream

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
)

// Events returns the events of entry e, in order, and the run after e. before is the run before e; if the run
// continues or forks another, it is the run's Seed. d is the pinned definition. Errors are those of run.ApplyEntry.
func Events(d *agent.Definition, before run.AgentState, e run.Entry) ([]Event, run.AgentState, error) {
	after, err := run.ApplyEntry(before, e)
	if err != nil || after.Entries == before.Entries {
		return nil, after, err
	}
	p := &projection{def: d, entry: e}
	draft := run.NewDraft(before, e.Writer, e.Time)
	for i, fact := range e.Events {
		p.index, p.before = i, draft.State
		if err := draft.Add(fact); err != nil {
			return nil, before, fmt.Errorf("entry %d: %w", e.Seq, err)
		}
		p.after = draft.State
		p.addFact(fact)
	}
	if p.err != nil {
		return nil, before, fmt.Errorf("entry %d: %w", e.Seq, p.err)
	}
	return p.sortEvents(), after, nil
}

// projection builds the events of an entry, one fact of the entry at a time.
type projection struct {
	def           *agent.Definition
	entry         run.Entry
	index         int // of the fact
	before, after run.AgentState
	out           []Event
	err           error // the first
}

// addFact adds the events of a fact: of the fact itself, of changed calls, state and plan, and of the attempt's end.
// Other facts only have events for what they change.
func (p *projection) addFact(fact run.Event) {
	var verdict *Verdict // that ends a wait
	switch f := fact.(type) {
	case run.RunStarted:
		p.addFirstStart()
	case run.InputReceived:
		if !f.Starts && p.after.Drained != p.before.Drained {
			p.addActivity("user_input", InputContent{By: f.By, Messages: f.Blocks})
		}
	case run.Replied:
		p.addReply(f)
	case run.Evicted:
		p.addConversation(true)
	case run.Resumed:
		if p.before.Status == run.RunWaiting {
			p.addStart(true)
		}
	case run.PermissionRequested:
		p.addRequest(f)
	case run.Decided:
		verdict = &Verdict{
			Action: f.Action, By: f.By, Note: f.Note, Arguments: f.Args, Result: f.Result, Approval: f.Approval,
		}
	case run.Answered:
		verdict = &Verdict{
			By: f.By, Content: f.Content, Blob: f.Blob, IsError: f.IsError, Rerun: f.Rerun, Approval: f.Approval,
		}
	case run.CallPermitted:
		verdict = &Verdict{Action: run.ActionApprove, Approval: f.Approval}
	case run.UndoOrdered: // a person made the call, no model
		if _, known := p.before.Call(f.Call.ID); !known {
			p.addCall(0, f.Call)
		}
	case run.BudgetAsked: // the run made it
		if c, made := p.after.Call(f.Call); made {
			p.addCall(0, run.RepliedCall{ID: c.ID, Name: c.Name, Tool: c.Tool, Effect: c.Effect, Input: c.Input})
		}
	case run.PlanEvent:
		p.addPlanReply(f.Fact())
	}
	p.addCallChanges(fact, verdict)
	p.addStateDelta()
	p.addPlanProgress()
	switch fact.(type) {
	case run.ContextBuilt, run.PlanLeft: // it changed the conversation
		p.addConversation(false)
	case run.Parked:
		p.addParked()
	case run.Finished:
		p.addFinish()
	}
}

// add adds an event of step n; 0 = about the run. An event of a parked run begins a new attempt.
func (p *projection) add(t Type, n int64, data any) {
	if p.before.Status == run.RunWaiting && t != RunStart &&
		!slices.ContainsFunc(p.out, func(e Event) bool { return e.Type == RunStart }) {
		p.addStart(true)
	}
	e := newEvent(&p.after, t, p.entry.Time.Truncate(time.Millisecond))
	e.Seq, e.Step, e.Data = p.entry.Seq, stepID(n), data
	p.out = append(p.out, e)
}

// messageID returns the id of the message that the fact adds.
func (p *projection) messageID() string { return fmt.Sprintf("m%d.%d", p.entry.Seq, p.index) }

// sortEvents returns the events in order. Among neighbouring outcomes of calls, waits precede results.
func (p *projection) sortEvents() []Event {
	rank := func(e Event) int { // 1 = a wait, 2 = a result, 0 = something else
		switch d := e.Data.(type) {
		case ToolCallDoneData:
			return 2
		case ToolCallStartData:
			return min(1, len(d.Pending))
		case ToolCallReadyData:
			return min(1, len(d.Pending))
		}
		return 0
	}
	for from := 0; from < len(p.out); {
		to := from + 1
		for to < len(p.out) && rank(p.out[from]) > 0 && rank(p.out[to]) > 0 {
			to++
		}
		slices.SortStableFunc(p.out[from:to], func(a, b Event) int { return rank(a) - rank(b) })
		from = to
	}
	for i := range p.out {
		p.out[i].Index = i
	}
	return p.out
}

func (p *projection) addFirstStart() {
	if p.before.Status != "" {
		return
	}
	p.addStart(false)
	p.addConversation(false)
	if state := p.after.SharedState(); string(state) != "{}" { // of the continued run
		p.add(StateSnapshot, 0, StateSnapshotData{State: state})
	}
	for _, c := range p.after.Waits() { // of the original run: a fork asks again
		p.addPendingCall(c)
	}
}

// addStart adds the start of an attempt.
func (p *projection) addStart(resumed bool) {
	d := RunStartData{Agent: p.after.Agent, Version: p.after.Version, Resumed: resumed}
	if p.after.From != nil {
		d.Parent = p.after.From.Run
	}
	if !resumed {
		d.open = slices.DeleteFunc(slices.Clone(p.after.Live), func(c run.Call) bool { return !c.Open() })
	}
	if by := p.after.Parent; by != nil {
		d.DelegatedBy = &DelegatorData{Agent: policy.Caller(&p.after), Run: by.Run, Call: by.Call, Root: by.Root}
	}
	p.add(RunStart, 0, d)
}

// addConversation adds the whole conversation, after a change that is more than an append.
func (p *projection) addConversation(evicted bool) {
	list := p.after.Messages.All()
	messages, err := policy.ViewMessages(policy.WithSeenCounts(list, p.after.Inferences))
	p.err = cmp.Or(p.err, err)
	p.add(MessagesSnapshot, 0, MessagesSnapshotData{
		Messages: messages, Summary: policy.SummaryShown(&p.after), evicted: evicted, list: list,
	})
}

// addActivity adds an action of somebody other than the model.
func (p *projection) addActivity(kind string, content any) {
	p.add(ActivitySnapshot, 0, ActivitySnapshotData{Message: p.messageID(), Kind: kind, Content: content,
		Replace: true})
}

// addRequest adds the one request about the blocked calls of a batch.
func (p *projection) addRequest(f run.PermissionRequested) {
	if len(p.after.OpenRequests()) == len(p.before.OpenRequests()) {
		return
	}
	content := RequestContent{Approval: f.Approval, Reason: f.Reason}
	for _, t := range f.Tools {
		content.Tools = append(content.Tools, RequestedTool{Kind: p.toolKind(t.Tool), Name: t.Name, Tool: t.Tool,
			Calls: t.Calls})
	}
	p.addActivity("permission_request", content)
}

func (p *projection) addParked() {
	if p.before.Status == run.RunWaiting {
		return
	}
	end := RunFinishData{Termination: run.ReasonSuspended}
	for _, c := range p.after.Waits() {
		end.Waiting = append(end.Waiting, Waiting{
			Call: c.ID, Name: c.Name, Tool: c.Tool, Kind: p.toolKind(c.Tool), For: c.Wait.For, Approval: c.Wait.Approval,
		})
	}
	for _, r := range p.after.OpenRequests() {
		for _, t := range r.Tools {
			end.Waiting = append(end.Waiting, Waiting{
				Call: t.Calls[0], Name: t.Name, Tool: t.Tool, Kind: p.toolKind(t.Tool), For: run.ForApproval, Approval: r.Approval,
			})
		}
	}
	p.add(RunFinish, 0, end)
}

func (p *projection) addFinish() {
	s := &p.after
	if p.before.Status == run.RunDone {
		return
	}
	if s.Error != nil {
		p.add(Error, 0, ErrorData{Message: s.Error.Message, Code: s.Error.Code})
	}
	end := RunFinishData{Termination: s.Reason}
	output := string(bytes.TrimSpace(s.Output))
	if s.Reason == run.ReasonNaturalEnd && output != "" && output != `""` && output != "null" {
		end.Result = &Response{Response: s.Output}
	}
	p.add(RunFinish, 0, end)
}

// addReply adds a whole step, because one fact commits all of it.
func (p *projection) addReply(f run.Replied) {
	n := p.after.Inferences
	if n == p.before.Inferences {
		return
	}
	p.add(StepStart, n, p.newStepStart(f))
	var thoughts []string
	for _, r := range f.Reasoning {
		if len(r.Redacted) > 0 {
			p.add(EncryptedThought, n, EncryptedThoughtData{Message: p.messageID(), Value: r.Redacted})
		}
		if r.Text != "" {
			thoughts = append(thoughts, r.Text)
		}
	}
	for _, c := range f.Calls {
		p.addCall(n, c)
	}
	done := InferenceDoneData{
		Model: f.Model, Usage: f.Usage, Units: f.Units, Requests: f.Requests, Text: f.Text, Stop: f.Stop,
		TextDropped: f.TextDropped, Duration: p.millisecondsSince(f.At),
	}
	// The texts for the encodings. The canonical form has them in the conversation.
	done.thoughts, done.text, done.sentBack = thoughts, f.Text, f.Correction != nil && !f.Correction.Continues()
	if len(f.Calls) == 0 {
		t := policy.SplitReply(p.def, f.Text)
		done.text = t.Text
		for _, thought := range t.Thoughts {
			done.written = append(done.written, thought.Text)
		}
	}
	if f.Correction != nil {
		done.Refused, done.RefusedAs, done.Problem = f.Correction.Text, f.Correction.Kind, f.Correction.Detail
	}
	if f.Room != nil {
		done.Context = &ContextBudget{Total: f.Room.Of, Remaining: f.Room.Left}
	}
	p.add(InferenceDone, n, done)
	p.add(StepEnd, n, StepEndData{})
}

// millisecondsSince returns the milliseconds from the entry's time to at, in milliseconds since 1970; 0 if at is
// unknown.
func (p *projection) millisecondsSince(at int64) int64 {
	if at <= 0 {
		return 0
	}
	return max(0, at-p.entry.Time.UnixMilli())
}

// newStepStart returns the request of an inference. Next returns why the model was called.
func (p *projection) newStepStart(f run.Replied) StepStartData {
	s := &p.before
	d := StepStartData{
		Message: p.messageID(), Cycle: Cycle{Max: s.Interactions.Max, Current: s.Interactions.Current},
		messages: s.Messages.All(), asked: s.Inferences,
	}
	a := policy.Next(p.def, s)
	a.Offered = f.Offered
	if f.Summary {
		a.Lifecycle, a.Exhausted = run.LifecycleSummary, true
	}
	d.Lifecycle, d.Cycle.Exhausted = a.Lifecycle, a.Exhausted
	d.output = p.def.Output.Format
	// The system text is "" if it was not kept: it is in a blob, or Go code or the clock had a part in it.
	if text, _, ok := prompt.KeptSystem(p.def, &p.after); ok {
		d.system = text
	} else {
		data := prompt.SystemFor(p.def, s, a, p.entry.Time)
		text, err := agent.RenderSystem(*p.def, data)
		if err == nil {
			text, err = prompt.BuildSystem(p.def, text, data)
		}
		if err == nil && prompt.SystemDigest(text) == p.after.System {
			d.system = text
		}
	}
	r, _ := prompt.BuildRequest(p.def, s, a, d.system)
	for _, t := range r.Tools {
		d.tools = append(d.tools, agent.ModelName(t.Name))
	}
	return d
}

// addCall adds the start of a call and the ready call.
func (p *projection) addCall(n int64, c run.RepliedCall) {
	d := ToolCallReadyData{ID: c.ID, Name: c.Name, Arguments: c.Input, Tool: cmp.Or(c.Tool, c.Name),
		Repaired: c.Repaired}
	if len(d.Arguments) == 0 {
		d.Arguments = json.RawMessage("{}")
	}
	t, known := p.def.Tool(d.Tool)
	d.missing = !known || t.ModelName() != c.Name
	p.addReadyCall(n, d)
}

func (p *projection) addReadyCall(n int64, d ToolCallReadyData) {
	d.Kind = p.toolKind(d.Tool)
	p.add(ToolCallStart, n, ToolCallStartData{ID: d.ID, Name: d.Name, Pending: d.Pending})
	p.add(ToolCallReady, n, d)
}

// addCallChanges adds what a fact changed in the calls that were open before it.
func (p *projection) addCallChanges(fact run.Event, verdict *Verdict) {
	for _, was := range p.before.Live {
		if !was.Open() {
			continue
		}
		is, ok := p.after.Call(was.ID)
		if !ok || is.Status == was.Status && is.Asks == was.Asks {
			continue
		}
		pending, asked := p.newPendingCall(was)
		if asked && verdict != nil {
			p.add(ToolCallResumed, p.stepOf(is), ToolCallResumedData{
				Target: pending.ID, Call: is.ID, Result: *verdict, name: is.Name, kind: p.toolKind(is.Tool),
			})
		}
		switch r := is.Result; {
		case is.Status == run.StatusSuspended:
			p.addPendingCall(is)
		case !is.Open() && r != nil:
			if !asked || verdict != nil {
				pending.ID = ""
			}
			p.add(ToolCallDone, p.stepOf(is), ToolCallDoneData{
				ID: is.ID, Name: is.Name, Tool: is.Tool, Kind: p.toolKind(is.Tool), Message: "result_" + is.ID,
				Outcome: is.Status, Reason: is.Reason, Patch: findPatch(fact, is.ID),
				Result:  newToolResult(r),
				pending: pending.ID,
			})
		}
	}
}

// findPatch returns the state patch of the fact that ended a call.
func findPatch(fact run.Event, call string) []run.Patch {
	of, patch := "", []run.Patch(nil)
	switch f := fact.(type) {
	case run.CallFinished:
		of, patch = f.Call, f.Patch
	case run.Answered:
		of, patch = f.Call, f.Patch
	case run.LateResult:
		of, patch = f.Call, f.Patch
	}
	if of != call {
		return nil
	}
	return patch
}

// stepOf returns the inference of this run that made a call; 0 = an inference of the original run.
func (p *projection) stepOf(c run.Call) int64 { return max(0, c.Inference-p.after.Prior) }

// pendingTools are the tool names of the pending calls.
var pendingTools = map[run.WaitFor]string{run.ForApproval: "PermissionConfirm", run.ForOutcome: "OutcomeConfirm"}

// addPendingCall adds the pending call about c. A call that waits for a service has none.
func (p *projection) addPendingCall(c run.Call) {
	if d, asks := p.newPendingCall(c); asks {
		p.addReadyCall(p.stepOf(c), d)
	}
}

// newPendingCall returns the pending call about c while c waits: its tool's own, or PermissionConfirm or
// OutcomeConfirm. Each new request has a new id.
func (p *projection) newPendingCall(c run.Call) (d ToolCallReadyData, asks bool) {
	if c.Wait == nil {
		return d, false
	}
	d = ToolCallReadyData{ID: "fc_" + c.ID, Tool: c.Tool, Pending: c.ID, For: c.Wait.For, Approval: c.Wait.Approval,
		input: c.Input}
	if c.Asks > 1 {
		d.ID += "_" + strconv.Itoa(c.Asks)
	}
	if t, ok := policy.TicketOf(c); ok && c.Wait.For == run.ForInput {
		if t.Pending.ID != c.ID {
			d.ID = t.Pending.ID
		}
		d.Name, d.Arguments = t.Pending.Name, t.Pending.Arguments
		return d, true
	}
	if d.Name, asks = pendingTools[c.Wait.For]; asks {
		var err error
		d.Arguments, err = jsonx.MarshalVerbatim(object{"tool_name", c.Name, "tool_args", c.Input})
		p.err = cmp.Or(p.err, err)
	}
	return d, asks
}

// toolKind returns the kind of a tool by its original name; "" = not in the definition.
func (p *projection) toolKind(tool string) agent.ToolKind {
	for _, t := range p.def.Tools {
		if t.Name == tool {
			return t.Kind
		}
	}
	return ""
}

// addStateDelta adds the change of the shared state as a JSON Patch, member by member.
func (p *projection) addStateDelta() {
	from, to := p.before.SharedState(), p.after.SharedState()
	if p.before.Status == "" || bytes.Equal(from, to) {
		return
	}
	var was, is map[string]json.RawMessage
	p.err = cmp.Or(p.err, json.Unmarshal(from, &was))
	p.err = cmp.Or(p.err, json.Unmarshal(to, &is))
	names := maps.Clone(was)
	maps.Copy(names, is)
	var delta []StateOperation
	for _, name := range slices.Sorted(maps.Keys(names)) {
		old, had := was[name]
		now, has := is[name]
		o := StateOperation{Op: "replace", Path: jsonx.FormatPointer([]string{name}), Value: now}
		switch {
		case !has:
			o.Op = "remove"
		case !had:
			o.Op = "add"
		case bytes.Equal(old, now):
			continue
		}
		delta = append(delta, o)
	}
	p.add(StateDelta, 0, StateDeltaData{Delta: delta})
}

// addPlanProgress adds the progress of the plan since the fact before.
func (p *projection) addPlanProgress() {
	if p.before.Status == "" || p.after.Plan.Memory == nil {
		return
	}
	was, errBefore := prompt.Steps(&p.before)
	steps, err := prompt.Steps(&p.after)
	if errBefore != nil || err != nil { // the run ends on it, and says so
		return
	}
	if p.after.Plan.Stage == run.PlanSteps && p.before.Plan.Stage != run.PlanSteps {
		d := PlanCreatedData{Message: p.messageID()}
		for _, s := range steps {
			d.Steps = append(d.Steps, s.Step)
		}
		p.add(PlanCreated, 0, d)
	}
	was = append(was, make([]prompt.StepState, max(0, len(steps)-len(was)))...)
	for i, s := range steps {
		if s.Done && !was[i].Done {
			preview := ""
			if s.Call.Result != nil {
				content := []rune(s.Call.Result.Content)
				preview = string(content[:min(200, len(content))])
			}
			p.add(StepCompleted, 0, StepCompletedData{
				Step: s.Number, Success: !s.Failed, Call: s.Call.ID, Tool: s.Call.Tool, Preview: preview,
			})
		}
	}
	for i, s := range steps {
		if s.Now && !was[i].Now {
			p.add(StepExecuting, 0, StepExecutingData{Step: s.Number, Description: s.Description})
		}
	}
}

// addPlanReply adds a reply of the planner, which is no step of the run: its call, its usage and its kept text.
func (p *projection) addPlanReply(f run.PlanFact) {
	if p.after.Plan.Facts == p.before.Plan.Facts || f.Model == "" && f.Static == "" {
		return
	}
	if f.Call != nil {
		p.addCall(0, *f.Call)
	}
	if f.Model != "" {
		p.add(InferenceDone, 0, InferenceDoneData{
			Model: f.Model, Usage: f.Usage, Units: f.Units, Requests: f.Requests, Text: f.Text,
			Duration: p.millisecondsSince(f.At),
		})
	}
	if f.Static != "" {
		p.addConversation(false)
	}
}
