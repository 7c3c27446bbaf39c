package openai

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/countersign/countersign/internal/agent"
)

func TestIOFailures(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want agent.ModelError
	}{
		{"refused", syscall.ECONNREFUSED, agent.ModelError{Class: agent.ModelConnection, Message: "connection refused"}},
		{"reset", syscall.ECONNRESET, agent.ModelError{Class: agent.ModelConnection, Message: "connection lost"}},
		{"broken pipe", syscall.EPIPE, agent.ModelError{Class: agent.ModelConnection, Message: "connection lost"}},
		{"cut", io.ErrUnexpectedEOF, agent.ModelError{Class: agent.ModelConnection, Message: "connection lost"}},
		{"closed", io.EOF, agent.ModelError{Class: agent.ModelConnection, Message: "connection lost"}},
		{"name", &net.DNSError{Err: "no such host", Name: "canary"}, agent.ModelError{Class: agent.ModelConnection, Message: "host name not found"}},
		{"slow name server", &net.DNSError{IsTimeout: true}, agent.ModelError{Class: agent.ModelTimeout, Message: "network timed out"}},
		{"slow", &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, agent.ModelError{Class: agent.ModelTimeout, Message: "network timed out"}},
		{"certificate", &tls.CertificateVerificationError{Err: errors.New("canary")}, agent.ModelError{Class: agent.ModelConnection, Message: "connection failed"}},
		{"too large", &http.MaxBytesError{Limit: 1}, agent.ModelError{Class: agent.ModelInvalid, Message: "reply is larger than 16 MiB"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wrapped := &url.Error{Op: "Post", URL: "http://canary/", Err: tt.err}
			require.Equal(t, &tt.want, ioFailure(context.Background(), wrapped))
		})
	}
}
