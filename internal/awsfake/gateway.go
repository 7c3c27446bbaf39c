package awsfake

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/countersign/countersign/internal/clock"
)

// The bounds of an HTTP API.
const (
	maxRequest     = 10 << 20
	gatewayTimeout = 30 * time.Second
)

// Authorizer admits a request and says who made it, or returns ErrUnauthorized.
type Authorizer interface {
	authorize(r *http.Request, body []byte) (*events.APIGatewayV2HTTPRequestContextAuthorizerDescription, error)
}

// ErrUnauthorized is all that a caller is told.
var ErrUnauthorized = errors.New("Unauthorized")

// HTTPAPI is an HTTP API with a function behind all paths, and perhaps others behind some that need no authorizer. Safe for concurrent use.
type HTTPAPI struct {
	Function   func(ctx context.Context, payload []byte) ([]byte, error)
	Authorizer Authorizer
	Open       map[string]func(ctx context.Context, payload []byte) ([]byte, error) // by what paths begin with: routes that anybody may call
	Stage      string                                                               // "" = $default, whose name is not in paths
	Clock      clock.Clock
}

// ServeHTTP authorizes, invokes and answers as the service does.
func (g *HTTPAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest+1))
	if err != nil {
		return // the client is gone
	}
	if len(body) > maxRequest {
		message(w, http.StatusRequestEntityTooLarge, "Request Entity Too Large")
		return
	}
	function, open := g.route(r)
	var who *events.APIGatewayV2HTTPRequestContextAuthorizerDescription
	if !open {
		who, err = g.Authorizer.authorize(r, body)
	}
	if err != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		message(w, http.StatusUnauthorized, ErrUnauthorized.Error())
		return
	}
	ctx, cancel := g.Clock.WithTimeout(r.Context(), gatewayTimeout)
	defer cancel()
	payload, err := json.Marshal(g.event(r, body, who))
	if err != nil {
		message(w, http.StatusInternalServerError, "Internal Server Error")
		return
	}
	out, err := function(ctx, payload)
	switch {
	case ctx.Err() != nil:
		message(w, http.StatusServiceUnavailable, "Service Unavailable")
	case err != nil:
		message(w, http.StatusInternalServerError, "Internal Server Error")
	default:
		answer(w, out)
	}
}

// route is the function behind a path, and whether anybody may call it.
func (g *HTTPAPI) route(r *http.Request) (function func(ctx context.Context, payload []byte) ([]byte, error), open bool) {
	for prefix, f := range g.Open {
		if rest, ok := strings.CutPrefix(r.URL.EscapedPath(), prefix); ok && rest != "" && !strings.Contains(rest, "/") { // {link} is one segment
			return f, true
		}
	}
	return g.Function, false
}

func message(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": text}) // the client is gone if this fails
}

// event is a request as the function sees it.
func (g *HTTPAPI) event(r *http.Request, body []byte, who *events.APIGatewayV2HTTPRequestContextAuthorizerDescription) events.APIGatewayV2HTTPRequest {
	now := g.Clock.Now()
	stage, path := "$default", r.URL.EscapedPath()
	if g.Stage != "" {
		stage, path = g.Stage, "/"+g.Stage+path
	}
	e := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: "$default", RawPath: path, RawQueryString: r.URL.RawQuery, Headers: map[string]string{"host": r.Host},
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			RouteKey: "$default", AccountID: "000000000000", Stage: stage, RequestID: fmt.Sprintf("r%d", now.UnixNano()), Authorizer: who,
			APIID: "api", DomainName: "api.execute-api.eu-central-1.amazonaws.com", DomainPrefix: "api",
			Time: now.Format("02/Jan/2006:15:04:05 -0700"), TimeEpoch: now.UnixMilli(),
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{
				Method: r.Method, Path: path, Protocol: "HTTP/1.1", SourceIP: "203.0.113.7", UserAgent: r.UserAgent(),
			},
		},
	}
	for name, values := range r.Header {
		if name == "Cookie" {
			e.Cookies = strings.Split(strings.Join(values, "; "), "; ")
			continue
		}
		e.Headers[strings.ToLower(name)] = strings.Join(values, ",")
	}
	for name, values := range r.URL.Query() {
		if e.QueryStringParameters == nil {
			e.QueryStringParameters = map[string]string{}
		}
		e.QueryStringParameters[name] = strings.Join(values, ",")
	}
	e.Body = string(body)
	if !isText(r.Header.Get("Content-Type")) {
		e.Body, e.IsBase64Encoded = base64.StdEncoding.EncodeToString(body), len(body) > 0
	}
	return e
}

func isText(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (strings.HasPrefix(t, "text/") || t == "application/json" || strings.HasSuffix(t, "+json"))
}

// answer is what the function returned, or an answer made of it where it has no status code.
func answer(w http.ResponseWriter, out []byte) {
	var a events.APIGatewayV2HTTPResponse
	if err := json.Unmarshal(out, &a); err != nil || a.StatusCode == 0 {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out) // the client is gone if this fails
		return
	}
	body := []byte(a.Body)
	if a.IsBase64Encoded {
		var err error
		if body, err = base64.StdEncoding.DecodeString(a.Body); err != nil {
			message(w, http.StatusInternalServerError, "Internal Server Error")
			return
		}
	}
	for name, value := range a.Headers {
		w.Header().Set(name, value)
	}
	for name, values := range a.MultiValueHeaders {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	for _, c := range a.Cookies {
		w.Header().Add("Set-Cookie", c)
	}
	w.WriteHeader(a.StatusCode)
	_, _ = w.Write(body)
}
