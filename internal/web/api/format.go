package api

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/stream"
)

// journalForm is the form of events that a client gets who names none: the facts as they are stored.
const journalForm = "journal"

// EncodedPage is a page of events in order, in a format of package stream.
type EncodedPage struct {
	Events []json.RawMessage `json:"events"`
	Cursor string            `json:"cursor,omitempty"` // for after; "" = there is no more now
}

// shown is one event as its client asked for it. Its data is one value of JSON.
type shown struct {
	at   position
	name string
	data any
}

// readForm reads the parameter format; "" = the journal's own.
func readForm(name string) (stream.Format, error) {
	if name == "" || name == journalForm {
		return "", nil
	}
	f, err := stream.ReadFormat(name)
	if err == nil {
		return f, nil
	}
	are := strings.Join(append([]string{journalForm}, stream.Formats()...), ", ")
	return "", invalid("format: got %.64q, want one of %s", name, are)
}

// view is a run's journal as a client reads it, from an entry on. Not safe for concurrent use.
type view struct {
	tenant, run string
	from        position // events up to it are not shown
	next        int64    // the entry that is to be read next
	format      stream.Format

	// Of a format: the definition the run is pinned to, where it is another one from, and the run before the entry that is next.
	def   *agent.Definition
	defOf func(digest string) (*agent.Definition, error)
	state run.AgentState
	heard heard
}

// heard is what was said live of the newest attempt at an inference.
type heard struct {
	inference int64
	attempt   int
	content   map[part]string
}

// part is what pieces of a reply are of: its text, its reasoning, or one of its calls.
type part struct {
	kind  agent.DeltaKind
	place int
}

// view begins to read a run, as of now, behind from. What a client has seen of its newest entries is no reason to read more.
func (s *server) view(ctx context.Context, now *run.AgentState, from position, f stream.Format) (*view, error) {
	v := &view{tenant: now.Tenant, run: now.Run, from: from, next: max(0, from.seq), format: f}
	if f == "" {
		return v, nil
	}
	var err error
	v.defOf = func(digest string) (*agent.Definition, error) { return s.Definitions(ctx, now.Tenant, digest) }
	if v.def, err = v.defOf(now.Definition); err != nil {
		return nil, err
	}
	if v.next >= now.Entries {
		v.next, v.state = now.Entries, *now
		return v, nil
	}
	v.state, err = s.Journal.Before(ctx, now.Tenant, now.Run, v.next)
	return v, err
}

// take is what the next entry shows.
func (v *view) take(e run.Entry) ([]shown, error) {
	v.next = e.Seq + 1
	if v.format == "" {
		return v.facts(e)
	}
	events, after, err := stream.Of(v.def, v.state, e)
	if err != nil {
		return nil, err
	}
	if after.Definition != v.state.Definition && v.state.Definition != "" { // its servers' tools are listed
		if v.def, err = v.defOf(after.Definition); err != nil {
			return nil, err
		}
	}
	v.state = after
	encoded, err := v.format.Encode(events)
	if err != nil {
		return nil, err
	}
	var out []shown
	for _, c := range encoded {
		if v.from.before(c.Seq, c.Index) {
			out = append(out, shown{position{c.Seq, c.Index}, c.Type, c.Body})
		}
	}
	return out, nil
}

func (v *view) facts(e run.Entry) ([]shown, error) {
	events, err := shownEvents([]run.Entry{e}, v.from)
	if err != nil {
		return nil, err
	}
	out := make([]shown, len(events))
	for i, f := range events {
		at, err := readPosition(f.ID)
		if err != nil {
			return nil, err
		}
		out[i] = shown{at, f.Type, f}
	}
	return out, nil
}

// says is a piece of what a model writes for the inference that is under way as far as the client knows.
func (v *view) says(d stream.Delta, at time.Time) (stream.Encoded, error) {
	if v.heard.inference != d.Inference || v.heard.attempt != d.Attempt {
		v.heard = heard{inference: d.Inference, attempt: d.Attempt, content: map[part]string{}}
	}
	of := part{d.Kind, d.Place}
	v.heard.content[of] += d.Text
	return v.format.EncodeLive(&v.state, d, v.heard.content[of], at)
}

// read reads on until there are n events, or no more entries.
func (s *server) read(ctx context.Context, v *view, n int) ([]shown, error) {
	out := []shown{}
	for {
		entries, err := s.Journal.Entries(ctx, v.tenant, v.run, v.next, n+1)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			more, err := v.take(e)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
		if len(out) >= n || len(entries) <= n {
			return out, nil
		}
	}
}

// page is the answer that holds events: at most n of them.
func (v *view) page(events []shown, n int) (any, error) {
	cursor := ""
	if len(events) > n {
		events = events[:n]
		cursor = events[n-1].at.String()
	}
	if v.format == "" {
		p := EventPage{Events: []Event{}, Cursor: cursor}
		for _, e := range events {
			f, _ := e.data.(Event)
			p.Events = append(p.Events, f)
		}
		return p, nil
	}
	p := EncodedPage{Events: []json.RawMessage{}, Cursor: cursor}
	for _, e := range events {
		data, err := run.MarshalVerbatim(e.data)
		if err != nil {
			return nil, err
		}
		p.Events = append(p.Events, data)
	}
	return p, nil
}
