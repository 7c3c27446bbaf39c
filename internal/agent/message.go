package agent

import (
	"encoding/json"
	"errors"
	"fmt"
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

// Message is one block said by one side. A turn with three tool calls is three messages.
//
// Base makes seenCount O(1): a message keeps the count it would have had before the run's first inference, so what people
// see is Base + inferences and an inference touches no message. Source is where the body stands in the journal.
// The zero Message is not valid.
type Message struct {
	Role   Role
	Block  Block
	Base   int64
	Source Source
}

// Seen is the message's seenCount in a run that has counted so many inferences: the number of successful model calls it
// was in, plus one if the model wrote it.
func (m Message) Seen(inferences int64) int64 { return m.Base + inferences }

// Source names where in the journal a message's body was written: the entry's sequence, the event's index in the entry and
// the message's index among those the event adds. Run is the run whose journal that is where it is another one's, from which this
// one began.
type Source struct {
	Seq   int64
	Event int
	Part  int
	Run   string `json:",omitempty"`
}

// sameEvent reports whether both bodies were written by one fact.
func (from Source) sameEvent(other Source) bool {
	from.Part = other.Part
	return from == other
}

// Block is the sealed union of message contents: Text, Media, Reasoning, ToolUse, ToolResult.
type Block interface{ block() }

// Text is plain text.
type Text struct{ Text string }

// Media is a picture or a file. Exactly one of Data (base64) and Blob is set.
type Media struct {
	Name      string `json:"name,omitempty"`
	MediaType string `json:"mediaType"`      // RFC 2046, e.g. image/png
	Data      string `json:"data,omitempty"` // base64, inline up to 128 KiB
	Blob      string `json:"blob,omitempty"` // a blob's digest, resolved under the run's tenant only
}

// Reasoning is what a model thought before, between or behind its words. It is kept byte for byte, because a provider that signs
// reasoning takes it back only unchanged, and it is nobody's to read or send but the model's own: an adapter gives it back to the
// provider and model that wrote it and to no other. Either Redacted is set, or Text and perhaps Signature.
type Reasoning struct {
	Text      string // may be empty beside a signature
	Signature string // the provider's proof that the text is the model's; "" = there is none
	Redacted  []byte // what the provider alone can read; never written in place
	Provider  string // who wrote it, as in ModelSpec
	Model     string
	Field     string // the key under which the provider sent it and takes it back; "" = it has a form of its own
}

// empty reports whether there is nothing to keep.
func (r Reasoning) empty() bool { return r.Text == "" && r.Signature == "" && len(r.Redacted) == 0 }

// ToolUse is a call as the model made it. Input keeps the model's bytes, compacted, and is never decoded into floats.
type ToolUse struct {
	ID    string // unique in the run
	Name  string // the name the model used
	Input json.RawMessage
}

// ToolResult answers the ToolUse of the same ID. Either Content holds the text or Blob names it. Where that is only a part of what the
// tool gave, Whole says where all of it is.
type ToolResult struct {
	ID      string
	Content string
	Blob    string // digest of the content when it was too large for the journal; empty = Content holds it
	IsError bool
	Whole   *Whole // nil = the content is all there is, or all that was kept. Never written in place
}

func (Text) block()       {}
func (Media) block()      {}
func (Reasoning) block()  {}
func (ToolUse) block()    {}
func (ToolResult) block() {}

// blockJSON is the stored and shown form of every block: flat, told apart by type.
type blockJSON struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Name      string          `json:"name,omitempty"`
	MediaType string          `json:"mediaType,omitempty"`
	Data      string          `json:"data,omitempty"`
	Blob      string          `json:"blob,omitempty"`
	ID        string          `json:"id,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	Content   *string         `json:"content,omitempty"`
	Signature string          `json:"signature,omitempty"`
	Redacted  []byte          `json:"redacted,omitempty"` // base64
	Provider  string          `json:"provider,omitempty"`
	Model     string          `json:"model,omitempty"`
	Field     string          `json:"field,omitempty"`
	IsError   *bool           `json:"isError,omitempty"` // always written for a tool_result
	Whole     *Whole          `json:"whole,omitempty"`
}

// MarshalBlock writes a block as JSON in the form of the HTTP API.
func MarshalBlock(b Block) ([]byte, error) {
	switch b := b.(type) {
	case Text:
		return MarshalVerbatim(struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}{"text", b.Text})
	case Media:
		return MarshalVerbatim(blockJSON{Type: "media", Name: b.Name, MediaType: b.MediaType, Data: b.Data, Blob: b.Blob})
	case Reasoning:
		return MarshalVerbatim(blockJSON{
			Type: "reasoning", Text: b.Text, Signature: b.Signature, Redacted: b.Redacted, Provider: b.Provider, Model: b.Model, Field: b.Field,
		})
	case ToolUse:
		return MarshalVerbatim(blockJSON{Type: "tool_use", ID: b.ID, Name: b.Name, Input: b.Input})
	case ToolResult:
		return MarshalVerbatim(blockJSON{Type: "tool_result", ID: b.ID, Content: &b.Content, Blob: b.Blob, IsError: &b.IsError, Whole: b.Whole})
	default:
		return nil, fmt.Errorf("marshal block: %T is not a block", b)
	}
}

// UnmarshalBlock reads what MarshalBlock wrote. Unknown types are an error; unknown keys are left to the caller's strictness.
func UnmarshalBlock(data []byte) (Block, error) {
	var j blockJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return nil, fmt.Errorf("unmarshal block: %w", err)
	}
	switch j.Type {
	case "text":
		return Text{Text: j.Text}, nil
	case "media":
		return Media{Name: j.Name, MediaType: j.MediaType, Data: j.Data, Blob: j.Blob}, nil
	case "reasoning":
		return Reasoning{Text: j.Text, Signature: j.Signature, Redacted: j.Redacted, Provider: j.Provider, Model: j.Model, Field: j.Field}, nil
	case "tool_use":
		return ToolUse{ID: j.ID, Name: j.Name, Input: j.Input}, nil
	case "tool_result":
		r := ToolResult{ID: j.ID, Blob: j.Blob, IsError: j.IsError != nil && *j.IsError, Whole: j.Whole}
		if j.Content != nil {
			r.Content = *j.Content
		}
		return r, nil
	default:
		return nil, errors.New("content block: type: want one of: text, media, reasoning, tool_use, tool_result")
	}
}
