package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/countersign/countersign/internal/jsonx"
)

// Role says which side wrote a message. There is no tool role: results belong to the user's side (seed 000).
type Role string

// The two roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

// Valid reports whether r is one of the two roles.
func (r Role) Valid() bool { return r == RoleUser || r == RoleAssistant }

// Message is one block of one side. A turn with three tool calls is three messages.
//
// Base makes seenCount O(1). It is the count that the message would have had before the run's first inference. The
// count that people see is Base + inferences, so an inference changes no message. Source is the body's place in the
// journal. The zero Message is not valid.
type Message struct {
	Role   Role   `json:"r"`
	Block  Block  `json:"-"`
	Base   int64  `json:"b"`
	Source Source `json:"f"`
}

// Seen returns the message's seenCount after that many inferences of the run: the number of successful model calls that
// contained the message, plus one if the model wrote it.
func (m Message) Seen(inferences int64) int64 { return m.Base + inferences }

// Source is the place of a message's body in a journal: the entry's sequence, the event's index in the entry, and the
// message's index among those of the event. Run is set if the journal belongs to a run from which this one began.
type Source struct {
	Seq   int64
	Event int
	Part  int
	Run   string `json:",omitempty"`
}

// SameEvent reports whether the same fact wrote both bodies.
func (from Source) SameEvent(other Source) bool {
	from.Part = other.Part
	return from == other
}

// Block is the sealed union of message contents: Text, Media, Reasoning, ToolUse, ToolResult.
type Block interface{ block() }

// Text is plain text.
type Text struct {
	Text string `json:"text"`
}

// Media is a picture or a file. Exactly one of Data (base64) and Blob is set.
type Media struct {
	Name      string `json:"name,omitempty"`
	MediaType string `json:"mediaType"`      // RFC 2046, e.g. image/png
	Data      string `json:"data,omitempty"` // base64, inline up to 128 KiB
	Blob      string `json:"blob,omitempty"` // a blob's digest, resolved under the run's tenant only
}

// Reasoning is what a model thought before, between or after its text. It is kept byte for byte, because a provider
// that signs reasoning accepts it only unchanged. It is private to the model: an adapter returns it to the provider and
// model that wrote it, and to no other. Either Redacted is set, or Text with an optional Signature.
type Reasoning struct {
	Text      string `json:"text,omitempty"`      // may be empty if there is a signature
	Signature string `json:"signature,omitempty"` // the provider's proof that the model wrote the text; "" = none
	Redacted  []byte `json:"redacted,omitempty"`  // readable by the provider only; never written in place
	Provider  string `json:"provider,omitempty"`  // provider of the model, as in agent.ModelSpec
	Model     string `json:"model,omitempty"`
	// the key under which the provider sends and accepts it; "" = the provider has a form of its own
	Field string `json:"field,omitempty"`
}

// Empty reports whether there is nothing to keep.
func (r Reasoning) Empty() bool { return r.Text == "" && r.Signature == "" && len(r.Redacted) == 0 }

// ToolUse is a call as the model made it. Input keeps the model's bytes, compacted, and is never decoded into floats.
type ToolUse struct {
	Name  string          `json:"name,omitempty"` // the name the model used
	ID    string          `json:"id,omitempty"`   // unique in the run
	Input json.RawMessage `json:"input,omitempty"`
}

// ToolResult answers the ToolUse with the same ID. The text is in Content or in the blob Blob. If the text is only a
// part of the tool's result, Whole says where the full text is.
type ToolResult struct {
	Blob    string `json:"blob,omitempty"` // digest of the content if it was too large for the journal
	ID      string `json:"id,omitempty"`
	Content string `json:"content"`
	IsError bool   `json:"isError"`
	Whole   *Whole `json:"whole,omitempty"` // nil = no more than the content was kept. Never written in place
}

func (Text) block()       {}
func (Media) block()      {}
func (Reasoning) block()  {}
func (ToolUse) block()    {}
func (ToolResult) block() {}

var blockTypes = typesByName[Block](Text{}, Media{}, Reasoning{}, ToolUse{}, ToolResult{})

// MarshalBlock returns a block as it is stored and shown: the name of its type, followed by its own fields.
func MarshalBlock(b Block) ([]byte, error) {
	if b == nil {
		return nil, errors.New("marshal block: <nil> is not a block")
	}
	body, err := jsonx.MarshalVerbatim(b)
	if err != nil {
		return nil, fmt.Errorf("marshal block: %w", err)
	}
	head := `{"type":"` + nameOf(b) + `"`
	if len(body) > len(`{}`) {
		head += ","
	}
	return append([]byte(head), body[1:]...), nil
}

// MarshalJSON returns the JSON of the block itself.
func (b UserBlock) MarshalJSON() ([]byte, error) { return MarshalBlock(b.Block) }

// UnmarshalJSON parses the output of MarshalBlock. Unknown types, and keys that a type does not have, are errors.
func (b *UserBlock) UnmarshalJSON(data []byte) error {
	var head struct{ Type string }
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("content block: %w", jsonx.WithoutValue(err))
	}
	blockType, known := blockTypes[head.Type]
	if !known {
		return errors.New("content block: type: want one of: text, media, reasoning, tool_use, tool_result")
	}
	kind := reflect.StructField{Name: "Type", Type: reflect.TypeFor[string](), Tag: `json:"type"`}
	form := append(reflect.VisibleFields(blockType), kind)
	read, block := reflect.New(reflect.StructOf(form)), reflect.New(blockType).Elem()
	if err := jsonx.ReadChecked("content block", data, read.Interface()); err != nil {
		return err
	}
	for i := range block.NumField() {
		block.Field(i).Set(read.Elem().Field(i))
	}
	b.Block = block.Interface().(Block)
	return nil
}

// Log is a persistent list that grows at its end and shrinks at its front. Append and dropFront return another list and
// leave the receiver unchanged; Append takes amortised constant time. Versions share memory: the newest one grows in
// place, any other copies. The zero Log is empty. A Log is safe for concurrent use, as elements are never changed.
type Log[T any] struct {
	back *logBack[T]
	off  int // elements dropped from the front of back
	n    int // end in back
}

type logBack[T any] struct {
	items []T // len == cap; only items[:used] are set
	used  atomic.Int64
}

// Len returns the number of elements.
func (l Log[T]) Len() int { return l.n - l.off }

// At returns element i, 0 <= i < Len.
func (l Log[T]) At(i int) T { return l.All()[i] }

// All returns a read-only view of the elements, or nil if there are none. The caller must not write to it.
func (l Log[T]) All() []T {
	if l.Len() == 0 {
		return nil
	}
	return l.back.items[l.off:l.n:l.n]
}

// dropFront returns l without its first k elements, 0 <= k <= Len.
func (l Log[T]) dropFront(k int) Log[T] {
	l.off += k
	return l
}

// Map returns the list of f of each element.
func (l Log[T]) Map(f func(T) T) Log[T] {
	var mapped Log[T]
	for _, v := range l.All() {
		mapped = mapped.Append(f(v))
	}
	return mapped
}

// Append returns l with v at its end.
func (l Log[T]) Append(v T) Log[T] {
	if l.back != nil && l.n < len(l.back.items) && l.back.used.CompareAndSwap(int64(l.n), int64(l.n+1)) {
		l.back.items[l.n] = v
		return Log[T]{l.back, l.off, l.n + 1}
	}
	grown := &logBack[T]{items: make([]T, max(8, 2*l.Len()))}
	end := copy(grown.items, l.All())
	grown.items[end] = v
	grown.used.Store(int64(end + 1))
	return Log[T]{grown, 0, end + 1}
}

// Lifecycle says why the model is called (seed 000).
type Lifecycle string

// The lifecycles.
const (
	LifecycleInit        Lifecycle = "init"                  // the first inference of the conversation
	LifecycleToolResult  Lifecycle = "tool_result"           // results came in
	LifecycleInput       Lifecycle = "input"                 // a new user message came in
	LifecycleOutputError Lifecycle = "output_error_feedback" // the last reply was refused as the run's output
	LifecycleSummary     Lifecycle = "summary"               // the run leaves its loop: one final reply without tools

	LifecyclePlan      Lifecycle = "plan"      // the request is split into steps before the first inference
	LifecycleRoute     Lifecycle = "route"     // a step of the plan becomes a call
	LifecycleSynthesis Lifecycle = "synthesis" // the results of the steps become the answer

	LifecycleNudge Lifecycle = "nudge" // the model has to continue its cut reply or its work
	LifecycleNotes Lifecycle = "notes" // summary of messages before their eviction, which quotes the conversation
)

// ForPlan reports whether a request is made for a run's plan. Its reply is not an inference.
func (l Lifecycle) ForPlan() bool {
	return l == LifecyclePlan || l == LifecycleRoute || l == LifecycleSynthesis
}

// Interactions is the quota. Current counts inferences except a forced summary. Max is fixed when the run starts.
type Interactions struct {
	Current int `json:"current"`
	Max     int `json:"max"`
}

// USD is an amount of US dollars.
type USD = jsonx.USD

// Usage counts tokens.
type Usage struct {
	Input      int64 `json:"input"`
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cacheRead,omitempty"`
	CacheWrite int64 `json:"cacheWrite,omitempty"`
}

// Total returns the number of all tokens, including cached ones, each counted once.
func (u Usage) Total() int64 { return u.Input + u.Output + u.CacheRead + u.CacheWrite }

// Add returns the sum of two usages.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.Input + v.Input, u.Output + v.Output, u.CacheRead + v.CacheRead, u.CacheWrite + v.CacheWrite}
}

// TextFromSystem marks a text as the system's. The conversation has only users and assistants, so it needs a mark. The
// text cannot end the mark.
func TextFromSystem(text string) string {
	return systemOpen + strings.ReplaceAll(text, systemClose, `<\/system-reminder`) + "\n" + systemClose + ">"
}

// IsFromSystem reports whether a text of the conversation was marked by TextFromSystem.
func IsFromSystem(text string) bool { return strings.HasPrefix(text, systemOpen) }

const (
	systemOpen  = "<system-reminder>\n"
	systemClose = "</system-reminder"
)
