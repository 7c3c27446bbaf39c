package modelretry

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/countersign/countersign/internal/agent"
	"github.com/countersign/countersign/internal/jsonx"
	"github.com/countersign/countersign/internal/policy"
	"github.com/countersign/countersign/internal/run"
)

// This file is what adapters of models share: why a request failed, in words of this program. Foreign errors are not
// kept, as they may quote an address, a key or what the service wrote.

// Refusal is a service's answer that is no reply, and the cause of the *agent.ModelError that comes of it.
type Refusal struct {
	Status int    // of HTTP; 0 = it came in a stream
	Code   string // fit to be shown; "" = none
	After  time.Duration
	Media  Media // that the model takes none of
}

func (r *Refusal) Error() string {
	text := "service reported an error in its reply"
	if r.Status != 0 {
		text = fmt.Sprintf("status %d", r.Status)
	}
	if r.Code != "" {
		text += ", " + r.Code
	}
	return text
}

// RetryAfter returns how long the service asked to wait before the next request; 0 = it did not say.
func (r *Refusal) RetryAfter() time.Duration { return r.After }

// Failure returns the error of a request that was refused. A model that is not there is asked no more.
func (r *Refusal) Failure(class agent.ModelErrorClass) *agent.ModelError {
	lasts := r.Status == http.StatusNotFound || r.Media != ""
	return &agent.ModelError{Class: class, Message: r.Error(), Cause: r, Lasting: lasts}
}

// NameModel says in a *agent.ModelError which model failed.
func NameModel(err error, id string) {
	if failure := failureOf(err); failure != nil {
		failure.Model = id
	}
}

// ReadRetryAfter reads Retry-After-Ms, else Retry-After: seconds, or a date taken relative to the response's own Date,
// so that no clock is needed.
func ReadRetryAfter(h http.Header) time.Duration {
	value, unit := h.Get("Retry-After-Ms"), time.Millisecond
	if value == "" {
		value, unit = h.Get("Retry-After"), time.Second
	}
	if n, err := strconv.ParseFloat(value, 64); err == nil && n >= 0 && n < 1e9 { // Groq has fractions of seconds
		return time.Duration(n * float64(unit))
	}
	at, err := http.ParseTime(value)
	now, noDate := http.ParseTime(h.Get("Date"))
	if err != nil || noDate != nil {
		return 0
	}
	return max(0, at.Sub(now))
}

var statusClasses = map[int]agent.ModelErrorClass{
	0: agent.ModelServer, http.StatusFailedDependency: agent.ModelServer,
	http.StatusUnauthorized: agent.ModelAuth, http.StatusPaymentRequired: agent.ModelAuth,
	http.StatusForbidden: agent.ModelAuth, http.StatusTooManyRequests: agent.ModelThrottled,
	http.StatusRequestTimeout: agent.ModelTimeout, http.StatusGatewayTimeout: agent.ModelTimeout,
	// a model that is not here, where another may be (presets 5), and what was not processed; 529 is "overloaded"
	http.StatusNotFound: agent.ModelUnavailable, http.StatusConflict: agent.ModelUnavailable,
	http.StatusTooEarly: agent.ModelUnavailable, http.StatusServiceUnavailable: agent.ModelUnavailable,
	529:                       agent.ModelUnavailable,
	http.StatusNotImplemented: agent.ModelInvalid, http.StatusHTTPVersionNotSupported: agent.ModelInvalid,
}

// StatusClass returns the class of an error whose HTTP status alone decides; 0 = there is no status.
func StatusClass(status int) agent.ModelErrorClass {
	class := agent.ModelInvalid
	if status >= 500 {
		class = agent.ModelServer
	}
	return cmp.Or(statusClasses[status], class)
}

// ContextFailure says that ctx has ended; nil while it has not.
func ContextFailure(ctx context.Context) error {
	ended := ctx.Err()
	switch {
	case ended == nil:
		return nil
	case errors.Is(ended, context.DeadlineExceeded):
		return &agent.ModelError{Class: agent.ModelTimeout, Message: "deadline passed"}
	}
	return fmt.Errorf("ask model: %w", ended)
}

// NetworkFailure says what went wrong with the connection; nil if err does not come from the network.
func NetworkFailure(err error) error {
	var network net.Error
	class, message := agent.ModelConnection, "connection failed"
	switch isNetwork := errors.As(err, &network); {
	case isNetwork && network.Timeout():
		class, message = agent.ModelTimeout, "network timed out"
	case errors.As(err, new(*net.DNSError)):
		message = "host name not found"
	case errors.Is(err, syscall.ECONNREFUSED):
		message = "connection refused"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		message = "connection lost"
	case !isNetwork:
		return nil
	}
	return &agent.ModelError{Class: class, Message: message}
}

// Arguments returns a call's arguments as the model wrote them. None at all are {}, unless a limit has cut the reply
// there: then nobody knows them, and the call is not one without arguments.
func Arguments(written string, cut bool) json.RawMessage {
	if written == "" && !cut {
		written = "{}"
	}
	return json.RawMessage(written)
}

// What an adapter puts in where a conversation lacks what services and chat templates insist on.
const (
	// NoResponse is the result of a call that has none.
	NoResponse = `{"type":"error","name":"no_tool_response","message":"There is no response from this tool."}`
	// NoOutput is a blank result: Bedrock, Z.ai and MiniMax refuse an empty text.
	NoOutput = "(no output)"
	// GotResults is the model's turn between a tool's results and what the user says behind them.
	GotResults = "I have the results."
	// Opening is the user's first words, where the conversation's beginning was evicted.
	Opening = "(The beginning of this conversation is left out.)"
)

// Withdrawn describes a tool that is in the conversation and not on offer.
const Withdrawn = "This tool is not available any more. Do not call it."

// OfferedTools returns a request's tools. When it offers none, they are the conversation's own, as withdrawn ones, in
// order of their first use: some services refuse a conversation that has calls in it and no tools beside it.
func OfferedTools(r agent.Request) []agent.ToolSpec {
	specs := r.Tools
	if len(specs) > 0 {
		return specs
	}
	seen := map[string]bool{}
	for _, m := range r.Messages {
		if u, ok := m.Block.(run.ToolUse); ok && !seen[u.Name] {
			seen[u.Name] = true
			specs = append(specs, agent.ToolSpec{Name: u.Name, Description: Withdrawn})
		}
	}
	return specs
}

// CheckConversation refuses messages that no service can be sent. It returns the results of calls by their ids.
func CheckConversation(messages []run.Message) (map[string]run.ToolResult, error) {
	results, err := policy.ResultsByCall(messages)
	if err != nil {
		return nil, &agent.ModelError{Class: agent.ModelInvalid, Message: err.Error()}
	}
	for i, m := range messages {
		problem := ""
		switch b := m.Block.(type) {
		case run.Text, run.Reasoning:
		case run.Media:
			if m.Role == run.RoleAssistant || b.Data == "" {
				problem = "is media that is the model's own or was not resolved"
			}
		case run.ToolUse:
			if len(b.Input) > 0 && !json.Valid(b.Input) {
				problem = "is a tool_use whose input is not JSON"
			}
		case run.ToolResult:
			if b.Blob != "" && b.Content == "" {
				problem = "is a tool_result that was not resolved"
			}
		default:
			problem = "has no block"
		}
		if problem != "" {
			return nil, &agent.ModelError{Class: agent.ModelInvalid, Message: fmt.Sprintf("message %d %s", i, problem)}
		}
	}
	return results, nil
}

// SentArguments returns a call's arguments, which are JSON, as they are sent back: one object. Another value, as the
// core makes of malformed arguments, is wrapped in one.
func SentArguments(input json.RawMessage) json.RawMessage {
	switch {
	case len(input) == 0:
		return json.RawMessage(`{}`)
	case jsonx.JSONKind(input) == '{':
		return input
	}
	wrapped, _ := jsonx.MarshalVerbatim(map[string]json.RawMessage{"malformed_input": input}) // JSON always marshals
	return wrapped
}

// Clip bounds a word of a service that is kept for the record: 128 bytes of UTF-8.
func Clip(s string) string {
	const limit = 128
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") // not half a character
	}
	return s
}
