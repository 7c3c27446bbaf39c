package store_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/run"
	"github.com/countersign/countersign/internal/store"
)

// HEAD follows the entries that move the run, and no others.
func TestHeadIsAView(t *testing.T) {
	onEach(t, func(t *testing.T, table store.Table) {
		st := begin(t, store.NewJournal(table, 0), runID)
		head := func() store.Head {
			h, err := st.j.Head(context.Background(), acme, runID)
			require.NoError(t, err)
			return h
		}
		started := store.Head{Tenant: acme, Run: runID, Agent: "clerk", Status: run.RunRunning, Owner: "r1-0", StartedAt: day, UpdatedAt: day, Hash: st.s.Hash()}
		require.Equal(t, started, head())
		st.inference("One.")
		require.Equal(t, started, head(), "a plain entry leaves it alone")
		st.accept("m1", "Hello.")
		st.commit(load(t, table).Inbox...)
		st.suspend()
		waiting := started
		waiting.Status, waiting.Reason, waiting.WaitSeq, waiting.Drained, waiting.Seq, waiting.Hash = run.RunWaiting, run.ReasonSuspended, 4, 1, 4, st.s.Hash()
		waiting.Expires, waiting.UpdatedAt = day.Add(time.Hour), day.Add(4*time.Second)
		require.Equal(t, waiting, head())
		require.Nil(t, head().Trace)
		st.commit(run.Resumed{}, run.HandedOver{Owner: "r1-1"})
		require.Equal(t, run.RunRunning, head().Status)
		require.Equal(t, "r1-1", head().Owner)
		st.commit(run.Finished{Reason: run.ReasonCancelled})
		require.Equal(t, run.ReasonCancelled, head().Reason)
		require.ErrorIs(t, errOf(st.j.Head(context.Background(), acme, "nobody")), store.ErrNoRun)
	})
}

// A token is kept for this very wait, this owner, and unless a later attempt has stored its own (rule 6).
func TestStoreToken(t *testing.T) {
	onEach(t, func(t *testing.T, table store.Table) {
		st := begin(t, store.NewJournal(table, 0), runID)
		ctx := context.Background()
		mine := store.TokenClaim{Tenant: acme, Run: runID, Execution: "r1-0", WaitSeq: 2, Attempt: 3, Token: "t3"}
		require.ErrorIs(t, st.j.StoreToken(ctx, mine), store.ErrWaitOver, "the run does not wait")
		st.suspend()
		for name, c := range map[string]func(*store.TokenClaim){
			"another wait":  func(c *store.TokenClaim) { c.WaitSeq = 1 },
			"a later wait":  func(c *store.TokenClaim) { c.WaitSeq = 3 },
			"another owner": func(c *store.TokenClaim) { c.Execution = "r1-1" },
			"another run":   func(c *store.TokenClaim) { c.Run = "nobody" },
			"a rival's":     func(c *store.TokenClaim) { c.Tenant = "rival" },
		} {
			claim := mine
			c(&claim)
			require.ErrorIs(t, st.j.StoreToken(ctx, claim), store.ErrWaitOver, name)
		}
		token := func() string {
			h, err := st.j.Head(ctx, acme, runID)
			require.NoError(t, err)
			require.Equal(t, run.RunWaiting, h.Status, "the rest of HEAD is kept")
			return h.Token
		}
		require.Empty(t, token())
		require.NoError(t, st.j.StoreToken(ctx, mine))
		require.NoError(t, st.j.StoreToken(ctx, mine), "its own again")
		earlier := mine
		earlier.Attempt, earlier.Token = 2, "t2"
		require.ErrorIs(t, st.j.StoreToken(ctx, earlier), store.ErrWaitOver)
		require.Equal(t, "t3", token())
		later := mine
		later.Attempt, later.Token = 4, "t4"
		require.NoError(t, st.j.StoreToken(ctx, later))
		require.Equal(t, "t4", token())
		st.commit(run.Resumed{})
		h, err := st.j.Head(ctx, acme, runID)
		require.NoError(t, err)
		require.Empty(t, h.Token, "a run that goes on has none")
		require.ErrorIs(t, st.j.StoreToken(ctx, later), store.ErrWaitOver)
	})
}

// allPages are the runs of a list, and its pages; after each but the last one something else may happen.
func allPages(
	t *testing.T, after func(page int), list func(cursor string) ([]store.Head, string, error),
) (runs []string, pages int) {
	t.Helper()
	for cursor := ""; ; {
		heads, next, err := list(cursor)
		require.NoError(t, err)
		for _, h := range heads {
			runs = append(runs, h.Run)
		}
		pages++
		if cursor = next; cursor == "" {
			return runs, pages
		}
		if after != nil {
			after(pages - 1)
		}
	}
}

// A list has 50 runs of a tenant where nobody says how many, and a page for each shard; no cursor is made up.
func TestLists(t *testing.T) {
	j := store.NewJournal(store.NewMemory(), 0)
	for i := range 60 {
		begin(t, j, fmt.Sprintf("r%02d", i))
	}
	heads, next, err := j.ListSince(context.Background(), acme, run.RunRunning, time.Time{}, 0, "")
	require.NoError(t, err)
	require.Len(t, heads, 50)
	require.NotEmpty(t, next)
	none, pages := allPages(t, nil, func(cursor string) ([]store.Head, string, error) {
		return j.List(context.Background(), "rival", run.RunRunning, 0, cursor)
	})
	require.Empty(t, none)
	require.Equal(t, 8, pages)
	for _, forged := range []string{"forged", "3forged", "8"} {
		_, _, err = j.List(context.Background(), acme, run.RunRunning, 2, forged)
		require.ErrorIs(t, err, store.ErrInvalid)
		_, _, err = j.ListSince(context.Background(), acme, run.RunRunning, time.Time{}, 2, forged)
		require.ErrorIs(t, err, store.ErrInvalid)
	}
}

// shortPages is a table whose pages are full with so many items.
type shortPages struct {
	store.Table
	most func() int
}

func (s shortPages) Query(ctx context.Context, r store.Range) (store.Page, error) {
	r.Limit = min(r.Limit, s.most())
	return s.Table.Query(ctx, r)
}

// A list of all runs has each run once, though the runs change their status between its pages.
func TestAListOfAllRunsHasEachOnce(t *testing.T) {
	listAll := func(t *testing.T, table store.Table) {
		j := store.NewJournal(table, 0)
		j.Clock = clock.System()
		const count = 9
		var stories []*story
		for i := range count {
			stories = append(stories, beginAt(t, j, fmt.Sprint("r", i), day.Add(time.Duration(i)*time.Second)))
		}
		stories[4].end()
		got, _ := allPages(t, func(page int) {
			if page < 4 {
				stories[page].end()         // of a page to come
				stories[count-1-page].end() // of one that was read
			}
		}, func(cursor string) ([]store.Head, string, error) {
			return j.ListSince(context.Background(), acme, "", time.Time{}, 2, cursor)
		})
		require.Equal(t, []string{"r8", "r7", "r6", "r5", "r4", "r3", "r2", "r1", "r0"}, got)
	}
	onEach(t, listAll)
	onEach(t, func(t *testing.T, table store.Table) { listAll(t, shortPages{table, func() int { return 1 }}) })
}

// TestListsOfAllShards: however full pages are, the list that is merged has all runs in order, and the list of each
// shard has each run once.
func TestListsOfAllShards(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ctx := context.Background()
		j := store.NewJournal(shortPages{store.NewMemory(), func() int { return rapid.IntRange(1, 9).Draw(r, "full") }}, 0)
		ofStatus, all := map[run.RunStatus][]store.Head{}, []store.Head(nil)
		for i := range rapid.IntRange(0, 50).Draw(r, "runs") {
			st := beginAt(t, j, fmt.Sprint("r", i), day.Add(time.Duration(rapid.IntRange(0, 9).Draw(r, "start"))*time.Millisecond))
			switch rapid.IntRange(0, 2).Draw(r, "status") {
			case 1:
				st.suspend()
			case 2:
				st.end()
			}
			h, err := j.Head(ctx, acme, st.s.Run)
			require.NoError(r, err)
			ofStatus[h.Status], all = append(ofStatus[h.Status], h), append(all, h)
		}
		since := day.Add(time.Duration(rapid.IntRange(0, 9).Draw(r, "since")) * time.Millisecond)
		limit := rapid.IntRange(1, 60).Draw(r, "limit")
		read := func(list func(cursor string) ([]store.Head, string, error)) (runs []string) {
			for cursor, more := "", true; more; more = cursor != "" {
				heads, next, err := list(cursor)
				require.NoError(r, err)
				require.LessOrEqual(r, len(heads), limit)
				for _, h := range heads {
					runs = append(runs, h.Run)
				}
				cursor = next
			}
			return runs
		}
		ofStatus[""] = all
		for status, want := range ofStatus {
			var started, once []string
			slices.SortFunc(want, func(a, b store.Head) int {
				return cmp.Or(b.StartedAt.Compare(a.StartedAt), strings.Compare(b.Run, a.Run))
			})
			for _, h := range want {
				if once = append(once, h.Run); !h.StartedAt.Before(since) {
					started = append(started, h.Run)
				}
			}
			require.Equal(r, started, read(func(cursor string) ([]store.Head, string, error) {
				return j.ListSince(ctx, acme, status, since, limit, cursor)
			}))
			if status != "" {
				require.ElementsMatch(r, once, read(func(cursor string) ([]store.Head, string, error) {
					return j.List(ctx, acme, status, limit, cursor)
				}))
			}
		}
	})
}
