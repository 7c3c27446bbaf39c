package stream

import (
	"encoding/json"

	"github.com/countersign/countersign/internal/agent"
)

// replied tells a whole step: one fact commits all of it.
func replied(w *writing, fact agent.Event) {
	e, ok := fact.(agent.Replied)
	n := w.after.Inferences
	if !ok || n == w.before.Inferences {
		return
	}
	w.add(StepStart, n, w.stepStart(e))
	for _, r := range e.Reasoning {
		if len(r.Redacted) > 0 {
			w.add(EncryptedThought, n, EncryptedThoughtData{Message: w.message(), Value: r.Redacted})
		}
	}
	for _, c := range e.Calls {
		w.add(ToolCallStart, n, ToolCallStartData{ID: c.ID, Name: c.Name})
		w.add(ToolCallReady, n, w.ready(c))
	}
	done := InferenceDoneData{
		Model: e.Model, Usage: e.Usage, Units: e.Units, Requests: e.Requests, Text: e.Text, Stop: e.Stop,
		TextDropped: e.TextDropped, said: w.said(e),
	}
	if e.At > 0 {
		done.Duration = max(0, e.At-w.entry.Time.UnixMilli())
	}
	if e.Correction != nil {
		done.Refused, done.RefusedAs, done.Problem = e.Correction.Text, e.Correction.Kind, e.Correction.Detail
	}
	if e.Room != nil {
		done.Context = &ContextBudget{Total: e.Room.Of, Remaining: e.Room.Left}
	}
	w.add(InferenceDone, n, done)
	w.add(StepEnd, n, StepEndData{})
}

func (w *writing) said(e agent.Replied) said {
	s := said{text: e.Text, calls: len(e.Calls), sentBack: e.Correction != nil && !e.Correction.GoesOn()}
	for _, r := range e.Reasoning {
		if r.Text != "" {
			s.thoughts = append(s.thoughts, r.Text)
		}
	}
	if len(e.Calls) == 0 && w.def != nil {
		t := w.def.TakenApart(e.Text)
		s.text = t.Text
		for _, thought := range t.Thoughts {
			s.written = append(s.written, thought.Text)
		}
	}
	return s
}

func (w *writing) ready(c agent.RepliedCall) ToolCallReadyData {
	tool := c.Tool
	if tool == "" {
		tool = c.Name
	}
	arguments := c.Input
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	return ToolCallReadyData{ID: c.ID, Name: c.Name, Arguments: arguments, Tool: tool, Kind: w.kind(tool), Repaired: c.Repaired, missing: w.missing(tool, c.Name)}
}

// missing reports whether the agent has no tool that the model may call by a name.
func (w *writing) missing(tool, name string) bool {
	if w.def == nil {
		return false
	}
	t, known := w.def.Tool(tool)
	return !known || t.ModelName() != name
}

// stepStart is what the model was asked with. Why it was asked is what Next says of the run as it was then.
func (w *writing) stepStart(e agent.Replied) StepStartData {
	s := &w.before
	d := StepStartData{Message: w.message(), Cycle: Cycle{Max: s.Interactions.Max, Current: s.Interactions.Current}}
	d.asked = asked{messages: s.Messages.All(), inferences: s.Inferences}
	if w.def == nil {
		return d
	}
	a := agent.Next(w.def, s)
	a.Offered = e.Offered
	if e.Summary {
		a.Lifecycle, a.Exhausted = agent.LifecycleSummary, true
	}
	d.Lifecycle, d.Cycle.Exhausted = a.Lifecycle, a.Exhausted
	d.asked.output = w.def.Output.Format
	d.asked.system = w.system(a)
	r, _ := agent.BuildRequest(w.def, s, a, d.asked.system)
	for _, t := range r.Tools {
		d.asked.tools = append(d.asked.tools, agent.ModelName(t.Name))
	}
	return d
}

// system is the system text the inference had, where the journal or the definition can say: one in a blob, and one that Go code or the
// clock had a part in and that is not kept, is told as none.
func (w *writing) system(a agent.Action) string {
	if text, _, ok := agent.KeptSystem(w.def, &w.after); ok {
		return text
	}
	data := agent.SystemFor(w.def, &w.before, a, w.entry.Time)
	text, err := agent.RenderSystem(*w.def, data)
	if err == nil {
		text, err = agent.BuildSystem(w.def, text, data)
	}
	if err != nil || agent.SystemDigest(text) != w.after.System {
		return ""
	}
	return text
}
