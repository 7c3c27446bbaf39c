package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// progress tells on standard error how a run goes, a line a fact.
type progress struct {
	p     *program
	tools map[string]string // by call
	known func() []api.Call // the calls that the run has; of a fork, some are older than what is told
	input func(name string, input json.RawMessage) string
}

// width is how much of a foreign text a line of progress shows.
const width = 120

func newProgress(p *program, r api.Run) *progress {
	pr := &progress{p: p, tools: map[string]string{}, input: func(_ string, input json.RawMessage) string { return mask.JSON(input, nil) }}
	for _, c := range r.Calls {
		pr.tools[c.ID] = c.Tool
	}
	return pr
}

func (pr *progress) tell(what, format string, args ...any) {
	pr.p.note("%-8s %s", what, cut(line(fmt.Sprintf(format, args...)), 2*width))
}

// call is how a call is named: its tool and its id.
func (pr *progress) call(id string) string {
	if pr.tools[id] == "" && pr.known != nil {
		for _, c := range pr.known() {
			pr.tools[c.ID] = c.Tool
		}
	}
	return pr.tools[id] + " (" + id + ")"
}

// event tells one fact. Facts that only the runtime cares for are not told.
func (pr *progress) event(e api.Event) {
	fact, err := e.Fact()
	if err != nil { // a newer process wrote it
		pr.tell(e.Type, "")
		return
	}
	switch f := fact.(type) {
	case run.RunStarted:
		pr.started(f)
	case run.InputReceived:
		if f.Starts {
			pr.tell("input", "started again by %s", f.By)
			return
		}
		pr.tell("input", "%d more said by %s", len(f.Blocks), f.By)
	case run.Replied:
		pr.replied(f)
	case run.PlanEvent:
		pr.plan(f)
	case run.ToolsListed, run.ToolsDisabled:
		pr.servers(fact)
	case run.Finished:
		pr.finished(f)
	default:
		pr.aboutCall(fact)
	}
}

func (pr *progress) started(f run.RunStarted) {
	switch o := f.From; {
	case o == nil:
		pr.tell("run", "%s of agent %s", f.Run, f.Agent)
	case o.Kind == run.OriginFork:
		pr.tell("run", "%s of agent %s, a fork of %s at entry %d", f.Run, f.Agent, o.Run, o.Seq)
		for _, u := range o.Unknown {
			pr.tell("wait", "%s was interrupted before: somebody must say what became of it until %s", pr.call(u.Call), stamp(u.Expires))
		}
	default:
		pr.tell("run", "%s of agent %s, continues %s", f.Run, f.Agent, o.Run)
	}
}

func (pr *progress) replied(f run.Replied) {
	calls := "calls"
	if len(f.Calls) == 1 {
		calls = "call"
	}
	pr.tell("turn", "%d: %s, %d %s, %d tokens in, %d out", f.Inference, f.Model, len(f.Calls), calls, f.Usage.Input, f.Usage.Output)
	if f.Text != "" && len(f.Calls) > 0 {
		pr.tell("says", "%s", cut(mask.Text(f.Text), width))
	}
	for _, c := range f.Calls {
		pr.tools[c.ID] = c.Name
		if c.Tool != "" {
			pr.tools[c.ID] = c.Tool
		}
		pr.tell("call", "%s %s", pr.call(c.ID), cut(pr.input(c.Name, c.Input), width))
	}
	if f.Correction != nil && f.Correction.Lifecycle != "" {
		pr.tell("again", "%s", cut(f.Correction.Text, width))
	}
}

func (pr *progress) aboutCall(fact run.Event) {
	switch f := fact.(type) {
	case run.CallFinished:
		pr.result(f.Call, f.IsError, f.Content)
	case run.LateResult:
		pr.result(f.Call, f.IsError, f.Content)
	case run.CallSuspended:
		if f.For == run.ForAnswer {
			pr.tell("wait", "%s was asked and may answer until %s", pr.call(f.Call), stamp(f.Expires))
			return
		}
		what := "approval"
		if f.For == run.ForInput {
			what = "input"
		}
		pr.tell("wait", "%s waits for %s %s until %s", pr.call(f.Call), what, f.Approval, stamp(f.Expires))
	case run.CallUnknown:
		pr.tell("wait", "%s was interrupted: somebody must say what became of it until %s", pr.call(f.Call), stamp(f.Expires))
	case run.CallCancelled:
		pr.tell("result", "%s cancelled: %s", pr.call(f.Call), f.Reason)
	case run.PermissionRequested:
		names := make([]string, len(f.Tools))
		for i, t := range f.Tools {
			names[i] = t.Tool
		}
		pr.tell("wait", "%s: approval %s until %s", strings.Join(names, ", "), f.Approval, stamp(f.Expires))
	case run.PermissionAnswered:
		pr.tell("answered", "approval %s: %s", f.Approval, f.Text)
	case run.PermissionFailed:
		pr.tell("failed", "%s", f.Message)
	case run.Decided:
		if len(f.Tools) > 0 {
			pr.tell("decided", "%s: %s by %s%s", strings.Join(f.Tools, ", "), f.Action, f.By, noteOf(f.Note))
			return
		}
		edited := ""
		if f.Args != nil {
			edited = " with other arguments"
		}
		pr.tell("decided", "%s: %s%s by %s%s", pr.call(f.Call), f.Action, edited, f.By, noteOf(f.Note))
	case run.DecisionKept:
		pr.tell("decided", "%s, which is kept until %s waits: by %s%s", f.Action, f.Target, f.By, noteOf(f.Note))
	case run.DecisionDropped:
		pr.tell("decided", "%s: the kept decision on %s comes to nothing: %s", pr.call(f.Call), f.Target, f.Why)
	case run.Answered:
		pr.answered(f)
	}
}

// answered tells who has answered. Where an attempt came to nothing, nobody has.
func (pr *progress) answered(f run.Answered) {
	if f.NotRun {
		pr.tell("again", "%s: nothing came of an attempt", pr.call(f.Call))
		return
	}
	pr.tell("answered", "%s by %s", pr.call(f.Call), f.By)
}

func (pr *progress) result(call string, isError bool, content string) {
	word := "ok"
	if isError {
		word = "error"
	}
	pr.tell("result", "%s %s: %s", pr.call(call), word, cut(mask.Text(content), width))
}

func (pr *progress) finished(f run.Finished) {
	if f.Error != nil {
		pr.tell("done", "%s: %s: %s", f.Reason, f.Error.Code, f.Error.Message)
		return
	}
	if f.Detail != "" {
		pr.tell("done", "%s: %s", f.Reason, cut(f.Detail, width))
		return
	}
	pr.tell("done", "%s", f.Reason)
}
