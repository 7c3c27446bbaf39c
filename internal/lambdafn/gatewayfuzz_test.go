package lambdafn_test

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/lambdafn"
)

// An event is answered in the gateway's own form, or is none of HTTP.
func FuzzGateway(f *testing.F) {
	for _, seed := range []string{
		`{"version":"2.0","rawPath":"/v1/runs","rawQueryString":"a=b","headers":{"content-type":"application/json"},"cookies":["a=b"],"requestContext":{"stage":"$default","domainName":"x","http":{"method":"POST","sourceIp":"1.2.3.4"}},"body":"e30=","isBase64Encoded":true}`,
		`{"version":"2.0","rawPath":"%zz","requestContext":{"stage":"dev","http":{"method":"G T"}}}`, `{"version":"1.0","httpMethod":"GET","path":"/"}`,
		`{"requestContext":{"elb":{"targetGroupArn":"x"}},"httpMethod":"GET","path":"/","headers":{},"body":"","isBase64Encoded":false}`,
		`{"Records":[{"eventSource":"aws:sqs"}]}`, `{"version":"2.0","rawPath":"//x/../y","headers":{"A":"\r\nB: c","a":"d"},"requestContext":{"http":{"method":"GET"}}}`,
	} {
		f.Add([]byte(seed))
	}
	g := lambdafn.Gateway(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		_, _ = w.Write(body)
	}), nil)
	f.Fuzz(func(t *testing.T, payload []byte) {
		out, err := g(t.Context(), payload)
		if err != nil {
			require.ErrorContains(t, err, "read the event: ")
			return
		}
		var a events.APIGatewayV2HTTPResponse
		require.NoError(t, json.Unmarshal(out, &a))
		require.Contains(t, []int{http.StatusOK, http.StatusBadRequest}, a.StatusCode, a.Body)
	})
}
