package agent

import "time"

// LateSuspended is a claimant's own word that its tool has done nothing and asks for input, where it lost the race for its entry and came
// through the inbox (protocol, rule 10). It counts for a call that is its claim, or that nobody has claimed since it was: an attempt after
// it may have had an effect, whatever this one says. The request people see is named by the state that takes the fact.
type LateSuspended struct {
	Slot    int64     `json:"slot"`
	Call    string    `json:"call"`
	Writer  string    `json:"writer"`
	Ticket  *Ticket   `json:"ticket"`
	Digest  string    `json:"digest"` // of the very action
	Expires time.Time `json:"expires"`
	Entered int       `json:"entered,omitempty"` // how often the tool was entered, from 2; 0 = as often as Ran or the claim says
}

func (LateSuspended) event() {}

// lateSuspended parks a call whose tool asks. What people may decide about is the same as if its claimant had stored it itself.
func (s *AgentState) lateSuspended(e LateSuspended) error {
	if e.Ticket == nil || e.Writer == "" || e.Expires.IsZero() {
		return &ApplyError{Event: "late_suspended", Call: e.Call, Problem: "a writer, a ticket and an expiry are required"}
	}
	c, ok := s.Call(e.Call)
	if !ok || c.Service {
		return nil
	}
	var path []CallStatus
	switch {
	case c.Status == StatusRunning && c.Claim == e.Writer:
		path = []CallStatus{StatusSuspended}
	case c.Status == StatusSuspended && c.Wait.For == ForOutcome && c.Wait.Claim == e.Writer:
		path = []CallStatus{StatusResuming, StatusSuspended}
	default:
		return nil
	}
	return s.change(e.Call, "late_suspended", func(c *Call) error {
		if err := c.move("late_suspended", path...); err != nil {
			return err
		}
		c.tried(e.Entered)
		c.asks(e.Ticket, nil, Wait{For: ForInput, Approval: ApprovalID(s.Run, c.ID, c.Asks+1), Digest: e.Digest, Since: s.head.time, Expires: e.Expires, Heard: len(s.Heard)})
		return nil
	})
}

// asks makes a suspended call wait. What a person decided or answered before is used up; who changed its arguments stays known.
func (c *Call) asks(t *Ticket, at *AtGate, w Wait) {
	c.Asks++
	c.EditedBy, c.AtGate = c.Editor(), at
	c.Grant, c.Ticket, c.Resume = nil, t, nil
	c.Gated = false // at its gate it is asked about again
	c.Wait = &w
}
