// Package awserror reads the errors of the SDK's clients, and leaves out of them what may repeat a request: a service's
// message and the text of an answer that could not be read.
package awssdk

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

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

// Bare is err without anything that may repeat the request: *Refusal where the service refused, a text of our own
// where its answer could not be read, else err itself, which tells why no answer came.
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
