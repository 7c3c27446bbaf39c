package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/audit"
	"github.com/countersign/countersign/internal/web/api"
)

// recorded is a bench whose chain has three entries.
func recorded(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, pay)
	log := &audit.Log{Table: b.Ports.Table, Clock: b.Ports.Clock}
	require.NoError(t, log.Record(t.Context(), "default",
		audit.Record{ID: "1", Kind: audit.Requested, Approval: "a1", Tool: "pay & more"},
		audit.Record{ID: "2", Kind: audit.Decided, Approval: "a1", Actor: "user:ana", Action: "approve"},
		audit.Record{ID: "3", Kind: audit.Consumed, Approval: "a1", At: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)},
	))
	require.NoError(t, log.Record(t.Context(), "globex", audit.Record{ID: "1", Kind: audit.Viewed}))
	return b
}

func (d *document) audit(t *testing.T) {
	b := newBench(t, pay)
	d.check(t, "GET /v1/audit", b.do("GET /v1/audit", ""))
	d.check(t, "GET /v1/audit", b.do("GET /v1/audit", "", "Accept", "application/x-ndjson"))
	b = recorded(t)
	for _, headers := range [][]string{nil, {"Accept", "application/x-ndjson"}, {"Accept", "text/html, application/x-ndjson;q=0.5"}} {
		got := b.do("GET /v1/audit?after=1", "", headers...)
		require.Equal(t, http.StatusOK, got.status)
		d.check(t, "GET /v1/audit", got)
	}
	for _, bad := range []string{"after=-1", "after=x", "after=1000000000000", "limit=0", "after=", "after=1&after=2"} {
		got := b.do("GET /v1/audit?"+bad, "")
		require.Equal(t, http.StatusBadRequest, got.status, bad)
		d.check(t, "GET /v1/audit", got)
	}
}

// C5: auditors and operators read the chain in pages; others do not, and nobody another tenant's.
func TestAuditPages(t *testing.T) {
	b := recorded(t)
	p, err := b.client.Audit(t.Context(), 0, 2)
	require.NoError(t, err)
	require.Len(t, p.Entries, 2)
	require.EqualValues(t, 2, p.Next)
	require.EqualValues(t, 3, p.Head.Seq)
	p, err = b.client.Audit(t.Context(), p.Next, 2)
	require.NoError(t, err)
	require.Len(t, p.Entries, 1)
	require.Zero(t, p.Next)
	require.Equal(t, p.Head.Hash, p.Entries[0].Hash)

	lines, head, err := b.client.AuditLines(t.Context(), 0, 200)
	require.NoError(t, err)
	require.Equal(t, p.Head, head)
	v := audit.Verifier{Tenant: "default"}
	for _, l := range lines {
		require.NoError(t, v.Add(l), string(l))
	}
	require.Equal(t, head, v.Last)

	for who, status := range map[string]int{
		"user:eve": 403, "user:eve,group:finance": 403, "user:group:auditors": 403, "user:eve,group:auditors": 200, "user:eve,group:operators": 200,
	} {
		require.Equal(t, status, b.do("GET /v1/audit", "", api.AsHeader, who).status, who)
	}
	for _, accept := range []string{"application/json", "application/x-ndjson"} {
		require.NotContains(t, b.do("GET /v1/audit", "", "Accept", accept, "X-Tenant", "globex").body, "viewed")
	}
	require.Equal(t, http.StatusBadRequest, b.do("GET /v1/audit?tenant=globex", "").status)
}

// What has happened is audited before the chain is read, and an error of that is the answer.
func TestAuditedBeforeItIsRead(t *testing.T) {
	b := recorded(t)
	failing := error(nil)
	b.backend.Audited = func(ctx context.Context) error {
		log := &audit.Log{Table: b.Ports.Table, Clock: b.Ports.Clock}
		return errors.Join(failing, log.Record(ctx, "default", audit.Record{ID: "4", Kind: audit.Executed}))
	}
	b.serve()
	got := b.do("GET /v1/audit?after=3", "")
	var p api.AuditPage
	require.NoError(t, json.Unmarshal([]byte(got.body), &p))
	require.Len(t, p.Entries, 1)
	failing = errors.New("disk full")
	require.Equal(t, http.StatusInternalServerError, b.do("GET /v1/audit", "").status)
}

// Lines are the bytes that are hashed: & stands as it is.
func TestAuditLinesAreVerbatim(t *testing.T) {
	got := recorded(t).do("GET /v1/audit", "", "Accept", "application/x-ndjson")
	require.Contains(t, got.body, `"tool":"pay & more"`)
	require.Equal(t, 3, strings.Count(got.body, "\n"))
}
