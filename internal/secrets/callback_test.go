package secrets_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/secrets"
)

func ring(t testing.TB, text string) *secrets.Ring {
	t.Helper()
	r, err := secrets.Parse(text)
	require.NoError(t, err)
	return r
}

const (
	oldKey = `{"id":"2025","key":"0123456789abcdef0123456789abcdef"}`
	newKey = `{"id":"2026","key":"fedcba9876543210fedcba9876543210"}`
)

var (
	noon  = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	claim = secrets.Claim{Tenant: "acme", Run: "rabcdefghijklmnopqrstuvwxy", Call: strings.Repeat("c", 64), Expires: noon}
)

// A token says what it was made for until it expires, the same each time, and over a rotation of the ring.
func TestToken(t *testing.T) {
	token := secrets.Token(ring(t, oldKey), claim)
	require.Equal(t, token, secrets.Token(ring(t, oldKey), claim))
	for _, keys := range []string{oldKey, "[" + newKey + "," + oldKey + "]"} {
		got, err := secrets.Read(ring(t, keys), token, noon.Add(-time.Nanosecond))
		require.NoError(t, err)
		require.Equal(t, claim, got)
	}
	_, err := secrets.Read(ring(t, oldKey), token, noon)
	require.ErrorIs(t, err, secrets.ErrExpired)
	_, err = secrets.Read(ring(t, newKey), token, noon.Add(-time.Hour))
	require.ErrorIs(t, err, secrets.ErrInvalid)
	_, err = secrets.Read(ring(t, newKey), token, noon.Add(time.Hour))
	require.ErrorIs(t, err, secrets.ErrInvalid, "whether it has expired is nobody's who does not have a right one")
	for _, c := range []secrets.Claim{{Tenant: "acm", Run: "e" + claim.Run, Call: claim.Call, Expires: noon}, {Tenant: "other", Run: claim.Run, Call: claim.Call, Expires: noon}} {
		require.NotEqual(t, token, secrets.Token(ring(t, oldKey), c))
	}
}

// Each bit counts.
func TestTokenThatWasChanged(t *testing.T) {
	token := secrets.Token(ring(t, oldKey), claim)
	raw, err := base64.RawURLEncoding.DecodeString(token)
	require.NoError(t, err)
	for i := range raw {
		for bit := range 8 {
			raw[i] ^= 1 << bit
			_, err := secrets.Read(ring(t, oldKey), base64.RawURLEncoding.EncodeToString(raw), noon.Add(-time.Hour))
			require.ErrorIs(t, err, secrets.ErrInvalid, "byte %d, bit %d", i, bit)
			raw[i] ^= 1 << bit
		}
	}
	for _, bad := range []string{"", token + "\n", token[:4] + "\r\n" + token[4:], token + "=", token + "AAAA", " " + token, base64.StdEncoding.EncodeToString([]byte{1})} {
		_, err := secrets.Read(ring(t, oldKey), bad, noon.Add(-time.Hour))
		require.ErrorIs(t, err, secrets.ErrInvalid)
	}
}

func TestAddresses(t *testing.T) {
	base := "https://api.example.com/"
	a := secrets.Addresses{Ring: func() (*secrets.Ring, error) { return ring(t, oldKey), nil }, Base: func() string { return base }}
	got, err := a.URL(claim.Tenant, claim.Run, claim.Call, noon)
	require.NoError(t, err)
	require.Equal(t, "https://api.example.com/v1/callbacks/"+secrets.Token(ring(t, oldKey), claim), got)
	base = ""
	got, err = a.URL(claim.Tenant, claim.Run, claim.Call, noon)
	require.NoError(t, err)
	require.Empty(t, got)
	base, a.Ring = "https://x", func() (*secrets.Ring, error) { return nil, errors.New("no ring") }
	_, err = a.URL(claim.Tenant, claim.Run, claim.Call, noon)
	require.EqualError(t, err, "no ring")
}

// Whatever comes, reading does not panic, and only what Token would write is right.
func FuzzRead(f *testing.F) {
	keys := ring(f, "["+newKey+","+oldKey+"]")
	f.Add(secrets.Token(keys, claim))
	f.Add(secrets.Token(ring(f, oldKey), claim))
	f.Add("")
	f.Add(base64.RawURLEncoding.EncodeToString(append([]byte{1, 0, 0, 0, 0, 0}, make([]byte, 32)...)))
	f.Add(base64.RawURLEncoding.EncodeToString(append([]byte{1, 255}, make([]byte, 40)...)))
	f.Fuzz(func(t *testing.T, token string) {
		c, err := secrets.Read(keys, token, time.Time{})
		if err != nil {
			require.ErrorIs(t, err, secrets.ErrInvalid)
			require.Zero(t, c)
			return
		}
		require.Contains(t, []string{secrets.Token(keys, c), secrets.Token(ring(t, oldKey), c)}, token)
	})
}
