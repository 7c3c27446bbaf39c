package agentfile

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

var ordersGet = agent.ToolSpec{
	Name: "orders.get", Kind: agent.KindInternal, Description: "Look an order up.", Schema: json.RawMessage(`{"type":"object"}`),
	Effect: run.EffectRead, Timeout: time.Minute,
}

var mailSend = agent.ToolSpec{Name: "mail.send", Kind: agent.KindInternal, Effect: run.EffectNonIdempotent, Schema: json.RawMessage(`{"type":"object"}`)}

func registered() Options {
	known := []agent.ToolSpec{ordersGet, mailSend}
	return Options{Registered: known, Tools: func(name string) (agent.ToolSpec, bool) {
		for _, t := range known {
			if t.Name == name {
				return t, true
			}
		}
		return agent.ToolSpec{}, false
	}}
}

const minimal = "name: a\nsystem: s\nmodel: {provider: openai, id: m}\n"

func TestParseEverything(t *testing.T) {
	data, err := os.ReadFile("testdata/full.yaml")
	require.NoError(t, err)
	d, err := Parse("full.yaml", data, registered())
	require.NoError(t, err)
	zero, thirty := 0.0, run.USD(30e10)
	require.Equal(t, agent.Definition{
		Name: "refunds", Version: "3", Preset: agent.PresetArvo, System: "You handle refunds.\nToday is {{.Date}}.\n",
		Model: agent.ModelSpec{
			Provider: "openai", ID: "gpt", BaseURL: "http://127.0.0.1:8080/v1", MaxTokens: 4096, Temperature: &zero,
			Retry:   agent.Retry{Attempts: 2, Backoff: 100 * time.Millisecond, MaxBackoff: time.Second, Window: 5 * time.Second},
			Timeout: 20 * time.Second, Continuations: 2, Dialect: agent.DialectNative, StaticText: "Come back later.", Price: &agent.Price{Input: 3e12, Output: 15_000001e6},
			Fallbacks: []agent.ModelSpec{{
				Provider: "bedrock", ID: "small", Retry: agent.Retry{Attempts: 1},
				Price: &agent.Price{Input: 25e10, Output: 125e10, CacheRead: new(run.USD), CacheWrite: &thirty},
			}},
		},
		Tools: []agent.ToolSpec{
			{Name: "orders.get", Kind: agent.KindInternal, Description: "Find an order.", Schema: ordersGet.Schema, Effect: run.EffectIdempotent, Priority: -2, Timeout: 30 * time.Second},
			mailSend,
		},
		Permission: agent.Permission{
			Mode: agent.ModeSuspendAndReplay, Default: agent.DefaultDeny, Approvers: []string{"group:desk", "user:ana"}, Expires: 24 * time.Hour,
			Rules: []agent.Rule{
				{
					Tool: "mail.*", Verdict: agent.VerdictAsk, Approvers: []string{"group:finance"}, Expires: 7 * 24 * time.Hour, Quorum: 2, FourEyes: true, Remind: 4 * time.Hour, Escalate: &agent.Escalation{After: 24 * time.Hour, To: []string{"group:bosses"}}, Note: "check it",
					When: []run.Condition{
						{Path: "/amount", Gt: json.RawMessage("100.50")}, {Path: "/a", Gte: json.RawMessage("1e3")},
						{Path: "/b", Lt: json.RawMessage("12345678901234567890123")}, {Path: "/c", Lte: json.RawMessage("-0.10")},
						{Path: "/d", Eq: json.RawMessage(`"<x>"`)}, {Path: "/e", Ne: json.RawMessage("null")},
						{Path: "/f", In: []json.RawMessage{json.RawMessage("true"), json.RawMessage("2"), json.RawMessage(`"2"`)}}, {Path: "/g", Matches: "^x"},
					},
				},
				{Tool: "*", Verdict: agent.VerdictAllow},
			},
			Scope: agent.ScopeCall, Grants: agent.GrantsRun,
		},
		Limits: agent.Limits{Interactions: 9, OnLimit: agent.OnLimitStop, Tokens: 50_000, USD: 5e11, Asks: 10}, Batch: agent.BatchFirst, Executor: agent.ExecutorSequential,
		Wait: run.WaitAnyExternal, Resume: run.ResumeEach, TextBesideCalls: agent.TextBesideKeep, Early: agent.EarlyRefuse,
		Output: agent.Output{Format: agent.OutputText}, Corrections: agent.CorrectionsPersist,
		SystemPrompt: agent.SystemOnce, Dropped: agent.DroppedSilent, CutText: agent.CutTextNotice,
		Stop: agent.Stop{Timeout: 90 * time.Second, Tokens: 4000, ConsecutiveErrors: 3, OnTool: []string{"mail.send"}, LoopWindow: 5},
		Text: agent.TextFinal, Analysis: agent.Analysis{DeflectionRetries: 3, EmptyReplies: 2, TrustGate: 3},
		XML: agent.XML{MissingServer: agent.MissingServerError, Breaker: 5}, Prompt: agent.Prompt{Order: agent.PromptSeed},
		Orchestrator: agent.Orchestrator{TopK: 15, MaxSteps: 10, Retries: 3},
	}, d)
}

func TestParseSchemaKeepsDigitsAndOrder(t *testing.T) {
	d, err := Parse("agent.yaml", []byte(minimal+`tools:
  - name: pay
    description: >-
      Pay
      money.
    effect: read
    schema:
      type: object
      required: [z, a]
      properties:
        z: {type: number, maximum: 100000000000000000000.10, title: "<b>"}
        a: {enum: [1.50, 1e2, true, null, "1"]}
`), Options{AllowUnknownTools: true})
	require.NoError(t, err)
	require.Equal(t, "Pay money.", d.Tools[0].Description)
	require.Equal(t, `{"type":"object","required":["z","a"],"properties":{"z":{"type":"number","maximum":100000000000000000000.10,"title":"<b>"},"a":{"enum":[1.50,1e2,true,null,"1"]}}}`, string(d.Tools[0].Schema))
}

func TestModelOptional(t *testing.T) {
	for _, model := range []string{"", "model: {temperature: 0.5, retry: {attempts: 7}}\n", "model: {provider: openai}\n", "model: {provider: script}\n"} {
		d, err := Parse("agent.yaml", []byte("name: a\nsystem: s\n"+model), Options{ModelOptional: true})
		require.NoError(t, err, model)
		d.Model.Provider, d.Model.File = "script", "model.jsonl"
		require.NoError(t, d.Check())
	}
	_, err := Parse("agent.yaml", []byte("name: a\nsystem: s\nmodel: {retry: {attempts: 0}}\n"), Options{ModelOptional: true})
	require.EqualError(t, err, "agent.yaml:3: model.retry.attempts: got 0, want more than zero")
}

func TestParseIgnoresMarksAndLineEnds(t *testing.T) {
	plain, err := Parse("agent.yaml", []byte(minimal), Options{})
	require.NoError(t, err)
	for _, same := range []string{
		"\ufeff" + minimal, "--- \n" + minimal, strings.ReplaceAll(minimal, "\n", "\r\n"), "# comment\n\n" + minimal + "# end\n",
		strings.TrimSuffix(minimal, "\n"), `{"name": "a", "system": "s", "model": {"provider": "openai", "id": "m"}}`,
	} {
		d, err := Parse("agent.yaml", []byte(same), Options{})
		require.NoError(t, err, same)
		require.Equal(t, plain, d)
	}
	const folded = "name: a\nsystem: \"one\n  two\"\nmodel: {provider: demo}\n"
	for _, same := range []string{folded, strings.ReplaceAll(folded, "\n", "\r\n")} {
		d, err := Parse("agent.yaml", []byte(same), Options{})
		require.NoError(t, err, same)
		require.Equal(t, "one two", d.System)
	}
}

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"250ms": 250 * time.Millisecond, "24h": 24 * time.Hour, "7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "0s": 0, "0d": 0, "1h30m": 90 * time.Minute, "1.5s": 1500 * time.Millisecond,
	} {
		got, err := ParseDuration(s)
		require.NoError(t, err, s)
		require.Equal(t, want, got, s)
	}
	for _, bad := range []string{"", "d", "7", "-1s", "+1s", "1d-1h", "1.5d", "1w", "7 d", "1d1d", "106752d", "106751d24h", "9999999999d", "2562048h"} {
		_, err := ParseDuration(bad)
		require.EqualError(t, err, "want a duration such as 250ms, 30s, 24h or 7d", bad)
	}
}

func TestParseTools(t *testing.T) {
	tools, err := ParseTools("tools.yaml", []byte(`# canned
- {name: a.b, effect: read, description: Read., schema: {type: object}, results: [{json: {z: 1.0, a: 2}}, {text: "x"}]}

- name: c
  reconcile: false
  results:
    - sleep: 50ms
      text: |
        one
        two
    - error: no
- name: d
`), Options{AllowUnknownTools: true}, "results", "reconcile")
	require.NoError(t, err)
	require.Len(t, tools, 3)
	require.Equal(t, "a.b", tools[0].Spec.Name)
	require.Equal(t, run.EffectRead, tools[0].Spec.Effect)
	require.Equal(t, "[0]", tools[0].Key)
	require.Equal(t, []int{2, 4, 12}, []int{tools[0].Line, tools[1].Line, tools[2].Line})
	require.Equal(t, `[{"json":{"z":1.0,"a":2}},{"text":"x"}]`, string(tools[0].Extra["results"].JSON))

	results := tools[1].Extra["results"]
	require.Equal(t, Value{Key: "[1].reconcile", Line: 5, JSON: json.RawMessage("false")}, tools[1].Extra["reconcile"])
	require.Equal(t, "[1].results", results.Key)
	require.Equal(t, 6, results.Line)
	require.Len(t, results.Items, 2)
	require.Equal(t, `{"sleep":"50ms","text":"one\ntwo\n"}`, string(results.Items[0].JSON))
	require.Equal(t, 8, results.Items[0].Members["text"].Line)
	require.Equal(t, Value{Key: "[1].results[1]", Line: 11, JSON: json.RawMessage(`{"error":"no"}`), Members: map[string]Value{
		"error": {Key: "[1].results[1].error", Line: 11, JSON: json.RawMessage(`"no"`)}}}, results.Items[1])
	require.Empty(t, tools[2].Extra)
}

func TestParseToolsRefuses(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"a: 1\n", "tools.yaml:1: got a mapping, want a list"},
		{"", "tools.yaml:1: got nothing, want a list"},
		{"- name: a\n  resluts: []\n", "tools.yaml:2: [0].resluts: got an unknown key, want one of agent, allowHosts, async, body, budget, concurrency, describe, description, domain, effect, event, function, headers, history, kind, maxResult, method, name, openapi, operation, precondition, priority, query, results, retry, root, schema, server, timeout, undo, url; did you mean results?"},
		{"- name: a\n- name: b\n- name: a\n", "tools.yaml:3: [2].name: got a tool a second time, want each once"},
		{"- 5\n", "tools.yaml:1: [0]: got a number, want a mapping"},
	} {
		_, err := ParseTools("tools.yaml", []byte(tt.in), Options{AllowUnknownTools: true}, "results")
		require.EqualError(t, err, tt.want, tt.in)
	}
}

func FuzzParse(f *testing.F) {
	full, err := os.ReadFile("testdata/full.yaml")
	require.NoError(f, err)
	f.Add(full)
	for _, file := range badFiles(f) {
		f.Add([]byte(file.in))
	}
	f.Add([]byte("- name: a\n  results: [{json: {a: 1}}]\n"))
	opt := registered()
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse("f", data, opt)
		if err == nil {
			require.NoError(t, d.Check())
		} else {
			requireProblems(t, err)
		}
		_, err = ParseTools("f", data, Options{AllowUnknownTools: true}, "results")
		if err != nil {
			requireProblems(t, err)
		}
	})
}

func requireProblems(t *testing.T, err error) {
	t.Helper()
	var ps Problems
	require.ErrorAs(t, err, &ps)
	require.NotEmpty(t, ps)
	for i, p := range ps {
		require.Positive(t, p.Line)
		require.NotEmpty(t, p.Text)
		require.True(t, i == 0 || ps[i-1].Line <= p.Line)
	}
}

// An agent that is embedded in a program has no folder: only an absolute root means something there.
func TestRoots(t *testing.T) {
	const file = minimal + "tools: [{name: x, root: in}, {name: y, root: /data/in/}]\n"
	for dir, want := range map[string][]string{"": {"", "/data/in"}, "/home/a": {"/home/a/in", "/data/in"}} {
		d, err := Parse("agent.yaml", []byte(file), Options{AllowUnknownTools: true, Dir: dir})
		require.NoError(t, err)
		require.Equal(t, want, []string{d.Tools[0].Root, d.Tools[1].Root}, dir)
	}
}
