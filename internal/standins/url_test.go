package standins_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/clock"
	"github.com/countersign/countersign/internal/standins"
)

// ofNothing is the digest of no body.
const ofNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// What a function writes reaches the client before it has written all; who is not signed or not permitted reaches no
// function.
func TestFunctionURL(t *testing.T) {
	by := aws.Credentials{AccessKeyID: "a", SecretAccessKey: "b"}
	var event events.APIGatewayV2HTTPRequest
	seen, missing, invoked := make(chan bool), "", 0
	srv := httptest.NewServer(&standins.FunctionURL{
		Credentials: by, ARN: "arn:aws:iam::1:user/ana", Region: "eu-central-1", Clock: clock.System(),
		Permits: func(action string) bool { return action != missing },
		Function: func(_ context.Context, payload []byte, out io.Writer) error {
			invoked++
			if invoked > 1 {
				return errors.New("it failed")
			}
			_, err := io.WriteString(out, `{"statusCode":202,"headers":{"Content-Type":"text/event-stream"},"coo`)
			_, err2 := io.WriteString(out, `kies":["a=1"]}`+"\x00\x00\x00\x00\x00\x00\x00\x00one\n")
			<-seen
			_, err3 := io.WriteString(out, "two\n")
			return errors.Join(err, err2, err3, json.Unmarshal(payload, &event))
		},
	})
	defer srv.Close()
	ask := func(sign bool) *http.Response {
		r := request(t, http.MethodGet, srv.URL+"/v1/runs/r1/events?format=canonical", "")
		r.Body, r.ContentLength = nil, 0
		if sign {
			require.NoError(t, v4.NewSigner().SignHTTP(t.Context(), by, r, ofNothing, "lambda", "eu-central-1", time.Now()))
		}
		resp, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, resp.Body.Close()) })
		return resp
	}
	require.Equal(t, http.StatusForbidden, ask(false).StatusCode)
	for _, missing = range []string{"lambda:InvokeFunctionUrl", "lambda:InvokeFunction"} {
		require.Equal(t, http.StatusForbidden, ask(true).StatusCode)
	}
	require.Zero(t, invoked)
	missing = ""
	resp := ask(true)
	require.Equal(t, 202, resp.StatusCode)
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	require.Equal(t, []string{"a=1"}, resp.Header["Set-Cookie"])
	in := bufio.NewReader(resp.Body)
	line, err := in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "one\n", line)
	close(seen)
	rest, err := io.ReadAll(in)
	require.NoError(t, err)
	require.Equal(t, "two\n", string(rest))
	require.Equal(t, "arn:aws:iam::1:user/ana", event.RequestContext.Authorizer.IAM.UserARN)
	require.Equal(t, "format=canonical", event.RawQueryString)
	require.Equal(t, event.RequestContext.APIID+".lambda-url.eu-central-1.on.aws", event.RequestContext.DomainName)
	require.Equal(t, http.StatusBadGateway, ask(true).StatusCode)
}
