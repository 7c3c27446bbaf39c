package run_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/run"
)

func validDefinition(t *testing.T) agent.Definition {
	t.Helper()
	d, err := agent.Definition{
		Name: "refunds", Preset: agent.PresetCountersign, System: "You handle refunds.", Model: agent.ModelSpec{Provider: "openai", ID: "m", BaseURL: "https://api.example.com/v1"},
		Tools: []agent.ToolSpec{{Name: "orders.get", Schema: rawJSON(`{"type":"object"}`)}},
	}.Resolve()
	require.NoError(t, err)
	return d
}

func TestPresetsAreComplete(t *testing.T) {
	_, err := agent.Definition{Name: "x", Preset: "other"}.Resolve()
	require.EqualError(t, err, `resolve definition "x": preset "other": want countersign, arvo, runner, tirea, cowork or forge`)
	for _, p := range []agent.Preset{"countersign", "arvo", "runner", "tirea", "cowork", "forge"} {
		want, err := agent.PresetDefaults(p)
		require.NoError(t, err)
		got, err := agent.Definition{Preset: p}.Resolve()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestResolveKeepsWhatIsSet(t *testing.T) {
	full, err := agent.PresetDefaults(agent.PresetArvo)
	require.NoError(t, err)
	full.Permission.Approvers = []string{}
	full.Tools = []agent.ToolSpec{{Name: "a", Kind: agent.KindService, Effect: run.EffectRead}}
	got, err := full.Resolve()
	require.NoError(t, err)
	require.Equal(t, full, got)

	mine := []agent.ToolSpec{{Name: "a"}, {Name: "human_review", Kind: agent.KindService}, {Name: "b", Kind: agent.KindAgent}}
	got, err = agent.Definition{Tools: mine, Limits: agent.Limits{Interactions: 7}}.Resolve()
	require.NoError(t, err)
	require.Equal(t, 7, got.Limits.Interactions)
	require.Equal(t, agent.ToolSpec{Name: "a", Kind: agent.KindInternal, Effect: run.EffectNonIdempotent}, got.Tools[0])
	require.Empty(t, mine[0].Kind, "the argument is left alone")
	review, _ := agent.Contract("human_review")
	require.Equal(t, review, got.Tools[1])
	require.Equal(t, agent.ToolSpec{Name: "b", Kind: agent.KindAgent, Effect: run.EffectIdempotent, Schema: agent.DelegateSchema}, got.Tools[2])
}

// What one key alone may hold is tried key by key where definitions are read (pkg/agent/agentfile, with bad.txtar);
// here is the rest.
func TestCheckRefuses(t *testing.T) {
	tool := func(change func(*agent.ToolSpec)) func(*agent.Definition) {
		return func(d *agent.Definition) { change(&d.Tools[0]) }
	}
	schema := func(s string) func(*agent.Definition) { return tool(func(t *agent.ToolSpec) { t.Schema = rawJSON(s) }) }
	baseURL := func(u string) func(*agent.Definition) { return func(d *agent.Definition) { d.Model.BaseURL = u } }
	const wantName = "got something else, want a name of letters, digits, _ and -"
	const wantURL = "model.baseURL: got something else, want an http or https URL without credentials, fragment or any query but api-version"
	for _, tt := range []struct {
		spoil func(*agent.Definition)
		want  string
	}{
		{func(d *agent.Definition) { d.System = "{{.Now}}" }, "system: check system text: .Now does not exist; want one of .Agent, .Caller, .Date, .Input, .Interactions, .Run, .Tools"},
		{func(d *agent.Definition) { d.SystemPrompt, d.System = agent.SystemEveryInference, "{{.Then}}" }, "system: check system text: .Then does not exist; want one of .Agent, .Caller, .Date, .Input, .Interactions, .Now, .Run, .Tools"},
		{func(d *agent.Definition) { d.Builder = "no such name" }, "builder: got something else, want dotted parts of letters, digits, _ and -"},
		{func(d *agent.Definition) { d.Model.Provider = "script" }, "model.file: got nothing, want a file of replies"},
		{baseURL("ftp://x"), wantURL}, {baseURL("https://user:secret@x"), wantURL}, {baseURL("https://x?key=secret"), wantURL},
		{baseURL("https://x?"), wantURL}, {baseURL("%"), wantURL},
		{func(d *agent.Definition) { d.Output.Schema = rawJSON(`{}`) }, "output.schema: got a schema, want none: only an output of format json has one"},
		{func(d *agent.Definition) { d.Output = agent.Output{Format: agent.OutputJSON, Schema: rawJSON(`{`)} }, `output.schema: json at offset 1: want a key in double quotes`},
		{func(d *agent.Definition) {
			d.Output = agent.Output{Format: agent.OutputJSON, Schema: rawJSON(`{"items":{"$ref":"b.json"}}`)}
		}, "output.schema: got a $ref to another document, want references that start with #"},
		{func(d *agent.Definition) { d.Analysis.Deflection = []string{"a", ""} }, "analysis.deflection[1]: got nothing, want a phrase"},
		{func(d *agent.Definition) {
			d.Text = agent.TextRequireTool
			d.Permission.Rules = []agent.Rule{{Tool: "*", Verdict: agent.VerdictDeny}, {Tool: "converse", Verdict: agent.VerdictDeny}}
		}, "permission.rules[1].tool: got converse, which only ends the run and is nobody's to decide about, want another tool: xml.disable takes it away"},
		{func(d *agent.Definition) { d.Wording = map[string]string{"goOn": "{{.X}}"} }, `wording.goOn: template: goOn:1:2: executing "goOn" at <.X>: map has no entry for key "X"; the fields are `},
		{func(d *agent.Definition) { d.Permission.Approvers = nil }, "permission.approvers: got nobody, want at least one principal"},
		{func(d *agent.Definition) { d.Permission.Backend = "a b" }, "permission.backend: " + wantName},
		{func(d *agent.Definition) { d.Permission.Policy = "a b" }, "permission.policy: " + wantName},
		{func(d *agent.Definition) {
			d.Permission.Grants, d.Permission.Scope, d.Permission.Backend = agent.GrantsStanding, agent.ScopeTool, "b"
		}, "permission.grants: got standing beside a backend, which keeps permissions of its own; want run or once, or no backend"},
		{func(d *agent.Definition) {
			d.Permission.Rules = []agent.Rule{{Tool: "*", Verdict: agent.VerdictAsk, When: []run.Condition{{Path: "/x", Eq: rawJSON(`@`)}}}}
		}, "permission.rules[0].when[0].eq: got something else, want a string, number, boolean or null"},
		{tool(func(t *agent.ToolSpec) { t.Name = "a..b" }), "tools[0].name: got something else, want dotted parts of letters, digits, _ and -"},
		{tool(func(t *agent.ToolSpec) { t.Name = strings.Repeat("a.", 32) + "b" }), "tools[0].name: got 65 characters, want at most 64"},
		{tool(func(t *agent.ToolSpec) { t.Kind = agent.KindMCP }), `tools[0].kind: got mcp, want internal or service: servers stand under mcp, and their tools are listed when a run begins`},
		{tool(func(t *agent.ToolSpec) { t.Kind, t.Lambda = agent.KindLambda, &agent.LambdaTool{Function: "a/b"} }), "tools[0].function: got something else, want the name or ARN of a function of AWS Lambda"},
		{tool(func(t *agent.ToolSpec) {
			t.Kind, t.Lambda, t.Timeout = agent.KindLambda, &agent.LambdaTool{Function: "f", Async: true}, time.Second
		}), "tools[0].timeout: got less than a minute, want a minute or more: so long it has to answer"},
		{tool(func(t *agent.ToolSpec) { t.Kind = agent.KindAgent }), "tools[0].agent: got nothing, want the name of an agent"},
		{tool(func(t *agent.ToolSpec) { t.Agent = &agent.Delegate{Agent: "b"} }), "tools[0].agent: got an agent, want none: only kind agent has one"},
		{tool(func(t *agent.ToolSpec) { t.Domain = "x" }), "tools[0].domain: got a domain, want none: only a service and an agent have one"},
		{tool(func(t *agent.ToolSpec) { t.Kind, t.Event = agent.KindService, strings.Repeat("x", 129) }), "tools[0].event: got 129 bytes, want at most 128"},
		{func(d *agent.Definition) {
			d.Permission.Mode, d.Permission.ApprovalTool = agent.ModeAdvisory, "orders.get"
		}, `permission.approvalTool: got "orders.get", want a tool of the agent of kind service`},
		{tool(func(t *agent.ToolSpec) { t.Retry.Attempts, t.Effect = 2, run.EffectNonIdempotent }), "tools[0].retry.attempts: got 2, want one: a tool of effect non_idempotent is entered at most once"},
		{tool(func(t *agent.ToolSpec) { t.MaxResult = agent.MaxResult + 1 }), "tools[0].maxResult: got 8388609, want 0 to 8388608 bytes"},
		{tool(func(t *agent.ToolSpec) { t.Kind, t.Effect, t.Retry.Attempts = agent.KindService, run.EffectRead, 2 }), "tools[0].retry: got a policy, want none: the call is sent out and answered later"},
		{tool(func(t *agent.ToolSpec) { t.Kind, t.Concurrency = agent.KindService, 1 }), "tools[0].concurrency: got a bound, want none: the call is sent out and answered later"},
		{tool(func(t *agent.ToolSpec) {
			t.Effect = run.EffectIdempotent
			t.Precondition = &agent.Precondition{Tool: "orders.get"}
		}), "tools[0].precondition.tool: got a tool of effect idempotent, want one of effect read"},
		{tool(func(t *agent.ToolSpec) {
			t.Effect = run.EffectRead
			t.Precondition = &agent.Precondition{Tool: "orders.get", Args: json.RawMessage(`{"a":{"result":"/a"}}`)}
		}), "tools[0].precondition.args: got a value of a result, want those of the call's arguments: it has no result yet"},
		{tool(func(t *agent.ToolSpec) {
			t.Effect = run.EffectRead
			t.Precondition = &agent.Precondition{Tool: "orders.get", Compare: []string{"/a", "a"}}
		}), `tools[0].precondition.compare[1]: got "a", want a JSON Pointer such as /status, once`},
		{tool(func(t *agent.ToolSpec) {
			t.Effect = run.EffectRead
			t.Precondition = &agent.Precondition{Tool: "orders.get", Compare: []string{"/a", "/a"}}
		}), `tools[0].precondition.compare[1]: got "/a", want a JSON Pointer such as /status, once`},
		{tool(func(t *agent.ToolSpec) {
			t.Undo = &agent.Undo{Tool: "orders.get", Args: json.RawMessage(`{"result":"/a"}`)}
		}), "tools[0].undo.args: got one place for all arguments, want a mapping of arguments"},
		{tool(func(t *agent.ToolSpec) {
			t.Undo = &agent.Undo{Tool: "orders.get", Args: json.RawMessage(`{"a":[{"result":"a"}]}`)}
		}), "tools[0].undo.args: result: json pointer: want a leading slash"},
		{schema(``), "tools[0].schema: json at offset 0: want a JSON value"},
		{schema(`{"type":"object","type":"object"}`), `tools[0].schema: json at offset 17, "/type": want each key once`},
		{schema(`{"type":"object","properties":{"a":{"anyOf":[{"$ref":"https://x/y"}]}}}`), "tools[0].schema: got a $ref to another document, want references that start with #"},
		{func(d *agent.Definition) {
			d.Tools = append(d.Tools, agent.ToolSpec{Name: "orders_get", Kind: agent.KindInternal, Effect: run.EffectRead, Schema: rawJSON(`{"type":"object"}`)})
		}, "tools[1].name: orders.get and orders_get are both orders_get to the model, want different names"},
	} {
		d := validDefinition(t)
		tt.spoil(&d)
		require.EqualError(t, d.Check(), tt.want)
	}
}

func TestCheckAccepts(t *testing.T) {
	d := validDefinition(t)
	d.Tools[0].Schema = rawJSON(`{"type":"object","$defs":{"a":{"type":"string"}},"properties":{"$ref":{"$ref":"#/$defs/a"}}}`)
	d.Tools[0].Name = strings.Repeat("a.", 31) + "bc"
	require.NoError(t, d.Check())
	d.Model = agent.ModelSpec{Retry: d.Model.Retry}
	require.NoError(t, d.CheckWithoutModel())
	require.Error(t, d.Check())
	d.Model.Retry.Attempts = 0
	require.Error(t, d.CheckWithoutModel())
	d.Model.Retry.Attempts = 1
	d.Output, d.Corrections = agent.Output{}, "" // as older definitions are stored
	require.NoError(t, d.CheckWithoutModel())
	d.Output = agent.Output{Format: agent.OutputJSON, Schema: rawJSON(`{"type":"array"}`), History: true}
	require.NoError(t, d.CheckWithoutModel())
	require.NoError(t, agent.CheckTools(d.Tools))
	require.Error(t, agent.CheckTools([]agent.ToolSpec{{}}))
}

func TestModelFacing(t *testing.T) {
	for in, want := range map[string]string{
		`{"type":"object"}`: `{"type":"object"}`,
		`{"properties":{"b":{"maximum":1.50},"parentSubject$$":{"type":"string"},"a":{"enum":["<"]}},"required":["parentSubject$$","b"],"type":"object"}`: `{"properties":{"b":{"maximum":1.50},"a":{"enum":["<"]}},"required":["b"],"type":"object"}`,
		`{"required":["parentSubject$$"],"properties":{"parentSubject\u0024$":{}}}`:                                                                       `{"properties":{}}`,
		`{"required":[],"description":"parentSubject"}`:                                                                                                   `{"required":[],"description":"parentSubject"}`,
		`{"properties":{"x":{"properties":{"parentSubject$$":{}}}}}`:                                                                                      `{"properties":{"x":{"properties":{"parentSubject$$":{}}}}}`,
		`{"properties":true,"required":"parentSubject$$"}`:                                                                                                `{"properties":true,"required":"parentSubject$$"}`,
		"{ \"properties\" : { \"parentSubject$$\" : { } } , \"type\": \"object\" }":                                                                       `{"properties":{},"type":"object"}`,
	} {
		spec := agent.ToolSpec{Name: "t", Schema: rawJSON(in)}
		require.Equal(t, want, string(spec.ModelFacing().Schema), in)
		require.Equal(t, in, string(spec.Schema))
	}
}
