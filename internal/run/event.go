package run

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/jsonx"
)

// Event is the sealed union of facts about a run. The JSON of an event is its stored form: a released key keeps its
// meaning for ever, and a changed meaning is a new event. Facts that came through the inbox carry their slot, from 1;
// slot 0 says that the writer itself is the source.
type Event interface {
	apply(*AgentState) error // changes the caller's own copy; what it shares with other versions is never written in place
}

// RunStarted is the first fact. It holds the conversation's first messages and what the run is pinned to.
type RunStarted struct {
	Tenant          string          `json:"tenant"`
	Run             string          `json:"run"`
	Agent           string          `json:"agent"`
	Version         string          `json:"version,omitempty"`
	Definition      string          `json:"definition"` // digest of the resolved definition's blob
	HooksVersion    string          `json:"hooks,omitempty"`
	Owner           string          `json:"owner"` // the execution that may write
	BodyDigest      string          `json:"body,omitempty"`
	Subject         string          `json:"subject,omitempty"`
	AccessControl   string          `json:"access,omitempty"`
	Input           json.RawMessage `json:"input,omitempty"`
	Messages        []UserBlock     `json:"msgs"`
	MaxInteractions int             `json:"max"`
	From            *Origin         `json:"from,omitempty"`   // nil = it began by itself
	Parent          *Parent         `json:"parent,omitempty"` // nil = nobody delegated it; no part of BodyDigest
	// the people for whom the run acts: who started it, then those of the run it began from or that delegated it; no part
	// of BodyDigest
	By []string `json:"by,omitempty"`
	// people whose messages the run that delegated it had taken in; no part of BodyDigest
	Heard []string `json:"heard,omitempty"`
	Trace *Trace   `json:"trace,omitempty"` // nil = the run is not traced; no part of BodyDigest

	// Wait and Resume are the definition's where Wait is all_suspended: then calls stay open over inferences, and what is
	// open decides where results stand. "" = any_external, in which Resume decides nothing that is folded.
	Wait   WaitMode   `json:"wait,omitempty"`
	Resume ResumeMode `json:"resume,omitempty"`
}

// UserBlock is one block of a user's message.
type UserBlock struct{ Block Block }

// InputReceived is a user's message while the run goes on.
type InputReceived struct {
	Slot   int64       `json:"slot"`
	ID     string      `json:"id"`
	Blocks []UserBlock `json:"msgs"`
	By     string      `json:"by,omitempty"`
	Starts bool        `json:"starts,omitempty"` // By started the run again, under its key; there is no message
}

// DecisionAction is what a person did with a request.
type DecisionAction string

// The actions that settle a request.
const (
	ActionApprove DecisionAction = "approve"
	ActionDeny    DecisionAction = "deny"
	ActionCancel  DecisionAction = "cancel" // the call is called off; nobody judged it
	// the request itself failed, which ends the run; of a request about tools alone
	ActionFail DecisionAction = "fail"

	// nobody's: the policy that applies has changed since the request, which is void
	ActionAskAgain DecisionAction = "policy_changed"
	// nobody's: the request is not needed any more, and neither is its call
	ActionVoid DecisionAction = "voided"
)

// Decided is a person's decision on a suspended call. It was recorded on the approval before it came here (A12).
type Decided struct {
	Slot     int64           `json:"slot"`
	Call     string          `json:"call"`
	Approval string          `json:"approval"`
	Action   DecisionAction  `json:"action"`
	By       string          `json:"by"`
	Note     string          `json:"note,omitempty"`
	Args     json.RawMessage `json:"args,omitempty"`   // an edit: these run instead
	Digest   string          `json:"digest,omitempty"` // of the approved action, the edited one after an edit
	Text     string          `json:"text,omitempty"`   // the call's result when it will not run
	Result   json.RawMessage `json:"result,omitempty"` // the answer to what the call's tool asked
	Early    string          `json:"early,omitempty"`  // the target of the kept decision that this is; it is kept no more

	// of a request about tools: the tools it decides, by original name; Call is empty then
	Tools []string `json:"tools,omitempty"`
	// it holds for the call's tool as well, or for the tool with the very arguments, by this ToolDigest
	Permit string `json:"permit,omitempty"`
	// it holds for nothing further: an approval for one claim, a denial for what it was asked about; with Standing, an
	// approval holds by its record alone
	Once bool `json:"once,omitempty"`

	// what it grants of tools is on record beyond the run, and may be taken back there
	Standing bool `json:"standing,omitempty"`

	With []string `json:"with,omitempty"` // who else has approved, in order, where it takes several people
	// of an approval: who By and With are, as the desk authenticated them; none = it did not say
	Voices []Voice `json:"voices,omitempty"`
	Editor string  `json:"editor,omitempty"` // whose arguments Args are; "" = By's
	Policy string  `json:"policy,omitempty"` // with Args: as of CallSuspended
}

// Answered settles a call whose outcome is unknown, with a result, an error, or the order to run it again; or a
// service's call, with what the service gave. With slot 0 it is the tool's own report on a call whose claimant died or
// ran out of time, before anybody was asked; of a service, that its event is to go out again, under the id it had.
type Answered struct {
	Slot     int64  `json:"slot,omitempty"`
	Call     string `json:"call"`
	Approval string `json:"approval,omitempty"` // the request it answers; empty = the one that is open
	Content  string `json:"content,omitempty"`
	Blob     string `json:"blob,omitempty"`
	IsError  bool   `json:"isError,omitempty"`
	Rerun    bool   `json:"rerun,omitempty"`
	// with Rerun: the lost attempt never entered the tool or left no effect; it does not count
	NotRun bool   `json:"notRun,omitempty"`
	By     string `json:"by"`

	Media []Media `json:"media,omitempty"`
	Patch []Patch `json:"patch,omitempty"` // of the shared state; never with IsError
	Whole *Whole  `json:"whole,omitempty"` // where all of it is, where it was cut

	Used *ChildUsage `json:"used,omitempty"` // by the run that the call was, in all; nil = it was none
	// with Rerun: who else has ordered it, in order, where it takes several people
	With []string `json:"with,omitempty"`

	Voices []Voice `json:"voices,omitempty"` // with Rerun, of a call that was approved: as of Decided
}

// LateResult is a claimant's result that lost the race for its entry and came through the inbox (protocol, rule 10).
type LateResult struct {
	Slot   int64  `json:"slot"`
	Writer string `json:"writer"`
	CallFinished
}

// LateSuspended is a claimant's report that its tool has done nothing and asks for input, where it lost the race for
// its entry and came through the inbox (protocol, rule 10). It counts for a call that is its claim, or that nobody has
// claimed since it was: an attempt after it may have had an effect, whatever this one says. The request people see is
// named by the state that takes the fact.
type LateSuspended struct {
	Slot   int64  `json:"slot"`
	Writer string `json:"writer"`
	CallSuspended
}

// Replied is one successful inference. It is committed before any of its calls starts.
type Replied struct {
	Inference int64         `json:"n"` // from 1
	Model     string        `json:"model"`
	Requests  int           `json:"requests"` // to any model, failed ones included
	Usage     Usage         `json:"usage"`
	Units     int64         `json:"units"`
	Text      string        `json:"text,omitempty"` // kept text; what the preset drops is not here
	Calls     []RepliedCall `json:"calls,omitempty"`
	Stop      string        `json:"stop,omitempty"`
	System    string        `json:"system,omitempty"` // digest of the system prompt, the first time and when it changed

	// A text that was built once and that its definition alone does not give: here, or in the blob of its digest.
	SystemText string `json:"systemText,omitempty"`
	SystemBlob bool   `json:"systemBlob,omitempty"`

	Reasoning []RepliedReasoning `json:"reasoning,omitempty"` // in order

	// the notice of calls that the batch mode left out, behind the round; "" = nothing
	Dropped string `json:"dropped,omitempty"`

	Summary bool `json:"summary,omitempty"` // the forced summary: it has no calls and is no interaction
	// the text behind a summary that the model left empty; no model wrote it
	Static     string      `json:"static,omitempty"`
	Correction *Correction `json:"correction,omitempty"` // nil = the reply is accepted; only without calls

	// the calls run one after the other, and each sees what those before it changed of the shared state
	Sequential bool `json:"sequential,omitempty"`

	At   int64 `json:"at,omitempty"`   // when the reply was there, milliseconds since 1970
	Cost USD   `json:"cost,omitempty"` // 0 where no price is known
	Halt *Halt `json:"halt,omitempty"` // nil = no stop policy stops the run

	// there was a text beside the calls, which the preset drops: who was shown it takes it back
	TextDropped bool `json:"textDropped,omitempty"`

	Memory map[string]json.RawMessage `json:"memory,omitempty"` // what policies remember from here on, as in Remembered

	// what the request had left of its window; nil = nobody counts, or there was plenty (Budget.Room)
	Room *Room `json:"room,omitempty"`

	// the only tools of the agent that the request was narrowed to, by original name; nil = it was not
	Offered []string `json:"offered,omitempty"`
}

// RepliedCall is one call that will be carried out: id unique in the run, arguments checked and compacted.
type RepliedCall struct {
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Tool   string          `json:"tool,omitempty"`   // original name, when it differs from Name
	Effect Effect          `json:"effect,omitempty"` // empty = the model's name fits no tool
	Input  json.RawMessage `json:"input"`

	Service   bool `json:"service,omitempty"`   // the tool is a service
	Unoffered bool `json:"unoffered,omitempty"` // the request was narrowed to other tools
	Breaks    bool `json:"breaks,omitempty"`    // its success ends the run
	Ahead     bool `json:"ahead,omitempty"`     // its result stands before those of the other calls that were carried out

	Repaired bool   `json:"repaired,omitempty"` // Input is what was made of what the model wrote, which was not JSON
	Repeats  string `json:"repeats,omitempty"`  // the call whose result stands and that this one repeats; "" = none
}

// Original is the name of the call's tool in its definition.
func (rc RepliedCall) Original() string { return cmp.Or(rc.Tool, rc.Name) }

// RepliedReasoning is reasoning as the model wrote it, and where: behind so many bytes of the text and so many calls.
// Places never go back, and one behind a call is behind all of the text.
type RepliedReasoning struct {
	Reasoning
	AfterText  int `json:"afterText,omitempty"`
	AfterCalls int `json:"afterCalls,omitempty"`
}

// Evicted takes the oldest live messages out of the conversation. They stay in the journal, their seenCount freezes,
// and they never come back. Summary replaces the run's summary.
type Evicted struct {
	Total   int64  `json:"total"` // how many messages have left by now, all from the front, all of them seen
	Summary string `json:"summary,omitempty"`
	// paths that calls among what left have named, the newest last; it replaces the run's
	Files []string `json:"files,omitempty"`

	// What a model that wrote the summary took; it quoted the conversation and did not carry it. Zero = none did.
	Requests int    `json:"requests,omitempty"` // failed ones included
	Usage    *Usage `json:"usage,omitempty"`
	Units    int64  `json:"units,omitempty"`
	Cost     USD    `json:"cost,omitempty"`
}

// CallClaimed lets the entry's writer, and nobody else, run the call (rule 9).
type CallClaimed struct {
	Call string `json:"call"`

	// the request on which the call's tool was granted; empty = no such grant is needed
	Under  string `json:"under,omitempty"`
	Digest string `json:"digest,omitempty"` // with Under: what the grant has to cover, by ToolDigest
	Once   bool   `json:"once,omitempty"`   // with Under: the claim uses the grant up

	Child *Child `json:"child,omitempty"` // the run that the call is; nil = the call is none, or has been claimed before
}

// CallFinished is a result. Under a claim only the claimant may store it. Ran says that the tool was entered without a
// claim; a call that is refused or given a result without running has neither.
type CallFinished struct {
	Call    string     `json:"call"`
	Ran     bool       `json:"ran,omitempty"`
	IsError bool       `json:"isError,omitempty"`
	Reason  CallReason `json:"reason,omitempty"` // required with IsError
	Content string     `json:"content"`
	Blob    string     `json:"blob,omitempty"`
	Media   []Media    `json:"media,omitempty"`
	Patch   []Patch    `json:"patch,omitempty"` // of the shared state; never with IsError
	Whole   *Whole     `json:"whole,omitempty"` // where all of it is, where it was cut
	// how often the tool was entered, from 2; 0 = as often as Ran or the claim says
	Entered int `json:"entered,omitempty"`
}

// CallSuspended parks one call until a person decides, or answers what its tool asked: that request is created in the
// same transaction (A19). Or, with For answer, until a service answers whose event is out: then there is neither a
// request nor a digest. A call under a claim is suspended by its claimant alone.
type CallSuspended struct {
	Call     string    `json:"call"`
	Approval string    `json:"approval"`
	Digest   string    `json:"digest"`
	Expires  time.Time `json:"expires"`
	For      WaitFor   `json:"for,omitempty"`    // empty = approval
	Ticket   *Ticket   `json:"ticket,omitempty"` // what is asked for, as the tool or plugin gave it; required for input
	Ran      bool      `json:"ran,omitempty"`    // the tool was entered without a claim
	Gate     bool      `json:"gate,omitempty"`   // a plugin asks, before the tool is entered: with input alone
	// how often the tool was entered, from 2; 0 = as often as Ran or the claim says
	Entered int `json:"entered,omitempty"`
	// what the call's precondition gave, which people are shown; nil = it has none, or nobody is asked for an approval
	Checked *Checked `json:"checked,omitempty"`

	// the ApproverPolicy that Digest is of, where the current definition makes it another than the pinned one's
	Policy string    `json:"policy,omitempty"`
	Why    AskReason `json:"why,omitempty"` // "" = it was not approved before
}

// CallUnknown says that a claimant died and nobody knows whether the tool ran. It parks until somebody does.
type CallUnknown struct {
	Call     string    `json:"call"`
	Approval string    `json:"approval"` // id of the request people see
	Expires  time.Time `json:"expires"`
	// the claimant that died, which may still say that its tool asks; "" = nobody knows
	Claim string `json:"claim,omitempty"`
}

// CallCancelled ends a suspended call that nobody approved in time, or skips a new one because one before it waits.
type CallCancelled struct {
	Call    string     `json:"call"`
	Reason  CallReason `json:"reason"`
	Content string     `json:"content"`
}

// Resumed says that a woken attempt goes on with a parked run (rule 7).
type Resumed struct {
	Waited int64 `json:"waited,omitempty"` // how long it was parked, in milliseconds
}

// Parked says that the run waits. The entry's sequence names the wait.
type Parked struct {
	Expires time.Time `json:"expires"`
}

// HandedOver makes another execution the owner (rules 12, 13).
type HandedOver struct {
	Owner string `json:"owner"`
}

// Finished ends the run and closes every call that is still open.
type Finished struct {
	Reason   Reason          `json:"reason"`
	Error    *RunError       `json:"error,omitempty"`
	Output   json.RawMessage `json:"output,omitempty"`
	Requests int             `json:"requests,omitempty"` // failed model calls that led to the end
	By       string          `json:"by,omitempty"`       // who cancelled
	Note     string          `json:"note,omitempty"`     // for a run that continues this one
	Detail   string          `json:"detail,omitempty"`   // of a stopped run: what stopped it
	// of a natural end: the text in place of a model that could not be asked
	Static string `json:"static,omitempty"`

	OpenText    string `json:"openText,omitempty"`    // the result of calls that never ran
	UnknownText string `json:"unknownText,omitempty"` // the result of calls of which nobody can say

	History bool `json:"history,omitempty"` // who reads the output reads the conversation with it
}

// ContextBuilt is what a context builder gave a run to begin with. It stands before every message to the run
// itself and behind what the run continues. It is committed with what comes of the run's first inference.
type ContextBuilt struct {
	Messages []BuiltMessage `json:"msgs,omitempty"`
}

// BuiltMessage is one block of a conversation as a context builder gives it. The zero value is not valid.
type BuiltMessage struct {
	Role    Role      `json:"role"`
	Content UserBlock `json:"content"`
	Seen    int64     `json:"seen,omitempty"` // its seenCount before the run's first inference, at least 0
}

// DecisionKept is a decision on something that is not suspended yet: a call, a suspension or a pending call that may
// come. It is kept until that is, and judged then (Early). Result is JSON, "true" where none was given. By and Groups
// are what authenticated the person.
type DecisionKept struct {
	Slot   int64           `json:"slot"`
	ID     string          `json:"id,omitempty"` // the client's own
	Target string          `json:"target"`
	Action DecisionAction  `json:"action"`
	Result json.RawMessage `json:"result,omitempty"`
	Note   string          `json:"note,omitempty"`
	By     string          `json:"by"`
	Groups []string        `json:"groups,omitempty"`
	Via    Via             `json:"via,omitempty"`
}

// DecisionDropped says that a kept decision met a suspended call and came to nothing.
type DecisionDropped struct {
	Target string `json:"target"`
	Call   string `json:"call"`
	Why    string `json:"why"`
}

// Remembered replaces what one policy remembers of the run.
type Remembered struct {
	Policy string          `json:"policy"`
	Value  json.RawMessage `json:"value"` // kept as it is, and not read here
}

// PermissionRequested is the one request that a batch's blocked calls make (block_and_retry). Each of them finishes
// with reason awaiting_permission in the same entry, and the request people see is created in its transaction (A19).
type PermissionRequested struct {
	Approval string          `json:"approval"`
	Tools    []RequestedTool `json:"tools"` // in call order, each once
	Expires  time.Time       `json:"expires"`
	Reason   string          `json:"reason,omitempty"` // why, by the permission backend, for the people who are asked
}

// RequestedTool is one tool whose permission is requested.
type RequestedTool struct {
	Tool  string   `json:"tool"`  // original name
	Name  string   `json:"name"`  // the model's
	Calls []string `json:"calls"` // that were blocked, in call order
	// what a grant would cover, by ToolDigest: one for each policy of approvers among the calls, and for their arguments
	// where it is of them
	Digests []string `json:"digests"`
}

// PermissionAnswered closes a request about tools: every tool has its verdict, or its time is up. Text is the model's.
type PermissionAnswered struct {
	Approval string `json:"approval"`
	Expired  bool   `json:"expired,omitempty"`
	Text     string `json:"text"`
}

// CallPermitted lets a suspended call go on because its tool was granted on another call's request.
type CallPermitted struct {
	Call     string `json:"call"`
	Approval string `json:"approval"` // that request
}

// PermissionChecked is the permission backend's answer about the tools of a round that need a permission, or
// which standing grants of them were on record. A second one about the same round only takes standing grants away, or
// says how much more they are used.
type PermissionChecked struct {
	Inference int64                       `json:"n"`     // the round's, of the conversation
	Tools     map[string]PermissionStatus `json:"tools"` // by original name
	Standing  []StandingGrant             `json:"standing,omitempty"`
	// what was granted in this run and has been taken back
	Revoked []PermitRef `json:"revoked,omitempty"`
}

// PermissionFailed says that nobody can say what this run may do. It ends the run.
type PermissionFailed struct {
	Message string `json:"message"`
}

// ContextFull says that another round does not fit into the context's window, though what could be evicted was: the run
// may not infer any more, but for a forced summary. Like Evicted it is committed with what comes of it, the reply or
// the end; a run that is parked and goes on is judged anew.
type ContextFull struct {
	Left int `json:"left"` // tokens of the window that the request would have left for the conversation
	Of   int `json:"of"`   // the window
}

// Said reports whether the context is full.
func (e ContextFull) Said() bool { return e.Of > 0 }

// InboxSlot is the inbox slot a fact came from; 0 when it did not come through the inbox.
func InboxSlot(e Event) int64 {
	if slot := reflect.ValueOf(e).FieldByName("Slot"); slot.IsValid() {
		return slot.Int()
	}
	return 0
}

// WithSlot is the fact as it stands in inbox slot n. It is an error for a fact that does not come through the inbox.
func WithSlot(e Event, n int64) (Event, error) {
	fact := reflect.New(reflect.TypeOf(e)).Elem()
	fact.Set(reflect.ValueOf(e))
	slot := fact.FieldByName("Slot")
	if !slot.IsValid() {
		return nil, &ApplyError{Event: EventType(e), Problem: "does not come through the inbox"}
	}
	slot.SetInt(n)
	return fact.Interface().(Event), nil
}

// eventTypes are the events by their stored names. A name is never used for another meaning.
var eventTypes = typesByName[Event](
	RunStarted{}, InputReceived{}, Decided{}, Answered{}, LateResult{}, Replied{}, Evicted{}, CallClaimed{},
	CallFinished{}, CallSuspended{}, CallUnknown{}, CallCancelled{}, Resumed{}, Parked{}, HandedOver{},
	Finished{}, DecisionKept{}, DecisionDropped{}, ContextBuilt{}, Remembered{}, Hooked{},
	PermissionRequested{}, PermissionAnswered{}, CallPermitted{}, PermissionChecked{},
	PermissionFailed{}, ContextFull{}, LateSuspended{}, Planned{}, StepRouted{}, Synthesised{}, PlanLeft{},
	UndoOrdered{}, ToolsListed{}, ToolsDisabled{}, BudgetAsked{},
)

func typesByName[T any](all ...T) map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for _, v := range all {
		types[nameOf(v)] = reflect.TypeOf(v)
	}
	return types
}

// EventTypes are the stored names of all events, sorted.
func EventTypes() []string { return slices.Sorted(maps.Keys(eventTypes)) }

// EventType is an event's stored name: that of its Go type in lower case, such as call_finished for CallFinished.
func EventType(e Event) string { return nameOf(e) }

func nameOf(v any) string {
	return strings.ToLower(innerCapital.ReplaceAllString(reflect.TypeOf(v).Name(), "${1}_$2"))
}

var innerCapital = regexp.MustCompile(`(.)([A-Z])`)

// MarshalEvent writes the stored form: an object of one key, the event's name.
func MarshalEvent(e Event) (json.RawMessage, error) {
	name := EventType(e)
	if _, known := eventTypes[name]; !known {
		return nil, fmt.Errorf("marshal event: %s is not stored", name)
	}
	body, err := jsonx.MarshalVerbatim(e)
	if err != nil {
		return nil, fmt.Errorf("marshal event %s: %w", name, err)
	}
	return append(append([]byte(`{"`+name+`":`), body...), '}'), nil
}

// UnmarshalEvent reads what MarshalEvent wrote. Unknown names, keys, and values that decide what happens are errors.
func UnmarshalEvent(raw json.RawMessage) (Event, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("unmarshal event: %w", err)
	}
	if len(m) != 1 {
		return nil, fmt.Errorf("unmarshal event: %d names, want one", len(m))
	}
	for name, body := range m {
		of, ok := eventTypes[name]
		if !ok {
			return nil, fmt.Errorf("event: %.64q is none that this version knows", name)
		}
		v := reflect.New(of)
		if err := jsonx.ReadChecked("event "+name, body, v.Interface()); err != nil {
			return nil, err
		}
		e := v.Elem().Interface().(Event)
		return e, checkWords(name, e)
	}
	return nil, nil
}

// checkWords refuses values that decide what happens and that this build does not know: it would do something else.
func checkWords(name string, e Event) error {
	actions := []DecisionAction{ActionApprove, ActionDeny, ActionCancel, ActionFail, ActionAskAgain, ActionVoid}
	switch e := e.(type) {
	case CallSuspended:
		return cmp.Or(checkWord(name, "for", e.For, ForApproval, ForOutcome, ForInput, ForAnswer),
			checkWord(name, "why", e.Why, WhyPolicyChanged, WhyStateChanged, WhyMiscounted))
	case Decided:
		return checkWord(name, "action", e.Action, actions...)
	case DecisionKept:
		return checkWord(name, "action", e.Action, actions...)
	default:
		return nil
	}
}

// checkWord refuses a value that is neither empty nor one of these.
func checkWord[W ~string](event, key string, w W, known ...W) error {
	if w == "" || slices.Contains(known, w) {
		return nil
	}
	words := Map(known, func(w W) string { return string(w) })
	return fmt.Errorf("event %s: %s: want one of: %s", event, key, strings.Join(words, ", "))
}
