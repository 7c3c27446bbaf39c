package agent

import (
	"encoding/json"
	"slices"
	"time"
)

// AgentState is everything known about one run: the fold of its journal. It is a value: Apply returns a new one and the old
// stays as it was, though both share memory. The zero AgentState is a run that has not started. It holds nothing that an
// SDK defines. JSON is the run of the HTTP API, with the seenCount of every message.
type AgentState struct {
	Tenant, Run, Agent, Version string
	Definition                  string // digest of the pinned definition's blob
	HooksVersion                string
	Subject, AccessControl      string
	Heard                       []string        // people whose words it took in, or the run it began from or that delegated it. Never written in place
	Again                       []string        // people who started it again under its key. Never written in place
	By                          []string        // the people for whom the run acts: see RunStarted. Never written in place
	From                        *Origin         // where the conversation began; nil = here
	Parent                      *Parent         // whose call the run carries out; nil = nobody's
	Input                       json.RawMessage // what the run was started with; nil when it began with a message
	BodyDigest                  string          // of the start request: the same key with another body is refused
	Trace                       *Trace          // nil = the run is not traced
	Wait                        WaitMode        // "" = any_external: calls and their results are folded by it
	Resume                      ResumeMode      // as Wait is; set only where that is all_suspended

	Status      RunStatus
	Reason      Reason
	Error       *RunError       // set when Reason is error
	Output      json.RawMessage // what the model's last word came to; nil where there is none
	History     bool            // the conversation is part of the output that people see
	StartedAt   time.Time
	UpdatedAt   time.Time
	EndedAt     time.Time // zero until Done
	Owner       string    // the execution that may write; FormerOwner handed over to it
	FormerOwner string
	Generation  int64 // of owners, from 0
	OwnedSince  int64 // sequence of the entry that made Owner the owner
	WaitSeq     int64 // sequence of the entry that parked the run, while it waits

	Entries int64 // journal entries applied: the next sequence number
	Drained int64 // inbox slots applied, from 1

	Prior          int64 // rounds of the conversation before the run's first inference: inferences of the runs before it, and calls of its own plan
	Inferences     int64
	Interactions   Interactions
	ModelCalls     int64
	Usage          Usage
	ExecutionUnits int64
	Unseen         int         // user messages that no inference has carried yet
	Correction     *Correction // of the newest reply; nil = none. Never written in place
	System         string      // digest of the system prompt the newest inference had
	SystemText     string      // that prompt, where it was built once and is not in a blob nor the definition's own words
	SystemBlob     bool        // it is the blob of its digest
	Built          bool        // a context builder has given its messages
	Unsaid         bool        // the run began with data that no message holds yet: a builder is to make them
	BlobMessages   int         // live messages whose body is in a blob

	Cost         USD           // what the replies cost, where prices are known
	Waited       time.Duration // how long the run was parked
	Pace         Pace          // what stop policies remember
	Tally        Tally         // what the analysis of replies remembers
	Watch        Watch         // what guards remember
	Cut          Cut           // where the newest reply begins
	Recovery     Recovery      // what the breaker remembers
	Ending       Reason        // the run is to end for this reason as soon as no call is open; "" = it is not
	EndingDetail string        // with Ending; once the run has ended, of Reason

	Hooks  int64     // facts of what plugins decided
	Begun  bool      // run_start plugins have run for this attempt
	Broken *RunError // plugins have failed behind a call: the run is to end; nil = they have not. Never written in place
	Hidden []string  // tools left out of the request whose reply comes next; never written in place

	EvictedMessages int64       // messages that left the conversation, all from its front
	Summary         string      // of them
	Files           []string    // that calls among them have named, the newest last; never written in place
	Counted         Counted     // what a provider counted of the newest request
	Full            ContextFull // the run may not infer any more, but for a forced summary; zero = it may

	Messages Log[Message] // live messages, oldest first
	Settled  CallLog      // calls of finished rounds, in order
	Named    []string     // ids of theirs that models chose, the first 512: who begins at a snapshot lacks the calls. Never written in place
	Live     []Call       // calls since the oldest one that is open, in order, of several rounds under all_suspended; never written in place
	Round    Round
	Queued   []queued // what users said while the round had not all of its results; never written in place

	Shared  json.RawMessage // the state that the run's tools and plugins share, in canonical form; nil = {}. Never written in place
	Patches []CallPatch     // what calls have changed and is no part of Shared yet, as they finished; never written in place
	Kept    []DecisionKept  // decisions on what is not suspended yet, one a target, oldest first; never written in place

	Children Children // the runs that its calls are

	Advice      Advice        // what is known of the approvals of tools, under an advisory policy
	Plan        Orchestration // how far the run has come with its plan
	Permissions Permissions   // of tools

	Listed  bool          // its servers have been asked for their tools, which are in Definition
	Servers []ServerState // what they said, in the definition's order; never written in place

	Partial bool // folded from a snapshot: Settled lacks the calls of before it

	head entryHead // of the entry being applied

	ownedAt time.Time // when Owner became the owner

	snapped int64 // 1 + the oldest entry that the newest snapshot needs; 0 = there is none

	past *AgentState // of a Seed alone: what the run that starts will inherit
}

// Round is the newest batch of calls.
type Round struct {
	Inference int64 // the inference of the conversation that asked for it; 0 = none yet
	Committed bool  // its first results are in the conversation; what comes later is appended together, or as it comes under all_suspended

	Sequential bool `json:",omitempty"` // each call sees what those before it changed of the shared state
}

// queued is a block that waits to be said until the round has its results.
type queued struct {
	block      Block
	source     Source
	permission bool // it answers a request about tools
}

// Reason is why a run is where it is. stopped:<code> are values too.
type Reason string

// The reasons.
const (
	ReasonNaturalEnd Reason = "natural_end"
	ReasonCancelled  Reason = "cancelled"
	ReasonError      Reason = "error"
	ReasonSuspended  Reason = "suspended"
	ReasonMaxRounds  Reason = "stopped:max_rounds_reached"
)

// RunError is why a run ended in error. Message is fit to be shown and stored.
type RunError struct {
	Code    ErrorCode `json:"code"`
	Message string    `json:"message"`
}

// ErrorCode is one of a small closed set.
type ErrorCode string

// The error codes.
const (
	CodeInteractionsExhausted ErrorCode = "interactions_exhausted"
	CodeTokensExhausted       ErrorCode = "tokens_exhausted"
	CodeUSDExhausted          ErrorCode = "usd_exhausted"
	CodeModelFailed           ErrorCode = "model_failed"
	CodeStateConflict         ErrorCode = "state_conflict"
	CodePermissionFailed      ErrorCode = "permission_failed"
	CodeDefinition            ErrorCode = "definition"
	CodeMCPUnavailable        ErrorCode = "mcp_unavailable"
	CodeInternal              ErrorCode = "internal"
)

// Seq is the sequence of the newest entry, -1 before the first.
func (s *AgentState) Seq() int64 { return s.Entries - 1 }

// LastWriter is the writer of the newest entry, "" before the first.
func (s *AgentState) LastWriter() string { return s.head.writer }

// Call finds a call by id.
func (s *AgentState) Call(id string) (Call, bool) {
	for i := range s.Live {
		if s.Live[i].ID == id {
			return s.Live[i], true
		}
	}
	return s.Settled.Find(id)
}

// Calls is every call of the run in the order the model made them.
func (s *AgentState) Calls() []Call {
	out := make([]Call, 0, s.Settled.Len()+len(s.Live))
	return append(append(out, s.Settled.All()...), s.Live...)
}

// openCall is the first call that is not settled; nil = every one is.
func (s *AgentState) openCall() *Call {
	if i := slices.IndexFunc(s.Live, Call.Open); i >= 0 {
		return &s.Live[i]
	}
	return nil
}

// Waits lists the suspended calls.
func (s *AgentState) Waits() []Call {
	var out []Call
	for _, c := range s.Live {
		if c.Status == StatusSuspended {
			out = append(out, c)
		}
	}
	return out
}

// openRequests is how many requests to people the run waits for.
func (s *AgentState) openRequests() int {
	n := len(s.OpenRequests())
	for _, c := range s.Live {
		if c.Status == StatusSuspended && c.Wait.For != ForAnswer {
			n++
		}
	}
	return n
}

// LeftRequests are the requests to people that the end of a run may have left open: those about calls that the end
// closed, and about tools. Whether one of them was decided before, its own record says.
func (s *AgentState) LeftRequests() []string {
	if s.Status != RunDone {
		return nil
	}
	var ids []string
	for _, c := range s.Live {
		if c.Asks > 0 && c.Status == StatusCancelled && c.Result != nil && c.Result.source.Part > 0 { // as closeCall leaves it
			ids = append(ids, ApprovalID(s.Run, c.ID, c.Asks))
		}
	}
	for _, r := range s.Permissions.Asked {
		if !r.Complete() {
			ids = append(ids, r.Approval)
		}
	}
	return ids
}

// AwaitsAnyone reports whether somebody owes the run a word: on a suspended call or on a request about tools.
func (s *AgentState) AwaitsAnyone() bool {
	return len(s.Permissions.Asked) > 0 || slices.ContainsFunc(s.Live, func(c Call) bool { return c.Status == StatusSuspended })
}

// EarliestExpiry is when the first of the open waits expires; zero when there is none.
func (s *AgentState) EarliestExpiry() time.Time {
	var first time.Time
	for _, r := range s.Permissions.Asked {
		if first.IsZero() || r.Expires.Before(first) {
			first = r.Expires
		}
	}
	for _, c := range s.Live {
		if c.Status == StatusSuspended && (first.IsZero() || c.Wait.Expires.Before(first)) {
			first = c.Wait.Expires
		}
	}
	return first
}
