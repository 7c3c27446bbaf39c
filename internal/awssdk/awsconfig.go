package awssdk

// This file loads the configuration that all clients of the AWS SDK in a process share.

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
)

// Load reads the configuration from where the SDK always looks: variables of the environment, then profiles. A process
// loads it once, and makes one client of each service from it. Without a region there is no error: every request fails
// then.
func Load(ctx context.Context) (aws.Config, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return aws.Config{}, fmt.Errorf("load the AWS configuration: %w", err)
	}
	return cfg, nil
}

// Operation is one operation of a service, such as client.GetItem. Adapters hold the operations that they use, and no
// client: in a program with text/template the linker keeps every method of a type that an interface leads to, and a
// client has up to a hundred.
type Operation[In, Out, Options any] func(ctx context.Context, in *In, opts ...func(*Options)) (*Out, error)

// connectTimeout is how long a client with a timeout may take to connect.
const connectTimeout = time.Second

// WithTimeout is client with a limit for one attempt of a request: for its answer, and of that a second to connect.
// Only a client of the SDK is changed; another, such as a test's, is returned as it is.
func WithTimeout(client aws.HTTPClient, attempt time.Duration) aws.HTTPClient {
	b, ok := client.(*awshttp.BuildableClient)
	if !ok {
		return client
	}
	return b.WithTimeout(attempt).WithDialerOptions(func(d *net.Dialer) { d.Timeout = connectTimeout })
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
