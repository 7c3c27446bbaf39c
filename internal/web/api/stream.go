package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/stream"
)

// streamWindow is how long a stream lasts at most; its client then resumes. API Gateway cuts a request at 29 s.
const streamWindow = 20 * time.Second

func (s *server) listEvents(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	q, err := readQuery(r, "after", "limit", "format")
	if err != nil {
		return 0, nil, err
	}
	form, err := readFormat(q.Get("format"))
	if err != nil {
		return 0, nil, err
	}
	from := journalStart
	if q.Has("after") {
		if from, err = readPosition(q.Get("after")); err != nil {
			return 0, nil, invalidProblem("after: %v", err)
		}
	}
	of, err := s.loadFollowed(r, c, form)
	if err != nil {
		return 0, nil, err
	}
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		return 0, nil, s.streamEvents(w, r, &of, from, form)
	}
	n, err := readLimit(q)
	if err != nil {
		return 0, nil, err
	}
	v, err := s.newJournalReader(r.Context(), &of, from, form)
	if err != nil {
		return 0, nil, err
	}
	events, err := s.readEvents(r.Context(), v, n+1)
	if err != nil {
		return 0, nil, err
	}
	p, err := v.newPage(events, n)
	return http.StatusOK, p, err
}

// loadFollowed is the run that the path names, as far as its events need it: facts are shown as they are stored, whatever came of them, so that of a
// run of any age no more is read than what is shown. A format makes its events of the run's state.
func (s *server) loadFollowed(r *http.Request, c Caller, form stream.Format) (run.AgentState, error) {
	if form != "" {
		l, err := s.loadRun(r, c)
		return l.State, err
	}
	id, err := readRunID(r)
	if err != nil {
		return run.AgentState{}, err
	}
	h, err := s.Journal.Head(r.Context(), c.Tenant, id)
	return run.AgentState{Tenant: c.Tenant, Run: id, Status: h.Status}, err
}

// streamEvents sends what is there and then what comes, until the run has ended or the window is over. Last-Event-ID says what the
// client has already. Where nothing can come any more, the answer is 204: an EventSource, which takes up every stream that ends, does not
// take up that one.
func (s *server) streamEvents(w http.ResponseWriter, r *http.Request, of *run.AgentState, from position, form stream.Format) error {
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		var err error
		if from, err = readPosition(last); err != nil {
			return invalidProblem("Last-Event-ID: %v", err)
		}
	}
	tenant, runID := of.Tenant, of.Run
	if of.Status == run.RunDone {
		if left, err := s.hasEventsAfter(r.Context(), of, from, form); err != nil {
			return err
		} else if !left {
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
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	if wire := form.Wire(); wire.Header != "" {
		w.Header().Set(wire.Header, wire.Value)
	}
	t := &eventStream{journal: s.Journal, clock: s.Clock, journalReader: v, out: w}
	s.logStreamEnd(r, runID, t.follow(ctx, watch))
	return nil // an answer has begun: the client resumes
}

// hasEventsAfter reports whether a run that is done has events behind from.
func (s *server) hasEventsAfter(ctx context.Context, of *run.AgentState, from position, form stream.Format) (bool, error) {
	v, err := s.newJournalReader(ctx, of, from, form)
	if err != nil {
		return false, err
	}
	events, err := s.readEvents(ctx, v, 1)
	return len(events) > 0, err
}

// logStreamEnd logs why a stream ended, unless that is the window, the client or the end of the process.
func (s *server) logStreamEnd(r *http.Request, run string, err error) {
	if err == nil || s.Log == nil || r.Context().Err() != nil || errors.Is(err, errClosed) || problemOf(err).Type == Unavailable {
		return
	}
	s.Log.Error("stream ended", "run", run, "error", err)
}

// maxHeldBack is how many bytes of events an answer takes, but for the last event, that reaches its client as a whole.
const maxHeldBack = 2 << 20

// eventStream is a stream under way.
type eventStream struct {
	*journalReader
	journal Journal
	clock   clock.Clock
	out     http.ResponseWriter
	isHeld  bool // what is written reaches the client when the answer ends
	written int  // bytes
}

// follow writes events as they come. It returns nil when there is nothing more to wait for: the run has ended, or what was written
// reaches the client only when the answer ends, as it does behind a gateway.
func (t *eventStream) follow(ctx context.Context, watch Watch) error {
	if err := t.flush(); err != nil { // the client hears that the stream is open
		return err
	}
	for {
		ended, err := t.sendNew(ctx)
		if err != nil {
			return err
		}
		if err := t.flush(); err != nil || ended || t.isHeld && t.written > 0 {
			return err
		}
		if err := t.wait(ctx, watch); err != nil {
			return err
		}
	}
}

// deltaWatch is a Watch of a process in which models are asked.
type deltaWatch interface {
	// Take takes what was said since the last time, and whether there may be a new entry.
	TakeDeltas() (said []stream.Delta, moved bool)
}

// wait returns when there may be a new entry. Until then it sends what models say.
func (t *eventStream) wait(ctx context.Context, watch Watch) error {
	l, ok := watch.(deltaWatch)
	for {
		if err := watch.Wait(ctx, t.next-1); err != nil || !ok {
			return err
		}
		said, moved := l.TakeDeltas()
		if err := t.sendDeltas(said); err != nil || moved {
			return err
		}
	}
}

// sendDeltas sends pieces of replies. One of an inference that the client knows to be complete, or whose beginning it is yet to learn of, it does
// without: all of it is in the entry.
func (t *eventStream) sendDeltas(said []stream.Delta) error {
	if t.format == "" || t.isHeld {
		return nil
	}
	for _, d := range said {
		if d.Inference != t.state.Replies()+1 {
			continue
		}
		d.Inference = t.state.Inferences + 1
		piece, err := t.encodeDelta(d, t.clock.Now())
		if err != nil {
			return err
		}
		if piece.Type == "" { // the format has no word for it
			continue
		}
		if err := t.write("", piece.Type, piece.Body); err != nil {
			return err
		}
	}
	return t.flush()
}

// flush sends on what was written, or finds that it is held back.
func (t *eventStream) flush() error {
	err := http.NewResponseController(t.out).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		t.isHeld = true
		return nil
	}
	return err
}

// sendNew writes the events of the entries that are new, and says whether the run has ended.
func (t *eventStream) sendNew(ctx context.Context) (ended bool, err error) {
	for more := true; more && !ended; {
		entries, err := t.journal.Entries(ctx, t.tenant, t.run, t.next, entriesPerRead)
		if err != nil {
			return false, err
		}
		full, err := t.send(entries)
		if err != nil || full {
			return false, err // the client resumes behind them
		}
		more, ended = len(entries) >= entriesPerRead, slices.ContainsFunc(entries, endsRun)
	}
	if last := t.format.Wire().Last; ended && last != "" {
		if _, err := fmt.Fprintf(t.out, "data: %s\n\n", last); err != nil {
			return false, err
		}
	}
	return ended, nil
}

// entriesPerRead is how many entries of a run are held at once.
const entriesPerRead = 100

// send writes the events of entries; full says that the answer takes no more.
func (t *eventStream) send(entries []run.Entry) (full bool, err error) {
	for _, e := range entries {
		events, err := t.readEntry(e)
		if err != nil {
			return false, err
		}
		for _, e := range events {
			if t.isHeld && t.written > maxHeldBack {
				return true, nil
			}
			if err := t.write(e.at.String(), e.name, e.data); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// write writes one event; without an id, a client resumes behind the one before it.
func (t *eventStream) write(id, name string, data any) error {
	line, err := marshalVerbatim(data)
	if err != nil {
		return err
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	n, err := fmt.Fprintf(t.out, "%sevent: %s\ndata: %s\n", id, name, line)
	t.written += n
	return err
}

func endsRun(e run.Entry) bool {
	return slices.ContainsFunc(e.Events, func(fact run.Event) bool {
		_, ok := fact.(run.Finished)
		return ok
	})
}
