package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/web/stream"
)

// Event is one event of a run's journal. Its data is the stored form, which never changes its meaning.
type Event struct {
	ID   string          `json:"id"` // seq.index
	Seq  int64           `json:"seq"`
	At   time.Time       `json:"at"`
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
}

// Fact decodes the event. A type that this build does not know is an error.
func (e Event) Fact() (run.Event, error) {
	return run.UnmarshalEvent([]byte(`{` + strconv.Quote(e.Type) + `:` + string(e.Data) + `}`))
}

// eventPosition is a place in a journal: behind the event of that index.
type eventPosition struct {
	seq   int64
	index int
}

const afterEntry = 1 << 30 // index behind all events of an entry

// journalStart is before all events.
var journalStart = eventPosition{seq: -1, index: afterEntry}

func (p eventPosition) String() string { return fmt.Sprintf("%d.%d", p.seq, p.index) }

// before reports whether p is before the event of that entry and index.
func (p eventPosition) before(seq int64, index int) bool {
	return seq > p.seq || seq == p.seq && index > p.index
}

// readPosition reads SEQ, which is behind a whole entry, or SEQ.INDEX.
func readPosition(s string) (eventPosition, error) {
	entry, event, one := strings.Cut(s, ".")
	seq, isSeq := parseInteger(entry)
	index, isIndex := int64(afterEntry), true
	if one {
		index, isIndex = parseInteger(event)
	}
	if !isSeq || seq < -1 || !isIndex || index < 0 || index > math.MaxInt {
		return eventPosition{}, fmt.Errorf("got %.64q, want SEQ or SEQ.INDEX", s)
	}
	return eventPosition{seq, int(index)}, nil
}

// Follow calls each with the events of a run behind after (SEQ, SEQ.INDEX, or "" for all), as they come. It returns
// nil when the server ends the stream: at the run's end, or after about 20 s. To continue, call it with the last
// event's id. An error of each ends it and is returned.
func (c *Client) Follow(ctx context.Context, run, after string, each func(Event) error) error {
	return c.FollowEncoded(ctx, run, "", after, func(_ string, data json.RawMessage) error {
		var e Event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("read event of run %s: %w", run, err)
		}
		return each(e)
	})
}

// FollowEncoded is Follow in a format of package stream. Each gets an event's id and JSON, which contains its type.
// Live pieces of text have no id.
func (c *Client) FollowEncoded(
	ctx context.Context, run, format, after string, each func(id string, event json.RawMessage) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // closes the stream when each returns an error
	resp, err := c.do(ctx, clientRequest{method: http.MethodGet, path: runPath(run, "/events"),
		query: values("format", format, "cursor", after), accept: "text/event-stream"})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	last, in := stream.Format(format).Last(), bufio.NewReader(resp.Body)
	for id, data := "", ""; ; {
		line, err := in.ReadString('\n')
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return unreachableError(ctx, err)
		}
		line = strings.TrimSuffix(line, "\n")
		if value, ok := strings.CutPrefix(line, "id: "); ok {
			id = value
		}
		if value, ok := strings.CutPrefix(line, "data: "); ok {
			data += value
		}
		if line != "" || data == "" { // the event is not complete
			continue
		}
		if data == last {
			return nil
		}
		if err := each(id, json.RawMessage(data)); err != nil {
			return err
		}
		id, data = "", ""
	}
}

// Auditors may read journals as they are stored. Journals contain all decisions and inputs.
var Auditors = []string{"group:auditors", "group:operators"}

// linesType is the media type of JSON lines.
const linesType = "application/x-ndjson"

// listJournal returns the entries of a run as they are stored, one each line. The hashes are over these bytes.
func (s *apiServer) listJournal(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
	if !policy.MayDecide(Auditors, c.Principal) {
		return 0, nil, problem(NotAllowed, "read a journal as %s: want a member of %s", c.Principal.ID,
			strings.Join(Auditors, " or "))
	}
	q := r.URL.Query()
	n, err := readLimit(q)
	if err != nil {
		return 0, nil, err
	}
	from := int64(0)
	if cursor := q.Get("cursor"); cursor != "" {
		last, ok := parseInteger(cursor)
		if !ok || last < 0 || last > maxSequence {
			return 0, nil, badCursor(cursor)
		}
		from = last + 1
	}
	id := r.PathValue("id")
	if _, err := s.Journal.Head(r.Context(), c.Tenant, id); err != nil {
		return 0, nil, err
	}
	entries, err := s.Journal.Stored(r.Context(), c.Tenant, id, from, n)
	if err != nil {
		return 0, nil, err
	}
	w.Header().Set("Content-Type", linesType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	size := 0
	for i, e := range entries {
		if size += len(e); i > 0 && size > maxJournal {
			break
		}
		_, _ = w.Write(append(bytes.Clone(e), '\n')) // the client has gone
	}
	return 0, nil, nil
}

// maxJournal is the size of a response in bytes, unless one entry is larger. A function's response may have 6 MB.
const maxJournal = 4 << 20

// maxSequence is larger than any sequence.
const maxSequence = 999_999_999_997

// Journal reads up to limit stored entries of a run behind the one of sequence cursor; "" = from the first. It may
// return fewer; none = the end.
func (c *Client) Journal(ctx context.Context, run, cursor string, limit int) ([][]byte, error) {
	resp, err := c.do(ctx, clientRequest{method: http.MethodGet, path: runPath(run, "/journal"),
		query: values("cursor", cursor, "limit", number(limit)), accept: linesType})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, unreachableError(ctx, err)
	}
	var lines [][]byte
	for line := range bytes.Lines(data) {
		lines = append(lines, bytes.TrimSuffix(line, []byte("\n")))
	}
	return lines, nil
}
