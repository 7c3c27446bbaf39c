package bedrock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/model/modelretry"
)

// modelError makes a model error; Generate adds the model. Messages have the words of this package only.
func modelError(class agent.ModelErrorClass, message string) *agent.ModelError {
	return &agent.ModelError{Class: class, Message: message}
}

// callFailure says why a call failed before it had a reply. The foreign error is not kept: it quotes addresses, request
// ids and what the service wrote.
func callFailure(ctx context.Context, err error) error {
	if ended := modelretry.ContextFailure(ctx); ended != nil {
		return ended
	}
	if cause, class := parseRefusal(err); cause != nil {
		return cause.Failure(class)
	}
	if failure := modelretry.NetworkFailure(err); failure != nil {
		return failure
	}
	switch {
	case errors.As(err, new(*smithyhttp.RequestSendError)):
		return modelError(agent.ModelConnection, "connection failed")
	case errors.As(err, new(*smithyhttp.ResponseError)):
		return modelError(agent.ModelInvalid, "reply is not the JSON of a message")
	case errors.As(err, new(*smithy.SerializationError)), errors.As(err, new(smithy.InvalidParamsError)):
		return modelError(agent.ModelInvalid, "request cannot be made")
	default: // the SDK gave up before it sent anything
		return modelError(agent.ModelAuth, "request was not sent: no credentials, region or endpoint")
	}
}

// streamFailure says why a stream broke off: an exception that came as an event, or the connection. What is neither is
// a frame that cannot be read, which counts as the connection's fault.
func streamFailure(ctx context.Context, err error) error {
	if ended := modelretry.ContextFailure(ctx); ended != nil {
		return ended
	}
	if reported, ok := errors.AsType[smithy.APIError](err); ok {
		r := modelretry.Refusal{Code: knownCode(reported.ErrorCode())}
		return r.Failure(classify(0, r.Code, reported.ErrorMessage()))
	}
	if failure := modelretry.NetworkFailure(err); failure != nil {
		return failure
	}
	return modelError(agent.ModelConnection, "stream is damaged")
}

// parseRefusal parses an unsuccessful response; nil if err is none. If the body could not be read, the status decides.
func parseRefusal(err error) (*modelretry.Refusal, agent.ModelErrorClass) {
	var response *smithyhttp.ResponseError
	if !errors.As(err, &response) || response.Response == nil || response.HTTPStatusCode() < 300 {
		return nil, ""
	}
	after := modelretry.ReadRetryAfter(response.Response.Header)
	r := &modelretry.Refusal{Status: response.HTTPStatusCode(), After: after}
	message := ""
	if reported, ok := errors.AsType[smithy.APIError](err); ok {
		r.Code, message = knownCode(reported.ErrorCode()), reported.ErrorMessage()
	}
	r.Media = modelretry.RefusedMedia(message)
	class := classify(r.Status, r.Code, message)
	if strings.Contains(message, "on-demand throughput") { // most models are reached by a profile alone
		r.Code += " (want the id of an inference profile for this model)"
	}
	return r, class
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

	"AccessDeniedException": agent.ModelAuth, "UnrecognizedClientException": agent.ModelAuth,
	"InvalidClientTokenId": agent.ModelAuth, "ExpiredTokenException": agent.ModelAuth, "ExpiredToken": agent.ModelAuth,
	"InvalidSignatureException": agent.ModelAuth, "SignatureDoesNotMatch": agent.ModelAuth,
	"IncompleteSignature": agent.ModelAuth, "IncompleteSignatureException": agent.ModelAuth,
	"MissingAuthenticationToken": agent.ModelAuth, "MissingAuthenticationTokenException": agent.ModelAuth,
}

// knownCode is the code if it is in the list, else empty. Streams write codes with a small letter first.
func knownCode(code string) string {
	if code != "" {
		code = strings.ToUpper(code[:1]) + code[1:]
	}
	if knownCodes[code] == "" {
		return ""
	}
	return code
}

// overflowCodes are those whose message may say that the request does not fit the context.
var overflowCodes = []string{"ValidationException", "ModelErrorException", "ModelStreamErrorException"}

// overflowPhrases are how Bedrock's models say so; there is no code for it. "Too many tokens" is not among them: that
// is how the service says that the account is throttled.
var overflowPhrases = []string{
	"input is too long", "prompt is too long", "exceed context limit", "too many total text bytes",
	"too many input tokens", "maximum context length", "context length", "context window", "input tokens exceed",
	"maximum number of input tokens",
}

// classify decides by known code, then status; neither = the service's fault. The message only tells an overflow.
func classify(status int, code, message string) agent.ModelErrorClass {
	message = strings.ToLower(message)
	says := func(phrase string) bool { return strings.Contains(message, phrase) }
	if slices.Contains(overflowCodes, code) && slices.ContainsFunc(overflowPhrases, says) {
		return agent.ModelContextOverflow
	}
	return cmp.Or(knownCodes[code], modelretry.StatusClass(status))
}
