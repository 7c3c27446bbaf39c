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

// Event is the sealed union of facts about a run. An event's JSON is its stored form. A released key keeps its meaning
// forever; a changed meaning needs a new event. Facts that came through the inbox have their slot, from 1. Slot 0 means
// that the writer itself is the source.
type Event interface {
	apply(*AgentState) error // changes the caller's copy, but never writes into memory that other versions share
}

// RunStarted is the first fact. It holds the conversation's first messages and pins the run's definition.
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
	From            *Origin         `json:"from,omitempty"`   // nil = the run has no origin
	Parent          *Parent         `json:"parent,omitempty"` // nil = not delegated; not part of BodyDigest
	// the people for whom the run acts: who started it, followed by those of its origin or of the delegating run; not part
	// of BodyDigest
	By []string `json:"by,omitempty"`
	// people whose messages the delegating run had received; not part of BodyDigest
	Contributors []string `json:"contributors,omitempty"`
	Trace        *Trace   `json:"trace,omitempty"` // nil = the run is not traced; not part of BodyDigest

	// Wait and Resume come from the definition if Wait is all_suspended. Then calls stay open over several inferences, and
	// open calls decide where results are inserted. "" = any_external, where Resume has no effect on the fold.
	Wait   WaitMode   `json:"wait,omitempty"`
	Resume ResumeMode `json:"resume,omitempty"`
}

// UserBlock is one block of a user's message.
type UserBlock struct{ Block Block }

// InputReceived is a user's message to a started run.
type InputReceived struct {
	Slot   int64       `json:"slot"`
	ID     string      `json:"id"`
	Blocks []UserBlock `json:"msgs"`
	By     string      `json:"by,omitempty"`
	Starts bool        `json:"starts,omitempty"` // By started the run again under its key; there is no message
}

// DecisionAction is what a person did with a request.
type DecisionAction string

// The actions that settle a request.
const (
	ActionApprove DecisionAction = "approve"
	ActionDeny    DecisionAction = "deny"
	ActionCancel  DecisionAction = "cancel" // the call is cancelled without a verdict
	// the request itself failed, which ends the run; for requests about tools only
	ActionFail DecisionAction = "fail"

	// not a person's: the policy has changed since the request, which is void
	ActionAskAgain DecisionAction = "policy_changed"
	// not a person's: neither the request nor its call is needed any more
	ActionVoid DecisionAction = "voided"
)

// Decided is a person's decision on a suspended call. The approval recorded it before it reached the run (A12).
type Decided struct {
	Slot     int64           `json:"slot"`
	Call     string          `json:"call"`
	Approval string          `json:"approval"`
	Action   DecisionAction  `json:"action"`
	By       string          `json:"by"`
	Note     string          `json:"note,omitempty"`
	Args     json.RawMessage `json:"args,omitempty"`   // an edit: the call runs with these arguments instead
	Digest   string          `json:"digest,omitempty"` // digest of the approved action, after an edit of the edited one
	Text     string          `json:"text,omitempty"`   // the call's result if it will not run
	Result   json.RawMessage `json:"result,omitempty"` // the answer to the tool's question
	Early    string          `json:"early,omitempty"`  // target of the kept decision that takes effect now; it is removed

	// for a request about tools: original names of the decided tools; Call is empty then
	Tools []string `json:"tools,omitempty"`
	// the decision also covers the call's tool, or the tool with the exact arguments, by this ToolDigest
	Permit string `json:"permit,omitempty"`
	// the decision covers nothing further: an approval covers one claim, a denial only its request. With Standing, only
	// the record holds the approval
	Once bool `json:"once,omitempty"`

	// a record outside the run holds the grants of tools, and they can be revoked there
	Standing bool `json:"standing,omitempty"`

	With []string `json:"with,omitempty"` // the other approvers, in order, if several are needed
	// for an approval: By and With as the desk authenticated them; none = not recorded
	ApprovedBy []Approver `json:"approvedBy,omitempty"`
	Editor     string     `json:"editor,omitempty"` // the editor of Args; "" = By
	Policy     string     `json:"policy,omitempty"` // with Args: as in CallSuspended
}

// Answered settles a call whose outcome is unknown, with a result, an error, or the order to run it again. It also
// settles a service's call with the service's answer. With slot 0 it is the tool's own report on a call whose claimant
// died or ran out of time, before people were asked. For a service, slot 0 means that its event is sent again under the
// same id.
type Answered struct {
	Slot     int64  `json:"slot,omitempty"`
	Call     string `json:"call"`
	Approval string `json:"approval,omitempty"` // id of the answered request; "" = the open one
	Content  string `json:"content,omitempty"`
	Blob     string `json:"blob,omitempty"`
	IsError  bool   `json:"isError,omitempty"`
	Rerun    bool   `json:"rerun,omitempty"`
	// with Rerun: the lost attempt does not count, since it never entered the tool or had no effect
	NotRun bool   `json:"notRun,omitempty"`
	By     string `json:"by"`

	Media []Media `json:"media,omitempty"`
	Patch []Patch `json:"patch,omitempty"` // changes of the shared state; never with IsError
	Whole *Whole  `json:"whole,omitempty"` // place of the full text, if it was cut

	Used *ChildUsage `json:"used,omitempty"` // total use of the delegated run; nil = the call delegated none
	// with Rerun: the other people who ordered it, in order, if several are needed; with Used: that run's requesters
	With []string `json:"with,omitempty"`

	ApprovedBy []Approver `json:"approvedBy,omitempty"` // with Rerun of an approved call: as in Decided
}

// LateResult is a claimant's result that lost the race for its entry and came through the inbox (protocol rule 10).
type LateResult struct {
	Slot   int64  `json:"slot"`
	Writer string `json:"writer"`
	CallFinished
}

// LateSuspended is a claimant's report that its tool has done nothing and asks for input. The report lost the race for
// its entry and came through the inbox (protocol rule 10). It counts only if no other writer has claimed the call
// since, because a later attempt may have had an effect. The state that applies the fact chooses the id of the request
// that people see.
type LateSuspended struct {
	Slot   int64  `json:"slot"`
	Writer string `json:"writer"`
	CallSuspended
}

// Replied is one successful inference. It is committed before any of its calls starts.
type Replied struct {
	Inference int64         `json:"n"` // from 1
	Model     string        `json:"model"`
	Requests  int           `json:"requests"` // to any model, including failed ones
	Usage     Usage         `json:"usage"`
	Units     int64         `json:"units"`
	Text      string        `json:"text,omitempty"` // without text that the preset drops
	Calls     []RepliedCall `json:"calls,omitempty"`
	Stop      string        `json:"stop,omitempty"`
	// digest of the system prompt; set the first time and when it has changed
	System string `json:"system,omitempty"`

	// A system text that was built once and does not follow from the definition alone: here, or in the blob of its digest.
	SystemText string `json:"systemText,omitempty"`
	SystemBlob bool   `json:"systemBlob,omitempty"`

	Reasoning []RepliedReasoning `json:"reasoning,omitempty"` // in order

	// notice that the batch mode left calls out, added behind the round; "" = none
	Dropped string `json:"dropped,omitempty"`

	Summary bool `json:"summary,omitempty"` // the forced summary, which has no calls and does not count as an interaction
	// the text that replaces an empty summary; no model wrote it
	Static     string      `json:"static,omitempty"`
	Correction *Correction `json:"correction,omitempty"` // nil = the reply is accepted; only without calls

	// the calls run in order, and each sees the changes of the shared state by earlier ones
	Sequential bool `json:"sequential,omitempty"`

	At   int64 `json:"at,omitempty"`   // time of the reply, milliseconds since 1970
	Cost USD   `json:"cost,omitempty"` // 0 if no price is known
	Halt *Halt `json:"halt,omitempty"` // nil = no stop policy stops the run

	// the preset dropped text beside the calls; readers of the stream have to remove it
	TextDropped bool `json:"textDropped,omitempty"`

	Memory map[string]json.RawMessage `json:"memory,omitempty"` // what policies remember from here on, as in Remembered

	// what the request left of its window; nil = not counted, or plenty (prompt.Budget)
	Room *Room `json:"room,omitempty"`

	// original names of the agent's tools to which the request was narrowed; nil = it was not
	Offered []string `json:"offered,omitempty"`
}

// RepliedCall is one call that will be carried out. Its id is unique, its arguments are checked and compacted.
type RepliedCall struct {
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Tool   string          `json:"tool,omitempty"`   // original name, if it differs from Name
	Effect Effect          `json:"effect,omitempty"` // "" = no tool has the model's name
	Input  json.RawMessage `json:"input"`

	Service   bool `json:"service,omitempty"`   // the tool is a service
	Unoffered bool `json:"unoffered,omitempty"` // the request was narrowed to other tools
	Breaks    bool `json:"breaks,omitempty"`    // its success ends the run
	Ahead     bool `json:"ahead,omitempty"`     // its result comes before those of the other calls that were carried out

	Repaired bool   `json:"repaired,omitempty"` // Input was repaired, because the model's arguments were not JSON
	Repeats  string `json:"repeats,omitempty"`  // id of the identical call whose result the model has; "" = none
}

// Original returns the original name of the call's tool.
func (rc RepliedCall) Original() string { return cmp.Or(rc.Tool, rc.Name) }

// RepliedReasoning is reasoning as the model wrote it, and its place: after that many bytes of the text and that many
// calls. Places never decrease, and a place after a call is after all of the text.
type RepliedReasoning struct {
	Reasoning
	AfterText  int `json:"afterText,omitempty"`
	AfterCalls int `json:"afterCalls,omitempty"`
}

// Evicted removes the oldest live messages from the conversation. They stay in the journal, their seenCount is frozen,
// and they never come back. Summary replaces the run's summary.
type Evicted struct {
	Total   int64  `json:"total"` // total number of evicted messages, all from the front and all seen
	Summary string `json:"summary,omitempty"`
	// paths in the evicted calls, the newest last; replaces the run's
	Files []string `json:"files,omitempty"`

	// The use of a model that wrote the summary, which quotes the conversation. Zero = no model did.
	Requests int    `json:"requests,omitempty"` // including failed ones
	Usage    *Usage `json:"usage,omitempty"`
	Units    int64  `json:"units,omitempty"`
	Cost     USD    `json:"cost,omitempty"`
}

// CallClaimed allows the entry's writer, and nobody else, to run the call (rule 9).
type CallClaimed struct {
	Call string `json:"call"`

	// id of the request on which the call's tool was granted; "" = no such grant is needed
	Under  string `json:"under,omitempty"`
	Digest string `json:"digest,omitempty"` // with Under: the ToolDigest that the grant has to cover
	Once   bool   `json:"once,omitempty"`   // with Under: the claim uses the grant up

	Child *Child `json:"child,omitempty"` // the delegated run; nil = none, or the call has been claimed before
}

// CallFinished is a result. Under a claim only the claimant may store it. Ran says that the tool was entered without a
// claim. A call that is refused, or gets a result without running, has neither a claim nor Ran.
type CallFinished struct {
	Call    string     `json:"call"`
	Ran     bool       `json:"ran,omitempty"`
	IsError bool       `json:"isError,omitempty"`
	Reason  CallReason `json:"reason,omitempty"` // required with IsError
	Content string     `json:"content"`
	Blob    string     `json:"blob,omitempty"`
	Media   []Media    `json:"media,omitempty"`
	Patch   []Patch    `json:"patch,omitempty"` // changes of the shared state; never with IsError
	Whole   *Whole     `json:"whole,omitempty"` // place of the full text, if it was cut
	// how often the tool was entered, from 2; 0 = as often as Ran or the claim says
	Entered int `json:"entered,omitempty"`
}

// CallSuspended suspends one call until a person decides or answers the tool's question. The request to people is
// created in the same transaction (A19). With For answer it suspends a service's call whose event has been sent, and
// has no request or digest. Only the claimant may suspend a call that is under a claim.
type CallSuspended struct {
	Call     string    `json:"call"`
	Approval string    `json:"approval"`
	Digest   string    `json:"digest"`
	Expires  time.Time `json:"expires"`
	For      WaitFor   `json:"for,omitempty"`    // "" = approval
	Ticket   *Ticket   `json:"ticket,omitempty"` // the unchanged request of the tool or plugin; required for input
	Ran      bool      `json:"ran,omitempty"`    // the tool was entered without a claim
	Gate     bool      `json:"gate,omitempty"`   // a plugin asks before the tool is entered; only for input
	// how often the tool was entered, from 2; 0 = as often as Ran or the claim says
	Entered int `json:"entered,omitempty"`
	// the precondition's result, which people are shown; nil = there is none, or the tool itself asks
	Checked *Checked `json:"checked,omitempty"`

	// the ApproverPolicy with which Digest was made, if the current definition's differs from the pinned one's
	Policy string    `json:"policy,omitempty"`
	Why    AskReason `json:"why,omitempty"` // "" = not approved before
}

// CallUnknown says that a claimant died and that it is unknown whether the tool ran. The call is suspended until
// somebody answers.
type CallUnknown struct {
	Call     string    `json:"call"`
	Approval string    `json:"approval"` // id of the request people see
	Expires  time.Time `json:"expires"`
	// the writer that died, which may still report that its tool asks for input; "" = unknown
	Claim string `json:"claim,omitempty"`
}

// CallCancelled ends a suspended call that nobody decided in time, or skips a new call because an earlier one waits.
type CallCancelled struct {
	Call    string     `json:"call"`
	Reason  CallReason `json:"reason"`
	Content string     `json:"content"`
}

// Resumed says that a new attempt continues a parked run (rule 7).
type Resumed struct {
	Waited int64 `json:"waited,omitempty"` // how long it was parked, in milliseconds
}

// Parked says that the run waits. The entry's sequence number identifies the wait.
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
	By       string          `json:"by,omitempty"`       // the person who cancelled
	Note     string          `json:"note,omitempty"`     // for a run that continues this one
	Noted    bool            `json:"noted,omitempty"`    // Note quotes words of By
	Detail   string          `json:"detail,omitempty"`   // for a stopped run: what stopped it
	// for a natural end: the text that replaces the reply of a model that failed
	Static string `json:"static,omitempty"`

	OpenText    string `json:"openText,omitempty"`    // result of open calls that never ran
	UnknownText string `json:"unknownText,omitempty"` // result of open calls whose outcome is unknown

	History bool `json:"history,omitempty"` // the output contains the conversation
}

// ContextBuilt holds the messages with which a context builder begins a run. They come before all messages of the run
// itself and after those of the run that it continues. The fact is committed together with the result of the run's
// first inference.
type ContextBuilt struct {
	Messages []BuiltMessage `json:"msgs,omitempty"`
}

// BuiltMessage is one block of a conversation from a context builder. The zero value is not valid.
type BuiltMessage struct {
	Role    Role      `json:"role"`
	Content UserBlock `json:"content"`
	Seen    int64     `json:"seen,omitempty"` // seenCount before the run's first inference, at least 0
}

// DecisionKept is a decision on a target that is not suspended yet: a call, a suspension or a pending call. It is
// stored until the target is suspended, and checked then (policy.ApplyEarlyDecisions). Result is JSON, "true" if none
// was given. By and Groups come from the person's authentication.
type DecisionKept struct {
	Slot   int64           `json:"slot"`
	ID     string          `json:"id,omitempty"` // the client's own id
	Target string          `json:"target"`
	Action DecisionAction  `json:"action"`
	Result json.RawMessage `json:"result,omitempty"`
	Note   string          `json:"note,omitempty"`
	By     string          `json:"by"`
	Groups []string        `json:"groups,omitempty"`
	Via    Via             `json:"via,omitempty"`
}

// DecisionDropped says that a kept decision reached its suspended call and was refused.
type DecisionDropped struct {
	Target string `json:"target"`
	Call   string `json:"call"`
	Why    string `json:"why"`
}

// Remembered replaces what one policy remembers about the run.
type Remembered struct {
	Policy string          `json:"policy"`
	Value  json.RawMessage `json:"value"` // stored unchanged, not interpreted here
}

// PermissionRequested is the single request for all blocked calls of a batch (block_and_retry). In the same entry each
// of these calls finishes with reason awaiting_permission. The request that people see is created in the entry's
// transaction (A19).
type PermissionRequested struct {
	Approval string          `json:"approval"`
	Tools    []RequestedTool `json:"tools"` // in call order, each once
	Expires  time.Time       `json:"expires"`
	Reason   string          `json:"reason,omitempty"` // the permission backend's reason, shown to approvers
}

// RequestedTool is one tool whose permission is requested.
type RequestedTool struct {
	Tool  string   `json:"tool"`  // original name
	Name  string   `json:"name"`  // model-facing name
	Calls []string `json:"calls"` // ids of the blocked calls, in call order
	// ToolDigests that a grant would cover: one for each policy of approvers among the calls, including the arguments if
	// the grant is limited to them
	Digests []string `json:"digests"`
}

// PermissionAnswered closes a request about tools because every tool has a verdict or the request has expired. Text is
// for the model.
type PermissionAnswered struct {
	Approval string `json:"approval"`
	Expired  bool   `json:"expired,omitempty"`
	Text     string `json:"text"`
}

// CallPermitted resumes a suspended call because its tool was granted on another call's request.
type CallPermitted struct {
	Call     string `json:"call"`
	Approval string `json:"approval"` // id of that request
}

// PermissionChecked holds the permission backend's answer about the tools of a round, or the standing grants that were
// on record for them. A second fact about the same round can only remove standing grants or raise their use.
type PermissionChecked struct {
	Inference int64                       `json:"n"`     // number of the conversation's inference that made the round
	Tools     map[string]PermissionStatus `json:"tools"` // by original name
	Standing  []StandingGrant             `json:"standing,omitempty"`
	// grants of this run that have been revoked
	Revoked []PermitRef `json:"revoked,omitempty"`
}

// PermissionFailed says that the run's permissions cannot be determined. It ends the run.
type PermissionFailed struct {
	Message string `json:"message"`
}

// ContextFull says that another round does not fit into the context's window, even after eviction. The run may not make
// another inference except a forced summary. Like Evicted, the fact is committed together with the reply or the end
// that follows. A parked run that resumes is checked again.
type ContextFull struct {
	Left int `json:"left"` // tokens that the request would have left for the conversation
	Of   int `json:"of"`   // size of the window
}

// IsFull reports whether the context is full.
func (e ContextFull) IsFull() bool { return e.Of > 0 }

// InboxSlot returns the inbox slot that a fact came from, or 0 if it did not come through the inbox.
func InboxSlot(e Event) int64 {
	if slot := reflect.ValueOf(e).FieldByName("Slot"); slot.IsValid() {
		return slot.Int()
	}
	return 0
}

// WithSlot returns the fact with inbox slot n. It is an error for a fact that does not come through the inbox.
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

// eventTypes holds the types of events by stored name. A name is never reused with another meaning.
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

// EventTypes returns the stored names of all events, sorted.
func EventTypes() []string { return slices.Sorted(maps.Keys(eventTypes)) }

// EventType returns an event's stored name: the name of its Go type in snake case, such as call_finished.
func EventType(e Event) string { return nameOf(e) }

func nameOf(v any) string {
	return strings.ToLower(innerCapital.ReplaceAllString(reflect.TypeOf(v).Name(), "${1}_$2"))
}

var innerCapital = regexp.MustCompile(`(.)([A-Z])`)

// MarshalEvent returns the stored form: an object with one key, the event's name.
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

// UnmarshalEvent parses the stored form. Unknown names, keys and values that decide what happens are errors.
func UnmarshalEvent(raw json.RawMessage) (Event, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("unmarshal event: %w", err)
	}
	if len(m) != 1 {
		return nil, fmt.Errorf("unmarshal event: %d names, want one", len(m))
	}
	name := slices.Collect(maps.Keys(m))[0]
	eventType, ok := eventTypes[name]
	if !ok {
		return nil, fmt.Errorf("event %.64q: unknown to this version", name)
	}
	v := reflect.New(eventType)
	if err := jsonx.ReadChecked("event "+name, m[name], v.Interface()); err != nil {
		return nil, err
	}
	e := v.Elem().Interface().(Event)
	return e, checkWords(name, e)
}

// checkWords refuses unknown values of enumerations that decide what happens, because this build would act differently.
func checkWords(name string, e Event) error {
	actions := []DecisionAction{ActionApprove, ActionDeny, ActionCancel, ActionFail, ActionAskAgain, ActionVoid}
	switch e := e.(type) {
	case CallSuspended:
		return cmp.Or(checkWord(name, "for", e.For, ForApproval, ForOutcome, ForInput, ForAnswer),
			checkWord(name, "why", e.Why, WhyPolicyChanged, WhyStateChanged, WhyQuorumChanged))
	case Decided:
		return checkWord(name, "action", e.Action, actions...)
	case DecisionKept:
		return checkWord(name, "action", e.Action, actions...)
	default:
		return nil
	}
}

// checkWord refuses a value that is neither empty nor among the known ones.
func checkWord[W ~string](event, key string, w W, known ...W) error {
	if w == "" || slices.Contains(known, w) {
		return nil
	}
	words := Map(known, func(w W) string { return string(w) })
	return fmt.Errorf("event %s: %s: want one of: %s", event, key, strings.Join(words, ", "))
}
