package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Ticket is a tool's own suspension: it cannot finish before somebody answers (seed 001, 3.1). It is stored as the tool gave it; what is
// left out means what Asked fills in. The zero Ticket asks whether the call may go on.
type Ticket struct {
	ID             string          `json:"id,omitempty"`             // of the suspension; default the call's
	Action         string          `json:"action,omitempty"`         // default tool:<name>
	Message        string          `json:"message,omitempty"`        // what people are asked
	Parameters     json.RawMessage `json:"parameters,omitempty"`     // of what is asked; default the call's arguments
	ResponseSchema json.RawMessage `json:"responseSchema,omitempty"` // JSON Schema of the answer; none = any
	Pending        Pending         `json:"pending,omitzero"`
	Mode           TicketMode      `json:"mode,omitempty"` // default replay
	Memo           string          `json:"memo,omitempty"` // what the tool has back, as it is, when it is entered with the answer; nobody reads it
}

// Pending is the call that people see in the tool's place, such as one a user interface makes; by default the call itself.
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
	TicketPass   TicketMode = "pass"   // the tool runs with the answer for its arguments; with its own where that is a boolean
)

// Valid reports whether m is one of the modes.
func (m TicketMode) Valid() bool { return m == TicketReplay || m == TicketResult || m == TicketPass }

// InputExpiry is how long somebody has to answer what a tool asks.
const InputExpiry = 7 * 24 * time.Hour

// The bounds of a ticket: ids in bytes, texts in runes, all of it in bytes as it is stored.
const (
	maxTicketID      = 128
	maxTicketAction  = 200
	maxTicketMessage = 4000
	maxTicket        = 32 << 10
)

// Checked is the ticket as it is stored: valid text, compact JSON. An error says what no one could be asked, fit for the model.
func (t Ticket) Checked() (Ticket, error) {
	if t.Mode != "" && !t.Mode.Valid() {
		return t, fmt.Errorf("mode: got %q, want replay, result or pass", t.Mode)
	}
	for _, id := range []struct{ key, value string }{{"id", t.ID}, {"pending.id", t.Pending.ID}, {"pending.name", t.Pending.Name}} {
		if len(id.value) > maxTicketID || !shown(id.value) {
			return t, fmt.Errorf("%s: want at most %d bytes that can be shown", id.key, maxTicketID)
		}
	}
	if t.Memo != "" && (t.Mode != "" && t.Mode != TicketReplay || !utf8.ValidString(t.Memo)) {
		return t, errors.New("memo: want valid text, of a ticket of mode replay")
	}
	t.Action, t.Message = validText(t.Action), validText(t.Message)
	if utf8.RuneCountInString(t.Action) > maxTicketAction || utf8.RuneCountInString(t.Message) > maxTicketMessage {
		return t, fmt.Errorf("want an action of at most %d and a message of at most %d characters", maxTicketAction, maxTicketMessage)
	}
	for _, raw := range []struct {
		key string
		at  *json.RawMessage
	}{{"parameters", &t.Parameters}, {"responseSchema", &t.ResponseSchema}, {"pending.arguments", &t.Pending.Arguments}} {
		if *raw.at == nil {
			continue
		}
		compact, err := CompactJSON(*raw.at, JSONLimits{})
		if err != nil {
			return t, fmt.Errorf("%s: %w", raw.key, err)
		}
		*raw.at = compact
	}
	if size := t.Size(); size > maxTicket {
		return t, fmt.Errorf("it has %d bytes, want at most %d", size, maxTicket)
	}
	return t, nil
}

// shown reports whether a text has nothing that people would not see.
func shown(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Size is the length of the stored form, in bytes.
func (t Ticket) Size() int {
	raw, err := MarshalVerbatim(t)
	if err != nil { // its JSON is checked
		return maxTicket + 1
	}
	return len(raw)
}

// Asked is what c's tool asked people when it last suspended itself, whole: with everything that was left out. False where it did not.
func (c Call) Asked() (Ticket, bool) {
	if c.Ticket == nil {
		return Ticket{}, false
	}
	t := *c.Ticket
	t.Memo = "" // the tool's alone
	t.ID = cmp.Or(t.ID, c.ID)
	t.Action = cmp.Or(t.Action, "tool:"+c.Tool)
	t.Mode = cmp.Or(t.Mode, TicketReplay)
	if t.Parameters == nil {
		t.Parameters = c.Input
	}
	t.Pending.ID, t.Pending.Name = cmp.Or(t.Pending.ID, c.ID), cmp.Or(t.Pending.Name, c.Tool)
	if t.Pending.Arguments == nil {
		t.Pending.Arguments = c.Input
	}
	return t, true
}

// confirmPrefix stands before a call's id in the pending id of its approval, as permission plugins of seed 001 name it (3.9).
const confirmPrefix = "fc_"

// Waiting finds the suspended call that a decision on target is about (seed 001): by the call's id, else by the suspension's, which of an
// approval is the request's, else by the pending call's. Where two tickets have the same id it is the first one's in request order.
func (s *AgentState) Waiting(target string) (Call, bool) {
	for _, names := range []func(Call) string{
		func(c Call) string { return c.ID },
		func(c Call) string { return c.Wait.Approval },
		func(c Call) string { t, _ := c.Asked(); return t.ID },
		func(c Call) string { return c.pending() },
	} {
		for _, c := range s.Live {
			if c.Status == StatusSuspended && target != "" && names(c) == target {
				return c, true
			}
		}
	}
	return Call{}, false
}

func (c Call) pending() string {
	if t, ok := c.Asked(); ok {
		return t.Pending.ID
	}
	return confirmPrefix + c.ID
}

// WaitedUnder reports whether target names the newest suspension of the call or its pending call, be it decided or not. A decision that is
// sent again is known by it.
func (c Call) WaitedUnder(target string) bool {
	t, _ := c.Asked()
	return c.Asks > 0 && target != "" && (t.ID == target || c.pending() == target)
}

// AskInput is the suspension of a call whose tool asked for input with a checked ticket. ran says that the tool was entered without a
// claim. Like a request for approval it names the very action (A6): what the answer lets run is that, once.
func AskInput(d *Definition, s *AgentState, c Call, t Ticket, ran bool, now time.Time) CallSuspended {
	spec, _ := d.Tool(c.Tool)
	dec := DecideIn(d, s, spec, c.Input)
	return CallSuspended{
		Call: c.ID, Approval: ApprovalID(s.Run, c.ID, c.Asks+1), Digest: ActionDigest(d, s, c, spec, dec),
		Expires: now.UTC().Add(InputExpiry).Truncate(time.Millisecond), For: ForInput, Ticket: &t, Ran: ran, Policy: PolicyMark(d, s, spec, c.Input, dec),
	}
}

// AnswerError says why an answer to a tool's question is not taken; Problem is fit to be shown.
type AnswerError struct{ Problem string }

func (e *AnswerError) Error() string { return "answer refused: " + e.Problem }

// ErrOtherApprovers says that a call with changed arguments is for others to approve.
var ErrOtherApprovers = errors.New("the changed call has other approvers")

// ResumeInput is the fact that by, who may decide about it, answers the question of c, which waits for input. No result is true
// (seed 001, 3.5). May says whether by may decide about a call of which policy says that. The errors are *AnswerError, *AmendError and ErrOtherApprovers.
func ResumeInput(d *Definition, s *AgentState, c Call, result json.RawMessage, by string, may func(Decision) bool, valid Validator) (Decided, error) {
	t, _ := c.Asked()
	answer, err := CompactAnswer(result)
	if err != nil {
		return Decided{}, err
	}
	if t.ResponseSchema != nil {
		if err := valid(ToolSpec{Name: "response", Schema: t.ResponseSchema}, answer); err != nil {
			return Decided{}, &AnswerError{Problem: "it does not fit the response schema of call " + c.ID + ":\n" + err.Error()}
		}
	}
	fact := Decided{Call: c.ID, Approval: c.Wait.Approval, Action: ActionApprove, By: by, Digest: c.Wait.Digest, Result: answer}
	if t.Mode == TicketPass && jsonKind(answer) != 'b' {
		fact.Args = answer
		var a Amended
		a, err = Amend(d, s, c, answer, may, valid)
		fact.Digest, fact.Policy = a.Digest, a.Policy
	}
	return fact, err
}

// CompactAnswer is a decision's result as it is stored: true where there is none, or null. The error is an *AnswerError.
func CompactAnswer(result json.RawMessage) (json.RawMessage, error) {
	if result == nil || bytes.Equal(bytes.TrimSpace(result), []byte("null")) {
		return json.RawMessage("true"), nil
	}
	answer, err := CompactJSON(result, JSONLimits{})
	if err != nil {
		return nil, &AnswerError{Problem: err.Error()}
	}
	return answer, nil
}

// AmendError says why changed arguments are not taken; Problem is fit to be shown.
type AmendError struct{ Problem string }

func (e *AmendError) Error() string { return "changed arguments refused: " + e.Problem }

// Amended is a call with other arguments: the digest of that action, with its Policy as of CallSuspended, and what policy says of it.
type Amended struct {
	Digest, Policy string
	Rule           Decision
}

// Amend makes a new action of a call that has not had its effect: other arguments, compact, checked against deny rules and schema as if
// the model had asked for it with them (A8). May says whether who changes them may decide about a call of which policy says that. The errors are *AmendError and ErrOtherApprovers.
func Amend(d *Definition, s *AgentState, c Call, args json.RawMessage, may func(Decision) bool, valid Validator) (Amended, error) {
	t, known := d.Tool(c.Tool)
	if !known {
		return Amended{}, &AmendError{Problem: "the agent has no tool " + c.Tool}
	}
	dec := DecideIn(d, s, t, args)
	if dec.Verdict == VerdictDeny {
		if dec.Ceiling {
			return Amended{}, &AmendError{Problem: "the policy of an agent that delegated the run denies them"}
		}
		return Amended{}, &AmendError{Problem: "the agent's policy denies them"}
	}
	if dec.Verdict == VerdictAsk && !may(dec) {
		return Amended{}, ErrOtherApprovers
	}
	if err := ValidArguments(valid, t, args); err != nil {
		return Amended{}, &AmendError{Problem: err.Error()}
	}
	c.Input = args
	return Amended{Digest: ActionDigest(d, s, c, t, dec), Policy: PolicyMark(d, s, t, args, dec), Rule: dec}, nil
}

// ResultText is what the model reads of a JSON value given as a result: a string stands for its text, anything else for its JSON.
func ResultText(raw json.RawMessage) string {
	if text, ok := jsonString(raw); ok {
		return text
	}
	return string(raw)
}
