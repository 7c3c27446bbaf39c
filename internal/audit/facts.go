package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// change is what one event of an entry has made of a run.
type change struct {
	*walk
	before, after *run.AgentState
	entry         run.Entry
	index         int // of the event
}

// audit collects the records of an event: requests that it opens, a call that it lets run, requests that it closes, and
// results.
func (c *change) audit(event run.Event) error {
	was, is := asked(c.before), asked(c.after)
	for _, now := range is {
		if !slices.ContainsFunc(was, now.same) {
			if err := c.opens(now); err != nil {
				return err
			}
		}
	}
	for _, then := range was {
		if !slices.ContainsFunc(is, then.same) {
			if err := c.closes(then.approval, c.entry); err != nil {
				return err
			}
		}
	}
	switch e := event.(type) {
	case run.CallClaimed:
		c.claims(e)
	case run.DecisionDropped:
		c.drops(e)
	}
	c.settles(event)
	return nil
}

// question is a request that a run waits for.
type question struct {
	approval string
	digest   string // of the action, as it was asked
}

func (q question) same(o question) bool { return q.approval == o.approval }

// asked are the requests that a run waits for, in order.
func asked(s *run.AgentState) []question {
	var all []question
	for _, call := range s.Waits() {
		if call.Wait.Approval != "" {
			all = append(all, question{call.Wait.Approval, call.Wait.Digest})
		}
	}
	for _, r := range s.Permissions.Asked {
		all = append(all, question{approval: r.Approval})
	}
	return all
}

func (c *change) opens(q question) error {
	a, err := c.request(q.approval)
	if err != nil {
		return err
	}
	r := about(a)
	r.ID, r.Kind, r.At, r.Digest, r.Action = requestedID(a.ID), Requested, c.entry.Time, cmp.Or(q.digest, a.Digest), string(a.Kind)
	r.ArgsHash = argsHash(a.Args)
	c.add(r)
	c.cursor.Open = append(c.cursor.Open, asking{Approval: a.ID})
	return nil
}

// closes collects what was said on a request before an entry settled it, and how it ended where that was no decision.
func (w *walk) closes(id string, e run.Entry) error {
	i := slices.IndexFunc(w.cursor.Open, func(o asking) bool { return o.Approval == id })
	if i < 0 {
		return nil
	}
	a, err := w.request(id)
	if err != nil {
		return err
	}
	w.said(a, &w.cursor.Open[i])
	w.cursor.Open = slices.Delete(w.cursor.Open, i, i+1)
	kind := map[approval.Status]Kind{approval.Expired: Expired, approval.Voided: Voided, approval.Cancelled: Cancelled}[a.Status]
	if kind == "" || kind == Cancelled && calledOff(a) {
		return nil
	}
	r := about(a)
	r.ID, r.Kind, r.At = a.ID+"/closed", kind, e.Time
	w.add(r)
	return nil
}

// calledOff reports whether people have cancelled a request, rather than what it was about.
func calledOff(a approval.Approval) bool {
	if len(a.Decisions) == 0 {
		return false
	}
	if a.Kind != approval.KindTools {
		return a.Decisions[len(a.Decisions)-1].Action == approval.Cancel
	}
	failed := slices.ContainsFunc(a.Decisions, func(d approval.Decision) bool { return d.Action == approval.Fail })
	return failed || !slices.ContainsFunc(a.Permissions, func(p approval.Permission) bool { return p.Verdict == "" })
}

// said collects what people have said on a request since it was last audited.
func (w *walk) said(a approval.Approval, seen *asking) {
	for ; seen.Remarks < len(a.Thread); seen.Remarks++ {
		remark := a.Thread[seen.Remarks]
		r := about(a)
		r.ID, r.Kind, r.At, r.Actor, r.Channel = fmt.Sprintf("%s/t/%d", a.ID, seen.Remarks+1), Asked, remark.At, remark.By, string(remark.Via)
		w.add(r)
	}
	if !a.EscalatedAt.IsZero() && !seen.Escalated {
		seen.Escalated = true
		r := about(a)
		r.ID, r.Kind, r.At, r.Detail = a.ID+"/escalated", Escalated, a.EscalatedAt, "to "+strings.Join(a.EscalateTo, ", ")
		w.add(r)
	}
	for ; seen.Decisions < len(a.Decisions); seen.Decisions++ {
		w.decided(a, seen.Decisions)
	}
}

// decided collects one person's decision, and the standing grants that it gave.
func (w *walk) decided(a approval.Approval, i int) {
	said := a.Decisions[i]
	r := about(a)
	r.ID, r.Kind, r.At = fmt.Sprintf("%s/d/%d", a.ID, i+1), Decided, said.At
	r.Actor, r.Channel, r.Action = said.By, string(said.Via), string(said.Action)
	if said.Tools != nil {
		r.Tool = strings.Join(said.Tools, ",")
	}
	if said.Args != nil {
		r.ArgsHash = argsHash(said.Args)
	}
	w.add(r)
	if a.Grants != agent.GrantsStanding || said.Action != approval.Approve && said.Action != approval.Edit {
		return
	}
	if a.Kind != approval.KindTools && (a.Status != approval.Approved || i != len(a.Decisions)-1) { // one of a quorum
		return
	}
	for _, p := range a.Permissions {
		if p.Verdict != run.ToolGranted || a.Kind == approval.KindTools && !slices.Contains(said.Tools, p.Tool) {
			continue
		}
		for n, covers := range p.Standing {
			g := r
			g.ID, g.Kind, g.Tool, g.Digest, g.ArgsHash = fmt.Sprintf("%s/g/%s/%d", r.ID, p.Tool, n+1), Granted, p.Tool, covers.Digest, ""
			w.add(g)
		}
	}
}

// about is a record of a request, less what happened.
func about(a approval.Approval) Record {
	return Record{
		Approval: a.ID, Run: a.Run, Call: a.Call(), Agent: a.Agent, Tool: strings.Join(a.Tools, ","), Digest: a.Digest, Policy: a.PolicyVersion,
	}
}

func argsHash(args json.RawMessage) string {
	if len(args) == 0 || string(args) == "null" {
		return ""
	}
	return policy.ArgsHash(args)
}

// of is a record of a call, less what happened.
func (c *change) of(call run.Call, kind Kind) Record {
	r := Record{
		ID: fmt.Sprintf("%s/%d/%d/%s/%s", c.cursor.Run, c.entry.Seq, c.index, kind, call.ID), At: c.entry.Time, Kind: kind,
		Run: c.cursor.Run, Call: call.ID, Agent: c.after.Agent, Tool: call.Tool, ArgsHash: argsHash(call.Input),
	}
	if call.Grant != nil {
		r.Approval, r.Digest = call.Grant.Approval, call.Grant.Digest
	}
	return r
}

// claims collects the use of what lets a call run. A claim that was committed before changes nothing.
func (c *change) claims(e run.CallClaimed) {
	was, _ := c.before.Call(e.Call)
	is, ok := c.after.Call(e.Call)
	if !ok || is.Grant == nil || was.Executions == is.Executions {
		return
	}
	r := c.of(is, Consumed)
	switch {
	case is.Grant.Standing:
		r.Detail = "a standing grant"
	case is.Grant.Tool && e.Once:
		r.Detail = "a grant of the tool, used up"
	case is.Grant.Tool:
		r.Detail = "a grant of the tool in this run"
	case was.Grant != nil && was.Grant.Consumed:
		r.Detail = "the approval, again: the outcome was unknown"
	default:
		r.Detail = "the approval"
	}
	c.add(r)
}

// policyChanged is the reason of a call whose approval is void since the policy is another one now (A17).
const policyChanged run.CallReason = "policy_changed"

// settles collects the results of calls that ran under a grant, and the end of grants that nothing ran under.
func (c *change) settles(event run.Event) {
	for _, was := range c.before.Live {
		if was.Grant == nil || !was.Open() {
			continue
		}
		is, ok := c.after.Call(was.ID)
		if !ok || is.Open() {
			continue
		}
		switch {
		case was.Grant.Consumed:
			c.add(c.result(was, is, event))
		case is.Reason == run.WhyVoided:
			c.add(c.of(was, Voided))
		case is.Reason == policyChanged:
			c.add(c.of(was, PolicyChanged))
		}
	}
}

// result is the record of what became of a call that ran under a grant, with nothing of its content.
func (c *change) result(was, is run.Call, event run.Event) Record {
	r := c.of(was, Executed)
	if e, ok := event.(run.Answered); ok {
		r.Actor = e.By
	}
	switch {
	case is.Reason == run.WhyOutcomeUnknown:
		r.Detail = "outcome unknown"
	case is.Result != nil && is.Result.IsError || is.Status != run.StatusSucceeded:
		r.Detail = "error: " + string(is.Reason)
	default:
		r.Detail = "result"
	}
	return r
}

// drops collects a decision that was kept until its call asked, and came to nothing.
func (c *change) drops(e run.DecisionDropped) {
	i := slices.IndexFunc(c.before.Kept, func(k run.DecisionKept) bool { return k.Target == e.Target })
	if i < 0 {
		return
	}
	call, _ := c.after.Call(e.Call)
	call.ID = e.Call
	r := c.of(call, Refused)
	r.Actor, r.Action, r.Channel, r.Detail = c.before.Kept[i].By, string(c.before.Kept[i].Action), string(approval.ViaEarly), "it was kept and came to nothing"
	if call.Wait != nil {
		r.Approval, r.Digest = call.Wait.Approval, call.Wait.Digest
	}
	c.add(r)
}
