package callback_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/tools/callback"
	"github.com/countersign/countersign/internal/tools/keyring"
)

func ring(t testing.TB, text string) *keyring.Ring {
	t.Helper()
	r, err := keyring.Parse(text)
	require.NoError(t, err)
	return r
}

const (
	oldKey = `{"id":"2025","key":"0123456789abcdef0123456789abcdef"}`
	newKey = `{"id":"2026","key":"fedcba9876543210fedcba9876543210"}`
)

var (
	noon  = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	claim = callback.Claim{Tenant: "acme", Run: "rabcdefghijklmnopqrstuvwxy", Call: strings.Repeat("c", 64), Expires: noon}
)

// A token says what it was made for until it expires, the same each time, and over a rotation of the ring.
func TestToken(t *testing.T) {
	token := callback.Token(ring(t, oldKey), claim)
	require.Equal(t, token, callback.Token(ring(t, oldKey), claim))
	for _, keys := range []string{oldKey, "[" + newKey + "," + oldKey + "]"} {
		got, err := callback.Read(ring(t, keys), token, noon.Add(-time.Nanosecond))
		require.NoError(t, err)
		require.Equal(t, claim, got)
	}
	_, err := callback.Read(ring(t, oldKey), token, noon)
	require.ErrorIs(t, err, callback.ErrExpired)
	_, err = callback.Read(ring(t, newKey), token, noon.Add(-time.Hour))
	require.ErrorIs(t, err, callback.ErrInvalid)
	_, err = callback.Read(ring(t, newKey), token, noon.Add(time.Hour))
	require.ErrorIs(t, err, callback.ErrInvalid, "whether it has expired is nobody's who does not have a right one")
	for _, c := range []callback.Claim{{Tenant: "acm", Run: "e" + claim.Run, Call: claim.Call, Expires: noon}, {Tenant: "other", Run: claim.Run, Call: claim.Call, Expires: noon}} {
		require.NotEqual(t, token, callback.Token(ring(t, oldKey), c))
	}
}

// Each bit counts.
func TestTokenThatWasChanged(t *testing.T) {
	token := callback.Token(ring(t, oldKey), claim)
	raw, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(t, err)
	for i := range raw {
		for bit := range 8 {
			raw[i] ^= 1 << bit
			_, err := callback.Read(ring(t, oldKey), base64.RawURLEncoding.EncodeToString(raw), noon.Add(-time.Hour))
			require.ErrorIs(t, err, callback.ErrInvalid, "byte %d, bit %d", i, bit)
			raw[i] ^= 1 << bit
		}
	}
	for _, bad := range []string{"", token + "\n", token[:4] + "\r\n" + token[4:], token + "=", token + "AAAA", " " + token, base64.StdEncoding.EncodeToString([]byte{1})} {
		_, err := callback.Read(ring(t, oldKey), bad, noon.Add(-time.Hour))
		require.ErrorIs(t, err, callback.ErrInvalid)
	}
}

func TestAddresses(t *testing.T) {
	base := "https://api.example.com/"
	a := callback.Addresses{Ring: func() (*keyring.Ring, error) { return ring(t, oldKey), nil }, Base: func() string { return base }}
	got, err := a.URL(claim.Tenant, claim.Run, claim.Call, noon)
	require.NoError(t, err)
	require.Equal(t, "https://api.example.com/v1/callbacks/"+callback.Token(ring(t, oldKey), claim), got)
	base = ""
	got, err = a.URL(claim.Tenant, claim.Run, claim.Call, noon)
	require.NoError(t, err)
	require.Empty(t, got)
	base, a.Ring = "https://x", func() (*keyring.Ring, error) { return nil, errors.New("no ring") }
	_, err = a.URL(claim.Tenant, claim.Run, claim.Call, noon)
	require.EqualError(t, err, "no ring")
}

// Whatever comes, reading does not panic, and only what Token would write is right.
func FuzzRead(f *testing.F) {
	keys := ring(f, "["+newKey+","+oldKey+"]")
	f.Add(callback.Token(keys, claim))
	f.Add(callback.Token(ring(f, oldKey), claim))
	f.Add("")
	f.Add(base64.RawURLEncoding.EncodeToString(append([]byte{1, 0, 0, 0, 0, 0}, make([]byte, 32)...)))
	f.Add(base64.RawURLEncoding.EncodeToString(append([]byte{1, 255}, make([]byte, 40)...)))
	f.Fuzz(func(t *testing.T, token string) {
		c, err := callback.Read(keys, token, time.Time{})
		if err != nil {
			require.ErrorIs(t, err, callback.ErrInvalid)
			require.Zero(t, c)
			return
		}
		require.Contains(t, []string{callback.Token(keys, c), callback.Token(ring(t, oldKey), c)}, token)
	})
}
