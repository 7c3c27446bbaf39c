package web_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/web"
)

// Members of one group change the people of their tenant: who is added decides by their groups, who is taken out is
// out, also somebody of whom nobody knew. Nobody else sees or changes them, and without such a group nobody does.
func TestPeople(t *testing.T) {
	b := newUnserved(t, pay)
	b.backend.PeopleAdmins = ""
	b.serve()
	t.Cleanup(b.server.Close)
	const admin = "user:root,group:admins"
	problemIn(t, b.do("GET /v1/people", "", web.AsHeader, admin), http.StatusForbidden, web.NotAllowed)
	b.backend.PeopleAdmins = "group:admins"
	b.serve()
	for _, of := range []string{"GET /v1/people", "PUT /v1/people/user:ana", "DELETE /v1/people/user:ana"} {
		body := ""
		if of[0] == 'P' {
			body = `{"zzz":1}` // permission is checked before the body
		}
		p := problemIn(t, b.do(of, body), http.StatusForbidden, web.NotAllowed)
		require.Contains(t, p.Detail, "want a member of group:admins")
	}
	put := func(id, body string) answer { return b.do("PUT /v1/people/"+id, body, web.AsHeader, admin) }
	require.Equal(t, http.StatusNoContent, put("user:ben", `{"groups":["group:operators"]}`).status)
	require.Equal(t, http.StatusNoContent, put("user:ana", `{"groups":["group:finance"],"name":"Ana","email":"ana@example.com","slack":"U012ABCDEF","notify":["slack"]}`).status)
	for body, want := range map[string]string{
		`{"groups":["finance"]}`:                      `groups: got "finance", want a list of group:NAME`,
		`{"email":"ana"}`:                             "email: want one address, as ana@example.com",
		`{"notify":["email"]}`:                        "notify: got email, and the person has no email here",
		`{"slack":"U012ABCDEF"}`:                      "it is that of user:ana as well",
		`{"phone":"1"}`:                               "phone",
		`{"groups":["group:a"],"groups":["group:b"]}`: "groups",
	} {
		p := problemIn(t, put("user:eve", body), http.StatusBadRequest, web.InvalidRequest)
		require.Contains(t, p.Detail, want, body)
	}
	problemIn(t, put("group:x", `{}`), http.StatusNotFound, web.NoSuchPath)
	require.Equal(t, http.StatusNoContent, b.do("DELETE /v1/people/user:ben", "", web.AsHeader, admin).status)
	require.Equal(t, http.StatusNoContent, b.do("DELETE /v1/people/user:gone", "", web.AsHeader, admin).status)
	got := b.do("GET /v1/people", "", web.AsHeader, admin)
	require.JSONEq(t, `{"items":[{"id":"user:ana","groups":["group:finance"],"name":"Ana","email":"ana@example.com","slack":"U012ABCDEF","notify":["slack"]}]}`, got.body)

	known := &people.Stored{Table: b.table, Clock: b.backend.Clock}
	for id, removed := range map[string]bool{"user:ana": false, "user:ben": true, "user:gone": true, "user:eve": false} {
		out := must(known.Removed(t.Context(), local.Tenant, id))
		require.Equal(t, removed, out, id)
	}
	b.ofTenant("other")
	require.JSONEq(t, `{"items":[]}`, b.do("GET /v1/people", "", web.AsHeader, admin).body)
}
