package api

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/countersign/countersign/internal/policy"
)

// Auditors may read journals as they are stored. Journals contain all decisions and inputs.
var Auditors = []string{"group:auditors", "group:operators"}

// linesType is the media type of JSON lines.
const linesType = "application/x-ndjson"

// listJournal returns the entries of a run as they are stored, one each line. The hashes are over these bytes.
func (s *server) listJournal(w http.ResponseWriter, r *http.Request, c Caller) (int, any, error) {
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
	resp, err := c.do(ctx, request{
		method: http.MethodGet, path: "/v1/runs/" + url.PathEscape(run) + "/journal",
		query: values("cursor", cursor, "limit", number(limit)), accept: linesType,
	})
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
