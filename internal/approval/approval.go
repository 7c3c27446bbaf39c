// Package approval records the decisions of people on calls and tools. The transaction that suspends a call also writes
// its request (A19). The request is bound to the call by a digest (A6) and decided once (A12); the claim that runs the
// call uses the approval up. One function authorizes every decision, whichever channel it came by (A9). The
// requirements are in docs/approvals.md.
//
// Items have the key PK T#tenant#APPROVAL#id, SK "A", and an index by tenant and status.
package approval

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// Status is the state of a request. Only a pending request can change, and only once.
type Status string

// The statuses.
const (
	Pending   Status = "pending"
	Approved  Status = "approved"
	Denied    Status = "denied"
	Expired   Status = "expired"
	Cancelled Status = "cancelled" // the call or its run was cancelled, or the run ended
	Voided    Status = "voided"    // the call was settled without this request
)

// Statuses returns all statuses.
func Statuses() []Status { return []Status{Pending, Approved, Denied, Expired, Cancelled, Voided} }

// Valid reports whether s is one of the statuses.
func (s Status) Valid() bool { return slices.Contains(Statuses(), s) }

// Kind is what a request asks of people.
type Kind string

// The kinds. What people read of each is in package people.
const (
	KindCall    Kind = "call"    // may this call run?
	KindTools   Kind = "tools"   // may these tools be called?
	KindOutcome Kind = "outcome" // what became of this interrupted call?
	KindInput   Kind = "input"   // what is the answer to the tool's question?
)

// kinds has the actions that a request of each kind takes, and the refusal of any other action.
var kinds = map[Kind]struct {
	actions []Action
	refusal string
}{
	KindCall:  {[]Action{Approve, Deny, Edit, Cancel}, "it is about call CALL, not about tools"},
	KindTools: {[]Action{Approve, Deny, Cancel, Fail}, "it is about tools, so no arguments can be edited"},
	KindInput: {[]Action{Approve, Deny, Cancel}, "it asks for input, which is no edit: approve it with a result"},
	KindOutcome: {
		[]Action{ReportResult, ReportError, Rerun},
		"it asks what became of call CALL; answer it with a result, an error or a rerun",
	},
}

// Approval is a request to people, with the decisions on it.
type Approval struct {
	Tenant     string `json:"-"`
	ID         string `json:"id"`
	Run        string `json:"run"`
	Agent      string `json:"agent"`
	Parent     string `json:"parent,omitempty"`     // of a delegated run: the run whose call it carries out
	ParentCall string `json:"parentCall,omitempty"` // of a delegated run: that call
	// of a delegated run: the top run, where people see the request
	Root  string   `json:"root,omitempty"`
	Kind  Kind     `json:"kind"`
	Calls []string `json:"calls"`
	Tools []string `json:"tools"` // original names
	// the stored bytes that Digest is of; null of KindTools, see Permissions
	Args json.RawMessage `json:"args"`
	// the bytes that the model sent, if an edit has replaced them; see form
	OriginalArgs json.RawMessage `json:"edited,omitempty"`
	// who had edited the arguments before this request; "" = the model sent them
	EditedBy string `json:"editedBy,omitempty"`
	Digest   string `json:"digest,omitempty"` // of the action that an approval allows
	// the tool's own sentence about the call, as it was when it asked; "" = it gave none. No part of Digest
	Described string `json:"described,omitempty"`
	// what would happen, as people are shown it; never stored, set by the API
	Sentence  string      `json:"sentence,omitempty"`
	Ticket    *run.Ticket `json:"ticket,omitempty"` // of KindInput: what the tool asks; untrusted
	Effect    run.Effect  `json:"effect"`
	Status    Status      `json:"status"`
	Approvers []string    `json:"approvers"` // nobody else may decide
	// approver sets of delegating agents' policies; an approver is in each. Of KindTools, see Permissions
	Above       [][]string `json:"above,omitempty"`
	Quorum      int        `json:"quorum"`
	RuleNote    string     `json:"note,omitempty"`
	RequestedAt time.Time  `json:"requestedAt"`
	ExpiresAt   time.Time  `json:"expiresAt"`
	Decisions   []Decision `json:"decisions"`
	// tool = a decision is about the tool; "" = about the call and, with standing grants, about equal calls
	Scope agent.Scope `json:"scope,omitempty"`
	// how long a grant besides the call holds; "" = nothing is granted
	Grants      agent.Grants `json:"grants,omitempty"`
	Permissions []Permission `json:"permissions,omitempty"` // the tools that a decision is about, in the order of Tools
	Undoes      *UndoneCall  `json:"undoes,omitempty"`      // nil = the call reverses no other one

	Version        string   `json:"version,omitempty"`        // the agent's, which the run is pinned to
	Definition     string   `json:"definition,omitempty"`     // digest of the definition that the run is pinned to
	PolicyVersion  string   `json:"policyVersion,omitempty"`  // by policy.VersionOfPolicy
	Requesters     []string `json:"requesters,omitempty"`     // the people for whom the run acts: AgentState.Requesters
	ClaimedSubject string   `json:"claimedSubject,omitempty"` // the subject that the API's caller claimed; unverified
	FourEyes       bool     `json:"fourEyes,omitempty"`       // the requesters may deny and not approve
	// nobody is known to have started the run: four eyes take two people
	StarterUnknown bool `json:"noStarter,omitempty"`
	// interval of reminders to approvers who have not decided; 0 = none
	RemindSeconds  int64      `json:"remindSeconds,omitempty"`
	EscalatesAt    time.Time  `json:"escalatesAt,omitzero"` // when EscalateTo become approvers as well; zero = never
	EscalateTo     []string   `json:"escalateTo,omitempty"`
	agent.Channels            // by which it is approved; of KindTools, see Permissions
	AboveTo        [][]string `json:"aboveTo,omitempty"`    // who joins each set of Above then; may be shorter
	EscalatedAt    time.Time  `json:"escalatedAt,omitzero"` // when the escalation was recorded; zero = not yet
	// what the call depends on, as read for this request; Was = the former value
	Precondition *run.Checked `json:"precondition,omitempty"`
	Thread       []Remark     `json:"thread,omitempty"`    // questions and answers, in order; none decides
	Unmaskings   []Unmasking  `json:"uncovered,omitempty"` // who was shown the masked values, once a person and channel

	rev      int64 // revision of the item, counted while pending
	repeated bool  // see IsRepeated
}

// IsRepeated reports, of the result of Decide, that the same decision was on record already and nothing was changed.
func (a Approval) IsRepeated() bool { return a.repeated }

// Remark is a question about a request, or an answer to one. It decides nothing.
type Remark struct {
	By   string    `json:"by"`
	At   time.Time `json:"at"`
	Text string    `json:"text"`
	Via  Via       `json:"via,omitempty"`
}

// Unmasking records that a person was shown the masked values of a request.
type Unmasking struct {
	By  string    `json:"by"`
	At  time.Time `json:"at"`
	Via Via       `json:"via,omitempty"`
}

// Via is the channel by which a person's decision or remark came in.
type Via = run.Via

// ViaEarly is the channel of a decision that was made before the call was suspended.
const ViaEarly Via = "early"

// UndoneCall is the call that a compensating call reverses.
type UndoneCall struct {
	Run  string `json:"run"`
	Call string `json:"call"`
}

// Call returns the call that the request is about; for a request about tools, the first call that it blocked.
func (a Approval) Call() string { return a.Calls[0] }

// Decision is one person's decision, as the request keeps it.
type Decision struct {
	By     string    `json:"by"`
	Via    Via       `json:"via,omitempty"`
	Action Action    `json:"action"`
	At     time.Time `json:"at"`
	Key    string    `json:"id,omitempty"` // idempotency key of an answer
	Note   string    `json:"note,omitempty"`
	Digest string    `json:"digest,omitempty"` // of the action that was decided; of an edit, of the edited one
	// of an edit, its arguments; of an outcome, its text as a JSON string; of KindInput, the answer
	Args  json.RawMessage `json:"args,omitempty"`
	Tools []string        `json:"tools,omitempty"` // of KindTools: those it decided

	Grant *agent.GrantBounds `json:"grant,omitempty"` // bounds of the standing grant it gives; nil = the policy's own

	Confirmed run.Confirm `json:"confirmed,omitempty"` // on a page behind a link, with what; "" = nothing
}

// Action is what a person can do with a request. Actions that a run knows have the values of run.DecisionAction.
type Action string

// The actions. Edit approves with other arguments, which become the editor's own action (A8).
const (
	Approve Action = "approve"
	Deny    Action = "deny"
	Cancel  Action = "cancel" // cancel the call without judging it
	Fail    Action = "fail"   // of KindTools: it cannot be answered, and the run ends (permission_failed)
	Edit    Action = "edit"

	// of KindOutcome
	ReportResult Action = "result" // the call took effect, with this result
	ReportError  Action = "error"  // it failed
	Rerun        Action = "rerun"  // run it again
)

// NewCallRequest builds the request of a suspended call. It is written with the entry that suspends the call.
func NewCallRequest(def *agent.Definition, s *run.AgentState, c run.Call) Approval {
	t, _ := def.Tool(c.Tool)
	dec := policy.DecideIn(def, s, t, c.Input)
	a := Approval{
		Tenant: s.Tenant, ID: c.Wait.Approval, Run: s.Run, Agent: s.Agent, Kind: KindCall, Calls: []string{c.ID},
		Tools: []string{c.Tool}, Args: c.Input, Digest: c.Wait.Digest, Effect: c.Effect, Status: Pending,
		RequestedAt: c.Wait.Since, ExpiresAt: c.Wait.Expires, Decisions: []Decision{},
	}.withPolicy(def, s, dec)
	a.Approvers, a.Above, a.RuleNote, a.Channels = dec.Approvers, dec.Above, dec.Note, dec.Channels
	a.EditedBy = c.Editor()
	a.Quorum = dec.ApproversNeeded(a.EditedBy != "")
	if dec.Escalate != nil {
		a.EscalateTo, a.AboveTo = dec.Escalate.To, dec.AboveTo
	}
	if c.Wait.For == run.ForApproval || c.Wait.For == run.ForInput && c.AtGate != nil {
		a.Precondition = c.Checked
	}
	switch c.Wait.For {
	case run.ForOutcome:
		a.Kind = KindOutcome
		return a
	case run.ForInput:
		a.Kind = KindInput
		if t, ok := policy.TicketOf(c); ok {
			a.Ticket = &t
		}
		return a
	}
	if c.Undoes != "" && s.From != nil {
		a.Undoes = &UndoneCall{Run: s.From.Run, Call: c.Undoes}
	}
	if c.IsDecidedAlone() {
		return a
	}
	if def.Permission.Scope == agent.ScopeTool {
		a.Scope = agent.ScopeTool
	}
	if granting := policy.GrantPolicy(def); granting.Scope == agent.ScopeTool || granting.GrantsExactArguments() {
		a.Grants, a.Permissions = grantDuration(granting), []Permission{callPermission(def, s, c)}
	}
	return a
}

// callPermission is what an approval of a call grants besides the call.
func callPermission(def *agent.Definition, s *run.AgentState, c run.Call) Permission {
	t, _ := def.Tool(c.Tool)
	dec := policy.DecideIn(def, s, t, c.Input)
	p := Permission{
		Tool: c.Tool, Name: c.Name, Effect: c.Effect, Digests: []string{policy.ToolDigest(def, s, t, c.Input, dec)},
		Calls: []BlockedCall{newBlockedCall(c, dec)},
	}
	p.addStandingCover(def, s, c, dec)
	return p
}

// WithDecision returns the request as decided by a fact of its run.
func (a Approval) WithDecision(fact run.Decided, at time.Time) Approval {
	decision := Decision{
		By: fact.By, Via: ViaEarly, Action: Action(fact.Action), At: at, Note: fact.Note, Args: fact.Result,
	}
	if fact.Action == run.ActionApprove && fact.Args != nil && a.Kind == KindCall {
		decision.Action, decision.Args = Edit, fact.Args
	}
	return a.applyDecision(fact, decision)
}

// applyDecision returns the request as decided by the fact, with the decision as its record.
func (a Approval) applyDecision(fact run.Decided, decision Decision) Approval {
	switch fact.Action {
	case run.ActionDeny:
		a.Status = Denied
	case run.ActionCancel:
		a.Status = Cancelled
	case run.ActionAskAgain, run.ActionVoid:
		a.Status = Voided
	default:
		a.Status = Approved
	}
	if decision.Action == Edit {
		a = a.withArgs(decision.Args)
	}
	if fact.Action == run.ActionApprove {
		a.Digest = fact.Digest
	}
	if fact.Permit != "" && !fact.Once && len(a.Permissions) == 1 { // a grant for once is the approval of the call
		a.Permissions = slices.Clone(a.Permissions)
		a.Permissions[0].Verdict = fact.Action.Verdict()
	}
	a.Decisions = append(slices.Clip(a.Decisions), decision)
	return a
}

// withArgs replaces the arguments and keeps those that the model sent. The tool's sentence was about those.
func (a Approval) withArgs(args json.RawMessage) Approval {
	if a.OriginalArgs == nil {
		a.OriginalArgs = a.Args
	}
	a.Args, a.Described = args, ""
	return a
}

// withPolicy adds what policy and run say of every request to people.
func (a Approval) withPolicy(def *agent.Definition, s *run.AgentState, dec policy.Decision) Approval {
	if p := s.Parent; p != nil {
		a.Parent, a.ParentCall, a.Root = p.Run, p.Call, p.Root
	}
	a.Version, a.Definition, a.PolicyVersion = s.Version, s.Definition, policy.VersionOfPolicy(def)
	a.Requesters = s.Requesters()
	if !slices.Contains(s.By, s.Subject) { // the API's caller claimed the subject, and nobody checked it
		a.ClaimedSubject = s.Subject
	}
	a.Quorum, a.FourEyes, a.RemindSeconds = dec.People(), dec.FourEyes, int64(dec.Remind/time.Second)
	a.StarterUnknown = dec.FourEyes && !policy.StarterKnown(s)
	if dec.Escalate != nil {
		a.EscalatesAt = a.RequestedAt.Add(dec.Escalate.After)
	}
	return a
}

// underEdit returns the request with the requirements of dec, the policy decision on edited arguments, added. No
// requirement gets weaker: two equal sets of approvers are different if they escalate to different people.
func (a Approval) underEdit(dec policy.Decision) Approval {
	if dec.Verdict != agent.VerdictAsk {
		a.Quorum = policy.FourEyesEdit(a.Quorum, a.FourEyes)
		return a
	}
	a.FourEyes = a.FourEyes || dec.FourEyes
	a.Quorum = policy.FourEyesEdit(max(a.Quorum, dec.People()), a.FourEyes)
	a.Channels = a.Channels.Narrow(dec.Channels)
	escalates, to := !a.EscalatesAt.IsZero(), []string(nil)
	if dec.Escalate != nil {
		to = dec.Escalate.To
		if at := a.RequestedAt.Add(dec.Escalate.After); escalates && at.After(a.EscalatesAt) {
			a.EscalatesAt = at
		}
	}
	// Each set of approvers, and at the same place who joins it at the escalation; there may be fewer of these.
	sets, joins := slices.Concat([][]string{a.Approvers}, a.Above), slices.Concat([][]string{a.EscalateTo}, a.AboveTo)
	more, moreJoins := slices.Concat([][]string{dec.Approvers}, dec.Above), slices.Concat([][]string{to}, dec.AboveTo)
	for i, set := range more {
		to := setAt(moreJoins, i)
		known := false
		for j, have := range sets {
			known = known || sameSet(have, set) && (!escalates || sameSet(setAt(joins, j), to))
		}
		if known {
			continue
		}
		sets = append(sets, set)
		if len(to) > 0 && escalates {
			joins = append(append(joins, make([][]string, len(sets)-1-len(joins))...), to)
		}
	}
	a.Above, a.AboveTo = sets[1:], joins[1:]
	return a
}

func sameSet(x, y []string) bool { return slices.Equal(sortedSet(x), sortedSet(y)) }

// setAt returns the set at a place; nil where there is none.
func setAt(sets [][]string, i int) []string {
	if i < len(sets) {
		return sets[i]
	}
	return nil
}
