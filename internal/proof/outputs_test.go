package proof

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"

	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/web"
)

const megabyte = 1 << 20

// asked is how large the requests were that a model got.
type asked struct {
	mu    sync.Mutex
	sizes []int // bytes of text in messages
}

// above is how many requests were larger.
func (a *asked) above(window int) (n int) {
	for _, size := range a.sizes {
		if size > window {
			n++
		}
	}
	return n
}

func (a *asked) see(r agent.Request) {
	size := len(r.System)
	for _, m := range r.Messages {
		switch b := m.Block.(type) {
		case run.Text:
			size += len(b.Text)
		case run.ToolUse:
			size += len(b.Input)
		case run.ToolResult:
			size += len(b.Content)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sizes = append(a.sizes, size)
}

// TestLargeOutputs: a conversation with 5 MB of what tools said. No item comes near its limit, no request is larger than the window, and whoever
// reads gets pages.
func TestLargeOutputs(t *testing.T) {
	whole := func(d *agent.Definition) { d.Context.TruncateResult = 0 }
	usual := func(*agent.Definition) {}
	for _, c := range []struct {
		name   string
		n      int // results
		size   int
		define func(d *agent.Definition)
		over   bool // the model is asked once about more than its window
	}{
		{"one of 5 MB, cut for the model", 1, 5 * megabyte, usual, false},
		{"one of 5 MB, whole", 1, 5 * megabyte, whole, true},
		{"200 of 25 KB, cut for the model", sized(12, 200), 25 << 10, usual, false},
		{"200 of 25 KB, whole", sized(30, 200), 25 << 10, whole, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &asked{}
			content := strings.Repeat("All work and no play. ", c.size/22+1)[:c.size]
			l := newLab(t, setup{
				table: stores["memory"](t), model: WorkModel{N: c.n, Tool: "work_read", Seen: a.see}, define: c.define,
				result: func(c tool.Call) string { return c.Key + content },
			})
			runID := l.start(t, "large").Run
			l.ended.untilEnded(t, 1, 1)
			s := l.state(t, runID)
			require.Equal(t, run.ReasonNaturalEnd, s.Reason)
			window := l.def.Context.Window * 16 / 5 // bytes of prose
			require.Equal(t, c.over, a.above(window) > 0, "requests of %d B", a.sizes)
			if c.over { // the run is summed up as soon as it is known that nothing more fits
				require.LessOrEqual(t, len(l.ended.entered)*c.size, window+c.size)
				require.EqualValues(t, 1, a.above(window))
			}
			require.LessOrEqual(t, l.items.size("J"), store.MaxItem/2)
			l.assertPages(t, runID, len(l.ended.entered))
			require.NoError(t, l.Engine.Close())
		})
	}
}

// mostAnswer is what a Lambda function may answer, in bytes.
const mostAnswer = 6 * megabyte

// get asks the API, which reads a journal, and gives the answer.
func (l *lab) get(t *testing.T, j web.Journal, path string, stream bool) []byte {
	t.Helper()
	b := l.Backend()
	b.Agents, b.Feed, b.Journal, b.Ready = nobody{}, web.NewFeed(l.Ports.Clock), j, nil
	b.Caller = func(*http.Request) (web.Caller, error) { return web.Caller{Tenant: local.Tenant, Principal: ana}, nil }
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	if stream {
		r.Header.Set("Accept", "text/event-stream")
	}
	w := httptest.NewRecorder()
	web.APIHandler(b).ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	return w.Body.Bytes()
}

type nobody struct{}

func (nobody) Agent(string) (*agent.Definition, bool) { return nil, false }
func (nobody) Agents() []string                       { return nil }

// assertPages: every page fits into an answer, and together they are all messages and calls.
func (l *lab) assertPages(t *testing.T, run string, calls int) {
	t.Helper()
	largest, messages := 0, 0
	for _, list := range []string{"messages", "calls", "events"} {
		found := 0
		for cursor, more := "", true; more; {
			path := "/v1/runs/" + run + "/" + list + "?limit=100"
			if cursor != "" {
				path += "&cursor=" + cursor
			}
			body := l.get(t, l.Ports.Journal, path, false)
			largest = max(largest, len(body))
			var p web.Page[json.RawMessage]
			require.NoError(t, json.Unmarshal(body, &p))
			found += len(p.Items)
			cursor, more = p.Cursor, p.Cursor != ""
		}
		switch list {
		case "messages":
			messages = found
		case "calls":
			require.Equal(t, calls, found)
		}
	}
	s := l.state(t, run)
	require.Equal(t, s.Messages.Len()+int(s.EvictedMessages), messages)
	require.LessOrEqual(t, largest, mostAnswer)
}
