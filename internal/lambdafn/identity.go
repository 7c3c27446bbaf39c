package lambdafn

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/web/api"
)

// Authorizer is what the gateway has verified about a caller.
type Authorizer = events.APIGatewayV2HTTPRequestContextAuthorizerDescription

// Identity says which verified facts make a caller. The zero value takes the claims tenant, sub and groups, and refuses
// IAM.
//
// From a JWT: the tenant's claim is a tenant's name; the user's claim makes user:<claim>; every group in the groups'
// claim makes group:<group>. The groups' claim is text, as the gateway passes claims on, in one of these forms:
//
//	["a","b"]   JSON: each element is a group
//	[a b]       what API Gateway makes of an array, Cognito's cognito:groups for one; commas separate, too
//	a b  a,b    a plain text, as a scope is, or a list that an Auth0 action has joined
//
// In the last two a space ends a name: give groups names without spaces, and let nobody make groups whose name holds
// another's. A group that cannot be a principal is left out. A user or a tenant that cannot be one is refused, as are
// Auth0's subjects with their bar: name another claim for the user there, such as an e-mail address that was verified.
//
// From IAM: the tenant is IAMTenant. An IAM user makes user:<name>. A session of an assumed role makes
// user:<session>@<role> and group:<role>. Whoever may assume a role may choose the session's name, so a role stands
// beside it: nobody becomes a user of a JWT or of another role by it. Names are one account's: with IAMAccount, those
// of any other are refused, or whoever owns one that a resource policy lets in could make a role of an approvers' name
// there. Where two sessions of a role must be two people, its trust policy has to pin sts:RoleSessionName.
type Identity struct {
	TenantClaim string // "" = tenant
	UserClaim   string // "" = sub
	GroupsClaim string // "" = groups
	IAMTenant   string // "" = callers signed by IAM are refused
	IAMAccount  string // the account whose users and roles are meant; "" = any that the gateway lets in
}

type callerKey struct{}

// Caller is who makes a request that Gateway has passed on: api.Backend.Caller. Its errors are of type *api.Problem,
// Unauthenticated where nothing was verified and NotAllowed where what was verified makes no caller; they name claims
// and never quote them.
func (i Identity) Caller(r *http.Request) (api.Caller, error) {
	a, _ := r.Context().Value(callerKey{}).(*Authorizer)
	switch {
	case a == nil:
	case a.JWT != nil:
		return i.tokenCaller(a.JWT.Claims)
	case a.IAM != nil:
		return i.iamCaller(a.IAM.UserARN)
	}
	return api.Caller{}, api.NewProblem(api.Unauthenticated, "want a verified token or an IAM signature")
}

func (i Identity) tokenCaller(claims map[string]string) (api.Caller, error) {
	tenantClaim, userClaim, groupsClaim := cmp.Or(i.TenantClaim, "tenant"), cmp.Or(i.UserClaim, "sub"), cmp.Or(i.GroupsClaim, "groups")
	tenant := claims[tenantClaim]
	if !agent.ValidTenant(tenant) {
		return api.Caller{}, api.NewProblem(api.NotAllowed, "the token's claim "+tenantClaim+" names no tenant: want ^[a-z0-9][a-z0-9-]{0,39}$")
	}
	user := "user:" + claims[userClaim]
	if !agent.ValidPrincipal(user) {
		return api.Caller{}, api.NewProblem(api.NotAllowed, "the token's claim "+userClaim+" names no user: want 1 to 128 of A-Z a-z 0-9 . _ @ + -")
	}
	return api.Caller{Tenant: tenant, Principal: policy.Principal{ID: user, Groups: readGroups(claims[groupsClaim])}}, nil
}

// readGroups reads a claim in any of the forms that Identity lists.
func readGroups(claim string) []string {
	var names []string
	if json.Unmarshal([]byte(claim), &names) != nil {
		if inner, ok := strings.CutPrefix(claim, "["); ok && strings.HasSuffix(inner, "]") {
			claim = strings.TrimSuffix(inner, "]")
		}
		names = strings.FieldsFunc(claim, func(r rune) bool { return r == ' ' || r == ',' })
	}
	var out []string
	for _, name := range names {
		if g := "group:" + name; agent.ValidPrincipal(g) {
			out = append(out, g)
		}
	}
	return out
}

func (i Identity) iamCaller(arn string) (api.Caller, error) {
	if i.IAMTenant == "" {
		return api.Caller{}, api.NewProblem(api.NotAllowed, "callers that IAM has signed are not taken here")
	}
	p, account, ok := principalOf(arn)
	if i.IAMAccount != "" && account != i.IAMAccount {
		return api.Caller{}, api.NewProblem(api.NotAllowed, "want a user or a role of the deployment's own account")
	}
	if !agent.ValidTenant(i.IAMTenant) || !ok {
		return api.Caller{}, api.NewProblem(api.NotAllowed, "want an IAM user or a session of an assumed role whose names can be those of a principal")
	}
	return api.Caller{Tenant: i.IAMTenant, Principal: p}, nil
}

// principalOf reads arn:aws:iam::ACCOUNT:user/PATH/NAME and arn:aws:sts::ACCOUNT:assumed-role/ROLE/SESSION. A role with
// @ or a dot is none: user:a@b.c would not say whether it is a session of b.c or somebody's address.
func principalOf(arn string) (p policy.Principal, account string, ok bool) {
	parts := strings.SplitN(arn, ":", 6)
	if len(parts) != 6 || parts[0] != "arn" {
		return policy.Principal{}, "", false
	}
	what := strings.Split(parts[5], "/")
	switch {
	case parts[2] == "iam" && len(what) > 1 && what[0] == "user":
		p = policy.Principal{ID: "user:" + what[len(what)-1]}
		return p, parts[4], agent.ValidPrincipal(p.ID)
	case parts[2] == "sts" && len(what) == 3 && what[0] == "assumed-role" && !strings.ContainsAny(what[1], "@."):
		p = policy.Principal{ID: "user:" + what[2] + "@" + what[1], Groups: []string{"group:" + what[1]}}
		return p, parts[4], what[2] != "" && agent.ValidPrincipal(p.ID) && agent.ValidPrincipal(p.Groups[0])
	default:
		return policy.Principal{}, "", false
	}
}
