package stream

import (
	"bytes"

	"github.com/countersign/countersign/internal/agent"
)

// line is how a fact is told. What it changes of calls is told between first and last, for every fact alike: calls that came to wait and
// calls that are done.
type line struct {
	first, last func(w *writing, fact agent.Event)
	verdict     func(fact agent.Event) Verdict // for facts by which somebody ends a wait; nil = nobody does
}

// lines has a line for every fact of the journal. A zero line says that the fact tells what it changes of calls and nothing else, and so
// does a missing one; a test asks for a line, so that somebody has thought of it.
var lines = map[string]line{
	"run_started":    {first: started},
	"input_received": {first: input},
	"decided":        {verdict: decided},
	"answered":       {verdict: answered},
	"late_result":    {},
	"replied":        {first: replied},
	"evicted":        {first: evicted},
	"call_claimed":   {}, // a call that starts to run is no news: it is ready
	"call_finished":  {},
	"call_suspended": {},
	"call_unknown":   {},
	"call_cancelled": {},
	"resumed":        {first: func(w *writing, _ agent.Event) { w.resumed() }},
	"parked":         {last: parked},
	"handed_over":    {}, // who writes is nobody's concern
	"finished":       {last: finished},

	"context_built":        {last: func(w *writing, _ agent.Event) { w.conversation() }},
	"decision_kept":        {}, // nothing is decided yet
	"decision_dropped":     {},
	"tools_judged":         {},
	"tools_listed":         {}, // a run in JSON has it
	"tools_disabled":       {},
	"permission_requested": {first: requested},
	"permission_answered":  {},
	"call_permitted":       {verdict: permitted},
	"policy_evaluated":     {},
	"permission_checked":   {},
	"permission_failed":    {}, // the end that comes of it says so
	"context_full":         {}, // the summary or the end that comes of it says so
	"late_suspended":       {},
	"planned":              {first: planned},
	"step_routed":          {first: routed},
	"undo_ordered":         {first: ordered},
	"synthesised":          {first: synthesised},
	"plan_left":            {last: func(w *writing, _ agent.Event) { w.conversation() }}, // what the plan has done is part of it now
	"hooked":               {},                                                           // plugins; what they say is in the next request, and what they patch in state_delta
}

func started(w *writing, _ agent.Event) {
	if w.before.Status != "" {
		return
	}
	w.start(false)
	w.conversation()
	if state := w.after.SharedState(); string(state) != "{}" { // of the run that this one goes on from
		w.add(StateSnapshot, 0, StateSnapshotData{State: state})
	}
	for _, c := range w.after.Waits() { // of the run that this one branched off: people are asked anew
		w.suspended(c)
	}
}

func (w *writing) resumed() {
	if w.before.Status == agent.RunWaiting {
		w.start(true)
	}
}

// start begins an attempt.
func (w *writing) start(resumed bool) {
	d := RunStartData{Agent: w.after.Agent, Version: w.after.Version, Resumed: resumed}
	if w.after.From != nil {
		d.Parent = w.after.From.Run
	}
	if p := w.after.Parent; p != nil {
		d.DelegatedBy = &DelegatorData{Agent: w.after.Caller(), Run: p.Run, Call: p.Call, Root: p.Root}
	}
	w.add(RunStart, 0, d)
}

// conversation tells all of it, where it is not what it was and something more.
func (w *writing) conversation() {
	messages, err := agent.MarshalMessages(w.after.Messages.All(), w.after.Inferences)
	w.fail(err)
	w.add(MessagesSnapshot, 0, MessagesSnapshotData{Messages: messages, Summary: w.after.SummaryShown(), list: w.after.Messages.All()})
}

func evicted(w *writing, _ agent.Event) {
	w.conversation()
	told := &w.out[len(w.out)-1]
	if d, ok := told.Data.(MessagesSnapshotData); ok {
		d.evicted = true
		told.Data = d
	}
}

func input(w *writing, fact agent.Event) {
	e, ok := fact.(agent.InputReceived)
	if !ok || e.Starts || w.after.Drained == w.before.Drained {
		return
	}
	w.add(ActivitySnapshot, 0, ActivitySnapshotData{
		Message: w.message(), Kind: "user_input", Content: InputContent{By: e.By, Messages: e.Blocks}, Replace: true,
	})
}

func decided(fact agent.Event) Verdict {
	e, _ := fact.(agent.Decided)
	return Verdict{Action: e.Action, By: e.By, Note: e.Note, Arguments: e.Args, Result: e.Result, Approval: e.Approval}
}

func answered(fact agent.Event) Verdict {
	e, _ := fact.(agent.Answered)
	return Verdict{By: e.By, Content: e.Content, Blob: e.Blob, IsError: e.IsError, Rerun: e.Rerun, Approval: e.Approval}
}

func permitted(fact agent.Event) Verdict {
	e, _ := fact.(agent.CallPermitted)
	return Verdict{Action: agent.ActionApprove, Approval: e.Approval}
}

func parked(w *writing, _ agent.Event) {
	if w.before.Status == agent.RunWaiting {
		return
	}
	end := RunFinishData{Termination: agent.ReasonSuspended}
	for _, c := range w.after.Waits() {
		end.Waiting = append(end.Waiting, Waiting{
			Call: c.ID, Name: c.Name, Tool: c.Tool, Kind: w.kind(c.Tool), For: c.Wait.For, Approval: c.Wait.Approval,
		})
	}
	for _, r := range w.after.OpenRequests() {
		for _, t := range r.Tools {
			end.Waiting = append(end.Waiting, Waiting{
				Call: t.Calls[0], Name: t.Name, Tool: t.Tool, Kind: w.kind(t.Tool), For: agent.ForApproval, Approval: r.Approval,
			})
		}
	}
	w.add(RunFinish, 0, end)
}

// requested tells of the one request that a batch's blocked calls make.
func requested(w *writing, fact agent.Event) {
	e, ok := fact.(agent.PermissionRequested)
	if !ok || len(w.after.OpenRequests()) == len(w.before.OpenRequests()) {
		return
	}
	content := RequestContent{Approval: e.Approval, Reason: e.Reason}
	for _, t := range e.Tools {
		content.Tools = append(content.Tools, RequestedTool{Kind: w.kind(t.Tool), Name: t.Name, Tool: t.Tool, Calls: t.Calls})
	}
	w.add(ActivitySnapshot, 0, ActivitySnapshotData{Message: w.message(), Kind: activityRequest, Content: content, Replace: true})
}

func finished(w *writing, _ agent.Event) {
	s := &w.after
	if w.before.Status == agent.RunDone {
		return
	}
	if s.Error != nil {
		w.add(Error, 0, ErrorData{Message: s.Error.Message, Code: s.Error.Code})
	}
	end := RunFinishData{Termination: s.Reason}
	if said := bytes.TrimSpace(s.Output); s.Reason == agent.ReasonNaturalEnd && len(said) > 0 && string(said) != `""` && string(said) != "null" {
		end.Result = &Response{Response: s.Output}
	}
	w.add(RunFinish, 0, end)
}
