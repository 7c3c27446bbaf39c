package policy_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
)

func TestDecisionFromJSON(t *testing.T) {
	for _, tt := range []struct {
		in     string
		resume bool
		reason string
	}{
		{`true`, true, ""}, {`false`, false, ""},
		{`null`, false, ""}, {`[]`, false, ""}, {`[true]`, false, ""}, {`0`, false, ""}, {`1`, false, ""},
		{``, false, ""}, {`{`, false, ""}, {`{"approved":true,"approved":false}`, false, ""},
		{`""`, true, ""}, {`"yes"`, true, "yes"}, {`"go ahead"`, true, "go ahead"}, {`"nope"`, true, "nope"},
		{`"no"`, false, "no"}, {`" DENIED "`, false, " DENIED "}, {`"\u006eo"`, false, "no"},
		{`"deny"`, false, "deny"}, {`"false"`, false, "false"}, {`"reject"`, false, "reject"}, {`"rejected"`, false, "rejected"},
		{`"cancel"`, false, "cancel"}, {`"canceled"`, false, "canceled"}, {`"cancelled"`, false, "cancelled"},
		{`"abort"`, false, "abort"}, {`"aborted"`, false, "aborted"},
		{`{}`, true, ""}, {`{"approved":true}`, true, ""}, {`{"approved":false}`, false, ""}, {`{"approved":"no"}`, false, ""},
		{`{"approved":0}`, true, ""}, {`{"amount":0}`, true, ""},
		{`{"denied":true,"reason":"too much"}`, false, "too much"}, {`{"denied":false}`, true, ""}, {`{"cancelled":true}`, false, ""},
		{`{"status":"rejected","message":"m","error":"e"}`, false, "m"}, {`{"decision":"Deny","error":"e"}`, false, "e"},
		{`{"action":"abort"}`, false, ""}, {`{"status":"ok","reason":"fine"}`, true, "fine"}, {`{"reason":""}`, true, ""},
		{`{"reason":7,"message":"m"}`, true, "m"}, {`{"approved":true,"status":"denied"}`, false, ""},
	} {
		resume, reason := policy.DecisionFromJSON(json.RawMessage(tt.in))
		require.Equal(t, tt.resume, resume, tt.in)
		require.Equal(t, tt.reason, reason, tt.in)
	}
}

// FuzzDecisionFromJSON: whatever a user interface sends means one thing, however it is written; only true, a text and an object resume.
func FuzzDecisionFromJSON(f *testing.F) {
	for _, seed := range []string{`true`, `"no"`, `{"approved":false,"reason":"r"}`, `{"denied":true}`, `[1]`, `1e9`, `null`, `{`, `{"status":"Rejected "}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		resume, reason := policy.DecisionFromJSON(data)
		compact, err := jsonx.CompactJSON(data, jsonx.JSONLimits{})
		if err != nil {
			require.False(t, resume, "what is no JSON is no yes")
			require.Empty(t, reason)
			return
		}
		again, same := policy.DecisionFromJSON(compact)
		require.Equal(t, []any{resume, reason}, []any{again, same})
		if resume {
			require.Contains(t, `t"{`, string(compact[0]))
		}
		if compact[0] == '{' {
			denied := append([]byte(`{"aborted":true`), compact[1:]...)
			if len(compact) > 2 {
				denied = append([]byte(`{"aborted":true,`), compact[1:]...)
			}
			no, _ := policy.DecisionFromJSON(denied)
			require.False(t, no, "a denial flag is stronger than all beside it")
		}
	})
}
