package s3

import (
	"net"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Times of one attempt, enough for store.MaxBlob at 4 MB/s, and how often and with what pause at most a request is sent.
const (
	attemptTimeout = 26 * time.Second
	connectTimeout = time.Second
	attempts       = 4
	backoff        = time.Second
)

// uploadConflict is S3's answer to one of several conditional uploads of a key at the same time: it wants to be asked again.
const uploadConflict = "ConditionalRequestConflict"

// NewClient makes a client whose attempts take 26 s at most, 1 s of it for connecting. An endpoint that is not empty, as
// http://127.0.0.1:9000, stands in for AWS; buckets are then part of the path. An HTTP client in cfg that is not the SDK's own is kept as
// it is, timeouts included.
func NewClient(cfg aws.Config, endpoint string) *s3.Client {
	return s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.HTTPClient = timed(cfg.HTTPClient)
		if endpoint != "" {
			o.BaseEndpoint, o.UsePathStyle = &endpoint, true
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

// retryer resends whatever may go better: a Put is the same however often it is done.
func retryer() aws.Retryer {
	standard := retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = attempts, backoff })
	return retry.AddWithErrorCodes(standard, uploadConflict)
}
