package dynamo

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/countersign/countersign/internal/aws/awshttp"
)

// attemptTimeout is how long one attempt may take. DynamoDB answers within tens of milliseconds; what takes so long is lost.
const attemptTimeout = 2 * time.Second

// Reads are sent at most so often, with at most so long in between.
const (
	readAttempts = 3
	readBackoff  = 200 * time.Millisecond
)

// maxAnswer is what is read of an answer, in bytes: a page of 1 MB, escaped.
const maxAnswer = 16 << 20

// service is DynamoDB's name in signatures and hosts.
const service = "dynamodb"

// Client makes the requests to DynamoDB that are made here. Make one with NewClient. Safe for concurrent use.
type Client struct {
	url string
	aws *awshttp.Client
}

// NewClient makes a client of DynamoDB at endpoint, whose attempts take 2 s at most, 1 s of it for connecting: Endpoint gives AWS' own. An
// HTTP client in cfg that is not the SDK's own is kept as it is, timeouts included. A configuration without a region or credentials makes
// every request fail.
func NewClient(cfg aws.Config, endpoint string) *Client {
	return &Client{strings.TrimSuffix(endpoint, "/") + "/", awshttp.New(cfg, awshttp.Options{
		Service: service, Timeout: attemptTimeout, Attempts: readAttempts, Backoff: readBackoff, LeaveThrottling: true,
	})}
}

// Endpoint is where DynamoDB is in a region.
func Endpoint(region string, fips, dualStack bool) string {
	return awshttp.Endpoint(service, region, fips && (dualStack || !strings.HasPrefix(region, "us-gov-")), dualStack) // whose own endpoints are
}

// read asks as often as may help, and decodes the answer into out. Throttling is reported at once.
func (c *Client) read(ctx context.Context, operation string, in, out any) error {
	return c.aws.Try(ctx, func() error { return c.once(ctx, operation, in, out) }, nil)
}

// once asks exactly once, and decodes the answer into out; nil = it says nothing.
func (c *Client) once(ctx context.Context, operation string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	answer, err := c.aws.Post(ctx, awshttp.Operation{
		URL: c.url, Version: "1.0", Target: "DynamoDB_20120810." + operation, Body: body, Limit: maxAnswer,
	})
	if err != nil {
		return err
	}
	if err := whole(answer); err != nil {
		return err
	}
	if answer.Status != http.StatusOK {
		return refusal(answer)
	}
	if out == nil {
		out = &struct{}{}
	}
	if err := json.Unmarshal(answer.Text, out); err != nil {
		return fmt.Errorf("read DynamoDB's answer: %w", err)
	}
	return nil
}

// whole refuses an answer that is not what DynamoDB sent, by the sum that it says.
func whole(answer awshttp.Answer) error {
	said := answer.Header("X-Amz-Crc32")
	if said == "" {
		return nil
	}
	if sum := strconv.FormatUint(uint64(crc32.ChecksumIEEE(answer.Text)), 10); sum != said {
		return fmt.Errorf("read DynamoDB's answer: its sum is %s, want %s", sum, said)
	}
	return nil
}

// refusal is the error of an answer that is none of success. One that cannot be read is no refusal: nobody knows what was done.
func refusal(answer awshttp.Answer) error {
	var said struct{ CancellationReasons []reason }
	if json.Unmarshal(answer.Text, &said) != nil && answer.Status < http.StatusInternalServerError {
		return fmt.Errorf("read DynamoDB's answer of status %d: it is not JSON", answer.Status)
	}
	err := answer.Refused(answer.Code(), answer.Message())
	if answer.Code() == codeCancelled {
		return &cancelledError{err, said.CancellationReasons}
	}
	return err
}

// reason is why an operation of a transaction was not done.
type reason struct{ Code, Message string }

// cancelledError is a transaction that was not done, with a reason for each of its operations.
type cancelledError struct {
	error
	reasons []reason
}

func (e *cancelledError) Unwrap() error { return e.error }
