package standins

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/jsonx"
)

// maxRequest is how long a request to an HTTP API may be, in bytes.
const maxRequest = 10 << 20

// HTTPAPI is an HTTP API with a function behind all paths. Safe for concurrent use.
type HTTPAPI struct {
	Function func(ctx context.Context, payload []byte) ([]byte, error)
	Open     []string // what paths begin with that anybody may call; one segment follows
	Clock    clock.Clock
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
	open := slices.ContainsFunc(g.Open, func(prefix string) bool {
		rest, ok := strings.CutPrefix(r.URL.EscapedPath(), prefix)
		return ok && rest != "" && !strings.Contains(rest, "/")
	})
	var who *description
	if !open {
		if who = authorize(r); who == nil {
			w.Header().Set("WWW-Authenticate", "Bearer")
			message(w, http.StatusUnauthorized, "Unauthorized")
			return
		}
	}
	ctx, cancel := g.Clock.WithTimeout(r.Context(), 30*time.Second)
	defer cancel()
	payload, err := json.Marshal(requestEvent(g.Clock, r, body, "api", "api.execute-api.eu-central-1.amazonaws.com", who))
	if err != nil {
		message(w, http.StatusInternalServerError, "Internal Server Error")
		return
	}
	out, err := g.Function(ctx, payload)
	switch {
	case ctx.Err() != nil:
		message(w, http.StatusServiceUnavailable, "Service Unavailable")
	case err != nil:
		message(w, http.StatusInternalServerError, "Internal Server Error")
	default:
		answer(w, out)
	}
}

func message(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": text}) // the client is gone if this fails
}

// requestEvent is a request as the function sees it, behind an HTTP API and behind a function URL.
func requestEvent(
	c clock.Clock, r *http.Request, body []byte, id, domain string, who *description,
) events.APIGatewayV2HTTPRequest {
	now := c.Now()
	path := r.URL.EscapedPath()
	e := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RouteKey: "$default", RawPath: path, RawQueryString: r.URL.RawQuery,
		Headers: map[string]string{"host": r.Host},
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			RouteKey: "$default", AccountID: "000000000000", Stage: "$default", RequestID: fmt.Sprintf("r%d", now.UnixNano()),
			Authorizer: who, APIID: id, DomainName: domain, DomainPrefix: id,
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
	begin(w, a)
	_, _ = w.Write(body)
}

// begin writes the status and the headers of an answer.
func begin(w http.ResponseWriter, a events.APIGatewayV2HTTPResponse) {
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
}

type description = events.APIGatewayV2HTTPRequestContextAuthorizerDescription

// Token is a token with these claims. HTTPAPI verifies none: what the service refuses never comes to the function.
func Token(claims map[string]any) string { return base64.URLEncoding.EncodeToString(encode(claims)) }

// authorize is what the function is told of the caller; nil = they are refused, as they have no token. All claims are
// texts, as the service passes them on: numbers with their digits, and a list as its elements in brackets with spaces
// between them.
func authorize(r *http.Request) *description {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	text, err := base64.URLEncoding.DecodeString(token)
	if err != nil {
		return nil
	}
	read, err := jsonx.DecodeNumbers(text)
	all, ok := read.(map[string]any)
	if err != nil || !ok {
		return nil
	}
	claims := map[string]string{}
	for name, v := range all {
		claims[name] = fmt.Sprint(v)
	}
	return &description{JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: claims}}
}

// FunctionURL is a function URL with the authorization AWS_IAM and the mode RESPONSE_STREAM. Safe for concurrent use.
type FunctionURL struct {
	// Function writes its answer to out: JSON of the status and headers, eight zeros, and the body.
	Function    func(ctx context.Context, payload []byte, out io.Writer) error
	Credentials aws.Credentials // of the one caller there is
	ARN         string          // who that is
	Region      string
	// Permits evaluates the caller's policies for an action on the function, called by its URL.
	Permits func(action string) bool
	Clock   clock.Clock
}

// ServeHTTP authorizes and invokes as the service does. New URLs need both permissions.
func (u *FunctionURL) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest))
	if err != nil {
		return // the client is gone
	}
	if !signed(r, body, u.Credentials, "lambda", u.Region) ||
		!u.Permits("lambda:InvokeFunctionUrl") || !u.Permits("lambda:InvokeFunction") {
		message(w, http.StatusForbidden, "Forbidden")
		return
	}
	const id = "abcdefghijklmnopqrstuvwxyz012345"
	who := &description{IAM: &events.APIGatewayV2HTTPRequestContextAuthorizerIAMDescription{
		AccessKey: u.Credentials.AccessKeyID, UserARN: u.ARN,
	}}
	payload, err := json.Marshal(requestEvent(u.Clock, r, body, id, id+".lambda-url."+u.Region+".on.aws", who))
	out := &streamedAnswer{to: w}
	if err == nil {
		err = u.Function(context.WithoutCancel(r.Context()), payload, out) // it goes on without its client
	}
	if err != nil && !out.began {
		message(w, http.StatusBadGateway, "Internal Server Error")
	}
}

// streamedAnswer takes a function's answer apart and passes its body on as it comes.
type streamedAnswer struct {
	to    http.ResponseWriter
	head  []byte
	began bool
}

func (a *streamedAnswer) Write(p []byte) (int, error) {
	rest := p
	if !a.began {
		a.head = append(a.head, p...)
		head, body, ok := bytes.Cut(a.head, make([]byte, 8))
		if !ok {
			return len(p), nil
		}
		var first events.APIGatewayV2HTTPResponse
		if err := json.Unmarshal(head, &first); err != nil {
			return 0, err
		}
		begin(a.to, first)
		rest, a.began = body, true
	}
	_, _ = a.to.Write(rest) // the function goes on without its client
	_ = http.NewResponseController(a.to).Flush()
	return len(p), nil
}
