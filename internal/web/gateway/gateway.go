// Package gateway answers the events that API Gateway (HTTP API, payload format 2.0) and Lambda function URLs invoke a function with, by
// a net/http handler, and says who makes a request.
//
// Who calls is what the gateway has verified and nothing else: the claims of a JWT or the IAM identity in the event's request context
// (see Identity). Headers, query and body never say it. An answer reaches the client as a whole, so its ResponseWriter does not flush.
package gateway

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/countersign/countersign/internal/web/api"
)

// Event is the request of payload format 2.0. A function URL's has the same form.
type Event = events.APIGatewayV2HTTPRequest

// Answer is the response of payload format 2.0.
type Answer struct {
	Status  int               `json:"statusCode"`
	Headers map[string]string `json:"headers"`
	Cookies []string          `json:"cookies,omitempty"`
	Body    string            `json:"body"`
	Base64  bool              `json:"isBase64Encoded"`
}

// Gateway answers events. All fields but Log are required. Safe for concurrent use if the handler is.
type Gateway struct {
	Handler http.Handler
	// Log is told of panics, without what they said. Nil = nobody is.
	Log *slog.Logger
}

// Serve answers one event. An event that is no HTTP request is an error; everything else is an answer.
func (g *Gateway) Serve(ctx context.Context, payload []byte) ([]byte, error) {
	var e Event
	if err := json.Unmarshal(payload, &e); err != nil {
		return nil, errors.New("read the event: want an HTTP request in payload format 2.0, got something of another form")
	}
	if e.Version != "2.0" || e.RequestContext.HTTP.Method == "" || e.RawPath == "" {
		return nil, errors.New("read the event: version, rawPath, requestContext.http.method: want an HTTP request in payload format 2.0")
	}
	out, err := json.Marshal(g.answer(ctx, &e).encode())
	if err != nil {
		return nil, fmt.Errorf("write the answer: %w", err)
	}
	return out, nil
}

// answer has the handler answer. A panic is answered and logged, less what it said.
func (g *Gateway) answer(ctx context.Context, e *Event) (rec *recorder) {
	rec = newRecorder(e.RequestContext.HTTP.Method)
	defer func() {
		if p := recover(); p != nil {
			if g.Log != nil {
				g.Log.Error("request panicked", "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			}
			rec = refusal(e.RequestContext.HTTP.Method, api.Internal, "the request could not be answered")
		}
	}()
	r, err := request(ctx, e)
	if err != nil {
		return refusal(e.RequestContext.HTTP.Method, api.InvalidRequest, err.Error())
	}
	g.Handler.ServeHTTP(rec, r)
	if rec.body.Len() > maxAnswer {
		return refusal(e.RequestContext.HTTP.Method, api.AnswerTooLarge,
			"ask for less: smaller pages (limit), or a run without its messages (messages=0)")
	}
	return rec
}

// request is the event as net/http has it.
func request(ctx context.Context, e *Event) (*http.Request, error) {
	body := []byte(e.Body)
	if e.IsBase64Encoded {
		var err error
		if body, err = base64.StdEncoding.DecodeString(e.Body); err != nil {
			return nil, fmt.Errorf("body: want base64, as isBase64Encoded says")
		}
	}
	path := withoutStage(e.RawPath, e.RequestContext.Stage)
	u := &url.URL{Path: path, RawQuery: e.RawQueryString}
	if plain, err := url.PathUnescape(path); err == nil {
		u.Path, u.RawPath = plain, path
	}
	r, err := http.NewRequestWithContext(withCaller(ctx, e.RequestContext.Authorizer), e.RequestContext.HTTP.Method, "/", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("method: want a method of HTTP")
	}
	r.URL, r.RequestURI = u, u.RequestURI()
	for name, value := range e.Headers { // several values of one name have been joined with commas
		r.Header.Set(name, value)
	}
	if len(e.Cookies) > 0 {
		r.Header.Set("Cookie", strings.Join(e.Cookies, "; "))
	}
	r.Host = e.RequestContext.DomainName
	r.RemoteAddr = e.RequestContext.HTTP.SourceIP
	return r, nil
}

// withoutStage takes the name of the stage off the path. The stage $default is not in it, nor is any behind a custom domain; a
// stage should therefore not be named v1.
func withoutStage(path, stage string) string {
	rest, ok := strings.CutPrefix(path, "/"+stage)
	if stage == "" || stage == "$default" || !ok || rest != "" && rest[0] != '/' {
		return path
	}
	return "/" + strings.TrimPrefix(rest, "/")
}

// refusal is a problem that the handler did not come to see.
func refusal(method string, t api.ProblemType, detail string) *recorder {
	p := api.Refuse(t, detail)
	rec := newRecorder(method)
	rec.Header().Set("Content-Type", "application/problem+json")
	rec.Header().Set("Cache-Control", "no-store")
	rec.WriteHeader(p.Status)
	data, err := json.Marshal(p)
	if err != nil { // a problem is strings and a number
		data = []byte("{}")
	}
	rec.body.Write(data)
	return rec
}
