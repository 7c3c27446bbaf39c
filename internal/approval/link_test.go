package approval_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/fault"
	"github.com/countersign/countersign/internal/people"
	"github.com/countersign/countersign/internal/secrets"
	"github.com/countersign/countersign/internal/store"
)

var _ people.Links = (*approval.Links)(nil)

const (
	oldKey = `{"id":"2025","key":"0123456789abcdef0123456789abcdef"}`
	newKey = `{"id":"2026","key":"fedcba9876543210fedcba9876543210"}`
	both   = "[" + newKey + "," + oldKey + "]"
)

func newRing(t testing.TB, text string) func() (*secrets.Ring, error) {
	t.Helper()
	r, err := secrets.Parse(text)
	require.NoError(t, err)
	return func() (*secrets.Ring, error) { return r, nil }
}

// linkFixture is a deployment whose clock the test moves.
type linkFixture struct {
	links *approval.Links
	table *store.Memory
	now   time.Time
}

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func newLinkFixture(t testing.TB, keys string) *linkFixture {
	t.Helper()
	w := &linkFixture{table: store.NewMemory(), now: noon}
	clk := fixedClock{clock.System(), &w.now}
	w.links = &approval.Links{Table: w.table, Ring: newRing(t, keys), Clock: clk, IDs: clock.SeededIDs(clk, 1), Base: func() string { return "https://api.example.com/" }}
	return w
}

// fixedClock is a clock that stands still.
type fixedClock struct {
	clock.Clock
	now *time.Time
}

func (a fixedClock) Now() time.Time { return *a.now }

var testRequest = approval.Approval{
	Tenant: "acme", ID: "ap1", Run: "rabcdefghijklmnopqrstuvwxy", Calls: []string{"c1"}, Tools: []string{"refund"}, Kind: approval.KindCall,
	Args: json.RawMessage(`{"iban":"DE89370400440532013000","to":"bob@example.com"}`), Digest: "sha256:abc", Status: approval.Pending, ExpiresAt: noon.Add(time.Hour + 300*time.Millisecond),
}

func (w *linkFixture) mint(t testing.TB, a approval.Approval, to string) string {
	t.Helper()
	text, err := w.links.Mint(t.Context(), a, to, "email")
	require.NoError(t, err)
	return text
}

// read is the link of a token, as the pages read it.
func (w *linkFixture) read(ctx context.Context, text string) (approval.Link, error) {
	id, err := w.links.Verify(text)
	if err != nil {
		return approval.Link{}, err
	}
	return w.links.Read(ctx, id)
}

// A link is an opaque id and a MAC, one for each person who is told: what it stands for is in the table alone.
func TestA2AddressesSayNothing(t *testing.T) {
	w := newLinkFixture(t, newKey)
	url, err := w.links.URL(t.Context(), testRequest, "user:ana", "email")
	require.NoError(t, err)
	text, ours := strings.CutPrefix(url, "https://api.example.com/a/")
	require.True(t, ours, url)
	raw, err := base64.RawURLEncoding.DecodeString(text)
	require.NoError(t, err)
	require.Len(t, raw, 2+len("2026")+16+32)
	for _, said := range []string{"acme", "ap1", testRequest.Run, "c1", "refund", "ana", "email", "DE89", "bob", "sha256", "abc"} {
		require.NotContains(t, string(raw)+text, said)
	}
	got, err := w.read(t.Context(), text)
	require.NoError(t, err)
	require.Len(t, got.Nonce, 52)
	require.Equal(t, approval.Link{
		ID: got.ID, Tenant: "acme", Approval: "ap1", Run: testRequest.Run, Call: "c1", Digest: "sha256:abc", To: "user:ana",
		Channel: "email", Nonce: got.Nonce, Expires: noon.Add(time.Hour + approval.OpenAfterExpiry),
	}, got)
	other := w.mint(t, testRequest, "user:bob")
	require.NotEqual(t, text, other)
	require.NotEqual(t, other, w.mint(t, testRequest, "user:bob"), "a new one each time")
	w.links.Base = func() string { return "" }
	url, err = w.links.URL(t.Context(), testRequest, "user:ana", "email")
	require.NoError(t, err)
	require.Empty(t, url, "of a deployment that nobody reaches")
}

// The keys sign for other audiences as well: what was signed for one of those, over the very same fields, is no link.
func TestA3AnotherAudienceIsNoLink(t *testing.T) {
	w := newLinkFixture(t, newKey)
	text := w.mint(t, testRequest, "user:ana")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	require.NoError(t, err)
	ring, err := w.links.Ring()
	require.NoError(t, err)
	id, mac := hex.EncodeToString(raw[len(raw)-48:len(raw)-32]), raw[len(raw)-32:]
	for _, audience := range []string{"approval-page", "callback", "approval-code"} {
		theirs, _ := ring.Sign("2026", audience, "\x01", "HMAC-SHA-256", id)
		require.Equal(t, audience == "approval-page", bytes.Equal(mac, theirs), audience)
		_, err := w.read(t.Context(), base64.RawURLEncoding.EncodeToString(append(raw[:len(raw)-32:len(raw)-32], theirs...)))
		require.Equal(t, audience != "approval-page", errors.Is(err, approval.ErrNoLink), audience)
	}
}

// Each bit of a token counts, and so does each character: nothing that differs from what was made is a link, not even
// another way to write it.
func TestA3NoTokenButTheOneMade(t *testing.T) {
	w := newLinkFixture(t, newKey)
	text := w.mint(t, testRequest, "user:ana")
	other := w.mint(t, testRequest, "user:bob")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	require.NoError(t, err)
	refused := func(bad string, why ...any) {
		t.Helper()
		_, err := w.read(t.Context(), bad)
		require.ErrorIs(t, err, approval.ErrNoLink, why...)
		require.EqualError(t, err, approval.ErrNoLink.Error(), "alike, whatever is wrong")
	}
	for i := range raw {
		for bit := range 8 {
			raw[i] ^= 1 << bit
			refused(base64.RawURLEncoding.EncodeToString(raw), "byte %d, bit %d", i, bit)
			raw[i] ^= 1 << bit
		}
	}
	for n := range len(raw) {
		refused(base64.RawURLEncoding.EncodeToString(raw[:n]), "cut to %d bytes", n)
		refused(text[:n], "cut to %d characters", n)
	}
	theirs, err := base64.RawURLEncoding.DecodeString(other)
	require.NoError(t, err)
	mixed := append(append([]byte{}, raw[:len(raw)-32]...), theirs[len(theirs)-32:]...)
	refused(base64.RawURLEncoding.EncodeToString(mixed), "a MAC of another link")
	for _, n := range []byte{254, 255} { // of a key's id: with what stands before it, more than a byte counts
		long := append([]byte{raw[0], n}, make([]byte, int(n)+16+32)...)
		refused(base64.RawURLEncoding.EncodeToString(long), "a key's id of %d bytes", n)
	}
	for _, bad := range []string{
		"", text + "=", text + "\n", text[:9] + "\r\n" + text[9:], text + "AAAA", " " + text, text + text, strings.ToUpper(text), strings.Repeat("A", 1<<16),
		base64.URLEncoding.EncodeToString(append(raw, 0)), "../" + text, "%00",
	} {
		refused(bad)
	}
	require.NoError(t, errOf(w.read(t.Context(), text)))
}

// A link outlives the rotation of the keys for as long as its key is kept, and not longer; new ones are signed with the
// newest.
func TestA4RotationWithALinkOutstanding(t *testing.T) {
	w := newLinkFixture(t, oldKey)
	outstanding := w.mint(t, testRequest, "user:ana")
	w.links.Ring = newRing(t, both)
	fresh := w.mint(t, testRequest, "user:ana")
	for _, c := range []struct {
		keys, text string
		want       error
	}{
		{oldKey, outstanding, nil}, {both, outstanding, nil}, {"[" + oldKey + "," + newKey + "]", outstanding, nil},
		{newKey, outstanding, approval.ErrNoLink}, {newKey, fresh, nil}, {oldKey, fresh, approval.ErrNoLink},
		{strings.Replace(newKey, "2026", "2025", 1), outstanding, approval.ErrNoLink}, // another key of the same id
	} {
		w.links.Ring = newRing(t, c.keys)
		require.ErrorIs(t, errOf(w.read(t.Context(), c.text)), c.want, c.keys)
	}
}

// A link works after the request was decided or edited, until a while after it has expired; then it is like any other
// that is none.
func TestA5LinksOutliveTheirRequest(t *testing.T) {
	w := newLinkFixture(t, newKey)
	text := w.mint(t, testRequest, "user:ana")
	for _, later := range []time.Duration{0, time.Hour, time.Hour + approval.OpenAfterExpiry - time.Nanosecond} {
		w.now = noon.Add(later)
		require.NoError(t, errOf(w.read(t.Context(), text)), later)
	}
	w.now = noon.Add(time.Hour + approval.OpenAfterExpiry)
	_, err := w.read(t.Context(), text)
	require.EqualError(t, err, approval.ErrNoLink.Error())
}

// A table or a ring that fails is said to fail: nobody takes that for a link that is none.
func TestFailures(t *testing.T) {
	w := newLinkFixture(t, newKey)
	text := w.mint(t, testRequest, "user:ana")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, errOf(w.read(cancelled, text)), context.Canceled)
	require.ErrorIs(t, errOf(w.links.Mint(cancelled, testRequest, "user:ana", "email")), context.Canceled)
	w.links.Ring = func() (*secrets.Ring, error) { return nil, errors.New("no ring") }
	_, err := w.read(t.Context(), text)
	require.ErrorContains(t, err, "no ring")
	require.NotErrorIs(t, err, approval.ErrNoLink)
	require.ErrorContains(t, errOf(w.links.URL(t.Context(), testRequest, "user:ana", "email")), "no ring")
}

// Whatever comes, reading does not panic, and only what was made is a link.
func FuzzRead(f *testing.F) {
	w := newLinkFixture(f, both)
	made := w.mint(f, testRequest, "user:ana")
	f.Add(made)
	f.Add("")
	f.Add(base64.RawURLEncoding.EncodeToString(append([]byte{1, 1, 'x'}, make([]byte, 48)...)))
	f.Add(base64.RawURLEncoding.EncodeToString(append([]byte{1, 255}, make([]byte, 300)...)))
	f.Add(made[:4] + "\r\n" + made[4:])
	f.Fuzz(func(t *testing.T, text string) {
		_, err := w.read(context.Background(), text)
		if text == made {
			require.NoError(t, err)
			return
		}
		require.ErrorIs(t, err, approval.ErrNoLink)
	})
}

var testLink = approval.Link{Tenant: "acme", Approval: "ap1", To: "user:ana", Channel: "email", Expires: noon.Add(time.Hour)}

func refusedCode(t *testing.T, err error) {
	t.Helper()
	require.ErrorAs(t, err, new(*approval.CodeError))
}

// A26: a code is of one person, channel, request and action.
func TestA26WhatACodeIsOf(t *testing.T) {
	w := newLinkFixture(t, newKey)
	code, err := w.links.NewCode(t.Context(), testLink, "d1")
	require.NoError(t, err)
	refusedCode(t, w.links.UseCode(t.Context(), testLink, "d2", code))
	for _, change := range []func(l *approval.Link){
		func(l *approval.Link) { l.To = "user:bob" },
		func(l *approval.Link) { l.Channel = "slack" },
		func(l *approval.Link) { l.Approval = "ap2" },
		func(l *approval.Link) { l.Tenant = "other" },
	} {
		other := testLink
		change(&other)
		require.NoError(t, errOf(w.links.NewCode(t.Context(), other, "d1")), "the other one was sent a code, too")
		refusedCode(t, w.links.UseCode(t.Context(), other, "d1", code))
	}
	require.NoError(t, w.links.UseCode(t.Context(), testLink, "d1", code))
	refusedCode(t, w.links.UseCode(t.Context(), testLink, "d1", code))
}

// A26: a code is used once and every try counts, also if others write at the same moment.
func TestA26CodesAtTheSameTime(t *testing.T) {
	w := newLinkFixture(t, newKey)
	table := fault.NewTable(w.table)
	overtake := func(f func()) { table.Once(fault.IsWrite, fault.Before(func() error { f(); return nil })) }
	w.links.Table = table
	code, err := w.links.NewCode(t.Context(), testLink, "d")
	require.NoError(t, err)
	for range 2 { // four tries in pairs
		overtake(func() { refusedCode(t, w.links.UseCode(t.Context(), testLink, "d", "1")) })
		refusedCode(t, w.links.UseCode(t.Context(), testLink, "d", "2"))
	}
	overtake(func() { require.NoError(t, w.links.UseCode(t.Context(), testLink, "d", code)) })
	refusedCode(t, w.links.UseCode(t.Context(), testLink, "d", code))

	w.now = w.now.Add(time.Minute)
	overtake(func() {
		code, err = w.links.NewCode(t.Context(), testLink, "d")
		require.NoError(t, err)
	})
	_, late := w.links.NewCode(t.Context(), testLink, "d")
	refusedCode(t, late)
	require.NoError(t, w.links.UseCode(t.Context(), testLink, "d", code), "one of two requests for a code counts")
}

// A26: at most ten codes are sent.
func TestA26TenCodes(t *testing.T) {
	w := newLinkFixture(t, newKey)
	for range 10 {
		require.NoError(t, errOf(w.links.NewCode(t.Context(), testLink, "d")))
		w.now = w.now.Add(time.Minute)
	}
	require.ErrorContains(t, errOf(w.links.NewCode(t.Context(), testLink, "d")), "no more are")
}

// The MAC covers every fact of the link: it opens what was signed, or nothing, whatever is changed in the table.
func TestA3TheMACCoversEveryField(t *testing.T) {
	w := newLinkFixture(t, both)
	text := w.mint(t, testRequest, "user:ana")
	want, err := w.read(t.Context(), text)
	require.NoError(t, err)
	good, _, err := w.table.Get(t.Context(), store.Key{PK: "LINK#" + want.ID, SK: "L"})
	require.NoError(t, err)
	refused := func(body []byte) {
		t.Helper()
		bad := good
		bad.Body = body
		require.NoError(t, w.table.Write(t.Context(), store.Op{Kind: store.Put, Item: bad}))
		_, err := w.read(t.Context(), text)
		require.True(t, errors.Is(err, approval.ErrNoLink) || errors.Is(err, store.ErrDamaged), "%v\n%s", err, body)
	}
	for i := range good.Body {
		for _, flip := range []byte{1, 0x20, 0x80} {
			body := bytes.Clone(good.Body)
			body[i] ^= flip
			refused(body)
		}
		refused(good.Body[:i])
	}
	refused(append([]byte(`{"zzz":1,`), good.Body[1:]...))
	alike := want // its fields one after the other are the same text
	alike.Run, alike.Call = alike.Run+"c", "1"
	body, err := json.Marshal(alike)
	require.NoError(t, err)
	refused(body)
	require.NoError(t, w.table.Write(t.Context(), store.Op{Kind: store.Put, Item: good}))
	got, err := w.read(t.Context(), text)
	require.NoError(t, err)
	require.Equal(t, want, got)
}
