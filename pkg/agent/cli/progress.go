package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/plan"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/api"
)

// progress prints the progress of a run on standard error, one line for each event.
type progress struct {
	s           *session
	run         string
	started     time.Time         // when the run did; zero = not known
	tools       map[string]string // by call
	definitions *definitionCache
}

const maxTextWidth = 120 // characters of foreign text in a line of progress

func (s *session) newProgress(r api.Run) *progress {
	pr := &progress{s, r.ID, r.StartedAt, map[string]string{}, s.newDefinitionCache()}
	for _, c := range r.Calls {
		pr.tools[c.ID] = c.Tool
	}
	return pr
}

func (pr *progress) print(what, format string, args ...any) {
	pr.s.p.logEvent(what, "%s", truncate(line(fmt.Sprintf(format, args...)), 2*maxTextWidth))
}

func (pr *progress) callLabel(id string) string {
	if pr.tools[id] == "" { // a fork has older calls than its events
		ctx, cancel := pr.s.p.clock.WithTimeout(context.Background(), pr.s.p.storeTimeout)
		defer cancel()
		r, _ := pr.s.client.Run(ctx, pr.run) // after an error it goes on without the tool's name
		for _, c := range r.Calls {
			pr.tools[c.ID] = c.Tool
		}
	}
	return pr.tools[id] + " (" + id + ")"
}

// maskInput returns the arguments of a call as one line shows them. queryEngine bounds how long that takes.
func (pr *progress) maskInput(name string, input json.RawMessage) string {
	return truncate(pr.definitions.maskInput(context.Background(), pr.run, name, input), maxTextWidth)
}

// printEvent prints one event. Events of interest to the runtime only are skipped.
func (pr *progress) printEvent(e api.Event) {
	fact, err := e.Fact()
	if err != nil { // written by a newer version
		pr.print(e.Type, "")
		return
	}
	switch f := fact.(type) {
	case run.RunStarted:
		pr.started = e.At
		switch o := f.From; {
		case o == nil:
			pr.print("run", "%s of agent %s", f.Run, f.Agent)
		case o.Kind == run.OriginFork:
			pr.print("run", "%s of agent %s, a fork of %s at entry %d", f.Run, f.Agent, o.Run, o.Seq)
			for _, u := range o.Unknown {
				pr.print("wait", "%s was interrupted before: somebody must say what became of it until %s",
					pr.callLabel(u.Call), pr.s.p.stamp(u.Expires))
			}
		default:
			pr.print("run", "%s of agent %s, continues %s", f.Run, f.Agent, o.Run)
		}
	case run.InputReceived:
		if f.Starts {
			pr.print("input", "started again by %s", f.By)
		} else {
			pr.print("input", "%d more said by %s", len(f.Blocks), f.By)
		}
	case run.Replied:
		pr.printReply(f, e.At)
	case run.PlanEvent:
		pr.printPlan(f)
	case run.ToolsListed:
		for _, v := range f.Servers {
			pr.s.p.printServer(v, func(name, format string, args ...any) {
				if name == "disabled" || v.Problem != "" {
					pr.print(name, format, args...)
				}
			})
		}
	case run.ToolsDisabled:
		pr.print("disabled", "%s of %s: %s", f.Tool, f.Server, pr.s.p.disabledReason(run.DisabledTool{Why: f.Why}))
	case run.Finished:
		switch {
		case f.Error != nil:
			pr.print("done", "%s: %s: %s", f.Reason, f.Error.Code, f.Error.Message)
		case f.Detail != "":
			pr.print("done", "%s: %s", f.Reason, truncate(f.Detail, maxTextWidth))
		default:
			pr.print("done", "%s", f.Reason)
		}
	default:
		pr.printCallEvent(fact)
	}
}

func (pr *progress) printReply(f run.Replied, at time.Time) {
	took := ""
	if !pr.started.IsZero() {
		took = ", " + at.Sub(pr.started).Round(100*time.Millisecond).String() + " since the start"
	}
	pr.print("turn", "%d: %s, %s, %s%s", f.Inference, f.Model, counted(int64(len(f.Calls)), "call"),
		formatUsage(f.Usage, f.Cost), took)
	if f.Text != "" && len(f.Calls) > 0 {
		pr.print("says", "%s", truncate(mask.Text(f.Text), maxTextWidth))
	}
	for _, c := range f.Calls {
		pr.tools[c.ID] = cmp.Or(c.Tool, c.Name)
		pr.print("call", "%s %s", pr.callLabel(c.ID), pr.maskInput(c.Name, c.Input))
	}
	if f.Correction != nil && f.Correction.Lifecycle != "" {
		pr.print("again", "%s", truncate(f.Correction.Text, maxTextWidth))
	}
}

func counted(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, ok := strings.CutSuffix(thing, "y"); ok {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func formatUsage(u run.Usage, cost run.USD) string {
	text := fmt.Sprintf("%d tokens in, %d out", u.Input, u.Output)
	if cost > 0 {
		text += fmt.Sprintf(", %s USD", cost)
	}
	return text
}

func (pr *progress) printCallEvent(fact run.Event) {
	switch f := fact.(type) {
	case run.CallFinished:
		pr.printResult(f.Call, f.IsError, f.Content)
	case run.LateResult:
		pr.printResult(f.Call, f.IsError, f.Content)
	case run.CallSuspended:
		what := "waits for approval " + f.Approval
		switch f.For {
		case run.ForAnswer:
			what = "was asked and may answer"
		case run.ForInput:
			what = "waits for input " + f.Approval
		}
		pr.print("wait", "%s %s until %s", pr.callLabel(f.Call), what, pr.s.p.stamp(f.Expires))
	case run.CallUnknown:
		pr.print("wait", "%s was interrupted: somebody must say what became of it until %s", pr.callLabel(f.Call),
			pr.s.p.stamp(f.Expires))
	case run.CallCancelled:
		pr.print("result", "%s cancelled: %s", pr.callLabel(f.Call), f.Reason)
	case run.PermissionRequested:
		names := make([]string, len(f.Tools))
		for i, t := range f.Tools {
			names[i] = t.Tool
		}
		pr.print("wait", "%s: approval %s until %s", strings.Join(names, ", "), f.Approval, pr.s.p.stamp(f.Expires))
	case run.PermissionAnswered:
		pr.print("answered", "approval %s: %s", f.Approval, f.Text)
	case run.PermissionFailed:
		pr.print("failed", "%s", f.Message)
	case run.Decided:
		about, edited := strings.Join(f.Tools, ", "), ""
		if len(f.Tools) == 0 {
			about = pr.callLabel(f.Call)
			if f.Args != nil {
				edited = " with other arguments"
			}
		}
		pr.print("decided", "%s: %s%s by %s%s", about, f.Action, edited, f.By, noteSuffix(f.Note))
	case run.DecisionKept:
		pr.print("decided", "%s, which is kept until %s waits: by %s%s", f.Action, f.Target, f.By, noteSuffix(f.Note))
	case run.DecisionDropped:
		pr.print("decided", "%s: the kept decision on %s comes to nothing: %s", pr.callLabel(f.Call), f.Target, f.Why)
	case run.Answered:
		if f.NotRun {
			pr.print("again", "%s: nothing came of an attempt", pr.callLabel(f.Call))
		} else {
			pr.print("answered", "%s by %s", pr.callLabel(f.Call), f.By)
		}
	}
}

func (pr *progress) printResult(call string, isError bool, content string) {
	word := "ok"
	if isError {
		word = "error"
	}
	pr.print("result", "%s %s: %s", pr.callLabel(call), word, truncate(mask.Text(content), maxTextWidth))
}

func (pr *progress) printPlan(fact run.PlanEvent) {
	f := fact.Fact()
	steps, err := plan.Memory(f.Memory)
	if err != nil {
		pr.print("plan", "%v", err)
	}
	switch {
	case f.Why != "":
		pr.print("plan", "left to the loop: %s", f.Why)
	case f.Call != nil:
		pr.tools[f.Call.ID] = cmp.Or(f.Call.Tool, f.Call.Name)
		pr.print("step", "%d: %s %s", f.Step, pr.callLabel(f.Call.ID), pr.maskInput(f.Call.Name, f.Call.Input))
	}
	for _, s := range steps {
		switch {
		case f.Step == 0:
			pr.print("plan", "%d: %s", s.Number, truncate(mask.Text(s.Description), maxTextWidth))
		case f.Step == s.Number && s.Failed:
			pr.print("step", "%d: no tool was called", f.Step)
		}
	}
}

func (p *program) printServer(v run.ServerState, fact func(name, format string, args ...any)) {
	switch {
	case v.Problem == "":
		fact("server", "%s with %d tools", line(v.Name), len(v.Tools))
	case len(v.Tools) == 0:
		fact("server", "%s could not be listed: %s", line(v.Name), line(v.Problem))
	default:
		fact("server", "%s with %d tools: %s", line(v.Name), len(v.Tools), line(v.Problem))
	}
	for _, t := range v.Disabled {
		fact("disabled", "%s of %s: %s", line(t.Tool), line(v.Name), p.disabledReason(t))
	}
}

func (p *program) disabledReason(t run.DisabledTool) string {
	switch t.Why {
	case run.DisabledChanged:
		return "its server has changed it since mcp.lock was written (run: " + p.commandName() + " mcp lock)"
	case run.DisabledNew:
		return "it is not in mcp.lock (run: " + p.commandName() + " mcp lock)"
	case run.DisabledCollision:
		return "its name is taken: " + line(t.Detail)
	default:
		return "it cannot be used: " + line(t.Detail)
	}
}
