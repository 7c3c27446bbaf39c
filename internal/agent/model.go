package agent

import (
	"encoding/json"
	"fmt"
	"time"
)

// Request is one inference as the model is asked it, after every transform and before a provider's adapter.
// It is a value that nobody may change: Messages shares memory with the state it was built from.
type Request struct {
	Tenant, Run, Agent string
	Inference          int64 // which of the run's replies this asks for, from 1: an inference, or one for its plan
	Attempt            int   // requests already made for this reply, failed ones; 0 = the first
	Model              ModelSpec
	System             string
	Messages           []Message
	Inferences         int64 // what Message.Seen wants: inferences counted before this call
	Tools              []ToolSpec
	Lifecycle          Lifecycle
	Interactions       Interactions
	Exhausted          bool // a grace call or the forced summary: the quota is used up
	Output             OutputFormat
	Prompts            map[Dialect]PromptText // what sections say, by the dialect of the model that is asked; Prompted has the one that counts
	Turn               string                 // of a prompted request: words before the newest user turn, which no message holds; "" = none
	Late               []string               // calls whose results are new and stand farther up, before what the model said meanwhile
	Notices            Notices                // what WithNotices says
}

// Notices are the definition's words for what the flags of a request mean to a model.
type Notices struct {
	Exhausted string // the quota is used up
	JSONOnly  string // the answer is to be JSON, and the provider cannot be asked for it
}

// OutputFormat is the form that a reply's text is asked for. An adapter asks for it as far as the provider can be asked and
// checks nothing. The zero value is free text.
type OutputFormat struct {
	JSON   bool            // the text is to be one JSON value
	Schema json.RawMessage // of that value; nil = any. Only with JSON
	Name   string          // of the schema, for providers that want one: ^[A-Za-z0-9_-]{1,64}$; "" = the adapter's choice
}

// Lifecycle says why the model is asked (seed 000).
type Lifecycle string

// The lifecycles.
const (
	LifecycleInit        Lifecycle = "init"                  // the first inference of the conversation
	LifecycleToolResult  Lifecycle = "tool_result"           // results came in
	LifecycleInput       Lifecycle = "input"                 // a new user message came in
	LifecycleOutputError Lifecycle = "output_error_feedback" // the last reply was refused as the run's output
	LifecycleSummary     Lifecycle = "summary"               // the quota is used up: one last reply, without tools

	LifecyclePlan      Lifecycle = "plan"      // the request is taken apart into steps, before the first inference
	LifecycleRoute     Lifecycle = "route"     // a step of the plan is to become a call
	LifecycleSynthesis Lifecycle = "synthesis" // what the steps gave is to become the answer
)

// Interactions is the quota: Current counts inferences (but a forced summary), Max is frozen when the run starts.
type Interactions struct {
	Current int `json:"current"`
	Max     int `json:"max"`
}

// Reply is what a model answered. Text and Calls may both be set; neither set is an empty reply.
type Reply struct {
	Model      string // the id of the model that answered
	Text       string
	Calls      []ReplyCall
	StopReason string // the provider's word, for the record; decides nothing but whether a text is said to be cut (CutText)
	Usage      Usage
	Reasoning  []ReplyReasoning // in order; never part of Text
	Truncated  bool             // the limit of output tokens cut the reply short, in the provider's own word
	Place      int              // of the model that answered in the chain: 0 = the first
	At         time.Time        // when it was there; zero = nobody looked
}

// ReplyReasoning is reasoning and where it stood in a reply, in which all text comes before the calls. Places never go back.
type ReplyReasoning struct {
	Reasoning
	AfterText  int // bytes of Text before it
	AfterCalls int // Calls before it; where there are any, so is all of Text, whatever AfterText says
}

// ReplyCall is a tool call as the model wrote it, id and name unchecked. Input is raw JSON as received.
type ReplyCall struct {
	ID    string
	Name  string
	Input json.RawMessage

	Repaired bool // Input is JSON that was made of what the model wrote
}

// Delta is a piece of a reply that a model is writing, as adapters tell it to whoever listens. It is stored nowhere: all of it is in the
// reply, if one comes of it.
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

// OnDelta is told of pieces of the reply to r, in order, before Generate returns. It must not block. A request that fails afterwards has
// shown what is in no reply; Request.Attempt tells attempts apart.
type OnDelta func(r Request, d Delta)

// Usage counts tokens.
type Usage struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cacheRead,omitempty"`
	CacheWrite int64 `json:"cacheWrite,omitempty"`
}

// Total is every token, those of the cache too, each counted once.
func (u Usage) Total() int64 { return u.Input + u.Output + u.CacheRead + u.CacheWrite }

// Add sums two usages.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.Input + v.Input, u.Output + v.Output, u.CacheRead + v.CacheRead, u.CacheWrite + v.CacheWrite}
}

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

// Valid reports whether c is one of the classes.
func (c ModelErrorClass) Valid() bool {
	switch c {
	case ModelThrottled, ModelTimeout, ModelConnection, ModelUnavailable, ModelServer, ModelAuth, ModelInvalid, ModelContextOverflow:
		return true
	}
	return false
}

// Retryable reports whether the same request may be sent again (semantics of seed 001, 3.7); Retry.Repeats, whether it is.
func (c ModelErrorClass) Retryable() bool {
	switch c {
	case ModelThrottled, ModelTimeout, ModelConnection, ModelUnavailable, ModelServer:
		return true
	}
	return false
}

// ModelError is a failed model call. Message is safe to store: it holds no credential and no request content.
type ModelError struct {
	Class   ModelErrorClass
	Model   string
	Message string
	Cause   error // may be nil

	Lasting bool   // the same request to the same model would fail in the same way: it is not made
	Partial *Reply // what there is of a reply whose stream broke off, as Interrupted has it; nil = nothing. ModelSpec.Kept decides
}

func (e *ModelError) Error() string {
	return fmt.Sprintf("model %s: %s: %s", e.Model, e.Class, e.Message)
}

func (e *ModelError) Unwrap() error { return e.Cause }
