// Package policy decides what a run does next and what its calls may do: pure functions over a definition and the state
// of a run.
//
// Next says who owes the run its next fact. PlanReply judges a model's reply. Decide and the gate apply the rules to a
// call: run it, ask people, refuse it, or give a result. The package also holds grants, quorum, ceilings of delegated
// runs, preconditions, limits and guards.
package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// hasCaseKeys reports whether an object in a JSON value, however deep, has two keys that are equal but for case. Many
// decoders, Go's among them, take either for the same field, so what a rule has compared may not be what the tool gets.
func hasCaseKeys(raw json.RawMessage) bool {
	v, err := jsonx.DecodeNumbers(raw)
	return err == nil && caseKeysIn(v)
}

func caseKeysIn(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		seen := make(map[string]bool, len(v))
		for key, of := range v {
			folded := strings.Map(agent.CaseFold, key)
			if seen[folded] || caseKeysIn(of) {
				return true
			}
			seen[folded] = true
		}
	case []any:
		for _, of := range v {
			if caseKeysIn(of) {
				return true
			}
		}
	}
	return false
}

// DecisionFromJSON reads a free-form answer to a suspended call as a decision: resume or cancel (presets 3, A16).
//
//	true, false                        resume, cancel
//	a string                           cancel if it is a denial word, else resume, "" too
//	an object                          cancel if approved is false or a denial word, if denied, rejected or the like is
//	                                   true, or if status, decision or action is a denial word; else resume
//	null, a list, a number, not JSON   cancel
//
// reason is the string itself or the object's reason, message or error; "" if there is none.
func DecisionFromJSON(raw json.RawMessage) (resume bool, reason string) {
	raw, err := jsonx.CompactJSON(raw, jsonx.JSONLimits{})
	if err != nil {
		return false, ""
	}
	var o map[string]json.RawMessage
	switch jsonx.JSONKind(raw) {
	case 'b':
		return string(raw) == "true", ""
	case '"':
		s, ok := jsonx.JSONString(raw)
		return ok && !isDenialWord(s), s
	case '{':
		if err := json.Unmarshal(raw, &o); err != nil {
			return false, ""
		}
	default:
		return false, ""
	}
	for _, key := range []string{"reason", "message", "error"} {
		if s, ok := jsonx.JSONString(o[key]); ok && s != "" {
			reason = s
			break
		}
	}
	denied := string(o["approved"]) == "false" ||
		slices.ContainsFunc(denialWords, func(flag string) bool { return string(o[flag]) == "true" }) ||
		slices.ContainsFunc([]string{"approved", "status", "decision", "action"}, func(key string) bool {
			s, ok := jsonx.JSONString(o[key])
			return ok && isDenialWord(s)
		})
	return !denied, reason
}

// denialWords mean no; as keys of an object with the value true they are denial flags.
var denialWords = []string{
	"false", "no", "denied", "deny", "reject", "rejected", "cancel", "canceled", "cancelled", "abort", "aborted",
}

func isDenialWord(s string) bool {
	return slices.Contains(denialWords, strings.ToLower(strings.TrimSpace(s)))
}

// MaxKept is how many decisions a run keeps for calls that are not suspended yet.
const MaxKept = 64

// HasEarlyDecisions reports whether a kept decision applies to a call that is suspended now.
// ApplyEarlyDecisions applies such decisions.
func HasEarlyDecisions(s *run.AgentState) bool {
	return slices.ContainsFunc(s.Kept, func(k run.DecisionKept) bool { _, ok := FindSuspended(s, k.Target); return ok })
}

// ApplyEarlyDecisions returns the events that apply the kept decisions whose calls are suspended now: a Decided or a
// DecisionDropped for each. A decision that was made before its call was suspended passes the same checks as one made
// on the request: the person must be an approver of that call, in time, with an answer that fits. It allows only the
// action of that request (A6). starters have started the run or a run above it, perhaps again under its key (A10).
func ApplyEarlyDecisions(
	d *agent.Definition, s *run.AgentState, starters []string, valid agent.Validator, now time.Time,
) []run.Event {
	requesters := slices.Concat(s.Requesters(), starters)
	var facts []run.Event
	met := map[string]bool{}
	for _, k := range slices.Backward(s.Kept) { // the newest on a call counts, whatever it was aimed at
		c, ok := FindSuspended(s, k.Target)
		if !ok {
			continue
		}
		fact, why := run.Decided{}, "overtaken by a later decision"
		if !met[c.ID] {
			fact, why = earlyDecision(d, s, c, k, requesters, valid, now)
		}
		met[c.ID] = true
		if why != "" {
			facts = append(facts, run.DecisionDropped{Target: k.Target, Call: c.ID, Why: why})
			continue
		}
		fact.Early = k.Target
		facts = append(facts, fact)
	}
	return facts
}

// missingApprovals says why one early approval is not enough for a call. "" means that it is enough.
func missingApprovals(requesters []string, dec Decision, edited bool, by string, via run.Via) string {
	switch {
	case !dec.Channels.Count(via, ""):
		return "the rule does not let people approve by that channel"
	case dec.FourEyes && slices.Contains(requesters, by):
		return "the run acts for the person who decided"
	case dec.ApproversNeeded(edited) > 1:
		return "it takes several people, each of whom has seen the request"
	default:
		return ""
	}
}

// earlyDecision returns the decision that a kept decision becomes for its call, or why it does not apply.
func earlyDecision(
	d *agent.Definition, s *run.AgentState, c run.Call, k run.DecisionKept, requesters []string, valid agent.Validator,
	now time.Time,
) (fact run.Decided, why string) {
	t, _ := d.Tool(c.Tool)
	dec := DecideIn(d, s, t, c.Input)
	may := func(dec Decision) bool {
		return dec.MayAfter(Principal{ID: k.By, Groups: k.Groups}, now.Sub(c.Wait.Since))
	}
	switch {
	case c.Wait.For != run.ForApproval && c.Wait.For != run.ForInput:
		return fact, "the call waits for something else"
	case !now.Before(c.Wait.Expires):
		return fact, "the request had expired"
	case !may(dec):
		return fact, "not one of the approvers"
	case k.Action == run.ActionApprove && missingApprovals(requesters, dec, c.Editor() != "", k.By, k.Via) != "":
		return fact, missingApprovals(requesters, dec, c.Editor() != "", k.By, k.Via)
	}
	fact = run.Decided{Call: c.ID, Approval: c.Wait.Approval, Action: k.Action, By: k.By, Digest: c.Wait.Digest}
	switch {
	case k.Action == run.ActionDeny:
		fact.Text = agent.TextDenied(k.By, k.Note)
	case k.Action != run.ActionApprove:
		fact.Text = agent.TextCallCancelled(k.By, k.Note)
	case c.Wait.For == run.ForApproval && k.Result != nil && string(k.Result) != "true":
		return fact, "a call that waits for approval takes no result"
	case c.Wait.For == run.ForInput:
		var err error
		if fact, err = ResumeInput(d, s, c, k.Result, k.By, may, valid); err != nil {
			return fact, err.Error()
		}
		if fact.Args != nil { // an answer that takes the arguments' place is an edit, and makes a new action (A8)
			rules := []Decision{dec}
			if is := ActionNow(d, s, c, fact.Args).Rule; is.Verdict == agent.VerdictAsk {
				rules = append(rules, is)
			}
			for _, rule := range rules {
				if why = missingApprovals(requesters, rule, true, k.By, k.Via); why != "" {
					return fact, why
				}
			}
		}
	}
	if fact.Note = k.Note; k.Action == run.ActionApprove {
		fact.ApprovedBy = []run.Approver{{By: k.By, Groups: k.Groups, At: now, Via: k.Via}}
	}
	permits := d.Permission.Scope == agent.ScopeTool && c.Wait.For == run.ForApproval && !c.IsDecidedAlone()
	granting := GrantPolicy(d)
	if k.Action == run.ActionApprove && granting.Standing() {
		permits = false // only a grant with a record keeps its bounds and can be revoked
	}
	if permits && k.Action != run.ActionCancel {
		fact.Permit, fact.Once = ToolDigest(d, s, t, c.Input, dec), k.Action == run.ActionApprove && granting.Once()
	}
	return fact, ""
}

// ResultsByCall finds the result of each call in a conversation that is about to be sent: the last one if a call has
// several. An adapter places each result directly behind its call, and adds one where it is missing. A call with the id
// of another, and a result without a call before it, are errors of the caller; they name the message by its index and
// do not quote it.
func ResultsByCall(messages []run.Message) (map[string]run.ToolResult, error) {
	uses, results := map[string]bool{}, map[string]run.ToolResult{}
	for i, m := range messages {
		switch b := m.Block.(type) {
		case run.ToolUse:
			if uses[b.ID] {
				return nil, fmt.Errorf("message %d is a tool_use whose id is taken", i)
			}
			uses[b.ID] = true
		case run.ToolResult:
			if !uses[b.ID] {
				return nil, fmt.Errorf("message %d is a tool_result without its tool_use", i)
			}
			results[b.ID] = b
		}
	}
	return results, nil
}

// InputExpiry is how long people have to answer a tool's question.
const InputExpiry = 7 * 24 * time.Hour

// The bounds of what a ticket holds: ids in bytes, texts in runes.
const (
	maxTicketID      = 128
	maxTicketAction  = 200
	maxTicketMessage = 4000
)

// NormalizeTicket returns the ticket in its stored form: valid text, compact JSON. The error says what is wrong with
// the ticket; it may be shown to the model.
func NormalizeTicket(t run.Ticket) (run.Ticket, error) {
	if t.Mode != "" && !t.Mode.Valid() {
		return t, fmt.Errorf("mode: got %q, want replay, result or pass", t.Mode)
	}
	for _, id := range []struct{ key, value string }{{"id", t.ID}, {"pending.id", t.Pending.ID},
		{"pending.name", t.Pending.Name}} {
		if len(id.value) > maxTicketID || !isPrintable(id.value) {
			return t, fmt.Errorf("%s: want at most %d bytes that can be shown", id.key, maxTicketID)
		}
	}
	if t.Memo != "" && (t.Mode != "" && t.Mode != run.TicketReplay || !utf8.ValidString(t.Memo)) {
		return t, errors.New("memo: want valid text, of a ticket of mode replay")
	}
	t.Action, t.Message = agent.ValidText(t.Action), agent.ValidText(t.Message)
	if utf8.RuneCountInString(t.Action) > maxTicketAction || utf8.RuneCountInString(t.Message) > maxTicketMessage {
		return t, fmt.Errorf("want an action of at most %d and a message of at most %d characters", maxTicketAction,
			maxTicketMessage)
	}
	for _, raw := range []struct {
		key string
		at  *json.RawMessage
	}{{"parameters", &t.Parameters}, {"responseSchema", &t.ResponseSchema}, {"pending.arguments", &t.Pending.Arguments}} {
		if *raw.at == nil {
			continue
		}
		compact, err := jsonx.CompactJSON(*raw.at, jsonx.JSONLimits{})
		if err != nil {
			return t, fmt.Errorf("%s: %w", raw.key, err)
		}
		*raw.at = compact
	}
	if size := TicketSize(t); size > maxTicket {
		return t, fmt.Errorf("it has %d bytes, want at most %d", size, maxTicket)
	}
	return t, nil
}

// maxTicket bounds a ticket as it is stored, in bytes.
const maxTicket = 32 << 10

// TicketSize returns the length of a stored ticket in bytes.
func TicketSize(t run.Ticket) int {
	raw, err := jsonx.MarshalVerbatim(t)
	if err != nil { // its JSON is checked
		return maxTicket + 1
	}
	return len(raw)
}

// isPrintable reports whether all characters of a text can be seen.
func isPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// AskInput returns the suspension of a call whose tool asked for input with a checked ticket. ran says that the tool
// was entered without a claim. As with a request for approval, the digest binds this action (A6): the answer lets it
// run once.
func AskInput(
	d *agent.Definition, s *run.AgentState, c run.Call, t run.Ticket, ran bool, now time.Time,
) run.CallSuspended {
	spec, _ := d.Tool(c.Tool)
	dec := DecideIn(d, s, spec, c.Input)
	dec.Expires = InputExpiry
	ask := AskFor(d, s, c, dec, now)
	ask.For, ask.Ticket, ask.Ran = run.ForInput, &t, ran
	return *ask
}

// AnswerError says why an answer to a tool's question is refused. Problem may be shown to people.
type AnswerError struct{ Problem string }

func (e *AnswerError) Error() string { return "answer refused: " + e.Problem }

// ErrOtherApprovers says that other people have to approve the call with its changed arguments.
var ErrOtherApprovers = errors.New("the changed call has other approvers")

// ResumeInput returns the event by which the person by answers the question of the waiting call c. No result counts as
// true (presets 3). may reports whether that person may decide a call under a policy decision. The errors are
// *AnswerError, *EditError and ErrOtherApprovers.
func ResumeInput(
	d *agent.Definition, s *run.AgentState, c run.Call, result json.RawMessage, by string, may func(Decision) bool,
	valid agent.Validator,
) (run.Decided, error) {
	t, _ := TicketOf(c)
	answer, err := CompactAnswer(result)
	if err != nil {
		return run.Decided{}, err
	}
	if t.ResponseSchema != nil {
		if err := valid(agent.ToolSpec{Name: "response", Schema: t.ResponseSchema}, answer); err != nil {
			return run.Decided{}, &AnswerError{Problem: "it does not fit the response schema of call " + c.ID + ":\n" +
				err.Error()}
		}
	}
	fact := run.Decided{Call: c.ID, Approval: c.Wait.Approval, Action: run.ActionApprove, By: by, Digest: c.Wait.Digest,
		Result: answer}
	if t.Mode == run.TicketPass && jsonx.JSONKind(answer) != 'b' {
		fact.Args = answer
		var a Amended
		a, err = Amend(d, s, c, answer, may, valid)
		fact.Digest, fact.Policy = a.Digest, a.Policy
	}
	return fact, err
}

// CompactAnswer returns a decision's result in its stored form: true if there is none, or null. Errors are
// *AnswerError.
func CompactAnswer(result json.RawMessage) (json.RawMessage, error) {
	if result == nil || bytes.Equal(bytes.TrimSpace(result), []byte("null")) {
		return json.RawMessage("true"), nil
	}
	answer, err := jsonx.CompactJSON(result, jsonx.JSONLimits{})
	if err != nil {
		return nil, &AnswerError{Problem: err.Error()}
	}
	return answer, nil
}

// EditError says why other arguments of a call are refused. Problem may be shown to people.
type EditError struct{ Problem string }

func (e *EditError) Error() string { return "edited arguments refused: " + e.Problem }

// Amended is a call with other arguments: the digest of that action, its Policy as in CallSuspended, and the verdict.
type Amended struct {
	Digest, Policy string
	Rule           Decision
}

// Amend replaces the arguments of a call that has not run yet. The new arguments are a new action: schema and deny
// rules are checked as if the model had sent them (A8). may reports whether the person who changes them may decide a
// call under a policy decision. The errors are *EditError and ErrOtherApprovers.
func Amend(
	d *agent.Definition, s *run.AgentState, c run.Call, args json.RawMessage, may func(Decision) bool,
	valid agent.Validator,
) (Amended, error) {
	t, known := d.Tool(c.Tool)
	if !known {
		return Amended{}, &EditError{Problem: "the agent has no tool " + c.Tool}
	}
	// The schema is checked first, because deny and ask rules match values of another type.
	if err := agent.ValidArguments(valid, t, args); err != nil {
		return Amended{}, &EditError{Problem: err.Error()}
	}
	if !c.AskedAt.IsZero() { // the call keeps its id, so a service that has received it ignores other arguments
		return Amended{}, &EditError{Problem: c.Name + " may have been asked with the arguments as they are"}
	}
	if err := checkAmendedRaise(c, args); err != nil {
		return Amended{}, err
	}
	dec := DecideIn(d, s, t, args)
	switch {
	case dec.Verdict == agent.VerdictDeny && dec.Ceiling:
		return Amended{}, &EditError{Problem: "the policy of an agent that delegated the run denies them"}
	case dec.Verdict == agent.VerdictDeny:
		return Amended{}, &EditError{Problem: "the agent's policy denies them"}
	case dec.Verdict == agent.VerdictAsk && !may(dec):
		return Amended{}, ErrOtherApprovers
	}
	return ActionNow(d, s, c, args), nil
}

// checkAmendedRaise refuses an edited raise of a budget that leaves out what is used up: the run would only ask again.
func checkAmendedRaise(c run.Call, args json.RawMessage) error {
	if !c.Budget {
		return nil
	}
	asked, err := run.ReadRaise(c.Input)
	if err != nil {
		return &EditError{Problem: err.Error()}
	}
	raise, err := run.ReadRaise(args)
	if err != nil {
		return &EditError{Problem: err.Error()}
	}
	if key := asked.Lacks(raise); key != "" {
		return &EditError{Problem: key + ": got nothing, want it raised: it is used up, and the run would ask again"}
	}
	return nil
}

// ResultText returns the text that the model reads of a JSON result: a string's text, or the JSON of any other value.
func ResultText(raw json.RawMessage) string {
	if text, ok := jsonx.JSONString(raw); ok {
		return text
	}
	return string(raw)
}
