package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/stream"
)

// streamWindow is the longest duration of a stream; its client then resumes. API Gateway ends a request after 29 s.
const streamWindow = 20 * time.Second

func (s *apiServer) listEvents(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	q := r.URL.Query()
	form := stream.Format(q.Get("format"))
	if form == journalFormat {
		form = "" // journal events
	} else if form != "" && !form.Valid() {
		return 0, nil, invalidProblem("format: got %.64q, want one of %s", q.Get("format"),
			strings.Join(append([]string{journalFormat}, stream.Formats()...), ", "))
	}
	var err error
	from := journalStart
	if cursor := q.Get("cursor"); cursor != "" {
		if from, err = readPosition(cursor); err != nil {
			return 0, nil, badCursor(cursor)
		}
	}
	of, err := s.loadFollowed(r, c, form)
	if err != nil {
		return 0, nil, err
	}
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") && r.Method != http.MethodHead {
		return 0, nil, s.streamEvents(w, r, &of, from, form)
	}
	return readPage(r, func(limit int, _ string) ([]any, string, error) {
		v, err := s.newJournalReader(r.Context(), &of, from, form)
		if err != nil {
			return nil, "", err
		}
		events, err := s.readEvents(r.Context(), v, limit+1)
		if err != nil {
			return nil, "", err
		}
		next := ""
		if len(events) > limit {
			events = events[:limit]
			next = eventPosition{events[limit-1].Seq, events[limit-1].Index}.String()
		}
		data := make([]any, len(events))
		for i, e := range events {
			data[i] = e.Body
		}
		return data, next, nil
	})
}

// loadFollowed returns the run in the path. The journal format needs only its head, so that an old run costs no more;
// other formats need its state.
func (s *apiServer) loadFollowed(r *http.Request, c Caller, form stream.Format) (run.AgentState, error) {
	if form != "" {
		l, err := s.loadRun(r, c)
		return l.State, err
	}
	id := r.PathValue("id")
	h, err := s.Journal.Head(r.Context(), c.Tenant, id)
	return run.AgentState{Tenant: c.Tenant, Run: id, Status: h.Status}, err
}

// streamEvents sends events until the run has ended or the window is over. Last-Event-ID says what the client has. If
// nothing more can come, the response is 204, because an EventSource reconnects after every other end.
func (s *apiServer) streamEvents(
	w http.ResponseWriter, r *http.Request, of *run.AgentState, from eventPosition, form stream.Format,
) error {
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		var err error
		if from, err = readPosition(last); err != nil {
			return invalidProblem("Last-Event-ID: %v", err)
		}
	}
	tenant, runID := of.Tenant, of.Run
	if of.Status == run.RunDone {
		v, err := s.newJournalReader(r.Context(), of, from, form)
		if err != nil {
			return err
		}
		left, err := s.readEvents(r.Context(), v, 1)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	watch := s.Feed.Watch(tenant, runID)
	defer watch.Stop()
	v, err := s.newJournalReader(r.Context(), of, from, form)
	if err != nil {
		return err
	}
	ctx, cancel := s.Clock.WithTimeout(r.Context(), streamWindow)
	defer cancel()
	t := s.beginStream(w, v)
	if err := t.follow(ctx, watch); err != nil && r.Context().Err() == nil {
		s.logBroken(runID, err)
	}
	return nil // the response has begun; the client resumes
}

// beginStream sets the headers of a stream of events.
func (s *apiServer) beginStream(w http.ResponseWriter, v *journalReader) *eventStream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // of nginx, which would hold it back
	if v.format == stream.Aisdk {
		w.Header().Set("X-Vercel-Ai-Ui-Message-Stream", "v1")
	}
	return &eventStream{journal: s.Journal, clock: s.Clock, journalReader: v, out: w}
}

// logBroken logs what has ended a stream, unless it is its time, the process's end, or a store that is away.
func (s *apiServer) logBroken(runID string, err error) {
	if !errors.Is(err, errClosed) && problemOf(err).Type != Unavailable {
		s.Log.Error("stream ended", "run", runID, "error", err)
	}
}

// maxHeldBack is the size in bytes after which a buffered response gets no more events.
const maxHeldBack = 2 << 20

// eventStream is a stream to one client.
type eventStream struct {
	*journalReader
	journal Journal
	clock   clock.Clock
	out     http.ResponseWriter
	isHeld  bool           // the response is buffered until its end
	hasText bool           // it contains pieces of replies
	written int            // bytes
	early   []stream.Delta // pieces of a reply that came before the entry in front of it was read
	drained int64          // inputs that the run is to have taken in before a chat's response ends
}

// follow writes events as they come. It returns nil if the run has ended, or if the response is buffered, as behind a
// gateway, and has events.
func (t *eventStream) follow(ctx context.Context, watch Watch) error {
	if err := t.flush(); err != nil { // send the headers
		return err
	}
	for {
		ended, err := t.sendNew(ctx)
		if err != nil {
			return err
		}
		if err := t.flush(); err != nil || ended || t.endsEarly() {
			return err
		}
		if err := t.wait(ctx, watch); err != nil {
			return err
		}
	}
}

// endsEarly reports whether a buffered response ends, as it has something: its client comes back for the rest.
func (t *eventStream) endsEarly() bool { return t.isHeld && t.written > 0 && t.chat == nil }

// wait returns when there may be a new entry. Until then it sends deltas.
func (t *eventStream) wait(ctx context.Context, watch Watch) error {
	t.hasText = t.format != "" && !t.isHeld
	if p, ok := watch.(*pollWatch); ok {
		t.hasText = t.format != "" && p.poll.live != nil && (!t.isHeld || p.poll.Buffered)
		p.wantsDeltas = t.hasText
	}
	if err := t.sendDeltas(t.early); err != nil {
		return err
	}
	t.early = nil
	for {
		if err := watch.Wait(ctx, t.next-1); err != nil {
			return err
		}
		deltas, moved := watch.TakeDeltas()
		if moved { // their entry is still to be sent
			t.early = slices.DeleteFunc(slices.Clone(deltas), func(d stream.Delta) bool {
				return d.Inference <= t.state.Replies()+1
			})
		}
		if err := t.sendDeltas(deltas); err != nil || moved || t.endsEarly() {
			return err
		}
	}
}

// sendDeltas sends live pieces of replies. It skips pieces of an inference that the client has completely or has no
// start of; the entry contains the whole text.
func (t *eventStream) sendDeltas(deltas []stream.Delta) error {
	if !t.hasText {
		return nil
	}
	for _, d := range deltas {
		if d.Inference != t.state.Replies()+1 {
			continue
		}
		d.Inference = t.state.Inferences + 1
		if t.chat != nil {
			if err := t.writeAll(t.chat.Live(d)); err != nil {
				return err
			}
			continue
		}
		if t.live.inference != d.Inference || t.live.attempt != d.Attempt {
			t.live = liveText{inference: d.Inference, attempt: d.Attempt, content: map[deltaPart]string{}}
		}
		of := deltaPart{d.Kind, d.Place}
		t.live.content[of] += d.Text
		piece := t.format.EncodeLive(&t.state, d, t.live.content[of], t.clock.Now())
		if piece.Type == "" { // the format has no event for it
			continue
		}
		if err := t.write("", piece.Type, piece.Body); err != nil {
			return err
		}
	}
	return t.flush()
}

// flush flushes the response, or notes that it is buffered.
func (t *eventStream) flush() error {
	err := http.NewResponseController(t.out).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		t.isHeld = true
		return nil
	}
	return err
}

// sendNew writes the events of new entries and reports whether the run has ended. It leaves the rest to the client's
// next request where the response is too large for more.
func (t *eventStream) sendNew(ctx context.Context) (ended bool, err error) {
	for more := true; more && !ended; {
		entries, err := t.journal.Entries(ctx, t.tenant, t.run, t.next, entriesPerRead)
		if err != nil {
			return false, err
		}
		for _, entry := range entries {
			events, err := t.readEntry(entry)
			if err != nil {
				return false, err
			}
			for _, e := range events {
				if t.isHeld && t.written > maxHeldBack && t.chat == nil {
					return false, nil
				}
				if err := t.write(eventPosition{e.Seq, e.Index}.String(), e.Type, e.Body); err != nil {
					return false, err
				}
			}
			if t.chat != nil && t.isHeld && t.written > maxHeldBack {
				return true, nil
			}
			ended = ended || slices.ContainsFunc(entry.Events, func(fact run.Event) bool {
				_, ok := fact.(run.Finished)
				return ok
			})
		}
		more = len(entries) >= entriesPerRead
	}
	if t.chat != nil {
		return t.chat.IsOver() && (t.state.Drained >= t.drained || t.state.Status == run.RunDone), nil
	}
	if ended {
		err = t.writeLast()
	}
	return ended, err
}

// writeLast writes what a form has behind the last event.
func (t *eventStream) writeLast() error {
	if t.format.Last() == "" {
		return nil
	}
	_, err := fmt.Fprintf(t.out, "data: %s\n\n", t.format.Last())
	return err
}

// entriesPerRead is the number of entries in memory at once.
const entriesPerRead = 100

// writeAll writes events of a chat.
func (t *eventStream) writeAll(events []stream.Encoded) error {
	for _, e := range events {
		if err := t.write("", e.Type, e.Body); err != nil {
			return err
		}
	}
	return nil
}

// write writes one event. A client resumes behind the last event with an id.
func (t *eventStream) write(id, name string, data any) error {
	line, err := jsonx.MarshalVerbatim(data)
	if err != nil {
		return err
	}
	head := "event: " + name + "\n"
	switch {
	case t.chat != nil: // its client knows data alone
		head = ""
	case id != "":
		head = "id: " + id + "\n" + head
	case t.isHeld: // a piece of a reply, which ends the response: its client is to ask for more soon
		head = "retry: 1000\n" + head
	}
	n, err := fmt.Fprintf(t.out, "%sdata: %s\n\n", head, line)
	t.written += n
	return err
}
