package awshttp

import (
	"encoding/json"
	"net/http"
	"strings"

	awstransport "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// What is kept of a refusal, in bytes.
const (
	maxCode    = 100
	maxMessage = 500
)

// refusal is a service's name for why it did not do what it was asked, and what it says of that.
type refusal struct {
	code, message string
	fault         smithy.ErrorFault
}

func (r *refusal) ErrorCode() string             { return r.code }
func (r *refusal) ErrorMessage() string          { return r.message }
func (r *refusal) ErrorFault() smithy.ErrorFault { return r.fault }

func (r *refusal) Error() string {
	if r.message == "" {
		return "refused: " + r.code
	}
	return "refused: " + r.code + ": " + r.message
}

// Refused is the SDK's error for an answer that is none of success: *ResponseError of its transport, with a smithy.APIError in it. Where the
// answer has no code, its status is in its place. A message that may repeat what was sent is to be left out.
func Refused(resp *http.Response, code, message string) error {
	if code == "" {
		code = strings.ReplaceAll(http.StatusText(resp.StatusCode), " ", "")
	}
	fault := smithy.FaultClient
	if resp.StatusCode >= http.StatusInternalServerError {
		fault = smithy.FaultServer
	}
	id := resp.Header.Get("X-Amzn-Requestid")
	if id == "" {
		id = resp.Header.Get("X-Amz-Request-Id") // S3's
	}
	return &awstransport.ResponseError{
		ResponseError: &smithyhttp.ResponseError{
			Response: &smithyhttp.Response{Response: resp},
			Err:      &refusal{cut(code, maxCode), cut(message, maxMessage), fault},
		},
		RequestID: id,
	}
}

func cut(text string, n int) string { return text[:min(len(text), n)] }

// Code is the name of the error in an answer whose body, in JSON, is text: without namespace and address, and "" where there is none that is a name.
func Code(resp *http.Response, text []byte) string {
	code := resp.Header.Get("X-Amzn-Errortype")
	if code == "" {
		var said struct {
			Type string `json:"__type"`
		}
		if json.Unmarshal(text, &said) != nil {
			return ""
		}
		code = said.Type
	}
	code, _, _ = strings.Cut(code, ":")
	code = code[strings.LastIndex(code, "#")+1:]
	if strings.ContainsFunc(code, func(c rune) bool { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') }) {
		return ""
	}
	return cut(code, maxCode)
}

// message is what the answer whose body, in JSON, is text says of its error; "" = nothing.
func message(text []byte) string {
	var said struct{ Message string }
	if json.Unmarshal(text, &said) != nil {
		return ""
	}
	return said.Message
}
