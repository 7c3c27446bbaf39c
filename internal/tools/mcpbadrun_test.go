package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/asl"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/tool"
	"github.com/countersign/countersign/internal/tools"
)

// house is a machine whose agent has one server, which answers one method as a test says.
type house struct {
	*local.Machine
	t     *testing.T
	blobs *store.MemoryBlobs
	def   agent.Definition

	method, answer string // "" = as a good server does
	called         int
}

// Generate is a model that calls the server's tool once.
func (h *house) Generate(_ context.Context, r agent.Request) (agent.Reply, error) {
	for _, m := range r.Messages {
		if _, did := m.Block.(run.ToolUse); did {
			return agent.Reply{Text: "done"}, nil
		}
	}
	return agent.Reply{Calls: []agent.ReplyCall{{ID: "c1", Name: "s_echo", Input: json.RawMessage(`{}`)}}}, nil
}

// Lookup has no tools of the machine's own.
func (h *house) Lookup(string) (tool.Tool, bool) { return nil, false }

func newHouse(t *testing.T, effect run.Effect) *house {
	h := &house{t: t, blobs: store.NewMemoryBlobs()}
	c := clock.System()
	remote := tools.MCP{Clock: c, Start: piped(func(a ask) (string, bool) {
		if a.Method == "tools/call" {
			h.called++
		}
		if a.Method == h.method {
			return strings.ReplaceAll(h.answer, id, string(a.ID)), false
		}
		return speaks(a), false
	})}
	var err error
	h.Machine, err = local.New(local.Config{
		Table: store.NewMemory(), Blobs: h.blobs, Model: h, Tools: h, Clock: c, IDs: ids.Seeded(c, 1),
		Executions: &asl.MemoryStore{},
		Agents:     func(string) (*agent.Definition, bool) { return &h.def, true },
		Remotes:    runtime.Remotes{agent.KindMCP: remote}, Trusts: func(string, string) {},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Engine.Close()) })
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
	s, err := h.Starter.Start(h.t.Context(), runtime.Start{
		Tenant: "acme", Agent: &h.def, Message: []run.UserBlock{{Block: run.Text{Text: "Work."}}},
	})
	require.NoError(h.t, err)
	for {
		l, err := h.Ports.Journal.Load(h.t.Context(), "acme", s.Run)
		require.NoError(h.t, err)
		if l.State.Status != run.RunRunning {
			return l.State
		}
		time.Sleep(time.Second)
	}
}

// written counts the facts of a kind in a run's journal.
func (h *house) written(runID, event string) int {
	h.t.Helper()
	entries, err := h.Ports.Journal.Entries(h.t.Context(), "acme", runID, 0, 0)
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

// What is refused, TestBadPages and TestBadEnvelopes say: here is one of each kind.
//
// A listing that is refused ends the run that needs it, by name, and nothing of the server's is kept: no pin, no
// definition, no tools.
func TestRefusedListings(t *testing.T) {
	for name, c := range map[string]struct{ method, answer, says string }{
		"no message":              {"tools/list", `{"jsonrpc":}`, "it wrote something that is no message of the protocol"},
		"somebody else's":         {"tools/list", `{"jsonrpc":"2.0","id":77,"result":{"tools":[]}}`, "it answered a request that nobody made"},
		"an error":                {"tools/list", `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32603,"message":"no"}}`, "it answered with error -32603: no"},
		"a result and an error":   {"tools/list", `{"jsonrpc":"2.0","id":` + id + `,"result":{"tools":[` + other + `]},"error":{"code":-32603,"message":"no"}}`, "it answered with a result and an error at once"},
		"tools twice":             {"tools/list", result(`{"tools":[` + echo + `],"tools":[` + other + `]}`), "want the key tools once"},
		"the same page again":     {"tools/list", result(`{"tools":[` + other + `],"nextCursor":"x"}`), "its list of tools begins again and again"},
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

// An answer to a call that cannot be read is entered once: where the call may not be made twice, as one of which nobody
// knows what became.
func TestUnreadableAnswersToCalls(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		open   bool   // nobody knows whether it was made
		says   string // of the result
	}{
		"no message":               {`{"jsonrpc":}`, true, "it wrote something that is no message of the protocol"},
		"without an id":            {`{"jsonrpc":"2.0","result":{"content":[]}}`, true, "the answer was lost"},
		"an error without an id":   {`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}`, true, "the answer was lost"},
		"somebody else's":          {`{"jsonrpc":"2.0","id":77,"result":{}}`, true, "it answered a request that nobody made"},
		"neither result nor error": {`{"jsonrpc":"2.0","id":` + id + `}`, true, "the answer was lost"},
		"both":                     {`{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[]},"error":{"code":-32602,"message":"no"}}`, true, "it answered with a result and an error at once"},
		"isError twice":            {result(`{"content":[],"isError":true,"isError":false}`), true, "its answer cannot be read: want the key isError once"},
		"an error":                 {`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32602,"message":"no \u202e"}}`, false, "it answered with error -32602: no <U+202E>"},
		"a question that is none":  {result(`{"resultType":"input_required","inputRequests":{"q":{"method":"sampling/createMessage"}}}`), false, "The server needs input and did nothing"},
		"an error of the tool's":   {result(`{"content":[{"type":"text","text":"no"}],"isError":true}`), false, "no"},
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

// Whatever bytes answer a request, after which the server ends: there is an end to it, in time, which is an error that
// can be shown or something within the bounds.
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
		remote := tools.MCP{Clock: clock.System(), Start: piped(func(a ask) (string, bool) {
			switch {
			case a.Method == method:
				return strings.ReplaceAll(string(raw), id, string(a.ID)), true
			case a.Method == "server/discover" && method == "initialize":
				return answered(a, `{}`), false
			}
			return speaks(a), false
		})}
		r := open(t, remote, agent.MCPServer{Name: "s", Command: []string{"peer"}, Timeout: 10 * time.Second})
		defer r.session.Close()
		began := time.Now()
		defer func() { require.Less(t, time.Since(began), 8*time.Second) }()
		tools, err := r.list()
		if err != nil {
			shown(t, err)
			return
		}
		listed(t, tools)
		if method != "tools/call" {
			return
		}
		res, err := r.pinned("echo", tools.Tools[0].Digest).Call(context.Background(), tool.Call{})
		if err != nil {
			require.True(t, errors.As(err, new(*tool.LostError)) || strings.Contains(err.Error(), "it answered with error "), "it failed and nobody said so: %v", err)
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
