package tools

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// overHTTP returns the streamable HTTP transport.
func (l *link) overHTTP(ctx context.Context) (sdk.Transport, error) {
	if l.config.Client == nil {
		return nil, errors.New("it is a server over HTTP, and none can be reached here")
	}
	at, err := url.Parse(l.server.URL)
	if err != nil || (at.Scheme != "http" && at.Scheme != "https") || at.Host == "" {
		return nil, errors.New("url: want an http or https URL")
	}
	headers, err := l.expanded(ctx, "headers", l.server.Headers)
	if err != nil {
		return nil, err
	}
	made, err := l.config.Client(at)
	if err != nil {
		return nil, err
	}
	l.hangUp = made.CloseIdleConnections
	client := *made
	next := client.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	client.Transport = &carrier{link: l, at: at, headers: headers, next: next}
	client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		switch {
		case r.URL.Scheme != at.Scheme || r.URL.Host != at.Host: // what is sent to the server is for it alone
			return errors.New("it redirects to another host, which is not followed")
		case len(via) >= 5:
			return errors.New("it redirects without end")
		case made.CheckRedirect != nil:
			return made.CheckRedirect(r, via)
		}
		return nil
	}
	client.Jar, client.Timeout = nil, 0 // calls have deadlines of their own
	return &sdk.StreamableClientTransport{Endpoint: l.server.URL, HTTPClient: &client, DisableStandaloneSSE: true,
		MaxRetries: 3, MaxEventSize: maxMessage}, nil
}

// carrier carries one connection's requests: with the server's headers, no longer than the connection lives, and with a
// bound on what comes back.
type carrier struct {
	link    *link
	at      *url.URL
	headers map[string]string
	next    http.RoundTripper
}

func (c *carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != c.at.Scheme || r.URL.Host != c.at.Host {
		// redirects are refused before; its headers are for one host alone
		return nil, errors.New("a request to another host")
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(c.link.ctx, func() { cancel(context.Cause(c.link.ctx)) })
	release := func() { stop(); cancel(nil) }
	var tried, got bool // how far the request came
	r = r.Clone(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { tried = true },
		GotConn: func(httptrace.GotConnInfo) { got = true },
	}))
	for name, value := range c.headers {
		r.Header.Set(name, value)
	}
	c.link.tap.mu.Lock()
	protocol := c.link.tap.protocol
	c.link.tap.mu.Unlock()
	if protocol != "" && r.Header.Get("Mcp-Protocol-Version") == "" {
		r.Header.Set("Mcp-Protocol-Version", protocol)
	}
	resp, err := c.next.RoundTrip(r)
	// Keep what the wire says of the call. A stream of its answer that is asked for again is another request.
	if x := exchangeOf(r.Context()); x != nil && r.Method == http.MethodPost {
		c.link.tap.mu.Lock()
		switch {
		case resp == nil:
			// Nothing was sent, for sure, where a connection was looked for and not found. A transport that tells
			// nothing may have sent it.
			x.sent = x.sent && (!tried || got)
		case resp.StatusCode >= http.StatusMultipleChoices:
			x.status = resp.StatusCode
		default:
			x.status = 0
		}
		c.link.tap.mu.Unlock()
	}
	if err != nil {
		release()
		return nil, err
	}
	most := int64(maxMCPBody)
	if resp.StatusCode >= http.StatusMultipleChoices {
		most = maxRefusal
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: most, most: most, link: c.link, release: release}
	return readWhole(resp)
}

// readWhole reads an answer that comes in one piece. The SDK takes one that breaks off for the end of the connection,
// with all calls that are under way; so it is the end of its own request.
func readWhole(resp *http.Response) (*http.Response, error) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind != "application/json" || resp.StatusCode >= http.StatusMultipleChoices {
		return resp, nil
	}
	data, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // all of it was read, or the error says more
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	return resp, nil
}

// boundedBody is an answer that breaks the connection when it is too long.
type boundedBody struct {
	io.ReadCloser
	left, most int64
	link       *link
	release    func()
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		err := fmt.Errorf("it sent more than %d bytes in one answer", b.most)
		b.link.cut(err)
		return 0, err
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

func (b *boundedBody) Close() error {
	err := b.ReadCloser.Close()
	b.release()
	return err
}
