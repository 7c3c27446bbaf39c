package tools_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
)

// What a server says in the header of its answer is read where it can be: a type that is none is no reason to lose the
// answer, and nothing of a header comes to the model as it is, but a type that is one.
func TestBadHeaders(t *testing.T) {
	const hidden, text, refused, lost, bytes = "\u202e", "", "refused", "lost", "application/octet-stream"
	for _, c := range []struct {
		status int
		key    string
		value  string
		taken  string // text, refused, lost = none that can be read, or the media type
	}{
		{200, "Content-Type", "x", bytes}, {200, "Content-Type", ";;;", bytes}, {200, "Content-Type", "image/\xff", bytes},
		{200, "Content-Type", "image/" + hidden, bytes}, {200, "Content-Type", "image/png; a=b; a=c", bytes},
		{200, "Content-Type", "image/" + strings.Repeat("p", 10_000), bytes},
		{200, "Content-Type", "image/png; x=" + strings.Repeat("p", 10_000), bytes},
		{200, "Content-Type", "text/plain; charset=utf-16", "text/plain; charset=utf-16"},
		{200, "Content-Type", "image/png, text/html", bytes}, {200, "Content-Type", "APPLICATION/JSON; CHARSET=UTF-8", text},
		{299, "Content-Type", "text/plain", text}, {200, "X-None", "", text},
		{200, "X-Long", strings.Repeat("canary", 20_000), lost},
		{302, "Location", "", refused}, {302, "Location", "http://canary:canary@[::1", lost},
		{307, "Location", "https://evil.example/canary?x=" + strings.Repeat("canary", 1000), refused},
		{301, "Location", "file:///etc/passwd", refused}, {301, "Location", "https://canary:canary@evil.example/", refused},
	} {
		t.Run(fmt.Sprintf("%s %.30q", c.key, c.value), func(t *testing.T) {
			s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = nil
				w.Header()[c.key] = []string{c.value}
				w.WriteHeader(c.status)
				_, err := fmt.Fprint(w, "body")
				require.NoError(t, err)
			})
			res, err := enter(t, s, agent.HTTPTool{Method: "POST", URL: s.URL}, ``, `{}`)
			require.Len(t, s.seen, 1, "a request is made once")
			if c.taken == lost {
				require.ErrorAs(t, err, new(*tool.LostError))
				require.NotContains(t, err.Error(), "canary")
				require.NotContains(t, err.Error(), s.host)
				return
			}
			require.NoError(t, err)
			require.NotContains(t, res.Content, "canary")
			require.NotContains(t, res.Content, hidden)
			require.Less(t, len(res.Content), 1000)
			switch c.taken {
			case text:
				require.Equal(t, agent.ToolResultData{Content: "body"}, res)
			case refused:
				require.True(t, res.IsError)
			default:
				require.Equal(t, []run.Media{{MediaType: c.taken, Data: base64.StdEncoding.EncodeToString([]byte("body"))}}, res.Media)
			}
		})
	}
}

// What is no answer of HTTP leaves the call open, and nothing of it is quoted.
func TestHTTPBadAnswersOnTheWire(t *testing.T) {
	for _, wire := range []string{
		"canary\r\n\r\n", "HTTP/9.canary 200 OK\r\n\r\n", "HTTP/1.1 canary\r\n\r\n", "HTTP/1.1 200 OK\r\ncanary\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: canary\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nContent-Length: 8\r\n\r\ncanary", "HTTP/1.1 200 OK\r\nTransfer-Encoding: canary\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\ncanary\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 70\r\n\r\ncanary", "",
	} {
		s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			require.NoError(t, err)
			_, err = c.Write([]byte(wire))
			require.NoError(t, err)
			require.NoError(t, c.Close())
		})
		_, err := enter(t, s, agent.HTTPTool{Method: "POST", URL: s.URL}, ``, `{}`)
		require.ErrorAs(t, err, new(*tool.LostError), "%q", wire)
		require.NotContains(t, err.Error(), "canary", "%q", wire)
		require.Len(t, s.seen, 1, "%q", wire)
	}
}
