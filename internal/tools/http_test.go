package tools_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools"
)

// canary is a secret that must never come back.
const canary = "s3cr3t/canary+value"

type httpVault map[string]string

func (v httpVault) Secret(_ context.Context, tenant, name string) (string, error) {
	if s, ok := v[tenant+"/"+name]; ok {
		return s, nil
	}
	return "", tool.ErrNoSecret
}

// asked is a request as a server saw it.
type asked struct {
	method, uri, body string
	header            http.Header
}

// site is a server on loopback that keeps what it was asked.
type site struct {
	*httptest.Server
	host string
	mu   sync.Mutex
	seen []asked
}

func newSite(t testing.TB, answer http.HandlerFunc) *site {
	t.Helper()
	s := &site{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.seen = append(s.seen, asked{r.Method, r.RequestURI, string(body), r.Header.Clone()})
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	s.host = s.Listener.Addr().String()
	return s
}

func okHTTP(http.ResponseWriter, *http.Request) {}

// remote reaches these hosts, and no other.
func remote(t testing.TB, hosts ...string) tools.HTTP {
	t.Helper()
	private, err := tool.ParsePrivateHosts(strings.Join(hosts, ","))
	require.NoError(t, err)
	return tools.HTTP{Private: private, Secrets: httpVault{"acme/KEY": canary, "acme/LINES": "line\r\nX-Evil: 1"}}
}

func spec(h agent.HTTPTool, properties string) agent.ToolSpec {
	return agent.ToolSpec{
		Name: "orders.pay", Kind: agent.KindHTTP, Effect: run.EffectNonIdempotent, HTTP: &h,
		Schema: json.RawMessage(`{"type":"object","properties":{` + properties + `}}`),
	}
}

func httpCall(args string) tool.Call {
	return tool.Call{Tenant: "acme", Run: "r1", ID: "c1", Name: "orders.pay", Args: json.RawMessage(args), Key: "r1/c1"}
}

func enter(t testing.TB, s *site, h agent.HTTPTool, properties, args string) (agent.ToolResultData, error) {
	t.Helper()
	session := remote(t, s.host).Open("default", &agent.Definition{})
	defer session.Close()
	return session.Tool(spec(h, properties)).Call(t.Context(), httpCall(args))
}

// What becomes of arguments in a request.
func TestRequests(t *testing.T) {
	const props = `"id":{},"q":{},"tags":{},"n":{},"flag":{},"x":{},"obj":{}`
	for name, c := range map[string]struct {
		tool agent.HTTPTool // URL: its path and query
		args string
		want string // method, URI and body
	}{
		"path and query":           {agent.HTTPTool{Method: "GET", URL: "/o/{id}?q={q}&v=2"}, `{"id":"a b","q":"x&y=1"}`, "GET /o/a%20b?q=x%26y%3D1&v=2 "},
		"a query that is missing":  {agent.HTTPTool{Method: "GET", URL: "/o?q={q}&n={n}"}, `{"n":1.50}`, "GET /o?n=1.50 "},
		"a query that is null":     {agent.HTTPTool{Method: "GET", URL: "/o?q={q}"}, `{"q":null}`, "GET /o "},
		"query by key":             {agent.HTTPTool{Method: "GET", URL: "/o", Query: map[string]string{"a b": "p {q}", "n": "{n}", "z": "{x}"}}, `{"q":"1+1","n":12345678901234567890}`, "GET /o?a+b=p+1%2B1&n=12345678901234567890 "},
		"a list in the query":      {agent.HTTPTool{Method: "GET", URL: "/o?t={tags}"}, `{"tags":["a","b&c",3]}`, "GET /o?t=a&t=b%26c&t=3 "},
		"an empty list":            {agent.HTTPTool{Method: "GET", URL: "/o?t={tags}"}, `{"tags":[]}`, "GET /o "},
		"a slash in the path":      {agent.HTTPTool{Method: "GET", URL: "/p/{id}/x"}, `{"id":"group/project"}`, "GET /p/group%2Fproject/x "},
		"part of a segment":        {agent.HTTPTool{Method: "GET", URL: "/v{n}/{id}.json"}, `{"n":2,"id":"?#"}`, "GET /v2/%3F%23.json "},
		"escaped by the author":    {agent.HTTPTool{Method: "GET", URL: "/a%2Fb/{flag}"}, `{"flag":true}`, "GET /a%2Fb/true "},
		"no path":                  {agent.HTTPTool{Method: "GET", URL: "?q={q}"}, `{"q":"é"}`, "GET /?q=%C3%A9 "},
		"all the rest":             {agent.HTTPTool{Method: "POST", URL: "/o/{id}?q={q}"}, `{"id":1,"q":"x","n":1.0,"obj":{"a":["<b>"]}}`, `POST /o/1?q=x {"n":1.0,"obj":{"a":["<b>"]}}`},
		"null in the rest":         {agent.HTTPTool{Method: "PATCH", URL: "/o/{id}?q={q}"}, `{"id":1,"q":null,"x":null}`, `PATCH /o/1 {"x":null}`},
		"no rest":                  {agent.HTTPTool{Method: "PUT", URL: "/o"}, `{}`, `PUT /o {}`},
		"a DELETE has none":        {agent.HTTPTool{Method: "DELETE", URL: "/o/{id}"}, `{"id":"a","n":1}`, "DELETE /o/a "},
		"a body":                   {agent.HTTPTool{Method: "POST", URL: "/o", Body: json.RawMessage(`{"id":"{id}","note":"for {q}!","deep":[{"o":"{obj}"},"{x}",1.10,true,null],"gone":"{x}","gone2":"a {x}","lit":"{not an argument}"}`)}, `{"id":7,"q":"ana","obj":{"k":[1.0]}}`, `POST /o {"deep":[{"o":{"k":[1.0]}},1.10,true,null],"id":7,"lit":"{not an argument}","note":"for ana!"}`},
		"a value that is template": {agent.HTTPTool{Method: "POST", URL: "/o/{id}", Body: json.RawMessage(`{"a":"{q}","b":"x{q}"}`)}, `{"id":"{q}","q":"${secret:KEY} {id}"}`, `POST /o/%7Bq%7D {"a":"${secret:KEY} {id}","b":"x${secret:KEY} {id}"}`},
		"a body of DELETE":         {agent.HTTPTool{Method: "DELETE", URL: "/o", Body: json.RawMessage(`"{obj}"`)}, `{"obj":[1]}`, "DELETE /o [1]"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, okHTTP)
			c.tool.URL = s.URL + c.tool.URL
			res, err := enter(t, s, c.tool, props, c.args)
			require.NoError(t, err)
			require.Equal(t, agent.ToolResultData{Content: "status 200 OK, and nothing more"}, res)
			require.Len(t, s.seen, 1)
			require.Equal(t, c.want, s.seen[0].method+" "+s.seen[0].uri+" "+s.seen[0].body)
			h := s.seen[0].header
			require.Equal(t, "r1/c1", h.Get("Idempotency-Key"))
			require.Equal(t, "application/json, text/*", h.Get("Accept"))
			require.Equal(t, "countersign", h.Get("User-Agent"))
			require.Equal(t, s.seen[0].body != "", h.Get("Content-Type") == "application/json")
		})
	}
}

func TestABodyThatNoArgumentIsFor(t *testing.T) {
	s := newSite(t, okHTTP)
	_, err := enter(t, s, agent.HTTPTool{Method: "POST", URL: s.URL + "/o/{id}/cancel"}, `"id":{}`, `{"id":1}`)
	require.NoError(t, err)
	require.Equal(t, "", s.seen[0].body)
	require.Equal(t, "0", s.seen[0].header.Get("Content-Length"))
}

// Arguments that make no request are told to the model, and nothing is sent.
func TestArgumentsThatAreRefused(t *testing.T) {
	s := newSite(t, okHTTP)
	tool := agent.HTTPTool{Method: "POST", URL: s.URL + "/o/{id}?q={q}", Headers: map[string]string{"X-Note": "n {x}"}}
	for want, all := range map[string][]string{
		"missing": {`{}`, `{"id":null}`},
		"empty":   {`{"id":""}`},
		"leads elsewhere": {
			`{"id":".."}`, `{"id":"."}`, `{"id":"../admin"}`, `{"id":"a/../../admin"}`, `{"id":"a\\..\\b"}`,
			`{"id":"..;/admin"}`,
		},
		"control character": {`{"id":"a\u0000b"}`, `{"id":"a\nb"}`},
		"a list or an object": {
			`{"id":{"a":1}}`, `{"id":["a"]}`, `{"id":"a","q":{"b":1}}`, `{"id":"a","q":[["b"]]}`,
			`{"id":"a","x":["b"]}`,
		},
		"X-Note would have a control character": {
			`{"id":"a","x":"b\r\nX-Evil: 1"}`, `{"id":"a","x":"b\nX-Evil: 1"}`,
		},
	} {
		for _, args := range all {
			res, err := enter(t, s, tool, `"id":{},"q":{},"x":{}`, args)
			require.NoError(t, err, args)
			require.True(t, res.IsError)
			require.Contains(t, res.Content, "Nothing was sent", args)
			require.Contains(t, res.Content, want, args)
		}
	}
	require.Empty(t, s.seen)
}

// Whatever an argument holds, it stays in its place.
func TestArgumentsStayInTheirPlaces(t *testing.T) {
	s := newSite(t, okHTTP)
	tool := agent.HTTPTool{Method: "GET", URL: s.URL + "/o/{id}/end?q={q}&v=2", Query: map[string]string{"w": "{x}"}, Headers: map[string]string{"X-Note": "{n}"}}
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z/\\?#&=%.:@;{}$ +]{1,12}`))
	rapid.Check(t, func(rt *rapid.T) {
		args := map[string]string{"id": text.Draw(rt, "id"), "q": text.Draw(rt, "q"), "x": text.Draw(rt, "x"), "n": text.Draw(rt, "n")}
		raw, err := json.Marshal(args)
		require.NoError(rt, err)
		require.NoError(rt, json.Unmarshal(raw, &args)) // as the server can have them
		s.seen = nil
		res, err := enter(t, s, tool, `"id":{},"q":{},"x":{},"n":{}`, string(raw))
		if res.IsError {
			require.Empty(rt, s.seen)
			return
		}
		require.NoError(rt, err)
		require.Len(rt, s.seen, 1)
		u, err := url.ParseRequestURI(s.seen[0].uri)
		require.NoError(rt, err)
		segments := strings.Split(u.EscapedPath(), "/")
		require.Len(rt, segments, 4)
		id, err := url.PathUnescape(segments[2])
		require.NoError(rt, err)
		require.Equal(rt, []string{"o", args["id"], "end"}, []string{segments[1], id, segments[3]})
		q, err := url.ParseQuery(u.RawQuery)
		require.NoError(rt, err)
		require.Equal(rt, url.Values{"q": {args["q"]}, "v": {"2"}, "w": {args["x"]}}, q)
		require.Equal(rt, strings.TrimSpace(args["n"]), strings.TrimSpace(s.seen[0].header.Get("X-Note")))
	})
}

// What becomes of an answer.
func TestAnswers(t *testing.T) {
	png := "\x89PNG\r\n\x1a\n0000"
	for name, c := range map[string]struct {
		status     int
		kind, body string
		want       agent.ToolResultData
	}{
		"JSON, as it was sent":   {200, "application/json; charset=utf-8", `{ "a": 1.0 }`, agent.ToolResultData{Content: `{ "a": 1.0 }`}},
		"JSON of a kind":         {201, "application/vnd.api+json", `{}`, agent.ToolResultData{Content: `{}`}},
		"text":                   {200, "text/html", `<p>`, agent.ToolResultData{Content: `<p>`}},
		"not UTF-8":              {200, "text/plain", "a\xffb", agent.ToolResultData{Content: "a\uFFFDb"}},
		"nothing":                {204, "", ``, agent.ToolResultData{Content: "status 204 No Content, and nothing more"}},
		"a picture":              {200, "image/png", png, agent.ToolResultData{Content: "status 200 OK; the answer is image/png of 12 bytes", Media: []run.Media{{MediaType: "image/png", Data: "iVBORw0KGgowMDAw"}}}},
		"a type that is none":    {200, "x", "abc", agent.ToolResultData{Content: "status 200 OK; the answer is application/octet-stream of 3 bytes", Media: []run.Media{{MediaType: "application/octet-stream", Data: "YWJj"}}}},
		"an empty picture":       {200, "image/png", "", agent.ToolResultData{Content: "status 200 OK, and nothing more"}},
		"too large a picture":    {200, "image/png", strings.Repeat("x", 10<<20+1), agent.ToolResultData{Content: "status 200 OK; the answer is image/png and is left out: it is larger than 10485760 bytes"}},
		"long text":              {200, "text/plain", strings.Repeat("é", 128<<10) + "x", agent.ToolResultData{Content: strings.Repeat("é", 128<<10) + "\n[the answer is longer than 262144 bytes and is cut here]"}},
		"long text, in a letter": {200, "text/plain", "x" + strings.Repeat("é", 128<<10), agent.ToolResultData{Content: "x" + strings.Repeat("é", 128<<10-1) + "\n[the answer is longer than 262144 bytes and is cut here]"}},
		"not found":              {404, "application/json", `{"error":"no such order"}`, agent.ToolResultData{Content: "status 404 Not Found\n" + `{"error":"no such order"}`, IsError: true}},
		"no words":               {500, "", ``, agent.ToolResultData{Content: "status 500 Internal Server Error", IsError: true}},
		"a long complaint":       {422, "text/plain", strings.Repeat("x", 5000), agent.ToolResultData{Content: "status 422 Unprocessable Entity\n" + strings.Repeat("x", 4096) + "\n[the answer is longer than 4096 bytes and is cut here]", IsError: true}},
		"not modified":           {304, "", ``, agent.ToolResultData{Content: "status 304 Not Modified", IsError: true}},
		"unavailable":            {503, "", ``, agent.ToolResultData{Content: "status 503 Service Unavailable", IsError: true}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = nil
				if c.kind != "" {
					w.Header().Set("Content-Type", c.kind)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			res, err := enter(t, s, agent.HTTPTool{Method: "POST", URL: s.URL}, ``, `{}`)
			require.NoError(t, err)
			require.Equal(t, c.want, res)
		})
	}
}

// Errors say whether anything may have been done: tool.LostError, or nothing was sent.
func TestWhatWasSentIsKnown(t *testing.T) {
	half := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "half")
	}
	gateway := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	away := http.RedirectHandler("http://other.example/", http.StatusTemporaryRedirect).ServeHTTP
	call := func(t *testing.T, s *site, effect run.Effect) (agent.ToolResultData, error) {
		session := remote(t, s.host).Open("default", nil)
		defer session.Close()
		sp := spec(agent.HTTPTool{Method: "POST", URL: s.URL + "/x?key=${secret:KEY}"}, `"a":{}`)
		sp.Effect = effect
		return session.Tool(sp).Call(t.Context(), httpCall(`{"a":1}`))
	}
	for _, c := range []struct {
		answer http.HandlerFunc
		effect run.Effect
		says   string // of a result; "" = the call is lost
	}{
		{half, run.EffectNonIdempotent, ""}, {half, run.EffectIdempotent, ""},
		{gateway(502), run.EffectNonIdempotent, ""}, {gateway(504), run.EffectNonIdempotent, ""},
		{gateway(520), run.EffectNonIdempotent, ""}, {gateway(524), run.EffectNonIdempotent, ""},
		{gateway(502), run.EffectIdempotent, "status 502 Bad Gateway"},
		{away, run.EffectNonIdempotent, "status 307 Temporary Redirect\n" +
			"The redirect was not followed: not allowed: other.example:80 is not among"},
	} {
		s := newSite(t, c.answer)
		res, err := call(t, s, c.effect)
		require.Len(t, s.seen, 1, "sent once")
		if c.says != "" {
			require.NoError(t, err)
			require.Contains(t, res.Content, c.says)
			require.True(t, res.IsError)
			continue
		}
		require.ErrorAs(t, err, new(*tool.LostError))
		require.NotContains(t, err.Error(), "canary")
		require.NotContains(t, err.Error(), "key=")
	}
	t.Run("behind a 303", func(t *testing.T) { // the call was carried out, whatever its page says
		for _, next := range []http.HandlerFunc{gateway(404), away} {
			s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					http.Redirect(w, r, "/done", http.StatusSeeOther)
					return
				}
				next(w, r)
			})
			_, err := call(t, s, run.EffectNonIdempotent)
			require.ErrorAs(t, err, new(*tool.LostError))
			require.Len(t, s.seen, 2)
		}
	})
	t.Run("nobody listens", func(t *testing.T) {
		s := newSite(t, okHTTP)
		s.Close()
		session := remote(t, s.host).Open("default", nil)
		pay := session.Tool(spec(agent.HTTPTool{Method: "POST", URL: s.URL}, ``))
		_, err := pay.Call(t.Context(), httpCall(`{}`))
		require.ErrorContains(t, err, "refused")
		require.NotErrorAs(t, err, new(*tool.LostError))
		session.Close()
		_, err = pay.Call(t.Context(), httpCall(`{}`))
		require.ErrorContains(t, err, "has ended")
	})
	t.Run("a host that is not to be reached", func(t *testing.T) {
		s := newSite(t, okHTTP)
		pay := remote(t).Open("default", nil).Tool(spec(agent.HTTPTool{Method: "POST", URL: s.URL}, ``))
		_, err := pay.Call(t.Context(), httpCall(`{}`))
		require.ErrorContains(t, err, "not public")
		require.Empty(t, s.seen)
	})
	t.Run("the invocation ends", func(t *testing.T) {
		began, release := make(chan struct{}), make(chan struct{})
		s := newSite(t, func(http.ResponseWriter, *http.Request) { close(began); <-release })
		defer close(release)
		session := remote(t, s.host).Open("default", nil)
		go func() { <-began; session.Close() }()
		_, err := session.Tool(spec(agent.HTTPTool{Method: "POST", URL: s.URL}, ``)).Call(t.Context(), httpCall(`{}`))
		require.ErrorAs(t, err, new(*tool.LostError))
	})
}

// each is the canary with each of its characters in a form.
func each(form string) string {
	var all strings.Builder
	for _, c := range canary {
		fmt.Fprintf(&all, form, c)
	}
	return all.String()
}

// Secrets go where they are wanted, and nothing of them comes back, however it is written: not in a result, not in
// media, not in an error.
func TestSecretsDoNotComeBack(t *testing.T) {
	quoted, err := json.Marshal(canary)
	require.NoError(t, err)
	var status int
	var kind, echo string
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "you sent "+echo+".")
	})
	tool := agent.HTTPTool{
		Method: "POST", URL: s.URL + "/bot${secret:KEY}/send", Query: map[string]string{"k": "${secret:KEY}"},
		Headers: map[string]string{"Authorization": "Bearer ${secret:KEY}"},
		Body:    json.RawMessage(`{"pass":"${secret:KEY}","n":"{n}"}`),
	}
	for _, echo = range []string{
		canary, `{"k":` + string(quoted) + `}`, url.QueryEscape(canary), url.PathEscape(canary),
		strings.ReplaceAll(canary, "/", `\/`),
		"czNjcjN0L2NhbmFyeSt2YWx1ZQ==", hex.EncodeToString([]byte(canary)),
		strings.ToUpper(hex.EncodeToString([]byte(canary))),
		each(":%02x")[1:], each(", 0x%02X")[2:], each("%%%02X"), each("%%%02x"), each("%%25%02x"), // hexadecimal and percent
		each(`\u%04x`), each(`\u%04X`), each(`\\u%04x`), each(`\x%02x`), each(`\%03o`), each(`\u{%x}`), // JSON and programs
		each("&#%d;"), each("&#x%X;"), each("&amp;#%d;"), each("&#%07d"), // entities
		strings.NewReplacer("/", "&sol;", "+", "&plus;").Replace(canary), `s%33&#99;r\u0033t/c\x61nary%2Bv&#x61;lue`,
	} {
		for _, status = range []int{200, 401} {
			for _, kind = range []string{"text/plain", "image/png"} {
				s.seen = nil
				res, err := enter(t, s, tool, `"n":{}`, `{"n":1}`)
				require.NoError(t, err)
				require.Len(t, s.seen, 1)
				require.Equal(t, "Bearer "+canary, s.seen[0].header.Get("Authorization"))
				require.Equal(t, "/bots3cr3t%2Fcanary+value/send?k=s3cr3t%2Fcanary%2Bvalue", s.seen[0].uri)
				require.JSONEq(t, `{"pass":`+string(quoted)+`,"n":1}`, s.seen[0].body)
				for _, secret := range []string{"canary", echo, "czNjcjN0L2"} {
					require.NotContains(t, fmt.Sprint(res), secret)
				}
				if status != 200 || kind == "text/plain" {
					require.Contains(t, res.Content, "you sent ")
					require.Contains(t, res.Content, "${secret:KEY}")
				} else {
					require.Empty(t, res.Media)
				}
			}
		}
	}
}

func TestSecretsAreCutFromWhatIsCut(t *testing.T) {
	s := newSite(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, strings.Repeat("x", 4096-10)+canary)
	})
	res, err := enter(t, s, agent.HTTPTool{Method: "GET", URL: s.URL, Headers: map[string]string{"X-Key": "${secret:KEY}"}}, ``, `{}`)
	require.NoError(t, err)
	require.NotContains(t, res.Content, canary[:4])
	require.Contains(t, res.Content, "is cut here")
}

func TestSecretsThatCannotBeSent(t *testing.T) {
	s := newSite(t, okHTTP)
	for name, c := range map[string]struct {
		tool agent.HTTPTool
		want string
	}{
		"not there":       {agent.HTTPTool{Method: "GET", URL: s.URL, Headers: map[string]string{"X-Key": "${secret:NONE}"}}, "read secret NONE: there is no such secret"},
		"of two lines":    {agent.HTTPTool{Method: "GET", URL: s.URL, Headers: map[string]string{"X-Key": "${secret:LINES}"}}, "X-Key would have a control character"},
		"without TLS":     {agent.HTTPTool{Method: "GET", URL: "http://8.8.8.8/", Headers: map[string]string{"X-Key": "${secret:KEY}"}}, "secrets go out by https alone"},
		"not ours to say": {agent.HTTPTool{Method: "GET", URL: s.URL + "/${secret:a/b}"}, "want ${secret:NAME}"},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := enter(t, s, c.tool, ``, `{}`)
			said := res.Content
			if err != nil {
				said = err.Error()
			}
			require.Contains(t, said, c.want)
			require.NotContains(t, said, "X-Evil")
			require.Empty(t, s.seen)
		})
	}
}

// A field with a secret goes to no other host, an answer of which is the result.
func TestSecretsStayWithTheirHost(t *testing.T) {
	other := newSite(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "from elsewhere") })
	s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/there", http.StatusFound)
	})
	h := agent.HTTPTool{Method: "GET", URL: s.URL, Headers: map[string]string{"X-Key": "${secret:KEY}", "X-Plain": "p"}, Allow: []string{other.host}}
	session := remote(t, s.host, other.host).Open("default", nil)
	defer session.Close()
	res, err := session.Tool(spec(h, ``)).Call(t.Context(), httpCall(`{}`))
	require.NoError(t, err)
	require.Equal(t, "from elsewhere", res.Content)
	require.Equal(t, canary, s.seen[0].header.Get("X-Key"))
	require.Empty(t, other.seen[0].header.Get("X-Key"))
	require.Equal(t, "p", other.seen[0].header.Get("X-Plain"))
}
