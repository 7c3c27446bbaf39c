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

// Role says who speaks. There is no tool role: results are the user's side of the conversation (seed 000).
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
// Base makes seenCount O(1): a message keeps the count it would have had before the run's first inference, so what
// people see is Base + inferences and an inference touches no message. Source is where the body stands in the journal.
// The zero Message is not valid.
type Message struct {
	Role   Role   `json:"r"`
	Block  Block  `json:"-"`
	Base   int64  `json:"b"`
	Source Source `json:"f"`
}

// Seen is the message's seenCount in a run that has counted so many inferences: the number of successful model calls it
// was in, plus one if the model wrote it.
func (m Message) Seen(inferences int64) int64 { return m.Base + inferences }

// Source names where in the journal a message's body was written: the entry's sequence, the event's index in the entry
// and the message's index among those the event adds. Run is the run of that journal if this one began from it.
type Source struct {
	Seq   int64
	Event int
	Part  int
	Run   string `json:",omitempty"`
}

// SameEvent reports whether both bodies were written by one fact.
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

// Reasoning is what a model thought before, between or behind its text. It is kept byte for byte, as a provider that
// signs it takes it back only unchanged, and it is nobody's to read or send but the model's own: an adapter gives it
// back to the provider and model that wrote it and to no other. Either Redacted is set, or Text and perhaps Signature.
type Reasoning struct {
	Text      string `json:"text,omitempty"`      // may be empty beside a signature
	Signature string `json:"signature,omitempty"` // the provider's proof that the text is the model's; "" = there is none
	Redacted  []byte `json:"redacted,omitempty"`  // what the provider alone can read; never written in place
	Provider  string `json:"provider,omitempty"`  // who wrote it, as in ModelSpec
	Model     string `json:"model,omitempty"`
	// the key under which the provider sent it and takes it back; "" = it has a form of its own
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

// ToolResult answers the ToolUse of the same ID. Either Content holds the text or Blob names it. Where that is only a
// part of what the tool gave, Whole says where all of it is.
type ToolResult struct {
	Blob    string `json:"blob,omitempty"` // digest of the content when it was too large for the journal
	ID      string `json:"id,omitempty"`
	Content string `json:"content"`
	IsError bool   `json:"isError"`
	Whole   *Whole `json:"whole,omitempty"` // nil = the content is all that was kept. Never written in place
}

func (Text) block()       {}
func (Media) block()      {}
func (Reasoning) block()  {}
func (ToolUse) block()    {}
func (ToolResult) block() {}

var blockTypes = typesByName[Block](Text{}, Media{}, Reasoning{}, ToolUse{}, ToolResult{})

// MarshalBlock writes a block as it is stored and shown: its own fields behind the name of its type.
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

// MarshalJSON writes the block itself.
func (b UserBlock) MarshalJSON() ([]byte, error) { return MarshalBlock(b.Block) }

// UnmarshalJSON reads what MarshalBlock wrote. Unknown types, and keys that the type does not have, are an error.
func (b *UserBlock) UnmarshalJSON(data []byte) error {
	var head struct{ Type string }
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("content block: %w", jsonx.WithoutValue(err))
	}
	of, known := blockTypes[head.Type]
	if !known {
		return errors.New("content block: type: want one of: text, media, reasoning, tool_use, tool_result")
	}
	kind := reflect.StructField{Name: "Type", Type: reflect.TypeFor[string](), Tag: `json:"type"`}
	form := append(reflect.VisibleFields(of), kind)
	read, block := reflect.New(reflect.StructOf(form)), reflect.New(of).Elem()
	if err := jsonx.ReadChecked("content block", data, read.Interface()); err != nil {
		return err
	}
	for i := range block.NumField() {
		block.Field(i).Set(read.Elem().Field(i))
	}
	b.Block = block.Interface().(Block)
	return nil
}

// Log is a persistent list that grows at its end and shrinks at its front: Append and DropFront return another list and
// leave the receiver as it was, Append in amortised constant time. Versions share memory; the newest of them grows in
// place and any other copies. The zero Log is empty. Safe for concurrent use, as elements are never changed.
type Log[T any] struct {
	back *logBack[T]
	off  int // elements dropped from the front of back
	n    int // end in back
}

type logBack[T any] struct {
	items []T // len == cap; only items[:used] are set
	used  atomic.Int64
}

// Len is the number of elements.
func (l Log[T]) Len() int { return l.n - l.off }

// At is element i, 0 <= i < Len.
func (l Log[T]) At(i int) T { return l.All()[i] }

// All is a read-only view of the elements, nil where there is none. It must not be written to.
func (l Log[T]) All() []T {
	if l.Len() == 0 {
		return nil
	}
	return l.back.items[l.off:l.n:l.n]
}

// DropFront returns l without its first k elements, 0 <= k <= Len.
func (l Log[T]) DropFront(k int) Log[T] {
	l.off += k
	return l
}

// Map returns the list of what f makes of each element.
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

	LifecycleNudge Lifecycle = "nudge" // the model is asked to go on, with a reply that was cut short or with its work
	LifecycleNotes Lifecycle = "notes" // notes of messages that are about to leave; it quotes the conversation
)

// ForPlan reports whether a request is made for a run's plan. Such a reply is no inference.
func (l Lifecycle) ForPlan() bool {
	return l == LifecyclePlan || l == LifecycleRoute || l == LifecycleSynthesis
}

// Interactions is the quota: Current counts inferences (but a forced summary), Max is frozen when the run starts.
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

// Total is every token, those of the cache too, each counted once.
func (u Usage) Total() int64 { return u.Input + u.Output + u.CacheRead + u.CacheWrite }

// Add sums two usages.
func (u Usage) Add(v Usage) Usage {
	return Usage{u.Input + v.Input, u.Output + v.Output, u.CacheRead + v.CacheRead, u.CacheWrite + v.CacheWrite}
}

// TextFromSystem is a text of the system's within the conversation, where there are only users and assistants.
func TextFromSystem(text string) string { return systemOpen + text + "\n</system-reminder>" }

// IsFromSystem reports whether a text of the conversation is one of the system's.
func IsFromSystem(text string) bool { return strings.HasPrefix(text, systemOpen) }

const systemOpen = "<system-reminder>\n"
