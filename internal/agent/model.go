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

// Request is one inference as the model is asked it, after every transform and before a provider's adapter.
// It is a value that nobody may change: Messages shares memory with the state it was built from.
type Request struct {
	Tenant, Run, Agent string
	Inference          int64 // which of the run's replies this asks for, from 1: an inference, or one for its plan
	Attempt            int   // requests already made for this reply, failed ones; 0 = the first
	Model              ModelSpec
	System             string
	Messages           []run.Message
	Inferences         int64 // what Message.Seen wants: inferences counted before this call
	Tools              []ToolSpec
	Lifecycle          run.Lifecycle
	Interactions       run.Interactions
	Exhausted          bool // a grace call or the forced summary: the quota is used up
	Output             OutputFormat
	// what sections say, by the dialect of the model that is asked; Prompted has the one that counts
	Prompts map[Dialect]PromptText
	// of a prompted request: words before the newest user turn, which no message holds; "" = none
	Turn string
	// calls whose results are new and stand farther up, before what the model said meanwhile
	Late    []string
	Notices Notices // what WithNotices says
}

// Notices are the definition's words for what the flags of a request mean to a model.
type Notices struct {
	Exhausted string // the quota is used up
	JSONOnly  string // the answer is to be JSON, and the provider cannot be asked for it
}

// OutputFormat is the form that a reply's text is asked for. An adapter asks for it as far as the provider can be asked
// and checks nothing. The zero value is free text.
type OutputFormat struct {
	JSON   bool            // the text is to be one JSON value
	Schema json.RawMessage // of that value; nil = any. Only with JSON
	Name   string          // of the schema, for providers that want one: ^[A-Za-z0-9_-]{1,64}$; "" = the adapter's choice
}

// Reply is what a model answered. Text and Calls may both be set; neither set is an empty reply.
type Reply struct {
	Model string // the id of the model that answered
	Text  string
	Calls []ReplyCall
	// the provider's word, for the record; decides nothing but whether a text is said to be cut (CutText)
	StopReason string
	Usage      run.Usage
	Reasoning  []run.RepliedReasoning // in order; never part of Text
	Truncated  bool                   // the limit of output tokens cut the reply short, in the provider's own word
	Place      int                    // of the model that answered in the chain: 0 = the first
	At         time.Time              // when it was there; zero = nobody looked
}

// ReplyCall is a tool call as the model wrote it, id and name unchecked. Input is raw JSON as received.
type ReplyCall struct {
	ID    string
	Name  string
	Input json.RawMessage

	Repaired bool // Input is JSON that was made of what the model wrote
}

// Delta is a piece of a reply that a model is writing, as adapters tell it to whoever listens. It is stored nowhere:
// all of it is in the reply, if one comes of it.
type Delta struct {
	Kind DeltaKind
	Text string // the piece, as it came; of a call, of its arguments. "" = a call begins

	// Of a call.
	Place int    // among the calls of the reply as they began, from 0
	Call  string // its id in the model's words, "" = not known yet. What is stored may have another: ids are made unique
	Name  string // of its tool, as the model has it
}

// DeltaKind is what a piece of a reply is of.
type DeltaKind string

// The kinds.
const (
	DeltaText      DeltaKind = "text"
	DeltaReasoning DeltaKind = "reasoning"
	DeltaCall      DeltaKind = "call"
)

// OnDelta is told of pieces of the reply to r, in order, before Generate returns. It must not block. A request that
// fails afterwards has shown what is in no reply; Request.Attempt tells attempts apart.
type OnDelta func(r Request, d Delta)

// ModelErrorClass is why a model call failed; it alone decides whether the call is made again.
type ModelErrorClass string

// The classes; the first five are retried.
const (
	ModelThrottled       ModelErrorClass = "throttled"
	ModelTimeout         ModelErrorClass = "timeout"
	ModelConnection      ModelErrorClass = "connection"
	ModelUnavailable     ModelErrorClass = "unavailable"
	ModelServer          ModelErrorClass = "server"
	ModelAuth            ModelErrorClass = "auth"
	ModelInvalid         ModelErrorClass = "invalid" // the request was refused, or the reply made no sense
	ModelContextOverflow ModelErrorClass = "context_overflow"
)

// ModelErrorClasses are all classes, those that may be retried first.
func ModelErrorClasses() []ModelErrorClass {
	return []ModelErrorClass{
		ModelThrottled, ModelTimeout, ModelConnection, ModelUnavailable, ModelServer, ModelAuth, ModelInvalid,
		ModelContextOverflow,
	}
}

// Valid reports whether c is one of the classes.
func (c ModelErrorClass) Valid() bool { return slices.Contains(ModelErrorClasses(), c) }

// Retryable reports whether the same request may be sent again (presets 5); Retry.Repeats, whether it is.
func (c ModelErrorClass) Retryable() bool { return slices.Contains(ModelErrorClasses()[:5], c) }

// ModelError is a failed model call. Message is safe to store: it holds no credential and no request content.
type ModelError struct {
	Class   ModelErrorClass
	Model   string
	Message string
	Cause   error // may be nil

	Lasting bool // the same request to the same model would fail in the same way: it is not made
	// what there is of a reply whose stream broke off, as Interrupted has it; nil = nothing. ModelSpec.Kept decides
	Partial *Reply
}

func (e *ModelError) Error() string {
	return fmt.Sprintf("model %s: %s: %s", e.Model, e.Class, e.Message)
}

func (e *ModelError) Unwrap() error { return e.Cause }

// XML tunes DialectXML and the loop-breaking tools.
type XML struct {
	MissingServer MissingServer `json:"missingServer,omitempty"`
	Breaker       int           `json:"breaker,omitempty"` // so many identical reminders in a row end the run; 0 = never
	Disable       []string      `json:"disable,omitempty"` // loop-breaking tools that are not offered
}

// LoopBreaking are the tools whose success ends a run under TextRequireTool.
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

// Repeats reports whether the same request is sent to the same model again after e, as far as e alone decides.
func (r Retry) Repeats(e *ModelError) bool {
	return e.Class.Retryable() && !e.Lasting && (r.On == nil || slices.Contains(r.On, e.Class))
}

// MovesOn reports whether the next model of the chain is asked, or in the end the static text stands, when one has
// failed for good with an error of this class. Any other ends the run at once.
func (m ModelSpec) MovesOn(c ModelErrorClass) bool {
	return m.MoveOn == nil || slices.Contains(m.MoveOn, c)
}

// Waits reports whether a run whose chain ended with e waits until its models answer again. Otherwise e ends the run.
func (m ModelSpec) Waits(e *ModelError) bool {
	return m.Busy != BusyFail && e.Class.Retryable() && !e.Lasting && m.MovesOn(e.Class)
}

// Kept is the reply that is made of what was received before e, if the model's replies are kept like that.
func (m ModelSpec) Kept(e *ModelError) (Reply, bool) {
	if m.CutStream != CutStreamKeep || e == nil || e.Partial == nil {
		return Reply{}, false
	}
	return *e.Partial, true
}

// OpenRounds is what RunStarted stores of the wait and resume policies: both where calls may stay open over inferences,
// else nothing.
func (d *Definition) OpenRounds() (run.WaitMode, run.ResumeMode) {
	if d.Wait != run.WaitAllSuspended {
		return "", ""
	}
	return d.Wait, d.Resume
}

// ValidText is text as it is stored, so that whoever plans with it and whoever reads it back have the same, to the
// byte.
func ValidText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// WithNotices is the request as a provider's adapter sends it: with the sections of its prompt, and with what the flags
// of the canonical one mean to a model. That the quota is used up stands behind the system text and behind the
// conversation (seed 000); the forced summary says it itself. JSON of no particular schema, which not every provider
// can be asked for, stands behind the system text. Results that are new and stand farther up are named behind the
// conversation, which would else end with the model's own words. Calls have names that providers take. r is left as it
// is.
func (r Request) WithNotices() Request {
	r = r.Prompted()
	for i, m := range r.Messages {
		if u, ok := m.Block.(run.ToolUse); ok && !ValidWord(u.Name) { // a server would refuse all of the request
			r.Messages, u.Name = slices.Clone(r.Messages), SentName(u.Name)
			r.Messages[i].Block = u
		}
	}
	if r.Turn != "" { // a message before the words of the newest user turn
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

// Once is a user text that stands in this request alone.
func (r Request) Once(text string) run.Message {
	return run.Message{Role: run.RoleUser, Block: run.Text{Text: text}, Base: -r.Inferences}
}

// WithContext is the request with more of the system's words: paragraphs behind the system text, and messages before
// the conversation, in order. r is left as it is.
func (r Request) WithContext(system, session []string) Request {
	for _, text := range system {
		r.System = Paragraphs(r.System, text)
	}
	messages := make([]run.Message, len(session))
	for i, text := range session {
		messages[i] = r.Once(run.TextFromSystem(text))
	}
	r.Messages = slices.Concat(messages, r.Messages)
	return r
}

// Paragraphs joins two texts by an empty line; an empty first text is left out.
func Paragraphs(first, second string) string {
	if first == "" {
		return second
	}
	return first + "\n\n" + second
}

// ParentSubject is the correlation key that travels in a start's input and is not the model's business (seed 000).
const ParentSubject = "parentSubject$$"

// WithoutParent drops the parent-subject key of an object and keeps the order and digits of the rest.
func WithoutParent(raw json.RawMessage) (json.RawMessage, error) {
	return editMembers(raw, func(key string, value json.RawMessage) (json.RawMessage, error) {
		if key == ParentSubject {
			return nil, nil
		}
		return value, nil
	})
}

// editMembers is an object with what edit makes of each member's value, nil for a member that goes. What is no object
// stays as it is.
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
		name, _ := k.(string) // the decoder lets only strings be keys
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

// JSONAsked asks for JSON of the output's schema where the provider is not asked.
func (r Request) JSONAsked() string {
	asked := cmp.Or(r.Notices.JSONOnly, (&Definition{}).Word(wordJSONOnly, nil))
	if len(r.Output.Schema) == 0 {
		return asked
	}
	return asked + " It has to fit this JSON Schema:\n" + string(r.Output.Schema)
}

// WritesCalls reports whether a model of the chain writes its calls as text.
func (d *Definition) WritesCalls() bool {
	return slices.ContainsFunc(d.Model.Chain(), func(m ModelSpec) bool { return m.Dialect == DialectXML })
}

// ParseUSD reads a price or a limit: a JSON number from 0 to 1000000 with at most six decimals. It never rounds.
func ParseUSD(s string) (run.USD, error) {
	u, ok := jsonx.ParseUSD(s)
	if !ok || u > 1_000_000*jsonx.UsdUnit || u%(jsonx.UsdUnit/1_000_000) != 0 {
		return 0, jsonx.ErrUSD
	}
	return u, nil
}

// Price is what a model costs, in USD a million tokens.
type Price struct {
	Input      run.USD  `json:"input"`
	Output     run.USD  `json:"output"`
	CacheRead  *run.USD `json:"cacheRead,omitempty"`  // nil = as input
	CacheWrite *run.USD `json:"cacheWrite,omitempty"` // nil = as input
}

// Of is what a reply with that usage costs; nothing where no price is known.
func (p *Price) Of(u run.Usage) run.USD {
	if p == nil {
		return 0
	}
	read, write := cmp.Or(p.CacheRead, &p.Input), cmp.Or(p.CacheWrite, &p.Input)
	return p.Input.Of(u.Input).Add(p.Output.Of(u.Output)).Add(read.Of(u.CacheRead)).Add(write.Of(u.CacheWrite))
}
