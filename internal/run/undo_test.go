package run_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

func undoDefinition(args string) *agent.Definition {
	u := &agent.Undo{Tool: "refunds.cancel"}
	if args != "" {
		u.Args = json.RawMessage(args)
	}
	d := &agent.Definition{Name: "refunds", Version: "1", Tools: []agent.ToolSpec{
		{Name: "refunds.create", Kind: agent.KindInternal, Effect: run.EffectNonIdempotent, Undo: u, Schema: json.RawMessage(`{"type":"object"}`)},
		{Name: "refunds.cancel", Kind: agent.KindInternal, Effect: run.EffectRead, Schema: json.RawMessage(`{"type":"object"}`)},
		{Name: "orders.get", Kind: agent.KindInternal, Effect: run.EffectRead, Schema: json.RawMessage(`{"type":"object"}`)},
	}}
	d.Permission = agent.Permission{Mode: agent.ModeSuspendAndReplay, Default: agent.DefaultAllow, Approvers: []string{"user:ana"}, Expires: time.Hour}
	return d
}

func TestUndoCall(t *testing.T) {
	done := func(input string) run.Call {
		return run.Call{ID: "c1", Tool: "refunds.create", Status: run.StatusSucceeded, Input: json.RawMessage(input), Result: &run.Result{}}
	}
	edited := done(`{"amount":40}`)
	edited.Grant = &run.Grant{By: "user:ana", Edited: true}
	open, failed, other := done(`{}`), done(`{}`), done(`{}`)
	open.Status, failed.Status, other.Tool = run.StatusRunning, run.StatusFailed, "orders.get"
	for _, c := range []struct {
		name, args, result string
		call               run.Call
		want, problem      string
	}{
		{"no arguments", ``, "it is done", done(`{}`), `{}`, ""},
		{"as they are written", `{"b":1.50,"a":"x","n":null,"l":[true,{}]}`, "", done(`{}`), `{"b":1.50,"a":"x","n":null,"l":[true,{}]}`, ""},
		{"of the result", `{"id":{"result":"/refund/id"},"all":{"result":""}}`, ` {"refund":{"id":"r<1>","n":1.0}} `, done(`{}`), `{"id":"r<1>","all":{"refund":{"id":"r<1>","n":1.0}}}`, ""},
		{"of the arguments that ran", `{"to":[{"args":"/to/0"}],"amount":{"args":"/amount"}}`, "", done(`{"to":["A & B"],"amount":100.10}`), `{"to":["A & B"],"amount":100.10}`, ""},
		{"what a person's edit said is no part of it", `{"id":{"result":"/id"},"amount":{"args":"/amount"}}`, agent.TextEdited("user:ana", `{"amount":40}`) + `{"id":7}`, edited, `{"id":7,"amount":40}`, ""},
		{"what only looks like a place", `{"a":{"result":"/id","x":1},"b":{"result":5},"c":{"other":"/id"}}`, "no JSON", done(`{}`), `{"a":{"result":"/id","x":1},"b":{"result":5},"c":{"other":"/id"}}`, ""},
		{"escaped", `{"a":{"result":"/a~1b/~0"}}`, `{"a/b":{"~":1}}`, done(`{}`), `{"a":1}`, ""},
		{"null is a value", `{"a":{"result":"/a"}}`, `{"a":null}`, done(`{}`), `{"a":null}`, ""},
		{"no JSON", `{"id":{"result":"/id"}}`, "refund r1", done(`{}`), "", "its result is not JSON"},
		{"twice the same key", `{"id":{"result":"/id"}}`, `{"id":1,"id":2}`, done(`{}`), "", "its result is not JSON"},
		{"a pointer that leads nowhere", `{"id":{"result":"/refund/id"}}`, `{"refund":[]}`, done(`{}`), "", `its result has nothing at "/refund/id"`},
		{"nor in the arguments", `{"id":{"args":"/id"}}`, `{"id":1}`, done(`{}`), "", `its arguments have nothing at "/id"`},
		{"open", ``, "", open, "", "the call has not ended"},
		{"failed", ``, "", failed, "", "the call has not succeeded: it is failed"},
		{"no undo", ``, "", other, "", "calls of orders.get cannot be undone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := policy.UndoCall(undoDefinition(c.args), c.call, c.result)
			if c.problem != "" {
				require.EqualError(t, err, "undo: "+c.problem)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}
}

// A call that takes another back is suspended whatever policy allows: under every mode, default, effect and grant. A denial stays one.
func TestOnlyAPersonLetsACallBeTakenBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := undoDefinition("")
		d.Permission.Mode = rapid.SampledFrom([]agent.PermissionMode{agent.ModeSuspendAndReplay, agent.ModeBlockAndRetry, agent.ModeAdvisory}).Draw(t, "mode")
		d.Permission.Default = rapid.SampledFrom([]agent.PermissionDefault{agent.DefaultByEffect, agent.DefaultAllow, agent.DefaultAsk, agent.DefaultDeny}).Draw(t, "default")
		d.Permission.Scope = rapid.SampledFrom([]agent.Scope{agent.ScopeCall, agent.ScopeTool}).Draw(t, "scope")
		d.Permission.Grants = rapid.SampledFrom([]agent.Grants{agent.GrantsRun, agent.GrantsOnce, agent.GrantsStanding}).Draw(t, "grants")
		d.Tools[1].Effect = rapid.SampledFrom([]run.Effect{run.EffectRead, run.EffectIdempotent, run.EffectNonIdempotent}).Draw(t, "effect")
		c := run.Call{ID: "c2-0", Tool: "refunds.cancel", Name: "refunds_cancel", Effect: d.Tools[1].Effect, Input: json.RawMessage(`{}`), Status: run.StatusNew, Undoes: "c1"}
		s := run.AgentState{Tenant: "default", Run: "r1", Agent: "refunds", Version: "1", Live: []run.Call{c}}
		digest := policy.ToolDigest(d, &s, d.Tools[1], c.Input, policy.Decision{Approvers: d.Permission.Approvers})
		s.Permissions.Tools = []run.ToolPermit{{Tool: "refunds.cancel", Approval: "a1", Digests: []string{digest}}}
		g := policy.GateHooked(d, &s, c, agent.PluginGate{}, func(agent.ToolSpec, json.RawMessage) error { return nil }, worldEpoch)
		if d.Permission.Default == agent.DefaultDeny {
			require.NotNil(t, g.Refuse)
			return
		}
		require.NotNil(t, g.Suspend)
		require.False(t, g.Run)
		require.Equal(t, run.ApprovalID("r1", "c2-0", 1), g.Suspend.Approval)
		require.Equal(t, policy.ActionDigest(d, &s, c, d.Tools[1], policy.Decision{Approvers: d.Permission.Approvers}), g.Suspend.Digest)
	})
}

func FuzzUndoCall(f *testing.F) {
	f.Add(`{"id":{"result":"/refund/id"},"l":[{"args":"/a"}]}`, `{"refund":{"id":1.50}}`, `{"a":[]}`)
	f.Add(`{"a":{"result":""}}`, `"x"`, `{}`)
	f.Fuzz(func(t *testing.T, template, result, input string) {
		args, err := jsonx.CompactJSON([]byte(input), jsonx.JSONLimits{})
		if err != nil || !strings.HasPrefix(strings.TrimSpace(template), "{") {
			return
		}
		c := run.Call{ID: "c1", Tool: "refunds.create", Status: run.StatusSucceeded, Input: args, Result: &run.Result{}}
		args, err = policy.UndoCall(undoDefinition(template), c, result)
		if err != nil {
			return
		}
		if compact, err := jsonx.CompactJSON(args, jsonx.JSONLimits{}); err != nil || string(compact) != string(args) || args[0] != '{' {
			t.Fatalf("%q is no arguments: %v", args, err)
		}
	})
}
