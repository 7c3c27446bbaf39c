package bedrock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/countersign/countersign/internal/agent"
)

// modelError makes a model error; Generate adds the model. Messages have the words of this package only.
func modelError(class agent.ModelErrorClass, message string) *agent.ModelError {
	return &agent.ModelError{Class: class, Message: message}
}

// callFailure says why a call failed before it had a reply. The foreign error is not kept: it quotes addresses, request
// ids and what the service wrote.
func callFailure(ctx context.Context, err error) error {
	if ended := contextFailure(ctx); ended != nil {
		return ended
	}
	if cause, class := parseRefusal(err); cause != nil {
		return &agent.ModelError{Class: class, Message: cause.Error(), Cause: cause, Lasting: cause.status == http.StatusNotFound}
	}
	if failure := networkFailure(err); failure != nil {
		return failure
	}
	var response *smithyhttp.ResponseError
	var encoding *smithy.SerializationError
	var parameters smithy.InvalidParamsError
	switch {
	case errors.As(err, &response):
		return modelError(agent.ModelInvalid, "reply is not the JSON of a message")
	case errors.As(err, &encoding), errors.As(err, &parameters):
		return modelError(agent.ModelInvalid, "request cannot be made")
	default: // the SDK gave up before it sent anything
		return modelError(agent.ModelAuth, "request was not sent: no credentials, region or endpoint")
	}
}

// streamFailure says why a stream broke off: an exception that came as an event, or the connection. What is neither is
// a frame that cannot be read, which counts as the connection's fault.
func streamFailure(ctx context.Context, err error) error {
	if ended := contextFailure(ctx); ended != nil {
		return ended
	}
	var reported smithy.APIError
	if errors.As(err, &reported) {
		cause := refusal{code: knownCode(reported.ErrorCode())}
		message := "service reported an error in its reply"
		if cause.code != "" {
			message += ", " + cause.code
		}
		return modelError(cause.class(reported.ErrorMessage()), message)
	}
	if failure := networkFailure(err); failure != nil {
		return failure
	}
	return modelError(agent.ModelConnection, "stream is damaged")
}

// contextFailure is nil while the context lives.
func contextFailure(ctx context.Context) error {
	ended := ctx.Err()
	switch {
	case ended == nil:
		return nil
	case errors.Is(ended, context.DeadlineExceeded):
		return modelError(agent.ModelTimeout, "deadline passed")
	}
	return fmt.Errorf("ask model: %w", ended)
}

// networkFailure is nil when err does not come from the network.
func networkFailure(err error) error {
	var network net.Error
	var dns *net.DNSError
	var unsent *smithyhttp.RequestSendError
	switch {
	case errors.As(err, &network) && network.Timeout():
		return modelError(agent.ModelTimeout, "network timed out")
	case errors.As(err, &dns):
		return modelError(agent.ModelConnection, "host name not found")
	case errors.Is(err, syscall.ECONNREFUSED):
		return modelError(agent.ModelConnection, "connection refused")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return modelError(agent.ModelConnection, "connection lost")
	case errors.As(err, &network), errors.As(err, &unsent):
		return modelError(agent.ModelConnection, "connection failed")
	}
	return nil
}
