package lambdafn

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdaurl"

	"github.com/countersign/countersign/internal/web"
)

// Lambda takes an answer of 6 MB, counted as it is encoded. In base64 that is 4.5 MB; as text in JSON, a byte can
// become six.
const (
	maxAnswer = 4_500_000 // bytes
	maxText   = 1_000_000
)

// Gateway answers the events that API Gateway (HTTP API, payload format 2.0) invokes a function with, by a handler.
//
// Who calls is what the gateway has verified and nothing else: see Identity. Headers, query and body never say it. An
// answer reaches the client as a whole. A panic is answered, and log is told where it was without what it said; nil =
// nobody is told. An event that is no HTTP request is an error of kind KindInvalid; everything else is an answer.
func Gateway(h http.Handler, log *slog.Logger) Invoke {
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		e, err := readRequest(payload)
		if err != nil {
			return nil, err
		}
		out := answerEvent(ctx, h, log, e)
		if e.RequestContext.HTTP.Method == http.MethodHead {
			out.Body = ""
		}
		if len(out.Body) > maxText || !utf8.ValidString(out.Body) {
			out.Body, out.IsBase64Encoded = base64.StdEncoding.EncodeToString([]byte(out.Body)), true
		}
		return json.Marshal(out)
	}
}

// InvokeStream answers one event of a function URL that streams.
type InvokeStream = func(ctx context.Context, payload []byte) (*events.LambdaFunctionURLStreamingResponse, error)

// Stream answers the events of a function URL that streams, as Gateway does otherwise: what the handler writes reaches
// the client at once. The answer must be closed. A panic ends it, with the status 500 if it has not begun.
func Stream(h http.Handler, log *slog.Logger) InvokeStream {
	guarded := guardPanics(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(streamWriter{w}, r)
	}), log, func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) })
	return func(ctx context.Context, payload []byte) (*events.LambdaFunctionURLStreamingResponse, error) {
		e, err := readRequest(payload)
		if err != nil {
			return nil, err
		}
		if r, err := requestOf(e); err == nil {
			ctx := context.WithValue(ctx, callerKey{}, e.RequestContext.Authorizer)
			if out, err := lambdaurl.Wrap(guarded)(ctx, r); err == nil {
				return out, nil
			}
		}
		p := refuse(web.InvalidRequest, "want an HTTP request")
		return &events.LambdaFunctionURLStreamingResponse{
			StatusCode: p.StatusCode, Headers: p.Headers, Body: strings.NewReader(p.Body),
		}, nil
	}
}

// streamed are the routes that a function URL serves.
var streamed = []string{"GET " + web.APIPath + "runs/{id}/events", "POST " + web.ChatPath, "GET " + web.ChatStreamPath}

// Stream answers the events of a function URL that streams: the events of runs and chats, and nothing else. Ended is
// called before an answer ends.
func (d *Deployment) Stream(agents web.Agents, who Identity, ended func(context.Context)) InvokeStream {
	served, next := http.NewServeMux(), d.Trace.HTTP(web.APIHandler(d.deployedBackend(agents, who)))
	for _, route := range streamed {
		served.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
			defer ended(r.Context())
			ctx, cancel := withAnswerTime(r.Context(), d.Ports.Clock)
			defer cancel()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
	served.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		p := refuse(web.NoSuchPath, "want "+strings.Join(streamed, " or ")+": the HTTP API serves everything else")
		for name, value := range p.Headers {
			w.Header().Set(name, value)
		}
		w.WriteHeader(p.StatusCode)
		_, _ = io.WriteString(w, p.Body) // the client is gone if this fails
	})
	return Stream(served, d.Log)
}

// streamWriter can be flushed: lambdaurl's writer passes every write on.
type streamWriter struct{ http.ResponseWriter }

// Flush sends the header if nothing was written yet.
func (w streamWriter) Flush() { w.WriteHeader(http.StatusOK) }

// isStream reports whether an event is of a function URL. Its domain is the id of the URL and what Lambda adds to it.
func isStream(payload []byte) bool {
	var e struct {
		RequestContext struct{ APIID, DomainName string }
	}
	err := json.Unmarshal(payload, &e)
	of := e.RequestContext
	return err == nil && of.APIID != "" && strings.HasPrefix(of.DomainName, of.APIID+".lambda-url.")
}

func readRequest(payload []byte) (*events.APIGatewayV2HTTPRequest, error) {
	var e events.APIGatewayV2HTTPRequest
	if err := json.Unmarshal(payload, &e); err != nil {
		return nil, invalidf("read the event: want an HTTP request in payload format 2.0, got something of another form")
	}
	if e.Version != "2.0" || e.RequestContext.HTTP.Method == "" || e.RawPath == "" {
		return nil, invalidf(
			"read the event: version, rawPath, requestContext.http.method: want an HTTP request in payload format 2.0")
	}
	return &e, nil
}

// guardPanics answers a panic of the handler with panicked, and logs where it was.
func guardPanics(h http.Handler, log *slog.Logger, panicked func(w http.ResponseWriter)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				if log != nil {
					log.Error("request panicked", "panic", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
				}
				panicked(w)
			}
		}()
		h.ServeHTTP(w, r)
	})
}

func answerEvent(
	ctx context.Context, h http.Handler, log *slog.Logger, e *events.APIGatewayV2HTTPRequest,
) events.APIGatewayV2HTTPResponse {
	r, err := requestOf(e)
	if err != nil {
		return refuse(web.InvalidRequest, err.Error())
	}
	panicked := false
	guarded := guardPanics(h, log, func(http.ResponseWriter) { panicked = true })
	out, err := lambdaurl.Wrap(guarded)(context.WithValue(ctx, callerKey{}, e.RequestContext.Authorizer), r)
	if err != nil {
		return refuse(web.InvalidRequest, "method, path: want those of an HTTP request")
	}
	body, err := io.ReadAll(out.Body) // it ends with the handler
	switch {
	case panicked || err != nil:
		return refuse(web.InternalError, "the request could not be answered")
	case len(body) > maxAnswer:
		return refuse(web.AnswerTooLarge, "ask for less: smaller pages (limit), or a run without its messages (messages=0)")
	}
	return events.APIGatewayV2HTTPResponse{
		StatusCode: out.StatusCode, Headers: out.Headers, Cookies: out.Cookies, Body: string(body),
	}
}

// requestOf returns the event in the form that lambdaurl takes. A function URL's event has the same form as API
// Gateway's.
func requestOf(e *events.APIGatewayV2HTTPRequest) (*events.LambdaFunctionURLRequest, error) {
	body := e.Body
	if e.IsBase64Encoded {
		plain, err := base64.StdEncoding.DecodeString(e.Body)
		if err != nil {
			return nil, fmt.Errorf("body: want base64, as isBase64Encoded says")
		}
		body = string(plain)
	}
	path := withoutStage(e.RawPath, e.RequestContext.Stage)
	at := url.URL{Path: path}
	if plain, err := url.PathUnescape(path); err == nil {
		at.Path, at.RawPath = plain, path
	}
	r := &events.LambdaFunctionURLRequest{
		RawPath: at.EscapedPath(), RawQueryString: e.RawQueryString, Body: body, Headers: map[string]string{},
	}
	r.RequestContext.DomainName = e.RequestContext.DomainName
	r.RequestContext.HTTP.Method, r.RequestContext.HTTP.SourceIP = e.RequestContext.HTTP.Method,
		e.RequestContext.HTTP.SourceIP
	for name, value := range e.Headers { // several values of one name have been joined with commas
		r.Headers[http.CanonicalHeaderKey(name)] = value
	}
	if len(e.Cookies) > 0 {
		r.Headers["Cookie"] = strings.Join(e.Cookies, "; ")
	}
	return r, nil
}

// withoutStage takes the name of the stage off the path. The stage $default is not in it, nor is any behind a custom
// domain; a stage should therefore not be named v1.
func withoutStage(path, stage string) string {
	rest, ok := strings.CutPrefix(path, "/"+stage)
	if stage == "" || stage == "$default" || !ok || rest != "" && rest[0] != '/' {
		return path
	}
	return "/" + strings.TrimPrefix(rest, "/")
}

// refuse returns the answer for a problem that is found before the handler.
func refuse(t web.ProblemType, detail string) events.APIGatewayV2HTTPResponse {
	p := web.NewProblem(t, detail)
	body, err := json.Marshal(p)
	if err != nil { // a problem is strings and a number
		body = []byte("{}")
	}
	headers := map[string]string{"Content-Type": "application/problem+json", "Cache-Control": "no-store"}
	return events.APIGatewayV2HTTPResponse{StatusCode: p.Status, Headers: headers, Body: string(body)}
}
