package sfn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"

	"github.com/countersign/countersign/internal/aws/awshttp"
)

// How long one attempt may take, and what is read of an answer, in bytes: a list of a thousand executions, or an execution with an input and
// an output of 256 KiB, escaped.
const (
	attemptTimeout = 8 * time.Second
	maxAnswer      = 4 << 20
)

// service is Step Functions' name in signatures and hosts.
const service = "states"

// client carries out operations of Step Functions, with the SDK's three attempts unless the configuration says how many.
type client struct {
	url string
	aws *awshttp.Client
}

func newClient(cfg aws.Config, endpoint string) client {
	return client{strings.TrimSuffix(endpoint, "/") + "/", awshttp.New(cfg, awshttp.Options{
		Service: service, Timeout: attemptTimeout, Attempts: cfg.RetryMaxAttempts,
	})}
}

// Endpoint is where Step Functions is in a region.
func Endpoint(region string, fips, dualStack bool) string {
	switch {
	case region == "us-gov-west-1" && !dualStack: // whose one endpoint has validated cryptography
		fips = false
	case strings.HasPrefix(region, "us-gov-") && dualStack: // which have no other
		fips = true
	}
	return awshttp.Endpoint(service, region, fips, dualStack)
}

// ask carries out an operation and decodes its answer into out; nil = it says nothing.
func (c client) ask(ctx context.Context, operation string, in map[string]any, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return c.aws.Try(ctx, func() error {
		answer, err := c.aws.Post(ctx, awshttp.Operation{
			URL: c.url, Version: "1.0", Target: "AWSStepFunctions." + operation, Body: body, Limit: maxAnswer,
		})
		switch {
		case err != nil:
			return err
		case answer.Status != http.StatusOK:
			return answer.Refused(answer.Code(), answer.Message())
		case out == nil:
			return nil
		}
		if err := json.Unmarshal(answer.Text, out); err != nil {
			return fmt.Errorf("read the answer of Step Functions: %w", err)
		}
		return nil
	}, nil)
}

// said reports whether Step Functions refused with one of these names.
func said(err error, codes ...string) bool {
	var refused smithy.APIError
	if !errors.As(err, &refused) {
		return false
	}
	for _, code := range codes {
		if refused.ErrorCode() == code {
			return true
		}
	}
	return false
}
