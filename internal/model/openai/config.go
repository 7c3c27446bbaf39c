package openai

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/tool"
)

// DefaultBaseURL is OpenAI's own endpoint.
const DefaultBaseURL = "https://api.openai.com/v1"

// newServer is the server at a base URL, which has its version as http://127.0.0.1:11434/v1 has; "" = OpenAI's own. The
// key is sent as a bearer token; "" = none. Errors never hold it.
func newServer(base, key string, onDelta agent.OnDelta) (*server, error) {
	base, err := baseURL(base)
	if err != nil {
		return nil, err
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("configure openai: key has characters that no header may hold")
	}
	client := &http.Client{Transport: shared()}
	// Follow redirects that repeat the request at the same origin; what any other leads to is not seen.
	client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		first := via[0]
		same := next.URL.Scheme == first.URL.Scheme && next.URL.Host == first.URL.Host && next.Method == first.Method
		if !same || len(via) > 3 {
			return http.ErrUseLastResponse
		}
		return nil
	}
	return &server{base, key, client, onDelta}, nil
}

// shared is the process' pool of connections: a new one costs a TLS handshake, and models are made for single requests.
var shared = sync.OnceValue(func() *http.Transport {
	const connect = 5 * time.Second
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: connect}).DialContext,
		TLSHandshakeTimeout: connect,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     90 * time.Second,
	}
})

// baseURL is the normal form of a base URL. One with a user, a fragment or a query that is more than Azure's
// api-version is refused: it could carry a credential.
func baseURL(s string) (string, error) {
	if s == "" {
		return DefaultBaseURL, nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return "", errors.New("configure openai: baseURL is not an http or https URL")
	}
	if u.User != nil || u.Fragment != "" || u.RawQuery != "" && (len(u.Query()) != 1 || !u.Query().Has(apiVersion)) {
		return "",
			errors.New("configure openai: baseURL has a user, a query or a fragment, want none but the query api-version")
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return u.String(), nil
}

// apiVersion is the query of Azure's older form, which names a deployment in the path and takes its key in a header of
// its own.
const apiVersion = "api-version"

// classicAzure reports whether a base URL has Azure's older form.
func classicAzure(base string) bool { return strings.Contains(base, "?"+apiVersion+"=") }

// OwnHost reports whether a base URL is OpenAI's own, by https, to which alone the environment's key may go. "" is.
func OwnHost(base string) bool {
	return !strings.HasPrefix(strings.ToLower(base), "http:") && isHostedAt(base, "api.openai.com")
}

// isOpenAI reports whether a base URL is OpenAI's or Azure's; "" is unknown.
func isOpenAI(base string) bool {
	return base != "" &&
		(OwnHost(base) || classicAzure(base) || isHostedAt(base, "azure.com", "azure.us", "azure.cn"))
}

// isHostedAt reports whether a base URL leads to one of these hosts, or to a subdomain of one.
func isHostedAt(base string, hosts ...string) bool {
	u, err := url.Parse(cmp.Or(base, DefaultBaseURL))
	return err == nil &&
		slices.ContainsFunc(hosts, func(h string) bool { return u.Hostname() == h || strings.HasSuffix(u.Hostname(), "."+h) })
}

// Servers asks the server that a request's model names, with that server's key. All requests share their connections.
// Safe for concurrent use if OnDelta is.
type Servers struct {
	// OwnKey reads OpenAI's, which goes to no other server; nil = there is none.
	OwnKey  func(ctx context.Context) (string, error)
	Secrets tool.Secrets  // where models' own keys are
	OnDelta agent.OnDelta // is told of replies as they arrive; nil = nobody is
}

// Generate makes one request. Errors are *agent.ModelError, a context's deadline included (ModelTimeout); a context
// that was cancelled is returned as its error. A cause may have a method RetryAfter() time.Duration. A key that there
// is not is ModelAuth, one that cannot be read now ModelUnavailable.
//
// A call's Input is what the model wrote, byte for byte, JSON or not; nothing at all counts as {}, unless a limit cut
// the reply there. Whoever encodes a reply must check that first.
func (s Servers) Generate(ctx context.Context, r agent.Request) (agent.Reply, error) {
	key, err := s.key(ctx, r)
	if err != nil {
		return agent.Reply{}, err
	}
	m, err := newServer(r.Model.BaseURL, key, s.OnDelta)
	if err != nil {
		return agent.Reply{}, &agent.ModelError{Class: agent.ModelInvalid, Model: r.Model.ID, Message: err.Error(),
			Cause: err}
	}
	return m.generate(ctx, r)
}

func (s Servers) key(ctx context.Context, r agent.Request) (string, error) {
	name, ok := r.Model.KeySecret()
	var key string
	var err error
	switch {
	case ok:
		key, err = s.Secrets.Secret(ctx, r.Tenant, name)
	case s.OwnKey != nil && OwnHost(r.Model.BaseURL):
		name = "of OpenAI's own key"
		key, err = s.OwnKey(ctx)
	}
	if err == nil {
		return key, nil
	}
	class := agent.ModelUnavailable
	if errors.Is(err, tool.ErrNoSecret) {
		class = agent.ModelAuth
	}
	return "", &agent.ModelError{Class: class, Model: r.Model.ID, Message: fmt.Sprintf("key: secret %s: %v", name, err),
		Cause: err}
}
