package run

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// Call is one tool call of a run.
type Call struct {
	ID      string
	Tool    string // original name; the model's name if no tool has it
	Name    string // the name the model used
	Input   json.RawMessage
	Effect  Effect
	Service bool `json:",omitempty"` // the call goes out as an event and is answered later; no code runs here
	Breaks  bool `json:",omitempty"` // the tool is loop-breaking: its success ends the run
	// its result comes before those of the other calls of its round that were carried out (arvo: for MCP servers)
	Ahead      bool  `json:",omitempty"`
	Inference  int64 // number of the conversation's inference that made the call
	Status     CallStatus
	Reason     CallReason // set on failed and cancelled calls
	Executions int        // how often the tool was entered, as far as known

	Claim  string // the writer that runs the call, while Running under a claim
	Asks   int    // how often people were asked
	Wait   *Wait  // while Suspended
	Grant  *Grant // the permission to run, once the call is approved or answered
	Result *Result

	// the unchanged request of the tool or plugin that last suspended the call for input; kept after the answer
	Ticket *Ticket         `json:",omitempty"`
	Resume json.RawMessage `json:",omitempty"` // the answer to Ticket; nil = none yet
	// set if a plugin requested Ticket before the tool was entered; nil = the tool did, or there is no Ticket
	AtGate *AtGate `json:",omitempty"`

	// the plugins have let the call pass, and their decision is recorded; reset when people are asked about the call
	Gated   bool   `json:",omitempty"`
	Hidden  bool   `json:",omitempty"` // the request that led to the call did not offer its tool
	Request string `json:",omitempty"` // id of the request about tools for which the call was blocked; "" = none
	// id of the identical call whose result the model has; "" = none, or not checked
	Repeats string `json:",omitempty"`
	// result of the precondition when people were last asked for approval; nil = they were not, or there is none
	Checked *Checked `json:",omitempty"`
	Child   string   `json:",omitempty"` // id of the delegated run, once the call was claimed; "" = none
	Step    int      `json:",omitempty"` // number of the plan's step; 0 = the loop made the call
	// id of the call of the continued run that this call undoes by a person's order; "" = a model made the call
	Undoes string `json:",omitempty"`

	Budget bool `json:",omitempty"` // the call requests more budget; no model made it or is told about it

	// for a service: time of the first claim; zero = none, or written by a version that did not record it
	AskedAt time.Time `json:",omitzero"`

	EditedBy string // the editor of the arguments in the run that this one branched off; use Editor instead
}

// AtGate holds what was known of a call's tool when a plugin last suspended the call. The tool took no part in that
// suspension. So its own earlier answer stays, and a call that may have happened before may still have.
type AtGate struct {
	// the answer to the tool's own earlier question about the same arguments; nil = none
	Answer  json.RawMessage `json:",omitempty"`
	Memo    string          `json:",omitempty"` // the memo of the tool's own question
	Entered bool            `json:",omitempty"` // the call may have happened
}

// ToolAnswer returns people's answer to the tool's own question, not to a plugin's. It is nil if there is none.
func (c Call) ToolAnswer() json.RawMessage {
	if c.AtGate != nil {
		return c.AtGate.Answer
	}
	return c.Resume
}

// ToolMemo returns the memo of the tool's own answered question; "" = there is none.
func (c Call) ToolMemo() string {
	switch {
	case c.AtGate != nil:
		return c.AtGate.Memo
	case c.Ticket != nil && c.Resume != nil:
		return c.Ticket.Memo
	default:
		return ""
	}
}

// Editor returns the person who edited the arguments in Input (A8), or "" if they are the model's own.
func (c Call) Editor() string {
	if c.Grant != nil && c.Grant.Edited {
		return cmp.Or(c.Grant.Editor, c.Grant.By)
	}
	return c.EditedBy
}

// CallReason says why a call failed or was cancelled.
type CallReason string

// The call reasons.
const (
	WhyDenied           CallReason = "denied"              // by a person, or by a rule (then failed)
	WhyExpired          CallReason = "expired"             // nobody decided in time
	WhyCancelled        CallReason = "cancelled"           // the call was cancelled, or the run ended
	WhyUnknownTool      CallReason = "unknown_tool"        //
	WhyInvalidArguments CallReason = "invalid_arguments"   //
	WhyToolError        CallReason = "tool_error"          // the tool reported an error
	WhyTimeout          CallReason = "timeout"             // a tool that may be repeated ran out of time
	WhyVoided           CallReason = "voided"              // the approval does not cover the call, or is not needed
	WhyPrecondition     CallReason = "precondition"        // the precondition could not be read
	WhyBlocked          CallReason = "blocked"             // by a plugin
	WhyOutOfScope       CallReason = "out_of_scope"        // a plugin or a guard had removed the tool from the request
	WhyAwaiting         CallReason = "awaiting_permission" // blocked: the tool's permission is being requested
	WhyOutcomeUnknown   CallReason = "outcome_unknown"     // the run ended before the outcome was known
	WhySkipped          CallReason = "skipped"             // follows a waiting call in a sequential round
	WhyDuplicate        CallReason = "duplicate"           // the model has the result of an identical call
	// the run has as many open requests as limits.open allows
	WhyTooManyOpen CallReason = "too_many_open"
	// the server's definition of the tool differs from the pinned one
	WhyToolChanged CallReason = "tool_changed"
)

// AskReason says why people are asked again about a call that was approved before. "" = it was not.
type AskReason string

// The reasons.
const (
	WhyPolicyChanged AskReason = "policy_changed"
	WhyStateChanged  AskReason = "state_changed"
	WhyQuorumChanged AskReason = "miscounted" // the people who approved do not satisfy the policy
)

// WaitFor says what a suspended call waits for.
type WaitFor string

// An approval, a person's report of the outcome, input for a tool or a plugin, or a service's answer.
const (
	ForApproval WaitFor = "approval"
	ForOutcome  WaitFor = "outcome"
	ForInput    WaitFor = "input"
	ForAnswer   WaitFor = "answer"
)

// Wait describes what a suspended call waits for. Every wait expires.
type Wait struct {
	For          WaitFor
	Approval     string // id of the request that people see; "" for ForAnswer, which is shown with the run
	Digest       string // digest of the exact action, for ForApproval and ForInput
	Since        time.Time
	Expires      time.Time
	Claim        string `json:",omitempty"` // for ForOutcome: the writer that had the claim; "" = unknown
	Policy       string `json:",omitempty"` // as of CallSuspended
	Contributors int    `json:",omitempty"` // length of AgentState.Contributors when the run asked
}

// Grant is a recorded approval of a call, or the answer to its tool's question. Either lets the call run once.
type Grant struct {
	Approval string
	Digest   string // digest of the approved action; after an edit, of the edited one
	By       string
	Note     string
	Edited   bool // a person changed the arguments; Input holds the changed ones
	Expires  time.Time
	Consumed bool // a claim has used the grant up
	// the grant is for the call's tool: Digest comes from ToolDigest or StandingDigest, and the grant has no expiry here
	Tool   bool   `json:",omitempty"`
	Editor string `json:",omitempty"` // with Edited: the editor; "" = By
	Policy string `json:",omitempty"` // ApproverPolicy of the action, as in CallSuspended
	// with Tool: a record outside the run holds the grant, and every claim checks that record
	Standing bool `json:",omitempty"`

	// the approvals, which the claim counts again; none = not recorded
	ApprovedBy   []Approver `json:",omitempty"`
	Asked        time.Time  `json:",omitzero"`  // with ApprovedBy: when people were asked
	Contributors int        `json:",omitempty"` // with ApprovedBy: as in Wait
	Again        bool       `json:",omitempty"` // ApprovedBy ordered to repeat the call, whose outcome was unknown

	// with Standing: the arguments have to match all of these; Digest comes from PatternDigest
	When []Condition `json:",omitempty"`
}

// Result is the result of a settled call. Shown is set once the conversation contains it.
type Result struct {
	Content string
	Blob    string
	IsError bool
	Media   []Media
	// place of the full text; nil = Content is the full text, or the rest is lost. Never written in place
	Whole  *Whole `json:",omitempty"`
	Shown  bool
	Source Source // place in the journal where it was written
}

// Open reports whether the call has no result yet.
func (c Call) Open() bool { return !c.Status.Terminal() }

// IsDecidedAlone reports whether only a decision on this very call lets it run: it asks for budget or undoes a call.
func (c Call) IsDecidedAlone() bool { return c.Budget || c.Undoes != "" }

// NeedsClaim reports whether the call may run only under a claim: it cannot be repeated, or a person approved it, or it
// goes out as an event. An event needs a claim so that an immediate answer finds the call under way.
func (c Call) NeedsClaim() bool {
	return c.Effect == EffectNonIdempotent || c.Grant != nil || c.Service
}

// AwaitsAnswer reports whether a service's answer settles the call, because its event has been sent or may have been.
// That includes a call about which people are asked whether to send the event again.
func (c Call) AwaitsAnswer() bool { return c.Service && c.Open() && !c.AskedAt.IsZero() }

// TakesLateResult reports whether a claimant's late result settles the call: it is claimed, its outcome is unknown, or
// it has to run again. That includes a call about whose repetition people are asked.
func (c Call) TakesLateResult() bool {
	switch c.Status {
	case StatusRunning:
		return c.Claim != ""
	case StatusSuspended:
		return c.Wait.For == ForOutcome || c.Wait.For != ForAnswer && c.Executions > 0
	default:
		return c.Status == StatusResuming
	}
}

// apply stores a decision whose target is not suspended yet. The last decision on a target counts (presets 3). A
// decision on a live call that has ended is ignored. Settled calls are not checked: a reader that began at a snapshot
// lacks them, and every reader must store the same decisions.
func (e DecisionKept) apply(s *AgentState) error {
	if e.Slot < 1 || e.Target == "" {
		return &ApplyError{Problem: "a slot and a target are required"}
	}
	ended := func(c Call) bool { return c.ID == e.Target && c.Status.Terminal() }
	if slices.ContainsFunc(s.Live, ended) {
		return nil
	}
	s.dropKept(e.Target)
	s.Kept = append(slices.Clip(s.Kept), e)
	return nil
}

func (e DecisionDropped) apply(s *AgentState) error {
	s.dropKept(e.Target)
	return nil
}

func (s *AgentState) dropKept(target string) {
	s.Kept = without(s.Kept, func(k DecisionKept) bool { return k.Target == target })
}

// without returns a new list without the elements for which dropped returns true, or nil if none remain.
func without[T any](list []T, dropped func(T) bool) []T {
	return nonEmpty(slices.DeleteFunc(slices.Clone(list), dropped))
}

// First returns the first element for which wanted returns true; found is false if there is none.
func First[T any](list []T, wanted func(T) bool) (v T, found bool) {
	if i := slices.IndexFunc(list, wanted); i >= 0 {
		return list[i], true
	}
	return v, false
}

// Map returns f of each element, in order. It returns nil for an empty list.
func Map[T, R any](list []T, f func(T) R) (mapped []R) {
	for _, v := range list {
		mapped = append(mapped, f(v))
	}
	return mapped
}

// nonEmpty returns a list, or nil if it is empty, so that storing and reading back does not change it.
func nonEmpty[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}

// Ticket is a tool's request to suspend its call until somebody answers (presets 3). It is stored as the tool wrote it;
// policy.TicketOf fills in the defaults. The zero Ticket asks whether the call may go on.
type Ticket struct {
	ID      string `json:"id,omitempty"`      // of the suspension; default: the call's
	Action  string `json:"action,omitempty"`  // default: tool:<name>
	Message string `json:"message,omitempty"` // the question to people
	// details of the question; default: the call's arguments
	Parameters     json.RawMessage `json:"parameters,omitempty"`
	ResponseSchema json.RawMessage `json:"responseSchema,omitempty"` // JSON Schema of the answer; none = any
	Pending        Pending         `json:"pending,omitzero"`
	Mode           TicketMode      `json:"mode,omitempty"` // default: replay
	// returned to the tool unchanged together with the answer; nobody else reads it
	Memo string `json:"memo,omitempty"`
}

// Pending is the call that people see, such as one that a user interface makes. The zero value is the call itself.
type Pending struct {
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// TicketMode says how an answer is used by the call that asked.
type TicketMode string

// The modes. In each mode the call passes the whole gate again.
const (
	TicketReplay TicketMode = "replay" // the tool runs again with its arguments and sees the answer
	TicketResult TicketMode = "result" // the answer is the tool's result; the tool does not run
	// the tool runs with the answer as its arguments, or with its own if the answer is a boolean
	TicketPass TicketMode = "pass"
)

// Valid reports whether m is one of the modes.
func (m TicketMode) Valid() bool { return m == TicketReplay || m == TicketResult || m == TicketPass }

// Effect says whether a tool may run twice.
type Effect string

// The effects. A tool that declares none is NonIdempotent.
const (
	EffectRead          Effect = "read"
	EffectIdempotent    Effect = "idempotent"
	EffectNonIdempotent Effect = "non_idempotent"
)

// Valid reports whether e is one of the effects.
func (e Effect) Valid() bool {
	return e == EffectRead || e == EffectIdempotent || e == EffectNonIdempotent
}

// UndoOrdered is a person's order to undo a call of the run that this one continues. It directly follows the run's
// first fact. The run makes that one call, always after a person's approval, and ends with it.
type UndoOrdered struct {
	Call RepliedCall `json:"call"` // the call that undoes
	Of   string      `json:"of"`   // id of the call that is undone
	By   string      `json:"by"`
}

func (e UndoOrdered) apply(s *AgentState) error {
	if c, known := s.Call(e.Call.ID); known && c.Undoes == e.Of && e.Of != "" {
		return nil
	}
	undone, ok := s.Call(e.Of)
	switch {
	case s.From == nil || s.From.Kind != OriginContinues || s.Inferences > 0 || len(s.Live) > 0 || s.Entries > 0:
		return &ApplyError{Call: e.Of, Problem: "only a run that begins with the order undoes a call"}
	case !ok && !s.Partial, ok && undone.Status != StatusSucceeded:
		// a state folded from a snapshot lacks calls that were settled before it
		return &ApplyError{Call: e.Of, Problem: "only a call that has succeeded can be undone"}
	case e.Call.ID == "" || e.By == "":
		return &ApplyError{Call: e.Of, Problem: "a call and who ordered it are required"}
	}
	s.Listed = len(s.Servers) > 0 // the pinned definition has the servers' tools already
	s.Prior++                     // a round that no inference made
	if err := s.openRound(Replied{Calls: []RepliedCall{e.Call}}, nil); err != nil {
		return err
	}
	s.Live[len(s.Live)-1].Undoes = e.Of // openRound made the list
	s.appendMessage(RoleAssistant, e.Call.use(), 0, s.nextSource(0))
	return nil
}

// Undoing returns the call with which the run undoes another one; false if the run undoes nothing.
func (s *AgentState) Undoing() (Call, bool) {
	return First(s.Live, func(c Call) bool { return c.Undoes != "" })
}
