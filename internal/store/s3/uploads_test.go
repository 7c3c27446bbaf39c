package s3_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/s3"
)

// strict stands before the fake S3 and refuses, as S3 does and gofakes3 does not, a request that is not the one its URL or its header
// signs, and a body that is not what its x-amz-checksum-sha256 or its x-amz-content-sha256 says.
func strict(t *testing.T, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got, want := signature(r); got == "" || got != want {
			http.Error(w, "<Error><Code>SignatureDoesNotMatch</Code></Error>", http.StatusForbidden)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Log(err)
			return
		}
		sum := sha256.Sum256(body)
		if said := r.Header.Get("X-Amz-Checksum-Sha256"); said != "" && said != base64.StdEncoding.EncodeToString(sum[:]) {
			http.Error(w, "<Error><Code>BadDigest</Code></Error>", http.StatusBadRequest)
			return
		}
		if said := r.Header.Get("X-Amz-Content-Sha256"); said != "" && said != hex.EncodeToString(sum[:]) {
			http.Error(w, "<Error><Code>XAmzContentSHA256Mismatch</Code></Error>", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// signature is the one that came with a request, and what it must be: AWS Signature Version 4 over the request as it came.
func signature(r *http.Request) (got, want string) {
	q := r.URL.Query()
	got, credential, names, at, payload := q.Get("X-Amz-Signature"), q.Get("X-Amz-Credential"), q.Get("X-Amz-SignedHeaders"), q.Get("X-Amz-Date"), "UNSIGNED-PAYLOAD"
	q.Del("X-Amz-Signature")
	if fields, ok := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "); ok {
		for field := range strings.SplitSeq(fields, ", ") {
			name, value, _ := strings.Cut(field, "=")
			*map[string]*string{"Credential": &credential, "SignedHeaders": &names, "Signature": &got}[name] = value
		}
		at, payload = r.Header.Get("X-Amz-Date"), r.Header.Get("X-Amz-Content-Sha256")
	}
	var lines []string
	for name := range strings.SplitSeq(names, ";") {
		value := r.Header.Get(name)
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = strconv.FormatInt(r.ContentLength, 10)
		}
		lines = append(lines, name+":"+value+"\n")
	}
	canonical := strings.Join([]string{
		r.Method, r.URL.EscapedPath(), strings.ReplaceAll(q.Encode(), "+", "%20"), strings.Join(lines, ""), names, payload,
	}, "\n")
	hash := sha256.Sum256([]byte(canonical))
	_, scope, _ := strings.Cut(credential, "/")
	key := []byte("AWS4test")
	for part := range strings.SplitSeq(scope, "/") {
		key = mac(key, part)
	}
	return got, hex.EncodeToString(mac(key, strings.Join([]string{"AWS4-HMAC-SHA256", at, scope, hex.EncodeToString(hash[:])}, "\n")))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// send does with a permission what a client does, and gives the status of the answer. Headers are pairs; an empty one is not sent.
func send(t *testing.T, u store.Upload, body []byte, headers ...string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, u.URL, bytes.NewReader(body))
	require.NoError(t, err)
	for name, value := range u.Headers { // net/http writes Content-Length by itself
		r.Header.Set(name, value)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Del(headers[i])
		if headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestUpload(t *testing.T) {
	b, _ := open(t)
	permit, err := b.Presign(t.Context(), "acme", digest, int64(len(data)), "text/plain; charset=utf-8")
	require.NoError(t, err)
	require.ErrorIs(t, errOf(b.Size(t.Context(), "acme", digest)), store.ErrNoBlob, "a permission writes nothing")
	require.Equal(t, map[string]string{
		"Content-Length": "7", "Content-Type": "text/plain; charset=utf-8", "X-Amz-Checksum-Sha256": "7XACtDnprIRfIjV9giusFERzD722AW0+yUMil7nsn3M=",
	}, permit.Headers)
	require.Contains(t, permit.URL, "X-Amz-Expires=900&")
	require.WithinDuration(t, time.Now().Add(15*time.Minute), permit.Expires, time.Minute)

	for _, c := range []struct {
		name    string
		status  int
		body    string
		headers []string // in the place of those that the permission names
	}{
		{"other bytes of the same length", 400, "CONTENT", nil},
		{"too short", 403, "conten", nil},
		{"too long", 403, "content ", nil},
		{"no checksum", 403, "content", []string{"X-Amz-Checksum-Sha256", ""}},
		{"the checksum of something else", 403, "CONTENT", []string{"X-Amz-Checksum-Sha256", "5RYBIl7Jb5nZYLC2hFpXuLRsVi/7RSzYqqWZFmNBhDI="}},
		{"another type", 403, "content", []string{"Content-Type", "text/html"}},
	} {
		require.Equal(t, c.status, send(t, permit, []byte(c.body), c.headers...), c.name)
	}
	elsewhere := permit
	elsewhere.URL = strings.Replace(permit.URL, "/acme/", "/rival/", 1)
	require.Equal(t, http.StatusForbidden, send(t, elsewhere, data), "another tenant")
	for _, tenant := range []string{"acme", "rival"} {
		require.ErrorIs(t, errOf(b.Get(t.Context(), tenant, digest)), store.ErrNoBlob)
	}

	for range 2 {
		require.Equal(t, http.StatusOK, send(t, permit, data), "as often as one likes")
	}
	got, err := b.Get(t.Context(), "acme", digest)
	require.NoError(t, err)
	require.Equal(t, data, got)
	require.ErrorIs(t, errOf(b.Get(t.Context(), "rival", digest)), store.ErrNoBlob, "under its own tenant only")
}

func TestUploadRefusals(t *testing.T) {
	b, _ := open(t)
	require.ErrorIs(t, errOf(b.Presign(t.Context(), "../x", digest, 1, "image/png")), store.ErrInvalid)
	require.ErrorIs(t, errOf(b.Presign(t.Context(), "acme", "x", 1, "image/png")), store.ErrInvalid)

	broken := config(nil, "")
	gone := errors.New("no credentials")
	broken.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, gone })
	_, err := s3.New(broken, "blobs").Presign(t.Context(), "acme", digest, 1, "image/png")
	require.ErrorContains(t, err, "no credentials")
}

// A session's token is part of what is signed, and of the URL.
func TestUploadOfASession(t *testing.T) {
	cfg := config(nil, "")
	cfg.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test", SessionToken: "a/b+c="}, nil
	})
	permit, err := s3.New(cfg, "blobs").Presign(t.Context(), "acme", digest, 7, "image/png")
	require.NoError(t, err)
	target, err := url.Parse(permit.URL)
	require.NoError(t, err)
	require.Equal(t, "https://blobs.s3.us-east-1.amazonaws.com/T/acme/"+digest, "https://"+target.Host+target.Path)
	require.Equal(t, "a/b+c=", target.Query().Get("X-Amz-Security-Token"))
	require.NotContains(t, permit.Headers, "X-Amz-Security-Token")
	r, err := http.NewRequest(http.MethodPut, permit.URL, bytes.NewReader(data))
	require.NoError(t, err)
	for name, value := range permit.Headers {
		r.Header.Set(name, value)
	}
	r.Host = target.Host
	got, want := signature(r)
	require.Equal(t, want, got)
}
