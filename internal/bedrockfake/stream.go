package bedrockfake

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream/eventstreamapi"
)

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
	return Frame{eventstreamapi.ExceptionMessageType, kind, object("message", message)}
}

// Problem is an error that no model describes.
func Problem(code string) Frame { return Frame{Kind: eventstreamapi.ErrorMessageType, Type: code} }

// Stream is a stream written out, for what goes wrong in one. A Stream that answers Converse is a mistake of the test
// and refused.
type Stream struct {
	Frames []Frame
	Cut    int // bytes left off the end, which breaks the last frame
	Flip   int // if not 0, the byte so far from the end is changed, which breaks a checksum
	// if not nil, gets one message when all is sent; the stream then stays open until the client leaves
	Hold chan<- string
}

func (s Stream) serve(w http.ResponseWriter, r *http.Request, stream bool) {
	if !stream {
		invalid("this answer can only be streamed").serve(w, r, stream)
		return
	}
	data := s.bytes()
	w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
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
			panic("bedrockfake: " + err.Error()) // a buffer takes everything
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
