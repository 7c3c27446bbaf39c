package stream

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
)

// Format is an encoding of events.
type Format string

// The formats.
const (
	Canonical Format = "canonical" // Event as it is
	Arvo      Format = "arvo"      // seed 000
	Cowork    Format = "cowork"    // seed 002
	Forge     Format = "forge"     // seed 004
	Agui      Format = "agui"      // the AG-UI protocol
	Aisdk     Format = "aisdk"     // the AI SDK's UI message stream, version 1
)

// encoding is how a format writes events. Its output for an entry depends on the entry's events only.
type encoding struct {
	event func(w *writer, e Event)                        // calls w.emit for each event of the format
	frame func(e Event, id, name string, data object) any // returns the JSON of one event; id is "" for a live piece
}

var encodings = map[Format]encoding{
	Canonical: {event: (*writer).writeCanonical},
	Arvo:      {event: (*writer).writeArvo, frame: arvoFrame},
	Cowork:    {event: (*writer).writeCowork, frame: namedFrame},
	Forge:     {event: (*writer).writeForge, frame: namedFrame},
	Agui:      {event: (*writer).writeAgui, frame: aguiFrame},
	Aisdk:     {event: (*writer).writeAisdk, frame: aisdkFrame},
}

// Last is the data behind the last server-sent event of a run; "" = there is none.
func (f Format) Last() string { return map[Format]string{Aisdk: "[DONE]"}[f] }

// Formats returns the names of the formats, sorted.
func Formats() []string {
	var names []string
	for _, f := range slices.Sorted(maps.Keys(encodings)) {
		names = append(names, string(f))
	}
	return names
}

// Valid reports whether there is such a format.
func (f Format) Valid() bool { return encodings[f].event != nil }

// Encoded is an event as a format writes it. Seq and Index are its place; Index counts the format's events of an
// entry.
type Encoded struct {
	Seq   int64
	Index int
	Type  string
	Body  any // its JSON
}

// Encode encodes all events of one entry in a valid format. Many formats leave some events out.
func (f Format) Encode(events []Event) ([]Encoded, error) {
	w := &writer{form: encodings[f], entry: events}
	for _, w.now = range events {
		w.form.event(w, w.now)
	}
	if w.err != nil {
		return nil, fmt.Errorf("encode events as %s: %w", f, w.err)
	}
	return w.out, nil
}

// Delta is a piece of a reply that a model is writing. It is sent once and has no place in the stream, because the
// attempt may fail and the next attempt writes everything again.
type Delta struct {
	Inference int64 // of the run, from 1
	Attempt   int   // requests made before for this inference
	agent.Delta
}

// Precedes reports whether e continues the same text, reasoning or call of the same attempt.
func (d Delta) Precedes(e Delta) bool {
	return d.Inference == e.Inference && d.Attempt == e.Attempt && d.Kind == e.Kind && d.Place == e.Place
}

// EncodeLive encodes a piece of the reply of run s. Content is all of the same text, reasoning or arguments in this
// attempt so far, this piece included. The result has no place. Its Type is empty if the format has no event for the
// piece, or allows none now.
func (f Format) EncodeLive(s *run.AgentState, d Delta, content string, at time.Time) Encoded {
	if f == Agui && s.Status == run.RunWaiting { // its next attempt begins with the reply's entry
		return Encoded{}
	}
	data := DeltaData{Delta: d.Text, Attempt: d.Attempt, content: content}
	if d.Kind == agent.DeltaCall {
		data.Index, data.ID, data.Name = &d.Place, d.Call, d.Name
	}
	kinds := map[agent.DeltaKind]Type{
		agent.DeltaText: TextDelta, agent.DeltaReasoning: ReasoningDelta, agent.DeltaCall: ToolCallDelta,
	}
	e := newEvent(s, kinds[d.Kind], at)
	e.Step, e.Data = stepID(d.Inference), data
	w := &writer{form: encodings[f], now: e, live: true}
	w.form.event(w, e)
	return append(w.out, Encoded{})[0]
}

// writer encodes the events of one entry, or one live piece.
type writer struct {
	form  encoding
	entry []Event // all events of the entry
	now   Event   // the event that is being written
	live  bool    // now is a piece of what a model is writing
	out   []Encoded
	err   error // the first
}

// emit adds one event of the format: its name and its fields, as in object.
func (w *writer) emit(name string, fields ...any) {
	id, n := "", len(w.out)
	if !w.live {
		id = fmt.Sprintf("%d.%d", w.now.Seq, n)
	}
	w.out = append(w.out, Encoded{Seq: w.now.Seq, Index: n, Type: name, Body: w.form.frame(w.now, id, name, fields)})
}

// findReply returns the reply of a step that starts in the entry.
func (w *writer) findReply(step string) (d InferenceDoneData) {
	for _, e := range w.entry {
		if d, ok := e.Data.(InferenceDoneData); ok && e.Step == step {
			return d
		}
	}
	return d
}

func (w *writer) writeCanonical(e Event) {
	encoded := Encoded{Seq: e.Seq, Index: e.Index, Type: string(e.Type), Body: e}
	if w.live {
		encoded.Body = newLiveObject(e)
	}
	w.out = append(w.out, encoded)
}

// newLiveObject returns a live piece in the canonical form: an Event without a place.
func newLiveObject(e Event) object {
	return object{
		"type", e.Type, "run_id", e.Run, "thread_id", e.Thread, "timestamp_ms", e.Time, "step_id", e.Step, "data", e.Data,
	}
}

// object is a JSON object: names and values in turn. A name with a trailing ? is omitted if its value is zero or
// empty.
type object []any

// MarshalJSON keeps the order of the members.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i := 0; i < len(o); i += 2 {
		name, optional := strings.CutSuffix(o[i].(string), "?")
		v := reflect.ValueOf(o[i+1])
		if optional && (!v.IsValid() || v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0) {
			continue
		}
		value, err := jsonx.MarshalVerbatim(o[i+1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(&b, ",%q:%s", name, value)
	}
	return []byte("{" + strings.TrimPrefix(b.String(), ",") + "}"), nil
}
