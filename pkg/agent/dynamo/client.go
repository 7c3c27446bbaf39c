package dynamo

import (
	"net"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// Times of one attempt. DynamoDB answers within tens of milliseconds; what takes so long is lost.
const (
	attemptTimeout = 2 * time.Second
	connectTimeout = time.Second
)

// Reads are sent at most so often, with at most so long in between.
const (
	readAttempts = 3
	readBackoff  = 200 * time.Millisecond
)

// NewClient makes a client whose attempts take 2 s at most, 1 s of it for connecting. An endpoint that is not empty, as
// http://127.0.0.1:8000, stands in for AWS. An HTTP client in cfg that is not the SDK's own is kept as it is, timeouts included.
func NewClient(cfg aws.Config, endpoint string) *dynamodb.Client {
	return dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) {
		o.HTTPClient = timed(cfg.HTTPClient)
		if endpoint != "" {
			o.BaseEndpoint = &endpoint
		}
	})
}

func timed(c aws.HTTPClient) aws.HTTPClient {
	if c == nil {
		c = awshttp.NewBuildableClient()
	}
	b, ok := c.(*awshttp.BuildableClient)
	if !ok {
		return c
	}
	return b.WithTimeout(attemptTimeout).WithDialerOptions(func(d *net.Dialer) { d.Timeout = connectTimeout })
}

// once makes the SDK send a request exactly once.
func once(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }

// readRetryer resends what failed on the way or inside the service, and nothing that was throttled.
func readRetryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts, o.MaxBackoff = readAttempts, readBackoff
		o.Retryables = []retry.IsErrorRetryable{
			retry.NoRetryCanceledError{},
			retry.RetryableError{},
			retry.RetryableConnectionError{},
			retry.RetryableHTTPStatusCode{Codes: retry.DefaultRetryableHTTPStatusCodes},
			retry.RetryableErrorCode{Codes: retry.DefaultRetryableErrorCodes},
		}
	})
}
