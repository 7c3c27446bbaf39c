package tool_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/tool"
)

// newServer is a real one on loopback, which an operator has allowed.
func newServer(t *testing.T, h http.HandlerFunc) (s *httptest.Server, host string) {
	t.Helper()
	s = httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s, s.Listener.Addr().String()
}

func privateHosts(t *testing.T, hosts ...string) tool.PrivateHosts {
	t.Helper()
	p, err := tool.ParsePrivateHosts(strings.Join(hosts, ","))
	require.NoError(t, err)
	return p
}

func newClient(t *testing.T, c tool.EgressConfig) *http.Client {
	t.Helper()
	made, err := tool.NewEgressClient(c)
	require.NoError(t, err)
	return made
}

func newRequest(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, from)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer canary")
	r.Header.Set("Cookie", "c=canary")
	r.Header.Set("X-Api-Key", "canary")
	r.Header.Set("X-Plain", "plain")
	return r
}

// seenRequest is what a server was asked.
type seenRequest struct {
	method, body string
	header       http.Header
}

func lookAt(r *http.Request) seenRequest {
	body, _ := io.ReadAll(r.Body) // what is missing fails the test
	return seenRequest{r.Method, string(body), r.Header.Clone()}
}

// Credentials go to no other host, nor to the first one again once a request has been elsewhere; and nobody learns
// where it came from.
func TestRedirectsDropCredentials(t *testing.T) {
	var asked []seenRequest
	var firstURL, secondURL string
	follow := func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, lookAt(r))
		switch r.URL.Path {
		case "/same":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/other":
			http.Redirect(w, r, secondURL+"/end", http.StatusFound)
		case "/there-and-back":
			http.Redirect(w, r, secondURL+"/back", http.StatusTemporaryRedirect)
		case "/back":
			http.Redirect(w, r, firstURL+"/end", http.StatusTemporaryRedirect)
		}
	}
	a, hostA := newServer(t, follow)
	b, hostB := newServer(t, follow)
	firstURL, secondURL = a.URL, b.URL
	c := newClient(t, tool.EgressConfig{Allow: []string{hostA, hostB}, Private: privateHosts(t, hostA, hostB), Credentials: []string{"x-api-key"}})
	for path, credentials := range map[string][]bool{ // of each request on the way
		"/same?key=canary": {true, true}, "/other?key=canary": {true, false}, "/there-and-back": {true, false, false},
	} {
		asked = nil
		resp, err := c.Do(newRequest(t, http.MethodGet, firstURL+path, ""))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Len(t, asked, len(credentials), path)
		for i, s := range asked {
			for _, name := range []string{"Authorization", "Cookie", "X-Api-Key"} {
				require.Equal(t, credentials[i], s.header.Get(name) != "", "%s: %s", path, name)
			}
			require.Equal(t, "plain", s.header.Get("X-Plain"))
			require.Empty(t, s.header.Get("Referer"))
			require.Equal(t, "identity", s.header.Get("Accept-Encoding"))
		}
	}
}

// What a request may become on its way, and where it may be led.
func TestRedirectsFollowTheRules(t *testing.T) {
	var asked []seenRequest
	status, to := 0, ""
	at := func(w http.ResponseWriter, r *http.Request) {
		if asked = append(asked, lookAt(r)); len(asked) == 1 {
			w.Header().Set("Location", to)
			w.WriteHeader(status)
		}
	}
	srv, host := newServer(t, at)
	elsewhere, otherHost := newServer(t, at)
	_, strange := newServer(t, at)
	cl := newClient(t, tool.EgressConfig{Allow: []string{host, otherHost}, Private: privateHosts(t, host, otherHost, strange)})
	for _, c := range []struct {
		method string
		status int
		to     string
		want   string // method and body of the last request; "" = refused
		err    string
	}{
		{"GET", 301, "/end", "GET ", ""}, {"GET", 308, "/end", "GET ", ""}, {"HEAD", 302, "/end", "HEAD ", ""},
		{"POST", 303, "/end", "GET ", ""}, {"POST", 302, "/end", "GET ", ""},
		{"POST", 307, "/end", "POST body", ""}, {"PUT", 308, "/end", "PUT body", ""},
		{"POST", 303, elsewhere.URL + "/end", "GET ", ""}, {"DELETE", 303, "/end", "GET ", ""},
		{"POST", 301, "/end", "", "a redirect (301) that makes a GET of POST"},
		{"DELETE", 302, "/end", "", "a redirect (302) that makes a GET of DELETE"},
		{"POST", 307, elsewhere.URL + "/end", "", "a redirect of POST to another host"},
		{"PUT", 308, elsewhere.URL + "/end", "", "a redirect of PUT to another host"},
		{"DELETE", 307, elsewhere.URL + "/end", "", "a redirect of DELETE to another host"},
		{"GET", 302, "http://" + strange + "/", "", "not among the hosts"},
		{"GET", 302, "http://169.254.169.254/", "", "not among the hosts"},
		{"GET", 302, "http://" + host + "@" + strange + "/", "", "without a user"},
		{"GET", 302, "http://2130706433/", "", "four decimal numbers"},
		{"GET", 302, "file:///etc/passwd", "", "want http or https"},
		{"GET", 302, "//" + strange + "/", "", "not among the hosts"},
	} {
		t.Run(fmt.Sprint(c.method, c.status, c.to), func(t *testing.T) {
			asked, status, to = nil, c.status, c.to
			body := "body"
			if c.method == "GET" || c.method == "HEAD" {
				body = ""
			}
			resp, err := cl.Do(newRequest(t, c.method, srv.URL, body))
			if c.want == "" {
				require.ErrorAs(t, err, new(*tool.EgressRefusal))
				require.ErrorContains(t, err, c.err)
				require.Len(t, asked, 1)
				return
			}
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Len(t, asked, 2)
			require.Equal(t, c.want, asked[1].method+" "+asked[1].body)
		})
	}
}

func TestRedirectsEnd(t *testing.T) {
	n := 0
	srv, host := newServer(t, func(w http.ResponseWriter, r *http.Request) { n++; http.Redirect(w, r, "/", http.StatusFound) })
	c := newClient(t, tool.EgressConfig{Allow: []string{host}, Private: privateHosts(t, host)})
	_, err := c.Do(newRequest(t, http.MethodGet, srv.URL, ""))
	require.ErrorContains(t, err, "more than 5 redirects")
	require.Equal(t, 6, n)
}

func TestRedirectFromHTTPSToHTTP(t *testing.T) {
	plain, plainHost := newServer(t, func(http.ResponseWriter, *http.Request) { t.Error("asked without TLS") })
	secure := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	t.Cleanup(secure.Close)
	host := secure.Listener.Addr().String()
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	c := tool.EgressConfig{Allow: []string{host, plainHost}, Private: privateHosts(t, host, plainHost), Roots: roots}
	_, err := newClient(t, c).Do(newRequest(t, http.MethodGet, secure.URL, ""))
	require.ErrorContains(t, err, `a redirect from https to "http"`)
	c.Roots = nil
	_, err = newClient(t, c).Do(newRequest(t, http.MethodGet, secure.URL, ""))
	require.ErrorContains(t, err, "certificate", "nobody's certificate is taken on trust")
}

// Loopback is refused where no operator allowed it, also by a redirect, with real listeners.
func TestLoopbackIsRefused(t *testing.T) {
	inner, innerHost := newServer(t, func(http.ResponseWriter, *http.Request) { t.Error("asked") })
	outer, outerHost := newServer(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, inner.URL, http.StatusFound) })
	c := newClient(t, tool.EgressConfig{Allow: []string{innerHost, outerHost}, Private: privateHosts(t, outerHost)})
	_, err := c.Do(newRequest(t, http.MethodGet, inner.URL, ""))
	require.ErrorContains(t, err, "not public")
	_, err = c.Do(newRequest(t, http.MethodGet, outer.URL, ""))
	require.ErrorContains(t, err, "not public")
}

func TestNothingOfTheEnvironmentCounts(t *testing.T) {
	_, proxy := newServer(t, func(http.ResponseWriter, *http.Request) { t.Error("the proxy was asked") })
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"} {
		t.Setenv(name, "http://"+proxy)
	}
	c := newClient(t, tool.EgressConfig{Allow: []string{"10.0.0.1"}, Private: privateHosts(t, proxy)})
	_, err := c.Do(newRequest(t, http.MethodGet, "http://10.0.0.1/", ""))
	require.ErrorContains(t, err, "not public")
}

func TestAnswersAreBounded(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := z.Write(make([]byte, 10<<20))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	srv, host := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/fits":
			_, _ = w.Write(make([]byte, 1000))
		case "/large":
			_, _ = w.Write(make([]byte, 1001))
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		case "/header":
			w.Header().Set("X-Large", strings.Repeat("x", 90_000))
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(zipped.Bytes())
		}
	})
	c := newClient(t, tool.EgressConfig{Allow: []string{host}, Private: privateHosts(t, host), MaxBody: 1000})
	read := func(path string) (int, error) {
		resp, err := c.Do(newRequest(t, http.MethodGet, srv.URL+path, ""))
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return len(body), err
	}
	n, err := read("/fits")
	require.NoError(t, err)
	require.Equal(t, 1000, n)
	for _, path := range []string{"/large", "/endless"} {
		n, err = read(path)
		var large *http.MaxBytesError
		require.ErrorAs(t, err, &large, path)
		require.Equal(t, 1000, n)
		require.EqualValues(t, 1000, large.Limit)
	}
	_, err = read("/header")
	require.ErrorContains(t, err, "header")
	_, err = read("/bomb")
	require.ErrorContains(t, err, `got it encoded as "gzip"`)
}

// The context alone says how long a request takes, to the last byte of its answer.
func TestTheContextEndsARequest(t *testing.T) {
	release := make(chan struct{})
	srv, host := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-release
	})
	defer close(release)
	c := newClient(t, tool.EgressConfig{Allow: []string{host}, Private: privateHosts(t, host)})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := c.Do(newRequest(t, http.MethodGet, srv.URL, "").WithContext(ctx))
	require.NoError(t, err)
	defer resp.Body.Close()
	cancel()
	_, err = io.ReadAll(resp.Body)
	require.ErrorIs(t, err, context.Canceled)
}

func TestHostHeaderIsTheHosts(t *testing.T) {
	srv, host := newServer(t, func(http.ResponseWriter, *http.Request) { t.Error("asked") })
	c := newClient(t, tool.EgressConfig{Allow: []string{host}, Private: privateHosts(t, host)})
	r := newRequest(t, http.MethodPost, srv.URL, "body")
	r.Host = "another.example"
	_, err := c.Do(r)
	require.ErrorContains(t, err, "another host")
}
