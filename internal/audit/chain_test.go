package audit_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/countersign/countersign/internal/audit"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/memory"
)

const tenant = "acme"

func newLog(t store.Table) *audit.Log {
	c := clock.System()
	return &audit.Log{Table: t, Clock: c, Jitter: ids.Seeded(c, 1).Jitter}
}

func numbered(from, to int) []audit.Record {
	var all []audit.Record
	for i := from; i <= to; i++ {
		all = append(all, audit.Record{ID: fmt.Sprint("r", i), Kind: audit.Decided, Actor: "user:ana", Tool: "pay & more", Detail: "größer"})
	}
	return all
}

// lines is the whole chain.
func lines(t require.TestingT, l *audit.Log) [][]byte {
	all, err := l.Lines(context.Background(), tenant, 0, 100_000)
	require.NoError(t, err)
	return all
}

// records are the records of a chain, in order.
func records(t require.TestingT, l *audit.Log) []audit.Record {
	var all []audit.Record
	for _, text := range lines(t, l) {
		line, err := audit.ParseLine(text)
		require.NoError(t, err)
		var r audit.Record
		require.NoError(t, json.Unmarshal(line.Record, &r))
		all = append(all, r)
	}
	return all
}

func verify(text [][]byte, expect ...string) error {
	v := audit.Verifier{Tenant: tenant}
	for _, hash := range expect {
		v.Expect(hash)
	}
	for _, l := range text {
		if err := v.Add(l); err != nil {
			return err
		}
	}
	return v.End()
}

// C5: records are one chain from 1, more of them than a transaction takes, and of any id one.
func TestC5RecordsAreOneChain(t *testing.T) {
	table := memory.New()
	l := newLog(table)
	require.NoError(t, l.Record(t.Context(), tenant, numbered(1, 200)...))
	require.NoError(t, l.Record(t.Context(), tenant, numbered(150, 250)...), "of which some are there")
	require.NoError(t, l.Record(t.Context(), tenant, append(numbered(251, 251), numbered(251, 252)...)...), "and one twice")
	require.NoError(t, l.Record(t.Context(), "globex", numbered(1, 3)...))
	got := records(t, l)
	require.Len(t, got, 252)
	for i, r := range got {
		require.Equal(t, fmt.Sprint("r", i+1), r.ID)
		require.False(t, r.At.IsZero())
		require.Equal(t, time.UTC, r.At.Location())
	}
	v, err := l.Verify(t.Context(), tenant)
	require.NoError(t, err)
	require.EqualValues(t, 252, v.Count)
	head, err := l.Head(t.Context(), tenant)
	require.NoError(t, err)
	require.Equal(t, head, v.Last)
	require.NoError(t, l.Record(t.Context(), tenant))
	for _, r := range []audit.Record{{Kind: audit.Viewed}, {ID: "x"}, {ID: "a\x00", Kind: audit.Viewed}, {ID: "\xff", Kind: audit.Viewed}, {ID: strings.Repeat("x", 401), Kind: audit.Viewed}} {
		require.Error(t, l.Record(t.Context(), tenant, r))
	}
	require.NoError(t, l.Record(t.Context(), tenant, audit.Record{ID: "long", Kind: audit.Refused, Actor: "user:\xff", Detail: strings.Repeat("ü", 100_000)}))
	_, err = l.Verify(t.Context(), tenant)
	require.NoError(t, err)
	require.Less(t, len(lines(t, l)[252]), 2000, "whoever writes a record, it is short")
}

// The form of a line and of its hash is for ever: another program can recompute both.
func TestC5TheFormOfALineIsFixed(t *testing.T) {
	l := newLog(memory.New())
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_999_999, time.UTC)
	require.NoError(t, l.Record(t.Context(), tenant,
		audit.Record{ID: "a/requested", At: at, Kind: audit.Requested, Approval: "a", Tool: "pay & <more>", Actor: "user:zoë", Detail: "\u2028\n"},
		audit.Record{ID: "a/d/1", At: at, Kind: audit.Decided},
	))
	record := `{"actor":"user:zoë","approval":"a","at":"2026-01-02T03:04:05.006Z","detail":"` + "\u2028" + `\n","id":"a/requested","kind":"requested","tool":"pay & <more>"}`
	sum := sha256.Sum256([]byte(`{"prev":"","record":` + record + `,"seq":"1","tenant":"acme"}`))
	hash := hex.EncodeToString(sum[:])
	got := lines(t, l)
	require.Equal(t, `{"hash":"`+hash+`","prev":"","record":`+record+`,"seq":1,"tenant":"acme"}`, string(got[0]))
	require.Contains(t, string(got[1]), `"prev":"`+hash+`"`)
}

// C5: whatever byte of a stored entry is changed, whichever is dropped or two of them change places, verification says so, and where.
func TestC5EveryChangeIsFound(t *testing.T) {
	table := memory.New()
	l := newLog(table)
	require.NoError(t, l.Record(t.Context(), tenant, numbered(1, 6)...))
	good := lines(t, l)
	require.NoError(t, verify(good))
	last := audit.Head{}
	for i, line := range good {
		for at := range line {
			for _, flip := range []byte{1, 0x20, 0x80} {
				bad := slices.Clone(good)
				bad[i] = slices.Clone(line)
				bad[i][at] ^= flip
				err := verify(bad)
				var broken *audit.BreakError
				require.ErrorAs(t, err, &broken, "entry %d byte %d", i+1, at)
				require.EqualValues(t, i+1, broken.Line, "byte %d: %v", at, err)
			}
			require.Error(t, verify(slices.Concat(good[:i], [][]byte{slices.Concat(line[:at], line[at+1:])}, good[i+1:])), "without byte %d", at)
			require.Error(t, verify(slices.Concat(good[:i], [][]byte{slices.Concat(line[:at], []byte(" "), line[at:])}, good[i+1:])), "a space at %d", at)
		}
		dropped := slices.Delete(slices.Clone(good), i, i+1)
		if i < len(good)-1 {
			require.ErrorContains(t, verify(dropped), fmt.Sprintf("gap: entry %d is not there, %d follows", i+1, i+2))
			swapped := slices.Clone(good)
			swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
			require.ErrorContains(t, verify(swapped), "gap: ")
		}
		require.ErrorContains(t, verify(slices.Concat(good[:i+1], good[i:])), "order: ", "twice")
		parsed, err := audit.ParseLine(line)
		require.NoError(t, err)
		last = audit.Head{Seq: parsed.Seq, Hash: parsed.Hash}
	}
	for n := range good {
		require.NoError(t, verify(good[:n]), "an export of its beginning cannot be told from a shorter chain")
		require.ErrorContains(t, verify(good[:n], last.Hash), "truncated or rewritten", "but by the head")
	}
	require.NoError(t, verify(good, last.Hash))
}

// rewritten is the chain with one record replaced and every hash behind it made anew, as somebody who can write to the table could.
func rewritten(t *testing.T) [][]byte {
	other := newLog(memory.New())
	all := numbered(1, 6)
	all[2].Actor = "user:eve"
	require.NoError(t, other.Record(t.Context(), tenant, all...))
	return lines(t, other)
}

// A chain that somebody has made anew from some entry on is found by a head that was noted down, and a part of it by the link to what is before.
func TestC5RewrittenChains(t *testing.T) {
	l := newLog(memory.New())
	synctest.Test(t, func(t *testing.T) { // the same times
		l = newLog(memory.New())
		require.NoError(t, l.Record(t.Context(), tenant, numbered(1, 6)...))
		head, err := l.Head(t.Context(), tenant)
		require.NoError(t, err)
		forged := rewritten(t)
		require.NoError(t, verify(forged))
		require.ErrorContains(t, verify(forged, head.Hash), "truncated or rewritten")
		require.ErrorContains(t, verify(slices.Concat(lines(t, l)[:3], forged[3:])), "line 4: rewritten: entry 4 follows another entry 3")
		foreign := newLog(memory.New())
		require.NoError(t, foreign.Record(t.Context(), "globex", numbered(1, 6)...))
		theirs, err := foreign.Lines(t.Context(), "globex", 0, 9)
		require.NoError(t, err)
		require.ErrorContains(t, verify(theirs), "another tenant's")
	})
}

// A part of a chain is verified from where it begins, and only if that is said.
func TestVerifyAPart(t *testing.T) {
	l := newLog(memory.New())
	require.NoError(t, l.Record(t.Context(), tenant, numbered(1, 6)...))
	all := lines(t, l)
	require.Error(t, verify(all[2:]))
	v := audit.Verifier{Last: audit.Head{Seq: 2}}
	for _, line := range all[2:] {
		require.NoError(t, v.Add(line))
	}
	require.EqualValues(t, 6, v.Last.Seq)
	v = audit.Verifier{Last: audit.Head{Seq: 2, Hash: strings.Repeat("0", 64)}}
	require.ErrorContains(t, v.Add(all[2]), "rewritten")
}

// What is stored is held against the head, whichever of the two somebody changes.
func TestC5TheStoredChainAndItsHead(t *testing.T) {
	pk := "T#" + tenant + "#AUDIT"
	head := func(seq int64, hash string) store.Item {
		return store.Item{Key: store.Key{PK: pk, SK: "HEAD"}, Attrs: map[string]store.Value{"seq": store.Num(seq), "hash": store.Str(hash)}}
	}
	entry := func(seq int, body []byte) store.Item {
		return store.Item{Key: store.Key{PK: pk, SK: fmt.Sprintf("E#%012d", seq)}, Body: body}
	}
	for name, c := range map[string]struct {
		change func(all [][]byte) store.Item
		want   string
	}{
		"another body":      {func(all [][]byte) store.Item { return entry(2, bytes.Replace(all[1], []byte("ana"), []byte("eve"), 1)) }, "line 2: changed"},
		"another's place":   {func(all [][]byte) store.Item { return entry(2, all[2]) }, "line 2: gap"},
		"the last is none":  {func([][]byte) store.Item { return entry(4, []byte("{}")) }, "line 4: changed"},
		"one that is added": {func(all [][]byte) store.Item { return entry(5, all[3]) }, "line 5: order"},
		"the head's hash":   {func([][]byte) store.Item { return head(4, strings.Repeat("0", 64)) }, "rewritten: entry 4 is not the one that the head says"},
		"the head goes on":  {func([][]byte) store.Item { return head(5, strings.Repeat("0", 64)) }, "truncated: the head is entry 5"},
		"the head goes back": {func(all [][]byte) store.Item {
			l, err := audit.ParseLine(all[2])
			require.NoError(t, err)
			return head(3, l.Hash)
		}, "there are more, up to 4"},
		"no head": {func([][]byte) store.Item { return head(0, "") }, "there are more, up to 4"},
	} {
		t.Run(name, func(t *testing.T) {
			table := memory.New()
			l := newLog(table)
			require.NoError(t, l.Record(t.Context(), tenant, numbered(1, 4)...))
			require.NoError(t, table.Write(t.Context(), store.Op{Kind: store.Put, Item: c.change(lines(t, l))}))
			_, err := l.Verify(t.Context(), tenant)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// A chain whose head was put back is not written to any more: nobody makes two of one.
func TestC5ABrokenChainIsNotContinued(t *testing.T) {
	table := memory.New()
	l := newLog(table)
	require.NoError(t, l.Record(t.Context(), tenant, numbered(1, 4)...))
	third, err := audit.ParseLine(lines(t, l)[2])
	require.NoError(t, err)
	require.NoError(t, table.Write(t.Context(), store.Op{Kind: store.Put, Item: store.Item{
		Key: store.Key{PK: "T#" + tenant + "#AUDIT", SK: "HEAD"}, Attrs: map[string]store.Value{"seq": store.Num(3), "hash": store.Str(third.Hash)},
	}}))
	require.ErrorIs(t, l.Record(t.Context(), tenant, numbered(5, 5)...), audit.ErrBroken)
	require.Len(t, lines(t, l), 4)
}

// Many who write at once make one chain, and each record is in it once, in the order in which its writer handed it in.
func TestC5ManyWritersOneChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := memory.New()
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				l := &audit.Log{Table: table, Clock: clock.System(), Jitter: ids.Seeded(clock.System(), uint64(w)).Jitter}
				for i := range 10 {
					batch := []audit.Record{
						{ID: fmt.Sprintf("%d/%d", w, i), Kind: audit.Viewed}, {ID: fmt.Sprintf("all/%d", i), Kind: audit.Viewed},
					}
					require.NoError(t, l.Record(t.Context(), tenant, batch...))
				}
			})
		}
		wg.Wait()
		l := newLog(table)
		_, err := l.Verify(t.Context(), tenant)
		require.NoError(t, err)
		seen := map[string]int{}
		last := map[string]int{}
		for _, r := range records(t, l) {
			seen[r.ID]++
			var i int
			who, n, _ := strings.Cut(r.ID, "/")
			_, err := fmt.Sscan(n, &i)
			require.NoError(t, err)
			require.GreaterOrEqual(t, i, last[who])
			last[who] = i
		}
		require.Len(t, seen, 90)
		for id, n := range seen {
			require.Equal(t, 1, n, id)
		}
	})
}

var errBlown = errors.New("connection reset")

// flaky is a table whose writes and reads fail as fail says: before they are done, after, or with an error of the table's.
type flaky struct {
	store.Table
	mu   sync.Mutex
	fail func(write bool) (before, after error)
}

func (f *flaky) ask(write bool) (before, after error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail == nil {
		return nil, nil
	}
	return f.fail(write)
}

func (f *flaky) Get(ctx context.Context, k store.Key) (store.Item, bool, error) {
	if before, after := f.ask(false); before != nil || after != nil {
		return store.Item{}, false, errors.Join(before, after)
	}
	return f.Table.Get(ctx, k)
}

func (f *flaky) Query(ctx context.Context, r store.Range) (store.Page, error) {
	if before, after := f.ask(false); before != nil || after != nil {
		return store.Page{}, errors.Join(before, after)
	}
	return f.Table.Query(ctx, r)
}

func (f *flaky) Write(ctx context.Context, ops ...store.Op) error {
	before, after := f.ask(true)
	if before != nil {
		return before
	}
	return errors.Join(f.Table.Write(ctx, ops...), after)
}

// Whatever fails, and whether it was done nevertheless: what was handed in and then handed in again is there once, and the chain is whole.
func TestC5WritersThatFail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := &flaky{Table: memory.New()}
		l := &audit.Log{Table: table, Clock: still{clock.System()}}
		failures := rapid.SliceOfN(rapid.IntRange(0, 5), 0, 12).Draw(t, "failures")
		table.fail = func(bool) (before, after error) {
			if len(failures) == 0 {
				return nil, nil
			}
			next := failures[0]
			failures = failures[1:]
			switch next {
			case 1:
				return errBlown, nil
			case 2:
				return nil, errBlown
			case 3:
				return store.ErrThrottled, nil
			case 4:
				return store.ErrConflict, nil
			}
			return nil, nil
		}
		n := rapid.IntRange(1, 120).Draw(t, "records")
		for l.Record(context.Background(), tenant, numbered(1, n)...) != nil {
		}
		table.fail = nil
		require.Len(t, records(t, l), n)
		_, err := l.Verify(context.Background(), tenant)
		require.NoError(t, err)
	})
}

// still is a clock on which nobody waits.
type still struct{ clock.Clock }

func (still) Sleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }
