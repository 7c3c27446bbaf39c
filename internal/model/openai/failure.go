package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"

	"github.com/countersign/countersign/internal/agent"
)

// modelError makes a model error; Generate adds the model. Messages have the words of this package only.
func modelError(class agent.ModelErrorClass, message string) *agent.ModelError {
	return &agent.ModelError{Class: class, Message: message}
}

// ioFailure says why a request or the reading of its reply broke off. The foreign error is not kept: it may quote an
// address or what the server sent.
func ioFailure(ctx context.Context, err error) error {
	if ended := ctx.Err(); errors.Is(ended, context.DeadlineExceeded) {
		return modelError(agent.ModelTimeout, "deadline passed")
	} else if ended != nil {
		return fmt.Errorf("ask model: %w", ended)
	}
	var network net.Error
	var dns *net.DNSError
	switch {
	case isTooLarge(err):
		return modelError(agent.ModelInvalid, fmt.Sprintf("reply is larger than %d MiB", MaxResponse>>20))
	case errors.As(err, &network) && network.Timeout():
		return modelError(agent.ModelTimeout, "network timed out")
	case errors.As(err, &dns):
		return modelError(agent.ModelConnection, "host name not found")
	case errors.Is(err, syscall.ECONNREFUSED):
		return modelError(agent.ModelConnection, "connection refused")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return modelError(agent.ModelConnection, "connection lost")
	default:
		return modelError(agent.ModelConnection, "connection failed")
	}
}

func isTooLarge(err error) bool {
	var e *http.MaxBytesError
	return errors.As(err, &e)
}
