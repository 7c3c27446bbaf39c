package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/people/person"
	"github.com/countersign/countersign/internal/web/api"
)

// noDuty has the form of a duty's id.
const noDuty = "daaaaaaaaaaaaaaaaaaaaaaaaa"

// as is who a request is made for.
func as(who string) []string { return []string{api.AsHeader, who} }

// give lets another decide in the place of who, from so long from now until so much later.
func (b *bench) give(who, to string, from, until time.Duration) answer {
	b.t.Helper()
	now := b.backend.Clock.Now()
	at := func(d time.Duration) string { return now.Add(d).UTC().Format(time.RFC3339Nano) }
	return b.do("POST /v1/me/duties", fmt.Sprintf(`{"to":%q,"from":%q,"until":%q}`, to, at(from), at(until)), as(who)...)
}

// duties has duties given, listed and ended.
func (d *document) duties(t *testing.T) {
	b := newBench(t, pay)
	given := b.give("user:ana", "user:ben", 0, time.Hour)
	require.Equal(t, http.StatusCreated, given.status, given.body)
	d.check(t, "POST /v1/me/duties", given)
	var duty person.Duty
	require.NoError(t, json.Unmarshal([]byte(given.body), &duty))
	list := b.do("GET /v1/me/duties", "", as("user:ben")...)
	require.Contains(t, list.body, duty.ID)
	d.check(t, "GET /v1/me/duties", list)
	end := "DELETE /v1/me/duties/" + duty.ID
	got := b.do(end, "", as("user:carl")...)
	require.Equal(t, http.StatusNotFound, got.status)
	d.check(t, "DELETE /v1/me/duties/{id}", got)
	for range 2 {
		got = b.do(end, "", as("user:ana")...)
		require.Equal(t, http.StatusNoContent, got.status, got.body)
		d.check(t, "DELETE /v1/me/duties/{id}", got)
	}
}

// TestA15AnotherDecidesByTheAPI: within its dates, for who gave it and nobody else; and before and after, nobody does.
func TestA15AnotherDecidesByTheAPI(t *testing.T) {
	b := newBench(t, pay)
	run := b.start("k")
	decide := real("POST /v1/approvals/{id}/decision", run)
	approve := func(who string) answer { return b.do(decide, `{"action":"approve"}`, as(who)...) }
	require.Equal(t, http.StatusForbidden, approve("user:ben").status)
	require.Equal(t, http.StatusCreated, b.give("user:eve", "user:ben", 0, time.Hour).status)
	require.Equal(t, http.StatusForbidden, approve("user:ben").status, "eve may not either")
	require.Equal(t, http.StatusCreated, b.give("user:ana,group:operators", "user:ben", time.Hour, 2*time.Hour).status)
	require.Equal(t, http.StatusForbidden, approve("user:ben").status, "it has not begun")
	now := b.give("user:ana,group:operators", "user:ben", 0, time.Hour)
	require.Equal(t, http.StatusCreated, now.status)
	require.Equal(t, http.StatusCreated, b.give("user:ben", "user:carl", 0, time.Hour).status)
	require.Equal(t, http.StatusForbidden, approve("user:carl").status, "it is not handed on")

	var duty person.Duty
	require.NoError(t, json.Unmarshal([]byte(now.body), &duty))
	require.Equal(t, http.StatusNoContent, b.do("DELETE /v1/me/duties/"+duty.ID, "", as("user:ana")...).status)
	require.Equal(t, http.StatusForbidden, approve("user:ben").status, "it was ended")
	require.Equal(t, http.StatusCreated, b.give("user:ana,group:operators", "user:ben", 0, 2*time.Hour).status)
	got := approve("user:ben")
	require.Equal(t, http.StatusOK, got.status, got.body)
	var a approval.Approval
	require.NoError(t, json.Unmarshal([]byte(got.body), &a))
	require.Equal(t, "user:ben", a.Decisions[0].By)
	require.Equal(t, "user:ana", a.Decisions[0].For)
	require.Equal(t, approval.ViaCLI, a.Decisions[0].Via, "the bench serves a laptop")
	require.Equal(t, agent.RunDone, b.rest(run.ID).Status)
	require.Equal(t, 5, <-b.paid)
}

// TestA15AskingByTheAPI: what is said is shown with the request, and the run waits on.
func TestA15AskingByTheAPI(t *testing.T) {
	b := newBench(t, pay)
	run := b.start("k")
	id := run.Waiting[0].Approval
	for _, v := range []api.Verdict{{Action: api.Ask, Note: "Which order?"}, {Action: api.Reply, Note: "Order 7."}} {
		_, err := b.client.Decide(t.Context(), id, v)
		require.NoError(t, err)
	}
	a, err := b.client.Approval(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, approval.Pending, a.Status)
	require.Len(t, a.Thread, 2)
	require.Equal(t, "Which order?", a.Thread[0].Text)
	require.Equal(t, "user:local", a.Thread[0].By)
	require.Equal(t, agent.RunWaiting, b.rest(run.ID).Status)
	decide := real("POST /v1/approvals/{id}/decision", run)
	for body, want := range map[string]string{
		`{"action":"ask","note":"` + strings.Repeat("x", 4001) + `"}`: "1 to 4000 characters",
		`{"action":"ask","note":"  "}`:                                "1 to 4000 characters",
		`{"action":"reply","note":"x","args":{}}`:                     "goes with a note and with nothing else",
		`{"action":"say","note":"x"}`:                                 "want approve, deny, edit, ask or reply",
	} {
		got := b.do(decide, body)
		require.Equal(t, http.StatusBadRequest, got.status)
		require.Contains(t, got.body, want)
	}
	for i := range approval.MaxRemarks - 2 {
		_, err := b.client.Decide(t.Context(), id, api.Verdict{Action: api.Ask, Note: fmt.Sprint(i)})
		require.NoError(t, err)
	}
	require.Equal(t, http.StatusRequestEntityTooLarge, b.do(decide, `{"action":"ask","note":"one more"}`).status)
	require.Equal(t, http.StatusOK, b.do(decide, `{"action":"deny"}`).status)
	require.Equal(t, http.StatusConflict, b.do(decide, `{"action":"ask","note":"why?"}`).status)
}

// What people say of themselves is theirs: nobody reads or changes another's, of their own tenant or of another.
func TestWhatPeopleSayOfThemselvesIsTheirs(t *testing.T) {
	b := newBench(t, pay)
	run := b.start("k")
	require.Equal(t, http.StatusOK, b.do("PUT /v1/me/preferences", `{"notify":["email"]}`, as("user:ana")...).status)
	require.Equal(t, http.StatusCreated, b.give("user:ana,group:operators", "user:ben", 0, time.Hour).status)
	list := func(who string) api.DutyList {
		var l api.DutyList
		require.NoError(t, json.Unmarshal([]byte(b.do("GET /v1/me/duties", "", as(who)...).body), &l))
		return l
	}
	duty := list("user:ana").Given[0]
	require.Equal(t, []person.Duty{duty}, list("user:ben").Received)
	unknown := b.do("DELETE /v1/me/duties/"+noDuty, "", as("user:carl")...)
	foreign := func(who string) {
		t.Helper()
		require.JSONEq(t, `{"notify":null}`, b.do("GET /v1/me/preferences", "", as(who)...).body)
		require.Equal(t, api.DutyList{Given: []person.Duty{}, Received: []person.Duty{}}, list(who))
		got := b.do("DELETE /v1/me/duties/"+duty.ID, "", as(who)...)
		require.Equal(t, http.StatusNotFound, got.status)
		require.Equal(t, unknown.body, strings.ReplaceAll(got.body, duty.ID, noDuty), "another's answers as one that is not there")
	}
	foreign("user:carl")
	caller := b.backend.Caller
	b.backend.Caller = func(r *http.Request) (api.Caller, error) {
		c, err := caller(r)
		c.Tenant = "other"
		return c, err
	}
	b.serve()
	foreign("user:ana")
	foreign("user:ben")
	for _, body := range []string{`{"action":"ask","note":"What?"}`, `{"action":"reply","note":"That."}`} {
		theirs := b.do(real("POST /v1/approvals/{id}/decision", run), body)
		none := b.do("POST /v1/approvals/"+noApproval+"/decision", body)
		require.Equal(t, http.StatusNotFound, theirs.status)
		require.Equal(t, none.body, strings.ReplaceAll(theirs.body, run.Waiting[0].Approval, noApproval))
	}
	b.backend.Caller = caller
	b.serve()
	require.Equal(t, []person.Duty{duty}, list("user:ana").Given, "nothing was changed")
	require.JSONEq(t, `{"notify":["email"]}`, b.do("GET /v1/me/preferences", "", as("user:ana")...).body)
}
