// Package approval is the desk where people decide. A request is written in the very transaction that suspends its call (A19),
// bound to the call by a digest (A6), decided once (A12), and used up by the claim that runs the call. One function authorises
// every decision, whichever channel it came by (A9). The requirements are docs/approvals.md.
//
// Items live under PK T#tenant#APPROVAL#id, SK "A", and are listed in the index by tenant and status.
package approval

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// Status is where a request stands. Pending alone can change, and only once.
type Status string

// The statuses.
const (
	Pending   Status = "pending"
	Approved  Status = "approved"
	Denied    Status = "denied"
	Expired   Status = "expired"
	Cancelled Status = "cancelled" // the call was called off, or its run ended
	Voided    Status = "voided"    // it was overtaken: the call was settled without it
)

// Statuses are all of them.
func Statuses() []Status { return []Status{Pending, Approved, Denied, Expired, Cancelled, Voided} }

// Valid reports whether s is one of the statuses.
func (s Status) Valid() bool { return slices.Contains(Statuses(), s) }

// Kind is what is asked.
type Kind string

// May this call run; may these tools be called; what became of that call; and what its tool asks before it can finish.
const (
	KindCall    Kind = "call"
	KindTools   Kind = "tools"
	KindOutcome Kind = "outcome"
	KindInput   Kind = "input"
)

// Approval is one request to people and what became of it.
type Approval struct {
	Tenant       string          `json:"-"`
	ID           string          `json:"id"`
	Run          string          `json:"run"`
	Agent        string          `json:"agent"`
	Parent       string          `json:"parent,omitempty"`     // of a delegated run: the one whose call it carries out
	ParentCall   string          `json:"parentCall,omitempty"` // and that call
	Root         string          `json:"root,omitempty"`       // and the run that nobody delegated, at which people see the request
	Kind         Kind            `json:"kind"`
	Calls        []string        `json:"calls"`
	Tools        []string        `json:"tools"`            // original names
	Args         json.RawMessage `json:"args"`             // the stored bytes, complete, that Digest is of; null where it is about tools: see Permissions
	OriginalArgs json.RawMessage `json:"edited,omitempty"` // the bytes that the call asked with, where an edit has put Args in their place; in JSON they are args, and Args is edited
	Digest       string          `json:"digest,omitempty"` // of the action that an approval lets run
	Ticket       *run.Ticket     `json:"ticket,omitempty"` // of KindInput: what the tool asks, whole, and not to be trusted
	Effect       run.Effect      `json:"effect"`
	Status       Status          `json:"status"`
	Approvers    []string        `json:"approvers"`       // nobody else may decide
	Above        [][]string      `json:"above,omitempty"` // the approvers of each delegating agent's policy that asks: who decides is among each of these as well. Of KindTools, see Permissions
	Quorum       int             `json:"quorum"`
	RuleNote     string          `json:"note,omitempty"`
	RequestedAt  time.Time       `json:"requestedAt"`
	ExpiresAt    time.Time       `json:"expiresAt"`
	Decisions    []Decision      `json:"decisions"`
	Scope        agent.Scope     `json:"scope,omitempty"`       // tool = a decision decides about the tool; "" = about what asks alone, and with standing its like
	Grants       agent.Grants    `json:"grants,omitempty"`      // how long what is granted beside the call holds; "" = nothing is
	Permissions  []Permission    `json:"permissions,omitempty"` // the tools that a decision decides about, in the order of Tools
	Undoes       *UndoneCall     `json:"undoes,omitempty"`      // nil = the call takes no other one back

	Version        string       `json:"version,omitempty"`        // the agent's, which the run is pinned to
	Definition     string       `json:"definition,omitempty"`     // the digest of the one it is pinned to
	PolicyVersion  string       `json:"policyVersion,omitempty"`  // of the policy that asks, by agent.PolicyVersion
	Requesters     []string     `json:"requesters,omitempty"`     // the people for whom the run acts: agent.Requesters
	ClaimedSubject string       `json:"claimedSubject,omitempty"` // whom the run is for by the word of the API's caller, which nobody checked; of a principal also among Requesters
	FourEyes       bool         `json:"fourEyes,omitempty"`       // the requesters may deny and not approve
	StarterUnknown bool         `json:"noStarter,omitempty"`      // nobody is known to have started the run: four eyes take two people
	RemindSeconds  int64        `json:"remindSeconds,omitempty"`  // who has not decided is reminded so often; 0 = nobody is
	EscalatesAt    time.Time    `json:"escalatesAt,omitzero"`     // when those of EscalateTo become approvers as well; zero = nobody does
	EscalateTo     []string     `json:"escalateTo,omitempty"`
	AboveTo        [][]string   `json:"aboveTo,omitempty"`      // who is among each of Above as well from then on; shorter where no more are
	EscalatedAt    time.Time    `json:"escalatedAt,omitzero"`   // when they did; zero = not yet
	Precondition   *run.Checked `json:"precondition,omitempty"` // what the call depends on, as it was read when people were asked, and where that changed since they were last asked, what it was; nil = nothing is
	Thread         []Remark     `json:"thread,omitempty"`       // questions about the request and what was answered, in order; none decides
	Unmaskings     []Unmasking  `json:"uncovered,omitempty"`    // who was shown what is masked, each once a way

	rev      int64         // of the item: how often it was written over while pending; -1 = it has none
	repeated bool          // see Repeated
	origin   requestOrigin // of one whose approval grants more than its call
}

// requestOrigin is how a request was made, as its run has it.
type requestOrigin struct {
	at         time.Time
	requesters []string // whom four eyes keep from approving
	edited     bool     // a person has changed the arguments since
}

// IsRepeated reports, of what Settle gives, that the same was said of the request before: nothing was changed.
func (a Approval) IsRepeated() bool { return a.repeated }

// Remark is a question about a request, or an answer to one. It decides nothing.
type Remark struct {
	By   string    `json:"by"`
	At   time.Time `json:"at"`
	Text string    `json:"text"`
	Via  Via       `json:"via,omitempty"`
}

// Unmasking says that a person was shown what is masked of a request.
type Unmasking struct {
	By  string    `json:"by"`
	At  time.Time `json:"at"`
	Via Via       `json:"via,omitempty"`
}

// Via is the way by which a word of a person came in.
type Via string

// The ways. "" = not recorded.
const (
	ViaAPI     Via = "api"
	ViaCLI     Via = "cli"
	ViaPage    Via = "page"    // by a signed link
	ViaConsole Via = "console" // the web console
	ViaSlack   Via = "slack"
	ViaEarly   Via = "early" // a decision kept until its call asked
)

// UndoneCall is the call that is to be taken back.
type UndoneCall struct {
	Run  string `json:"run"`
	Call string `json:"call"`
}

// withParent says of the run that asks what delegated it.
func (a Approval) withParent(p *run.Parent) Approval {
	if p != nil {
		a.Parent, a.ParentCall, a.Root = p.Run, p.Call, p.Root
	}
	return a
}

// Call is the call the request is about; of a request about tools, the first that it blocked.
func (a Approval) Call() string { return a.Calls[0] }

// Decision is one person's word, kept with the request.
type Decision struct {
	By     string          `json:"by"`
	Via    Via             `json:"via,omitempty"`
	Action Action          `json:"action"`
	At     time.Time       `json:"at"`
	Key    string          `json:"id,omitempty"` // of an answer: the client's own id
	Note   string          `json:"note,omitempty"`
	Args   json.RawMessage `json:"args,omitempty"`  // an edit's; of an answer, its text as a JSON string; of KindInput, the answer itself
	Tools  []string        `json:"tools,omitempty"` // of a request about tools: those it decided

	Grant *agent.GrantBounds `json:"grant,omitempty"` // how far the standing grant goes that it gives; nil = as far as the policy lets it
}

// Action is what a person can do with a request.
type Action string

// The actions. Edit approves with other arguments, as the editor's own (A8).
const (
	Approve Action = "approve"
	Deny    Action = "deny"
	Edit    Action = "edit"
	Cancel  Action = "cancel" // call it off without judging it
	Fail    Action = "fail"   // the request cannot be answered: the run ends (permission_failed); about tools alone
)

// actionRerun is how the order to run a call again is recorded with the request that asks what became of it. No decision is one (Settle).
const actionRerun = "rerun"

// Valid reports whether a is one of the actions.
func (a Action) Valid() bool {
	return a == Approve || a == Deny || a == Edit || a == Cancel || a == Fail
}

// NewCallRequest is the request that the suspension of c asks, as the entry that suspends it writes it.
func NewCallRequest(def *agent.Definition, s *run.AgentState, c run.Call) Approval {
	t, _ := def.Tool(c.Tool)
	dec := policy.DecideIn(def, s, t, c.Input)
	a := Approval{
		Tenant: s.Tenant, ID: c.Wait.Approval, Run: s.Run, Agent: s.Agent, Kind: KindCall, Calls: []string{c.ID}, Tools: []string{c.Tool},
		Args: c.Input, Digest: c.Wait.Digest, Effect: c.Effect, Status: Pending, RequestedAt: c.Wait.Since, ExpiresAt: c.Wait.Expires, Decisions: []Decision{},
	}.withParent(s.Parent).withPolicy(def, s, dec)
	a.Approvers, a.Above, a.RuleNote = dec.Approvers, dec.Above, dec.Note
	if dec.Escalate != nil {
		a.EscalateTo, a.AboveTo = dec.Escalate.To, dec.AboveTo
	}
	switch c.Wait.For {
	case run.ForApproval:
		a.Precondition = c.Checked
	case run.ForOutcome:
		a.Kind = KindOutcome
		return a
	case run.ForInput:
		a.Kind = KindInput
		if t, ok := c.Asked(); ok {
			a.Ticket = &t
		}
		return a
	}
	if c.Undoes != "" && s.From != nil { // a word on it is about it alone
		a.Undoes = &UndoneCall{Run: s.From.Run, Call: c.Undoes}
		return a
	}
	if def.Permission.Scope == agent.ScopeTool {
		a.Scope = agent.ScopeTool
	}
	if granting := policy.Granting(def); granting.Scope == agent.ScopeTool || granting.OfArguments() {
		a.Grants, a.Permissions = grantDuration(granting), []Permission{callPermission(def, s, c)}
	}
	return a
}

// callPermission is what an approval of a call grants beside it.
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

// WithDecision is the request as it stands once the fact has decided it.
func (a Approval) WithDecision(fact run.Decided, at time.Time) Approval {
	said := Decision{By: fact.By, Via: ViaEarly, Action: Approve, At: at, Note: fact.Note, Args: fact.Result}
	switch {
	case fact.Action == run.ActionDeny:
		said.Action = Deny
	case fact.Action == run.ActionCancel:
		said.Action = Cancel
	case fact.Args != nil && a.Kind == KindCall:
		said.Action, said.Args = Edit, fact.Args
	}
	return a.withDecision(fact, said)
}

// withDecision is Settled by a decision that says it otherwise than the fact.
func (a Approval) withDecision(fact run.Decided, said Decision) Approval {
	a.Status = statusAfter(fact.Action)
	if said.Action == Edit {
		a = a.withArgs(said.Args)
	}
	if fact.Action == run.ActionApprove {
		a.Digest = fact.Digest
	}
	if fact.Permit != "" && !fact.Once && len(a.Permissions) == 1 { // of one that holds once, the approval of the call is all there is
		a.Permissions = slices.Clone(a.Permissions)
		a.Permissions[0].Verdict = fact.Action.Verdict()
	}
	a.Decisions = append(slices.Clip(a.Decisions), said)
	return a
}

// statusAfter is where a decision of a call leaves its request.
func statusAfter(by run.DecisionAction) Status {
	switch by {
	case run.ActionDeny:
		return Denied
	case run.ActionCancel:
		return Cancelled
	case run.ActionAskAgain:
		return Voided
	default:
		return Approved
	}
}

// withArgs is a request whose arguments somebody has changed: it shows what it lets run, and keeps what was asked.
func (a Approval) withArgs(args json.RawMessage) Approval {
	if a.OriginalArgs == nil {
		a.OriginalArgs = a.Args
	}
	a.Args = args
	return a
}

// withPolicy says of a request what policy and run say of everything that waits for people.
func (a Approval) withPolicy(def *agent.Definition, s *run.AgentState, dec policy.Decision) Approval {
	a.Version, a.Definition, a.PolicyVersion = s.Version, s.Definition, policy.VersionOfPolicy(def)
	a.Requesters, a.ClaimedSubject = s.Requesters(), s.ClaimedSubject()
	a.Quorum, a.FourEyes, a.RemindSeconds = dec.People(), dec.FourEyes, int64(dec.Remind/time.Second)
	a.StarterUnknown = dec.FourEyes && !s.StarterKnown()
	if dec.Escalate != nil {
		a.EscalatesAt = a.RequestedAt.Add(dec.Escalate.After)
	}
	return a
}
