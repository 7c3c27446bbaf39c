package api

import (
	"context"
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
		return 0, nil, s.stream(w, r, l.State.Tenant, l.State.Run, from)
	}
	n, err := limit(q)
	if err != nil {
		return 0, nil, err
	}
	events, err := s.eventsAfter(r.Context(), l.State.Tenant, l.State.Run, from)
	if err != nil {
		return 0, nil, err
	}
	p := EventPage{Events: events[:min(n, len(events))]}
	if len(events) > n {
		p.Cursor = events[n-1].ID
	}
	return http.StatusOK, p, nil
}

func (s *server) eventsAfter(ctx context.Context, tenant, run string, from position) ([]Event, error) {
	entries, err := s.Journal.Entries(ctx, tenant, run, max(0, from.seq))
	if err != nil {
		return nil, err
	}
	return shownEvents(entries, from)
}

// stream sends what is there and then what comes, until the run has ended or the window is over. Last-Event-ID says what the
// client has already.
func (s *server) stream(w http.ResponseWriter, r *http.Request, tenant, run string, from position) error {
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		var err error
		if from, err = readPosition(last); err != nil {
			return invalid("Last-Event-ID: %v", err)
		}
	}
	moved, stop := s.Feed.Watch(tenant, run)
	defer stop()
	ctx, cancel := s.Clock.WithTimeout(r.Context(), streamWindow)
	defer cancel()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := http.NewResponseController(w)
	for {
		ended, err := s.sendNew(ctx, w, tenant, run, &from)
		if err == nil {
			err = out.Flush()
		}
		ended = ended || s.Feed.isClosed()
		if err == nil && !ended {
			err = moved.Wait(ctx, 0)
		}
		if err != nil || ended {
			s.cut(r, err)
			return nil // an answer has begun: the client resumes
		}
	}
}

// cut logs why a stream ended, unless that is the window or the client.
func (s *server) cut(r *http.Request, err error) {
	if err == nil || s.Log == nil || r.Context().Err() != nil || problemOf(err).Type == Unavailable {
		return
	}
	s.Log.Error("stream ended", "path", r.URL.Path, "error", err)
}

// sendNew writes the events behind from, moves it behind them, and says whether the run has ended.
func (s *server) sendNew(ctx context.Context, w http.ResponseWriter, tenant, run string, from *position) (ended bool, err error) {
	entries, err := s.Journal.Entries(ctx, tenant, run, max(0, from.seq))
	if err != nil {
		return false, err
	}
	events, err := shownEvents(entries, *from)
	if err != nil {
		return false, err
	}
	for _, e := range events {
		data, err := verbatim(e)
		if err != nil {
			return false, err
		}
		if _, err := fmt.Fprintf(w, "id: %s\nevent: %s\ndata: %s\n", e.ID, e.Type, data); err != nil {
			return false, err
		}
		if *from, err = readPosition(e.ID); err != nil {
			return false, err
		}
	}
	return slices.ContainsFunc(entries, finishes), nil
}

func finishes(e agent.Entry) bool {
	return slices.ContainsFunc(e.Events, func(fact agent.Event) bool {
		_, ok := fact.(agent.Finished)
		return ok
	})
}
