package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people/mask"
	"github.com/countersign/countersign/internal/prompt"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/web"
)

// follower follows a run, and prints its progress on standard error, one line for each event.
type follower struct {
	s           *session
	run         string
	last        string            // id of the newest printed event; "" = none
	seq         int64             // its entry; -1 = none
	started     time.Time         // when the run did; zero = not known
	tools       map[string]string // by call
	definitions *definitionCache
}

// newFollower follows a run from the state in r. If r has only an id, it prints the run from its start.
func (s *session) newFollower(r web.Run) *follower {
	w := &follower{s, r.ID, "", -1, r.StartedAt, map[string]string{}, s.newDefinitionCache()}
	if r.Status != "" {
		w.seq, w.last = r.Seq, strconv.FormatInt(r.Seq, 10)
	}
	for _, c := range r.Calls {
		w.tools[c.ID] = c.Tool
	}
	return w
}

var errMayBeParked = errors.New("the run has come to a point where it may rest")

// waitUntilParked prints progress until the run has ended, or waits with an empty inbox.
func (w *follower) waitUntilParked(ctx context.Context) (web.Run, error) {
	for {
		r, err := w.s.loadHead(ctx, w.run)
		if err != nil || r.Resting() && w.seq >= r.Seq {
			return r, err
		}
		if err := w.followEvents(ctx); err != nil {
			return web.Run{}, err
		}
	}
}

// How often a silent run is read.
const (
	pollInterval       = time.Second     // of an engine in this process
	remotePollInterval = 2 * time.Second // in another
)

// followEvents prints events until it is time to read the run again.
func (w *follower) followEvents(ctx context.Context) error {
	before, limit := w.last, remotePollInterval
	if w.s.engine != nil {
		limit = pollInterval
	}
	window, cancel := w.s.p.clock.WithTimeout(ctx, limit)
	defer cancel()
	err := w.s.client.Follow(window, w.run, w.last, func(e web.Event) error {
		w.last, w.seq = e.ID, e.Seq
		w.printEvent(e)
		if e.Type == "parked" || e.Type == "finished" {
			return errMayBeParked
		}
		return nil
	})
	switch {
	case errors.Is(err, errMayBeParked):
		return nil
	case err == nil, window.Err() != nil && ctx.Err() == nil:
		if w.last == before {
			return w.s.checkStalled(ctx, w.run)
		}
		return nil
	default:
		_, err = w.s.reconnect(ctx, err)
		return err
	}
}

type stalledError string // why an open run does not continue

func (e stalledError) Error() string { return string(e) }

// checkStalled asks the process that has the store whether an open run has stopped making progress. A process that
// does not answer has ended; the follower notices that itself.
func (s *session) checkStalled(ctx context.Context, run string) error {
	if s.engine != nil {
		return s.engine.checkStalled(ctx, run)
	}
	var why stalledError
	if err := s.p.queryEngine(ctx, stalledPath+"?run="+url.QueryEscape(run), &why); err != nil || why == "" {
		return nil
	}
	return why
}

// checkStalled returns a stalledError if an open run makes no progress. Either its execution has ended because data
// could not be read or written, or this process lacks the agent that a call needs.
func (e *engine) checkStalled(ctx context.Context, runID string) error {
	before, err := e.home.Ports.Journal.Head(ctx, local.Tenant, runID)
	if err != nil || before.Status == run.RunDone {
		return err
	}
	if err := e.home.Engine.StallReason(before.Owner); err != nil {
		return stalledError(fmt.Sprintf("run %s is not carried on by process %d: %v; %s carries it on where the agent is "+
			"registered, or is in ./%s or ./agents/*/%s, and the tool is linked",
			runID, os.Getpid(), err, e.p.commandLine("resume"), agentFile, agentFile))
	}
	status, err := e.home.Ports.Waiter.Status(ctx, before.Owner)
	if err != nil || status != runtime.ExecutionEnded {
		return err
	}
	after, err := e.home.Ports.Journal.Head(ctx, local.Tenant, runID)
	if err != nil || !after.Equal(before) { // the run has ended or continued meanwhile
		return err
	}
	return stalledError(fmt.Sprintf("run %s stands still: its execution has given up; once what troubled it is "+
		"mended, %s carries it on", runID, e.p.commandLine("resume")))
}

// runsBelow returns the runs below a run, each before those below it and the oldest first, as heads are.
func runsBelow(heads []web.RunHead, run string) (part []web.RunHead) {
	for _, h := range heads {
		if h.Parent == run {
			part = append(append(part, h), runsBelow(heads, h.ID)...)
		}
	}
	return part
}

// delegation is a snapshot of a run and the runs that execute the calls it waits for.
type delegation struct {
	open []web.Run // the run itself, then the runs below
	done []web.Run // runs below that are done; their results have not arrived yet
}

// waitsForRun reports whether a call waits for the answer of another agent's run.
func waitsForRun(w web.Waiting) bool { return w.For == run.ForAnswer && w.Run != "" }

// loadDelegation reads the runs below a parked run, each by its id. A list may miss a run whose status is changing.
func (s *session) loadDelegation(ctx context.Context, r web.Run) (delegation, error) {
	f := delegation{open: []web.Run{r}}
	for i := 0; i < len(f.open); i++ {
		for _, w := range f.open[i].Waiting {
			if !waitsForRun(w) {
				continue
			}
			below, err := s.loadHead(ctx, w.Run)
			switch {
			case err != nil:
				return f, err
			case below.Status == run.RunDone:
				f.done = append(f.done, below)
			default:
				f.open = append(f.open, below)
			}
		}
	}
	return f, nil
}

const (
	descendantPollInterval = 200 * time.Millisecond // between two reads of the runs below
	stalledAfterPolls      = 10                     // a run without progress for so many reads may be stalled
)

// delegationWatcher follows the runs below a followed run.
type delegationWatcher struct {
	s              *session
	printed        map[string]string // status by run, as it was printed
	seqs           map[string]int64  // sequence by run, at the last read
	polls          map[string]int    // reads by run since its sequence changed
	answerDeadline time.Time         // of waiting for a finished run's answer; zero = none
}

// waitForProgress gives the runs below time to continue. It returns false if all of them wait for somebody.
func (k *delegationWatcher) waitForProgress(ctx context.Context, f delegation) (bool, error) {
	moving := slices.DeleteFunc(slices.Clone(f.open[1:]), web.Run.Resting)
	for _, r := range moving {
		if k.seqs[r.ID] != r.Seq {
			k.seqs[r.ID], k.polls[r.ID] = r.Seq, 0
		}
		if k.polls[r.ID]++; k.polls[r.ID]%stalledAfterPolls != 0 {
			continue
		}
		if err := k.s.checkStalled(ctx, r.ID); err != nil {
			return false, err
		}
	}
	if len(moving) == 0 && len(f.done) == 0 {
		k.answerDeadline = time.Time{}
		return false, nil
	}
	if len(moving) == 0 { // the answer of a finished run below may still arrive
		now := k.s.p.clock.Now()
		if k.answerDeadline.IsZero() {
			k.answerDeadline = now.Add(k.s.p.storeTimeout)
		}
		if !now.Before(k.answerDeadline) {
			return false, nil
		}
	}
	return true, k.s.p.clock.Sleep(ctx, descendantPollInterval)
}

func (k *delegationWatcher) printChanges(f delegation) {
	for _, r := range slices.Concat(f.done, f.open[1:]) {
		now := strings.TrimSpace(string(r.Status) + " " + string(r.Reason))
		if k.printed[r.ID] != now {
			k.printed[r.ID] = now
			k.s.p.logEvent("below", "%s of agent %s for call %s: %s", r.ID, line(r.Agent), r.ParentCall, now)
		}
	}
}

const maxTreeRuns = 100 // that show prints below a run

func (s *session) printTree(ctx context.Context, r web.Run) error {
	root := cmp.Or(r.Root, r.ID)
	heads, err := s.listRuns(ctx, web.RunQuery{Root: root})
	if err != nil {
		return err
	}
	slices.SortStableFunc(heads, func(a, b web.RunHead) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), strings.Compare(a.ID, b.ID))
	})
	all, depth := runsBelow(heads, r.ID), map[string]int{}
	for _, h := range all[:min(len(all), maxTreeRuns)] {
		below, err := s.loadHead(ctx, h.ID)
		if err != nil {
			return err
		}
		depth[h.ID] = depth[h.Parent] + 1
		var b strings.Builder
		fmt.Fprintf(&b, "%s of agent %s for call %s: %s", below.ID, line(below.Agent), below.ParentCall,
			strings.TrimSpace(string(below.Status)+" "+string(below.Reason)))
		if below.Cost > 0 {
			fmt.Fprintf(&b, ", %s USD", below.Cost)
		}
		for _, w := range below.Waiting {
			fmt.Fprintf(&b, ", %s waits for %s", w.Call, strings.TrimSpace(string(w.For)+" "+w.Approval))
		}
		s.p.printLine("%-9s %s%s", "below", strings.Repeat("  ", depth[h.Parent]), b.String())
	}
	if n := len(all) - maxTreeRuns; n > 0 {
		s.p.printLine("%-9s %d more runs; %s lists them", "below", n, s.p.commandLine("runs", "--root", root))
	}
	return nil
}

const maxTextWidth = 120 // characters of foreign text in a line of progress

func (w *follower) print(what, format string, args ...any) {
	w.s.p.logEvent(what, "%s", truncate(line(fmt.Sprintf(format, args...)), 2*maxTextWidth))
}

func (w *follower) callLabel(id string) string {
	if w.tools[id] == "" { // a fork has older calls than its events
		ctx, cancel := w.s.p.clock.WithTimeout(context.Background(), w.s.p.storeTimeout)
		defer cancel()
		r, _ := w.s.client.Run(ctx, w.run) // after an error it goes on without the tool's name
		for _, c := range r.Calls {
			w.tools[c.ID] = c.Tool
		}
	}
	return w.tools[id] + " (" + id + ")"
}

// maskInput returns the arguments of a call as one line shows them. queryEngine bounds how long that takes.
func (w *follower) maskInput(name string, input json.RawMessage) string {
	return truncate(w.definitions.maskInput(context.Background(), w.run, name, input), maxTextWidth)
}

// printEvent prints one event. Events of interest to the runtime only are skipped.
func (w *follower) printEvent(e web.Event) {
	fact, err := e.Fact()
	if err != nil { // written by a newer version
		w.print(e.Type, "")
		return
	}
	switch f := fact.(type) {
	case run.RunStarted:
		w.started = e.At
		switch o := f.From; {
		case o == nil:
			w.print("run", "%s of agent %s", f.Run, f.Agent)
		case o.Kind == run.OriginFork:
			w.print("run", "%s of agent %s, a fork of %s at entry %d", f.Run, f.Agent, o.Run, o.Seq)
			for _, u := range o.Unknown {
				w.print("wait", "%s was interrupted before: somebody must say what became of it until %s",
					w.callLabel(u.Call), w.s.p.stamp(u.Expires))
			}
		default:
			w.print("run", "%s of agent %s, continues %s", f.Run, f.Agent, o.Run)
		}
	case run.InputReceived:
		if f.Starts {
			w.print("input", "started again by %s", f.By)
		} else {
			w.print("input", "%d more said by %s", len(f.Blocks), f.By)
		}
	case run.Replied:
		w.printReply(f, e.At)
	case run.UndoOrdered:
		w.tools[f.Call.ID] = cmp.Or(f.Call.Tool, f.Call.Name)
		w.print("call", "%s %s, to take back %s", w.callLabel(f.Call.ID), w.maskInput(f.Call.Name, f.Call.Input), f.Of)
	case run.PlanEvent:
		w.printPlan(f)
	case run.ToolsListed:
		for _, v := range f.Servers {
			w.s.p.printServer(v, func(name, format string, args ...any) {
				if name == "disabled" || v.Problem != "" {
					w.print(name, format, args...)
				}
			})
		}
	case run.ToolsDisabled:
		w.print("disabled", "%s of %s: %s", f.Tool, f.Server, w.s.p.disabledReason(run.DisabledTool{Why: f.Why}))
	case run.Finished:
		detail := "" // reportRun says an error
		if f.Detail != "" {
			detail = ": " + truncate(f.Detail, maxTextWidth)
		}
		w.print("done", "%s%s", f.Reason, detail)
	default:
		w.printCallEvent(fact)
	}
}

func (w *follower) printReply(f run.Replied, at time.Time) {
	took := ""
	if !w.started.IsZero() {
		took = ", " + at.Sub(w.started).Round(100*time.Millisecond).String() + " since the start"
	}
	w.print("turn", "%d: %s, %s, %s%s", f.Inference, f.Model, counted(len(f.Calls), "call"),
		formatUsage(f.Usage, f.Cost), took)
	if f.Text != "" && len(f.Calls) > 0 {
		w.print("says", "%s", truncate(mask.Text(f.Text), maxTextWidth))
	}
	for _, c := range f.Calls {
		w.tools[c.ID] = cmp.Or(c.Tool, c.Name)
		w.print("call", "%s %s", w.callLabel(c.ID), w.maskInput(c.Name, c.Input))
	}
	if f.Correction != nil && f.Correction.Lifecycle != "" {
		w.print("again", "%s", truncate(mask.Text(f.Correction.Text), maxTextWidth))
	}
}

func counted[T int | int64](n T, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, ok := strings.CutSuffix(thing, "y"); ok {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func formatUsage(u run.Usage, cost run.USD) string {
	text := fmt.Sprintf("%d tokens in, %d out", u.Total()-u.Output, u.Output)
	if cost > 0 {
		text += fmt.Sprintf(", %s USD", cost)
	}
	return text
}

func (w *follower) printCallEvent(fact run.Event) {
	switch f := fact.(type) {
	case run.CallFinished:
		w.printResult(f.Call, f.IsError, f.Content)
	case run.LateResult:
		w.printResult(f.Call, f.IsError, f.Content)
	case run.CallSuspended:
		what := "waits for approval " + f.Approval
		if f.Why != "" {
			what += " (asked again: " + strings.ReplaceAll(string(f.Why), "_", " ") + ")"
		}
		switch f.For {
		case run.ForAnswer:
			what = "was asked and may answer"
		case run.ForInput:
			what = "waits for input " + f.Approval
		}
		w.print("wait", "%s %s until %s", w.callLabel(f.Call), what, w.s.p.stamp(f.Expires))
	case run.CallUnknown:
		w.print("wait", "%s was interrupted: somebody must say what became of it until %s", w.callLabel(f.Call),
			w.s.p.stamp(f.Expires))
	case run.CallCancelled:
		w.print("result", "%s cancelled: %s", w.callLabel(f.Call), f.Reason)
	case run.PermissionRequested:
		names := make([]string, len(f.Tools))
		for i, t := range f.Tools {
			names[i] = t.Tool
		}
		w.print("wait", "%s: approval %s until %s", strings.Join(names, ", "), f.Approval, w.s.p.stamp(f.Expires))
	case run.PermissionAnswered:
		w.print("answered", "approval %s: %s", f.Approval, f.Text)
	case run.PermissionFailed:
		w.print("failed", "%s", f.Message)
	case run.Decided:
		about, edited := strings.Join(f.Tools, ", "), ""
		if len(f.Tools) == 0 {
			about = w.callLabel(f.Call)
			if f.Args != nil {
				edited = " with other arguments"
			}
		}
		w.print("decided", "%s: %s%s by %s%s", about, f.Action, edited, f.By, noteSuffix(f.Note))
	case run.DecisionKept:
		w.print("decided", "%s, which is kept until %s waits: by %s%s", f.Action, f.Target, f.By, noteSuffix(f.Note))
	case run.DecisionDropped:
		w.print("decided", "%s: the kept decision on %s comes to nothing: %s", w.callLabel(f.Call), f.Target, f.Why)
	case run.Answered:
		if f.NotRun {
			w.print("again", "%s: nothing came of an attempt", w.callLabel(f.Call))
		} else {
			w.print("answered", "%s by %s", w.callLabel(f.Call), f.By)
		}
	}
}

func (w *follower) printResult(call string, isError bool, content string) {
	word := "ok"
	if isError {
		word = "error"
	}
	w.print("result", "%s %s: %s", w.callLabel(call), word, truncate(mask.Text(content), maxTextWidth))
}

func (w *follower) printPlan(fact run.PlanEvent) {
	f := fact.Fact()
	steps, err := prompt.Memory(f.Memory)
	if err != nil {
		w.print("plan", "%v", err)
	}
	switch {
	case f.Why != "":
		w.print("plan", "left to the loop: %s", f.Why)
	case f.Call != nil:
		w.tools[f.Call.ID] = cmp.Or(f.Call.Tool, f.Call.Name)
		w.print("step", "%d: %s %s", f.Step, w.callLabel(f.Call.ID), w.maskInput(f.Call.Name, f.Call.Input))
	}
	for _, s := range steps {
		switch {
		case f.Step == 0:
			w.print("plan", "%d: %s", s.Number, truncate(mask.Text(s.Description), maxTextWidth))
		case f.Step == s.Number && s.Failed:
			w.print("step", "%d: no tool was called", f.Step)
		}
	}
}

func (p *program) printServer(v run.ServerState, fact func(name, format string, args ...any)) {
	switch {
	case v.Problem == "":
		fact("server", "%s with %s", line(v.Name), counted(len(v.Tools), "tool"))
	case len(v.Tools) == 0:
		fact("server", "%s could not be listed: %s", line(v.Name), line(v.Problem))
	default:
		fact("server", "%s with %s: %s", line(v.Name), counted(len(v.Tools), "tool"), line(v.Problem))
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
