package stream

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
)

// Format is a form in which a stream is written.
type Format string

// The formats.
const (
	Canonical Format = "canonical" // Event as it is
	Arvo      Format = "arvo"      // semantics.md, 1.9
	Cowork    Format = "cowork"    // seed 002
	Forge     Format = "forge"     // seed 004; semantics.md, 5.6
	Agui      Format = "agui"      // the AG-UI protocol; semantics.md, 3.11
	Aisdk     Format = "aisdk"     // the AI SDK's UI message stream; semantics.md, 3.11
)

// encoding writes the events of one entry, and what is told live, in a format. What it writes of an entry depends on nothing else.
type encoding struct {
	events func([]Event) ([]Encoded, error)
	delta  func(Said) Encoded // of text
	pieces func(Said) Encoded // of reasoning and of calls; nil = the format tells nothing of them
	wire   Wire
}

// Wire is what a format wants of server-sent events beside its events. The zero Wire is nothing.
type Wire struct {
	Header, Value string // of the answer
	Last          string // the data behind the last event of a run
}

// Wire is the format's.
func (f Format) Wire() Wire { return encodings()[f].wire }

// encodings is a function, so that programs which tell nobody do not hold them.
func encodings() map[Format]encoding {
	return map[Format]encoding{
		Canonical: {events: canonical, delta: canonicalDelta, pieces: canonicalDelta},
		Arvo:      {events: arvo, delta: arvoDelta, pieces: arvoPiece},
		Cowork:    {events: cowork, delta: coworkDelta},
		Forge:     {events: forge, delta: forgeDelta, pieces: forgePiece},
		Agui:      {events: agui, delta: aguiDelta},
		Aisdk:     {events: aisdk, delta: aisdkDelta, wire: Wire{"x-vercel-ai-ui-message-stream", "v1", "[DONE]"}},
	}
}

// Encoded is an event as a format writes it. Its place is Seq and Index, which count what the format writes.
type Encoded struct {
	Seq   int64
	Index int
	Type  string
	Body  any // its JSON
}

// ReadFormat reads a format's name. The error lists the formats there are.
func ReadFormat(name string) (Format, error) {
	f := Format(name)
	if _, ok := encodings()[f]; !ok {
		names := Formats()
		last := len(names) - 1
		return "", fmt.Errorf("got %q, want %s or %s", name, strings.Join(names[:last], ", "), names[last])
	}
	return f, nil
}

// Formats are the names of the formats, sorted.
func Formats() []string {
	var names []string
	for f := range encodings() {
		names = append(names, string(f))
	}
	slices.Sort(names)
	return names
}

// Encode writes all events of one entry. Some formats have none for many events.
func (f Format) Encode(events []Event) ([]Encoded, error) {
	e, ok := encodings()[f]
	if !ok {
		return nil, fmt.Errorf("encode events: no format %q", f)
	}
	out, err := e.events(events)
	if err != nil {
		return nil, fmt.Errorf("encode events as %s: %w", f, err)
	}
	return out, nil
}

// Delta is a piece of what a model is writing. It is told once, to who listens, and has no place in the stream: the attempt it
// belongs to may fail, and the next says everything anew.
type Delta struct {
	Inference int64 // of the run, from 1
	Attempt   int   // requests made before for this inference
	agent.Delta
}

// Before reports whether e goes on with the same text, reasoning or call of the same attempt.
func (d Delta) Before(e Delta) bool {
	return d.Inference == e.Inference && d.Attempt == e.Attempt && d.Kind == e.Kind && d.Place == e.Place
}

// Said is a piece of what a model is writing as listeners get it.
type Said struct {
	Delta
	Run, Thread string
	Content     string // of the same text, reasoning or arguments in this attempt so far, Text included
	At          time.Time
	who         who
}

// Says is what listeners of run s get.
func Says(s *agent.AgentState, d Delta, content string, at time.Time) Said {
	said := Said{Delta: d, Run: s.Run, Thread: s.Subject, Content: content, At: at, who: whoOf(s)}
	if said.Thread == "" {
		said.Thread = s.Run
	}
	return said
}

// EncodeSaid writes a piece of what a model is writing. Its Seq and Index mean nothing; without a Type the format does not tell it.
func (f Format) EncodeSaid(s Said) (Encoded, error) {
	e, ok := encodings()[f]
	if !ok {
		return Encoded{}, fmt.Errorf("encode text: no format %q", f)
	}
	switch {
	case s.Kind == agent.DeltaText:
		return e.delta(s), nil
	case e.pieces != nil:
		return e.pieces(s), nil
	}
	return Encoded{}, nil
}

func canonical(events []Event) ([]Encoded, error) {
	out := make([]Encoded, len(events))
	for i, e := range events {
		out[i] = Encoded{Seq: e.Seq, Index: e.Index, Type: string(e.Type), Body: e}
	}
	return out, nil
}

// DeltaEvent is a piece of what a model is writing in the canonical form: an Event without a place.
type DeltaEvent struct {
	Type   Type      `json:"type"`
	Run    string    `json:"run_id"`
	Thread string    `json:"thread_id"`
	Time   int64     `json:"timestamp_ms"`
	Step   string    `json:"step_id"`
	Data   DeltaData `json:"data"`
}

// DeltaData is a piece of text, of reasoning, or of a call's arguments, the first of which may be empty: a call begins.
type DeltaData struct {
	Delta   string `json:"delta"`
	Attempt int    `json:"attempt"` // another attempt says everything anew

	// Of a call.
	Index *int   `json:"index,omitempty"` // among the reply's calls, in order of their beginning
	ID    string `json:"id,omitempty"`    // as the model has it; the call of tool_call_start may have another
	Name  string `json:"name,omitempty"`  // of its tool, as the model has it
}

// deltaTypes are the types of pieces.
var deltaTypes = map[agent.DeltaKind]Type{agent.DeltaText: TextDelta, agent.DeltaReasoning: ReasoningDelta, agent.DeltaCall: ToolCallDelta}

func canonicalDelta(s Said) Encoded {
	kind := deltaTypes[s.Kind]
	data := DeltaData{Delta: s.Text, Attempt: s.Attempt}
	if s.Kind == agent.DeltaCall {
		data.Index, data.ID, data.Name = &s.Place, s.Call, s.Name
	}
	return Encoded{Type: string(kind), Body: DeltaEvent{
		Type: kind, Run: s.Run, Thread: s.Thread, Time: s.At.UnixMilli(), Step: stepID(s.Inference), Data: data,
	}}
}
