package agent

import (
	"slices"
	"time"
)

// MaxKept is how many decisions a run keeps for calls that are not suspended yet.
const MaxKept = 64

// The reasons why a kept decision came to nothing.
const (
	dropOvertaken   = "overtaken by a later decision"
	dropExpired     = "the request had expired"
	dropNotApprover = "not one of the approvers"
	dropNoResult    = "a call that waits for approval takes no result"
	dropNoDecision  = "the call waits for something else"
	dropSeveral     = "it takes several people, each of whom has seen the request"
	dropRequester   = "the run acts for who decided"
)

// keep keeps a decision whose target is not suspended yet; the last one on a target counts (seed 001, 3.5). A decision on a call that
// has ended is ignored.
func (s *AgentState) keep(e DecisionKept) error {
	if err := s.awake("decision_kept"); err != nil {
		return err
	}
	if e.Slot < 1 || e.Target == "" {
		return &ApplyError{Event: "decision_kept", Problem: "a slot and a target are required"}
	}
	if c, ok := s.Call(e.Target); ok && c.Status.Terminal() {
		return nil
	}
	s.unkeep(e.Target)
	s.Kept = append(s.Kept[:len(s.Kept):len(s.Kept)], e)
	return nil
}

// dropped forgets a kept decision that came to nothing.
func (s *AgentState) dropped(e DecisionDropped) error {
	if err := s.awake("decision_dropped"); err != nil {
		return err
	}
	s.unkeep(e.Target)
	return nil
}

// unkeep forgets the decision on a target, in a list of its own.
func (s *AgentState) unkeep(target string) {
	if i := slices.IndexFunc(s.Kept, func(k DecisionKept) bool { return k.Target == target }); i >= 0 {
		s.Kept = slices.Delete(slices.Clone(s.Kept), i, i+1)
	}
}

// EarlyOwed reports whether a kept decision has met a suspended call: Early says what becomes of it.
func EarlyOwed(s *AgentState) bool {
	return slices.ContainsFunc(s.Kept, func(k DecisionKept) bool { _, ok := s.Waiting(k.Target); return ok })
}

// Early are the facts that settle the kept decisions which have met a suspended call, each Decided or DecisionDropped. A decision made
// before the call was suspended is bound when it meets the call's request, and by the same checks as one made on the request: who
// decided must be an approver of that very call, in time, with an answer that fits; what it lets run is the action of that request (A6).
func Early(d *Definition, s *AgentState, valid Validator, now time.Time) []Event {
	var facts []Event
	met := map[string]bool{}
	for _, k := range slices.Backward(s.Kept) { // the newest on a call counts, whatever it was aimed at
		c, ok := s.Waiting(k.Target)
		if !ok {
			continue
		}
		if met[c.ID] {
			facts = append(facts, DecisionDropped{Target: k.Target, Call: c.ID, Why: dropOvertaken})
			continue
		}
		met[c.ID] = true
		fact, why := early(d, s, c, k, valid, now)
		if why != "" {
			facts = append(facts, DecisionDropped{Target: k.Target, Call: c.ID, Why: why})
			continue
		}
		fact.Early = k.Target
		facts = append(facts, fact)
	}
	return facts
}

// tooFew is why the approval of one person alone, of what nobody was shown, is not enough; "" = it is.
func tooFew(s *AgentState, dec Decision, by string) string {
	switch {
	case dec.FourEyes && slices.Contains(s.Requesters(), by):
		return dropRequester
	case dec.People() > 1:
		return dropSeveral
	default:
		return ""
	}
}

// tooFewForAnswered is tooFew of an answer that takes the arguments' place, which makes a new action of the call (A8).
func tooFewForAnswered(d *Definition, s *AgentState, c Call, fact Decided) string {
	if fact.Args == nil {
		return ""
	}
	is := ActionNow(d, s, c, fact.Args).Rule
	if is.Verdict != VerdictAsk {
		return ""
	}
	return tooFew(s, is, fact.By)
}

// early is what a kept decision says about the call it has met, or why it says nothing.
func early(d *Definition, s *AgentState, c Call, k DecisionKept, valid Validator, now time.Time) (fact Decided, why string) {
	t, _ := d.Tool(c.Tool)
	by, dec := Principal{ID: k.By, Groups: k.Groups}, DecideIn(d, s, t, c.Input)
	switch {
	case c.Wait.For != ForApproval && c.Wait.For != ForInput:
		return fact, dropNoDecision
	case !now.Before(c.Wait.Expires):
		return fact, dropExpired
	case !dec.MayAfter(by, now.Sub(c.Wait.Since)):
		return fact, dropNotApprover
	case k.Action == ActionApprove && tooFew(s, dec, k.By) != "":
		return fact, tooFew(s, dec, k.By)
	}
	voices := []Voice{{By: k.By, Groups: k.Groups, At: now}}
	fact = Decided{Call: c.ID, Approval: c.Wait.Approval, Action: k.Action, By: k.By, Digest: c.Wait.Digest}
	switch {
	case k.Action == ActionDeny:
		fact.Text = TextDenied(k.By, k.Note)
	case k.Action != ActionApprove:
		fact.Text = TextCallCancelled(k.By, k.Note)
	case c.Wait.For == ForApproval && k.Result != nil && string(k.Result) != "true":
		return fact, dropNoResult
	case c.Wait.For == ForInput:
		var err error
		if fact, err = ResumeInput(d, s, c, k.Result, k.By, func(dec Decision) bool { return dec.MayAfter(by, now.Sub(c.Wait.Since)) }, valid); err != nil {
			return fact, err.Error()
		}
		if why := tooFewForAnswered(d, s, c, fact); why != "" {
			return fact, why
		}
	}
	if fact.Note = k.Note; k.Action == ActionApprove {
		fact.Voices = voices
	}
	if d.Permission.Scope == ScopeTool && c.Wait.For == ForApproval && k.Action != ActionCancel {
		fact.Permit, fact.Once = ToolDigest(d, s, t, c.Input, dec), k.Action == ActionApprove && d.Granting().once()
	}
	return fact, ""
}
