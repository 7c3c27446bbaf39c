package policy_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// The strings and the key order of RFC 8785, 3.2.2.2 and 3.2.3.
func TestCanonicalKnownAnswers(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{`{"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/"}`, `{"string":"€$\u000f\nA'B\"\\\\\"/"}`},
		{`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
			"{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}"},
		{`"\b\t\n\f\r\u0000\u001f\u007f\u2028<>&"`, "\"\\b\\t\\n\\f\\r\\u0000\\u001f\u007f\u2028<>&\""},
		{` [ true , false , null , 1.0 , 1e2 ] `, `[true,false,null,1.0,1e2]`},
		{`{"b":{},"a":[]}`, `{"a":[],"b":{}}`},
	} {
		got, err := jsonx.CanonicalJSON(json.RawMessage(tt.in))
		require.NoError(t, err)
		require.Equal(t, tt.want, got)
	}
}

func TestActionDigestKnownAnswer(t *testing.T) {
	d := policy.DigestInput{
		Tenant: "default", Run: "r1", Call: "c1", Agent: "refunds", Version: "3\n", Tool: "refunds.create",
		ToolHash: "aa", ArgsHash: "bb", PolicyVersion: "cc", ApproverPolicy: "dd",
	}
	require.Equal(t, agent.HashHex([]byte(`{"agent":"refunds","approverPolicy":"dd","argsHash":"bb","call":"c1","policyVersion":"cc","run":"r1",`+
		`"tenant":"default","tool":"refunds.create","toolHash":"aa","version":"3\n"}`)), d.ActionDigest())
	require.Equal(t, "63e42ca8d2b18a46feaaae593ae6dd356fdaccd8402f9b0d988030f58c876893", d.ActionDigest())
}

func TestToolHashSurvivesStorage(t *testing.T) {
	tool := agent.ToolSpec{Name: "a.b", Kind: agent.KindInternal, Description: "<x>", Schema: json.RawMessage(`{"type":"object","maxProperties":1e2,"title":"<&>\u2028"}`), Effect: run.EffectRead, Timeout: time.Second}
	stored, err := json.Marshal(tool)
	require.NoError(t, err)
	require.NotContains(t, string(stored), "<")
	var loaded agent.ToolSpec
	require.NoError(t, json.Unmarshal(stored, &loaded))
	require.Equal(t, agent.ToolHash(tool), agent.ToolHash(loaded))
}

func TestHashesCoverEveryField(t *testing.T) {
	requireCovers(t, policy.DigestInput.ActionDigest)
	requireCovers(t, agent.ToolHash)
	requireCovers(t, policy.PolicyVersion)
	requireCovers(t, func(r agent.Rule) string { return policy.PolicyVersion(agent.Permission{Rules: []agent.Rule{r}}) })
	requireCovers(t, func(c run.Condition) string {
		return policy.PolicyVersion(agent.Permission{Rules: []agent.Rule{{When: []run.Condition{c}}}})
	})
}

// requireCovers sets one field of T after the other and wants a new hash each time, so a field that is added to T and
// forgotten in the hash fails here.
func requireCovers[T any](t *testing.T, hash func(T) string) {
	t.Helper()
	var zero T
	seen := map[string]bool{hash(zero): true}
	for i := range reflect.TypeFor[T]().NumField() {
		var v T
		setField(reflect.ValueOf(&v).Elem().Field(i))
		require.False(t, seen[hash(v)], reflect.TypeFor[T]().Field(i).Name)
		seen[hash(v)] = true
	}
}

func setField(f reflect.Value) {
	switch {
	case f.Type() == reflect.TypeFor[json.RawMessage]():
		f.SetBytes([]byte(`7`))
	case f.Kind() == reflect.String:
		f.SetString("7")
	case f.Kind() == reflect.Bool:
		f.SetBool(true)
	case f.CanInt():
		f.SetInt(7)
	case f.Kind() == reflect.Pointer:
		f.Set(reflect.New(f.Type().Elem()))
		setField(f.Elem())
	case f.Kind() == reflect.Struct:
		setField(f.Field(0))
	case f.Kind() == reflect.Slice:
		f.Set(reflect.MakeSlice(f.Type(), 1, 1))
	}
}

func TestApproverPolicy(t *testing.T) {
	require.Equal(t, agent.HashHex([]byte(`{"approvers":["group:b","user:a"],"quorum":"2"}`)), policy.Decision{Approvers: []string{"user:a", "group:b", "user:a"}, Quorum: 2}.ApproverPolicy())
	require.Equal(t, policy.Decision{Quorum: 1}.ApproverPolicy(), policy.Decision{Approvers: []string{}, Quorum: 1}.ApproverPolicy())
	require.NotEqual(t, policy.Decision{Approvers: []string{"user:a"}, Quorum: 1}.ApproverPolicy(), policy.Decision{Approvers: []string{"user:a"}, Quorum: 2}.ApproverPolicy())
}
