package stream

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/countersign/countersign/internal/agent"
)

// Of is the events of entry e, in order, and the run after it. Before is the run as it was before e: of a run that began from another, Seed
// of that one. D is the definition the run is pinned to; of nil, the events lack what it alone can say. An error is agent.ApplyEntry's.
func Of(d *agent.Definition, before agent.AgentState, e agent.Entry) (events []Event, after agent.AgentState, err error) {
	if after, err = agent.ApplyEntry(before, e); err != nil || after.Entries == before.Entries {
		return nil, after, err
	}
	w := &writing{def: d, entry: e}
	draft := agent.NewDraft(before, e.Writer, e.Time)
	for i, fact := range e.Events {
		w.index, w.before = i, draft.State
		if err := draft.Add(fact); err != nil {
			return nil, before, fmt.Errorf("entry %d: %w", e.Seq, err)
		}
		w.after = draft.State
		w.tell(fact)
	}
	if w.err != nil {
		return nil, before, fmt.Errorf("entry %d: %w", e.Seq, w.err)
	}
	return w.events(), after, nil
}

// writing is the events of an entry under way, at one of its facts.
type writing struct {
	def           *agent.Definition
	entry         agent.Entry
	index         int // of the fact
	before, after agent.AgentState
	out           []Event
	err           error // the first; nothing is told then
}

// tell adds what the fact says by its line, and around it what it changed of calls. A fact without a line says what it changed of calls.
func (w *writing) tell(fact agent.Event) {
	l := lines[agent.EventType(fact)]
	if l.first != nil {
		l.first(w, fact)
	}
	w.changes(fact, l)
	w.shared()
	w.plan()
	if l.last != nil {
		l.last(w, fact)
	}
}

// add adds an event of step n; 0 = it is about the run. What happens to a run that is parked begins a new attempt.
func (w *writing) add(t Type, n int64, data any) {
	attempt := w.before.Status != agent.RunWaiting || t == RunStart || slices.ContainsFunc(w.out, func(e Event) bool { return e.Type == RunStart })
	if !attempt {
		w.start(true)
	}
	s := &w.after
	e := Event{Type: t, Run: s.Run, Thread: s.Subject, Time: w.entry.Time.UnixMilli(), Step: stepID(n), Data: data}
	if e.Thread == "" {
		e.Thread = s.Run
	}
	e.who = whoOf(s)
	w.out = append(w.out, e)
}

func (w *writing) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// message is the id of what the fact says.
func (w *writing) message() string { return fmt.Sprintf("m%d.%d", w.entry.Seq, w.index) }

// events are those that were added, in the order in which they are told.
func (w *writing) events() []Event {
	for from := 0; from < len(w.out); {
		to := from + 1
		for to < len(w.out) && outcome(w.out[from]) && outcome(w.out[to]) {
			to++
		}
		slices.SortStableFunc(w.out[from:to], func(a, b Event) int { return done(a) - done(b) })
		from = to
	}
	for i := range w.out {
		w.out[i].Seq, w.out[i].Index = w.entry.Seq, i
	}
	return w.out
}

// outcome reports whether an event says what a tool call came to: a result or a wait.
func outcome(e Event) bool { return done(e) == 1 || pending(e) }

func done(e Event) int {
	if e.Type == ToolCallDone {
		return 1
	}
	return 0
}

func pending(e Event) bool {
	switch d := e.Data.(type) {
	case ToolCallStartData:
		return d.Pending != ""
	case ToolCallReadyData:
		return d.Pending != ""
	}
	return false
}

// changes tells what a fact changed of calls that were open before it.
func (w *writing) changes(fact agent.Event, l line) {
	for _, was := range w.before.Live {
		if !was.Open() {
			continue
		}
		is, ok := w.after.Call(was.ID)
		if !ok || is.Status == was.Status && is.Asks == was.Asks {
			continue
		}
		if _, _, asked := w.pending(was); asked && l.verdict != nil {
			w.add(ToolCallResumed, w.step(is), ToolCallResumedData{
				Target: pendingID(was), Call: is.ID, Result: l.verdict(fact), name: is.Name, kind: w.kind(is.Tool),
			})
		}
		switch {
		case is.Status == agent.StatusSuspended:
			w.suspended(is)
		case !is.Open() && is.Result != nil:
			w.settled(fact, is)
		}
	}
}

// step is the inference of this run that asked for a call; 0 = one of the run that this one began from.
func (w *writing) step(c agent.Call) int64 { return max(0, c.Inference-w.after.Prior) }

// pendingTools are the names under which people are asked (semantics.md, 3.9).
var pendingTools = map[agent.WaitFor]string{agent.ForApproval: "PermissionConfirm", agent.ForOutcome: "OutcomeConfirm"}

// pendingID is the id of the call that asks about c: each time it is asked about, another.
func pendingID(c agent.Call) string {
	if t, ok := c.Asked(); ok && c.Wait != nil && c.Wait.For == agent.ForInput && t.Pending.ID != c.ID {
		return t.Pending.ID
	}
	if c.Asks > 1 {
		return "fc_" + c.ID + "_" + strconv.Itoa(c.Asks)
	}
	return "fc_" + c.ID
}

// suspended tells of the call that asks about c. One that waits for something else asks nobody.
func (w *writing) suspended(c agent.Call) {
	name, arguments, asks := w.pending(c)
	if !asks {
		return
	}
	w.add(ToolCallStart, w.step(c), ToolCallStartData{ID: pendingID(c), Name: name, Pending: c.ID})
	w.add(ToolCallReady, w.step(c), ToolCallReadyData{
		ID: pendingID(c), Name: name, Arguments: arguments, Tool: c.Tool, Kind: w.kind(c.Tool), Pending: c.ID, For: c.Wait.For, Approval: c.Wait.Approval,
		input: c.Input,
	})
}

// pending is the call that asks about c while it waits: its tool's own, or one of ours.
func (w *writing) pending(c agent.Call) (name string, arguments json.RawMessage, asks bool) {
	if c.Wait == nil {
		return "", nil, false
	}
	if t, ok := c.Asked(); ok && c.Wait.For == agent.ForInput {
		return t.Pending.Name, t.Pending.Arguments, true
	}
	name, asks = pendingTools[c.Wait.For]
	if !asks {
		return "", nil, false
	}
	arguments, err := agent.MarshalVerbatim(struct {
		Name string          `json:"tool_name"`
		Args json.RawMessage `json:"tool_args"`
	}{c.Name, c.Input})
	w.fail(err)
	return name, arguments, true
}

func (w *writing) settled(fact agent.Event, c agent.Call) {
	r := c.Result
	w.add(ToolCallDone, w.step(c), ToolCallDoneData{
		ID: c.ID, Name: c.Name, Tool: c.Tool, Kind: w.kind(c.Tool), Message: "result_" + c.ID,
		Outcome: c.Status, Reason: c.Reason, Patch: patchOf(fact, c.ID), Result: ToolResult{Content: r.Content, Blob: r.Blob, IsError: r.IsError, Media: r.Media, Whole: r.Whole},
	})
}

// kind is who runs a tool, by its original name; "" = nobody knows it.
func (w *writing) kind(tool string) agent.ToolKind {
	if w.def == nil {
		return ""
	}
	for _, t := range w.def.Tools {
		if t.Name == tool {
			return t.Kind
		}
	}
	return ""
}
