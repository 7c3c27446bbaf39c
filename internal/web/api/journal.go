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
	q, err := readQuery(r, "from", "limit")
	if err != nil {
		return 0, nil, err
	}
	n, err := readLimit(q)
	if err != nil {
		return 0, nil, err
	}
	from := int64(0)
	if q.Has("from") {
		var ok bool
		if from, ok = parseInteger(q.Get("from")); !ok || from < 0 || from > maxFrom {
			return 0, nil, invalidProblem("from: got %.64q, want the sequence of an entry, from 0", q.Get("from"))
		}
	}
	id := r.PathValue("id")
	if !runPattern.MatchString(id) {
		return 0, nil, problem(RunNotFound, "read the journal of run %.64q: no such run", id)
	}
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

// maxFrom is larger than any sequence.
const maxFrom = 999_999_999_998

// Journal reads up to limit stored entries of a run from a sequence on. It may return fewer; none = the end.
func (c *Client) Journal(ctx context.Context, run string, from int64, limit int) ([][]byte, error) {
	resp, err := c.do(ctx, request{
		method: http.MethodGet, path: "/v1/runs/" + url.PathEscape(run) + "/journal", query: values("from",
			number(int(from)), "limit", number(limit)), accept: linesType,
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
