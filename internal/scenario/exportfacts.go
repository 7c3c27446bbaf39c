package scenario

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/model/script"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

func (r *recording) recordReply(e run.Replied) {
	r.claimed = ""
	line := script.Line{Empty: e.Text == "" && len(e.Calls) == 0}
	if e.Text != "" {
		line.Text = new(r.x.text(e.Text))
	}
	for _, c := range e.Calls {
		line.Calls = append(line.Calls, script.Call{ID: c.ID, Name: c.Name, Input: r.x.json(c.Input)})
	}
	marked := r.definition.CutText == agent.CutTextNotice && e.Text != "" && !e.Correction.Continues()
	if e.Stop != "stop" && e.Stop != "tool_calls" && !marked {
		line.Stop = e.Stop
	}
	line.Usage = scriptUsage(&e.Usage)
	r.replies = append(r.replies, line)
}

// scriptUsage returns a usage in the form of model.jsonl; nil = none.
func scriptUsage(u *run.Usage) *script.Usage {
	if u == nil || u.Total() == 0 {
		return nil
	}
	return &script.Usage{Input: u.Input + u.CacheRead + u.CacheWrite, Output: u.Output}
}

// recordPrecondition records the result of a precondition's tool. Its calls are numbered by the requests to people.
func (r *recording) recordPrecondition(c run.Call, k run.Checked) {
	if t, _ := r.definition.Tool(c.Tool); t.Precondition != nil && len(t.Precondition.Compare) > 0 {
		r.x.addProblem("call %s depends on a part of what %s gives: the journal has that part alone", c.ID, k.Tool)
	}
	f := newTextResult(r.x.text(k.Content), k.IsError)
	f.Call = fmt.Sprintf("%s-precondition-%d", c.ID, c.Asks)
	// A fork repeats a number of its parent. Equal results of both are one.
	line := encode(f)
	if !slices.ContainsFunc(r.results[k.Tool], func(o resultForm) bool { return bytes.Equal(encode(o), line) }) {
		r.results[k.Tool] = append(r.results[k.Tool], f)
	}
}

// newTextResult returns a result with a text, or an error.
func newTextResult(text string, isError bool) resultForm {
	if isError {
		return resultForm{Error: &text}
	}
	return resultForm{Text: &text}
}

func (r *recording) addResult(c run.Call, f resultForm) {
	f.Call = c.ID
	r.results[c.Tool] = append(r.results[c.Tool], f)
	r.executed[c.Tool]++
	r.entered[c.ID] = false
}

// addFailedAttempts records the attempts before the last one.
func (r *recording) addFailedAttempts(c run.Call, entered int) {
	for range entered - 1 {
		r.addResult(c, resultForm{Fails: new(string)})
	}
}

func (r *recording) recordResult(s *run.AgentState, e run.CallFinished) {
	c, _ := s.Call(e.Call)
	t, _ := r.definition.Tool(c.Tool)
	switch {
	case e.Reason == run.WhyToolChanged:
		r.x.addProblem("the server of call %s changed its tool", c.ID)
		return
	case e.Reason == run.WhyPrecondition && t.Precondition != nil:
		r.results[t.Precondition.Tool] = append(r.results[t.Precondition.Tool],
			resultForm{Call: fmt.Sprintf("%s-precondition-%d", c.ID, c.Asks), Fails: new(string)})
		return
	case !e.Ran && !r.entered[e.Call]:
		r.recordExpiry(s, e.Call)
		return
	case !slices.ContainsFunc(r.definition.Tools, func(t agent.ToolSpec) bool { return t.Name == c.Tool }):
		return // the runtime itself answers it, no tool
	}
	if e.Whole != nil {
		e.Blob = e.Whole.Blob
	}
	text := r.x.text(policy.WithoutEditNote(c, r.x.content(e.Content, e.Blob)))
	r.addFailedAttempts(c, e.Entered)
	f := resultForm{Text: &text}
	for _, p := range e.Patch {
		f.Patch = append(f.Patch, patchForm{&p.Path, r.x.json(p.Value)})
	}
	switch {
	case e.Reason == run.WhyTimeout && e.IsError:
		f.Sleep = sleepPast(t)
	case e.IsError && e.Entered > 1:
		f = resultForm{Fails: &text}
	case e.IsError:
		f = resultForm{Error: &text}
	}
	if len(e.Media) > 1 {
		r.x.addProblem("call %s gave %d files: a scenario says one", c.ID, len(e.Media))
	}
	for _, m := range e.Media {
		m = r.x.media(m)
		f.Media = &m
	}
	r.addResult(c, f)
}

// sleepPast returns a time longer than a tool's timeout.
func sleepPast(t agent.ToolSpec) string {
	return (cmp.Or(t.Timeout, 5*time.Minute) + time.Second).String()
}

func (r *recording) recordSuspension(s *run.AgentState, e run.CallSuspended) {
	c, _ := s.Call(e.Call)
	if e.Checked != nil {
		r.recordPrecondition(c, *e.Checked)
	}
	if e.Ticket == nil || e.Gate || !e.Ran && !r.entered[e.Call] {
		return
	}
	ticket := *e.Ticket
	r.x.keepWordsOf(ticket.ResponseSchema)
	ticket.Message, ticket.Parameters = r.x.text(ticket.Message), r.x.json(ticket.Parameters)
	ticket.Pending.Arguments = r.x.json(ticket.Pending.Arguments)
	r.addFailedAttempts(c, e.Entered)
	r.addResult(c, resultForm{Suspend: &ticket})
}

// recordExpiry records that a call's wait expired. Calls that began to wait with it and as long expire with it.
func (r *recording) recordExpiry(s *run.AgentState, call string) {
	c, _ := s.Call(call)
	since, until := waitOf(s, c)
	if until.IsZero() || until.After(r.entry.Time) {
		return
	}
	wait := fmt.Sprint(c.Inference, until.Sub(since).Round(time.Second))
	if r.expired[wait] {
		return
	}
	r.expired[wait] = true
	r.addLine(lineForm{Do: "expire", Call: call}, "")
}

func (r *recording) recordMessage(e run.InputReceived) {
	var text []string
	for _, b := range e.Blocks {
		t, ok := b.Block.(run.Text)
		if !ok {
			r.x.addProblem("a message that came later has files")
			continue
		}
		text = append(text, r.x.text(t.Text))
	}
	if e.Starts {
		return
	}
	if len(text) > 1 {
		r.x.addProblem("a message that came later has %d parts: a scenario says one", len(text))
	}
	at := r.triggerNow()
	if at != "" && r.claimed != "" { // before the next request to the model, and after the decision on the call
		at = "executing:" + r.claimed
	}
	r.addLine(lineForm{Do: "message", Text: strings.Join(text, "\n"), By: r.encodePrincipal(run.Approver{By: e.By})}, at)
}

// lineAction returns the action in the form of people.jsonl.
func (r *recording) lineAction(a run.DecisionAction) string {
	switch a {
	case run.ActionApprove, run.ActionDeny:
		return string(a)
	case run.ActionCancel:
		return "cancel_call"
	case run.ActionFail:
		return "answer"
	default:
		r.x.addProblem("the policy was changed by a deployment while people were asked")
		return ""
	}
}

// encodeAnswer returns the answer to a tool's question; nil = plain agreement.
func (r *recording) encodeAnswer(result json.RawMessage) json.RawMessage {
	if string(result) == "true" {
		return nil
	}
	return r.x.json(result)
}

// recordDecision records a decision: a line for each person who took part.
func (r *recording) recordDecision(e run.Decided) {
	if e.Early != "" { // DecisionKept has added its line
		return
	}
	calls := []string{e.Call}
	if e.Call == "" {
		calls = nil
		for _, t := range r.asked[e.Approval].Tools {
			if slices.Contains(e.Tools, t.Tool) {
				calls = append(calls, t.Calls[0])
			}
		}
	}
	last := lineForm{Do: r.lineAction(e.Action), Result: r.encodeAnswer(e.Result), Note: r.x.text(e.Note)}
	if e.Action == run.ActionFail {
		last.Note, last.Error = "", new(cmp.Or(last.Note, "failed"))
	}
	editor := cmp.Or(e.Editor, e.By)
	for _, call := range calls {
		add := func(l lineForm, by string) {
			v := approverOf(e.ApprovedBy, by)
			if l.Call, l.By = call, r.encodePrincipal(v); l.Do != "answer" {
				l.Via = r.channelOf(call, v)
			}
			r.addLine(l, r.decisionTrigger())
		}
		c, _ := r.before.Call(call)
		edits := e.Args != nil && (c.Wait == nil || c.Wait.For != run.ForInput) // arguments may be an answer, too
		if edits {
			edit := lineForm{Do: "edit", Args: r.x.json(e.Args)}
			if editor == e.By {
				edit.Note = last.Note
			}
			add(edit, editor)
		}
		for _, by := range e.With { // all gave the same answer to a tool's question
			if !edits || by != editor {
				add(lineForm{Do: last.Do, Result: last.Result, Error: last.Error}, by)
			}
		}
		if !edits || editor != e.By {
			add(last, e.By)
		}
	}
}

func approverOf(approvals []run.Approver, by string) run.Approver {
	for _, v := range approvals {
		if v.By == by {
			return v
		}
	}
	return run.Approver{By: by}
}

// encodePrincipal returns a person in the form of a line. If the journal lacks their groups, they get all groups that
// the agent's rules name.
func (r *recording) encodePrincipal(v run.Approver) json.RawMessage {
	if v.Groups == nil {
		var all []string
		eachString(encode(append(slices.Clone(r.definition.Ceilings), r.definition.Permission)), func(s string) string {
			if strings.HasPrefix(s, "group:") {
				all = append(all, s)
			}
			return s
		})
		v.Groups = slices.Concat(all, localUser.Groups)
	}
	slices.Sort(v.Groups)
	p, err := policy.ParsePrincipal(strings.Join(append([]string{v.By}, slices.Compact(v.Groups)...), ","))
	if err != nil { // a service
		return nil
	}
	return bytes.TrimSpace(encode(r.x.text(p.String())))
}

// channelOf returns the channel of a decision. If the journal lacks it, it is one that the rule allows.
func (r *recording) channelOf(call string, v run.Approver) run.Via {
	c, _ := r.before.Call(call)
	for _, rule := range r.definition.Permission.Rules {
		matches, err := path.Match(rule.Tool, c.Tool)
		if v.Via == "" && err == nil && matches && len(rule.Via) > 0 && !slices.Contains(rule.Via, agent.ViaAPI) {
			return rule.Via[0]
		}
	}
	return v.Via
}

// recordAnswer records the answer of a service, or the outcome that a person or the tool reported.
func (r *recording) recordAnswer(s *run.AgentState, e run.Answered) {
	c, _ := s.Call(e.Call)
	text := r.x.text(policy.WithoutEditNote(c, r.x.content(e.Content, e.Blob)))
	switch {
	case c.Child != "" || e.Used != nil, e.Slot == 0 && e.Rerun:
		return // the other run has it, or the call goes on after a crash
	case e.Slot == 0:
		if r.entered[e.Call] {
			r.addResult(c, newTextResult(text, e.IsError))
		}
		return
	case len(e.Media) > 0 || len(e.Patch) > 0:
		r.x.addProblem("the answer to call %s has files or changes the shared state", e.Call)
	}
	l := lineForm{Do: "answer", Call: e.Call, Rerun: e.Rerun}
	switch {
	case e.Rerun:
	case e.IsError:
		l.Error = &text
	default:
		l.Result = bytes.TrimSpace(encode(text))
	}
	for _, by := range append(slices.Clone(e.With), e.By) {
		v := approverOf(e.ApprovedBy, by)
		l.By = r.encodePrincipal(v)
		if e.Rerun { // an approval, where any channel reports
			l.Via = r.channelOf(e.Call, v)
		}
		at := ""
		if c.Service && c.Status != run.StatusSuspended {
			at = r.triggerNow()
		}
		r.addLine(l, at)
	}
}

// recordEnd records a cancellation, and the model request that ended the run.
func (r *recording) recordEnd(s *run.AgentState, e run.Finished) {
	if e.Requests > 0 {
		class := agent.ModelServer
		if e.Error != nil {
			for _, c := range agent.ModelErrorClasses() {
				if strings.Contains(e.Error.Message, ": "+string(c)+": ") {
					class = c
				}
			}
		}
		r.replies, r.failed = append(r.replies, script.Line{Error: class}), e.Requests
	}
	ended := slices.ContainsFunc(r.entry.Events, func(ev run.Event) bool { // a denial ended the run, no cancellation
		_, decided := ev.(run.Decided)
		return decided
	})
	if e.Reason != run.ReasonCancelled || ended || r.name != "" && !strings.HasPrefix(e.By, "user:") {
		return
	}
	at := ""
	if r.before.Status != run.RunWaiting {
		r.cutShort = true
		at = fmt.Sprintf("inference:%d", len(r.replies)+1)
		for _, c := range s.Live { // calls under way; repeatable ones have no claim
			t, ok := r.definition.Tool(c.Tool)
			if !ok || t.AnsweredLater() || c.Status != run.StatusNew && c.Status != run.StatusRunning {
				continue
			}
			r.addResult(c, resultForm{Text: new(string)})
			if at[0] != 'e' {
				at = "executing:" + c.ID
			}
			if r.definition.Executor == agent.ExecutorSequential {
				break
			}
		}
		if at[0] != 'e' {
			r.replies = append(r.replies, script.Line{Empty: true})
		}
	}
	r.addLine(lineForm{Do: "cancel_run", By: r.encodePrincipal(run.Approver{By: e.By})}, at)
}
