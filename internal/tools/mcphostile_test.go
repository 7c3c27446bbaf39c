package tools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools"
)

// on answers one method otherwise.
func on(method string, f func(http.ResponseWriter, ask)) func(http.ResponseWriter, ask) bool {
	return func(w http.ResponseWriter, a ask) bool {
		if a.Method == method {
			f(w, a)
		}
		return a.Method == method
	}
}

func stream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
}

// A server that cannot be listed says why, in time, and leaves nothing behind.
func TestHostileToListing(t *testing.T) {
	flood := func(p *peer, w http.ResponseWriter, text string, pause time.Duration) {
		for {
			select {
			case <-p.slow:
				return
			case <-time.After(pause):
			}
			if _, err := fmt.Fprint(w, text); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}
	code := func(code int) func(*peer, http.ResponseWriter, ask) {
		return func(_ *peer, w http.ResponseWriter, _ ask) { w.WriteHeader(code) }
	}
	hang := func(p *peer, w http.ResponseWriter, _ ask) { p.hang(w) }
	const list, late = "tools/list", "it did not answer within 300ms"
	for name, c := range map[string]struct {
		method string // "" = each
		do     func(*peer, http.ResponseWriter, ask)
		says   string
	}{
		"hangs at connect":        {"", hang, "connect to MCP server s: " + late},
		"hangs before any header": {"", func(p *peer, _ http.ResponseWriter, _ ask) { <-p.slow }, late},
		"hangs at list":           {list, hang, late},
		"drips at list": {list, func(p *peer, w http.ResponseWriter, _ ask) {
			stream(w)
			flood(p, w, ":", 20*time.Millisecond)
		}, late},
		"401":        {"", code(http.StatusUnauthorized), "Unauthorized"},
		"500":        {"", code(http.StatusInternalServerError), "Internal Server Error"},
		"404, older": {"", code(http.StatusNotFound), "Not Found"},
		"garbage list": {list, func(p *peer, w http.ResponseWriter, a ask) { p.result(w, a, `[]`) },
			"it answered with something else than a list of tools"},
		"pages without end": {list, func(p *peer, w http.ResponseWriter, a ask) {
			p.result(w, a, fmt.Sprintf(`{"tools":[],"nextCursor":"%d"}`, len(p.calls(list))))
		}, "its list of tools has more than 64 pages"},
		"an answer without end": {list, func(p *peer, w http.ResponseWriter, _ ask) {
			w.Header().Set("Content-Type", "application/json")
			flood(p, w, lines(1<<16, " "), 0)
		}, "it sent more than 33554432 bytes in one answer"},
		"a refusal without end": {"", func(p *peer, w http.ResponseWriter, _ ask) {
			w.WriteHeader(http.StatusBadRequest)
			flood(p, w, lines(1<<16, "x"), 0)
		}, "it sent more than 65536 bytes in one answer"},
		"notifications by the thousand": {list, func(p *peer, w http.ResponseWriter, _ ask) {
			stream(w)
			one := `data: {"jsonrpc":"2.0","method":"notifications/message","params":"` + lines(1<<14, "x") + "\"}\n\n"
			flood(p, w, one, 0)
		}, "it sent more than 4194304 bytes that nobody asked for"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t)
			p.old = strings.HasSuffix(name, "older")
			p.first = func(w http.ResponseWriter, a ask) bool {
				meant := c.method == "" || c.method == a.Method
				if meant {
					c.do(p, w, a)
				}
				return meant
			}
			limit := time.Minute
			if strings.Contains(c.says, "300ms") {
				limit = 300 * time.Millisecond
			}
			r := over(t, p, within(limit))
			began := time.Now()
			_, err := r.list()
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "127.0.0.1", "no address is told")
			require.Less(t, time.Since(began), 30*time.Second)
			require.Empty(t, p.calls("tools/call"))
		})
	}
}

func status(code int) func(http.ResponseWriter, ask) bool {
	return func(w http.ResponseWriter, _ ask) bool { w.WriteHeader(code); return true }
}

func raw(kind, body string) func(http.ResponseWriter, ask) bool {
	return func(w http.ResponseWriter, _ ask) bool {
		w.Header().Set("Content-Type", kind)
		_, _ = fmt.Fprint(w, body)
		return true
	}
}

// A call that was not answered may have been carried out, whatever happened on the way; one that was refused was not.
func TestHostileToCalls(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(p *peer, w http.ResponseWriter, a ask)
		lost bool
		says string
	}{
		"dies": {do: func(_ *peer, w http.ResponseWriter, _ ask) { drop(w) }, lost: true, says: "EOF"},
		"dies in the middle of a stream": {do: func(_ *peer, w http.ResponseWriter, _ ask) {
			stream(w)
			_, _ = fmt.Fprint(w, "data: {\"jsonrpc\"")
		}, lost: true, says: "failed to decode event"},
		"dies in a stream that it does not resume": {do: func(_ *peer, w http.ResponseWriter, _ ask) {
			stream(w)
			_, _ = fmt.Fprint(w, "id: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}\n\n")
		}, lost: true, says: "the answer was lost"},
		"answers with no result": {do: func(_ *peer, w http.ResponseWriter, _ ask) { w.WriteHeader(http.StatusAccepted) }, lost: true, says: "the answer was lost"},
		"502":                    {do: func(_ *peer, w http.ResponseWriter, a ask) { status(http.StatusBadGateway)(w, a) }, lost: true, says: "it answered 502 Bad Gateway"},
		"a flood in one result": {do: func(p *peer, w http.ResponseWriter, a ask) {
			p.result(w, a, `{"content":[{"type":"text","text":"`+lines(40<<20, "x")+`"}]}`)
		}, lost: true, says: "it sent more than 33554432 bytes in one answer"},
		"one event of all": {do: func(_ *peer, w http.ResponseWriter, _ ask) {
			stream(w)
			_, _ = fmt.Fprint(w, "data: ", lines(20<<20, "x"), "\n\n")
		}, lost: true, says: "exceeded 16777216 bytes"},
		"401": {do: func(_ *peer, w http.ResponseWriter, a ask) { status(http.StatusUnauthorized)(w, a) }, says: "MCP server s: it refused the request: 401 Unauthorized"},
		"an error, by HTTP as well": {do: func(p *peer, w http.ResponseWriter, a ask) {
			w.WriteHeader(http.StatusBadRequest)
			p.refuse(w, a, -32602, "unknown tool")
		}, says: "it answered with error -32602: unknown tool"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t)
			r := over(t, p)
			p.calling(func(w http.ResponseWriter, a ask) { c.do(p, w, a) })
			_, err := r.call("echo", tool.Call{})
			require.ErrorContains(t, err, c.says)
			if c.lost {
				require.ErrorAs(t, err, new(*tool.LostError))
			} else {
				require.NotErrorAs(t, err, new(*tool.LostError))
			}
			require.Len(t, p.calls("tools/call"), 1, "a call is sent once")

			p.calling(newPeer(t).call) // the next call finds a connection that works, a new one where it must be
			res, err := r.call("echo", tool.Call{})
			if err != nil { // one that was ending just then: the call was not sent, and may be made again
				require.ErrorContains(t, err, "it ended the connection")
				require.NotErrorAs(t, err, new(*tool.LostError))
				require.Len(t, p.calls("tools/call"), 1)
				res, err = r.call("echo", tool.Call{})
			}
			require.NoError(t, err)
			require.Equal(t, "hello", res.Content)
		})
	}
}

func drop(w http.ResponseWriter) {
	c, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = c.Close()
	}
}

// A call ends with its context, and one that is under way when the invocation ends is lost, at once.
func TestHostileCallsThatHang(t *testing.T) {
	p := newPeer(t)
	r := over(t, p)
	p.calling(func(w http.ResponseWriter, _ ask) { p.hang(w) })
	repeats := r.tool("echo")
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_, err := repeats.Call(ctx, tool.Call{})
	require.ErrorIs(t, err, context.DeadlineExceeded)

	failed := make(chan error, 1)
	go func() { _, err := repeats.Call(context.Background(), tool.Call{}); failed <- err }()
	require.Eventually(t, func() bool { return len(p.calls("tools/call")) == 2 }, 2*time.Minute, 5*time.Millisecond)
	began := time.Now()
	r.session.Close()
	require.ErrorAs(t, <-failed, new(*tool.LostError))
	require.Less(t, time.Since(began), 5*time.Second)
	_, err = repeats.Call(context.Background(), tool.Call{})
	require.ErrorContains(t, err, "the invocation has ended")
}

// Over HTTP a call that is given up, or whose answer breaks off, takes no other one with it, however far the server had
// come with its answer.
func TestHostileCallThatHangsAlone(t *testing.T) {
	begin := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"jsonrpc"`)
		w.(http.Flusher).Flush()
	}
	for name, stuck := range map[string]func(p *peer, w http.ResponseWriter){
		"nothing":                    func(p *peer, _ http.ResponseWriter) { <-p.slow },
		"the beginning of a stream":  func(p *peer, w http.ResponseWriter) { p.hang(w) },
		"the beginning of an answer": func(p *peer, w http.ResponseWriter) { begin(w); <-p.slow },
		"a broken answer":            func(_ *peer, w http.ResponseWriter) { begin(w); drop(w) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t)
			r := over(t, p)
			finish := make(chan struct{})
			p.calling(func(w http.ResponseWriter, a ask) {
				if string(a.Params.Arguments) == `{"text":"stuck"}` {
					stuck(p, w)
					return
				}
				<-finish
				p.result(w, a, `{"content":[{"type":"text","text":"done"}]}`)
			})
			echo := r.tool("echo")
			other := make(chan agent.ToolResultData, 1)
			go func() {
				res, err := echo.Call(context.Background(), tool.Call{Args: json.RawMessage(`{"text":"slow"}`)})
				assert.NoError(t, err)
				other <- res
			}()
			require.Eventually(t, func() bool { return len(p.calls("tools/call")) == 1 }, 2*time.Minute, 5*time.Millisecond)
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			_, err := echo.Call(ctx, tool.Call{Args: json.RawMessage(`{"text":"stuck"}`)})
			require.Error(t, err)
			if ctx.Err() == nil {
				require.ErrorAs(t, err, new(*tool.LostError))
			}
			time.Sleep(50 * time.Millisecond) // what it breaks it breaks a moment later
			close(finish)
			require.Equal(t, agent.ToolResultData{Content: "done"}, <-other)
			require.Len(t, p.calls("server/discover"), 1, "the connection is still the same one")
		})
	}
}

// Redirects that leave the server are not followed: neither what is sent nor its headers reach anybody else.
func TestHostileRedirects(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("another host was asked")
	}))
	defer other.Close()
	for code, method := range map[int]string{
		301: "server/discover", 302: "tools/list", 307: "tools/call", 308: "tools/call",
	} {
		p := newPeer(t)
		p.first = func(w http.ResponseWriter, a ask) bool {
			leaves := a.Method == method || method == "server/discover"
			if leaves {
				w.Header().Set("Location", other.URL+"/mcp")
				w.WriteHeader(code)
			}
			return leaves
		}
		r := over(t, p, func(_ *tools.MCP, s *agent.MCPServer) {
			s.Headers = map[string]string{"Authorization": "Bearer x"}
		})
		_, err := r.list()
		if method == "tools/call" {
			require.NoError(t, err)
			_, err = r.call("echo", tool.Call{})
		}
		require.ErrorContains(t, err, "it redirects to another host, which is not followed")
	}
}

// What cannot be used of a list is left out with the reason, and the rest is there: see TestBadPages for what else.
func TestHostileDefinitions(t *testing.T) {
	long := lines(63, "n")
	for name, c := range map[string]struct{ tool, left, why string }{
		"10 MB":        {`{"name":"x","inputSchema":{"type":"object","description":"` + lines(10<<20, "a") + `"}}`, "x", "its definition has 10485821 bytes, want at most 262144"},
		"key twice":    {`{"name":"x","name":"echo","inputSchema":{"type":"object"}}`, "echo", "its definition cannot be read"},
		"listed twice": {echo, "echo", "the server lists it twice; the first one counts"},
		"long name": {
			`{"name":"` + long + `","inputSchema":{"type":"object"}}`, long,
			"its name is too long: s." + long + " has 65 characters, want at most 64",
		},
		"tasks alone": { // as server-everything has one
			`{"name":"x","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}`, "x",
			"its server runs it as a task alone",
		},
		"no tool": {`"echo"`, "", "its definition is none"},
		"null":    {`null`, "", "its name cannot be that of a tool"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := overAnswering(t, echo+`,`+c.tool, "").list()
			require.NoError(t, err)
			require.Len(t, got.Tools, 1)
			require.Equal(t, "echo", got.Tools[0].Name)
			require.Len(t, got.Left, 1)
			require.Equal(t, c.left, got.Left[0].Name)
			require.Contains(t, got.Left[0].Why, c.why)
			require.Less(t, len(got.Left[0].Why), 5000)
		})
	}
}

// A flood of tools is cut at the bounds, on one page or over many.
func TestHostileFloods(t *testing.T) {
	for name, c := range map[string]struct {
		pad   string
		tools int
		why   string
	}{
		"many":  {"", 256, "a server may have at most 256 tools"},
		"large": {lines(30<<10, "d"), 17, "the definitions of a server's tools may have at most 524288 bytes in all"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t)
			p.tools = func(a ask) string {
				var all []string
				for i := range 200 {
					all = append(all, fmt.Sprintf(`{"name":"t%s_%d","description":"%s","inputSchema":{"type":"object"}}`, a.Params.Cursor, i, c.pad))
				}
				next := map[string]string{"": "1", "1": "2"}[a.Params.Cursor]
				return `{"tools":[` + strings.Join(all, ",") + `],"nextCursor":"` + next + `"}`
			}
			got, err := over(t, p).list()
			require.NoError(t, err)
			require.Len(t, got.Tools, c.tools)
			require.Len(t, got.Left, 65)
			require.Equal(t, c.why, got.Left[0].Why)
			require.Equal(t, agent.LeftTool{Name: "*", Why: fmt.Sprintf("%d more tools that cannot be used", 600-c.tools-64)}, got.Left[64])
		})
	}
}
