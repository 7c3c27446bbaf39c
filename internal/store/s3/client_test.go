package s3_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/store"
	"github.com/countersign/countersign/internal/store/s3"
)

// source answers a configuration's questions, as the SDK's own and the one of functions do.
type source struct {
	fips, dualStack, ignored bool
	endpoint                 string // of S3
}

func (s source) GetUseFIPSEndpoint(context.Context) (aws.FIPSEndpointState, bool, error) {
	return aws.FIPSEndpointStateEnabled, s.fips, nil
}

func (s source) GetUseDualStackEndpoint(context.Context) (aws.DualStackEndpointState, bool, error) {
	return aws.DualStackEndpointStateEnabled, s.dualStack, nil
}

func (s source) GetIgnoreConfiguredEndpoints(context.Context) (bool, bool, error) {
	return s.ignored, s.ignored, nil
}

func (s source) GetServiceBaseEndpoint(_ context.Context, service string) (string, bool, error) {
	return s.endpoint, s.endpoint != "" && service == "S3", nil
}

var regions = []string{
	"us-east-1", "us-west-2", "eu-central-1", "ap-southeast-7", "af-south-1", "il-central-1", "mx-central-1", "us-gov-west-1", "us-gov-east-1",
	"cn-north-1", "cn-northwest-1", "eusc-de-east-1", "us-iso-east-1", "us-iso-west-1", "us-isob-east-1", "us-isof-south-1", "us-isof-east-1", "eu-isoe-west-1",
}

// asked is the request of a Get that nobody answers.
func asked(t *testing.T, cfg aws.Config, endpoint, bucket string) (*http.Request, error) {
	t.Helper()
	w := &wire{answers: []func(*http.Request) (*http.Response, error){fault(403, "AccessDenied")}}
	cfg.HTTPClient = w
	_, err := s3.New(s3.NewClient(cfg, endpoint), bucket).Get(t.Context(), "acme", digest)
	if len(w.requests) == 0 {
		return nil, err
	}
	return w.requests[0], err
}

// Every region's S3 is where the SDK's own rules say it is, and so is the bucket in it.
func TestAddresses(t *testing.T) {
	rules, compared := awss3.NewDefaultEndpointResolverV2(), 0
	for _, region := range regions {
		for _, bucket := range []string{"blobs", "my-blobs-123", "1.blobs.example"} {
			for bits := range 4 {
				src := source{fips: bits&1 != 0, dualStack: bits&2 != 0}
				want, err := rules.ResolveEndpoint(t.Context(), awss3.EndpointParameters{
					Bucket: &bucket, Region: &region, UseFIPS: &src.fips, UseDualStack: &src.dualStack,
				})
				if err != nil { // there is none: nothing to be compared with
					continue
				}
				cfg := config(nil)
				cfg.Region, cfg.ConfigSources = region, []any{src}
				r, _ := asked(t, cfg, "", bucket)
				require.Equal(t, strings.TrimSuffix(want.URI.String(), "/")+"/T/acme/"+digest, r.URL.String(), "%+v", src)
				require.Contains(t, r.Header.Get("Authorization"), "/"+region+"/s3/aws4_request")
				compared++
			}
		}
	}
	require.Greater(t, compared, 150)
}

// What a caller, the configuration for S3, and that for all services say, in this order.
func TestConfiguredEndpoints(t *testing.T) {
	all := "http://all.test/"
	for _, c := range []struct {
		endpoint string
		source   source
		all      *string
		want     string
	}{
		{"http://own.test", source{endpoint: "http://s3.test"}, &all, "http://own.test/blobs/"},
		{"", source{endpoint: "http://s3.test/sub"}, &all, "http://s3.test/sub/blobs/"},
		{"", source{}, &all, "http://all.test/blobs/"},
		{"", source{endpoint: "http://s3.test", ignored: true}, nil, "https://blobs.s3.us-east-1.amazonaws.com/"},
	} {
		cfg := config(nil)
		cfg.BaseEndpoint, cfg.ConfigSources = c.all, []any{struct{}{}, c.source}
		r, _ := asked(t, cfg, c.endpoint, "blobs")
		require.Equal(t, c.want+"T/acme/"+digest, r.URL.String())
	}
}

// What cannot be asked for is not, and the error says what is wrong.
func TestClientRefusals(t *testing.T) {
	for _, bucket := range []string{"", "ab", "Blobs", "a/b", "../x", "arn:aws:s3:eu-central-1:1:accesspoint/x", "a b", "-ab", "abc.", strings.Repeat("a", 64)} {
		r, err := asked(t, config(nil), "", bucket)
		require.Nil(t, r)
		require.ErrorContains(t, err, fmt.Sprintf("bucket %q: want a name", bucket))
	}
	nowhere := config(nil)
	nowhere.Region = ""
	r, err := asked(t, nowhere, "", "blobs")
	require.Nil(t, r)
	require.ErrorContains(t, err, "want a region, got none")
	nobody := config(nil)
	nobody.Credentials = nil
	r, err = asked(t, nobody, "", "blobs")
	require.Nil(t, r)
	require.ErrorContains(t, err, "want credentials, got none")
	r, err = asked(t, config(nil), "::", "blobs")
	require.Nil(t, r)
	require.Error(t, err)
}

// A redirect is S3's word that the region is wrong. What is signed for one host is not carried to another.
func TestRedirectsAreNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 307, 308} {
		elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("redirected") }))
		here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, status)
		}))
		b := s3.New(s3.NewClient(config(nil), here.URL), "blobs")
		_, err := b.Get(t.Context(), "acme", digest)
		require.ErrorContains(t, err, fmt.Sprint(status))
		require.Error(t, b.Put(t.Context(), "acme", digest, data))
		here.Close()
		elsewhere.Close()
	}
}

// counter counts what is read of an answer that never ends, and whether it was closed.
type counter struct {
	text   string
	read   int
	closed bool
}

func (c *counter) Read(p []byte) (int, error) {
	n := len(c.text)
	for i := range p {
		p[i] = c.text[(c.read+i)%n]
	}
	c.read += len(p)
	return len(p), nil
}

func (c *counter) Close() error {
	c.closed = true
	return nil
}

// What an answer holds is not trusted: neither its length nor its form.
func TestAnswersAreBounded(t *testing.T) {
	for _, text := range []string{"<Error><Code>", "no XML", "<Error><Message>x</Message>"} {
		body := &counter{text: text}
		over(t, func(t *testing.T, b *s3.Blobs, _ *wire) {
			_, err := b.Get(t.Context(), "acme", digest)
			require.ErrorContains(t, err, "Forbidden")
			require.Less(t, len(err.Error()), 1000)
			require.NotErrorIs(t, err, store.ErrNoBlob)
		}, stream(403, body))
		require.LessOrEqual(t, body.read, 128<<10)
		require.True(t, body.closed)
	}
	long := "<Error><Code>AccessDenied</Code><Message>" + strings.Repeat("x", 10_000) + "</Message></Error>"
	over(t, func(t *testing.T, b *s3.Blobs, _ *wire) {
		_, err := b.Get(t.Context(), "acme", digest)
		require.ErrorContains(t, err, "AccessDenied")
		require.Less(t, len(err.Error()), 1000)
	}, answer(403, long))
	over(t, func(t *testing.T, b *s3.Blobs, _ *wire) {
		_, err := b.Get(t.Context(), "acme", digest)
		require.NotErrorIs(t, err, store.ErrNoBlob, "another server's page, not S3's answer")
	}, answer(404, "<html><Code>NoSuchKey</Code></html>"))

	endless := &counter{text: "<ListBucketResult><CommonPrefixes>"}
	for name, c := range map[string]func(*http.Request) (*http.Response, error){
		"endless":          stream(200, endless),
		"an error":         fault(200, "InternalError"),
		"nothing":          answer(200, ""),
		"without the next": answer(200, "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"),
		"cut short":        answer(200, page("", "a/")[:60]),
	} {
		over(t, func(t *testing.T, b *s3.Blobs, _ *wire) {
			_, err := b.Tenants(t.Context())
			require.ErrorContains(t, err, "read the list", name)
		}, c)
	}
	require.LessOrEqual(t, endless.read, 2<<20)
	slow := fault(503, "SlowDown")
	over(t, func(t *testing.T, b *s3.Blobs, _ *wire) {
		_, err := b.Tenants(t.Context())
		require.ErrorIs(t, err, store.ErrThrottled)
	}, slow, slow, slow, slow)
	over(t, func(t *testing.T, b *s3.Blobs, _ *wire) {
		_, err := b.Size(t.Context(), "acme", digest)
		require.ErrorContains(t, err, "does not say how large")
	}, sized(200, strings.NewReader(""), -1))
}

// stream answers with a body of unknown length.
func stream(status int, body io.ReadCloser) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: body, ContentLength: -1, Request: r}, nil
	}
}

// Who gives up is not kept waiting by the next attempt, and what is sent again is the same.
func TestAttempts(t *testing.T) {
	over(t, func(t *testing.T, b *s3.Blobs, w *wire) {
		require.NoError(t, b.Put(t.Context(), "acme", digest, data))
		for _, r := range w.requests {
			body, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.Equal(t, data, body)
			require.Equal(t, digest, r.Header.Get("X-Amz-Content-Sha256"))
			require.NotEmpty(t, r.Header.Get("Authorization"))
		}
		require.Len(t, w.requests, 3)
	}, fault(500, "InternalError"), reset, answer(200, ""))
	over(t, func(t *testing.T, b *s3.Blobs, w *wire) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start := time.Now()
		require.Error(t, b.Put(ctx, "acme", digest, data))
		require.Equal(t, time.Millisecond, time.Since(start), "virtual time")
		require.Len(t, w.requests, 1)
	}, fault(500, "InternalError"), answer(200, ""))
	over(t, func(t *testing.T, b *s3.Blobs, w *wire) {
		ctx, cancel := context.WithCancel(t.Context())
		w.answers = append(w.answers, func(*http.Request) (*http.Response, error) {
			cancel()
			return nil, ctx.Err()
		})
		_, err := b.Get(ctx, "acme", digest)
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, w.requests, 1)
	})
}

// A large body is sent only once S3 has said that it takes it; of an object nobody wants the gzip.
func TestHeaders(t *testing.T) {
	over(t, func(t *testing.T, b *s3.Blobs, w *wire) {
		large := make([]byte, 2<<20)
		require.NoError(t, b.Put(t.Context(), "acme", store.BlobDigest(large), large))
		require.NoError(t, b.Put(t.Context(), "acme", digest, data))
		_, err := b.Get(t.Context(), "acme", digest)
		require.NoError(t, err)
		require.Equal(t, "100-continue", w.requests[0].Header.Get("Expect"))
		require.Empty(t, w.requests[1].Header.Get("Expect"))
		require.Equal(t, "identity", w.requests[2].Header.Get("Accept-Encoding"))
		require.Equal(t, "application/octet-stream", w.requests[1].Header.Get("Content-Type"))
	}, answer(200, ""), answer(200, ""), answer(200, string(data)))
}
