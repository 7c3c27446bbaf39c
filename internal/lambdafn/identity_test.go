package lambdafn_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/web"
)

// caller is who an event with that authorizer, in JSON, is from.
func caller(t *testing.T, who lambdafn.Identity, authorizer string) (c web.Caller, err error) {
	t.Helper()
	serve(t, func(_ http.ResponseWriter, r *http.Request) { c, err = who.Caller(r) }, fmt.Sprintf(`{"version":"2.0","rawPath":"/",
		"rawQueryString":"tenant=evil&as=user:evil","headers":{"countersign-as":"user:evil,group:operators","tenant":"evil","sub":"evil","groups":"operators"},
		"body":"{\"tenant\":\"evil\",\"by\":\"user:evil\"}","requestContext":{"http":{"method":"POST"},"authorizer":%s}}`, authorizer))
	return c, err
}

func token(claims map[string]string) string {
	return string(mustJSON(map[string]any{"jwt": map[string]any{"claims": claims, "scopes": nil}}))
}

func TestCallerOfAToken(t *testing.T) {
	c, err := caller(t, lambdafn.Identity{}, token(map[string]string{"tenant": "acme", "sub": "ana", "groups": "[operators finance]", "tenant_id": "x"}))
	require.NoError(t, err)
	require.Equal(t, web.Caller{Tenant: "acme", Principal: policy.Principal{ID: "user:ana", Groups: []string{"group:operators", "group:finance"}}}, c)

	named := lambdafn.Identity{TenantClaim: "custom:tenant", UserClaim: "email", GroupsClaim: "cognito:groups"}
	c, err = caller(t, named, token(map[string]string{
		"tenant": "evil", "sub": "evil", "groups": "evil", "custom:tenant": "acme", "email": "ana+x@example.com", "cognito:groups": "[operators]",
	}))
	require.NoError(t, err)
	require.Equal(t, web.Caller{Tenant: "acme", Principal: policy.Principal{ID: "user:ana+x@example.com", Groups: []string{"group:operators"}}}, c)
}

func TestGroups(t *testing.T) {
	for _, c := range []struct {
		claim string
		want  []string
	}{ // in JSON a name is one name
		{"", nil}, {"[]", nil}, {"operators", []string{"group:operators"}},
		{"[operators]", []string{"group:operators"}}, {"[a b  c]", []string{"group:a", "group:b", "group:c"}},
		{"[a, b]", []string{"group:a", "group:b"}}, {"a b", []string{"group:a", "group:b"}},
		{"a,b, c", []string{"group:a", "group:b", "group:c"}}, {`["a","b"]`, []string{"group:a", "group:b"}},
		{`["a b","c","d,e",""]`, []string{"group:c"}}, {`["a",["operators"]]`, nil},
		{`{"operators":true}`, nil}, {"[a /b user:c group:d <e> f]", []string{"group:a", "group:f"}},
		{"[a", nil}, {"a\noperators", nil}, {"operators\x00", nil},
	} {
		got, err := caller(t, lambdafn.Identity{}, token(map[string]string{"tenant": "acme", "sub": "ana", "groups": c.claim}))
		require.NoError(t, err, c.claim)
		require.Equal(t, c.want, got.Principal.Groups, c.claim)
	}
}

// What was verified and makes no caller is refused, without being repeated; nothing else in the request stands in for it.
func TestRefusedTokens(t *testing.T) {
	for _, c := range []struct{ tenant, user, names string }{
		{"", "ana", "tenant"}, {"Canary", "ana", "tenant"}, {"[acme]", "ana", "tenant"},
		{"acme ", "ana", "tenant"}, {"acme\n", "ana", "tenant"}, {"acme", "", "sub"},
		{"acme", "auth0|canary", "sub"}, {"acme", "ana,group:operators", "sub"}, {"acme", "ana canary", "sub"},
		{"acme", "ana\n", "sub"},
	} {
		_, err := caller(t, lambdafn.Identity{IAMTenant: "acme"}, token(map[string]string{"tenant": c.tenant, "sub": c.user}))
		p := requireRefused(t, err, web.NotAllowed)
		require.Contains(t, p.Detail, "claim "+c.names)
		require.NotContains(t, p.Detail, "anary")
	}
	_, err := caller(t, lambdafn.Identity{}, `{"jwt":{"claims":null}}`)
	requireRefused(t, err, web.NotAllowed)
}

func requireRefused(t *testing.T, err error, kind web.ProblemType) web.Problem {
	t.Helper()
	var p *web.Problem
	require.True(t, errors.As(err, &p), "%v", err)
	require.Equal(t, kind, p.Type)
	return *p
}

// Behind no gateway nobody is verified. TestA9EveryRouteAsksWhoCalls has whom a gateway has not verified.
func TestNobodyVerified(t *testing.T) {
	_, err := lambdafn.Identity{IAMTenant: "acme"}.Caller(httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, 401, requireRefused(t, err, web.Unauthenticated).Status)
}

func TestCallerOfIAM(t *testing.T) {
	who := func(arn string) string {
		return fmt.Sprintf(`{"iam":{"accessKey":"AKIA","accountId":"1","userArn":%q,"userId":"AIDA"}}`, arn)
	}
	for _, c := range []struct{ arn, id, group string }{
		{"arn:aws:iam::123456789012:user/ana", "user:ana", ""},
		{"arn:aws:iam::123456789012:user/division/ana@example.com", "user:ana@example.com", ""},
		{"arn:aws-cn:iam::123456789012:user/ana", "user:ana", ""},
		{"arn:aws:sts::123456789012:assumed-role/Finance/ana", "user:ana@Finance", "group:Finance"},
		{"arn:aws:sts::123456789012:assumed-role/Finance/ana@example.com", "user:ana@example.com@Finance", "group:Finance"},
		{"arn:aws:sts::123456789012:assumed-role/AWSReservedSSO_Ops_0f/ana", "user:ana@AWSReservedSSO_Ops_0f", "group:AWSReservedSSO_Ops_0f"},
	} {
		_, err := caller(t, lambdafn.Identity{}, who(c.arn))
		require.Contains(t, requireRefused(t, err, web.NotAllowed).Detail, "IAM has signed are not taken here")
		got, err := caller(t, lambdafn.Identity{IAMTenant: "ops"}, who(c.arn))
		require.NoError(t, err, c.arn)
		want := web.Caller{Tenant: "ops", Principal: policy.Principal{ID: c.id}}
		if c.group != "" {
			want.Principal.Groups, want.Principal.Unpinned = []string{c.group}, true
		}
		require.Equal(t, want, got)
	}
	for _, arn := range []string{ // the first would read like an address
		"arn:aws:sts::123456789012:assumed-role/a.example.com/ana",
		"arn:aws:sts::123456789012:assumed-role/a@b/ana", "arn:aws:sts::123456789012:assumed-role/Finance/",
		"arn:aws:sts::123456789012:assumed-role/Finance",
		"arn:aws:sts::123456789012:assumed-role/Fin=ance/ana", "arn:aws:sts::123456789012:federated-user/ana",
		"arn:aws:iam::123456789012:root", "arn:aws:iam::123456789012:user", "arn:aws:iam::123456789012:user/",
		"arn:aws:iam::123456789012:role/Finance", "ana", "",
	} {
		_, err := caller(t, lambdafn.Identity{IAMTenant: "ops"}, who(arn))
		requireRefused(t, err, web.NotAllowed)
	}
	_, err := caller(t, lambdafn.Identity{IAMTenant: "Not a tenant"}, `{"iam":{"userArn":"arn:aws:iam::1:user/ana"}}`)
	requireRefused(t, err, web.NotAllowed)
}

// The sessions of the stack's own role are operators, and no other role of that name is. Who has a name of their own choice
// is unpinned, unless all roles pin it.
func TestPinnedSessions(t *testing.T) {
	own := lambdafn.Identity{IAMTenant: "ops", Operators: "stack-OperatorsRole-1A2B"}
	pinned := own
	pinned.IAMPinned = true
	for _, c := range []struct {
		who      lambdafn.Identity
		role, id string
		unpinned bool
	}{
		{own, "stack-OperatorsRole-1A2B", "user:ana@operators", false},
		{own, "operators", "", false},
		{own, "finance", "user:ana@finance", true},
		{pinned, "finance", "user:ana@finance", false},
		{lambdafn.Identity{IAMTenant: "ops"}, "operators", "user:ana@operators", true},
	} {
		got, err := caller(t, c.who, fmt.Sprintf(`{"iam":{"userArn":"arn:aws:sts::123456789012:assumed-role/%s/ana"}}`, c.role))
		if c.id == "" {
			requireRefused(t, err, web.NotAllowed)
			continue
		}
		require.NoError(t, err)
		_, role, _ := strings.Cut(c.id, "@")
		require.Equal(t, policy.Principal{ID: c.id, Groups: []string{"group:" + role}, Unpinned: c.unpinned}, got.Principal)
	}
}
