package run

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// changeCall applies f to a copy of one open call. If the call is settled, the fact is known and nothing changes. A
// call that the run does not have is an error.
func (s *AgentState) changeCall(id string, f func(*Call) error) error {
	i := slices.IndexFunc(s.Live, func(c Call) bool { return c.ID == id })
	if i < 0 {
		if _, settled := s.Call(id); settled {
			return nil
		}
		return &ApplyError{Call: id, Problem: "the run has no such call"}
	}
	if s.Live[i].Status.Terminal() {
		return nil
	}
	if err := s.requireAwake(); err != nil {
		return err
	}
	c := s.Live[i]
	if err := f(&c); err != nil {
		return err
	}
	s.Live = slices.Clone(s.Live)
	s.Live[i] = c
	s.flushResults()
	s.mergeReadyPatches()
	s.flushQueued()
	return nil
}

func (c *Call) transition(path ...CallStatus) error {
	for _, to := range path {
		if !allows(callTransitions[:], c.Status, to) {
			return &ApplyError{Call: c.ID, Problem: fmt.Sprintf("a call does not go from %q to %q", c.Status, to)}
		}
		c.Status = to
	}
	if c.Status != StatusSuspended {
		c.Wait = nil
	}
	if c.Status != StatusRunning {
		c.Claim = ""
	}
	return nil
}

// settleCall ends a call with the result that the model will read. A suspended call resumes first unless cancelled.
func (s *AgentState) settleCall(c *Call, r Result, why CallReason, to CallStatus) error {
	path := []CallStatus{to}
	if c.Status == StatusSuspended && to != StatusCancelled {
		path = []CallStatus{StatusResuming, to}
	}
	if err := c.transition(path...); err != nil {
		return err
	}
	if why = cmp.Or(why, WhyToolError); !r.IsError {
		why = ""
	}
	r.Source = s.nextSource(0)
	c.Result, c.Reason = &r, why
	s.dropKept(c.ID)
	if c.Budget {
		return s.settleBudget(c)
	}
	s.Contributors = withPeople(s.Contributors, c.Editor()) // the model reads the arguments of an edit with the result
	return nil
}

func outcome(isError bool) CallStatus {
	if isError {
		return StatusFailed
	}
	return StatusSucceeded
}

func (e CallFinished) result() Result {
	return Result{Content: e.Content, Blob: e.Blob, IsError: e.IsError, Media: e.Media, Whole: e.Whole}
}

func (e Answered) result() Result {
	return Result{Content: e.Content, Blob: e.Blob, IsError: e.IsError, Media: e.Media, Whole: e.Whole}
}

// blocks returns the result as the conversation contains it, followed by the tool's media.
func (r Result) blocks(id string) []Block {
	blocks := []Block{ToolResult{ID: id, Content: r.Content, Blob: r.Blob, IsError: r.IsError, Whole: r.Whole}}
	for _, m := range r.Media {
		blocks = append(blocks, m)
	}
	return blocks
}

func (e CallClaimed) apply(s *AgentState) error {
	return s.changeCall(e.Call, func(c *Call) error {
		if c.Status == StatusRunning && c.Claim == s.head.writer {
			return nil
		}
		if err := c.transition(StatusRunning); err != nil {
			return err
		}
		c.Claim = s.head.writer
		c.Executions++
		if c.Service && c.AskedAt.IsZero() {
			c.AskedAt = s.head.time
		}
		if e.Child != nil && c.Child == "" { // a call that is claimed again keeps its child
			c.Child = e.Child.Run
			s.Children.Open = append(slices.Clip(s.Children.Open), OpenChild{Call: c.ID, Child: *e.Child})
			s.Children.Begun++
		}
		if e.Under != "" {
			return s.recordToolGrant(c, e)
		}
		if c.Grant != nil {
			g := *c.Grant
			g.Consumed, g.Again = true, false
			c.Grant = &g
		}
		return nil
	})
}

// apply stores a result. Only the claimant may store the result of a call under a claim (rule 9).
func (e CallFinished) apply(s *AgentState) error {
	return s.changeCall(e.Call, func(c *Call) error {
		s.notePatches(c.ID, e.Patch, e.IsError)
		switch {
		case c.Status == StatusRunning && c.Claim != s.head.writer:
			return &ApplyError{Call: c.ID, Problem: "another writer has the claim"}
		case c.Status != StatusRunning && e.Ran && c.NeedsClaim():
			return &ApplyError{Call: c.ID, Problem: "it ran without a claim"}
		case c.Status == StatusSuspended:
			return &ApplyError{Call: c.ID, Problem: "the call is suspended"}
		case c.Status == StatusRunning: // the claimant could not start the child
			s.abandonChild(c.ID)
		case c.Status == StatusNew && e.Ran:
			c.Executions++
			if err := c.transition(StatusRunning); err != nil {
				return err
			}
		}
		c.countEntered(e.Entered)
		return s.settleCall(c, e.result(), e.Reason, outcome(e.IsError))
	})
}

// countEntered counts the executions of an attempt after its first, which is counted when the attempt begins.
func (c *Call) countEntered(entered int) { c.Executions += max(0, entered-1) }

func (e CallSuspended) apply(s *AgentState) error {
	return s.changeCall(e.Call, func(c *Call) error {
		if c.Status == StatusSuspended && c.Wait.Approval == e.Approval && c.Wait.For == cmp.Or(e.For, ForApproval) {
			return nil
		}
		if problem := s.suspensionProblem(e, c); problem != "" {
			return &ApplyError{Call: c.ID, Problem: problem}
		}
		if e.For == ForAnswer {
			c.Wait = &Wait{For: ForAnswer, Since: s.head.time, Expires: e.Expires}
			return c.transition(StatusSuspended)
		}
		var at *AtGate
		if e.Gate {
			at = &AtGate{Answer: c.ToolAnswer(), Memo: c.ToolMemo(), Entered: c.Entered()}
		}
		path := []CallStatus{StatusSuspended}
		if e.Ran {
			path = []CallStatus{StatusRunning, StatusSuspended}
			c.Executions++
		}
		c.countEntered(e.Entered)
		if err := c.transition(path...); err != nil {
			return err
		}
		if e.For != ForInput || e.Gate {
			c.Checked = e.Checked
		}
		c.waitForInput(e.Ticket, at, Wait{For: cmp.Or(e.For, ForApproval), Approval: e.Approval, Digest: e.Digest,
			Since: s.head.time, Expires: e.Expires, Policy: e.Policy, Contributors: len(s.Contributors)})
		return nil
	})
}

// suspensionProblem returns why the call cannot be suspended like that, or "". Approvals are requested before the tool
// is entered. Only the claimant can report a tool's question, or that a service's event has been sent (rule 9).
func (s *AgentState) suspensionProblem(e CallSuspended, c *Call) string {
	forInput, forAnswer := e.For == ForInput, e.For == ForAnswer
	switch {
	case forAnswer && (!c.Service || c.Status != StatusRunning):
		return "no event of the call is out"
	case forAnswer && c.Claim != s.head.writer:
		return "another writer has the claim"
	case forAnswer && e.Expires.IsZero():
		return "a wait needs an expiry"
	case forAnswer:
		return ""
	case e.Approval == "" || e.Expires.IsZero():
		return "a wait needs a request that people see and an expiry"
	case e.For != "" && e.For != ForApproval && !forInput:
		return fmt.Sprintf("nothing is suspended for %q", e.For)
	case forInput != (e.Ticket != nil):
		return "a ticket goes with input and with nothing else"
	case e.Gate && (!forInput || e.Ran || c.Status == StatusRunning):
		return "a plugin asks for input, before the tool is entered"
	case c.Status == StatusRunning && !forInput:
		return "the call is running"
	case c.Status == StatusRunning && c.Claim != s.head.writer:
		return "another writer has the claim"
	case e.Ran && (c.Status != StatusNew || !forInput || c.NeedsClaim()):
		return "it ran without a claim"
	case e.Checked != nil && forInput && !e.Gate:
		return "a precondition is shown before the tool is entered"
	}
	return ""
}

func (e CallUnknown) apply(s *AgentState) error {
	return s.changeCall(e.Call, func(c *Call) error {
		if c.Status == StatusSuspended && c.Wait.Approval == e.Approval {
			return nil
		}
		if repeats := c.Status == StatusResuming && c.Grant != nil && c.Grant.Again; c.Status != StatusRunning && !repeats {
			return &ApplyError{Call: c.ID, Problem: "the call is " + string(c.Status)}
		}
		if e.Approval == "" || e.Expires.IsZero() {
			return &ApplyError{Call: c.ID, Problem: "a wait needs a request that people see and an expiry"}
		}
		if err := c.transition(StatusSuspended); err != nil {
			return err
		}
		c.Asks++
		c.Gated = false
		c.Wait = &Wait{
			For: ForOutcome, Approval: e.Approval, Since: s.head.time, Expires: e.Expires, Claim: e.Claim,
			Contributors: len(s.Contributors),
		}
		return nil
	})
}

// apply applies a decision to its request. Of a decision on an overtaken request only the permission of the call's tool
// is kept. A kept decision is removed.
func (e Decided) apply(s *AgentState) error {
	if e.Early != "" {
		if err := s.requireAwake(); err != nil {
			return err
		}
		s.dropKept(e.Early)
	}
	if at := s.Permissions.Request(e.Approval); at >= 0 {
		return s.decideTools(at, e)
	}
	c, ok := s.Call(e.Call)
	if !ok {
		return nil
	}
	if c.Asks > 0 && e.Approval == ApprovalID(s.Run, c.ID, c.Asks) || c.Wait != nil && e.Approval == c.Wait.Approval {
		if err := s.requireAwake(); err != nil {
			return err
		}
		s.recordToolPermit(c, e)
	}
	asks := c.Status == StatusSuspended && (c.Wait.For == ForApproval || c.Wait.For == ForInput)
	if !asks || c.Wait.Approval != e.Approval {
		return nil
	}
	return s.changeCall(e.Call, func(c *Call) error {
		switch e.Action {
		case ActionApprove:
		case ActionAskAgain:
			return c.transition(StatusResuming)
		case ActionVoid: // a run that still needs the request makes another call
			return s.settleCall(c, Result{IsError: true}, WhyVoided, StatusCancelled)
		case ActionCancel:
			return s.settleCall(c, Result{Content: e.Text, IsError: true}, WhyCancelled, StatusCancelled)
		default:
			return s.settleCall(c, Result{Content: e.Text, IsError: true}, WhyDenied, StatusCancelled)
		}
		expires, policy, asked, contributors := c.Wait.Expires, c.Wait.Policy, c.Wait.Since, c.Wait.Contributors
		if e.Args != nil {
			policy = e.Policy
		}
		if c.Wait.For == ForInput {
			c.Resume = e.Result
			if c.Resume == nil { // no result means yes (presets 3)
				c.Resume = json.RawMessage("true")
			}
		}
		if err := c.transition(StatusResuming); err != nil {
			return err
		}
		c.Grant = &Grant{Approval: e.Approval, Digest: e.Digest, By: e.By, Note: e.Note, Edited: e.Args != nil,
			Editor: e.Editor, Policy: policy, Expires: expires}
		if len(e.ApprovedBy) > 0 {
			c.Grant.ApprovedBy, c.Grant.Asked, c.Grant.Contributors = e.ApprovedBy, asked, contributors
		}
		if e.Args != nil {
			c.Input = e.Args
			if c.AtGate != nil && c.AtGate.Answer != nil { // people's answer to the tool was about other arguments
				c.AtGate = &AtGate{Entered: c.AtGate.Entered}
			}
		}
		return nil
	})
}

// apply settles an unknown outcome or a service's call. Any other answer is too late and is ignored.
func (e Answered) apply(s *AgentState) error {
	if e.Used != nil {
		return s.applyChildAnswer(e)
	}
	c, ok := s.Call(e.Call)
	if !ok {
		return nil
	}
	switch {
	case c.Status == StatusSuspended && c.Wait.For == ForOutcome && (e.Approval == "" || e.Approval == c.Wait.Approval):
	case c.Status == StatusRunning && c.Claim != "" && e.Slot == 0:
	case c.AwaitsAnswer() && !e.Rerun && e.Approval == "":
	default:
		return nil
	}
	return s.changeCall(e.Call, func(c *Call) error {
		if !e.Rerun {
			s.notePatches(c.ID, e.Patch, e.IsError)
			return s.settleCall(c, e.result(), "", outcome(e.IsError))
		}
		if e.NotRun && c.Executions > 0 {
			c.Executions--
		}
		if c.Grant != nil && c.Wait != nil && e.Slot > 0 { // a person ordered it
			g := *c.Grant
			g.ApprovedBy, g.Asked, g.Contributors, g.Again = e.ApprovedBy, c.Wait.Since, c.Wait.Contributors, true
			c.Grant = &g
		}
		if c.Status == StatusRunning { // both at once, so that the round does not come to rest in between
			return c.transition(StatusSuspended, StatusResuming)
		}
		return c.transition(StatusResuming)
	})
}

// apply settles a call that takes the result. It ignores settled calls (rule 10).
func (e LateResult) apply(s *AgentState) error {
	if c, _ := s.Call(e.Call); !c.TakesLateResult() {
		return nil
	}
	return s.changeCall(e.Call, func(c *Call) error {
		c.countEntered(e.Entered)
		s.notePatches(c.ID, e.Patch, e.IsError)
		return s.settleCall(c, e.result(), "", outcome(e.IsError))
	})
}

func (e CallCancelled) apply(s *AgentState) error {
	return s.changeCall(e.Call, func(c *Call) error {
		if c.Status != StatusSuspended && (e.Reason != WhySkipped || !s.Skipped(*c)) {
			return &ApplyError{Call: c.ID, Problem: "the call is " + string(c.Status)}
		}
		return s.settleCall(c, Result{Content: e.Content, IsError: true}, e.Reason, StatusCancelled)
	})
}

// flushResults moves results into the conversation. When the round is complete, it appends the known results in request
// order. Later results are appended together once the last one is there (presets 2, Messages). Under all_suspended
// later results of any round are appended as they arrive, but never between a turn and the first results of its calls.
func (s *AgentState) flushResults() {
	if s.WithPlaceholders() {
		if s.Round.Committed || !slices.ContainsFunc(s.Newest(), s.mustSettle) { // each is settled or paused
			s.Round.Committed = true
			s.appendResultsFrom(len(s.Live) - len(s.Newest()))
			s.appendResultsFrom(0)
		}
		return
	}
	settled, moving := 0, false
	for _, c := range s.Live {
		switch {
		case c.Status.Terminal():
			settled++
		case c.Status != StatusSuspended:
			moving = true
		}
	}
	if moving || s.Round.Committed && settled < len(s.Live) {
		return
	}
	s.Round.Committed = true
	s.appendResultsFrom(0)
}

// appendResultsFrom appends the missing results of the live calls from index first on. They are in the order of the
// calls, except that in each round the Ahead calls come first among those that were carried out.
func (s *AgentState) appendResultsFrom(first int) {
	var all, ran []int
	for i := first; i < len(s.Live); i++ {
		c := s.Live[i]
		if c.Result == nil || c.Result.Shown || c.Step > 0 { // results of a plan are shown once the loop takes over
			continue
		}
		all = append(all, i)
		if c.Executions > 0 && !c.Service {
			ran = append(ran, i)
		}
	}
	if len(all) == 0 {
		return
	}
	places, behind := slices.Clone(ran), map[bool]int{true: 0, false: 1}
	slices.SortStableFunc(ran, func(a, b int) int {
		x, y := s.Live[a], s.Live[b]
		return cmp.Or(cmp.Compare(x.Inference, y.Inference), behind[x.Ahead]-behind[y.Ahead])
	})
	s.Live = slices.Clone(s.Live)
	for _, i := range all {
		if at := slices.Index(places, i); at >= 0 {
			i = ran[at]
		}
		r := *s.Live[i].Result
		r.Shown = true
		s.Live[i].Result = &r
		s.appendResult(s.Live[i].ID, r)
	}
}

// appendResult appends a result, followed by the tool's media.
func (s *AgentState) appendResult(id string, r Result) {
	for i, b := range r.blocks(id) {
		from := r.Source
		from.Part += i
		s.appendMessage(RoleUser, b, 0, from)
	}
}

// apply parks a call whose tool asks. The request is the same as if the claimant had stored the fact itself.
func (e LateSuspended) apply(s *AgentState) error {
	if e.Ticket == nil || e.Writer == "" || e.Expires.IsZero() {
		return &ApplyError{Call: e.Call, Problem: "a writer, a ticket and an expiry are required"}
	}
	c, ok := s.Call(e.Call)
	if !ok || c.Service {
		return nil
	}
	path := []CallStatus{StatusSuspended}
	switch {
	case c.Status == StatusRunning && c.Claim == e.Writer:
	case c.Status == StatusSuspended && c.Wait.For == ForOutcome && c.Wait.Claim == e.Writer:
		path = []CallStatus{StatusResuming, StatusSuspended}
	default:
		return nil
	}
	return s.changeCall(e.Call, func(c *Call) error {
		if err := c.transition(path...); err != nil {
			return err
		}
		c.countEntered(e.Entered)
		c.waitForInput(e.Ticket, nil, Wait{For: ForInput, Approval: ApprovalID(s.Run, c.ID, c.Asks+1), Digest: e.Digest,
			Since: s.head.time, Expires: e.Expires, Contributors: len(s.Contributors)})
		return nil
	})
}

// waitForInput sets what a suspended call waits for. It clears decisions and answers, but not who edited the arguments.
func (c *Call) waitForInput(t *Ticket, at *AtGate, w Wait) {
	c.Asks++
	c.EditedBy, c.AtGate = c.Editor(), at
	c.Grant, c.Ticket, c.Resume = nil, t, nil
	c.Gated = false // the gate has to ask the plugins again
	c.Wait = &w
}
