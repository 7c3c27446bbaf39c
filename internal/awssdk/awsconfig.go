// Package awssdk is how this program uses the AWS SDK: one configuration and one kind of error for all clients.
package awssdk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Load reads the configuration from where the SDK always looks: variables of the environment, then profiles. A process
// loads it once, and makes one client of each service from it. Without a region there is no error: every request fails
// then. The SDK writes no log lines of its own (R17).
func Load(ctx context.Context) (aws.Config, error) {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{}))
	if err != nil {
		return aws.Config{}, fmt.Errorf("load the AWS configuration: %w", err)
	}
	return cfg, nil
}

// Operation is one operation of a service, such as client.GetItem. Adapters hold the operations that they use, and no
// client: in a program with text/template the linker keeps every method of a type that an interface leads to, and a
// client has up to a hundred.
type Operation[In, Out, Options any] func(ctx context.Context, in *In, opts ...func(*Options)) (*Out, error)

// WithTimeout is client with a limit for one attempt of a request: for its answer, and of that a second to connect.
// Only a client of the SDK is changed; another, such as a test's, is returned as it is.
func WithTimeout(client aws.HTTPClient, attempt time.Duration) aws.HTTPClient {
	b, ok := client.(*awshttp.BuildableClient)
	if !ok {
		return client
	}
	return b.WithTimeout(attempt).WithDialerOptions(func(d *net.Dialer) { d.Timeout = time.Second })
}

// Retryer has a request sent four times at most, with pauses of up to a second, after what the SDK takes for passing
// and after an answer with one of codes.
func Retryer(codes ...string) aws.Retryer {
	passing := map[string]struct{}{}
	for _, code := range codes {
		passing[code] = struct{}{}
	}
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts, o.MaxBackoff = 4, time.Second
		o.Retryables = append(o.Retryables, retry.RetryableErrorCode{Codes: passing})
	})
}

// Refusal is a service's answer that it did not do what it was asked.
type Refusal struct {
	Code   string // the service's name for the reason; "" = the answer has none
	Status int    // of HTTP
}

func (r *Refusal) Error() string {
	if r.Code == "" {
		return fmt.Sprintf("refused with status %d", r.Status)
	}
	return "refused: " + r.Code
}

// ErrorCode is the code, for logs.
func (r *Refusal) ErrorCode() string { return r.Code }

// name is what a code looks like. The SDK's own word for an answer without a code is none.
var name = regexp.MustCompile(`^[A-Za-z0-9.]{1,100}$`)

// Bare is err without anything that may repeat the request, as a service's message may: *Refusal where the service
// refused, a text of our own where its answer could not be read, else err itself, which tells why no answer came.
func Bare(err error) error {
	if err == nil {
		return nil
	}
	refusal := &Refusal{}
	var said smithy.APIError
	refused := errors.As(err, &said)
	if refused && said.ErrorCode() != "UnknownError" && name.MatchString(said.ErrorCode()) {
		refusal.Code = said.ErrorCode()
	}
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) {
		refusal.Status = answer.HTTPStatusCode()
	}
	var unread *smithy.DeserializationError
	switch {
	case refused || refusal.Status >= 300:
		return refusal
	case errors.As(err, &unread):
		return errors.New("the answer cannot be read")
	}
	return err
}
