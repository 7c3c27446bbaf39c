package stream

import (
	"fmt"
	"time"
)

// Named is an event of the forms cowork and forge: a name, whose it is, and what the name says it is about.
type Named struct {
	ID      string `json:"id,omitempty"` // seq.index; "" = a piece of text, which has none
	Type    string `json:"type"`
	Time    string `json:"time"` // RFC 3339, UTC
	Run     string `json:"run"`
	Subject string `json:"subject"` // the run's; the run where it has none
	Data    any    `json:"data"`
}

// naming is an entry's events as they are named.
type naming struct {
	of  []Event
	out []Encoded
}

func (w *naming) add(e Event, kind string, data any) {
	n := len(w.out)
	w.out = append(w.out, Encoded{Seq: e.Seq, Index: n, Type: kind, Body: Named{
		ID: fmt.Sprintf("%d.%d", e.Seq, n), Type: kind, Time: rfc3339(time.UnixMilli(e.Time)), Run: e.Run, Subject: e.Thread, Data: data,
	}})
}

func namedDelta(s Said, kind string, data any) Encoded {
	return Encoded{Type: kind, Body: Named{Type: kind, Time: rfc3339(s.At), Run: s.Run, Subject: s.Thread, Data: data}}
}

// reply is the step's reply, among the events of the entry that has its beginning.
func reply(of []Event, step string) (InferenceDoneData, bool) {
	for _, e := range of {
		if d, ok := e.Data.(InferenceDoneData); ok && e.Step == step {
			return d, true
		}
	}
	return InferenceDoneData{}, false
}
