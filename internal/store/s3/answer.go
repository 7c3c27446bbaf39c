package s3

import (
	"errors"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awstransport "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/countersign/countersign/internal/aws/awshttp"
)

// What is read of an answer, in bytes: of a refusal, and of a list of at most a thousand prefixes.
const (
	maxRefusal = 64 << 10
	maxList    = 1 << 20
)

// maxSaid is how many bytes of what a refusal says are kept.
const maxSaid = 500

// refusal is the SDK's error for an answer that is none of success. It closes the answer. Where that has no code, as one to HEAD or one
// that is not S3's, the status is in its place.
func refusal(resp *http.Response) error {
	defer resp.Body.Close()
	code, message := "", ""
	if said, err := readXML(resp.Body, maxRefusal); err == nil && said.name == "Error" && said.last("Code") != "" {
		code, message = said.last("Code"), said.last("Message")
	}
	return awshttp.Refused(resp, code, message)
}

// drain ends an answer of which nothing is wanted, so that its connection can be used again.
func drain(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, maxRefusal) // what is not read costs a connection, nothing else
	_ = resp.Body.Close()
}

func short(text string) string { return text[:min(len(text), maxSaid)] }

// throttled reports whether S3 asks for patience. An answer to HEAD has no code, only its status.
func throttled(err error) bool {
	codes := retry.ThrottleErrorCode{Codes: retry.DefaultThrottleErrorCodes}
	return codes.IsErrorThrottle(err) == aws.TrueTernary || status(err) == http.StatusServiceUnavailable
}

// status is the HTTP status of an answer that is an error; 0 = there was no answer.
func status(err error) int {
	var response *awstransport.ResponseError
	if !errors.As(err, &response) {
		return 0
	}
	return response.HTTPStatusCode()
}

// code is what S3 calls an error; empty = it did not say.
func code(err error) string {
	var said smithy.APIError
	if !errors.As(err, &said) {
		return ""
	}
	return said.ErrorCode()
}
