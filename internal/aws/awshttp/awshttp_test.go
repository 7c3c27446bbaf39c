package awshttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/aws/awshttp"
)

var cfg = aws.Config{Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", "SESSION")}

// serve answers every request with f, and gives where.
func serve(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestPost(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write([]byte(strings.Join([]string{
			r.Method, r.Header.Get("X-Amz-Target"), r.Header.Get("Content-Type"), r.Header.Get("User-Agent"), r.Header.Get("X-Amz-Security-Token"), string(body),
		}, " ") + strings.Repeat(".", 100)))
	})
	c := awshttp.New(cfg, awshttp.Options{Service: "events"})
	const want = `POST A.B application/x-amz-json-1.0 countersign SESSION {"a":1}`
	got, err := c.Post(t.Context(), awshttp.Operation{URL: url, Version: "1.0", Target: "A.B", Body: []byte(`{"a":1}`)})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, got.Status)
	require.Equal(t, want+strings.Repeat(".", 100), string(got.Text))
	got, err = c.Post(t.Context(), awshttp.Operation{URL: url, Version: "1.0", Target: "A.B", Body: []byte(`{"a":1}`), Limit: int64(len(want))})
	require.NoError(t, err)
	require.Equal(t, want, string(got.Text), "no more is read than is wanted")
}

// What keeps an answer from coming is told apart, and only what may pass is so for the SDK.
func TestSendFails(t *testing.T) {
	slow := make(chan struct{})
	t.Cleanup(func() { close(slow) }) // before the server waits for its requests
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-slow:
		case <-r.Context().Done():
		}
	})
	post := func(ctx context.Context, cfg aws.Config, url string) error {
		_, err := awshttp.New(cfg, awshttp.Options{Service: "events", Timeout: 50 * time.Millisecond}).Post(ctx, awshttp.Operation{URL: url})
		return err
	}
	var unsent *smithyhttp.RequestSendError
	require.ErrorAs(t, post(t.Context(), cfg, url), &unsent, "it takes too long")
	require.ErrorAs(t, post(t.Context(), cfg, "http://127.0.0.1:1"), &unsent, "nobody is there")
	ended, end := context.WithCancel(t.Context())
	end()
	var canceled *smithy.CanceledError
	require.ErrorAs(t, post(ended, cfg, url), &canceled)
	require.EqualError(t, post(t.Context(), aws.Config{Region: "eu-central-1"}, url), "sign the request: want credentials, got none")
	gone := errors.New("gone")
	lost := aws.Config{Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, gone })}
	require.ErrorIs(t, post(t.Context(), lost, url), gone)
}

// What is signed for one host is sent to no other.
func TestRedirectsAreAnswers(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			t.Error("it was followed")
			return
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	got, err := awshttp.New(cfg, awshttp.Options{Service: "events"}).Post(t.Context(), awshttp.Operation{URL: url + "/"})
	require.NoError(t, err)
	require.Equal(t, http.StatusTemporaryRedirect, got.Status)
}

func refused(status int, code string) error {
	return awshttp.Refused(&http.Response{StatusCode: status, Header: http.Header{}}, code, "")
}

func TestTry(t *testing.T) {
	always, never := func(error) bool { return true }, func(error) bool { return false }
	for name, c := range map[string]struct {
		fails []error // of the attempts, in order
		again func(error) bool
		asked int
		slept bool
		leave bool
	}{
		"well at once":         {nil, nil, 1, false, false},
		"well at last":         {[]error{refused(503, ""), refused(400, "ThrottlingException"), nil}, nil, 3, true, false},
		"never":                {[]error{refused(503, ""), refused(503, ""), refused(503, ""), refused(503, ""), nil}, nil, 4, true, false},
		"a name of its own":    {[]error{refused(400, "Busy"), nil}, nil, 2, true, false},
		"refused for good":     {[]error{refused(400, "AccessDenied"), nil}, nil, 1, false, false},
		"the caller says more": {[]error{refused(400, "AccessDenied"), nil}, always, 2, true, false},
		"the caller says less": {[]error{refused(503, ""), nil}, never, 1, false, false},
		"throttling is left":   {fails: []error{refused(400, "ThrottlingException"), nil}, asked: 1, leave: true},
		"no other failure is":  {fails: []error{refused(503, ""), refused(400, "Busy"), nil}, asked: 3, slept: true, leave: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := awshttp.New(cfg, awshttp.Options{Service: "events", Attempts: 4, Backoff: time.Second, Again: []string{"Busy"}, LeaveThrottling: c.leave})
				asked, from := 0, time.Now()
				var last error
				err := client.Try(t.Context(), func() error {
					asked++
					if last = nil; asked <= len(c.fails) {
						last = c.fails[asked-1]
					}
					return last
				}, c.again)
				require.Equal(t, last, err)
				require.Equal(t, c.asked, asked)
				require.Equal(t, c.slept, time.Since(from) > 0)
				require.LessOrEqual(t, time.Since(from), time.Duration(asked)*time.Second)
			})
		})
	}
}

// Where everything fails, what is asked is not asked ever more often; and nobody waits for an end that has come.
func TestTryGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := awshttp.New(cfg, awshttp.Options{Service: "events", Attempts: 4})
		asked := 0
		for range 200 {
			require.Error(t, client.Try(t.Context(), func() error { asked++; return refused(503, "") }, nil))
		}
		require.Equal(t, 200+100, asked, "of the SDK's 500 tokens, five each")
		ctx, cancel := context.WithCancel(t.Context())
		client = awshttp.New(cfg, awshttp.Options{Service: "events"})
		require.Error(t, client.Try(ctx, func() error { cancel(); return refused(503, "") }, nil))
	})
}

func TestCode(t *testing.T) {
	for _, c := range []struct{ header, body, want string }{
		{"", `{"__type":"com.amazonaws#TaskTimedOut","message":"m"}`, "TaskTimedOut"},
		{"", `{"__type":"TaskTimedOut"}`, "TaskTimedOut"},
		{"ValidationException:http://internal.amazon.com/coral/", `{"__type":"Other"}`, "ValidationException"},
		{"", `{"__type":"<script>"}`, ""},
		{"", `<html>`, ""},
		{"", `{"__type":7}`, ""},
		{"", `{"__type":"` + strings.Repeat("x", 5000) + `"}`, strings.Repeat("x", 100)},
	} {
		require.Equal(t, c.want, awshttp.Code(&http.Response{Header: http.Header{"X-Amzn-Errortype": {c.header}}}, []byte(c.body)), c.body)
	}
	for body, want := range map[string]string{`{"message":"m"}`: "m", `{"Message":"M"}`: "M", `{`: "", `{"message":7}`: ""} {
		require.Equal(t, want, awshttp.Answer{Text: []byte(body)}.Message())
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		status              int
		code, message, want string
		fault               smithy.ErrorFault
	}{
		{400, "Busy", "come again", "refused: Busy: come again", smithy.FaultClient},
		{503, "", "", "refused: ServiceUnavailable", smithy.FaultServer},
		{400, strings.Repeat("c", 5000), strings.Repeat("m", 5000), "refused: " + strings.Repeat("c", 100) + ": " + strings.Repeat("m", 500), smithy.FaultClient},
	} {
		err := awshttp.Refused(&http.Response{StatusCode: c.status, Header: http.Header{"X-Amzn-Requestid": {"id-1"}}}, c.code, c.message)
		var said smithy.APIError
		require.ErrorAs(t, err, &said)
		require.Equal(t, c.want, said.Error())
		require.Equal(t, c.fault, said.ErrorFault())
		require.ErrorContains(t, err, "id-1")
	}
}

func TestEndpoint(t *testing.T) {
	require.Equal(t, "https://kms.eu-central-1.amazonaws.com", awshttp.Endpoint("kms", "eu-central-1", false, false))
	require.Equal(t, "https://kms-fips.us-east-1.api.aws", awshttp.Endpoint("kms", "us-east-1", true, true))
	require.Equal(t, "https://kms.cn-north-1.api.amazonwebservices.com.cn", awshttp.Endpoint("kms", "cn-north-1", false, true))
}

// A URL is signed for who has no credentials.
func TestPresign(t *testing.T) {
	c := awshttp.New(cfg, awshttp.Options{Service: "s3", Verbatim: true})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://b.s3/k?X-Amz-Expires=60", bytes.NewReader(nil))
	require.NoError(t, err)
	url, signed, err := c.Presign(r, "UNSIGNED-PAYLOAD", c.Now())
	require.NoError(t, err)
	require.Contains(t, url, "X-Amz-Signature=")
	require.Contains(t, signed, "Host")
	_, _, err = awshttp.New(aws.Config{}, awshttp.Options{Service: "s3"}).Presign(r, "UNSIGNED-PAYLOAD", c.Now())
	require.ErrorContains(t, err, "want credentials")
}
