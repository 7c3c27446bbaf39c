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
	const hidden = "\u202e"
	for name, c := range map[string]struct {
		status int
		header map[string]string
		taken  string // the media type; "" = the answer is text, refused = an answer that says no, lost = none that can be read
	}{
		"no type":                     {200, nil, ""},
		"no slash":                    {200, map[string]string{"Content-Type": "x"}, "application/octet-stream"},
		"no type at all":              {200, map[string]string{"Content-Type": ";;;"}, "application/octet-stream"},
		"bytes that are no UTF-8":     {200, map[string]string{"Content-Type": "image/\xff"}, "application/octet-stream"},
		"hidden characters":           {200, map[string]string{"Content-Type": "image/" + hidden}, "application/octet-stream"},
		"a parameter twice":           {200, map[string]string{"Content-Type": "image/png; a=b; a=c"}, "application/octet-stream"},
		"a long type":                 {200, map[string]string{"Content-Type": "image/" + strings.Repeat("p", 10_000)}, "application/octet-stream"},
		"a long parameter":            {200, map[string]string{"Content-Type": "image/png; x=" + strings.Repeat("p", 10_000)}, "application/octet-stream"},
		"another charset":             {200, map[string]string{"Content-Type": "text/plain; charset=utf-16"}, "text/plain; charset=utf-16"},
		"a header of 100,000":         {200, map[string]string{"X-Long": strings.Repeat("canary", 20_000)}, "lost"},
		"many types":                  {200, map[string]string{"Content-Type": "image/png, text/html"}, "application/octet-stream"},
		"JSON in capitals":            {200, map[string]string{"Content-Type": "APPLICATION/JSON; CHARSET=UTF-8"}, ""},
		"a status nobody has heard":   {299, map[string]string{"Content-Type": "text/plain"}, ""},
		"a redirect to nowhere":       {302, map[string]string{"Location": ""}, "refused"},
		"a redirect that is none":     {302, map[string]string{"Location": "http://canary:canary@[::1"}, "lost"},
		"a redirect elsewhere":        {307, map[string]string{"Location": "https://evil.example/canary?x=" + strings.Repeat("canary", 1000)}, "refused"},
		"a redirect to a file":        {301, map[string]string{"Location": "file:///etc/passwd"}, "refused"},
		"a redirect with credentials": {301, map[string]string{"Location": "https://canary:canary@evil.example/"}, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = nil
				for key, value := range c.header {
					w.Header()[key] = []string{value}
				}
				w.WriteHeader(c.status)
				_, err := fmt.Fprint(w, "body")
				require.NoError(t, err)
			})
			res, err := enter(t, s, agent.HTTPTool{Method: "POST", URL: s.URL}, ``, `{}`)
			require.Len(t, s.seen, 1, "a request is made once")
			if c.taken == "lost" {
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
			case "":
				require.Equal(t, agent.ToolResultData{Content: "body"}, res)
			case "refused":
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
