package web

import (
	"context"
	"slices"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/stream"
)

// journalFormat is the default format of events: as they are stored.
const journalFormat = "journal"

// journalReader reads a run's journal for a client, from an entry on. Not safe for concurrent use.
type journalReader struct {
	tenant, run string
	from        eventPosition // events up to it are skipped
	next        int64         // sequence of the next entry
	format      stream.Format

	// Only with a format: the pinned definition, how to load another one, and the run before the next entry.
	def   *agent.Definition
	defOf func(digest string) (*agent.Definition, error)
	state run.AgentState
	live  liveText
	chat  *stream.Chat // writes the events instead of the format; nil = the format does
}

// liveText is the text so far of the newest attempt at an inference.
type liveText struct {
	inference int64
	attempt   int
	content   map[deltaPart]string
}

// deltaPart names what a delta extends: a reply's text, its reasoning, or one of its calls.
type deltaPart struct {
	kind  agent.DeltaKind
	place int
}

// newJournalReader reads a run behind from. It does not read entries that the client has seen.
func (s *apiServer) newJournalReader(
	ctx context.Context, now *run.AgentState, from eventPosition, f stream.Format,
) (*journalReader, error) {
	v := &journalReader{tenant: now.Tenant, run: now.Run, from: from, next: max(0, from.seq), format: f}
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

// readEntry returns the events of the next entry.
func (v *journalReader) readEntry(e run.Entry) ([]stream.Encoded, error) {
	if v.format == "" {
		v.next = e.Seq + 1
		return v.newFacts(e)
	}
	events, after, err := stream.Events(v.def, v.state, e)
	if err != nil {
		return nil, err
	}
	var encoded []stream.Encoded
	switch {
	case v.chat == nil:
		encoded, err = v.format.Encode(events)
		encoded = slices.DeleteFunc(encoded, func(e stream.Encoded) bool { return !v.from.before(e.Seq, e.Index) })
	case e.Seq > v.from.seq:
		encoded, err = v.chat.Entry(events, &after)
	}
	if err == nil && after.Definition != v.state.Definition && v.state.Definition != "" { // MCP tools were listed
		v.def, err = v.defOf(after.Definition)
	}
	if err != nil {
		return nil, err
	}
	v.next, v.state = e.Seq+1, after
	return encoded, nil
}

// newFacts returns the events of an entry as they are stored.
func (v *journalReader) newFacts(e run.Entry) ([]stream.Encoded, error) {
	var out []stream.Encoded
	for i, fact := range e.Events {
		if !v.from.before(e.Seq, i) {
			continue
		}
		raw, err := run.MarshalEvent(fact)
		if err != nil {
			return nil, err
		}
		name := run.EventType(fact)
		data := raw[len(`{"":`)+len(name) : len(raw)-1] // an object of one key, the name
		out = append(out, stream.Encoded{Seq: e.Seq, Index: i, Type: name,
			Body: Event{ID: eventPosition{e.Seq, i}.String(), Seq: e.Seq, At: e.Time, Type: name, Data: data}})
	}
	return out, nil
}

// readEvents reads at least n events, or all that there are.
func (s *apiServer) readEvents(ctx context.Context, v *journalReader, n int) (out []stream.Encoded, err error) {
	for {
		entries, err := s.Journal.Entries(ctx, v.tenant, v.run, v.next, n+1)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			more, err := v.readEntry(e)
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
