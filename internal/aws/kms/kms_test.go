package kms_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/approval"
	"github.com/countersign/countersign/internal/aws/kms"
	"github.com/countersign/countersign/internal/awsfake"
	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/ids"
	"github.com/countersign/countersign/internal/people/link"
	"github.com/countersign/countersign/internal/store/memory"
)

const (
	oldKey = "arn:aws:kms:eu-central-1:123456789012:key/11111111-2222-3333-4444-555555555555"
	newKey = "arn:aws:kms:eu-central-1:123456789012:key/mrk-0123456789abcdef0123456789abcdef"
	otherK = "arn:aws:kms:eu-central-1:123456789012:key/99999999-2222-3333-4444-555555555555"
)

var signs = aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "SECRET", SessionToken: "SESSION"}

// service is a KMS on loopback with two keys.
func service(t *testing.T) (*awsfake.MACs, string) {
	t.Helper()
	fake := &awsfake.MACs{Credentials: signs, Region: "eu-central-1", Clock: clock.System(), Keys: map[string][]byte{
		oldKey: bytes.Repeat([]byte{1}, 32), newKey: bytes.Repeat([]byte{2}, 32),
	}}
	return fake, serve(t, fake)
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

func keys(t *testing.T, url, arns string) *kms.Keys {
	t.Helper()
	cfg := aws.Config{Region: "eu-central-1", Credentials: credentials.StaticCredentialsProvider{Value: signs}}
	k, err := kms.New(cfg, url, arns, clock.System())
	require.NoError(t, err)
	return k
}

// A MAC is of the key, the audience and every field, as they are divided; the service compares.
func TestA3MACsOfKMS(t *testing.T) {
	_, url := service(t)
	k := keys(t, url, newKey+","+oldKey)
	id, mac, err := k.Sign(t.Context(), "approval-page", "acme", "r1", "")
	require.NoError(t, err)
	require.Equal(t, "mrk-0123456789abcdef0123456789abcdef", id)
	require.Len(t, mac, 32)
	for name, c := range map[string]struct {
		mac      []byte
		key      string
		audience string
		fields   []string
		want     bool
	}{
		"the same":          {mac, id, "approval-page", []string{"acme", "r1", ""}, true},
		"another audience":  {mac, id, "callback", []string{"acme", "r1", ""}, false},
		"another field":     {mac, id, "approval-page", []string{"acme", "r2", ""}, false},
		"divided otherwise": {mac, id, "approval-page", []string{"acmer", "1", ""}, false},
		"one fewer":         {mac, id, "approval-page", []string{"acme", "r1"}, false},
		"the other key":     {mac, "11111111-2222-3333-4444-555555555555", "approval-page", []string{"acme", "r1", ""}, false},
		"an unknown key":    {mac, "99999999-2222-3333-4444-555555555555", "approval-page", []string{"acme", "r1", ""}, false},
		"another mac":       {bytes.Repeat([]byte{9}, 32), id, "approval-page", []string{"acme", "r1", ""}, false},
		"a short mac":       {mac[:31], id, "approval-page", []string{"acme", "r1", ""}, false},
		"no mac":            {nil, id, "approval-page", []string{"acme", "r1", ""}, false},
		"too much":          {mac, id, "approval-page", []string{strings.Repeat("x", 4096)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			ok, err := k.Verify(t.Context(), c.mac, c.key, c.audience, c.fields...)
			require.NoError(t, err)
			require.Equal(t, c.want, ok)
		})
	}
	_, _, err = k.Sign(t.Context(), "approval-page", strings.Repeat("x", 4096))
	require.ErrorContains(t, err, "at most 4096 bytes")
}

// Links that a key of KMS has signed outlive its rotation, as those of a ring do.
func TestA4RotationInKMS(t *testing.T) {
	_, url := service(t)
	clk := clock.System()
	links := &link.Links{Table: memory.New(), Signer: keys(t, url, oldKey), Clock: clk, IDs: ids.System(clk), Base: func() string { return "https://x" }}
	a := approval.Approval{Tenant: "acme", ID: "ap1", Run: "r1", Calls: []string{"c1"}, Digest: "d", ExpiresAt: clk.Now().Add(time.Hour)}
	outstanding, err := links.Mint(t.Context(), a, "user:ana", "email")
	require.NoError(t, err)
	links.Signer = keys(t, url, newKey+","+oldKey)
	id, err := links.Verify(t.Context(), outstanding)
	require.NoError(t, err)
	got, err := links.Read(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "user:ana", got.To)
	links.Signer = keys(t, url, newKey)
	_, err = links.Verify(t.Context(), outstanding)
	require.ErrorIs(t, err, link.ErrInvalid)

	raw, err := base64.RawURLEncoding.DecodeString(outstanding)
	require.NoError(t, err)
	links.Signer = keys(t, url, oldKey)
	for _, i := range []int{0, 1, 2, 40, 53, 54, len(raw) - 1} {
		raw[i] ^= 1
		_, err := links.Verify(t.Context(), base64.RawURLEncoding.EncodeToString(raw))
		require.ErrorIs(t, err, link.ErrInvalid, "byte %d", i)
		raw[i] ^= 1
	}
}

// What may pass is asked again; what will not is said, by KMS' name for it and nothing else.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		code   string
		times  int // that it is refused
		asked  int
		ok     bool
	}{
		"throttled once":  {400, "ThrottlingException", 1, 2, true},
		"failing":         {500, "KMSInternalException", 9, 4, false},
		"forbidden":       {400, "AccessDeniedException", 9, 1, false},
		"disabled":        {400, "DisabledException", 9, 1, false},
		"without a name":  {403, "", 9, 1, false},
		"redirected away": {307, "", 9, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // some wait before they ask again
			fake, url := service(t)
			fake.Refuse = func(n int) (int, string) {
				if n <= c.times {
					return c.status, c.code
				}
				return 0, ""
			}
			_, mac, err := keys(t, url, newKey).Sign(t.Context(), "a", "acme-secret")
			require.Equal(t, c.asked, fake.Count())
			if c.ok {
				require.NoError(t, err)
				require.Len(t, mac, 32)
				return
			}
			require.ErrorContains(t, err, "sign with key mrk-0123456789abcdef0123456789abcdef: refused")
			require.NotContains(t, err.Error(), "acme-secret")
		})
	}
	t.Run("unknown key", func(t *testing.T) {
		_, url := service(t)
		_, _, err := keys(t, url, otherK).Sign(t.Context(), "a")
		require.ErrorContains(t, err, "NotFoundException")
		_, err = keys(t, url, otherK).Verify(t.Context(), make([]byte, 32), "99999999-2222-3333-4444-555555555555", "a")
		require.ErrorContains(t, err, "NotFoundException", "which is no word on the MAC")
	})
	t.Run("wrong credentials", func(t *testing.T) {
		_, url := service(t)
		cfg := aws.Config{Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("AKID", "OTHER", "SESSION")}
		k, err := kms.New(cfg, url, newKey, clock.System())
		require.NoError(t, err)
		_, _, err = k.Sign(t.Context(), "a")
		require.ErrorContains(t, err, "InvalidSignatureException")
		cfg.Credentials = nil
		k, err = kms.New(cfg, url, newKey, clock.System())
		require.NoError(t, err)
		_, _, err = k.Sign(t.Context(), "a")
		require.ErrorContains(t, err, "want credentials")
	})
	t.Run("cancelled", func(t *testing.T) {
		_, url := service(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err := keys(t, url, newKey).Sign(ctx, "a")
		require.ErrorIs(t, err, context.Canceled)
	})
	t.Run("no KMS at all", func(t *testing.T) {
		url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"Mac":"AAAA"}`)) }))
		_, _, err := keys(t, url, newKey).Sign(t.Context(), "a")
		require.ErrorContains(t, err, "want a MAC of 32 bytes, got 3")
		ok, err := keys(t, url, newKey).Verify(t.Context(), make([]byte, 32), "mrk-0123456789abcdef0123456789abcdef", "a")
		require.NoError(t, err)
		require.False(t, ok, "what does not say that it is valid is not")
	})
}

// Keys are named by their ARNs: what an alias stands for changes.
func TestNew(t *testing.T) {
	for _, bad := range []string{
		"", "alias/links", "arn:aws:kms:eu-central-1:123456789012:alias/links", "11111111-2222-3333-4444-555555555555", newKey + ",", newKey + ", " + oldKey,
		"arn:aws:s3:eu-central-1:123456789012:key/1", "arn:aws:kms:eu-central-1:123456789012:key/", "arn:aws:kms:eu-central-1:123456789012:key/a b",
	} {
		_, err := kms.New(aws.Config{}, "http://127.0.0.1:1", bad, clock.System())
		require.ErrorContains(t, err, "want the ARNs of keys", bad)
	}
	for region, want := range map[string]string{"eu-central-1": "https://kms.eu-central-1.amazonaws.com", "cn-north-1": "https://kms.cn-north-1.amazonaws.com.cn"} {
		require.Equal(t, want, kms.Endpoint(region, false, false))
	}
	require.Equal(t, "https://kms-fips.us-east-1.amazonaws.com", kms.Endpoint("us-east-1", true, false))
	require.Equal(t, "https://kms.us-east-1.api.aws", kms.Endpoint("us-east-1", false, true))
}
