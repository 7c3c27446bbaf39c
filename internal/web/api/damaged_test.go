package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/api"
)

// TestAListNamesTheItemItCannotRead: an item that does not decode, cut off or with a key that this version does not write, fails the
// list that holds it and names its key; once it is restored, the list is whole again.
func TestAListNamesTheItemItCannotRead(t *testing.T) {
	d := readDocument(t)
	for name, c := range map[string]struct {
		paths []string
		bench func(t *testing.T) *bench
		of    func(k store.Key) bool
	}{
		"runs": {
			paths: []string{"/v1/runs", "/v1/runs?status=waiting"}, bench: waitingRuns,
			of: func(k store.Key) bool { return k.SK == "HEAD" && strings.HasPrefix(k.PK, "T#default#RUN#") },
		},
		"requests": {
			paths: []string{"/v1/approvals"}, bench: waitingRuns,
			of: func(k store.Key) bool { return strings.HasPrefix(k.PK, "T#default#APPROVAL#") },
		},
		"grants": {
			paths: []string{"/v1/grants"}, bench: func(t *testing.T) *bench { return granted(t, "ann", "ben") },
			of: func(k store.Key) bool { return strings.HasPrefix(k.PK, "T#default#GRANT#") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := c.bench(t)
			ask := func(path string) answer { return b.do("GET "+path, "", api.AsHeader, "user:local,group:operators") }
			var good store.Item
			for _, it := range b.table.All() {
				if c.of(it.Key) {
					good = it
				}
			}
			for _, body := range []string{string(good.Body[:len(good.Body)-1]), strings.Replace(string(good.Body), "{", `{"zzz":1,`, 1) + " "} {
				bad := good
				bad.Body = []byte(body)
				b.put(bad)
				for _, path := range c.paths {
					a := ask(path)
					p := problemIn(t, a, http.StatusInternalServerError, api.Damaged)
					route, _, _ := strings.Cut(path, "?")
					d.check(t, "GET "+route, a)
					require.Contains(t, p.Detail, good.PK)
					require.Contains(t, p.Detail, "deploy the version that wrote it, or restore the item")
				}
			}
			b.put(good)
			for _, path := range c.paths {
				require.Equal(t, http.StatusOK, ask(path).status)
			}
		})
	}
}

func waitingRuns(t *testing.T) *bench {
	b := newBench(t, pay)
	for _, key := range []string{"a", "b"} {
		run := b.start(key)
		require.Eventually(t, func() bool { // until nothing writes the run's items any more
			h, err := b.Ports.Journal.Head(t.Context(), local.Tenant, run.ID)
			return err == nil && h.Token != ""
		}, time.Minute, time.Millisecond)
	}
	return b
}

func (b *bench) put(it store.Item) {
	b.t.Helper()
	require.NoError(b.t, b.table.Write(b.t.Context(), store.Op{Kind: store.Put, Item: it}))
}

// TestARunThatCannotBeReadIsNamed: the routes of a run name the item of it that does not decode; other runs are shown.
func TestARunThatCannotBeReadIsNamed(t *testing.T) {
	b := newBench(t, pay)
	bad, good := b.start("a"), b.start("b")
	k := store.Key{PK: "T#default#RUN#" + bad.ID, SK: "J#0000000000"}
	it, _, err := b.table.Get(t.Context(), k)
	require.NoError(t, err)
	it.Body = it.Body[1:]
	b.put(it)
	b.backend.Journal = store.NewJournal(b.table, 0)
	b.serve()
	for _, path := range []string{"/v1/runs/" + bad.ID, "/v1/runs/" + bad.ID + "/messages", "/v1/runs/" + bad.ID + "/calls"} {
		p := problemIn(t, b.do("GET "+path, ""), http.StatusInternalServerError, api.Damaged)
		require.Contains(t, p.Detail, bad.ID)
		require.Equal(t, http.StatusOK, b.do("GET "+strings.Replace(path, bad.ID, good.ID, 1), "").status)
	}
}

func (d *document) journal(t *testing.T) {
	const op = "GET /v1/runs/{id}/journal"
	b := newBench(t, pay)
	at := "GET /v1/runs/" + b.waitUntilParked(b.start("k").ID).ID + "/journal"
	for _, query := range []string{"", "?cursor=1", "?limit=1", "?cursor=100"} {
		d.ask(t, b, op, at+query, "", http.StatusOK)
	}
	for _, bad := range []string{"cursor=-1", "cursor=x", "cursor=1000000000000", "limit=0", "cursor=1&cursor=2", "from=1"} {
		d.ask(t, b, op, at+"?"+bad, "", http.StatusBadRequest)
	}
}

// C5: auditors and operators read a run's journal as it is stored, in pages; others do not, and nobody another tenant's.
func TestC5JournalsAreReadAsTheyAreStored(t *testing.T) {
	b := newBench(t, pay)
	r := b.waitUntilParked(b.start("k").ID)
	stored, err := b.Ports.Journal.Stored(t.Context(), "default", r.ID, 0, 100)
	require.NoError(t, err)
	var read [][]byte
	for cursor := ""; ; cursor = fmt.Sprint(len(read) - 1) {
		page, err := b.client.Journal(t.Context(), r.ID, cursor, 1)
		require.NoError(t, err)
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
	head, err := b.Ports.Journal.Head(t.Context(), "default", r.ID)
	require.NoError(t, err)
	require.Equal(t, head.Hash, c.Hash, "the list of runs names the entry with which it parked")
	for who, status := range map[string]int{
		"user:eve": http.StatusForbidden, "user:eve,group:auditor": http.StatusForbidden, "user:eve,group:auditors": http.StatusOK, "user:eve,group:operators": http.StatusOK,
	} {
		require.Equal(t, status, b.do("GET /v1/runs/"+r.ID+"/journal", "", api.AsHeader, who).status, who)
	}
}
