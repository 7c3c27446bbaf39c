package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/store"
)

// Bounds of bodies and pages.
const (
	maxBody     = 256 << 10
	maxPage     = 200
	defaultPage = 50
)

// server handles the requests of a backend.
type server struct{ Backend }

// endpoint handles one route. Status 0 says that it has written its response itself.
type endpoint func(s *server, w http.ResponseWriter, r *http.Request, c Caller) (status int, body any, err error)

// routes is the route table of the API. A test compares it with docs/openapi.yaml.
var routes = []struct {
	method, path string
	endpoint     endpoint
}{
	{http.MethodPost, "/v1/runs", (*server).startRun},
	{http.MethodGet, "/v1/runs", (*server).listRuns},
	{http.MethodGet, "/v1/runs/{id}", (*server).showRun},
	{http.MethodGet, "/v1/runs/{id}/messages", (*server).listMessages},
	{http.MethodGet, "/v1/runs/{id}/calls", (*server).listCalls},
	{http.MethodGet, "/v1/runs/{id}/events", (*server).listEvents},
	{http.MethodGet, "/v1/runs/{id}/journal", (*server).listJournal},
	{http.MethodGet, "/v1/runs/{id}/replay", (*server).replayRun},
	{http.MethodPost, "/v1/runs/{id}/input", (*server).receiveInput},
	{http.MethodPost, "/v1/runs/{id}/cancel", (*server).cancelRun},
	{http.MethodPost, "/v1/runs/{id}/fork", (*server).forkRun},
	{http.MethodPost, "/v1/runs/{id}/calls/{call}/undo", (*server).undoCall},
	{http.MethodPost, callbackPath, (*server).receiveCallback},
	{http.MethodPost, "/v1/blobs", (*server).announceUpload},
	{http.MethodPut, "/v1/blobs/{sha256}", (*server).receiveUpload},
	{http.MethodGet, "/v1/approvals", (*server).listApprovals},
	{http.MethodGet, "/v1/approvals/{id}", (*server).showApproval},
	{http.MethodPost, "/v1/approvals/{id}/decision", (*server).decideApproval},
	{http.MethodGet, "/v1/grants", (*server).listGrants},
	{http.MethodDelete, "/v1/grants/{agent}/{tool}", (*server).revokeGrant},
	{http.MethodGet, "/v1/repairs", (*server).listRepairs},
}

// Handler serves the API. It keeps no state and is safe for concurrent use as far as b is.
func Handler(b Backend) http.Handler {
	s := &server{b}
	mux := http.NewServeMux()
	byPath := map[string]map[string]endpoint{}
	for _, r := range routes {
		if byPath[r.path] == nil {
			byPath[r.path] = map[string]endpoint{}
		}
		byPath[r.path][r.method] = r.endpoint
	}
	for path, byMethod := range byPath {
		mux.Handle(path, s.serveRoute(byMethod))
	}
	mux.HandleFunc("/", s.refuseUnknownPath)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isCleanPath(r.URL) { // the mux would clean it and answer with a redirect
			s.refuseUnknownPath(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *server) refuseUnknownPath(w http.ResponseWriter, r *http.Request) {
	s.writeProblem(w, r, problem(NoSuchPath, "%.200s: there is nothing here", r.URL.Path))
}

// isCleanPath reports whether a path begins at the root and has no empty, . or .. segments.
func isCleanPath(u *url.URL) bool {
	return strings.HasPrefix(u.Path, "/") && (u.Path == path.Clean(u.Path) || u.Path == path.Clean(u.Path)+"/")
}

// Routes lists the routes of a Handler, each as METHOD PATTERN, sorted.
func Routes() []string {
	var all []string
	for _, r := range routes {
		all = append(all, r.method+" "+r.path)
	}
	slices.Sort(all)
	return all
}

// serveRoute calls the endpoint of the method and writes its result.
func (s *server) serveRoute(byMethod map[string]endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		e, ok := byMethod[r.Method]
		if !ok {
			var allowed []string
			for m := range byMethod {
				allowed = append(allowed, m)
			}
			slices.Sort(allowed)
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			s.writeProblem(w, r, problem(BadMethod, "%.200s: got %.20s, want %s", r.URL.Path, r.Method,
				strings.Join(allowed, " or ")))
			return
		}
		status, body, err := s.callEndpoint(e, w, r)
		switch {
		case err != nil:
			s.writeProblem(w, r, err)
		case status != 0:
			s.writeJSON(w, status, "application/json", body)
		}
	}
}

// callEndpoint calls an endpoint on behalf of the caller. It waits until the backend is ready, except for GET, which
// changes nothing, and DELETE, which only removes a permission.
func (s *server) callEndpoint(e endpoint, w http.ResponseWriter, r *http.Request) (status int, body any, err error) {
	var c Caller
	if isCallbackPattern(r.Pattern) {
		_, err = s.readClaim(r) // check the token before anything else
	} else {
		c, err = s.Caller(r)
	}
	var refused *Problem
	if errors.As(err, &refused) {
		return 0, nil, refused
	}
	if err != nil && !isCallbackPattern(r.Pattern) {
		err = problem(NotAllowed, "%v", err)
	}
	if err != nil {
		return 0, nil, err
	}
	if s.Ready != nil && r.Method != http.MethodGet && r.Method != http.MethodDelete {
		if err := s.Ready(r.Context()); err != nil {
			return 0, nil, err
		}
	}
	return e(s, w, r, c)
}

// writeProblem writes an error as a problem. Internal details go to the log, and to callers who own the machine.
func (s *server) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p.Type == Internal || p.Type == Damaged || p.Type == Unavailable {
		s.logProblem(r, p.Type, err)
		if !s.Local {
			p.Detail = p.Title
		}
	}
	if p.Type == Unauthenticated && w.Header().Get("WWW-Authenticate") == "" {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	s.writeJSON(w, p.Status, "application/problem+json", p)
}

// logProblem logs an internal error, unless the client has gone.
func (s *server) logProblem(r *http.Request, kind ProblemType, err error) {
	switch {
	case s.Log == nil || r.Context().Err() != nil && errors.Is(err, context.Canceled):
	case kind == Unavailable:
		s.Log.Warn("request put off", "route", r.Method+" "+r.Pattern, "error", err)
	default:
		s.Log.Error("request failed", "route", r.Method+" "+r.Pattern, "error", err)
	}
}

func (s *server) writeJSON(w http.ResponseWriter, status int, mediaType string, body any) {
	data, err := marshalVerbatim(body)
	if err != nil {
		status, mediaType = http.StatusInternalServerError, "application/problem+json"
		data = []byte(`{"type":"internal","title":"something went wrong here","status":500,"detail":"the answer could not be written"}`)
		if s.Log != nil {
			s.Log.Error("write answer", "error", err)
		}
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(data) // the client has gone
}

// marshalVerbatim encodes JSON without escaping HTML characters, so that arguments look as they are stored.
func marshalVerbatim(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// readBody decodes a strict JSON body into v. A missing body is an error unless it is optional.
func readBody(w http.ResponseWriter, r *http.Request, v any, optional bool) error {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return problem(TooLarge, "the body is larger than %d bytes", maxBody)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return invalidProblem("the body: it was not all there in time; send it again")
	}
	if err != nil {
		return invalidProblem("read the body: %v", err)
	}
	if len(data) == 0 && optional {
		return nil
	}
	if err := checkContentType(r.Header); err != nil {
		return err
	}
	if err := jsonx.DecodeStrict(data, v); err != nil {
		return invalidProblem("the body: %v", err)
	}
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) { // null decodes into anything
		return invalidProblem("the body: want an object")
	}
	return nil
}

// checkContentType refuses a body that is not plain JSON in UTF-8.
func checkContentType(h http.Header) error {
	if coding := strings.Join(h.Values("Content-Encoding"), ", "); coding != "" && !strings.EqualFold(coding, "identity") {
		return problem(BadMediaType, "got Content-Encoding %.64q, want the body as it is", coding)
	}
	kind := strings.Join(h.Values("Content-Type"), ", ")
	t, params, err := mime.ParseMediaType(kind)
	if err != nil || t != "application/json" {
		return problem(BadMediaType, "got Content-Type %.64q, want application/json", kind)
	}
	if c := params["charset"]; c != "" && !strings.EqualFold(c, "utf-8") {
		return problem(BadMediaType, "got Content-Type %.64q, want application/json in utf-8", kind)
	}
	return nil
}

// readQuery reads the query and refuses unknown and repeated parameters.
func readQuery(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, invalidProblem("the query: %v", err)
	}
	for name, values := range q {
		if !slices.Contains(known, name) {
			return nil, invalidProblem("query parameter %.64q is not known, want %s", name, joinNames(known))
		}
		if len(values) > 1 {
			return nil, invalidProblem("query parameter %.64q is given %d times", name, len(values))
		}
	}
	return q, nil
}

func joinNames(known []string) string {
	if len(known) == 0 {
		return "none"
	}
	return strings.Join(known, ", ")
}

// readLimit reads the size of a page.
func readLimit(q url.Values) (int, error) {
	if !q.Has("limit") {
		return defaultPage, nil
	}
	n, ok := parseInteger(q.Get("limit"))
	if !ok || n < 1 || n > maxPage {
		return 0, invalidProblem("limit: got %.64q, want 1 to %d", q.Get("limit"), maxPage)
	}
	return int(n), nil
}

// parseInteger reads an integer in its canonical form: without a plus or leading zeros.
func parseInteger(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == text
}

// badCursor turns the store's error about an invalid cursor into a problem.
func badCursor(cursor string, err error) error {
	if cursor != "" && errors.Is(err, store.ErrInvalid) {
		return invalidProblem("cursor: got %.64q, want one that a page gave", cursor)
	}
	return err
}

// paginate returns a page of a complete list. The cursor is the number of elements before the page.
func paginate[T any](q url.Values, all []T) (part []T, next string, err error) {
	n, err := readLimit(q)
	if err != nil {
		return nil, "", err
	}
	at := int64(0)
	if q.Get("cursor") != "" {
		var ok bool
		if at, ok = parseInteger(q.Get("cursor")); !ok || at < 0 {
			return nil, "", invalidProblem("cursor: got %.64q, want one that a page gave", q.Get("cursor"))
		}
	}
	from := int(min(at, int64(len(all))))
	to := min(from+n, len(all))
	if to < len(all) {
		next = fmt.Sprint(to)
	}
	return all[from:to], next, nil
}
