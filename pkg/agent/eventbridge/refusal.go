package eventbridge

import (
	"errors"
	"net/http"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// maxCode is how many bytes of a refusal's name are kept. What else it says is not: it may repeat the event.
const maxCode = 100

// refusal is EventBridge's name for why it did not take an event.
type refusal struct {
	code  string
	fault smithy.ErrorFault
}

func (r *refusal) Error() string                 { return "refused: " + r.code }
func (r *refusal) ErrorCode() string             { return r.code }
func (r *refusal) ErrorMessage() string          { return "" }
func (r *refusal) ErrorFault() smithy.ErrorFault { return r.fault }

func asRefusal(err error, to **refusal) bool { return errors.As(err, to) }

// answered is the SDK's error for an answer that is none of success. Where that has no name of its own, the status is in its place.
func answered(resp *http.Response, code string) error {
	if code == "" {
		code = strings.ReplaceAll(http.StatusText(resp.StatusCode), " ", "")
	}
	fault := smithy.FaultClient
	if resp.StatusCode >= http.StatusInternalServerError {
		fault = smithy.FaultServer
	}
	return &awshttp.ResponseError{
		ResponseError: &smithyhttp.ResponseError{
			Response: &smithyhttp.Response{Response: resp}, Err: &refusal{code[:min(len(code), maxCode)], fault},
		},
		RequestID: resp.Header.Get("X-Amzn-Requestid"),
	}
}
