package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/jsonx"
)

// AsHeader names the principal of a request on the local socket. It is ignored everywhere else.
const AsHeader = "Countersign-As"

// ErrUnreachable says that the server did not answer completely. The request may or may not have had an effect. Every
// request of a Client may be repeated.
var ErrUnreachable = errors.New("the engine cannot be reached")

// Client calls an APIHandler. A refusal is a *Problem; other errors wrap ErrUnreachable or are the context's. Safe for
// concurrent use.
type Client struct {
	http *http.Client
	base string
	as   string
}

// NewClient returns a client that connects with dial, whatever the address. As is the principal, in the form of
// agent.ParsePrincipal; "" = the server's default.
func NewClient(dial func(ctx context.Context) (net.Conn, error), as string) *Client {
	t := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		DisableCompression: true,
		IdleConnTimeout:    time.Minute, // less than servers leave connections open
	}
	return &Client{http: &http.Client{Transport: t}, base: "http://countersign.local", as: as}
}

// NewSocketClient returns a client of the Unix socket at path.
func NewSocketClient(path, as string) *Client {
	var d net.Dialer
	return NewClient(func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "unix", path) }, as)
}

// NewURLClient returns a client of the API at base, such as https://api.example.com. Nil = http.DefaultClient.
func NewURLClient(base string, c *http.Client) *Client {
	return &Client{http: cmp.Or(c, http.DefaultClient), base: base}
}

// NewHandlerClient returns a client of a handler in this process.
func NewHandlerClient(h http.Handler) *Client {
	return &Client{http: &http.Client{Transport: inProcess{h}}, base: "http://countersign.local"}
}

// inProcess carries requests to a handler. It returns the whole response at its end.
type inProcess struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (h inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &wholeResponse{header: http.Header{}}
	in := r.Clone(r.Context())
	if in.Body == nil {
		in.Body = http.NoBody
	}
	h.ServeHTTP(w, in)
	w.WriteHeader(http.StatusOK) // if nothing was written
	return &http.Response{StatusCode: w.status, Header: w.header, Body: io.NopCloser(&w.body), Request: r}, nil
}

// wholeResponse is an http.ResponseWriter in memory.
type wholeResponse struct {
	status int
	header http.Header
	body   bytes.Buffer
}

func (w *wholeResponse) Header() http.Header { return w.header }

func (w *wholeResponse) WriteHeader(status int) { w.status = cmp.Or(w.status, status) }

func (w *wholeResponse) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Start starts a run, once for its key.
func (c *Client) Start(ctx context.Context, s Start) (Accepted, error) {
	return post[Accepted](ctx, c, "/v1/runs", s, "")
}

// RunQuery narrows a list of runs. The zero value lists all of them.
type RunQuery struct {
	Status, Agent, Cursor string
	Limit                 int    // 0 = 50
	Root                  string // root of a delegation tree; "" = all runs
}

// Runs lists a page of runs.
func (c *Client) Runs(ctx context.Context, q RunQuery) (Page[RunHead], error) {
	return get[Page[RunHead]](ctx, c, "/v1/runs", values("status", q.Status, "agent", q.Agent, "root", q.Root, "cursor",
		q.Cursor, "limit", number(q.Limit)))
}

// Run reads a run with its newest messages and calls.
func (c *Client) Run(ctx context.Context, run string) (Run, error) {
	return get[Run](ctx, c, runPath(run, ""), nil)
}

// RunWithoutMessages reads a run without messages and calls.
func (c *Client) RunWithoutMessages(ctx context.Context, run string) (Run, error) {
	return get[Run](ctx, c, runPath(run, ""), values("messages", "0"))
}

// Messages reads a page of a run's messages.
func (c *Client) Messages(ctx context.Context, run, cursor string, limit int) (Page[Message], error) {
	return get[Page[Message]](ctx, c, runPath(run, "/messages"), values("cursor", cursor, "limit", number(limit)))
}

// Calls reads a page of a run's calls.
func (c *Client) Calls(ctx context.Context, run, cursor string, limit int) (Page[Call], error) {
	return get[Page[Call]](ctx, c, runPath(run, "/calls"), values("cursor", cursor, "limit", number(limit)))
}

// Events reads a page of a run's events behind after: SEQ, SEQ.INDEX, or "" for all.
func (c *Client) Events(ctx context.Context, run, after string, limit int) (Page[Event], error) {
	return get[Page[Event]](ctx, c, runPath(run, "/events"), values("cursor", after, "limit", number(limit)))
}

// EncodedEvents reads a page of a run's events in a format of package stream, behind after: SEQ, SEQ.INDEX, or "" for
// all.
func (c *Client) EncodedEvents(
	ctx context.Context, run, format, after string, limit int,
) (Page[json.RawMessage], error) {
	return get[Page[json.RawMessage]](ctx, c, runPath(run, "/events"),
		values("format", format, "cursor", after, "limit", number(limit)))
}

// Replay folds a run's journal again.
func (c *Client) Replay(ctx context.Context, run string) (Replay, error) {
	return get[Replay](ctx, c, runPath(run, "/replay"), nil)
}

// Input sends messages, decisions and answers. Messages with a key are applied once.
func (c *Client) Input(ctx context.Context, run string, in Input, key string) (Accepted, error) {
	return post[Accepted](ctx, c, runPath(run, "/input"), in, key)
}

// Cancel ends a run.
func (c *Client) Cancel(ctx context.Context, run, note string) (Accepted, error) {
	return post[Accepted](ctx, c, runPath(run, "/cancel"), Note{note}, "")
}

// Approvals lists a page of requests of a status; "" = pending.
func (c *Client) Approvals(
	ctx context.Context, status approval.Status, cursor string, limit int,
) (Page[approval.Approval], error) {
	return c.FindApprovals(ctx, approval.Query{Status: status, Cursor: cursor, Limit: limit})
}

// FindApprovals lists a page of the requests that match; pending ones if no status is set. The server computes Since.
func (c *Client) FindApprovals(ctx context.Context, q approval.Query) (Page[approval.Approval], error) {
	newest := ""
	if q.Newest {
		newest = "1"
	}
	return get[Page[approval.Approval]](ctx, c, "/v1/approvals", values("status", string(q.Status), "run", q.Run, "root",
		q.Root, "newest", newest, "cursor", q.Cursor, "limit", number(q.Limit)))
}

// Approval reads one request.
func (c *Client) Approval(ctx context.Context, id string) (approval.Approval, error) {
	return get[approval.Approval](ctx, c, "/v1/approvals/"+url.PathEscape(id), nil)
}

// Decide decides a request.
func (c *Client) Decide(ctx context.Context, id string, v Verdict) (approval.Approval, error) {
	return post[approval.Approval](ctx, c, "/v1/approvals/"+url.PathEscape(id)+"/decision", v, "")
}

// Grants lists a page of the standing grants of an agent; "" = of all.
func (c *Client) Grants(ctx context.Context, agent, cursor string, limit int) (Page[Grant], error) {
	return get[Page[Grant]](ctx, c, "/v1/grants", values("agent", agent, "cursor", cursor, "limit", number(limit)))
}

// Revoke revokes the standing grant of a digest for an agent's tool; "" = all grants of the tool.
func (c *Client) Revoke(ctx context.Context, agent, tool, digest string) error {
	path := "/v1/grants/" + url.PathEscape(agent) + "/" + url.PathEscape(tool)
	resp, err := c.do(ctx, clientRequest{method: http.MethodDelete, path: path, query: values("digest", digest)})
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// runPath returns the path of a run, or of what is below it.
func runPath(run, below string) string { return "/v1/runs/" + url.PathEscape(run) + below }

// values returns a query of names and values without the empty ones.
func values(pairs ...string) url.Values {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	return v
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// clientRequest is one request of a client.
type clientRequest struct {
	method, path string
	query        url.Values
	in           any    // nil = no body
	key          string // idempotency key; "" = none
	accept       string // "" = whatever comes
}

func get[T any](ctx context.Context, c *Client, path string, q url.Values) (T, error) {
	return send[T](ctx, c, clientRequest{method: http.MethodGet, path: path, query: q})
}

func post[T any](ctx context.Context, c *Client, path string, in any, key string) (T, error) {
	return send[T](ctx, c, clientRequest{method: http.MethodPost, path: path, in: in, key: key})
}

// send makes one request and reads its answer.
func send[T any](ctx context.Context, c *Client, r clientRequest) (out T, err error) {
	resp, err := c.do(ctx, r)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return out, unreachableError(ctx, err)
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return out, fmt.Errorf("read the answer to %s %s: %w", r.method, r.path, err)
	}
	return out, nil
}

// do sends a request and turns a refusal into an error.
func (c *Client) do(ctx context.Context, r clientRequest) (*http.Response, error) {
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var body []byte
	var err error
	if r.in != nil {
		body, err = jsonx.MarshalVerbatim(r.in)
	}
	var req *http.Request
	if err == nil {
		req, err = http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(body))
	}
	if err != nil {
		return nil, fmt.Errorf("write the request %s %s: %w", r.method, r.path, err)
	}
	for name, value := range map[string]string{"Accept": r.accept, keyHeader: r.key, AsHeader: c.as} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	if r.in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachableError(ctx, err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		defer resp.Body.Close()
		return nil, readProblem(ctx, resp)
	}
	return resp, nil
}

func unreachableError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// readProblem reads the problem of a response.
func readProblem(ctx context.Context, resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, 2*maxJSONBody))
	if err != nil {
		return unreachableError(ctx, err)
	}
	p := &Problem{}
	t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || t != "application/problem+json" || json.Unmarshal(data, p) != nil || p.Type == "" {
		return fmt.Errorf("%w: it answered with status %d", ErrUnreachable, resp.StatusCode)
	}
	return p
}
