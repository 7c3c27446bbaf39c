package web_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web"
)

func readJournals(t *testing.T) {
	b := newBench(t, pay)
	at := "GET /v1/runs/" + b.waitUntilParked(b.start("k").ID).ID + "/journal"
	for _, query := range []string{"", "?cursor=1", "?limit=1", "?cursor=100"} {
		b.ask(at+query, "", http.StatusOK)
	}
	for _, bad := range []string{"cursor=-1", "cursor=x", "cursor=1000000000000", "limit=0", "cursor=1&cursor=2", "from=1"} {
		b.ask(at+"?"+bad, "", http.StatusBadRequest)
	}
}

// C5: auditors and operators read a run's journal as it is stored, in pages; others do not, and nobody another tenant's.
func TestC5JournalsAreReadAsTheyAreStored(t *testing.T) {
	b := newBench(t, pay)
	r := b.waitUntilParked(b.start("k").ID)
	stored := must(b.Ports.Journal.Stored(t.Context(), "default", r.ID, 0, 100))
	var read [][]byte
	for cursor := ""; ; cursor = fmt.Sprint(len(read) - 1) {
		page := must(b.client.Journal(t.Context(), r.ID, cursor, 1))
		if len(page) == 0 {
			break
		}
		require.Len(t, page, 1)
		read = append(read, page...)
	}
	require.Equal(t, stored, read)
	c := store.Chain{}
	for _, entry := range read {
		require.NoError(t, c.Add(entry))
	}
	head := must(b.Ports.Journal.Head(t.Context(), "default", r.ID))
	require.Equal(t, head.Hash, c.Hash, "the list of runs names the entry with which it parked")
	for who, status := range map[string]int{
		"user:eve": http.StatusForbidden, "user:eve,group:auditor": http.StatusForbidden, "user:eve,group:auditors": http.StatusOK, "user:eve,group:operators": http.StatusOK,
	} {
		require.Equal(t, status, b.do("GET /v1/runs/"+r.ID+"/journal", "", web.AsHeader, who).status, who)
	}
}
