package bedrock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

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
		return &agent.ModelError{Class: class, Message: cause.Error(), Cause: cause,
			Lasting: cause.status == http.StatusNotFound}
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
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		return modelError(agent.ModelConnection, "connection lost")
	case errors.As(err, &network), errors.As(err, &unsent):
		return modelError(agent.ModelConnection, "connection failed")
	}
	return nil
}

// refusal is what the service said instead of a reply, and the cause of the error that comes of it.
type refusal struct {
	status int    // 0 = it came in a stream
	code   string // of knownCodes, or empty
	after  time.Duration
}

func (r *refusal) Error() string {
	if r.code == "" {
		return fmt.Sprintf("status %d", r.status)
	}
	return fmt.Sprintf("status %d, %s", r.status, r.code)
}

// RetryAfter is what the service asked to wait before the next request; 0 = it did not say.
func (r *refusal) RetryAfter() time.Duration { return r.after }

// parseRefusal parses an unsuccessful response; nil if err is none. If the body could not be read, the status decides.
func parseRefusal(err error) (*refusal, agent.ModelErrorClass) {
	var response *smithyhttp.ResponseError
	if !errors.As(err, &response) || response.Response == nil || response.HTTPStatusCode() < 300 {
		return nil, ""
	}
	r := &refusal{status: response.HTTPStatusCode()}
	// A header that is a date does not count: Bedrock sends none.
	if seconds, err := strconv.ParseUint(response.Response.Header.Get("Retry-After"), 10, 31); err == nil {
		r.after = time.Duration(seconds) * time.Second
	}
	message := ""
	var reported smithy.APIError
	if errors.As(err, &reported) {
		r.code, message = knownCode(reported.ErrorCode()), reported.ErrorMessage()
	}
	return r, r.class(message)
}

// knownCodes are the error codes that decide and that may be shown.
var knownCodes = map[string]agent.ModelErrorClass{
	"ThrottlingException":         agent.ModelThrottled,   // 429
	"ModelNotReadyException":      agent.ModelUnavailable, // 429, yet the account is not over its quota
	"ServiceUnavailableException": agent.ModelUnavailable, // 503
	"ModelTimeoutException":       agent.ModelTimeout,     // 408
	"ModelErrorException":         agent.ModelServer,      // 424
	"ModelStreamErrorException":   agent.ModelServer,      // 424
	"InternalServerException":     agent.ModelServer,      // 500
	"ValidationException":         agent.ModelInvalid,     // 400
	"ResourceNotFoundException":   agent.ModelUnavailable, // 404: this model is not here; another may be (presets 5)

	"AccessDeniedException":               agent.ModelAuth,
	"UnrecognizedClientException":         agent.ModelAuth,
	"InvalidClientTokenId":                agent.ModelAuth,
	"ExpiredTokenException":               agent.ModelAuth,
	"ExpiredToken":                        agent.ModelAuth,
	"InvalidSignatureException":           agent.ModelAuth,
	"SignatureDoesNotMatch":               agent.ModelAuth,
	"IncompleteSignature":                 agent.ModelAuth,
	"IncompleteSignatureException":        agent.ModelAuth,
	"MissingAuthenticationToken":          agent.ModelAuth,
	"MissingAuthenticationTokenException": agent.ModelAuth,
}

// knownCode is the code if it is in the list, else empty. Streams write codes with a small letter first.
func knownCode(code string) string {
	if code != "" {
		code = strings.ToUpper(code[:1]) + code[1:]
	}
	if _, ok := knownCodes[code]; ok {
		return code
	}
	return ""
}

// overflowCodes are those whose message may say that the request does not fit the context.
var overflowCodes = []string{"ValidationException", "ModelErrorException", "ModelStreamErrorException"}

// overflowPhrases are how Bedrock's models say so; there is no code for it. "Too many tokens" is not among them: that
// is how the service says that the account is throttled.
var overflowPhrases = []string{
	"input is too long", "prompt is too long", "exceed context limit", "too many total text bytes",
	"too many input tokens",
	"maximum context length", "context length", "context window", "input tokens exceed", "maximum number of input tokens",
}

// class decides by known code, then status; neither = the service's fault. The message only tells an overflow.
func (r *refusal) class(message string) agent.ModelErrorClass {
	if slices.Contains(overflowCodes, r.code) && isOverflow(message) {
		return agent.ModelContextOverflow
	}
	if class, ok := knownCodes[r.code]; ok {
		return class
	}
	return statusClass(r.status)
}

func isOverflow(message string) bool {
	message = strings.ToLower(message)
	return slices.ContainsFunc(overflowPhrases, func(phrase string) bool { return strings.Contains(message, phrase) })
}

func statusClass(status int) agent.ModelErrorClass {
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden:
		return agent.ModelAuth
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return agent.ModelTimeout
	case http.StatusNotFound, http.StatusServiceUnavailable:
		return agent.ModelUnavailable
	case http.StatusTooManyRequests:
		return agent.ModelThrottled
	}
	if status == http.StatusNotImplemented {
		return agent.ModelInvalid
	}
	if status == 0 || status == http.StatusFailedDependency || status >= 500 {
		return agent.ModelServer
	}
	return agent.ModelInvalid
}
