package lambdafn_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/lambdafn"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

// names are those of things that fill the places of a request: those of a tenant that the caller is not of, or of what nobody has.
type names struct{ run, approval, sha, agent, token string }

// row says how a route is asked about a thing: whatever a caller names that is another tenant's, is answered as what nobody has.
type row struct {
	path, body string
	open       bool // anybody may ask: what they have to show is in the path
	list       bool // it names nothing: what it gives has to be the caller's own
}

// rows has a line for every route; a route without one fails.
var rows = map[string][]row{
	"POST /v1/runs": {
		{path: "/v1/runs", body: `{"agent":"payer","message":"x","continues":"{run}"}`},
		{path: "/v1/runs", body: `{"agent":"payer","message":[{"type":"media","mediaType":"text/plain","blob":"{sha}"}]}`},
	},
	"GET /v1/runs": {
		{path: "/v1/runs", list: true}, {path: "/v1/runs?status=waiting&agent=payer", list: true}, {path: "/v1/runs?root={run}"},
	},
	"GET /v1/runs/{id}":                    {{path: "/v1/runs/{run}"}, {path: "/v1/runs/{run}?messages=0"}},
	"GET /v1/runs/{id}/messages":           {{path: "/v1/runs/{run}/messages"}},
	"GET /v1/runs/{id}/calls":              {{path: "/v1/runs/{run}/calls"}},
	"GET /v1/runs/{id}/events":             {{path: "/v1/runs/{run}/events"}, {path: "/v1/runs/{run}/events?cursor=1&format=arvo"}},
	"GET /v1/runs/{id}/replay":             {{path: "/v1/runs/{run}/replay"}},
	"POST /v1/runs/{id}/cancel":            {{path: "/v1/runs/{run}/cancel", body: `{}`}, {path: "/v1/runs/{run}/cancel"}},
	"POST /v1/runs/{id}/fork":              {{path: "/v1/runs/{run}/fork", body: `{"at":0}`}, {path: "/v1/runs/{run}/fork", body: `{"at":999}`}},
	"POST /v1/runs/{id}/calls/{call}/undo": {{path: "/v1/runs/{run}/calls/c1/undo", body: `{}`}, {path: "/v1/runs/{run}/calls/c9/undo", body: `{}`}},
	"POST /v1/runs/{id}/input": {
		{path: "/v1/runs/{run}/input", body: `{"messages":["Hello?"]}`},
		{path: "/v1/runs/{run}/input", body: `{"decisions":[{"target":"c1","action":"resume"}]}`},
		{path: "/v1/runs/{run}/input", body: `{"decisions":[{"target":"{approval}","action":"cancel"}]}`},
		{path: "/v1/runs/{run}/input", body: `{"answers":[{"call":"c1","result":"yes"}]}`},
	},
	"POST /v1/chat/{agent}": {
		{path: "/v1/chat/payer", body: `{"id":"t","trigger":"submit-message","messages":[{"id":"{run}","role":"assistant","parts":[]},{"id":"u","role":"user","parts":[{"type":"text","text":"Hello?"}]}]}`},
		{path: "/v1/chat/payer", body: `{"id":"t","trigger":"submit-message","messages":[{"id":"{run}","role":"assistant","parts":[{"type":"dynamic-tool","toolCallId":"c1","state":"approval-responded","approval":{"id":"{approval}","approved":true}}]}]}`},
	},
	"GET /v1/chat/{agent}/{chat}/stream": {{path: "/v1/chat/payer/t/stream", list: true}},
	"POST /v1/callbacks/{token}":         {{path: "{token}", body: `{"result":1}`, open: true}},
	"POST /v1/blobs":                     {{path: "/v1/blobs", body: `{"mediaType":"text/plain","bytes":10,"sha256":"{sha}"}`}},
	"PUT /v1/blobs/{sha256}":             {{path: "/v1/blobs/{sha}", body: `x`}},
	"GET /v1/approvals": {
		{path: "/v1/approvals", list: true}, {path: "/v1/approvals?status=pending&limit=200", list: true},
		{path: "/v1/approvals?run={run}"}, {path: "/v1/approvals?root={run}"},
	},
	"GET /v1/approvals/{id}": {{path: "/v1/approvals/{approval}"}},
	"POST /v1/approvals/{id}/decision": {
		{path: "/v1/approvals/{approval}/decision", body: `{"action":"approve"}`},
		{path: "/v1/approvals/{approval}/decision", body: `{"action":"deny","note":"no"}`},
		{path: "/v1/approvals/{approval}/decision", body: `{"action":"edit","args":{"amount":6}}`},
		{path: "/v1/approvals/{approval}/decision", body: `{"action":"approve","tool":"pay"}`},
		{path: "/v1/approvals/{approval}/decision", body: `{"action":"ask","note":"What?"}`},
		{path: "/v1/approvals/{approval}/decision", body: `{"action":"reply","note":"That."}`},
	},
	"GET /v1/runs/{id}/journal":        {{path: "/v1/runs/{run}/journal"}, {path: "/v1/runs/{run}/journal?cursor=1"}},
	"GET /v1/grants":                   {{path: "/v1/grants", list: true}, {path: "/v1/grants?agent=payer", list: true}},
	"DELETE /v1/grants/{agent}/{tool}": {{path: "/v1/grants/{agent}/pay"}, {path: "/v1/grants/{agent}/pay?digest={sha}"}},
	"GET /v1/repairs":                  {{path: "/v1/repairs", list: true}},
	"GET /v1/deletions":                {{path: "/v1/deletions", list: true}},
	"DELETE /v1/runs/{id}":             {{path: "/v1/runs/{run}"}},
	"GET /v1/people":                   {{path: "/v1/people"}},
	"PUT /v1/people/{id}":              {{path: "/v1/people/user:cy", body: `{}`}},
	"DELETE /v1/people/{id}":           {{path: "/v1/people/user:cy"}},
}

func (n names) fill(text string) string {
	return strings.NewReplacer("{run}", n.run, "{approval}", n.approval, "{sha}", n.sha, "{agent}", n.agent, "{token}", n.token).Replace(text)
}

// blank is an answer with what a request named taken out.
func (n names) blank(text string) string {
	for _, name := range []string{n.token, n.run, n.approval, n.sha, n.agent} {
		text = strings.ReplaceAll(text, name, "?")
	}
	return text
}

// foreign is what acme has of every kind, and strange what looks like it and is nobody's.
func (s *stack) foreign() (theirs, strange names) {
	one := s.waiting(ana, "k")
	secret := []byte("acme's own")
	require.NoError(s.t, s.machine.Ports.Blobs.Put(s.t.Context(), "acme", store.BlobDigest(secret), secret))
	// It says acme's run, and is not acme's.
	theirs = names{one.ID, one.Waiting[0].Approval, store.BlobDigest(secret), "payer", secrets.Path + addressed("globex", one.ID)}
	other := agent.RunID("nobody", "payer", "k")
	strange = names{other, run.ApprovalID(other, "c1", 1), store.BlobDigest([]byte("nobody's")), "payex", secrets.Path + addressed("globex", other)}
	return theirs, strange
}

// A9: whatever another tenant's a caller names, on whichever route and however they show who they are, the answer is that about what does not exist:
// its status, its type, its headers and its words. Lists hold nothing of it, and nothing is written.
func TestA9OtherTenantsAreNobodys(t *testing.T) {
	var routes []string
	for route := range rows {
		routes = append(routes, route)
	}
	require.ElementsMatch(t, web.APIRoutes(), routes, "each route says how it is asked about what is another tenant's")
	for name, caller := range map[string]func([]byte) []byte{"token": byToken, "IAM": byIAM} {
		t.Run(name, func(t *testing.T) {
			inStack(t, pay, func(t *testing.T, s *stack) {
				s.takesIAM("globex")
				theirs, strange := s.foreign()
				before, writes := s.dump(), s.writes()
				for route, asked := range rows {
					method := strings.Fields(route)[0]
					for _, r := range asked {
						got := s.as(caller, theirs, method, r)
						for _, secret := range []string{"I will pay", "user:ana", `"amount"`, theirs.approval} {
							require.NotContains(t, theirs.blankIn(got.Body, r), secret, "%s %s", method, r.path)
						}
						if r.list {
							require.Less(t, got.StatusCode, 300, got.Body)
							require.NotContains(t, got.Body, theirs.run)
							continue
						}
						want := s.as(caller, strange, method, r)
						require.Equal(t, want.StatusCode, got.StatusCode, "%s %s", method, r.path)
						require.Equal(t, want.Headers, got.Headers, "%s %s", method, r.path)
						require.Equal(t, strange.blank(want.Body), theirs.blank(got.Body), "%s %s", method, r.path)
						if !strings.HasPrefix(r.path, "/v1/blobs") { // an upload of the same bytes is permitted, as one's own
							require.GreaterOrEqual(t, got.StatusCode, 400, "%s %s", method, r.path)
						}
					}
				}
				synctest.Wait()
				require.Equal(t, writes, s.writes(), "nothing is written")
				require.Equal(t, before, s.dump())
				require.Empty(t, s.paid)
			})
		})
	}
}

// blankIn takes what the request itself named out of an answer: that a problem repeats it says nothing.
func (n names) blankIn(text string, r row) string {
	if strings.Contains(r.path+r.body, "{approval}") {
		return strings.ReplaceAll(text, n.approval, "?")
	}
	return text
}

// byToken and byIAM are bob of globex, in the two ways in which the gateway says who calls.
var byToken = claiming(bob)

func byIAM(event []byte) []byte {
	return authorised(event, map[string]any{"iam": map[string]any{
		"accountId": "000000000000", "callerId": "AIDA", "userArn": "arn:aws:sts::000000000000:assumed-role/operators/bob", "userId": "AIDA",
	}})
}

func authorised(event []byte, authorizer map[string]any) []byte {
	var raw map[string]any
	if err := json.Unmarshal(event, &raw); err != nil {
		panic(err)
	}
	raw["requestContext"].(map[string]any)["authorizer"] = authorizer
	return mustJSON(raw)
}

// takesIAM makes the API one that takes callers signed by IAM, of a tenant.
func (s *stack) takesIAM(tenant string) {
	ports := s.machine.Ports
	ports.Table, ports.Journal = s.table, store.NewJournal(s.table, 8)
	ports.Model, ports.Tools, ports.Uploads = nil, nil, permits{}
	s.api = s.deployment(ports).Serve(s.agents, lambdafn.Identity{IAMTenant: tenant, IAMAccount: "000000000000"})
}

// claimed are the ways in which a request may claim to be of another tenant, or another person: none is looked at.
var claimed = []string{"countersign-as", "user:ana,group:operators", "tenant", "acme", "x-tenant", "acme", "x-amzn-tenant", "acme", "cookie", "tenant=acme"}

// as asks about what is named, claiming besides to be of acme.
func (s *stack) as(caller func([]byte) []byte, n names, method string, r row) events.APIGatewayV2HTTPResponse {
	s.t.Helper()
	event := caller(request(method+" "+n.fill(r.path), n.fill(r.body), nil, claimed...))
	return s.answered(s.api(s.t.Context(), event))
}

// A9: who shows nothing is 401 on every route but those that show all in their path, and who shows what makes no caller is 403; a tenant in the query
// or the body is refused. Nothing is written.
func TestA9EveryRouteAsksWhoCalls(t *testing.T) {
	for route, asked := range rows {
		for _, r := range asked {
			path := names{token: secrets.Path + "x"}.fill(r.path)
			require.Equal(t, route == "POST /v1/callbacks/{token}", web.IsPublic(httptest.NewRequest(http.MethodPost, path, nil)), route)
			require.Equal(t, route == "POST /v1/callbacks/{token}", r.open, route)
		}
	}
	inStack(t, pay, func(t *testing.T, s *stack) {
		s.takesIAM("")
		theirs, _ := s.foreign()
		before, writes := s.dump(), s.writes()
		nobody := func(event []byte) []byte { return event }
		for what, c := range map[string]struct {
			caller func([]byte) []byte
			status int
			kind   web.ProblemType
		}{
			"nobody":             {nobody, 401, web.Unauthenticated},
			"a null authorizer":  {func(e []byte) []byte { return authorised(e, nil) }, 401, web.Unauthenticated},
			"no claims":          {func(e []byte) []byte { return authorised(e, map[string]any{"jwt": map[string]any{}}) }, 403, web.NotAllowed},
			"no tenant":          {claiming(with(ana, "tenant", "")), 403, web.NotAllowed},
			"no such tenant":     {claiming(with(ana, "tenant", "acme#RUN")), 403, web.NotAllowed},
			"nobody of a tenant": {claiming(with(ana, "sub", "")), 403, web.NotAllowed},
			"IAM, not taken":     {byIAM, 403, web.NotAllowed},
			"a lambda's context": {func(e []byte) []byte {
				return authorised(e, map[string]any{"lambda": map[string]any{"tenant": "acme"}})
			}, 401, web.Unauthenticated},
		} {
			for route, asked := range rows {
				for _, r := range asked {
					if r.open {
						continue
					}
					got := s.as(c.caller, theirs, strings.Fields(route)[0], r)
					require.Equal(t, c.status, got.StatusCode, "%s: %s", what, route)
					var p web.Problem
					require.NoError(t, json.Unmarshal([]byte(got.Body), &p))
					require.Equal(t, c.kind, p.Type, "%s: %s", what, route)
				}
			}
		}
		for route, asked := range rows {
			r := asked[0]
			if r.open || strings.HasPrefix(route, "PUT ") {
				continue
			}
			path := theirs.fill(r.path)
			in := s.do(bob, strings.Fields(route)[0]+" "+path+map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")]+"tenant=acme", theirs.fill(r.body))
			require.GreaterOrEqual(t, in.StatusCode, 400, route)
			if strings.HasPrefix(r.body, "{") {
				in = s.do(bob, strings.Fields(route)[0]+" "+path, `{"tenant":"acme"}`)
				require.GreaterOrEqual(t, in.StatusCode, 400, route)
			}
		}
		require.Equal(t, writes, s.writes())
		require.Equal(t, before, s.dump())
	})
}

func claiming(claims map[string]string) func([]byte) []byte {
	return func(e []byte) []byte {
		return authorised(e, map[string]any{"jwt": map[string]any{"claims": claims}})
	}
}
