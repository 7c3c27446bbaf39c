package tools

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/tool"
)

// HTTP carries out calls of tools that are HTTP requests (agent.HTTPTool). The zero value has no secrets and reaches
// public hosts alone. Safe for concurrent use.
//
// A request is made of the pinned description, the call's arguments and secrets alone. Arguments fill places: whatever
// they hold, they change neither host, nor the path's structure, nor which parameters and header fields there are.
// Every attempt of a call has the same Idempotency-Key, the call's own (IETF draft Idempotency-Key header field).
//
// What a server says is the tool's own answer, whatever its status. Where a request was, or may have been, sent and no
// answer can be read, the error is a tool.LostError; any other error says that nothing was sent. Nothing that comes
// back holds a secret that was sent.
type HTTP struct {
	Secrets tool.Secrets      // nil = there are none
	Private tool.PrivateHosts // an own network's hosts that tools may reach
}

// Open implements runtime.Remote. Each request has a connection of its own.
func (r HTTP) Open(string, *agent.Definition) runtime.Session {
	return newSession(r.call, errors.New("the invocation has ended"))
}

func (r HTTP) call(ctx context.Context, spec agent.ToolSpec, c tool.Call) (agent.ToolResultData, error) {
	if spec.HTTP == nil {
		return agent.ToolResultData{}, errors.New("the tool has no request")
	}
	t := &request{spec, r.Private, arguments(c.Args), tool.NewDisclosure(r.Secrets, c.Tenant)}
	made, fields, err := t.build(ctx, c.Key)
	var unfit *unfitError
	switch {
	case errors.As(err, &unfit):
		return agent.ToolResultData{Content: "Nothing was sent: " + unfit.why, IsError: true}, nil
	case err != nil:
		return agent.ToolResultData{}, t.redacted(err)
	}
	return t.send(made, fields)
}

// request is one call of a tool.
type request struct {
	spec    agent.ToolSpec
	private tool.PrivateHosts
	args    map[string]json.RawMessage
	secrets *tool.Disclosure // what the request has of them
}

// build makes the request. fields are the header fields that hold secrets.
func (t *request) build(ctx context.Context, key string) (r *http.Request, fields []string, err error) {
	target, err := t.url(ctx)
	if err != nil {
		return nil, nil, err
	}
	body, err := t.body(ctx)
	if err != nil {
		return nil, nil, err
	}
	r, err = http.NewRequestWithContext(ctx, t.spec.HTTP.Method, target, bytes.NewReader(body))
	if err != nil {
		return nil, nil, errors.New("the URL cannot be read")
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Accept", "application/json, text/*")
	r.Header.Set("User-Agent", "countersign")
	fields, err = t.headers(ctx, r.Header)
	r.Header.Set("Idempotency-Key", key)
	return r, fields, err
}

// client makes the one that this tool's requests may use.
func (t *request) client(u *url.URL, fields []string) (*http.Client, error) {
	at, err := tool.OriginOf(u)
	if err != nil {
		return nil, err
	}
	if len(t.secrets.Names()) > 0 && u.Scheme != "https" && !t.private.Has(at) {
		return nil, &tool.EgressRefusal{Why: "secrets go out by https alone"}
	}
	return tool.NewEgressClient(tool.EgressConfig{
		Allow: append([]string{at}, t.spec.HTTP.Allow...), Private: t.private, Credentials: fields, MaxBody: maxHTTPBody,
	})
}

// send makes the one attempt that a call has, and reads the answer.
func (t *request) send(r *http.Request, fields []string) (agent.ToolResultData, error) {
	client, err := t.client(r.URL, fields)
	if err != nil {
		return agent.ToolResultData{}, t.redacted(err)
	}
	var connected atomic.Bool
	r = r.WithContext(httptrace.WithClientTrace(r.Context(),
		&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}))
	resp, err := client.Do(r)
	var refused *tool.EgressRefusal
	switch {
	case err == nil:
		defer resp.Body.Close()
		res, err := t.readAnswer(resp)
		if err != nil {
			return agent.ToolResultData{}, &tool.LostError{Err: t.redacted(err)}
		}
		return res, nil
	case resp != nil && errors.As(err, &refused) && !t.leavesOpen(resp): // an answer, which leads where nobody follows
		return agent.ToolResultData{Content: fmt.Sprintf("status %s\nThe redirect was not followed: %s", statusText(resp),
			t.secrets.Redact(refused.Error())), IsError: true}, nil
	case connected.Load():
		return agent.ToolResultData{}, &tool.LostError{Err: t.redacted(err)}
	default:
		return agent.ToolResultData{}, t.redacted(err)
	}
}

// redacted returns an error's text without URL and secrets. It does not wrap the cause, which may hold them.
func (t *request) redacted(err error) error {
	return errors.New(t.secrets.Redact(tool.BareURLError(err).Error()))
}

// The bounds of what is read of an answer, in bytes.
const (
	maxHTTPBody = 10 << 20
	maxHTTPText = 256 << 10 // of a result, where the tool says nothing else
	maxTrouble  = 4 << 10   // of what comes with a status that is no success
)

// gatewayCodes say that a gateway passed a request on and had no answer to it; 520 and 524 are Cloudflare's.
var gatewayCodes = []int{http.StatusBadGateway, http.StatusGatewayTimeout, 520, 524}

// leavesOpen reports whether an answer does not say what became of a non-idempotent call: a gateway's, or one without
// success to the GET that a redirect made of the call after it was carried out.
func (t *request) leavesOpen(resp *http.Response) bool {
	redirected := resp.Request.Method != t.spec.HTTP.Method && (resp.StatusCode < 200 || resp.StatusCode > 299)
	return t.spec.Effect == run.EffectNonIdempotent && (redirected || slices.Contains(gatewayCodes, resp.StatusCode))
}

// readAnswer reads a server's answer. It returns an error if the answer cannot be read.
func (t *request) readAnswer(resp *http.Response) (agent.ToolResultData, error) {
	switch code := resp.StatusCode; {
	case t.leavesOpen(resp):
		return agent.ToolResultData{}, fmt.Errorf("what came is no answer to the call itself: status %s", statusText(resp))
	case code < 200 || code > 299:
		text, err := t.readText(resp, maxTrouble)
		return agent.ToolResultData{Content: strings.TrimSuffix("status "+statusText(resp)+"\n"+text, "\n"), IsError: true},
			err
	case !isText(resp.Header.Get("Content-Type")):
		return t.readMedia(resp)
	}
	text, err := t.readText(resp, min(cmp.Or(t.spec.MaxResult, maxHTTPText), maxHTTPBody/2))
	if text == "" {
		text = "status " + statusText(resp) + ", and nothing more"
	}
	return agent.ToolResultData{Content: text}, err
}

// statusText returns a status such as "404 Not Found", in the standard words and not the server's.
func statusText(resp *http.Response) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
}

// textTypes are the types below application that are text.
var textTypes = []string{"json", "xml", "yaml", "x-yaml", "javascript", "x-ndjson", "x-www-form-urlencoded"}

// isText reports whether a body of that type is text in UTF-8 or in a subset of it.
func isText(contentType string) bool {
	if contentType == "" {
		return true
	}
	kind, params, err := mime.ParseMediaType(contentType)
	charsets := []string{"", "utf-8", "utf8", "us-ascii", "ascii"}
	if err != nil || !slices.Contains(charsets, strings.ToLower(params["charset"])) {
		return false
	}
	top, sub, _ := strings.Cut(kind, "/")
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(sub, "+json") ||
		strings.HasSuffix(sub, "+xml") && top != "image" || top == "application" && slices.Contains(textTypes, sub)
}

// readText reads at most so many bytes of text. Longer text is cut and gets a notice.
func (t *request) readText(resp *http.Response, most int64) (string, error) {
	data, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return "", err
	}
	if int64(len(data)) <= most {
		return strings.ToValidUTF8(t.secrets.Redact(string(data)), "\uFFFD"), nil
	}
	text := t.secrets.RedactCut(string(data[:most]))
	return strings.TrimRight(strings.ToValidUTF8(text, "\uFFFD"), "\uFFFD") +
		fmt.Sprintf("\n[the answer is longer than %d bytes and is cut here]", most), nil
}

// readMedia reads a body that is no text, to show it to the model as it is.
func (t *request) readMedia(resp *http.Response) (agent.ToolResultData, error) {
	data, err := io.ReadAll(resp.Body)
	kind, params, bad := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind = mime.FormatMediaType(kind, params); bad != nil || !agent.ValidMediaType(kind) {
		kind = "application/octet-stream"
	}
	left := func(why string) (agent.ToolResultData, error) {
		return agent.ToolResultData{Content: fmt.Sprintf("status %s; the answer is %s and is left out: %s", statusText(resp),
			kind, why)}, nil
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return left(fmt.Sprintf("it is larger than %d bytes", large.Limit))
	case err != nil:
		return agent.ToolResultData{}, err
	case len(data) == 0:
		return agent.ToolResultData{Content: "status " + statusText(resp) + ", and nothing more"}, nil
	case t.secrets.Redact(string(data)) != string(data), t.secrets.Redact(kind) != kind:
		kind = "something"
		return left("it has a secret in it")
	}
	return agent.ToolResultData{
		Content: fmt.Sprintf("status %s; the answer is %s of %d bytes", statusText(resp), kind, len(data)),
		Media:   []run.Media{{MediaType: kind, Data: base64.StdEncoding.EncodeToString(data)}},
	}, nil
}
