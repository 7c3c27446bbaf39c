package awsfake

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/clock"
)

// FunctionURL is a function URL with the authorization AWS_IAM and the mode RESPONSE_STREAM. Safe for concurrent use.
type FunctionURL struct {
	// Function writes its answer to out: JSON of the status and headers, eight zeros, and the body.
	Function    func(ctx context.Context, payload []byte, out io.Writer) error
	Credentials aws.Credentials // of the one caller there is
	ARN         string          // who that is
	Region      string
	// Permits evaluates the caller's policies for an action on the function, called by its URL.
	Permits func(action string) bool
	Clock   clock.Clock
}

// ServeHTTP authorizes and invokes as the service does. New URLs need both permissions.
func (u *FunctionURL) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest))
	if err != nil {
		return // the client is gone
	}
	if !signed(r, body, u.Credentials, "lambda", u.Region) ||
		!u.Permits("lambda:InvokeFunctionUrl") || !u.Permits("lambda:InvokeFunction") {
		message(w, http.StatusForbidden, "Forbidden")
		return
	}
	const id = "abcdefghijklmnopqrstuvwxyz012345"
	who := &description{IAM: &events.APIGatewayV2HTTPRequestContextAuthorizerIAMDescription{
		AccessKey: u.Credentials.AccessKeyID, UserARN: u.ARN,
	}}
	payload, err := json.Marshal(requestEvent(u.Clock, r, body, id, id+".lambda-url."+u.Region+".on.aws", who))
	out := &streamedAnswer{to: w}
	if err == nil {
		err = u.Function(context.WithoutCancel(r.Context()), payload, out) // it goes on without its client
	}
	if err != nil && !out.began {
		message(w, http.StatusBadGateway, "Internal Server Error")
	}
}

// streamedAnswer takes a function's answer apart and passes its body on as it comes.
type streamedAnswer struct {
	to    http.ResponseWriter
	head  []byte
	began bool
}

func (a *streamedAnswer) Write(p []byte) (int, error) {
	rest := p
	if !a.began {
		a.head = append(a.head, p...)
		head, body, ok := bytes.Cut(a.head, make([]byte, 8))
		if !ok {
			return len(p), nil
		}
		var begin struct {
			StatusCode int
			Headers    map[string]string
			Cookies    []string
		}
		if err := json.Unmarshal(head, &begin); err != nil {
			return 0, err
		}
		for name, value := range begin.Headers {
			a.to.Header().Set(name, value)
		}
		for _, c := range begin.Cookies {
			a.to.Header().Add("Set-Cookie", c)
		}
		a.to.WriteHeader(begin.StatusCode)
		rest, a.began = body, true
	}
	_, _ = a.to.Write(rest) // the function goes on without its client
	_ = http.NewResponseController(a.to).Flush()
	return len(p), nil
}
