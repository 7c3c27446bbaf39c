package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// Request is one inference request, after every transform and before the provider's adapter. It must not be changed:
// Messages shares memory with the state it was built from.
type Request struct {
	Tenant, Run, Agent string
	Inference          int64 // number of the run's reply that this asks for, from 1, planning included
	Attempt            int   // failed requests for this reply so far; 0 = the first attempt
	Model              ModelSpec
	System             string
	Messages           []run.Message
	Inferences         int64 // the argument of Message.Seen: inferences counted before this call
	Tools              []ToolSpec
	Lifecycle          run.Lifecycle
	Interactions       run.Interactions
	Exhausted          bool // the quota is used up: this is a grace call or the forced summary
	Output             OutputFormat
	// rendered sections, by the dialect of the model; Prompted picks the one that applies
	Prompts map[Dialect]PromptText
	// set by Prompted: text before the newest user turn that no message holds; "" = none
	Turn string
	// calls whose new results are further up in the conversation, before newer text of the model
	Late    []string
	Notices Notices // texts that WithNotices adds
}

// Notices are the definition's texts that tell a model what the flags of a request mean.
type Notices struct {
	Exhausted string // the quota is used up
	JSONOnly  string // the answer has to be JSON, and the provider has no option for it
}

// OutputFormat is the form in which a reply's text is requested. An adapter requests it as far as the provider can, and
// checks nothing. The zero value is free text.
type OutputFormat struct {
	JSON   bool            // the text has to be one JSON value
	Schema json.RawMessage // schema of that value; nil = any. Only with JSON
	// name of the schema for providers that need one: ^[A-Za-z0-9_-]{1,64}$; "" = the adapter chooses
	Name string
}

// Reply is a model's answer. Text and Calls may both be set. If neither is set, the reply is empty.
type Reply struct {
	Model string // the id of the model that answered
	Text  string
	Calls []ReplyCall
	// as the provider names it, for the record. It only decides whether CutText marks a text as cut
	StopReason string
	Usage      run.Usage
	Reasoning  []run.RepliedReasoning // in order; never part of Text
	Truncated  bool                   // the provider reports that the output limit cut the reply
	Place      int                    // place in the chain of the model that answered; 0 = the first
	At         time.Time              // when the reply arrived; zero = not recorded
}

// ReplyCall is a tool call as the model wrote it. ID and Name are unchecked, Input is raw JSON as received.
type ReplyCall struct {
	ID    string
	Name  string
	Input json.RawMessage

	Repaired bool // Input was repaired: it is not what the model wrote
}

// Delta is a piece of a reply that a model is still writing. Adapters pass it to an OnDelta. It is never stored, since
// the finished reply contains all of it.
type Delta struct {
	Kind DeltaKind
	Text string // the piece as received; for a call, a piece of its arguments. "" = a call begins

	// Set for calls only.
	Place int    // position among the calls of the reply, from 0
	Call  string // the model's id of the call; "" = not known yet. The stored id may differ, because stored ids are unique
	Name  string // model-facing name of the tool
}

// DeltaKind is the part of a reply that a Delta belongs to.
type DeltaKind string

// The kinds.
const (
	DeltaText      DeltaKind = "text"
	DeltaReasoning DeltaKind = "reasoning"
	DeltaCall      DeltaKind = "call"
)

// OnDelta receives pieces of the reply to r, in order, before Generate returns. It must not block. A request that fails
// later has already shown pieces that no reply contains; Request.Attempt tells the attempts apart.
type OnDelta func(r Request, d Delta)

// ModelErrorClass is the reason of a failed model call. The class alone decides whether the call is retried.
type ModelErrorClass string

// The classes. The first five are retryable.
const (
	ModelThrottled       ModelErrorClass = "throttled"
	ModelTimeout         ModelErrorClass = "timeout"
	ModelConnection      ModelErrorClass = "connection"
	ModelUnavailable     ModelErrorClass = "unavailable"
	ModelServer          ModelErrorClass = "server"
	ModelAuth            ModelErrorClass = "auth"
	ModelInvalid         ModelErrorClass = "invalid" // the provider refused the request, or the reply was unusable
	ModelContextOverflow ModelErrorClass = "context_overflow"
)

// ModelErrorClasses returns all classes, the retryable ones first.
func ModelErrorClasses() []ModelErrorClass {
	return []ModelErrorClass{
		ModelThrottled, ModelTimeout, ModelConnection, ModelUnavailable, ModelServer, ModelAuth, ModelInvalid,
		ModelContextOverflow,
	}
}

// Valid reports whether c is one of the classes.
func (c ModelErrorClass) Valid() bool { return slices.Contains(ModelErrorClasses(), c) }

// Retryable reports whether the same request may be sent again. Retry.Repeats decides whether it is (presets 5).
func (c ModelErrorClass) Retryable() bool { return slices.Contains(ModelErrorClasses()[:5], c) }

// ModelError is a failed model call. Message is safe to store: it holds no credential and no request content.
type ModelError struct {
	Class   ModelErrorClass
	Model   string
	Message string
	Cause   error // may be nil

	Lasting bool // the same request to the same model would fail again, so it is not retried
	// the part of a reply that arrived before its stream broke off, as Interrupted returns it; nil = nothing.
	// ModelSpec.Kept decides about it
	Partial *Reply
}

func (e *ModelError) Error() string {
	return fmt.Sprintf("model %s: %s: %s", e.Model, e.Class, e.Message)
}

func (e *ModelError) Unwrap() error { return e.Cause }

// XML configures DialectXML and the tools that end a run.
type XML struct {
	MissingServer MissingServer `json:"missingServer,omitempty"`
	// number of identical reminders in a row that ends the run; 0 = never
	Breaker int      `json:"breaker,omitempty"`
	Disable []string `json:"disable,omitempty"` // tools that end a run and are not offered
}

// LoopBreaking lists the tools whose success ends a run under TextRequireTool.
var LoopBreaking = []string{"task_completion", "ask_question", "converse"}

func (c *checker) dialect(d *Definition) {
	for i, m := range d.Model.Chain() {
		c.enumOrNone(chainPath(i)+".dialect", m.Dialect)
	}
	c.enumOrNone("xml.missingServer", d.XML.MissingServer)
	c.that(d.XML.Breaker >= 0, "xml.breaker", "got %d, want zero or more", d.XML.Breaker)
	for i, name := range d.XML.Disable {
		oneOf(c, fmt.Sprintf("xml.disable[%d]", i), name, LoopBreaking...)
	}
	none := d.Text == TextRequireTool && len(d.LoopBreaking()) == 0
	c.that(!none, "xml.disable", "got every tool that ends a run, want one of them left%s",
		map[bool]string{true: ": " + ToolCompletion}[d.Output.Format == OutputJSON])
	var reserved []string
	if d.Text == TextRequireTool {
		reserved = LoopBreaking
	}
	for i, r := range d.Permission.Rules {
		c.that(r.Verdict == VerdictAllow || !slices.Contains(reserved, r.Tool), fmt.Sprintf("permission.rules[%d].tool", i),
			"got %s, which only ends the run and is nobody's to decide about, want another tool: xml.disable takes it away",
			r.Tool)
	}
	for i, t := range d.Tools {
		path := fmt.Sprintf("tools[%d].name", i)
		raises := slices.ContainsFunc(d.budgetTools(), func(b ToolSpec) bool { return b.ModelName() == t.ModelName() })
		c.that(!raises, path, "got %s, want another name: limits.onBudget: ask has that tool of itself", t.Name)
		c.that(!slices.Contains(reserved, t.ModelName()), path,
			"got %s, which is %s to the model, want another name: text: require_tool has that tool of itself", t.Name,
			t.ModelName())
	}
}

// Repeats reports whether e allows the same request to be sent to the same model again.
func (r Retry) Repeats(e *ModelError) bool {
	return e.Class.Retryable() && !e.Lasting && (r.On == nil || slices.Contains(r.On, e.Class))
}

// MovesOn reports whether a final failure of this class leads to the next model of the chain, or after the last one to
// the static text. Other classes end the run at once.
func (m ModelSpec) MovesOn(c ModelErrorClass) bool {
	return m.MoveOn == nil || slices.Contains(m.MoveOn, c)
}

// Waits reports whether a run whose chain failed with e waits until its models answer again. Otherwise e ends the run.
func (m ModelSpec) Waits(e *ModelError) bool {
	return m.Busy != BusyFail && e.Class.Retryable() && !e.Lasting && m.MovesOn(e.Class)
}

// Kept returns the partial reply that was received before e, if the model keeps such replies.
func (m ModelSpec) Kept(e *ModelError) (Reply, bool) {
	if m.CutStream != CutStreamKeep || e == nil || e.Partial == nil {
		return Reply{}, false
	}
	return *e.Partial, true
}

// OpenRounds returns the wait and resume policies that RunStarted stores. Both are "" unless calls may stay open over
// several inferences.
func (d *Definition) OpenRounds() (run.WaitMode, run.ResumeMode) {
	if d.Wait != run.WaitAllSuspended {
		return "", ""
	}
	return d.Wait, d.Resume
}

// ValidText returns s as valid UTF-8, the form in which texts are stored. So all its readers get the same bytes.
func ValidText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// WithNotices returns the request as an adapter sends it, with its prompt sections and with texts for its flags. r is
// not changed.
//
// The notice that the quota is used up is added behind the system text and behind the conversation (seed 000). The
// forced summary gets no such notice, since its own text says so. A request for JSON without a schema is added to the
// system text, because not every provider has an option for it. Late results are named behind the conversation, which
// would otherwise end with the model's own text. Calls get names that every provider accepts.
func (r Request) WithNotices() Request {
	r = r.Prompted()
	for i, m := range r.Messages {
		if u, ok := m.Block.(run.ToolUse); ok && !ValidWord(u.Name) { // a server would refuse the whole request
			r.Messages, u.Name = slices.Clone(r.Messages), SentName(u.Name)
			r.Messages[i].Block = u
		}
	}
	if r.Turn != "" { // insert a message before the text of the newest user turn
		r.Messages, r.Turn = slices.Insert(slices.Clone(r.Messages), turnIndex(r.Messages), r.Once(r.Turn)), ""
	}
	if len(r.Late) > 0 {
		r.Messages = append(slices.Clip(r.Messages), r.Once(textLateResults(r.Messages, r.Late)))
	}
	if r.Exhausted && r.Lifecycle != run.LifecycleSummary {
		notice := cmp.Or(r.Notices.Exhausted, (&Definition{}).Notices(r).Exhausted)
		r.System = Paragraphs(r.System, notice)
		r.Messages = append(slices.Clip(r.Messages), r.Once(notice))
	}
	if r.Output.JSON && len(r.Output.Schema) == 0 {
		r.System = Paragraphs(r.System, cmp.Or(r.Notices.JSONOnly, (&Definition{}).Notices(r).JSONOnly))
	}
	return r
}

// Once returns a user message that is part of this request only.
func (r Request) Once(text string) run.Message {
	return run.Message{Role: run.RoleUser, Block: run.Text{Text: text}, Base: -r.Inferences}
}

// WithContext returns the request with more system text: paragraphs behind the system text, and messages before the
// conversation, in order. r is not changed.
func (r Request) WithContext(system, session []string) Request {
	for _, text := range system {
		r.System = Paragraphs(r.System, text)
	}
	if len(session) == 0 {
		return r
	}
	messages := run.Map(session, func(text string) run.Message { return r.Once(run.TextFromSystem(text)) })
	r.Messages = slices.Concat(messages, r.Messages)
	return r
}

// Paragraphs joins two texts by an empty line. If the first text is empty, it returns the second.
func Paragraphs(first, second string) string {
	if first == "" {
		return second
	}
	return first + "\n\n" + second
}

// ParentSubject is the correlation key in a start's input. It is hidden from the model (seed 000).
const ParentSubject = "parentSubject$$"

// WithoutParent removes the parent-subject key from an object. The order and the digits of the rest stay the same.
func WithoutParent(raw json.RawMessage) (json.RawMessage, error) {
	return editMembers(raw, func(key string, value json.RawMessage) (json.RawMessage, error) {
		if key == ParentSubject {
			return nil, nil
		}
		return value, nil
	})
}

// editMembers returns an object in which edit has replaced the value of each member. A nil value removes the member.
// JSON that is not an object is returned unchanged.
func editMembers(
	raw json.RawMessage, edit func(key string, value json.RawMessage) (json.RawMessage, error),
) (json.RawMessage, error) {
	if jsonx.JSONKind(raw) != '{' {
		return raw, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	out := []byte{'{'}
	for d.More() {
		k, err := d.Token()
		if err != nil {
			return nil, err
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, err
		}
		name, _ := k.(string) // the decoder accepts only strings as keys
		if v, err = edit(name, v); err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		key, _ := jsonx.MarshalVerbatim(name) // a string always marshals
		out = append(append(append(out, key...), ':'), v...)
	}
	return append(out, '}'), nil
}

// WithJSONAsked returns the request with its output's form in the system text alone: the provider has no option for it,
// or none that leaves the model free to call a tool.
func (r Request) WithJSONAsked() Request {
	asked := cmp.Or(r.Notices.JSONOnly, (&Definition{}).Word(wordJSONOnly, nil))
	if len(r.Output.Schema) > 0 {
		asked += " It has to fit this JSON Schema:\n" + string(r.Output.Schema)
	}
	r.System, r.Output = Paragraphs(r.System, asked), OutputFormat{}
	return r
}

// WritesCalls reports whether any model of the chain writes its calls as text.
func (d *Definition) WritesCalls() bool {
	return slices.ContainsFunc(d.Model.Chain(), func(m ModelSpec) bool { return m.Dialect == DialectXML })
}

// ParseUSD parses a price or a limit: a JSON number from 0 to 1000000 with at most six decimals. It never rounds.
func ParseUSD(s string) (run.USD, error) {
	u, ok := jsonx.ParseUSD(s)
	if !ok || u > 1_000_000*jsonx.UsdUnit || u%(jsonx.UsdUnit/1_000_000) != 0 {
		return 0, jsonx.ErrUSD
	}
	return u, nil
}

// Price is what a model costs, in USD per million tokens.
type Price struct {
	Input      run.USD  `json:"input"`
	Output     run.USD  `json:"output"`
	CacheRead  *run.USD `json:"cacheRead,omitempty"`  // nil = as input
	CacheWrite *run.USD `json:"cacheWrite,omitempty"` // nil = as input
}

// Of returns the cost of a reply with that usage. A nil price costs nothing.
func (p *Price) Of(u run.Usage) run.USD {
	if p == nil {
		return 0
	}
	read, write := cmp.Or(p.CacheRead, &p.Input), cmp.Or(p.CacheWrite, &p.Input)
	return p.Input.Of(u.Input).Add(p.Output.Of(u.Output)).Add(read.Of(u.CacheRead)).Add(write.Of(u.CacheWrite))
}
