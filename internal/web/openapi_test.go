package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/runtime"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
	"github.com/countersign/countersign/internal/web/stream"
)

// xDigest is the digest of x.
const xDigest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"

func TestDocumentHasTheServersRoutes(t *testing.T) {
	d := readDocument(t)
	require.Equal(t, web.APIRoutes(), d.operations(), "docs/openapi.yaml and the route table differ")
	for _, op := range web.APIRoutes() {
		require.NotEmpty(t, d.operation(op).Summary, op)
	}
}

// Unknown parameters are refused with the list of the known ones.
func TestDocumentHasTheServersParameters(t *testing.T) {
	d := readDocument(t)
	b, run := newWaiting(t)
	for _, op := range web.APIRoutes() {
		t.Run(op, func(t *testing.T) {
			got := b.do(real(op, run)+"?zzz=1", d.example(op))
			p := problemIn(t, got, http.StatusBadRequest, web.InvalidRequest)
			_, list, ok := strings.Cut(p.Detail, `"zzz" is not known, want `)
			require.True(t, ok, p.Detail)
			var known []string
			if list != "none" {
				known = strings.Split(list, ", ")
			}
			slices.Sort(known)
			require.Equal(t, d.parameters(op, "query"), known)
		})
	}
}

// real is an operation as a request line, with the ids of a run and its approval.
func real(op string, run web.Run) string {
	id := run.ID
	if strings.Contains(op, "/approvals/") {
		id = run.Waiting[0].Approval
	}
	if strings.Contains(op, "/people/") {
		id = "user:ana"
	}
	return strings.NewReplacer("{call}", "c1", "{token}", bearer(run.ID, "c1", time.Hour), "{id}", id,
		"{sha256}", xDigest, "{agent}", "payer", "{tool}", "pay", "{chat}", "talk").Replace(op)
}

// Every answer that is documented is one the server gives, and every answer it gives is as documented.
func TestAnswersAreAsDocumented(t *testing.T) {
	d := readDocument(t)
	t.Run("internal", func(t *testing.T) { askBroken(t, errors.New("disk full"), http.StatusInternalServerError) })
	t.Run("unavailable", func(t *testing.T) { askBroken(t, store.ErrThrottled, http.StatusServiceUnavailable) })
	t.Run("full disk", func(t *testing.T) {
		full := &fs.PathError{Op: "write", Path: "store.db", Err: syscall.ENOSPC}
		askBroken(t, fmt.Errorf("write 2 operations to store: %w", full), http.StatusServiceUnavailable, "The disk that holds the store is full: free some space there")
	})
	t.Run("requests", askRequests)
	t.Run("ends", askAtEnds)
	t.Run("undo", askToUndo)
	t.Run("journal", readJournals)

	var never []string
	for _, op := range web.APIRoutes() {
		for _, a := range d.answers(op) {
			if _, ok := seen.Load(a); !ok {
				never = append(never, a)
			}
		}
	}
	require.Empty(t, never, "documented, but no request of this test is answered like that")
}

// brokenJournal loads no run.
type brokenJournal struct {
	web.Journal
	err error
}

func (b brokenJournal) Load(context.Context, string, string) (store.Loaded, error) {
	return store.Loaded{}, b.err
}

// brokenDesk revokes nothing.
type brokenDesk struct {
	web.Desk
	err error
}

func (b brokenDesk) Revoke(context.Context, approval.Revocation) error { return b.err }

func askBroken(t *testing.T, err error, status int, says ...string) {
	d := readDocument(t)
	b, run := newWaiting(t)
	table := fault.NewTable(b.backend.Table)
	table.Use(fault.Fail(err))
	journal := store.NewJournal(table, 0)
	b.backend.Journal, b.backend.Table, b.backend.Desk = journal, table, brokenDesk{b.backend.Desk, err}
	b.backend.Deleter = &runtime.Deleter{Ports: runtime.Ports{Table: table, Journal: journal}}
	b.backend.Ready = func(context.Context) error { return err }
	b.backend.Replay = func(context.Context, string, string) (web.Replay, error) { return web.Replay{}, err }
	b.serve()
	for _, op := range web.APIRoutes() {
		got := b.ask(real(op, run), d.example(op), status)
		for _, text := range says {
			require.Contains(t, got.body, text, op)
		}
	}
}

// askToUndo has a call taken back, twice, and deletes both runs: first the one that began from the other.
func askToUndo(t *testing.T) {
	b, run := undoable(t)
	var undo web.Undone
	for _, status := range []int{http.StatusAccepted, http.StatusOK} {
		got := b.ask("POST /v1/runs/"+run.ID+"/calls/c1/undo", "", status)
		require.NoError(t, json.Unmarshal([]byte(got.body), &undo))
		b.waitUntilParked(undo.ID) // people are asked once it has come so far
	}
	for _, want := range []struct {
		line, says string
		status     int
	}{
		{"GET /v1/runs/" + run.ID, `"undo":{"tool":"pay","input":{"amount":5},"run":"r`, http.StatusOK},
		{"GET /v1/approvals", `"undoes":{"run":"` + run.ID + `","call":"c1"}`, http.StatusOK},
		{"DELETE /v1/runs/" + run.ID, undo.ID + " began from it", http.StatusConflict},
		{"POST /v1/runs/" + undo.ID + "/cancel", "", http.StatusAccepted},
		{"DELETE /v1/runs/" + undo.ID, `"runs":1`, http.StatusOK},
		{"DELETE /v1/runs/" + run.ID, `"already":false`, http.StatusOK},
		{"DELETE /v1/runs/" + run.ID, `"already":true`, http.StatusOK},
		{"GET /v1/runs/" + run.ID, "was deleted by user:", http.StatusNotFound},
		{"GET /v1/runs/" + run.ID + "/events", "was deleted by user:", http.StatusNotFound},
		{"GET /v1/deletions", `"run":"` + run.ID, http.StatusOK},
		{"GET /v1/runs", `"items":[]`, http.StatusOK},
	} {
		require.Contains(t, b.ask(want.line, "", want.status).body, want.says)
	}
}

// askRequests makes those whose answers depend on what is asked. Each meets a run of its own that waits for its call c1.
func askRequests(t *testing.T) {
	d := readDocument(t)
	const start, input, decide, fork = "POST /v1/runs", "POST /v1/runs/{id}/input", "POST /v1/approvals/{id}/decision", "POST /v1/runs/{id}/fork"
	const answerCall = "POST /v1/callbacks/{token}"
	for _, c := range []struct {
		op, query, body string
		headers         []string
		status          int
		kind            string // of the problem; "" = none
	}{
		{op: start, body: `{"agent":"payer","message":"pay 5"}`, status: 202},
		{op: start, body: `{"agent":"payer","input":{"n":1},"subject":"s","accessControl":"a"}`, headers: []string{"Idempotency-Key", "i"}, status: 202},
		{op: start, body: `{"agent":"payer","message":"other","key":"k"}`, status: 409, kind: "key-reused"},
		{op: start, body: `{"agent":"payer","message":"x","key":"a"}`, headers: []string{"Idempotency-Key", "b"},
			status: 400, kind: "invalid-request"},
		{op: start, body: `{"agent":"payer","message":"x","continues":"RUN"}`, status: 409, kind: "run-not-finished"},
		{op: "POST /v1/chat/{agent}", body: d.example("POST /v1/chat/{agent}"), status: 200},
		{op: "GET /v1/runs", query: "?status=waiting&agent=payer&limit=1", status: 200},
		{op: "GET /v1/runs/{id}", query: "?messages=0", status: 200},
		{op: "GET /v1/runs/{id}/messages", query: "?limit=1", status: 200},
		{op: "GET /v1/runs/{id}/events", query: "?limit=2", status: 200},
		{op: "GET /v1/runs/{id}/events", query: "?cursor=0&format=canonical", status: 200},
		{op: "GET /v1/runs/{id}/events", query: "?format=arvo&limit=3", status: 200},
		{op: "GET /v1/runs/{id}/events", query: "?format=journal&limit=3", status: 200},
		{op: "GET /v1/runs/{id}/events", query: "?format=agui", status: 200},
		{op: "GET /v1/runs/{id}/replay", status: 200},
		{op: input, body: `{"messages":["x"]}`, status: 202},
		{op: input, body: `{"decisions":[{"target":"c1","action":"resume"}]}`, status: 202},
		{op: input, body: `{"decisions":[{"target":"c1","action":"resume","result":1}]}`, status: 409, kind: "wrong-kind"},
		{op: input, body: `{"decisions":[{"target":"c1","action":"resume"}]}`, headers: []string{web.AsHeader, "user:eve"},
			status: 403, kind: "not-allowed"},
		{op: "GET /v1/approvals", query: "?status=denied", status: 200},
		{op: decide, body: `{"action":"edit","args":{"amount":3},"note":"less"}`, status: 200},
		{op: decide, body: `{"action":"deny","grant":{"uses":1}}`, status: 400, kind: "invalid-request"},
		{op: decide, body: `{"action":"approve","args":{"amount":1}}`, status: 400, kind: "invalid-request"},
		{op: decide, body: `{"action":"approve"}`, headers: []string{web.AsHeader, "user:eve"}, status: 403, kind: "not-allowed"},
		{op: decide, body: `{"action":"ask","note":"Which order?"}`, status: 200},
		{op: decide, body: `{"action":"reply","note":"That one."}`, status: 200},
		{op: decide, body: `{"action":"ask"}`, status: 400, kind: "invalid-request"},
		{op: decide, body: `{"action":"ask","note":"x","tool":"pay"}`, status: 400, kind: "invalid-request"},
		{op: decide, body: `{"action":"reply","note":"x"}`, headers: []string{web.AsHeader, "user:eve"}, status: 403, kind: "not-allowed"},
		{op: "GET /v1/repairs", status: 200},
		{op: "GET /v1/deletions", status: 200},
		{op: "DELETE /v1/runs/{id}", status: 409, kind: "run-not-finished"},
		{op: "DELETE /v1/runs/{id}", headers: []string{web.AsHeader, "user:eve"}, status: 403, kind: "not-allowed"},
		{op: "GET /v1/grants", query: "?agent=payer&limit=1", status: 200},
		{op: answerCall, body: `{"result":1}`, status: 202},
		{op: fork, body: `{"at":0}`, status: 202},
		{op: "POST /v1/runs/{id}/calls/{call}/undo", status: 409, kind: "run-not-finished"},
		{op: "POST /v1/blobs", body: d.example("POST /v1/blobs"), status: 201},
		{op: "PUT /v1/blobs/{sha256}", body: "x", status: 201},
		{op: "PUT /v1/blobs/{sha256}", body: "y", status: 400, kind: "invalid-request"},
		{op: "PUT /v1/blobs/{sha256}", status: 400, kind: "invalid-request"},
	} {
		t.Run(c.op+" "+c.query+c.body, func(t *testing.T) {
			b, run := newWaiting(t)
			got := b.ask(real(c.op, run)+c.query, strings.Replace(c.body, "RUN", run.ID, 1), c.status, c.headers...)
			var p struct{ Type web.ProblemType }
			if !strings.HasPrefix(got.body, "data: ") {
				require.NoError(t, json.Unmarshal([]byte(got.body), &p))
			}
			require.Equal(t, c.kind, string(p.Type))
			if c.kind != "" {
				require.Equal(t, run, b.waitUntilParked(run.ID), "a refusal changes nothing")
				require.Empty(t, b.paid)
			}
		})
	}
}

// askAtEnds asks about what is not there, and about runs that have gone on.
func askAtEnds(t *testing.T) {
	d := readDocument(t)
	b, one := newWaiting(t)
	nowhere := web.Run{ID: noRun, Waiting: []web.Waiting{{Approval: noApproval}}}
	ask := func(op string, r web.Run, body string, status int, kind string, headers ...string) {
		t.Helper()
		got := b.ask(real(op, r), body, status, headers...)
		if kind != "" {
			require.Contains(t, got.body, `"type":"`+kind+`"`)
		}
	}
	for _, op := range web.APIRoutes() {
		if strings.Contains(op, "/people/") { // anybody can be known, or be out
			ask(op, nowhere, d.example(op), http.StatusNoContent, "")
		} else if strings.Contains(op, "{id}") {
			kind := "run-not-found"
			if strings.Contains(op, "/approvals/") {
				kind = "approval-not-found"
			}
			ask(op, nowhere, d.example(op), http.StatusNotFound, kind)
		}
	}
	ask("GET /v1/people", one, "", http.StatusOK, "")
	b.ask("POST "+secrets.Path+bearer(one.ID, "c1", -time.Hour), `{"result":1}`,
		http.StatusGone)
	ask("POST /v1/callbacks/{token}", nowhere, `{"result":1}`, http.StatusNotFound, "no-such-path")
	ask("GET /v1/runs/{id}/events", nowhere, "", http.StatusNotFound, "run-not-found", "Accept", "text/event-stream")
	const decide, input = "POST /v1/approvals/{id}/decision", "POST /v1/runs/{id}/input"
	ask("GET /v1/approvals/{id}", one, "", http.StatusOK, "")
	ask(decide, one, `{"action":"deny","note":"no"}`, http.StatusOK, "")
	ask(decide, one, `{"action":"approve"}`, http.StatusConflict, "already-decided")
	done := b.waitUntilParked(one.ID)
	done.Waiting = one.Waiting
	ask(input, done, `{"messages":["x"]}`, http.StatusConflict, "run-finished")
	ask(input, done, `{"decisions":[{"target":"c1","action":"resume"}]}`, http.StatusAccepted, "")
	ask("POST /v1/runs/{id}/cancel", done, `{"note":"late"}`, http.StatusAccepted, "")
	const undo = "POST /v1/runs/{id}/calls/{call}/undo"
	ask(undo, done, "", http.StatusConflict, "not-undoable")
	problemIn(t, b.do("POST /v1/runs/"+done.ID+"/calls/c9/undo", ""), http.StatusNotFound, web.CallNotFound)
	ask("GET /v1/runs/{id}", done, "", http.StatusOK, "")
	ask("GET /v1/runs/{id}/messages", done, "", http.StatusOK, "")
	ask("GET /v1/runs/{id}/calls", done, "", http.StatusOK, "")
	ask("GET /v1/runs/{id}/events", done, "", http.StatusOK, "", "Accept", "text/event-stream")
	ask("GET /v1/runs/{id}/events", done, "", http.StatusNoContent, "", "Accept", "text/event-stream", "Last-Event-ID", fmt.Sprint(done.Seq))
	ask("GET /v1/runs", done, "", http.StatusOK, "")

	for shows, stand := range map[string]func(*agent.Definition){`"scope":"tool"`: grantsStand, `"scope":"call"`: callsStand} {
		standing := newBench(t, pay, stand)
		r := standing.start("k")
		standing.ask(real("GET /v1/approvals/{id}", r), "", http.StatusOK)
		standing.ask(real(decide, r), `{"action":"approve"}`, http.StatusOK)
		require.Contains(t, standing.ask("GET /v1/grants", "", http.StatusOK).body, shows)
		standing.ask("DELETE /v1/grants/payer/pay", "", http.StatusNoContent)
	}

	ask("GET /v1/chat/{agent}/{chat}/stream", one, "", http.StatusNoContent, "")
	synctest.Test(t, func(t *testing.T) {
		slow := newUnserved(t, shops, addShop)
		for _, op := range []string{"POST /v1/chat/{agent}", "GET /v1/chat/{agent}/{chat}/stream"} {
			sent := httptest.NewRecorder()
			d.check(op, slow.chatFor(real(op, one), time.Second, sent, sent))
		}
	})

	failed := newBench(t, `{"error": "auth"}`)
	r := failed.start("k")
	require.Equal(t, run.ReasonError, r.Reason)
	got := failed.ask(real("GET /v1/runs/{id}", r), "", http.StatusOK)
	require.Contains(t, got.body, `"code":"model_failed"`)

	lost := newBench(t, `{"calls": [{"id": "c1", "name": "pay", "input": {"amount": 0}}]}`)
	r = lost.decided(lost.start("k"), approval.Approve)
	require.Equal(t, run.ForOutcome, r.Waiting[0].For)
	for _, op := range []string{"GET /v1/runs/{id}", "GET /v1/approvals/{id}", "GET /v1/runs/{id}/events"} {
		lost.ask(real(op, r), "", http.StatusOK)
	}
	lost.ask(real(decide, r), `{"action":"approve"}`, http.StatusConflict)
}

// forms are the schemas of each format's events. No Go type has their members: the format's table does, and
// TestDocumentHasTheForms holds the schemas to what it writes.
var forms = map[stream.Format]string{
	stream.Canonical: "CanonicalEvent", stream.Arvo: "ArvoEvent", stream.Cowork: "SubjectEvent", stream.Forge: "SubjectEvent",
	stream.Agui: "AguiEvent", stream.Aisdk: "AisdkPart",
}

// Every event that a format writes, live or in a golden file, is valid by the format's schema. That lists the types, or
// docs/events.md does.
func TestDocumentHasTheForms(t *testing.T) {
	d := readDocument(t)
	require.Len(t, forms, len(stream.Formats()))
	fits := func(schema string, body []byte) {
		require.NoError(t, valid(d.schema(schema), body), "%s", body)
	}
	page := must(os.ReadFile("../../docs/events.md"))
	for format, schema := range forms {
		files := must(filepath.Glob("stream/testdata/*." + string(format) + ".jsonl"))
		require.NotEmpty(t, files)
		for _, f := range files {
			golden := must(os.ReadFile(f))
			for line := range bytes.Lines(golden) {
				fits(schema, line)
				if schema == "SubjectEvent" {
					var e struct{ Type string }
					require.NoError(t, json.Unmarshal(line, &e))
					require.Contains(t, string(page), "`"+e.Type+"`", "docs/events.md lists the types of %s", format)
				}
			}
		}
		if format == stream.Canonical {
			schema = "CanonicalText"
		}
		for _, kind := range []agent.DeltaKind{agent.DeltaText, agent.DeltaReasoning, agent.DeltaCall} {
			piece := stream.Delta{Inference: 1, Delta: agent.Delta{Kind: kind, Text: "x", Call: "c1", Name: "pay"}}
			state := run.AgentState{Run: "r" + strings.Repeat("a", 25), Agent: "payer"}
			e := format.EncodeLive(&state, piece, "x", time.Unix(1, 0))
			if e.Type == "" {
				continue
			}
			body := must(jsonx.MarshalVerbatim(e.Body))
			fits(schema, body)
		}
	}
}

// The document says what it means: no keyword is misspelt.
func TestDocumentHasOnlyKeywords(t *testing.T) {
	text := must(os.ReadFile(openapiFile))
	var root any
	require.NoError(t, yaml.Unmarshal(text, &root))
	n := 0
	everySchema("", root, false, func(where string, s map[string]any) {
		n++
		for key := range s {
			require.Contains(t, keywords, key, where)
		}
	})
	require.Greater(t, n, 150)
}

// Generators of clients make a type of each component, whatever its kind, and none of an enum without a type.
func TestDocumentMakesTypes(t *testing.T) {
	text := must(os.ReadFile(openapiFile))
	var root map[string]any
	require.NoError(t, yaml.Unmarshal(text, &root))
	everySchema("", root, false, func(where string, s map[string]any) {
		if s["enum"] != nil || s["const"] != nil {
			require.NotNil(t, s["type"], where)
		}
	})
	kinds := map[string]string{}
	for kind, named := range root["components"].(map[string]any) {
		for name := range named.(map[string]any) {
			require.Empty(t, kinds[name], "%s of %s", name, kind)
			kinds[name] = kind
		}
	}
}

// What the document shows is valid by the document.
func TestExamplesAreValid(t *testing.T) {
	d := readDocument(t)
	for _, op := range d.operations() {
		if body := d.body(op); body != nil {
			examples := d.examples(op)
			require.NotEmpty(t, examples, "%s has no example", op)
			for _, raw := range examples {
				require.NoError(t, valid(body.Schema.Schema(), []byte(raw)), "%s %s", op, raw)
			}
		}
	}
}
