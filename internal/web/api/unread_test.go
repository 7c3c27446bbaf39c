package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/local"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/web/api"
)

// spoiltLists are the lists, each with four items of its kind, how items of that kind are found, and what people know one by.
var spoiltLists = map[string]struct {
	paths []string
	as    string // who asks; "" = who owns the machine
	bench func(t *testing.T) *bench
	of    func(k store.Key) (name string, ok bool)
	view  bool // what a newer version adds to them is left out
}{
	"runs": {
		paths: []string{"/v1/runs", "/v1/runs?status=waiting", "/v1/runs?limit=1"}, bench: fourRuns,
		of: func(k store.Key) (string, bool) { return strings.TrimPrefix(k.PK, "T#default#RUN#"), k.SK == "HEAD" },
	},
	"requests": {
		paths: []string{"/v1/approvals", "/v1/approvals?limit=1"}, bench: fourRuns,
		of: func(k store.Key) (string, bool) { return strings.CutPrefix(k.PK, "T#default#APPROVAL#") },
	},
	"grants": {
		paths: []string{"/v1/grants", "/v1/grants?limit=1"}, bench: func(t *testing.T) *bench { return granted(t, "ann", "ben", "cyd", "dan") },
		of: func(k store.Key) (string, bool) {
			of, ok := strings.CutPrefix(k.PK, "T#default#GRANT#")
			return of + "/" + k.SK, ok
		},
	},
	"servers": {
		paths: []string{"/v1/servers", "/v1/servers?agent=payer", "/v1/servers?limit=1"},
		bench: func(t *testing.T) *bench {
			b := newBench(t, pay)
			for _, name := range []string{"a", "b", "c", "d"} {
				_, err := b.Servers.Saw(t.Context(), approval.Sighting{Tenant: local.Tenant, Agent: "payer", Run: noRun, Server: name})
				require.NoError(t, err)
			}
			return b
		},
		of: func(k store.Key) (string, bool) {
			of, ok := strings.CutPrefix(k.PK, "T#default#SERVER#")
			return of + "/" + k.SK, ok
		},
	},
}

func fourRuns(t *testing.T) *bench {
	b := newBench(t, pay)
	for _, key := range []string{"a", "b", "c", "d"} {
		run := b.start(key)
		require.Eventually(t, func() bool { // until nothing writes the run's items any more
			h, err := b.Ports.Journal.Head(t.Context(), local.Tenant, run.ID)
			return err == nil && h.Token != ""
		}, time.Minute, time.Millisecond)
	}
	return b
}

// summed gives items as adapters do whose bytes have changed.
type summed struct {
	store.Table
	changed store.Key
}

func (s summed) err(k store.Key) error {
	if k != s.changed {
		return nil
	}
	return store.Damaged(k, "its body is not what was written under this key")
}

func (s summed) Get(ctx context.Context, k store.Key) (store.Item, bool, error) {
	if err := s.err(k); err != nil {
		return store.Item{}, false, err
	}
	return s.Table.Get(ctx, k)
}

func (s summed) Query(ctx context.Context, r store.Range) (store.Page, error) {
	p, err := s.Table.Query(ctx, r)
	for i, it := range p.Items {
		broken := s.err(it.Key)
		switch {
		case broken != nil && !r.Index && !r.Spare:
			return store.Page{}, broken
		case broken != nil:
			p.Items[i] = store.Item{Key: it.Key, Index: it.Index, IndexSort: it.IndexSort, Broken: broken}
		}
	}
	return p, err
}

// TestAnUnreadItemHidesNoOther: whatever the list, one item whose bytes have changed, one that says what no version writes and one of a newer version are
// named with what they are, in the answer and in the log; the others are listed, on as many pages as there are.
func TestAnUnreadItemHidesNoOther(t *testing.T) {
	d := readDocument(t)
	for name, c := range spoiltLists {
		t.Run(name, func(t *testing.T) {
			b := c.bench(t)
			var items []store.Item
			for _, it := range b.table.All() {
				if _, ok := c.of(it.Key); ok {
					items = append(items, it)
				}
			}
			require.Len(t, items, 4)
			named := func(i int) string { n, _ := c.of(items[i].Key); return n }
			cut, newer := items[1], items[2]
			cut.Body = cut.Body[:len(cut.Body)-1]
			b.put(cut)
			b.put(asNewer(newer))
			want := []api.Unread{{Item: named(0), Why: api.UnreadDamaged}, {Item: named(1), Why: api.UnreadDamaged}}
			if !c.view {
				want = append(want, api.Unread{Item: named(2), Why: api.UnreadNewer})
			}
			slices.SortFunc(want, func(a, b api.Unread) int { return strings.Compare(a.Item, b.Item) })
			var log bytes.Buffer
			b.backend.Log = slog.New(slog.NewTextHandler(&log, nil))
			b.backend.Table = summed{b.table, items[0].Key}
			b.backend.Journal = store.NewJournal(b.backend.Table, 0)
			b.backend.Servers = &approval.ServerPins{Table: b.backend.Table, Blobs: b.Servers.Blobs, Clock: b.Servers.Clock}
			b.serve()
			for _, path := range c.paths {
				log.Reset()
				var whole string
				var unread []api.Unread
				for cursor := ""; ; {
					a := b.do("GET "+withCursor(path, cursor), "", api.AsHeader, orLocal(c.as))
					require.Equal(t, http.StatusOK, a.status, a.body)
					route, _, _ := strings.Cut(path, "?")
					d.check(t, "GET "+route, a)
					var page struct {
						Cursor string       `json:"cursor"`
						Unread []api.Unread `json:"unread"`
					}
					require.NoError(t, json.Unmarshal([]byte(a.body), &page))
					if strings.Contains(path, "limit=1") {
						require.LessOrEqual(t, len(page.Unread), 1)
					}
					unread = append(unread, page.Unread...)
					before, _, _ := strings.Cut(a.body, `"unread":`)
					whole += before
					if cursor = page.Cursor; cursor == "" {
						break
					}
				}
				slices.SortFunc(unread, func(a, b api.Unread) int { return strings.Compare(a.Item, b.Item) })
				require.Equal(t, want, unread, path)
				for i := len(want); i < len(items); i++ {
					of, _, _ := strings.Cut(named(i), "#") // the digest of a grant is a key of its own
					part := strings.Split(of, "/")
					require.Contains(t, whole, `"`+part[0]+`"`, "%s: the others are listed", path)
				}
				require.Equal(t, len(want), strings.Count(log.String(), "item left out of a list"), log.String())
				for i := range want {
					require.Contains(t, log.String(), items[i].PK)
				}
			}
		})
	}
}

// asNewer is an item as a newer version may have written it.
func asNewer(it store.Item) store.Item {
	switch it.SK {
	case "HEAD":
		it.Attrs = maps.Clone(it.Attrs)
		it.Attrs["status"] = store.Str("asleep")
	default:
		it.Body = bytes.Replace(it.Body, []byte("{"), []byte(`{"zzz":1,`), 1)
	}
	if _, sealed := it.Attrs["seal"]; sealed {
		it.Attrs = maps.Clone(it.Attrs)
		it.Attrs["seal"] = store.Str(store.BlobDigest(it.Body))
	}
	return it
}

func (b *bench) put(it store.Item) {
	b.t.Helper()
	require.NoError(b.t, b.table.Write(b.t.Context(), store.Op{Kind: store.Put, Item: it}))
}

func orLocal(who string) string {
	if who == "" {
		return "user:local,group:operators"
	}
	return who
}

func withCursor(path, cursor string) string {
	switch {
	case cursor == "":
		return path
	case strings.Contains(path, "?"):
		return path + "&cursor=" + cursor
	default:
		return path + "?cursor=" + cursor
	}
}

// TestADamagedRunIsNamed: whoever asks for one that cannot be read hears which item it is and that it is no passing trouble; the others are shown.
func TestADamagedRunIsNamed(t *testing.T) {
	b := newBench(t, pay)
	bad, good := b.start("a"), b.start("b")
	for _, c := range []struct {
		change func(it store.Item) store.Item
		status int
		kind   api.ProblemType
	}{
		{func(it store.Item) store.Item { it.Body = it.Body[1:]; return it }, http.StatusInternalServerError, api.Damaged},
		{asNewer, http.StatusServiceUnavailable, api.NewerVersion},
	} {
		k := store.Key{PK: "T#default#RUN#" + bad.ID, SK: "J#0000000000"}
		was, _, err := b.table.Get(t.Context(), k)
		require.NoError(t, err)
		b.put(c.change(was))
		b.backend.Journal = store.NewJournal(b.table, 0)
		b.serve()
		for _, path := range []string{"/v1/runs/" + bad.ID, "/v1/runs/" + bad.ID + "/messages", "/v1/runs/" + bad.ID + "/calls"} {
			a := b.do("GET "+path, "")
			require.Equal(t, c.status, a.status, a.body)
			var p api.Problem
			require.NoError(t, json.Unmarshal([]byte(a.body), &p))
			require.Equal(t, c.kind, p.Type)
			require.Contains(t, p.Detail, bad.ID)
			require.Equal(t, http.StatusOK, b.do("GET "+strings.Replace(path, bad.ID, good.ID, 1), "").status)
		}
		b.put(was)
	}
	require.Equal(t, agent.RunWaiting, b.rest(bad.ID).Status)
}
