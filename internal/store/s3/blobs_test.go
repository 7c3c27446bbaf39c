package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/s3"
	"github.com/countersign/countersign/internal/store/storetest"
)

var (
	data   = []byte("content")
	digest = store.BlobDigest(data)
)

// errOf is the error of a call whose result does not matter.
func errOf[T any](_ T, err error) error { return err }

// config is for S3 at an endpoint; "" = that of the region.
func config(client aws.HTTPClient, endpoint string) aws.Config {
	var base *string
	if endpoint != "" {
		base = &endpoint
	}
	return aws.Config{
		Region: "us-east-1", HTTPClient: client, BaseEndpoint: base,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	}
}

// open gives blobs in an empty bucket of a fake S3, and what is behind them.
func open(t *testing.T) (*s3.Blobs, *s3mem.Backend) {
	t.Helper()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("blobs"))
	server := httptest.NewServer(strict(t, gofakes3.New(backend).Server()))
	t.Cleanup(server.Close)
	return s3.New(config(nil, server.URL), "blobs"), backend
}

func TestConformance(t *testing.T) {
	storetest.Blobs(t, func(t *testing.T) store.Blobs {
		b, _ := open(t)
		return b
	})
}

func TestDamagedObjectIsNotGiven(t *testing.T) {
	b, backend := open(t)
	other := "other"
	_, err := backend.PutObject("blobs", "T/acme/"+digest, nil, strings.NewReader(other), int64(len(other)), nil)
	require.NoError(t, err)
	require.ErrorContains(t, errOf(b.Get(t.Context(), "acme", digest)), "damaged")
	require.NoError(t, b.Put(t.Context(), "acme", digest, data), "it is there")
	require.ErrorContains(t, errOf(b.Get(t.Context(), "acme", digest)), "damaged", "and not overwritten")
}

func TestTooLargeIsNotPut(t *testing.T) {
	b, _ := open(t)
	require.ErrorIs(t, b.Put(t.Context(), "acme", digest, make([]byte, store.MaxBlob+1)), store.ErrBlobTooLarge)
}

// doer is an answer to a request.
type doer = func(*http.Request) (*http.Response, error)

// wire answers requests in this process, one by one, and keeps them. It works inside a synctest bubble.
type wire struct {
	answers  []doer
	requests []*http.Request
	bodies   []string
}

func (w *wire) Do(r *http.Request) (*http.Response, error) {
	w.requests = append(w.requests, r)
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		w.bodies = append(w.bodies, string(body))
	}
	if len(w.answers) == 0 {
		return nil, errors.New("no answer left")
	}
	next := w.answers[0]
	w.answers = w.answers[1:]
	return next(r)
}

func answer(status int, body string) doer {
	return sized(status, strings.NewReader(body), int64(len(body)))
}

func sized(status int, body io.Reader, length int64) doer {
	return func(r *http.Request) (*http.Response, error) {
		header := http.Header{"Content-Type": {"application/xml"}}
		if length >= 0 {
			header.Set("Content-Length", strconv.FormatInt(length, 10))
		}
		return &http.Response{
			StatusCode: status, Status: http.StatusText(status), Header: header, Body: io.NopCloser(body), ContentLength: length, Request: r,
		}, nil
	}
}

func fault(status int, code string) doer {
	return answer(status, fmt.Sprintf("<Error><Code>%s</Code><Message>m</Message></Error>", code))
}

func reset(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

// over runs body with blobs behind those answers, in virtual time.
func over(t *testing.T, body func(*testing.T, *s3.Blobs, *wire), answers ...doer) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &wire{answers: answers}
		body(t, s3.New(config(w, "http://s3.test"), "blobs"), w)
	})
}

var slow, down = fault(503, "SlowDown"), fault(500, "InternalError")

// What S3 answers, and what becomes of the call: how many requests, and which error.
func TestPutAnswers(t *testing.T) {
	for _, c := range []struct {
		name     string
		answers  []doer
		requests int
		want     string // "" = stored
	}{
		{"already there", []doer{fault(412, "PreconditionFailed")}, 1, ""},
		{"executed, then lost", []doer{reset, fault(412, "PreconditionFailed")}, 2, ""},
		{"two at once", []doer{fault(409, "ConditionalRequestConflict"), answer(200, "")}, 2, ""},
		{"slow down", []doer{slow, slow, answer(200, "")}, 3, ""},
		{"slow down to the last", []doer{slow, slow, slow, slow}, 4, "throttled"}, // it may be asked again, later
		{"down", []doer{down, down, down, down}, 4, "failed"},
		{"denied", []doer{fault(403, "AccessDenied")}, 1, "failed"},
		{"damaged on the way", []doer{fault(400, "BadDigest")}, 1, "failed"},
		{"no connection", []doer{reset, reset, reset, reset}, 4, "failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			over(t, func(t *testing.T, b *s3.Blobs, w *wire) {
				err := b.Put(t.Context(), "acme", digest, data)
				require.Equal(t, c.want != "", err != nil, "%v", err)
				require.Equal(t, c.want == "throttled", errors.Is(err, store.ErrThrottled))
				require.Len(t, w.requests, c.requests)
			}, c.answers...)
		})
	}
}

func TestGetAnswers(t *testing.T) {
	get := func(t *testing.T, want error, text string, answers ...doer) {
		t.Helper()
		over(t, func(t *testing.T, b *s3.Blobs, _ *wire) {
			_, err := b.Get(t.Context(), "acme", digest)
			require.ErrorContains(t, err, text)
			if want != nil {
				require.ErrorIs(t, err, want)
			} else {
				require.NotErrorIs(t, err, store.ErrNoBlob)
			}
		}, answers...)
	}
	get(t, store.ErrNoBlob, digest, fault(404, "NoSuchKey"))
	get(t, store.ErrThrottled, "", slow, slow, slow, slow)
	get(t, nil, "AccessDenied", fault(403, "AccessDenied"))
	get(t, nil, "NoSuchBucket", fault(404, "NoSuchBucket"))
	get(t, store.ErrBlobTooLarge, digest, sized(200, strings.NewReader(""), store.MaxBlob+1))
	get(t, store.ErrBlobTooLarge, digest, sized(200, endless{}, -1))
	get(t, io.ErrUnexpectedEOF, digest, sized(200, io.MultiReader(bytes.NewReader(data[:3]), failing{}), int64(len(data))))
	get(t, nil, "damaged", answer(200, string(data[:3])))
}

func TestSizeAnswers(t *testing.T) {
	over(t, func(t *testing.T, b *s3.Blobs, w *wire) {
		n, err := b.Size(t.Context(), "acme", digest)
		require.NoError(t, err)
		require.EqualValues(t, 7, n)
		require.Equal(t, "HEAD /blobs/T/acme/"+digest, w.requests[0].Method+" "+w.requests[0].URL.Path)
	}, sized(200, strings.NewReader(""), 7))
	for _, c := range []struct {
		answer doer
		is     error // nil = none of the store's
		says   string
	}{
		{answer(404, ""), store.ErrNoBlob, ""}, {answer(503, ""), store.ErrThrottled, ""},
		{answer(403, ""), nil, "Forbidden"}, {sized(200, strings.NewReader(""), -1), nil, "does not say how large"},
	} {
		over(t, func(t *testing.T, b *s3.Blobs, _ *wire) {
			_, err := b.Size(t.Context(), "acme", digest)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, c.is != nil, errors.Is(err, store.ErrNoBlob) || errors.Is(err, store.ErrThrottled))
			require.True(t, c.is == nil || errors.Is(err, c.is))
		}, c.answer, c.answer, c.answer, c.answer)
	}
}

// What is sent again is the same, and who gives up is not kept waiting by the next attempt.
func TestAttempts(t *testing.T) {
	over(t, func(t *testing.T, b *s3.Blobs, w *wire) {
		require.NoError(t, b.Put(t.Context(), "acme", digest, data))
		require.Equal(t, []string{"content", "content", "content"}, w.bodies)
		for _, r := range w.requests {
			require.Equal(t, "PUT /blobs/T/acme/"+digest, r.Method+" "+r.URL.Path)
			require.Equal(t, "*", r.Header.Get("If-None-Match"))
			require.Equal(t, "7XACtDnprIRfIjV9giusFERzD722AW0+yUMil7nsn3M=", r.Header.Get("X-Amz-Checksum-Sha256"))
		}
	}, fault(500, "InternalError"), reset, answer(200, ""))
	over(t, func(t *testing.T, b *s3.Blobs, w *wire) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.Error(t, b.Put(ctx, "acme", digest, data))
		require.Len(t, w.requests, 1)
	}, fault(500, "InternalError"), answer(200, ""))
	over(t, func(t *testing.T, b *s3.Blobs, w *wire) {
		ctx, cancel := context.WithCancel(t.Context())
		w.answers = append(w.answers, func(*http.Request) (*http.Response, error) {
			cancel()
			return nil, ctx.Err()
		})
		require.ErrorIs(t, errOf(b.Get(ctx, "acme", digest)), context.Canceled)
		require.Len(t, w.requests, 1)
	})
}

// A redirect is S3's word that the region is wrong. What is signed for one host is not put at another.
func TestRedirectsAreNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 307, 308} {
		elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			t.Error("redirected")
		}))
		here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, status)
		}))
		b := s3.New(config(nil, here.URL), "blobs")
		require.ErrorContains(t, b.Put(t.Context(), "acme", digest, data), fmt.Sprint(status))
		here.Close()
		elsewhere.Close()
	}
}

// Without an endpoint of its own the bucket is a host of the region; without credentials nothing is sent.
func TestAddress(t *testing.T) {
	w := &wire{answers: []doer{fault(403, "AccessDenied")}}
	require.ErrorContains(t, errOf(s3.New(config(w, ""), "blobs").Get(t.Context(), "acme", digest)), "AccessDenied")
	require.Equal(t, "blobs.s3.us-east-1.amazonaws.com", w.requests[0].URL.Host)
	w.requests = nil
	nobody := config(w, "")
	nobody.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{}, errors.New("no credentials")
	})
	require.ErrorContains(t, errOf(s3.New(nobody, "blobs").Get(t.Context(), "acme", digest)), "no credentials")
	require.Empty(t, w.requests)
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// All pages are read, what is no tenant's name is left out, and a request that fails is the whole list's failure.
func TestTenantsInPages(t *testing.T) {
	status := http.StatusOK
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		require.Equal(t, []string{"2", "T/", "/"}, []string{q.Get("list-type"), q.Get("prefix"), q.Get("delimiter")})
		token := q.Get("continuation-token")
		asked = append(asked, token)
		if token == "p2" {
			w.WriteHeader(status)
			fmt.Fprint(w, page("", "a/", "Not a tenant/"))
			return
		}
		fmt.Fprint(w, page("p2", "c/", "b/"))
	}))
	t.Cleanup(srv.Close)
	b := s3.New(config(nil, srv.URL), "blobs")
	got, err := b.Tenants(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, got)
	require.Equal(t, []string{"", "p2"}, asked)
	status = http.StatusForbidden
	require.ErrorContains(t, errOf(b.Tenants(t.Context())), "list tenants")
}

func page(next string, prefixes ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<ListBucketResult><IsTruncated>%t</IsTruncated><NextContinuationToken>%s</NextContinuationToken>`, next != "", next)
	for _, p := range prefixes {
		fmt.Fprintf(&b, `<CommonPrefixes><Prefix>T/%s</Prefix></CommonPrefixes>`, p)
	}
	return b.String() + `</ListBucketResult>`
}
