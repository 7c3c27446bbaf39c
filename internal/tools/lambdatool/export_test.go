package lambdatool

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/aws/awshttp"
)

// Hurried is a New client that sends again without a pause to speak of.
func Hurried(cfg aws.Config, endpoint string) *Client {
	c := New(cfg, endpoint)
	c.aws = awshttp.New(cfg, awshttp.Options{Service: service, Attempts: attempts, Backoff: time.Microsecond})
	return c
}
