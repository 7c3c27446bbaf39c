package standins

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream/eventstreamapi"
)

// Reply is a reply of a model, sent as Frames.
type Reply struct {
	Blocks     []Block
	StopReason string // "" = tool_use if a block is one, else end_turn
	Usage      Usage
	Router     string // the model that a prompt router chose; "" = no trace
}

// Usage counts tokens; Input without the cached ones.
type Usage struct{ Input, Output, CacheRead, CacheWrite int }

// Block is a content block: the pieces that a stream sends, and whole, as a later request has it.
type Block struct {
	Whole  json.RawMessage   // nil = its input is no JSON
	Start  json.RawMessage   // of contentBlockStart; nil = there is none, as with text
	Deltas []json.RawMessage // of contentBlockDelta
}

// Text is a text in pieces.
func Text(pieces ...string) Block {
	b := Block{Whole: withEntry("text", strings.Join(pieces, ""))}
	for _, p := range pieces {
		b.Deltas = append(b.Deltas, withEntry("text", p))
	}
	return b
}

// ToolUse is a call whose input comes in pieces of JSON text.
func ToolUse(id, name string, pieces ...string) Block {
	start := map[string]any{"toolUseId": id, "name": name}
	b := Block{Start: withEntry("toolUse", start)}
	for _, p := range pieces {
		b.Deltas = append(b.Deltas, withEntry("toolUse", map[string]string{"input": p}))
	}
	input := json.RawMessage(strings.Join(pieces, ""))
	if len(input) == 0 {
		input = json.RawMessage(`{}`)
	}
	if json.Valid(input) {
		b.Whole = withEntry("toolUse", map[string]any{"toolUseId": id, "name": name, "input": input})
	}
	return b
}

// Reasoning is a reasoning block with its signature, both in pieces; without one where that is empty.
func Reasoning(signature string, pieces ...string) Block {
	whole := map[string]string{"text": strings.Join(pieces, "")}
	var b Block
	for _, p := range pieces {
		b.Deltas = append(b.Deltas, withEntry("reasoningContent", map[string]string{"text": p}))
	}
	if signature != "" {
		whole["signature"] = signature
		for _, p := range []string{signature[:len(signature)/2], signature[len(signature)/2:]} {
			b.Deltas = append(b.Deltas, withEntry("reasoningContent", map[string]string{"signature": p}))
		}
	}
	b.Whole = withEntry("reasoningContent", map[string]any{"reasoningText": whole})
	return b
}

// Unsigned is a reasoning block of a model that signs none.
func Unsigned(pieces ...string) Block { return Reasoning("", pieces...) }

// Redacted is a reasoning block that only the provider can read, in pieces.
func Redacted(pieces ...[]byte) Block {
	b := Block{Whole: withEntry("reasoningContent", map[string][]byte{"redactedContent": bytes.Join(pieces, nil)})}
	for _, p := range pieces {
		b.Deltas = append(b.Deltas, withEntry("reasoningContent", map[string][]byte{"redactedContent": p}))
	}
	return b
}

// Other is a block of any kind, such as one that the SDK does not know.
func Other(kind string, value any) Block {
	b := withEntry(kind, value)
	return Block{Whole: b, Start: b, Deltas: []json.RawMessage{b}}
}

func (r Reply) serve(w http.ResponseWriter, request *http.Request) {
	Stream{Frames: r.Frames()}.serve(w, request)
}

// end is what comes behind the content.
func (r Reply) end() map[string]any {
	u := r.Usage
	end := map[string]any{
		"usage": map[string]int{
			"inputTokens": u.Input, "outputTokens": u.Output, "totalTokens": u.Input + u.Output + u.CacheRead + u.CacheWrite,
			"cacheReadInputTokens": u.CacheRead, "cacheWriteInputTokens": u.CacheWrite,
		},
		"metrics": map[string]int{"latencyMs": 1},
	}
	if r.Router != "" {
		end["trace"] = map[string]any{"promptRouter": map[string]string{"invokedModelId": r.Router}}
	}
	return end
}

func (r Reply) stopReason() string {
	if r.StopReason != "" {
		return r.StopReason
	}
	for _, b := range r.Blocks {
		if strings.HasPrefix(string(b.Start), `{"toolUse"`) {
			return "tool_use"
		}
	}
	return "end_turn"
}

// Frames are the reply as a stream sends it.
func (r Reply) Frames() []Frame {
	frames := []Frame{Event("messageStart", map[string]string{"role": "assistant"})}
	for i, b := range r.Blocks {
		if b.Start != nil {
			frames = append(frames, Event("contentBlockStart", map[string]any{"contentBlockIndex": i, "start": b.Start}))
		}
		for _, d := range b.Deltas {
			frames = append(frames, Event("contentBlockDelta", map[string]any{"contentBlockIndex": i, "delta": d}))
		}
		frames = append(frames, Event("contentBlockStop", map[string]any{"contentBlockIndex": i}))
	}
	return append(frames, Event("messageStop", map[string]string{"stopReason": r.stopReason()}),
		Event("metadata", r.end()))
}

// withEntry is a JSON object of one member.
func withEntry(key string, value any) json.RawMessage { return encode(map[string]any{key: value}) }

// encode writes JSON that cannot fail: all of it is made in this package or given as JSON by a test.
func encode(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic("standins: " + err.Error())
	}
	return text
}

// Frame is one message of an event stream.
type Frame struct {
	Kind    string // event, exception or error
	Type    string // of the event or exception, or the error's code
	Payload json.RawMessage
}

// Event is an event with its payload, e.g. messageStop.
func Event(kind string, payload any) Frame {
	return Frame{eventstreamapi.EventMessageType, kind, encode(payload)}
}

// Exception is a modelled exception in mid-stream; its kind starts with a small letter, e.g. throttlingException.
func Exception(kind, message string) Frame {
	return Frame{eventstreamapi.ExceptionMessageType, kind, withEntry("message", message)}
}

// Problem is an error that no model describes.
func Problem(code string) Frame { return Frame{Kind: eventstreamapi.ErrorMessageType, Type: code} }

// Stream is a stream written out, for what goes wrong in one.
type Stream struct {
	Frames []Frame
	Cut    int // bytes left off the end, which breaks the last frame
	Flip   int // if not 0, the byte so far from the end is changed, which breaks a checksum
	// if not nil, gets one message when all is sent; the stream then stays open until the client leaves
	Hold chan<- string
	// if not nil, the last frames are sent when it is closed: all but the first ones, whose number Before is
	Before int
	Rest   <-chan struct{}
}

func (s Stream) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
	if s.Rest != nil {
		_, _ = w.Write(Stream{Frames: s.Frames[:s.Before]}.bytes()) // as below
		_ = http.NewResponseController(w).Flush()
		select {
		case <-s.Rest:
		case <-r.Context().Done():
		}
		s.Frames = s.Frames[s.Before:]
	}
	data := s.bytes()
	_, _ = w.Write(data) // a client that hung up is the client's business
	if s.Hold == nil {
		return
	}
	_ = http.NewResponseController(w).Flush() // the same
	s.Hold <- "sent"
	<-r.Context().Done()
}

func (s Stream) bytes() []byte {
	var b bytes.Buffer
	encoder := eventstream.NewEncoder()
	for _, f := range s.Frames {
		if err := encoder.Encode(&b, f.message()); err != nil {
			panic("standins: " + err.Error()) // a buffer takes everything
		}
	}
	data := b.Bytes()[:max(0, b.Len()-s.Cut)]
	if s.Flip > 0 {
		data[len(data)-s.Flip] ^= 1
	}
	return data
}

func (f Frame) message() eventstream.Message {
	m := eventstream.Message{Payload: f.Payload}
	m.Headers.Set(eventstreamapi.MessageTypeHeader, eventstream.StringValue(f.Kind))
	m.Headers.Set(eventstreamapi.ContentTypeHeader, eventstream.StringValue("application/json"))
	kind := eventstreamapi.EventTypeHeader
	switch f.Kind {
	case eventstreamapi.ExceptionMessageType:
		kind = eventstreamapi.ExceptionTypeHeader
	case eventstreamapi.ErrorMessageType:
		kind = eventstreamapi.ErrorCodeHeader
	}
	m.Headers.Set(kind, eventstream.StringValue(f.Type))
	return m
}
