package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/pkg/agent"
)

// streamWindow is how long a stream lasts at most; its client then resumes. API Gateway cuts a request at 29 s.
const streamWindow = 20 * time.Second

func (s *server) events(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	q, err := query(r, "after", "limit", "format")
	if err != nil {
		return 0, nil, err
	}
	if f := q.Get("format"); f != "" && f != "canonical" {
		return 0, nil, later("format " + f)
	}
	from := beginning
	if q.Has("after") {
		if from, err = readPosition(q.Get("after")); err != nil {
			return 0, nil, invalid("after: %v", err)
		}
	}
	l, err := s.load(r, c)
	if err != nil {
		return 0, nil, err
	}
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		return 0, nil, s.stream(w, r, &l.State, from)
	}
	n, err := limit(q)
	if err != nil {
		return 0, nil, err
	}
	events, err := s.eventsAfter(r.Context(), l.State.Tenant, l.State.Run, from, n+1)
	if err != nil {
		return 0, nil, err
	}
	p := EventPage{Events: events[:min(n, len(events))]}
	if len(events) > n {
		p.Cursor = events[n-1].ID
	}
	return http.StatusOK, p, nil
}

// eventsAfter reads at least n events, where there are so many. Every entry has one or more; the first may have been seen in part.
func (s *server) eventsAfter(ctx context.Context, tenant, run string, from position, n int) ([]Event, error) {
	entries, err := s.Journal.Entries(ctx, tenant, run, max(0, from.seq), n+1)
	if err != nil {
		return nil, err
	}
	return shownEvents(entries, from)
}

// stream sends what is there and then what comes, until the run has ended or the window is over. Last-Event-ID says what the
// client has already. Where nothing can come any more, the answer is 204: an EventSource, which takes up every stream that ends, does not
// take up that one.
func (s *server) stream(w http.ResponseWriter, r *http.Request, of *agent.AgentState, from position) error {
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		var err error
		if from, err = readPosition(last); err != nil {
			return invalid("Last-Event-ID: %v", err)
		}
	}
	tenant, run := of.Tenant, of.Run
	if of.Status == agent.RunDone {
		events, err := s.eventsAfter(r.Context(), tenant, run, from, 1)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	watch := s.Feed.Watch(tenant, run)
	defer watch.Stop()
	ctx, cancel := s.Clock.WithTimeout(r.Context(), streamWindow)
	defer cancel()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	t := &tail{journal: s.Journal, tenant: tenant, run: run, from: from, read: from.seq, out: w}
	s.cut(r, run, t.follow(ctx, watch))
	return nil // an answer has begun: the client resumes
}

// cut logs why a stream ended, unless that is the window, the client or the end of the process.
func (s *server) cut(r *http.Request, run string, err error) {
	if err == nil || s.Log == nil || r.Context().Err() != nil || errors.Is(err, errClosed) || problemOf(err).Type == Unavailable {
		return
	}
	s.Log.Error("stream ended", "run", run, "error", err)
}

// maxHeldBack is how many bytes of events an answer takes, but for the last event, that reaches its client as a whole.
const maxHeldBack = 2 << 20

// tail is a stream under way.
type tail struct {
	journal     Journal
	tenant, run string
	from        position // behind the newest event that was written
	read        int64    // sequence of the newest entry that was read
	out         http.ResponseWriter
	held        bool // what is written reaches the client when the answer ends
	written     int  // bytes
}

// follow writes events as they come. It returns nil when there is nothing more to wait for: the run has ended, or what was written
// reaches the client only when the answer ends, as it does behind a gateway.
func (t *tail) follow(ctx context.Context, watch Watch) error {
	if err := t.flush(); err != nil { // the client hears that the stream is open
		return err
	}
	for {
		ended, err := t.sendNew(ctx)
		if err != nil {
			return err
		}
		if err := t.flush(); err != nil || ended || t.held && t.written > 0 {
			return err
		}
		if err := watch.Moved(ctx, t.read); err != nil {
			return err
		}
	}
}

// flush sends on what was written, or finds that it is held back.
func (t *tail) flush() error {
	err := http.NewResponseController(t.out).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		t.held = true
		return nil
	}
	return err
}

// sendNew writes the events behind from, moves it behind them, and says whether the run has ended.
func (t *tail) sendNew(ctx context.Context) (ended bool, err error) {
	entries, err := t.journal.Entries(ctx, t.tenant, t.run, max(0, t.from.seq), 0)
	if err != nil {
		return false, err
	}
	events, err := shownEvents(entries, t.from)
	if err != nil {
		return false, err
	}
	for _, e := range events {
		if t.held && t.written > maxHeldBack {
			return false, nil // the client resumes behind them
		}
		if err := t.send(e); err != nil {
			return false, err
		}
	}
	if len(entries) > 0 {
		t.read = entries[len(entries)-1].Seq
	}
	return slices.ContainsFunc(entries, finishes), nil
}

func (t *tail) send(e Event) error {
	data, err := verbatim(e)
	if err != nil {
		return err
	}
	n, err := fmt.Fprintf(t.out, "id: %s\nevent: %s\ndata: %s\n", e.ID, e.Type, data)
	if err != nil {
		return err
	}
	t.written += n
	t.from, err = readPosition(e.ID)
	return err
}

func finishes(e agent.Entry) bool {
	return slices.ContainsFunc(e.Events, func(fact agent.Event) bool {
		_, ok := fact.(agent.Finished)
		return ok
	})
}
