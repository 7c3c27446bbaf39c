package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools/mcp"
)

// house is a deployment whose agent has one server, which answers one method as a test says.
type house struct {
	t     *testing.T
	table *store.Memory
	blobs *store.MemoryBlobs
	ports runtime.Ports
	def   agent.Definition
	ids   *ids.Source
	runs  int

	method, answer string // "" = as a good server does
	called         int
}

// Ask is a model that calls the server's tool once.
func (h *house) Ask(_ context.Context, r agent.Request) (agent.Reply, int, error) {
	for _, m := range r.Messages {
		if _, did := m.Block.(run.ToolUse); did {
			return agent.Reply{Text: "done"}, 1, nil
		}
	}
	return agent.Reply{Calls: []agent.ReplyCall{{ID: "c1", Name: "s_echo", Input: json.RawMessage(`{}`)}}}, 1, nil
}

// Lookup has no tools of the deployment's own.
func (h *house) Lookup(string) (tool.Tool, bool) { return nil, false }

// sleepers is a state machine that never wakes anybody.
type sleepers struct{}

func (sleepers) Success(context.Context, string) error               { return nil }
func (sleepers) Start(context.Context, string, string, string) error { return nil }
func (sleepers) Stop(context.Context, string, string) error          { return nil }
func (sleepers) Status(context.Context, string) (runtime.ExecutionStatus, error) {
	return runtime.ExecutionRunning, nil
}

func newHouse(t *testing.T, effect run.Effect) *house {
	h := &house{t: t, table: store.NewMemory(), blobs: store.NewMemoryBlobs()}
	c := clock.System()
	remote, err := mcp.New(mcp.Config{Clock: c, Start: piped(func(a ask) (string, bool) {
		if a.Method == "tools/call" {
			h.called++
		}
		if a.Method == h.method {
			return strings.ReplaceAll(h.answer, id, string(a.ID)), false
		}
		return speaks(a), false
	})})
	require.NoError(t, err)
	h.ids = ids.Seeded(c, 1)
	h.ports = runtime.Ports{
		Table: h.table, Journal: store.NewJournal(h.table, 0), Blobs: h.blobs, Model: h, Tools: h, Valid: tool.Validate, Waiter: sleepers{}, Clock: c, IDs: h.ids,
		Remotes: runtime.Remotes{agent.KindMCP: remote}, Trusts: func(string, string) {},
	}
	h.def, err = agent.PresetDefaults(agent.PresetCountersign)
	require.NoError(t, err)
	h.def.Name, h.def.System, h.def.Model.Provider, h.def.Model.ID = "clerk", "You work.", "demo", "m"
	h.def.Permission.Rules = []agent.Rule{{Tool: "*", Verdict: agent.VerdictAllow}}
	h.def.MCP = []agent.MCPServer{{Name: "s", Command: []string{"peer"}, Timeout: 5 * time.Second, Tools: []agent.MCPPattern{{Match: "*", Effect: effect}}}}
	require.NoError(t, h.def.Check())
	return h
}

// run runs the agent until the run waits or is over.
func (h *house) run() run.AgentState {
	h.t.Helper()
	h.runs++
	ctx := h.t.Context()
	s, err := (&runtime.Starter{Ports: h.ports}).Start(ctx, runtime.Start{
		Tenant: "acme", Agent: &h.def, Key: fmt.Sprint(h.runs), Message: []run.UserBlock{{Block: run.Text{Text: "Work."}}},
	})
	require.NoError(h.t, err)
	pinned := runtime.PinnedDefinitions(h.blobs)
	for woken := int64(0); ; {
		in := runtime.Invocation{Tenant: "acme", Run: s.Run, Execution: s.Owner, Woken: woken, Writer: h.ids.Writer()}
		r, err := (&runtime.Stepper{Ports: h.ports, Definitions: pinned}).Step(ctx, in)
		require.NoError(h.t, err)
		if r.Next == runtime.NextTools {
			in.Woken, in.Writer = r.Woken, h.ids.Writer()
			r, err = (&runtime.Batch{Ports: h.ports, Definitions: pinned, Waits: &runtime.Waits{Ports: h.ports}}).Run(ctx, in)
			require.NoError(h.t, err)
		}
		if woken = r.Woken; r.Next != runtime.NextStep && r.Next != runtime.NextTools {
			l, err := h.ports.Journal.Load(ctx, "acme", s.Run)
			require.NoError(h.t, err)
			return l.State
		}
	}
}

// written counts the facts of a kind in a run's journal.
func (h *house) written(runID, event string) int {
	h.t.Helper()
	entries, err := h.ports.Journal.Entries(h.t.Context(), "acme", runID, 0, 0)
	require.NoError(h.t, err)
	n := 0
	for _, e := range entries {
		for _, ev := range e.Events {
			if run.EventType(ev) == event {
				n++
			}
		}
	}
	return n
}

// kept names all definitions that are stored.
func (h *house) kept() string { return strings.Join(h.blobs.Names(), "\n") }

// A listing that is refused ends the run that needs it, by name, and nothing of the server's is kept: no pin, no definition, no tools.
func TestRefusedListings(t *testing.T) {
	for name, c := range map[string]struct{ method, answer, says string }{
		"no message":              {"tools/list", `{"jsonrpc":}`, "it wrote something that is no message of the protocol"},
		"another version":         {"tools/list", `{"jsonrpc":"1.0","id":` + id + `}`, "it wrote something that is no message of the protocol"},
		"somebody else's":         {"tools/list", `{"jsonrpc":"2.0","id":77,"result":{"tools":[]}}`, "it answered a request that nobody made"},
		"an error":                {"tools/list", `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32603,"message":"no"}}`, "it answered with error -32603: no"},
		"a result and an error":   {"tools/list", `{"jsonrpc":"2.0","id":` + id + `,"result":{"tools":[` + other + `]},"error":{"code":-32603,"message":"no"}}`, "it answered with a result and an error at once"},
		"no tools":                {"tools/list", result(`{"content":[]}`), "it has no key tools"},
		"tools twice":             {"tools/list", result(`{"tools":[` + echo + `],"tools":[` + other + `]}`), "want the key tools once"},
		"tools of a kind":         {"tools/list", result(`{"tools":{"echo":` + other + `}}`), "want a list for the key tools"},
		"a cursor of a kind":      {"tools/list", result(`{"tools":[` + other + `],"nextCursor":7}`), "want a text for the key nextCursor"},
		"a cursor too long":       {"tools/list", result(`{"tools":[` + other + `],"nextCursor":"` + lines(20_000, "c") + `"}`), "its nextCursor cannot be used: json at offset 16384: want at most 16384 bytes"},
		"the same page again":     {"tools/list", result(`{"tools":[` + other + `],"nextCursor":"x"}`), "its list of tools begins again and again"},
		"versions of a kind":      {"server/discover", result(`{"supportedVersions":"2026-07-28"}`), "want a list of texts for the key supportedVersions"},
		"no version of either":    {"server/discover", result(`{}`), "it ended the connection"},
		"a message of 17 MB":      {"tools/list", result(`{"tools":[` + other + `],"x":"` + lines(17<<20, "x") + `"}`), "exceeded the configured maximum line length"},
		"a list that never comes": {"tools/list", `{"jsonrpc":"2.0","method":"notifications/message"}`, "it did not list its tools in time OR it did not answer within 5s"}, // a loaded machine may be late already when it connects
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, run.EffectRead)
				require.Equal(t, run.ReasonNaturalEnd, h.run().Reason, "the server is listed")
				require.Equal(t, 1, h.called)
				before := h.kept()
				require.NotEmpty(t, before)

				h.method, h.answer = c.method, c.answer
				s := h.run()
				require.Equal(t, run.ReasonError, s.Reason)
				require.Equal(t, run.CodeMCPUnavailable, s.Error.Code)
				require.Contains(t, s.Error.Message, "the tools of the server s cannot be listed: ")
				says := strings.ReplaceAll(regexp.QuoteMeta(c.says), " OR ", "|")
				require.Regexp(t, says, s.Error.Message)
				require.Equal(t, before, h.kept(), "nothing was written but how the run ended")
				require.Zero(t, h.written(s.Run, "tools_listed"))
				require.Equal(t, 1, h.called)

				h.method = ""
				require.Equal(t, run.ReasonNaturalEnd, h.run().Reason, "and what was pinned is, still")
				require.Equal(t, 2, h.called)
			})
		})
	}
}

// other is the tool echo as somebody else describes it.
const other = `{"name":"echo","description":"sends it home","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}`

// An answer to a call that cannot be read is entered once: where the call may not be made twice, as one of which nobody knows what became.
func TestUnreadableAnswersToCalls(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		open   bool   // nobody knows whether it was made
		says   string // of the result
	}{
		"no message":                {`{"jsonrpc":}`, true, "it wrote something that is no message of the protocol"},
		"without an id":             {`{"jsonrpc":"2.0","result":{"content":[]}}`, true, "the answer was lost"},
		"an error without an id":    {`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}`, true, "the answer was lost"},
		"another version":           {`{"jsonrpc":"1.0","id":` + id + `,"result":{}}`, true, "it wrote something that is no message of the protocol"},
		"an id of a kind":           {`{"jsonrpc":"2.0","id":[` + id + `],"result":{}}`, true, "the answer was lost"},
		"somebody else's":           {`{"jsonrpc":"2.0","id":77,"result":{}}`, true, "it answered a request that nobody made"},
		"neither result nor error":  {`{"jsonrpc":"2.0","id":` + id + `}`, true, "the answer was lost"},
		"both":                      {`{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[]},"error":{"code":-32602,"message":"no"}}`, true, "it answered with a result and an error at once"},
		"an error of a kind":        {`{"jsonrpc":"2.0","id":` + id + `,"error":"no"}`, true, "it wrote something that is no message of the protocol"},
		"isError of a kind":         {result(`{"content":[],"isError":"false"}`), true, "its answer cannot be read: want true or false for the key isError"},
		"isError twice":             {result(`{"content":[],"isError":true,"isError":false}`), true, "its answer cannot be read: want the key isError once"},
		"another type of result":    {result(`{"resultType":"task","task":{}}`), true, "want complete or input_required for the key resultType"},
		"a question and a result":   {result(`{"content":[],"inputRequests":7}`), true, "want an object for the key inputRequests"},
		"an error":                  {`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32602,"message":"no \u202e"}}`, false, "it answered with error -32602: no <U+202E>"},
		"a question that is none":   {result(`{"resultType":"input_required","inputRequests":{"q":{"method":"sampling/createMessage"}}}`), false, "The server needs input and did nothing"},
		"an error of the tool's":    {result(`{"content":[{"type":"text","text":"no"}],"isError":true}`), false, "no"},
		"a state that comes to bad": {result(`{"resultType":"input_required","inputRequests":{},"requestState":7}`), false, "want a text for the key requestState"},
	} {
		for _, effect := range []run.Effect{run.EffectNonIdempotent, run.EffectRead} {
			t.Run(name+", "+string(effect), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHouse(t, effect)
					h.method, h.answer = "tools/call", c.answer
					s := h.run()
					call, ok := s.Call("c1")
					require.True(t, ok)
					require.Equal(t, 1, h.called, "it was made once")
					if c.open && effect == run.EffectNonIdempotent {
						require.Equal(t, run.RunWaiting, s.Status)
						require.Equal(t, run.StatusSuspended, call.Status)
						require.Equal(t, run.ForOutcome, call.Wait.For)
						require.Nil(t, call.Result)
						require.Zero(t, h.written(s.Run, "call_finished"))
						require.Equal(t, 1, h.written(s.Run, "call_unknown"))
						return
					}
					require.Equal(t, run.ReasonNaturalEnd, s.Reason)
					require.Equal(t, run.StatusFailed, call.Status)
					require.Contains(t, call.Result.Content, c.says)
					require.NotContains(t, call.Result.Content, "canary")
					require.Equal(t, 1, h.written(s.Run, "call_finished"))
				})
			})
		}
	}
}

// fuzzed are the methods whose answer is any bytes.
var fuzzed = []string{"tools/call", "tools/list", "server/discover", "initialize"}

// Whatever bytes answer a request, after which the server ends: there is an end to it, in time, which is an error that can be shown or something
// within the bounds.
func FuzzAnswer(f *testing.F) {
	bodies := []string{all, `{"tools":[` + echo + `,` + other + `],"nextCursor":"x"}`, `{"supportedVersions":["2026-07-28"]}`, `{"protocolVersion":"2025-06-18"}`}
	for which, body := range bodies {
		f.Add(uint8(which), []byte(result(body)))
		f.Add(uint8(which), []byte(`{"jsonrpc":"2.0","id":`+id+`,"error":{"code":-32602,"message":"no\u202e","data":{}}}`))
		f.Add(uint8(which), []byte(strings.Replace(result(body), `"2.0"`, `"1.0"`, 1)))
		f.Add(uint8(which), []byte(result(body)[:len(body)/2]))
		f.Add(uint8(which), []byte(`{"jsonrpc":"2.0","id":"q1","method":"roots/list"}`+"\n"+result(body)))
		f.Add(uint8(which), []byte(strings.TrimSuffix(result(body), "}")+`,"error":{"code":1,"message":"m"}}`))
		f.Add(uint8(which), []byte("["+result(body)+"]"))
	}
	for _, seed := range []string{
		`{"resultType":"input_required","requestState":"s","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object"}}},"r":{"method":"elicitation/create","params":{"mode":"url","url":"https://x.example/"}}}}`,
		`{"content":[7,{"type":"resource","resource":7},{"type":"resource","resource":{"uri":"\u202e","text":null}}],"structuredContent":1e999}`, `{"toolResult":{"n":1.0},"_meta":{}}`, `{"text":"a\ud800"}`, `"done"`, `null`, `[]`,
		`{"content":[],"isError":true,"isError":false}`, `{"content":null,"Content":[{"type":"text"}]}`, `{"resultType":"task"}`,
	} {
		f.Add(uint8(0), []byte(result(seed)))
		f.Add(uint8(len(fuzzed)), []byte(seed))
	}
	for which, body := range bodies {
		f.Add(uint8(len(fuzzed)+which), []byte(body))
	}
	f.Fuzz(func(t *testing.T, which uint8, raw []byte) {
		method := fuzzed[int(which)%len(fuzzed)]
		if int(which)/len(fuzzed)%2 == 1 { // in an envelope that is good
			raw = []byte(result(string(raw)))
		}
		remote, err := mcp.New(mcp.Config{Clock: clock.System(), Start: piped(func(a ask) (string, bool) {
			switch {
			case a.Method == method:
				return strings.ReplaceAll(string(raw), id, string(a.ID)), true
			case a.Method == "server/discover" && method == "initialize":
				return answered(a, `{}`), false
			}
			return speaks(a), false
		})})
		require.NoError(t, err)
		server := agent.MCPServer{Name: "s", Command: []string{"peer"}, Timeout: 10 * time.Second}
		session := remote.Open("acme", &agent.Definition{MCP: []agent.MCPServer{server}})
		defer session.Close()
		began := time.Now()
		defer func() { require.Less(t, time.Since(began), 8*time.Second) }()
		tools, err := session.(runtime.Lister).List(context.Background(), server)
		if err != nil {
			shown(t, err)
			return
		}
		listed(t, tools)
		if method != "tools/call" {
			return
		}
		spec := agent.ToolSpec{Name: "s.echo", Kind: agent.KindMCP, MCP: &agent.MCPTool{Server: "s", Tool: "echo", Digest: tools.Tools[0].Digest}}
		res, err := session.Tool(spec).Call(context.Background(), tool.Call{})
		if err != nil {
			var gone *tool.LostError
			require.True(t, errors.As(err, &gone) || strings.Contains(err.Error(), "it answered with error "), "it failed and nobody said so: %v", err)
			shown(t, err)
			return
		}
		within8MB(t, res)
	})
}

// shown fails where an error is not one that people can be shown.
func shown(t *testing.T, err error) {
	t.Helper()
	text := err.Error()
	require.Contains(t, text, "MCP server s: ")
	require.Less(t, len(text), 2200)
	require.True(t, utf8.ValidString(text))
	for _, ours := range []string{"Go struct", "Go value", "goroutine ", "unmarshal"} {
		require.NotContains(t, strings.ReplaceAll(text, "it answered with error", ""), ours)
	}
}

// listed fails where a listing holds what no tool may be.
func listed(t *testing.T, tools agent.ServerTools) {
	t.Helper()
	require.LessOrEqual(t, len(tools.Tools), 256)
	require.LessOrEqual(t, len(tools.Left), 65)
	for _, tool := range tools.Tools {
		require.True(t, agent.ValidToolName("s."+tool.Name), tool.Name)
		require.Len(t, tool.Digest, 64)
		require.LessOrEqual(t, len(tool.Description), 8<<10)
		_, err := jsonx.CompactJSON(tool.Schema, jsonx.JSONLimits{})
		require.NoError(t, err)
	}
	for _, l := range tools.Left {
		require.NotEmpty(t, l.Why)
		require.LessOrEqual(t, len(l.Name), 200)
		require.Less(t, len(l.Why), 2200)
	}
}

// within8MB fails where a result is more than is taken of one, or cannot be stored.
func within8MB(t *testing.T, res agent.ToolResultData) {
	t.Helper()
	_, err := json.Marshal(res)
	require.NoError(t, err)
	require.Less(t, len(res.Content), 8<<20+8<<10)
	require.LessOrEqual(t, len(res.Media), 1000)
	if res.Suspend == nil {
		return
	}
	require.NotEmpty(t, res.Suspend.Memo)
	_, err = jsonx.CompactJSON(res.Suspend.ResponseSchema, jsonx.JSONLimits{})
	require.NoError(t, err)
}
