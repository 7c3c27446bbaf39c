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

// AgentState is everything known about one run: the fold of its journal. It is a value: Apply returns a new one and the
// old stays as it was, though both share memory. The zero AgentState is a run that has not started. It holds nothing
// that an SDK defines. Its JSON is that of a snapshot; what people are shown is policy.View.
type AgentState struct {
	Tenant, Run, Agent, Version string
	Definition                  string // digest of the pinned definition's blob
	HooksVersion                string
	Subject, AccessControl      string
	// people whose messages it took in, or the run it began from or that delegated it. Never written in place
	Heard      []string
	Again      []string        // people who started it again under its key. Never written in place
	By         []string        // the people for whom the run acts: see RunStarted. Never written in place
	From       *Origin         // where the conversation began; nil = here
	Parent     *Parent         // whose call the run carries out; nil = nobody's
	Input      json.RawMessage // what the run was started with; nil when it began with a message
	BodyDigest string          // of the start request: the same key with another body is refused
	Trace      *Trace          // nil = the run is not traced
	Wait       WaitMode        // "" = any_external: calls and their results are folded by it
	Resume     ResumeMode      // as Wait is; set only where that is all_suspended

	Status      RunStatus
	Reason      Reason
	Error       *RunError       // set when Reason is error
	Output      json.RawMessage // of the model's last reply; nil where there is none
	History     bool            // the conversation is part of the output that people see
	StartedAt   time.Time
	UpdatedAt   time.Time `json:"-"`
	EndedAt     time.Time // zero until Done
	Owner       string    // the execution that may write; FormerOwner handed over to it
	FormerOwner string
	Generation  int64     // of owners, from 0
	OwnedSince  int64     // sequence of the entry that made Owner the owner
	OwnedAt     time.Time // of that entry
	WaitSeq     int64     // sequence of the entry that parked the run, while it waits

	Entries int64 `json:"-"` // journal entries applied: the next sequence number
	Drained int64 // inbox slots applied, from 1

	// rounds of the conversation before the run's first inference: inferences of runs before it, and calls of its own plan
	Prior          int64
	Inferences     int64
	Interactions   Interactions
	ModelCalls     int64
	Usage          Usage
	ExecutionUnits int64
	Unseen         int         // user messages that no inference has carried yet
	Correction     *Correction // of the newest reply; nil = none. Never written in place
	System         string      // digest of the system prompt the newest inference had
	SystemText     string      // that prompt, where it was built once and is not in a blob nor the definition's own text
	SystemBlob     bool        // it is the blob of its digest
	Built          bool        // a context builder has given its messages
	Unsaid         bool        // the run began with data that no message holds yet: a builder is to make them
	BlobMessages   int         // live messages whose body is in a blob

	Cost         USD           // what the replies cost, where prices are known
	Budget       Budget        // what people have added to its limits
	Waited       time.Duration // how long the run was parked
	Cut          Cut           // where the newest reply begins
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

	Messages Log[Message] `json:"-"` // live messages, oldest first
	Settled  Log[Call]    `json:"-"` // calls of finished rounds, in order
	// ids of theirs that models chose, the first 512: who begins at a snapshot lacks the calls. Never written in place
	Named []string
	// calls since the oldest one that is open, in order, of several rounds under all_suspended; never written in place
	Live   []Call
	Round  Round
	Queued []queued // messages of users while the round had not all of its results; never written in place

	// the state that the run's tools and plugins share, in canonical form; nil = {}. Never written in place
	Shared json.RawMessage
	// what calls have changed and is no part of Shared yet, as they finished; never written in place
	Patches []CallPatch
	Kept    []DecisionKept // decisions on what is not suspended yet, one a target, oldest first; never written in place

	Children Children // the runs that its calls are

	Memory      Memory      // what policies remember
	Plan        Plan        // how far the run has come with its plan
	Permissions Permissions // of tools

	Listed  bool          // its servers have been asked for their tools, which are in Definition
	Servers []ServerState // their state, in the definition's order; never written in place

	Partial bool `json:"-"` // folded from a snapshot: Settled lacks the calls of before it

	head entryHead // of the entry being applied
	hash string    // of the newest entry

	snapped int64 // 1 + the oldest entry that the newest snapshot needs; 0 = there is none

	past *AgentState // of a Seed alone: what the run that starts will inherit
}

// Round is the newest batch of calls.
type Round struct {
	Inference int64 // the inference of the conversation that asked for it; 0 = none yet
	// its first results are in the conversation; what comes later is appended together, or as it comes under all_suspended
	Committed bool

	Sequential bool `json:",omitempty"` // each call sees what those before it changed of the shared state
}

// queued is a block that is not appended before the round has its results.
type queued struct {
	Block      Block `json:"-"`
	Source     Source
	Permission bool `json:",omitempty"` // it answers a request about tools
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
	CodeUndoFailed            ErrorCode = "undo_failed" // the run was to take a call back and could not
	// the model was told the very same again and again (seed 004, circuit breaker), or could not even sum up
	CodeBreaker ErrorCode = "breaker"
)

// entriesPerExecution bounds how many entries one execution may own before it hands over, so that its history stays
// below 10,000 events, of the 25,000 that end an execution (R10). A plain iteration is two entries and twelve events.
// An entry takes thirteen at most: Step, its choice, and a wait that ends, where every wake parks the run again.
const entriesPerExecution = 750

// longestOwner is how old an execution may be before it hands over, a wait included. Step Functions ends one after a
// year, which nothing in it can catch; the days between are for clocks, retries and pauses of whoever runs it.
const longestOwner = 360 * 24 * time.Hour

// HandsOverAt is when the run's owner is so old that another execution has to go on.
func (s *AgentState) HandsOverAt() time.Time { return s.OwnedAt.Add(longestOwner) }

// HandsOver reports whether another execution has to go on: the owner has written much or is old as of the newest fact.
func (s *AgentState) HandsOver() bool {
	return s.Entries-s.OwnedSince >= entriesPerExecution || !s.head.time.Before(s.HandsOverAt())
}

// TakeOvers is how many of the run's owners ended without having handed over, at least: whoever hands over has written
// its share of entries, but for one that was parked for a year.
func (s *AgentState) TakeOvers() int64 {
	return max(0, s.Generation-s.Entries/entriesPerExecution)
}

// Seq is the sequence of the newest entry, -1 before the first.
func (s *AgentState) Seq() int64 { return s.Entries - 1 }

// Hash is that of the newest entry, "" before the first.
func (s *AgentState) Hash() string { return s.hash }

// LastWriter is the writer of the newest entry, "" before the first.
func (s *AgentState) LastWriter() string { return s.head.writer }

// Call finds a call by id, among the newest first.
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

// Calls is every call of the run in the order the model made them.
func (s *AgentState) Calls() []Call {
	out := make([]Call, 0, s.Settled.Len()+len(s.Live))
	return append(append(out, s.Settled.All()...), s.Live...)
}

// OpenCall is the first call that is not settled; nil = every one is.
func (s *AgentState) OpenCall() *Call {
	if i := slices.IndexFunc(s.Live, Call.Open); i >= 0 {
		return &s.Live[i]
	}
	return nil
}

// Waits lists the suspended calls.
func (s *AgentState) Waits() []Call {
	return without(s.Live, func(c Call) bool { return c.Status != StatusSuspended })
}

// AwaitsAnyone reports whether the run waits for somebody: a call is suspended or a request about tools is open.
func (s *AgentState) AwaitsAnyone() bool {
	return len(s.Permissions.Asked) > 0 || len(s.Waits()) > 0
}

// EarliestExpiry is when the first of the open waits expires; zero when there is none.
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

// Exit is the call by which the run is over: one of a loop-breaking tool, that succeeded, of the newest inference.
// A message that came since, but for the round's results, is answered first.
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
		_, text := m.Block.(Text) // the note of a cancelled run stands in the event that closed its calls
		own := func(c Call) bool { return !text && c.Result != nil && c.Result.Source.SameEvent(m.Source) }
		if !slices.ContainsFunc(round, own) && (turn < 0 || !m.Source.SameEvent(all[turn].Source)) {
			return Call{}, false
		}
	}
	return exit, true
}

// WaitMode says when a round with suspended calls parks the run.
type WaitMode string

// The wait modes (presets 3). any_external parks a round as soon as nothing but waiting is left of it; all_suspended
// only one of which nothing came back, and else asks the model with placeholders for what is missing.
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

// WithPlaceholders reports whether the model is asked while calls are open, with placeholders for their results.
func (s *AgentState) WithPlaceholders() bool { return s.Wait == WaitAllSuspended }

// Newest is the newest round's part of the live calls.
func (s *AgentState) Newest() []Call {
	for i, c := range s.Live {
		if c.Inference == s.Round.Inference {
			return s.Live[i:]
		}
	}
	return nil
}

// Held reports whether calls that were approved have to wait for other decisions before they are replayed: under
// all_answered those of the newest round, under batch_all of every round (presets 3). any_external has one round.
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

// isPaused reports, of a run that asks the model meanwhile, whether the call is suspended, or approved and held.
func (s *AgentState) isPaused(c Call) bool {
	return c.Status == StatusSuspended || c.Status == StatusResuming && s.Held(s.Resume)
}

// mustSettle reports whether the model cannot be asked, or its reply not be taken, before the call has its result.
func (s *AgentState) mustSettle(c Call) bool {
	return c.Open() && (!s.WithPlaceholders() || !s.isPaused(c))
}

// Skipped reports whether a call that is new stands behind one of its round that is paused.
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

// Requesters are the people for whom the run acts: who started it, whom it is about where that is a person, who
// started it again under its key, and all whose messages, answers and results it has taken in.
func (s *AgentState) Requesters() []string { return s.RequestersOnce(len(s.Heard)) }

// RequestersOnce are the requesters of a call that asked when Heard had this length.
func (s *AgentState) RequestersOnce(heard int) []string {
	who := slices.Clone(s.By)
	if IsPrincipal("user:", s.Subject) {
		who = withPeople(who, s.Subject)
	}
	return withPeople(withPeople(who, s.Again...), s.Heard[:min(heard, len(s.Heard))]...)
}

// noteRequesters notes whose text a fact has brought into the run.
func (s *AgentState) noteRequesters(e Event) {
	switch e := e.(type) {
	case InputReceived:
		if e.Starts {
			s.Again = withPeople(s.Again, e.By)
			return
		}
		s.Heard = withPeople(s.Heard, e.By)
	case Answered:
		s.Heard = withPeople(withPeople(s.Heard, e.By), e.With...)
	case Decided:
		if e.Result != nil || e.Action != ActionApprove && e.Note != "" { // the model reads the note of a denial
			s.Heard = withPeople(withPeople(s.Heard, e.By), e.With...)
		}
	}
}

// withPeople are people and those of more who are none of them, as a new list.
func withPeople(people []string, more ...string) []string {
	for _, id := range more {
		if IsPrincipal("user:", id) && !slices.Contains(people, id) {
			people = append(slices.Clip(people), id)
		}
	}
	return people
}

// ApprovalID is the id of the request that is made when a call is suspended for approval: "a" and 25 characters. ask
// counts how often the call was suspended for approval, so asking anew makes a new request and a retry the same.
func ApprovalID(run, call string, ask int) string { return "a" + HashID(run, call, strconv.Itoa(ask)) }

// HashID is 125 bits of a hash over the parts, each with its length before it: no two lists of parts look alike.
func HashID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)))[:25]
}

// IsPrincipal reports whether s is a kind, such as user: or group:, and then 1 to 128 allowed characters.
func IsPrincipal(kind, s string) bool {
	who, ok := strings.CutPrefix(s, kind)
	return ok && principalName.MatchString(who)
}

var principalName = regexp.MustCompile(`^[A-Za-z0-9._@+-]{1,128}$`)

// Trace ties a run to a distributed trace (W3C Trace Context). It names one span, the run's own, which is written when
// the run ends because no span stays open across functions; what happens in between names it as its parent. To the core
// it is data that nothing depends on. It is a value that nobody may change.
type Trace struct {
	Traceparent string `json:"traceparent"`          // of the run's own span
	Tracestate  string `json:"tracestate,omitempty"` // as it came from whoever asked for the run
	// id of the span that asked for the run; empty = the run's is the root
	Parent string `json:"parent,omitempty"`
}

// maxNamed is how many ids that models chose a run remembers beyond their calls. It bounds a snapshot.
const maxNamed = 512

// archiveCall moves a call of a finished round from the live calls to the settled ones.
func (s *AgentState) archiveCall(c Call) {
	s.Settled = s.Settled.Append(c)
	if len(s.Named) < maxNamed && !isMintedBy(c.ID, c.Inference) {
		s.Named = append(s.Named[:len(s.Named):len(s.Named)], c.ID)
	}
}

// UsedID reports whether a call of the run has the id. Of a run that has evicted messages a reader may have begun at a
// snapshot, and whoever reads it has to say the same: ids of the core's form count as used there, and where models
// chose many, every id, but for those that this inference alone makes.
func (s *AgentState) UsedID(id string, inference int64) bool {
	if _, taken := s.Call(id); taken || slices.Contains(s.Named, id) {
		return true
	}
	return s.EvictedMessages > 0 && !isMintedBy(id, inference) && (len(s.Named) == maxNamed || mintedID.MatchString(id))
}

var mintedID = regexp.MustCompile(`(?s)^c[0-9]{1,20}-.`)

// isMintedBy reports whether the core makes this id for this inference.
func isMintedBy(id string, inference int64) bool {
	return strings.HasPrefix(id, "c"+strconv.FormatInt(inference, 10)+"-")
}
