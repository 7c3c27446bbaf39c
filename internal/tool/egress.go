package tool

// This file and those named egress… make HTTP clients for requests whose targets are not the deployment's own: those
// of tools that agent files describe, and of servers that they name. What such a client may reach is said when it is
// made, and is checked when a URL is taken, at every redirect, and of every address right before it is dialled (OWASP,
// Server-Side Request Forgery Prevention).
//
// Its rules:
//   - Only http and https, only to hosts and ports of EgressConfig.Allow. A name is dialled at addresses that were
//     checked.
//   - Only public addresses. A host:port of EgressConfig.Private may have a private one; a name never has one at
//     which a cloud keeps credentials.
//   - A redirect goes to no other host with credentials or a body, from https to nothing else, and only so often. It
//     makes a GET of another method only where it says that the first request was carried out.
//   - Nothing of the environment counts, such as proxies; no cookies are kept, and nothing is decompressed.
//   - A request carries the trace of its context, in W3C's form (traceparent, tracestate), and no baggage.
//   - An answer's header and body end at a bound. How long a request takes is its context's to say.

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/propagation"
)

const maxRedirects = 5 // of one request

// EgressConfig says what a client may reach. The zero value reaches nothing.
type EgressConfig struct {
	Allow   []string     // host or host:port; without a port it is the scheme's own
	Private PrivateHosts // who may be at an address that is not public
	// Credentials are header fields that go to no other host, beside Authorization, Proxy-Authorization and Cookie.
	Credentials []string

	MaxBody   int64          // bytes of an answer's body, beyond which is an *http.MaxBytesError; 0 = 10 MiB
	KeepAlive bool           // connections are used again; whoever has the client closes those that are idle
	Resolve   Resolver       // nil = the system's
	Roots     *x509.CertPool // nil = the system's
}

// Resolver finds the addresses of a name; *net.Resolver does.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// EgressRefusal is the error of a request, or of its next hop, that these rules did not let go out.
type EgressRefusal struct{ Why string }

func (e *EgressRefusal) Error() string { return "not allowed: " + e.Why }

func refuseEgress(format string, args ...any) error {
	return &EgressRefusal{fmt.Sprintf(format, args...)}
}

// quoting is how net/http begins to quote an answer that it cannot read.
var quoting = []string{
	"failed to parse Location header", "malformed HTTP response", "malformed HTTP version", "malformed HTTP status code",
	"malformed MIME header", "malformed chunked encoding", "bad Content-Length", "multiple Content-Length headers",
	"unsupported transfer encoding",
}

// BareURLError returns the error of a client's request without its URL, which may hold secrets, and without what the
// server has sent.
func BareURLError(err error) error {
	var u *url.Error
	for errors.As(err, &u) {
		err = u.Err
	}
	if err == nil {
		return nil
	}
	for _, begins := range quoting {
		if before, _, quotes := strings.Cut(err.Error(), begins); quotes {
			return errors.New(before + begins)
		}
	}
	return err
}

// NewEgressClient makes a client. An entry of c.Allow that is no host is an error. The client is safe for concurrent
// use; its Transport is an http.RoundTripper of its own and checks each request that it is handed.
func NewEgressClient(c EgressConfig) (*http.Client, error) {
	c.MaxBody = cmp.Or(c.MaxBody, 10<<20)
	c.Credentials = append([]string{"Authorization", "Proxy-Authorization", "Cookie"}, c.Credentials...)
	if c.Resolve == nil {
		c.Resolve = net.DefaultResolver
	}
	d := &egressGuard{EgressConfig: c}
	for _, entry := range c.Allow {
		t, err := parseAllowedHost(entry)
		if err != nil {
			return nil, err
		}
		d.allow = append(d.allow, t)
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second, ControlContext: d.checkConnect}
	d.connect = dialer.DialContext
	d.transport = &http.Transport{
		DialContext:            d.dial,
		DisableCompression:     true,
		DisableKeepAlives:      !c.KeepAlive,
		IdleConnTimeout:        30 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.Roots},
		MaxResponseHeaderBytes: 64 << 10,
	}
	return &http.Client{Transport: d, CheckRedirect: d.redirect}, nil
}

// egressGuard checks every request of a client.
type egressGuard struct {
	EgressConfig // nothing of it is left to defaults
	allow        []hostPort
	transport    *http.Transport
	connect      func(ctx context.Context, network, address string) (net.Conn, error)
}

func (d *egressGuard) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := d.check(r); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper has to; nothing was read of it
		}
		return nil, err
	}
	r = r.Clone(r.Context())
	if r.Header.Get("Accept-Encoding") == "" {
		r.Header.Set("Accept-Encoding", "identity")
	}
	propagation.TraceContext{}.Inject(r.Context(), propagation.HeaderCarrier(r.Header)) // nothing where there is no trace
	resp, err := d.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if e := resp.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		_ = resp.Body.Close() // nothing of it is wanted
		return nil, fmt.Errorf("read the answer: want it as it is, got it encoded as %.40q", e)
	}
	resp.Body = http.MaxBytesReader(nil, resp.Body, d.MaxBody)
	return resp, nil
}

func (d *egressGuard) CloseIdleConnections() { d.transport.CloseIdleConnections() }

// check looks at where a request goes, before anything is resolved.
func (d *egressGuard) check(r *http.Request) error {
	t, err := parseHostPort(r.URL)
	if err != nil {
		return err
	}
	if r.Host != "" && r.Host != r.URL.Host {
		return refuseEgress("the request is for another host than it goes to")
	}
	allows := func(a hostPort) bool { // An entry without a port is for the scheme's own.
		return a.host == t.host && (a.port == t.port || a.port == "" && t.port == schemePorts[r.URL.Scheme])
	}
	if !slices.ContainsFunc(d.allow, allows) {
		return refuseEgress("%s is not among the hosts that may be reached", t)
	}
	if addr, err := netip.ParseAddr(t.host); err == nil {
		return d.checkAddress(t, addr)
	}
	return nil
}

func (d *egressGuard) checkAddress(t hostPort, addr netip.Addr) error {
	if isPublic(addr) {
		return nil
	}
	if d.Private.Has(t.String()) && (isLocal(addr) || t.host == addr.String()) {
		return nil
	}
	if isLocal(addr) {
		return refuseEgress("%s is at an address that is not public; an operator may allow it in %s", t, EnvPrivateHosts)
	}
	return refuseEgress("%s is at an address that is not public", t)
}

// dialled is the target that a connection is dialled for, for the last look at its address.
type dialled struct{}

// dial resolves a host once, checks every address that it has, and connects to the first of them that answers.
func (d *egressGuard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, refuseEgress("%.100q is no host and port", address)
	}
	t := hostPort{host: host, port: port}
	var addrs []netip.Addr
	if addr, err := netip.ParseAddr(host); err == nil {
		addrs = []netip.Addr{addr}
	} else if addrs, err = d.Resolve.LookupNetIP(ctx, "ip", host); err != nil {
		return nil, fmt.Errorf("find %s: %w", host, err)
	} else if len(addrs) == 0 {
		return nil, fmt.Errorf("find %s: it has no address", host)
	}
	for _, a := range addrs {
		if err := d.checkAddress(t, a); err != nil {
			return nil, err
		}
	}
	ctx = context.WithValue(ctx, dialled{}, t)
	var failed []error
	for _, a := range addrs {
		c, err := d.connect(ctx, network, net.JoinHostPort(a.Unmap().String(), port))
		if err == nil {
			return c, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

// checkConnect checks the address that the system is about to connect to, whatever led there.
func (d *egressGuard) checkConnect(ctx context.Context, _, address string, _ syscall.RawConn) error {
	t, ok := ctx.Value(dialled{}).(hostPort)
	at, err := netip.ParseAddrPort(address)
	if !ok || err != nil {
		return refuseEgress("%.100q was not checked", address)
	}
	return d.checkAddress(t, at.Addr())
}

// redirect lets a request follow a redirect, or says why not. via is where it has been, the first request first.
func (d *egressGuard) redirect(r *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return refuseEgress("more than %d redirects", maxRedirects)
	}
	last := via[len(via)-1]
	if last.URL.Scheme == "https" && r.URL.Scheme != "https" {
		return refuseEgress("a redirect from https to %.20q", r.URL.Scheme)
	}
	// net/http makes a GET of what a server has moved and not done. After 303, and by custom 302, it was done.
	code, was := r.Response.StatusCode, last.Method
	if r.Method != was && code != http.StatusSeeOther && (code != http.StatusFound || was != http.MethodPost) {
		return refuseEgress("a redirect (%d) that makes a GET of %s", code, was)
	}
	if err := d.check(r); err != nil {
		return err
	}
	r.Header.Del("Referer") // it has the query of the last URL
	home := requestOrigin(via[0])
	leaves := func(v *http.Request) bool { return requestOrigin(v) != home }
	if !leaves(r) && !slices.ContainsFunc(via, leaves) { // it never was elsewhere, even if another redirect led it back
		return nil
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.ContentLength != 0 {
		return refuseEgress("a redirect of %s to another host", r.Method)
	}
	for _, name := range d.Credentials {
		r.Header.Del(name)
	}
	return nil
}

func requestOrigin(r *http.Request) string {
	t, err := parseHostPort(r.URL)
	if err != nil {
		return ""
	}
	return r.URL.Scheme + "://" + t.String()
}
