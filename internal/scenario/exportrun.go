package scenario

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

type recording struct {
	*recordedAgent
	x     *exporter
	name  string // the agent's name in lines; "" = the main run
	state run.AgentState

	entry    run.Entry       // the entry that is being recorded
	before   run.AgentState  // the state before entry
	replied  bool            // the previous entry has a reply
	claimed  string          // the newest call claimed since the newest reply; "" = none
	entered  map[string]bool // calls whose tool was entered
	expired  map[string]bool // waits for which a line expire was added
	asked    map[string]run.PermissionRequested
	executed map[string]int
	undoes   bool // the run undoes a call of the earlier run
	failed   int  // requests of the reply that never came and ended the run
	cutShort bool // the run was cancelled in the middle of something: what became of its calls is chance
}

// recordRun records a run, folded from seed, and the runs that carry out its calls.
func (x *exporter) recordRun(seed run.AgentState, entries []run.Entry, s run.RunStarted, folder string) (
	*recording, error,
) {
	a := x.agents[folder]
	if a == nil || a.digest != s.Definition {
		a = &recordedAgent{digest: s.Definition, results: map[string][]resultForm{}, unreconciled: map[string]bool{}}
		x.agents[folder] = a
		if err := x.readDefinition(s.Definition, &a.definition); err != nil {
			return nil, err
		}
	}
	x.keepWordsOf(a.definition)
	r := &recording{
		recordedAgent: a, x: x, state: seed, entered: map[string]bool{}, expired: map[string]bool{},
		asked: map[string]run.PermissionRequested{}, executed: map[string]int{},
	}
	if folder != "" {
		r.name = s.Agent
	}
	if a.definition.Orchestrator.Enabled {
		x.addProblem("agent %s plans: the journal does not have what its planner said", s.Agent)
	}
	for _, e := range entries {
		r.entry, r.before = e, r.state
		draft := run.NewDraft(r.state, e.Writer, e.Time)
		for _, ev := range e.Events {
			if err := r.recordEvent(&draft.State, ev); err != nil {
				return nil, err
			}
			if err := draft.Add(ev); err != nil {
				return nil, err
			}
		}
		var err error
		if r.state, err = run.ApplyEntry(r.state, e); err != nil {
			return nil, err
		}
		r.replied = slices.ContainsFunc(e.Events, func(ev run.Event) bool {
			_, ok := ev.(run.Replied)
			return ok
		})
	}
	if r.state.Status == run.RunRunning {
		x.addProblem("run %s is going on: export it when it waits or has ended", s.Run)
	}
	if len(r.definition.MCP) > 0 && !r.state.Listed {
		x.addProblem("the servers of %s were not listed", s.Agent)
	}
	// Remove what a scenario does not have: servers, whose tools become fakes, folders, and what the agents that delegate
	// to this one add, because loading the scenario adds it again.
	def := &a.definition
	def.MCP, def.Folder, def.Below = nil, "", nil
	if folder != "" {
		def.Ceilings, def.Delegators = nil, nil
	}
	for i := range def.Tools {
		t := &def.Tools[i]
		if t.Root = ""; t.Kind == agent.KindMCP {
			t.Kind, t.MCP = agent.KindInternal, nil
		}
	}
	return r, r.recordChildren()
}

// recordChildren records the runs that carry out the run's calls. A run that goes on from another has its calls, too.
func (r *recording) recordChildren() error {
	x := r.x
	for _, c := range r.state.Calls() {
		if c.Child == "" || x.recorded[c.Child] != nil {
			continue
		}
		entries, started, err := x.load(c.Child)
		if errors.Is(err, errNoBeginning) && !c.Open() { // it was refused
			continue
		}
		if err != nil {
			return err
		}
		folder := agentsFolder + started.Agent + "/"
		if x.agents[folder] != nil {
			folder += c.ID + "/"
		}
		if x.recorded[c.Child], err = x.recordRun(run.AgentState{}, entries, started, folder); err != nil {
			return err
		}
	}
	return nil
}

// addChildren adds the outcomes of the runs below a run.
func (x *exporter) addChildren(r *recording) {
	for _, c := range r.state.Calls() {
		child := x.recorded[c.Child]
		if child == nil {
			continue
		}
		r.executed[c.Tool]++
		at := len(x.children[child.name])
		x.children[child.name] = append(x.children[child.name], outcome{})
		x.addChildren(child)
		x.children[child.name][at] = child.outcome()
	}
}

func (r *recording) outcome() outcome {
	o := outcome{Status: r.state.Status, Reason: r.state.Reason, Executed: r.executed}
	for _, t := range r.definition.Tools {
		if t.Precondition != nil { // the journal does not have how often it was read
			delete(o.Executed, t.Precondition.Tool)
		}
	}
	if out, err := policy.OutputView(&r.state); err == nil && !r.state.History {
		o.Output = eachString(r.x.json(out), func(s string) string { // a text that begins as a pattern matches itself alone
			if strings.HasPrefix(s, "~") {
				return "~^" + regexp.QuoteMeta(s) + "$"
			}
			return s
		})
	}
	if r.cutShort {
		o.Executed = nil
		return o
	}
	for _, c := range r.state.Waits() {
		o.Waiting = append(o.Waiting, waitOutcome{c.ID, c.Wait.For})
	}
	for _, q := range r.state.OpenRequests() {
		o.Waiting = append(o.Waiting, waitOutcome{q.First(), run.ForApproval})
	}
	calls := r.state.Calls()
	for _, c := range calls[max(0, len(calls)-200):] { // as many as want.json is compared with
		o.Calls = append(o.Calls, callOutcome{c.ID, c.Tool, c.Status, c.Reason})
	}
	return o
}

// recordEvent records an event. s is the state before it.
func (r *recording) recordEvent(s *run.AgentState, ev run.Event) error {
	switch e := ev.(type) {
	case run.ToolsListed:
		return r.x.readDefinition(e.Definition, &r.definition)
	case run.UndoOrdered:
		r.undoes = true
		r.addLine(lineForm{Do: "undo", Call: e.Of, By: r.encodePrincipal(run.Approver{By: e.By})}, "")
	case run.PlanEvent:
	case run.Replied:
		r.recordReply(e)
	case run.Evicted:
		if e.Requests > 0 {
			line := script.Line{Text: new(r.x.text(e.Summary)), Notes: true, Usage: scriptUsage(e.Usage)}
			r.replies = append(r.replies, line)
		}
	case run.CallClaimed: // the call runs now, and its precondition was read before
		c, _ := s.Call(e.Call)
		t, _ := r.definition.Tool(c.Tool)
		switch {
		case !t.AnsweredLater():
			if r.claimed, r.entered[e.Call] = e.Call, true; c.Checked != nil {
				r.recordPrecondition(c, *c.Checked)
			}
		case t.Kind != agent.KindAgent:
			r.executed[c.Tool]++
		}
	case run.CallFinished:
		r.recordResult(s, e)
	case run.LateResult:
		r.recordResult(s, run.CallFinished{Call: e.Call, Ran: true, IsError: e.IsError, Reason: run.WhyToolError,
			Content: e.Content, Blob: e.Blob, Media: e.Media, Patch: e.Patch, Entered: e.Entered})
	case run.CallSuspended:
		r.recordSuspension(s, e)
	case run.LateSuspended:
		r.recordSuspension(s, run.CallSuspended{Call: e.Call, Ran: true, Ticket: e.Ticket, For: run.ForInput})
	case run.CallUnknown: // a scenario has a timeout in place of an execution whose outcome is unknown
		c, _ := s.Call(e.Call)
		t, _ := r.definition.Tool(c.Tool)
		r.unreconciled[c.Tool] = true
		r.addResult(c, resultForm{Text: new(string), Sleep: sleepPast(t)})
	case run.CallCancelled:
		r.recordExpiry(s, e.Call)
	case run.ToolsDisabled:
		r.x.addProblem("server %s changed its tool %s while the run went on", e.Server, e.Tool)
	case run.Parked:
		r.x.parked = append(r.x.parked, r.entry.Time)
	case run.PermissionRequested:
		r.asked[e.Approval] = e
	case run.PermissionAnswered:
		if e.Expired {
			r.recordExpiry(s, r.asked[e.Approval].Tools[0].Calls[0])
		}
	case run.PermissionChecked:
		if len(e.Standing) > 0 {
			r.x.addProblem("it used a standing grant that people gave in another run")
		}
	case run.InputReceived:
		r.recordMessage(e)
	case run.DecisionKept:
		r.addLine(lineForm{Do: r.lineAction(e.Action), Call: e.Target, Result: r.encodeAnswer(e.Result),
			Note: r.x.text(e.Note), Via: e.Via, By: r.encodePrincipal(run.Approver{By: e.By, Groups: e.Groups})}, r.triggerNow())
	case run.Decided:
		r.recordDecision(e)
	case run.Answered:
		r.recordAnswer(s, e)
	case run.Finished:
		r.recordEnd(s, e)
	}
	return nil
}

// addLine adds a line about the run. at is its trigger; "" = it is queued.
func (r *recording) addLine(l lineForm, at string) {
	if l.Agent = r.name; at != "" {
		l.At = &at
	}
	r.x.lines = append(r.x.lines, recordedLine{r.entry.Time, l})
}

// triggerNow returns the trigger of an action of people while the run did not wait, and "" while it waited.
func (r *recording) triggerNow() string {
	requests := len(r.replies)
	switch {
	case r.before.Status == run.RunWaiting:
		return ""
	case requests == 0:
		return "start"
	default:
		return fmt.Sprintf("inference:%d", requests)
	}
}

// decisionTrigger returns the trigger of a decision. People may decide a call while other calls or a model run.
func (r *recording) decisionTrigger() string {
	if r.before.Status == run.RunWaiting {
		return ""
	}
	if r.replied {
		return r.triggerNow()
	}
	for _, c := range r.before.Live {
		if t, ok := r.definition.Tool(c.Tool); ok && !t.AnsweredLater() && (c.Status == run.StatusNew ||
			c.Status == run.StatusRunning) {
			return "executing:" + c.ID
		}
	}
	return ""
}
