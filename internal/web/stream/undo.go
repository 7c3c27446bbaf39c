package stream

import "github.com/countersign/countersign/internal/agent"

// ordered tells the call that a person has had the run begin with: no model has made it.
func ordered(w *writing, fact agent.Event) {
	e, ok := fact.(agent.UndoOrdered)
	if !ok {
		return
	}
	if _, known := w.before.Call(e.Call.ID); known {
		return
	}
	w.add(ToolCallStart, 0, ToolCallStartData{ID: e.Call.ID, Name: e.Call.Name})
	w.add(ToolCallReady, 0, w.ready(e.Call))
}
