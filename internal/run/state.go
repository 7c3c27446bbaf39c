package run

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// AgentState is everything known about one run: the fold of its journal. It is a value: Apply returns a new state and
// leaves the old one unchanged, although both share memory. The zero AgentState is a run that has not started. It
// contains no types of an SDK. Its JSON is that of a snapshot; policy.View is what people see.
type AgentState struct {
	Tenant, Run, Agent, Version string
	Definition                  string // digest of the pinned definition's blob
	HooksVersion                string
	Subject, AccessControl      string
	// authors of what the run, its origin, the delegating run or a delegated one has read. Never written in place
	Contributors []string
	Again        []string        // people who started the run again under its key. Never written in place
	By           []string        // the people for whom the run acts: see RunStarted. Never written in place
	From         *Origin         // where the conversation began; nil = here
	Parent       *Parent         // the call that the run carries out; nil = not delegated
	Input        json.RawMessage // input of the run; nil if it began with a message
	BodyDigest   string          // digest of the start request: the same key with another body is refused
	Trace        *Trace          // nil = the run is not traced
	Wait         WaitMode        // "" = any_external; decides how calls and results are folded
	Resume       ResumeMode      // set only if Wait is all_suspended

	Status      RunStatus
	Reason      Reason
	Error       *RunError       // set when Reason is error
	Output      json.RawMessage // of the finished run; nil = none
	History     bool            // the output contains the conversation
	StartedAt   time.Time
	UpdatedAt   time.Time `json:"-"`
	EndedAt     time.Time // zero until Done
	Owner       string    // the execution that may write; FormerOwner handed over to it
	FormerOwner string
	Generation  int64     // number of the owner, from 0
	OwnedSince  int64     // sequence of the entry that made Owner the owner
	OwnedAt     time.Time // time of that entry
	WaitSeq     int64     // sequence of the entry that parked the run, while it waits

	Entries int64 `json:"-"` // journal entries applied: the next sequence number
	Drained int64 // inbox slots applied, from 1

	// rounds before the run's first inference: inferences of earlier runs, and calls of its plan or of an undo order
	Prior          int64
	Inferences     int64
	Interactions   Interactions
	ModelCalls     int64
	Usage          Usage
	ExecutionUnits int64
	Unseen         int         // messages of role user, results included, that no inference has seen yet
	Correction     *Correction // about the newest reply; nil = none. Never written in place
	System         string      // digest of the system prompt of the newest inference
	SystemText     string      // that prompt, if it was built once and is neither in a blob nor the definition's own text
	SystemBlob     bool        // that prompt is in the blob of its digest
	Built          bool        // a context builder has given its messages
	NeedsMessages  bool        // the run began with data, and a builder still has to make messages of it
	BlobMessages   int         // live messages whose body is in a blob

	Cost         USD           // cost of the replies with known prices
	Budget       Budget        // additions by people to the limits
	Waited       time.Duration // how long the run was parked
	Cut          Cut           // where the newest reply begins
	Ending       Reason        // the run ends for this reason once no call is open; "" = none
	EndingDetail string        // detail of Ending; after the end, of Reason

	Hooks  int64     // number of Hooked facts
	Begun  bool      // run_start plugins have run for this attempt
	Broken *RunError // plugins failed after a call, so the run has to end; nil = they did not. Never written in place
	Hidden []string  // tools left out of the request whose reply comes next; never written in place

	EvictedMessages int64       // number of evicted messages, all from the front
	Summary         string      // of the evicted messages
	Files           []string    // files named in evicted calls, the newest last; never written in place
	Counted         Counted     // the provider's count for the newest request
	Full            ContextFull // if set, only a forced summary may follow

	Messages Log[Message] `json:"-"` // live messages, oldest first
	Settled  Log[Call]    `json:"-"` // calls of finished rounds, in order
	// the first 512 ids of settled calls that models chose. A state folded from a snapshot lacks these calls. Never
	// written in place
	Named []string
	// calls from the oldest open one on, in order; of several rounds under all_suspended. Never written in place
	Live   []Call
	Round  Round
	Queued []queued // blocks that wait for the round's results; never written in place

	// the state that the run's tools and plugins share, in canonical form; nil = {}. Never written in place
	Shared json.RawMessage
	// changes of calls that are not merged into Shared yet, in finishing order; never written in place
	Patches []CallPatch
	// decisions on targets that are not suspended yet, one for each, oldest first; never written in place
	Kept []DecisionKept

	Children Children // delegated runs

	Memory      Memory      // what policies remember
	Plan        Plan        // progress of the run's plan
	Permissions Permissions // permissions of tools

	Listed  bool          // the servers' tools have been listed and are in Definition
	Servers []ServerState // state of the servers, in the definition's order; never written in place

	Partial bool `json:"-"` // folded from a snapshot: Settled lacks earlier calls

	head entryHead // of the entry being applied
	hash string    // of the newest entry

	snapped int64 // 1 + the oldest entry that the newest snapshot needs; 0 = there is none

	past *AgentState // set by Seed only: the state that the starting run will inherit
}

// Round is the newest batch of calls.
type Round struct {
	Inference int64 // number of the conversation's inference that made the calls; 0 = none yet
	// the conversation contains the round's first results; later ones are appended together, or one by one under
	// all_suspended
	Committed bool

	Sequential bool `json:",omitempty"` // each call sees the changes of the shared state by earlier calls
}

// queued is a block that is not appended before the round has its results.
type queued struct {
	Block      Block `json:"-"`
	Source     Source
	Permission bool `json:",omitempty"` // the block answers a request about tools
}

// Reason says why a run is in its status. stopped:<code> are values too.
type Reason string

// The reasons.
const (
	ReasonNaturalEnd Reason = "natural_end"
	ReasonCancelled  Reason = "cancelled"
	ReasonError      Reason = "error"
	ReasonSuspended  Reason = "suspended"
	ReasonMaxRounds  Reason = "stopped:max_rounds_reached"
)

// RunError says why a run ended in error. Message is safe to show and to store.
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
	CodeUndoFailed            ErrorCode = "undo_failed" // the run could not undo the call it was started for
	// the model got the same reminder too often (seed 004, circuit breaker), or could not even sum up
	CodeBreaker ErrorCode = "breaker"
)

// entriesPerExecution is how many entries one execution may write before it hands over. So its history stays below
// 10,000 events; 25,000 would end the execution (R10). A plain iteration is two entries and twelve events. One entry
// takes at most thirteen events: Step, its choice, and a wait that ends, if every wake-up parks the run again.
const entriesPerExecution = 750

// longestOwner is how old an execution may become before it hands over, waits included. Step Functions ends an
// execution after a year, which the execution cannot catch. The remaining days leave room for clocks, retries and
// pauses.
const longestOwner = 360 * 24 * time.Hour

// HandsOverAt returns when the run's owner is so old that it has to hand over.
func (s *AgentState) HandsOverAt() time.Time { return s.OwnedAt.Add(longestOwner) }

// HandsOver reports whether the owner has to hand over: it wrote many entries, or is old as of the newest fact.
func (s *AgentState) HandsOver() bool {
	return s.Entries-s.OwnedSince >= entriesPerExecution || !s.head.time.Before(s.HandsOverAt())
}

// TakeOvers returns a lower bound for how many of the run's owners ended without handing over. An owner that hands over
// has written its share of entries, unless it was parked for a year.
func (s *AgentState) TakeOvers() int64 {
	return max(0, s.Generation-s.Entries/entriesPerExecution)
}

// Seq returns the sequence of the newest entry, or -1 before the first.
func (s *AgentState) Seq() int64 { return s.Entries - 1 }

// Hash returns the hash of the newest entry, or "" before the first.
func (s *AgentState) Hash() string { return s.hash }

// LastWriter returns the writer of the newest entry, or "" before the first.
func (s *AgentState) LastWriter() string { return s.head.writer }

// Call finds a call by id. It searches the newest calls first.
func (s *AgentState) Call(id string) (Call, bool) {
	for _, calls := range [][]Call{s.Live, s.Settled.All()} {
		for i := len(calls) - 1; i >= 0; i-- {
			if calls[i].ID == id {
				return calls[i], true
			}
		}
	}
	return Call{}, false
}

// Calls returns all calls of the run in the order in which the model made them.
func (s *AgentState) Calls() []Call {
	out := make([]Call, 0, s.Settled.Len()+len(s.Live))
	return append(append(out, s.Settled.All()...), s.Live...)
}

// OpenCall returns the first unsettled call, or nil if there is none.
func (s *AgentState) OpenCall() *Call {
	if i := slices.IndexFunc(s.Live, Call.Open); i >= 0 {
		return &s.Live[i]
	}
	return nil
}

// Waits returns the suspended calls.
func (s *AgentState) Waits() []Call {
	return without(s.Live, func(c Call) bool { return c.Status != StatusSuspended })
}

// AwaitsAnyone reports whether the run waits for somebody: a call is suspended or a request about tools is open.
func (s *AgentState) AwaitsAnyone() bool {
	return len(s.Permissions.Asked) > 0 || len(s.Waits()) > 0
}

// EarliestExpiry returns when the first of the open waits expires, or zero if there is none.
func (s *AgentState) EarliestExpiry() time.Time {
	var all []time.Time
	for _, r := range s.Permissions.Asked {
		all = append(all, r.Expires)
	}
	for _, c := range s.Waits() {
		all = append(all, c.Wait.Expires)
	}
	if len(all) == 0 {
		return time.Time{}
	}
	return slices.MinFunc(all, time.Time.Compare)
}

// Exit returns the call that ends the run: a successful call of a loop-breaking tool in the newest inference. It
// returns false if another message has arrived since, because that message is answered first.
func (s *AgentState) Exit() (Call, bool) {
	if s.Round.Inference != s.Prior+s.Inferences {
		return Call{}, false
	}
	round := s.Newest()
	exit, ok := First(round, func(c Call) bool { return c.Breaks && c.Status == StatusSucceeded })
	if !ok {
		return Call{}, false
	}
	all := s.Messages.All()
	turn := len(all) - 1
	for turn >= 0 && all[turn].Role != RoleAssistant {
		turn--
	}
	for _, m := range all[turn+1:] {
		_, text := m.Block.(Text) // the note of a cancelled run is in the event that closed its calls
		own := func(c Call) bool { return !text && c.Result != nil && c.Result.Source.SameEvent(m.Source) }
		if !slices.ContainsFunc(round, own) && (turn < 0 || !m.Source.SameEvent(all[turn].Source)) {
			return Call{}, false
		}
	}
	return exit, true
}

// WaitMode says when a round with suspended calls parks the run.
type WaitMode string

// The wait modes (presets 3). any_external parks the run as soon as only waiting calls of the round are left.
// all_suspended parks the run only if the round had no result at all. Otherwise it calls the model with placeholders
// for the missing results.
const (
	WaitAnyExternal  WaitMode = "any_external"
	WaitAllSuspended WaitMode = "all_suspended"
)

// ResumeMode says when decisions are replayed.
type ResumeMode string

// The resume modes.
const (
	ResumeEach        ResumeMode = "each"
	ResumeAllAnswered ResumeMode = "all_answered"
	ResumeBatchAll    ResumeMode = "batch_all"
)

// WithPlaceholders reports whether the model is called while calls are open, with placeholders for their results.
func (s *AgentState) WithPlaceholders() bool { return s.Wait == WaitAllSuspended }

// Newest returns the live calls of the newest round.
func (s *AgentState) Newest() []Call {
	for i, c := range s.Live {
		if c.Inference == s.Round.Inference {
			return s.Live[i:]
		}
	}
	return nil
}

// Held reports whether approved calls have to wait for other decisions before they are replayed: under all_answered
// those of the newest round, under batch_all those of every round (presets 3). any_external has only one round.
func (s *AgentState) Held(mode ResumeMode) bool {
	if mode != ResumeAllAnswered && mode != ResumeBatchAll {
		return false
	}
	counted := s.Live
	if mode == ResumeAllAnswered && s.WithPlaceholders() {
		counted = s.Newest()
	}
	return slices.ContainsFunc(counted, func(c Call) bool { return c.Status == StatusSuspended })
}

// isPaused reports whether the call is suspended, or approved and held. Use it only for a run WithPlaceholders.
func (s *AgentState) isPaused(c Call) bool {
	return c.Status == StatusSuspended || c.Status == StatusResuming && s.Held(s.Resume)
}

// mustSettle reports whether the call needs its result before the model can be called or its reply accepted.
func (s *AgentState) mustSettle(c Call) bool {
	return c.Open() && (!s.WithPlaceholders() || !s.isPaused(c))
}

// Skipped reports whether a new call follows a paused call of its round.
func (s *AgentState) Skipped(c Call) bool {
	if !s.WithPlaceholders() || c.Status != StatusNew {
		return false
	}
	for _, b := range s.Live {
		if b.ID == c.ID {
			return false
		}
		if b.Inference == c.Inference && s.isPaused(b) {
			return true
		}
	}
	return false
}

// Requesters returns the people for whom the run acts: who started it, its subject if that is a person, who started it
// again under its key, and the authors of all messages, answers, results, edits and notes that the model has read.
func (s *AgentState) Requesters() []string { return s.RequestersAt(len(s.Contributors)) }

// RequestersAt returns the requesters of a call that asked when Contributors had this length.
func (s *AgentState) RequestersAt(contributors int) []string {
	people := slices.Clone(s.By)
	if IsPrincipal("user:", s.Subject) {
		people = withPeople(people, s.Subject)
	}
	return withPeople(withPeople(people, s.Again...), s.Contributors[:min(contributors, len(s.Contributors))]...)
}

// noteRequesters records the people whose text a fact has brought into the run.
func (s *AgentState) noteRequesters(e Event) {
	switch e := e.(type) {
	case InputReceived:
		if e.Starts {
			s.Again = withPeople(s.Again, e.By)
			return
		}
		s.Contributors = withPeople(s.Contributors, e.By)
	case Answered:
		s.Contributors = withPeople(withPeople(s.Contributors, e.By), e.With...)
	case Decided:
		// the model reads the note of a denial, and that of a grant of tools
		if e.Result != nil || e.Note != "" && (e.Action != ActionApprove || len(e.Tools) > 0) {
			s.Contributors = withPeople(withPeople(s.Contributors, e.By), e.With...)
		}
	}
}

// withPeople returns people, followed by the users in more that are not among them. It does not write into people.
func withPeople(people []string, more ...string) []string {
	for _, id := range more {
		if IsPrincipal("user:", id) && !slices.Contains(people, id) {
			people = append(slices.Clip(people), id)
		}
	}
	return people
}

// ApprovalID returns the id of the request for a suspended call: "a" and 25 characters. ask counts the requests for the
// call, so asking again makes a new request, while a retry makes the same one.
func ApprovalID(run, call string, ask int) string { return "a" + HashID(run, call, strconv.Itoa(ask)) }

// HashID returns 125 bits of a hash over the parts. Each part is preceded by its length, so that different lists of
// parts are hashed differently.
func HashID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)))[:25]
}

// IsPrincipal reports whether s is kind, such as user: or group:, followed by 1 to 128 allowed characters.
func IsPrincipal(kind, s string) bool {
	name, ok := strings.CutPrefix(s, kind)
	return ok && principalName.MatchString(name)
}

var principalName = regexp.MustCompile(`^[A-Za-z0-9._@+-]{1,128}$`)

// Trace ties a run to a distributed trace (W3C Trace Context). It names the run's own span, which is written when the
// run ends, because no span stays open across functions. Spans in between have it as their parent. The machine does not
// depend on this data. A Trace is a value that must not be changed.
type Trace struct {
	Traceparent string `json:"traceparent"`          // traceparent of the run's own span
	Tracestate  string `json:"tracestate,omitempty"` // from the request that started the run
	// id of the span that started the run; "" = the run's span is the root
	Parent string `json:"parent,omitempty"`
}

// maxNamed is how many ids chosen by models a run remembers beyond their calls. It bounds a snapshot.
const maxNamed = 512

// archiveCall moves a call of a finished round from the live calls to the settled ones.
func (s *AgentState) archiveCall(c Call) {
	s.Settled = s.Settled.Append(c)
	if len(s.Named) < maxNamed && !isMintedBy(c.ID, c.Inference) {
		s.Named = append(s.Named[:len(s.Named):len(s.Named)], c.ID)
	}
}

// UsedID reports whether a call of the run has the id. In a run that has evicted messages, the answer must not depend
// on whether the reader began at a snapshot. So every id in Countersign's own form counts as used there, unless it is
// of this inference. If models chose many ids, every other id counts as used.
func (s *AgentState) UsedID(id string, inference int64) bool {
	if _, taken := s.Call(id); taken || slices.Contains(s.Named, id) {
		return true
	}
	return s.EvictedMessages > 0 && !isMintedBy(id, inference) && (len(s.Named) == maxNamed || mintedID.MatchString(id))
}

var mintedID = regexp.MustCompile(`(?s)^c[0-9]{1,20}-.`)

// isMintedBy reports whether Countersign makes this id for this inference.
func isMintedBy(id string, inference int64) bool {
	return strings.HasPrefix(id, "c"+strconv.FormatInt(inference, 10)+"-")
}
