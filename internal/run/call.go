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
	Tool    string // the original name; the model's where no tool has it
	Name    string // the name the model used
	Input   json.RawMessage
	Effect  Effect
	Service bool `json:",omitempty"` // it goes out as an event and somebody answers; nothing runs here
	Breaks  bool `json:",omitempty"` // a loop-breaking tool's: its success ends the run
	// its result stands before those of its round's other calls that were carried out (arvo: of MCP servers)
	Ahead      bool  `json:",omitempty"`
	Inference  int64 // the inference of the conversation that made it
	Status     CallStatus
	Reason     CallReason // set on failed and cancelled calls
	Executions int        // how often the tool itself was entered, as far as is known

	Claim  string // the writer that runs it, while Running under a claim
	Asks   int    // how often a person was asked
	Wait   *Wait  // while Suspended
	Grant  *Grant // what lets it run, once approved or answered
	Result *Result

	// what the tool or a plugin asked for when the call was last suspended for input, as it gave it; kept once answered
	Ticket *Ticket         `json:",omitempty"`
	Resume json.RawMessage `json:",omitempty"` // the answer to it; nil = none yet. Both are of the newest suspension
	// a plugin asked for Ticket, before the tool was entered; nil = the tool itself did, or nobody
	AtGate *AtGate `json:",omitempty"`

	// plugins let the call pass, and what they decided with it is known; until somebody is asked about it
	Gated   bool   `json:",omitempty"`
	Hidden  bool   `json:",omitempty"` // the inference that made the call was not offered its tool
	Request string `json:",omitempty"` // the request about tools that it was blocked for; "" = none
	// the call that it repeats, whose result the model has; "" = none, or nobody looks
	Repeats string `json:",omitempty"`
	// what its precondition gave when people were last asked to approve it; nil = they were not, or it has none
	Checked *Checked `json:",omitempty"`
	Child   string   `json:",omitempty"` // the run that the call is, once it was claimed; "" = it is none
	Step    int      `json:",omitempty"` // of the run's plan, by its number; 0 = the loop made the call
	// the call that a person had it take back, of the run that this one continues; "" = a model made it
	Undoes string `json:",omitempty"`

	Budget bool `json:",omitempty"` // the run asks for more budget; no model made the call, and none is told of it

	// of a service's, when it was first claimed; zero = it was not, or by a version that did not note it
	AskedAt time.Time `json:",omitzero"`

	EditedBy string // who had changed the arguments in the run that this one branched off; Editor says who did in either
}

// AtGate is what was known of a call's tool when a plugin last had somebody asked about the call. The tool had no part
// in that: it neither asked nor is it answered, and a call that may have happened before may have happened still.
type AtGate struct {
	// to what the tool itself had asked before, of these very arguments; nil = nothing
	Answer  json.RawMessage `json:",omitempty"`
	Memo    string          `json:",omitempty"` // that the tool had asked with
	Entered bool            `json:",omitempty"` // the call may have happened
}

// ToolAnswer is what people have answered to the tool's own question, not to a plugin's; nil = it has asked none.
func (c Call) ToolAnswer() json.RawMessage {
	if c.AtGate != nil {
		return c.AtGate.Answer
	}
	return c.Resume
}

// ToolMemo is what the tool wanted back with the answer to its own question; "" = nothing, or there is no answer.
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

// Editor is the person whose arguments Input holds (A8); "" where they are the model's own.
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
	WhyCancelled        CallReason = "cancelled"           // the call or the run was
	WhyUnknownTool      CallReason = "unknown_tool"        //
	WhyInvalidArguments CallReason = "invalid_arguments"   //
	WhyToolError        CallReason = "tool_error"          // the tool reported an error
	WhyTimeout          CallReason = "timeout"             // a tool that may be repeated ran out of time
	WhyVoided           CallReason = "voided"              // what was approved is not what would run
	WhyPrecondition     CallReason = "precondition"        // what the call depends on could not be read
	WhyBlocked          CallReason = "blocked"             // by a plugin
	WhyOutOfScope       CallReason = "out_of_scope"        // a plugin or a guard had left the tool out of the request
	WhyAwaiting         CallReason = "awaiting_permission" // blocked: the tool's permission is being requested
	WhyOutcomeUnknown   CallReason = "outcome_unknown"     // the run ended while nobody could say what became of it
	WhySkipped          CallReason = "skipped"             // behind one that waits, in a sequential round
	WhyDuplicate        CallReason = "duplicate"           // it repeats one whose result the model has
	// people are asked as much of the run as they may be at a time (limits.open)
	WhyTooManyOpen CallReason = "too_many_open"
	// its server says something else of the tool than the run is pinned to
	WhyToolChanged CallReason = "tool_changed"
)

// AskReason says why a call is asked about that was approved before. "" = it was not.
type AskReason string

// Another policy applies than it was approved under (A17), or what the call depends on is not what was shown.
const (
	WhyPolicyChanged AskReason = "policy_changed"
	WhyStateChanged  AskReason = "state_changed"
	WhyMiscounted    AskReason = "miscounted" // those who have approved are not those whom its policy wants
)

// WaitFor says whom a suspended call waits for.
type WaitFor string

// An approval, a person's word on the outcome, input that its tool or a plugin asked for, or a service's answer.
const (
	ForApproval WaitFor = "approval"
	ForOutcome  WaitFor = "outcome"
	ForInput    WaitFor = "input"
	ForAnswer   WaitFor = "answer"
)

// Wait is what a suspended call waits for. Every wait expires.
type Wait struct {
	For      WaitFor
	Approval string // id of the request people see; "" for ForAnswer, which is seen with the run
	Digest   string // of the very action, for ForApproval and ForInput
	Since    time.Time
	Expires  time.Time
	Claim    string `json:",omitempty"` // for ForOutcome: the writer whose claim it was; "" = nobody knows
	Policy   string `json:",omitempty"` // as of CallSuspended
	Heard    int    `json:",omitempty"` // the length of AgentState.Heard when the run asked
}

// Grant is a recorded approval of the call, or an answer to what its tool asked: either lets it run once.
type Grant struct {
	Approval string
	Digest   string // of the action that was approved; after an edit, of the edited one
	By       string
	Note     string
	Edited   bool // a person changed the arguments; Input holds theirs
	Expires  time.Time
	Consumed bool // a claim has used it up
	// it is of the call's tool: Digest is ToolDigest's or StandingDigest's, and it has no expiry of its own
	Tool   bool   `json:",omitempty"`
	Editor string `json:",omitempty"` // with Edited: whose arguments they are; "" = By's
	Policy string `json:",omitempty"` // of the action, as of CallSuspended
	// with Tool: it is on record beyond the run, and every claim under it is held to that record
	Standing bool `json:",omitempty"`

	// whose approvals it takes, for the claim to count again; none = it was not recorded
	Voices []Voice   `json:",omitempty"`
	Asked  time.Time `json:",omitzero"`  // with Voices: when people were asked
	Heard  int       `json:",omitempty"` // with Voices: as of Wait
	Again  bool      `json:",omitempty"` // Voices have ordered to run the call again, whose outcome was unknown

	// with Standing: it is of arguments that fit all of these; Digest is PatternDigest's
	When []Condition `json:",omitempty"`
}

// Result is what became of a settled call. Shown is set once it is in the conversation.
type Result struct {
	Content string
	Blob    string
	IsError bool
	Media   []Media
	Whole   *Whole `json:",omitempty"` // where all of it is; nil = here, or nowhere. Never written in place
	Shown   bool
	Source  Source // where it was written
}

// Open reports whether the call has no result yet.
func (c Call) Open() bool { return !c.Status.Terminal() }

// NeedsClaim reports whether the call may run only under a claim: it cannot be repeated, a person approved it, or it
// goes out as an event, so that an answer that comes back at once finds the call under way.
func (c Call) NeedsClaim() bool {
	return c.Effect == EffectNonIdempotent || c.Grant != nil || c.Service
}

// AwaitsAnswer reports whether a service's answer settles the call: its event is out, or may be.
func (c Call) AwaitsAnswer() bool {
	if !c.Service {
		return false
	}
	return c.Status == StatusRunning && c.Claim != "" || c.Status == StatusSuspended && c.Wait.For == ForAnswer
}

// apply keeps a decision whose target is not suspended yet; the last one on a target counts (presets 3). A
// decision on a call that has ended is ignored.
func (e DecisionKept) apply(s *AgentState) error {
	if e.Slot < 1 || e.Target == "" {
		return &ApplyError{Problem: "a slot and a target are required"}
	}
	if c, ok := s.Call(e.Target); ok && c.Status.Terminal() {
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

// without is a new list that lacks what is to be dropped, nil where nothing is left.
func without[T any](list []T, dropped func(T) bool) []T {
	return nonEmpty(slices.DeleteFunc(slices.Clone(list), dropped))
}

// First is the first element that is wanted; false where there is none.
func First[T any](list []T, wanted func(T) bool) (v T, found bool) {
	if i := slices.IndexFunc(list, wanted); i >= 0 {
		return list[i], true
	}
	return v, false
}

// Map is what f makes of each element, in order; nil of an empty list.
func Map[T, R any](list []T, f func(T) R) (made []R) {
	for _, v := range list {
		made = append(made, f(v))
	}
	return made
}

// nonEmpty is a list, nil where it is empty: what is stored and read back is the same.
func nonEmpty[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}

// Ticket is a tool's own suspension: it cannot finish before somebody answers (presets 3). It is stored as the tool
// gave it; what is left out means what Asked fills in. The zero Ticket asks whether the call may go on.
type Ticket struct {
	ID             string          `json:"id,omitempty"`             // of the suspension; default the call's
	Action         string          `json:"action,omitempty"`         // default tool:<name>
	Message        string          `json:"message,omitempty"`        // what people are asked
	Parameters     json.RawMessage `json:"parameters,omitempty"`     // of what is asked; default the call's arguments
	ResponseSchema json.RawMessage `json:"responseSchema,omitempty"` // JSON Schema of the answer; none = any
	Pending        Pending         `json:"pending,omitzero"`
	Mode           TicketMode      `json:"mode,omitempty"` // default replay
	// what the tool has back, as it is, when it is entered with the answer; nobody reads it
	Memo string `json:"memo,omitempty"`
}

// Pending is the call that people see, such as one that a user interface makes. Zero = the call itself.
type Pending struct {
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// TicketMode says what an answer does to the call that asked.
type TicketMode string

// The modes. In each the call goes through the whole gate again.
const (
	TicketReplay TicketMode = "replay" // the tool runs again with its arguments and sees the answer
	TicketResult TicketMode = "result" // the answer is the tool's result; the tool does not run
	// the tool runs with the answer for its arguments; with its own where that is a boolean
	TicketPass TicketMode = "pass"
)

// Valid reports whether m is one of the modes.
func (m TicketMode) Valid() bool { return m == TicketReplay || m == TicketResult || m == TicketPass }

// Effect says what running a tool twice means.
type Effect string

// The effects; a tool that says nothing is NonIdempotent.
const (
	EffectRead          Effect = "read"
	EffectIdempotent    Effect = "idempotent"
	EffectNonIdempotent Effect = "non_idempotent"
)

// Valid reports whether e is one of the effects.
func (e Effect) Valid() bool {
	return e == EffectRead || e == EffectIdempotent || e == EffectNonIdempotent
}

// UndoOrdered is a person's order to take back a call of the run that this one continues. It stands behind the run's
// first fact: the run makes that one call, after a person's approval whatever policy says, and ends with it.
type UndoOrdered struct {
	Call RepliedCall `json:"call"` // that takes it back
	Of   string      `json:"of"`   // the call that is taken back
	By   string      `json:"by"`
}

func (e UndoOrdered) apply(s *AgentState) error {
	if c, again := s.Call(e.Call.ID); again && c.Undoes == e.Of && e.Of != "" {
		return nil
	}
	of, ok := s.Call(e.Of)
	switch {
	case s.From == nil || s.From.Kind != OriginContinues || s.Inferences > 0 || len(s.Live) > 0 || s.Entries > 0:
		return &ApplyError{Call: e.Of, Problem: "only a run that begins with it takes a call back"}
	case !ok && !s.Partial, ok && of.Status != StatusSucceeded:
		// a reader who began at a snapshot lacks what was settled before it
		return &ApplyError{Call: e.Of, Problem: "only a call that has succeeded is taken back"}
	case e.Call.ID == "" || e.By == "":
		return &ApplyError{Call: e.Of, Problem: "a call and who ordered it are required"}
	}
	s.Listed = len(s.Servers) > 0 // it is pinned to the definition that has their tools
	s.Prior++                     // a round of its own, that no inference has made
	if err := s.askedFor(Replied{Calls: []RepliedCall{e.Call}}, nil); err != nil {
		return err
	}
	s.Live[len(s.Live)-1].Undoes = e.Of // askedFor has made the list
	s.appendMessage(RoleAssistant, e.Call.use(), 0, s.nextSource(0))
	return nil
}

// Undoing is the call by which the run takes another one back; false for a run that does not.
func (s *AgentState) Undoing() (Call, bool) {
	return First(s.Live, func(c Call) bool { return c.Undoes != "" })
}
