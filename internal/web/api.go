package web

// This file begins the HTTP API of runs and approvals; client.go is a client for it (docs/api.md, docs/openapi.yaml).
// The same handler serves the Unix socket of a laptop and a deployed function. Every action goes through the use cases
// of package runtime, and every decision through approval.Desk.
//
// Bodies except that of PUT are strict JSON of at most 256 KiB. Unknown keys, repeated keys, trailing text and unknown
// query parameters are refused. Errors are application/problem+json (RFC 9457); their types never change.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// maxJSONBody is the size of a JSON body in bytes.
const maxJSONBody = 256 << 10

// APIPath is what the paths of the API begin with.
const APIPath = "/v1/"

type apiServer struct{ Backend }

// endpoint handles one route. Status 0 says that it has written its response itself.
type endpoint func(s *apiServer, w http.ResponseWriter, r *http.Request, c Caller) (status int, body any, err error)

// routes is the route table of the API, with the query parameters of each. A test compares it with docs/openapi.yaml.
var routes = []route{
	{http.MethodPost, "/v1/runs", "", (*apiServer).startRun},
	{http.MethodGet, "/v1/runs", "status agent root cursor limit", (*apiServer).listRuns},
	{http.MethodGet, "/v1/runs/{id}", "messages", (*apiServer).showRun},
	{http.MethodDelete, "/v1/runs/{id}", "", (*apiServer).deleteRun},
	{http.MethodGet, "/v1/runs/{id}/messages", "cursor limit", (*apiServer).listMessages},
	{http.MethodGet, "/v1/runs/{id}/calls", "cursor limit", (*apiServer).listCalls},
	{http.MethodGet, "/v1/runs/{id}/events", "format cursor limit", (*apiServer).listEvents},
	{http.MethodGet, "/v1/runs/{id}/journal", "cursor limit", (*apiServer).listJournal},
	{http.MethodGet, "/v1/runs/{id}/replay", "", (*apiServer).replayRun},
	{http.MethodPost, "/v1/runs/{id}/input", "", (*apiServer).receiveInput},
	{http.MethodPost, "/v1/runs/{id}/cancel", "", (*apiServer).cancelRun},
	{http.MethodPost, "/v1/runs/{id}/fork", "", (*apiServer).forkRun},
	{http.MethodPost, "/v1/runs/{id}/calls/{call}/undo", "", (*apiServer).undoCall},
	{http.MethodPost, ChatPath, "", (*apiServer).receiveChat},
	{http.MethodGet, ChatStreamPath, "", (*apiServer).resumeChat},
	{http.MethodPost, callbackPath, "", (*apiServer).receiveCallback},
	{http.MethodPost, "/v1/blobs", "", (*apiServer).announceUpload},
	{http.MethodPut, "/v1/blobs/{sha256}", "", (*apiServer).receiveUpload},
	{http.MethodGet, "/v1/approvals", "status run root newest cursor limit", (*apiServer).listApprovals},
	{http.MethodGet, "/v1/approvals/{id}", "", (*apiServer).showApproval},
	{http.MethodPost, "/v1/approvals/{id}/decision", "", (*apiServer).decideApproval},
	{http.MethodGet, "/v1/grants", "agent cursor limit", (*apiServer).listGrants},
	{http.MethodDelete, "/v1/grants/{agent}/{tool}", "digest", (*apiServer).revokeGrant},
	{http.MethodGet, "/v1/people", "cursor limit", (*apiServer).listPeople},
	{http.MethodPut, "/v1/people/{id}", "", (*apiServer).putPerson},
	{http.MethodDelete, "/v1/people/{id}", "", (*apiServer).removePerson},
	{http.MethodGet, "/v1/repairs", "cursor limit", (*apiServer).listRepairs},
	{http.MethodGet, "/v1/deletions", "cursor limit", (*apiServer).listDeletions},
}

type route struct {
	method, path, query string
	endpoint            endpoint
}

// APIHandler serves the API. It keeps no state and is safe for concurrent use as far as b is.
func APIHandler(b Backend) http.Handler {
	b.Log, b.Via = cmp.Or(b.Log, slog.New(slog.DiscardHandler)), cmp.Or(b.Via, agent.ViaAPI)
	s := &apiServer{b}
	mux := http.NewServeMux()
	for i, r := range routes {
		if i == 0 || r.path != routes[i-1].path { // the routes of a path are neighbours
			mux.HandleFunc(r.path, s.serveRoute)
		}
	}
	refuse := func(w http.ResponseWriter, r *http.Request) { s.writeProblem(w, r, pathProblem(r)) }
	mux.HandleFunc("/", refuse)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The mux would clean a path with an empty, . or .. segment, and answer with a redirect.
		if p := r.URL.Path; !strings.HasPrefix(p, "/") || p != path.Clean(p) && p != path.Clean(p)+"/" {
			refuse(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func pathProblem(r *http.Request) error {
	return problem(NoSuchPath, "%.200s: there is nothing here", r.URL.Path)
}

// APIRoutes lists the routes of an APIHandler, each as METHOD PATTERN, sorted.
func APIRoutes() []string {
	var all []string
	for _, r := range routes {
		all = append(all, r.method+" "+r.path)
	}
	slices.Sort(all)
	return all
}

// serveRoute calls the endpoint of the path and the method, and writes its result.
func (s *apiServer) serveRoute(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, to := range routes {
		if to.path != r.Pattern {
			continue
		}
		if to.method != r.Method && (to.method != http.MethodGet || r.Method != http.MethodHead) {
			allowed = append(allowed, to.method)
			continue
		}
		status, body, err := s.callEndpoint(to, w, r)
		switch {
		case err != nil:
			s.writeProblem(w, r, err)
		case status == http.StatusNoContent:
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(status)
		case status != 0:
			s.writeJSON(w, status, "application/json", body)
		}
		return
	}
	slices.Sort(allowed)
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	s.writeProblem(w, r, problem(BadMethod, "%.200s: got %.20s, want %s", r.URL.Path, r.Method,
		strings.Join(allowed, " or ")))
}

// callEndpoint calls an endpoint on behalf of the caller, once the path's id and the query are well formed, and the
// caller may change people if the path is theirs. It waits until the backend is ready, except for GET, which changes
// nothing, and DELETE, which only removes a permission.
func (s *apiServer) callEndpoint(to route, w http.ResponseWriter, r *http.Request) (status int, body any, err error) {
	var c Caller
	if r.Pattern == callbackPath { // its token is all that is checked
		_, err = s.readClaim(r)
	} else {
		var refused *Problem
		if c, err = s.Caller(r); err != nil && !errors.As(err, &refused) {
			err = problem(NotAllowed, "%v", err)
		}
	}
	if err == nil {
		err = s.completePathID(r, c)
	}
	if err == nil {
		err = checkPathID(r)
	}
	if err == nil {
		err = checkQuery(r, strings.Fields(to.query))
	}
	if err == nil && s.Ready != nil && to.method != http.MethodGet && to.method != http.MethodDelete {
		err = s.Ready(r.Context())
	}
	if err == nil && strings.HasPrefix(r.Pattern, "/v1/people") {
		err = s.mayChangePeople(c)
	}
	if err != nil {
		return 0, nil, err
	}
	return to.endpoint(s, w, r, c)
}

var (
	runPattern      = regexp.MustCompile(`^r[a-z2-7]{25}$`)
	approvalPattern = regexp.MustCompile(`^a[a-z2-7]{25}$`)
)

// shortPattern is the beginning of the id of a run or an approval.
var shortPattern = regexp.MustCompile(`^[ra][a-z2-7]{0,24}$`)

// maxShortened is how many runs, and how many approvals of each status, a shortened id is looked for among.
const maxShortened = 10_000

// completePathID replaces a shortened id in the path by the only id that begins like that. One that no id begins like
// stays as it is, and so does any one of a request that changes something where there are more than were looked at.
func (s *apiServer) completePathID(r *http.Request, c Caller) error {
	short := r.PathValue("id")
	isRun := strings.HasPrefix(r.Pattern, "/v1/runs/{id}") && strings.HasPrefix(short, "r")
	isApproval := strings.HasPrefix(r.Pattern, "/v1/approvals/{id}") && strings.HasPrefix(short, "a")
	if !shortPattern.MatchString(short) || !isRun && !isApproval {
		return nil
	}
	var lists []fetch[string]
	if isRun {
		lists = append(lists, convert(func(limit int, cursor string) ([]store.Head, string, error) {
			return s.Journal.ListSince(r.Context(), c.Tenant, "", time.Time{}, limit, cursor)
		}, func(h store.Head) string { return h.Run }))
	} else {
		for _, status := range approval.Statuses() {
			lists = append(lists, convert(func(limit int, cursor string) ([]approval.Approval, string, error) {
				find := approval.Query{Status: status, Newest: true, Limit: limit, Cursor: cursor}
				return approval.List(r.Context(), s.Table, c.Tenant, find)
			}, func(a approval.Approval) string { return a.ID }))
		}
	}
	var fits []string
	more := false // than were looked at
	for _, list := range lists {
		cursor := ""
		for looked := 0; looked == 0 || cursor != "" && looked < maxShortened; looked += maxListPage {
			ids, next, err := list(maxListPage, cursor)
			if err != nil {
				return err
			}
			for _, id := range ids {
				if strings.HasPrefix(id, short) && !slices.Contains(fits, id) {
					fits = append(fits, id)
				}
			}
			cursor = next
		}
		more = more || cursor != ""
	}
	switch {
	case len(fits) == 0 || more && r.Method != http.MethodGet:
	case len(fits) == 1:
		r.SetPathValue("id", fits[0])
	default:
		return invalidProblem("%s: more than one id begins like this: %s", short,
			strings.Join(fits[:min(len(fits), 5)], ", "))
	}
	return nil
}

// checkPathID answers an id that cannot exist like one that does not.
func checkPathID(r *http.Request) error {
	id := r.PathValue("id")
	switch {
	case strings.HasPrefix(r.Pattern, "/v1/runs/{id}"):
		return checkRunID("read", id)
	case strings.HasPrefix(r.Pattern, "/v1/approvals/{id}") && !approvalPattern.MatchString(id):
		return problem(ApprovalNotFound, "read approval %.64q: no such approval", id)
	case strings.HasPrefix(r.Pattern, "/v1/people/{id}") && !run.IsPrincipal("user:", id):
		return problem(NoSuchPath, "%.64q: want user:NAME", id)
	}
	return nil
}

// checkRunID refuses what is not a run's id. key says where it was given.
func checkRunID(key, id string) error {
	if !runPattern.MatchString(id) {
		return problem(RunNotFound, "%s run %.64q: no such run", key, id)
	}
	return nil
}

// writeProblem writes an error as a problem. Internal details go to the log, and to callers who own the machine.
func (s *apiServer) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p.Type == InternalError || p.Type == Damaged || p.Type == Unavailable {
		switch gone := r.Context().Err() != nil && errors.Is(err, context.Canceled); {
		case gone:
		case p.Type == Unavailable:
			s.Log.Warn("request put off", "route", r.Method+" "+r.Pattern, "error", err)
		default:
			s.Log.Error("request failed", "route", r.Method+" "+r.Pattern, "error", err)
		}
		if !s.Local {
			p.Detail = p.Title
		}
	}
	if p.Type == Unauthenticated && w.Header().Get("WWW-Authenticate") == "" {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if p.Type == TooManyRuns {
		w.Header().Set("Retry-After", "30") // seconds: half of the time that a run works
	}
	s.writeJSON(w, p.Status, "application/problem+json", p)
}

func (s *apiServer) writeJSON(w http.ResponseWriter, status int, mediaType string, body any) {
	data, err := jsonx.MarshalVerbatim(body)
	if err != nil {
		status, mediaType = http.StatusInternalServerError, "application/problem+json"
		data = []byte(`{"type":"internal","title":"something went wrong here","status":500,` +
			`"detail":"the answer could not be written"}`)
		s.Log.Error("write answer", "error", err)
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // the client has gone
}

// readBody decodes a strict JSON body. A missing body is an error unless it is optional.
func readBody[T any](w http.ResponseWriter, r *http.Request, optional bool) (body T, err error) {
	return readBodyOf[T](w, r, maxJSONBody, optional)
}

// readBodyOf is readBody for a body of at most so many bytes.
func readBodyOf[T any](w http.ResponseWriter, r *http.Request, most int, optional bool) (body T, err error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(most)))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return body, problem(TooLarge, "the body is larger than %d bytes", most)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return body, invalidProblem("the body: it was not all there in time; send it again")
	case err != nil:
		return body, invalidProblem("read the body: %v", err)
	case len(data) == 0 && optional:
		return body, nil
	}
	if err := checkContentType(r.Header); err != nil {
		return body, err
	}
	if err := jsonx.DecodeStrictWithin(data, jsonx.JSONLimits{Bytes: most}, &body); err != nil {
		return body, invalidProblem("the body: %v", err)
	}
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) { // null decodes into anything
		return body, invalidProblem("the body: want an object")
	}
	return body, nil
}

// unlessNull returns nil for null: an optional member that is null counts as left out.
func unlessNull(member json.RawMessage) json.RawMessage {
	if string(member) == "null" {
		return nil
	}
	return member
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

// zeroOrOne returns a parameter of a query that is 0 or 1; without it, otherwise.
func zeroOrOne(q url.Values, name, otherwise string) (string, error) {
	if !q.Has(name) {
		return otherwise, nil
	}
	if v := q.Get(name); v != "0" && v != "1" {
		return "", invalidProblem("%s: got %.64q, want 0 or 1", name, v)
	}
	return q.Get(name), nil
}

// checkQuery refuses unknown and repeated parameters of a query.
func checkQuery(r *http.Request, known []string) error {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalidProblem("the query: %v", err)
	}
	for name, values := range q {
		if !slices.Contains(known, name) {
			return invalidProblem("query parameter %.64q is not known, want %s", name, joinNames(known))
		}
		if len(values) > 1 {
			return invalidProblem("query parameter %.64q is given %d times", name, len(values))
		}
	}
	return nil
}

func joinNames(known []string) string {
	if len(known) == 0 {
		return "none"
	}
	return strings.Join(known, ", ")
}
