package secrets_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/secrets"
)

const (
	first  = "0123456789abcdef0123456789abcdef"
	second = "fedcba9876543210fedcba9876543210"
)

// The newest key signs, all verify: what was signed before a rotation still holds, and what a key that is gone signed does not.
func TestRotation(t *testing.T) {
	old, err := secrets.Parse(`{"id":"1","key":"` + first + `"}`)
	require.NoError(t, err)
	both, err := secrets.Parse(`[{"id":"2","key":"` + second + `"}, {"id":"1","key":"` + first + `"}]`)
	require.NoError(t, err)
	next, err := secrets.Parse(`[{"id":"2","key":"` + second + `"}]`)
	require.NoError(t, err)
	was, ok := old.Sign(old.Newest(), "links", "a", "b")
	require.True(t, ok)
	require.Len(t, was, secrets.Size)
	require.Equal(t, "2", both.Newest())
	require.True(t, both.Verify(was, "1", "links", "a", "b"))
	require.False(t, both.Verify(was, "2", "links", "a", "b"))
	require.False(t, next.Verify(was, "1", "links", "a", "b"))
	_, ok = next.Sign("1", "links", "a")
	require.False(t, ok)
}

// Nothing but the very fields, in their order and for their audience, has that signature.
func TestSignature(t *testing.T) {
	r, err := secrets.Parse(`{"id":"1","key":"` + first + `"}`)
	require.NoError(t, err)
	s, _ := r.Sign("1", "links", "ab", "c")
	require.True(t, r.Verify(s, "1", "links", "ab", "c"))
	for _, fields := range [][]string{{"a", "bc"}, {"abc"}, {"ab", "c", ""}, {"c", "ab"}, {}, {"ab"}} {
		require.False(t, r.Verify(s, "1", "links", fields...), fields)
	}
	require.False(t, r.Verify(s, "1", "callback", "ab", "c"))
	require.False(t, r.Verify(s[:31], "1", "links", "ab", "c"))
	require.False(t, r.Verify(nil, "1", "links", "ab", "c"))
	for i := range s {
		s[i] ^= 1
		require.False(t, r.Verify(s, "1", "links", "ab", "c"))
		s[i] ^= 1
	}
}

// What was sealed opens for its audience alone, over a rotation; a signature's key opens nothing.
func TestSeal(t *testing.T) {
	old := ring(t, `{"id":"1","key":"`+first+`"}`)
	sealed, err := old.Seal("session", []byte("ana"))
	require.NoError(t, err)
	again, err := old.Seal("session", []byte("ana"))
	require.NoError(t, err)
	require.NotEqual(t, sealed, again)
	require.Regexp(t, `^[\w-]+$`, sealed)
	both := ring(t, `[{"id":"2","key":"`+second+`"}, {"id":"1","key":"`+first+`"}]`)
	for _, r := range []*secrets.Ring{old, both} {
		text, ok := r.Open("session", sealed)
		require.True(t, ok)
		require.Equal(t, "ana", string(text))
	}
	_, ok := ring(t, `{"id":"2","key":"`+first+`"}`).Open("session", sealed)
	require.False(t, ok, "no such key")
	_, ok = ring(t, `{"id":"1","key":"`+second+`"}`).Open("session", sealed)
	require.False(t, ok, "another key of the id")
	_, ok = old.Open("sign-in", sealed)
	require.False(t, ok, "another audience")
	for i := range sealed {
		_, ok := old.Open("session", sealed[:i])
		require.False(t, ok)
		bent := []byte(sealed)
		bent[i] = "AB"[map[bool]int{true: 1}[bent[i] == 'A']]
		_, ok = old.Open("session", string(bent))
		require.False(t, ok, i)
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       `want {"id": ..., "key": ...}, or a list of them`,
		"[]":                                     `want {"id": ..., "key": ...}, or a list of them`,
		first:                                    `want {"id": ..., "key": ...}, or a list of them`,
		`{"id":"1","key":"` + first + `","x":1}`: `want {"id": ..., "key": ...}, or a list of them`,
		`{"id":"1","key":"` + first[1:] + `"}`:   "key 0: key: want at least 32 characters",
		`{"id":"a b","key":"` + first + `"}`:     "key 0: id: want 1 to 32 letters, digits, - and _",
		`{"key":"` + first + `"}`:                "key 0: id: want 1 to 32 letters, digits, - and _",
		`{"id":"` + strings.Repeat("x", 33) + `","key":"` + first + `"}`:       "key 0: id: want 1 to 32 letters, digits, - and _",
		`[{"id":"1","key":"` + first + `"},{"id":"1","key":"` + second + `"}]`: "key 1: id: want one that no other key has",
	} {
		_, err := secrets.Parse(text)
		require.EqualError(t, err, want)
		require.NotContains(t, err.Error(), first[1:])
	}
}

func TestMint(t *testing.T) {
	text, err := secrets.Mint(first)
	require.NoError(t, err)
	r, err := secrets.Parse(text)
	require.NoError(t, err)
	require.Equal(t, "1", r.Newest())
	_, err = secrets.Mint("short")
	require.Error(t, err)
}
