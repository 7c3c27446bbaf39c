package agent

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func undoDefinition(args string) *Definition {
	u := &Undo{Tool: "refunds.cancel"}
	if args != "" {
		u.Args = json.RawMessage(args)
	}
	d := &Definition{Name: "refunds", Version: "1", Tools: []ToolSpec{
		{Name: "refunds.create", Kind: KindInternal, Effect: EffectNonIdempotent, Undo: u, Schema: json.RawMessage(`{"type":"object"}`)},
		{Name: "refunds.cancel", Kind: KindInternal, Effect: EffectRead, Schema: json.RawMessage(`{"type":"object"}`)},
		{Name: "orders.get", Kind: KindInternal, Effect: EffectRead, Schema: json.RawMessage(`{"type":"object"}`)},
	}}
	d.Permission = Permission{Mode: ModeSuspendAndReplay, Default: DefaultAllow, Approvers: []string{"user:ana"}, Expires: time.Hour}
	return d
}

func TestUndoCall(t *testing.T) {
	done := func(input string) Call {
		return Call{ID: "c1", Tool: "refunds.create", Status: StatusSucceeded, Input: json.RawMessage(input), Result: &Result{}}
	}
	edited := done(`{"amount":40}`)
	edited.Grant = &Grant{By: "user:ana", Edited: true}
	open, failed, other := done(`{}`), done(`{}`), done(`{}`)
	open.Status, failed.Status, other.Tool = StatusRunning, StatusFailed, "orders.get"
	for _, c := range []struct {
		name, args, result string
		call               Call
		want, problem      string
	}{
		{"no arguments", ``, "it is done", done(`{}`), `{}`, ""},
		{"as they are written", `{"b":1.50,"a":"x","n":null,"l":[true,{}]}`, "", done(`{}`), `{"b":1.50,"a":"x","n":null,"l":[true,{}]}`, ""},
		{"of the result", `{"id":{"result":"/refund/id"},"all":{"result":""}}`, ` {"refund":{"id":"r<1>","n":1.0}} `, done(`{}`), `{"id":"r<1>","all":{"refund":{"id":"r<1>","n":1.0}}}`, ""},
		{"of the arguments that ran", `{"to":[{"args":"/to/0"}],"amount":{"args":"/amount"}}`, "", done(`{"to":["A & B"],"amount":100.10}`), `{"to":["A & B"],"amount":100.10}`, ""},
		{"what a person's edit said is no part of it", `{"id":{"result":"/id"},"amount":{"args":"/amount"}}`, TextEdited("user:ana", `{"amount":40}`) + `{"id":7}`, edited, `{"id":7,"amount":40}`, ""},
		{"what only looks like a place", `{"a":{"result":"/id","x":1},"b":{"result":5},"c":{"other":"/id"}}`, "no JSON", done(`{}`), `{"a":{"result":"/id","x":1},"b":{"result":5},"c":{"other":"/id"}}`, ""},
		{"escaped", `{"a":{"result":"/a~1b/~0"}}`, `{"a/b":{"~":1}}`, done(`{}`), `{"a":1}`, ""},
		{"null is a value", `{"a":{"result":"/a"}}`, `{"a":null}`, done(`{}`), `{"a":null}`, ""},
		{"no JSON", `{"id":{"result":"/id"}}`, "refund r1", done(`{}`), "", "its result is not JSON"},
		{"twice the same key", `{"id":{"result":"/id"}}`, `{"id":1,"id":2}`, done(`{}`), "", "its result is not JSON"},
		{"a pointer that leads nowhere", `{"id":{"result":"/refund/id"}}`, `{"refund":[]}`, done(`{}`), "", `its result has nothing at "/refund/id"`},
		{"nor in the arguments", `{"id":{"args":"/id"}}`, `{"id":1}`, done(`{}`), "", `its arguments have nothing at "/id"`},
		{"open", ``, "", open, "", "the call has not ended"},
		{"failed", ``, "", failed, "", "the call has not succeeded: it is failed"},
		{"no undo", ``, "", other, "", "nothing takes calls of orders.get back"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := UndoCall(undoDefinition(c.args), c.call, c.result)
			if c.problem != "" {
				require.EqualError(t, err, "undo: "+c.problem)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "refunds.cancel", got.Tool)
			require.Equal(t, c.want, string(got.Input))
		})
	}
}

// A call that takes another back is suspended whatever policy allows: under every mode, default, effect and grant. A denial stays one.
func TestOnlyAPersonLetsACallBeTakenBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := undoDefinition("")
		d.Permission.Mode = rapid.SampledFrom([]PermissionMode{ModeSuspendAndReplay, ModeBlockAndRetry, ModeAdvisory}).Draw(t, "mode")
		d.Permission.Default = rapid.SampledFrom([]PermissionDefault{DefaultByEffect, DefaultAllow, DefaultAsk, DefaultDeny}).Draw(t, "default")
		d.Permission.Scope = rapid.SampledFrom([]Scope{ScopeCall, ScopeTool}).Draw(t, "scope")
		d.Permission.Grants = rapid.SampledFrom([]Grants{GrantsRun, GrantsOnce, GrantsStanding}).Draw(t, "grants")
		d.Tools[1].Effect = rapid.SampledFrom([]Effect{EffectRead, EffectIdempotent, EffectNonIdempotent}).Draw(t, "effect")
		c := Call{ID: "c2-0", Tool: "refunds.cancel", Name: "refunds_cancel", Effect: d.Tools[1].Effect, Input: json.RawMessage(`{}`), Status: StatusNew, Undoes: "c1"}
		s := AgentState{Tenant: "default", Run: "r1", Agent: "refunds", Version: "1", Live: []Call{c}}
		digest := ToolDigest(d, &s, d.Tools[1], c.Input, Decision{Approvers: d.Permission.Approvers})
		s.Permissions.Tools = []ToolPermit{{Tool: "refunds.cancel", Approval: "a1", Digests: []string{digest}}}
		g := GateCall(d, &s, c, func(ToolSpec, json.RawMessage) error { return nil }, worldEpoch)
		if d.Permission.Default == DefaultDeny {
			require.NotNil(t, g.Refuse)
			return
		}
		require.NotNil(t, g.Suspend)
		require.False(t, g.Run)
		require.Equal(t, ApprovalID("r1", "c2-0", 1), g.Suspend.Approval)
		require.Equal(t, ActionDigest(d, &s, c, d.Tools[1], Decision{Approvers: d.Permission.Approvers}), g.Suspend.Digest)
	})
}

func FuzzUndoCall(f *testing.F) {
	f.Add(`{"id":{"result":"/refund/id"},"l":[{"args":"/a"}]}`, `{"refund":{"id":1.50}}`, `{"a":[]}`)
	f.Add(`{"a":{"result":""}}`, `"x"`, `{}`)
	f.Fuzz(func(t *testing.T, template, result, input string) {
		args, err := CompactJSON([]byte(input), JSONLimits{})
		if err != nil || !strings.HasPrefix(strings.TrimSpace(template), "{") {
			return
		}
		c := Call{ID: "c1", Tool: "refunds.create", Status: StatusSucceeded, Input: args, Result: &Result{}}
		use, err := UndoCall(undoDefinition(template), c, result)
		if err != nil {
			return
		}
		if compact, err := CompactJSON(use.Input, JSONLimits{}); err != nil || string(compact) != string(use.Input) || use.Input[0] != '{' {
			t.Fatalf("%q is no arguments: %v", use.Input, err)
		}
	})
}
