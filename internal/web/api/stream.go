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

func (s *server) events(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	q, err := query(r, "after", "limit", "format")
	if err != nil {
		return 0, nil, err
	}
	form, err := readForm(q.Get("format"))
	if err != nil {
		return 0, nil, err
	}
	from := beginning
	if q.Has("after") {
		if from, err = readPosition(q.Get("after")); err != nil {
			return 0, nil, invalid("after: %v", err)
		}
	}
	of, err := s.followed(r, c, form)
	if err != nil {
		return 0, nil, err
	}
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		return 0, nil, s.stream(w, r, &of, from, form)
	}
	n, err := limit(q)
	if err != nil {
		return 0, nil, err
	}
	v, err := s.view(r.Context(), &of, from, form)
	if err != nil {
		return 0, nil, err
	}
	events, err := s.read(r.Context(), v, n+1)
	if err != nil {
		return 0, nil, err
	}
	p, err := v.page(events, n)
	return http.StatusOK, p, err
}

// followed is the run that the path names, as far as its events need it: facts are shown as they are stored, whatever came of them, so that of a
// run of any age no more is read than what is shown. A format makes its events of the run's state.
func (s *server) followed(r *http.Request, c Caller, form stream.Format) (run.AgentState, error) {
	if form != "" {
		l, err := s.load(r, c)
		return l.State, err
	}
	id, err := runOf(r)
	if err != nil {
		return run.AgentState{}, err
	}
	h, err := s.Journal.Head(r.Context(), c.Tenant, id)
	return run.AgentState{Tenant: c.Tenant, Run: id, Status: h.Status}, err
}

// stream sends what is there and then what comes, until the run has ended or the window is over. Last-Event-ID says what the
// client has already. Where nothing can come any more, the answer is 204: an EventSource, which takes up every stream that ends, does not
// take up that one.
func (s *server) stream(w http.ResponseWriter, r *http.Request, of *run.AgentState, from position, form stream.Format) error {
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		var err error
		if from, err = readPosition(last); err != nil {
			return invalid("Last-Event-ID: %v", err)
		}
	}
	tenant, runID := of.Tenant, of.Run
	if of.Status == run.RunDone {
		if left, err := s.left(r.Context(), of, from, form); err != nil {
			return err
		} else if !left {
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	watch := s.Feed.Watch(tenant, runID)
	defer watch.Stop()
	v, err := s.view(r.Context(), of, from, form)
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
	t := &tail{journal: s.Journal, clock: s.Clock, view: v, out: w}
	s.cut(r, runID, t.follow(ctx, watch))
	return nil // an answer has begun: the client resumes
}

// left reports whether a run that is done has events behind from.
func (s *server) left(ctx context.Context, of *run.AgentState, from position, form stream.Format) (bool, error) {
	v, err := s.view(ctx, of, from, form)
	if err != nil {
		return false, err
	}
	events, err := s.read(ctx, v, 1)
	return len(events) > 0, err
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
	*view
	journal Journal
	clock   clock.Clock
	out     http.ResponseWriter
	held    bool // what is written reaches the client when the answer ends
	written int  // bytes
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
		if err := t.wait(ctx, watch); err != nil {
			return err
		}
	}
}

// live is a Watch of a process in which models are asked.
type live interface {
	// Take takes what was said since the last time, and whether there may be a new entry.
	Take() (said []stream.Delta, moved bool)
}

// wait returns when there may be a new entry. Until then it sends what models say.
func (t *tail) wait(ctx context.Context, watch Watch) error {
	l, ok := watch.(live)
	for {
		if err := watch.Moved(ctx, t.next-1); err != nil || !ok {
			return err
		}
		said, moved := l.Take()
		if err := t.say(said); err != nil || moved {
			return err
		}
	}
}

// say sends pieces of replies. One of an inference that the client knows to be complete, or whose beginning it is yet to learn of, it does
// without: all of it is in the entry.
func (t *tail) say(said []stream.Delta) error {
	if t.format == "" || t.held {
		return nil
	}
	for _, d := range said {
		if d.Inference != t.state.Replies()+1 {
			continue
		}
		d.Inference = t.state.Inferences + 1
		piece, err := t.says(d, t.clock.Now())
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
func (t *tail) flush() error {
	err := http.NewResponseController(t.out).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		t.held = true
		return nil
	}
	return err
}

// sendNew writes the events of the entries that are new, and says whether the run has ended.
func (t *tail) sendNew(ctx context.Context) (ended bool, err error) {
	for more := true; more && !ended; {
		entries, err := t.journal.Entries(ctx, t.tenant, t.run, t.next, stretch)
		if err != nil {
			return false, err
		}
		full, err := t.send(entries)
		if err != nil || full {
			return false, err // the client resumes behind them
		}
		more, ended = len(entries) >= stretch, slices.ContainsFunc(entries, finishes)
	}
	if last := t.format.Wire().Last; ended && last != "" {
		if _, err := fmt.Fprintf(t.out, "data: %s\n\n", last); err != nil {
			return false, err
		}
	}
	return ended, nil
}

// stretch is how many entries of a run are held at once.
const stretch = 100

// send writes the events of entries; full says that the answer takes no more.
func (t *tail) send(entries []run.Entry) (full bool, err error) {
	for _, e := range entries {
		events, err := t.take(e)
		if err != nil {
			return false, err
		}
		for _, e := range events {
			if t.held && t.written > maxHeldBack {
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
func (t *tail) write(id, name string, data any) error {
	line, err := verbatim(data)
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

func finishes(e run.Entry) bool {
	return slices.ContainsFunc(e.Events, func(fact run.Event) bool {
		_, ok := fact.(run.Finished)
		return ok
	})
}
